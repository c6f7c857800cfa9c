//! reiserfs images, formats 3.5 and 3.6, as a store of a namespace.
//!
//! # Purpose
//! [`ReiserStore`] keeps a namespace's objects on an image: it loads them from the S+tree and
//! applies batches of changes to it. Loads, data and allocation run in parallel, batches are
//! applied one at a time.
//!
//! | Module | Thing |
//! |---|---|
//! | `mount` | from a device to a mounted file system |
//! | `state` | the mounted file system |
//! | `journal` | what the log holds; its writer |
//! | `tree` | items by key |
//! | `objects` | where the items of an inode number are |
//! | `load` | from items to the namespace's objects |
//! | `space`, `numbers` | what is free: blocks, and numbers of objects |
//! | `apply` | from batches to the tree |
//! | `store` | the [`finefs_namespace::Store`] |
//! | [`info`] | what an image is, for people and scripts |
//! | [`error`] | why an image cannot be mounted |
//!
//! # Data model
//! An object's number is its inode number. Its items are found by a key that begins with another
//! number, that of the directory it was made in; `objects` remembers that one.
//!
//! A file's last bytes may be in the tree (its tail). The namespace, which knows blocks, sees them
//! as a block behind all blocks of the device, named by inode and place in the file
//! (`load::tail`).
//!
//! # Invariants
//! 1. A read-only mount writes nothing.
//! 2. Nothing on the image is believed before it is checked; damage is an error of the object that
//!    it concerns, names block and item, and is never a panic.
//! 3. A search goes down by one level at a time, a walk goes up by keys: neither can go in
//!    circles.
//!
//! # Locking
//! `reiser.writer` (75), `reiser.number_stash` (76) and `reiser.numbers` (77) below it,
//! `reiser.publish` (78), `reiser.objects` (79), and the locks of `finefs-buffers`. None but
//! `reiser.publish` is held over I/O.

use std::sync::Arc;

use finefs_block::BlockDevice;

pub mod error;
pub mod info;

mod apply;
mod journal;
mod load;
mod mount;
mod numbers;
mod objects;
mod space;
mod state;
mod store;
mod tree;

pub use error::{MountError, MountErrorKind};
pub use info::ImageInfo;
pub use mount::{has_external_journal, is_journal_of, is_reiserfs, length_of_truncated};
pub use store::ReiserStore;

/// The program that checks and repairs such an image.
pub const CHECKER: &str = "reiserfsck";

/// How an image is mounted.
#[derive(Clone, Default)]
pub struct ReiserOptions {
    /// Nothing is written. (An image that cannot be written is mounted like this in any case, with
    /// a note.)
    pub is_read_only: bool,
    /// The journal is left alone: the image is shown as its blocks lie, without what the journal
    /// alone holds, and is not written.
    pub skips_recovery: bool,
    /// How much memory the cache of file data takes at most, in bytes; 64 MiB where this is
    /// `None`.
    pub data_cache_bytes: Option<u64>,
    /// The device of the journal, where that is another.
    pub journal: Option<Arc<dyn BlockDevice>>,
}
