//! Operations that are made of several: whole files, whole trees, whole paths.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use finefs_namespace::{
    AtimeUpdate, DirectoryEntry, Error as Cause, LastLink, OpenAccess, SYMLINKS_MAX,
};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::metadata::FileType;
use crate::open_options::OpenOptions;

/// Bytes that a copy moves at a time.
const COPY_BYTES: u64 = 1 << 20;

impl Dir {
    /// The contents of a file. ENOMEM where memory cannot hold them.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let file = self.open(path)?;
        let mut contents = Vec::new();
        match (&file).read_to_end(&mut contents) {
            Ok(_) => Ok(contents),
            Err(error) => Err(with_path("read", path, error)),
        }
    }

    /// The contents of a file that is UTF-8; [`io::ErrorKind::InvalidData`] when it is not.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        String::from_utf8(self.read(path)?).map_err(|error| {
            let error = io::Error::new(io::ErrorKind::InvalidData, error.utf8_error());
            Error::host("read", Some(path), error)
        })
    }

    /// Makes a file of these contents, or replaces the contents of one.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let file = self.create(path)?;
        file.write_at(contents.as_ref(), 0)
            .map(drop)
            .map_err(|error| Error::at("write", path, error.cause().clone()))
    }

    /// Copies a file's contents and permission bits; gives its length in bytes. Holes stay holes.
    /// What `to` held is replaced.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let failed = |error: Error| Error::at("copy", from, error.cause().clone()).to(to);
        let source = self.open(from)?;
        let metadata = source.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(Error::new("copy", Cause::Invalid)));
        }
        let target = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(metadata.permissions().mode())
            .open(self, to)?;
        target
            .set_permissions(metadata.permissions())
            .map_err(failed)?;
        let mut buffer = vec![0; COPY_BYTES.min(metadata.len()) as usize];
        let mut at = 0;
        loop {
            at = match source.seek_data(at) {
                Ok(at) => at,
                Err(error) if *error.cause() == Cause::NoSuchOffset => break,
                Err(error) => return Err(failed(error)),
            };
            let end = source.seek_hole(at).map_err(failed)?;
            while at < end {
                let length = COPY_BYTES.min(end - at) as usize;
                buffer.resize(length.max(buffer.len()), 0);
                let count = source.read_at(&mut buffer[..length], at).map_err(failed)?;
                if count == 0 {
                    break;
                }
                target.write_all_at(&buffer[..count], at).map_err(failed)?;
                at += count as u64;
            }
        }
        let length = source.metadata().map_err(failed)?.len();
        target.set_len(length).map_err(failed)?;
        Ok(length)
    }

    /// Creates a directory and those above it that are missing.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        match self.create_dir(path) {
            Err(error) if *error.cause() == Cause::NotFound => {}
            Err(error) => return self.accept_directory(path, error),
            done => return done,
        }
        match path.parent() {
            Some(parent) => self.create_dir_all(parent)?,
            None => return Err(Error::at("create directory", path, Cause::NotFound)),
        }
        self.create_dir(path)
            .or_else(|error| self.accept_directory(path, error))
    }

    /// `error` unless `path` is a directory by now.
    fn accept_directory(&self, path: &Path, error: Error) -> Result<()> {
        match self.metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(()),
            _ => Err(error),
        }
    }

    /// Removes a directory with all that is in it; of a symbolic link only the link. It goes by
    /// directory handles, so a directory that is renamed meanwhile leads it nowhere else.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.symlink_metadata(path)?.is_symlink() {
            return self.remove_file(path);
        }
        self.empty_directory(path)?;
        self.remove_dir(path)
    }

    /// Removes what is in a directory. Others may remove parts of it meanwhile, or put something
    /// else in their place.
    fn empty_directory(&self, path: &Path) -> Result<()> {
        let mut levels = vec![Level::open(self, path)?];
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.directories.pop() {
                match Level::open(&level.dir, &name) {
                    Ok(child) => levels.push(child),
                    Err(error) => level.remove_unopened(&name, error)?,
                }
                continue;
            }
            let name = std::mem::take(&mut level.name);
            levels.pop();
            if let Some(parent) = levels.last() {
                let removed = parent.dir.remove_dir(&name);
                removed.or_else(|error| parent.remove_unopened(&name, error))?;
            }
        }
        Ok(())
    }

    /// The absolute path of what a path leads to, without symbolic links, `.` and `..`.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        let failed = |cause| Error::at("canonicalize", path, cause);
        // Whether all of it is there, and may be walked, first.
        self.metadata(path)
            .map_err(|error| failed(error.cause().clone()))?;
        let mut done = if path.is_absolute() {
            PathBuf::from("/")
        } else {
            self.path()?
        };
        let mut links = 0;
        let mut todo: Vec<OsString> = components(path);
        while let Some(name) = todo.pop() {
            match name.as_bytes() {
                b"/" => done = PathBuf::from("/"),
                b"." => {}
                b".." => drop(done.pop()),
                _ => {
                    done.push(&name);
                    let found = self
                        .symlink_metadata(&done)
                        .map_err(|error| failed(error.cause().clone()))?;
                    if found.is_symlink() {
                        links += 1;
                        if links > SYMLINKS_MAX {
                            return Err(failed(Cause::SymlinkLoop));
                        }
                        let target = self
                            .read_link(&done)
                            .map_err(|error| failed(error.cause().clone()))?;
                        done.pop();
                        todo.extend(components(&target));
                    }
                }
            }
        }
        Ok(done)
    }

    /// The absolute path of this directory now. ENOENT when it was removed. It takes time in
    /// proportion to the number of entries of the directories above.
    pub fn path(&self) -> Result<PathBuf> {
        let failed = |cause| Error::at("path of directory", Path::new("."), cause);
        let namespace = self.namespace();
        let mut names: Vec<OsString> = Vec::new();
        let (mut dir, mut ino) = (None::<Dir>, self.start());
        while ino != namespace.root() {
            let parent = match &dir {
                Some(dir) => dir.open_dir("..")?,
                None => self.open_dir("..")?,
            };
            let mut found = None;
            let mut look = |entry: DirectoryEntry<'_>| {
                if entry.ino == ino && !matches!(entry.name, b"." | b"..") {
                    found = Some(OsString::from_vec(entry.name.to_vec()));
                }
                found.is_none()
            };
            // Nobody asked for what is in there.
            namespace
                .read_directory_with_atime(parent.start(), 0, &mut look, AtimeUpdate::Never)
                .map_err(failed)?;
            names.push(found.ok_or_else(|| failed(Cause::NotFound))?);
            ino = parent.start();
            dir = Some(parent);
        }
        let mut path = PathBuf::from("/");
        path.extend(names.iter().rev());
        Ok(path)
    }
}

