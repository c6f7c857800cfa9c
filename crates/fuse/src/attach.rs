//! Mounting: mount(2) for who may, the set-uid helper fusermount3 for ordinary users.
//!
//! # Block devices
//! Of type `fuse` the kernel knows nothing of what is below a mount. Of type `fuseblk` it has the
//! block device for itself (as with O_EXCL), and in return trusts its server: an unmount waits
//! until the server has answered DESTROY, and sync(2) and syncfs(2) are passed on (SYNCFS). Only
//! root may mount so.
//!
//! # References
//! `Documentation/filesystems/fuse/fuse.rst` (mount options), fusermount3(1): the helper mounts
//! and passes the open device over the socket whose number stands in `_FUSE_COMMFD`.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::FdFlags;
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use finefs_namespace::AtimePolicy;

use crate::convert::View;
use crate::cpu_latency::WakeupLatency;

/// The helper: by its name, and where it lies when PATH is poor.
pub(crate) const HELPERS: [&str; 3] = ["fusermount3", "/usr/bin/fusermount3", "/bin/fusermount3"];

const DEVICE: &str = "/dev/fuse";
const SUBTYPE: &str = "finefs";

/// How to mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// What is shown as mounted: the absolute path of the image.
    pub source: OsString,
    /// Nothing may be changed.
    pub is_read_only: bool,
    /// Users other than the mounting one may use it.
    pub allow_other: bool,
    /// Set-uid bits and file capabilities count (root only).
    pub allows_suid: bool,
    /// Device nodes work (root only).
    pub allows_devices: bool,
    /// Programs may be run.
    pub allows_execution: bool,
    /// Symbolic links in it are followed.
    pub follows_symlinks: bool,
    /// Every write is written out at once.
    pub is_synchronous: bool,
    /// Every change of a directory is written out at once.
    pub is_directory_synchronous: bool,
    /// When the server notes that a file was read: the kernel shows it among the flags.
    pub atime: AtimePolicy,
    /// It notes it of directories too; shown likewise.
    pub notes_directories: bool,
    /// Writes are collected in the kernel until the file is closed or synced.
    pub has_writeback_cache: bool,
    /// Extended attributes can be read and set.
    pub has_xattrs: bool,
    /// What is made gets the label of the kernel's security module, as an extended attribute.
    pub has_labels: bool,
    /// Number of server threads; `None` chooses.
    pub threads: Option<usize>,
    /// The kernel checks access also where only root can use the mount.
    pub checks_root: bool,
    /// Whoever can use the mount is its superuser: nothing is checked, and what is made is root's.
    pub makes_root: bool,
    /// What files are shown to be, by which the kernel checks access then. Not with `makes_root`.
    pub view: View,
    /// How soon an idle CPU must be awake while requests come.
    pub wakeup_latency: WakeupLatency,
    /// Requests may come through io_uring, where the kernel offers it.
    pub has_ring: bool,
    /// `source` is a block device with blocks of so many bytes, to be mounted as `fuseblk`. Nobody
    /// may have it open with O_EXCL then, this process neither.
    pub device_block_bytes: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            source: SUBTYPE.into(),
            is_read_only: false,
            allow_other: false,
            allows_suid: false,
            allows_devices: false,
            allows_execution: true,
            follows_symlinks: true,
            is_synchronous: false,
            is_directory_synchronous: false,
            atime: AtimePolicy::default(),
            notes_directories: true,
            has_writeback_cache: false,
            has_xattrs: true,
            has_labels: false,
            threads: None,
            checks_root: false,
            makes_root: false,
            view: View::default(),
            wakeup_latency: WakeupLatency::Auto,
            has_ring: true,
            device_block_bytes: None,
        }
    }
}

/// Why a mount could not be made: one line.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The mount point cannot be used.
    #[error("{path}: {reason}", path = .0.display(), reason = .1)]
    MountPoint(PathBuf, String),
    /// The kernel has no FUSE.
    #[error("{DEVICE} is missing; load the kernel's module with `modprobe fuse`")]
    NoFuse,
    /// An ordinary user has no helper.
    #[error("only root can mount without fusermount3; install the package fuse3")]
    NoHelper,
    /// The helper refused, in its words.
    #[error("{0}")]
    Helper(String),
    /// The kernel refused.
    #[error("{path}: cannot mount: {error}", path = .0.display(), error = .1)]
    Kernel(PathBuf, io::Error),
    /// The kernel refused to change it.
    #[error("{path}: cannot be remounted: {error}", path = .0.display(), error = .1)]
    Remount(PathBuf, io::Error),
    /// The kernel does not mount this block device as `fuseblk`; as `fuse` it may.
    #[error("{path}: cannot be mounted as fuseblk: {error}", path = .0.display(), error = .1)]
    BlockDevice(OsString, io::Error),
    /// fusermount3 has no such option.
    #[error("option {0}: only root may give it")]
    OnlyRoot(&'static str),
    /// The CPUs cannot be kept awake.
    #[error("{0}; leave the option out, or mount as root")]
    CpuLatency(io::Error),
    /// The kernel and the server did not agree.
    #[error("no session with the kernel: {0}")]
    Session(io::Error),
}

