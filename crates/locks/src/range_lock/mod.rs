//! [`RangeLock`]: shared and exclusive locks over ranges of a file's offsets.
//!
//! # Interface
//! Ranges are half-open, `start..end` in bytes; an `end` of `u64::MAX` means "to the end, wherever that
//! is". Readers share; a writer excludes readers and writers of overlapping ranges. Disjoint ranges
//! never wait for each other. Requests that conflict are granted in the order of their arrival; who
//! waits is woken exactly when the last one in its way leaves. A holder that panics releases its range.
//!
//! # Data model
//! | Module | What |
//! |---|---|
//! | this | the word, the fast path, entering and leaving the slow one, guards |
//! | `queue` | the slow path's requests in the order of arrival, and who blocks whom |
//!
//! The state word holds two flags and a sequence number:
//! - neither flag (*free*): nobody holds anything;
//! - HELD (*fast*): one holder, whose range lies in `held_start`, `held_end`; its access is the flag
//!   HELD_WRITE; the sequence number tells this holding from others;
//! - QUEUED (*slow*): all requests, granted or waiting, are in the queue under the mutex.
//!
//! # Transitions
//! - free -> fast: `try_fast`, by compare-and-swap with acquire ordering. Then the holder stores its
//!   range and, with release ordering, the sequence number into `published`.
//! - fast -> free: `release`, by compare-and-swap with release ordering.
//! - free -> slow, fast -> slow: `enter_slow`, under the mutex, by the second user. It brings a fast
//!   holder into the queue as its first entry (id 0), so that its exact range counts; where that is
//!   not published yet, it waits for it: a matter of a few instructions of the holder. The
//!   holder's compare-and-swap at its release then fails, and it goes to the queue for entry 0.
//! - slow -> free: `leave_if_empty`, under the mutex, when the last entry has left.
//!
//! # Invariants
//! 1. QUEUED is set if the queue has entries. It is cleared when the last one leaves. (A panic in
//!    `end_of_file` can leave it set over an empty queue, until the next user leaves.)
//! 2. While QUEUED is set the word changes only under the mutex.
//! 3. A fast holder of sequence number s finds the word as it left it, or QUEUED is set with its
//!    entry in the queue.
//!
//! # Appending
//! An append locks from the end of file, which is known only when all who can move it are out of the
//! way. A waiting append therefore asks for all from the lowest place where the end of file can be
//! until its grant: the end of file at its arrival or, if lower, the start of any earlier exclusive
//! range that reaches to the end, since who cuts off the file at x must hold `x..u64::MAX` or more.
//! Later requests that could move the end of file conflict with that range and wait. So at the grant
//! the end of file is stable; the append reads it and gives back what lies below.
//!
//! # Locking
//! The queue's mutex is a leaf: it is held for the length of a scan of the queue, and for the call of
//! `append`'s `end_of_file`. A thread holds at most one range of one lock at a time; ranges of
//! several locks of a class only in the order of keys (`read_nested`, `write_nested`).
//!
//! # Cost
//! Alone: one compare-and-swap to take, one to release, no allocation. The queue is allocated at the
//! first contention and kept.
//!
//! References: Linux range-lock proposals (Kara 2013, Bueso 2017); OpenZFS `zfs_rlock.c` for append;
//! Kogan, Dice, Issa, "Scalable range locks for scalable address spaces and beyond" (EuroSys 2020).

mod queue;

use std::ops::Range;
use std::time::{Duration, Instant};

use finefs_lockmeter::{self as lockmeter, Kind, LockClass};

use crate::order::{self, Held, OrderKey};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::{Arc, Condvar, Mutex, MutexGuard, const_unless_loom, thread};
use crate::wait::waited;
use queue::{Access, EntryId, FAST_ENTRY, Queue};

const HELD: u64 = 1;
const HELD_WRITE: u64 = 2;
const QUEUED: u64 = 4;
const FLAGS: u64 = HELD | HELD_WRITE | QUEUED;
const SEQUENCE_ONE: u64 = 8;

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
    word: AtomicU64,
    /// The word's sequence number for which `held_start` and `held_end` are valid.
    published: AtomicU64,
    held_start: AtomicU64,
    held_end: AtomicU64,
    queue: Mutex<Option<Box<Queue>>>,
    class: &'static LockClass,
}

