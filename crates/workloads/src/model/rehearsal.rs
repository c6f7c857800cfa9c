//! A lock alone, with the hold times of a load and the times between its visits, on this machine.
//!
//! What a sleeping lock lets through depends on what the scheduler does with those that it wakes. Where the
//! woken thread is put on another CPU, the waker finds the lock taken at its next visit and sleeps in its turn:
//! a convoy (Blasgen and others, "The Convoy Phenomenon", ACM SIGOPS OSR 13(2), 1979), in which each visit costs
//! a wake-up, and which lasts as long as a thread comes back sooner than the queue has gone through. Where it is
//! put on the waker's CPU, one of them runs at a time, they meet only when one is preempted inside, and there is
//! no convoy. No property of the load tells which; so the lock is tried with the load's times.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use finefs_locks::{BigLock, BigLockKind, LockClass};

static REHEARSAL: LockClass = LockClass::new("workloads.rehearsal", 99);

/// Visits a second of all threads to one sleeping lock, each held for `hold` after `think` without it.
pub fn visits_per_second(threads: usize, hold: Duration, think: Duration, time: Duration) -> f64 {
    let lock = BigLock::new(&REHEARSAL, BigLockKind::Sleeping);
    let (start, is_over) = (Barrier::new(threads + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let visitors: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    let mut visits = 0_u64;
                    while !is_over.load(Ordering::Relaxed) {
                        spin(think);
                        let guard = lock.lock();
                        spin(hold);
                        drop(guard);
                        visits += 1;
                    }
                    visits
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
        let took = began.elapsed();
        // Nothing in a visitor can panic.
        let visits: u64 = visitors.into_iter().filter_map(|one| one.join().ok()).sum();
        visits as f64 / took.as_secs_f64()
    })
}

/// Keeps the CPU busy.
fn spin(time: Duration) {
    let began = Instant::now();
    while black_box(began.elapsed()) < time {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_are_counted_and_are_no_shorter_than_their_times() {
        let (hold, think) = (Duration::from_micros(20), Duration::from_micros(80));
        for threads in [1, 3] {
            let time = Duration::from_millis(20);
            let rate = visits_per_second(threads, hold, think, time);
            assert!(rate > 0.0 && rate < 1.1e6 / 20.0, "{threads}: {rate}");
        }
    }
}
