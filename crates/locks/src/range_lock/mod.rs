//! [`RangeLock`]: shared and exclusive locks over ranges of a file's offsets.
//!
//! # Interface
//! Ranges are half-open, `start..end` in bytes; an `end` of `u64::MAX` means "to the end, wherever
//! that is". One that does not end after its start is empty and conflicts with nothing. Readers
//! share; a writer excludes readers and writers of overlapping ranges. Disjoint ranges never wait
//! for each other. A holder that panics releases its range.
//!
//! Requests that conflict are granted in the order of their arrival in the queue, whoever comes
//! later; who waits is woken exactly when the last one in its way leaves. A request that conflicts
//! with a holder may look a few times before it arrives (`spin`), which is bounded; nobody passes
//! one that has arrived.
//!
//! # Data model
//! | Module | What |
//! |---|---|
//! | this | what users call; the fast path; releasing and reducing |
//! | `request` | requests that do not have it so easy: spread, spinning, queued |
//! | `append` | the append mode |
//! | `cell` | the one-word fast path: one range, held by a writer or by readers of the same range |
//! | `spread` | groups of cells that a lock under contention borrows, and who goes to which |
//! | `queue`, `node` | the exact slow path: requests in the order of their arrival, who blocks whom |
//! | `slow` | what the mutex guards: queue and modes; **the invariants** |
//! | `policy` | when to spread, in segments of what length, and when to go home |
//! | `wait` | sleeping until a grant, and telling the meter |
//! | `seat` | what a holding that the meter watches keeps, and where |
//! | `guard` | [`RangeGuard`], [`SendRangeGuard`] |
//!
//! A lock at rest is one [`Cell`](cell::Cell), the *home* cell. A request first tries to take a
//! cell: a writer by setting one bit of the home cell's word, all others by one compare-and-swap.
//! If it cannot, it goes to the queue under the mutex: it *closes* the cells that it lies on, which
//! turns their holders into entries of the queue with their exact ranges, and waits for the entries
//! before it that it conflicts with. Cells are opened again when no entry lies on them. When
//! requests keep meeting without conflict, the lock *spreads* over 128 cells: where all read, each
//! thread has a cell for whatever it reads; else in segments that become longer or shorter as
//! requests need them. When one thread is alone again, or too many requests need many cells, it
//! goes home.
//!
//! # Why this structure
//! Rates and instruction counts beside the rivals, and the command, are in `docs/locks-bench.md`.
//! - *One mutex over an interval tree* (Linux, Lustre) is exact and FIFO, but every request writes
//!   the same lines twice: two threads on disjoint ranges are slower than one. Ours keeps its
//!   exactness and order for those who must wait, and needs no tree: few requests wait at one time.
//! - *A sorted lock-free list* (Kogan et al.) does without the mutex, but all insert near the same
//!   nodes, each needs a node and reclamation, and order among those who wait is left to chance.
//! - *A lock per segment* (pNOVA) lets disjoint requests write nothing in common: what a scalable
//!   lock must do. But it has a table for each file, takes a lock for each segment of a large
//!   range, and makes disjoint ranges within a segment wait. So ours borrows the table while there
//!   is contention, remembers the exact range in each cell, and sends whatever does not fit one
//!   cell to the queue.
//! - *A word* costs least for one user or readers of one range: home.
//!
//! # Cost
//! Alone: one atomic instruction to take, one to release; 12 instructions to write and 15 to read,
//! with all (`docs/locks-bench.md` says where they go, and what was weighed to have fewer). One
//! word of the process says whether requests may go straight to the home cell. They may not while
//! the meter counts all acquisitions, nor while any lock is spread, since all requests to that lock
//! would write the line of its home cell: then they look at their lock first, which costs those to
//! other locks some instructions more. Spread: three loads of lines that nobody writes besides. No
//! allocation on any path: entries of the queue are static memory, of which there is enough for
//! 1024 contended ranges in the process at a time (then more is allocated, and kept). A lock is
//! about 150 bytes; a session borrows one of 64 groups of 16 KiB, and where all are lent a lock
//! goes on without, in the queue. A holding that the meter watches has an entry of its own, which
//! is in no queue.
//!
//! # Locking
//! The mutex is a leaf but for the mutexes of the node pool, of the groups and of the word that
//! sends requests round (`finefs_lockmeter::begin_detour`), which are taken under it and take
//! nothing. It is held for the length of a scan of the queue, for the closing of cells, and for the
//! call of `append`'s `end_of_file`. A thread holds at most one range of one lock at a time; ranges
//! of several locks of a class only in the order of keys (`read_nested`, `write_nested`).
//!
//! References: Linux range-lock proposals (Kara 2013, Bueso 2017); OpenZFS `zfs_rlock.c` for
//! append; Kogan, Dice, Issa, "Scalable range locks for scalable address spaces and beyond"
//! (EuroSys 2020); Kim et al., "pNOVA: Optimizing shared file I/O operations of NVM file system on
//! manycore servers" (APSys 2019) for segments; Dice, Kogan, "BRAVO: Biased Locking for
//! Reader-Writer Locks" (ATC 2019) for spreading readers.

