//! Entries of directories.
//!
//! | Module | Directories |
//! |---|---|
//! | [`linear`] | plain ones: one pass over all blocks for all changes of a batch |
//! | [`inline`] | those that lie in their inode |
//! | [`encrypted`] | those whose names are encrypted |
//! | [`htree`] | indexed ones: by hash, in the order of hash, so that each leaf is opened once |
//!
//! A directory of one block that overflows becomes an indexed one where the file system has
//! `dir_index`, as in the kernel. An index that can grow no more is dropped: the directory goes on
//! as a plain one, since at commit nothing may fail for lack of room.
//!
//! # Invariants
//! 1. The size of a directory is a number of whole blocks, all of which are mapped.
//! 2. At most one leaf is open (held as a [`BufferWrite`]); its checksum is set when it is let go.

mod encrypted;
mod htree;
mod inline;
mod linear;

use std::sync::Arc;

use finefs_buffers::{BufferRead, BufferWrite};
use finefs_ext_disk::dirent::{
    DirBlock, DirRules, EntryType, TAIL_SIZE, encode_rec_len, entry_size,
};
use finefs_ext_disk::dirhash::{DirHash, DirHasher, VERSION_SIPHASH};
use finefs_ext_disk::features::{Compat, Incompat};
use finefs_ext_disk::htree::{DxBlock, DxPlace};
use finefs_ext_disk::inode::{InodeFlags, InodeRules};
use finefs_ext_disk::superblock::Superblock;
use finefs_ext_disk::{Ino as DiskIno, LogicalBlock};
use finefs_namespace::{DirectoryChange, Error, FileKind, Ino, Result};

use super::inode::{InodeEdit, InodeTable, disk_kind};
use super::map::{self, Run};
use super::space::Space;
use super::xattrs::{self, InlineValue};
use crate::crypt::FileCipher;
use crate::state::ExtState;

/// What the superblock says about directories.
pub(crate) struct DirFormat {
    rules: DirRules,
    inode_rules: InodeRules,
    /// New indexes get this hash; `None` where there shall be none.
    new_index: Option<u8>,
    superblock: Superblock,
    /// New directories lie in their inode.
    has_inline_data: bool,
}

impl DirFormat {
    pub(crate) fn of(superblock: &Superblock) -> DirFormat {
        let version = superblock.def_hash_version();
        let has_index = superblock.compat().contains(Compat::DIR_INDEX)
            && DirHasher::new(version, superblock).is_ok();
        DirFormat {
            rules: DirRules::of(superblock),
            inode_rules: InodeRules::of(superblock),
            new_index: has_index.then_some(version),
            superblock: superblock.clone(),
            has_inline_data: superblock.incompat().contains(Incompat::INLINE_DATA),
        }
    }

    /// The same for directories whose names are encrypted.
    pub(crate) fn encrypted(self, folds_case: bool) -> DirFormat {
        let keyed = |version| if folds_case { VERSION_SIPHASH } else { version };
        DirFormat {
            rules: self.rules.encrypted(folds_case),
            new_index: self.new_index.map(keyed),
            has_inline_data: false,
            ..self
        }
    }

    /// What an entry notes of the kind of what it names.
    fn entry_type(&self, target: Target) -> EntryType {
        match self.rules.has_filetype {
            true => target.entry_type,
            false => EntryType::UNKNOWN,
        }
    }

    fn has_index(&self) -> bool {
        self.superblock.compat().contains(Compat::DIR_INDEX)
    }
}

/// A change of one name: what it shall name, or nothing.
type NameChange = (Box<[u8]>, Option<(Ino, FileKind)>);

/// What an entry shall name.
#[derive(Clone, Copy)]
struct Target {
    ino: DiskIno,
    entry_type: EntryType,
}

impl Target {
    fn of(ino: Ino, kind: FileKind) -> Result<Target> {
        let number = u32::try_from(ino.0)
            .map_err(|_| Error::corrupt(format_args!("entry names inode {ino}")))?;
        Ok(Target {
            ino: DiskIno(number),
            entry_type: EntryType::from(disk_kind(kind)),
        })
    }
}

/// An entry to be written.
#[derive(Clone, Copy)]
struct NewEntry<'b> {
    name: &'b [u8],
    /// Its hash in the index, where that is known; it always is where it follows the name.
    hash: Option<DirHash>,
    target: Target,
}

