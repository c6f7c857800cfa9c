//! What a mounted file system is, for the loading and for the writing side.
//!
//! # Data model
//! | Field | Written by |
//! |---|---|
//! | `superblock` | mount, the commit, close |
//! | `geometry`, `seed`, `inode_rules`, `dir_rules` | mount, once |
//! | `buffers` | the loading side reads, the commit modifies |
//! | `data` | writers of files; the commit writes it out |
//! | `groups`, `allocator`, `journal`, `postponed` | the writing side |
//!
//! # Locking
//! ```text
//! (the namespace's locks)
//!   ext.directories        directories: a commit changes one, others look for names in it
//!   ext.shared_xattrs      blocks of attributes that inodes share, in a commit
//!   buffers.group          the writing side: block groups
//!     ext.quota            what users, groups and projects have
//!     ext.superblock       fields of the superblock
//!       ext.journal        the writer of the journal; a leaf
//!       ext.postponed      what the next commit takes over; a leaf
//!       ext.reserved_inodes   numbers for values of extended attributes; a leaf
//!       ext.batch_groups   the groups as a commit leaves them; a leaf
//!       ext.keyring        what encrypts files that were used; a leaf
//!       buffers.shard      a shard of the buffer cache; a leaf
//!       buffers.write_out  whether somebody makes room for file data; a leaf
//!       buffers.behind     pieces of large files that wait to be written out; a leaf
//!       buffers.data_cache a shard of the file data in memory; a leaf
//!       ext.shadow         what a replay of fast commits wrote in memory; a leaf
//! ```

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use finefs_block::BlockDevice;
use finefs_buffers::alloc::Allocator;
use finefs_buffers::{BufferCache, BufferRead, FileData};
use finefs_ext_disk as disk;
use finefs_ext_disk::checksum::FsSeed;
use finefs_ext_disk::dirent::DirRules;
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::group::GroupDesc;
use finefs_ext_disk::inode::{Inode, InodeRules};
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use finefs_ext_disk::{GroupNo, PhysBlock};
use finefs_locks::LockClass;
use finefs_namespace::{BlockRun, Error, Ino, Result, Settled, Timestamp};

use crate::BulkLoad;
use crate::crypt::Keyring;
use crate::error::at;
use crate::group::GroupTable;
use crate::journal::writer::JournalWriter;
use crate::on_error::OnError;
use crate::quota::Quotas;
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The superblock's fields.
pub static SUPERBLOCK: LockClass = LockClass::new("ext.superblock", 75);

/// The writer of the journal, to take it out and put it back: never held over anything else.
pub static JOURNAL: LockClass = LockClass::new("ext.journal", 76);

/// What the next commit takes over; see `Postponed`.
pub static POSTPONED: LockClass = LockClass::new("ext.postponed", 77);

/// Numbers of inodes that were reserved for values of extended attributes.
pub static RESERVED_INODES: LockClass = LockClass::new("ext.reserved_inodes", 77);

/// Directories that a commit changes, or in which somebody looks for a name.
pub static DIRECTORIES: LockClass = LockClass::new("ext.directories", 57).held_over_io();

/// Locks that directories share, by number: exclusively for who changes one, from its first block
/// to its inode, and shared for who reads some of its blocks.
pub(crate) struct DirectoryLocks([RwLock<()>; 64]);

impl DirectoryLocks {
    pub fn new() -> DirectoryLocks {
        DirectoryLocks(std::array::from_fn(|_| RwLock::new(&DIRECTORIES, ())))
    }

    fn of(&self, ino: Ino) -> &RwLock<()> {
        &self.0[(ino.0 % 64) as usize]
    }

    /// For who reads.
    pub fn shared(&self, ino: Ino) -> RwLockReadGuard<'_, ()> {
        self.of(ino).read()
    }

    /// For who changes.
    pub fn exclusive(&self, ino: Ino) -> RwLockWriteGuard<'_, ()> {
        self.of(ino).write()
    }
}

