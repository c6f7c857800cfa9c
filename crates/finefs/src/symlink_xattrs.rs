//! Extended attributes of what a name names: of a symbolic link its own, as lgetxattr(2) and its
//! like have it. `trusted.` and `security.` attributes may be on symbolic links.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use finefs_namespace::{At, Error as Cause, Ino, LastLink, XattrMode};

use crate::dir::Dir;
use crate::error::{Error, Result};

impl Dir {
    /// [`Dir::get_xattr`] that does not follow a symbolic link at the end of the path.
    pub fn symlink_get_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<Vec<u8>> {
        self.with_own("get xattr", path.as_ref(), |ino| {
            let name = name.as_ref().as_bytes();
            self.namespace().xattr(self.caller(), ino, name)
        })
    }

    /// [`Dir::set_xattr`] that does not follow a symbolic link at the end of the path.
    pub fn symlink_set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.with_own("set xattr", path.as_ref(), |ino| {
            let name = name.as_ref().as_bytes();
            self.namespace()
                .set_xattr(self.caller(), ino, name, value, mode)
        })
    }

    /// [`Dir::list_xattrs`] that does not follow a symbolic link at the end of the path.
    pub fn symlink_list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let names = self.with_own("list xattrs", path.as_ref(), |ino| {
            self.namespace().list_xattrs(self.caller(), ino)
        })?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// [`Dir::remove_xattr`] that does not follow a symbolic link at the end of the path.
    pub fn symlink_remove_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
    ) -> Result<()> {
        self.with_own("remove xattr", path.as_ref(), |ino| {
            let name = name.as_ref().as_bytes();
            self.namespace().remove_xattr(self.caller(), ino, name)
        })
    }

    /// Does something to the inode that a path names, while holding a reference on it.
    fn with_own<T>(
        &self,
        operation: &'static str,
        path: &Path,
        work: impl FnOnce(Ino) -> std::result::Result<T, Cause>,
    ) -> Result<T> {
        let at = At {
            start: self.start(),
            path: path.as_os_str().as_bytes(),
        };
        let namespace = self.namespace();
        namespace
            .walk(self.caller(), at, LastLink::Keep)
            .and_then(|held| {
                let result = work(held.ino);
                namespace.forget(held.ino, 1);
                result
            })
            .map_err(|cause| Error::at(operation, path, cause))
    }
}
