//! The columns of the live view's table: which of them a terminal has room for, and the order of
//! the rows.

use std::cmp::Ordering;
use std::time::Duration;

use finefs_lockmeter::{Rate, duration};

use super::screen::{mean, p99};

/// A column. The order is that on the screen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Column {
    Class,
    Kind,
    Taken,
    Waited,
    Percent,
    Waiting,
    WaitMean,
    WaitP99,
    WaitMax,
    HoldMean,
    HoldP99,
    HoldMax,
    Bounces,
}

use Column::*;

/// Left to right.
pub(super) const ALL: [Column; 13] = [
    Class, Kind, Taken, Waited, Percent, Waiting, WaitMean, WaitP99, WaitMax, HoldMean, HoldP99,
    HoldMax, Bounces,
];

/// As room is given to them.
const BY_IMPORTANCE: [Column; 13] = [
    Class, Percent, WaitP99, Taken, WaitMean, Kind, HoldMean, HoldP99, Waited, Waiting, Bounces,
    WaitMax, HoldMax,
];

/// The name of a class gets at least this.
const CLASS_LEAST: usize = 16;
/// More does not help it.
const CLASS_MOST: usize = 32;

impl Column {
    /// As its head says.
    pub(super) fn name(self) -> &'static str {
        match self {
            Class => "CLASS",
            Kind => "KIND",
            Taken => "TAKEN/S",
            Waited => "WAITED/S",
            Percent => "%",
            Waiting => "WAITING",
            WaitMean => "WAIT",
            WaitP99 | HoldP99 => "p99",
            WaitMax | HoldMax => "max",
            HoldMean => "HOLD",
            Bounces => "BOUNCE/S",
        }
    }

    /// As the line says by which the table is sorted.
    pub(super) fn description(self) -> &'static str {
        match self {
            Class => "class",
            Kind => "kind",
            Taken => "taken/s",
            Waited => "waited/s",
            Percent => "contended %",
            Waiting => "waiting",
            WaitMean => "mean wait",
            WaitP99 => "p99 of waits",
            WaitMax => "longest wait",
            HoldMean => "mean hold",
            HoldP99 => "p99 of holds",
            HoldMax => "longest hold",
            Bounces => "bounces/s",
        }
    }

    fn width(self) -> usize {
        match self {
            Class => CLASS_LEAST,
            Kind | Percent => 6,
            Taken | Waited | Bounces => 8,
            _ => 7,
        }
    }

    /// Its text in a row of an interval that took so long; `is_full`: all acquisitions were
    /// counted.
    fn text(self, rate: &Rate, took: Duration, is_full: bool) -> String {
        let (wait, hold) = (&rate.counts.wait, &rate.counts.hold);
        let none = || "-".to_owned();
        match self {
            Class => rate.class.to_string(),
            Kind => rate.kind.name().to_owned(),
            Taken if is_full => format!("{:.0}", rate.acquisitions),
            Taken => none(),
            Waited => format!("{:.0}", rate.contended),
            Percent => {
                let percent = rate.contention_percent.filter(|_| is_full);
                percent.map_or_else(none, |percent| format!("{percent:.2}"))
            }
            Waiting => format!("{:.2}", rate.waiting),
            WaitMean => mean(wait),
            WaitP99 => p99(wait),
            WaitMax if wait.count() > 0 => duration(wait.max_ns),
            HoldMean => mean(hold),
            HoldP99 => p99(hold),
            HoldMax if hold.count() > 0 => duration(hold.max_ns),
            WaitMax | HoldMax => none(),
            Bounces => format!("{:.0}", bounces(rate, took)),
        }
    }

    /// What stands first when the table is sorted by this: much before little, names from A to Z.
    fn compare(self, one: &Rate, other: &Rate) -> Ordering {
        let most = |of: &dyn Fn(&Rate) -> f64| of(other).total_cmp(&of(one));
        let ns = |ns: Option<u64>| ns.unwrap_or(0) as f64;
        match self {
            Class => one.class.cmp(&other.class),
            Kind => one.kind.name().cmp(other.kind.name()),
            Taken => most(&|rate| rate.acquisitions),
            Waited => most(&|rate| rate.contended),
            Percent => most(&|rate| rate.contention_percent.unwrap_or(0.0)),
            Waiting => most(&|rate| rate.waiting),
            WaitMean => most(&|rate| ns(rate.counts.wait.mean_ns())),
            WaitP99 => most(&|rate| ns(rate.counts.wait.quantile_ns(0.99))),
            WaitMax => most(&|rate| rate.counts.wait.max_ns as f64),
            HoldMean => most(&|rate| ns(rate.counts.hold.mean_ns())),
            HoldP99 => most(&|rate| ns(rate.counts.hold.quantile_ns(0.99))),
            HoldMax => most(&|rate| rate.counts.hold.max_ns as f64),
            Bounces => most(&|rate| rate.counts.bounces as f64),
        }
    }

    /// The next to the left or right, round.
    pub(super) fn beside(self, is_right: bool) -> Column {
        let place = self as usize;
        let step = if is_right { 1 } else { ALL.len() - 1 };
        ALL[(place + step) % ALL.len()]
    }
}

