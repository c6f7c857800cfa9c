//! What the lock meter costs: PostMark in process without it, with contended acquisitions counted,
//! and with all of them counted, by turns in processes of their own.

use crate::result::median;
use crate::workload::postmark;
use anyhow::{Context, Result, ensure};
use finefs::{LockingScheme, MemoryOptions};
use finefs_harness::run;
use finefs_lockmeter::{IS_METERING, Mode, set_mode, snapshot};
use finefs_workloads::InProcess;
use indicatif::ProgressBar;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Rounds; each runs all three in turn
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    #[command(flatten)]
    shape: ShapeOptions,
    /// This program built with the feature meter-off; built anew without it
    #[arg(long)]
    off: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The numbers of the workload.
#[derive(clap::Args, Clone, Copy)]
struct ShapeOptions {
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Files of each thread
    #[arg(long, default_value_t = 1000)]
    files: u32,
    /// Transactions of each thread
    #[arg(long, default_value_t = 100_000)]
    transactions: u64,
}

/// One run.
#[derive(clap::Args)]
pub struct Worker {
    #[command(flatten)]
    shape: ShapeOptions,
    /// Count all acquisitions
    #[arg(long)]
    full: bool,
    /// Print the meter's table to standard error afterwards
    #[arg(long)]
    table: bool,
    /// The locking scheme
    #[arg(long, default_value = "fine")]
    locking: LockingScheme,
}

const VARIANTS: [&str; 3] = ["meter off", "contended only", "full"];

/// Runs all variants by turns and prints what each costs.
pub fn run(options: &Options) -> Result<()> {
    ensure!(
        IS_METERING,
        "this build has no meter: give it to --off of one that has"
    );
    let own = std::env::current_exe()?;
    let off = match &options.off {
        Some(path) => path.clone(),
        None => build_without_meter()?,
    };
    let mut runs = VARIANTS.map(|_| Vec::new());
    let progress = ProgressBar::new((options.rounds * VARIANTS.len()) as u64);
    for round in 0..options.rounds {
        for turn in 0..VARIANTS.len() {
            // Nobody is always first.
            let variant = (round + turn) % VARIANTS.len();
            let program = if variant == 0 { &off } else { &own };
            runs[variant].push(one_run(program, options.shape, variant == 2)?);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    let rows: Vec<Row> = (0..VARIANTS.len())
        .map(|at| Row::new(VARIANTS[at], &runs[0], &runs[at]))
        .collect();
    if options.json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    let shape = options.shape;
    println!(
        "PostMark in process, {} threads, {} files and {} transactions each, medians of {} rounds\n",
        shape.threads, shape.files, shape.transactions, options.rounds
    );
    println!("| variant | transactions/s | more time | CPU us each | more CPU time |");
    println!("|---|---:|---:|---:|---:|");
    for row in rows {
        println!(
            "| {} | {:.0} | {:+.1} % | {:.2} | {:+.1} % |",
            row.variant, row.rate, row.real_cost, row.cpu_us, row.cpu_cost
        );
    }
    Ok(())
}

/// Seconds and CPU seconds per transaction.
type Run = [f64; 2];

/// A variant beside the first.
struct Row {
    variant: &'static str,
    rate: f64,
    real_cost: f64,
    cpu_us: f64,
    cpu_cost: f64,
}

impl Row {
    fn new(variant: &'static str, off: &[Run], runs: &[Run]) -> Row {
        let middle = |of: usize| {
            let times: Vec<f64> = runs.iter().map(|run| run[of]).collect();
            median(&times).unwrap_or(f64::NAN)
        };
        // Of each round: what slows the machine down for a while slows all three.
        let cost = |of: usize| {
            let pairs = runs.iter().zip(off);
            let costs: Vec<f64> = pairs
                .map(|(run, off)| (run[of] / off[of] - 1.0) * 100.0)
                .collect();
            median(&costs).unwrap_or(f64::NAN)
        };
        Row {
            variant,
            rate: 1.0 / middle(0),
            real_cost: cost(0),
            cpu_us: middle(1) * 1e6,
            cpu_cost: cost(1),
        }
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "variant": self.variant,
            "transactions_per_second": self.rate,
            "more_time_percent": self.real_cost,
            "cpu_us_per_transaction": self.cpu_us,
            "more_cpu_time_percent": self.cpu_cost,
        })
    }
}

fn build_without_meter() -> Result<PathBuf> {
    let target = finefs_harness::tools::target_dir().join("meter-off");
    let status = run::cargo(["build", "--quiet", "--release", "--package", "finefs-bench"])
        .args(["--features", "meter-off", "--target-dir"])
        .arg(&target)
        .current_dir(finefs_harness::tools::workspace())
        .status()
        .context("cargo")?;
    ensure!(status.success(), "the build without the meter failed");
    Ok(target.join("release/finefs-bench"))
}

fn one_run(program: &Path, shape: ShapeOptions, full: bool) -> Result<Run> {
    let mut command = Command::new(program);
    command.arg("lockmeter-worker");
    for (name, value) in [
        ("--threads", shape.threads.to_string()),
        ("--files", shape.files.to_string()),
        ("--transactions", shape.transactions.to_string()),
    ] {
        command.arg(name).arg(value);
    }
    if full {
        command.arg("--full");
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    let numbers = text.split_whitespace().map(str::parse);
    let numbers: Vec<f64> = numbers.collect::<Result<_, _>>()?;
    let run = <Run>::try_from(numbers);
    run.map_err(|_| anyhow::anyhow!("{command:?} said {text:?}"))
}

/// One run: prints seconds and CPU seconds per transaction.
pub fn work(worker: &Worker) -> Result<()> {
    let shape = worker.shape;
    let file_system = MemoryOptions::new().locking(worker.locking).open(2 << 30)?;
    let root = file_system.open_dir(".")?;
    let target = InProcess::new(file_system, root, "memory".to_owned());
    if worker.full {
        set_mode(Mode::Full);
    }
    let report = postmark(&target, shape.threads, shape.files, shape.transactions)?;
    let each = [report.seconds, report.cpu_seconds].map(|time| time / report.operations as f64);
    println!("{:e} {:e}", each[0], each[1]);
    if worker.table {
        let counts = snapshot();
        eprintln!("{counts}");
        if let Some(contention) = counts.contention() {
            eprintln!("spinlock contention {contention}");
        }
    }
    Ok(())
}
