//! The store: what keeps a namespace's objects when they are not in memory.
//!
//! # The contract
//!
//! A store never sees concurrent calls that mutate metadata. The namespace is authoritative: it
//! loads an object on first use, changes it in memory, leaves log records, and hands batches of
//! coalesced records to [`Store::commit`], one at a time, from one thread.
//!
//! What is concurrent, and what the store must therefore guard itself:
//! - the `load_*` calls, with each other and with a commit. The namespace never loads a part of an
//!   object (its inode, its entries, its mapping, its xattrs) while records that change that part
//!   are uncommitted, so a load never has to see a half-applied part; it may share blocks with one;
//! - `read` and `write` of data at blocks that are allocated to a file;
//! - the allocator calls.
//!
//! # Space
//!
//! `allocate_inode` and `allocate_blocks` take effect in the live allocator at once and are known
//! to nobody else until a batch names them. An operation that fails gives back what it took by
//! `release_inode` and `release_blocks`. Whatever a batch frees becomes allocatable again only when
//! the commit of that batch is durable. Because nothing may fail after a log record is appended,
//! every operation first reserves, by [`Store::reserve`], the metadata blocks that applying its
//! records can need at most; a batch carries the sum of its reservations back.
//!
//! # Damage
//!
//! What applying a record will need is looked at before its operation succeeds: by the load of the
//! part that it changes, by the allocation, or by the reservation. So a store does not find only at
//! the commit that it cannot keep what was promised. Where something that a batch frees turns out
//! to be damaged, it stays allocated: [`Committed::damage`].

use std::ops::Range;

pub use crate::base::committed::{Committed, Settled};
pub use crate::base::directory_image::{DirectoryImage, EntryImage, PLACES, PlacedName};
use crate::base::error::{Error, Result};
pub use crate::base::extents::{BlockRun, ContentPlace, Extent, ExtentState, Goal, MapChange};
#[cfg(doc)]
use crate::base::file_flags::FileFlags;
pub use crate::base::identity::Identity;
pub use crate::base::inode_form::{ID_MAX, InodeForm};
pub use crate::base::name_rules::{FoldName, Folding, NameClasses};
use crate::base::parallel::CommitThreads;
pub use crate::base::quotas::{
    Allowance, Charge, Limited, QuotaAccount, QuotaChange, QuotaLimits, QuotaOwners,
};
use crate::base::types::{
    Attributes, BlockNo, FileKind, Ino, LogicalBlock, ReadAt, SealParameters, StatFs, Times,
    VerityDigest,
};

/// Facts about a store that do not change while it is mounted.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// The root directory.
    pub root: Ino,
    /// Size of a block in bytes; a power of two.
    pub block_size_bytes: u32,
    /// Blocks of a cluster, a power of two, mostly 1: what is allocated, mapped and freed. Clusters
    /// of a file, which are counted from its start, lie in whole clusters of the store.
    pub cluster_blocks: u64,
    /// What new inodes can have.
    pub new_form: InodeForm,
    /// What those of an older form can have ([`InodeImage::is_old_form`]).
    pub old_form: InodeForm,
    /// Offsets and lengths of direct I/O are multiples of this many bytes.
    pub direct_alignment_bytes: u32,
    /// Most links of a file that is not a directory.
    pub link_max: u32,
    /// Most links of a directory, `None` where directories may have any number.
    pub directory_link_max: Option<u32>,
    /// A directory with more links shows 1, from then on (dir_nlink).
    pub directory_links_counted_max: u32,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Longest symbolic link target in bytes.
    pub symlink_max: u32,
    /// Symbolic links up to this length (in bytes) need no block.
    pub symlink_inline_max: u32,
    /// Contents of files up to this length (in bytes) lie in their inodes, where extended
    /// attributes leave room; 0 where none do.
    pub inline_max_bytes: u32,
    /// Times have nanoseconds (else whole seconds, and 1901 to 2038).
    pub has_fine_times: bool,
    /// Inodes keep the time of birth.
    pub has_birth_times: bool,
    /// Whole seconds have no sign: 1970 to 2106.
    pub has_unsigned_times: bool,
    /// Blocks can be allocated without being written (unwritten extents).
    pub has_unwritten: bool,
    /// The last blocks of a file may be packed ([`BlockNo::PACKED`]).
    pub has_packed_blocks: bool,
    /// To map blocks behind a hole takes space for the hole too.
    pub maps_holes: bool,
    /// About how many log records a batch should have at most, so that the store can commit it in
    /// one step (a journal is only so long). More are taken too.
    pub batch_records: Option<u64>,
    /// How names are compared in directories that find them whatever their case
    /// ([`FileFlags::CASEFOLD`]); `None` where there can be none.
    pub folding: Option<Folding>,
    /// How many names of a directory the store can tell apart; `None` where any number.
    pub name_classes: Option<&'static NameClasses>,
    /// The store takes no changes.
    pub is_read_only: bool,
    /// No more changes once the store has found that what it holds is damaged.
    pub stops_on_damage: bool,
    /// What tells this file system from all others.
    pub identity: Identity,
}

