//! What a mounted file system is, for the loading and for the writing side.
//!
//! # Data model
//! | Field | Written by |
//! |---|---|
//! | `superblock` | mount, the commit, close |
//! | `geometry`, `seed`, `has_*` | mount, once |
//! | `buffers` | the loading side reads, the commit modifies |
//! | `groups`, `allocator` | the writing side |
//!
//! # Locking
//! ```text
//! (the namespace's locks: up to 59)
//!   ext.group ...          the writing side: block groups, 60 to 69
//!     ext.superblock       fields of the superblock
//!       ext.buffer         a shard of the buffer cache; a leaf
//! ```

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk as disk;
use finefs_ext_disk::checksum::FsSeed;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::inode::Inode;
use finefs_ext_disk::superblock::Superblock;
use finefs_locks::{LockClass, Mutex};
use finefs_namespace::{Error, Ino, Result};

use crate::alloc::Allocator;
use crate::buffer::{BufferCache, BufferRead, BufferWrite};
use crate::group::GroupTable;

/// The superblock's fields.
pub static SUPERBLOCK: LockClass = LockClass::new("ext.superblock", 75);

/// See the module's head.
pub(crate) struct ExtState {
    /// Where the file system lies.
    pub device: Arc<dyn BlockDevice>,
    /// The superblock as it will be written next. Never held over I/O.
    pub superblock: Mutex<Superblock>,
    /// What follows from the superblock and does not change.
    pub geometry: Geometry,
    /// The metadata.
    pub buffers: BufferCache,
    /// The group descriptors (writing side).
    pub groups: GroupTable,
    /// The live allocator of blocks and inode numbers (writing side).
    pub allocator: Allocator,
    /// The seed of metadata checksums; `None` without `metadata_csum`.
    pub seed: Option<FsSeed>,
    /// Nothing may be written.
    pub is_read_only: bool,
}

/// Where an inode lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InodeLocation {
    /// The block of the inode table.
    pub block: u64,
    /// Byte offset within the block.
    pub offset_bytes: usize,
    /// The size of the inode.
    pub size_bytes: usize,
}
