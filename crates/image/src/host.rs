//! Directories and files of the host, by directory handles, so that no symbolic link that appears
//! on the way leads elsewhere.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use finefs::FileKind;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Stat, StatxAttributes, StatxFlags, Timespec,
    Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::attributes::{Attributes, Change, Lacking, Time, Xattr};
use crate::error::{Error, Result};
use crate::inside::xattr_failed;
use crate::tree::{ACLS, Follow, Room, SinkDir, SinkFile, SourceDir, SourceFile, path_with};

/// A directory of the host.
pub struct HostDir {
    fd: OwnedFd,
    /// Where copying started.
    base: Arc<Base>,
    /// From there.
    path: PathBuf,
    /// The same for messages.
    shown: PathBuf,
}

struct Base {
    fd: OwnedFd,
    /// As the user named it.
    shown: PathBuf,
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC).union(OFlags::PATH);

impl HostDir {
    /// Opens a directory, through symbolic links.
    pub fn open(path: &Path) -> Result<HostDir> {
        HostDir::open_from(rustix::fs::CWD, path)
    }

    fn open_from(start: BorrowedFd<'_>, path: &Path) -> Result<HostDir> {
        let failed = |error: Errno| Error::host(path.display().to_string(), error);
        let shown = path;
        let path = match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        };
        let fd = open_in_steps(start, path).map_err(failed)?;
        let base = Base {
            fd: rustix::io::fcntl_dupfd_cloexec(&fd, 0).map_err(failed)?,
            shown: shown.to_owned(),
        };
        Ok(HostDir {
            fd,
            base: Arc::new(base),
            path: PathBuf::new(),
            shown: PathBuf::new(),
        })
    }

    fn failed(&self, name: &OsStr) -> impl Fn(Errno) -> Error + '_ {
        let name = name.to_owned();
        move |error| Error::host(SourceDir::shown(self, &name), error)
    }

    fn child(&self, name: &OsStr, shown: &OsStr, follow: Follow) -> Result<HostDir> {
        let flags = match follow {
            Follow::Yes => DIRECTORY,
            Follow::No => DIRECTORY | OFlags::NOFOLLOW,
        };
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        Ok(HostDir {
            fd: fd.map_err(self.failed(name))?,
            base: Arc::clone(&self.base),
            path: path_with(&self.path, name),
            shown: path_with(&self.shown, shown),
        })
    }

    /// A path for calls that take no directory handle; its last name is not followed by those that
    /// begin with l.
    fn through_proc(&self, name: &OsStr) -> PathBuf {
        let mut path = PathBuf::from(format!("/proc/self/fd/{}", self.fd.as_raw_fd()));
        path.push(name);
        path
    }

    fn stat(&self, name: &OsStr, follow: Follow) -> rustix::io::Result<Attributes> {
        let flags = match follow {
            Follow::Yes => AtFlags::empty(),
            Follow::No => AtFlags::SYMLINK_NOFOLLOW,
        };
        rustix::fs::statat(&self.fd, name, flags).map(|stat| attributes(&stat))
    }

    fn read_xattrs(&self, name: &OsStr, follow: Follow) -> rustix::io::Result<Vec<Xattr>> {
        read_xattrs(&self.through_proc(name), follow)
    }
}

fn read_xattrs(path: &Path, follow: Follow) -> rustix::io::Result<Vec<Xattr>> {
    let list = |buffer: &mut [u8]| match follow {
        Follow::Yes => rustix::fs::listxattr(path, buffer),
        Follow::No => rustix::fs::llistxattr(path, buffer),
    };
    let names = match grown(list) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut xattrs = Vec::new();
    for key in names.split(|byte| *byte == 0).filter(|key| !key.is_empty()) {
        let key = OsStr::from_bytes(key);
        let get = |buffer: &mut [u8]| match follow {
            Follow::Yes => rustix::fs::getxattr(path, key, buffer),
            Follow::No => rustix::fs::lgetxattr(path, key, buffer),
        };
        match grown(get) {
            Ok(value) => xattrs.push((key.to_owned(), value)),
            Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(error) => return Err(error),
        }
    }
    xattrs.sort();
    Ok(xattrs)
}

