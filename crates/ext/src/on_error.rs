//! What to do about damage.

use finefs_ext_disk::superblock::{ErrorPolicy, Superblock};

/// What to do when the image turns out to be damaged, or its device fails (`errors=`, `s_errors`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    /// What is damaged gives errors; everything else goes on. When a commit fails there are no more
    /// changes, as always.
    #[default]
    Continue,
    /// No more changes; reading goes on.
    ReadOnly,
    /// The program that serves the file system is to end at once, without writing anything more.
    Panic,
}

impl OnError {
    /// What the superblock says.
    pub(crate) fn of(superblock: &Superblock) -> OnError {
        match superblock.error_policy() {
            ErrorPolicy::ReadOnly => OnError::ReadOnly,
            ErrorPolicy::Panic => OnError::Panic,
            ErrorPolicy::Continue | ErrorPolicy::Unknown(_) => OnError::Continue,
        }
    }
}
