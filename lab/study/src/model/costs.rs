//! What handing a lock over costs on this machine, and what its meter adds to a hold time.
//!
//! Measured by two threads that are bound to different CPUs; where they ran on one, nothing would
//! travel and nobody would be woken from idle.
//! - A line: they play ping-pong by spinning on one word. Half of a round is one hand-over.
//! - A lock: each of them takes it, works, gives it back, works as long outside, and so on. So the
//!   other one waits at each release, and gets it while the first one works outside: the lock goes
//!   from one to the other at each visit, and what a visit takes beside the work is one hand-over,
//!   with all lines that the lock has. Under a load a spinning lock may keep no turns; a big one is
//!   rehearsed, and this is the cost of the fine ones.
//!
//! Medians of many short batches count, and the mean over pairs of the first CPU with others.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use finefs_lockmeter::{Mode, mode, set_mode, snapshot};
use finefs_locks::{BigLock, BigLockKind, LockClass, Mutex};
use serde::Serialize;

use super::preemption::{self, Preemption};
use super::work::{Pace, work};
use finefs_workloads::affinity;

static CALIBRATION: LockClass = LockClass::new("study.calibration", 99);

/// Costs of this machine. Those of hand-overs are `None` with a single CPU, and where threads
/// cannot be bound to CPUs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Costs {
    /// A cache line from one core to another, nanoseconds.
    pub line_transfer_ns: Option<f64>,
    /// From the end of a visit to a spinning lock to the beginning of another core's, nanoseconds.
    pub spinning_ns: Option<f64>,
    /// The same of a sleeping lock, whose next holder has to be woken, nanoseconds.
    pub sleeping_ns: Option<f64>,
    /// What the meter shows for a lock that is released at once, nanoseconds: the cost of
    /// measuring.
    pub empty_hold_ns: f64,
    /// What it costs that threads share CPUs.
    pub preemption: Preemption,
}

impl Costs {
    /// The median of each of them, over several measurements; nothing costs anything where there is
    /// none.
    pub fn median_of(all: &[Costs]) -> Costs {
        let known = |of: fn(&Costs) -> Option<f64>| median(all.iter().filter_map(of).collect());
        let middle = |of: fn(&Costs) -> f64| median(all.iter().map(of).collect()).unwrap_or(0.0);
        Costs {
            line_transfer_ns: known(|costs| costs.line_transfer_ns),
            spinning_ns: known(|costs| costs.spinning_ns),
            sleeping_ns: known(|costs| costs.sleeping_ns),
            empty_hold_ns: middle(|costs| costs.empty_hold_ns),
            preemption: Preemption {
                slice_ns: middle(|costs| costs.preemption.slice_ns),
                away_ns: middle(|costs| costs.preemption.away_ns),
            },
        }
    }
}

/// Pairs of CPUs that are tried: on a large machine not all.
const PAIRS_MAX: usize = 8;
const LINE_BATCHES: usize = 40;
const LINE_ROUNDS: u32 = 100;
const LOCK_BATCHES: usize = 7;
const LOCK_TIME: Duration = Duration::from_millis(6);
/// Longer than a spinning lock's hand-over takes, shorter than a time slice by far.
const WORK_NS: f64 = 2_000.0;
const HOLDS: u64 = 20_000;

/// Measures; takes some hundred milliseconds, unless `stop` ends it: then the costs are those of
/// the few hand-overs so far. Switches the meter to its full mode meanwhile.
pub fn measure(stop: &AtomicBool) -> Costs {
    Costs {
        line_transfer_ns: over_pairs(stop, LINE_BATCHES, line_batch_ns),
        spinning_ns: over_pairs(stop, LOCK_BATCHES, |cpus| {
            lock_batch_ns(BigLockKind::Spinning, cpus)
        }),
        sleeping_ns: over_pairs(stop, LOCK_BATCHES, |cpus| {
            lock_batch_ns(BigLockKind::Sleeping, cpus)
        }),
        empty_hold_ns: empty_hold_ns(),
        preemption: preemption::measure(stop),
    }
}

/// How long a cache line takes from one core to another, nanoseconds; `None` with a single CPU, and
/// where threads cannot be bound to CPUs.
pub fn line_transfer_ns() -> Option<f64> {
    over_pairs(&AtomicBool::new(false), LINE_BATCHES, line_batch_ns)
}

/// The mean over pairs of CPUs of the median of so many batches, of one at least.
fn over_pairs(
    stop: &AtomicBool,
    batches: usize,
    batch_ns: impl Fn([usize; 2]) -> Option<f64>,
) -> Option<f64> {
    let cpus = affinity::allowed();
    let (first, others) = cpus.split_first()?;
    let step = others.len().div_ceil(PAIRS_MAX).max(1);
    // Where other programs have the CPUs, each hand-over waits for their time slices.
    let goes_on = |batch: &usize| *batch == 0 || !stop.load(Ordering::Relaxed);
    let of_pair = |other: &usize| {
        let batches = (0..batches).take_while(goes_on);
        let all: Option<Vec<f64>> = batches.map(|_| batch_ns([*first, *other])).collect();
        median(all?)
    };
    let pairs: Option<Vec<f64>> = others.iter().step_by(step).map(of_pair).collect();
    let pairs = pairs.filter(|pairs| !pairs.is_empty())?;
    Some(pairs.iter().sum::<f64>() / pairs.len() as f64)
}

