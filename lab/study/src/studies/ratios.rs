//! What all tables compute and show alike.

use finefs::LockingScheme;

use super::experiment::{Key, Results};
use super::place::Subject;
use crate::page::{Cell, Origin, Table, Tone};
use finefs_workloads::affinity;

/// `a / b`, if both are known.
pub(super) fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b.filter(|b| *b != 0.0)?)
}

/// A ratio of two decimals.
pub(super) fn times(a: Option<f64>, b: Option<f64>) -> Cell {
    Cell::maybe(ratio(a, b), 2)
}

/// A share as per cent.
pub(super) fn percent(share: Option<f64>) -> Cell {
    Cell::maybe(share.map(|share| share * 100.0), 1)
}

/// How contended all locks together were in the counted run of `key`, and the worst class where it
/// shows, as the tables of 2002 had it.
pub(super) fn contention(results: &Results, key: &Key) -> Cell {
    let counted = results.last(&key.counted());
    let Some(contention) = counted.and_then(|sample| sample.locks.contention()) else {
        return Cell::missing();
    };
    let (_, worst_percent) = contention.worst;
    if worst_percent >= 0.05 {
        Cell::text(contention.to_string())
    } else {
        Cell::text(format!("{:.1}%", contention.percent))
    }
}

/// A table of how the locks of one load did: a row for each scheme, whose rate is headed `rate`.
pub(super) fn lock_table(
    title: &str,
    rate: &str,
    results: &Results,
    rows: impl IntoIterator<Item = Key>,
) -> Table {
    let mut table = Table::new(title, &["locks<", rate, "contention<", "waiting, %"]);
    for key in rows {
        table.push(
            Origin::Measured,
            vec![
                Cell::text(key.subject.name()),
                Cell::maybe(results.per_second(&key), 0),
                contention(results, &key),
                percent(results.median(&key, |sample| sample.waiting_share)),
            ],
        );
    }
    table
}

/// 1, 2, 4 .. as far as there are CPUs, and all of them.
pub(super) fn cpu_counts() -> Vec<usize> {
    let all = affinity::cpus();
    let mut counts: Vec<usize> = (0..)
        .map(|power| 1usize << power)
        .take_while(|count| *count < all)
        .collect();
    counts.push(all);
    counts
}

/// A scheme's colour; what is mounted has that of its own locks.
pub(super) fn tone(subject: impl Into<Subject>) -> Tone {
    let Subject::Scheme(scheme) = subject.into() else {
        return Tone::Fine;
    };
    match scheme {
        LockingScheme::BigSpin | LockingScheme::BigOptional => Tone::Spin,
        LockingScheme::BigSleep => Tone::Sleep,
        LockingScheme::PerSuperblock | LockingScheme::WholeFile | LockingScheme::WholeFileMutex => {
            Tone::Coarse
        }
        LockingScheme::Fine => Tone::Fine,
        LockingScheme::UnlockedData => Tone::None,
    }
}
