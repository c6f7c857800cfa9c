//! The file system under test, as workloads see it: [`Target`] and [`File`].
//!
//! Paths are relative to the target's working directory. Everything is dispatched statically and
//! nothing is buffered or cached here, so that a workload costs what its operations cost. Errors
//! are errno values, for both sides alike.
//!
//! | target | is about |
//! |---|---|
//! | [`HostDirectory`] | a directory, through system calls: a mount of finefs, the kernel's ext4, tmpfs, fuse2fs |
//! | [`InProcess`] | a file system of finefs in this process, through the embedding API |
//! | `append_ring` | appends through io_uring to a file of the host |
//! | [`Nothing`] | does nothing: what the harness itself costs |

mod append_ring;
mod host;
mod in_process;
mod nothing;

pub use host::HostDirectory;
pub use in_process::InProcess;
pub use nothing::Nothing;

use std::ops::{ControlFlow, Range};

use serde::{Deserialize, Serialize};

pub use rustix::fs::{FileType, OFlags};
pub use rustix::io::Errno;

/// A result of a target's operation.
pub type Result<T> = std::result::Result<T, Errno>;

/// What stat(2) tells that workloads look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Inode number.
    pub ino: u64,
    /// Kind of file.
    pub kind: FileType,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Number of hard links.
    pub link_count: u64,
    /// Preferred size of reads and writes, in bytes (`st_blksize`).
    pub block_bytes: u32,
    /// When it was read last, in seconds since 1970.
    pub accessed_s: i64,
    /// When it was changed last, in seconds since 1970.
    pub modified_s: i64,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Inode number.
    pub ino: u64,
    /// Kind of file.
    pub kind: FileType,
}

/// How a byte range is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// With others that lock it so (F_RDLCK).
    Shared,
    /// Alone (F_WRLCK).
    Exclusive,
}

/// How often files were closed, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OpenFileStatistics {
    /// In all.
    pub removals: u64,
    /// On the CPU that had opened them.
    pub removals_on_cpu: u64,
    /// On a CPU of the same NUMA node.
    pub removals_on_node: u64,
}

impl OpenFileStatistics {
    /// What came after `earlier`.
    pub fn since(self, earlier: OpenFileStatistics) -> OpenFileStatistics {
        OpenFileStatistics {
            removals: self.removals - earlier.removals,
            removals_on_cpu: self.removals_on_cpu - earlier.removals_on_cpu,
            removals_on_node: self.removals_on_node - earlier.removals_on_node,
        }
    }
}

/// A file system under test.
pub trait Target: Sync {
    /// An open file.
    type File: File;

    /// What it is, for reports.
    fn describe(&self) -> String;

    /// open(2). New files get the permissions 0644.
    fn open(&self, path: &str, flags: OFlags) -> Result<Self::File>;

    /// mkdir(2), with the permissions 0755.
    fn create_dir(&self, path: &str) -> Result<()>;

    /// rmdir(2).
    fn remove_dir(&self, path: &str) -> Result<()>;

    /// unlink(2).
    fn remove_file(&self, path: &str) -> Result<()>;

    /// rename(2): replaces what is there.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// link(2).
    fn hard_link(&self, original: &str, link: &str) -> Result<()>;

    /// symlink(2): `link` is made and points to `original`.
    fn symlink(&self, original: &str, link: &str) -> Result<()>;

    /// stat(2): symbolic links are followed.
    fn stat(&self, path: &str) -> Result<Stat>;

    /// utime(2): sets when it was read and when it was changed, in seconds since 1970.
    fn set_times(&self, path: &str, accessed_s: i64, modified_s: i64) -> Result<()>;

    /// statvfs(3): the number of free blocks.
    fn free_blocks(&self) -> Result<u64>;

    /// statvfs(3): the bytes that the caller may still write; `None` where the file system does not
    /// tell.
    fn free_bytes(&self) -> Result<Option<u64>>;

    /// Gives the entries of a directory, without `.` and `..`, to `sink` until it breaks off.
    fn read_dir(&self, path: &str, sink: impl FnMut(Entry<'_>) -> ControlFlow<()>) -> Result<()>;

    /// Opens a file to append to it, so many records under way at a time.
    fn open_appends(&self, path: &str, depth: u32) -> Result<Box<dyn Appends + '_>>;

    /// How often files were closed so far, where the target tells.
    fn open_file_statistics(&self) -> Option<OpenFileStatistics> {
        None
    }

    /// syncfs(2): everything changed so far is durable afterwards.
    fn sync(&self) -> Result<()>;
}

/// An open file of a [`Target`]. It is closed when dropped.
pub trait File: Send + Sync {
    /// pread(2): the number of bytes read, 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize>;

    /// pwrite(2): the number of bytes written.
    fn write_at(&self, data: &[u8], offset_bytes: u64) -> Result<usize>;

    /// write(2) on a file opened with O_APPEND: the number of bytes written.
    fn append(&self, data: &[u8]) -> Result<usize>;

    /// ftruncate(2).
    fn set_len(&self, size_bytes: u64) -> Result<()>;

    /// fstat(2).
    fn stat(&self) -> Result<Stat>;

    /// fsync(2).
    fn sync_all(&self) -> Result<()>;

    /// fdatasync(2).
    fn sync_data(&self) -> Result<()>;

    /// Locks a byte range for this open file (fcntl(2), F_OFD_SETLK and F_OFD_SETLKW). Where
    /// another open file has locked some of it in a way that conflicts, waits, or without `waits`
    /// fails with EAGAIN.
    fn lock(&self, range: Range<u64>, mode: LockMode, waits: bool) -> Result<()>;

    /// Unlocks a byte range (F_UNLCK).
    fn unlock(&self, range: Range<u64>) -> Result<()>;
}

/// Appends to a file, of which several are under way at a time. Dropping it waits for them.
pub trait Appends {
    /// Hands a record over. Where as many are under way as may be, waits until one has come to its
    /// end. An error is that of any record before.
    fn submit(&mut self, record: &[u8]) -> Result<()>;

    /// Waits for all that are under way.
    fn finish(&mut self) -> Result<()>;
}

/// Removes `path` and all below it; it is no error if nothing is there.
pub fn remove_tree<T: Target>(target: &T, path: &str) -> Result<()> {
    let mut entries = Vec::new();
    let listed = target.read_dir(path, |entry| {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        entries.push((name, entry.kind));
        ControlFlow::Continue(())
    });
    match listed {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error),
    }
    for (name, kind) in entries {
        let below = format!("{path}/{name}");
        match kind {
            FileType::Directory => remove_tree(target, &below)?,
            _ => target.remove_file(&below)?,
        }
    }
    target.remove_dir(path)
}

/// Writes all of `data` at `offset_bytes`.
pub fn write_all_at<F: File>(file: &F, mut data: &[u8], mut offset_bytes: u64) -> Result<()> {
    while !data.is_empty() {
        let count = file.write_at(data, offset_bytes)?;
        if count == 0 {
            return Err(Errno::IO);
        }
        data = &data[count..];
        offset_bytes += count as u64;
    }
    Ok(())
}
