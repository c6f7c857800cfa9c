//! One picture of `finefs top` as text.

use std::fmt;
use std::time::Duration;

use finefs_lockmeter::{Queue, Rate, Snapshot, Times, duration, rates};

/// What a picture shows.
pub(super) struct Screen<'a> {
    /// The mount.
    pub title: &'a str,
    /// What was counted.
    pub interval: &'a Snapshot,
    /// In what time.
    pub took: Duration,
    /// The threads that wait now.
    pub waiting: &'a [Queue],
    /// All acquisitions are counted.
    pub is_full: bool,
    /// The worst call sites stand below each row.
    pub shows_sites: bool,
}

impl Screen<'_> {
    fn head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_full {
            "all acquisitions"
        } else {
            "acquisitions that waited"
        };
        let seconds = self.took.as_secs_f64();
        writeln!(f, "finefs top - {}: {what} of {seconds:.1} s", self.title)?;
        match self.interval.contention() {
            Some(contention) if self.is_full => writeln!(f, "contention {contention}")?,
            _ => {}
        }
        if self.interval.is_hold_estimated() {
            let one_in = self.interval.hold_sampling;
            writeln!(f, "hold times: 1 of {one_in} timed where nobody waited")?;
        }
        let waiting: usize = self.waiting.iter().map(|queue| queue.waiters.len()).sum();
        writeln!(
            f,
            "{waiting} threads wait now, for {} locks\n",
            self.waiting.len()
        )?;
        writeln!(
            f,
            "{:<28} {:>10} {:>10} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "CLASS (KIND)",
            "TAKEN/S",
            "WAITED/S",
            "%",
            "WAITING",
            "WAIT",
            "p99",
            "HOLD",
            "p99",
            "BOUNCE/S",
        )
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, rate: &Rate) -> fmt::Result {
        let taken = if self.is_full {
            format!("{:.0}", rate.acquisitions)
        } else {
            "-".into()
        };
        let percent = match rate.contention_percent {
            Some(percent) if self.is_full => format!("{percent:.2}"),
            _ => "-".into(),
        };
        writeln!(
            f,
            "{:<28} {taken:>10} {:>10.0} {percent:>6} {:>8.2} {:>8} {:>8} {:>8} {:>8} {:>8.0}",
            format!("{} ({})", rate.class, rate.kind.name()),
            rate.contended,
            rate.waiting,
            mean(&rate.counts.wait),
            p99(&rate.counts.wait),
            mean(&rate.counts.hold),
            p99(&rate.counts.hold),
            rate.counts.bounces as f64 / self.took.as_secs_f64().max(1e-9),
        )?;
        if !self.shows_sites {
            return Ok(());
        }
        for site in rate.counts.worst_sites() {
            writeln!(
                f,
                "    {} waited {}, at {}",
                site.contended,
                duration(site.wait_ns_total),
                site.location
            )?;
        }
        Ok(())
    }
}

pub(super) fn mean(times: &Times) -> String {
    times.mean_ns().map_or_else(|| "-".into(), duration)
}

pub(super) fn p99(times: &Times) -> String {
    times.quantile_ns(0.99).map_or_else(|| "-".into(), duration)
}

impl fmt::Display for Screen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        let rows = rates(self.interval, self.took);
        if rows.is_empty() {
            writeln!(f, "(nothing)")?;
        }
        for rate in &rows {
            self.row(f, rate)?;
        }
        for queue in self.waiting {
            write!(f, "\n{queue}")?;
        }
        Ok(())
    }
}
