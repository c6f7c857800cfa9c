//! [`InProcess`]: a file system of finefs in this process, through the API that programs embed.

use super::{
    Appends, Entry, Errno, FileType, LockMode, OFlags, OpenFileStatistics, Result, Stat, Target,
};
use finefs::{
    Appender, Completion, Dir, FileKind, FileSystem, FileTimes, LastLink, LockKind, LockWait,
    Metadata, OpenOptions,
};
use std::ops::{ControlFlow, Range};
use std::time::{Duration, SystemTime};

/// A directory of a finefs file system as a [`Target`]: operations are calls in this process.
pub struct InProcess {
    file_system: FileSystem,
    dir: Dir,
    name: String,
    block_bytes: u32,
}

impl InProcess {
    /// The directory `dir` of `file_system`, called `name` in reports.
    pub fn new(file_system: FileSystem, dir: Dir, name: String) -> InProcess {
        InProcess {
            block_bytes: file_system.statfs().block_size_bytes,
            file_system,
            dir,
            name,
        }
    }

    /// A new file system in memory, of at most so many bytes.
    pub fn memory(size_bytes: u64) -> finefs::Result<InProcess> {
        let file_system = FileSystem::memory(size_bytes)?;
        let root = file_system.open_dir(".")?;
        Ok(InProcess::new(file_system, root, "memory".to_owned()))
    }

    /// The file system that it is in.
    pub fn file_system(&self) -> &FileSystem {
        &self.file_system
    }

    fn convert(&self, found: &Metadata) -> Stat {
        convert(found, self.block_bytes)
    }
}

impl Target for InProcess {
    type File = InProcessFile;

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<InProcessFile> {
        let access = flags & OFlags::ACCMODE;
        OpenOptions::new()
            .read(access != OFlags::WRONLY)
            .write(access != OFlags::RDONLY)
            .append(flags.contains(OFlags::APPEND))
            .truncate(flags.contains(OFlags::TRUNC))
            .create(flags.contains(OFlags::CREATE))
            .create_new(flags.contains(OFlags::CREATE | OFlags::EXCL))
            .mode(0o644)
            .open(&self.dir, path)
            .map(|file| InProcessFile {
                file,
                block_bytes: self.block_bytes,
            })
            .map_err(errno)
    }

