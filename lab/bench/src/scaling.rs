//! What two threads do in the time of one, in process on a memory file system, beside the ceiling
//! that the machine sets: two processes that share nothing.
//!
//! Every measurement is a process of its own; in each round one thread, all threads, and as many
//! processes of one thread take turns, and the ratios are those of the rounds. CPUs that are
//! hyperthreads of one core, or a busy machine, keep the ceiling below the number of threads.
//!
//! What threads of one process still write in common costs line transfers. How long one takes is
//! measured in each round: on a virtual machine it changes by a factor of five as its CPUs are
//! moved, and the ratios with it.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use crossbeam_utils::CachePadded;
use finefs::front_end::namespace::{Ino, Namespace, OpenAccess};
use finefs::{Caller, FileSystem, LockingScheme, MemoryOptions, RenameMode};
use finefs_harness::rng::Rng;
use finefs_lockmeter::{Mode, Snapshot, set_mode, snapshot};
use finefs_study::model::costs::line_transfer_ns;
use finefs_workloads::{Crew, InProcess, Length, Plan, PostMark, Watch};
use indicatif::ProgressBar;

use crate::result::median;

/// What each thread repeats.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Look up, open and close one of ten files that all share
    OpenClose,
    /// PostMark transactions, a directory for each thread
    Postmark,
    /// Create, rename, unlink, a directory for each thread
    Names,
    /// Create, rename, unlink, all in one directory
    NamesTogether,
    /// Read or write 4 KiB at random in the thread's own part of one file
    Blocks,
    /// The same, in parts that fit into a CPU's own cache
    BlocksCached,
}

const WORKLOADS: [Workload; 6] = [
    Workload::OpenClose,
    Workload::Postmark,
    Workload::Names,
    Workload::NamesTogether,
    Workload::Blocks,
    Workload::BlocksCached,
];

/// How to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Workloads; all by default
    #[arg(long, value_enum, value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// Locking schemes
    #[arg(long, value_delimiter = ',', default_value = "fine")]
    locking: Vec<LockingScheme>,
    /// Threads, and processes for the ceiling
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds for each measurement
    #[arg(long, default_value_t = 300)]
    time_ms: u64,
}

/// One measurement.
#[derive(clap::Args)]
pub struct Worker {
    #[arg(long, value_enum)]
    workload: Workload,
    #[arg(long, default_value = "fine")]
    locking: LockingScheme,
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[arg(long, default_value_t = 300)]
    time_ms: u64,
    /// Count all acquisitions and print the meter's table to standard error
    #[arg(long)]
    table: bool,
    /// Stop after so many operations of each thread, whatever the time (for callgrind)
    #[arg(long)]
    operations: Option<u64>,
}

/// Runs all and prints a table.
pub fn run(options: &Options) -> Result<()> {
    let workloads = if options.workloads.is_empty() {
        &WORKLOADS[..]
    } else {
        &options.workloads
    };
    let cells = workloads.len() * options.locking.len() * options.rounds;
    let progress = ProgressBar::new(cells as u64);
    let (mut rows, mut transfers_ns) = (Vec::new(), Vec::new());
    for &workload in workloads {
        for &locking in &options.locking {
            let mut runs: [Vec<f64>; 3] = Default::default();
            for round in 0..options.rounds {
                for turn in 0..runs.len() {
                    let which = (round + turn) % runs.len();
                    let (processes, threads) =
                        [(1, 1), (1, options.threads), (options.threads, 1)][which];
                    let start = || start(workload, locking, threads, options.time_ms);
                    let children = (0..processes)
                        .map(|_| start())
                        .collect::<Result<Vec<_>>>()?;
                    let rates = children.into_iter().map(rate).collect::<Result<Vec<_>>>()?;
                    runs[which].push(rates.iter().sum());
                }
                transfers_ns.extend(line_transfer_ns());
                progress.inc(1);
            }
            rows.push((workload, locking, runs));
        }
    }
    progress.finish_and_clear();
    println!(
        "| workload | locking | one thread, 1/s | {0} threads, 1/s | ratio | {0} processes, ratio | of the \
         ceiling |",
        options.threads
    );
    println!("|---|---|---:|---:|---:|---:|---:|");
    for (workload, locking, [one, many, apart]) in rows {
        let middle = |runs: &[f64]| median(runs).unwrap_or(f64::NAN);
        let ratio = |runs: &[f64], to: &[f64]| {
            middle(
                &runs
                    .iter()
                    .zip(to)
                    .map(|(run, to)| run / to)
                    .collect::<Vec<_>>(),
            )
        };
        println!(
            "| {workload:?} | {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} |",
            locking.name(),
            middle(&one),
            middle(&many),
            ratio(&many, &one),
            ratio(&apart, &one),
            ratio(&many, &apart),
        );
    }
    transfers_ns.sort_by(f64::total_cmp);
    if let [least, .., most] = transfers_ns[..] {
        println!(
            "\nA cache line from one CPU to another: {:.0} ns ({least:.0} to {most:.0}).",
            transfers_ns[transfers_ns.len() / 2]
        );
    }
    Ok(())
}

