//! An open image, used as the module `os` is.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use finefs::{FileKind, FileSystem, FileTimes, LastLink, OpenOptions, Permissions, XattrMode};
use finefs_image::copy::{self, Links, Observer, Preserve, Progress, Task};
use finefs_image::{Access, Address, HostDir, ImageDir, Images};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::detached::Detached;
use crate::error;
use crate::file::RawFile;
use crate::stat::{Stat, stat};

fn time(nanoseconds: i128) -> Option<SystemTime> {
    let far = u64::try_from(nanoseconds.unsigned_abs()).ok()?;
    let far = Duration::from_nanos(far);
    match nanoseconds < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(far),
        false => SystemTime::UNIX_EPOCH.checked_add(far),
    }
}

fn last_link(follows: bool) -> LastLink {
    match follows {
        true => LastLink::Follow,
        false => LastLink::Keep,
    }
}

/// Errors of paths at which there can be nothing: through a file, links that lead in a circle,
/// names that are too long. ENOENT is none of `try_exists`.
const LEADS_NOWHERE: [i32; 3] = [libc::ENOTDIR, libc::ELOOP, libc::ENAMETOOLONG];

/// An open image or memory file system.
///
/// Calls borrow it, so that threads run side by side; only `_close` borrows it to change it, for
/// the moment in which it takes the file system away.
#[pyclass(subclass, module = "finefs._finefs")]
pub(crate) struct Image {
    /// `None` once it is closed.
    fs: Option<Detached<FileSystem>>,
    name: OsString,
    notes: Vec<String>,
}

impl Image {
    fn opened(fs: FileSystem, name: OsString) -> Image {
        Image {
            notes: fs.notes().to_vec(),
            fs: Some(Detached::new(fs)),
            name,
        }
    }

    fn fs(&self) -> PyResult<&FileSystem> {
        self.fs.as_deref().ok_or_else(error::closed)
    }

    /// Runs an operation without the interpreter's lock.
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&FileSystem) -> finefs::Result<T> + Send,
    ) -> PyResult<T> {
        let fs = self.fs()?;
        py.detach(|| operation(fs))
            .map_err(|failed| error::of(&failed))
    }
}

#[pymethods]
impl Image {
    /// Opens an image, `mode` "r" or "r+", whose journal lies on the device `journal` if that is
    /// not its own; or makes a file system of `memory` bytes.
    #[new]
    #[pyo3(signature = (name, mode = "r", *, memory = None, journal = None))]
    fn new(
        py: Python<'_>,
        name: PathBuf,
        mode: &str,
        memory: Option<u64>,
        journal: Option<PathBuf>,
    ) -> PyResult<Image> {
        let name = name.into_os_string();
        if let Some(size) = memory {
            let fs = py.detach(|| FileSystem::memory(size));
            let fs = fs.map_err(|failed| error::of(&failed))?;
            return Ok(Image::opened(fs, name));
        }
        let access = match mode {
            "r" => Access::Read,
            "r+" => Access::Write,
            _ => return Err(PyValueError::new_err("mode is \"r\" or \"r+\"")),
        };
        let address = Address {
            image: name.clone(),
            path: "/".into(),
        };
        // The file system lives on in its handle.
        let fs = py.detach(|| {
            let images = Images::new(None).with_journals(journal.into_iter().collect());
            images.open_only(&address, access)
        });
        let fs = fs.map_err(|failed| error::of_workshop(&failed))?;
        Ok(Image::opened(fs, name))
    }

    /// What was opened.
    #[getter]
    fn name(&self) -> OsString {
        self.name.clone()
    }

    /// True when every change is refused.
    #[getter]
    fn read_only(&self, py: Python<'_>) -> PyResult<bool> {
        self.run(py, |fs| Ok(fs.is_read_only()))
    }

    /// What the user should know, a line each.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// The label of the file system.
    #[getter]
    fn label(&self, py: Python<'_>) -> PyResult<OsString> {
        self.run(py, |fs| Ok(fs.label()))
    }

