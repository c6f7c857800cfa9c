//! Which overwritten data of a file no sync has made durable yet.
//!
//! An overwrite changes no mapping and no size, so a sync of it needs no commit, and a commit need
//! not write it: the data goes out where it lies, and the device is flushed. Here is remembered
//! that there is such data, and about where.
//!
//! # Invariants
//! 1. The store has the data before [`Unsynced::note`] is called with the log's generation of then
//!    or later. So who has all data of before the end of that generation written out has this, too.
//! 2. The mark goes down before the blocks are read and written out, and the flush is noted that
//!    makes them durable, all under the lock: so a sync that finds no mark has waited for the one
//!    that took it, and finds its flush.
//! 3. The blocks are one word, and in it before the mark goes up. So a thread that takes the mark
//!    takes the blocks, or the sync before has taken them after the store had the data.

use std::ops::Range;

use finefs_locks::Mutex;
use finefs_locks::primitive::atomic::{AtomicU64, Ordering};

use crate::base::classes;
use crate::base::error::Result;
use crate::base::types::LogicalBlock;

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
    /// What was written out is durable after this flush ([`Flushes`]). Changes under the lock.
    ///
    /// [`Flushes`]: crate::commit::flushes::Flushes
    flush: AtomicU64,
}

/// No blocks.
const NO_BLOCKS: u64 = u64::MAX << 32;

/// The first block in the upper half, the end in the lower. A number that does not fit stands for
/// all that do not.
fn pack(blocks: &Range<LogicalBlock>) -> u64 {
    let half = |block: LogicalBlock| block.0.min(u64::from(u32::MAX));
    half(blocks.start) << 32 | half(blocks.end)
}