/// An inode as the store holds it.
#[derive(Clone, Debug)]
pub struct InodeImage {
    /// All that stat(2) shows.
    pub attributes: Attributes,
    /// The content, when it is stored with the inode (inline_data).
    pub inline: Option<Vec<u8>>,
    /// Names why the content cannot be read (an encrypted file, a damaged map ...); the
    /// attributes are good. `None` for all ordinary inodes.
    pub unreadable: Option<Error>,
    /// Of an older form than new ones get ([`Geometry::old_form`]), which holds no unwritten
    /// blocks.
    pub is_old_form: bool,
    /// False when it surely has no ACLs, so that nobody needs to load its attributes to check a
    /// permission.
    pub may_have_acls: bool,
}

/// What becomes of an inode by a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// It has a name (or is the root).
    Linked,
    /// It has no name but is still in use: keep it, and note it as an orphan so that a later
    /// mount frees it.
    Orphan,
    /// It is gone: free its number, its blocks (also those of a directory or xattrs). All its
    /// other changes in the batch still name what was allocated to it.
    Freed,
}

/// An extended attribute that changed: its full name ("user.x") and its value, `None` where it was
/// removed.
pub type XattrChange = (Box<[u8]>, Option<Box<[u8]>>);

/// A name whose entry changed, and what it names after the batch, `None` where nothing.
pub type EntryChange = (Box<[u8]>, Option<(Ino, FileKind)>);

/// What becomes of a content that lies in the inode, or might.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InlineChange {
    /// It is this, all of it in the inode. Nothing is mapped.
    Content(Box<[u8]>),
    /// It lies in blocks from now on, which changes of the mapping name.
    Moved,
}

/// All that a batch changes of one inode. `attributes` are those after the batch.
#[derive(Clone, Debug)]
pub struct InodeChange {
    /// Which.
    pub ino: Ino,
    /// True when the inode comes to be in this batch: what the store holds at its number is
    /// stale and must not be read.
    pub is_created: bool,
    /// What becomes of it.
    pub link_state: LinkState,
    /// The attributes after the batch. `sectors` is not meaningful: the store keeps that count.
    /// For a directory `link_count` and `size_bytes` are not meaningful: see `link_delta`; the
    /// store keeps its size.
    pub attributes: Attributes,
    /// Directories: the change of the link count (subdirectories made less removed). The count
    /// of a created directory starts at 2.
    pub link_delta: i64,
    /// Target of a created symbolic link.
    pub symlink: Option<Box<[u8]>>,
    /// Changes of the data mapping, in order.
    pub map: Vec<MapChange>,
    /// Extended attributes that changed.
    pub xattrs: Vec<XattrChange>,
    /// Where the content lies, when that or the content in the inode changed.
    pub inline: Option<InlineChange>,
}

/// All that a batch changes of one directory's entries.
#[derive(Clone, Debug)]
pub struct DirectoryChange {
    /// Which. A created directory's inode is also in the batch's inodes.
    pub dir: Ino,
    /// The parent after the batch, when it changed or when the directory is created.
    pub parent: Option<Ino>,
    /// Names whose entry changed. A name may or may not have an entry before: setting replaces,
    /// removing a missing name is no error.
    pub entries: Vec<EntryChange>,
}

