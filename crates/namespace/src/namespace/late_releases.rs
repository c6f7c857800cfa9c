//! References that a front end gives back some time after an inode lost its last name.
//!
//! The kernel tells a FUSE server of the end of an inode after the name is gone (FORGET), and the
//! server reads that later still. Until then the inode keeps its space. So an operation that finds
//! none waits once, where inodes lost their names so lately that references may still come back.

use std::time::Duration;

use finefs_locks::primitive::atomic::{AtomicU64, Ordering};

use crate::namespace::Namespace;

/// References of what was removed earlier than this have been given back, if the front end gets any
/// time at all.
const REMOVED_LATELY: Duration = Duration::from_millis(100);

/// See the module's head.
pub(super) struct LateReleases {
    /// How long to wait; 0 where nothing comes late.
    delay_ms: AtomicU64,
    /// When an inode last lost its names while it was in use, by [`coarse_ms`].
    removed_ms: AtomicU64,
}

impl LateReleases {
    /// Where nothing comes late.
    pub fn new() -> LateReleases {
        LateReleases {
            delay_ms: AtomicU64::new(0),
            // Long ago.
            removed_ms: AtomicU64::new(coarse_ms().wrapping_sub(1 << 32)),
        }
    }

    /// Notes that an inode in use lost its last name. Writes no line that other CPUs read but once
    /// a tick of the clock.
    fn note(&self) {
        if self.delay_ms.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = coarse_ms();
        if self.removed_ms.load(Ordering::Relaxed) != now {
            self.removed_ms.store(now, Ordering::Relaxed);
        }
    }

    /// How long to wait for references that may come back.
    fn expected(&self) -> Option<Duration> {
        let delay_ms = self.delay_ms.load(Ordering::Relaxed);
        if delay_ms == 0 {
            return None;
        }
        let age_ms = coarse_ms().wrapping_sub(self.removed_ms.load(Ordering::Relaxed));
        (age_ms <= REMOVED_LATELY.as_millis() as u64).then(|| Duration::from_millis(delay_ms))
    }
}

/// Milliseconds of the kernel's coarse monotonic clock, which ticks some 250 times a second.
fn coarse_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

impl Namespace {
    /// Has operations that find no space wait so long, once, if inodes that are still in use lost
    /// their last names a moment ago: for front ends that give references back late.
    pub fn expect_late_releases(&self, delay: Duration) {
        let delay_ms = delay.as_millis() as u64;
        self.late_releases
            .delay_ms
            .store(delay_ms, Ordering::Relaxed);
    }

    /// An inode in use lost its last name.
    pub(crate) fn note_late_release(&self) {
        self.late_releases.note();
    }

    /// Waits for references of inodes without names, outside of any operation; false if none are to
    /// be expected.
    #[cold]
    pub(super) fn wait_for_releases(&self) -> bool {
        let expected = self.late_releases.expected();
        if let Some(delay) = expected {
            std::thread::sleep(delay);
        }
        expected.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_removed_lately_is_waited_for() {
        let late = LateReleases::new();
        late.note();
        assert_eq!(late.expected(), None);
        late.delay_ms.store(10, Ordering::Relaxed);
        assert_eq!(late.expected(), None);
        late.note();
        assert_eq!(late.expected(), Some(Duration::from_millis(10)));
        let then = coarse_ms() - REMOVED_LATELY.as_millis() as u64 - 1;
        late.removed_ms.store(then, Ordering::Relaxed);
        assert_eq!(late.expected(), None);
    }
}