/// How long a request may wait.
#[derive(Clone, Copy)]
enum Patience {
    Endless,
    Until(Instant),
    None,
}

/// How a guard's holding is recorded.
#[derive(Debug, Clone, Copy)]
enum Record {
    /// In the word, which was this; or, if the word has changed, as the queue's entry 0.
    Fast(u64),
    /// As this entry of the queue.
    Queued(EntryId),
    /// Nowhere: the range is empty.
    Nowhere,
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
                word: AtomicU64::new(0),
                published: AtomicU64::new(0),
                held_start: AtomicU64::new(0),
                held_end: AtomicU64::new(0),
                queue: Mutex::new(None),
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
        self.lock_timeout(range, Access::Read, timeout)
    }

    /// Takes a range exclusively, waiting no longer than `timeout`.
    #[track_caller]
    pub fn write_timeout(&self, range: Range<u64>, timeout: Duration) -> Option<RangeGuard<'_>> {
        self.lock_timeout(range, Access::Write, timeout)
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

    /// True when the one-word fast path is open or in use, that is, when no more than one range is
    /// held and nobody waits. For tests and statistics.
    pub fn is_fast(&self) -> bool {
        self.word.load(Ordering::Relaxed) & QUEUED == 0
    }

    #[inline]
    #[track_caller]
    fn lock(&self, range: Range<u64>, access: Access, key: Option<OrderKey>) -> RangeGuard<'_> {
        let held = order::acquire(self.class, key, self.address());
        match self.request(&range, access, Patience::Endless) {
            Some(record) => RangeGuard {
                lock: self,
                range,
                access,
                record,
                _held: held,
            },
            None => unreachable!("endless patience"),
        }
    }

    #[track_caller]
    fn try_lock(&self, range: Range<u64>, access: Access) -> Option<RangeGuard<'_>> {
        let record = self.request(&range, access, Patience::None)?;
        let held = order::acquired_by_try(self.class, None, self.address());
        Some(RangeGuard {
            lock: self,
            range,
            access,
            record,
            _held: held,
        })
    }

    #[track_caller]
    fn lock_timeout(
        &self,
        range: Range<u64>,
        access: Access,
        timeout: Duration,
    ) -> Option<RangeGuard<'_>> {
        let held = order::acquire(self.class, None, self.address());
        let patience = match Instant::now().checked_add(timeout) {
            Some(deadline) => Patience::Until(deadline),
            None => Patience::Endless,
        };
        let record = self.request(&range, access, patience)?;
        Some(RangeGuard {
            lock: self,
            range,
            access,
            record,
            _held: held,
        })
    }

    #[inline]
    fn request(&self, range: &Range<u64>, access: Access, patience: Patience) -> Option<Record> {
        lockmeter::acquired(self.class, kind(access));
        if range.is_empty() {
            return Some(Record::Nowhere);
        }
        match self.try_fast(access) {
            Some(word) => {
                self.publish(word, range);
                Some(Record::Fast(word))
            }
            None => self
                .request_slow(range, access, patience)
                .map(Record::Queued),
        }
    }

    /// free -> fast. The new word. To be followed by `publish`, soon.
    #[inline]
    fn try_fast(&self, access: Access) -> Option<u64> {
        let free = self.word.load(Ordering::Relaxed);
        if free & FLAGS != 0 {
            return None;
        }
        let flags = match access {
            Access::Read => HELD,
            Access::Write => HELD | HELD_WRITE,
        };
        let held = free.wrapping_add(SEQUENCE_ONE) | flags;
        let exchange = self
            .word
            .compare_exchange(free, held, Ordering::Acquire, Ordering::Relaxed);
        exchange.is_ok().then_some(held)
    }

    #[inline]
    fn publish(&self, word: u64, range: &Range<u64>) {
        self.held_start.store(range.start, Ordering::Relaxed);
        self.held_end.store(range.end, Ordering::Relaxed);
        // Release: whoever sees this number sees the range.
        self.published.store(word & !FLAGS, Ordering::Release);
    }

    /// fast -> free, or the removal of an entry.
    #[inline]
    fn release(&self, record: Record) {
        let id = match record {
            Record::Nowhere => return,
            Record::Queued(id) => id,
            Record::Fast(held) => {
                let free = held & !FLAGS;
                let exchange =
                    self.word
                        .compare_exchange(held, free, Ordering::Release, Ordering::Relaxed);
                if exchange.is_ok() {
                    return;
                }
                FAST_ENTRY
            }
        };
        self.release_slow(id);
    }

    #[cold]
    fn release_slow(&self, id: EntryId) {
        let mut guard = self.queue.lock();
        let queue = self.enter_slow(&mut guard);
        queue.remove(id);
        self.leave_if_empty(queue);
    }

    /// free -> slow, fast -> slow. Afterwards all holdings are in the queue.
    fn enter_slow<'q>(&self, guard: &'q mut MutexGuard<'_, Option<Box<Queue>>>) -> &'q mut Queue {
        let queue = guard.get_or_insert_default();
        let mut word = self.word.load(Ordering::Relaxed);
        while word & QUEUED == 0 {
            let queued = (word & !FLAGS) | QUEUED;
            // Acquire: what the last fast holder did happens before what is granted from here on.
            match self
                .word
                .compare_exchange(word, queued, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) if word & HELD != 0 => {
                    let (range, access) = self.published_holding(word);
                    queue.push_fast(range, access);
                    break;
                }
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        queue
    }

    /// The range of the fast holder that made `word`. It cannot go away: QUEUED is set, so that its
    /// release needs the mutex, which the caller holds.
    fn published_holding(&self, word: u64) -> (Range<u64>, Access) {
        while self.published.load(Ordering::Acquire) != word & !FLAGS {
            // The holder is between its compare-and-swap and its publication, and perhaps off the
            // CPU.
            thread::yield_now();
        }
        let range = self.held_start.load(Ordering::Relaxed)..self.held_end.load(Ordering::Relaxed);
        let access = if word & HELD_WRITE != 0 {
            Access::Write
        } else {
            Access::Read
        };
        (range, access)
    }

    /// slow -> free. The caller holds the mutex.
    fn leave_if_empty(&self, queue: &Queue) {
        if queue.is_empty() {
            let free = self.word.load(Ordering::Relaxed) & !FLAGS;
            // Release: what the queue's holders did happens before the next fast holder.
            self.word.store(free, Ordering::Release);
        }
    }

    #[cold]
    fn request_slow(
        &self,
        range: &Range<u64>,
        access: Access,
        patience: Patience,
    ) -> Option<EntryId> {
        let mut guard = self.queue.lock();
        let queue = self.enter_slow(&mut guard);
        if matches!(patience, Patience::None) && queue.blockers(range, access) > 0 {
            // Not empty: there are the blockers.
            return None;
        }
        let id = queue.push(range.clone(), access);
        if queue.is_granted(id) {
            return Some(id);
        }
        waited(self.class, kind(access), || self.wait(guard, id, patience)).then_some(id)
    }

    /// Waits until the entry is granted. When time runs out before, removes it and gives false.
    fn wait(
        &self,
        mut guard: MutexGuard<'_, Option<Box<Queue>>>,
        id: EntryId,
        patience: Patience,
    ) -> bool {
        let granted = Arc::new(Condvar::new());
        self.enter_slow(&mut guard)
            .notify_when_granted(id, Arc::clone(&granted));
        loop {
            let has_timed_out = match patience {
                Patience::Until(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    granted.wait_timeout(&mut guard, left)
                }
                Patience::Endless | Patience::None => {
                    granted.wait(&mut guard);
                    false
                }
            };
            let queue = self.enter_slow(&mut guard);
            // A grant that came together with the end of the time counts.
            if queue.is_granted(id) {
                return true;
            }
            if has_timed_out {
                queue.remove(id);
                self.leave_if_empty(queue);
                return false;
            }
        }
    }

    #[track_caller]
    fn append_with_key(
        &self,
        end_of_file: impl Fn() -> u64,
        key: Option<OrderKey>,
    ) -> RangeGuard<'_> {
        let held = order::acquire(self.class, key, self.address());
        lockmeter::acquired(self.class, Kind::Writer);
        if let Some(word) = self.try_fast(Access::Write) {
            // Should `end_of_file` panic, this publishes and releases.
            let mut unpublished = Unpublished {
                lock: self,
                word,
                range: 0..u64::MAX,
            };
            unpublished.range.start = end_of_file();
            let range = unpublished.range.clone();
            std::mem::forget(unpublished);
            self.publish(word, &range);
            let record = Record::Fast(word);
            return RangeGuard {
                lock: self,
                range,
                access: Access::Write,
                record,
                _held: held,
            };
        }
        let (range, record) = self.append_slow(&end_of_file);
        let mut guard = RangeGuard {
            lock: self,
            range,
            access: Access::Write,
            record,
            _held: held,
        };
        // Stable since the grant.
        guard.shrink(end_of_file()..u64::MAX);
        guard
    }

    #[cold]
    fn append_slow(&self, end_of_file: &impl Fn() -> u64) -> (Range<u64>, Record) {
        let mut guard = self.queue.lock();
        let queue = self.enter_slow(&mut guard);
        // Only now: all who hold a range are in the queue. Who has not yet lowered the end of file is
        // counted in the minimum.
        let range = end_of_file().min(queue.write_to_end_min())..u64::MAX;
        let id = queue.push(range.clone(), Access::Write);
        if !queue.is_granted(id) {
            waited(self.class, Kind::Writer, || {
                self.wait(guard, id, Patience::Endless)
            });
        }
        (range, Record::Queued(id))
    }

    /// Changes a holding to a part of its range or from exclusive to shared.
    fn reduce(&self, record: Record, range: &Range<u64>, access: Access) {
        let id = match record {
            Record::Nowhere => return,
            Record::Queued(id) => id,
            Record::Fast(_) => FAST_ENTRY,
        };
        let mut guard = self.queue.lock();
        self.enter_slow(&mut guard)
            .reduce(id, range.clone(), access);
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
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
        self.lock.publish(self.word, &self.range);
        self.lock.release(Record::Fast(self.word));
    }
}

