//! [`ShardedMax`]: a maximum that is raised often and read seldom, such as a directory's latest
//! change.
//!
//! # Data model
//! Each CPU has its own maximum on its own cache line; the maximum is the greatest of them. Raising
//! reads the line first, so that a value which is not new writes nothing.

use crossbeam_utils::CachePadded;

use crate::cpu;
use crate::primitive::atomic::{AtomicU64, Ordering};

/// A maximum whose raising writes only the CPU's own cache line.
///
/// ```
/// use finefs_locks::ShardedMax;
/// let changed_ns = ShardedMax::new(100);
/// changed_ns.raise(250);
/// changed_ns.raise(170);
/// assert_eq!(changed_ns.get(), 250);
/// ```
#[derive(Debug)]
pub struct ShardedMax {
    parts: Box<[CachePadded<AtomicU64>]>,
}

impl ShardedMax {
    /// A maximum of `value`.
    pub fn new(value: u64) -> ShardedMax {
        ShardedMax {
            parts: (0..cpu::count())
                .map(|_| CachePadded::new(AtomicU64::new(value)))
                .collect(),
        }
    }

    /// Raises it to `value` if it is less.
    #[inline]
    pub fn raise(&self, value: u64) {
        let part = &self.parts[cpu::current()];
        if part.load(Ordering::Relaxed) < value {
            // Threads may share the CPU's part: the greater must stay. Release: a thread that reads
            // the value sees what led to it.
            part.fetch_max(value, Ordering::Release);
        }
    }

    /// The greatest value it was raised to before the call; those raised meanwhile may or may not
    /// be in it. Reads every CPU's line.
    pub fn get(&self) -> u64 {
        let parts = self.parts.iter().map(|part| part.load(Ordering::Acquire));
        parts.max().unwrap_or(0)
    }
}