/// The block with `.` and `..`, which is the root of an index.
const FIRST: LogicalBlock = LogicalBlock(0);

/// A directory while a batch changes it.
struct Directory<'s, 'a> {
    space: &'s mut Space<'a>,
    inode: &'s mut InodeEdit,
    format: &'s DirFormat,
    runs: Vec<Run>,
    /// Size in blocks.
    blocks: u64,
    open: Option<(LogicalBlock, BufferWrite<'a>)>,
    /// What hashes the names, where it takes a key: in an encrypted one that folds case.
    hashing: Option<Arc<FileCipher>>,
}

/// Makes a new directory: in its inode, or with its first block.
pub(crate) fn create(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
    format: &DirFormat,
    parent: u32,
) -> Result<()> {
    if inline::create(space, table, inode, format, parent)? {
        return Ok(());
    }
    Directory::empty(space, inode, format).begin(DiskIno(parent), &[])
}

/// Applies all changes of a directory.
pub(crate) fn change(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
    format: &DirFormat,
    change: DirectoryChange,
    is_created: bool,
) -> Result<()> {
    if !inode.is_directory() {
        return Err(inode.damaged("is not a directory"));
    }
    if inode.holds_inline_data() {
        let parent = change.parent.map(|to| Target::of(to, FileKind::Directory));
        let parent = parent.transpose()?.map(|target| target.ino);
        let outcome = inline::change(space, table, inode, format, parent, &change.entries)?;
        let inline::Outcome::NoRoom(moving) = outcome else {
            return Ok(());
        };
        move_out(space, table, inode, format, &moving)?;
    }
    let runs = map::runs(space, inode)?;
    let block_size = u64::from(space.state.geometry.block_size);
    let size = inode.disk.size(&format.inode_rules);
    // A size alone is no reason to look at more than there is.
    let mapped = runs.last().map_or(LogicalBlock(0), Run::end);
    let blocks = (size / block_size).min(mapped.0);
    let mut directory = Directory {
        space,
        inode,
        format,
        runs,
        blocks,
        open: None,
        hashing: None,
    };
    if let Some(parent) = change.parent
        && !is_created
    {
        directory.set_parent(parent)?;
    }
    let outcome = directory.apply(change.entries);
    directory.close();
    outcome
}

/// Moves a directory from its inode to a block, if it lies there.
pub(crate) fn leave_inode(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
    format: &DirFormat,
) -> Result<()> {
    if !inode.holds_inline_data() {
        return Ok(());
    }
    let moving = inline::Moving::of(inode)?;
    move_out(space, table, inode, format, &moving)
}

fn move_out(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
    format: &DirFormat,
    moving: &inline::Moving,
) -> Result<()> {
    xattrs::apply(space, table, inode, &[], InlineValue::Removed)?;
    super::inline::leave(inode, space.state.groups.has_extents())?;
    Directory::empty(space, inode, format).begin(moving.parent(), &moving.entries())
}

impl<'s, 'a> Directory<'s, 'a> {
    /// One without blocks.
    fn empty(
        space: &'s mut Space<'a>,
        inode: &'s mut InodeEdit,
        format: &'s DirFormat,
    ) -> Directory<'s, 'a> {
        Directory {
            space,
            inode,
            format,
            runs: Vec::new(),
            blocks: 0,
            open: None,
            hashing: None,
        }
    }

    /// Makes the first block, with entries that fit there.
    fn begin(mut self, parent: DiskIno, entries: &[NewEntry<'_>]) -> Result<()> {
        let (own, format) = (DiskIno(self.inode.ino), self.format);
        let (_, physical) = self.append()?;
        let mut buffer = self.state().buffers.zeroed(physical);
        let block = DirBlock::init_dots(&mut buffer[..], format.rules, own, parent);
        let mut block = block.map_err(|error| self.inode.damaged(error))?;
        let room = block.room();
        let mut room = room.map_err(|error| self.inode.damaged(error))?;
        for NewEntry { name, target, .. } in entries {
            let put = block.insert_in(&mut room, (name, None), target.ino, target.entry_type);
            put.map_err(|error| self.inode.damaged(error))?;
        }
        if let Some(seed) = self.inode.seed {
            block.update_checksum(seed);
        }
        Ok(())
    }
}

impl<'a> Directory<'_, 'a> {
    fn state(&self) -> &'a ExtState {
        self.space.state
    }

