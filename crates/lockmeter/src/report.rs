//! Counts as people and programs want to read them: a table, JSON, OpenMetrics text, rates.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::snapshot::{ClassCounts, Counts, Snapshot};
use crate::{Kind, Times};

/// The buckets of OpenMetrics histograms end at these powers of two, in nanoseconds.
const BUCKET_BITS: RangeInclusive<u32> = 6..=34;

/// A duration in three digits and a unit.
///
/// ```
/// assert_eq!(finefs_lockmeter::duration(12_345), "12.3 us");
/// ```
pub fn duration(ns: u64) -> String {
    const LARGER_UNITS: [&str; 3] = ["us", "ms", "s"];
    if ns < 1000 {
        return format!("{ns} ns");
    }
    let (mut value, mut unit) = (ns as f64 / 1e3, 0);
    // What would be rounded to 1000 is 1.00 of the next unit.
    while value >= 999.5 && unit + 1 < LARGER_UNITS.len() {
        value /= 1e3;
        unit += 1;
    }
    let digits = match value {
        _ if value < 9.995 => 2,
        _ if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", LARGER_UNITS[unit])
}

/// Classes and kinds that have counts, most waited for first, then most taken.
fn rows(snapshot: &Snapshot) -> Vec<(&ClassCounts, Kind, &Counts)> {
    let mut rows: Vec<_> = snapshot
        .classes
        .iter()
        .flat_map(|class| [Kind::Writer, Kind::Reader].map(|kind| (class, kind, class.of(kind))))
        .filter(|(.., counts)| !counts.is_empty())
        .collect();
    rows.sort_by_key(|(.., counts)| std::cmp::Reverse((counts.wait.total_ns, counts.acquisitions)));
    rows
}

/// The columns of a table for durations.
fn columns(times: &Times) -> [String; 6] {
    let quantile = |q| times.quantile_ns(q).map_or_else(String::new, duration);
    if times.count() == 0 {
        return Default::default();
    }
    [
        duration(times.min_ns),
        times.mean_ns().map_or_else(String::new, duration),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        duration(times.max_ns),
    ]
}

/// A table like `lock_stat`'s, most waited-for class first, the worst call sites below each row.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_hold_estimated() {
            writeln!(
                f,
                "hold times ~: of acquisitions that did not wait 1 of {} was timed, at random; those stand \
                 for all, min and max are theirs",
                self.hold_sampling
            )?;
        }
        writeln!(
            f,
            "{:<26} {:>12} {:>11} {:>7} {:>9}  {:>4} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "class (kind)",
            "acquisitions",
            "contended",
            "%",
            "bounces",
            "",
            "total",
            "min",
            "mean",
            "p50",
            "p99",
            "p99.9",
            "max",
        )?;
        for (class, kind, counts) in rows(self) {
            let percent = counts
                .contention_percent()
                .map_or_else(String::new, |percent| format!("{percent:.2}"));
            let mut left = format!(
                "{:<26} {:>12} {:>11} {:>7} {:>9}",
                format!("{} ({})", class.name, kind.name()),
                counts.acquisitions,
                counts.contended,
                percent,
                counts.bounces,
            );
            let hold = if counts.is_hold_estimated() {
                "hold~"
            } else {
                "hold"
            };
            for (what, times) in [("wait", &counts.wait), (hold, &counts.hold)] {
                if times.count() == 0 {
                    continue;
                }
                write!(f, "{left:<69}  {what:<5}{:>9}", duration(times.total_ns))?;
                left.clear();
                for column in columns(times) {
                    write!(f, " {column:>8}")?;
                }
                writeln!(f)?;
            }
            if !left.is_empty() {
                writeln!(f, "{left}")?;
            }
            for site in counts.worst_sites() {
                writeln!(
                    f,
                    "    {:>9} contended, {:>8} waited, {:>8} held  at {}",
                    site.contended,
                    duration(site.wait_ns_total),
                    duration(site.hold_ns_total),
                    site.location,
                )?;
            }
        }
        Ok(())
    }
}

impl Snapshot {
    /// True when some hold times are estimates: see [`Counts::is_hold_estimated`].
    pub fn is_hold_estimated(&self) -> bool {
        rows(self)
            .iter()
            .any(|(.., counts)| counts.is_hold_estimated())
    }

