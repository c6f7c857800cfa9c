//! A directory, or some of its names, as the store holds them.

use crate::base::error::Error;
use crate::base::types::{FileKind, Ino};

/// One entry of a directory as the store holds it. `.` and `..` are not entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryImage {
    /// The name: 1 to 255 bytes, no `/`, no NUL.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub ino: Ino,
    /// Its kind, where the format notes it in the entry.
    pub kind: Option<FileKind>,
}

/// Places of names are less than this; see [`Store::names_from`].
///
/// [`Store::names_from`]: crate::Store::names_from
pub const PLACES: u64 = 1 << 32;

/// An entry, and where it comes in the order that the store gives them in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedName {
    /// See [`Store::names_from`](crate::Store::names_from).
    pub place: u64,
    /// The entry.
    pub entry: EntryImage,
}

/// A directory as the store holds it.
#[derive(Clone, Debug)]
pub struct DirectoryImage {
    /// The inode of `..`.
    pub parent: Ino,
    /// The entries, in any order. Names are distinct.
    pub entries: Vec<EntryImage>,
    /// Names why the entries must not be changed: damage that leaves them readable, but that a
    /// change would meet when it is applied, or that hides other entries. `None` for all sound
    /// directories.
    pub damage: Option<Error>,
}
