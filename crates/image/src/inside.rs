//! Directories and files in images.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs::{
    Dir, File, FileFlags, FileKind, FileSystem, FileTimes, LastLink, OpenOptions, Permissions,
    XattrMode,
};
use rustix::io::Errno;

use crate::attributes::{Attributes, Change, Lacking, Xattr};
use crate::error::{Error, Result};
use crate::tree::{ACLS, Follow, Room, SinkDir, SinkFile, SourceDir, SourceFile, path_with};

/// An open image and what its files are called in messages.
pub(crate) struct Source {
    pub fs: FileSystem,
    /// The image as the user named it.
    pub shown: String,
    /// Tells open images apart.
    pub device: u64,
}

/// A directory in an image.
pub struct ImageDir {
    source: Arc<Source>,
    dir: Dir,
    /// Absolute.
    path: Arc<Path>,
    /// The same for messages.
    shown: Arc<Path>,
}

impl ImageDir {
    pub(crate) fn open(source: &Arc<Source>, path: &Path) -> Result<ImageDir> {
        let dir = source.fs.open_dir(path);
        let dir = dir.map_err(|error| Error::inside(place(source, path), &error))?;
        let path: Arc<Path> = Arc::from(path);
        Ok(ImageDir {
            source: Arc::clone(source),
            dir,
            shown: Arc::clone(&path),
            path,
        })
    }

    /// A directory of a file system that is open; `shown` is what messages call the image.
    pub fn of(fs: &FileSystem, shown: &str, path: &Path) -> Result<ImageDir> {
        let source = Source {
            fs: fs.clone(),
            shown: shown.to_owned(),
            device: 1 << 63,
        };
        ImageDir::open(&Arc::new(source), path)
    }

    fn failed(&self, name: &OsStr) -> impl Fn(finefs::Error) -> Error + '_ {
        let name = name.to_owned();
        move |error| Error::inside(SourceDir::shown(self, &name), &error)
    }

    fn child(&self, name: &OsStr, shown: &OsStr, dir: Dir) -> ImageDir {
        let path: Arc<Path> = Arc::from(path_with(&self.path, name));
        // Mostly one: a deep tree has many of them.
        let is_same = name == shown && Arc::ptr_eq(&self.path, &self.shown);
        let shown = match is_same {
            true => Arc::clone(&path),
            false => Arc::from(path_with(&self.shown, shown)),
        };
        ImageDir {
            source: Arc::clone(&self.source),
            dir,
            path,
            shown,
        }
    }

    /// A directory in it, also where a symbolic link leads to it within the image.
    pub(crate) fn enter(&self, name: &OsStr) -> Result<ImageDir> {
        let dir = self.dir.open_dir(name).map_err(self.failed(name))?;
        Ok(self.child(name, name, dir))
    }

    fn look(&self, name: &OsStr, follow: Follow) -> finefs::Result<Attributes> {
        let metadata = match follow {
            Follow::Yes => self.dir.metadata(name),
            Follow::No => self.dir.symlink_metadata(name),
        }?;
        Ok(Attributes::inside(&metadata, self.source.device))
    }

    fn read_xattrs(&self, name: &OsStr, follow: Follow) -> finefs::Result<Vec<Xattr>> {
        let names = match follow {
            Follow::Yes => self.dir.list_xattrs(name),
            Follow::No => self.dir.symlink_list_xattrs(name),
        }?;
        let mut xattrs = Vec::with_capacity(names.len());
        for key in names {
            let value = match follow {
                Follow::Yes => self.dir.get_xattr(name, &key),
                Follow::No => self.dir.symlink_get_xattr(name, &key),
            }?;
            xattrs.push((key, value));
        }
        xattrs.sort();
        Ok(xattrs)
    }

    /// Opens a directory that is no symbolic link.
    fn own_dir(&self, name: &OsStr) -> Result<Dir> {
        let failed = self.failed(name);
        let found = self.dir.symlink_metadata(name).map_err(&failed)?;
        if !found.is_dir() {
            return Err(Error::host(SourceDir::shown(self, name), Errno::NOTDIR));
        }
        self.dir.open_dir(name).map_err(failed)
    }
}

/// How messages name a path in an image.
pub(crate) fn place(source: &Source, path: &Path) -> String {
    format!("{}:{}", source.shown, path.display())
}

impl SourceDir for ImageDir {
    fn shown(&self, name: &OsStr) -> String {
        place(&self.source, &path_with(&self.shown, name))
    }

    fn named(&self, name: &OsStr) -> OsString {
        let mut named = OsString::from(format!("{}:", self.source.shown));
        named.push(path_with(&self.shown, name));
        named
    }

