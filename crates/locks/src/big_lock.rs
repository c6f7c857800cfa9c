//! [`BigLock`]: the big kernel lock, in the two forms in which it is remembered.
//!
//! # What it is for
//! To reproduce what one lock around everything costs, and to carry code that was written for one.
//! A task takes it as often as it likes; [`BigLock::relax`] stands for the scheduler, which took it
//! from a task that went to sleep and gave it back afterwards.
//!
//! # The two forms
//! - [`BigLockKind::Spinning`] (Linux before 2.6.11 and from 2.6.26 on): waiters spin, and the one
//!   that comes at the right moment gets it. In the kernel a holder was not preempted; here it can
//!   be, so a spinner gives its time slice away now and then.
//! - [`BigLockKind::Sleeping`] (`CONFIG_PREEMPT_BKL`, a semaphore): waiters sleep in a queue, and
//!   the lock is handed to the first. Nobody holds it in effect until that one has been scheduled:
//!   this dead time is what made open and close six times slower on eight CPUs than on one (Red
//!   Hat's bug 519126).
//!
//! # Locking
//! It guards no value. The queue's mutex is a leaf.

use std::collections::VecDeque;
use std::marker::PhantomData;

use finefs_lockmeter::LockClass;

use crate::primitive::atomic::{AtomicBool, Ordering};
use crate::primitive::{Arc, Condvar, Mutex, const_unless_loom, hint, thread};
use crate::recursive::{RawWait, Recursive, Relaxed};

/// How a [`BigLock`] is waited for.
///
/// ```
/// # use finefs_locks::{BigLock, BigLockKind, LockClass};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let lock = BigLock::new(&CLASS, BigLockKind::Sleeping);
/// assert_eq!(lock.kind(), BigLockKind::Sleeping);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BigLockKind {
    /// Waiters spin; no order.
    Spinning,
    /// Waiters sleep; in the order of their arrival.
    Sleeping,
}

/// A recursive lock around everything: the big kernel lock, to measure what it costs, and for code
/// that was written for one.
///
/// A task takes it as often as it likes. [`relax`](BigLock::relax) stands for the scheduler, which
/// took the lock from a task that went to sleep, all levels at once, and gave it back afterwards;
/// what may be done with guards around it is said at [`RelaxedMutex`](crate::RelaxedMutex). It
/// guards no value. [`BigLockKind`] says how it is waited for, and whether in an order.
///
/// ```
/// use finefs_locks::{BigLock, BigLockKind, LockClass};
/// static KERNEL: LockClass = LockClass::new("example.kernel", 10);
/// for kind in [BigLockKind::Spinning, BigLockKind::Sleeping] {
///     let kernel = BigLock::new(&KERNEL, kind);
///     let outer = kernel.lock();
///     let inner = kernel.lock();
///     let slept = kernel.relax(|| assert!(!kernel.is_mine()));
///     assert_eq!(slept.others, 0);
///     assert!(kernel.is_mine());
///     drop((outer, inner));
/// }
/// ```
#[derive(Debug)]
pub struct BigLock(Form);

#[derive(Debug)]
enum Form {
    Spinning(Recursive<Spin>),
    Sleeping(Recursive<Fair>),
}

/// Holds a level of a [`BigLock`]; releases it when dropped.
///
/// ```
/// # use finefs_locks::{BigLock, BigLockKind, LockClass};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let lock = BigLock::new(&CLASS, BigLockKind::Sleeping);
/// let level = lock.lock();
/// assert!(lock.is_mine());
/// drop(level);
/// assert!(!lock.is_mine());
/// ```
#[derive(Debug)]
#[must_use = "the level is released when the guard is dropped"]
pub struct BigLockGuard<'a> {
    lock: &'a BigLock,
    /// Levels belong to the task that took them.
    not_send: PhantomData<*const ()>,
}

/// Calls the same function of either form.
macro_rules! either {
    ($form:expr, $lock:ident => $call:expr) => {
        match $form {
            Form::Spinning($lock) => $call,
            Form::Sleeping($lock) => $call,
        }
    };
}

impl BigLock {
    const_unless_loom! {
        /// An unlocked lock.
        pub const fn new(class: &'static LockClass, kind: BigLockKind) -> BigLock {
            BigLock(match kind {
                BigLockKind::Spinning => Form::Spinning(Recursive::new(class, Spin::new())),
                BigLockKind::Sleeping => Form::Sleeping(Recursive::new(class, Fair::new())),
            })
        }
    }

