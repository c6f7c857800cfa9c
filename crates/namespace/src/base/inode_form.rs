//! What inodes can have in a format.

#[cfg(doc)]
use crate::base::file_flags::FileFlags;

/// The largest number of a user, group or project: the next one means nobody, and the owner of
/// nothing (Linux `uid_valid`).
pub const ID_MAX: u32 = u32::MAX - 1;

/// What an inode of one form can have.
#[derive(Clone, Copy, Debug)]
pub struct InodeForm {
    /// Largest file in bytes; more is EFBIG.
    pub size_max_bytes: u64,
    /// Largest number of an owner, user or group; a larger one is EINVAL, as in Linux's reiserfs.
    pub owner_max: u32,
    /// A write takes so many blocks in one run at most: what reserves for a run
    /// ([`Plan::Mapping`](crate::Plan::Mapping)) goes by that.
    pub run_max_blocks: u64,
    /// It can have extended attributes; else one that is set is EOPNOTSUPP.
    pub has_xattrs: bool,
    /// It keeps flags ([`FileFlags`]); else one that is set is EOPNOTSUPP.
    pub has_flags: bool,
}

impl InodeForm {
    /// With room for all owners, attributes and flags.
    pub const fn of_size(size_max_bytes: u64) -> InodeForm {
        InodeForm {
            size_max_bytes,
            owner_max: ID_MAX,
            run_max_blocks: u64::MAX,
            has_xattrs: true,
            has_flags: true,
        }
    }
}