/// What commits left that were applied to the buffers, but for which there was no storage below the
/// device. Nothing of them was written; the buffers are still dirty. The next commit makes all of
/// it durable.
#[derive(Default)]
pub(crate) struct Postponed {
    /// There is something.
    pub is_there: bool,
    /// Blocks that were freed: not to be given out before the commit is durable.
    pub freed: Vec<BlockRun>,
    /// Inode numbers that were freed, and whether they were directories.
    pub freed_inodes: Vec<(u32, bool)>,
    /// Blocks that became metadata.
    pub fresh: HashSet<u64>,
    /// What inodes take.
    pub settled: Vec<Settled>,
}

/// See the module's head.
pub(crate) struct ExtState {
    /// Where the file system lies.
    pub device: Arc<dyn BlockDevice>,
    /// The superblock as it will be written next. Never held over I/O.
    pub superblock: Mutex<Superblock>,
    /// What follows from the superblock and does not change.
    pub geometry: Geometry,
    /// Where metadata checksums start; `None` without `metadata_csum`.
    pub seed: Option<FsSeed>,
    /// What the features say about inodes.
    pub inode_rules: InodeRules,
    /// What the features say about directory blocks.
    pub dir_rules: DirRules,
    /// The metadata.
    pub buffers: BufferCache,
    /// Of directories that change and are read.
    pub directories: DirectoryLocks,
    /// Data of files.
    pub data: FileData,
    /// The group descriptors (writing side).
    pub groups: GroupTable,
    /// The live allocator of blocks and inode numbers (writing side).
    pub allocator: Allocator,
    /// What writes the journal, where there is one; a commit takes it out and puts it back.
    pub journal: Mutex<Option<JournalWriter>>,
    /// What commits that found no storage below the device left for the next one.
    pub postponed: Mutex<Postponed>,
    /// Numbers of inodes that were reserved for values of extended attributes (ea_inode), with a
    /// generation each.
    pub reserved_inodes: Mutex<Vec<(u32, u32)>>,
    /// Values of extended attributes may lie in inodes of their own (ea_inode).
    pub has_value_inodes: bool,
    /// Where hashes of values start, and checksums of metadata if it has some.
    pub fs_seed: FsSeed,
    /// What to do about damage.
    pub on_error: OnError,
    /// Blocks that no file can ever have.
    pub overhead_blocks: u64,
    /// Nothing may be written.
    pub is_read_only: bool,
    /// Commits go through the journal.
    pub is_journaled: bool,
    /// It has just been made and is being filled.
    pub bulk_load: Option<BulkLoad>,
    /// Storage below what a commit frees is given back.
    pub discards: bool,
    /// What opens encrypted files, where the image may have some and there are keys.
    pub keyring: Option<Keyring>,
    /// Inodes have projects.
    pub has_projects: bool,
    /// Files can be sealed.
    pub has_verity: bool,
    /// What users, groups and projects have, where the image keeps account of that and may be
    /// written; set once, at mount.
    pub quotas: OnceLock<Quotas>,
}

/// Where an inode lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InodeLocation {
    /// The block of the inode table.
    pub block: u64,
    /// The first block of the inode table.
    pub table: u64,
    /// Blocks of the inode table.
    pub table_blocks: u64,
    /// Byte offset within the block.
    pub offset_bytes: usize,
    /// The size of the inode.
    pub size_bytes: usize,
}

impl InodeLocation {
    fn range(&self) -> Range<usize> {
        self.offset_bytes..self.offset_bytes + self.size_bytes
    }
}

/// The bytes of an inode within a snapshot of its block.
#[derive(Clone, Debug)]
pub(crate) struct InodeBytes {
    buffer: BufferRead,
    range: Range<usize>,
}

impl AsRef<[u8]> for InodeBytes {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

/// The number of an inode as the codecs have it; `Error::Stale` when there can be no such inode.
pub(crate) fn disk_ino(ino: Ino) -> Result<disk::Ino> {
    match u32::try_from(ino.0) {
        Ok(number) if number > 0 => Ok(disk::Ino(number)),
        _ => Err(Error::Stale),
    }
}

impl ExtState {
    /// Where an inode lies. `Error::Stale` when there is no such number.
    pub fn inode_location(&self, ino: Ino) -> Result<InodeLocation> {
        let place = self
            .geometry
            .locate_inode(disk_ino(ino)?)
            .ok_or(Error::Stale)?;
        let table = self
            .groups
            .place(place.group.0)
            .map_or(0, |group| group.inode_table);
        locate(&self.geometry, PhysBlock(table), &place)
    }