    /// Sets the label.
    fn set_label(&self, py: Python<'_>, label: OsString) -> PyResult<()> {
        self.run(py, |fs| fs.set_label(label))
    }

    /// Ends the file system: everything is on the image, or `OSError` says what is not. Its memory
    /// and its descriptors go with the last file that is open, or with the image where another
    /// thread is in a call of it.
    fn _close(slf: &Bound<'_, Image>) -> PyResult<()> {
        let closed = slf.try_borrow()?.run(slf.py(), |fs| fs.clone().close());
        let fs = slf
            .try_borrow_mut()
            .ok()
            .and_then(|mut image| image.fs.take());
        drop(fs);
        closed
    }

    /// Returns when everything that was done before is on the image.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, FileSystem::sync)
    }

    /// Block size, longest name, blocks, free, available; inodes, free.
    fn _statfs(&self, py: Python<'_>) -> PyResult<(u32, u32, [u64; 5])> {
        let found = self.run(py, |fs| Ok(fs.statfs()))?;
        let counts = [
            found.blocks,
            found.blocks_free,
            found.blocks_available,
            found.inodes,
            found.inodes_free,
        ];
        Ok((found.block_size_bytes, found.name_max, counts))
    }

    fn _stat(&self, py: Python<'_>, path: PathBuf, follows: bool) -> PyResult<Stat> {
        let found = self.run(py, |fs| match follows {
            true => fs.metadata(path),
            false => fs.symlink_metadata(path),
        })?;
        Ok(stat(&found))
    }

    /// Whether something is at the path, its symbolic links followed.
    fn exists(&self, py: Python<'_>, path: PathBuf) -> PyResult<bool> {
        self.run(py, |fs| match fs.try_exists(path) {
            Err(error) if LEADS_NOWHERE.contains(&error.errno()) => Ok(false),
            found => found,
        })
    }

    /// The names in a directory.
    #[pyo3(signature = (path = PathBuf::from("/")))]
    fn listdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<OsString>> {
        self.run(py, |fs| {
            let entries = fs.read_dir(path)?;
            entries
                .map(|entry| Ok(entry?.file_name().to_owned()))
                .collect()
        })
    }

    /// Names, numbers of inodes and kinds as in `st_mode`.
    fn _scandir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, u64, u32)>> {
        self.run(py, |fs| {
            let mut all = Vec::new();
            for entry in fs.read_dir(path)? {
                let entry = entry?;
                let kind = entry.file_type()?.kind().mode_bits();
                all.push((entry.file_name().to_owned(), entry.ino(), kind));
            }
            Ok(all)
        })
    }

    /// Opens a file by open(2)'s access: reading, writing, appending, truncating, creating,
    /// creating only.
    fn _open_file(
        &self,
        py: Python<'_>,
        path: PathBuf,
        how: [bool; 6],
        mode: u32,
    ) -> PyResult<RawFile> {
        let [reads, writes, appends, truncates, creates, creates_new] = how;
        let mut options = OpenOptions::new();
        options
            .read(reads)
            .write(writes)
            .append(appends)
            .truncate(truncates)
            .create(creates)
            .create_new(creates_new)
            .mode(mode);
        let file = self.run(py, |fs| options.open(fs, path))?;
        Ok(RawFile::new(file))
    }

    /// All bytes of a file.
    fn read_bytes<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.run(py, |fs| fs.read(path))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// All bytes of each of these files, in their order; threads that read many small files so wait
    /// for the interpreter once, not for each.
    fn read_many<'py>(
        &self,
        py: Python<'py>,
        paths: Vec<PathBuf>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let contents: Vec<Vec<u8>> = self.run(py, |fs| {
            paths.into_iter().map(|path| fs.read(path)).collect()
        })?;
        let objects = contents.iter().map(|bytes| PyBytes::new(py, bytes));
        Ok(objects.collect())
    }

    /// Makes a file of these bytes, or gives them to one that is there; how many.
    fn write_bytes(&self, py: Python<'_>, path: PathBuf, data: &[u8]) -> PyResult<usize> {
        self.run(py, |fs| fs.write(path, data))?;
        Ok(data.len())
    }

    /// Makes a directory.
    #[pyo3(signature = (path, mode = 0o777))]
    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.run(py, |fs| fs.create_dir_with_mode(path, mode))
    }

    fn _create_dir_all(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.create_dir_all(path))
    }

    /// Removes a name of anything but a directory.
    fn remove(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.remove_file(path))
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.remove_dir(path))
    }

    /// Removes a directory with everything in it.
    fn rmtree(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.remove_dir_all(path))
    }

    /// Renames; what is at the new name is replaced.
    fn rename(&self, py: Python<'_>, src: PathBuf, dst: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.rename(src, dst))
    }

    /// Gives a file one more name.
    fn link(&self, py: Python<'_>, src: PathBuf, dst: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.hard_link(src, dst))
    }

    /// Makes the symbolic link `dst` to `src`.
    fn symlink(&self, py: Python<'_>, src: PathBuf, dst: PathBuf) -> PyResult<()> {
        self.run(py, |fs| fs.symlink(src, dst))
    }

    /// Where a symbolic link leads to.
    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        self.run(py, |fs| fs.read_link(path).map(PathBuf::into_os_string))
    }

    /// Makes a device node, FIFO or socket: `mode` has kind and permissions.
    #[pyo3(signature = (path, mode, device = 0))]
    fn mknod(&self, py: Python<'_>, path: PathBuf, mode: u32, device: u64) -> PyResult<()> {
        let kind = match mode & libc::S_IFMT {
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            _ => {
                return Err(PyValueError::new_err(
                    "mknod makes devices, FIFOs and sockets",
                ));
            }
        };
        self.run(py, |fs| fs.make_node(path, kind, mode & 0o7777, device))
    }

    /// Sets the permissions.
    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.run(py, |fs| {
            fs.set_permissions(path, Permissions::from_mode(mode))
        })
    }

    /// Sets owner and group; -1 leaves one as it is.
    #[pyo3(signature = (path, uid, gid, *, follow_symlinks = true))]
    fn chown(
        &self,
        py: Python<'_>,
        path: PathBuf,
        uid: i64,
        gid: i64,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        let id = |id: i64| match id {
            -1 => Ok(None),
            id => u32::try_from(id)
                .map(Some)
                .map_err(|_| PyValueError::new_err("no number of a user or group")),
        };
        let (uid, gid) = (id(uid)?, id(gid)?);
        self.run(py, |fs| {
            fs.set_owner(path, uid, gid, last_link(follow_symlinks))
        })
    }

    fn _utime(
        &self,
        py: Python<'_>,
        path: PathBuf,
        ns: Option<(i128, i128)>,
        follows: bool,
    ) -> PyResult<()> {
        let times = match ns {
            None => FileTimes::now(),
            Some((accessed, modified)) => {
                let far = || PyValueError::new_err("the time is too far away");
                FileTimes::new()
                    .accessed(time(accessed).ok_or_else(far)?)
                    .modified(time(modified).ok_or_else(far)?)
            }
        };
        self.run(py, |fs| fs.set_times(path, times, last_link(follows)))
    }

    /// Makes a file this long.
    fn truncate(&self, py: Python<'_>, path: PathBuf, length: u64) -> PyResult<()> {
        self.run(py, |fs| {
            OpenOptions::new()
                .write(true)
                .open(fs, path)?
                .set_len(length)
        })
    }

    /// The value of an extended attribute.
    #[pyo3(signature = (path, name, *, follow_symlinks = true))]
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        name: OsString,
        follow_symlinks: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.run(py, |fs| match follow_symlinks {
            true => fs.get_xattr(path, name),
            false => fs.symlink_get_xattr(path, name),
        })?;
        Ok(PyBytes::new(py, &value))
    }

    /// Sets an extended attribute.
    #[pyo3(signature = (path, name, value, *, follow_symlinks = true))]
    fn setxattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        name: OsString,
        value: &[u8],
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.run(py, |fs| match follow_symlinks {
            true => fs.set_xattr(path, name, value, XattrMode::Set),
            false => fs.symlink_set_xattr(path, name, value, XattrMode::Set),
        })
    }

    /// The names of the extended attributes.
    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn listxattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        follow_symlinks: bool,
    ) -> PyResult<Vec<OsString>> {
        self.run(py, |fs| match follow_symlinks {
            true => fs.list_xattrs(path),
            false => fs.symlink_list_xattrs(path),
        })
    }

    /// Removes an extended attribute.
    #[pyo3(signature = (path, name, *, follow_symlinks = true))]
    fn removexattr(
        &self,
        py: Python<'_>,
        path: PathBuf,
        name: OsString,
        follow_symlinks: bool,
    ) -> PyResult<()> {
        self.run(py, |fs| match follow_symlinks {
            true => fs.remove_xattr(path, name),
            false => fs.symlink_remove_xattr(path, name),
        })
    }

    /// Copies a file or tree out of the image, to `destination` on the host, which must not be
    /// there; with all metadata that the caller may set, as `finefs cp -a` does. How many files.
    #[pyo3(signature = (path, destination, *, jobs = 1))]
    fn extract(
        &self,
        py: Python<'_>,
        path: PathBuf,
        destination: PathBuf,
        jobs: usize,
    ) -> PyResult<u64> {
        let fs = self.fs()?;
        py.detach(|| {
            let (parent, name) = finefs_image::address::split_path(&absolute(&path));
            let (place, to) = finefs_image::address::split_path(&destination);
            let place = match place.as_os_str().is_empty() {
                true => PathBuf::from("."),
                false => place,
            };
            let source = Arc::new(self.dir(fs, parent)?);
            let sink = Arc::new(HostDir::open(&place)?);
            let task = Task {
                source,
                name,
                sink,
                to,
            };
            copied(vec![task], jobs)
        })
        .map_err(|failed| error::of_workshop(&failed))
    }

    /// Copies a file or tree of the host into the image, to `path`; as `finefs cp -a` does. How
    /// many files.
    #[pyo3(signature = (source, path, *, jobs = 1))]
    fn add(&self, py: Python<'_>, source: PathBuf, path: PathBuf, jobs: usize) -> PyResult<u64> {
        let fs = self.fs()?;
        py.detach(|| {
            let (from, name) = finefs_image::address::split_path(&source);
            let from = match from.as_os_str().is_empty() {
                true => PathBuf::from("."),
                false => from,
            };
            let (parent, to) = finefs_image::address::split_path(&absolute(&path));
            let source = Arc::new(HostDir::open(&from)?);
            let sink = Arc::new(self.dir(fs, parent)?);
            let task = Task {
                source,
                name,
                sink,
                to,
            };
            copied(vec![task], jobs)
        })
        .map_err(|failed| error::of_workshop(&failed))
    }
}

impl Image {
    fn dir(&self, fs: &FileSystem, path: PathBuf) -> finefs_image::Result<ImageDir> {
        ImageDir::of(fs, &self.name.display().to_string(), &path)
    }
}

/// Paths in an image start at its root.
fn absolute(path: &std::path::Path) -> PathBuf {
    std::path::Path::new("/").join(path)
}

/// Keeps the first failure.
#[derive(Default)]
struct First(std::sync::OnceLock<finefs_image::Error>);

impl Observer for First {
    fn failed(&self, error: &finefs_image::Error) {
        let _ = self.0.set(error.clone());
    }
}

fn copied(tasks: Vec<Task>, jobs: usize) -> finefs_image::Result<u64> {
    let options = copy::Options {
        is_recursive: true,
        preserve: Preserve::ALL,
        links: Links::Kept,
        jobs: jobs.clamp(1, 64),
        ..copy::Options::default()
    };
    let first = First::default();
    let progress = Progress::default();
    copy::run(tasks, &options, &first, &progress);
    match first.0.into_inner() {
        Some(error) => Err(error),
        None => Ok(progress.files.into_inner()),
    }
}
