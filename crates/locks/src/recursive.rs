//! What the recursive locks share: the owner, how often it has taken the lock, and letting go of
//! all levels for a while.
//!
//! # Data model
//! A [`RawWait`] is the lock proper: taken or not, and how to wait. Around it [`Recursive`] keeps
//! the owner's task number (0: none) and, for the owner alone, the depth and what the order checker
//! and the meter know. `changes` counts the outermost acquisitions.
//!
//! # Invariants
//! 1. `owner` is a task's number only while that task holds the raw lock: it stores its number
//!    after taking and 0 before giving. So a task that finds its own number there holds the lock,
//!    and relaxed ordering suffices: no other task ever stores that number.
//! 2. `owned` and `changes` are changed only by the holder of the raw lock.
//!
//! # Locking
//! For the order checker only the outermost level counts. What [`Recursive::relax`] lets go of and
//! retakes must stand above nothing that is held meanwhile. [`Recursive::sleep`] may be called with
//! locks of higher levels held, as a task under the big kernel lock slept with semaphores held: the
//! order checker does not look at its retaking. It cannot deadlock if a holder of this lock waits
//! only inside a sleep for what others hold over one: then nobody waits for a sleeper while keeping
//! this lock from it.

use finefs_lockmeter::{Kind, LockClass};

use crate::order::{self, Held};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::{UnsafeCell, const_unless_loom};
use crate::task;
use crate::wait::{Holding, LastCpu, MeteredLock};

/// A lock that can be taken once, and how to wait for it.
pub(crate) trait RawWait {
    /// Takes it if it is free. Acquire ordering.
    fn try_take(&self) -> bool;
    /// Takes it, waiting as long as that needs. Acquire ordering.
    fn take(&self);
    /// Gives it back. Release ordering. Only to be called by the thread that has taken it.
    fn give(&self);
}

/// What [`crate::RelaxedMutex::relax`] and [`crate::BigLock::relax`] give.
///
/// ```
/// # use finefs_locks::{LockClass, RelaxedMutex};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let lock = RelaxedMutex::new(&CLASS);
/// let level = lock.lock();
/// let relaxed = lock.relax(|| 7);
/// if relaxed.others > 0 {
///     // Somebody was here: look again at all that was known.
/// }
/// assert_eq!(relaxed.value, 7);
/// # drop(level);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relaxed<R> {
    /// What the closure gave.
    pub value: R,
    /// How often others took the lock meanwhile. 0: all is as it was.
    pub others: u64,
}

/// Whether an acquisition must keep the lock order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Kept,
    /// See the module's head.
    Exempt,
}

#[derive(Debug)]
pub(crate) struct Recursive<W> {
    raw: W,
    owner: AtomicU64,
    changes: AtomicU64,
    /// `None`: not held.
    owned: UnsafeCell<Option<Owned>>,
    last_cpu: LastCpu,
    class: &'static LockClass,
}

#[derive(Debug)]
struct Owned {
    depth: u32,
    held: Held,
    holding: Holding,
}

// SAFETY: `owned` is accessed only by the task that holds the raw lock, whose orderings hand it
// from one to the next. `Held` and `Holding` refer to the holder's thread and never outlive its
// hold: `give_all` takes them out, in the thread whose `take_all` put them in, since guards are not
// `Send`.
unsafe impl<W: Send> Send for Recursive<W> {}
// SAFETY: as above; the raw lock is shared as it is.
unsafe impl<W: Sync> Sync for Recursive<W> {}

impl<W: RawWait> Recursive<W> {
    const_unless_loom! {
        pub const fn new(class: &'static LockClass, raw: W) -> Recursive<W> {
            Recursive {
                raw,
                owner: AtomicU64::new(0),
                changes: AtomicU64::new(0),
                owned: UnsafeCell::new(None),
                last_cpu: LastCpu::new(),
                class,
            }
        }
    }

    pub(crate) fn is_mine(&self) -> bool {
        self.owner.load(Ordering::Relaxed) == task::current()
    }

    pub(crate) fn raw(&self) -> &W {
        &self.raw
    }

