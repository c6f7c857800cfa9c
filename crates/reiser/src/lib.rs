//! reiserfs images, formats 3.5 and 3.6, as a store of a namespace. They are read and not written.
//!
//! # Purpose
//! [`ReiserStore`] loads a namespace's objects from the S+tree of an image. Loads and reads run in
//! parallel.
//!
//! | Module | Thing |
//! |---|---|
//! | `mount` | from a device to a mounted file system |
//! | `state` | the mounted file system |
//! | `journal` | what the log holds, shown without writing |
//! | `tree` | items by key: searches and mutations |
//! | `objects` | where the items of an inode number are |
//! | `load` | from items to the namespace's objects |
//! | `store` | the [`finefs_namespace::Store`] |
//! | [`info`] | what an image is, for people and scripts |
//!
//! # Data model
//! An object's number is its inode number. Its items are found by a key that begins with another
//! number, that of the directory it was made in; `objects` remembers that one.
//!
//! A file's last bytes may be in the tree (its tail). The namespace, which knows blocks, sees them
//! as a block behind all blocks of the device, named by inode and place in the file (`load::tail`).
//!
//! # Invariants
//! 1. Nothing is ever written.
//! 2. Nothing on the image is believed before it is checked; damage is an error of the object that
//!    it concerns, names block and item, and is never a panic.
//! 3. A search goes down by one level at a time, a walk goes up by keys: neither can go in circles.
//!
//! # Locking
//! `reiser.publish` (78): see `tree`. `reiser.objects` (79), `buffers.shard` (80): leaves, neither
//! held over I/O.

pub mod error;
pub mod info;

mod journal;
mod load;
mod mount;
mod objects;
mod state;
mod store;
mod tree;

pub use error::{MountError, MountErrorKind};
pub use info::ImageInfo;
pub use mount::is_reiserfs;
pub use store::ReiserStore;
