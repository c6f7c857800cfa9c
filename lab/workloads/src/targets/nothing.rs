//! [`Nothing`]: a target that does nothing, so that a run on it costs what the harness costs.

use super::{Appends, Entry, File, FileType, LockMode, OFlags, Result, Stat, Target};
use std::ops::{ControlFlow, Range};

/// Every operation succeeds at once; reads fill nothing and are whole. Nothing can be verified on
/// it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nothing;

const STAT: Stat = Stat {
    ino: 1,
    kind: FileType::RegularFile,
    size_bytes: 0,
    link_count: 1,
    block_bytes: 4096,
    accessed_s: 0,
    modified_s: 0,
};

impl Target for Nothing {
    type File = Nothing;

    fn describe(&self) -> String {
        "nothing".to_owned()
    }

    fn open(&self, _: &str, _: OFlags) -> Result<Nothing> {
        Ok(Nothing)
    }

    fn open_appends(&self, _: &str, _: u32) -> Result<Box<dyn Appends + '_>> {
        Ok(Box::new(Nothing))
    }

    fn create_dir(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn remove_dir(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn remove_file(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn rename(&self, _: &str, _: &str) -> Result<()> {
        Ok(())
    }

    fn hard_link(&self, _: &str, _: &str) -> Result<()> {
        Ok(())
    }

    fn symlink(&self, _: &str, _: &str) -> Result<()> {
        Ok(())
    }

    fn stat(&self, _: &str) -> Result<Stat> {
        Ok(STAT)
    }

    fn set_times(&self, _: &str, _: i64, _: i64) -> Result<()> {
        Ok(())
    }

    fn free_blocks(&self) -> Result<u64> {
        Ok(1)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn read_dir(&self, _: &str, _: impl FnMut(Entry<'_>) -> ControlFlow<()>) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl Appends for Nothing {
    fn submit(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

impl File for Nothing {
    fn read_at(&self, buffer: &mut [u8], _: u64) -> Result<usize> {
        Ok(buffer.len())
    }

    fn write_at(&self, data: &[u8], _: u64) -> Result<usize> {
        Ok(data.len())
    }

    fn append(&self, data: &[u8]) -> Result<usize> {
        Ok(data.len())
    }

    fn set_len(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn stat(&self) -> Result<Stat> {
        Ok(STAT)
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self, _: Range<u64>, _: LockMode, _: bool) -> Result<()> {
        Ok(())
    }

    fn unlock(&self, _: Range<u64>) -> Result<()> {
        Ok(())
    }
}
