//! Named errors. The engine turns them into errno values in one place.

use crate::units::LogicalBlock;
use thiserror::Error;

/// Result with a [`DiskError`].
pub type Result<T> = core::result::Result<T, DiskError>;

/// Why a structure could not be read or edited.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The structure is sound but uses something that this code does not know.
    #[error("not supported: {0}")]
    Incompatible(#[from] Incompatible),
    /// The structure contradicts itself or its surroundings.
    #[error("damaged: {0}")]
    Corrupt(#[from] Corrupt),
    /// An edit needs more room than the block, inode or node has left; nothing was changed.
    #[error("no room in {0}")]
    NoRoom(&'static str),
    /// The caller gave a buffer of a size that the structure cannot have.
    #[error("{what} needs {need} bytes, got {got}")]
    BufferSize {
        /// The structure.
        what: &'static str,
        /// Bytes needed (at least).
        need: usize,
        /// Bytes given.
        got: usize,
    },
    /// The caller gave a value that the format cannot store; nothing was changed.
    #[error("{what} cannot hold {value}")]
    Unrepresentable {
        /// The field.
        what: &'static str,
        /// The value.
        value: u64,
    },
}

/// Something that is valid but not known here.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Incompatible {
    /// Feature bits, by their names.
    #[error("features {0}")]
    Features(String),
    /// The revision level of the file system.
    #[error("revision level {0}")]
    RevisionLevel(u32),
    /// The metadata checksum algorithm (`s_checksum_type`).
    #[error("checksum type {0}")]
    ChecksumType(u8),
    /// The hash of an indexed directory.
    #[error("directory hash version {0}")]
    DirHash(u8),
    /// A block size that is valid in the format but larger than 64 KiB.
    #[error("block size 2^{0}")]
    BlockSize(u32),
    /// The block type of a journal superblock.
    #[error("journal superblock of type {0}")]
    JournalVersion(u32),
    /// The version of a verity descriptor, or its hash function.
    #[error("verity descriptor of kind {0}")]
    Verity(u8),
    /// The version of an encryption context.
    #[error("encryption context of version {0}")]
    Encryption(u8),
    /// The version of a stored POSIX ACL.
    #[error("ACL version {0}")]
    AclVersion(u32),
}

/// A checksum that does not match, of which structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksummed {
    /// The superblock.
    Superblock,
    /// A group descriptor.
    GroupDesc,
    /// A block bitmap.
    BlockBitmap,
    /// An inode bitmap.
    InodeBitmap,
    /// An inode.
    Inode,
    /// A directory leaf block.
    DirBlock,
    /// A block of a directory's index.
    DirIndex,
    /// A block of an extent tree.
    Extents,
    /// An extended attribute block.
    XattrBlock,
    /// A block of the orphan file.
    OrphanFile,
    /// The journal's superblock.
    JournalSuperblock,
    /// A journal descriptor block.
    JournalDescriptor,
    /// A journal revoke block.
    JournalRevoke,
    /// A journal commit block.
    JournalCommit,
    /// A data block in the journal.
    JournalData,
}

