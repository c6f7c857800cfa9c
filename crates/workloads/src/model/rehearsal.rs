//! A lock alone, with the hold times of a load and the times between its visits, on this machine.
//!
//! What a sleeping lock lets through depends on what the scheduler does with those that it wakes. Where the
//! woken thread is put on another CPU, the waker finds the lock taken at its next visit and sleeps in its turn:
//! a convoy (Blasgen and others, "The Convoy Phenomenon", ACM SIGOPS OSR 13(2), 1979), in which each visit costs
//! a wake-up, and which lasts as long as a thread comes back sooner than the queue has gone through. Where it is
//! put on the waker's CPU, one of them runs at a time, they meet only when one is preempted inside, and there is
//! no convoy. No property of the load tells which; so the lock is tried with the load's times.
//!
//! The times vary as the load's do: threads that hold a lock for the same time each get into step and meet less
//! often, or always. Hold times are drawn from the quantiles that the meter's histogram has, times between visits
//! are exponential of the measured mean.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use finefs_locks::{BigLock, BigLockKind, LockClass};

use super::work::{Pace, work};

static REHEARSAL: LockClass = LockClass::new("workloads.rehearsal", 99);

/// How long a lock is held, and for how long not, by each of its visitors.
#[derive(Clone, PartialEq, Debug)]
pub struct Times {
    /// Each as likely as the others; no time if there are none.
    pub holds_ns: Vec<f64>,
    /// The mean of the times between two visits, taking and giving back the lock included.
    pub think_ns: f64,
}

/// Visits whose times are drawn beforehand, as rounds of work; then they begin again.
const DRAWN: usize = 1_024;

/// What a visitor does: works outside of the lock, and inside.
type Visit = (u32, u32);

impl Times {
    fn draw(&self, rng: &mut fastrand::Rng, pace: Pace, lock_ns: f64) -> Vec<Visit> {
        let think_ns = (self.think_ns - lock_ns).max(0.0);
        let mut visit = || {
            let outside_ns = -think_ns * (1.0 - rng.f64()).ln();
            let inside_ns = rng.choice(&self.holds_ns).copied().unwrap_or(0.0);
            (pace.rounds(outside_ns), pace.rounds(inside_ns))
        };
        (0..DRAWN).map(|_| visit()).collect()
    }
}

/// What it takes to take a lock that nobody has, and to give it back, nanoseconds.
fn lock_ns(lock: &BigLock) -> f64 {
    const TIMES: u32 = 10_000;
    let began = Instant::now();
    for _ in 0..TIMES {
        drop(lock.lock());
    }
    began.elapsed().as_nanos() as f64 / f64::from(TIMES)
}

/// How often whoever waits for the end looks whether it is stopped. As seldom as in a run of a load: who wakes up
/// takes a CPU from a thread, and that may begin or end a convoy.
const SLICE: Duration = Duration::from_millis(50);

/// A tenth of the time passes before visits count, as in a run of a load: threads begin on the CPU of who started
/// them, and take turns there until the scheduler spreads them.
const WARM_UP: f64 = 0.1;

/// Visits a second of all threads to one sleeping lock in so much time, or until `stop` becomes true.
pub fn visits_per_second(threads: usize, times: &Times, time: Duration, stop: &AtomicBool) -> f64 {
    let lock = BigLock::new(&REHEARSAL, BigLockKind::Sleeping);
    let start = Barrier::new(threads + 1);
    let (counts, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (pace, lock_ns) = (Pace::measure(), lock_ns(&lock));
    let visitor = |seed: u64| {
        let drawn = times.draw(&mut fastrand::Rng::with_seed(seed), pace, lock_ns);
        start.wait();
        let mut visits = 0_u64;
        for (outside, inside) in drawn.iter().cycle() {
            work(*outside);
            let held = lock.lock();
            work(*inside);
            drop(held);
            visits += u64::from(counts.load(Ordering::Relaxed));
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        visits
    };
    let visitor = &visitor;
    std::thread::scope(|scope| {
        let visitors: Vec<_> = (0..threads as u64)
            .map(|seed| scope.spawn(move || visitor(seed)))
            .collect();
        start.wait();
        sleep(time.mul_f64(WARM_UP), stop);
        counts.store(true, Ordering::Relaxed);
        let began = Instant::now();
        sleep(time, stop);
        is_over.store(true, Ordering::Relaxed);
        let took = began.elapsed();
        // Nothing in a visitor can panic.
        let visits: u64 = visitors.into_iter().filter_map(|one| one.join().ok()).sum();
        visits as f64 / took.as_secs_f64()
    })
}

/// Sleeps for so long, or until `stop` becomes true.
fn sleep(time: Duration, stop: &AtomicBool) {
    let began = Instant::now();
    while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(time.saturating_sub(began.elapsed()).min(SLICE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(threads: usize, times: &Times) -> f64 {
        let time = Duration::from_millis(20);
        visits_per_second(threads, times, time, &AtomicBool::new(false))
    }

    #[test]
    fn visits_are_counted_and_are_no_shorter_than_their_times() {
        let times = Times {
            holds_ns: vec![20_000.0; 3],
            think_ns: 80_000.0,
        };
        for threads in [1, 3] {
            let rate = rate(threads, &times);
            assert!(rate > 0.0 && rate < 1.1e6 / 20.0, "{threads}: {rate}");
        }
    }

    #[test]
    fn drawn_times_have_the_given_means() {
        let times = Times {
            holds_ns: vec![1_000.0, 3_000.0],
            think_ns: 9_000.0,
        };
        let pace = Pace::measure();
        let mut rng = fastrand::Rng::with_seed(1);
        let all: Vec<Visit> = (0..20)
            .flat_map(|_| times.draw(&mut rng, pace, 4_000.0))
            .collect();
        let mean = |of: fn(&Visit) -> u32| {
            all.iter().map(|visit| f64::from(of(visit))).sum::<f64>() / all.len() as f64
        };
        for (mean, expected_ns) in [
            (mean(|visit| visit.0), 5_000.0),
            (mean(|visit| visit.1), 2_000.0),
        ] {
            let expected = f64::from(pace.rounds(expected_ns));
            assert!((mean / expected - 1.0).abs() < 0.05, "{mean} {expected}");
        }
        // Taking the lock takes longer than there is between two visits.
        let hasty = Times {
            holds_ns: vec![],
            think_ns: 10.0,
        };
        assert!(
            hasty
                .draw(&mut rng, pace, 20.0)
                .iter()
                .all(|visit| *visit == (0, 0))
        );
    }

    /// It would sleep for an hour.
    #[test]
    fn it_ends_when_it_is_stopped() {
        let times = Times {
            holds_ns: vec![50.0],
            think_ns: 50.0,
        };
        let time = Duration::from_secs(3_600);
        let rate = visits_per_second(2, &times, time, &AtomicBool::new(true));
        assert!(rate.is_finite());
    }
}
