//! [`Cell`]: the one-word fast path. Holds one range at a time: a writer's, or that of any number
//! of readers who ask for the very same one.
//!
//! Every guard knows its holding by a cell: the one that it took or, where it came by the queue or
//! is metered, one in its node that is always closed. So all leave alike.
//!
//! # Data model
//! The word, from the lowest bit:
//! - COUNT: a number that rises with every holding; its highest bit is SAMPLE: the next who looks
//!   at it before he comes makes a sample (`take_or_join`), which lets it start anew;
//! - READERS: the number of readers less one; all bits set, when there are none;
//! - TAKEN: somebody holds the cell, or whoever comes has to look closer;
//! - ALWAYS, which is always set: while the meter counts all acquisitions it makes `take_if` fail,
//!   by the one test that it has (`finefs_lockmeter::hindrances`);
//! - a sequence number, of which COUNT is the low part;
//! - CLOSED, the sign: no holder comes any more, and who leaves goes to the lock's queue.
//!
//! | State | TAKEN | READERS | COUNT | who leaves makes of it |
//! |---|---|---|---|---|
//! | empty | 0 | all set | 1 and more | |
//! | a writer | 1 | all set | 1 and more | empty, COUNT one more; or due, by the carry |
//! | n readers | 1 | n - 1 | 1 and more | n - 1 readers; or empty, by the borrow |
//! | due: nobody | 1 | 0 | 0 | |
//! | closed: nobody | 1 | 0 | 0 | |
//! | closed: a writer | 1 | all set | all set | closed: nobody, by the carry |
//! | closed: n readers | 1 | n | 0 | closed: n - 1 readers, or nobody |
//!
//! So a writer comes by setting a bit, without knowing the word, and each who leaves does so by one
//! subtraction: a writer's takes TAKEN away and adds 1, of which the carry runs through READERS and
//! puts TAKEN back, once COUNT is full (then the cell is *due* for a sample) or was filled up by
//! who closed the cell. Readers, who must find each other, come by compare-and-swap.
//!
//! A writer's range is `writer_start..writer_end`; `writer_start` is UNPUBLISHED while there is
//! none. Ranges of writers that start there are none of a cell: they are in the queue. The readers'
//! range counts when `published` has the word's number.
//!
//! # Invariants
//! 1. Holders come only while the cell is open. A word of an open cell never comes again with the
//!    same number and another range: it names one holding.
//! 2. `close`, `open` and the use of `users` and `imported` are for who holds the lock's mutex.
//! 3. A cell opens only when its word shows no holder: every holder that `close` found has left the
//!    word and, under the mutex, its entry in the queue.
//! 4. `writer_start` is UNPUBLISHED whenever a writer comes: each who leaves stores that before,
//!    and so does `open`.
//!
//! # Orderings
//! Taking is an acquire, leaving a release, both read-modify-writes, so that a writer sees what all
//! readers before it did. (Who takes by compare-and-swap has acquired what it did by its look
//! already.) `close` is an acquire: what the cell's holders did happens before what the queue
//! grants. `open` is a release: what the queue's holders did happens before the next taker. For who
//! closes, `writer_start` is never older than the writer before the one it found.

use std::ops::Range;
use std::sync::atomic::{AtomicU32 as GuardedU32, Ordering::Relaxed};

use finefs_lockmeter as lockmeter;

#[cfg(not(any(loom, feature = "shuttle")))]
use super::node::overlaps;
use super::node::{Access, Link, Node};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::{const_unless_loom, thread};

/// The highest bit of COUNT: about one holder in so many makes a sample.
#[cfg(not(any(loom, feature = "shuttle")))]
const SAMPLE: u64 = 1 << 10;
#[cfg(any(loom, feature = "shuttle"))]
const SAMPLE: u64 = 1 << 2;
const COUNT: u64 = SAMPLE | (SAMPLE - 1);
const READER: u64 = COUNT + 1;
const TAKEN: u64 = 1 << 30;
const READERS: u64 = TAKEN - READER;
const ALWAYS: u64 = lockmeter::ALWAYS as u64;
const UPPER_ONE: u64 = ALWAYS << 1;
const CLOSED: u64 = 1 << 63;
const UPPER: u64 = !CLOSED & !(UPPER_ONE - 1);
/// The number of a holding of readers, and of an empty cell.
const NUMBER: u64 = UPPER | COUNT;

/// What leaving takes from the word.
pub(super) const READER_LEAVES: u64 = READER;
pub(super) const WRITER_LEAVES: u64 = TAKEN - 1;

/// What keeps who looks first from taking an empty cell.
const HINDRANCES: u64 = TAKEN | SAMPLE;