/// The absolute path of a mount point, which must be a directory. [`crate::Mount::new`] checks it
/// too; a caller that is about to open an image, which marks it, asks before.
pub fn check_mount_point(path: &Path) -> Result<PathBuf, AttachError> {
    let fail = |reason: String| AttachError::MountPoint(path.to_owned(), reason);
    let explain = |error: io::Error| {
        fail(match error.raw_os_error() {
            Some(libc::ENOENT) => "no such directory; make the mount point first".into(),
            Some(libc::ENOTCONN) => {
                "a file system whose server is gone is mounted there; unmount it first".into()
            }
            _ => error.to_string(),
        })
    };
    let absolute = path.canonicalize().map_err(explain)?;
    let metadata = absolute.metadata().map_err(explain)?;
    if !metadata.is_dir() {
        return Err(fail("is not a directory; mount on a directory".into()));
    }
    Ok(absolute)
}

/// What was mounted.
pub(crate) struct Attached {
    /// The device to serve.
    pub device: OwnedFd,
    /// The kernel checks access by modes and owners (`default_permissions`).
    pub checks_permissions: bool,
}

/// Mounts at `path` (from `check_mount_point`).
pub(crate) fn attach(path: &Path, options: &Options) -> Result<Attached, AttachError> {
    if rustix::process::geteuid().is_root()
        && let Some(device) = attach_by_kernel(path, options)?
    {
        return Ok(Attached {
            device,
            checks_permissions: checks_permissions(options),
        });
    }
    if options.device_block_bytes.is_some() {
        let error = io::ErrorKind::PermissionDenied.into();
        return Err(AttachError::BlockDevice(options.source.clone(), error));
    }
    if !options.follows_symlinks {
        return Err(AttachError::OnlyRoot("nosymfollow"));
    }
    Ok(Attached {
        device: attach_by_helper(path, options)?,
        checks_permissions: !options.makes_root,
    })
}

/// Without allow_other only root gets in, whom no permission stops; and the kernel, which would
/// check all the same, would ask for the attributes of a directory after each change in it. Of what
/// a view shows the server knows nothing when it is asked.
fn checks_permissions(options: &Options) -> bool {
    let is_asked_to = options.allow_other || options.checks_root || !options.view.is_plain();
    !options.makes_root && is_asked_to
}

/// A new handle of the device, of no mount yet.
pub(crate) fn open_device() -> io::Result<File> {
    File::options().read(true).write(true).open(DEVICE)
}

/// `None` when this process may not mount (root of a container).
fn attach_by_kernel(path: &Path, options: &Options) -> Result<Option<OwnedFd>, AttachError> {
    let device = match open_device() {
        Ok(device) => device,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(AttachError::NoFuse),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(AttachError::Kernel(DEVICE.into(), error)),
    };
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if checks_permissions(options) {
        data.push_str(",default_permissions");
    }
    let mut kind = format!("fuse.{SUBTYPE}");
    if let Some(block_bytes) = options.device_block_bytes {
        data.push_str(&format!(",blksize={block_bytes}"));
        kind = format!("fuseblk.{SUBTYPE}");
    }
    let data = CString::new(data).unwrap_or_default();
    let flags = flags(options) | atime_flags(options);
    let source = options.source.as_os_str();
    match rustix::mount::mount(source, path, kind.as_str(), flags, data.as_c_str()) {
        Ok(()) => Ok(Some(device.into())),
        Err(rustix::io::Errno::PERM) => Ok(None),
        Err(error) if options.device_block_bytes.is_some() => {
            Err(AttachError::BlockDevice(source.to_owned(), error.into()))
        }
        Err(rustix::io::Errno::NODEV) => Err(AttachError::NoFuse),
        Err(error) => Err(AttachError::Kernel(path.to_owned(), error.into())),
    }
}

/// The flags of mount(2).
fn flags(options: &Options) -> MountFlags {
    let mut flags = MountFlags::empty();
    for (is_set, flag) in [
        (options.is_read_only, MountFlags::RDONLY),
        (!options.allows_suid, MountFlags::NOSUID),
        (!options.allows_devices, MountFlags::NODEV),
        (!options.allows_execution, MountFlags::NOEXEC),
        (!options.follows_symlinks, MountFlags::NOSYMFOLLOW),
        (options.is_synchronous, MountFlags::SYNCHRONOUS),
        (options.is_directory_synchronous, MountFlags::DIRSYNC),
    ] {
        flags.set(flag, is_set);
    }
    flags
}