    fn block_size(&self) -> usize {
        self.state().geometry.block_size as usize
    }

    fn is_indexed(&self) -> bool {
        self.inode.disk.flags().contains(InodeFlags::INDEX)
    }

    fn set_indexed(&mut self, is_indexed: bool) {
        let mut flags = self.inode.disk.flags();
        flags.set(InodeFlags::INDEX, is_indexed);
        self.inode.disk.set_flags(flags);
    }

    /// Where a block of the directory lies; `None` for a hole.
    fn physical(&self, logical: LogicalBlock) -> Option<u64> {
        let at = self.runs.partition_point(|run| run.end() <= logical);
        let run = self.runs.get(at).filter(|run| run.logical <= logical)?;
        Some(run.physical + (logical - run.logical))
    }

    fn place(&self, logical: LogicalBlock) -> Result<u64> {
        let found = self.physical(logical).filter(|_| logical.0 < self.blocks);
        let block = found.ok_or_else(|| {
            self.inode
                .damaged(format_args!("directory block {logical}: not mapped"))
        })?;
        if self
            .state()
            .groups
            .can_own(&self.state().geometry, block, 1)
        {
            Ok(block)
        } else {
            Err(self
                .inode
                .damaged(format_args!("directory block {logical} lies at {block}")))
        }
    }

    /// Maps one block more at the end; its number and place. What it holds is the caller's to set.
    fn append(&mut self) -> Result<(LogicalBlock, u64)> {
        let before = self.runs.last().map(|last| last.physical + last.length - 1);
        let goal = before.map_or(self.inode.goal(self.space), |before| before + 1);
        let logical = LogicalBlock(self.blocks);
        let size = (self.blocks + 1) * self.block_size() as u64;
        let fits = self.inode.disk.set_size(&self.format.inode_rules, size);
        fits.map_err(|error| self.inode.damaged(error))?;
        let physical = self.space.allocate_for(logical, before, goal)?;
        let run = Run {
            logical,
            physical,
            length: 1,
            is_unwritten: false,
        };
        if let Err(error) = map::map(self.space, self.inode, run) {
            self.space.free(physical, 1);
            return Err(error);
        }
        match self.runs.last_mut() {
            Some(last) if last.end() == run.logical && last.physical + last.length == physical => {
                last.length += 1;
            }
            _ => self.runs.push(run),
        }
        self.blocks += 1;
        Ok((logical, physical))
    }

    /// Reads a leaf and checks its checksum.
    fn read_leaf(&self, logical: LogicalBlock) -> Result<BufferRead> {
        let bytes = self.state().buffers.read(self.place(logical)?)?;
        let damaged = |error| {
            self.inode
                .damaged(format_args!("directory block {logical}: {error}"))
        };
        let block = DirBlock::new(&bytes[..], self.format.rules).map_err(damaged)?;
        if let Some(seed) = self.inode.seed {
            block.verify_checksum(seed).map_err(damaged)?;
        }
        Ok(bytes)
    }

