//! The workloads of `finefs bench` beside the programs that they are made after, on one directory,
//! by turns: Debian's dbench, and fio with the job of Zheng Liu's mail. Their rates should be
//! alike; where they are not, a workload measures something else than its name says. dbench reads
//! and parses its load file while it runs, and ours does so before; the table has ours both ways.
//!
//! All work is in a new directory in the given one, which goes at the end, also after a signal.

use crate::result::median;
use anyhow::{Context, Result};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is compared, and how often.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// The directory, on whatever file system
    dir: PathBuf,
    /// Rounds, each with both programs by turns
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Numbers of dbench's clients
    #[arg(long, value_delimiter = ',', default_value = "1,30")]
    clients: Vec<u32>,
    /// Only the measurements whose names contain this
    #[arg(long)]
    only: Option<String>,
}

/// fio's and our file: 64 MiB in blocks of 16 KiB.
const BLOCKS: u32 = 4096;

enum Measured {
    Dbench {
        clients: u32,
    },
    /// Reads of randrw, which are nine tenths of it.
    RandRw,
}

/// Who runs it.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    Program,
    Ours,
    /// Ours with the work that the program does beside the load.
    Alike,
}

impl Measured {
    fn all(options: &Options) -> Vec<(String, Measured)> {
        let dbench = options.clients.iter().map(|&clients| {
            let name = format!("dbench, {clients} clients, MB/s");
            (name, Measured::Dbench { clients })
        });
        let randrw = ("randrw, 32 threads, reads/s".to_owned(), Measured::RandRw);
        let is_wanted = |name: &str| options.only.as_deref().is_none_or(|o| name.contains(o));
        dbench
            .chain([randrw])
            .filter(|(name, _)| is_wanted(name))
            .collect()
    }

    fn sides(&self) -> &'static [Side] {
        match self {
            Measured::Dbench { .. } => &[Side::Program, Side::Ours, Side::Alike],
            Measured::RandRw => &[Side::Program, Side::Ours],
        }
    }
}

/// Runs all rounds and prints the table.
pub fn run(options: &Options) -> Result<()> {
    let scratch = Scratch::new_in(&options.dir)?;
    println!(
        "| measured | the program | finefs bench | ratio | parsing as it runs | ratio | rounds |\n\
         |---|---:|---:|---:|---:|---:|---|"
    );
    for (name, measured) in &Measured::all(options) {
        let sides = measured.sides();
        let mut rates = vec![Vec::new(); sides.len()];
        for round in 0..options.rounds {
            // What one leaves behind in caches and on the disk slows the next: each begins in turn.
            for turn in 0..sides.len() {
                let side = (round + turn) % sides.len();
                let rate = measured.rate(sides[side], scratch.path(), options);
                rates[side].push(rate.with_context(|| name.clone())?);
            }
        }
        println!("{}", row(name, &rates)?);
    }
    Ok(())
}

/// A line of the table; `rates` are those of the program, ours, and perhaps ours alike, in each
/// round.
fn row(name: &str, rates: &[Vec<f64>]) -> Result<String> {
    let medians: Option<Vec<f64>> = rates.iter().map(|of_side| median(of_side)).collect();
    let medians = medians.context("no rounds")?;
    let beside = |side: usize| match medians.get(side) {
        Some(our) => format!("{our:.0} | {:.2}", our / medians[0]),
        None => "– | –".to_owned(),
    };
    let rounds = (0..rates[0].len()).map(|round| {
        let of_round = rates.iter().map(|of_side| format!("{:.0}", of_side[round]));
        of_round.collect::<Vec<_>>().join("/")
    });
    Ok(format!(
        "| {name} | {:.0} | {} | {} | {} |",
        medians[0],
        beside(1),
        beside(2),
        rounds.collect::<Vec<_>>().join(" ")
    ))
}

impl Measured {
    fn rate(&self, side: Side, dir: &Path, options: &Options) -> Result<f64> {
        match side {
            Side::Program => self.by_program(dir, options),
            Side::Ours | Side::Alike => self.by_finefs(side == Side::Alike, dir, options),
        }
    }

    fn by_program(&self, dir: &Path, options: &Options) -> Result<f64> {
        let seconds = options.seconds.to_string();
        match self {
            Measured::Dbench { clients } => {
                // Ours opens names relative to its directory. With an absolute one dbench's would
                // be longer.
                let clients = clients.to_string();
                let arguments = ["-D", ".", "-t", &seconds, &clients];
                let text = stdout(Command::new("dbench").current_dir(dir).args(arguments))?;
                let rate = text
                    .lines()
                    .find_map(|line| line.strip_prefix("Throughput ")?.split(' ').next());
                Ok(rate.context("dbench names no throughput")?.parse()?)
            }
            Measured::RandRw => {
                let file = dir.join("fio");
                let text = stdout(
                    Command::new("fio")
                        .args(["--name=randrw", "--rw=randrw", "--rwmixread=90", "--bs=16k"])
                        .args(["--ioengine=psync", "--direct=1", "--numjobs=32", "--thread"])
                        .args(["--group_reporting", "--time_based", "--output-format=json"])
                        .arg(format!("--runtime={seconds}"))
                        .arg(format!("--size={}", u64::from(BLOCKS) << 14))
                        .arg(format!("--filename={}", file.display())),
                );
                let _ = std::fs::remove_file(&file);
                let text = text?;
                let from = text.find('{').context("fio gave no JSON")?;
                let report: Value = serde_json::from_str(&text[from..])?;
                number(&report["jobs"][0]["read"]["iops"])
            }
        }
    }

    fn by_finefs(&self, is_alike: bool, dir: &Path, options: &Options) -> Result<f64> {
        match self {
            Measured::Dbench { clients } => {
                // dbench's own warm-up.
                let warm_up = f64::from(options.seconds) / 5.0;
                let mut arguments = vec![
                    "dbench".to_owned(),
                    format!("--processes={clients}"),
                    format!("--warm-up={warm_up}"),
                ];
                if is_alike {
                    arguments.push("--parse-as-it-runs".to_owned());
                }
                let report = bench(dir, options, &arguments)?;
                let seconds = number(&report["seconds"])?;
                Ok(number(&report["detail"]["bytes"])? / 1e6 / seconds)
            }
            Measured::RandRw => {
                let report = bench(
                    dir,
                    options,
                    &[
                        "randrw".to_owned(),
                        "--threads=32".to_owned(),
                        format!("--blocks={BLOCKS}"),
                    ],
                )?;
                Ok(number(&report["detail"]["read_count"])? / number(&report["seconds"])?)
            }
        }
    }
}

/// A run of a workload by this program, as JSON.
fn bench(dir: &Path, options: &Options, arguments: &[String]) -> Result<Value> {
    let text = stdout(
        Command::new("/proc/self/exe")
            .args(arguments)
            .arg(format!("--seconds={}", options.seconds))
            .arg("--json")
            .arg("--dir")
            .arg(dir),
    )?;
    Ok(serde_json::from_str(&text)?)
}

/// What a program that succeeds says. It ends with this one.
fn stdout(command: &mut Command) -> Result<String> {
    Ok(run::ok(command)?.stdout)
}

fn number(value: &Value) -> Result<f64> {
    value
        .as_f64()
        .with_context(|| format!("{value} is no number"))
}
