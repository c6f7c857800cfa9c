//! Number types: a number with a unit has a type of its own.

use core::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($ty:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $ty);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> u64 {
                u64::from(value.0)
            }
        }
    };
}

unit!(
    /// An inode number; 0 means none, the first inode is 1.
    Ino(u32)
);
unit!(
    /// The number of a block group.
    GroupNo(u32)
);
unit!(
    /// A block of the file system, counted from the start of its device; 0 means none in pointers.
    PhysBlock(u64)
);
unit!(
    /// A block of a file, counted from the start of the file.
    LogicalBlock(u32)
);

impl Ino {
    /// The list of bad blocks.
    pub const BAD_BLOCKS: Ino = Ino(1);
    /// The root directory.
    pub const ROOT: Ino = Ino(2);
    /// User quota, when `s_usr_quota_inum` says so.
    pub const USER_QUOTA: Ino = Ino(3);
    /// Group quota.
    pub const GROUP_QUOTA: Ino = Ino(4);
    /// The reserved group descriptor blocks.
    pub const RESIZE: Ino = Ino(7);
    /// The usual place of the internal journal.
    pub const JOURNAL: Ino = Ino(8);
}
