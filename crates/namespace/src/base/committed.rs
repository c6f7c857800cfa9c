//! What a store says of a commit.

use crate::base::error::Error;
use crate::base::types::Ino;

/// What a commit tells back.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    /// What the inodes of the batch take of the store now.
    pub settled: Vec<Settled>,
    /// Damage that was met, and because of which something could not be freed. All of the batch is
    /// durable.
    pub damage: Option<Error>,
    /// Data is still in memory that was written over other data ([`Store::overwrite_content`]).
    ///
    /// [`Store::overwrite_content`]: crate::Store::overwrite_content
    pub keeps_data: bool,
}

/// What an inode takes of the store after a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Which.
    pub ino: Ino,
    /// Space in all, in units of 512 bytes.
    pub sectors: u64,
    /// The size in bytes of a directory, of which the store keeps count.
    pub directory_bytes: Option<u64>,
}
