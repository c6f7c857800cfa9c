//! Files that are made beside their place, and get its name when they are whole.

use std::path::{Path, PathBuf};

use finefs_block::{Access, FileDevice, OpenErrorKind};

use crate::copy::temporary_name;
use crate::error::{Error, Result};

/// A file under a name of its own, which goes with this unless it gets its place.
pub(crate) struct Beside {
    place: PathBuf,
    path: PathBuf,
    is_whole: bool,
}

impl Beside {
    /// For this place, or where it leads as a symbolic link; nothing is made yet.
    pub fn new(place: &Path) -> Result<Beside> {
        let place = match place.is_symlink() {
            true => std::fs::canonicalize(place)
                .map_err(|error| Error::host(place.display().to_string(), error))?,
            false => place.to_owned(),
        };
        let name = temporary_name(place.file_name().unwrap_or_default());
        Ok(Beside {
            path: directory_of(&place).join(name),
            place,
            is_whole: false,
        })
    }

    /// The place that it gets.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Where it is made.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts it at its place, with the permissions of what is replaced, as far as the caller may
    /// give them.
    pub fn finish(mut self) -> Result<()> {
        keep_permissions(&self.path, &self.place);
        std::fs::rename(&self.path, &self.place)
            .map_err(|error| Error::host(self.place.display().to_string(), error))?;
        self.is_whole = true;
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Refuses a file that is mounted or otherwise in use as a disk: what its users write from then on
/// would go with it. What else is wrong with it is seen when it is replaced.
pub(crate) fn check_unused(place: &Path) -> Result<()> {
    match FileDevice::open(place, Access::ReadWrite) {
        Err(error) if matches!(error.kind, OpenErrorKind::InUse { .. }) => {
            Err(Error::new("", error.to_string()))
        }
        _ => Ok(()),
    }
}

/// The directory that a path is in.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Device and inode number of a file that is there.
pub(crate) fn identity_of(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

fn keep_permissions(new: &Path, old: &Path) {
    use std::os::unix::fs::MetadataExt;
    if let Ok(found) = old.metadata() {
        let _ = std::os::unix::fs::chown(new, Some(found.uid()), Some(found.gid()));
        let _ = std::fs::set_permissions(new, found.permissions());
    }
}
