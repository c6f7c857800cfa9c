//! A target that does something wrong now and then, to see that workloads notice.

use finefs_workloads::targets::{Appends, Entry, File, LockMode, OFlags, Result, Stat};
use finefs_workloads::{InProcess, Target};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What it does wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    /// A write goes to the block before.
    Misplaced,
    /// An append lacks its last bytes and does not say so.
    Torn,
    /// An append is not done, and does not say so.
    Lost,
    /// Locks exclude nobody, and whoever reads lets others go first.
    Unlocked,
}

/// Every so many calls are wrong.
const PERIOD: u64 = 50;

pub struct Faulty {
    inner: InProcess,
    fault: Fault,
    calls: Arc<AtomicU64>,
}

impl Faulty {
    pub fn new(inner: InProcess, fault: Fault) -> Faulty {
        Faulty {
            inner,
            fault,
            calls: Arc::default(),
        }
    }
}

pub struct FaultyFile {
    inner: <InProcess as Target>::File,
    fault: Fault,
    calls: Arc<AtomicU64>,
}

impl FaultyFile {
    fn is_hit(&self, fault: Fault) -> bool {
        self.fault == fault && self.calls.fetch_add(1, Ordering::Relaxed) % PERIOD == PERIOD - 1
    }
}

impl Target for Faulty {
    type File = FaultyFile;

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<FaultyFile> {
        Ok(FaultyFile {
            inner: self.inner.open(path, flags)?,
            fault: self.fault,
            calls: Arc::clone(&self.calls),
        })
    }

    fn open_appends(&self, path: &str, depth: u32) -> Result<Box<dyn Appends + '_>> {
        self.inner.open_appends(path, depth)
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        self.inner.create_dir(path)
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        self.inner.remove_dir(path)
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        self.inner.remove_file(path)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn hard_link(&self, original: &str, link: &str) -> Result<()> {
        self.inner.hard_link(original, link)
    }

    fn symlink(&self, original: &str, link: &str) -> Result<()> {
        self.inner.symlink(original, link)
    }

    fn stat(&self, path: &str) -> Result<Stat> {
        self.inner.stat(path)
    }

    fn set_times(&self, path: &str, accessed_s: i64, modified_s: i64) -> Result<()> {
        self.inner.set_times(path, accessed_s, modified_s)
    }

    fn free_blocks(&self) -> Result<u64> {
        self.inner.free_blocks()
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        self.inner.free_bytes()
    }

    fn read_dir(&self, path: &str, sink: impl FnMut(Entry<'_>) -> ControlFlow<()>) -> Result<()> {
        self.inner.read_dir(path, sink)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
}

impl File for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        let count = self.inner.read_at(buffer, offset_bytes);
        if self.fault == Fault::Unlocked {
            std::thread::yield_now();
        }
        count
    }

    fn write_at(&self, data: &[u8], offset_bytes: u64) -> Result<usize> {
        let offset_bytes = match self.is_hit(Fault::Misplaced) {
            true => offset_bytes.saturating_sub(data.len() as u64),
            false => offset_bytes,
        };
        self.inner.write_at(data, offset_bytes)
    }

    fn append(&self, data: &[u8]) -> Result<usize> {
        let written = match self.fault {
            Fault::Torn if self.is_hit(Fault::Torn) => &data[..data.len() - 3],
            Fault::Lost if self.is_hit(Fault::Lost) => return Ok(data.len()),
            _ => data,
        };
        self.inner.append(written).map(|_| data.len())
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        self.inner.set_len(size_bytes)
    }

    fn stat(&self) -> Result<Stat> {
        self.inner.stat()
    }

    fn sync_all(&self) -> Result<()> {
        self.inner.sync_all()
    }

    fn sync_data(&self) -> Result<()> {
        self.inner.sync_data()
    }

    fn lock(&self, range: Range<u64>, mode: LockMode, waits: bool) -> Result<()> {
        match self.fault {
            Fault::Unlocked => Ok(()),
            _ => self.inner.lock(range, mode, waits),
        }
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        self.inner.unlock(range)
    }
}
