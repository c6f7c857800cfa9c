//! How long fsync takes beside a program that writes and never syncs: by turns in mounts of finefs
//! and of the kernel's ext4.
//!
//! CPUs are kept awake for both, as a mount of finefs by root does by itself.
//!
//! One thread appends a record to a log every 10 ms and syncs it, as a database does. Another one
//! overwrites blocks of a large file at random, or writes a new file.

use crate::options::{Binary, ImageDir};
use crate::result::median;
use crate::variant::keep_awake;
use anyhow::{Context, Result, anyhow};
use finefs_harness::rng::Rng;
use finefs_harness::server::{Kind, What};
use finefs_harness::sets;
use indicatif::ProgressBar;
use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What to do.
#[derive(clap::Args, Debug)]
pub struct Options {
    #[command(flatten)]
    binary: Binary,
    /// Seconds of each run
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Runs of each kind, by turns
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Size of the file that is overwritten, in MiB
    #[arg(long, default_value_t = 1024)]
    overwritten_mib: u64,
    /// Further mount options of finefs
    #[arg(short = 'o', long, value_delimiter = ',')]
    options: Vec<String>,
    #[command(flatten)]
    images: ImageDir,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Overwrites,
    NewFile,
}

const ALL: [(Beside, &str); 3] = [
    (Beside::Nothing, "nothing"),
    (Beside::Overwrites, "4 KiB over others at random"),
    (Beside::NewFile, "a new file, 256 KiB at a time"),
];

const RECORD_BYTES: usize = 512;
const PAUSE: Duration = Duration::from_millis(10);
const BLOCK_BYTES: usize = 4096;
const PIECE_BYTES: usize = 256 << 10;
/// The new file begins anew when it has so many bytes.
const NEW_BYTES_MAX: u64 = 2 << 30;
const MIB: u64 = 1 << 20;

/// One run.
struct Found {
    mean_ms: f64,
    p99_ms: f64,
    longest_ms: f64,
    /// What the other thread wrote.
    mib_per_s: f64,
}

/// Measures all and prints a table.
pub fn run(options: &Options) -> Result<()> {
    let mut kinds = vec![Kind::Finefs];
    // As a mount of finefs by root has them, for both.
    let mut _awake = None;
    if rustix::process::geteuid().is_root() {
        kinds.push(Kind::Kernel);
        _awake = keep_awake().ok();
    }
    let bar = ProgressBar::new((ALL.len() * options.rounds * kinds.len()) as u64);
    println!(
        "| beside | server | fsync, mean ms | p99 | longest | the other, MiB/s |\n\
         |---|---|---:|---:|---:|---:|"
    );
    for (beside, name) in ALL {
        let mut found: Vec<Vec<Found>> = kinds.iter().map(|_| Vec::new()).collect();
        for round in 0..options.rounds {
            for turn in 0..kinds.len() {
                let which = (round + turn) % kinds.len();
                found[which].push(measure(options, kinds[which], beside)?);
                bar.inc(1);
            }
        }
        for (kind, runs) in kinds.iter().zip(found) {
            let of = |value: fn(&Found) -> f64| {
                let values: Vec<f64> = runs.iter().map(value).collect();
                median(&values).unwrap_or(f64::NAN)
            };
            bar.suspend(|| {
                println!(
                    "| {name} | {kind} | {:.1} | {:.0} | {:.0} | {:.0} |",
                    of(|it| it.mean_ms),
                    of(|it| it.p99_ms),
                    of(|it| it.longest_ms),
                    of(|it| it.mib_per_s)
                );
            });
        }
    }
    bar.finish_and_clear();
    Ok(())
}

fn measure(options: &Options, kind: Kind, beside: Beside) -> Result<Found> {
    let scratch = options.images.scratch()?;
    let image = scratch.path().join("image");
    let overwritten = match beside {
        Beside::Overwrites => options.overwritten_mib,
        Beside::Nothing | Beside::NewFile => 0,
    };
    sets::find("ext4")?.make_image(&image, 3 * NEW_BYTES_MAX / MIB + overwritten)?;
    let dir = scratch.subdir("mnt")?;
    let words: Vec<&str> = match kind {
        Kind::Finefs => options.options.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let mount = options
        .binary
        .server(kind)?
        .mount(What::Image(&image), &dir, &words)?;
    let file = dir.join("written");
    make(&file, overwritten)?;
    let stop = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        let other = scope.spawn(|| match beside {
            Beside::Nothing => Ok(0),
            Beside::Overwrites => overwrite(&file, overwritten * MIB, &stop),
            Beside::NewFile => write_anew(&file, &stop),
        });
        let began = Instant::now();
        let times = sync_records(&dir, Duration::from_secs(options.seconds));
        stop.store(true, Ordering::Relaxed);
        let written = other.join().map_err(|_| anyhow!("a thread panicked"))??;
        let seconds = began.elapsed().as_secs_f64();
        summary(times?, written as f64 / MIB as f64 / seconds)
    });
    mount.unmount()?;
    found
}

/// A file of so many MiB that is on the image.
fn make(path: &Path, mib: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let data = vec![1; MIB as usize];
    for _ in 0..mib {
        file.write_all(&data)?;
    }
    Ok(file.sync_all()?)
}

fn sync_records(dir: &Path, time: Duration) -> Result<Vec<Duration>> {
    let mut log = File::create(dir.join("log"))?;
    let end = Instant::now() + time;
    let mut times = Vec::new();
    while Instant::now() < end {
        log.write_all(&[7; RECORD_BYTES])?;
        let began = Instant::now();
        log.sync_all()?;
        times.push(began.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(times)
}

/// How many bytes it wrote.
fn overwrite(path: &Path, length_bytes: u64, stop: &AtomicBool) -> Result<u64> {
    let file = OpenOptions::new().write(true).open(path)?;
    let mut rng = Rng::new(1);
    let data = [2; BLOCK_BYTES];
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        let block = rng.below(length_bytes / BLOCK_BYTES as u64);
        file.write_all_at(&data, block * BLOCK_BYTES as u64)?;
        written += BLOCK_BYTES as u64;
    }
    Ok(written)
}

/// How many bytes it wrote.
fn write_anew(path: &Path, stop: &AtomicBool) -> Result<u64> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let data = vec![3; PIECE_BYTES];
    let (mut written, mut at) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        file.write_all(&data)?;
        written += PIECE_BYTES as u64;
        at += PIECE_BYTES as u64;
        if at >= NEW_BYTES_MAX {
            file.set_len(0)?;
            file.rewind()?;
            at = 0;
        }
    }
    Ok(written)
}

fn summary(mut times: Vec<Duration>, mib_per_s: f64) -> Result<Found> {
    times.sort_unstable();
    let longest = *times.last().context("no sync came to its end")?;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let p99 = times[(times.len() * 99 / 100).min(times.len() - 1)];
    let sum: Duration = times.iter().sum();
    Ok(Found {
        mean_ms: ms(sum) / times.len() as f64,
        p99_ms: ms(p99),
        longest_ms: ms(longest),
        mib_per_s,
    })
}
