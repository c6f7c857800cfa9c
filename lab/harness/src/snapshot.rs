//! What a tree looks like, entry by entry, and how two such views differ.
//!
//! Data model: a [`Snapshot`] maps each relative path to an [`Entry`] with everything that a file
//! system keeps of it; file contents stand as a digest. Each entry is stat'ed before it is read, so
//! reading cannot disturb the times recorded.
//!
//! Holes are compared by their effect: a file with holes in the one view must not be fully
//! allocated in the other. The exact map of holes may differ between servers.

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Seconds since 1970 and nanoseconds.
pub type Time = (i64, i64);

/// What is recorded of one file, directory or other inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// File type, as one letter like `find -printf %y`.
    pub kind: char,
    /// Permission bits with set-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes; 0 for directories, whose size is the format's own business.
    pub size: u64,
    /// Allocated 512-byte sectors.
    pub sectors: u64,
    /// Device number of a device node.
    pub rdev: u64,
    /// Link count.
    pub nlink: u64,
    /// Last access.
    pub atime: Time,
    /// Last modification.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Digest of the contents of a regular file.
    pub digest: Option<[u8; 32]>,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
    /// Extended attributes by name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path, in order, of the inode's names: equal paths mean hard links of each other.
    pub first_name: Vec<u8>,
}

/// A whole tree.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By path relative to the root, which is itself the empty path.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

impl Snapshot {
    /// Reads everything below `root`.
    pub fn take(root: &Path) -> Result<Self> {
        let mut walk = Walk {
            root,
            entries: BTreeMap::new(),
            atimes: BTreeMap::new(),
        };
        walk.entry(Vec::new())?;
        let mut first_names: BTreeMap<Inode, Vec<u8>> = BTreeMap::new();
        let entries = walk
            .entries
            .into_iter()
            .map(|(path, (inode, mut entry))| {
                let first = first_names.entry(inode).or_insert_with(|| path.clone());
                entry.first_name.clone_from(first);
                (path, entry)
            })
            .collect();
        Ok(Self { entries })
    }

    /// Brings the times of regular files up to date, which reading them may have changed.
    pub fn refresh_atimes(&mut self, root: &Path) -> Result<()> {
        for (path, entry) in &mut self.entries {
            if entry.kind == 'f' {
                let meta = root
                    .join(std::ffi::OsStr::from_bytes(path))
                    .symlink_metadata()?;
                entry.atime = (meta.atime(), meta.atime_nsec());
            }
        }
        Ok(())
    }

    /// The part of the tree below `prefix`, with paths relative to it.
    pub fn below(&self, prefix: &[u8]) -> Self {
        let strip = |path: &[u8]| -> Option<Vec<u8>> {
            let rest = path.strip_prefix(prefix)?;
            if rest.is_empty() {
                Some(Vec::new())
            } else {
                Some(rest.strip_prefix(b"/")?.to_vec())
            }
        };
        let entries = self
            .entries
            .iter()
            .filter_map(|(path, entry)| {
                let mut entry = entry.clone();
                let path = strip(path)?;
                entry.first_name = strip(&entry.first_name).unwrap_or_else(|| path.clone());
                Some((path, entry))
            })
            .collect();
        Self { entries }
    }

    /// The same without access times, for trees that were read in between.
    pub fn without_atimes(mut self) -> Self {
        for entry in self.entries.values_mut() {
            entry.atime = (0, 0);
        }
        self
    }

    /// The sum of file sizes.
    pub fn bytes(&self) -> u64 {
        self.entries.values().map(|entry| entry.size).sum()
    }
}

/// Device and number.
type Inode = (u64, u64);

struct Walk<'a> {
    root: &'a Path,
    entries: BTreeMap<Vec<u8>, (Inode, Entry)>,
    /// Of several names of an inode, the first one's stat came before any reading.
    atimes: BTreeMap<Inode, Time>,
}

