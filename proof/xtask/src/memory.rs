//! The memory of a server stays within its limit, whatever the kernel has cached of the mount.
//!
//! A tree is made, walked warm and cold (after the next mount) and removed, first without a limit
//! and then under one; e2fsck must find nothing. Under the limit the server's resident size may
//! never have been more than the limit and what a server takes without files; without it it must
//! have been more, or the tree is too small to show anything. Times are told, not judged, but for
//! `--times`: seconds depend on what else the machine does.

use crate::report::Report;
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
    /// Each step may take so many times what it takes without a limit
    #[arg(long)]
    times: Option<f64>,
}

/// What a server may take beyond its limit: its program, threads, and what its heap loses.
const BESIDE_MIB: u64 = 64;
const UNLIMITED: &str = "cache=1t";

const DIRECTORY_FILES: u64 = 1000;
/// One file in so many has content.
const FILLED: u64 = 8;
const STEPS: [&str; 4] = ["create", "walk", "walk anew", "remove"];

/// What was seen of one run: seconds of each step, and the largest resident size.
struct Seen {
    seconds: [f64; 4],
    peak_kib: u64,
}

/// Runs both.
pub fn run(server: &Server, parent: &Path, options: &Options, report: &mut Report) -> Result<()> {
    let scratch = Scratch::new_in(parent)?;
    let (files, cache_mib) = (options.files, options.cache_mib);
    report.proof(&format!("memory/{files} files, {cache_mib} MiB"), || {
        let free = run_once(server, &scratch, options, UNLIMITED)?;
        let bound = run_once(server, &scratch, options, &format!("cache={cache_mib}m"))?;
        judge(&free, &bound, options)
    });
    Ok(())
}

fn judge(free: &Seen, bound: &Seen, options: &Options) -> Result<String> {
    let mut note = format!(
        "peak {} KiB, without a limit {} KiB;",
        bound.peak_kib, free.peak_kib
    );
    for (step, (bound, free)) in STEPS.iter().zip(bound.seconds.iter().zip(&free.seconds)) {
        write!(note, " {step} {bound:.1} s, {free:.1} s;")?;
        let is_slow = options.times.is_some_and(|times| *bound > free * times);
        ensure!(
            !is_slow,
            "{step} takes {bound:.1} s, without a limit {free:.1} s"
        );
    }
    let most_kib = (options.cache_mib + BESIDE_MIB) << 10;
    ensure!(
        bound.peak_kib <= most_kib,
        "{note} more than {most_kib} KiB"
    );
    ensure!(free.peak_kib > most_kib, "{note} the tree is too small");
    Ok(note)
}

fn run_once(server: &Server, scratch: &Scratch, options: &Options, cache: &str) -> Result<Seen> {
    let image = scratch.path().join("memory.img");
    make_image(&image, options.files)?;
    let dir = scratch.subdir("mnt")?;
    let mut seen = Seen {
        seconds: [0.0; 4],
        peak_kib: 0,
    };
    let mount = server.mount_in_foreground(What::Image(&image), &dir, &[cache])?;
    seen.seconds[0] = timed(|| create(&dir, options.files))?;
    seen.seconds[1] = timed(|| walk(&dir, options.files))?;
    end(mount, &mut seen)?;
    let mount = server.mount_in_foreground(What::Image(&image), &dir, &[cache])?;
    seen.seconds[2] = timed(|| walk(&dir, options.files))?;
    seen.seconds[3] = timed(|| remove(&dir, options.files))?;
    end(mount, &mut seen)?;
    sets::fsck(&image)?;
    fs::remove_file(&image)?;
    Ok(seen)
}

/// Takes note of the largest resident size there was, and unmounts.
fn end(mount: Mount, seen: &mut Seen) -> Result<()> {
    let pid = mount
        .server_pid()
        .context("the server is no child of ours")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    let peak_kib = number.context("no VmHWM")?.parse()?;
    seen.peak_kib = seen.peak_kib.max(peak_kib);
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
