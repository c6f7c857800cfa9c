//! [`Cell`]: the one-word fast path. Holds one range at a time: a writer's, or that of any number of
//! readers who ask for the very same one.
//!
//! Every guard knows its holding by a cell: the one that it took or, where it came by the queue or is
//! metered, one in its node that is always closed. So all leave alike, by one subtraction.
//!
//! # Data model
//! The word, from the lowest bit:
//! - a count of the holders that came to the empty cell, and its carry, SAMPLE: the next who comes does
//!   not come by `take` but by `take_or_join`, which learns that it is one of many, adds the carry to the
//!   sequence number and clears it;
//! - WRITE: a writer holds;
//! - a count of readers, in steps of READER;
//! - CLOSED, as two bits, so that takers find it beside the holders, and leavers in the sign: no holder
//!   comes any more, and who leaves goes to the lock's queue;
//! - ALWAYS, which is always set: while the meter counts all acquisitions it makes `take` fail, by the one
//!   test that `take` has (`finefs_lockmeter::hindrances`);
//! - a sequence number, of which the count of holders is the low part; `open` raises it too.
//!
//! `start` and `end` are the holders' range. They count when `published` has the word's sequence number.
//!
//! # Invariants
//! 1. Holders come only while the cell is open. A word of an open cell never comes again with the
//!    same sequence number and another range: it names one holding.
//! 2. `close`, `open` and the use of `users` and `imported` are for who holds the lock's mutex.
//! 3. A cell opens only when its low bits show no holder: every holder that `close` found has left its
//!    count and, under the mutex, its entry in the queue.
//!
//! # Orderings
//! Taking is an acquire, leaving a release, both read-modify-writes, so that a writer sees what all
//! readers before it did. `close` is an acquire: what the cell's holders did happens before what the
//! queue grants. `open` is a release: what the queue's holders did happens before the next taker.

use std::ops::Range;
use std::sync::atomic::{AtomicU32 as GuardedU32, Ordering::Relaxed};

use finefs_lockmeter as lockmeter;

use super::node::{Access, Link, Node};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::{const_unless_loom, thread};

/// One holder in so many is a sample.
#[cfg(not(any(loom, feature = "shuttle")))]
const SAMPLE: u64 = 1 << 10;
#[cfg(any(loom, feature = "shuttle"))]
const SAMPLE: u64 = 1 << 1;
const COUNT: u64 = SAMPLE - 1;
pub(super) const WRITE: u64 = 1 << 11;
pub(super) const READER: u64 = 1 << 12;
const READERS: u64 = 0x3fff << 12;
const HOLDERS: u64 = WRITE | READERS;
const CLOSED_FOR_TAKERS: u64 = 1 << 26;
const CLOSED: u64 = 1 << 63 | CLOSED_FOR_TAKERS;
const ALWAYS: u64 = lockmeter::ALWAYS as u64;
const UPPER_ONE: u64 = ALWAYS << 1;
const SEQUENCE: u64 = !(SAMPLE | HOLDERS | CLOSED) & !(UPPER_ONE - 1) | COUNT;

/// What keeps a request from taking an empty cell.
const HINDRANCES: u64 = SAMPLE | HOLDERS | CLOSED_FOR_TAKERS;

/// HINDRANCES, and ALWAYS when the meter wants to know of acquisitions that do not wait.
#[inline(always)]
pub(super) fn hindrances() -> u64 {
    if cfg!(any(loom, feature = "shuttle")) {
        // In models a sample is so frequent that its bit is below those that the meter looks at.
        HINDRANCES
    } else {
        const { assert!(HINDRANCES & !(lockmeter::HINDRANCES as u64) == 0 || SAMPLE < 1 << 10) };
        u64::from(lockmeter::hindrances())
    }
}

/// Tells the compiler where the fast path falls through.
#[inline(always)]
fn is_likely(is_so: bool) -> bool {
    if !is_so {
        std::hint::cold_path();
    }
    is_so
}

/// A new sequence number for a cell without holders, not closed.
fn next_sequence(word: u64) -> u64 {
    (word & SEQUENCE).wrapping_add(UPPER_ONE) & SEQUENCE | ALWAYS
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
pub(super) struct Holding {
    pub(super) range: Range<u64>,
    pub(super) access: Access,
    pub(super) count: u32,
}

/// Why a cell could not be taken.
#[cfg(not(any(loom, feature = "shuttle")))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hindrance {
    /// It is closed.
    Closed,
    /// Its holder conflicts with the request.
    Conflict,
    /// It has a holder that does not conflict.
    Needless,
    /// Its holder has gone.
    None,
}