/// The working directory of a thread that has one of its own, where that is allowed: by names in
/// it, extended attributes are read in a third of the time that a path through /proc takes.
pub(crate) struct WorkingDir {
    /// Where the process is: relative paths start there. `None` without one of its own.
    process: Option<OwnedFd>,
    /// It is the thread's: it stays in it.
    _in_thread: PhantomData<*const ()>,
}

impl WorkingDir {
    /// Gives this thread one of its own; it should be one that does only this.
    pub fn of_this_thread() -> WorkingDir {
        let process = rustix::fs::open(".", DIRECTORY, Mode::empty());
        let is_own = nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).is_ok();
        WorkingDir {
            process: process.ok().filter(|_| is_own),
            _in_thread: PhantomData,
        }
    }

    /// Opens a directory by a path from where the process is.
    pub fn open(&self, path: &Path) -> Result<HostDir> {
        let start = self
            .process
            .as_ref()
            .map_or(rustix::fs::CWD, |fd| fd.as_fd());
        HostDir::open_from(start, path)
    }

    /// Makes a directory the working directory of this thread.
    pub fn enter<'d>(&'d mut self, dir: &'d HostDir) -> Inside<'d> {
        let is_here = self.process.is_some() && rustix::process::fchdir(&dir.fd).is_ok();
        Inside { dir, is_here }
    }
}

/// A directory that is the working directory of this thread, if that can be.
pub(crate) struct Inside<'d> {
    dir: &'d HostDir,
    is_here: bool,
}

impl Inside<'_> {
    /// All extended attributes of a file in it that may be read.
    pub fn xattrs(&self, name: &OsStr) -> Result<Vec<Xattr>> {
        let xattrs = match self.is_here {
            true => read_xattrs(Path::new(name), Follow::No),
            false => self.dir.read_xattrs(name, Follow::No),
        };
        xattrs.map_err(self.dir.failed(name))
    }
}

/// Opens a directory by a path that may be longer than the system takes at once.
fn open_in_steps(start: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    const STEP_BYTES_MAX: usize = 4000;
    let mut fd = None;
    let mut step = PathBuf::new();
    let open = |fd: &Option<OwnedFd>, step: &Path| {
        let from = fd.as_ref().map_or(start, |fd| fd.as_fd());
        rustix::fs::openat(from, step, DIRECTORY, Mode::empty())
    };
    for part in path.components() {
        let length = step.as_os_str().len() + part.as_os_str().len() + 1;
        if length > STEP_BYTES_MAX && !step.as_os_str().is_empty() {
            fd = Some(open(&fd, &step)?);
            step.clear();
        }
        step.push(part);
    }
    open(&fd, &step)
}

/// Calls with a larger buffer until the answer fits.
fn grown(
    mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    // The kernel has nothing that is longer.
    const SIZE_MAX: usize = 64 << 10;
    let mut buffer = vec![0; 256];
    loop {
        match call(&mut buffer) {
            Err(Errno::RANGE) if buffer.len() < SIZE_MAX => buffer.resize(SIZE_MAX, 0),
            result => {
                buffer.truncate(result?);
                return Ok(buffer);
            }
        }
    }
}

