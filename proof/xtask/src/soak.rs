//! Mixed load for a long time on an image that is nearly full: what slowly leaks, fragments or
//! fills up shows.
//!
//! Processes, each in a directory of its own, make, append to, overwrite, truncate, rename, link
//! and remove files, read them back and compare, and sync some. A file that is never removed leaves
//! them so little room that they meet ENOSPC all the time, which is no failure. Afterwards `e2fsck
//! -fn` must find nothing, and the memory of the server must not have grown: the median of its
//! resident size in the last quarter of the time against that in the second. Under a limit of its
//! caches (`--cache-mib`) it may never have been more than that and what a server takes without
//! files. Where transports go by turns, a run under a limit is through /dev/fuse, which kernels
//! have by default, and one without through io_uring.

use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::cleanup::Scratch;
use finefs_harness::rng::Rng;
use finefs_harness::run;
use finefs_harness::server::{Server, What};
use finefs_harness::sets;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How much.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// How long
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// How long, in seconds
    #[arg(long, conflicts_with = "minutes")]
    seconds: Option<u64>,
    /// Processes that work
    #[arg(long, default_value_t = 16)]
    processes: u64,
    /// Size of the image in MiB
    #[arg(long, default_value_t = 1024)]
    image_mib: u64,
    /// What the files of all processes may use, in MiB
    #[arg(long, default_value_t = 96)]
    room_mib: u64,
    /// The feature set of the image
    #[arg(long, default_value = "ext4")]
    set: String,
    /// A limit of the server's caches in MiB
    #[arg(long)]
    cache_mib: Option<u64>,
}

impl Options {
    fn length_seconds(&self) -> u64 {
        self.seconds.unwrap_or(self.minutes * 60)
    }
}

/// How often the server's memory is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What the memory may grow by without being called a leak: caches are not full at the same time
/// each time.
const GROWTH_KIB: u64 = 16 << 10;

/// The cache of file data is full early, so that it does not grow with what is in it.
const DATA_CACHE: &str = "data_cache=16m";

/// Files of each process at most.
const FILES: u64 = 300;
const FILE_BYTES_MAX: u64 = 200_000;

/// Mounts, works, looks.
pub fn run(
    server: &Server,
    parent: &Path,
    options: &Options,
    seed: u64,
    report: &mut Report,
) -> Result<()> {
    let scratch = Scratch::new_in(parent)?;
    let image = scratch.path().join("soak.img");
    sets::find(&options.set)?.make_image(&image, options.image_mib)?;
    let limit = options.cache_mib.map(|mib| format!("cache={mib}m"));
    let mut name = format!(
        "soak/{} processes, {} s",
        options.processes,
        options.length_seconds()
    );
    name.extend(limit.iter().flat_map(|limit| [", ", limit.as_str()]));
    report.proof(&name, || {
        let dir = scratch.subdir("mnt")?;
        let mut mount_options = vec![DATA_CACHE];
        mount_options.extend(limit.as_deref());
        let server = server.turn(u64::from(limit.is_some()));
        let mount = server.mount_in_foreground(What::Image(&image), &dir, &mount_options)?;
        let server_pid = mount
            .server_pid()
            .context("the server is no child of ours")?;
        leave_room(&dir, options.room_mib)?;
        let resident = work(&dir, server_pid, options, seed)?;
        let peak_kib = peak_kib(server_pid)?;
        mount.unmount()?;
        sets::fsck(&image)?;
        if let Some(mib) = options.cache_mib {
            judge_peak(peak_kib, mib)?;
        }
        let judged = judge_memory(&resident)?;
        Ok(format!("{judged}, peak {peak_kib} KiB"))
    });
    Ok(())
}

/// Fills the image up but for so much.
fn leave_room(dir: &Path, room_mib: u64) -> Result<()> {
    let statfs = rustix::fs::statvfs(dir)?;
    let free = statfs.f_bavail * statfs.f_frsize;
    let wanted = free
        .checked_sub(room_mib << 20)
        .context("the image has less room than that")?;
    let file = File::create(dir.join("filler"))?;
    Ok(rustix::fs::fallocate(
        &file,
        rustix::fs::FallocateFlags::empty(),
        0,
        wanted,
    )?)
}