/// A causally closed set of changes, coalesced to one change per object.
///
/// An inode that was created and freed within the batch does not appear in `inodes`: only what was
/// taken from the live allocator for it appears, in `unused_inodes` and `unused_blocks`.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Changed inodes; each at most once, in ascending order of number. Every directory in
    /// `directories` has its inode here too (its times changed), unless it is gone. Boxed, as very
    /// many are sorted and handed on, and a vector of them would be as large as all of them again.
    pub inodes: Vec<Box<InodeChange>>,
    /// Changed directories that live on; each at most once.
    pub directories: Vec<DirectoryChange>,
    /// Inode numbers that were allocated and are not used after all.
    pub unused_inodes: Vec<(Ino, FileKind)>,
    /// Blocks that were allocated and are not used after all.
    pub unused_blocks: Vec<BlockRun>,
    /// The sum of the reservations (in blocks) of the operations in this batch, but for those that
    /// cancelled out: what applying it may allocate. The store takes back what it does not use.
    pub reserved_blocks: u64,
    /// How many threads may apply it.
    pub threads: CommitThreads,
    /// The generation of the log that it is.
    pub generation: u64,
}

impl Batch {
    /// True when there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty()
            && self.directories.is_empty()
            && self.unused_inodes.is_empty()
            && self.unused_blocks.is_empty()
            && self.reserved_blocks == 0
    }
}

/// Gives the times of an inode as they are now; asked by all threads that apply a batch.
pub type Captured<'a> = dyn Fn(Ino) -> Option<Times> + Sync + 'a;

/// How many blocks of metadata applying a batch changes, at most. The namespace only adds up.
///
/// It is a bound for what batches look like, not for the worst that could be made up: one hole
/// punched into a file of a million extents changes more. So [`BatchCost::blocks_max`] is well
/// below what the store can hold.
pub trait BatchCost: Send + Sync {
    /// How many blocks a batch should change at most.
    fn blocks_max(&self) -> u64;

    /// Tells which block an inode lies in: inodes of one block have the same number, and it does
    /// not fall as the numbers of inodes rise.
    fn table_block(&self, ino: Ino) -> u64;

    /// What a change of an inode changes beside the block that the inode lies in.
    fn of_inode(&self, change: &InodeFootprint) -> InodeCost;

    /// Blocks that so many changes of what is free change.
    fn of_space(&self, changes: u64) -> u64;

    /// Blocks that the changed names of a directory change.
    fn of_names(&self, names: &NameChanges) -> u64;

    /// Blocks that were reserved by [`Store::charge`] and no batch has taken yet.
    fn of_charges(&self) -> u64 {
        0
    }
}

/// What counts of an inode's change for [`BatchCost::of_inode`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeFootprint {
    /// It comes to be.
    pub is_created: bool,
    /// What becomes of it.
    pub link_state: LinkState,
    /// The size, where it changes.
    pub size_bytes: Option<u64>,
    /// The length of a created symbolic link's target.
    pub target_bytes: usize,
    /// Extended attributes change, or what shares their place.
    pub has_xattrs: bool,
    /// How many extended attributes are set or removed; each counts as often as it is.
    pub value_changes: u64,
    /// The lengths of the values that are set together, in bytes.
    pub value_bytes: u64,
    /// How many changes of the mapping there are.
    pub map_changes: u64,
    /// The end of what is mapped anew.
    pub mapped_end: LogicalBlock,
    /// Blocks that are mapped anew, however few changes that takes.
    pub mapped_blocks: u64,
}

/// What [`BatchCost::of_inode`] tells.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct InodeCost {
    /// Blocks that belong to the inode alone: its map, its extended attributes, its target.
    pub own_blocks: u64,
    /// How often it changes what is free, and how much.
    pub space_changes: u64,
}

/// How many names of a directory a batch changes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NameChanges {
    /// Names that are new, gone, or name another inode.
    pub changed: u64,
    /// The new ones among them.
    pub added: u64,
    /// The lengths of the new ones together, in bytes.
    pub added_bytes: u64,
    /// What the directory took when it was last committed, in units of 512 bytes; 0 where unknown.
    pub sectors: u64,
}