    /// Takes the lock, or one more level of it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> BigLockGuard<'_> {
        either!(&self.0, lock => lock.lock());
        self.guard()
    }

    /// Takes the lock, or one more level of it, if no other task holds it.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<BigLockGuard<'_>> {
        let is_taken = either!(&self.0, lock => lock.try_lock());
        is_taken.then(|| self.guard())
    }

    /// Releases all levels that the task holds, if any, runs `f`, which sleeps, and takes them
    /// back. Tells how often others took the lock meanwhile.
    #[track_caller]
    pub fn relax<R>(&self, f: impl FnOnce() -> R) -> Relaxed<R> {
        either!(&self.0, lock => lock.relax(f))
    }

    /// As `relax`, also while locks of higher levels are held, which `relax` must not. A holder of
    /// this lock must wait only inside a `sleep` for what others hold over one; else the two wait
    /// for each other. The order checker cannot see that.
    #[track_caller]
    pub fn sleep<R>(&self, f: impl FnOnce() -> R) -> Relaxed<R> {
        either!(&self.0, lock => lock.sleep(f))
    }

    /// True when the calling task holds the lock.
    pub fn is_mine(&self) -> bool {
        either!(&self.0, lock => lock.is_mine())
    }

    /// How many sleep for the lock now; 0 for the spinning kind, which does not know. For tests and
    /// reports: it may have changed already.
    pub fn waiters(&self) -> usize {
        match &self.0 {
            Form::Spinning(_) => 0,
            Form::Sleeping(lock) => lock.raw().queue.lock().waiters.len(),
        }
    }

    /// How the lock is waited for.
    pub fn kind(&self) -> BigLockKind {
        match self.0 {
            Form::Spinning(_) => BigLockKind::Spinning,
            Form::Sleeping(_) => BigLockKind::Sleeping,
        }
    }

    /// The class.
    pub fn class(&self) -> &'static LockClass {
        either!(&self.0, lock => lock.class())
    }

    fn guard(&self) -> BigLockGuard<'_> {
        BigLockGuard {
            lock: self,
            not_send: PhantomData,
        }
    }
}

impl Drop for BigLockGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        either!(&self.lock.0, lock => lock.unlock());
    }
}

/// Looks at the word before a spinner gives up its time slice.
const SPINS_PER_SLICE: u32 = 1_000;

#[derive(Debug)]
struct Spin {
    is_taken: AtomicBool,
}

impl Spin {
    const_unless_loom! {
        pub const fn new() -> Spin {
            Spin { is_taken: AtomicBool::new(false) }
        }
    }
}

impl RawWait for Spin {
    #[inline]
    fn try_take(&self) -> bool {
        self.is_taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn take(&self) {
        let mut looks: u32 = 0;
        // Looking before taking leaves the line with its holder while it is taken.
        while self.is_taken.load(Ordering::Relaxed) || !self.try_take() {
            looks += 1;
            if looks.is_multiple_of(SPINS_PER_SLICE) || cfg!(any(loom, feature = "shuttle")) {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }

    #[inline]
    fn give(&self) {
        self.is_taken.store(false, Ordering::Release);
    }
}

#[derive(Debug)]
struct Fair {
    queue: Mutex<FairQueue>,
}

#[derive(Debug)]
struct FairQueue {
    is_taken: bool,
    waiters: VecDeque<Arc<Turn>>,
}

#[derive(Debug)]
struct Turn {
    /// Changes under the queue's mutex.
    has_come: AtomicBool,
    came: Condvar,
}

impl Fair {
    const_unless_loom! {
        pub const fn new() -> Fair {
            Fair { queue: Mutex::new(FairQueue { is_taken: false, waiters: VecDeque::new() }) }
        }
    }
}

impl RawWait for Fair {
    #[inline]
    fn try_take(&self) -> bool {
        !std::mem::replace(&mut self.queue.lock().is_taken, true)
    }

    #[cold]
    fn take(&self) {
        let mut queue = self.queue.lock();
        if !std::mem::replace(&mut queue.is_taken, true) {
            return;
        }
        let turn = Arc::new(Turn {
            has_come: AtomicBool::new(false),
            came: Condvar::new(),
        });
        queue.waiters.push_back(Arc::clone(&turn));
        while !turn.has_come.load(Ordering::Relaxed) {
            turn.came.wait(&mut queue);
        }
    }

    #[inline]
    fn give(&self) {
        let mut queue = self.queue.lock();
        match queue.waiters.pop_front() {
            // It stays taken: it is the next one's.
            Some(next) => {
                next.has_come.store(true, Ordering::Relaxed);
                next.came.notify_one();
            }
            None => queue.is_taken = false,
        }
    }
}
