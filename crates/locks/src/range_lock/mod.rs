//! [`RangeLock`]: shared and exclusive locks over ranges of a file's offsets.
//!
//! # Interface
//! Ranges are half-open, `start..end` in bytes; an `end` of `u64::MAX` means "to the end, wherever
//! that is". One that does not end after its start is empty and conflicts with nothing. Readers
//! share; a writer excludes readers and writers of overlapping ranges. Disjoint ranges never wait
//! for each other. A holder that panics releases its range.
//!
//! Requests that conflict are granted in the order of their arrival in the queue; a waiter is woken
//! exactly when the last holder in its way leaves. A request that conflicts with a holder may look
//! a few times before it arrives (`spin`), which is bounded; nobody passes one that has arrived.
//!
//! # Data model
//! | Module | What |
//! |---|---|
//! | this | what users call; releasing and reducing |
//! | `request` | how a request gets its range: a cell, spinning, the queue; appending |
//! | `cell` | the one-word fast path: one range, held by a writer or by readers of the same range |
//! | `spread` | groups of cells that contended locks borrow, and which cell a range belongs to |
//! | `queue`, `node` | requests in the order of their arrival, which block which; their memory |
//! | `slow` | what the mutex guards: the queue, and whether the lock is spread; **the invariants** |
//! | `wait` | sleeping until a grant, and telling the meter |
//! | `guard` | [`RangeGuard`], [`SendRangeGuard`] |
//!
//! A lock at rest is one [`Cell`](cell::Cell), the *home* cell, which a request takes by one
//! compare-and-swap. If it cannot, it goes to the queue under the mutex: it *closes* the cells on
//! which it lies, which turns their holders into entries of the queue with their exact ranges, and
//! waits for the entries before it with which it conflicts. Cells are opened again when no entry
//! lies on them.
//!
//! When 16 requests have met a disjoint range in the home cell, the lock *spreads*: it borrows 128
//! cells, and each segment of the file has one of them. The segments are as long as the requests
//! and their distances make useful then, and stay so. A request within one segment takes that
//! cell; all others go to the queue. The lock stays spread until it is dropped or
//! [`settle`](RangeLock::settle)d.
//!
//! # Why this structure
//! Rates beside the rivals, and the command, are in `docs/locks-bench.md`.
//! - *One mutex over an interval tree* (Linux, Lustre) is exact and FIFO, but every request writes
//!   the same lines twice: two threads on disjoint ranges are slower than one. Ours keeps its
//!   exactness and order for requests that must wait, and needs no tree: few requests wait at one
//!   time.
//! - *A sorted lock-free list* (Kogan et al.) does without the mutex, but all insert near the same
//!   nodes, each needs a node and reclamation, and order among waiters is left to chance.
//! - *A lock per segment* (pNOVA) lets disjoint requests write nothing in common, but it is a table
//!   for each file, takes a lock for each segment of a large range, and makes disjoint ranges
//!   within a segment wait. Ours borrows the table once there is contention, remembers the exact
//!   range in each cell, and sends whatever does not fit one cell to the queue.
//!
//! # Cost
//! Alone: one atomic instruction to take, one to release. No allocation on any path: entries of the
//! queue are static memory, of which there is enough for 1024 contended ranges in the process at a
//! time (then more is allocated, and kept). A lock is about 150 bytes; 256 locks can be spread at a
//! time, with 16 KiB each, and where all groups are lent a lock goes on in the queue.
//!
//! # Locking
//! The mutex is a leaf but for those of the node pool and of the groups, which are taken under it
//! and take nothing. It is held for the length of a scan of the queue, for the closing of cells,
//! and for the call of `append`'s `end_of_file`. A thread holds at most one range of one lock at a
//! time; ranges of several locks of a class only in the order of keys (`read_nested`,
//! `write_nested`).
//!
//! References: Linux range-lock proposals (Kara 2013, Bueso 2017); OpenZFS `zfs_rlock.c` for
//! append; Kogan, Dice, Issa, "Scalable range locks for scalable address spaces and beyond"
//! (EuroSys 2020); Kim et al., "pNOVA: Optimizing shared file I/O operations of NVM file system on
//! manycore servers" (APSys 2019) for segments.

mod cell;
mod guard;
mod node;
mod queue;
mod request;
mod slow;
mod spread;
mod wait;

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use finefs_lockmeter::{Kind, LockClass};

use crate::order::{self, OrderKey};
use crate::primitive::atomic::AtomicU64;
use crate::primitive::{Mutex, const_unless_loom};
use crate::wait::{LastCpu, MeteredLock};
use cell::Cell;
use node::Access;
use queue::Wakes;
use request::Patience;
use slow::Slow;

pub use guard::{RangeGuard, SendRangeGuard};

