//! [`HostDirectory`]: a directory of whatever file system, through system calls.

use super::append_ring::AppendRing;
use super::{Appends, Entry, Errno, File, FileType, LockMode, OFlags, Result, Stat, Target};
use nix::fcntl::FcntlArg;
use nix::libc;
use rustix::fs::{self, AtFlags, Mode};
use std::ops::{ControlFlow, Range};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Space for the entries that one getdents64(2) gives: what opendir(3) of glibc takes.
const ENTRIES_BYTES: usize = 32 << 10;

/// A directory as a [`Target`]: each operation is one system call, relative to the directory;
/// listing one makes those of opendir(3) and readdir(3).
#[derive(Debug)]
pub struct HostDirectory {
    path: PathBuf,
    dir: OwnedFd,
}

impl HostDirectory {
    /// Opens the directory at `path`.
    pub fn open(path: &Path) -> Result<HostDirectory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(HostDirectory {
            path: path.to_owned(),
            dir: fs::open(path, flags, Mode::empty())?,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Target for HostDirectory {
    type File = HostFile;

    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<HostFile> {
        let mode = Mode::from_raw_mode(0o644);
        fs::openat(&self.dir, path, flags | OFlags::CLOEXEC, mode).map(HostFile)
    }

    fn open_appends(&self, path: &str, depth: u32) -> Result<Box<dyn Appends + '_>> {
        let HostFile(file) = self.open(path, OFlags::WRONLY | OFlags::APPEND)?;
        Ok(Box::new(AppendRing::new(file, depth)?))
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        fs::mkdirat(&self.dir, path, Mode::from_raw_mode(0o755))
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        fs::unlinkat(&self.dir, path, AtFlags::REMOVEDIR)
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        fs::unlinkat(&self.dir, path, AtFlags::empty())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        fs::renameat(&self.dir, from, &self.dir, to)
    }

    fn hard_link(&self, original: &str, link: &str) -> Result<()> {
        fs::linkat(&self.dir, original, &self.dir, link, AtFlags::empty())
    }

    fn symlink(&self, original: &str, link: &str) -> Result<()> {
        fs::symlinkat(original, &self.dir, link)
    }

    fn stat(&self, path: &str) -> Result<Stat> {
        fs::statat(&self.dir, path, AtFlags::empty()).map(|stat| convert(&stat))
    }

    fn set_times(&self, path: &str, accessed_s: i64, modified_s: i64) -> Result<()> {
        let time = |seconds| fs::Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let times = fs::Timestamps {
            last_access: time(accessed_s),
            last_modification: time(modified_s),
        };
        fs::utimensat(&self.dir, path, &times, AtFlags::empty())
    }

    fn free_blocks(&self) -> Result<u64> {
        fs::fstatvfs(&self.dir).map(|found| found.f_bfree)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        let found = fs::fstatvfs(&self.dir)?;
        // What is kept for root is free for root.
        let free = match rustix::process::geteuid().is_root() {
            true => found.f_bfree,
            false => found.f_bavail,
        };
        // A FUSE server that does not answer has no blocks at all.
        Ok((found.f_blocks > 0).then(|| free.saturating_mul(found.f_frsize)))
    }

    fn read_dir(
        &self,
        path: &str,
        mut sink: impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::openat(&self.dir, path, flags, Mode::empty())?;
        // For the size of its buffer opendir(3) asks, too.
        fs::fstat(&dir)?;
        let mut buffer = Vec::with_capacity(ENTRIES_BYTES);
        let mut entries = fs::RawDir::new(&dir, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let (ino, kind) = (entry.ino(), entry.file_type());
            if sink(Entry { name, ino, kind }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        fs::syncfs(&self.dir)
    }
}

/// An open file of a [`HostDirectory`].
#[derive(Debug)]
pub struct HostFile(OwnedFd);

impl HostFile {
    fn set_lock(&self, range: &Range<u64>, kind: i32, waits: bool) -> Result<()> {
        let off = |bytes: u64| libc::off_t::try_from(bytes).map_err(|_| Errno::OVERFLOW);
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: off(range.start)?,
            l_len: off(range.end - range.start)?,
            // What locks of an open file description demand.
            l_pid: 0,
        };
        let argument = if waits {
            FcntlArg::F_OFD_SETLKW(&lock)
        } else {
            FcntlArg::F_OFD_SETLK(&lock)
        };
        match nix::fcntl::fcntl(self.0.as_fd(), argument) {
            Ok(_) => Ok(()),
            Err(error) => Err(Errno::from_raw_os_error(error as i32)),
        }
    }
}

impl File for HostFile {
    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        rustix::io::pread(&self.0, buffer, offset_bytes)
    }

    fn write_at(&self, data: &[u8], offset_bytes: u64) -> Result<usize> {
        rustix::io::pwrite(&self.0, data, offset_bytes)
    }

    fn append(&self, data: &[u8]) -> Result<usize> {
        rustix::io::write(&self.0, data)
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        fs::ftruncate(&self.0, size_bytes)
    }

    fn stat(&self) -> Result<Stat> {
        fs::fstat(&self.0).map(|stat| convert(&stat))
    }

    fn sync_all(&self) -> Result<()> {
        fs::fsync(&self.0)
    }

    fn sync_data(&self) -> Result<()> {
        fs::fdatasync(&self.0)
    }

    fn lock(&self, range: Range<u64>, mode: LockMode, waits: bool) -> Result<()> {
        let kind = match mode {
            LockMode::Shared => libc::F_RDLCK,
            LockMode::Exclusive => libc::F_WRLCK,
        };
        self.set_lock(&range, kind, waits)
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        self.set_lock(&range, libc::F_UNLCK, false)
    }
}

// The types of some fields differ between architectures.
#[allow(clippy::unnecessary_cast)]
fn convert(stat: &fs::Stat) -> Stat {
    Stat {
        ino: stat.st_ino,
        kind: FileType::from_raw_mode(stat.st_mode),
        size_bytes: stat.st_size as u64,
        link_count: stat.st_nlink as u64,
        block_bytes: stat.st_blksize as u32,
        accessed_s: stat.st_atime as i64,
        modified_s: stat.st_mtime as i64,
    }
}
