//! How long single operations take while commits run: creating, writing and removing files in a
//! mount, from several threads, beside nothing else or beside PostMark in processes.
//!
//! Each thread makes files, writes to them, and removes those that are older than the time between
//! two commits: creates and removals that do not cancel out. No operation syncs. Reported are
//! percentiles and the longest. Where that is allowed CPUs are kept awake, whoever serves.

use crate::options::{Binary, ImageDir};
use crate::variant::keep_awake;
use anyhow::{Context, Result, anyhow};
use finefs_harness::programs::{Shape, run_postmark};
use finefs_harness::server::{Kind, What};
use finefs_harness::sets;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What to do.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Who serves the mount
    #[arg(long, default_value = "finefs")]
    server: Kind,
    #[command(flatten)]
    binary: Binary,
    /// How long
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Threads whose operations are timed
    #[arg(long, default_value_t = 8)]
    threads: u64,
    /// PostMark processes beside them
    #[arg(long, default_value_t = 0)]
    postmark: u64,
    /// Seconds that each file lives; mounts commit every five
    #[arg(long, default_value_t = 6.0)]
    lifetime: f64,
    /// Further mount options
    #[arg(short = 'o', long, value_delimiter = ',')]
    options: Vec<String>,
    #[command(flatten)]
    images: ImageDir,
}

const IMAGE_MIB: u64 = 4096;
const FILE_BYTES: usize = 2000;

const NAMES: [&str; 3] = ["create", "write", "unlink"];

/// Mounts, measures, prints a table.
pub fn run(options: &Options) -> Result<()> {
    let scratch = options.images.scratch()?;
    let image = scratch.path().join("latency.img");
    sets::find("ext4")?.make_image(&image, IMAGE_MIB)?;
    let server = options.binary.server(options.server)?;
    // Without the right to it finefs cannot do so either.
    let _awake = keep_awake().ok();
    let dir = scratch.subdir("mnt")?;
    let words: Vec<&str> = options.options.iter().map(String::as_str).collect();
    let mount = server.mount(What::Image(&image), &dir, &words)?;
    let times = measure(&dir, options)?;
    mount.unmount()?;
    println!("| operation | count | p50 | p99 | p99.9 | longest |\n|---|---:|---:|---:|---:|---:|");
    for (name, mut times) in NAMES.into_iter().zip(times) {
        times.sort_unstable();
        let at = |share: f64| {
            let index = ((times.len() as f64 * share) as usize).min(times.len() - 1);
            times[index].as_secs_f64() * 1e6
        };
        if !times.is_empty() {
            println!(
                "| {name} | {} | {:.0} us | {:.0} us | {:.0} us | {:.1} ms |",
                times.len(),
                at(0.5),
                at(0.99),
                at(0.999),
                at(1.0) / 1e3
            );
        }
    }
    Ok(())
}

fn measure(dir: &Path, options: &Options) -> Result<[Vec<Duration>; 3]> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for thread in 0..options.threads {
            let own = dir.join(format!("thread{thread}"));
            std::fs::create_dir(&own)?;
            let stop = &stop;
            let lifetime = Duration::from_secs_f64(options.lifetime);
            workers.push(scope.spawn(move || work(&own, lifetime, stop)));
        }
        let end = Instant::now() + Duration::from_secs(options.seconds);
        if options.postmark > 0 {
            let beside = dir.join("postmark");
            let shape = Shape {
                files: 500,
                transactions: 1000,
            };
            while Instant::now() < end {
                std::fs::create_dir(&beside)?;
                run_postmark(&beside, options.postmark, shape, false).context("PostMark")?;
                std::fs::remove_dir_all(&beside)?;
            }
        }
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        stop.store(true, Ordering::Relaxed);
        let mut all: [Vec<Duration>; 3] = Default::default();
        for worker in workers {
            let times = worker.join().map_err(|_| anyhow!("a thread panicked"))??;
            for (all, own) in all.iter_mut().zip(times) {
                all.extend(own);
            }
        }
        Ok(all)
    })
}

fn work(dir: &Path, lifetime: Duration, stop: &AtomicBool) -> Result<[Vec<Duration>; 3]> {
    let mut times: [Vec<Duration>; 3] = Default::default();
    let path = |number: u64| dir.join(format!("f{number}"));
    let data = [7; FILE_BYTES];
    let mut number = 0;
    let mut alive = VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let mut file = File::create_new(path(number))?;
        let created = Instant::now();
        file.write_all(&data)?;
        let written = Instant::now();
        times[0].push(created - started);
        times[1].push(written - created);
        drop(file);
        alive.push_back((number, created));
        number += 1;
        // As many as are made, later: two at most, so that what piled up goes too.
        for _ in 0..2 {
            let Some((oldest, _)) = alive.pop_front_if(|(_, made)| made.elapsed() >= lifetime)
            else {
                break;
            };
            let started = Instant::now();
            std::fs::remove_file(path(oldest))?;
            times[2].push(started.elapsed());
        }
    }
    Ok(times)
}
