//! A lock alone, with the hold times of a load and the times between its visits, on this machine.
//!
//! What a spinning lock lets through depends on how often it stays where it is: `hand_over` has
//! more. Two cores may be near each other for some seconds and then further apart, where a virtual
//! machine's CPUs are moved; so a lock is tried just after the run that it stands for.
//!
//! What a sleeping lock lets through depends on what the scheduler does with those that it wakes.
//! Where the woken thread is put on another CPU, the waker finds the lock taken at its next visit
//! and sleeps in its turn: a convoy (Blasgen and others, "The Convoy Phenomenon", ACM SIGOPS OSR
//! 13(2), 1979), in which each visit costs a wake-up, and which lasts as long as a thread comes
//! back sooner than the queue has gone through. Where it is put on the waker's CPU, one of them
//! runs at a time, they meet only when one is preempted inside, and there is no convoy. No property
//! of the load tells which; so the lock is tried with the load's times. In a convoy the waker comes
//! back from waking while the other one runs already, so that one visits the lock a few times
//! before they meet again: the longer it is held, the fewer times. And who has slept finds its
//! caches cold and holds it longer ([`AfterWaiting`]).
//!
//! Now and then the state changes for some tens of milliseconds, in which a lock may let through
//! twenty times as much. What counts is the state that lasts, so the median of slices.
//!
//! The times vary as the load's do: threads that hold a lock for the same time each get into step
//! and meet less often, or always. Hold times are drawn from the quantiles that the meter's
//! histogram has, times between visits are exponential of the measured mean.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use finefs_locks::{BigLock, BigLockKind, LockClass};

use super::costs::median;
use super::work::{Pace, work};

static REHEARSAL: LockClass = LockClass::new("study.rehearsal", 99);

/// How long a lock is held, and for how long not, by each of its visitors.
#[derive(Clone, PartialEq, Debug)]
pub struct Times {
    /// Each as likely as the others; no time if there are none.
    pub holds_ns: Vec<f64>,
    /// The mean of the times between two visits, taking and giving back the lock included.
    pub think_ns: f64,
    /// What becomes of the holds after a wait.
    pub after_waiting: AfterWaiting,
}

/// Who has slept for the lock finds its caches cold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AfterWaiting {
    /// Visits that are longer, the one that had to wait included.
    pub visits: f64,
    /// How many times longer the lock is held there, and the work between them takes.
    pub longer: f64,
}

impl AfterWaiting {
    /// It makes no difference.
    pub const AS_USUAL: AfterWaiting = AfterWaiting {
        visits: 0.0,
        longer: 1.0,
    };
}

/// A thread's, as far as they make its work longer.
struct Caches {
    after_waiting: AfterWaiting,
    cold_visits: u32,
}

impl Caches {
    fn warm(after_waiting: AfterWaiting) -> Caches {
        Caches {
            after_waiting,
            cold_visits: 0,
        }
    }

    fn grow_cold(&mut self) {
        self.cold_visits = self.after_waiting.visits.round() as u32;
    }

    fn visited(&mut self) {
        self.cold_visits = self.cold_visits.saturating_sub(1);
    }

