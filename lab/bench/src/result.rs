//! Rates of several rounds, their medians and ratios, as markdown and JSON.

use crate::variant::VARIANTS;
use finefs_harness::server::Kind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Rates by what was measured and on whom.
#[derive(Default)]
pub struct Results {
    rates: BTreeMap<(&'static str, &'static str), Vec<f64>>,
}

/// What ratios are to: of the variants of each, the fastest.
const RIVALS: [Kind; 2] = [Kind::Fuse2fs, Kind::Kernel];

impl Results {
    /// Notes one round.
    pub fn add(&mut self, what: &'static str, variant: &'static str, rate: f64) {
        self.rates.entry((what, variant)).or_default().push(rate);
    }

    fn of(&self, what: &'static str, variant: &'static str) -> &[f64] {
        self.rates.get(&(what, variant)).map_or(&[], Vec::as_slice)
    }

    fn measured(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.rates.keys().map(|(what, _)| *what).collect();
        names.dedup();
        names
    }

    /// A table for each measurement: medians, the lowest and highest of how many rounds, ratios.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for what in self.measured() {
            let _ = write!(
                text,
                "| {what}, per second | median | lowest to highest (rounds) | / fuse2fs \
                 | / kernel |\n\
                 |---|---:|---:|---:|---:|\n",
            );
            for variant in &VARIANTS {
                let rates = self.of(what, variant.name);
                let (Some(middle), Some(low)) =
                    (median(rates), rates.iter().copied().reduce(f64::min))
                else {
                    continue;
                };
                let high = rates.iter().copied().fold(low, f64::max);
                let rounds = rates.len();
                let _ = write!(
                    text,
                    "| {} | {middle:.0} | {low:.0} to {high:.0} ({rounds}) |",
                    variant.name
                );
                for other in RIVALS {
                    match self.ratio(what, variant.name, other) {
                        Some(ratio) => drop(write!(text, " {ratio:.2} |")),
                        None => text.push_str(" |"),
                    }
                }
                text.push('\n');
            }
            text.push('\n');
        }
        text
    }

    /// The same with every round's rate.
    pub fn json(&self) -> Value {
        let mut tables = Vec::new();
        for what in self.measured() {
            let mut table = json!({ "measured": what });
            for variant in &VARIANTS {
                let rates = self.of(what, variant.name);
                table[variant.name] = json!({
                    "median": median(rates),
                    "rounds": rates,
                    "over_fuse2fs": self.ratio(what, variant.name, Kind::Fuse2fs),
                    "over_kernel": self.ratio(what, variant.name, Kind::Kernel),
                });
            }
            tables.push(table);
        }
        Value::Array(tables)
    }

    fn ratio(&self, what: &'static str, variant: &'static str, rival: Kind) -> Option<f64> {
        let rivals = VARIANTS.iter().filter(|variant| variant.kind == rival);
        let rates = rivals.filter_map(|rival| median(self.of(what, rival.name)));
        Some(median(self.of(what, variant))? / rates.max_by(f64::total_cmp)?)
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
    fn ratios_are_of_medians_and_to_the_faster_rival() {
        let mut results = Results::default();
        for (server, rate) in [
            ("finefs", 30.0),
            ("finefs", 10.0),
            ("finefs", 20.0),
            ("kernel", 30.0),
            ("kernel, CPUs kept awake by the bench", 40.0),
        ] {
            results.add("x", server, rate);
        }
        assert_eq!(results.ratio("x", "finefs", Kind::Kernel), Some(0.5));
        assert_eq!(results.ratio("x", "finefs", Kind::Fuse2fs), None);
        assert!(
            results
                .markdown()
                .contains("| finefs | 20 | 10 to 30 (3) | | 0.50 |")
        );
    }
}