/// Shared and exclusive locks over ranges of offsets.
///
/// # Ranges
/// A range is half-open, `start..end`, in bytes or whatever the offsets count. An `end` of
/// `u64::MAX` means "to the end, wherever that is". A range that does not end after its start is
/// empty: it is granted at once, and conflicts with nothing. Readers share; a writer excludes
/// readers and writers of ranges that overlap its own. Disjoint ranges never wait for each other.
///
/// # Order
/// Requests that conflict, because they overlap and not both read, are granted in the order of
/// their arrival: no request passes one that waits, so none starves, and a waiter is woken when the
/// last holder in its way leaves. (Before it arrives, a request looks a few times whether a
/// conflicting holder has left already.) Requests that do not conflict pass each other.
///
/// # One range of one lock at a time
/// A thread that holds a range must not wait for another one of the same lock, even for a disjoint
/// or a shared one: by the order above it would stand behind requests that wait for what it holds.
/// The order checker (debug builds, and the feature `order-check`) panics with "re-entry into a
/// lock". Instead:
/// - take one range that covers both, and [`shrink`](RangeGuard::shrink) it once less is needed;
/// - ask for more by [`try_read`](RangeLock::try_read) or [`try_write`](RangeLock::try_write),
///   which never wait; if they fail, give back what is held and begin anew;
/// - hand what is held to others as a [`SendRangeGuard`], whose holder must then need nothing of
///   this thread.
///
/// Ranges of several locks of one class are taken in the order of keys
/// ([`read_nested`](RangeLock::read_nested), [`write_nested`](RangeLock::write_nested)).
///
/// # Cost
/// A lock that one thread uses, or readers of one range, is a word: one atomic instruction to take,
/// one to release. Where threads keep meeting without conflict, it borrows 128 cells on cache lines
/// of their own, so that threads in different parts of the file write nothing in common. What
/// conflicts, and what lies in more than one such part, goes through a queue under a mutex.
///
/// Nothing is allocated, whether a request waits or not, but beyond 1024 ranges that are contended
/// in the process at one time: then there are 256 more, which are kept. Rates beside other range
/// locks stand in `docs/locks-bench.md`.
///
/// # Example
/// ```
/// use finefs_locks::{LockClass, RangeLock};
/// static DATA: LockClass = LockClass::new("example.data", 10);
/// let data = RangeLock::new(&DATA);
/// let low = data.write(0..4096);
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         assert!(data.try_write(4096..8192).is_some());
///         assert!(data.try_read(4095..4097).is_none());
///     });
/// });
/// drop(low);
/// ```
#[derive(Debug)]
pub struct RangeLock {
    home: Cell,
    /// Where requests go ([`Placement`](spread::Placement)); 0: to the home cell.
    spread: AtomicU64,
    slow: Mutex<Slow>,
    class: &'static LockClass,
    last_cpu: LastCpu,
}

fn kind(access: Access) -> Kind {
    match access {
        Access::Read => Kind::Reader,
        Access::Write => Kind::Writer,
    }
}

impl RangeLock {
    const_unless_loom! {
        /// A lock of which no range is held.
        pub const fn new(class: &'static LockClass) -> RangeLock {
            RangeLock {
                home: Cell::opened(),
                spread: AtomicU64::new(0),
                slow: Mutex::new(Slow::new()),
                class,
                last_cpu: LastCpu::new(),
            }
        }
    }

    /// Takes a range shared.
    #[inline]
    #[track_caller]
    pub fn read(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.lock(range, Access::Read, None)
    }

    /// Takes a range exclusively.
    #[inline]
    #[track_caller]
    pub fn write(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.lock(range, Access::Write, None)
    }

