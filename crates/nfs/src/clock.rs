//! When something was last used, to the second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A moment that many threads may note.
pub(crate) struct Stamp(AtomicU64);

/// Seconds of the kernel's coarse monotonic clock, which needs no system call.
fn seconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64
}

impl Stamp {
    pub(crate) fn now() -> Stamp {
        Stamp(AtomicU64::new(seconds()))
    }

    /// Now. Writes its line once a second only.
    pub(crate) fn set(&self) {
        let now = seconds();
        if self.0.load(Ordering::Relaxed) != now {
            self.0.store(now, Ordering::Relaxed);
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_secs(seconds().saturating_sub(self.0.load(Ordering::Relaxed)))
    }
}
