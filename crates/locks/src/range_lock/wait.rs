//! Waiting: how long it took, and until when.

use std::time::Instant;

use finefs_lockmeter::{self as lockmeter, LockClass};

use super::kind;
use super::node::Access;

/// Measures how long a contended acquisition waits. Waits that end before a thread gave its CPU away
/// are not worth a clock's reading.
pub(super) struct Wait {
    class: &'static LockClass,
    access: Access,
    since: Option<Instant>,
}

impl Wait {
    pub(super) fn new(class: &'static LockClass, access: Access) -> Wait {
        Wait {
            class,
            access,
            since: None,
        }
    }

    pub(super) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(since) = self.since {
            let wait_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            lockmeter::contended(self.class, kind(self.access), wait_ns);
        }
    }
}

/// Looks at the grant before a waiter sleeps.
#[cfg(not(any(loom, feature = "shuttle")))]
const PARK_SPINS: u32 = 64;

/// Sleeps until a flag is set by somebody who then unparks this thread; false when the time ran out.
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