/// Holds a range of a [`RangeLock`]; releases it when dropped.
#[derive(Debug)]
#[must_use = "the range is released when the guard is dropped"]
pub struct RangeGuard<'a> {
    lock: &'a RangeLock,
    range: Range<u64>,
    access: Access,
    record: Record,
    _held: Held,
}

impl RangeGuard<'_> {
    /// The range that is held.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// True when the range is held exclusively.
    pub fn is_write(&self) -> bool {
        self.access == Access::Write
    }

    /// Gives back all but `to`, or but what of `to` is held.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static DATA: LockClass = LockClass::new("example.data", 10);
    /// let data = RangeLock::new(&DATA);
    /// let mut guard = data.write(0..100);
    /// guard.shrink(50..200);
    /// assert_eq!(guard.range(), 50..100);
    /// ```
    pub fn shrink(&mut self, to: Range<u64>) {
        let start = to.start.clamp(self.range.start, self.range.end);
        let range = start..to.end.clamp(start, self.range.end);
        if range != self.range {
            self.lock.reduce(self.record, &range, self.access);
            self.range = range;
        }
    }

    /// Turns an exclusive range into a shared one, without anybody else in between.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeLock};
    /// # static DATA: LockClass = LockClass::new("example.data", 10);
    /// let data = RangeLock::new(&DATA);
    /// let mut guard = data.write(0..100);
    /// guard.downgrade();
    /// assert!(data.try_read(0..100).is_some());
    /// ```
    pub fn downgrade(&mut self) {
        if self.access == Access::Write {
            self.lock.reduce(self.record, &self.range, Access::Read);
            self.access = Access::Read;
        }
    }
}

impl Drop for RangeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release(self.record);
    }
}
