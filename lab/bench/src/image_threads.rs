//! Threads on an image beside the same on memory and on the kernel's ext4: rates of one and of
//! several threads by turns, and what an operation costs of the CPU.

use anyhow::{Result, ensure};
use finefs_workloads::dirops::Operation;
use indicatif::ProgressBar;
use serde_json::json;

use crate::in_process::{Load, Measure, Side, measure};
use crate::options::ImageDir;
use crate::result::median;

/// What to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Threads beside one
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..))]
    threads: u16,
    /// Seconds of each measurement that is not of a number of operations
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Transactions of each thread of PostMark
    #[arg(long, default_value_t = 100_000)]
    transactions: u64,
    /// Only these: postmark, and the names of dirops
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    images: ImageDir,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

const LOADS: [(&str, Load); 9] = [
    ("PostMark, 1,000 files", Load::PostMark),
    ("create, own directories", Load::DirOps(Operation::Mwcl)),
    ("unlink, own directories", Load::DirOps(Operation::Mwul)),
    ("rename, own directories", Load::DirOps(Operation::Mwrl)),
    ("rename into one directory", Load::DirOps(Operation::Mwrm)),
    (
        "create 4 KiB in one directory",
        Load::DirOps(Operation::Mwcm),
    ),
    ("append 4 KiB, own files", Load::DirOps(Operation::Dwal)),
    ("overwrite 4 KiB, own files", Load::DirOps(Operation::Dwol)),
    ("overwrite 4 KiB and fsync", Load::DirOps(Operation::Dwsl)),
];

/// What the rounds of one row gave: by side, for one thread and for several.
struct Row {
    name: &'static str,
    rates: Vec<[Vec<f64>; 2]>,
    /// CPU of an operation on the image, in nanoseconds.
    cpu_ns: [Vec<f64>; 2],
}

/// Measures all and prints a table.
pub fn run(options: &Options) -> Result<()> {
    let is_asked = |load: Load| {
        let only = &options.only;
        only.is_empty()
            || only
                .iter()
                .any(|only| only.eq_ignore_ascii_case(&load.name()))
    };
    let loads: Vec<_> = LOADS.iter().filter(|(_, load)| is_asked(*load)).collect();
    ensure!(!loads.is_empty(), "none of {:?} is a row", options.only);
    let mut sides = vec![Side::Image, Side::Memory];
    if rustix::process::geteuid().is_root() {
        sides.push(Side::Ext4);
    }
    let scratch = options.images.scratch()?;
    let threads = [1, usize::from(options.threads)];
    let bar = ProgressBar::new((loads.len() * options.rounds * sides.len() * 2) as u64);
    let how = Measure {
        seconds: options.seconds,
        transactions: options.transactions,
        shares_files: true,
    };
    let mut rows = Vec::new();
    for &(name, load) in loads {
        let mut row = Row {
            name,
            rates: sides.iter().map(|_| Default::default()).collect(),
            cpu_ns: Default::default(),
        };
        for round in 0..options.rounds {
            for turn in 0..2 * sides.len() {
                // Each round begins with another.
                let turn = (round + turn) % (2 * sides.len());
                let (which, many) = (turn / 2, turn % 2);
                let found = measure(&scratch, sides[which], load, threads[many], &how)?;
                row.rates[which][many].push(found.rate);
                if sides[which] == Side::Image {
                    row.cpu_ns[many].push(found.cpu_ns);
                }
                bar.inc(1);
            }
        }
        rows.push(row);
    }
    bar.finish_and_clear();
    if options.json {
        let rows: Vec<_> = rows.iter().map(|row| row.json(&sides)).collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print(&rows, &sides, options);
    }
    Ok(())
}

impl Row {
    /// Medians of one thread and of several, and the median of their ratios.
    fn of(&self, side: usize) -> [f64; 3] {
        let [one, many] = &self.rates[side];
        let ratios: Vec<_> = many.iter().zip(one).map(|(many, one)| many / one).collect();
        [one, many, &ratios].map(|values| median(values).unwrap_or(f64::NAN))
    }

    fn cpu_us(&self) -> [f64; 2] {
        [0, 1].map(|many| median(&self.cpu_ns[many]).unwrap_or(f64::NAN) / 1e3)
    }

    fn json(&self, sides: &[Side]) -> serde_json::Value {
        let of_sides: serde_json::Map<_, _> = sides
            .iter()
            .enumerate()
            .map(|(at, side)| {
                let [one, many, ratio] = self.of(at);
                let found = json!({"one": one, "many": many, "ratio": ratio});
                (side.name().to_owned(), found)
            })
            .collect();
        json!({"row": self.name, "sides": of_sides, "cpu_us": self.cpu_us()})
    }
}

fn print(rows: &[Row], sides: &[Side], options: &Options) {
    println!(
        "Operations a second with 1 and {} threads, medians of {} rounds by turns\n",
        options.threads, options.rounds
    );
    let mut head = vec![String::new()];
    for side in sides {
        let many = format!("{} {}", side.name(), options.threads);
        head.extend([format!("{} 1", side.name()), many, "ratio".to_owned()]);
    }
    head.push("CPU 1, µs".to_owned());
    head.push(format!("CPU {}, µs", options.threads));
    println!("| {} |", head.join(" | "));
    println!("|---|{}", "---:|".repeat(head.len() - 1));
    for row in rows {
        let mut cells = vec![row.name.to_owned()];
        for side in 0..sides.len() {
            let [one, many, ratio] = row.of(side);
            cells.extend([
                format!("{one:.0}"),
                format!("{many:.0}"),
                format!("{ratio:.2}"),
            ]);
        }
        cells.extend(row.cpu_us().map(|us| format!("{us:.2}")));
        println!("| {} |", cells.join(" | "));
    }
}
