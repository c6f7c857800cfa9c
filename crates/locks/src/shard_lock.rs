//! `ShardLock`: the lock of one CPU's shard. One atomic read-modify-write to take and release it.
//!
//! # Why not a mutex
//! A mutex releases by an exchange, because it must see whether somebody sleeps. Here the release
//! is a plain store and a plain look at the number of sleepers; that the two are not reordered is
//! paid for by the sleeper, through an asymmetric [`barrier`]. A shard is taken by other CPUs'
//! threads so rarely that this is the better trade.
//!
//! # Protocol
//! A sleeper (1) counts itself; heavy barrier; (2) tries to take the word; fails, and sleeps. The
//! owner (3) frees the word; light barrier; (4) looks for sleepers and wakes one. Either (2) comes
//! after (3) and succeeds, or (4) comes after (1) and sees the sleeper. A sleeper holds the gate's
//! mutex from (1) until it sleeps and the owner wakes under it, so that the wake-up does not fall
//! in between. A woken sleeper that finds the word taken again sleeps again: that owner's (4) sees
//! it. The loom tests `shard_lock_*` fail without either barrier.
//!
//! # Locking
//! The gate's mutex is a leaf.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use finefs_lockmeter::{Kind, LockClass};

use crate::barrier;
use crate::order::{self, Held};
use crate::primitive::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::primitive::{Condvar, Mutex, UnsafeCell, hint, thread};
use crate::wait::{Holding, LastCpu, Metered};

/// Looks at the word before a waiter sleeps: what a shard is held for takes less.
const SPINS_MAX: u32 = 100;

/// And times that it gives the CPU away: the holder may wait for this one. Sleeping interrupts all
/// CPUs.
const YIELDS: u32 = if cfg!(any(loom, feature = "shuttle")) {
    0
} else {
    8
};

#[derive(Debug)]
pub(crate) struct ShardLock<T> {
    is_taken: AtomicBool,
    last_cpu: LastCpu,
    sleepers: AtomicUsize,
    class: &'static LockClass,
    value: UnsafeCell<T>,
    gate: Mutex<()>,
    freed: Condvar,
}

// SAFETY: the value goes from thread to thread with the lock: it needs to be Send, and that is all.
unsafe impl<T: Send> Sync for ShardLock<T> {}

#[derive(Debug)]
pub(crate) struct ShardGuard<'a, T> {
    lock: &'a ShardLock<T>,
    _held: Held,
    holding: Holding,
    /// A guard lent to another thread gives it `&T`: it may be shared where T may, as a `&mut T`
    /// may.
    _value: PhantomData<&'a mut T>,
}

impl<T> ShardLock<T> {
    pub(crate) fn new(class: &'static LockClass, value: T) -> ShardLock<T> {
        barrier::prepare();
        ShardLock {
            is_taken: AtomicBool::new(false),
            last_cpu: LastCpu::new(),
            sleepers: AtomicUsize::new(0),
            class,
            value: UnsafeCell::new(value),
            gate: Mutex::new(()),
            freed: Condvar::new(),
        }
    }

    /// Takes the shard of this number.
    #[inline]
    #[track_caller]
    pub(crate) fn lock(&self, shard: usize) -> ShardGuard<'_, T> {
        let address = std::ptr::from_ref(self).addr();
        let held = order::acquire(self.class, Some((shard as u64, 0)), address);
        let metered = Metered {
            class: self.class,
            kind: Kind::Writer,
            last_cpu: &self.last_cpu,
            address,
        };
        let take = || self.try_take().then_some(());
        let ((), holding) = metered.take(take, || self.take());
        ShardGuard {
            lock: self,
            _held: held,
            holding,
            _value: PhantomData,
        }
    }

    #[inline]
    fn try_take(&self) -> bool {
        self.is_taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed) // (2)
            .is_ok()
    }

    #[cold]
    fn take(&self) {
        let spins = if cfg!(any(loom, feature = "shuttle")) {
            1
        } else {
            SPINS_MAX
        };
        for _ in 0..spins {
            if !self.is_taken.load(Ordering::Relaxed) && self.try_take() {
                return;
            }
            hint::spin_loop();
        }
        for _ in 0..YIELDS {
            thread::yield_now();
            if !self.is_taken.load(Ordering::Relaxed) && self.try_take() {
                return;
            }
        }
        let mut gate = self.gate.lock();
        self.sleepers.fetch_add(1, Ordering::Relaxed); // (1)
        barrier::heavy();
        while !self.try_take() {
            self.freed.wait(&mut gate);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    fn give(&self) {
        self.is_taken.store(false, Ordering::Release); // (3)
        barrier::light();
        // (4)
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let _gate = self.gate.lock();
        self.freed.notify_one();
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes everybody else.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Deref for ShardGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, so nobody else has access but through this guard.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for ShardGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` excludes other uses of this guard.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for ShardGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.holding.stop();
        self.lock.give();
    }
}
