//! Asymmetric barriers: one side, which is common, pays almost nothing; the other, which is rare,
//! pays for both.
//!
//! # What they give
//! Thread A stores x, calls [`light`], loads y. Thread B stores y, calls [`heavy`], loads x. Then A
//! sees B's store or B sees A's, or both: it cannot be that neither does.
//!
//! # How
//! Where Linux has `membarrier` (4.14 and later, unless a seccomp filter forbids it), `heavy` is
//! that system call: it makes every CPU that runs a thread of this process execute a full barrier.
//! So `light` need only keep the compiler from reordering. Elsewhere both are sequentially
//! consistent fences. Loom and shuttle, which know no system calls, test the protocols with such
//! fences on both sides.
//!
//! References: Linux `membarrier(2)`; Dice et al., "Asymmetric Dekker synchronization" (2001).

#[cfg(not(any(loom, feature = "shuttle")))]
pub(crate) use native::{heavy, light, prepare};

/// Nothing to prepare.
#[cfg(any(loom, feature = "shuttle"))]
pub(crate) fn prepare() {}

/// The common side.
#[cfg(any(loom, feature = "shuttle"))]
pub(crate) fn light() {
    crate::primitive::atomic::fence(crate::primitive::atomic::Ordering::SeqCst);
}

/// The rare side.
#[cfg(any(loom, feature = "shuttle"))]
pub(crate) fn heavy() {
    light();
}

#[cfg(not(any(loom, feature = "shuttle")))]
mod native {
    use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

    const UNDECIDED: u8 = 0;
    const MEMBARRIER: u8 = 1;
    const FENCES: u8 = 2;

    /// Set by `prepare`, before any lock that uses the barriers exists, and never again: both sides
    /// always agree.
    static DECISION: AtomicU8 = AtomicU8::new(UNDECIDED);

    /// Decides how. Every constructor of a lock that uses the barriers calls it.
    pub(crate) fn prepare() {
        if DECISION.load(Ordering::Relaxed) == UNDECIDED {
            let decision = if register() { MEMBARRIER } else { FENCES };
            // The first decision stays.
            let _ = DECISION.compare_exchange(
                UNDECIDED,
                decision,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    #[inline(always)]
    fn has_membarrier() -> bool {
        DECISION.load(Ordering::Relaxed) == MEMBARRIER
    }

    /// The common side.
    #[inline(always)]
    pub(crate) fn light() {
        if has_membarrier() {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The rare side.
    pub(crate) fn heavy() {
        if has_membarrier() {
            // A process that was forked off may have to register again.
            let is_done = barrier() || (register() && barrier());
            assert!(
                is_done,
                "membarrier worked when the lock was made and fails now"
            );
        }
        fence(Ordering::SeqCst);
    }

    #[cfg(target_os = "linux")]
    fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    #[cfg(target_os = "linux")]
    fn barrier() -> bool {
        membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    #[cfg(target_os = "linux")]
    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: takes three numbers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    #[cfg(not(target_os = "linux"))]
    fn register() -> bool {
        false
    }

    #[cfg(not(target_os = "linux"))]
    fn barrier() -> bool {
        false
    }
}