    pub(crate) fn class(&self) -> &'static LockClass {
        self.class
    }

    #[inline]
    #[track_caller]
    pub(crate) fn lock(&self) {
        if self.is_mine() {
            // SAFETY: this task holds the raw lock (invariant 1).
            self.owned.with_mut(|owned| unsafe {
                (*owned).as_mut().expect("invariant 1").depth += 1;
            });
        } else {
            self.take_all(1, Order::Kept);
        }
    }

    /// Takes levels back that were let go of. Where what ran meanwhile has kept some that it took,
    /// the task holds them and these.
    #[track_caller]
    fn take_back(&self, depth: u32, order: Order) {
        if self.is_mine() {
            // SAFETY: this task holds the raw lock (invariant 1).
            self.owned.with_mut(|owned| unsafe {
                (*owned).as_mut().expect("invariant 1").depth += depth;
            });
        } else {
            self.take_all(depth, order);
        }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn try_lock(&self) -> bool {
        if self.is_mine() {
            self.lock();
            return true;
        }
        if !self.raw.try_take() {
            return false;
        }
        let held = order::acquired_by_try(self.class, None, self.address());
        self.taken(Owned {
            depth: 1,
            held,
            holding: self.metered(Kind::Writer).taken(),
        });
        true
    }

    /// One level less.
    #[inline]
    pub(crate) fn unlock(&self) {
        // A guard stays with its task, but may be dropped where that has let go of all levels.
        if !self.is_mine() {
            // In a panic another one would end the process. The level stays, as it does where a
            // guard is leaked.
            assert!(
                std::thread::panicking(),
                "a guard from before a relax is dropped within it"
            );
            return;
        }
        // SAFETY: this task holds the raw lock (invariant 1).
        let is_last = self.owned.with_mut(|owned| unsafe {
            let owned = (*owned).as_mut().expect("a guard exists");
            owned.depth -= 1;
            owned.depth == 0
        });
        if is_last {
            self.give_all();
        }
    }

    /// Lets go of all levels, runs `f`, and takes them back, after a panic too.
    #[track_caller]
    pub(crate) fn relax<R>(&self, f: impl FnOnce() -> R) -> Relaxed<R> {
        if self.is_mine() {
            // SAFETY: this task holds the raw lock (invariant 1).
            self.owned.with(|owned| unsafe {
                (*owned).as_ref().expect("invariant 1").held.check_retake();
            });
        }
        self.without(f, Order::Kept)
    }

    /// As [`Recursive::relax`], also while locks of higher levels are held: see the module's head.
    #[track_caller]
    pub(crate) fn sleep<R>(&self, f: impl FnOnce() -> R) -> Relaxed<R> {
        self.without(f, Order::Exempt)
    }

    #[track_caller]
    fn without<R>(&self, f: impl FnOnce() -> R, order: Order) -> Relaxed<R> {
        if !self.is_mine() {
            return Relaxed {
                value: f(),
                others: 0,
            };
        }
        let before = self.changes.load(Ordering::Relaxed);
        let retake = Retake {
            lock: self,
            depth: self.give_all_but_note(),
            order,
        };
        let value = f();
        let depth = retake.depth;
        std::mem::forget(retake);
        self.take_back(depth, order);
        let since = self.changes.load(Ordering::Relaxed).wrapping_sub(before);
        Relaxed {
            value,
            // One of them was its own.
            others: since.wrapping_sub(1),
        }
    }

    #[track_caller]
    fn take_all(&self, depth: u32, order: Order) {
        let held = match order {
            Order::Kept => order::acquire(self.class, None, self.address()),
            Order::Exempt => order::acquired_by_try(self.class, None, self.address()),
        };
        let ((), holding) = self
            .metered(Kind::Writer)
            .take(|| self.raw.try_take().then_some(()), || self.raw.take());
        self.taken(Owned {
            depth,
            held,
            holding,
        });
    }

    fn taken(&self, new: Owned) {
        // SAFETY: this task has just taken the raw lock.
        self.owned.with_mut(|owned| unsafe { *owned = Some(new) });
        let changes = self.changes.load(Ordering::Relaxed).wrapping_add(1);
        self.changes.store(changes, Ordering::Relaxed);
        self.owner.store(task::current(), Ordering::Relaxed);
    }

    #[inline]
    fn give_all(&self) {
        self.give_all_but_note();
    }

    /// Gives the raw lock back. How many levels there were.
    fn give_all_but_note(&self) -> u32 {
        self.owner.store(0, Ordering::Relaxed);
        // SAFETY: this task holds the raw lock.
        let owned = self.owned.with_mut(|owned| unsafe { (*owned).take() });
        let mut owned = owned.expect("held");
        owned.holding.stop();
        self.raw.give();
        drop(owned.held);
        // `holding` is counted here, after the release.
        owned.depth
    }
}

impl<W: RawWait> MeteredLock for Recursive<W> {
    #[inline]
    fn parts(&self) -> (&'static LockClass, &LastCpu) {
        (self.class, &self.last_cpu)
    }
}

impl<W> Drop for Recursive<W> {
    fn drop(&mut self) {
        // Still there when a guard was forgotten, perhaps by another thread, to which `held` and
        // `holding` belong.
        // SAFETY: `&mut self` excludes everybody else.
        let owned = self.owned.with_mut(|owned| unsafe { (*owned).take() });
        std::mem::forget(owned);
    }
}

/// Takes all levels back when what ran meanwhile panics.
struct Retake<'a, W: RawWait> {
    lock: &'a Recursive<W>,
    depth: u32,
    order: Order,
}

impl<W: RawWait> Drop for Retake<'_, W> {
    fn drop(&mut self) {
        self.lock.take_back(self.depth, self.order);
    }
}