fn attributes(stat: &Stat) -> Attributes {
    // The types of these fields differ between architectures.
    #[allow(clippy::unnecessary_cast)]
    let time = |seconds, nanos| Time {
        seconds: seconds as i64,
        nanos: nanos as u32,
    };
    #[allow(clippy::unnecessary_cast)]
    Attributes {
        kind: kind(FileType::from_raw_mode(stat.st_mode)),
        permissions: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: stat.st_size as u64,
        links: stat.st_nlink as u64,
        device: stat.st_dev as u64,
        ino: stat.st_ino as u64,
        rdev: stat.st_rdev as u64,
        sectors: stat.st_blocks as u64,
        accessed: time(stat.st_atime as i64, stat.st_atime_nsec as u64),
        modified: time(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
        changed: time(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        born: None,
    }
}

fn kind(kind: FileType) -> FileKind {
    match kind {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        _ => FileKind::Regular,
    }
}

impl SourceDir for HostDir {
    fn shown(&self, name: &OsStr) -> String {
        SourceDir::named(self, name).display().to_string()
    }

    fn named(&self, name: &OsStr) -> OsString {
        let inside = path_with(&self.shown, name);
        let base = &self.base.shown;
        match (base.as_os_str().is_empty(), inside.as_os_str().is_empty()) {
            (true, true) => ".".into(),
            (false, true) => base.clone().into(),
            (_, false) => base.join(inside).into(),
        }
    }

    fn names(&self) -> Result<Vec<OsString>> {
        let failed = self.failed(OsStr::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, ".", flags, Mode::empty()).map_err(&failed)?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(fd).map_err(&failed)? {
            let entry = entry.map_err(&failed)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        Ok(names)
    }

    fn attributes(&self, name: &OsStr, follow: Follow) -> Result<Attributes> {
        self.stat(name, follow).map_err(self.failed(name))
    }

    fn open_dir(&self, name: &OsStr, follow: Follow) -> Result<Arc<dyn SourceDir>> {
        Ok(Arc::new(self.child(name, name, follow)?))
    }

    fn open_file(&self, name: &OsStr, follow: Follow) -> Result<Box<dyn SourceFile>> {
        // A FIFO that comes instead of the file must not keep us waiting.
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        if follow == Follow::No {
            flags |= OFlags::NOFOLLOW;
        }
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        Ok(Box::new(OpenFile {
            file: fd.map_err(self.failed(name))?.into(),
            shown: SourceDir::shown(self, name),
        }))
    }

    fn read_link(&self, name: &OsStr) -> Result<PathBuf> {
        let target = rustix::fs::readlinkat(&self.fd, name, Vec::new());
        let target = target.map_err(self.failed(name))?.into_bytes();
        Ok(OsString::from_vec(target).into())
    }

    fn xattrs(&self, name: &OsStr, follow: Follow) -> Result<Vec<Xattr>> {
        self.read_xattrs(name, follow).map_err(self.failed(name))
    }
}

impl SinkDir for HostDir {
    fn shown(&self, name: &OsStr) -> String {
        SourceDir::shown(self, name)
    }

    fn named(&self, name: &OsStr) -> OsString {
        SourceDir::named(self, name)
    }

    fn path_of(&self, name: &OsStr) -> PathBuf {
        path_with(&self.path, name)
    }

    fn find(&self, name: &OsStr) -> Result<Option<Attributes>> {
        match self.stat(name, Follow::No) {
            Err(Errno::NOENT) => Ok(None),
            found => found.map(Some).map_err(self.failed(name)),
        }
    }

    fn xattrs_of(&self, name: &OsStr) -> Result<Vec<Xattr>> {
        self.read_xattrs(name, Follow::No)
            .map_err(self.failed(name))
    }

    fn make_dir(&self, name: &OsStr, shown: &OsStr) -> Result<Arc<dyn SinkDir>> {
        rustix::fs::mkdirat(&self.fd, name, Mode::RWXU).map_err(self.failed(shown))?;
        Ok(Arc::new(self.child(name, shown, Follow::No)?))
    }

    fn open_dir(&self, name: &OsStr) -> Result<Arc<dyn SinkDir>> {
        Ok(Arc::new(self.child(name, name, Follow::No)?))
    }

    fn create(&self, name: &OsStr) -> Result<Box<dyn SinkFile>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR);
        Ok(Box::new(OpenFile {
            file: fd.map_err(self.failed(name))?.into(),
            shown: SourceDir::shown(self, name),
        }))
    }

    fn overwrite(&self, name: &OsStr) -> Result<Box<dyn SinkFile>> {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        Ok(Box::new(OpenFile {
            file: fd.map_err(self.failed(name))?.into(),
            shown: SourceDir::shown(self, name),
        }))
    }

    fn is_append_only(&self) -> Result<bool> {
        let flags = AtFlags::EMPTY_PATH;
        let found = rustix::fs::statx(&self.fd, "", flags, StatxFlags::TYPE);
        match found {
            Ok(found) => Ok(found.stx_attributes.contains(StatxAttributes::APPEND)),
            // A system that cannot tell has no such directories.
            Err(Errno::NOSYS) => Ok(false),
            Err(error) => Err(self.failed(OsStr::new("."))(error)),
        }
    }

    fn symlink(&self, name: &OsStr, target: &Path) -> Result<()> {
        rustix::fs::symlinkat(target, &self.fd, name).map_err(self.failed(name))
    }

    fn make_node(&self, name: &OsStr, kind: FileKind, rdev: u64) -> Result<()> {
        let file_type = match kind {
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::Socket => FileType::Socket,
            _ => FileType::Fifo,
        };
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(&self.fd, name, file_type, mode, rdev).map_err(self.failed(name))
    }

    fn link(&self, original: &Path, name: &OsStr) -> Result<()> {
        let failed = self.failed(name);
        // Name by name: no path is too long so, and no symbolic link leads anywhere.
        let mut names: Vec<&OsStr> = original.components().map(Component::as_os_str).collect();
        let last = names.pop().unwrap_or_default();
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&self.base.fd, 0).map_err(&failed)?;
        for part in names {
            let flags = DIRECTORY | OFlags::NOFOLLOW;
            dir = rustix::fs::openat(&dir, part, flags, Mode::empty()).map_err(&failed)?;
        }
        rustix::fs::linkat(&dir, last, &self.fd, name, AtFlags::empty()).map_err(failed)
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<()> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to).map_err(self.failed(to))
    }

    fn remove_all(&self, name: &OsStr) -> Result<()> {
        match self.find(name)? {
            None => Ok(()),
            // By directory handles inside of it too.
            Some(found) if found.is_directory() => std::fs::remove_dir_all(self.through_proc(name))
                .map_err(|error| Error::host(SourceDir::shown(self, name), error)),
            Some(_) => {
                rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()).map_err(self.failed(name))
            }
        }
    }

    fn remove_empty(&self, name: &OsStr) -> Result<()> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR).map_err(self.failed(name))
    }

    fn remove_acls(&self, name: &OsStr) -> Result<()> {
        let path = self.through_proc(name);
        for acl in ACLS {
            match rustix::fs::lremovexattr(&path, acl) {
                // There is none, or no such thing.
                Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS) => {}
                removed => removed.map_err(self.failed(name))?,
            }
        }
        Ok(())
    }

    fn apply(&self, name: &OsStr, change: &Change) -> Result<Lacking> {
        let failed = self.failed(name);
        let path = self.through_proc(name);
        let no_follow = AtFlags::SYMLINK_NOFOLLOW;
        let lacking = set_owner_and_xattrs(
            change,
            |uid, gid| rustix::fs::chownat(&self.fd, name, uid, gid, no_follow),
            |key, value| rustix::fs::lsetxattr(&path, key, value, XattrFlags::empty()),
            &failed,
        )?;
        // Times first: without the right to search nothing more is set in a directory.
        if let Some(times) = change.times {
            let times = timestamps(times);
            rustix::fs::utimensat(&self.fd, name, &times, no_follow).map_err(&failed)?;
        }
        if let Some(permissions) = change.permissions {
            let found = self.stat(name, Follow::No).map_err(&failed)?;
            if found.kind != FileKind::Symlink {
                let mode = Mode::from_raw_mode(left_of(permissions, lacking));
                rustix::fs::chmodat(&self.fd, name, mode, AtFlags::empty()).map_err(&failed)?;
            }
        }
        Ok(lacking)
    }

    fn open_special(&self, name: &OsStr) -> Result<Option<Box<dyn Write>>> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        Ok(Some(Box::new(File::from(fd.map_err(self.failed(name))?))))
    }

    fn room(&self) -> Option<Room> {
        None
    }

    fn sync(&self) -> Result<()> {
        let failed = self.failed(OsStr::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.fd, ".", flags, Mode::empty()) {
            Ok(dir) => rustix::fs::syncfs(&dir).map_err(failed),
            // One that may not be read is synced with all others, which tells no errors.
            Err(Errno::ACCESS) => {
                rustix::fs::sync();
                Ok(())
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// Set-id bits are for the owner that could not be set.
fn left_of(permissions: u32, lacking: Lacking) -> u32 {
    match lacking.owner {
        true => permissions & 0o1777,
        false => permissions,
    }
}

fn set_owner_and_xattrs(
    change: &Change,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    set_xattr: impl Fn(&OsStr, &[u8]) -> rustix::io::Result<()>,
    failed: &impl Fn(Errno) -> Error,
) -> Result<Lacking> {
    let mut lacking = Lacking::default();
    if let Some((uid, gid)) = change.owner {
        // The highest number means "as it is" to chown(2).
        let uid = (uid != u32::MAX).then(|| Uid::from_raw(uid));
        let gid = (gid != u32::MAX).then(|| Gid::from_raw(gid));
        match chown(uid, gid) {
            Err(Errno::PERM | Errno::INVAL) => {
                lacking.owner = true;
                // The group alone may be one of ours.
                let _ = chown(None, gid);
            }
            done => done.map_err(failed)?,
        }
        lacking.owner |= uid.is_none() || gid.is_none();
    }
    for (key, value) in &change.xattrs {
        match set_xattr(key, value) {
            Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => lacking.xattrs = true,
            done => done.map_err(|error| xattr_failed(failed(error), key))?,
        }
    }
    Ok(lacking)
}

fn timestamps((accessed, modified): (Time, Time)) -> Timestamps {
    let spec = |time: Time| Timespec {
        tv_sec: time.seconds as _,
        tv_nsec: time.nanos as _,
    };
    Timestamps {
        last_access: spec(accessed),
        last_modification: spec(modified),
    }
}

/// An open file of the host.
struct OpenFile {
    file: File,
    shown: String,
}

impl OpenFile {
    fn failed(&self) -> impl Fn(Errno) -> Error + '_ {
        |error| Error::host(self.shown.clone(), error)
    }
}

impl SourceFile for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file
            .read_at(buffer, offset)
            .map_err(|error| Error::host(self.shown.clone(), error))
    }

    fn data_after(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // No such thing here: all of it is data.
            Err(Errno::INVAL) if offset == 0 => return Ok(Some((0, u64::MAX))),
            Err(error) => return Err(self.failed()(error)),
        };
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start)).map_err(self.failed())?;
        Ok(Some((start, end)))
    }

    fn size(&self) -> Result<u64> {
        let found = self.file.metadata();
        let found = found.map_err(|error| Error::host(self.shown.clone(), error));
        found.map(|found| found.len())
    }
}

