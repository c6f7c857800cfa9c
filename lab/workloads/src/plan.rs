//! How a workload is run: by whom, how long, from which seed.

use crate::error::{Result, WorkloadError};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Who does the work at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Crew {
    /// Threads of this process.
    Threads(usize),
    /// Processes of one thread each.
    Processes(usize),
}

impl Crew {
    /// How many they are.
    pub fn count(self) -> usize {
        match self {
            Crew::Threads(count) | Crew::Processes(count) => count,
        }
    }
}

impl std::fmt::Display for Crew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, what) = match self {
            Crew::Threads(count) => (count, "thread"),
            Crew::Processes(count) => (count, "process"),
        };
        let ending = match (count, self) {
            (1, _) => "",
            (_, Crew::Threads(_)) => "s",
            (_, Crew::Processes(_)) => "es",
        };
        write!(f, "{count} {what}{ending}")
    }
}

/// When a run is over.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Length {
    /// After this many seconds, or earlier when a worker has nothing left to do.
    Seconds(f64),
    /// When each worker has done this many operations.
    Operations(u64),
}

/// How a workload is run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Who works.
    pub crew: Crew,
    /// How long.
    pub length: Length,
    /// Work before the measurement, in seconds; only of a run over seconds.
    pub warm_up_seconds: f64,
    /// Of the random numbers: the same seed gives the same choices.
    pub seed: u64,
    /// Contents and counts are checked.
    pub is_verified: bool,
    /// The latency of each operation is noted, which costs a reading of the clock each.
    pub has_latencies: bool,
    /// What the lock meter counts during the measurement is part of the report. Only of threads of
    /// this process; what the meter counts is as its mode says.
    pub has_lock_counts: bool,
    /// Each worker sleeps for so long before each operation.
    pub nap: Duration,
}

impl Plan {
    /// A plan without warm-up and latencies, verified.
    pub fn new(crew: Crew, length: Length) -> Plan {
        Plan {
            crew,
            length,
            warm_up_seconds: 0.0,
            seed: 42,
            is_verified: true,
            has_latencies: false,
            has_lock_counts: false,
            nap: Duration::ZERO,
        }
    }

    pub(crate) fn warm_up(&self) -> Duration {
        match self.length {
            Length::Seconds(_) => Duration::from_secs_f64(self.warm_up_seconds),
            Length::Operations(_) => Duration::ZERO,
        }
    }
}

/// Who watches a run from outside.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// The run ends soon after this becomes true, cleaning up.
    pub stop: &'a AtomicBool,
    /// Is told now and then how much of the work is done, from 0 to 1.
    pub progress: &'a (dyn Fn(f64) + Sync),
    /// Is told `true` when the measurement begins, after preparation and warm-up, and `false` when
    /// it is over, before anything is removed. Only of threads of this process.
    pub measuring: &'a (dyn Fn(bool) + Sync),
}

impl Watch<'_> {
    /// Nobody.
    pub fn nobody() -> Watch<'static> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Watch {
            stop: &NEVER,
            progress: &|_| {},
            measuring: &|_| {},
        }
    }

    /// An error when the run shall end.
    pub fn check_stop(&self) -> Result<()> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(WorkloadError::Interrupted),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crews_are_named() {
        assert_eq!(Crew::Threads(1).to_string(), "1 thread");
        assert_eq!(Crew::Threads(2).to_string(), "2 threads");
        assert_eq!(Crew::Processes(8).to_string(), "8 processes");
    }
}
