//! [`Cell`]: the one-word fast path. Holds one range at a time: a writer's, or that of any number
//! of readers that ask for the very same one.
//!
//! Every guard knows its holding by a cell: the one that it took or, where it came by the queue,
//! the cell of its node, which is always closed. So all are released alike.
//!
//! # Data model
//! The word, from the lowest bit:
//! - 20 bits: the number of readers;
//! - WRITER: a writer holds the cell;
//! - OPEN: requests may take the cell. A holder that leaves a closed cell then serves the queue;
//! - the rest: a sequence number, which rises when an empty cell is taken and when a closed one
//!   is opened.
//!
//! `start..end` is the holders' range once `published` has the word's number, too. All zeros
//! are a closed cell without holders, so static cells need no space in the program's file.
//!
//! # Invariants
//! 1. A cell is taken only while it is open and empty, and joined only while it is open. A word of
//!    an open cell never comes again with the same number and another range.
//! 2. `close`, `open` and the use of `users` and `imported` are for the holder of the lock's mutex.
//! 3. A cell is opened only when its word shows no holder: every holder that `close` found has left
//!    the word and, under the mutex, its entry in the queue.
//!
//! # Orderings
//! Taking is an acquire, leaving a release, both read-modify-writes, so that a writer sees what all
//! readers before it did. `close` is an acquire: what the cell's holders did happens before what
//! the queue grants. `open` is a release: what the queue's holders did happens before the next
//! taking.

use std::ops::Range;
use std::sync::atomic::{AtomicU32 as GuardedU32, Ordering::Relaxed};

#[cfg(not(any(loom, feature = "shuttle")))]
use super::node::overlaps;
use super::node::{Access, Link, Node};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::{const_unless_loom, thread};

pub(super) const READER: u64 = 1;
pub(super) const WRITER: u64 = 1 << 20;
const READERS: u64 = WRITER - 1;
const HOLDERS: u64 = WRITER | READERS;
const OPEN: u64 = 1 << 21;
const NUMBER_ONE: u64 = 1 << 22;
const NUMBER: u64 = !(NUMBER_ONE - 1);

