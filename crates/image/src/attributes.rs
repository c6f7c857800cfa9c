//! What a file is, on the host or in an image, and what can be set of it.

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use finefs::FileKind;

/// A moment: seconds since 1970, and nanoseconds of that second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Time {
    /// Seconds; before 1970 negative.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Time {
                seconds: after.as_secs() as i64,
                nanos: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let seconds = -(before.as_secs() as i64);
                match before.subsec_nanos() {
                    0 => Time { seconds, nanos: 0 },
                    nanos => Time {
                        seconds: seconds - 1,
                        nanos: 1_000_000_000 - nanos,
                    },
                }
            }
        }
    }
}

impl From<Time> for SystemTime {
    fn from(time: Time) -> SystemTime {
        let whole = Duration::from_secs(time.seconds.unsigned_abs());
        let start = match time.seconds < 0 {
            true => SystemTime::UNIX_EPOCH.checked_sub(whole),
            false => SystemTime::UNIX_EPOCH.checked_add(whole),
        };
        let nanos = Duration::from_nanos(u64::from(time.nanos));
        start
            .and_then(|start| start.checked_add(nanos))
            .unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// The attributes of a file, as stat(2) shows them.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Number of hard links.
    pub links: u64,
    /// Which file system it is in; a number of this process for images.
    pub device: u64,
    /// Inode number.
    pub ino: u64,
    /// Device number of a device node.
    pub rdev: u64,
    /// Space used, in units of 512 bytes.
    pub sectors: u64,
    /// Last read.
    pub accessed: Time,
    /// Last change of the data.
    pub modified: Time,
    /// Last change of data or attributes.
    pub changed: Time,
    /// Birth, where it is known.
    pub born: Option<Time>,
}

impl Attributes {
    /// Of a file in an image.
    pub fn inside(metadata: &finefs::Metadata, device: u64) -> Attributes {
        Attributes {
            kind: metadata.file_type().kind(),
            permissions: metadata.permissions().mode(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            size: metadata.len(),
            links: u64::from(metadata.nlink()),
            device,
            ino: metadata.ino(),
            rdev: metadata.rdev(),
            sectors: metadata.blocks(),
            accessed: metadata.accessed().into(),
            modified: metadata.modified().into(),
            changed: metadata.changed().into(),
            born: metadata.created().map(Time::from),
        }
    }

    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Kind and permission bits, as `st_mode` has them.
    pub fn mode(&self) -> u32 {
        self.kind.mode_bits() | self.permissions
    }

    /// What tells files apart.
    pub fn identity(&self) -> (u64, u64) {
        (self.device, self.ino)
    }
}

/// An extended attribute: its name with its prefix, and its value.
pub type Xattr = (OsString, Vec<u8>);

/// What to set of a file; `None` leaves it.
#[derive(Clone, Default, Debug)]
pub struct Change {
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// Permission bits (07777).
    pub permissions: Option<u32>,
    /// Times of the last read and the last change of the data.
    pub times: Option<(Time, Time)>,
    /// Extended attributes, ACLs among them.
    pub xattrs: Vec<Xattr>,
}

/// What a change could not set, for lack of rights or because the file system has no such thing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Lacking {
    /// Owner and group; set-id bits are then left out too.
    pub owner: bool,
    /// An extended attribute.
    pub xattrs: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_were() {
        for (seconds, nanos) in [(0, 0), (1_700_000_000, 5), (-2, 999_999_999), (-1, 0)] {
            let time = Time { seconds, nanos };
            assert_eq!(Time::from(SystemTime::from(time)), time);
        }
    }
}
