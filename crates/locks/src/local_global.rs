//! [`LocalGlobal`]: a local/global lock (lglock). One shard of the data and one lock per CPU.
//!
//! # Rules
//! - Common work takes the *local* lock: that of the shard of the CPU that the thread happens to
//!   run on. It costs one atomic read-modify-write on a line that other CPUs rarely touch.
//! - What was put into a shard is found again through the shard's number, which the user records:
//!   the thread may run elsewhere by then. Any shard can be locked by number.
//! - Rare work takes the *global* lock: all shards' locks, in the order of their numbers. Nobody
//!   then is in any shard, so all of them together are one consistent state.
//!
//! # Locking
//! All shards have the lock's class, and their numbers as keys. So a thread that holds a shard may
//! take only higher-numbered shards, and not the global lock; the order checker sees to it. Since
//! the global lock takes the shards one after the other, a local holder that sleeps delays it, and
//! it delays all.
//!
//! References: Linux `kernel/locking/lglock.c` as of 2.6.36 to 4.6 (Nick Piggin, 2010).

use std::ops::{Deref, DerefMut};

use crossbeam_utils::CachePadded;
use finefs_lockmeter::LockClass;

use crate::cpu;
use crate::shard_lock::{ShardGuard, ShardLock};

/// Per-CPU shards of `T`, each under its own lock, and a lock over them all.
///
/// Common work takes the *local* lock, that of the shard of the CPU that the thread happens to run
/// on: one atomic read-modify-write on a line that other CPUs rarely touch. What was put into a
/// shard is found again through the shard's number, which the user records, for the thread may run
/// elsewhere by then; any shard can be locked by number, from any CPU. Rare work takes the *global*
/// lock: all shards, one after the other, so that all of them together are one consistent state. A
/// local holder that sleeps delays it, and it delays all.
///
/// The numbers of the shards are their order: a thread that holds a shard may take only
/// higher-numbered ones, and not the global lock. The order checker sees to it.
///
/// ```
/// use finefs_locks::{LocalGlobal, LockClass};
/// static LOG: LockClass = LockClass::new("example.log", 10);
/// let log = LocalGlobal::new(&LOG, |_shard| Vec::new());
/// log.local().push("record");
/// let all: Vec<_> = log.global().iter_mut().flat_map(std::mem::take).collect();
/// assert_eq!(all, ["record"]);
/// ```
#[derive(Debug)]
pub struct LocalGlobal<T> {
    shards: Box<[CachePadded<ShardLock<T>>]>,
}

/// Holds one shard; releases it when dropped.
///
/// It stays with its thread, and is shared between threads only where its data may be:
///
/// ```compile_fail
/// use finefs_locks::{LocalGlobal, LockClass};
/// static LOG: LockClass = LockClass::new("example.log", 10);
/// let log = LocalGlobal::new(&LOG, |_shard| std::cell::Cell::new(0));
/// let guard = log.local();
/// std::thread::scope(|scope| {
///     scope.spawn(|| guard.set(1));
/// });
/// ```
#[derive(Debug)]
#[must_use = "the shard is released when the guard is dropped"]
pub struct LocalGuard<'a, T> {
    shard: usize,
    guard: ShardGuard<'a, T>,
}

/// Holds all shards; releases them when dropped.
///
/// ```
/// # use finefs_locks::{LockClass, LocalGlobal};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let log = LocalGlobal::new(&CLASS, |_| 0);
/// let all = log.global();
/// assert_eq!(all.iter().sum::<i32>(), 0);
/// ```
#[derive(Debug)]
#[must_use = "the shards are released when the guard is dropped"]
pub struct GlobalGuard<'a, T> {
    guards: Vec<ShardGuard<'a, T>>,
}

impl<T> LocalGlobal<T> {
    /// A lock with one shard per CPU, whose data `init` makes from the shard's number.
    pub fn new(class: &'static LockClass, mut init: impl FnMut(usize) -> T) -> LocalGlobal<T> {
        let shards = (0..cpu::count())
            .map(|i| CachePadded::new(ShardLock::new(class, init(i))))
            .collect();
        LocalGlobal { shards }
    }

    /// The number of shards.
    #[inline]
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Takes the shard of the CPU that the thread runs on (or ran on a moment ago).
    #[inline]
    #[track_caller]
    pub fn local(&self) -> LocalGuard<'_, T> {
        self.shard(cpu::current_of(self.shards.len()))
    }

    /// Takes the shard of this number.
    ///
    /// # Panics
    /// When there is no such shard.
    #[inline]
    #[track_caller]
    pub fn shard(&self, shard: usize) -> LocalGuard<'_, T> {
        LocalGuard {
            shard,
            guard: self.shards[shard].lock(shard),
        }
    }

    /// Takes all shards.
    #[track_caller]
    pub fn global(&self) -> GlobalGuard<'_, T> {
        let mut guards = Vec::with_capacity(self.shards.len());
        // A loop and not a closure, so that the checker names the caller.
        for (number, shard) in self.shards.iter().enumerate() {
            guards.push(shard.lock(number));
        }
        GlobalGuard { guards }
    }

    /// All shards' data, through exclusive access.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.shards.iter_mut().map(|shard| shard.get_mut())
    }
}

impl<T> LocalGuard<'_, T> {
    /// The shard's number, to find it again by [`LocalGlobal::shard`].
    #[inline]
    pub fn shard(&self) -> usize {
        self.shard
    }
}

impl<T> Deref for LocalGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for LocalGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> GlobalGuard<'_, T> {
    /// All shards' data, in the order of the shards' numbers.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.guards.iter().map(|guard| &**guard)
    }

    /// All shards' data, in the order of the shards' numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.guards.iter_mut().map(|guard| &mut **guard)
    }
}
