//! Work that keeps a CPU busy for some nanoseconds and touches nothing: shorter than a clock could
//! tell.

use std::hint::black_box;
use std::time::Instant;

/// Goes round so many times.
pub(super) fn work(rounds: u32) {
    for round in 0..rounds {
        black_box(round);
    }
}

/// How fast this machine goes round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    ns_per_round: f64,
}

const TRIES: usize = 9;
const ROUNDS: u32 = 20_000;

impl Pace {
    /// The fastest of a few tries: what disturbs them only adds.
    pub fn measure() -> Pace {
        let try_once = |_| {
            let began = Instant::now();
            work(ROUNDS);
            began.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
        };
        let fastest = (0..TRIES).map(try_once).fold(f64::INFINITY, f64::min);
        Pace {
            ns_per_round: fastest.max(1e-3),
        }
    }

    /// Rounds that take so long.
    pub fn rounds(self, time_ns: f64) -> u32 {
        (time_ns / self.ns_per_round) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_take_no_less_than_their_time() {
        let pace = Pace::measure();
        assert_eq!(pace.rounds(-5.0), 0);
        let rounds = pace.rounds(2e6);
        let began = Instant::now();
        work(rounds);
        // The fastest pace was measured; a CPU may be a little faster still.
        assert!(began.elapsed().as_nanos() > 1_000_000, "{pace:?}");
    }
}