mod append;
mod cell;
mod guard;
mod node;
mod policy;
mod queue;
mod request;
mod seat;
mod slow;
mod spread;
mod wait;

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use finefs_lockmeter::{Kind, LockClass};

use crate::order::{self, OrderKey};
use crate::primitive::atomic::{AtomicU32, AtomicU64};
use crate::primitive::{Mutex, const_unless_loom};
use crate::wait::{Holding, LastCpu, MeteredLock};
use cell::Cell;
use node::Access;
use queue::Wakes;
use request::Patience;
use seat::Seat;
use slow::Slow;

pub use guard::{RangeGuard, SendRangeGuard};

/// Shared and exclusive locks over ranges of offsets.
///
/// # Ranges
/// A range is half-open, `start..end`, in bytes or whatever the offsets count. An `end` of
/// `u64::MAX` means "to the end, wherever that is". A range that does not end after its start is
/// empty: it is granted at once, and conflicts with nothing. Readers share; a writer excludes
/// readers and writers of ranges that overlap his. Disjoint ranges never wait for each other.
///
/// # Order
/// Requests that conflict, because they overlap and not both read, are granted in the order of
/// their arrival: nobody passes a request that waits, so nobody starves, and who waits is woken
/// when the last one in its way leaves. (Before it arrives, a request looks a few times whether a
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
/// one to release. Where threads keep meeting without conflict, the lock borrows 128 cells on cache
/// lines of their own and spreads over them: readers by thread, others by parts of the file that
/// become longer or shorter as their ranges need them; then they write nothing in common. It goes
/// back to its word when one thread is left. What conflicts, and what lies in more than one such
/// part, goes through a queue under a mutex.
///
/// Nothing is allocated, whether a request waits or not, but beyond 1024 ranges that are contended
/// in the process at one time: then there are 256 more, which are kept. A lock is about 150 bytes.
///
/// # Why this structure
/// One mutex over a tree of ranges is exact and fair, but two threads on disjoint ranges are slower
/// with it than one alone. A lock for each segment of the file scales, but is a table for each file
/// and makes disjoint ranges wait. This one is a word while nothing else is needed, segments with
/// exact ranges under contention, and an exact queue for whoever must wait. Rates and instruction
/// counts beside other range locks stand in `docs/locks-bench.md`.
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
// In this order: where a lock is, there is its home cell.
#[repr(C)]
#[derive(Debug)]
pub struct RangeLock {
    home: Cell,
    /// The session's [`Placement`]; 0: requests take the home cell.
    spread: AtomicU64,
    /// Not 0 when requests that came to the queue lately had to wait: for those who think of
    /// spinning.
    pressure: AtomicU32,
    /// Requests that could not have their segment's cell at once, since the last sample.
    collisions: AtomicU32,
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
        ///
        /// ```
        /// # use finefs_locks::{LockClass, RangeLock};
        /// static CLASS: LockClass = LockClass::new("example", 10);
        /// static DATA: RangeLock = RangeLock::new(&CLASS);
        /// assert!(DATA.is_fast());
        /// ```
        pub const fn new(class: &'static LockClass) -> RangeLock {
            RangeLock {
                home: Cell::opened(),
                spread: AtomicU64::new(0),
                pressure: AtomicU32::new(0),
                collisions: AtomicU32::new(0),
                slow: Mutex::new(Slow::new()),
                class,
                last_cpu: LastCpu::new(),
            }
        }
    }

    /// Takes a range shared.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// let guard = data.read(0..10);
    /// assert!(data.try_read(5..15).is_some());
    /// # drop(guard);
    /// ```
    #[inline]
    #[track_caller]
    pub fn read(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.lock(range, Access::Read, None)
    }

    /// Takes a range exclusively.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// let guard = data.write(0..10);
    /// assert!(data.try_read(9..10).is_none());
    /// assert!(data.try_write(10..20).is_some());
    /// # drop(guard);
    /// ```
    #[inline]
    #[track_caller]
    pub fn write(&self, range: Range<u64>) -> RangeGuard<'_> {
        self.lock(range, Access::Write, None)
    }

    /// Takes all from `start` on exclusively: what a truncation to `start` needs.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// let guard = data.write_to_end(100);
    /// assert!(data.try_read(0..100).is_some());
    /// assert!(data.try_read(1 << 40..1 << 41).is_none());
    /// # drop(guard);
    /// ```
    #[inline]
    #[track_caller]
    pub fn write_to_end(&self, start: u64) -> RangeGuard<'_> {
        self.write(start..u64::MAX)
    }

    /// Takes a range shared where ranges of other locks of the class may be held: legal when
    /// `order_key` is greater than theirs.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// # let other = RangeLock::new(&CLASS);
    /// // The keys are the files' numbers, say.
    /// let _from = data.read_nested(0..10, 7);
    /// let _to = other.write_nested(0..10, 8);
    /// ```
    #[track_caller]
    pub fn read_nested(&self, range: Range<u64>, order_key: u64) -> RangeGuard<'_> {
        self.lock(range, Access::Read, Some((order_key, 0)))
    }

    /// Takes a range exclusively where ranges of other locks of the class may be held: legal when
    /// `order_key` is greater than theirs.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// # let other = RangeLock::new(&CLASS);
    /// let _from = data.write_nested(0..10, 7);
    /// let _to = other.write_nested(0..10, 8);
    /// ```
    #[track_caller]
    pub fn write_nested(&self, range: Range<u64>, order_key: u64) -> RangeGuard<'_> {
        self.lock(range, Access::Write, Some((order_key, 0)))
    }

    /// Takes a range shared if that needs no waiting.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// let guard = data.write(0..10);
    /// assert!(data.try_read(9..20).is_none());
    /// # drop(guard);
    /// ```
    #[track_caller]
    pub fn try_read(&self, range: Range<u64>) -> Option<RangeGuard<'_>> {
        self.try_lock(range, Access::Read)
    }

    /// Takes a range exclusively if that needs no waiting.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// let guard = data.read(0..10);
    /// assert!(data.try_write(9..20).is_none());
    /// # drop(guard);
    /// ```
    #[track_caller]
    pub fn try_write(&self, range: Range<u64>) -> Option<RangeGuard<'_>> {
        self.try_lock(range, Access::Write)
    }

    /// Takes a range shared, waiting no longer than `timeout`.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// # use std::time::{Duration, Instant};
    /// let guard = data.write(0..10);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(data.read_timeout(5..6, Duration::from_millis(1)).is_none()));
    /// });
    /// # drop(guard);
    /// ```
    #[track_caller]
    pub fn read_timeout(&self, range: Range<u64>, timeout: Duration) -> Option<RangeGuard<'_>> {
        self.lock_until(range, Access::Read, Patience::at_most(timeout))
    }

    /// Takes a range exclusively, waiting no longer than `timeout`.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// # use std::time::{Duration, Instant};
    /// let guard = data.write(0..10);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(data.write_timeout(5..6, Duration::from_millis(1)).is_none()));
    /// });
    /// # drop(guard);
    /// ```
    #[track_caller]
    pub fn write_timeout(&self, range: Range<u64>, timeout: Duration) -> Option<RangeGuard<'_>> {
        self.lock_until(range, Access::Write, Patience::at_most(timeout))
    }

    /// Takes a range shared, waiting no longer than until `deadline`.
    ///
    /// ```
    /// use finefs_locks::{LockClass, RangeLock};
    /// static DATA: LockClass = LockClass::new("example.data", 10);
    /// let data = RangeLock::new(&DATA);
    /// assert!(data.read_deadline(0..10, std::time::Instant::now()).is_some());
    /// ```
    #[track_caller]
    pub fn read_deadline(&self, range: Range<u64>, deadline: Instant) -> Option<RangeGuard<'_>> {
        self.lock_until(range, Access::Read, Patience::Until(deadline))
    }

    /// Takes a range exclusively, waiting no longer than until `deadline`.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// # use std::time::{Duration, Instant};
    /// let guard = data.write(0..10);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(data.write_deadline(5..6, Instant::now()).is_none()));
    /// });
    /// # drop(guard);
    /// ```
    #[track_caller]
    pub fn write_deadline(&self, range: Range<u64>, deadline: Instant) -> Option<RangeGuard<'_>> {
        self.lock_until(range, Access::Write, Patience::Until(deadline))
    }

    /// Takes all from the end of file on exclusively. The end of file is fixed when the lock is
    /// granted: it is the start of the guard's range.
    ///
    /// `end_of_file` gives the end of file at the moment of its call. It may be called more than
    /// once, must only read (an atomic, say), and must not take locks. Whoever raises the end of
    /// file must hold the range that it writes; whoever lowers it must hold all from the new end
    /// on.
    ///
    /// ```
    /// use finefs_locks::{LockClass, RangeLock};
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// static DATA: LockClass = LockClass::new("example.data", 10);
    /// let (data, size) = (RangeLock::new(&DATA), AtomicU64::new(100));
    /// let guard = data.append(|| size.load(Ordering::Acquire));
    /// assert_eq!(guard.range(), 100..u64::MAX);
    /// ```
    #[track_caller]
    pub fn append(&self, end_of_file: impl Fn() -> u64) -> RangeGuard<'_> {
        self.append_with_key(end_of_file, None)
    }

    /// Like [`RangeLock::append`], where ranges of other locks of the class may be held: legal when
    /// `order_key` is greater than theirs.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// let guard = data.append_nested(|| 100, 7);
    /// assert_eq!(guard.range().start, 100);
    /// ```
    #[track_caller]
    pub fn append_nested(&self, end_of_file: impl Fn() -> u64, order_key: u64) -> RangeGuard<'_> {
        self.append_with_key(end_of_file, Some((order_key, 0)))
    }

    /// The class.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// assert_eq!(data.class().name(), "example");
    /// ```
    pub fn class(&self) -> &'static LockClass {
        self.class
    }

    /// True when the one-word fast path is open or in use, that is, when the lock is not spread, no
    /// more than one range is held (though perhaps by several readers), and nobody waits. For tests
    /// and statistics.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let data = RangeLock::new(&CLASS);
    /// let one = data.read(0..10);
    /// assert!(data.is_fast());
    /// let other = data.try_read(5..20);
    /// assert!(!data.is_fast());
    /// # drop((one, other));
    /// ```
    pub fn is_fast(&self) -> bool {
        !self.home.is_closed()
    }

    /// Brings a lock that is spread after contention back to its one word, at once if nobody holds
    /// a range, else as soon as that is so. It goes back by itself once it has one user; this is
    /// for those who know that there will be no user for a while, as when a file is closed: the
    /// number of locks that can be spread at one time is limited. True when the lock is back.
    ///
    /// ```
    /// use finefs_locks::{LockClass, RangeLock};
    /// static DATA: LockClass = LockClass::new("example.data", 10);
    /// let data = RangeLock::new(&DATA);
    /// assert!(data.settle());
    /// ```
    pub fn settle(&self) -> bool {
        if !self.is_fast() {
            let mut slow = self.slow.lock();
            slow.drain();
            slow.rest(self);
        }
        self.is_fast()
    }

    #[inline]
    #[track_caller]
    fn lock(&self, range: Range<u64>, access: Access, key: Option<OrderKey>) -> RangeGuard<'_> {
        let held = order::acquire(self.class, key, self.address());
        let cell = if self.home.take(&range, access) {
            &self.home
        } else {
            std::hint::cold_path();
            self.lock_indirectly(&range, access)
        };
        RangeGuard::new(self, range, access, cell, held)
    }

    #[track_caller]
    fn try_lock(&self, range: Range<u64>, access: Access) -> Option<RangeGuard<'_>> {
        let cell = self.request(&range, access, Patience::None)?;
        let held = order::acquired_by_try(self.class, None, self.address());
        Some(RangeGuard::new(self, range, access, cell, held))
    }

    #[track_caller]
    fn lock_until(
        &self,
        range: Range<u64>,
        access: Access,
        patience: Patience,
    ) -> Option<RangeGuard<'_>> {
        let held = order::acquire(self.class, None, self.address());
        let cell = self.request(&range, access, patience)?;
        Some(RangeGuard::new(self, range, access, cell, held))
    }

    #[inline]
    fn release(&self, cell: &Cell, access: Access) {
        if !cell.leave(access) {
            self.leave_closed(cell, access);
        }
    }

    #[cold]
    #[inline(never)]
    fn leave_closed(&self, cell: &Cell, access: Access) {
        let node = cell.own_node();
        // Stopped here; counted when it is dropped, after the release.
        let kept = node.and_then(|node| node.metered.take());
        if let Some(node) = node
            && let Some(seat) = kept.as_ref().and_then(|kept| kept.seat)
        {
            self.release(self.cell_at(seat), access);
            node::put(node);
            return;
        }
        let mut wakes = Wakes::default();
        self.slow.lock().leave_cell(self, cell, &mut wakes);
    }

    fn cell_at(&self, seat: Seat) -> &Cell {
        match seat {
            Seat::Home => &self.home,
            Seat::Elsewhere(cell) => cell,
        }
    }

    /// The cell for the guard of a holding that has a seat.
    fn seated(&self, seat: Seat, access: Access, holding: Holding) -> &Cell {
        let cell = self.cell_at(seat);
        if !wait::is_watched(&holding) {
            return cell;
        }
        if let Some(node) = cell.own_node() {
            node.metered.keep(holding, None);
            return cell;
        }
        let node = node::take();
        node.prepare(&(0..0), access);
        node.metered.keep(holding, Some(seat));
        &node.cell
    }

    /// Changes a holding to a part of its range. Returns its cell, which may be another one.
    fn shrink<'a>(&'a self, cell: &'a Cell, range: &Range<u64>, access: Access) -> &'a Cell {
        let stand_in = cell
            .own_node()
            .and_then(|node| Some((node, node.metered.seat()?)));
        let Some((node, seat)) = stand_in else {
            return self.shrink_seat(cell, range, access).unwrap_or(cell);
        };
        if let Some(own) = self.shrink_seat(self.cell_at(seat), range, access) {
            node.metered.move_to(Seat::Elsewhere(own));
        }
        cell
    }

    /// The cell of the holding's own node, if it has got one.
    fn shrink_seat(
        &self,
        cell: &Cell,
        range: &Range<u64>,
        access: Access,
    ) -> Option<&'static Cell> {
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
            own.set_cells(slow.enter(self, range, access));
            slow.queue.split(node, own);
            cell.forget_reader();
            return Some(&own.cell);
        }
        slow.queue.reduce(node, range, access, &mut wakes);
        slow.rest(self);
        drop(slow);
        None
    }

    /// Turns an exclusive holding into a shared one.
    fn downgrade(&self, cell: &Cell, range: &Range<u64>) {
        if cell.downgrade(range) {
            return;
        }
        if let Some(seat) = cell.own_node().and_then(|node| node.metered.seat()) {
            self.downgrade(self.cell_at(seat), range);
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
