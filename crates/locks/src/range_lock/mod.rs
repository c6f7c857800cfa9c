//! [`RangeLock`]: shared and exclusive locks over ranges of a file's offsets.
//!
//! # Interface
//! Ranges are half-open, `start..end` in bytes; an `end` of `u64::MAX` means "to the end, wherever that
//! is". Readers share; a writer excludes readers and writers of overlapping ranges. Disjoint ranges
//! never wait for each other. A holder that panics releases its range.
//!
//! Requests that conflict are granted in the order of their arrival in the queue, whoever comes later;
//! who waits is woken exactly when the last one in its way leaves. A request that conflicts with a holder
//! may look a few times before it arrives (`spin`), which is bounded; nobody passes one that has arrived.
//!
//! # Data model
//! | Module | What |
//! |---|---|
//! | this | requests: fast, spread, spinning, queued |
//! | `cell` | the one-word fast path: one range, held by a writer or by readers of the same range |
//! | `spread` | groups of cells that a lock under contention borrows, and who goes to which |
//! | `queue`, `node` | the exact slow path: requests in the order of their arrival, who blocks whom |
//! | `slow` | what the mutex guards: queue, modes, when to spread; **the invariants** |
//! | `wait` | sleeping until a grant, and measuring it |
//! | `guard` | [`RangeGuard`], [`SendRangeGuard`] |
//!
//! A lock at rest is one [`Cell`](cell::Cell), the *home* cell. A request first tries to take a cell, by one
//! compare-and-swap. If it cannot, it goes to the queue under the mutex: it *closes* the cells that it
//! lies on, which turns their holders into entries of the queue with their exact ranges, and waits for
//! the entries before it that it conflicts with. Cells are opened again when no entry lies on them. When
//! requests keep meeting without conflict, the lock *spreads* over 64 cells; when one thread is alone
//! again, or requests conflict too often for it, it goes home.
//!
//! # Appending
//! An append locks from the end of file, which is known only when all who can move it are out of the
//! way. A waiting append therefore asks for all from the lowest place where the end of file can be
//! until its grant: the end of file at its arrival or, if lower, the start of any earlier exclusive
//! range that reaches to the end, since who cuts off the file at x must hold `x..u64::MAX` or more.
//! Later requests that could move the end of file conflict with that range and wait. So at the grant
//! the end of file is stable; the append reads it and gives back what lies below.
//!
//! # Why this structure
//! Rates and instruction counts beside the rivals, and the command, are in `docs/locks-bench.md`.
//! - *One mutex over an interval tree* (Linux, Lustre) is exact and FIFO, but every request writes the same
//!   lines twice: two threads on disjoint ranges are slower than one. Ours keeps its exactness and order
//!   for those who must wait, and needs no tree: few requests wait at one time.
//! - *A sorted lock-free list* (Kogan et al.) does without the mutex, but all insert near the same nodes,
//!   each needs a node and reclamation, and order among those who wait is left to chance.
//! - *A lock per segment* (pNOVA) lets disjoint requests write nothing in common: what a scalable lock
//!   must do. But it has a table for each file, takes a lock for each segment of a large range, and
//!   makes disjoint ranges within a segment wait. So ours borrows the table while there is contention,
//!   remembers the exact range in each cell, and sends whatever does not fit one cell to the queue.
//! - *A word* costs least for one user or readers of one range: home.
//!
//! # Cost
//! Alone: one compare-and-swap to take, one addition to release; 20 instructions. Spread: three loads of
//! lines that nobody writes besides. No allocation on any path: entries of the queue are static memory, of
//! which there is enough for 1024 contended ranges in the process at a time (then more is allocated, and
//! kept). A lock is about 150 bytes; a session borrows one of 64 groups of 8 KiB, and where all are lent
//! a lock goes on without, in the queue.
//!
//! # Locking
//! The mutex is a leaf but for the mutexes of the node pool and of the groups, which are taken under it
//! and take nothing. It is held for the length of a scan of the queue, for the closing of cells, and for
//! the call of `append`'s `end_of_file`. A thread holds at most one range of one lock at a time; ranges of
//! several locks of a class only in the order of keys (`read_nested`, `write_nested`).
//!
//! References: Linux range-lock proposals (Kara 2013, Bueso 2017); OpenZFS `zfs_rlock.c` for append;
//! Kogan, Dice, Issa, "Scalable range locks for scalable address spaces and beyond" (EuroSys 2020);
//! Kim et al., "pNOVA: Optimizing shared file I/O operations of NVM file system on manycore servers"
//! (APSys 2019) for segments; Dice, Kogan, "BRAVO: Biased Locking for Reader-Writer Locks" (ATC 2019)
//! for spreading readers.