fn unpack(word: u64) -> Range<LogicalBlock> {
    let (first, end) = (word >> 32, word & u64::from(u32::MAX));
    let end = match end == u64::from(u32::MAX) {
        true => u64::MAX,
        false => end.max(first),
    };
    LogicalBlock(first)..LogicalBlock(end)
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
            flush: AtomicU64::new(0),
        }
    }

    /// These blocks of the file were overwritten. Writes no line as long as there is nothing new
    /// in that. Another may have noted a later generation first, and may have synced since.
    pub fn note(&self, blocks: Range<LogicalBlock>, generation: u64) {
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

    /// Whether a sync has anything to do: unless all data up to the end of generation `durable` is,
    /// or `is_done` says that of a flush.
    pub fn is_pending(&self, durable: u64, is_done: impl Fn(u64) -> bool) -> bool {
        let word = self.word.load(Ordering::Acquire);
        let is_newer = word >> 1 > durable;
        is_newer && (word & MARK != 0 || !is_done(self.flush.load(Ordering::Acquire)))
    }

    /// Has `write_out` bring the blocks to the device that were overwritten since the last sync,
    /// unless all data up to the end of generation `durable` is there; it gives the flush that
    /// makes them durable. Gives the one after which all is durable that was overwritten before.
    pub fn write_out(
        &self,
        durable: u64,
        write_out: impl FnOnce(Range<LogicalBlock>) -> Result<u64>,
    ) -> Result<u64> {
        let _lock = self.lock.lock();
        let word = self.word.fetch_and(!MARK, Ordering::AcqRel);
        if word & MARK == 0 || word >> 1 <= durable {
            return Ok(self.flush.load(Ordering::Acquire));
        }
        let blocks = self.blocks.swap(NO_BLOCKS, Ordering::AcqRel);
        let outcome = write_out(unpack(blocks));
        match &outcome {
            Ok(flush) => self.flush.store(*flush, Ordering::Release),
            Err(_) => {
                self.add(blocks);
                self.word.fetch_or(MARK, Ordering::AcqRel);
            }
        }
        outcome
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;
    use crate::base::error::Error;

    fn blocks(numbers: Range<u64>) -> Range<LogicalBlock> {
        LogicalBlock(numbers.start)..LogicalBlock(numbers.end)
    }

    fn synced(unsynced: &Unsynced, durable: u64) -> Option<Range<u64>> {
        let mut blocks = None;
        let written = unsynced.write_out(durable, |range| {
            blocks = Some(range.start.0..range.end.0);
            Ok(1)
        });
        written.unwrap();
        blocks
    }

    #[test]
    fn a_sync_writes_what_was_written_since_the_last() {
        let unsynced = Unsynced::new();
        assert_eq!(synced(&unsynced, 0), None);
        unsynced.note(blocks(5..6), 3);
        unsynced.note(blocks(2..4), 3);
        assert_eq!(synced(&unsynced, 2), Some(2..6));
        assert_eq!(synced(&unsynced, 2), None);
        unsynced.note(blocks(9..10), 3);
        assert_eq!(synced(&unsynced, 2), Some(9..10));
    }

    #[test]
    fn what_a_commit_wrote_needs_no_sync() {
        let unsynced = Unsynced::new();
        unsynced.note(blocks(5..6), 3);
        assert_eq!(synced(&unsynced, 3), None);
        unsynced.note(blocks(7..8), 4);
        assert_eq!(synced(&unsynced, 3), Some(5..8));
    }

    #[test]
    fn who_finds_it_written_out_waits_for_the_flush() {
        let unsynced = Unsynced::new();
        let is_done = |flush| flush <= 7;
        assert!(!unsynced.is_pending(0, is_done));
        unsynced.note(blocks(5..6), 3);
        assert!(unsynced.is_pending(2, is_done) && !unsynced.is_pending(3, is_done));
        assert_eq!(unsynced.write_out(2, |_| Ok(8)), Ok(8));
        assert_eq!(unsynced.write_out(2, |_| panic!("it is out")), Ok(8));
        assert!(unsynced.is_pending(2, is_done));
        assert!(!unsynced.is_pending(2, |flush| flush <= 8));
    }

    #[test]
    fn what_is_noted_late_is_synced() {
        let unsynced = Unsynced::new();
        unsynced.note(blocks(9..10), 6);
        assert_eq!(synced(&unsynced, 4), Some(9..10));
        unsynced.note(blocks(5..6), 5);
        assert_eq!(synced(&unsynced, 4), Some(5..6));
        assert_eq!(synced(&unsynced, 4), None);
        unsynced.note(blocks(1..2), 5);
        assert_eq!(synced(&unsynced, 5), Some(1..2));
    }

    #[test]
    fn what_could_not_be_written_is_written_by_the_next() {
        let unsynced = Unsynced::new();
        unsynced.note(blocks(5..6), 3);
        assert!(unsynced.write_out(0, |_| Err(Error::NoSpace)).is_err());
        assert_eq!(synced(&unsynced, 0), Some(5..6));
    }

    #[test]
    fn blocks_beyond_the_half_of_a_word_are_all_meant() {
        for blocks in [0..0, 3..9, 7..1 << 40, 1 << 40..1 << 41].map(blocks) {
            let known = unpack(joined(NO_BLOCKS, pack(&blocks)));
            assert!(known.start <= blocks.start && blocks.end <= known.end);
        }
        let end = u64::from(u32::MAX);
        assert_eq!(unpack(NO_BLOCKS), blocks(end..end));
        let both = joined(pack(&blocks(3..4)), pack(&blocks(8..9)));
        assert_eq!(unpack(both), blocks(3..9));
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
        dirty: HashSet<LogicalBlock>,
        durable: HashSet<LogicalBlock>,
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
                    for block in blocks.map(LogicalBlock) {
                        store.lock().dirty.insert(block);
                        unsynced.note(block..block + 1, 1);
                        let synced = unsynced.write_out(0, |range| {
                            let mut store = store.lock();
                            let (out, kept) = std::mem::take(&mut store.dirty)
                                .into_iter()
                                .partition(|block| range.contains(block));
                            store.durable.extend::<HashSet<LogicalBlock>>(out);
                            store.dirty = kept;
                            Ok(1)
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