fn start(
    workload: Workload,
    locking: LockingScheme,
    threads: usize,
    time_ms: u64,
) -> Result<Child> {
    let workload = clap::ValueEnum::to_possible_value(&workload).context("a workload")?;
    let child = Command::new(std::env::current_exe()?)
        .args(["scaling-worker", "--workload", workload.get_name()])
        .args(["--locking", locking.name()])
        .args(["--threads", &threads.to_string()])
        .args(["--time-ms", &time_ms.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

fn rate(child: Child) -> Result<f64> {
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "a worker failed");
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

const FILES: u64 = 10;
const BLOCK: usize = 4096;
/// Of each thread: 16 MiB, beyond the caches of a CPU; and 128 KiB.
const BLOCKS: u64 = 4096;
const BLOCKS_CACHED: u64 = 32;

/// One measurement: prints operations per second.
pub fn work(worker: &Worker) -> Result<()> {
    let options = MemoryOptions::new().locking(worker.locking);
    let space = options.open_namespace(2 << 30)?;
    if worker.table {
        set_mode(Mode::Full);
    }
    let (rate, counts) = match worker.workload {
        Workload::Postmark => postmark(&space, worker)?,
        _ => by_steps(&space, worker)?,
    };
    if worker.table {
        eprintln!("{counts}");
        if let Some(contention) = counts.contention() {
            eprintln!("contention of all acquisitions {contention}");
        }
    }
    println!("{rate}");
    Ok(())
}

/// Operations per second, and what the meter counted meanwhile: 1,000 files for each thread.
fn postmark(space: &Arc<Namespace>, worker: &Worker) -> Result<(f64, Snapshot)> {
    let file_system = FileSystem::of(Arc::clone(space), Vec::new());
    let root = file_system.open_dir(".")?;
    let target = InProcess::new(file_system, root, "memory".to_owned());
    let length = match worker.operations {
        Some(operations) => Length::Operations(operations),
        None => Length::Seconds(worker.time_ms as f64 / 1e3),
    };
    let plan = Plan {
        is_verified: false,
        has_lock_counts: true,
        ..Plan::new(Crew::Threads(worker.threads), length)
    };
    let workload = PostMark {
        number: 1000,
        ..PostMark::default()
    };
    let report = finefs_workloads::run(&workload, &target, &plan, Watch::nobody())?;
    let counts = report.locks.unwrap_or_default();
    Ok((report.operations_per_second, counts))
}

/// The same of a workload that is a step again and again.
fn by_steps(space: &Arc<Namespace>, worker: &Worker) -> Result<(f64, Snapshot)> {
    let mut steps = (0..worker.threads as u64)
        .map(|thread| step(space, worker, thread))
        .collect::<Result<Vec<_>>>()?;
    let (started, before) = (Barrier::new(worker.threads), snapshot());
    let time = Duration::from_millis(worker.time_ms);
    let rates = std::thread::scope(|scope| {
        let threads: Vec<_> = steps
            .iter_mut()
            .map(|step| {
                scope.spawn(|| -> Result<f64> {
                    started.wait();
                    let (start, mut done) = (Instant::now(), 0_u64);
                    loop {
                        for _ in 0..64 {
                            step()?;
                        }
                        done += 64;
                        let is_over = match worker.operations {
                            Some(operations) => done >= operations,
                            None => start.elapsed() >= time,
                        };
                        if is_over {
                            return Ok(done as f64 / start.elapsed().as_secs_f64());
                        }
                    }
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<f64>>| {
            thread.join().map_err(|_| anyhow!("a thread panicked"))?
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    Ok((rates.iter().sum(), snapshot().since(&before)))
}

type Step<'a> = Box<dyn FnMut() -> Result<()> + Send + 'a>;

/// What a thread repeats, with what it needs made.
fn step<'a>(space: &'a Arc<Namespace>, worker: &Worker, thread: u64) -> Result<Step<'a>> {
    let caller = Caller::root();
    let root = space.root();
    // What a thread writes at each step lies in cache lines of its own.
    let mut rng = CachePadded::new(Rng::new(thread));
    Ok(match worker.workload {
        Workload::OpenClose => {
            let names: Vec<_> = (0..FILES).map(|n| format!("f{n}").into_bytes()).collect();
            if thread == 0 {
                for name in &names {
                    space.create_file(&caller, root, name, 0o644)?;
                }
            }
            Box::new(move || {
                let found = space.lookup(&caller, root, &rng.pick(&names)[..])?;
                drop(space.open(&caller, found.ino, OpenAccess::Read)?);
                space.forget(found.ino, 1);
                Ok(())
            })
        }
        Workload::Postmark => bail!("PostMark is not made of single steps"),
        Workload::Names => {
            let name = format!("d{thread}");
            let dir = space.make_directory(&caller, root, name.as_bytes(), 0o755)?;
            names_in(space, dir.ino, thread)
        }
        Workload::NamesTogether => names_in(space, root, thread),
        Workload::Blocks | Workload::BlocksCached => {
            let blocks = match worker.workload {
                Workload::Blocks => BLOCKS,
                _ => BLOCKS_CACHED,
            };
            let file = match thread {
                0 => {
                    let file = space.create_file(&caller, root, b"f", 0o644)?;
                    for block in 0..blocks * worker.threads as u64 {
                        space.write(file.ino, block * BLOCK as u64, &[1; BLOCK])?;
                    }
                    file
                }
                _ => space.lookup(&caller, root, b"f")?,
            };
            let mut buffer = [0; BLOCK];
            Box::new(move || {
                let offset_bytes = (thread * blocks + rng.below(blocks)) * BLOCK as u64;
                if rng.percent(50) {
                    space.read(file.ino, offset_bytes, &mut buffer)?;
                } else {
                    space.write(file.ino, offset_bytes, &buffer)?;
                }
                Ok(())
            })
        }
    })
}

const NAME_MAX: usize = 48;

/// Writes text to the start of a buffer, and gives it.
fn text<'b>(buffer: &'b mut [u8; NAME_MAX], text: std::fmt::Arguments<'_>) -> Result<&'b [u8]> {
    let mut rest = &mut buffer[..];
    rest.write_fmt(text)?;
    let left = rest.len();
    Ok(&buffer[..NAME_MAX - left])
}

fn names_in(space: &Arc<Namespace>, dir: Ino, thread: u64) -> Step<'_> {
    let caller = Caller::root();
    let mut number = CachePadded::new(0_u64);
    Box::new(move || {
        *number += 1;
        // On the thread's stack: small pieces of the heap may lie in a line with another thread's.
        // Some hundred names at a time, so that each goes to a bucket of its own.
        let (mut old, mut new) = ([0; NAME_MAX], [0; NAME_MAX]);
        let old = text(&mut old, format_args!("{thread}-{}", *number % 512))?;
        let new = text(&mut new, format_args!("{thread}.{}", *number))?;
        let made = space.create_file(&caller, dir, old, 0o644)?;
        space.forget(made.ino, 1);
        space.rename(&caller, (dir, old), (dir, new), RenameMode::Replace)?;
        space.remove_file(&caller, dir, new)?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_runs_under_every_scheme() {
        for workload in WORKLOADS {
            for locking in LockingScheme::ALL {
                let worker = Worker {
                    workload,
                    locking,
                    threads: 2,
                    time_ms: 0,
                    table: false,
                    operations: Some(64),
                };
                work(&worker).unwrap();
            }
        }
    }
}
