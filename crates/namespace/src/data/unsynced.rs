//! Which overwritten data of a file no sync has made durable yet.
//!
//! An overwrite changes no mapping and no size, so a sync of it needs no commit: the data goes out
//! where it lies, and the device is flushed. Here is remembered that there is such data, and about
//! where.
//!
//! # Invariants
//! 1. The store has the data before [`Unsynced::note`] is called with the log's generation of then
//!    or later. So the commit of that generation writes the data, too.
//! 2. The mark goes down before the blocks are read and written out, all under the lock: so a sync
//!    that finds no mark has waited for the one that took it.

use std::ops::Range;

use finefs_locks::Mutex;
use finefs_locks::primitive::atomic::{AtomicU64, Ordering};

use crate::base::classes;
use crate::base::error::Result;

/// In `word`: data was written and not synced since.
const MARK: u64 = 1;

/// See the module's head.
pub(crate) struct Unsynced {
    /// Held over a sync. It guards no data.
    lock: Mutex<()>,
    /// The log's generation of the newest overwrite, and in the lowest bit the mark.
    word: AtomicU64,
    /// The blocks of the file that were written, and those between them.
    first: AtomicU64,
    end: AtomicU64,
}

impl Unsynced {
    /// Nothing was written.
    pub fn new() -> Unsynced {
        Unsynced {
            lock: Mutex::new(&classes::DATA_SYNC, ()),
            word: AtomicU64::new(0),
            first: AtomicU64::new(u64::MAX),
            end: AtomicU64::new(0),
        }
    }

    /// These blocks of the file were overwritten. Writes no line as long as there is nothing new
    /// in that.
    pub fn note(&self, blocks: Range<u64>, generation: u64) {
        if blocks.start < self.first.load(Ordering::Relaxed) {
            self.first.fetch_min(blocks.start, Ordering::AcqRel);
        }
        if blocks.end > self.end.load(Ordering::Relaxed) {
            self.end.fetch_max(blocks.end, Ordering::AcqRel);
        }
        let word = generation << 1 | MARK;
        if self.word.load(Ordering::Relaxed) < word {
            self.word.fetch_max(word, Ordering::AcqRel);
        }
    }

    /// The log's generation of the newest overwrite; 0 if there was none.
    pub fn generation(&self) -> u64 {
        self.word.load(Ordering::Acquire) >> 1
    }

    /// Has `write_out` make the blocks durable that were overwritten since the last sync, unless
    /// the commits up to `committed` have.
    pub fn sync(
        &self,
        committed: u64,
        write_out: impl FnOnce(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let _lock = self.lock.lock();
        let word = self.word.fetch_and(!MARK, Ordering::AcqRel);
        if word & MARK == 0 || word >> 1 <= committed {
            return Ok(());
        }
        let first = self.first.swap(u64::MAX, Ordering::AcqRel);
        let end = self.end.swap(0, Ordering::AcqRel);
        let outcome = write_out(first..end.max(first));
        if outcome.is_err() {
            self.first.fetch_min(first, Ordering::AcqRel);
            self.end.fetch_max(end, Ordering::AcqRel);
            self.word.fetch_or(MARK, Ordering::AcqRel);
        }
        outcome
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::base::error::Error;

    fn synced(unsynced: &Unsynced, committed: u64) -> Option<Range<u64>> {
        let mut blocks = None;
        let sync = unsynced.sync(committed, |range| {
            blocks = Some(range);
            Ok(())
        });
        sync.unwrap();
        blocks
    }

    #[test]
    fn a_sync_writes_what_was_written_since_the_last() {
        let unsynced = Unsynced::new();
        assert_eq!(synced(&unsynced, 0), None);
        unsynced.note(5..6, 3);
        unsynced.note(2..4, 3);
        assert_eq!(synced(&unsynced, 2), Some(2..6));
        assert_eq!(synced(&unsynced, 2), None);
        unsynced.note(9..10, 3);
        assert_eq!(synced(&unsynced, 2), Some(9..10));
    }

    #[test]
    fn what_a_commit_wrote_needs_no_sync() {
        let unsynced = Unsynced::new();
        unsynced.note(5..6, 3);
        assert_eq!(synced(&unsynced, 3), None);
        unsynced.note(7..8, 4);
        assert_eq!(synced(&unsynced, 3), Some(5..8));
        assert_eq!(unsynced.generation(), 4);
    }

    #[test]
    fn what_could_not_be_written_is_written_by_the_next() {
        let unsynced = Unsynced::new();
        unsynced.note(5..6, 3);
        assert!(unsynced.sync(0, |_| Err(Error::NoSpace)).is_err());
        assert_eq!(synced(&unsynced, 0), Some(5..6));
    }
}
