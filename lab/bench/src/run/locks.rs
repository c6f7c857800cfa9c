//! What the lock meter says of a run: contention by class, and who waited or held too long.
//!
//! The second is what two SystemTap scripts did for the big kernel lock in Red Hat's bug 519126: a
//! backtrace of each wait and hold over a threshold in microseconds.

use std::time::Duration;

use clap::Args;
use finefs_lockmeter::{Mode, Thresholds, set_mode, set_thresholds, take_reports};

#[derive(Args)]
#[command(next_help_heading = "Locks (in this process only)")]
pub(crate) struct LockOptions {
    /// Count all acquisitions, and print them by lock class with contention, waits and holds
    #[arg(long, conflicts_with_all = ["dir", "processes"])]
    contention: bool,
    /// Print who waited for or held a lock for at least N microseconds, with backtraces: the last
    /// 256, at most ten of each second
    #[arg(long, value_name = "N", conflicts_with_all = ["dir", "processes"])]
    threshold_us: Option<u64>,
}

impl LockOptions {
    pub(crate) fn has_counts(&self) -> bool {
        self.contention
    }

    /// Switches the meter to what is asked for while `is_measured`, and back: what is prepared and
    /// removed is none of the run.
    pub(crate) fn switch(&self, is_measured: bool) {
        if !is_measured {
            set_thresholds(&Thresholds::default());
            set_mode(Mode::ContendedOnly);
            return;
        }
        if self.contention {
            set_mode(Mode::Full);
        }
        if let Some(us) = self.threshold_us {
            let limit = Some(Duration::from_micros(us));
            set_thresholds(&Thresholds {
                wait: limit,
                hold: limit,
                ..Thresholds::default()
            });
        }
    }

    /// What was over the threshold, oldest first. Says so when nothing was.
    pub(crate) fn report(&self) -> Option<String> {
        let us = self.threshold_us?;
        let reports = take_reports();
        if reports.is_empty() {
            return Some(format!("nobody waited for or held a lock for {us} us\n"));
        }
        let texts: Vec<String> = reports.iter().map(ToString::to_string).collect();
        Some(texts.join("\n"))
    }
}
