//! [`PerCpuCounter`]: a sum that is written often and read seldom.
//!
//! # Data model
//! The sum is what the counter started with plus all CPUs' parts.
//!
//! References: Linux `lib/percpu_counter.c`, without its batches.

use crossbeam_utils::CachePadded;

use crate::cpu;
use crate::primitive::atomic::{AtomicI64, Ordering};

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
    start: i64,
    parts: Box<[CachePadded<AtomicI64>]>,
}

impl PerCpuCounter {
    /// A counter that starts at `value`.
    pub fn new(value: i64) -> PerCpuCounter {
        PerCpuCounter {
            start: value,
            parts: (0..cpu::count())
                .map(|_| CachePadded::new(AtomicI64::new(0)))
                .collect(),
        }
    }

    /// Adds `amount`, which may be negative. Wraps at the limits of `i64`.
    #[inline]
    pub fn add(&self, amount: i64) {
        let part = &self.parts[cpu::current()];
        part.fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum of all additions that happened before the call; those made meanwhile may or may not
    /// be in it. Reads every CPU's line.
    pub fn exact(&self) -> i64 {
        let parts = self.parts.iter().map(|part| part.load(Ordering::Relaxed));
        parts.fold(self.start, i64::wrapping_add)
    }
}

impl Default for PerCpuCounter {
    fn default() -> PerCpuCounter {
        PerCpuCounter::new(0)
    }
}
