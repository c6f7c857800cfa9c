//! [`LimitedCounter`]: an amount that many take from and that never goes below zero.
//!
//! # Purpose
//! Free blocks, free inodes: taking must be cheap while there is plenty, and may fail only when
//! there is really too little.
//!
//! # Data model
//! The amount is spread over a stash per CPU and a central pool. Taking and giving touch the CPU's
//! stash. A stash that is too small is refilled from the pool by a batch; when the pool is too
//! small as well, everything is collected first.
//!
//! # Invariants
//! 1. The amount is the pool plus all stashes. While somebody holds the pool's mutex, what it has
//!    in its hands counts as well.
//! 2. A frozen stash is empty, and only the holder of the pool's mutex freezes and thaws. A thread
//!    that finds a stash frozen goes to the pool instead.
//!
//! # Collecting
//! It freezes one stash after the other and takes what they hold. When all are frozen, every take
//! and give waits for the pool's mutex: so the sum is exact, and a refusal is true. (Without the
//! freezing, an amount that is given to a stash already visited and taken from one not yet visited
//! would be missed twice; the shuttle test `limited_counter_refuses_only_when_short` finds that.)
//!
//! # Locking
//! The pool's mutex is a leaf.

use crossbeam_utils::CachePadded;

use crate::cpu;
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::{Mutex, MutexGuard};

/// In a stash: frozen, and empty.
const FROZEN: u64 = u64::MAX;
/// What a stash is refilled with beyond what is taken at once.
const BATCH_MAX: u64 = 256;

/// An amount that is taken from and given to, mostly on the CPU's own cache line.
///
/// ```
/// use finefs_locks::LimitedCounter;
/// let free_blocks = LimitedCounter::new(100);
/// assert!(free_blocks.try_take(60));
/// assert!(!free_blocks.try_take(60));
/// free_blocks.give(20);
/// assert!(free_blocks.try_take(60));
/// assert_eq!(free_blocks.available(), 0);
/// ```
#[derive(Debug)]
pub struct LimitedCounter {
    stashes: Box<[CachePadded<AtomicU64>]>,
    pool: Mutex<u64>,
}

impl LimitedCounter {
    /// A counter with `total` to take, less than 2^63.
    pub fn new(total: u64) -> LimitedCounter {
        LimitedCounter {
            stashes: (0..cpu::count())
                .map(|_| CachePadded::new(AtomicU64::new(0)))
                .collect(),
            pool: Mutex::new(total),
        }
    }

    /// Takes `amount`, all of it or, when less is left, nothing.
    #[inline]
    pub fn try_take(&self, amount: u64) -> bool {
        let stash = &self.stashes[cpu::current()];
        take_from(stash, amount) || self.take_from_pool(stash, amount, amount) == amount
    }

    /// Takes up to `amount`; gives how much. Less only when less is left.
    #[inline]
    pub fn take_up_to(&self, amount: u64) -> u64 {
        let stash = &self.stashes[cpu::current()];
        match take_from(stash, amount) {
            true => amount,
            false => self.take_from_pool(stash, amount, 0),
        }
    }

    /// Gives `amount` (back).
    #[inline]
    pub fn give(&self, amount: u64) {
        let stash = &self.stashes[cpu::current()];
        let given = stash.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |content| {
            // A sum that would look frozen goes to the pool too.
            content
                .checked_add(amount)
                .filter(|sum| content != FROZEN && *sum != FROZEN)
        });
        if given.is_err() {
            let mut pool = self.pool.lock();
            *pool = pool.saturating_add(amount);
        }
    }

    /// Takes `amount`, or what there is if that is `least` or more, or nothing.
    #[cold]
    fn take_from_pool(&self, stash: &AtomicU64, amount: u64, least: u64) -> u64 {
        let mut pool = self.pool.lock();
        if *pool < amount {
            self.collect(&mut pool);
        }
        let taken = amount.min(*pool);
        if taken < least {
            return 0;
        }
        let rest = *pool - taken;
        // Never more than a fair share, so that the last units are not hidden in one stash.
        let batch = BATCH_MAX.min(rest / self.stashes.len() as u64);
        *pool = rest - batch;
        // The pool's mutex is held, so the stash is not frozen.
        stash.fetch_add(batch, Ordering::AcqRel);
        taken
    }

    /// Moves everything into the pool.
    fn collect(&self, pool: &mut MutexGuard<'_, u64>) {
        for stash in &self.stashes {
            **pool = pool.saturating_add(stash.swap(FROZEN, Ordering::AcqRel));
        }
        for stash in &self.stashes {
            stash.store(0, Ordering::Release);
        }
    }

    /// What is left. What is taken or given meanwhile may or may not be in it.
    pub fn available(&self) -> u64 {
        let pool = self.pool.lock();
        let stashes = self
            .stashes
            .iter()
            .map(|stash| stash.load(Ordering::Acquire));
        stashes.fold(*pool, u64::saturating_add)
    }
}

/// Takes `amount` from a stash; false when it holds less or is frozen.
#[inline]
fn take_from(stash: &AtomicU64, amount: u64) -> bool {
    let taken = stash.fetch_update(
        Ordering::AcqRel,
        Ordering::Relaxed,
        |content| match content {
            FROZEN => None,
            content => content.checked_sub(amount),
        },
    );
    taken.is_ok()
}