    /// Opens a leaf, after letting go of another.
    fn open(&mut self, logical: LogicalBlock) -> Result<DirBlock<&mut [u8]>> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != logical) {
            self.close();
            self.read_leaf(logical)?;
            let buffer = self.state().buffers.modify(self.place(logical)?)?;
            self.open = Some((logical, buffer));
        }
        self.opened()
    }

    /// Bytes for entries in a leaf.
    fn leaf_capacity(&self) -> usize {
        self.block_size()
            - if self.format.rules.has_tail {
                TAIL_SIZE
            } else {
                0
            }
    }

    /// Writes a leaf that holds these entries, which fit.
    fn write_leaf(&mut self, logical: LogicalBlock, entries: &[NewEntry<'_>]) -> Result<()> {
        self.close();
        let block_size = self.block_size();
        let capacity = self.leaf_capacity();
        let has_filetype = self.format.rules.has_filetype;
        let mut buffer = self.state().buffers.zeroed(self.place(logical)?);
        DirBlock::init(&mut buffer[..], self.format.rules)
            .map_err(|error| self.inode.damaged(error))?;
        let mut at = 0;
        for (i, entry) in entries.iter().enumerate() {
            let size = self.format.rules.entry_size(entry.name.len());
            let length = if i + 1 == entries.len() {
                capacity.saturating_sub(at)
            } else {
                size
            };
            let Some(bytes) = buffer
                .get_mut(at..at + size)
                .filter(|_| at + size <= capacity)
            else {
                return Err(self
                    .inode
                    .damaged(format_args!("directory block {logical} overflows")));
            };
            // One after the other, where `DirBlock::insert` would search for room each time.
            bytes[0..4].copy_from_slice(&entry.target.ino.0.to_le_bytes());
            bytes[4..6].copy_from_slice(&encode_rec_len(length, block_size).to_le_bytes());
            bytes[6] = entry.name.len() as u8;
            bytes[7] = if has_filetype {
                entry.target.entry_type.0
            } else {
                0
            };
            bytes[8..8 + entry.name.len()].copy_from_slice(entry.name);
            if let Some(hash) = entry.hash.filter(|_| self.format.rules.has_hashes) {
                let hash_at = entry_size(entry.name.len());
                bytes[hash_at..hash_at + 4].copy_from_slice(&hash.major.to_le_bytes());
                bytes[hash_at + 4..size].copy_from_slice(&hash.minor.to_le_bytes());
            }
            at += length;
        }
        if let Some(seed) = self.inode.seed {
            let mut block = DirBlock::new(&mut buffer[..], self.format.rules)
                .map_err(|error| self.inode.damaged(error))?;
            block.update_checksum(seed);
        }
        Ok(())
    }

    /// Makes a block an empty, open leaf.
    fn open_new(&mut self, logical: LogicalBlock) -> Result<DirBlock<&mut [u8]>> {
        self.close();
        let mut buffer = self.state().buffers.zeroed(self.place(logical)?);
        DirBlock::init(&mut buffer[..], self.format.rules)
            .map_err(|error| self.inode.damaged(error))?;
        self.open = Some((logical, buffer));
        self.opened()
    }

    fn opened(&mut self) -> Result<DirBlock<&mut [u8]>> {
        match &mut self.open {
            Some((_, buffer)) => {
                DirBlock::new(&mut buffer[..], self.format.rules).map_err(Error::corrupt)
            }
            None => Err(Error::corrupt("no directory block is open")),
        }
    }

    /// Lets go of the open leaf, with its checksum set.
    fn close(&mut self) {
        if let Some((_, mut buffer)) = self.open.take()
            && let Some(seed) = self.inode.seed
            && let Ok(mut block) = DirBlock::new(&mut buffer[..], self.format.rules)
        {
            block.update_checksum(seed);
        }
    }

    /// Points `..` at another directory.
    fn set_parent(&mut self, parent: Ino) -> Result<()> {
        let target = Target::of(parent, FileKind::Directory)?;
        if self.is_indexed() {
            let (_, mut buffer) = self.read_index(FIRST)?;
            let has_tail = self.format.rules.has_tail;
            let mut root = DxBlock::new(&mut buffer[..], DxPlace::Root, has_tail)
                .map_err(|error| self.inode.damaged(error))?;
            root.set_parent(target.ino);
            return self.write_index(FIRST, &mut root);
        }
        let damaged = self.inode.damaged("first directory block");
        let mut block = self.open(FIRST)?;
        let dotdot = match block.entries().nth(1) {
            Some(Ok(entry)) if entry.name == b".." => entry.offset,
            _ => return Err(damaged),
        };
        block
            .set_target(dotdot, target.ino, target.entry_type)
            .map_err(|_| damaged)?;
        self.close();
        Ok(())
    }

    fn apply(&mut self, changes: Vec<NameChange>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut changes = changes;
        let flags = self.inode.disk.flags();
        if flags.contains(InodeFlags::ENCRYPT) {
            let cipher = super::encrypted::cipher(self.state(), self.inode)?;
            match cipher {
                Some(cipher) => {
                    changes = self.encrypted(&cipher, changes)?;
                    let hashes = flags.contains(InodeFlags::CASEFOLD);
                    self.hashing = hashes.then_some(cipher);
                }
                None => return self.remove_encrypted(&changes),
            }
        }
        if self.is_indexed() && !self.format.has_index() {
            // Nobody may rely on the index, so nobody keeps it.
            self.drop_index()?;
        }
        if self.is_indexed() {
            return self.apply_indexed(changes);
        }
        let rest = self.apply_linear(changes)?;
        if rest.is_empty() {
            Ok(())
        } else {
            self.apply_indexed(rest)
        }
    }
}
