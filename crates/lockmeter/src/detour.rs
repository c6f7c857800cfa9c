//! The one word of the process at which requests look that come to a lock without having looked at
//! its own.
//!
//! A lock that is free most of the time is taken by one instruction, which need not know what was
//! in its word. But that instruction writes the word, also where it does not get the lock. So
//! requests go round, and look first, while that would hurt: while a lock is in use whose word is
//! never free (a range lock that is spread, say), and while the meter wants to know of acquisitions
//! that do not wait.
//!
//! # Data model
//! `LIMIT` is `u64::MAX` or, during a *detour*, 0: a request gives a number, which is below the
//! limit if it may go straight. The lock knows what the number is, and may need one value that
//! never goes straight: `u64::MAX`. `REASONS` says why there is a detour, so that the limit is
//! right in the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// On a line of its own (and its neighbour's, which is fetched with it): everybody reads it.
#[repr(align(128))]
struct Limit(AtomicU64);

static LIMIT: Limit = Limit(AtomicU64::new(u64::MAX));

struct Reasons {
    /// Calls of `begin_detour` without one of `end_detour`.
    begun: usize,
    is_metering: bool,
}

fn change(change: impl FnOnce(&mut Reasons)) {
    static REASONS: Mutex<Reasons> = Mutex::new(Reasons {
        begun: 0,
        is_metering: false,
    });
    let mut reasons = REASONS.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut reasons);
    let is_straight = reasons.begun == 0 && !reasons.is_metering;
    let limit = if is_straight { u64::MAX } else { 0 };
    LIMIT.0.store(limit, Ordering::Relaxed);
}

/// True when a request may try to take its lock without looking at it first. Never so for
/// `u64::MAX`, nor while the meter wants to know of acquisitions that do not wait, nor during a
/// detour.
///
/// ```
/// use finefs_lockmeter::{begin_detour, end_detour, may_go_straight};
/// assert!(may_go_straight(4096));
/// assert!(!may_go_straight(u64::MAX));
/// begin_detour();
/// assert!(!may_go_straight(0));
/// end_detour();
/// assert!(may_go_straight(0));
/// ```
#[inline(always)]
pub fn may_go_straight(number: u64) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // An atomic load is not made the comparison's operand by the compiler.
        // SAFETY: compares with an aligned word that only `change` writes, atomically, and jumps.
        unsafe {
            std::arch::asm!(
                "cmp {number}, qword ptr [rip + {limit}]",
                "jae {round}",
                number = in(reg) number,
                limit = sym LIMIT,
                round = label {
                    return false;
                },
                options(nostack, readonly),
            );
        }
        true
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        number < LIMIT.0.load(Ordering::Relaxed)
    }
}

/// Sends requests to all locks that ask [`may_go_straight`] round, until [`end_detour`] was called
/// as often.
///
/// ```
/// # use finefs_lockmeter::{begin_detour, end_detour, may_go_straight};
/// begin_detour();
/// assert!(!may_go_straight(0));
/// # end_detour();
/// ```
pub fn begin_detour() {
    change(|reasons| reasons.begun += 1);
}

/// Takes back one call of [`begin_detour`].
///
/// ```
/// # use finefs_lockmeter::{begin_detour, end_detour, may_go_straight};
/// begin_detour();
/// end_detour();
/// assert!(may_go_straight(0));
/// ```
pub fn end_detour() {
    change(|reasons| {
        debug_assert_ne!(reasons.begun, 0, "more ends than beginnings");
        reasons.begun -= 1;
    });
}

#[cfg(not(feature = "off"))]
pub(crate) fn set_metering(is_metering: bool) {
    change(|reasons| reasons.is_metering = is_metering);
}