impl Cell {
    const_unless_loom! {
        /// An open cell without holders.
        pub const fn opened() -> Cell {
            Cell {
                word: AtomicU64::new(ALWAYS),
                published: AtomicU64::new(0),
                start: AtomicU64::new(0),
                end: AtomicU64::new(0),
                users: GuardedU32::new(0),
                imported: Link::none(),
            }
        }
    }

    const_unless_loom! {
        /// A closed cell without holders.
        pub const fn closed() -> Cell {
            Cell {
                word: AtomicU64::new(CLOSED | ALWAYS),
                published: AtomicU64::new(0),
                start: AtomicU64::new(0),
                end: AtomicU64::new(0),
                users: GuardedU32::new(0),
                imported: Link::none(),
            }
        }
    }

    /// The node that this is the cell of, if it is one's. For who holds the cell.
    pub(super) fn own_node(&self) -> Option<&'static Node> {
        // Read without the mutex: a cell that is not a node's may have any node here, but not one whose
        // cell it is.
        self.imported
            .get()
            .filter(|node| std::ptr::eq(&raw const node.cell, self))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Takes an open and empty cell, unless the meter wants to know: `hindrances` are what
    /// [`hindrances`] gave.
    #[inline(always)]
    pub(super) fn take(&self, hindrances: u64, range: &Range<u64>, access: Access) -> bool {
        let empty = self.word.load(Ordering::Relaxed);
        is_likely(empty & hindrances == 0) && self.take_from(empty, empty, range, access)
    }

    /// Like `take`, if the cell is `ours`: see `take_or_join`.
    #[inline(always)]
    pub(super) fn take_if(
        &self,
        hindrances: u64,
        range: &Range<u64>,
        access: Access,
        ours: impl Fn() -> bool,
    ) -> bool {
        // Acquire: `ours` looks after this.
        let empty = self.word.load(Ordering::Acquire);
        is_likely(empty & hindrances == 0 && ours()) && self.take_from(empty, empty, range, access)
    }