fn bounces(rate: &Rate, took: Duration) -> f64 {
    rate.counts.bounces as f64 / took.as_secs_f64().max(1e-9)
}

/// Sorts by a column; what is equal there stays as it was.
pub(super) fn sort(rates: &mut [Rate], by: Column) {
    rates.sort_by(|one, other| by.compare(one, other));
}

/// The columns that a terminal shows, with their widths.
pub(super) struct Columns(Vec<(Column, usize)>);

impl Columns {
    /// For a terminal of this width: by importance, as long as there is room.
    pub(super) fn of(width: usize) -> Columns {
        let mut room = width.saturating_sub(CLASS_LEAST);
        let rest = BY_IMPORTANCE[1..].iter().take_while(|column| {
            let fits = room > column.width();
            room -= if fits { column.width() + 1 } else { 0 };
            fits
        });
        let mut columns: Vec<_> = rest.map(|column| (*column, column.width())).collect();
        let class = (CLASS_LEAST + room).min(CLASS_MOST).min(width);
        columns.push((Class, class));
        columns.sort();
        Columns(columns)
    }

    /// The heads, each with its column.
    pub(super) fn heads(&self) -> Vec<(Column, String)> {
        self.each(|column| column.name().to_owned())
    }

    /// The cells of a row.
    pub(super) fn row(&self, rate: &Rate, took: Duration, is_full: bool) -> Vec<(Column, String)> {
        self.each(|column| column.text(rate, took, is_full))
    }

    /// Names to the left, numbers to the right; what has no room is cut.
    fn each(&self, text: impl Fn(Column) -> String) -> Vec<(Column, String)> {
        let padded = self.0.iter().map(|(column, width)| {
            let mut text = text(*column);
            if text.chars().count() > *width {
                text = text.chars().take(width.saturating_sub(1)).collect();
                text.push('…');
            }
            let text = match column {
                Class => format!("{text:<width$}"),
                Kind => format!(" {text:<width$}"),
                _ => format!(" {text:>width$}"),
            };
            (*column, text)
        });
        padded.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fill_the_width_and_never_more() {
        for width in 1..300 {
            let heads = Columns::of(width).heads();
            let text: String = heads.iter().map(|(_, text)| text.as_str()).collect();
            assert!(text.chars().count() <= width, "{width}: {text}");
        }
        assert_eq!(Columns::of(200).heads().len(), ALL.len());
    }

    #[test]
    fn the_next_column_goes_round() {
        assert_eq!(Bounces.beside(true), Class);
        assert_eq!(Class.beside(false), Bounces);
        assert_eq!(Waiting.beside(true), WaitMean);
    }
}
