//! Waiting: what the meter is told of it, and until when.

use std::time::Instant;

use crate::wait::{Holding, Metered, Waiting};

/// A request that may have to wait. Waits that end before a thread gave its CPU away are not worth
/// a clock's reading. Dropped without a grant, the request has given up.
pub(super) struct Wait<'a> {
    metered: Metered<'a>,
    waiting: Option<Waiting>,
}

impl<'a> Wait<'a> {
    pub(super) fn new(metered: Metered<'a>) -> Wait<'a> {
        Wait {
            metered,
            waiting: None,
        }
    }

    #[track_caller]
    pub(super) fn begin(&mut self) {
        if self.waiting.is_none() {
            self.waiting = self.metered.waiting();
        }
    }

    #[track_caller]
    pub(super) fn granted(self) -> Holding {
        match self.waiting {
            Some(waiting) => waiting.granted(self.metered.last_cpu),
            None => self.metered.taken(),
        }
    }
}

/// Looks at the grant before a waiter sleeps.
#[cfg(not(any(loom, feature = "shuttle")))]
const PARK_SPINS: u32 = 64;

/// Sleeps until a flag is set by another thread, which then unparks this one; false when the time
/// ran out.
#[cfg(not(any(loom, feature = "shuttle")))]
pub(super) fn park_until(is_done: impl Fn() -> bool, deadline: Option<Instant>) -> bool {
    for _ in 0..PARK_SPINS {
        if is_done() {
            return true;
        }
        std::hint::spin_loop();
    }
    while !is_done() {
        match deadline {
            None => std::thread::park(),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                std::thread::park_timeout(left);
            }
        }
    }
    true
}

/// Loom has no time: the wait ends only by the flag.
#[cfg(loom)]
pub(super) fn park_until(is_done: impl Fn() -> bool, _: Option<Instant>) -> bool {
    while !is_done() {
        loom::thread::park();
    }
    true
}

/// Shuttle has no time: it runs out by chance.
#[cfg(all(feature = "shuttle", not(loom)))]
pub(super) fn park_until(is_done: impl Fn() -> bool, deadline: Option<Instant>) -> bool {
    use shuttle::rand::Rng;
    while !is_done() {
        if deadline.is_none() {
            shuttle::thread::park();
        } else if shuttle::rand::thread_rng().gen_bool(0.25) {
            return false;
        } else {
            shuttle::thread::yield_now();
        }
    }
    true
}