/// A directory that is being emptied.
struct Level {
    dir: Dir,
    /// Its name in the one before.
    name: PathBuf,
    /// Directories that are still in it.
    directories: Vec<PathBuf>,
}

impl Level {
    /// Opens a directory, and removes from it what is no directory.
    fn open(parent: &Dir, name: &Path) -> Result<Level> {
        let access = Some(OpenAccess::Read);
        let dir = parent.open_directory("remove", name, access, LastLink::Keep)?;
        let mut directories = Vec::new();
        for entry in dir.read_dir(".")? {
            let entry = entry?;
            let child = PathBuf::from(entry.file_name());
            if entry.file_type().is_ok_and(FileType::is_dir) {
                directories.push(child);
                continue;
            }
            match dir.remove_file(&child) {
                Err(error) if *error.cause() == Cause::IsADirectory => directories.push(child),
                removed => unless_missing(removed)?,
            }
        }
        Ok(Level {
            dir,
            name: name.to_owned(),
            directories,
        })
    }

    /// Removes what was a directory and could not be opened or removed as one, as `error` says.
    fn remove_unopened(&self, name: &Path, error: Error) -> Result<()> {
        match error.cause() {
            Cause::NotFound => Ok(()),
            Cause::NotADirectory | Cause::SymlinkLoop => unless_missing(self.dir.remove_file(name)),
            _ => Err(error),
        }
    }
}

/// The components of a path, last first; `/` in front of an absolute one.
fn components(path: &Path) -> Vec<OsString> {
    let mut names: Vec<OsString> = path
        .components()
        .map(|component| match component {
            Component::RootDir => OsString::from("/"),
            component => component.as_os_str().to_owned(),
        })
        .collect();
    names.reverse();
    names
}

/// Somebody else may have removed it first.
fn unless_missing(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if *error.cause() == Cause::NotFound => Ok(()),
        result => result,
    }
}

/// The cause of an error of ours, with the path; what `Read` itself may say is lack of memory.
fn with_path(operation: &'static str, path: &Path, error: io::Error) -> Error {
    let cause = match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>())
    {
        Some(ours) => ours.cause().clone(),
        None => return Error::out_of_memory(operation, path),
    };
    Error::at(operation, path, cause)
}
