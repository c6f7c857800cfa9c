//! Opening files by their paths.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use finefs_namespace::{At, Error as Cause, OpenAccess};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::file::File;
use crate::open_options::OpenOptions;

impl OpenOptions {
    /// Opens `path` in `dir`, or in a file system's root. Errors as of open(2).
    pub fn open(&self, dir: &Dir, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let failed = |cause| Error::at("open", path, cause);
        let (how, access) = self.how().map_err(failed)?;
        let anchor = dir.view().anchor();
        let opened = anchor
            .namespace()
            .open_at(&anchor.caller, at(dir, path), &how)
            .map_err(failed)?;
        Ok(File::new(
            anchor,
            opened,
            access,
            self.write_position(),
            self.atime(),
        ))
    }

    /// Opens a new file that has no name, in the directory at `path` (O_TMPFILE). It vanishes when
    /// it is closed, unless [`Dir::link`] gives it a name. It must be opened for writing.
    pub fn open_unnamed(&self, dir: &Dir, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let failed = |cause| Error::at("open unnamed in", path, cause);
        let (_, access) = self.how().map_err(failed)?;
        if access == OpenAccess::Read {
            return Err(failed(Cause::Invalid));
        }
        let anchor = dir.view().anchor();
        let opened = anchor
            .namespace()
            .open_unnamed_at(&anchor.caller, at(dir, path), self.mode & 0o7777)
            .map_err(failed)?;
        Ok(File::new(
            anchor,
            opened,
            access,
            self.write_position(),
            self.atime(),
        ))
    }
}

impl File {
    /// Opens a file for reading.
    pub fn open(dir: &Dir, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(dir, path)
    }

    /// Opens a file for writing; makes it, or empties it.
    pub fn create(dir: &Dir, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(dir, path)
    }
}

fn at<'p>(dir: &Dir, path: &'p Path) -> At<'p> {
    At {
        start: dir.start(),
        path: path.as_os_str().as_bytes(),
    }
}