/// Those of access times, which the server notes: the kernel only shows them.
fn atime_flags(options: &Options) -> MountFlags {
    let mut flags = match options.atime {
        AtimePolicy::Relatime => MountFlags::RELATIME,
        AtimePolicy::Noatime => MountFlags::NOATIME,
        AtimePolicy::Strict => MountFlags::STRICTATIME,
    };
    flags.set(MountFlags::NODIRATIME, !options.notes_directories);
    flags
}

/// Which flags a remount changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remounted {
    /// Those of the mount at its place: ro, nosuid, nodev, noexec, nosymfollow.
    Place,
    /// These, and those of the file system at all its places: ro, sync.
    FileSystem,
}

/// Gives what is mounted at `path` these flags; of `options` nothing else counts. Only root may.
/// The server is not told: the kernel alone refuses changes where it becomes read-only, after it
/// has written out what it holds.
pub fn remount(path: &Path, options: &Options, what: Remounted) -> Result<(), AttachError> {
    let mut flags = flags(options);
    if what == Remounted::Place {
        flags |= MountFlags::from_bits_retain(libc::MS_BIND as _);
    }
    // Without flags about access times the kernel leaves them as they are, as the server does.
    rustix::mount::mount_remount(path, flags, c"")
        .map_err(|error| AttachError::Remount(path.to_owned(), error.into()))
}

fn attach_by_helper(path: &Path, options: &Options) -> Result<OwnedFd, AttachError> {
    let broken = |error: io::Error| AttachError::Helper(format!("fusermount3: {error}"));
    for helper in HELPERS {
        let (ours, theirs) = UnixStream::pair().map_err(broken)?;
        rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|e| broken(e.into()))?;
        let spawned = Command::new(helper)
            .arg("-o")
            .arg(helper_options(options))
            .arg("--")
            .arg(path)
            .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        drop(theirs);
        let child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(broken(error)),
        };
        let received = receive_device(&ours);
        drop(ours);
        let output = child.wait_with_output().map_err(broken)?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            let line = message.lines().next().unwrap_or("fusermount3 failed");
            return Err(AttachError::Helper(line.to_owned()));
        }
        return received
            .map_err(broken)?
            .ok_or_else(|| AttachError::Helper("fusermount3 sent no device".into()));
    }
    Err(AttachError::NoHelper)
}

/// The helper's option string. It adds nosuid and nodev for ordinary users itself.
fn helper_options(options: &Options) -> OsString {
    let mut list = OsString::from("fsname=");
    list.push(escape(&options.source));
    list.push(format!(",subtype={SUBTYPE}"));
    for (is_set, word) in [
        (!options.makes_root, "default_permissions"),
        (options.is_read_only, "ro"),
        (options.allow_other, "allow_other"),
        (options.allows_suid, "suid"),
        (options.allows_devices, "dev"),
        (!options.allows_execution, "noexec"),
        (options.is_synchronous, "sync"),
        (options.is_directory_synchronous, "dirsync"),
        // Of the others that are about access times it knows none.
        (options.atime == AtimePolicy::Noatime, "noatime"),
    ] {
        if is_set {
            list.push(",");
            list.push(word);
        }
    }
    list
}

/// A comma in a value has to be told from one between options.
fn escape(value: &OsStr) -> OsString {
    let mut escaped = Vec::with_capacity(value.len());
    for &byte in value.as_bytes() {
        if matches!(byte, b'\\' | b',') {
            escaped.push(b'\\');
        }
        escaped.push(byte);
    }
    OsString::from_vec(escaped)
}

/// Takes the device from the helper; `None` when it closes the socket without sending one.
fn receive_device(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return Ok(descriptors.next());
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helper_options_are_escaped() {
        let options = Options {
            source: "/a,b\\c".into(),
            is_read_only: true,
            allows_execution: false,
            ..Options::default()
        };
        assert_eq!(
            helper_options(&options),
            "fsname=/a\\,b\\\\c,subtype=finefs,default_permissions,ro,noexec"
        );
    }

    #[test]
    fn mount_points_are_checked() {
        assert!(check_mount_point(Path::new("/")).is_ok());
        for bad in ["/nowhere/at/all", "/proc/self/status"] {
            let error = check_mount_point(Path::new(bad)).unwrap_err().to_string();
            assert!(error.starts_with(bad), "{error}");
        }
    }
}