/// In `writer_start`: no writer has stored a range.
pub(super) const UNPUBLISHED: u64 = u64::MAX;

/// HINDRANCES, and ALWAYS when the meter wants to know of acquisitions that do not wait.
#[inline(always)]
pub(super) fn hindrances() -> u64 {
    if cfg!(any(loom, feature = "shuttle")) {
        // In models a sample is so frequent that its bit is below those that the meter looks at.
        HINDRANCES
    } else {
        const { assert!(HINDRANCES == lockmeter::HINDRANCES as u64 || SAMPLE < 1 << 10) };
        u64::from(lockmeter::hindrances())
    }
}

/// True when the meter wants to know of acquisitions that do not wait.
pub(super) fn is_metering() -> bool {
    hindrances() & ALWAYS != 0
}

/// True when a writer may take the home cell without a look at it. Never so for a range that starts
/// at UNPUBLISHED.
#[inline(always)]
fn may_go_straight(start: u64) -> bool {
    #[cfg(not(any(loom, feature = "shuttle")))]
    return lockmeter::may_go_straight(start);
    #[cfg(any(loom, feature = "shuttle"))]
    return start != UNPUBLISHED && model_goes_straight();
}

/// In models that is left to chance: the meter's word belongs to all executions.
#[cfg(all(feature = "shuttle", not(loom)))]
fn model_goes_straight() -> bool {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_bool(0.75)
}

#[cfg(loom)]
fn model_goes_straight() -> bool {
    true
}

/// Tells the compiler where the fast path falls through.
#[inline(always)]
fn is_likely(is_so: bool) -> bool {
    if !is_so {
        std::hint::cold_path();
    }
    is_so
}

/// An empty, open cell with a new number, for one without holders. `count` is at least 1.
fn renewed(word: u64, count: u64) -> u64 {
    (word & UPPER).wrapping_add(UPPER_ONE) & UPPER | ALWAYS | READERS | count
}

/// Who holds the cell, and how many they are.
fn holders(word: u64) -> Option<(Access, u32)> {
    if word & TAKEN == 0 {
        return None;
    }
    match word & READERS {
        READERS => Some((Access::Write, 1)),
        fewer => {
            let count = (fewer / READER) as u32 + u32::from(word & COUNT != 0);
            (count > 0).then_some((Access::Read, count))
        }
    }
}

