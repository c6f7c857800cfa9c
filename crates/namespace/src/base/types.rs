//! The vocabulary that the namespace, its stores and its front ends share.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use crate::base::file_flags::FileFlags;
pub use crate::base::file_kind::FileKind;

/// An inode number. 0 names no inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ino(pub u64);

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Inode numbers are below this, as ext4's are.
pub(crate) const INODES_END: u64 = 1 << 32;

/// The unit in which stat(2) tells used space.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// The bytes of a name of a directory. Most names are short: those need no allocation of their own.
pub(crate) type NameBytes = smallvec::SmallVec<[u8; 24]>;

/// A block of the store: a unit of `Geometry::block_size_bytes`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockNo(pub u64);

impl BlockNo {
    /// The bit of numbers that are no blocks of the device: what they stand for lies elsewhere in
    /// the store, packed with other things. It can be read and not written, so that the namespace
    /// moves it to blocks before it changes (`Geometry::has_packed_blocks`).
    pub const PACKED: u64 = 1 << 63;

    /// True for what is no block of the device.
    pub fn is_packed(self) -> bool {
        self.0 & BlockNo::PACKED != 0
    }
}

/// A block of a file, counted from the file's start: a unit of `Geometry::block_size_bytes`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogicalBlock(pub u64);

impl LogicalBlock {
    /// Behind all blocks that a file can have.
    pub const MAX: LogicalBlock = LogicalBlock(u64::MAX);

    /// The block that has a byte of the file.
    pub fn of_byte(offset_bytes: u64, block_bytes: u64) -> LogicalBlock {
        LogicalBlock(offset_bytes / block_bytes)
    }

    /// The first block that does not begin before a byte of the file.
    pub fn not_before(offset_bytes: u64, block_bytes: u64) -> LogicalBlock {
        LogicalBlock(offset_bytes.div_ceil(block_bytes))
    }

    /// Where in the file it begins, in bytes.
    pub fn offset_bytes(self, block_bytes: u64) -> u64 {
        self.0.saturating_mul(block_bytes)
    }

    /// The block so many further, or [`LogicalBlock::MAX`].
    pub fn saturating_add(self, blocks: u64) -> LogicalBlock {
        LogicalBlock(self.0.saturating_add(blocks))
    }

    /// The first block of its cluster.
    pub fn cluster_start(self, cluster_blocks: u64) -> LogicalBlock {
        LogicalBlock(self.0 / cluster_blocks * cluster_blocks)
    }

    /// The block itself where a cluster begins with it, else the first block of the next one.
    pub fn cluster_end(self, cluster_blocks: u64) -> LogicalBlock {
        LogicalBlock(self.0.next_multiple_of(cluster_blocks))
    }
}

impl fmt::Display for LogicalBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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

/// A point in time: 34 bits of seconds since 1901-12-13T20:45:52Z and 30 bits of nanoseconds.
///
/// This is exactly the range and grain of ext4's large inodes (1901 to 2446), and it fits one
/// atomic word, so that times are read and written without a lock. Later times compare greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    const SECONDS_BIAS: i64 = 1 << 31;
    const SECONDS_MAX: i64 = (1 << 34) - 1 - Self::SECONDS_BIAS;
    const SECONDS_MIN: i64 = -Self::SECONDS_BIAS;
    const NANO_BITS: u32 = 30;

    /// From seconds and nanoseconds since the epoch; clamped to the range, as
    /// `timestamp_truncate` of the kernel clamps.
    pub fn new(seconds: i64, nanoseconds: u32) -> Timestamp {
        if seconds > Self::SECONDS_MAX {
            return Timestamp::new(Self::SECONDS_MAX, 0);
        }
        if seconds < Self::SECONDS_MIN {
            return Timestamp::new(Self::SECONDS_MIN, 0);
        }
        let biased = (seconds + Self::SECONDS_BIAS) as u64;
        Timestamp(biased << Self::NANO_BITS | u64::from(nanoseconds.min(999_999_999)))
    }

    /// Seconds since 1970; negative before.
    pub fn seconds(self) -> i64 {
        (self.0 >> Self::NANO_BITS) as i64 - Self::SECONDS_BIAS
    }

    /// Nanoseconds within the second.
    pub fn nanoseconds(self) -> u32 {
        (self.0 & ((1 << Self::NANO_BITS) - 1)) as u32
    }

    /// The same, without nanoseconds in the first and last second that there are, as
    /// `timestamp_truncate` of the kernel has it.
    pub(crate) fn without_nanoseconds_at_the_ends(self) -> Timestamp {
        match self.seconds() {
            seconds @ (Self::SECONDS_MIN | Self::SECONDS_MAX) => Timestamp::new(seconds, 0),
            _ => self,
        }
    }

    /// The packed word.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From the packed word of [`Timestamp::to_bits`].
    pub fn from_bits(bits: u64) -> Timestamp {
        Timestamp(bits)
    }

    /// The coarse clock that the kernel's file systems use (CLOCK_REALTIME_COARSE): cheap, and
    /// its tick keeps the time line of a hot directory from being written at every operation.
    pub fn now() -> Timestamp {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Timestamp::new(now.tv_sec, now.tv_nsec as u32)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds(), self.nanoseconds())
    }
}

