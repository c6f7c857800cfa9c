//! [`PerCpuCounter`]: a sum that is written often and read seldom.
//!
//! # Data model
//! The sum is `base` plus all CPUs' parts. A part that grows to a batch is folded into `base`, so
//! that `base` alone is off by less than a batch per CPU.
//!
//! # Locking
//! The fold mutex keeps folding and exact reading apart: else a fold could move a part that the
//! reader has not seen yet into the base that it has read already. It is a leaf.
//!
//! References: Linux `lib/percpu_counter.c`.

use crossbeam_utils::CachePadded;

use crate::cpu;
use crate::primitive::Mutex;
use crate::primitive::atomic::{AtomicI64, Ordering};

/// What a part may grow to.
const BATCH: i64 = 64;

/// A counter whose additions write only the CPU's own cache line.
///
/// ```
/// use finefs_locks::PerCpuCounter;
/// let files = PerCpuCounter::new(10);
/// files.add(5);
/// files.add(-1);
/// assert_eq!(files.exact(), 14);
/// ```
#[derive(Debug)]
pub struct PerCpuCounter {
    parts: Box<[CachePadded<AtomicI64>]>,
    base: AtomicI64,
    fold: Mutex<()>,
}

impl PerCpuCounter {
    /// A counter that starts at `value`.
    pub fn new(value: i64) -> PerCpuCounter {
        PerCpuCounter {
            parts: (0..cpu::count())
                .map(|_| CachePadded::new(AtomicI64::new(0)))
                .collect(),
            base: AtomicI64::new(value),
            fold: Mutex::new(()),
        }
    }

    /// Adds `amount`, which may be negative. Wraps at the limits of `i64`.
    #[inline]
    pub fn add(&self, amount: i64) {
        let part = &self.parts[cpu::current()];
        let now = part
            .fetch_add(amount, Ordering::Relaxed)
            .wrapping_add(amount);
        if now <= -BATCH || now >= BATCH {
            self.fold(part);
        }
    }

    #[cold]
    fn fold(&self, part: &AtomicI64) {
        let _fold = self.fold.lock();
        let amount = part.swap(0, Ordering::Relaxed);
        self.base.fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum, off by less than 64 per CPU (and by what is being added). Reads one line.
    #[inline]
    pub fn approximate(&self) -> i64 {
        self.base.load(Ordering::Relaxed)
    }

    /// The sum of all additions that happened before the call; those made meanwhile may or may not
    /// be in it. Reads every CPU's line.
    pub fn exact(&self) -> i64 {
        let _fold = self.fold.lock();
        let parts = self.parts.iter().map(|part| part.load(Ordering::Relaxed));
        parts.fold(self.base.load(Ordering::Relaxed), i64::wrapping_add)
    }
}

impl Default for PerCpuCounter {
    fn default() -> PerCpuCounter {
        PerCpuCounter::new(0)
    }
}
