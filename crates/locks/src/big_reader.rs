//! [`BigReader`]: a reader/writer lock for readers that are everywhere and writers that are rare.
//!
//! # Purpose
//! Every operation of a file system enters as a reader; freeze, remount and unmount are the
//! writers. A reader writes only its own thread's or CPU's cache line, without a read-modify-write
//! or a fence where the system has `membarrier`. A writer looks at all of them.
//!
//! # Data model
//! - `own[slot]`: a line for each of the first [`thread_slot::COUNT`] threads, which alone writes
//!   it: the number of its entries (0 or 1, unless guards are forgotten). So entering is a plain
//!   store.
//! - `shared[cpu]`: the readers among other threads that entered on that CPU, counted by atomic
//!   read-modify-writes. A guard remembers its counter, since it may end elsewhere.
//! - `writer`: a writer is announced, which holds the lock or is waiting for readers to leave.
//!   Changes only under the gate's mutex.
//! - the gate: the number of readers that a writer has turned away and that have not entered since.
//!
//! # Protocol
//! Reader: (1) count itself in; light barrier; (2) look for a writer. None: it is in. Else it
//! counts itself out again and waits at the gate. Writer: (3) announce itself; heavy barrier; (4)
//! wait until every counter is zero. By the barriers ([`barrier`]) either (2) comes after (3), and
//! the reader sees the writer, or (4) comes after (1), and the writer sees the reader. The same
//! holds between leaving readers and the writer that they wake. The loom tests `big_reader_*` fail
//! without either barrier.
//!
//! A reader that leaves while a writer is announced wakes the writer through the gate's mutex;
//! since the writer looks at the counters under that mutex, the wake-up cannot fall between its
//! look and its sleep.
//!
//! # Fairness
//! A new writer first lets in the readers that the last one turned away. Readers do not pass an
//! announced writer. So neither starves.
//!
//! # Locking
//! Holders may sleep. A reader must not enter again, not even shared: a writer announced between
//! would wait for the first entry and be waited for by the second. The gate's mutex is a leaf.
//!
//! References: Linux `kernel/locking/percpu-rwsem.c`.

use crossbeam_utils::CachePadded;
use finefs_lockmeter::{self as lockmeter, Kind, LockClass};

use crate::order::{self, Held};
use crate::primitive::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::primitive::{Condvar, Mutex};
use crate::wait::{Holding, LastCpu, Metered};
use crate::{barrier, cpu, thread_slot};

/// A reader/writer lock whose readers share no cache line that they write.
///
/// It is for readers that are everywhere and writers that are rare, such as operations of a file
/// system against freeze and unmount. A reader writes its thread's or its CPU's line only, without
/// an atomic read-modify-write or a fence where the system has `membarrier(2)` (threads beyond the
/// first 64 need the former). A writer looks at all these lines and makes all CPUs pass a barrier:
/// it is dear.
///
/// Readers do not pass a writer that waits, and a writer first lets in the readers that the last
/// one turned away: neither starves. So a reader must not enter again, not even shared: a writer
/// announced in between would wait for the first entry and be waited for by the second. The order
/// checker panics with "re-entry into a lock". Holders may sleep.
///
/// ```
/// use finefs_locks::{BigReader, LockClass};
/// static OPERATION: LockClass = LockClass::new("example.operation", 10);
/// let operations = BigReader::new(&OPERATION);
/// let operation = operations.read();
/// assert!(operations.try_write().is_none());
/// drop(operation);
/// let frozen = operations.write();
/// assert!(operations.try_read().is_none());
/// # drop(frozen);
/// ```
#[derive(Debug)]
pub struct BigReader {
    own: Box<[CachePadded<AtomicUsize>]>,
    shared: Box<[CachePadded<AtomicUsize>]>,
    /// OPEN or ANNOUNCED.
    writer: AtomicU32,
    gate: Mutex<Gate>,
    /// Readers wait here for the writer to end, and writers for their turn.
    opened: Condvar,
    /// The writer waits here for readers to leave.
    reader_left: Condvar,
    /// Of the writers.
    last_cpu: LastCpu,
    class: &'static LockClass,
}

/// No writer is announced. The bits are such that a reader finds by one test that it may stay, and
/// that the meter does not want to know.
const OPEN: u32 = lockmeter::ALWAYS;
const ANNOUNCED: u32 = OPEN | 1 << 10;

/// Readers leave no trace that others could see.
static UNTRACED: LastCpu = LastCpu::untraced();

#[derive(Debug)]
struct Gate {
    turned_away: usize,
}

