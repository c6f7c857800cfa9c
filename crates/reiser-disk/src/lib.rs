//! Pure codecs of the on-disk structures of reiserfs, formats 3.5 and 3.6.
//!
//! # Purpose
//!
//! Everything that knows where a byte of the format lies is here, and nothing else is: no I/O, no
//! locks, no clock, no global state.
//!
//! | Module | Structure |
//! |---|---|
//! | [`superblock`] | the superblock in its three versions |
//! | [`key`] | keys of both versions: what orders the tree |
//! | [`node`] | nodes of the S+tree: internal nodes, leaves, item heads |
//! | [`edit`] | changing nodes |
//! | [`stat`] | stat data of both versions: what other formats call inodes |
//! | [`directory`] | directory items |
//! | [`indirect`] | indirect items: block numbers of file data |
//! | [`hash`] | the hashes of names: r5, tea, rupasov |
//! | [`journal`] | journal header, description and commit blocks |
//! | [`bitmap`] | where block bitmaps lie |
//! | [`object_ids`] | the map of object numbers in use |
//! | [`xattr`] | files that hold an extended attribute |
//! | [`error`], `bytes` | named errors; little-endian numbers in slices of bytes |
//!
//! # Data model
//!
//! One tree holds everything: items, sorted by key. A key is (directory, object, offset, type). The
//! items of an object stand together: stat data first, then what it holds: entries of a directory
//! (directory items), block numbers (indirect items), or bytes themselves (direct items: the tail
//! of a file, or the target of a symbolic link). Structures are views over bytes.
//!
//! # Invariants
//!
//! 1. No function panics, whatever the bytes are. Sizes are checked where a view is made.
//! 2. Reading allocates only where a function returns an owned collection.
//!
//! # References
//!
//! Linux 6.12 `fs/reiserfs`, reiserfsprogs' tools as the judge in the tests, and F. Buchholz, "The
//! structure of the Reiser file system".
#![forbid(unsafe_code)]

mod bytes;

pub mod bitmap;
pub mod directory;
pub mod edit;
pub mod error;
pub mod hash;
pub mod indirect;
pub mod journal;
pub mod key;
pub mod node;
pub mod object_ids;
pub mod stat;
pub mod superblock;
pub mod xattr;

pub use error::{Corrupt, DiskError, Result};
pub use key::{ItemKind, Key, KeyVersion, ObjectKey};
