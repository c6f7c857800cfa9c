//! The memory of a server stays within its limit, whatever the kernel has cached of the mount.
//!
//! A tree is made, walked warm and cold (after the next mount) and removed, first without a limit
//! and then under one; e2fsck must find nothing. Under the limit the server's resident size may
//! never have been more than the limit and what a server takes without files; without it it must
//! have been more, or the tree is too small to show anything.
//!
//! Where transports go by turns, the tree is made through /dev/fuse, which kernels have by default,
//! and found again through io_uring; in a second turn it is the other way round.
//!
//! Times are told, not judged, but for those of the walks with `--times`: under the limit they may
//! take so many times what they take without. Seconds depend on what else the machine does, so both
//! ways are then taken several times by turns, and the best of each counts.

use crate::report::Report;
use crate::soak::{BESIDE_CACHES_MIB, peak_kib};
use anyhow::{Context, Result, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::run;
use finefs_harness::server::{Mount, Server, What};
use finefs_harness::{sets, tools};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Files of the tree
    #[arg(long, default_value_t = 1_000_000)]
    files: u64,
    /// The limit in MiB
    #[arg(long, default_value_t = 128)]
    cache_mib: u64,
    /// Each walk may take so many times what it takes without a limit
    #[arg(long)]
    times: Option<f64>,
}

/// Turns where times are judged.
const TURNS: u64 = 2;
const UNLIMITED: &str = "cache=1t";

const DIRECTORY_FILES: u64 = 1000;
/// One file in so many has content.
const FILLED: u64 = 8;
/// Their names, and whether `--times` judges them.
const STEPS: [(&str, bool); 4] = [
    ("create", false),
    ("walk", true),
    ("walk anew", true),
    ("remove", false),
];

/// What was seen of a way: seconds of each step, the best of its turns, and the largest resident
/// size.
struct Seen {
    seconds: [f64; 4],
    peak_kib: u64,
}

impl Seen {
    const NOTHING: Seen = Seen {
        seconds: [f64::INFINITY; 4],
        peak_kib: 0,
    };

    fn took(&mut self, step: usize, seconds: f64) {
        self.seconds[step] = self.seconds[step].min(seconds);
    }
}

/// Runs both.
pub fn run(server: &Server, parent: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let scratch = Scratch::new_in(parent)?;
    let (files, cache_mib) = (options.files, options.cache_mib);
    report.proof(&format!("memory/{files} files, {cache_mib} MiB"), || {
        let limit = format!("cache={cache_mib}m");
        let (mut free, mut bound) = (Seen::NOTHING, Seen::NOTHING);
        for turn in 0..options.times.map_or(1, |_| TURNS) {
            let servers = [server.turn(turn + 1), server.turn(turn)];
            run_once(&servers, &scratch, options, UNLIMITED, &mut free)?;
            run_once(&servers, &scratch, options, &limit, &mut bound)?;
        }
        judge(&free, &bound, options)
    });
    Ok(())
}

fn judge(free: &Seen, bound: &Seen, options: &Options) -> Result<String> {
    let mut note = format!(
        "peak {} KiB, without a limit {} KiB;",
        bound.peak_kib, free.peak_kib
    );
    let seconds = bound.seconds.iter().zip(&free.seconds);
    for ((step, is_judged), (bound, free)) in STEPS.iter().zip(seconds) {
        write!(note, " {step} {bound:.1} s, {free:.1} s;")?;
        let most = options.times.filter(|_| *is_judged);
        ensure!(
            most.is_none_or(|times| *bound <= free * times),
            "{step} takes {bound:.1} s, without a limit {free:.1} s"
        );
    }
    let most_kib = (options.cache_mib + BESIDE_CACHES_MIB) << 10;
    ensure!(
        bound.peak_kib <= most_kib,
        "{note} more than {most_kib} KiB"
    );
    ensure!(free.peak_kib > most_kib, "{note} the tree is too small");
    Ok(note)
}

