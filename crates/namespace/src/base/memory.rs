//! How much memory a file system takes for what it could load again: the account.
//!
//! # Data model
//! Bytes, counted by each CPU for itself. Each inode says what it was last counted for (`counted`
//! in `inode`), so that what leaves memory takes away just what it added; what grows is counted
//! anew when it is loaded or committed. What the inode table takes beside is `fixed`: looked at now
//! and then, and part of the sum. The caches of the store are not in it, and have sizes of their
//! own.
//!
//! An addition tells when this CPU's count has passed another multiple of a step. Only then is the
//! sum looked at, so it may be too large by a step for each CPU.

use crossbeam_utils::CachePadded;
use finefs_locks::cpu;
use finefs_locks::primitive::atomic::{AtomicI64, Ordering};

/// The longest step, as a power of two.
const STEP_LOG2_MAX: u32 = 16;
/// A limit has about so many steps, as a power of two.
const STEPS_LOG2: u32 = 9;

/// What takes more than one part in so many of a limit is large.
const LARGE_PART: i64 = 8;

/// What is fixed may take all but one part in so many of a limit.
const LEFT_PART: i64 = 4;

/// See the module's head.
pub(crate) struct Memory {
    parts: Box<[CachePadded<AtomicI64>]>,
    fixed: AtomicI64,
    limit: i64,
    step_log2: u32,
}

impl Memory {
    /// Of at most about `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Memory {
        let parts = 0..cpu::count();
        let step_log2 = limit_bytes.max(1).ilog2().saturating_sub(STEPS_LOG2);
        Memory {
            parts: parts.map(|_| CachePadded::new(AtomicI64::new(0))).collect(),
            fixed: AtomicI64::new(0),
            limit: i64::try_from(limit_bytes).unwrap_or(i64::MAX),
            step_log2: step_log2.min(STEP_LOG2_MAX),
        }
    }

    /// Counts bytes that came, or that went. True when it is time to look at the sum.
    #[inline]
    pub fn add(&self, bytes: i64) -> bool {
        let part = &self.parts[cpu::current() % self.parts.len()];
        let before = part.fetch_add(bytes, Ordering::Relaxed);
        bytes > 0 && (before ^ before.wrapping_add(bytes)) >> self.step_log2 != 0
    }

    /// What is counted, but for what is fixed.
    pub fn bytes(&self) -> i64 {
        let parts = self.parts.iter().map(|part| part.load(Ordering::Relaxed));
        parts.fold(0, i64::wrapping_add)
    }

    /// Takes note of what cannot be given back.
    pub fn set_fixed(&self, bytes: usize) {
        self.fixed.store(bytes as i64, Ordering::Relaxed);
    }

    /// What there may be beside what is fixed.
    fn allowed(&self) -> i64 {
        (self.limit - self.fixed.load(Ordering::Relaxed)).max(self.limit / LEFT_PART)
    }

    /// What one thing may take of it before it is taken apart.
    pub fn part(&self) -> u64 {
        (self.limit / LARGE_PART) as u64
    }

    /// Bytes to give back; none while there are few enough.
    pub fn surplus(&self) -> i64 {
        (self.bytes() - self.allowed()).max(0)
    }

    /// True when there is so much that threads that add more shall help.
    pub fn is_exceeded(&self) -> bool {
        self.bytes() > self.allowed().saturating_add(self.limit / 8)
    }

    /// True when enough was given back that there is room for a while.
    pub fn has_room(&self) -> bool {
        let allowed = self.allowed();
        self.bytes() <= allowed - allowed / 16
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn it_is_time_to_look_once_a_step() {
        let memory = Memory::new(1 << 20);
        let step = 1 << (20 - STEPS_LOG2);
        let looks = |bytes: i64, times: i64| (0..times).filter(|_| memory.add(bytes)).count();
        // A thread that changes its CPU counts on another one.
        assert!((4..=12).contains(&looks(step / 16, 16 * 8)));
        assert_eq!(looks(-step / 16, 16 * 8), 0);
        assert_eq!(memory.bytes(), 0);
        assert!(Memory::new(0).add(1), "every byte of none");
    }

    #[test]
    fn what_is_fixed_leaves_some_room() {
        let memory = Memory::new(1000);
        memory.add(900);
        assert_eq!((memory.surplus(), memory.is_exceeded()), (0, false));
        memory.set_fixed(400);
        assert_eq!((memory.surplus(), memory.is_exceeded()), (300, true));
        memory.set_fixed(5000);
        assert_eq!(memory.surplus(), 900 - 250);
        memory.add(-700);
        assert!(memory.has_room());
        assert_eq!(Memory::new(u64::MAX).surplus(), 0);
    }
}