impl Walk<'_> {
    fn entry(&mut self, path: Vec<u8>) -> Result<()> {
        let full = join_bytes(self.root, &path);
        let name = || full.display().to_string();
        let meta = full.symlink_metadata().with_context(name)?;
        let mut entry = describe(&full, &meta).with_context(name)?;
        let inode = (meta.dev(), meta.ino());
        entry.atime = *self.atimes.entry(inode).or_insert(entry.atime);
        let is_dir = entry.kind == 'd';
        self.entries.insert(path.clone(), (inode, entry));
        if is_dir {
            for child in std::fs::read_dir(&full).with_context(name)? {
                let child = child.with_context(name)?.file_name().into_vec();
                // Made by mkfs in the root of an image, not part of what a proof wrote.
                if path.is_empty() && child == b"lost+found" {
                    continue;
                }
                let mut child_path = path.clone();
                if !child_path.is_empty() {
                    child_path.push(b'/');
                }
                child_path.extend(child);
                anyhow::ensure!(
                    !self.entries.contains_key(&child_path),
                    "{}: a name is listed twice",
                    child_path.escape_ascii()
                );
                self.entry(child_path)?;
            }
        }
        Ok(())
    }
}

/// `root` with a relative path; the empty one is the root itself, without a slash.
fn join_bytes(root: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() {
        root.to_owned()
    } else {
        root.join(OsStr::from_bytes(path))
    }
}

fn describe(path: &Path, meta: &Metadata) -> Result<Entry> {
    let kind = meta.file_type();
    let letter = match () {
        () if kind.is_dir() => 'd',
        () if kind.is_symlink() => 'l',
        () if kind.is_fifo() => 'p',
        () if kind.is_socket() => 's',
        () if kind.is_block_device() => 'b',
        () if kind.is_char_device() => 'c',
        () => 'f',
    };
    Ok(Entry {
        kind: letter,
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        size: if letter == 'd' { 0 } else { meta.size() },
        sectors: meta.blocks(),
        rdev: meta.rdev(),
        nlink: meta.nlink(),
        atime: (meta.atime(), meta.atime_nsec()),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        ctime: (meta.ctime(), meta.ctime_nsec()),
        digest: if letter == 'f' {
            Some(digest(path, meta.size())?)
        } else {
            None
        },
        target: if letter == 'l' {
            Some(std::fs::read_link(path)?.into_os_string().into_vec())
        } else {
            None
        },
        xattrs: xattrs(path)?,
        first_name: Vec::new(),
    })
}

/// The digest of a file's contents, which must be as long as its size says.
fn digest(path: &Path, size: u64) -> Result<[u8; 32]> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    // O_NOATIME is refused to those who do not own the file.
    let fd = rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty())
        .or_else(|_| rustix::fs::open(path, flags, Mode::empty()))?;
    let mut file = File::from(fd);
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0u8; 128 << 10];
    let mut total = 0u64;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        total += n as u64;
        hasher.update(&buffer[..n]);
    }
    anyhow::ensure!(
        total == size,
        "{total} bytes could be read, but the size is {size}"
    );
    Ok(*hasher.finalize().as_bytes())
}

/// The `user.*` and `trusted.*` extended attributes.
fn xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0u8; 64 << 10];
    let n = match rustix::fs::llistxattr(path, &mut names) {
        Ok(n) => n,
        Err(rustix::io::Errno::NOTSUP) => return Ok(BTreeMap::new()),
        Err(error) => return Err(error).context("listing xattrs"),
    };
    let mut found = BTreeMap::new();
    for name in names[..n]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        if !name.starts_with(b"user.") && !name.starts_with(b"trusted.") {
            continue;
        }
        let mut value = vec![0u8; 64 << 10];
        let n = rustix::fs::lgetxattr(path, name, &mut value)
            .with_context(|| format!("xattr {}", String::from_utf8_lossy(name)))?;
        value.truncate(n);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}
