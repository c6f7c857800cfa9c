//! Listing directories.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_namespace::FileKind;

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::metadata::Metadata;

/// Entries that are fetched at a time.
const CHUNK_ENTRIES: usize = 256;

/// The entries of a directory, without `.` and `..`, in no order that means anything.
///
/// What is there from before the first entry to after the last is given exactly once, whatever comes
/// and goes meanwhile. An error ends the iteration.
pub struct ReadDir {
    source: Arc<Source>,
    fetched: VecDeque<Fetched>,
    /// Where to go on after what was fetched.
    cookie: u64,
    is_at_end: bool,
}

struct Source {
    dir: Dir,
    path: PathBuf,
}

struct Fetched {
    name: OsString,
    kind: FileKind,
    ino: u64,
    cookie: u64,
}

/// An entry of a directory.
pub struct DirEntry {
    source: Arc<Source>,
    fetched: Fetched,
}

impl ReadDir {
    pub(crate) fn new(dir: Dir, path: PathBuf) -> ReadDir {
        ReadDir {
            source: Arc::new(Source { dir, path }),
            fetched: VecDeque::new(),
            cookie: 0,
            is_at_end: false,
        }
    }

    /// Goes on after the entry that gave this cookie; 0 is the start. Cookies stay good while the
    /// file system is open, also in another listing of the directory.
    pub fn seek(&mut self, cookie: u64) {
        self.fetched.clear();
        self.cookie = cookie;
        self.is_at_end = false;
    }

    fn fetch(&mut self) -> Result<()> {
        let Source { dir, path } = &*self.source;
        let (fetched, mut last) = (&mut self.fetched, self.cookie);
        let mut is_full = false;
        let namespace = dir.view().namespace();
        namespace
            .read_directory(dir.start(), self.cookie, &mut |entry| {
                if fetched.len() == CHUNK_ENTRIES {
                    is_full = true;
                    return false;
                }
                last = entry.cookie;
                if !matches!(entry.name, b"." | b"..") {
                    fetched.push_back(Fetched {
                        name: OsString::from_vec(entry.name.to_vec()),
                        kind: entry.kind,
                        ino: entry.ino.0,
                        cookie: entry.cookie,
                    });
                }
                true
            })
            .map_err(|cause| Error::at("read directory", path, cause))?;
        self.cookie = last;
        self.is_at_end = !is_full;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        if self.fetched.is_empty()
            && !self.is_at_end
            && let Err(error) = self.fetch()
        {
            self.is_at_end = true;
            return Some(Err(error));
        }
        let fetched = self.fetched.pop_front()?;
        Some(Ok(DirEntry {
            source: Arc::clone(&self.source),
            fetched,
        }))
    }
}

impl DirEntry {
    /// The name in the directory.
    pub fn file_name(&self) -> &OsStr {
        &self.fetched.name
    }

    /// The path that the directory was listed by, with the name.
    pub fn path(&self) -> PathBuf {
        self.source.path.join(&self.fetched.name)
    }

    /// What it is. Costs nothing.
    pub fn file_type(&self) -> FileKind {
        self.fetched.kind
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.fetched.ino
    }

    /// Where [`ReadDir::seek`] goes on after this entry.
    pub fn cookie(&self) -> u64 {
        self.fetched.cookie
    }

    /// The attributes of what the name names now; of a symbolic link its own.
    pub fn metadata(&self) -> Result<Metadata> {
        self.source
            .dir
            .symlink_metadata(Path::new(&self.fetched.name))
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirEntry({:?})", self.path())
    }
}