    /// Rounds of work that take as long as so many with warm caches.
    fn rounds(&self, warm: u32) -> u32 {
        match self.cold_visits {
            0 => warm,
            _ => (f64::from(warm) * self.after_waiting.longer) as u32,
        }
    }
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

/// How often whoever waits for the end looks whether it is stopped. As seldom as in a run of a
/// load: who wakes up takes a CPU from a thread, and that may begin or end a convoy.
const SLICE: Duration = Duration::from_millis(50);

/// A tenth of the time passes before visits count, as in a run of a load: threads begin on the CPU
/// of who started them, and take turns there until the scheduler spreads them.
const WARM_UP: f64 = 0.1;

/// Visits a second of all threads to one lock in so much time, or until `stop` becomes true: the
/// median over slices of the time, which is that of the state that lasts.
pub fn visits_per_second(
    kind: BigLockKind,
    threads: usize,
    times: &Times,
    time: Duration,
    stop: &AtomicBool,
) -> f64 {
    let lock = BigLock::new(&REHEARSAL, kind);
    let start = Barrier::new(threads + 1);
    let is_over = AtomicBool::new(false);
    let visits: Vec<CachePadded<AtomicU64>> =
        (0..threads).map(|_| CachePadded::default()).collect();
    let (pace, lock_ns) = (Pace::measure(), lock_ns(&lock));
    let visitor = |seed: u64, visits: &AtomicU64| {
        let mut caches = Caches::warm(times.after_waiting);
        let drawn = times.draw(&mut fastrand::Rng::with_seed(seed), pace, lock_ns);
        start.wait();
        for (visit, (outside, inside)) in (1..).zip(drawn.iter().cycle()) {
            work(caches.rounds(*outside));
            let held = lock.try_lock().unwrap_or_else(|| {
                caches.grow_cold();
                lock.lock()
            });
            work(caches.rounds(*inside));
            drop(held);
            caches.visited();
            // Only this thread writes it.
            visits.store(visit, Ordering::Relaxed);
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    let visitor = &visitor;
    let rates = std::thread::scope(|scope| {
        for (seed, visits) in (0..).zip(&visits) {
            scope.spawn(move || visitor(seed, visits));
        }
        start.wait();
        sleep(time.mul_f64(WARM_UP), stop);
        let rates = rates(&visits, time, stop);
        is_over.store(true, Ordering::Relaxed);
        rates
    });
    median(rates).unwrap_or(0.0)
}

/// What all get through a second, in each slice of the time.
fn rates(visits: &[CachePadded<AtomicU64>], time: Duration, stop: &AtomicBool) -> Vec<f64> {
    let so_far = || -> u64 {
        visits
            .iter()
            .map(|of_one| of_one.load(Ordering::Relaxed))
            .sum()
    };
    let began = Instant::now();
    let (mut before, mut rates) = ((so_far(), began), Vec::new());
    while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(time.saturating_sub(began.elapsed()).min(SLICE));
        let now = (so_far(), Instant::now());
        rates.push((now.0 - before.0) as f64 / (now.1 - before.1).as_secs_f64());
        before = now;
    }
    rates
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

    const KINDS: [BigLockKind; 2] = [BigLockKind::Spinning, BigLockKind::Sleeping];

    fn rate(kind: BigLockKind, threads: usize, times: &Times) -> f64 {
        let time = Duration::from_millis(20);
        visits_per_second(kind, threads, times, time, &AtomicBool::new(false))
    }

    #[test]
    fn visits_are_counted_and_are_no_shorter_than_their_times() {
        let times = Times {
            holds_ns: vec![20_000.0; 3],
            think_ns: 80_000.0,
            after_waiting: AfterWaiting::AS_USUAL,
        };
        for (kind, threads) in KINDS.into_iter().flat_map(|kind| [(kind, 1), (kind, 3)]) {
            let rate = rate(kind, threads, &times);
            let most = 1.1e6 / 20.0;
            assert!(rate > 0.0 && rate < most, "{kind:?} {threads}: {rate}");
        }
    }

    #[test]
    fn drawn_times_have_the_given_means() {
        let times = Times {
            holds_ns: vec![1_000.0, 3_000.0],
            think_ns: 9_000.0,
            after_waiting: AfterWaiting::AS_USUAL,
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
            after_waiting: AfterWaiting::AS_USUAL,
        };
        assert!(
            hasty
                .draw(&mut rng, pace, 20.0)
                .iter()
                .all(|visit| *visit == (0, 0))
        );
    }

    #[test]
    fn a_short_change_of_state_does_not_count() {
        let rates = vec![80.0, 2_000.0, 90.0, 70.0, 85.0];
        assert_eq!(median(rates), Some(85.0));
    }

    #[test]
    fn caches_are_cold_for_some_visits_after_a_wait() {
        let mut caches = Caches::warm(AfterWaiting {
            visits: 2.4,
            longer: 2.5,
        });
        assert_eq!(caches.rounds(100), 100);
        caches.grow_cold();
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(caches.rounds(100));
            caches.visited();
        }
        assert_eq!(seen, [250, 250, 100]);
        let mut as_usual = Caches::warm(AfterWaiting::AS_USUAL);
        as_usual.grow_cold();
        assert_eq!(as_usual.rounds(100), 100);
    }

    /// It would sleep for an hour.
    #[test]
    fn it_ends_when_it_is_stopped() {
        let times = Times {
            holds_ns: vec![50.0],
            think_ns: 50.0,
            after_waiting: AfterWaiting::AS_USUAL,
        };
        let time = Duration::from_secs(3_600);
        for kind in KINDS {
            let rate = visits_per_second(kind, 2, &times, time, &AtomicBool::new(true));
            assert!(rate.is_finite());
        }
    }
}