    fn names(&self) -> Result<Vec<OsString>> {
        let failed = self.failed(OsStr::new("."));
        let entries = self.dir.read_dir(".").map_err(&failed)?;
        entries
            .map(|entry| Ok(entry.map_err(&failed)?.file_name().to_owned()))
            .collect()
    }

    fn attributes(&self, name: &OsStr, follow: Follow) -> Result<Attributes> {
        self.look(name, follow).map_err(self.failed(name))
    }

    fn open_dir(&self, name: &OsStr, follow: Follow) -> Result<Arc<dyn SourceDir>> {
        let dir = match follow {
            Follow::Yes => self.dir.open_dir(name).map_err(self.failed(name))?,
            Follow::No => self.own_dir(name)?,
        };
        Ok(Arc::new(self.child(name, name, dir)))
    }

    fn open_file(&self, name: &OsStr, follow: Follow) -> Result<Box<dyn SourceFile>> {
        let file = OpenOptions::new()
            .read(true)
            .last_link(match follow {
                Follow::Yes => LastLink::Follow,
                Follow::No => LastLink::Keep,
            })
            .note_access(false)
            .open(&self.dir, name)
            .map_err(self.failed(name))?;
        Ok(Box::new(OpenFile {
            file,
            shown: SourceDir::shown(self, name),
        }))
    }

    fn read_link(&self, name: &OsStr) -> Result<PathBuf> {
        self.dir.read_link(name).map_err(self.failed(name))
    }

    fn xattrs(&self, name: &OsStr, follow: Follow) -> Result<Vec<Xattr>> {
        self.read_xattrs(name, follow).map_err(self.failed(name))
    }

    fn path_in_image(&self, name: &OsStr, follow: Follow) -> Result<Option<PathBuf>> {
        let path = path_with(&self.path, name);
        let path = match follow {
            Follow::Yes => self.source.fs.canonicalize(&path),
            Follow::No => Ok(path),
        };
        path.map(Some).map_err(self.failed(name))
    }
}

impl SinkDir for ImageDir {
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
        match self.look(name, Follow::No) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.errno() == Errno::NOENT.raw_os_error() => Ok(None),
            Err(error) => Err(self.failed(name)(error)),
        }
    }

    fn xattrs_of(&self, name: &OsStr) -> Result<Vec<Xattr>> {
        self.read_xattrs(name, Follow::No)
            .map_err(self.failed(name))
    }

    fn make_dir(&self, name: &OsStr, shown: &OsStr) -> Result<Arc<dyn SinkDir>> {
        let failed = self.failed(shown);
        self.dir
            .create_dir_with_mode(name, 0o700)
            .map_err(&failed)?;
        let dir = self.dir.open_dir(name).map_err(failed)?;
        Ok(Arc::new(self.child(name, shown, dir)))
    }

    fn open_dir(&self, name: &OsStr) -> Result<Arc<dyn SinkDir>> {
        let dir = self.own_dir(name)?;
        Ok(Arc::new(self.child(name, name, dir)))
    }

    fn create(&self, name: &OsStr) -> Result<Box<dyn SinkFile>> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.dir, name)
            .map_err(self.failed(name))?;
        Ok(Box::new(OpenFile {
            file,
            shown: SourceDir::shown(self, name),
        }))
    }

    fn overwrite(&self, name: &OsStr) -> Result<Box<dyn SinkFile>> {
        let file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .last_link(LastLink::Keep)
            .open(&self.dir, name)
            .map_err(self.failed(name))?;
        Ok(Box::new(OpenFile {
            file,
            shown: SourceDir::shown(self, name),
        }))
    }

    fn is_append_only(&self) -> Result<bool> {
        let here = OsStr::new(".");
        let found = self.dir.metadata(here).map_err(self.failed(here))?;
        Ok(found.flags().contains(FileFlags::APPEND_ONLY))
    }

    fn symlink(&self, name: &OsStr, target: &Path) -> Result<()> {
        self.dir.symlink(target, name).map_err(self.failed(name))
    }

    fn make_node(&self, name: &OsStr, kind: FileKind, rdev: u64) -> Result<()> {
        self.dir
            .make_node(name, kind, 0o600, rdev)
            .map_err(self.failed(name))
    }

    fn link(&self, original: &Path, name: &OsStr) -> Result<()> {
        self.dir
            .hard_link(original, name)
            .map_err(self.failed(name))
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<()> {
        self.dir.rename(from, to).map_err(self.failed(to))
    }

    fn remove_all(&self, name: &OsStr) -> Result<()> {
        match self.find(name)? {
            None => Ok(()),
            Some(found) if found.is_directory() => {
                self.dir.remove_dir_all(name).map_err(self.failed(name))
            }
            Some(_) => self.dir.remove_file(name).map_err(self.failed(name)),
        }
    }

    fn remove_empty(&self, name: &OsStr) -> Result<()> {
        self.dir.remove_dir(name).map_err(self.failed(name))
    }

    fn remove_acls(&self, name: &OsStr) -> Result<()> {
        for (key, _) in self.xattrs_of(name)? {
            if ACLS.iter().any(|acl| key == *acl) {
                self.dir
                    .symlink_remove_xattr(name, &key)
                    .map_err(self.failed(name))?;
            }
        }
        Ok(())
    }

    fn apply(&self, name: &OsStr, change: &Change) -> Result<Lacking> {
        let failed = self.failed(name);
        if let Some((uid, gid)) = change.owner {
            self.dir
                .set_owner(name, Some(uid), Some(gid), LastLink::Keep)
                .map_err(&failed)?;
        }
        for (key, value) in &change.xattrs {
            self.dir
                .symlink_set_xattr(name, key, value, XattrMode::Set)
                .map_err(|error| xattr_failed(failed(error), key))?;
        }
        let is_symlink =
            || matches!(self.look(name, Follow::No), Ok(found) if found.kind == FileKind::Symlink);
        if let Some(permissions) = change.permissions.filter(|_| !is_symlink()) {
            self.dir
                .set_permissions(name, Permissions::from_mode(permissions))
                .map_err(&failed)?;
        }
        if let Some(times) = change.times {
            self.dir
                .set_times(name, file_times(times), LastLink::Keep)
                .map_err(&failed)?;
        }
        Ok(Lacking::default())
    }

    fn room(&self) -> Option<Room> {
        let space = self.source.fs.statfs();
        let block_bytes = u64::from(space.block_size_bytes);
        Some(Room {
            block_bytes,
            free_bytes: space.blocks_free.saturating_mul(block_bytes),
            free_inodes: space.inodes_free,
        })
    }

    fn sync(&self) -> Result<()> {
        let Source { fs, shown, .. } = &*self.source;
        fs.sync()
            .map_err(|error| Error::inside(shown.clone(), &error))
    }
}

