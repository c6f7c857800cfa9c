//! Rates of several rounds as tables: medians, and who is ahead.

use super::workload::{Overlap, Rates};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// A row of the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub overlap: Overlap,
    pub threads: usize,
    pub reads_percent: u64,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let overlap = match self.overlap {
            Overlap::Disjoint => "disjoint",
            Overlap::Tenth => "10 %",
            Overlap::Full => "full",
        };
        write!(
            f,
            "{overlap}, {} threads, {} % reads",
            self.threads, self.reads_percent
        )
    }
}

/// Rates by cell and candidate.
pub struct Table {
    names: Vec<&'static str>,
    cells: Vec<Cell>,
    rates: BTreeMap<(Cell, &'static str), Vec<Rates>>,
}

impl Table {
    /// A table with a column for each name.
    pub fn new(names: &[&'static str]) -> Table {
        Table {
            names: names.to_vec(),
            cells: Vec::new(),
            rates: BTreeMap::new(),
        }
    }

    /// Notes one round.
    pub fn add(&mut self, cell: Cell, name: &'static str, rates: Rates) {
        if !self.cells.contains(&cell) {
            self.cells.push(cell);
        }
        self.rates.entry((cell, name)).or_default().push(rates);
    }

    fn median(&self, cell: Cell, name: &'static str, of: impl Fn(&Rates) -> f64) -> f64 {
        let rates = self.rates.get(&(cell, name)).map_or(&[][..], Vec::as_slice);
        let mut values: Vec<f64> = rates.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    }

    fn rate(&self, cell: Cell, name: &'static str) -> f64 {
        self.median(cell, name, |rates| rates.total)
    }

    /// The fastest of those that are not the first.
    fn best_rival(&self, cell: Cell) -> Option<(&'static str, f64)> {
        let rivals = self.names.iter().skip(1);
        rivals
            .map(|name| (*name, self.rate(cell, name)))
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
    }

    /// Millions of requests a second; the first column's ratio to the best rival; fairness.
    pub fn markdown(&self) -> String {
        let mut text = String::from("| millions/s |");
        for name in &self.names {
            let _ = write!(text, " {name} |");
        }
        text.push_str(" over best rival | slowest thread, of the mean | best rival's |\n|---|");
        text.push_str(&"---:|".repeat(self.names.len() + 3));
        text.push('\n');
        for &cell in &self.cells {
            let _ = write!(text, "| {cell} |");
            let best = self.best_rival(cell);
            let own = self.names.first().map_or(0.0, |name| self.rate(cell, name));
            for name in &self.names {
                let rate = self.rate(cell, name);
                let is_best = rate >= own && best.is_none_or(|(_, best)| rate >= best);
                let mark = if is_best { "**" } else { "" };
                let _ = write!(text, " {mark}{:.2}{mark} |", rate / 1e6);
            }
            let share = |name| self.median(cell, name, |rates| rates.slowest_share);
            match (best, self.names.first()) {
                (Some((rival, best)), Some(name)) => {
                    let _ = writeln!(
                        text,
                        " {:.2} ({rival}) | {:.2} | {:.2} |",
                        own / best,
                        share(name),
                        share(rival)
                    );
                }
                _ => text.push_str(" | | |\n"),
            }
        }
        text
    }

    /// The same with every round.
    pub fn json(&self) -> Value {
        let row = |cell: &Cell| {
            let mut row = json!({
                "overlap": format!("{:?}", cell.overlap).to_lowercase(),
                "threads": cell.threads,
                "reads_percent": cell.reads_percent,
            });
            for name in &self.names {
                let rounds = self
                    .rates
                    .get(&(*cell, *name))
                    .map_or(&[][..], Vec::as_slice);
                row[*name] = json!({
                    "per_second_median": self.rate(*cell, name),
                    "per_second": rounds.iter().map(|rates| rates.total).collect::<Vec<_>>(),
                    "slowest_share": rounds.iter().map(|r| r.slowest_share).collect::<Vec<_>>(),
                });
            }
            row
        };
        Value::Array(self.cells.iter().map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_rival_is_named() {
        let cell = Cell {
            overlap: Overlap::Full,
            threads: 2,
            reads_percent: 50,
        };
        let mut table = Table::new(&["a", "b", "c"]);
        for (name, total) in [("a", 4e6), ("b", 1e6), ("b", 3e6), ("b", 2e6), ("c", 1e6)] {
            let slowest_share = 0.5;
            table.add(
                cell,
                name,
                Rates {
                    total,
                    slowest_share,
                },
            );
        }
        let expected =
            "| full, 2 threads, 50 % reads | **4.00** | 2.00 | 1.00 | 2.00 (b) | 0.50 | 0.50 |";
        assert!(table.markdown().contains(expected), "{}", table.markdown());
    }
}