    /// As JSON, which [`Snapshot::from_json`] reads.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers only")
    }

    /// What [`Snapshot::to_json`] gave.
    pub fn from_json(text: &str) -> Result<Snapshot, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// As OpenMetrics text, for Prometheus and its kin: counters per class and kind, wait and hold
    /// times as histograms in seconds. Classes of one name are summed.
    ///
    /// All histograms have the same buckets, whatever was counted, so they can be summed by `le`:
    /// the powers of two from 64 ns to 17 s (2^6 to 2^34 ns), and `+Inf`. Their counts are exact.
    /// Durations are whole nanoseconds, rounded down: a bucket has those that are less than its
    /// bound.
    ///
    /// Reference: OpenMetrics 1.0, prometheus.io/docs/specs/om/open_metrics_spec.
    pub fn to_openmetrics(&self) -> String {
        let mut text = String::new();
        let by_name = self.by_name();
        let rows = rows(&by_name);
        let counter = |text: &mut String, name: &str, help: &str, of: fn(&Counts) -> u64| {
            head(text, name, "counter", help);
            for (class, kind, counts) in &rows {
                let labels = labels(class, *kind);
                let _ = writeln!(text, "{name}_total{{{labels}}} {}", of(counts));
            }
        };
        let count = "Acquisitions while all were counted.";
        counter(&mut text, "lock_acquisitions", count, |c| c.acquisitions);
        let count = "Acquisitions that had to wait.";
        counter(&mut text, "lock_contended", count, |c| c.contended);
        let count = "Waits that ended without the lock.";
        counter(&mut text, "lock_given_up", count, |c| c.given_up);
        let count = "Acquisitions of a lock last taken on another CPU.";
        counter(&mut text, "lock_bounces", count, |c| c.bounces);
        let count = "Holdings that were timed.";
        counter(&mut text, "lock_hold_timed", count, |c| c.hold_timed);
        let mut histogram = |name: &str, help: &str, of: fn(&Counts) -> &Times| {
            head(&mut text, name, "histogram", help);
            let _ = writeln!(text, "# UNIT {name} seconds");
            for (class, kind, counts) in &rows {
                let (labels, times) = (labels(class, *kind), of(counts));
                for bits in BUCKET_BITS {
                    let (end, sum) = (1 << bits, times.histogram.count_below_power(bits));
                    let end = seconds(end);
                    let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{end}\"}} {sum}");
                }
                let sum = times.count();
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {sum}");
                let _ = writeln!(text, "{name}_count{{{labels}}} {sum}");
                let total = seconds(times.total_ns);
                let _ = writeln!(text, "{name}_sum{{{labels}}} {total}");
            }
        };
        let times = "How long contended acquisitions waited.";
        histogram("lock_wait_seconds", times, |counts| &counts.wait);
        let times = if self.is_hold_estimated() {
            format!(
                "How long locks were held; of acquisitions that did not wait 1 of {} was timed, at random, and \
                 stands for the others.",
                self.hold_sampling
            )
        } else {
            "How long locks were held.".to_owned()
        };
        histogram("lock_hold_seconds", &times, |counts| &counts.hold);
        text.push_str("# EOF\n");
        text
    }

    /// With the counts of classes of one name in one: a class is nothing but its name to a reader
    /// of text.
    fn by_name(&self) -> Snapshot {
        let mut classes: Vec<ClassCounts> = Vec::new();
        for class in &self.classes {
            match classes.iter_mut().find(|other| other.name == class.name) {
                Some(other) => {
                    other.writer.merge(&class.writer);
                    other.reader.merge(&class.reader);
                }
                None => classes.push(class.clone()),
            }
        }
        Snapshot {
            hold_sampling: self.hold_sampling,
            classes,
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}");
}

fn labels(class: &ClassCounts, kind: Kind) -> String {
    let escaped = class
        .name
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("class=\"{escaped}\",kind=\"{}\"", kind.name())
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// What one class and kind did per second: a row of a live view.
///
/// ```
/// # use finefs_lockmeter::{rates, snapshot};
/// # use std::time::Duration;
/// let rates = rates(&snapshot(), Duration::from_secs(1));
/// let busiest = rates.iter().max_by(|a, b| a.waiting.total_cmp(&b.waiting));
/// assert!(busiest.is_none_or(|rate| rate.waiting >= 0.0));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Rate {
    /// The class.
    pub class: Cow<'static, str>,
    /// Reader or writer.
    pub kind: Kind,
    /// Acquisitions a second; 0 where not all are counted.
    pub acquisitions: f64,
    /// Contended acquisitions a second.
    pub contended: f64,
    /// Contended acquisitions in per cent of all.
    pub contention_percent: Option<f64>,
    /// Threads that were waiting, on average.
    pub waiting: f64,
    /// Threads that held a lock of the class, on average, as far as it was measured.
    pub holding: f64,
    /// All counts of the interval.
    pub counts: Counts,
}

/// The rows of a live view: `interval`, which took `took`, by class and kind, most waited for
/// first.
///
/// ```
/// use finefs_lockmeter::{rates, snapshot};
/// use std::time::Duration;
/// let before = snapshot();
/// // ... a second later ...
/// for rate in rates(&snapshot().since(&before), Duration::from_secs(1)) {
///     println!("{} {:.0}/s, {:.2} waiting", rate.class, rate.contended, rate.waiting);
/// }
/// ```
pub fn rates(interval: &Snapshot, took: Duration) -> Vec<Rate> {
    let per_second = |count: u64| count as f64 / took.as_secs_f64().max(1e-9);
    rows(interval)
        .into_iter()
        .map(|(class, kind, counts)| Rate {
            class: class.name.clone(),
            kind,
            acquisitions: per_second(counts.acquisitions),
            contended: per_second(counts.contended),
            contention_percent: counts.contention_percent(),
            waiting: per_second(counts.wait.total_ns) / 1e9,
            holding: per_second(counts.hold.total_ns) / 1e9,
            counts: counts.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_996, "10.0 us"),
            (99_949, "99.9 us"),
            (99_960, "100 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (999_999, "1.00 ms"),
            (999_999_999, "1.00 s"),
            (9_999_000_000, "10.0 s"),
            (1_234_000_000_000, "1234 s"),
        ] {
            assert_eq!(duration(ns), text, "{ns} ns");
        }
        for ns in (1_000..2_000_000).step_by(7) {
            let text = duration(ns);
            let number = text.split(' ').next().unwrap();
            assert_eq!(number.replace('.', "").len(), 3, "{ns} ns: {text}");
        }
    }
}
