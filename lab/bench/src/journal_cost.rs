//! What the journal costs: PostMark without fsync on a default ext4 image and on one without a
//! journal, by turns.
//!
//! | where | what |
//! |---|---|
//! | in a mount | processes of PostMark, through io_uring where it can be switched on |
//! | in process | threads of the workloads' PostMark through the embedding API, where FUSE hides nothing |
//!
//! Each measurement gets a fresh image, which e2fsck checks afterwards. It must last for several
//! commits, which come every second here: what a run that ends before its first commit shows is
//! only what logging costs. Closing and unmounting are timed with `--with-close` only.

use crate::options::{Binary, ImageDir};
use crate::result::median;
use crate::workload;
use anyhow::{Context, Result, ensure};
use finefs::ImageOptions;
use finefs_harness::cleanup::Scratch;
use finefs_harness::fuse_ring::{self, Transport};
use finefs_harness::programs::{Shape, run_postmark};
use finefs_harness::server::{Kind, What};
use finefs_harness::sets;
use finefs_workloads::InProcess;
use indicatif::ProgressBar;
use std::path::Path;
use std::time::{Duration, Instant};

/// How much to measure.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(flatten)]
    binary: Binary,
    /// Rounds; each runs both images, and the one that begins changes
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only this
    #[arg(long, value_enum)]
    only: Option<Place>,
    /// PostMark's processes in the mount
    #[arg(long, default_value_t = 8)]
    processes: u64,
    /// Files of each process
    #[arg(long, default_value_t = 2500)]
    files: u64,
    /// Transactions of each process
    #[arg(long, default_value_t = 10_000)]
    transactions: u64,
    /// PostMark's threads in process
    #[arg(long, default_value_t = 8)]
    threads: usize,
    /// Transactions in process, of each thread
    #[arg(long, default_value_t = 400_000)]
    transactions_in_process: u64,
    /// Count the close or unmount, which writes everything out, into the time
    #[arg(long)]
    with_close: bool,
    #[command(flatten)]
    images: ImageDir,
}

/// Where PostMark runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Place {
    /// Processes in a FUSE mount
    Mount,
    /// Threads in this process
    InProcess,
}

const IMAGE_MIB: u64 = 2048;

/// A run lasts for at least so many commits.
const COMMITS_MIN: u32 = 3;
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// The image with the journal, and without: feature sets of xtask.
const SIDES: [&str; 2] = ["ext4", "ext4-nojournal"];

/// At most this share of the rate may go to the journal.
const GOAL_PERCENT: f64 = 15.0;

/// Runs both images by turns and prints medians and what the journal takes of the rate.
pub fn run(options: &Options) -> Result<()> {
    let scratch = options.images.scratch()?;
    let places = [Place::Mount, Place::InProcess].map(|place| {
        let is_wanted = options.only.is_none_or(|only| only == place);
        is_wanted.then_some(place)
    });
    let bar = ProgressBar::new((places.iter().flatten().count() * options.rounds * 2) as u64);
    let mut lines = Vec::new();
    for place in places.into_iter().flatten() {
        let mut rates = [const { Vec::new() }; 2];
        for round in 0..options.rounds {
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let rate = measure(&scratch, place, SIDES[side], options)
                    .with_context(|| format!("{place:?} on {}", SIDES[side]))?;
                rates[side].push(rate);
                bar.inc(1);
            }
        }
        lines.push(line(place, &rates, options));
    }
    bar.finish_and_clear();
    let timed = match options.with_close {
        true => "with the close",
        false => "without the close",
    };
    println!(
        "PostMark, transactions per second of the whole run, {timed}; medians (lowest to highest) of {} rounds; \
         the journal may cost {GOAL_PERCENT:.0} %\n",
        options.rounds
    );
    println!(
        "| PostMark | default ext4 | without a journal | the journal costs |\n|---|---:|---:|---:|"
    );
    println!("{}", lines.join("\n"));
    Ok(())
}

fn line(place: Place, rates: &[Vec<f64>; 2], options: &Options) -> String {
    let what = match place {
        Place::Mount => format!(
            "{} processes in a mount{}, {} files and {} transactions each",
            options.processes,
            match fuse_ring::is_available() {
                true => " through io_uring",
                false => "",
            },
            options.files,
            options.transactions
        ),
        Place::InProcess => format!(
            "{} threads in process, {} transactions each",
            options.threads, options.transactions_in_process
        ),
    };
    let shown = rates.each_ref().map(|rates| {
        let low = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let high = rates.iter().copied().fold(0.0, f64::max);
        let middle = median(rates).unwrap_or(f64::NAN);
        (middle, format!("{middle:.0} ({low:.0} to {high:.0})"))
    });
    let cost = 100.0 * (1.0 - shown[0].0 / shown[1].0);
    let short = if cost > GOAL_PERCENT {
        ": too much"
    } else {
        ""
    };
    format!(
        "| {what} | {} | {} | {cost:.1} %{short} |",
        shown[0].1, shown[1].1
    )
}

fn measure(scratch: &Scratch, place: Place, set: &str, options: &Options) -> Result<f64> {
    let image = scratch.path().join("image");
    // Fresh and sparse each time.
    let _ = std::fs::remove_file(&image);
    sets::find(set)?.make_image(&image, IMAGE_MIB)?;
    let rate = match place {
        Place::Mount => in_mount(scratch, &image, options)?,
        Place::InProcess => in_process(&image, options)?,
    };
    sets::fsck(&image)?;
    Ok(rate)
}

fn in_mount(scratch: &Scratch, image: &Path, options: &Options) -> Result<f64> {
    let transport = match fuse_ring::is_available() {
        true => Transport::Ring,
        false => Transport::Device,
    };
    let server = options.binary.server(Kind::Finefs)?.reached_by(transport);
    let mount = server.mount(What::Image(image), &scratch.subdir("mnt")?, &["commit=1"])?;
    let shape = Shape {
        files: options.files,
        transactions: options.transactions,
    };
    let started = Instant::now();
    let mut took = run_postmark(mount.dir(), options.processes, shape, false)?;
    lasts_for_commits(took)?;
    mount.unmount()?;
    if options.with_close {
        took = started.elapsed();
    }
    Ok((options.processes * options.transactions) as f64 / took.as_secs_f64())
}

fn in_process(image: &Path, options: &Options) -> Result<f64> {
    let transactions = options.transactions_in_process;
    ensure!(transactions > 0, "no transactions");
    let file_system = ImageOptions::new()
        .commit_interval(COMMIT_INTERVAL)
        .open(image)?;
    let root = file_system.open_dir(".")?;
    let target = InProcess::new(file_system, root, "image".to_owned());
    let started = Instant::now();
    let report = workload::postmark(&target, options.threads, 1000, transactions)?;
    lasts_for_commits(started.elapsed())?;
    let file_system = target.file_system().clone();
    drop(target);
    file_system.close()?;
    Ok(match options.with_close {
        true => report.operations as f64 / started.elapsed().as_secs_f64(),
        false => report.operations_per_second,
    })
}

fn lasts_for_commits(took: Duration) -> Result<()> {
    ensure!(
        took >= COMMITS_MIN * COMMIT_INTERVAL,
        "{took:?} are too short for {COMMITS_MIN} commits: more transactions are needed"
    );
    Ok(())
}
