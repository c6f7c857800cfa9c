//! [`RelaxedMutex`]: the lock that replaced the big kernel lock in reiserfs, one per superblock.
//!
//! # What it is for
//! Code that grew up under a big lock takes it recursively and expects it to be let go of around
//! everything that sleeps. This lock keeps that shape and is a mutex: a task takes it as often as
//! it likes, and [`RelaxedMutex::relax`] lets go of all levels around something that sleeps, takes
//! them back and tells whether anybody was in between.
//!
//! # How it waits
//! It spins as long as its owner runs, one spinner at a time, and sleeps otherwise. Whether a
//! thread runs cannot be asked for cheaply in user space, so it is guessed: the owner runs unless
//! the spinner sits on the CPU on which the owner took the lock, or has spun for [`SPINS_MAX`]
//! rounds, which is longer than a time in which a running owner keeps the lock. A wrong guess costs
//! time only.
//!
//! # Protocol of the sleepers
//! A sleeper (1) counts itself; (2) tries to take the word; fails, and sleeps. The owner (3) frees
//! the word; (4) looks for sleepers and wakes one. All four are sequentially consistent: either (2)
//! comes after (3) and succeeds, or (4) comes after (1) and sees the sleeper. A sleeper holds the
//! gate's mutex from (1) until it sleeps, and the owner wakes under it, so that the wake-up does
//! not fall in between. The loom test `relaxed_mutex_wakes_its_sleepers` fails without either half,
//! and where (1) or (4) is relaxed; that (3) must not be is beyond loom, whose read-modify-writes
//! never see an old value.
//!
//! # Locking
//! It guards no value: a `&T` handed out under one level would outlive a `relax` in another. The
//! gate's mutex is a leaf.
//!
//! References: Weisbecker, "Reiserfs/kill-bkl" (2009); Linux `kernel/locking/mutex.c` (optimistic
//! spinning).

use std::marker::PhantomData;

use finefs_lockmeter::LockClass;

use crate::cpu;
use crate::primitive::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::primitive::{Condvar, Mutex, const_unless_loom, hint};
use crate::recursive::{RawWait, Recursive, Relaxed};

/// Rounds after which a spinner takes the owner for not running: some ten microseconds.
pub const SPINS_MAX: u32 = 2_000;

/// A recursive mutex that can be relaxed around something that sleeps.
///
/// It is for code that grew up under a big lock: a task takes it as often as it likes, and
/// [`relax`](RelaxedMutex::relax) lets go of all levels around something that sleeps, takes them
/// back, and tells how often others were in between; what was known before is to be looked at again
/// then. It guards no value, since a reference handed out under one level would outlive a `relax`
/// in another.
///
/// A guard from before a `relax` must not be dropped within it: nothing is held there, so that
/// panics, and its level is held for good. One that is taken within and leaves it holds a level
/// like any other.
///
/// Waiters spin while the owner seems to run, one at a time, and sleep otherwise; they get the
/// mutex in no order. For the order checker only the outermost level counts.
///
/// ```
/// use finefs_locks::{LockClass, RelaxedMutex};
/// static SUPERBLOCK: LockClass = LockClass::new("example.superblock", 10);
/// let superblock = RelaxedMutex::new(&SUPERBLOCK);
/// let outer = superblock.lock();
/// let inner = superblock.lock();
/// let read = superblock.relax(|| {
///     // Nothing is held here: others may come in while this one sleeps.
///     std::thread::scope(|scope| {
///         scope.spawn(|| drop(superblock.lock()));
///     });
///     "block 7"
/// });
/// assert_eq!((read.value, read.others), ("block 7", 1));
/// drop(inner);
/// assert!(superblock.is_mine());
/// drop(outer);
/// assert!(!superblock.is_mine());
/// ```
#[derive(Debug)]
pub struct RelaxedMutex(Recursive<Adaptive>);

/// Holds a level of a [`RelaxedMutex`]; releases it when dropped.
///
/// ```
/// # use finefs_locks::{LockClass, RelaxedMutex};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let lock = RelaxedMutex::new(&CLASS);
/// let level = lock.lock();
/// assert!(lock.is_mine());
/// drop(level);
/// assert!(!lock.is_mine());
/// ```
#[derive(Debug)]
#[must_use = "the level is released when the guard is dropped"]
pub struct RelaxedMutexGuard<'a> {
    lock: &'a RelaxedMutex,
    /// Levels belong to the task that took them.
    not_send: PhantomData<*const ()>,
}

