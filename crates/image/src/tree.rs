//! Directories that are read from and made in: those of the host and those in images, by one pair
//! of traits, so that copying is written once.
//!
//! Names are single components; `.` is the directory itself. Nothing here follows a symbolic link
//! unless `follow` says so, and a link in an image stays in the image.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs::FileKind;

use crate::attributes::{Attributes, Change, Lacking, Xattr};
use crate::error::{Error, Result};

/// Whether a symbolic link is looked through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// What it leads to counts.
    Yes,
    /// The link itself.
    No,
}

/// A directory whose files are read.
pub trait SourceDir: Send + Sync {
    /// How messages name a file in it.
    fn shown(&self, name: &OsStr) -> String;
    /// The same byte for byte, also of names that are no text.
    fn named(&self, name: &OsStr) -> OsString;
    /// The names in it, without `.` and `..`, in the directory's order.
    fn names(&self) -> Result<Vec<OsString>>;
    /// The attributes of a file.
    fn attributes(&self, name: &OsStr, follow: Follow) -> Result<Attributes>;
    /// A directory in it.
    fn open_dir(&self, name: &OsStr, follow: Follow) -> Result<Arc<dyn SourceDir>>;
    /// A file in it, to read.
    fn open_file(&self, name: &OsStr, follow: Follow) -> Result<Box<dyn SourceFile>>;
    /// Where a symbolic link leads to.
    fn read_link(&self, name: &OsStr) -> Result<PathBuf>;
    /// All extended attributes that may be read.
    fn xattrs(&self, name: &OsStr, follow: Follow) -> Result<Vec<Xattr>>;
    /// The path in the image; `None` where it is none.
    fn path_in_image(&self, _name: &OsStr, _follow: Follow) -> Result<Option<PathBuf>> {
        Ok(None)
    }
}

/// An open file that is read.
pub trait SourceFile: Send {
    /// Reads at an offset; 0 at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// The next data from `offset` on, from its start to the hole behind it; `None` at the end.
    fn data_after(&self, offset: u64) -> Result<Option<(u64, u64)>>;
    /// Its length now.
    fn size(&self) -> Result<u64>;
    /// Its data are sealed (fs-verity), where that is known; copies never are.
    fn is_sealed(&self) -> bool {
        false
    }
}

/// A directory in which files are made.
pub trait SinkDir: Send + Sync {
    /// How messages name a file in it.
    fn shown(&self, name: &OsStr) -> String;
    /// The same byte for byte, also of names that are no text.
    fn named(&self, name: &OsStr) -> OsString;
    /// Where a name in it lies, from the directory that copying started at.
    fn path_of(&self, name: &OsStr) -> PathBuf;
    /// The attributes of what a name names, if it is there.
    fn find(&self, name: &OsStr) -> Result<Option<Attributes>>;
    /// The extended attributes of what a name names.
    fn xattrs_of(&self, name: &OsStr) -> Result<Vec<Xattr>>;
    /// Makes a directory with permissions 0700, which messages call `shown`.
    fn make_dir(&self, name: &OsStr, shown: &OsStr) -> Result<Arc<dyn SinkDir>>;
    /// A directory in it; a symbolic link is none.
    fn open_dir(&self, name: &OsStr) -> Result<Arc<dyn SinkDir>>;
    /// Makes a file with permissions 0600; the name must be new.
    fn create(&self, name: &OsStr) -> Result<Box<dyn SinkFile>>;
    /// Opens a regular file that is there, which loses its data; not through a symbolic link.
    fn overwrite(&self, name: &OsStr) -> Result<Box<dyn SinkFile>>;
    /// True where names can be added, and none can be changed or removed (`chattr +a`).
    fn is_append_only(&self) -> Result<bool>;
    /// Makes a symbolic link.
    fn symlink(&self, name: &OsStr, target: &Path) -> Result<()>;
    /// Makes a device node, FIFO or socket.
    fn make_node(&self, name: &OsStr, kind: FileKind, rdev: u64) -> Result<()>;
    /// Makes a hard link to what lies at `original`, a path of [`SinkDir::path_of`].
    fn link(&self, original: &Path, name: &OsStr) -> Result<()>;
    /// Gives a file another name here, in one step; what had that name is replaced.
    fn rename(&self, from: &OsStr, to: &OsStr) -> Result<()>;
    /// Removes a file, or a directory with all that is in it.
    fn remove_all(&self, name: &OsStr) -> Result<()>;
    /// Removes a directory that has nothing in it.
    fn remove_empty(&self, name: &OsStr) -> Result<()>;
    /// Removes the ACLs that a new file has from its directory.
    fn remove_acls(&self, name: &OsStr) -> Result<()>;
    /// Sets attributes.
    fn apply(&self, name: &OsStr, change: &Change) -> Result<Lacking>;
    /// Opens a file that is there and is no regular one, to be written to; `None` where such are
    /// only names.
    fn open_special(&self, _name: &OsStr) -> Result<Option<Box<dyn Write>>> {
        Ok(None)
    }
    /// Size of a block, by which files take space, and the free bytes, where that is known.
    fn room(&self) -> Option<Room>;
    /// Puts on the disk, or on the image, all that was changed where this directory is.
    fn sync(&self) -> Result<()>;
}

/// The free space of an image.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Size of a block.
    pub block_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// An open file that is written.
pub trait SinkFile: Send {
    /// Writes all of it at an offset.
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Sets the length; what is added is a hole.
    fn set_len(&self, length: u64) -> Result<()>;
    /// Sets attributes.
    fn apply(&self, change: &Change) -> Result<Lacking>;
}

/// The extended attributes that ACLs are.
pub(crate) const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// The longest path from the top of what is archived or built: four times what the kernel takes at
/// once. Memory grows with it and with the directories on it.
pub(crate) const PATH_BYTES_MAX: usize = 16 << 10;

/// Refuses a path of so many bytes if it is too long.
pub(crate) fn check_path_bytes(bytes: usize) -> std::result::Result<(), String> {
    match bytes <= PATH_BYTES_MAX {
        true => Ok(()),
        false => Err(format!(
            "a path of {bytes} bytes; {PATH_BYTES_MAX} are possible"
        )),
    }
}

/// A path as messages name it that may be too long for them.
pub(crate) fn start_of(path: &Path) -> String {
    const SHOWN_MAX: usize = 256;
    let shown = path.display().to_string();
    match shown.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", &shown[..end]),
        None => shown,
    }
}

/// The path of a name in a directory; of `.` the directory's own.
pub(crate) fn path_with(dir: &Path, name: &OsStr) -> PathBuf {
    match name.as_encoded_bytes() {
        b"." => dir.to_owned(),
        _ => dir.join(name),
    }
}

/// Whether a name of a directory may be used as one component of a path: damaged and malicious
/// images have others.
fn is_plain(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    !matches!(bytes, b"" | b"." | b"..") && !bytes.contains(&b'/') && !bytes.contains(&0)
}

/// Refuses a name of a directory that is none; see [`is_plain`].
pub(crate) fn check_plain(dir: &dyn SourceDir, name: &OsStr) -> Result<()> {
    match is_plain(name) {
        true => Ok(()),
        false => Err(Error::new(
            dir.shown(name),
            "this name cannot be a file's; check the image with fsck",
        )),
    }
}
