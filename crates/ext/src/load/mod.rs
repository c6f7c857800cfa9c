//! Loading: turning the image's structures into what the namespace keeps in memory.
//!
//! # Data model
//! | Module | Loads |
//! |---|---|
//! | [`checked`] | an inode's own bytes |
//! | [`inode`] | attributes, and whether the content can be read |
//! | [`map`] | the mapping of any inode: extent trees and block maps |
//! | [`clusters`] | (completes a mapping to whole clusters) |
//! | [`content`] | bytes of small things: directories, symlinks, attribute values, the journal's map |
//! | `index` | (checks the index of a directory)
//! | [`directory`] | the entries of a directory: linear, indexed or inline |
//! | [`encryption`] | how files are encrypted |
//! | [`names`] | names of large directories, one by one |
//! | [`nokey_names`] | names of encrypted directories, as they are shown without the key |
//! | [`quota`] | quota files |
//! | [`symlink`] | targets |
//! | [`verity`] | (compares the data of sealed files) |
//! | [`xattr`] | attributes in inodes, blocks and inodes of their own |
//!
//! # Invariants
//! 1. Nothing that is read is believed: every number is checked against the geometry before it is
//!    used, every checksum that is there is compared.
//! 2. Work and memory are bounded by the blocks of the image: no block of a map is visited twice
//!    within one load, and nothing is allocated for a size that no mapped block stands behind.
//! 3. An error names the inode and the structure. It concerns that object only.

pub(crate) mod checked;
pub(crate) mod clusters;
pub(crate) mod content;
pub(crate) mod directory;
pub(crate) mod encryption;
mod index;
pub(crate) mod inode;
pub(crate) mod map;
pub(crate) mod names;
pub(crate) mod nokey_names;
pub(crate) mod quota;
pub(crate) mod symlink;
pub(crate) mod verity;
pub(crate) mod xattr;
