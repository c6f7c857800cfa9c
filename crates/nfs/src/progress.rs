//! Whether a thread that serves gets on with its calls. One that waits for a device in a READ, say,
//! does not tell beforehand: most READs wait for nothing. So each thread counts its calls, and
//! another looks from time to time whether it is still in the same one.

use std::sync::atomic::{AtomicU64, Ordering};

/// Of one thread, which alone counts; one other thread looks. In a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Progress {
    /// Grows with each begin and end of a call. Odd in a call that has not told that it waits.
    steps: AtomicU64,
    /// The same at the last look.
    seen: AtomicU64,
}

/// What is seen of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// It is in no call, or in one that has told that it waits.
    Free,
    /// It is in a call.
    Busy,
    /// It is in the same call as at the last look.
    Stuck,
}

impl Progress {
    /// A call begins, or goes on after it has waited.
    pub(crate) fn begin(&self) {
        let steps = self.steps.load(Ordering::Relaxed);
        self.steps.store((steps + 1) | 1, Ordering::Relaxed);
    }

    /// The call ends, also by a panic some time ago, or tells that it waits.
    pub(crate) fn end(&self) {
        let steps = self.steps.load(Ordering::Relaxed);
        self.steps.store((steps | 1) + 1, Ordering::Relaxed);
    }

    /// Looks at the thread.
    pub(crate) fn look(&self) -> Seen {
        let steps = self.steps.load(Ordering::Relaxed);
        let before = self.seen.swap(steps, Ordering::Relaxed);
        match steps % 2 {
            0 => Seen::Free,
            _ if steps == before => Seen::Stuck,
            _ => Seen::Busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_stays_in_one_call_is_stuck() {
        let progress = Progress::default();
        assert_eq!(progress.look(), Seen::Free);
        progress.begin();
        assert_eq!(
            [progress.look(), progress.look()],
            [Seen::Busy, Seen::Stuck]
        );
        progress.end();
        progress.begin();
        assert_eq!(progress.look(), Seen::Busy);
        // One that ended by a panic.
        progress.begin();
        assert_eq!(
            [progress.look(), progress.look()],
            [Seen::Busy, Seen::Stuck]
        );
        progress.end();
        progress.end();
        assert_eq!([progress.look(), progress.look()], [Seen::Free, Seen::Free]);
    }
}