/// An open file in an image.
struct OpenFile {
    file: File,
    shown: String,
}

impl OpenFile {
    fn failed(&self) -> impl Fn(finefs::Error) -> Error + '_ {
        |error| Error::inside(self.shown.clone(), &error)
    }
}

impl SourceFile for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buffer, offset).map_err(self.failed())
    }

    fn data_after(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let start = match self.file.seek_data(offset) {
            Ok(start) => start,
            Err(error) if error.errno() == Errno::NXIO.raw_os_error() => return Ok(None),
            Err(error) => return Err(self.failed()(error)),
        };
        let end = self.file.seek_hole(start).map_err(self.failed())?;
        Ok(Some((start, end)))
    }

    fn size(&self) -> Result<u64> {
        let found = self.file.metadata().map_err(self.failed());
        found.map(|found| found.len())
    }

    fn is_sealed(&self) -> bool {
        let found = self.file.metadata();
        found.is_ok_and(|found| found.flags().contains(FileFlags::VERITY))
    }
}

impl SinkFile for OpenFile {
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(data, offset).map_err(self.failed())
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.file.set_len(length).map_err(self.failed())
    }

    fn apply(&self, change: &Change) -> Result<Lacking> {
        let failed = self.failed();
        if let Some((uid, gid)) = change.owner {
            self.file.set_owner(Some(uid), Some(gid)).map_err(&failed)?;
        }
        for (key, value) in &change.xattrs {
            self.file
                .set_xattr(key, value, XattrMode::Set)
                .map_err(|error| xattr_failed(failed(error), key))?;
        }
        if let Some(permissions) = change.permissions {
            self.file
                .set_permissions(Permissions::from_mode(permissions))
                .map_err(&failed)?;
        }
        if let Some(times) = change.times {
            self.file.set_times(file_times(times)).map_err(&failed)?;
        }
        Ok(Lacking::default())
    }
}

/// Which attribute it was.
pub(crate) fn xattr_failed(error: Error, key: &OsStr) -> Error {
    let reason = format!("attribute {}: {}", key.display(), error.reason());
    error.with_reason(reason)
}

fn file_times((accessed, modified): (crate::Time, crate::Time)) -> FileTimes {
    FileTimes::new()
        .accessed(accessed.into())
        .modified(modified.into())
}
