//! Pure codecs of the on-disk structures of ext2, ext3, ext4 and of their journal, jbd2.
//!
//! # Purpose
//!
//! Everything that knows where a byte of the format lies is here, and nothing else is: no I/O, no
//! locks, no clock, no global state. The mount engine, the checker and the inspector share it.
//!
//! | Module | Structure |
//! |---|---|
//! | [`superblock`], [`geometry`], [`features`] | the superblock, what follows from it, feature names |
//! | [`group`], [`bitmap`] | group descriptors and the bitmaps that they point at |
//! | [`inode`], [`time`], [`device`] | inodes and the encodings inside them |
//! | [`extent`], [`indirect`] | the two ways a file's blocks are mapped |
//! | [`dirent`], [`htree`], [`dirhash`] | directory blocks, their index, its hash |
//! | [`casefold`] | names that are found whatever their case |
//! | [`inline_dir`] | directories that lie in their inode |
//! | [`fscrypt`], [`nokey`] | how a file is encrypted; encrypted names without the key |
//! | [`verity`] | the descriptor of sealed files, and what seals their data |
//! | [`xattr`], [`acl`] | extended attributes in inodes and blocks, POSIX ACL values |
//! | [`quota`] | quota files |
//! | [`jbd2`] | the journal |
//! | [`orphan_file`] | the orphan file (`orphan_file` feature) |
//! | [`mmp`] | the block of multiple mount protection |
//! | [`undo_file`] | undo files of e2fsprogs |
//! | [`checksum`] | crc32c and crc16 with the seeds that ext4 uses |
//! | [`error`], [`units`], `bytes` | named errors, number types, numbers in slices of bytes |
//!
//! # Data model
//!
//! A structure that is edited in place inside a larger buffer (inode, group descriptor, directory
//! block, extent node) is a *view*: a wrapper generic over anything that gives bytes, so
//! `Inode<&[u8]>` reads, `Inode<&mut [u8]>` edits in place and `Inode<Vec<u8>>` owns. The
//! superblocks own their 1024 bytes.
//!
//! # Invariants
//!
//! 1. No function panics, whatever the bytes are. Sizes are checked where a view is made; field
//!    access is total (see `bytes`).
//! 2. A view changes only the bytes of the field that a setter names: unknown fields survive.
//! 3. Reading never allocates, except where a function returns an owned collection.
//! 4. Checksums are never updated behind the caller's back: `update_checksum` is a call.
//!
//! # References
//!
//! Linux `Documentation/filesystems/ext4/`, and e2fsprogs' tools as the judge in the tests.
#![forbid(unsafe_code)]

#[macro_use]
mod bytes;

pub mod acl;
pub mod bitmap;
pub mod casefold;
pub mod checksum;
pub mod device;
pub mod dirent;
pub mod dirhash;
pub mod error;
pub mod extent;
pub mod features;
pub mod fscrypt;
pub mod geometry;
pub mod group;
pub mod htree;
pub mod indirect;
pub mod inline_dir;
pub mod inode;
pub mod jbd2;
pub mod mmp;
pub mod nokey;
pub mod orphan_file;
pub mod quota;
pub mod superblock;
pub mod time;
pub mod undo_file;
pub mod units;
pub mod verity;
pub mod xattr;

pub use error::{Corrupt, DiskError, Incompatible, Result};
pub use units::{GroupNo, Ino, LogicalBlock, PhysBlock};