/// Where a reader is counted.
#[derive(Clone, Copy, Debug)]
enum Counter<'a> {
    /// Written by the calling thread only.
    Own(&'a AtomicUsize),
    Shared(&'a AtomicUsize),
}

impl Counter<'_> {
    #[inline]
    fn enter(self) {
        match self {
            Counter::Own(count) => {
                thread_slot::enter();
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
            Counter::Shared(count) => drop(count.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Release ordering: what the reader did happens before the writer that sees it gone.
    #[inline]
    fn leave(self) {
        match self {
            Counter::Own(count) => {
                count.store(count.load(Ordering::Relaxed) - 1, Ordering::Release);
                thread_slot::leave();
            }
            Counter::Shared(count) => drop(count.fetch_sub(1, Ordering::Release)),
        }
    }
}

/// Holds a [`BigReader`] shared; releases it when dropped.
///
/// ```
/// # use finefs_locks::{LockClass, BigReader};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let operations = BigReader::new(&CLASS);
/// let operation = operations.read();
/// drop(operation);
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct BigReadGuard<'a> {
    lock: &'a BigReader,
    entry: Entry<'a>,
    _held: Held,
}

/// How a reader entered. One test at its end finds that there is nothing special about it.
#[derive(Debug)]
enum Entry<'a> {
    /// By the counter of its thread, and nobody wants to know for how long.
    Plain(&'a AtomicUsize),
    /// Some other way.
    Special(Counter<'a>, Holding),
}

impl<'a> Entry<'a> {
    #[inline]
    fn new(counter: Counter<'a>, holding: Holding) -> Entry<'a> {
        match counter {
            Counter::Own(count) if !holding.is_running() => Entry::Plain(count),
            counter => Entry::Special(counter, holding),
        }
    }
}

/// Holds a [`BigReader`] exclusively; releases it when dropped.
///
/// ```
/// # use finefs_locks::{LockClass, BigReader};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let operations = BigReader::new(&CLASS);
/// let frozen = operations.write();
/// drop(frozen);
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct BigWriteGuard<'a> {
    lock: &'a BigReader,
    _held: Held,
    holding: Holding,
}

impl BigReader {
    /// An unlocked lock.
    pub fn new(class: &'static LockClass) -> BigReader {
        barrier::prepare();
        let zeros = |count| {
            (0..count)
                .map(|_| CachePadded::new(AtomicUsize::new(0)))
                .collect()
        };
        BigReader {
            own: zeros(thread_slot::COUNT),
            shared: zeros(cpu::count()),
            writer: AtomicU32::new(OPEN),
            gate: Mutex::new(Gate { turned_away: 0 }),
            opened: Condvar::new(),
            reader_left: Condvar::new(),
            last_cpu: LastCpu::new(),
            class,
        }
    }

    /// Takes the lock shared, waiting for a writer to end if need be.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> BigReadGuard<'_> {
        let held = order::acquire(self.class, None, self.address());
        let entry = match self.enter_plainly() {
            Ok(entry) => entry,
            Err(counter) => self.enter_specially(counter),
        };
        BigReadGuard {
            lock: self,
            entry,
            _held: held,
        }
    }

    /// Takes the lock shared if no writer holds it or waits for it.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<BigReadGuard<'_>> {
        let entry = match self.enter_plainly() {
            Ok(entry) => entry,
            Err(counter) => self.enter(counter)?,
        };
        let held = order::acquired_by_try(self.class, None, self.address());
        Some(BigReadGuard {
            lock: self,
            entry,
            _held: held,
        })
    }

    /// Enters by the thread's own counter, where no writer is announced and nobody wants to know.
    /// Else gives the counter by which it may have entered: the thread's own, if it has one.
    #[inline]
    fn enter_plainly(&self) -> Result<Entry<'_>, Option<Counter<'_>>> {
        let Some(slot) = thread_slot::current() else {
            return Err(None);
        };
        let count = &*self.own[slot];
        let counter = Counter::Own(count);
        counter.enter(); // (1)
        barrier::light();
        // (2). Acquire: what the last writer did happens before this reader.
        if self.writer.load(Ordering::Acquire) & lockmeter::hindrances() == 0 {
            Ok(Entry::Plain(count))
        } else {
            Err(Some(counter))
        }
    }

    /// Enters, or says that a writer is announced. A thread with a counter of its own has counted
    /// itself.
    #[cold]
    #[track_caller]
    fn enter<'a>(&'a self, own: Option<Counter<'a>>) -> Option<Entry<'a>> {
        let counter = own.unwrap_or_else(|| {
            let counter = Counter::Shared(&self.shared[cpu::current()]);
            counter.enter(); // (1)
            barrier::light();
            counter
        });
        // (2)
        if self.is_announced(Ordering::Acquire) {
            self.leave(counter);
            return None;
        }
        let holding = self.metered(Kind::Reader, &UNTRACED).taken();
        Some(Entry::new(counter, holding))
    }

    /// Enters, waiting for a writer if need be.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn enter_specially<'a>(&'a self, own: Option<Counter<'a>>) -> Entry<'a> {
        match self.enter(own) {
            Some(entry) => entry,
            None => {
                let metered = self.metered(Kind::Reader, &UNTRACED);
                let (counter, holding) = metered.wait(|| self.enter_by_gate());
                Entry::Special(counter, holding)
            }
        }
    }

    #[inline]
    fn leave(&self, counter: Counter<'_>) {
        counter.leave();
        barrier::light();
        if self.is_announced(Ordering::Relaxed) {
            self.wake_writer();
        }
    }

    #[cold]
    #[inline(never)]
    fn leave_specially(&self, counter: Counter<'_>, holding: &mut Holding) {
        holding.stop();
        self.leave(counter);
    }

    #[cold]
    fn wake_writer(&self) {
        let _gate = self.gate.lock();
        self.reader_left.notify_one();
    }

    fn enter_by_gate(&self) -> Counter<'_> {
        let mut gate = self.gate.lock();
        gate.turned_away += 1;
        while self.is_announced(Ordering::Acquire) {
            self.opened.wait(&mut gate);
        }
        // No writer can announce itself while this holds the gate.
        let counter = match thread_slot::current() {
            Some(slot) => Counter::Own(&self.own[slot]),
            None => Counter::Shared(&self.shared[cpu::current()]),
        };
        counter.enter();
        gate.turned_away -= 1;
        if gate.turned_away == 0 {
            // The writers whose turn it is now.
            self.opened.notify_all();
        }
        counter
    }

    /// Takes the lock exclusively: turns new readers away and waits for those inside to leave.
    #[track_caller]
    pub fn write(&self) -> BigWriteGuard<'_> {
        let held = order::acquire(self.class, None, self.address());
        let metered = self.metered(Kind::Writer, &self.last_cpu);
        let holding = if self.announce_if_free() {
            metered.taken()
        } else {
            metered.wait(|| self.announce_and_wait()).1
        };
        BigWriteGuard {
            lock: self,
            _held: held,
            holding,
        }
    }

    /// Takes the lock exclusively if nobody holds it or waits for it.
    #[track_caller]
    pub fn try_write(&self) -> Option<BigWriteGuard<'_>> {
        if !self.announce_if_free() {
            return None;
        }
        let held = order::acquired_by_try(self.class, None, self.address());
        Some(BigWriteGuard {
            lock: self,
            _held: held,
            holding: self.metered(Kind::Writer, &self.last_cpu).taken(),
        })
    }

    fn announce_if_free(&self) -> bool {
        let gate = self.gate.lock();
        if self.is_announced(Ordering::Relaxed) || gate.turned_away > 0 {
            return false;
        }
        self.announce();
        if self.has_readers() {
            // Readers that saw the announcement are on their way to the gate, where they will see
            // that it is gone: it changes only under the gate's mutex.
            self.writer.store(OPEN, Ordering::Release);
            return false;
        }
        true
    }

    fn announce_and_wait(&self) {
        let mut gate = self.gate.lock();
        while self.is_announced(Ordering::Relaxed) || gate.turned_away > 0 {
            self.opened.wait(&mut gate);
        }
        self.announce();
        while self.has_readers() {
            self.reader_left.wait(&mut gate);
        }
    }

    fn announce(&self) {
        self.writer.store(ANNOUNCED, Ordering::Relaxed); // (3)
        barrier::heavy();
    }

    /// (4). Acquire: what the readers did happens before the writer.
    fn has_readers(&self) -> bool {
        let mut counters = self.own.iter().chain(&self.shared);
        counters.any(|counter| counter.load(Ordering::Acquire) != 0)
    }

    #[inline]
    fn is_announced(&self, ordering: Ordering) -> bool {
        self.writer.load(ordering) == ANNOUNCED
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn metered<'a>(&self, kind: Kind, last_cpu: &'a LastCpu) -> Metered<'a> {
        Metered {
            class: self.class,
            kind,
            last_cpu,
            address: self.address(),
        }
    }
}

impl Drop for BigReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        match &mut self.entry {
            Entry::Plain(count) => self.lock.leave(Counter::Own(count)),
            Entry::Special(counter, holding) => self.lock.leave_specially(*counter, holding),
        }
    }
}

impl Drop for BigWriteGuard<'_> {
    fn drop(&mut self) {
        self.holding.stop();
        let _gate = self.lock.gate.lock();
        // Release: what the writer did happens before the readers that see it gone.
        self.lock.writer.store(OPEN, Ordering::Release);
        self.lock.opened.notify_all();
    }
}