/// The middle one.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A line's hand-over; `None` where the threads cannot be bound.
fn line_batch_ns(cpus: [usize; 2]) -> Option<f64> {
    // Whose turn it is: even numbers are the first one's, odd ones the second one's.
    let (turn, is_refused) = (&AtomicU32::new(0), &AtomicBool::new(false));
    let play = move |player: u32, cpu: usize| {
        if !affinity::bind_to(cpu) {
            is_refused.store(true, Ordering::Relaxed);
        }
        let mut began = Instant::now();
        for round in 0..LINE_ROUNDS {
            await_turn(turn, 2 * round + player);
            if round == 0 {
                // Both are there.
                began = Instant::now();
            }
            turn.store(2 * round + player + 1, Ordering::Release);
        }
        began.elapsed()
    };
    let took = std::thread::scope(|scope| {
        scope.spawn(move || play(0, cpus[0]));
        let second = scope.spawn(move || play(1, cpus[1]));
        // Nothing in it can panic.
        second.join().unwrap_or_default()
    });
    let hand_overs = 2 * (LINE_ROUNDS - 1);
    let is_bound = !is_refused.load(Ordering::Relaxed);
    is_bound.then(|| took.as_nanos() as f64 / f64::from(hand_overs))
}

fn await_turn(turn: &AtomicU32, number: u32) {
    let mut looks = 0u32;
    while turn.load(Ordering::Acquire) != number {
        looks += 1;
        // The other one may have no CPU of its own at the moment.
        if looks.is_multiple_of(10_000) {
            std::thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

/// A lock's hand-over; `None` where the threads cannot be bound.
fn lock_batch_ns(kind: BigLockKind, cpus: [usize; 2]) -> Option<f64> {
    let lock = &BigLock::new(&CALIBRATION, kind);
    let (ready, is_over) = (&AtomicU32::new(0), &AtomicBool::new(false));
    let visit = move |cpu: usize| {
        let is_bound = affinity::bind_to(cpu);
        let rounds = Pace::measure().rounds(WORK_NS);
        ready.fetch_add(1, Ordering::AcqRel);
        await_turn(ready, 2);
        let (began, mut visits) = (Instant::now(), 0_u64);
        while !is_over.load(Ordering::Relaxed) {
            work(rounds);
            let held = lock.lock();
            work(rounds);
            drop(held);
            visits += 1;
            if began.elapsed() >= LOCK_TIME {
                is_over.store(true, Ordering::Relaxed);
            }
        }
        let visit_ns = began.elapsed().as_nanos() as f64 / visits.max(1) as f64;
        is_bound.then_some(visit_ns)
    };
    let of_both = std::thread::scope(|scope| {
        let visitors = cpus.map(|cpu| scope.spawn(move || visit(cpu)));
        // Nothing in them can panic.
        visitors.map(|visitor| visitor.join().unwrap_or(None))
    });
    // Visits of both together.
    let between_ns = 1.0 / (1.0 / of_both[0]? + 1.0 / of_both[1]?);
    Some((between_ns - WORK_NS).max(0.0))
}

fn empty_hold_ns() -> f64 {
    let lock = Mutex::new(&CALIBRATION, ());
    let before = (mode(), snapshot());
    set_mode(Mode::Full);
    for _ in 0..HOLDS {
        drop(lock.lock());
    }
    set_mode(before.0);
    let counts = snapshot().since(&before.1);
    let class = counts.class(CALIBRATION.name());
    // The median: an interrupt in the middle of a hold is not the meter's cost.
    class
        .and_then(|class| class.writer.hold.quantile_ns(0.5))
        .map_or(0.0, |ns| ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine that others kept busy an interrupted run went on for a minute.
    #[test]
    fn who_is_stopped_measures_one_batch() {
        let batches = AtomicU32::new(0);
        let count = |_| {
            batches.fetch_add(1, Ordering::Relaxed);
            Some(1.0)
        };
        let one = over_pairs(&AtomicBool::new(true), 1_000, count);
        let pairs = (affinity::cpus() - 1).min(PAIRS_MAX) as u32;
        assert_eq!(one, (pairs > 0).then_some(1.0));
        assert_eq!(batches.load(Ordering::Relaxed), pairs);
        assert_eq!(measure(&AtomicBool::new(true)).preemption, Preemption::NONE);
    }

    #[test]
    fn costs_are_of_the_right_kind() {
        let costs = measure(&AtomicBool::new(false));
        assert!(costs.empty_hold_ns < 1e6, "{costs:?}");
        for cost in [costs.line_transfer_ns, costs.spinning_ns, costs.sleeping_ns] {
            assert_eq!(cost.is_some(), affinity::cpus() > 1, "{costs:?}");
            assert!(cost.is_none_or(|ns| ns > 0.0), "{costs:?}");
        }
    }

    #[test]
    fn the_middle_of_each_is_taken() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![]), None);
        let costs = |number: f64| Costs {
            line_transfer_ns: Some(number),
            spinning_ns: None,
            sleeping_ns: Some(10.0 - number),
            empty_hold_ns: number,
            preemption: Preemption::NONE,
        };
        let of_three = Costs::median_of(&[costs(1.0), costs(7.0), costs(4.0)]);
        assert_eq!(
            of_three,
            Costs {
                sleeping_ns: Some(6.0),
                ..costs(4.0)
            }
        );
    }
}
