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
//! 3. The blocks are one word, and in it before the mark goes up. So a thread that takes the mark
//!    takes the blocks, or the sync before has taken them after the store had the data.

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
    /// The blocks of the file that were written, and those between them: see [`pack`].
    blocks: AtomicU64,
}

/// No blocks.
const NO_BLOCKS: u64 = u64::MAX << 32;

/// The first block in the upper half, the end in the lower. A number that does not fit stands for
/// all that do not.
fn pack(blocks: &Range<u64>) -> u64 {
    let half = |block: u64| block.min(u64::from(u32::MAX));
    half(blocks.start) << 32 | half(blocks.end)
}

fn unpack(word: u64) -> Range<u64> {
    match (word >> 32, word & u64::from(u32::MAX)) {
        (first, end) if end == u64::from(u32::MAX) => first..u64::MAX,
        (first, end) => first..end.max(first),
    }
}

/// The blocks of both, and those between them.
fn joined(one: u64, other: u64) -> u64 {
    let end = u64::from(u32::MAX);
    (one & !end).min(other & !end) | (one & end).max(other & end)
}

impl Unsynced {
    /// Nothing was written.
    pub fn new() -> Unsynced {
        Unsynced {
            lock: Mutex::new(&classes::DATA_SYNC, ()),
            word: AtomicU64::new(0),
            blocks: AtomicU64::new(NO_BLOCKS),
        }
    }

    /// These blocks of the file were overwritten. Writes no line as long as there is nothing new
    /// in that. Another may have noted a later generation first, and may have synced since.
    pub fn note(&self, blocks: Range<u64>, generation: u64) {
        self.add(pack(&blocks));
        let marked =
            |word: u64| Some(word.max(generation << 1) | MARK).filter(|next| *next != word);
        if marked(self.word.load(Ordering::Relaxed)).is_some() {
            let _ = self
                .word
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, marked);
        }
    }

    fn add(&self, blocks: u64) {
        let more = |known| Some(joined(known, blocks)).filter(|both| *both != known);
        let _ = self
            .blocks
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
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
        let blocks = self.blocks.swap(NO_BLOCKS, Ordering::AcqRel);
        let outcome = write_out(unpack(blocks));
        if outcome.is_err() {
            self.add(blocks);
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
    fn what_is_noted_late_is_synced() {
        let unsynced = Unsynced::new();
        unsynced.note(9..10, 6);
        assert_eq!(synced(&unsynced, 4), Some(9..10));
        unsynced.note(5..6, 5);
        assert_eq!(synced(&unsynced, 4), Some(5..6));
        assert_eq!(unsynced.generation(), 6);
    }

    #[test]
    fn what_could_not_be_written_is_written_by_the_next() {
        let unsynced = Unsynced::new();
        unsynced.note(5..6, 3);
        assert!(unsynced.sync(0, |_| Err(Error::NoSpace)).is_err());
        assert_eq!(synced(&unsynced, 0), Some(5..6));
    }

    #[test]
    fn blocks_beyond_the_half_of_a_word_are_all_meant() {
        for blocks in [0..0, 3..9, 7..1 << 40, 1 << 40..1 << 41] {
            let known = unpack(joined(NO_BLOCKS, pack(&blocks)));
            assert!(known.start <= blocks.start && blocks.end <= known.end);
        }
        assert_eq!(unpack(NO_BLOCKS), u64::from(u32::MAX)..u64::from(u32::MAX));
        assert_eq!(unpack(joined(pack(&(3..4)), pack(&(8..9)))), 3..9);
    }
}

/// A sync writes out all blocks that were written before it began.
///
/// Without: the first block and the end in one word. (Tried, in a copy.)
#[cfg(all(test, feature = "shuttle"))]
#[test]
fn a_sync_takes_all_unsynced_blocks() {
    use std::collections::HashSet;

    use finefs_locks::primitive::{Arc, thread};

    /// What the store has: in memory, and on the device.
    #[derive(Default)]
    struct Blocks {
        dirty: HashSet<u64>,
        durable: HashSet<u64>,
    }

    let run = || {
        let shared = Arc::new((
            Unsynced::new(),
            Mutex::new(&classes::MEMORY, Blocks::default()),
        ));
        let writers: Vec<_> = [[20, 1], [5, 30], [12, 13]]
            .into_iter()
            .map(|blocks| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (unsynced, store) = &*shared;
                    for block in blocks {
                        store.lock().dirty.insert(block);
                        unsynced.note(block..block + 1, 1);
                        let synced = unsynced.sync(0, |range| {
                            let mut store = store.lock();
                            let (out, kept) = std::mem::take(&mut store.dirty)
                                .into_iter()
                                .partition(|block| range.contains(block));
                            store.durable.extend::<HashSet<u64>>(out);
                            store.dirty = kept;
                            Ok(())
                        });
                        synced.unwrap();
                        assert!(store.lock().durable.contains(&block), "{block}");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|task| task.join().unwrap());
    };
    shuttle::check_random(run, 2000);
}
