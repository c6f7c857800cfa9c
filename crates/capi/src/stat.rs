//! Attributes of files, and a file system's space, as C sees them.

use std::time::{Duration, SystemTime};

/// A time, in seconds and nanoseconds since 1970.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub sec: i64,
    /// Nanoseconds after these, below 1,000,000,000. In finefs_set_times also FINEFS_TIME_OMIT or
    /// FINEFS_TIME_NOW.
    pub nsec: u32,
}

/// For `nsec` in finefs_set_times: the time stays as it is.
pub const FINEFS_TIME_OMIT: u32 = 0xffff_ffff;
/// For `nsec` in finefs_set_times: the time of the call.
pub const FINEFS_TIME_NOW: u32 = 0xffff_fffe;

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Time {
                sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                nsec: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let has_part = before.subsec_nanos() > 0;
                Time {
                    sec: -i64::try_from(before.as_secs()).unwrap_or(i64::MAX) - i64::from(has_part),
                    nsec: (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000,
                }
            }
        }
    }
}

impl Time {
    /// `None` for FINEFS_TIME_OMIT, and for what is no time.
    pub(crate) fn get(self) -> Option<SystemTime> {
        match self.nsec {
            FINEFS_TIME_NOW => Some(SystemTime::now()),
            nsec if nsec >= 1_000_000_000 => None,
            nsec => {
                let whole = Duration::from_secs(self.sec.unsigned_abs());
                let start = match self.sec < 0 {
                    true => SystemTime::UNIX_EPOCH.checked_sub(whole),
                    false => SystemTime::UNIX_EPOCH.checked_add(whole),
                };
                start?.checked_add(Duration::from_nanos(nsec.into()))
            }
        }
    }
}

/// Attributes of a file, as stat(2) gives them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    /// Number of the inode.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Storage that it takes, in units of 512 bytes.
    pub blocks: u64,
    /// Kind and permissions: st_mode.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The device that a device node names, as makedev(3) gives it.
    pub rdev: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of the data.
    pub mtime: Time,
    /// Last change of the attributes.
    pub ctime: Time,
    /// When it was made; 0 where the image has no room for it.
    pub btime: Time,
}

impl From<finefs::Metadata> for Stat {
    fn from(found: finefs::Metadata) -> Stat {
        Stat {
            ino: found.ino(),
            size: found.len(),
            blocks: found.blocks(),
            mode: found.mode(),
            nlink: found.nlink(),
            uid: found.uid(),
            gid: found.gid(),
            rdev: found.rdev(),
            atime: found.accessed().into(),
            mtime: found.modified().into(),
            ctime: found.changed().into(),
            btime: found.created().map(Time::from).unwrap_or_default(),
        }
    }
}

/// Space and inodes of a file system.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StatFs {
    /// Size of a block in bytes.
    pub block_size: u32,
    /// Longest name in bytes.
    pub name_max: u32,
    /// All blocks that can hold something.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for ordinary users.
    pub blocks_available: u64,
    /// All inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

impl From<finefs::StatFs> for StatFs {
    fn from(found: finefs::StatFs) -> StatFs {
        StatFs {
            block_size: found.block_size_bytes,
            name_max: found.name_max,
            blocks: found.blocks,
            blocks_free: found.blocks_free,
            blocks_available: found.blocks_available,
            inodes: found.inodes,
            inodes_free: found.inodes_free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_go_there_and_back() {
        for (sec, nsec) in [(0, 0), (5, 7), (-1, 0), (-1, 999_999_999), (-3, 1)] {
            let time = Time { sec, nsec };
            assert_eq!(Time::from(time.get().unwrap()), time);
        }
        let nsec = FINEFS_TIME_OMIT;
        assert_eq!(Time { sec: 0, nsec }.get(), None);
    }
}
