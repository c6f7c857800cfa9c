//! One test for two questions: is the lock free, and does the meter want to know?
//!
//! A lock whose fast path is a dozen instructions feels the load and the branch by which
//! [`Holding::begin`](crate::Holding::begin) finds that nobody counts. It can have them for one
//! more operand of a test that it makes anyway: it lays out its word so that bit 31 is always set,
//! and the bits 10 and 30 are 0 when it may be taken at once. Where `word & hindrances()` is 0 it
//! is free and nobody counts. Else the lock goes its slow way, and asks there.

#[cfg(not(feature = "off"))]
use std::sync::atomic::{AtomicU32, Ordering};

/// The bits of a lock's word that are 0 when it is free: 10 and 30. See [`hindrances`].
///
/// ```
/// assert_eq!(finefs_lockmeter::HINDRANCES, 0x4000_0400);
/// ```
pub const HINDRANCES: u32 = 1 << 30 | 1 << 10;

/// The bit of a lock's word that is always set. See [`hindrances`].
///
/// ```
/// assert_eq!(finefs_lockmeter::ALWAYS, 0x8000_0000);
/// ```
pub const ALWAYS: u32 = 1 << 31;

#[cfg(not(feature = "off"))]
static HINDERING: AtomicU32 = AtomicU32::new(HINDRANCES);

/// [`HINDRANCES`], and [`ALWAYS`] when acquisitions that do not wait are to be counted or timed:
/// for a lock that asks with one test whether it is free and whether the meter wants to know.
///
/// ```
/// use finefs_lockmeter::{ALWAYS, Holding, Kind, LastCpu, LockClass, hindrances};
/// use std::sync::atomic::{AtomicU32, Ordering};
/// static CLASS: LockClass = LockClass::new("example.flag", 10);
/// const HELD: u32 = 1 << 10;
/// let (word, last_cpu) = (AtomicU32::new(ALWAYS), LastCpu::new());
/// let seen = word.load(Ordering::Relaxed);
/// if seen & hindrances() == 0 {
///     let taken = word.compare_exchange(seen, seen | HELD, Ordering::Acquire, Ordering::Relaxed);
///     assert!(taken.is_ok());
/// } else {
///     // Held, or counted. Waits, takes the lock, and:
///     let _holding = Holding::begin(&CLASS, Kind::Writer, &last_cpu);
/// }
/// ```
#[inline(always)]
pub fn hindrances() -> u32 {
    #[cfg(feature = "off")]
    {
        HINDRANCES
    }
    #[cfg(not(feature = "off"))]
    HINDERING.load(Ordering::Relaxed)
}

pub(crate) fn hinder(is_active: bool) {
    let _ = is_active;
    #[cfg(not(feature = "off"))]
    {
        let also = if is_active { ALWAYS } else { 0 };
        HINDERING.store(HINDRANCES | also, Ordering::Relaxed);
    }
}
