//! What is mounted where: `/proc/self/mountinfo`.
//!
//! # References
//! proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};

/// A mount of this process' mount namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountPoint {
    /// Major and minor number of the file system.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub path: PathBuf,
    /// Its type, "ext4", "fuse.finefs", "fuseblk.finefs".
    pub kind: String,
    /// What is mounted: a device, an image, any name.
    pub source: OsString,
    /// The file system itself is read-only.
    pub is_read_only: bool,
    /// Flags of the mount at this place, as the kernel tells them: "ro", "nosuid", "relatime".
    pub flags: Vec<String>,
    /// Options of the file system: "ro", "sync", "user_id=0".
    pub options: Vec<String>,
    /// Of a FUSE mount, the user who mounted it, as the kernel has it (`user_id=`).
    pub owner: Option<u32>,
}

impl MountPoint {
    /// True for mounts of finefs.
    pub fn is_finefs(&self) -> bool {
        matches!(self.kind.as_str(), "fuse.finefs" | "fuseblk.finefs")
    }

    /// The kernel tells this option, of the mount or of the file system.
    pub fn has_option(&self, option: &str) -> bool {
        let mut all = self.flags.iter().chain(&self.options);
        all.any(|known| known == option)
    }

    /// Nothing can be changed here, but perhaps at another place where the file system is mounted
    /// (`mount --bind -o ro`).
    pub fn is_read_only_here_alone(&self) -> bool {
        !self.is_read_only && self.flags.iter().any(|flag| flag == "ro")
    }

    /// True when its server is gone, so that every call at it fails with ENOTCONN. It is asked: of
    /// a server that hangs, this waits. A user who may not use the mount is told false.
    pub fn is_dead(&self) -> bool {
        // The kernel would answer of what it has cached.
        let flags = AtFlags::STATX_FORCE_SYNC;
        let asked = rustix::fs::statx(CWD, &self.path, flags, StatxFlags::MODE);
        matches!(asked, Err(rustix::io::Errno::NOTCONN))
    }
}

/// All mounts, in the order of mounting.
pub fn mounts() -> io::Result<Vec<MountPoint>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table
        .split(|&byte| byte == b'\n')
        .filter_map(parse_line)
        .collect())
}

/// What is mounted at `path` (absolute, without symbolic links), the topmost of several.
pub fn mount_at(path: &Path) -> io::Result<Option<MountPoint>> {
    Ok(mounts()?.into_iter().rev().find(|mount| mount.path == path))
}

/// The absolute path without symbolic links, also of a mount point whose server is gone, of which
/// nothing can be asked.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let error = match path.canonicalize() {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => error,
        resolved => return resolved,
    };
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Err(error),
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<MountPoint> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let path = unescape(fields.nth(1)?);
    let of_mount = fields.next()?;
    fields.find(|field| *field == b"-")?;
    let kind = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let options = fields.next()?.split(|&byte| byte == b',');
    let is_read_only = options.clone().any(|option| option == b"ro");
    let text = |option: &[u8]| String::from_utf8_lossy(option).into_owned();
    let flags = of_mount.split(|&byte| byte == b',').map(text).collect();
    let options: Vec<String> = options.map(text).collect();
    let mut values = options
        .iter()
        .filter_map(|option| option.strip_prefix("user_id="));
    let owner = values.next().and_then(|value| value.parse().ok());
    Some(MountPoint {
        device: (major.parse().ok()?, minor.parse().ok()?),
        path: path.into(),
        kind,
        source,
        is_read_only,
        flags,
        options,
        owner,
    })
}

/// The kernel writes blank, tab, newline, backslash (and `#`) as `\ooo`.
fn unescape(field: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'\\'
            && tail.len() >= 3
            && let Ok(digits) = std::str::from_utf8(&tail[..3])
            && let Ok(byte) = u8::from_str_radix(digits, 8)
        {
            out.push(byte);
            rest = &tail[3..];
        } else {
            out.push(first);
            rest = tail;
        }
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let mount = parse_line(
            b"41 28 0:36 / /mnt/a\\040b rw,nosuid - fuse.finefs /home/x\\134y.img rw,user_id=7",
        )
        .unwrap();
        assert_eq!(mount.device, (0, 36));
        assert_eq!(mount.path, Path::new("/mnt/a b"));
        assert_eq!(mount.source, "/home/x\\y.img");
        assert!(mount.is_finefs() && !mount.is_read_only);
        assert_eq!(mount.owner, Some(7));
        assert!(mount.has_option("nosuid") && mount.has_option("user_id=7"));
        assert!(!mount.has_option("nodev"));
        let mount =
            parse_line(b"1 1 7:0 / /m ro - fuseblk.finefs /dev/loop0 rw,blksize=4096").unwrap();
        assert!(mount.is_finefs() && !mount.is_read_only && mount.owner.is_none());
        assert!(mount.is_read_only_here_alone() && mount.has_option("ro"));
        // Optional fields before the dash.
        let mount =
            parse_line(b"1 1 8:1 / / rw shared:1 master:2 - ext4 /dev/sda1 ro,x=rw").unwrap();
        assert_eq!(
            (mount.kind.as_str(), mount.source.as_os_str()),
            ("ext4", "/dev/sda1".as_ref())
        );
        assert!(!mount.is_finefs() && mount.is_read_only);
        for bad in [
            &b""[..],
            b"1 2",
            b"1 1 8:x / / rw - a b",
            b"1 1 8:1 / / rw a b",
        ] {
            assert_eq!(parse_line(bad), None);
        }
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mount_at(Path::new("/proc")).unwrap().is_some());
    }
}
