//! finefs, fuse2fs and the kernel's ext4 on a loop device, by turns in each round. finefs comes in
//! several variants: through /dev/fuse and through io_uring, with and without CPUs that are kept
//! awake.
//!
//! Each measurement gets a fresh default ext4 image. PostMark is timed from the start of the first
//! process to the end of the last: creating, transactions and deleting. Making the image, mounting
//! and unmounting are outside. With `--with-unmount` the unmount, which writes everything out, is
//! inside.

use crate::fsync;
use crate::options::{Binary, ImageDir};
use crate::result::Results;
use crate::variant::{VARIANTS, Variant};
use crate::workload::open_speed;
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::programs::{Shape, run_postmark};
use finefs_harness::server::{Kind, Server, What};
use finefs_harness::sets;
use finefs_workloads::HostDirectory;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is compared, and how often.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(flatten)]
    binary: Binary,
    /// Rounds of finefs and the kernel
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Rounds of fuse2fs, which is slow; as many as the others without it
    #[arg(long)]
    fuse2fs_rounds: Option<usize>,
    /// Only these servers
    #[arg(long, value_delimiter = ',')]
    server: Vec<Kind>,
    /// Only these variants, by their names in the tables
    #[arg(long)]
    variant: Vec<String>,
    /// Only the measurements whose names contain this
    #[arg(long)]
    only: Option<String>,
    /// Divide PostMark's numbers by this, for a quick look
    #[arg(long, default_value_t = 1)]
    divide: u64,
    /// Count the unmount into PostMark's time
    #[arg(long)]
    with_unmount: bool,
    /// Seconds of each open/close and fsync measurement
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    #[command(flatten)]
    images: ImageDir,
    /// Write the table to this file too
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Write all rounds to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

const IMAGE_MIB: u64 = 2048;

enum Load {
    PostMark { processes: u64, shape: Shape },
    OpenClose,
    Fsync { threads: u64 },
}

/// What is measured. The name says the numbers.
const MEASURED: [(&str, Load); 5] = [
    (
        "PostMark transactions, 1 process (5,000 files, 5,000 transactions)",
        Load::PostMark {
            processes: 1,
            shape: Shape {
                files: 5000,
                transactions: 5000,
            },
        },
    ),
    (
        "PostMark transactions, 8 processes (2,500 files, 1,250 transactions each)",
        Load::PostMark {
            processes: 8,
            shape: Shape {
                files: 2500,
                transactions: 1250,
            },
        },
    ),
    (
        "open and close of one of 10 files, 4 threads",
        Load::OpenClose,
    ),
    (
        "files created, 4 KiB written and fsynced, 1 thread",
        Load::Fsync { threads: 1 },
    ),
    (
        "files created, 4 KiB written and fsynced, 8 threads",
        Load::Fsync { threads: 8 },
    ),
];

/// Runs all rounds and prints the table.
pub fn run(options: &Options) -> Result<()> {
    let scratch = options.images.scratch()?;
    let mut variants = Vec::new();
    for variant in &VARIANTS {
        if !options.server.is_empty() && !options.server.contains(&variant.kind)
            || !options.variant.is_empty() && !options.variant.iter().any(|v| v == variant.name)
        {
            continue;
        }
        if let Some(obstacle) = variant.obstacle() {
            eprintln!("left out: {}: {obstacle}", variant.name);
            continue;
        }
        let server = options.binary.server(variant.kind)?;
        variants.push((server.reached_by(variant.transport), variant));
    }
    ensure!(!variants.is_empty(), "no server to measure");
    let rounds_of = |kind| match kind {
        Kind::Fuse2fs => options.fuse2fs_rounds.unwrap_or(options.rounds),
        _ => options.rounds,
    };
    let wanted = |name: &str| {
        options
            .only
            .as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    };
    let measured: Vec<_> = MEASURED.iter().filter(|(name, _)| wanted(name)).collect();
    let each = |variant: &Variant| rounds_of(variant.kind);
    let rounds = variants.iter().map(|(_, v)| each(v)).max().unwrap_or(0);
    let steps: usize = variants.iter().map(|(_, v)| each(v)).sum();
    let bar = ProgressBar::new((steps * measured.len()) as u64);
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} {elapsed} {wide_msg}",
    )?);
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut results = Results::default();
    for round in 0..rounds {
        for (name, load) in &measured {
            for (server, variant) in &variants {
                if round >= each(variant) {
                    continue;
                }
                bar.set_message(format!("{}: {name}", variant.name));
                let rate = measure(options, &scratch, (server, variant), load)
                    .with_context(|| format!("{}: {name}", variant.name))?;
                results.add(name, variant.name, rate);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    write_results(options, &results)
}

fn measure(
    options: &Options,
    scratch: &Scratch,
    (server, variant): (&Server, &Variant),
    load: &Load,
) -> Result<f64> {
    let image = scratch.path().join("image");
    // Fresh and sparse each time.
    let _ = std::fs::remove_file(&image);
    sets::find("ext4")?.make_image(&image, IMAGE_MIB)?;
    let _awake = variant.prepare()?;
    let what = if variant.is_in_memory {
        What::Memory(IMAGE_MIB)
    } else {
        What::Image(&image)
    };
    let mount = server.mount(what, &scratch.subdir("mnt")?, variant.options)?;
    let rate = match load {
        Load::PostMark { processes, shape } => {
            let shape = Shape {
                files: shape.files / options.divide,
                transactions: shape.transactions / options.divide,
            };
            let started = Instant::now();
            let mut took =
                run_postmark(mount.dir(), *processes, shape, server.kind == Kind::Fuse2fs)?;
            mount.unmount()?;
            if options.with_unmount {
                took = started.elapsed();
            }
            (processes * shape.transactions) as f64 / took.as_secs_f64()
        }
        Load::OpenClose => {
            let dir = HostDirectory::open(mount.dir())?;
            let report = open_speed(&dir, options.seconds as f64)?;
            // What is open in it keeps the mount busy.
            drop(dir);
            mount.unmount()?;
            report.operations_per_second
        }
        Load::Fsync { threads } => {
            let time = Duration::from_secs(options.seconds);
            let rate = fsync::rate(mount.dir(), *threads, time)?;
            mount.unmount()?;
            rate
        }
    };
    // A rate of something that damaged the image would be worth nothing.
    sets::fsck(&image)?;
    Ok(rate)
}

fn write_results(options: &Options, results: &Results) -> Result<()> {
    let mut table = results.markdown();
    if options.divide > 1 {
        table.push_str(&format!(
            "\nPostMark's numbers were divided by {}.\n",
            options.divide
        ));
    }
    println!("{table}");
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).with_context(|| path.display().to_string())
    };
    if let Some(path) = &options.markdown {
        write(path, &table)?;
    }
    if let Some(path) = &options.json {
        write(path, &format!("{:#}\n", results.json()))?;
    }
    Ok(())
}