/// The four times of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of the data.
    pub modified: Timestamp,
    /// Last change of data or attributes.
    pub changed: Timestamp,
    /// Birth; 0 where the format keeps none.
    pub created: Timestamp,
}

/// Whether what a caller may do is still to be checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AccessChecks {
    /// The namespace checks it.
    Needed,
    /// Somebody else (the kernel under `default_permissions`) has checked it: the namespace then
    /// applies no access checks of its own.
    Done,
}

/// The user and groups that an operation is done for. Supplementary groups count for permission
/// checks.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// File mode creation mask.
    pub umask: u32,
    /// Whether permissions are still to be checked.
    pub checks: AccessChecks,
}

impl Caller {
    /// The superuser, unmasked.
    pub fn root() -> Caller {
        Caller {
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            umask: 0,
            checks: AccessChecks::Done,
        }
    }

    /// True when somebody else has checked what the caller may do.
    pub fn is_checked(&self) -> bool {
        self.checks == AccessChecks::Done
    }

    /// True when `gid` is the caller's group or one of its supplementary groups.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The attributes of an inode, as stat(2) shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Inode number.
    pub ino: Ino,
    /// Generation, distinguishes reuses of a number.
    pub generation: u32,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub permissions: u32,
    /// Number of hard links.
    pub link_count: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node (Linux `dev_t` as `makedev` gives it).
    pub device: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Space used, in units of 512 bytes.
    pub sectors: u64,
    /// Times.
    pub times: Times,
    /// Flags (chattr(1); ext4's i_flags).
    pub flags: FileFlags,
    /// The project that it counts for (chattr -p); 0 where there are none.
    pub project: u32,
    /// False when the commit of what has happened already may change `sectors`, or the size of a
    /// directory: a cache of the attributes must ask again.
    pub is_settled: bool,
}

/// A change of attributes; `None` leaves the attribute as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttributes {
    /// Permission bits (07777).
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New size in bytes (truncate).
    pub size_bytes: Option<u64>,
    /// Access time.
    pub accessed: Option<SetTime>,
    /// Modification time.
    pub modified: Option<SetTime>,
    /// Change time: only a kernel that keeps times itself (FUSE writeback cache) sets it.
    pub changed: Option<Timestamp>,
}

/// A time to set, as utimensat(2) names it.
#[derive(Clone, Copy, Debug)]
pub enum SetTime {
    /// UTIME_NOW
    Now,
    /// A given time.
    To(Timestamp),
}

/// What statfs(2) tells, in blocks of `block_size_bytes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub block_size_bytes: u32,
    /// All blocks that can hold data or metadata of files.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Blocks that are kept for the superuser and for metadata when they are free.
    pub blocks_reserved: u64,
    /// Free blocks for ordinary users: all that are free, without those that are reserved.
    pub blocks_available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// What fs-verity knows a sealed file by (FS_IOC_MEASURE_VERITY).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerityDigest {
    /// The number of the hash function: 1 is SHA-256, 2 SHA-512.
    pub algorithm: u16,
    /// The digest.
    pub bytes: Vec<u8>,
}

/// How a file is to be sealed (FS_IOC_ENABLE_VERITY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealParameters<'a> {
    /// The number of the hash function, as in [`VerityDigest`].
    pub algorithm: u16,
    /// Bytes that are hashed at a time: a power of two, 1024 at least and a block at most.
    pub block_bytes: u32,
    /// Goes before all that is hashed; 32 bytes at most.
    pub salt: &'a [u8],
    /// Is kept with the file, and not looked at.
    pub signature: &'a [u8],
}

impl Default for SealParameters<'_> {
    /// SHA-256 of 4,096 bytes, no salt, no signature.
    fn default() -> Self {
        SealParameters {
            algorithm: 1,
            block_bytes: 4096,
            salt: &[],
            signature: &[],
        }
    }
}

/// Reads bytes of a file from a place on, in bytes.
pub type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> crate::base::error::Result<()> + 'a;