mod cell;
mod guard;
mod node;
mod queue;
mod slow;
mod spread;
mod wait;

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use finefs_lockmeter::{self as lockmeter, Kind, LockClass};

use crate::order::{self, OrderKey};
use crate::primitive::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::primitive::{Mutex, const_unless_loom};
use cell::{Cell, Taken};
use node::{Access, Node};
use queue::Wakes;
use slow::Slow;
use spread::Placement;
use wait::Wait;

pub use guard::{RangeGuard, SendRangeGuard};

/// Shared and exclusive locks over ranges of offsets.
///
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
    /// The session's [`Placement`]; 0: requests take the home cell.
    spread: AtomicU64,
    /// Not 0 when requests that came to the queue lately had to wait: for those who think of spinning.
    pressure: AtomicU32,
    slow: Mutex<Slow>,
    class: &'static LockClass,
}

/// How long a request may wait.
#[derive(Clone, Copy)]
enum Patience {
    Endless,
    Until(Instant),
    None,
}

impl Patience {
    fn at_most(timeout: Duration) -> Patience {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => Patience::Until(deadline),
            None => Patience::Endless,
        }
    }
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
                pressure: AtomicU32::new(0),
                slow: Mutex::new(Slow::new()),
                class,
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
    #[track_caller]
    pub fn write_deadline(&self, range: Range<u64>, deadline: Instant) -> Option<RangeGuard<'_>> {
        self.lock_until(range, Access::Write, Patience::Until(deadline))
    }

    /// Takes all from the end of file on exclusively. The end of file is fixed when the lock is
    /// granted: it is the start of the guard's range.
    ///
    /// `end_of_file` gives the end of file at the moment of its call. It may be called more than once,
    /// must only read (an atomic, say), and must not take locks. Whoever raises the end of file must
    /// hold the range that it writes; whoever lowers it must hold all from the new end on.
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
    #[track_caller]
    pub fn append_nested(&self, end_of_file: impl Fn() -> u64, order_key: u64) -> RangeGuard<'_> {
        self.append_with_key(end_of_file, Some((order_key, 0)))
    }

    /// The class.
    pub fn class(&self) -> &'static LockClass {
        self.class
    }

    /// True when the one-word fast path is open or in use, that is, when the lock is not spread, no more
    /// than one range is held (though perhaps by several readers), and nobody waits. For tests and
    /// statistics.
    pub fn is_fast(&self) -> bool {
        !self.home.is_closed()
    }

    /// Brings a lock that is spread after contention back to its one word, at once if nobody holds a
    /// range, else as soon as that is so. It goes back by itself once it has one user; this is for those
    /// who know that there will be no user for a while, as when a file is closed: the number of locks
    /// that can be spread at one time is limited. True when the lock is back.
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
        lockmeter::acquired(self.class, kind(access));
        let cell = if self.home.take(&range, access) {
            &self.home
        } else {
            std::hint::cold_path();
            self.lock_contended(range.start, range.end, access)
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

    fn request(&self, range: &Range<u64>, access: Access, patience: Patience) -> Option<&Cell> {
        lockmeter::acquired(self.class, kind(access));
        if self.home.take(range, access) {
            return Some(&self.home);
        }
        self.try_cells(range, access)
            .or_else(|| self.request_contended(range, access, patience))
    }

    /// The home cell is taken or closed: the short way to the cells of a group, then all others. (Numbers
    /// instead of a range: so they stay in registers.)
    #[inline(never)]
    fn lock_contended(&self, start: u64, end: u64, access: Access) -> &Cell {
        let range = start..end;
        // Acquire: what is seen here was open before.
        let spread = self.spread.load(Ordering::Acquire);
        if Placement::is_by_segments(spread)
            && let Some(cell) = Placement::decode(spread).cell_of(&range)
            && cell.take_if(&range, access, || self.is_spread_as(spread))
        {
            return cell;
        }
        self.lock_slowly(start, end, access)
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, start: u64, end: u64, access: Access) -> &Cell {
        let range = start..end;
        if let Some(cell) = self.try_cells(&range, access) {
            return cell;
        }
        match self.request_contended(&range, access, Patience::Endless) {
            Some(cell) => cell,
            None => unreachable!("endless patience"),
        }
    }

    /// True when the session has not changed. Asked after a cell's word was read: then that was the word
    /// of a cell of this session.
    #[inline]
    fn is_spread_as(&self, spread: u64) -> bool {
        self.spread.load(Ordering::Relaxed) == spread
    }

    /// Neither the home cell nor one of a group could be had at once.
    #[cold]
    fn request_contended(
        &self,
        range: &Range<u64>,
        access: Access,
        patience: Patience,
    ) -> Option<&Cell> {
        let mut wait = Wait::new(self.class, access);
        if !matches!(patience, Patience::None)
            && let Some(cell) = self.spin(range, access, &mut wait)
        {
            return Some(cell);
        }
        let node = self.request_queued(range, access, patience, wait)?;
        Some(&node.cell)
    }

    /// Takes the home cell, or that of the group where the request may go. Readers may join others.
    #[inline]
    fn try_cells(&self, range: &Range<u64>, access: Access) -> Option<&Cell> {
        // Acquire: what is seen here was open before.
        let spread = self.spread.load(Ordering::Acquire);
        if spread == 0 {
            let taken = self.home.take_or_join(range, access, || true)?;
            if taken == Taken::Sample {
                self.sample(range, access);
            }
            return Some(&self.home);
        }
        let placement = Placement::decode(spread);
        let try_cell = |cell: &'static Cell| {
            let taken = cell.take_or_join(range, access, || self.is_spread_as(spread))?;
            if taken == Taken::Sample {
                self.sample(range, access);
            }
            Some(cell)
        };
        if placement.is_for_readers() {
            return match access {
                Access::Read => placement.cells_here().find_map(try_cell),
                Access::Write => None,
            };
        }
        placement.cell_of(range).and_then(try_cell)
    }

    #[cold]
    fn sample(&self, range: &Range<u64>, access: Access) {
        let mut slow = self.slow.lock();
        slow.sample(self, sampler(), range, access);
        slow.rest(self);
    }

    /// Looks a few times whether a conflicting holder has left, before the request arrives in the queue.
    /// Where others have arrived and wait, gives them time to be served, or a queue that once formed
    /// would never end: each who leaves would find it and arrive again.
    ///
    /// Models leave this out: it adds schedules, no behaviours.
    #[cfg(not(any(loom, feature = "shuttle")))]
    fn spin(&self, range: &Range<u64>, access: Access, wait: &mut Wait) -> Option<&Cell> {
        use cell::Hindrance;
        for round in 0..SPIN_ROUNDS {
            let mut is_spread = true;
            let cell = match self.spread.load(Ordering::Acquire) {
                0 => {
                    is_spread = false;
                    &self.home
                }
                spread => {
                    let placement = Placement::decode(spread);
                    match (placement.is_for_readers(), access) {
                        (true, Access::Read) => placement.cells_here().next()?,
                        (true, Access::Write) => return None,
                        (false, _) => placement.cell_of(range)?,
                    }
                }
            };
            match cell.hindrance(range, access) {
                // Two segments on one cell, perhaps: by now it may be free.
                Hindrance::Needless if is_spread && round < NEEDLESS_ROUNDS => {}
                Hindrance::Needless => return self.try_cells(range, access),
                Hindrance::Closed if self.pressure.load(Ordering::Relaxed) == 0 => return None,
                Hindrance::Closed | Hindrance::Conflict => {}
            }
            if round < RELAX_ROUNDS {
                (0..1 << (round + 2)).for_each(|_| std::hint::spin_loop());
            } else {
                wait.begin();
                std::thread::yield_now();
            }
            if let Some(cell) = self.try_cells(range, access) {
                return Some(cell);
            }
        }
        None
    }

    #[cfg(any(loom, feature = "shuttle"))]
    fn spin(&self, _: &Range<u64>, _: Access, _: &mut Wait) -> Option<&Cell> {
        None
    }

    #[cold]
    fn request_queued(
        &self,
        range: &Range<u64>,
        access: Access,
        patience: Patience,
        mut wait: Wait,
    ) -> Option<&'static Node> {
        let node = node::take();
        node.prepare(range, access);
        {
            let mut slow = self.slow.lock();
            let cells = slow.enter(self, range, access);
            node.cells.store(cells, Relaxed);
            let blockers = slow.queue.blockers(range, access);
            if blockers > 0 && matches!(patience, Patience::None) {
                slow.exit(cells);
                slow.rest(self);
                node::put(node);
                return None;
            }
            self.push(&mut slow, node, blockers);
            if blockers == 0 {
                return Some(node);
            }
        }
        wait.begin();
        if self.wait(node, patience) {
            return Some(node);
        }
        let mut wakes = Wakes::default();
        let mut slow = self.slow.lock();
        // A grant that came together with the end of the time counts.
        if node.is_granted() {
            return Some(node);
        }
        slow.remove(self, node, &mut wakes);
        drop(slow);
        None
    }

    /// Adds an entry that has been through `enter`.
    fn push(&self, slow: &mut Slow, node: &'static Node, blockers: u32) {
        if blockers > 0 {
            node.announce_waiter();
            self.pressure.store(PRESSURE, Ordering::Relaxed);
        } else {
            let pressure = self.pressure.load(Ordering::Relaxed);
            self.pressure
                .store(pressure.saturating_sub(1), Ordering::Relaxed);
        }
        let (range, access) = (node.range(), node.access());
        let cells = node.cells.load(Relaxed);
        let is_time = slow.note_request(blockers, &range, access, cells);
        slow.queue.push(node, blockers);
        if is_time {
            slow.change_mode(self);
        }
        slow.rest(self);
    }

    /// Waits until the entry is granted; false when the time ran out.
    fn wait(&self, node: &'static Node, patience: Patience) -> bool {
        wait::park_until(
            || node.is_granted(),
            match patience {
                Patience::Until(deadline) => Some(deadline),
                Patience::Endless | Patience::None => None,
            },
        )
    }

    #[track_caller]
    fn append_with_key(
        &self,
        end_of_file: impl Fn() -> u64,
        key: Option<OrderKey>,
    ) -> RangeGuard<'_> {
        let held = order::acquire(self.class, key, self.address());
        lockmeter::acquired(self.class, Kind::Writer);
        if let Some(word) = self.home.take_unpublished() {
            // Should `end_of_file` panic, this publishes and releases.
            let mut unpublished = Unpublished {
                lock: self,
                word,
                range: 0..u64::MAX,
            };
            unpublished.range.start = end_of_file();
            let range = unpublished.range.clone();
            std::mem::forget(unpublished);
            self.home.publish(word, &range);
            return RangeGuard::new(self, range, Access::Write, &self.home, held);
        }
        let (range, node) = self.append_queued(&end_of_file);
        let mut guard = RangeGuard::new(self, range, Access::Write, &node.cell, held);
        // Stable since the grant.
        guard.shrink(end_of_file()..u64::MAX);
        guard
    }

    #[cold]
    fn append_queued(&self, end_of_file: &impl Fn() -> u64) -> (Range<u64>, &'static Node) {
        let mut wait = Wait::new(self.class, Access::Write);
        let node = node::take();
        let range;
        {
            let mut entered = Entered {
                lock: self,
                slow: self.slow.lock(),
                cells: 0,
                node: Some(node),
            };
            entered.cells = entered.slow.enter(self, &(0..u64::MAX), Access::Write);
            // Only now: all who hold a range are in the queue. Who has not yet lowered the end of file is
            // counted in the minimum.
            let start = end_of_file().min(entered.slow.queue.write_to_end_min());
            range = start..u64::MAX;
            let blockers = entered.slow.queue.blockers(&range, Access::Write);
            node.prepare(&range, Access::Write);
            node.cells.store(entered.cells, Relaxed);
            entered.node = None;
            self.push(&mut entered.slow, node, blockers);
            if blockers == 0 {
                return (range, node);
            }
        }
        wait.begin();
        self.wait(node, Patience::Endless);
        (range, node)
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
            own.cells.store(slow.enter(self, range, access), Relaxed);
            slow.queue.split(node, own);
            cell.forget_reader();
            return &own.cell;
        }
        slow.queue.reduce(node, range, access, &mut wakes);
        slow.rest(self);
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

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        self.slow.get_mut().abandon();
    }
}

