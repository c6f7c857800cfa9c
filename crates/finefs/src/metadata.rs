//! What files are, as stat(2) shows it.

use std::time::{Duration, SystemTime};

use finefs_namespace::{Attributes, FileFlags, FileKind, SetAttributes, SetTime, Timestamp};

/// The attributes of a file at one moment.
///
/// ```
/// # let fs = finefs::FileSystem::memory(1 << 20)?;
/// fs.write("motd", "hello")?;
/// let motd = fs.metadata("motd")?;
/// assert!(motd.is_file() && motd.len() == 5);
/// assert_eq!((motd.mode(), motd.nlink()), (0o100_644, 1));
/// # Ok::<(), finefs::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Metadata {
    attributes: Attributes,
}

impl Metadata {
    pub(crate) fn new(attributes: Attributes) -> Metadata {
        Metadata { attributes }
    }

    /// What the file is.
    pub fn file_type(&self) -> FileType {
        FileType(self.attributes.kind)
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.attributes.kind == FileKind::Directory
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.attributes.kind == FileKind::Regular
    }

    /// True for a symbolic link, as [`crate::Dir::symlink_metadata`] finds them.
    pub fn is_symlink(&self) -> bool {
        self.attributes.kind == FileKind::Symlink
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        self.attributes.size_bytes
    }

    /// Permission bits.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.attributes.permissions)
    }

    /// Kind and permission bits, as `st_mode` has them.
    pub fn mode(&self) -> u32 {
        self.attributes.kind.mode_bits() | self.attributes.permissions
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.attributes.ino.0
    }

    /// Number of hard links.
    pub fn nlink(&self) -> u32 {
        self.attributes.link_count
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.attributes.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.attributes.gid
    }

    /// Device number of a device node, as makedev(3) gives it.
    pub fn rdev(&self) -> u64 {
        self.attributes.device
    }

    /// Space used, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.attributes.sectors
    }

    /// What chattr(1) has set, and what the format tells of the file.
    pub fn flags(&self) -> FileFlags {
        self.attributes.flags
    }

    /// The project that it counts for (chattr -p); 0 where there are none.
    pub fn project(&self) -> u32 {
        self.attributes.project
    }

    /// Tells it from files that had its inode number before (lsattr -v).
    pub fn generation(&self) -> u32 {
        self.attributes.generation
    }

    /// Last change of the data.
    pub fn modified(&self) -> SystemTime {
        system_time(self.attributes.times.modified)
    }

    /// Last read, as far as the file system's atime policy notes reads.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.attributes.times.accessed)
    }

    /// Last change of data or attributes.
    pub fn changed(&self) -> SystemTime {
        system_time(self.attributes.times.changed)
    }

    /// Birth; `None` where the format keeps none.
    pub fn created(&self) -> Option<SystemTime> {
        let created = self.attributes.times.created;
        (created != Timestamp::new(0, 0)).then(|| system_time(created))
    }
}

/// What a file is.
///
/// ```
/// use finefs::FileKind;
///
/// # let fs = finefs::FileSystem::memory(1 << 20)?;
/// fs.symlink("/bin/busybox", "sh")?;
/// let what = match fs.symlink_metadata("sh")?.file_type().kind() {
///     FileKind::Directory => "directory",
///     FileKind::Symlink => "link",
///     _ => "file",
/// };
/// assert_eq!(what, "link");
/// # Ok::<(), finefs::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileType(FileKind);

impl FileType {
    pub(crate) fn new(kind: FileKind) -> FileType {
        FileType(kind)
    }

    /// The same as a value to match on.
    pub fn kind(self) -> FileKind {
        self.0
    }

    /// True for a directory.
    pub fn is_dir(self) -> bool {
        self.0 == FileKind::Directory
    }

    /// True for a regular file.
    pub fn is_file(self) -> bool {
        self.0 == FileKind::Regular
    }

    /// True for a symbolic link.
    pub fn is_symlink(self) -> bool {
        self.0 == FileKind::Symlink
    }

    /// True for a block device.
    pub fn is_block_device(self) -> bool {
        self.0 == FileKind::BlockDevice
    }

    /// True for a character device.
    pub fn is_char_device(self) -> bool {
        self.0 == FileKind::CharDevice
    }