    fn open_appends(&self, path: &str, depth: u32) -> Result<Box<dyn Appends + '_>> {
        let file = self.open(path, OFlags::WRONLY | OFlags::APPEND)?.file;
        Ok(Box::new(InProcessAppends {
            appender: Appender::new(file, depth as usize).map_err(errno)?,
            spare: (0..depth).map(|_| Vec::new()).collect(),
            failed: None,
        }))
    }

    fn create_dir(&self, path: &str) -> Result<()> {
        self.dir.create_dir_with_mode(path, 0o755).map_err(errno)
    }

    fn remove_dir(&self, path: &str) -> Result<()> {
        self.dir.remove_dir(path).map_err(errno)
    }

    fn remove_file(&self, path: &str) -> Result<()> {
        self.dir.remove_file(path).map_err(errno)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.dir.rename(from, to).map_err(errno)
    }

    fn hard_link(&self, original: &str, link: &str) -> Result<()> {
        self.dir.hard_link(original, link).map_err(errno)
    }

    fn symlink(&self, original: &str, link: &str) -> Result<()> {
        self.dir.symlink(original, link).map_err(errno)
    }

    fn stat(&self, path: &str) -> Result<Stat> {
        let found = self.dir.metadata(path).map_err(errno)?;
        Ok(self.convert(&found))
    }

    fn set_times(&self, path: &str, accessed_s: i64, modified_s: i64) -> Result<()> {
        let time = |seconds: i64| {
            let since = Duration::from_secs(seconds.unsigned_abs());
            if seconds < 0 {
                SystemTime::UNIX_EPOCH - since
            } else {
                SystemTime::UNIX_EPOCH + since
            }
        };
        let times = FileTimes::new()
            .accessed(time(accessed_s))
            .modified(time(modified_s));
        self.dir
            .set_times(path, times, LastLink::Follow)
            .map_err(errno)
    }

    fn free_blocks(&self) -> Result<u64> {
        Ok(self.file_system.statfs().blocks_free)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        let found = self.file_system.statfs();
        let block_bytes = u64::from(found.block_size_bytes);
        Ok(Some(found.blocks_free.saturating_mul(block_bytes)))
    }

    fn read_dir(
        &self,
        path: &str,
        mut sink: impl FnMut(Entry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        for entry in self.dir.read_dir(path).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            let given = Entry {
                name: entry.file_name().as_encoded_bytes(),
                ino: entry.ino(),
                kind: file_type(entry.file_type().map_err(errno)?.kind()),
            };
            if sink(given).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn open_file_statistics(&self) -> Option<OpenFileStatistics> {
        let found = self.file_system.open_file_removals();
        Some(OpenFileStatistics {
            removals: found.total,
            removals_on_cpu: found.on_cpu,
            removals_on_node: found.on_node,
        })
    }

    fn sync(&self) -> Result<()> {
        self.file_system.sync().map_err(errno)
    }
}

/// Appends through the library's [`Appender`].
struct InProcessAppends {
    appender: Appender,
    /// Memory of records that are not under way.
    spare: Vec<Vec<u8>>,
    /// The first error.
    failed: Option<Errno>,
}

impl InProcessAppends {
    fn take_back(&mut self, done: Completion) {
        self.spare.push(done.record);
        if let Err(error) = done.outcome {
            self.failed.get_or_insert(errno(error));
        }
    }

    fn has_failed(&self) -> Result<()> {
        self.failed.map_or(Ok(()), Err)
    }
}

impl Appends for InProcessAppends {
    fn submit(&mut self, record: &[u8]) -> Result<()> {
        if self.spare.is_empty()
            && let Some(done) = self.appender.next_completion()
        {
            self.take_back(done);
            while let Some(done) = self.appender.try_completion() {
                self.take_back(done);
            }
        }
        self.has_failed()?;
        let mut buffer = self.spare.pop().ok_or(Errno::AGAIN)?;
        buffer.clear();
        buffer.extend_from_slice(record);
        self.appender.submit(buffer, 0).map_err(|_| Errno::AGAIN)
    }

    fn finish(&mut self) -> Result<()> {
        while let Some(done) = self.appender.next_completion() {
            self.take_back(done);
        }
        self.has_failed()
    }
}

/// An open file of an [`InProcess`].
pub struct InProcessFile {
    file: finefs::File,
    block_bytes: u32,
}

impl super::File for InProcessFile {
    fn read_at(&self, buffer: &mut [u8], offset_bytes: u64) -> Result<usize> {
        self.file.read_at(buffer, offset_bytes).map_err(errno)
    }

    fn write_at(&self, data: &[u8], offset_bytes: u64) -> Result<usize> {
        self.file.write_at(data, offset_bytes).map_err(errno)
    }

    fn append(&self, data: &[u8]) -> Result<usize> {
        self.file.append(data).map(|_| data.len()).map_err(errno)
    }

    fn set_len(&self, size_bytes: u64) -> Result<()> {
        self.file.set_len(size_bytes).map_err(errno)
    }

    fn stat(&self) -> Result<Stat> {
        let found = self.file.metadata().map_err(errno)?;
        Ok(convert(&found, self.block_bytes))
    }

    fn sync_all(&self) -> Result<()> {
        self.file.sync_all().map_err(errno)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data().map_err(errno)
    }

    fn lock(&self, range: Range<u64>, mode: LockMode, waits: bool) -> Result<()> {
        let kind = match mode {
            LockMode::Shared => LockKind::Shared,
            LockMode::Exclusive => LockKind::Exclusive,
        };
        let wait = match waits {
            true => LockWait::forever(),
            false => LockWait::never(),
        };
        self.file.lock_range(range, kind, wait).map_err(errno)
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        self.file.unlock_range(range).map_err(errno)
    }
}

fn errno(error: finefs::Error) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn convert(found: &Metadata, block_bytes: u32) -> Stat {
    Stat {
        ino: found.ino(),
        kind: file_type(found.file_type().kind()),
        size_bytes: found.len(),
        link_count: u64::from(found.nlink()),
        block_bytes,
        accessed_s: seconds(found.accessed()),
        modified_s: seconds(found.modified()),
    }
}

/// Whole seconds since 1970; what is before counts as 1970, since no workload makes it.
fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

fn file_type(kind: FileKind) -> FileType {
    FileType::from_raw_mode(kind.mode_bits())
}