/// How the cell is held, and by how many.
fn holders(word: u64) -> Option<(Access, u32)> {
    match word & HOLDERS {
        0 => None,
        WRITER => Some((Access::Write, 1)),
        readers => Some((Access::Read, readers as u32)),
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Cell {
    word: AtomicU64,
    published: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    /// How many entries of the queue lie on this cell. Guarded by the lock's mutex.
    pub(super) users: GuardedU32,
    /// The queue's entry for the holders that `close` found. Guarded by the lock's mutex.
    pub(super) imported: Link,
}

/// What `close` found in a cell.
pub(super) struct CellHolders {
    pub(super) range: Range<u64>,
    pub(super) access: Access,
    pub(super) count: u32,
}

impl Cell {
    const_unless_loom! {
        /// An open cell without holders.
        pub const fn opened() -> Cell {
            Cell::of(OPEN | NUMBER_ONE)
        }
    }

    const_unless_loom! {
        /// A closed cell without holders.
        pub const fn closed() -> Cell {
            Cell::of(0)
        }
    }

    const_unless_loom! {
        pub const fn of(word: u64) -> Cell {
            Cell {
                word: AtomicU64::new(word),
                published: AtomicU64::new(0),
                start: AtomicU64::new(0),
                end: AtomicU64::new(0),
                users: GuardedU32::new(0),
                imported: Link::none(),
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & OPEN == 0
    }

    /// Takes the cell if it is open and empty.
    #[inline(always)]
    pub(super) fn take(&self, range: &Range<u64>, access: Access) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & (OPEN | HOLDERS) == OPEN && self.take_from(word, range, access)
    }

    /// Takes an empty cell, or joins readers of the same range, if the cell is `ours`: `ours` is
    /// asked after the word was read, and the word must not change from then on.
    #[inline]
    pub(super) fn take_or_join(
        &self,
        range: &Range<u64>,
        access: Access,
        ours: impl FnOnce() -> bool,
    ) -> bool {
        // Acquire: `ours` looks after this.
        let word = self.word.load(Ordering::Acquire);
        if word & OPEN == 0 {
            return false;
        }
        if word & HOLDERS == 0 {
            return ours() && self.take_from(word, range, access);
        }
        // Should the holders change after the range was read, so does the word.
        access == Access::Read
            && (1..READERS).contains(&(word & HOLDERS))
            && self.range_of(word).as_ref() == Some(range)
            && ours()
            && self.exchange(word, word + READER)
    }

    #[inline(always)]
    fn take_from(&self, seen: u64, range: &Range<u64>, access: Access) -> bool {
        let word = seen.wrapping_add(NUMBER_ONE) + access as u64;
        let is_taken = self.exchange(seen, word);
        if is_taken {
            self.start.store(range.start, Ordering::Relaxed);
            self.end.store(range.end, Ordering::Relaxed);
            // Release: a thread that sees this number sees the range.
            self.published.store(word, Ordering::Release);
        }
        is_taken
    }

    #[inline(always)]
    fn exchange(&self, seen: u64, word: u64) -> bool {
        self.word
            .compare_exchange(seen, word, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// The range of the holders that `word` counts, if it is visible yet.
    fn range_of(&self, word: u64) -> Option<Range<u64>> {
        let is_published = (self.published.load(Ordering::Acquire) ^ word) & NUMBER == 0;
        is_published.then(|| self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed))
    }

    /// True when the cell is open and held, and the holder conflicts with the request or, where
    /// `is_shared` by segments, may be somebody else. A guess, for choosing between spinning and
    /// queueing.
    #[cfg(not(any(loom, feature = "shuttle")))]
    pub(super) fn is_worth_a_look(
        &self,
        range: &Range<u64>,
        access: Access,
        is_shared: bool,
    ) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let conflicts = || {
            let is_write = access == Access::Write || word & WRITER != 0;
            self.range_of(word)
                .is_none_or(|held| is_write && overlaps(&held, range))
        };
        word & OPEN != 0 && (is_shared || word & HOLDERS == 0 || conflicts())
    }

    /// Leaves. False when the cell is closed: then the holder's entry is in the queue, from which
    /// it must be taken.
    #[inline(always)]
    #[must_use]
    pub(super) fn leave(&self, access: Access) -> bool {
        self.word.fetch_sub(access as u64, Ordering::Release) & OPEN != 0
    }

    /// Turns the writer that holds the cell into a reader. False when the cell is closed: then the
    /// holder's entry in the queue has still to be changed.
    #[must_use]
    pub(super) fn downgrade(&self) -> bool {
        self.word.fetch_sub(WRITER - READER, Ordering::Release) & OPEN != 0
    }

    /// One of the readers of a closed cell has got an entry of its own.
    pub(super) fn forget_reader(&self) {
        let word = self.word.fetch_sub(READER, Ordering::Release);
        debug_assert!(word & OPEN == 0 && word & READERS > 0);
    }

    /// Closes an open cell. Its holders cannot go away before the caller releases the mutex.
    pub(super) fn close(&self) -> Option<CellHolders> {
        let word = self.word.fetch_and(!OPEN, Ordering::Acquire);
        let (access, count) = holders(word)?;
        loop {
            if let Some(range) = self.range_of(word) {
                return Some(CellHolders {
                    range,
                    access,
                    count,
                });
            }
            // The holder is between its taking and its publication, and perhaps off the CPU.
            thread::yield_now();
        }
    }

    /// Opens a closed cell whose holders have all left.
    pub(super) fn open(&self) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & (OPEN | HOLDERS), 0);
        // A new number, because the cell may have come to another lock.
        let opened = word.wrapping_add(NUMBER_ONE) | OPEN;
        self.word.store(opened, Ordering::Release);
    }

    /// Makes a cell that was never open that of the one holder that `node` stands for.
    pub(super) fn represent(&self, node: &'static Node, access: Access) {
        self.word.store(access as u64, Ordering::Relaxed);
        // Its only user keeps it from being opened.
        self.users.store(1, Relaxed);
        self.imported.set(Some(node));
    }

    /// Forgets holders that were leaked. The cell stays closed.
    pub(super) fn reset(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(word & NUMBER, Ordering::Release);
        self.users.store(0, Relaxed);
        self.imported.set(None);
    }
}
