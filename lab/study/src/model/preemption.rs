//! What it costs that the holder of a spinning lock loses its CPU to a thread that wants the lock.
//!
//! Measured with two threads on one CPU. One holds the lock and reads the clock all the time, the
//! other one spins for it. Where the clock makes a leap the holder was away; from leap to leap is
//! its time slice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use finefs_locks::{BigLock, BigLockKind, LockClass};
use serde::Serialize;

use finefs_workloads::affinity;
use finefs_workloads::now_ns;

static PREEMPTED: LockClass = LockClass::new("study.preempted", 99);

/// How often a running thread loses its CPU to one that spins for a lock, and for how long.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Preemption {
    /// Time for which it runs without a break, nanoseconds.
    pub slice_ns: f64,
    /// Time until it runs again: the other one has spun until it gave up its turn, nanoseconds.
    pub away_ns: f64,
}

impl Preemption {
    /// Nobody is ever preempted.
    pub const NONE: Preemption = Preemption {
        slice_ns: f64::INFINITY,
        away_ns: 0.0,
    };

    /// Time away in each nanosecond of running.
    pub(super) fn away_per_ns(self) -> f64 {
        self.away_ns / self.slice_ns
    }
}

/// For how long the two share a CPU.
const TIME: Duration = Duration::from_millis(60);
/// Shorter leaps of the clock are interrupts.
const LEAP_MIN_NS: u64 = 5_000;

/// Measures; takes some tens of milliseconds, or until `stop` becomes true. [`Preemption::NONE`]
/// where the system does not let threads be bound to a CPU.
pub fn measure(stop: &AtomicBool) -> Preemption {
    let Some(cpu) = affinity::allowed().first().copied() else {
        return Preemption::NONE;
    };
    let lock = &BigLock::new(&PREEMPTED, BigLockKind::Spinning);
    std::thread::scope(|scope| {
        let holder = scope.spawn(move || {
            if !affinity::bind_to(cpu) {
                return Preemption::NONE;
            }
            let held = lock.lock();
            // It inherits the CPU.
            scope.spawn(move || drop(lock.lock()));
            let preemption = watch_the_clock(stop);
            drop(held);
            preemption
        });
        // Nothing in it can panic.
        holder.join().unwrap_or(Preemption::NONE)
    })
}

fn watch_the_clock(stop: &AtomicBool) -> Preemption {
    let began_ns = now_ns();
    let end_ns = began_ns + TIME.as_nanos() as u64;
    let (mut last_ns, mut away_ns, mut leaps) = (began_ns, 0, 0_u64);
    while last_ns < end_ns && !stop.load(Ordering::Relaxed) {
        let now_ns = now_ns();
        if now_ns - last_ns >= LEAP_MIN_NS {
            away_ns += now_ns - last_ns;
            leaps += 1;
        }
        last_ns = now_ns;
    }
    if leaps == 0 {
        return Preemption::NONE;
    }
    let ran_ns = (last_ns - began_ns - away_ns).max(1);
    Preemption {
        slice_ns: ran_ns as f64 / leaps as f64,
        away_ns: away_ns as f64 / leaps as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_cpu_is_away_now_and_then() {
        let preemption = measure(&AtomicBool::new(false));
        assert!(preemption.slice_ns > 0.0, "{preemption:?}");
        assert!(
            preemption == Preemption::NONE || preemption.away_ns >= LEAP_MIN_NS as f64,
            "{preemption:?}"
        );
    }

    #[test]
    fn it_ends_when_it_is_stopped() {
        let began_ns = now_ns();
        let preemption = watch_the_clock(&AtomicBool::new(true));
        assert_eq!(preemption, Preemption::NONE);
        assert!(now_ns() >= began_ns);
        assert_eq!(Preemption::NONE.away_per_ns(), 0.0);
    }
}