/// A fast holder on its way to publish its range. Dropped only by a panic.
struct Unpublished<'a> {
    lock: &'a RangeLock,
    word: u64,
    range: Range<u64>,
}

impl Drop for Unpublished<'_> {
    fn drop(&mut self) {
        self.lock.home.publish(self.word, &self.range);
        self.lock.release(&self.lock.home, Access::Write);
    }
}

/// A request that has closed its cells. Takes that back where it has kept its node: after a panic.
struct Entered<'a> {
    lock: &'a RangeLock,
    slow: crate::primitive::MutexGuard<'a, Slow>,
    cells: u64,
    node: Option<&'static Node>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(node) = self.node {
            self.slow.exit(self.cells);
            self.slow.rest(self.lock);
            node::put(node);
        }
    }
}

/// After one request that had to wait, so many that did not make the lock calm again.
const PRESSURE: u32 = 4;

/// Short looks, then longer ones that give the CPU away, before a request arrives in the queue.
#[cfg(not(any(loom, feature = "shuttle")))]
const NEEDLESS_ROUNDS: u32 = 2;
#[cfg(not(any(loom, feature = "shuttle")))]
const RELAX_ROUNDS: u32 = 4;
#[cfg(not(any(loom, feature = "shuttle")))]
const SPIN_ROUNDS: u32 = 10;

/// Tells threads apart, as `Slow::sample` needs it.
#[cfg(not(any(loom, feature = "shuttle")))]
fn sampler() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// In models a thread may look like several.
#[cfg(any(loom, feature = "shuttle"))]
fn sampler() -> usize {
    crate::cpu::current()
}
