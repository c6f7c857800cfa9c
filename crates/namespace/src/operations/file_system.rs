//! What concerns the file system as a whole: its label, and its free space.

use std::ops::Range;

use crate::base::error::{Error, Result};
use crate::namespace::Namespace;
use crate::schemes::Call;

impl Namespace {
    /// The label, without NUL bytes; empty where there is none.
    pub fn label(&self) -> Vec<u8> {
        self.store.label()
    }

    /// Sets the label, durably. EINVAL for one that is longer than the format has room for, or that
    /// holds a NUL byte.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        {
            let operation = self.begin_change(Call::SetAttributes)?;
            if label.contains(&0) {
                return Err(Error::Invalid);
            }
            let root = self.inode(self.root(), &operation.guard)?;
            self.store.set_label(label)?;
            // It goes out with a commit, and there is one where there is something to commit.
            self.log_touch(root);
        }
        self.commit()
    }

    /// Gives back the storage below free blocks that lie within a range of bytes of the file
    /// system, in runs of at least `run_min_bytes` (FITRIM); tells how many bytes they were. What
    /// was removed before the call counts as free. EOPNOTSUPP where nothing can be given back, and
    /// EINVAL for a range that begins beyond the end.
    pub fn trim(&self, range: Range<u64>, run_min_bytes: u64) -> Result<u64> {
        if self.options.is_read_only {
            return Err(Error::ReadOnly);
        }
        self.commit()?;
        let statfs = self.store.statfs();
        let block_bytes = u64::from(self.geometry.block_size_bytes);
        // At least: what the format itself takes is not among the blocks.
        let end_bytes = statfs.blocks.saturating_mul(block_bytes);
        if range.start >= end_bytes {
            return Err(Error::Invalid);
        }
        let blocks = range.start.div_ceil(block_bytes)..range.end / block_bytes;
        let run_min = run_min_bytes.div_ceil(block_bytes).max(1);
        let (mut at, mut trimmed) = (blocks.start, 0);
        // Others change and freeze the file system meanwhile.
        while at < blocks.end {
            let _operation = self.begin_change(Call::Data)?;
            let Some((next, freed)) = self.store.trim(at..blocks.end, run_min)? else {
                break;
            };
            at = next;
            trimmed += freed;
        }
        Ok(trimmed.saturating_mul(block_bytes))
    }
}