impl RelaxedMutex {
    const_unless_loom! {
        /// An unlocked mutex.
        pub const fn new(class: &'static LockClass) -> RelaxedMutex {
            RelaxedMutex(Recursive::new(class, Adaptive::new()))
        }
    }

    /// Takes the mutex, or one more level of it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> RelaxedMutexGuard<'_> {
        self.0.lock();
        self.guard()
    }

    /// Takes the mutex, or one more level of it, if no other task holds it.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<RelaxedMutexGuard<'_>> {
        self.0.try_lock().then(|| self.guard())
    }

    /// Releases all levels that the task holds, if any, runs `f`, and takes them back. Tells how
    /// often others took the mutex meanwhile.
    #[track_caller]
    pub fn relax<R>(&self, f: impl FnOnce() -> R) -> Relaxed<R> {
        self.0.relax(f)
    }

    /// As `relax`, also while locks of higher levels are held, which `relax` must not. A holder of
    /// this mutex must wait only inside a `sleep` for what others hold over one; else the two wait
    /// for each other. The order checker cannot see that.
    #[track_caller]
    pub fn sleep<R>(&self, f: impl FnOnce() -> R) -> Relaxed<R> {
        self.0.sleep(f)
    }

    /// True when the calling task holds the mutex.
    pub fn is_mine(&self) -> bool {
        self.0.is_mine()
    }

    /// The class.
    pub fn class(&self) -> &'static LockClass {
        self.0.class()
    }

    fn guard(&self) -> RelaxedMutexGuard<'_> {
        RelaxedMutexGuard {
            lock: self,
            not_send: PhantomData,
        }
    }
}

impl Drop for RelaxedMutexGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.0.unlock();
    }
}

#[derive(Debug)]
struct Adaptive {
    is_taken: AtomicBool,
    /// The CPU on which the owner took it.
    owner_cpu: AtomicUsize,
    has_spinner: AtomicBool,
    sleepers: AtomicUsize,
    gate: Mutex<()>,
    freed: Condvar,
}

impl Adaptive {
    const_unless_loom! {
        pub const fn new() -> Adaptive {
            Adaptive {
                is_taken: AtomicBool::new(false),
                owner_cpu: AtomicUsize::new(0),
                has_spinner: AtomicBool::new(false),
                sleepers: AtomicUsize::new(0),
                gate: Mutex::new(()),
                freed: Condvar::new(),
            }
        }
    }

    /// Spins while the owner runs. True when that gave the lock.
    fn spin(&self) -> bool {
        // A model gains nothing from trying again and again.
        if cfg!(any(loom, feature = "shuttle")) || self.has_spinner.swap(true, Ordering::Relaxed) {
            return false;
        }
        let mut is_taken = false;
        for _ in 0..SPINS_MAX {
            is_taken = !self.is_taken.load(Ordering::Relaxed) && self.try_take();
            if is_taken || self.owner_cpu.load(Ordering::Relaxed) == cpu::current() {
                break;
            }
            hint::spin_loop();
        }
        self.has_spinner.store(false, Ordering::Relaxed);
        is_taken
    }
}

impl RawWait for Adaptive {
    #[inline]
    fn try_take(&self) -> bool {
        let exchange =
            self.is_taken
                .compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst); // (2)
        if exchange.is_ok() {
            self.owner_cpu.store(cpu::current(), Ordering::Relaxed);
        }
        exchange.is_ok()
    }

    #[cold]
    fn take(&self) {
        if self.spin() {
            return;
        }
        let mut gate = self.gate.lock();
        self.sleepers.fetch_add(1, Ordering::SeqCst); // (1)
        while !self.try_take() {
            self.freed.wait(&mut gate);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    #[inline]
    fn give(&self) {
        self.is_taken.store(false, Ordering::SeqCst); // (3)
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            // (4)
            let _gate = self.gate.lock();
            self.freed.notify_one();
        }
    }
}