    /// Takes an empty cell, or joins readers of the same range, if the cell is `ours`: `ours` is asked
    /// after the word was read, and the word must not change from then on.
    #[inline]
    pub(super) fn take_or_join(
        &self,
        range: &Range<u64>,
        access: Access,
        ours: impl Fn() -> bool,
    ) -> Option<Taken> {
        // Acquire: `ours` looks after this.
        let word = self.word.load(Ordering::Acquire);
        if word & (HOLDERS | CLOSED) == 0 {
            let (base, taken) = match word & SAMPLE {
                0 => (word, Taken::Emptied),
                _ => (next_sequence(word), Taken::Sample),
            };
            let is_taken = ours() && self.take_from(word, base, range, access);
            return is_taken.then_some(taken);
        }
        if access == Access::Read && self.is_read_of(word, range) && ours() {
            let joined = self.word.compare_exchange(
                word,
                word + READER,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            return joined.is_ok().then_some(Taken::Joined);
        }
        None
    }

    /// `base` is `empty`, or has a new sequence number.
    #[inline(always)]
    fn take_from(&self, empty: u64, base: u64, range: &Range<u64>, access: Access) -> bool {
        let word = base.wrapping_add(1 + access as u64);
        let exchange =
            self.word
                .compare_exchange(empty, word, Ordering::Acquire, Ordering::Relaxed);
        let is_taken = is_likely(exchange.is_ok());
        if is_taken {
            self.publish(word, range);
        }
        is_taken
    }

    /// Takes an empty cell for writing without publishing the range: `publish` must follow, soon, with
    /// the word that this returns.
    pub(super) fn take_unpublished(&self) -> Option<u64> {
        let empty = self.word.load(Ordering::Relaxed);
        let word = empty.wrapping_add(1 + WRITE);
        if empty & HINDRANCES != 0 {
            return None;
        }
        self.word
            .compare_exchange(empty, word, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| word)
    }

    #[inline(always)]
    pub(super) fn publish(&self, word: u64, range: &Range<u64>) {
        self.start.store(range.start, Ordering::Relaxed);
        self.end.store(range.end, Ordering::Relaxed);
        // Release: whoever sees this number sees the range.
        self.published.store(word, Ordering::Release);
    }

    fn is_published(&self, word: u64) -> bool {
        (self.published.load(Ordering::Acquire) ^ word) & SEQUENCE == 0
    }

    fn holds(&self) -> Range<u64> {
        self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }

    /// True when `word` says that readers of just this range hold an open cell.
    ///
    /// Should the holders change meanwhile, so does the word. While it has not, no later holder can have
    /// overwritten the range that was read here.
    fn is_read_of(&self, word: u64, range: &Range<u64>) -> bool {
        word & (WRITE | CLOSED) == 0
            && word & READERS < READERS
            && self.is_published(word)
            && self.holds() == *range
    }

    /// Why the cell cannot be taken now; a guess, for choosing between spinning and queueing up.
    #[cfg(not(any(loom, feature = "shuttle")))]
    pub(super) fn hindrance(&self, range: &Range<u64>, access: Access) -> Hindrance {
        let word = self.word.load(Ordering::Relaxed);
        if word & CLOSED != 0 {
            Hindrance::Closed
        } else if word & HOLDERS == 0 {
            Hindrance::None
        } else if word & WRITE == 0 && access == Access::Read {
            // Readers of the same range are joined, unless they are not visible yet.
            if self.is_published(word) && self.holds() != *range {
                Hindrance::Needless
            } else {
                Hindrance::Conflict
            }
        } else if self.is_published(word) && !super::node::overlaps(&self.holds(), range) {
            Hindrance::Needless
        } else {
            Hindrance::Conflict
        }
    }

    /// Leaves. False when the cell is closed: then the holder's entry is in the queue, from which it
    /// must be taken.
    #[inline(always)]
    #[must_use]
    pub(super) fn leave(&self, access: Access) -> bool {
        // Adding the complement, and CLOSED being the sign, make this one instruction and one jump.
        let minus = (access as u64).wrapping_neg();
        let word = self.word.fetch_add(minus, Ordering::Release);
        word.wrapping_add(minus) as i64 >= 0
    }

    /// Turns the writer that holds the cell into a reader. False when the cell is closed: then the
    /// holder's entry in the queue has still to be changed.
    #[must_use]
    pub(super) fn downgrade(&self) -> bool {
        let word = self.word.fetch_add(READER - WRITE, Ordering::Release);
        word & CLOSED == 0
    }

    /// One of the readers of a closed cell has got an entry of its own.
    pub(super) fn forget_reader(&self) {
        let word = self.word.fetch_sub(READER, Ordering::Release);
        debug_assert!(word & CLOSED != 0 && word & READERS != 0);
    }

    /// Closes an open cell. Its holders cannot go away before the caller releases the mutex.
    pub(super) fn close(&self) -> Option<Holding> {
        let word = self.word.fetch_or(CLOSED, Ordering::Acquire);
        debug_assert_eq!(word & CLOSED, 0);
        if word & HOLDERS == 0 {
            return None;
        }
        while !self.is_published(word) {
            // The holder is between its compare-and-swap and its publication, and perhaps off the
            // CPU.
            thread::yield_now();
        }
        let (access, count) = match word & WRITE {
            0 => (Access::Read, (word & READERS) / READER),
            _ => (Access::Write, 1),
        };
        Some(Holding {
            range: self.holds(),
            access,
            count: count as u32,
        })
    }

    /// Opens a closed cell whose holders have all left.
    pub(super) fn open(&self) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(word & HOLDERS, 0);
        debug_assert_ne!(word & CLOSED, 0);
        // Nobody else changes a closed word without holders. The number is new because the cell may
        // have come to another lock.
        self.word.store(next_sequence(word), Ordering::Release);
    }

    /// Makes a cell that was never open that of the one holder for whom `node` stands.
    pub(super) fn represent(&self, node: &'static Node, access: Access) {
        self.word
            .store(CLOSED | ALWAYS | access as u64, Ordering::Relaxed);
        // Its only user keeps it from being opened.
        self.users.store(1, Relaxed);
        self.imported.set(Some(node));
    }

    /// Forgets holders that were leaked. The cell stays closed.
    pub(super) fn reset(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word
            .store(word & SEQUENCE | CLOSED | ALWAYS, Ordering::Release);
        self.users.store(0, Relaxed);
        self.imported.set(None);
    }
}

/// How a cell was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// It was empty.
    Emptied,
    /// It was empty, and this was one of many.
    Sample,
    /// Readers of the range had it.
    Joined,
}