    /// An inode, read only. Its checksum and contents are not checked here.
    pub fn read_inode(&self, ino: Ino) -> Result<Inode<InodeBytes>> {
        read_at(&self.buffers, self.inode_location(ino)?, ino)
    }

    /// Takes the journal's writer out; `None` for an image without a journal. An image that has one
    /// but whose writer did not come back (a commit panicked) must not be written in any other way:
    /// what its log holds would be replayed over it.
    pub fn take_journal(&self) -> Result<Option<JournalWriter>> {
        let writer = self.journal.lock().take();
        if writer.is_none() && self.is_journaled {
            return Err(Error::io("the journal was lost by an earlier failure"));
        }
        Ok(writer)
    }

    /// False where an inode that is flagged to hold its content must not be changed: the file
    /// system has no `inline_data`.
    pub fn may_hold_inline_data(&self) -> bool {
        self.is_read_only || (self.superblock.lock().incompat()).contains(Incompat::INLINE_DATA)
    }

    /// The time for the superblock.
    pub fn now_seconds(&self) -> u64 {
        self.bulk_load.map_or_else(
            || Timestamp::now().seconds().max(0) as u64,
            |load| load.seconds,
        )
    }

    /// Puts the superblock as it is now into its buffer, with its checksum, to be written out.
    pub fn put_superblock(&self) -> Result<()> {
        let mut buffer = self.buffers.modify(self.geometry.super_block().0)?;
        let mut superblock = self.superblock.lock();
        superblock.update_checksum();
        let start = (SUPERBLOCK_OFFSET % u64::from(self.geometry.block_size)) as usize;
        buffer[start..start + SUPERBLOCK_SIZE].copy_from_slice(superblock.as_bytes());
        Ok(())
    }
}

/// [`ExtState::read_inode`] before there is a state.
pub(crate) fn read_inode(
    buffers: &BufferCache,
    geometry: &Geometry,
    ino: Ino,
) -> Result<Inode<InodeBytes>> {
    let place = geometry.locate_inode(disk_ino(ino)?).ok_or(Error::Stale)?;
    let table = inode_table(buffers, geometry, place.group)?;
    read_at(buffers, locate(geometry, table, &place)?, ino)
}

fn locate(
    geometry: &Geometry,
    table: PhysBlock,
    place: &disk::geometry::InodeLocation,
) -> Result<InodeLocation> {
    if !geometry.contains_run(table, u64::from(geometry.inode_table_blocks)) {
        return Err(Error::corrupt(format_args!(
            "group {}: inode table at block {table}, outside the file system",
            place.group
        )));
    }
    Ok(InodeLocation {
        block: table.0 + u64::from(place.table_block),
        table: table.0,
        table_blocks: u64::from(geometry.inode_table_blocks),
        offset_bytes: place.offset as usize,
        size_bytes: usize::from(geometry.inode_size),
    })
}

fn read_at(buffers: &BufferCache, location: InodeLocation, ino: Ino) -> Result<Inode<InodeBytes>> {
    let table = location.table..location.table + location.table_blocks;
    let buffer = buffers.read_among(location.block, table)?;
    Inode::new(InodeBytes {
        buffer,
        range: location.range(),
    })
    .map_err(|error| at(format_args!("inode {ino}"), error))
}

/// A group's inode table, as its descriptor says.
fn inode_table(buffers: &BufferCache, geometry: &Geometry, group: GroupNo) -> Result<PhysBlock> {
    let (index, offset) = geometry.desc_position(group);
    let block = geometry.desc_block(index);
    if !geometry.contains_block(block) {
        return Err(Error::corrupt(format_args!(
            "group {group}: no room for its descriptor"
        )));
    }
    let buffer = buffers.read(block.0)?;
    let range = offset as usize..offset as usize + usize::from(geometry.desc_size);
    GroupDesc::new(&buffer[range])
        .map(|desc| desc.inode_table())
        .map_err(|error| at(format_args!("group {group}: descriptor"), error))
}