/// Runs the processes; gives the server's resident size in KiB over the time.
fn work(dir: &Path, server_pid: u32, options: &Options, seed: u64) -> Result<Vec<u64>> {
    let program = std::env::current_exe()?;
    let mut workers = Vec::new();
    for worker in 0..options.processes {
        let own = dir.join(format!("worker{worker}"));
        std::fs::create_dir(&own)?;
        let mut command = run::cmd(&program, ["worker", "soak"]);
        command.arg(own).args([
            (seed ^ worker << 40).to_string(),
            options.length_seconds().to_string(),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        workers.push(run::spawn(&mut command)?);
    }
    let end = Instant::now() + Duration::from_secs(options.length_seconds());
    let mut resident = Vec::new();
    while Instant::now() < end {
        std::thread::sleep(LOOK);
        resident.push(resident_kib(server_pid)?);
        for worker in &mut workers {
            if let Some(status) = worker.try_wait()?
                && !status.success()
            {
                bail!("a worker ended with {status}");
            }
        }
    }
    for mut worker in workers {
        let (status, is_killed) = worker.wait_limit(Duration::from_secs(120))?;
        ensure!(!is_killed, "a worker does not end");
        ensure!(status.success(), "a worker ended with {status}");
    }
    Ok(resident)
}

pub(crate) fn resident_kib(pid: u32) -> Result<u64> {
    status_kib(pid, "VmRSS")
}

/// The largest resident size that a process ever had, in KiB.
pub(crate) fn peak_kib(pid: u32) -> Result<u64> {
    status_kib(pid, "VmHWM")
}

/// A line of `/proc/PID/status`; see proc_pid_status(5).
fn status_kib(pid: u32, field: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines
        .find(|(name, _)| *name == field)
        .with_context(|| format!("no {field}"))?;
    let number = value.split_whitespace().next().unwrap_or_default();
    number
        .parse()
        .with_context(|| format!("{field} is a number"))
}

/// What a server may take beyond the limit of its caches: its program, threads, and what its heap
/// loses.
pub(crate) const BESIDE_CACHES_MIB: u64 = 64;

/// Under a limit of its caches a server's largest resident size is bounded.
fn judge_peak(peak_kib: u64, cache_mib: u64) -> Result<()> {
    let most_kib = (cache_mib + BESIDE_CACHES_MIB) << 10;
    ensure!(
        peak_kib <= most_kib,
        "the server had {peak_kib} KiB, more than {most_kib} KiB"
    );
    Ok(())
}

/// The resident sizes of a server over the time, in KiB, must not grow.
pub(crate) fn judge_memory(resident: &[u64]) -> Result<String> {
    let quarter = resident.len() / 4;
    ensure!(quarter > 0, "too short to say anything about memory");
    let median = |part: &[u64]| {
        let mut sorted = part.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    let early = median(&resident[quarter..2 * quarter]);
    let late = median(&resident[3 * quarter..]);
    ensure!(
        late <= early + GROWTH_KIB,
        "the server's memory grew from {early} KiB to {late} KiB"
    );
    let most = resident.iter().max().copied().unwrap_or(0);
    Ok(format!(
        "server: {early} KiB early, {late} KiB late, {most} KiB at most"
    ))
}

/// What a process knows of its files: the seed and the length of each content.
struct Worker<'a> {
    dir: &'a Path,
    rng: Rng,
    files: BTreeMap<u64, Vec<u8>>,
    next: u64,
    operations: u64,
    refused: u64,
}

/// One process: works for so long.
pub fn worker(dir: &Path, seed: u64, seconds: u64) -> Result<()> {
    let mut worker = Worker {
        dir,
        rng: Rng::new(seed),
        files: BTreeMap::new(),
        next: 0,
        operations: 0,
        refused: 0,
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        match worker.step() {
            Ok(()) => worker.operations += 1,
            Err(error) if is_full(&error) => worker.make_room()?,
            Err(error) => return Err(error),
        }
    }
    ensure!(
        worker.operations > worker.refused,
        "hardly anything was possible"
    );
    let numbers: Vec<u64> = worker.files.keys().copied().collect();
    numbers
        .into_iter()
        .try_for_each(|number| worker.compare(number))
}

fn is_full(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::StorageFull)
}

impl Worker<'_> {
    fn path(&self, number: u64) -> std::path::PathBuf {
        self.dir.join(format!("file-{number}"))
    }

    fn any(&mut self) -> Option<u64> {
        let count = self.files.len() as u64;
        let index = (count > 0).then(|| self.rng.below(count))?;
        self.files.keys().nth(index as usize).copied()
    }

    fn step(&mut self) -> Result<()> {
        let choice = self.rng.below(100);
        if self.files.len() as u64 >= FILES {
            return self.remove();
        }
        let Some(number) = self.any() else {
            return self.create();
        };
        match choice {
            0..25 => self.create(),
            25..40 => self.remove(),
            40..60 => self.compare(number),
            60..75 => self.write_at(number, true),
            75..88 => self.write_at(number, false),
            88..93 => self.truncate(number),
            93..97 => self.rename(number),
            _ => {
                File::open(self.path(number))?.sync_all()?;
                Ok(())
            }
        }
    }

    fn create(&mut self) -> Result<()> {
        let number = self.next;
        self.next += 1;
        let length = self.rng.below(FILE_BYTES_MAX / 4);
        let content = self.rng.bytes(length as usize);
        let mut file = File::create_new(self.path(number))?;
        // A write that finds no room may have written a part.
        self.files.insert(number, Vec::new());
        let written = file.write_all(&content);
        drop(file);
        self.settle(number, content, written)
    }

    /// After a write that failed what is there counts, if it is what could have been written.
    fn settle(&mut self, number: u64, wanted: Vec<u8>, written: std::io::Result<()>) -> Result<()> {
        let Err(error) = written else {
            self.files.insert(number, wanted);
            return Ok(());
        };
        let before = self.files.remove(&number).unwrap_or_default();
        let found = std::fs::read(self.path(number))?;
        let is_possible = found
            .iter()
            .enumerate()
            .all(|(at, byte)| before.get(at) == Some(byte) || wanted.get(at) == Some(byte));
        ensure!(
            is_possible,
            "file {number}: neither the old nor the new content"
        );
        self.files.insert(number, found);
        Err(error.into())
    }

    fn write_at(&mut self, number: u64, is_append: bool) -> Result<()> {
        let mut wanted = self.files[&number].clone();
        let at = match is_append {
            true => wanted.len(),
            false => self.rng.below(wanted.len() as u64 + 1) as usize,
        };
        let most = FILE_BYTES_MAX.saturating_sub(at as u64).clamp(1, 20_000);
        let length = 1 + self.rng.below(most) as usize;
        let data = self.rng.bytes(length);
        wanted.resize(wanted.len().max(at + length), 0);
        wanted[at..at + length].copy_from_slice(&data);
        let file = OpenOptions::new().write(true).open(self.path(number))?;
        let written = file.write_all_at(&data, at as u64);
        drop(file);
        self.settle(number, wanted, written)
    }

    fn truncate(&mut self, number: u64) -> Result<()> {
        let length = self.rng.below(FILE_BYTES_MAX / 2);
        let file = OpenOptions::new().write(true).open(self.path(number))?;
        file.set_len(length)?;
        if let Some(content) = self.files.get_mut(&number) {
            content.resize(length as usize, 0);
        }
        Ok(())
    }

    fn rename(&mut self, number: u64) -> Result<()> {
        let to = self.next;
        self.next += 1;
        std::fs::rename(self.path(number), self.path(to))?;
        if let Some(content) = self.files.remove(&number) {
            self.files.insert(to, content);
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let Some(number) = self.any() else {
            return Ok(());
        };
        std::fs::remove_file(self.path(number))?;
        self.files.remove(&number);
        Ok(())
    }

    fn compare(&mut self, number: u64) -> Result<()> {
        let found = std::fs::read(self.path(number))?;
        ensure!(
            self.files.get(&number) == Some(&found),
            "{}: has changed",
            self.path(number).display()
        );
        Ok(())
    }

    /// After ENOSPC: some files go.
    fn make_room(&mut self) -> Result<()> {
        self.refused += 1;
        for _ in 0..1 + self.files.len() / 8 {
            self.remove()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_found() {
        let steady: Vec<u64> = (0..100).map(|at| 50_000 + at % 7 * 1000).collect();
        judge_memory(&steady).unwrap();
        let growing: Vec<u64> = (0..100).map(|at| 50_000 + at * 500).collect();
        judge_memory(&growing).unwrap_err();
    }

    #[test]
    fn a_peak_beyond_the_limit_is_found() {
        judge_peak(192 << 10, 128).unwrap();
        judge_peak((192 << 10) + 1, 128).unwrap_err();
        assert!(peak_kib(std::process::id()).unwrap() > 0);
    }
}
