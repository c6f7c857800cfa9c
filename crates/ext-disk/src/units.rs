//! Number types: a number with a unit has a type of its own.

use core::fmt;
use core::ops::{Add, AddAssign, Range, Sub};

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
    LogicalBlock(u64)
);

impl LogicalBlock {
    /// All that there can be: on disk they have 32 bits.
    pub const ALL: Range<LogicalBlock> = LogicalBlock(0)..LogicalBlock(1 << 32);

    /// The block so many further, or the highest number.
    pub fn saturating_add(self, blocks: u64) -> LogicalBlock {
        LogicalBlock(self.0.saturating_add(blocks))
    }
}

impl From<u64> for LogicalBlock {
    fn from(block: u64) -> LogicalBlock {
        LogicalBlock(block)
    }
}

impl From<u32> for LogicalBlock {
    fn from(block: u32) -> LogicalBlock {
        LogicalBlock(block.into())
    }
}

impl Add<u64> for LogicalBlock {
    type Output = LogicalBlock;

    fn add(self, blocks: u64) -> LogicalBlock {
        LogicalBlock(self.0 + blocks)
    }
}

impl AddAssign<u64> for LogicalBlock {
    fn add_assign(&mut self, blocks: u64) {
        self.0 += blocks;
    }
}

impl Sub for LogicalBlock {
    type Output = u64;

    /// How many blocks further it is.
    fn sub(self, before: LogicalBlock) -> u64 {
        self.0 - before.0
    }
}

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
