//! Listing directories.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_namespace::{DirectoryEntry, FileKind, LastLink, OpenAccess};

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::metadata::{FileType, Metadata};

/// Entries that are fetched at a time.
const CHUNK_ENTRIES: usize = 256;

/// The entries of a directory, without `.` and `..`, in no order that means anything.
///
/// What is there from before the first entry to after the last is given exactly once, whatever
/// comes and goes meanwhile. An error ends the iteration.
///
/// ```
/// # let fs = finefs::FileSystem::memory(1 << 20)?;
/// fs.create_dir("etc")?;
/// fs.write("etc/motd", "hello")?;
/// fs.write("etc/hosts", "")?;
/// let mut paths = Vec::new();
/// for entry in fs.read_dir("etc")? {
///     paths.push(entry?.path());
/// }
/// paths.sort();
/// assert_eq!(paths, [std::path::Path::new("etc/hosts"), "etc/motd".as_ref()]);
/// # Ok::<(), finefs::Error>(())
/// ```
pub struct ReadDir {
    chunk: Arc<Chunk>,
    /// The next entry of the chunk.
    position: usize,
    /// Where to go on after the chunk.
    cookie: u64,
    is_at_end: bool,
}

struct Source {
    dir: Dir,
    path: PathBuf,
}

/// What was fetched at a time.
struct Chunk {
    source: Arc<Source>,
    /// One after the other.
    names: Vec<u8>,
    entries: Vec<Fetched>,
}

struct Fetched {
    /// Where in `names` its name ends.
    name_end: usize,
    kind: Option<FileKind>,
    ino: u64,
    cookie: u64,
}

/// An entry of a directory. It keeps those in memory that were fetched together with it, some ten
/// kilobytes.
///
/// ```
/// # let fs = finefs::FileSystem::memory(1 << 20)?;
/// fs.write("motd", "hello")?;
/// for entry in fs.read_dir("/")? {
///     let entry = entry?;
///     if entry.file_type()?.is_file() {
///         println!("{:?}: {} bytes", entry.file_name(), entry.metadata()?.len());
///     }
/// }
/// # Ok::<(), finefs::Error>(())
/// ```
pub struct DirEntry {
    chunk: Arc<Chunk>,
    index: usize,
}

impl Chunk {
    fn new(source: Arc<Source>) -> Chunk {
        Chunk {
            source,
            names: Vec::new(),
            entries: Vec::new(),
        }
    }

    fn push(&mut self, entry: &DirectoryEntry<'_>) {
        self.names.extend_from_slice(entry.name);
        self.entries.push(Fetched {
            name_end: self.names.len(),
            kind: entry.kind,
            ino: entry.ino.0,
            cookie: entry.cookie,
        });
    }

    fn name(&self, index: usize) -> &OsStr {
        let start = match index {
            0 => 0,
            _ => self.entries[index - 1].name_end,
        };
        OsStr::from_bytes(&self.names[start..self.entries[index].name_end])
    }
}

impl Dir {
    /// Lists a directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let access = Some(OpenAccess::Read);
        let dir = self.open_directory("read directory", path, access, LastLink::Follow)?;
        Ok(ReadDir::new(dir, path.to_owned()))
    }
}

impl ReadDir {
    pub(crate) fn new(dir: Dir, path: PathBuf) -> ReadDir {
        ReadDir {
            chunk: Arc::new(Chunk::new(Arc::new(Source { dir, path }))),
            position: 0,
            cookie: 0,
            is_at_end: false,
        }
    }

    /// Goes on after the entry that gave this cookie; 0 is the start. Cookies stay good while the
    /// file system is open, also in another listing of the directory.
    pub fn seek(&mut self, cookie: u64) {
        self.position = self.chunk.entries.len();
        self.cookie = cookie;
        self.is_at_end = false;
    }

    fn fetch(&mut self) -> Result<()> {
        let source = Arc::clone(&self.chunk.source);
        if Arc::get_mut(&mut self.chunk).is_none() {
            // Somebody has an entry of it yet.
            self.chunk = Arc::new(Chunk {
                names: Vec::with_capacity(self.chunk.names.len()),
                entries: Vec::with_capacity(CHUNK_ENTRIES),
                source: Arc::clone(&source),
            });
        }
        let chunk = Arc::get_mut(&mut self.chunk).expect("nobody else has a new one");
        chunk.names.clear();
        chunk.entries.clear();
        self.position = 0;
        let (mut last, mut is_full) = (self.cookie, false);
        let Source { dir, path } = &*source;
        let namespace = dir.view().namespace();
        namespace
            .read_directory(dir.start(), self.cookie, &mut |entry| {
                if chunk.entries.len() == CHUNK_ENTRIES {
                    is_full = true;
                    return false;
                }
                last = entry.cookie;
                if !matches!(entry.name, b"." | b"..") {
                    chunk.push(&entry);
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
        if self.position == self.chunk.entries.len() {
            if self.is_at_end {
                return None;
            }
            if let Err(error) = self.fetch() {
                self.is_at_end = true;
                self.position = self.chunk.entries.len();
                return Some(Err(error));
            }
            if self.chunk.entries.is_empty() {
                return None;
            }
        }
        let index = self.position;
        self.position += 1;
        Some(Ok(DirEntry {
            chunk: Arc::clone(&self.chunk),
            index,
        }))
    }
}

impl DirEntry {
    fn fetched(&self) -> &Fetched {
        &self.chunk.entries[self.index]
    }

    /// The name in the directory.
    pub fn file_name(&self) -> &OsStr {
        self.chunk.name(self.index)
    }

    /// The path that the directory was listed by, with the name.
    pub fn path(&self) -> PathBuf {
        self.chunk.source.path.join(self.file_name())
    }

    /// What it is. Costs nothing; an error only in images whose directories do not note kinds,
    /// where the inode cannot be read.
    pub fn file_type(&self) -> Result<FileType> {
        match self.fetched().kind {
            Some(kind) => Ok(FileType::new(kind)),
            None => self.metadata().map(|metadata| metadata.file_type()),
        }
    }

    /// Inode number.
    pub fn ino(&self) -> u64 {
        self.fetched().ino
    }

    /// Where [`ReadDir::seek`] goes on after this entry.
    pub fn cookie(&self) -> u64 {
        self.fetched().cookie
    }

    /// The attributes of what the name names now; of a symbolic link its own.
    pub fn metadata(&self) -> Result<Metadata> {
        let dir = &self.chunk.source.dir;
        dir.symlink_metadata(Path::new(self.file_name()))
    }
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirEntry({:?})", self.path())
    }
}
