//! Rates of several rounds, their medians and ratios, as markdown and JSON.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use xtask::server::Kind;

/// Rates by what was measured and on whom.
#[derive(Default)]
pub struct Results {
    rates: BTreeMap<(&'static str, &'static str), Vec<f64>>,
}

/// The servers in the order of the table.
pub const SERVERS: [(Kind, &str); 3] = [
    (Kind::Finefs, "finefs"),
    (Kind::Fuse2fs, "fuse2fs"),
    (Kind::Kernel, "kernel"),
];

impl Results {
    /// Notes one round.
    pub fn add(&mut self, what: &'static str, server: &'static str, rate: f64) {
        self.rates.entry((what, server)).or_default().push(rate);
    }

    fn of(&self, what: &'static str, server: &'static str) -> &[f64] {
        self.rates.get(&(what, server)).map_or(&[], Vec::as_slice)
    }

    fn measured(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.rates.keys().map(|(what, _)| *what).collect();
        names.dedup();
        names
    }

    /// A table of medians (lowest to highest, rounds) and ratios.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| per second, median (lowest to highest; rounds) | finefs | fuse2fs | kernel | \
             finefs / fuse2fs | finefs / kernel |\n|---|---:|---:|---:|---:|---:|\n",
        );
        for what in self.measured() {
            let _ = write!(text, "| {what} |");
            for (_, server) in SERVERS {
                let rates = self.of(what, server);
                match (median(rates), rates.iter().copied().reduce(f64::min)) {
                    (Some(middle), Some(low)) => {
                        let high = rates.iter().copied().fold(low, f64::max);
                        let rounds = rates.len();
                        let _ = write!(text, " {middle:.0} ({low:.0} to {high:.0}; {rounds}) |");
                    }
                    _ => text.push_str(" |"),
                }
            }
            for other in ["fuse2fs", "kernel"] {
                match self.ratio(what, other) {
                    Some(ratio) => drop(write!(text, " {ratio:.2} |")),
                    None => text.push_str(" |"),
                }
            }
            text.push('\n');
        }
        text
    }

    /// The same with every round's rate.
    pub fn json(&self) -> Value {
        let mut rows = Vec::new();
        for what in self.measured() {
            let mut row = json!({ "measured": what });
            for (_, server) in SERVERS {
                let rates = self.of(what, server);
                row[server] = json!({ "median": median(rates), "rounds": rates });
            }
            row["finefs_over_fuse2fs"] = json!(self.ratio(what, "fuse2fs"));
            row["finefs_over_kernel"] = json!(self.ratio(what, "kernel"));
            rows.push(row);
        }
        Value::Array(rows)
    }

    fn ratio(&self, what: &'static str, other: &'static str) -> Option<f64> {
        Some(median(self.of(what, "finefs"))? / median(self.of(what, other))?)
    }
}

/// The middle one, or the mean of the two in the middle.
pub fn median(rates: &[f64]) -> Option<f64> {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (
        sorted.get(sorted.len().checked_sub(1)? / 2)?,
        sorted.get(sorted.len() / 2)?,
    );
    Some(f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn ratios_are_of_medians() {
        let mut results = Results::default();
        for (server, rate) in [
            ("finefs", 30.0),
            ("finefs", 10.0),
            ("finefs", 20.0),
            ("kernel", 40.0),
        ] {
            results.add("x", server, rate);
        }
        assert_eq!(results.ratio("x", "kernel"), Some(0.5));
        assert_eq!(results.ratio("x", "fuse2fs"), None);
        assert!(
            results
                .markdown()
                .contains("| x | 20 (10 to 30; 3) | | 40 (40 to 40; 1) | | 0.50 |")
        );
    }
}