/// The same cell with these holders, closed.
fn closed(word: u64, holders: Option<(Access, u32)>) -> u64 {
    let holders = match holders {
        None => 0,
        Some((Access::Write, _)) => READERS | COUNT,
        Some((Access::Read, count)) => u64::from(count) * READER,
    };
    word & UPPER | CLOSED | ALWAYS | TAKEN | holders
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Cell {
    word: AtomicU64,
    writer_start: AtomicU64,
    writer_end: AtomicU64,
    published: AtomicU64,
    readers_start: AtomicU64,
    readers_end: AtomicU64,
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
                word: AtomicU64::new(ALWAYS | READERS | 1),
                writer_start: AtomicU64::new(UNPUBLISHED),
                writer_end: AtomicU64::new(0),
                published: AtomicU64::new(0),
                readers_start: AtomicU64::new(0),
                readers_end: AtomicU64::new(0),
                users: GuardedU32::new(0),
                imported: Link::none(),
            }
        }
    }

    const_unless_loom! {
        /// A closed cell without holders.
        pub const fn closed() -> Cell {
            Cell {
                word: AtomicU64::new(CLOSED | ALWAYS | TAKEN),
                writer_start: AtomicU64::new(UNPUBLISHED),
                writer_end: AtomicU64::new(0),
                published: AtomicU64::new(0),
                readers_start: AtomicU64::new(0),
                readers_end: AtomicU64::new(0),
                users: GuardedU32::new(0),
                imported: Link::none(),
            }
        }
    }

    /// The node that this is the cell of, if it is one's. For who holds the cell.
    pub(super) fn own_node(&self) -> Option<&'static Node> {
        // Read without the mutex: a cell that is not a node's may have any node here, but not one
        // whose cell it is.
        self.imported
            .get()
            .filter(|node| std::ptr::eq(&raw const node.cell, self))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Takes an open and empty cell, unless a sample is due or the meter wants to know. A writer
    /// does so without a look at it, if it [may go straight](may_go_straight).
    #[inline(always)]
    pub(super) fn take(&self, range: &Range<u64>, access: Access) -> bool {
        if access == Access::Read {
            return self.take_if(hindrances(), range, access, || true);
        }
        let is_taken = may_go_straight(range.start)
            && is_likely(self.word.fetch_or(TAKEN, Ordering::Acquire) & TAKEN == 0);
        if is_taken {
            self.publish_write(range);
        }
        is_taken
    }

    /// Takes an open and empty cell if it is `ours` (see `take_or_join`), unless a sample is due or
    /// the meter wants to know. `hindrances` are what [`hindrances`] gave.
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

    /// Takes an empty cell, or joins readers of the same range, if the cell is `ours`: `ours` is
    /// asked after the word was read, and the word must not change from then on.
    #[inline]
    pub(super) fn take_or_join(
        &self,
        range: &Range<u64>,
        access: Access,
        ours: impl Fn() -> bool,
    ) -> Option<Taken> {
        // Acquire: `ours` looks after this.
        let word = self.word.load(Ordering::Acquire);
        if word & CLOSED != 0 {
            return None;
        }
        if holders(word).is_none() {
            let (base, taken) = match word & HINDRANCES {
                0 => (word, Taken::Emptied),
                // Writers that nobody else looks after are due when COUNT is full.
                TAKEN if access == Access::Write => (renewed(word, SAMPLE + 1), Taken::Sample),
                _ => (renewed(word, 1), Taken::Sample),
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

    /// `base` is `seen` or, for one that is due, an empty cell with a new number.
    #[inline(always)]
    fn take_from(&self, seen: u64, base: u64, range: &Range<u64>, access: Access) -> bool {
        let word = match access {
            Access::Write => base | TAKEN,
            // The carry of READERS.
            Access::Read => base + READER + 1,
        };
        let exchange = self
            .word
            .compare_exchange(seen, word, Ordering::Acquire, Ordering::Relaxed);
        let is_taken = is_likely(exchange.is_ok());
        if is_taken {
            match access {
                Access::Write => self.publish_write(range),
                Access::Read => self.publish_read(word, range),
            }
        }
        is_taken
    }

    /// Takes an empty cell for writing without publishing the range: `publish_write` must follow,
    /// soon, or the cell be left.
    pub(super) fn take_unpublished(&self) -> bool {
        let empty = self.word.load(Ordering::Relaxed);
        let taken = empty | TAKEN;
        empty & HINDRANCES == 0
            && self
                .word
                .compare_exchange(empty, taken, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    #[inline(always)]
    pub(super) fn publish_write(&self, range: &Range<u64>) {
        debug_assert_ne!(range.start, UNPUBLISHED);
        self.writer_end.store(range.end, Ordering::Relaxed);
        // Release: whoever sees the start sees the end.
        self.writer_start.store(range.start, Ordering::Release);
    }

    #[inline(always)]
    fn publish_read(&self, word: u64, range: &Range<u64>) {
        self.readers_start.store(range.start, Ordering::Relaxed);
        self.readers_end.store(range.end, Ordering::Relaxed);
        // Release: whoever sees this number sees the range.
        self.published.store(word, Ordering::Release);
    }

    /// The range of the readers of whom `word` tells, if it is visible yet.
    fn read_range(&self, word: u64) -> Option<Range<u64>> {
        let is_published = (self.published.load(Ordering::Acquire) ^ word) & NUMBER == 0;
        let range =
            || self.readers_start.load(Ordering::Relaxed)..self.readers_end.load(Ordering::Relaxed);
        is_published.then(range)
    }

    /// The writer's range, if it is visible yet, and still.
    fn written_range(&self) -> Option<Range<u64>> {
        let start = self.writer_start.load(Ordering::Acquire);
        (start != UNPUBLISHED).then(|| start..self.writer_end.load(Ordering::Relaxed))
    }

    /// True when `word` says that readers of just this range hold an open cell.
    ///
    /// Should the holders change meanwhile, so does the word. While it has not, no later holder can
    /// have overwritten the range that was read here.
    fn is_read_of(&self, word: u64, range: &Range<u64>) -> bool {
        // One more fits, and then one more for `closed`.
        word & READERS < READERS - 2 * READER && self.read_range(word).as_ref() == Some(range)
    }

    /// Why the cell cannot be taken now; a guess, for choosing between spinning and queueing up.
    #[cfg(not(any(loom, feature = "shuttle")))]
    pub(super) fn hindrance(&self, range: &Range<u64>, access: Access) -> Hindrance {
        let word = self.word.load(Ordering::Relaxed);
        if word & CLOSED != 0 {
            return Hindrance::Closed;
        }
        let is_needless = match holders(word) {
            None => return Hindrance::None,
            // Readers of the same range are joined, unless they are not visible yet.
            Some((Access::Read, _)) => self.read_range(word).is_some_and(|held| {
                access == Access::Read && held != *range || !overlaps(&held, range)
            }),
            Some((Access::Write, _)) => self
                .written_range()
                .is_some_and(|held| !overlaps(&held, range)),
        };
        match is_needless {
            true => Hindrance::Needless,
            false => Hindrance::Conflict,
        }
    }

    /// Leaves. False when the cell is closed: then the holder's entry is in the queue, from which
    /// it must be taken.
    #[inline(always)]
    #[must_use]
    pub(super) fn leave(&self, access: Access) -> bool {
        if access == Access::Write {
            // The leaving is a release: the next writer comes after this.
            self.writer_start.store(UNPUBLISHED, Ordering::Relaxed);
        }
        // Adding the complement, and CLOSED being the sign, make this one instruction and one jump.
        let minus = (access as u64).wrapping_neg();
        let word = self.word.fetch_add(minus, Ordering::Release);
        word.wrapping_add(minus) as i64 >= 0
    }

    /// Turns the writer that holds the cell into a reader of `range`, which is his. False when the
    /// cell is closed: then the holder's entry in the queue has still to be changed.
    #[must_use]
    pub(super) fn downgrade(&self, range: &Range<u64>) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let is_open = word & CLOSED == 0;
            let reader = if is_open {
                let reader = (word & !READERS).wrapping_add(UPPER_ONE) & !CLOSED;
                self.publish_read(reader, range);
                reader
            } else {
                closed(word, Some((Access::Read, 1)))
            };
            let exchange =
                self.word
                    .compare_exchange(word, reader, Ordering::Release, Ordering::Relaxed);
            match exchange {
                Ok(_) if is_open => {
                    self.writer_start.store(UNPUBLISHED, Ordering::Relaxed);
                    return true;
                }
                // Who closed the cell may look for the writer's range yet.
                Ok(_) => return false,
                Err(changed) => word = changed,
            }
        }
    }

    /// One of the readers of a closed cell has got an entry of its own.
    pub(super) fn forget_reader(&self) {
        let word = self.word.fetch_sub(READER, Ordering::Release);
        debug_assert!(word & CLOSED != 0 && word & READERS != 0);
    }

    /// Closes an open cell. Its holders cannot go away before the caller releases the mutex.
    pub(super) fn close(&self) -> Option<Holding> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert_eq!(word & CLOSED, 0);
            let exchange = self.word.compare_exchange(
                word,
                closed(word, holders(word)),
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match exchange {
                Ok(_) => break,
                Err(changed) => word = changed,
            }
        }
        let (access, count) = holders(word)?;
        let range = loop {
            let published = match access {
                Access::Read => self.read_range(word),
                Access::Write => self.written_range().or_else(|| self.left_range()),
            };
            match published {
                Some(range) => break range,
                // The holder is between its taking and its publication, or between the end of that
                // and its leaving, and perhaps off the CPU.
                None => thread::yield_now(),
            }
        };
        Some(Holding {
            range,
            access,
            count,
        })
    }

    /// What the writer that a closing found holds, once it has left: nothing. It will yet look for
    /// an entry in the queue.
    fn left_range(&self) -> Option<Range<u64>> {
        let has_left = holders(self.word.load(Ordering::Acquire)).is_none();
        // Beside where it was, which is of interest to `Policy`.
        let end = || self.writer_end.load(Ordering::Relaxed);
        has_left.then(|| end()..end())
    }

    /// Opens a closed cell whose holders have all left.
    pub(super) fn open(&self) {
        let word = self.word.load(Ordering::Relaxed);
        debug_assert_eq!(holders(word), None);
        debug_assert_ne!(word & CLOSED, 0);
        // Of who downgraded after the closing.
        self.writer_start.store(UNPUBLISHED, Ordering::Relaxed);
        // The number is new because the cell may have come to another lock. A swap, since who goes
        // straight to a closed home cell writes its word too, though it stays the same.
        let closed = self.word.swap(renewed(word, 1), Ordering::Release);
        debug_assert_eq!(closed, word, "nobody changes a closed word without holders");
    }

    /// Makes a cell that was never open that of the one holder for whom `node` stands.
    pub(super) fn represent(&self, node: &'static Node, access: Access) {
        self.word
            .store(closed(0, Some((access, 1))), Ordering::Relaxed);
        // Its only user keeps it from being opened.
        self.users.store(1, Relaxed);
        self.imported.set(Some(node));
    }

    /// Forgets holders that were leaked. The cell stays closed.
    pub(super) fn reset(&self) {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store(closed(word, None), Ordering::Release);
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