/// What an operation will do, so that the store can say how many metadata blocks applying it can
/// need at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plan {
    /// A name is added to a directory (create, link, rename, symlink ...).
    AddEntry {
        /// The directory's number of entries is about this.
        entries_about: u64,
    },
    /// A new directory gets its first block.
    NewDirectory,
    /// A symbolic link's target of this length is stored.
    NewSymlink {
        /// In bytes.
        length_bytes: u32,
    },
    /// `extents` new runs of blocks are mapped into a file.
    Mapping {
        /// Number of runs.
        extents: u64,
        /// Blocks of the hole between them and what is mapped before, if nothing was mapped behind;
        /// 0 but where [`Geometry::maps_holes`] is true.
        hole: u64,
        /// The file is [`InodeImage::is_old_form`]; each run is of
        /// [`InodeForm::run_max_blocks`] at most.
        is_old_form: bool,
    },
    /// Up to `extents` extents are split, as a part of them is freed or converted. That frees
    /// space, or uses what was allocated before, so it must work where no other plan finds space.
    Split {
        /// Number of extents.
        extents: u64,
    },
    /// An extended attribute is set.
    Xattr,
    /// An extended attribute of a value of this length is set, for which the store may have a place
    /// of its own.
    LargeXattr {
        /// In bytes.
        length_bytes: u32,
    },
    /// An extended attribute is removed; as with `Split`, that works where no space is left.
    XattrRemoval,
}

