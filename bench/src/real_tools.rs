//! The workloads of `finefs bench` beside the programs that they are made after, on one directory, by turns:
//! Debian's dbench, and fio with the job of Zheng Liu's mail. Their rates should be alike; where they are
//! not, a workload measures something else than its name says.
//!
//! All work is in a new directory in the given one, which goes at the end, also after a signal.

use crate::result::median;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::cleanup::Scratch;
use xtask::run;

/// What is compared, and how often.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// The directory, on whatever file system
    dir: PathBuf,
    /// The finefs binary
    #[arg(long, default_value = "target/release/finefs")]
    finefs: PathBuf,
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

/// Runs all rounds and prints the table.
pub fn run(options: &Options) -> Result<()> {
    let mut all: Vec<(String, Measured)> = options
        .clients
        .iter()
        .map(|&clients| {
            let name = format!("dbench, {clients} clients, MB/s");
            (name, Measured::Dbench { clients })
        })
        .collect();
    all.push(("randrw, 32 threads, reads/s".to_owned(), Measured::RandRw));
    let scratch = Scratch::new_in(&options.dir)?;
    let dir = scratch.path();
    println!(
        "| measured | the program | finefs bench | ratio | rounds |\n|---|---:|---:|---:|---|"
    );
    for (name, measured) in &all {
        if options
            .only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for round in 0..options.rounds {
            // What one leaves behind in caches and on the disk slows the next: each begins in turn.
            for turn in 0..2 {
                let (rates, rate) = match (round + turn) % 2 {
                    0 => (&mut theirs, measured.by_program(dir, options)),
                    _ => (&mut ours, measured.by_finefs(dir, options)),
                };
                rates.push(rate.with_context(|| name.clone())?);
            }
        }
        let (Some(their), Some(our)) = (median(&theirs), median(&ours)) else {
            bail!("no rounds");
        };
        let rounds: Vec<String> = theirs
            .iter()
            .zip(&ours)
            .map(|(their, our)| format!("{their:.0}/{our:.0}"))
            .collect();
        println!(
            "| {name} | {their:.0} | {our:.0} | {:.2} | {} |",
            our / their,
            rounds.join(" ")
        );
    }
    Ok(())
}

impl Measured {
    fn by_program(&self, dir: &Path, options: &Options) -> Result<f64> {
        let seconds = options.seconds.to_string();
        match self {
            Measured::Dbench { clients } => {
                let text = stdout(Command::new("dbench").arg("-D").arg(dir).args([
                    "-t",
                    &seconds,
                    &clients.to_string(),
                ]))?;
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

    fn by_finefs(&self, dir: &Path, options: &Options) -> Result<f64> {
        match self {
            Measured::Dbench { clients } => {
                // dbench's own warm-up.
                let warm_up = f64::from(options.seconds) / 5.0;
                let report = bench(
                    dir,
                    options,
                    &[
                        "dbench".to_owned(),
                        format!("--processes={clients}"),
                        format!("--warm-up={warm_up}"),
                    ],
                )?;
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

/// A run of `finefs bench`, as JSON.
fn bench(dir: &Path, options: &Options, arguments: &[String]) -> Result<Value> {
    let text = stdout(
        Command::new(&options.finefs)
            .arg("bench")
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
