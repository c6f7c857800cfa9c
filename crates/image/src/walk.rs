//! Walks a tree in an image, names in order, without recursion: an image may be deeper than the
//! stack.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use finefs::{Dir, FileSystem};

use crate::address::Address;
use crate::attributes::Attributes;
use crate::error::{Error, Result};

/// Something that a walk comes to.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where it is in the image.
    pub path: PathBuf,
    /// What it is; of a symbolic link its own.
    pub attributes: Attributes,
    /// 0 for where the walk began.
    pub depth: usize,
}

/// A step of a walk.
#[derive(Clone, Debug)]
pub enum Step {
    /// A file, or a directory before what is in it.
    Enter(Found),
    /// A directory, after what is in it.
    Leave(Found),
}

/// A walk, which gives each step, and the errors on its way. See [`Walk::leave_out`].
pub struct Walk {
    fs: FileSystem,
    address: Address,
    start: Option<PathBuf>,
    levels: Vec<Level>,
    /// A directory that has been entered, not opened yet.
    entered: Option<Found>,
}

struct Level {
    found: Found,
    /// `None` where it is left out or could not be opened.
    dir: Option<Dir>,
    names: std::vec::IntoIter<OsString>,
}

impl Walk {
    /// From the address on, which must be of that file system.
    pub fn new(fs: &FileSystem, address: &Address) -> Walk {
        Walk {
            fs: fs.clone(),
            address: address.clone(),
            start: Some(address.path.clone()),
            levels: Vec::new(),
            entered: None,
        }
    }

    /// Leaves out what is in the directory that was entered last.
    pub fn leave_out(&mut self) {
        if let Some(found) = self.entered.take() {
            self.levels.push(Level {
                found,
                dir: None,
                names: Vec::new().into_iter(),
            });
        }
    }

    /// Looks at a path, whose last name is in the directory that is open, if there is one.
    fn look(&self, path: PathBuf) -> Result<Found> {
        let above = self.levels.last().and_then(|level| level.dir.as_ref());
        let metadata = match (above, path.file_name()) {
            (Some(dir), Some(name)) => dir.symlink_metadata(name),
            _ => self.fs.symlink_metadata(&path),
        };
        let metadata = metadata.map_err(|error| self.failed(&path, &error))?;
        Ok(Found {
            attributes: Attributes::inside(&metadata, 0),
            depth: self.levels.len(),
            path,
        })
    }

    fn failed(&self, path: &Path, error: &finefs::Error) -> Error {
        Error::inside(self.address.with_path(path.to_owned()).to_string(), error)
    }

    fn open(&mut self, found: Found) -> Result<()> {
        let above = self.levels.last().and_then(|level| level.dir.as_ref());
        let opened = match (above, found.path.file_name()) {
            (Some(dir), Some(name)) => dir.open_dir(name),
            _ => self.fs.open_dir(&found.path),
        };
        let listed = opened.and_then(|dir| Ok((names(&dir, Path::new("."))?, dir)));
        let listed = listed.map_err(|error| self.failed(&found.path, &error));
        let (names, dir, result) = match listed {
            Ok((names, dir)) => (names, Some(dir), Ok(())),
            Err(error) => (Vec::new(), None, Err(error)),
        };
        self.levels.push(Level {
            found,
            dir,
            names: names.into_iter(),
        });
        result
    }
}

/// The names in a directory, in the order of their bytes.
pub fn names(dir: &Dir, path: &Path) -> finefs::Result<Vec<OsString>> {
    let entries = dir.read_dir(path)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_owned()));
    let mut names = names.collect::<finefs::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

impl Iterator for Walk {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        if let Some(found) = self.entered.take()
            && let Err(error) = self.open(found)
        {
            return Some(Err(error));
        }
        let path = match self.start.take() {
            Some(start) => start,
            None => {
                let level = self.levels.last_mut()?;
                match level.names.next() {
                    Some(name) => level.found.path.join(name),
                    None => return self.levels.pop().map(|level| Ok(Step::Leave(level.found))),
                }
            }
        };
        Some(self.look(path).map(|found| {
            if found.attributes.is_directory() {
                self.entered = Some(found.clone());
            }
            Step::Enter(found)
        }))
    }
}

/// The letter that ls and find have for a kind of file.
pub fn letter(kind: finefs::FileKind) -> char {
    use finefs::FileKind as Kind;
    match kind {
        Kind::Regular => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::BlockDevice => 'b',
        Kind::CharDevice => 'c',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
    }
}