/// See the module's head for the contract.
pub trait Store: Send + Sync + 'static {
    /// Facts that do not change.
    fn geometry(&self) -> &Geometry;

    /// Loads an inode. A number that is out of range or free is `Error::Stale`.
    fn load_inode(&self, ino: Ino) -> Result<InodeImage>;

    /// Loads all entries of a directory.
    fn load_directory(&self, ino: Ino) -> Result<DirectoryImage>;

    /// The parent of a directory whose names can be found one by one, by [`Store::find_name`] and
    /// [`Store::names_from`], if they are about so many or more. Any other is loaded whole.
    fn open_large_directory(&self, ino: Ino, names_min: u64) -> Result<Option<Ino>> {
        let _ = (ino, names_min);
        Ok(None)
    }

    /// What a name names, and its kind where the format notes it in the entry. Other than the loads
    /// it is called while other names of the directory change.
    fn find_name(&self, dir: Ino, name: &[u8]) -> Result<Option<(Ino, Option<FileKind>)>> {
        let mut entries = self.load_directory(dir)?.entries.into_iter();
        let found = entries.find(|entry| entry.name == name);
        Ok(found.map(|entry| (entry.ino, entry.kind)))
    }

    /// Gives names of a directory in an order of the store's own, in which a name keeps its place
    /// (less than [`PLACES`]): some from one on, all of a place at once. Tells where to go on, if
    /// that is not the end. As with [`Store::find_name`], others may change meanwhile.
    fn names_from(&self, dir: Ino, place: u64, names: &mut Vec<PlacedName>) -> Result<Option<u64>> {
        let _ = (dir, place, names);
        Err(Error::NotSupported)
    }

    /// Loads the whole mapping of a regular file: extents in ascending order that do not overlap.
    fn load_extents(&self, ino: Ino) -> Result<Vec<Extent>>;

    /// The digest of a sealed file ([`FileFlags::VERITY`]) whose blocks end at `end_bytes`; `read`
    /// reads what lies in them, also behind the end of the file.
    fn verity_digest(&self, ino: Ino, end_bytes: u64, read: &ReadAt<'_>) -> Result<VerityDigest> {
        let _ = (ino, end_bytes, read);
        Err(Error::NotSupported)
    }

    /// What seals a file of so many bytes ([`FileFlags::VERITY`]): where it goes, behind the data,
    /// and whole blocks of bytes. `Error::NotSupported` where files cannot be sealed.
    fn seal(
        &self,
        size_bytes: u64,
        parameters: &SealParameters<'_>,
        read: &ReadAt<'_>,
    ) -> Result<(u64, Vec<u8>)> {
        let _ = (size_bytes, parameters, read);
        Err(Error::NotSupported)
    }

    /// Loads the target of a symbolic link.
    fn load_symlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Loads all extended attributes: full name and value.
    fn load_xattrs(&self, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>>;

    /// Reads data at `offset_bytes` from the start of `block`; may run over several adjacent
    /// blocks.
    fn read(&self, block: BlockNo, offset_bytes: u64, buffer: &mut [u8]) -> Result<()>;

    /// Writes data at `offset_bytes` from the start of `block`; may run over several adjacent
    /// blocks. The store may keep it in memory until the next commit, which fails when it cannot be
    /// written then.
    fn write(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()>;

    /// Writes data into blocks that hold nothing yet: what it leaves of its first and last block
    /// becomes zeros. It may be kept in memory as with [`Store::write`].
    fn write_blank(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        write_padded(self, block, offset_bytes, data)
    }

    /// [`Store::read`] of a file's content.
    fn read_content(
        &self,
        place: ContentPlace,
        block: BlockNo,
        offset_bytes: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        let _ = place;
        self.read(block, offset_bytes, buffer)
    }

    /// [`Store::write`] of a file's content.
    fn write_content(
        &self,
        place: ContentPlace,
        block: BlockNo,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        let _ = place;
        self.write(block, offset_bytes, data)
    }

    /// [`Store::write_content`] over data of the file that lay there before, and that the file goes
    /// on to have at that place. A commit need not bring it to the device, as nothing that it makes
    /// durable refers to it anew; [`Store::write_data`] and [`Store::write_back`] do.
    fn overwrite_content(
        &self,
        place: ContentPlace,
        block: BlockNo,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        self.write_content(place, block, offset_bytes, data)
    }

    /// [`Store::write_blank`] of a file's content.
    fn write_blank_content(
        &self,
        place: ContentPlace,
        block: BlockNo,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        let _ = place;
        self.write_blank(block, offset_bytes, data)
    }

    /// [`Store::write_zeros`] that are a file's content.
    fn write_zero_content(&self, place: ContentPlace, run: BlockRun) -> Result<()> {
        let _ = place;
        self.write_zeros(run)
    }

    /// These blocks are a piece of a large file that was just written to its end, so that what a
    /// store keeps of them in memory may go out now. What cannot be written stays for the next
    /// commit. Some of the blocks may have been cut off the file meanwhile, and be free or
    /// another's.
    fn write_behind(&self, run: BlockRun) {
        let _ = run;
    }

    /// What was written to these blocks is on the device when this returns, and durable after the
    /// next commit or [`Store::flush`] that begins after that. What cannot be written is an error,
    /// and stays. Some of the blocks may have been cut off the file meanwhile, and be free or
    /// another's. A store that keeps no data in memory has nothing to do.
    fn write_data(&self, runs: &[BlockRun]) -> Result<()> {
        let _ = runs;
        Ok(())
    }

    /// [`Store::write_data`] of all data in memory that no commit has to bring to the device, as it
    /// is when this begins: in pieces that become durable one by one, so that somebody's sync
    /// meanwhile has to wait for one of them only.
    fn write_back(&self) -> Result<()> {
        Ok(())
    }

    /// What is on the device is durable. A store that persists nothing has nothing to do.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Writes zeros over whole blocks.
    fn write_zeros(&self, run: BlockRun) -> Result<()>;

    /// Takes a free inode number for a new object in `parent`; also gives its generation.
    fn allocate_inode(&self, parent: Ino, kind: FileKind) -> Result<(Ino, u32)>;

    /// Whether names can be added to an encrypted directory ([`FileFlags::ENCRYPTED`]):
    /// `Error::NoKey` where its key is not there. Names can be removed all the same.
    fn check_encrypted(&self, dir: Ino) -> Result<()> {
        let _ = dir;
        Err(Error::NoKey)
    }

    /// Gets ready that a directory without names, with these extended attributes, is given
    /// [`FileFlags::ENCRYPTED`]. What is made in it is encrypted from then on.
    fn begin_encryption(&self, dir: Ino, xattrs: &[(&[u8], &[u8])]) -> Result<()> {
        let _ = (dir, xattrs);
        Err(Error::NotSupported)
    }

    /// Whether an encrypted directory may name this file, which has another name or had one: it
    /// must be encrypted as the directory is.
    fn may_name_encrypted(&self, dir: Ino, ino: Ino) -> Result<bool> {
        let _ = (dir, ino);
        Err(Error::NoKey)
    }

    /// How long the target of a symbolic link is as it is stored in an encrypted directory;
    /// `Error::NameTooLong` where it is too long.
    fn encrypted_target_bytes(&self, dir: Ino, length_bytes: u32) -> Result<u32> {
        let _ = (dir, length_bytes);
        Err(Error::NoKey)
    }

    /// Gives back an inode number that was never logged, or of an inode that is gone where there is
    /// no log.
    fn release_inode(&self, ino: Ino, kind: FileKind);

    /// Takes 1 to `count` adjacent free blocks for `ino`, if possible at `goal` or soon after. They
    /// are whole clusters, and so is what is asked for.
    fn allocate_blocks(&self, ino: Ino, goal: Option<Goal>, count: u64) -> Result<BlockRun>;

    /// Gives back blocks that were never logged, or that nothing maps any more where there is no
    /// log. A cluster goes with its first block.
    fn release_blocks(&self, run: BlockRun);

    /// Reserves what applying the plans can need; gives the number of blocks reserved, or a number
    /// that stands for more than blocks. Such numbers add up.
    fn reserve(&self, plans: &[Plan]) -> Result<u64>;

    /// Asks for something on somebody's quota, before it is logged in `generation`, whose batch
    /// counts what came of it. `Error::QuotaExceeded` where it would be more than is allowed; after
    /// a commit, which counts what was removed, it is tried again.
    fn charge(&self, charge: &Charge, generation: &dyn Fn() -> u64) -> Result<()> {
        let _ = (charge, generation);
        Ok(())
    }

    /// Gives back what was asked for where nothing came of it.
    fn uncharge(&self, charge: &Charge) {
        let _ = charge;
    }

    /// What one of these owners may have and has, where limits count; what was asked for has it.
    fn allowance(&self, owners: QuotaOwners, id: u32) -> Allowance {
        let _ = (owners, id);
        Allowance::default()
    }

    /// Sets limits or grace times, which the next commit that is not empty makes durable: of this
    /// generation or later. `Error::NotSupported` where no account is kept of such owners.
    fn set_quota(
        &self,
        owners: QuotaOwners,
        change: &QuotaChange,
        generation: &dyn Fn() -> u64,
    ) -> Result<()> {
        let _ = (owners, change, generation);
        Err(Error::NotSupported)
    }

    /// What an owner has and may have, as of the last commit. `Error::NotSupported` where no
    /// account is kept of such owners.
    fn quota(&self, owners: QuotaOwners, id: u32) -> Result<QuotaAccount> {
        let _ = (owners, id);
        Err(Error::NotSupported)
    }

    /// Inodes have projects (chattr -p).
    fn has_projects(&self) -> bool {
        false
    }

    /// An inode has room for a project, or can be given it, where inodes have them.
    fn has_room_for_project(&self, ino: Ino) -> Result<bool> {
        let _ = ino;
        Ok(true)
    }

    /// What to answer where there is no space and commits have brought none: `Error::NoSpace`, or
    /// the damage because of which space that there may be is not used.
    fn why_no_space(&self) -> Error {
        Error::NoSpace
    }

    /// Gives back a reservation that was never logged, or whose operation cancelled out with
    /// others. Called within operations: it must not wait for a commit.
    fn unreserve(&self, blocks: u64);

    /// Checks that an inode's xattrs, as they would be, fit (ENOSPC, E2BIG or ERANGE if not),
    /// beside a content of so many bytes in the inode, if there is one. Gives what the value of the
    /// last, if that is set now, takes of its own on quotas: inodes and bytes, of nobody yet.
    fn check_xattrs(
        &self,
        ino: Ino,
        inline_bytes: Option<u64>,
        xattrs: &[(&[u8], &[u8])],
    ) -> Result<Charge>;

    /// How many inodes one counts for on quotas, as of the last commit: with those of its values.
    fn quota_inodes(&self, _ino: Ino) -> Result<u64> {
        Ok(1)
    }

    /// Applies a batch, writes everything out and makes it durable; then frees what it freed. Data
    /// that was written before the call is durable no later than what the batch says of it. An
    /// empty batch makes earlier data writes durable. Called by one thread at a time.
    ///
    /// `Error::NoSpace`: there is no storage below the device at the moment. The store has taken
    /// the batch in, and the next commit that succeeds makes it durable too. After any other error
    /// nothing is committed any more.
    ///
    /// `captured` gives the times of an inode at the moment it is written out.
    fn commit(&self, batch: Batch, captured: &Captured<'_>) -> Result<Committed>;

    /// Tells how many blocks of metadata batches change, where there is a limit to that. Then
    /// batches of more than [`Geometry::batch_records`] records are welcome that come to no more
    /// blocks than it allows.
    fn batch_cost(&self) -> Option<&dyn BatchCost> {
        None
    }

    /// True when a file of this size with so many blocks surely takes no space beside its data,
    /// since its mapping fits the inode. `is_block_mapped`: the blocks are mapped one by one.
    fn mapping_fits_inode(&self, size_bytes: u64, blocks: u64, is_block_mapped: bool) -> bool {
        let _ = (size_bytes, blocks, is_block_mapped);
        false
    }

    /// Free and used space.
    fn statfs(&self) -> StatFs;

    /// Brings what is stored into the state of a clean end, durably, so that it can be copied;
    /// nothing is written then before [`Store::thaw`]. After a commit; no other follows meanwhile.
    fn freeze(&self) -> Result<()> {
        Ok(())
    }

    /// Ends [`Store::freeze`].
    fn thaw(&self) -> Result<()> {
        Ok(())
    }

    /// The label of the file system.
    fn label(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Sets the label; the next commit that is not empty makes it durable. `Error::Invalid` where
    /// it is too long.
    fn set_label(&self, label: &[u8]) -> Result<()> {
        let _ = label;
        Err(Error::NotSupported)
    }

    /// Gives back the storage below some of the free blocks in `blocks`, in runs of at least
    /// `run_min`. Tells where to go on, and how many blocks they were; `None` where there are no
    /// more.
    fn trim(&self, blocks: Range<u64>, run_min: u64) -> Result<Option<(u64, u64)>> {
        let _ = (blocks, run_min);
        Err(Error::NotSupported)
    }

    /// Writes down at once, past any commit, that there was this error: the process ends.
    fn write_error(&self, error: &Error) {
        let _ = error;
    }

    /// Names the store for messages.
    fn describe(&self) -> String {
        "file system in memory".to_owned()
    }

    /// The program that checks such an image, for messages.
    fn checker(&self) -> &'static str {
        "fsck"
    }

    /// False for a store that persists nothing: its objects must stay in memory.
    fn can_reload(&self) -> bool {
        true
    }

    /// False for a store that wants to know nothing of what changes: there is no log then, and no
    /// batch. What is removed is given back at once. Only where [`Store::can_reload`] is false too.
    fn takes_batches(&self) -> bool {
        true
    }

    /// Marks the store cleanly closed. After the last commit; nothing is called after it.
    fn close(&self) -> Result<()>;
}

/// [`Store::write_blank`] by [`Store::write`] of whole blocks, at once.
pub fn write_padded<S: Store + ?Sized>(
    store: &S,
    block: BlockNo,
    offset_bytes: u64,
    data: &[u8],
) -> Result<()> {
    let block_bytes = u64::from(store.geometry().block_size_bytes);
    let mut whole = data;
    let mut at = block;
    if offset_bytes != 0 {
        let (head, rest) = data.split_at(data.len().min((block_bytes - offset_bytes) as usize));
        let mut padded = vec![0; block_bytes as usize];
        padded[offset_bytes as usize..][..head.len()].copy_from_slice(head);
        store.write(at, 0, &padded)?;
        (whole, at.0) = (rest, at.0 + 1);
    }
    // Whole blocks in the middle are not copied.
    let (middle, tail) = whole.split_at(whole.len() - whole.len() % block_bytes as usize);
    if !middle.is_empty() {
        store.write(at, 0, middle)?;
        at.0 += middle.len() as u64 / block_bytes;
    }
    if !tail.is_empty() {
        let mut padded = vec![0; block_bytes as usize];
        padded[..tail.len()].copy_from_slice(tail);
        store.write(at, 0, &padded)?;
    }
    Ok(())
}