impl SinkFile for OpenFile {
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file
            .write_all_at(data, offset)
            .map_err(|error| Error::host(self.shown.clone(), error))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        rustix::fs::ftruncate(&self.file, length).map_err(self.failed())
    }

    fn apply(&self, change: &Change) -> Result<Lacking> {
        let failed = self.failed();
        let lacking = set_owner_and_xattrs(
            change,
            |uid, gid| rustix::fs::fchown(&self.file, uid, gid),
            |key, value| rustix::fs::fsetxattr(&self.file, key, value, XattrFlags::empty()),
            &failed,
        )?;
        if let Some(permissions) = change.permissions {
            let mode = Mode::from_raw_mode(left_of(permissions, lacking));
            rustix::fs::fchmod(&self.file, mode).map_err(&failed)?;
        }
        if let Some(times) = change.times {
            rustix::fs::futimens(&self.file, &timestamps(times)).map_err(&failed)?;
        }
        Ok(lacking)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_a_directory_as_the_user_did() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path();
        std::fs::create_dir(path.join("inner")).unwrap();
        let dir = HostDir::open(path).unwrap();
        let shown = |dir: &HostDir, name: &str| SourceDir::shown(dir, OsStr::new(name));
        assert_eq!(shown(&dir, "."), path.display().to_string());
        assert_eq!(shown(&dir, "file"), path.join("file").display().to_string());
        let inner = dir.child(OsStr::new("inner"), OsStr::new("inner"), Follow::No);
        let inner = inner.unwrap();
        assert_eq!(shown(&inner, "."), path.join("inner").display().to_string());
        let here = HostDir::open(Path::new("")).unwrap();
        assert_eq!(shown(&here, "."), ".");
    }

    #[test]
    fn a_thread_reads_attributes_by_names_of_its_own_working_directory() {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path();
        std::fs::write(path.join("file"), b"").unwrap();
        let has_xattrs =
            rustix::fs::setxattr(path.join("file"), "user.key", b"value", XattrFlags::empty());
        let here = std::env::current_dir().unwrap();
        let read = || {
            let mut working_dir = WorkingDir::of_this_thread();
            let dir = working_dir.open(path).unwrap();
            let inside = working_dir.enter(&dir);
            let found = inside.xattrs(OsStr::new("file")).unwrap();
            let missing = inside.xattrs(OsStr::new("missing")).unwrap_err();
            (found, missing.to_string())
        };
        let (found, missing) = std::thread::scope(|scope| scope.spawn(read).join().unwrap());
        if has_xattrs.is_ok() {
            let key = (OsString::from("user.key"), b"value".to_vec());
            assert!(found.contains(&key), "{found:?}");
        }
        assert!(missing.contains("missing"), "{missing}");
        assert_eq!(std::env::current_dir().unwrap(), here);
    }
}