    /// Takes all from `start` on exclusively: what a truncation to `start` needs.
    #[inline]
    #[track_caller]
    pub fn write_to_end(&self, start: u64) -> RangeGuard<'_> {
        self.write(start..u64::MAX)
    }

    /// Takes a range shared where ranges of other locks of the class may be held: legal when
    /// `order_key` is greater than theirs.
    #[track_caller]
    pub fn read_nested(&self, range: Range<u64>, order_key: u64) -> RangeGuard<'_> {
        self.lock(range, Access::Read, Some((order_key, 0)))
    }

    /// Takes a range exclusively where ranges of other locks of the class may be held: legal when
    /// `order_key` is greater than theirs.
    #[track_caller]
    pub fn write_nested(&self, range: Range<u64>, order_key: u64) -> RangeGuard<'_> {
        self.lock(range, Access::Write, Some((order_key, 0)))
    }

    /// Takes a range shared if that needs no waiting.
    #[track_caller]
    pub fn try_read(&self, range: Range<u64>) -> Option<RangeGuard<'_>> {
        self.try_lock(range, Access::Read)
    }

    /// Takes a range exclusively if that needs no waiting.
    #[track_caller]
    pub fn try_write(&self, range: Range<u64>) -> Option<RangeGuard<'_>> {
        self.try_lock(range, Access::Write)
    }

    /// Takes a range shared, waiting no longer than `timeout`.
    #[track_caller]
    pub fn read_timeout(&self, range: Range<u64>, timeout: Duration) -> Option<RangeGuard<'_>> {
        self.lock_until(range, Access::Read, Patience::at_most(timeout))
    }

    /// Takes a range exclusively, waiting no longer than `timeout`.
    #[track_caller]
    pub fn write_timeout(&self, range: Range<u64>, timeout: Duration) -> Option<RangeGuard<'_>> {
        self.lock_until(range, Access::Write, Patience::at_most(timeout))
    }

    /// Takes a range shared, waiting no longer than until `deadline`.
    #[track_caller]
    pub fn read_deadline(&self, range: Range<u64>, deadline: Instant) -> Option<RangeGuard<'_>> {
        self.lock_until(range, Access::Read, Patience::Until(deadline))
    }

    /// Takes a range exclusively, waiting no longer than until `deadline`.
    #[track_caller]
    pub fn write_deadline(&self, range: Range<u64>, deadline: Instant) -> Option<RangeGuard<'_>> {
        self.lock_until(range, Access::Write, Patience::Until(deadline))
    }

    /// Takes all from the end of file on exclusively. The end of file is fixed when the lock is
    /// granted: it is the start of the guard's range.
    ///
    /// `end_of_file` gives the end of file at the moment of its call. It may be called more than
    /// once, must only read (an atomic, say), and must not take locks. A thread that raises the end
    /// of file must hold the range that it writes; one that lowers it must hold all from the new
    /// end on.
    #[track_caller]
    pub fn append(&self, end_of_file: impl Fn() -> u64) -> RangeGuard<'_> {
        self.lock_append(end_of_file)
    }

    /// The class.
    pub fn class(&self) -> &'static LockClass {
        self.class
    }

    /// True when the one-word fast path is open or in use, that is, when the lock is not spread, no
    /// more than one range is held (though perhaps by several readers), and nobody waits. For tests
    /// and statistics.
    pub fn is_fast(&self) -> bool {
        !self.home.is_closed()
    }

    /// Brings a lock that is spread after contention back to its one word, if nobody holds a range:
    /// for a caller that knows that there will be no user for a while, as when a file is closed.
    /// The number of locks that can be spread at one time is limited. True when the lock is back.
    #[inline]
    pub fn settle(&self) -> bool {
        if !self.is_fast() {
            self.slow.lock().settle(self);
        }
        self.is_fast()
    }

    #[inline]
    #[track_caller]
    fn lock(&self, range: Range<u64>, access: Access, key: Option<OrderKey>) -> RangeGuard<'_> {
        let held = order::acquire(self.class, key, self.address());
        let Some((cell, holding)) = self.request(&range, access, Patience::Endless) else {
            unreachable!("endless patience");
        };
        RangeGuard::new(self, range, access, cell, held, holding)
    }

    #[track_caller]
    fn try_lock(&self, range: Range<u64>, access: Access) -> Option<RangeGuard<'_>> {
        let (cell, holding) = self.request(&range, access, Patience::None)?;
        let held = order::acquired_by_try(self.class, None, self.address());
        Some(RangeGuard::new(self, range, access, cell, held, holding))
    }

    #[track_caller]
    fn lock_until(
        &self,
        range: Range<u64>,
        access: Access,
        patience: Patience,
    ) -> Option<RangeGuard<'_>> {
        let held = order::acquire(self.class, None, self.address());
        let (cell, holding) = self.request(&range, access, patience)?;
        Some(RangeGuard::new(self, range, access, cell, held, holding))
    }

    #[inline]
    fn release(&self, cell: &Cell, access: Access) {
        if !cell.leave(access) {
            self.leave_closed(cell);
        }
    }

    #[cold]
    #[inline(never)]
    fn leave_closed(&self, cell: &Cell) {
        let mut wakes = Wakes::default();
        self.slow.lock().leave_cell(self, cell, &mut wakes);
    }

    /// Changes a holding to a part of its range. Returns its cell, which may be another one.
    fn shrink<'a>(&'a self, cell: &'a Cell, range: &Range<u64>, access: Access) -> &'a Cell {
        let mut wakes = Wakes::default();
        let mut slow = self.slow.lock();
        slow.close(cell);
        let Some(node) = cell.imported.get() else {
            unreachable!("closing brought the holder into the queue");
        };
        if node.count.load(Relaxed) > 1 {
            // The others keep the range.
            let own = node::take();
            own.prepare(range, access);
            own.set_cells(slow.enter(self, range));
            slow.queue.split(node, own);
            cell.forget_reader();
            return &own.cell;
        }
        slow.queue.reduce(node, range, access, &mut wakes);
        drop(slow);
        cell
    }

    /// Turns an exclusive holding into a shared one.
    fn downgrade(&self, cell: &Cell, range: &Range<u64>) {
        if cell.downgrade() {
            return;
        }
        let mut wakes = Wakes::default();
        let mut slow = self.slow.lock();
        if let Some(node) = cell.imported.get() {
            slow.queue.reduce(node, range, Access::Read, &mut wakes);
        }
        drop(slow);
    }
}

impl MeteredLock for RangeLock {
    #[inline]
    fn parts(&self) -> (&'static LockClass, &LastCpu) {
        (self.class, &self.last_cpu)
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        self.slow.get_mut().abandon();
    }
}
