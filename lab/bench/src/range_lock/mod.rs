//! `finefs-bench range-lock`: the range lock beside its rivals, each in the same run.
//!
//! | module | what it is about |
//! |---|---|
//! | [`candidate`] | the trait, ours, and the whole-file locks |
//! | [`tree`] | one mutex over an interval tree |
//! | [`list`] | the sorted lock-free list |
//! | [`segments`] | a lock per segment |
//! | [`map`] | one mutex over a `BTreeMap` |
//! | [`workload`] | who asks for what |
//! | [`instructions`] | instruction counts by callgrind |
//! | [`quiet`] | whether others disturbed a measurement |
//! | [`table`] | medians, winners, markdown and JSON |

mod candidate;
mod instructions;
mod list;
mod map;
mod quiet;
mod segments;
mod table;
mod tree;
mod workload;

use anyhow::{Context, Result};
use candidate::Candidate;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use table::{Cell, Table};
use workload::{Overlap, Workload};

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,32")]
    threads: Vec<usize>,
    /// Percentages of requests that are reads
    #[arg(long, value_delimiter = ',', default_value = "100,90,50,0")]
    reads: Vec<u64>,
    /// Which ranges the threads ask for
    #[arg(long, value_delimiter = ',', default_value = "disjoint,tenth,full")]
    overlap: Vec<Overlap>,
    /// Bytes copied while a range is held; 0: nothing is done
    #[arg(long, default_value_t = 0)]
    copy: usize,
    /// Rounds; the candidates take turns in each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of each measurement
    #[arg(long, default_value_t = 20)]
    time: u64,
    /// How often a measurement is tried that others disturb
    #[arg(long, default_value_t = 8)]
    tries: usize,
    /// Only the candidates whose names contain this
    #[arg(long)]
    only: Option<String>,
    /// Also two threads beside one, and what two come to that share nothing
    #[arg(long)]
    ceiling: bool,
    /// Count instructions by callgrind instead (needs valgrind)
    #[arg(long)]
    instructions: bool,
    /// Only take and release a range so many times, for callgrind
    #[arg(long, hide = true)]
    alone: Option<u64>,
    /// Write the figures here as JSON too
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The candidates in the order of the table.
pub const NAMES: [&str; 7] = [
    "finefs",
    "tree",
    "list",
    "segments",
    "map",
    "parking_lot",
    "std",
];

/// Ours when it is spread, for counting its instructions.
const SPREAD: &str = "spread";
/// A lock of ours for each of two threads, which no lock for both can beat.
const APART: &str = "apart";

/// Something done with a new lock of each kind.
trait Visitor {
    type Output;
    fn visit<C: Candidate>(&mut self, candidate: C) -> Self::Output;
}

fn visit<V: Visitor>(name: &str, visitor: &mut V) -> Option<V::Output> {
    Some(match name {
        "finefs" => visitor.visit(candidate::Ours::new()),
        "tree" => visitor.visit(tree::Tree::default()),
        "list" => visitor.visit(list::List::default()),
        "segments" => visitor.visit(segments::Segments::new()),
        "map" => visitor.visit(map::Map::default()),
        "parking_lot" => visitor.visit(candidate::ParkingLot::default()),
        "std" => visitor.visit(candidate::Std::default()),
        SPREAD => visitor.visit(candidate::Ours::spread()),
        APART => visitor.visit(candidate::Apart::new()),
        _ => return None,
    })
}

struct Measure(Workload);

impl Visitor for Measure {
    type Output = workload::Rates;
    fn visit<C: Candidate>(&mut self, candidate: C) -> workload::Rates {
        self.0.run(&candidate)
    }
}

/// One round; false when others used the machine.
fn measure(name: &str, workload: Workload, tries: usize) -> (workload::Rates, bool) {
    let mut rates = workload::Rates::default();
    for _ in 0..tries.max(1) {
        let (before, started) = (quiet::usage(), Instant::now());
        rates = visit(name, &mut Measure(workload)).unwrap_or_default();
        // The kernel's clock ticks are hundredths of a second.
        let ticks = started.elapsed().as_millis() as u64 / 10;
        if quiet::was_quiet(before, ticks) {
            return (rates, true);
        }
    }
    (rates, false)
}

/// One thread on a lock, two on one, and two on a lock each, which share nothing: by turns, since
/// what two CPUs come to changes on a virtual machine. Ratios are medians of those of the rounds.
fn ceiling(options: &Options) -> String {
    let mut text = String::from(
        "| millions/s | one thread | two, one lock | two, a lock each | one lock / one thread | a lock each / one thread | one lock / a lock each |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for &reads_percent in &options.reads {
        let rate = |name, threads| {
            let workload = Workload {
                overlap: Overlap::Disjoint,
                threads,
                reads_percent,
                copy_bytes: options.copy,
                time: Duration::from_millis(options.time),
            };
            measure(name, workload, options.tries).0.total
        };
        let rounds: Vec<[f64; 3]> = (0..options.rounds)
            .map(|_| [rate("finefs", 1), rate("finefs", 2), rate(APART, 2)])
            .collect();
        let median = |figure: fn(&[f64; 3]) -> f64| {
            let figures: Vec<f64> = rounds.iter().map(figure).collect();
            crate::result::median(&figures).unwrap_or(0.0)
        };
        let rates: [fn(&[f64; 3]) -> f64; 3] = [|r| r[0], |r| r[1], |r| r[2]];
        let ratios: [fn(&[f64; 3]) -> f64; 3] = [|r| r[1] / r[0], |r| r[2] / r[0], |r| r[1] / r[2]];
        let _ = write!(text, "| {reads_percent} % reads |");
        for rate in rates {
            let _ = write!(text, " {:.2} |", median(rate) / 1e6);
        }
        for ratio in ratios {
            let _ = write!(text, " {:.2} |", median(ratio));
        }
        text.push('\n');
    }
    text
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<()> {
    let is_chosen = |name: &&str| {
        let only = options.only.as_deref();
        only.is_none_or(|only| name.contains(only))
    };
    let names: Vec<&str> = NAMES.into_iter().filter(is_chosen).collect();
    let counted = NAMES.into_iter().chain([SPREAD]).filter(is_chosen);
    if let Some(times) = options.alone {
        let is_write = options.reads == [0];
        for name in counted {
            visit(name, &mut instructions::Alone { times, is_write });
        }
        return Ok(());
    }
    if options.instructions {
        print!("{}", instructions::table(counted)?);
        return Ok(());
    }
    let mut table = Table::new(&names);
    let (mut disturbed, mut all) = (0, 0);
    for &overlap in &options.overlap {
        for &threads in &options.threads {
            for &reads_percent in &options.reads {
                let workload = Workload {
                    overlap,
                    threads,
                    reads_percent,
                    copy_bytes: options.copy,
                    time: Duration::from_millis(options.time),
                };
                let cell = Cell {
                    overlap,
                    threads,
                    reads_percent,
                };
                for _ in 0..options.rounds {
                    for name in &names {
                        let (rates, is_quiet) = measure(name, workload, options.tries);
                        disturbed += u64::from(!is_quiet);
                        all += 1;
                        table.add(cell, name, rates);
                    }
                }
                eprint!("\r{cell}        ");
            }
        }
    }
    eprintln!(
        "\r{disturbed} of {all} measurements were disturbed by others, after {} tries",
        options.tries
    );
    print!("{}", table.markdown());
    if options.ceiling {
        print!("\n{}", ceiling(options));
    }
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&table.json())?;
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
