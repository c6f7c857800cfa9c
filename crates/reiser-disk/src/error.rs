//! Named errors. The engine turns them into errno values in one place.

use thiserror::Error;

/// Result with a [`DiskError`].
pub type Result<T> = core::result::Result<T, DiskError>;

/// Why a structure could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The structure contradicts itself or its surroundings.
    #[error("damaged: {0}")]
    Corrupt(#[from] Corrupt),
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
}

/// What is wrong, with the offending value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// None of the three magic words is there.
    #[error("superblock magic {0:02x?}")]
    SuperblockMagic([u8; 10]),
    /// Not a power of two from 512 to 32768.
    #[error("block size {0}")]
    BlockSize(u16),
    /// No block, or fewer than what lies before the tree.
    #[error("block count {0}")]
    BlockCount(u32),
    /// More free blocks than blocks.
    #[error("{0} free blocks")]
    FreeBlockCount(u32),
    /// The map of object numbers does not begin with 1, does not ascend, or does not fit.
    #[error("map of object numbers of {0} words")]
    ObjectIds(u16),
    /// The root lies outside the file system.
    #[error("root block {0}")]
    RootBlock(u32),
    /// 0, or more than a tree may have.
    #[error("tree height {0}")]
    TreeHeight(u16),
    /// The journal's first block and length do not fit.
    #[error("journal of {blocks} blocks at block {start}")]
    JournalPlace {
        /// First block.
        start: u32,
        /// Blocks without the header.
        blocks: u32,
    },

    /// A node's level is not the one that its place in the tree gives.
    #[error("node of level {found}, should be {expected}")]
    NodeLevel {
        /// As found.
        found: u16,
        /// As its place says.
        expected: u16,
    },
    /// More items or keys than the node has room for, or none where some must be.
    #[error("node of {0} items")]
    NodeItems(u16),
    /// Free space does not fit the items.
    #[error("node with {0} bytes of free space")]
    NodeFreeSpace(u16),
    /// Items or keys of a node do not ascend.
    #[error("item {0}: keys out of order")]
    KeyOrder(u16),
    /// An item lies outside of its node, or overlaps the heads.
    #[error("item {item}: {length} bytes at {location}")]
    ItemPlace {
        /// Which.
        item: u16,
        /// Where it begins in the node.
        location: u16,
        /// Its length.
        length: u16,
    },
    /// The type of a key is none that there is.
    #[error("item type {0}")]
    ItemType(u32),
    /// The version of an item head is none that there is.
    #[error("item version {0}")]
    ItemVersion(u16),

    /// Stat data that is neither as long as the old one nor as the new one.
    #[error("stat data of {0} bytes")]
    StatLength(usize),
    /// The type bits of a mode name no file type.
    #[error("mode {0:#o}")]
    Mode(u16),
    /// A size that no file can have.
    #[error("size {0}")]
    FileSize(u64),

    /// More entry heads than the item has room for.
    #[error("directory item of {0} entries")]
    EntryCount(u16),
    /// A name lies outside of its item, or names overlap.
    #[error("directory entry {entry}: name at {location}")]
    EntryPlace {
        /// Which.
        entry: u16,
        /// Where the name begins in the item.
        location: u16,
    },
    /// A name is empty or too long.
    #[error("directory entry {0}: bad name")]
    EntryName(u16),
    /// An indirect item whose length is no multiple of a block number's.
    #[error("indirect item of {0} bytes")]
    IndirectLength(usize),

    /// An attribute's file does not begin with its magic number.
    #[error("attribute magic {0:#010x}")]
    XattrMagic(u32),
    /// The hash of an attribute's value is not the one stored.
    #[error("attribute hash {stored:#x}, should be {computed:#x}")]
    XattrHash {
        /// As found.
        stored: u32,
        /// As it should be.
        computed: u32,
    },
}

/// Fails unless `got` is at least `need` bytes.
pub(crate) fn need(what: &'static str, need: usize, got: usize) -> Result<()> {
    if got < need {
        Err(DiskError::BufferSize { what, need, got })
    } else {
        Ok(())
    }
}
