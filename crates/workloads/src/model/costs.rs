//! What handing a lock over costs on this machine, and what its meter adds to a hold time.
//!
//! Two threads play ping-pong: by spinning on one word each, whose line then travels; and by waking each
//! other from sleep. Half of a round is one hand-over. Of many short batches the fastest counts for the line:
//! what disturbs it only adds. For waking up it is the median, because how deep the CPU sleeps varies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use finefs_lockmeter::{Mode, mode, set_mode, snapshot};
use finefs_locks::{LockClass, Mutex};
use serde::Serialize;

static CALIBRATION: LockClass = LockClass::new("workloads.calibration", 99);

/// Costs of this machine.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Costs {
    /// A cache line from one core to another, nanoseconds; `None` with a single CPU.
    pub line_transfer_ns: Option<f64>,
    /// From waking a thread until it runs, nanoseconds.
    pub wake_up_ns: f64,
    /// What the meter shows for a lock that is released at once, nanoseconds: the cost of measuring.
    pub empty_hold_ns: f64,
}

const SPINNING_BATCHES: usize = 60;
const SPINNING_ROUNDS: u32 = 100;
const SLEEPING_BATCHES: usize = 15;
const SLEEPING_ROUNDS: u32 = 100;
const HOLDS: u64 = 20_000;

/// Measures; takes some tens of milliseconds on a machine that has nothing else to do, and seconds where other
/// programs keep its CPUs busy, unless `stop` ends it: then the costs are those of the few hand-overs so far.
/// Switches the meter to its full mode meanwhile.
pub fn measure(stop: &AtomicBool) -> Costs {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let line_transfer = (cpus > 1).then(|| ping_pong(Wait::Spinning, stop));
    let wake_ups = ping_pong(Wait::Sleeping, stop);
    Costs {
        line_transfer_ns: line_transfer.map(|batches| batches[0]),
        wake_up_ns: wake_ups[wake_ups.len() / 2],
        empty_hold_ns: empty_hold_ns(),
    }
}

/// How long a cache line takes from one core to another, nanoseconds; `None` with a single CPU.
pub fn line_transfer_ns() -> Option<f64> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus > 1).then(|| ping_pong(Wait::Spinning, &AtomicBool::new(false))[0])
}

#[derive(Clone, Copy, PartialEq)]
enum Wait {
    Spinning,
    Sleeping,
}

/// Nanoseconds of one hand-over in each batch, fastest first; of one batch at least.
fn ping_pong(wait: Wait, stop: &AtomicBool) -> Vec<f64> {
    let (batches, rounds) = match wait {
        Wait::Spinning => (SPINNING_BATCHES, SPINNING_ROUNDS),
        Wait::Sleeping => (SLEEPING_BATCHES, SLEEPING_ROUNDS),
    };
    // Where other programs have the CPUs, each hand-over waits for their time slices.
    let goes_on = |batch: &usize| *batch == 0 || !stop.load(Ordering::Relaxed);
    let mut batches: Vec<f64> = (0..batches)
        .take_while(goes_on)
        .map(|_| batch(rounds, wait))
        .collect();
    batches.sort_by(f64::total_cmp);
    batches
}

/// Whose turn it is: even numbers are the caller's, odd ones the partner's.
fn batch(rounds: u32, wait: Wait) -> f64 {
    let turn = Arc::new(AtomicU32::new(0));
    let caller = std::thread::current();
    let partner = {
        let turn = Arc::clone(&turn);
        std::thread::spawn(move || {
            for round in 0..rounds {
                await_turn(&turn, 2 * round + 1, wait);
                give_turn(&turn, 2 * round + 2, wait, &caller);
            }
        })
    };
    let start = Instant::now();
    for round in 0..rounds {
        await_turn(&turn, 2 * round, wait);
        give_turn(&turn, 2 * round + 1, wait, partner.thread());
    }
    await_turn(&turn, 2 * rounds, wait);
    let took = start.elapsed();
    // It has given the last turn: nothing is left that could panic.
    let _ = partner.join();
    took.as_nanos() as f64 / f64::from(2 * rounds)
}

fn await_turn(turn: &AtomicU32, number: u32, wait: Wait) {
    let mut looks = 0u32;
    while turn.load(Ordering::Acquire) != number {
        looks += 1;
        match wait {
            Wait::Sleeping => std::thread::park_timeout(Duration::from_secs(1)),
            // The partner may have no CPU of its own at the moment.
            Wait::Spinning if looks.is_multiple_of(200) => std::thread::yield_now(),
            Wait::Spinning => std::hint::spin_loop(),
        }
    }
}

fn give_turn(turn: &AtomicU32, number: u32, wait: Wait, to: &Thread) {
    turn.store(number, Ordering::Release);
    if wait == Wait::Sleeping {
        to.unpark();
    }
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
    fn who_is_stopped_makes_no_more_batches() {
        for wait in [Wait::Spinning, Wait::Sleeping] {
            assert_eq!(ping_pong(wait, &AtomicBool::new(true)).len(), 1);
        }
    }

    #[test]
    fn costs_are_of_the_right_kind() {
        let costs = measure(&AtomicBool::new(false));
        assert!(
            costs.wake_up_ns > 0.0 && costs.empty_hold_ns < 1e6,
            "{costs:?}"
        );
        if let Some(line_transfer_ns) = costs.line_transfer_ns {
            assert!(line_transfer_ns > 0.0, "{costs:?}");
        }
    }
}