    /// True for a named pipe.
    pub fn is_fifo(self) -> bool {
        self.0 == FileKind::Fifo
    }

    /// True for a socket.
    pub fn is_socket(self) -> bool {
        self.0 == FileKind::Socket
    }
}

/// Permission bits of a file (07777).
///
/// ```
/// use finefs::{FileSystem, Permissions};
///
/// let fs = FileSystem::memory(1 << 20)?;
/// fs.write("run", "#!/bin/sh\n")?;
/// fs.set_permissions("run", Permissions::from_mode(0o755))?;
/// assert!(!fs.metadata("run")?.permissions().readonly());
/// # Ok::<(), finefs::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Permissions(u32);

impl Permissions {
    /// The bits of chmod(2); those of the file's kind, as `st_mode` has them, are left out.
    pub fn from_mode(mode: u32) -> Permissions {
        Permissions(mode & 0o7777)
    }

    /// The bits.
    pub fn mode(self) -> u32 {
        self.0
    }

    /// True when nobody may write.
    pub fn readonly(self) -> bool {
        self.0 & 0o222 == 0
    }

    /// Takes the right to write from all, or gives it to all (as `std::fs::Permissions` does).
    pub fn set_readonly(&mut self, readonly: bool) {
        match readonly {
            true => self.0 &= !0o222,
            false => self.0 |= 0o222,
        }
    }
}

impl std::fmt::Debug for Permissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permissions({:04o})", self.0)
    }
}

/// Times to set (utimensat(2)); what is not named stays.
///
/// Times are kept from 1901 to 2446 in nanoseconds, or, in images with small inodes, in whole
/// seconds to 2038; others are cut to that.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use finefs::FileTimes;
///
/// # let fs = finefs::FileSystem::memory(1 << 20)?;
/// let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
/// let file = fs.create("old")?;
/// file.set_times(FileTimes::new().modified(then))?;
/// assert_eq!(file.metadata()?.modified(), then);
/// # Ok::<(), finefs::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTimes {
    accessed: Option<SetTime>,
    modified: Option<SetTime>,
}

impl FileTimes {
    /// Nothing is set.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }

    /// Both times are now, which who may write a file may set.
    pub fn now() -> FileTimes {
        FileTimes {
            accessed: Some(SetTime::Now),
            modified: Some(SetTime::Now),
        }
    }

    /// Sets the time of the last read.
    pub fn accessed(mut self, time: SystemTime) -> FileTimes {
        self.accessed = Some(SetTime::To(timestamp(time)));
        self
    }

    /// Sets the time of the last change of the data.
    pub fn modified(mut self, time: SystemTime) -> FileTimes {
        self.modified = Some(SetTime::To(timestamp(time)));
        self
    }

    pub(crate) fn change(self) -> SetAttributes {
        SetAttributes {
            accessed: self.accessed,
            modified: self.modified,
            ..SetAttributes::default()
        }
    }
}

const NANOS: u32 = 1_000_000_000;

fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => Timestamp::new(
            i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            after.subsec_nanos(),
        ),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            // -1.25 s is 0.75 s after second -2.
            match before.subsec_nanos() {
                0 => Timestamp::new(-seconds, 0),
                nanos => Timestamp::new((-seconds).saturating_sub(1), NANOS - nanos),
            }
        }
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let whole = Duration::from_secs(time.seconds().unsigned_abs());
    let start = if time.seconds() < 0 {
        SystemTime::UNIX_EPOCH - whole
    } else {
        SystemTime::UNIX_EPOCH + whole
    };
    start + Duration::from_nanos(u64::from(time.nanoseconds()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_were() {
        let epoch = SystemTime::UNIX_EPOCH;
        for time in [
            epoch,
            epoch + Duration::new(1_700_000_000, 123_456_789),
            epoch - Duration::new(1, 250_000_000),
            epoch - Duration::new(2_000_000_000, 0),
            epoch + Duration::new(15_000_000_000, 999_999_999),
        ] {
            assert_eq!(system_time(timestamp(time)), time);
        }
        // Out of every format's range: the last moment that there is, no panic.
        let far = epoch + Duration::from_secs(1 << 40);
        assert!(system_time(timestamp(far)) < far);
    }
}