/// What is wrong, with the offending value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// The checksum stored is not the one computed.
    #[error("checksum of {what:?} is {stored:#x}, should be {computed:#x}")]
    Checksum {
        /// The structure.
        what: Checksummed,
        /// As found.
        stored: u32,
        /// As it should be.
        computed: u32,
    },

    /// The superblock's magic number is not 0xEF53.
    #[error("superblock magic {0:#06x}")]
    SuperblockMagic(u16),
    /// `s_log_block_size` is out of range.
    #[error("block size 2^(10+{0})")]
    BlockSize(u32),
    /// `s_log_cluster_size` does not fit the block size.
    #[error("cluster size 2^(10+{0})")]
    ClusterSize(u32),
    /// `s_blocks_per_group` is 0, not a multiple of 8 or more than a bitmap block has bits.
    #[error("{0} blocks per group")]
    BlocksPerGroup(u32),
    /// `s_clusters_per_group` is out of range.
    #[error("{0} clusters per group")]
    ClustersPerGroup(u32),
    /// `s_inodes_per_group` is 0, does not fill blocks or is more than a bitmap block has bits.
    #[error("{0} inodes per group")]
    InodesPerGroup(u32),
    /// `s_inode_size` is not a power of two between 128 and the block size.
    #[error("inode size {0}")]
    InodeSize(u16),
    /// `s_desc_size` is not a power of two that the features allow.
    #[error("group descriptor size {0}")]
    DescSize(u16),
    /// `s_first_data_block` does not fit the block size.
    #[error("first data block {0}")]
    FirstDataBlock(u32),
    /// `s_first_ino` is too small or beyond the last inode.
    #[error("first inode {0}")]
    FirstIno(u32),
    /// The block count is 0, does not exceed the first data block, or needs too many groups.
    #[error("block count {0}")]
    BlockCount(u64),
    /// The inode count is not groups times inodes per group.
    #[error("inode count {0}")]
    InodeCount(u32),
    /// More free blocks than blocks.
    #[error("{0} free blocks")]
    FreeBlockCount(u64),
    /// More free inodes than inodes.
    #[error("{0} free inodes")]
    FreeInodeCount(u32),
    /// More reserved blocks than blocks.
    #[error("{0} reserved blocks")]
    ReservedBlockCount(u64),
    /// `s_reserved_gdt_blocks` exceeds a quarter of the block size.
    #[error("{0} reserved descriptor blocks")]
    ReservedGdtBlocks(u16),
    /// `s_first_meta_bg` exceeds the number of descriptor blocks.
    #[error("first meta block group {0}")]
    FirstMetaBg(u32),
    /// `s_log_groups_per_flex` is absurd.
    #[error("flex group size 2^{0}")]
    FlexGroupSize(u8),
    /// Both `metadata_csum` and `uninit_bg`'s checksums are asked for, or another pair that
    /// excludes.
    #[error("features exclude each other: {0}")]
    FeatureConflict(&'static str),

    /// A bitmap or inode table lies outside the file system.
    #[error("group metadata at block {0}, outside the file system")]
    GroupBlock(u64),
    /// A count of a group descriptor exceeds the group.
    #[error("group count {0} exceeds the group")]
    GroupCount(u32),

    /// An inode number is 0 or beyond the last inode.
    #[error("inode number {0}")]
    InodeNumber(u32),
    /// `i_extra_isize` is odd or exceeds the inode.
    #[error("inode extra size {0}")]
    ExtraIsize(u16),
    /// The type bits of `i_mode` name no file type.
    #[error("inode mode {0:#o}")]
    Mode(u16),
    /// The size does not suit the file type or the file system.
    #[error("inode size {0}")]
    FileSize(u64),

    /// `rec_len` is too short for the name, unaligned, or crosses the end of the block.
    #[error("directory entry at {offset}: length {rec_len}")]
    DirRecLen {
        /// Byte offset in the block.
        offset: u32,
        /// The bad length.
        rec_len: u32,
    },
    /// The name's length is 0 in an entry in use, or exceeds the entry.
    #[error("directory entry at {offset}: name length {name_len}")]
    DirNameLen {
        /// Byte offset in the block.
        offset: u32,
        /// The bad length.
        name_len: u8,
    },
    /// A name holds a NUL or a slash.
    #[error("directory entry at {offset}: illegal character in name")]
    DirName {
        /// Byte offset in the block.
        offset: u32,
    },
    /// No entry starts at this offset.
    #[error("no directory entry at {0}")]
    DirOffset(u32),
    /// The first block does not start with `.` and `..`.
    #[error("directory does not start with . and ..")]
    DirDots,
    /// The block lacks the checksum tail that `metadata_csum` requires.
    #[error("directory block without checksum tail")]
    DirTail,

    /// The index root's information is malformed.
    #[error("directory index info length {0}")]
    DxInfoLength(u8),
    /// The index is deeper than allowed.
    #[error("directory index of {0} levels")]
    DxDepth(u8),
    /// Limit of an index block is not what the block size gives.
    #[error("directory index limit {found}, should be {expected}")]
    DxLimit {
        /// As found.
        found: u16,
        /// As the block size demands.
        expected: u16,
    },
    /// Count of an index block is 0 or above the limit.
    #[error("directory index count {0}")]
    DxCount(u16),
    /// Hashes of an index block do not ascend.
    #[error("directory index out of order at entry {0}")]
    DxOrder(u16),
    /// An index block lacks the fake entry that hides it.
    #[error("directory index block has no index header")]
    DxHeader,

    /// The extent header's magic is not 0xF30A.
    #[error("extent magic {0:#06x}")]
    ExtentMagic(u16),
    /// More entries than the node has room for, or none where some must be.
    #[error("extent node of {entries} entries, room for {max}")]
    ExtentEntries {
        /// `eh_entries`.
        entries: u16,
        /// `eh_max`.
        max: u16,
    },
    /// `eh_max` is more than the space, or 0.
    #[error("extent node capacity {0}")]
    ExtentMax(u16),
    /// The depth is above 5 or not one less than the parent's.
    #[error("extent depth {0}")]
    ExtentDepth(u16),
    /// An extent has no blocks, wraps, or maps outside the file system.
    #[error("extent at logical block {0}: bad length or place")]
    ExtentRange(LogicalBlock),
    /// Entries overlap or do not ascend, or lie outside the parent's range.
    #[error("extent at logical block {0}: out of order or overlapping")]
    ExtentOrder(LogicalBlock),

    /// An attribute region's magic is not 0xEA020000.
    #[error("xattr magic {0:#010x}")]
    XattrMagic(u32),
    /// `h_blocks` is not 1.
    #[error("xattr block header claims {0} blocks")]
    XattrBlocks(u32),
    /// An entry crosses the end of its region, or the list lacks its end mark.
    #[error("xattr entry at {0} out of bounds")]
    XattrEntry(u32),
    /// A value lies outside the region or overlaps the entries.
    #[error("xattr value at {offset} of {size} bytes out of bounds")]
    XattrValue {
        /// `e_value_offs`.
        offset: u32,
        /// `e_value_size`.
        size: u32,
    },
    /// The entries of a block are not sorted.
    #[error("xattr entry at {0} out of order")]
    XattrOrder(u32),
    /// An entry's hash does not match its name and value.
    #[error("xattr hash {stored:#x}, should be {computed:#x}")]
    XattrHash {
        /// As found.
        stored: u32,
        /// As it should be.
        computed: u32,
    },
    /// A POSIX ACL value is malformed.
    #[error("ACL of {0} bytes is malformed")]
    Acl(usize),

    /// A journal block does not start with jbd2's magic.
    #[error("journal block magic {0:#010x}")]
    JournalMagic(u32),
    /// A journal block is of another type than expected.
    #[error("journal block type {0}")]
    JournalBlockType(u32),
    /// The journal's block size is not the file system's.
    #[error("journal block size {0}")]
    JournalBlockSize(u32),
    /// The journal's length, first block or start contradict each other.
    #[error("journal length or start {0}")]
    JournalLength(u32),
    /// The byte count of a revoke block is out of range.
    #[error("journal revoke block of {0} bytes")]
    JournalRevokeCount(u32),
    /// Two checksum schemes at once.
    #[error("journal features exclude each other")]
    JournalFeatures,
    /// A fast-commit record crosses the end of its block.
    #[error("fast commit record at {0} out of bounds")]
    FastCommitTag(u32),

    /// The magic of an orphan file block is wrong.
    #[error("orphan file block magic {0:#010x}")]
    OrphanMagic(u32),

    /// The magic of the block of multiple mount protection is wrong.
    #[error("mmp block magic {0:#010x}")]
    MmpMagic(u32),
}

/// Fails unless `got` is at least `need` bytes.
pub(crate) fn need(what: &'static str, need: usize, got: usize) -> Result<()> {
    if got < need {
        Err(DiskError::BufferSize { what, need, got })
    } else {
        Ok(())
    }
}

/// Fails unless the checksums agree.
pub(crate) fn check_sum(what: Checksummed, stored: u32, computed: u32) -> Result<()> {
    if stored == computed {
        Ok(())
    } else {
        Err(Corrupt::Checksum {
            what,
            stored,
            computed,
        }
        .into())
    }
}