/// One turn of a way: the first server makes the tree, the other finds it.
fn run_once(
    [server, other]: &[Server; 2],
    scratch: &Scratch,
    options: &Options,
    cache: &str,
    seen: &mut Seen,
) -> Result<()> {
    let image = scratch.path().join("memory.img");
    make_image(&image, options.files)?;
    let dir = scratch.subdir("mnt")?;
    let mount = server.mount_in_foreground(What::Image(&image), &dir, &[cache])?;
    seen.took(0, timed(|| create(&dir, options.files))?);
    seen.took(1, timed(|| walk(&dir, options.files))?);
    end(mount, seen)?;
    let mount = other.mount_in_foreground(What::Image(&image), &dir, &[cache])?;
    seen.took(2, timed(|| walk(&dir, options.files))?);
    seen.took(3, timed(|| remove(&dir, options.files))?);
    end(mount, seen)?;
    sets::fsck(&image)?;
    fs::remove_file(&image)?;
    Ok(())
}

/// Takes note of the largest resident size there was, and unmounts.
fn end(mount: Mount, seen: &mut Seen) -> Result<()> {
    let pid = mount
        .server_pid()
        .context("the server is no child of ours")?;
    seen.peak_kib = seen.peak_kib.max(peak_kib(pid)?);
    mount.unmount()?;
    Ok(())
}

/// Sparse, with room for so many files.
fn make_image(image: &Path, files: u64) -> Result<()> {
    let mib = 256 + files / 1024;
    let inodes = (files + files / 64 + 1000).to_string();
    let mut command = run::cmd(tools::program("mke2fs"), ["-q", "-F", "-t", "ext4", "-N"]);
    command.arg(inodes).arg(image).arg(format!("{mib}M"));
    run::expect_printed(&mut command, Duration::from_secs(120))?;
    Ok(())
}

fn timed(step: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    step()?;
    Ok(start.elapsed().as_secs_f64())
}

fn directories(files: u64) -> u64 {
    files.div_ceil(DIRECTORY_FILES)
}

fn create(dir: &Path, files: u64) -> Result<()> {
    for directory in 0..directories(files) {
        let own = dir.join(format!("directory{directory}"));
        fs::create_dir(&own)?;
        let first = directory * DIRECTORY_FILES;
        for file in first..files.min(first + DIRECTORY_FILES) {
            let content = if file.is_multiple_of(FILLED) {
                file.to_string()
            } else {
                String::new()
            };
            fs::write(own.join(format!("file{file}")), content)?;
        }
    }
    Ok(())
}

/// As find(1) with a look at each file.
fn walk(dir: &Path, files: u64) -> Result<()> {
    let mut found = 0;
    for directory in 0..directories(files) {
        for entry in fs::read_dir(dir.join(format!("directory{directory}")))? {
            let entry = entry?;
            let name = entry.file_name().into_string().unwrap_or_default();
            let file: u64 = name.trim_start_matches("file").parse()?;
            let length = if file.is_multiple_of(FILLED) {
                file.to_string().len()
            } else {
                0
            };
            ensure!(
                entry.metadata()?.len() == length as u64,
                "{name}: its length"
            );
            found += 1;
        }
    }
    ensure!(found == files, "{found} of {files} files");
    Ok(())
}

fn remove(dir: &Path, files: u64) -> Result<()> {
    for directory in 0..directories(files) {
        fs::remove_dir_all(dir.join(format!("directory{directory}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_walks_are_judged_by_their_times() {
        let seen = |seconds, peak_mib: u64| Seen {
            seconds,
            peak_kib: peak_mib << 10,
        };
        let options = |times| Options {
            files: 0,
            cache_mib: 8,
            times,
        };
        let free = seen([1.0; 4], 100);
        let slow = seen([3.0, 2.0, 2.0, 3.0], 72);
        judge(&free, &slow, &options(Some(2.0))).unwrap();
        judge(&free, &seen([1.0; 4], 73), &options(None)).unwrap_err();
        for walk in [1, 2] {
            let mut slow = seen([1.0; 4], 72);
            slow.seconds[walk] = 2.1;
            judge(&free, &slow, &options(None)).unwrap();
            judge(&free, &slow, &options(Some(2.0))).unwrap_err();
        }
    }
}
