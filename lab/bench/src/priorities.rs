//! A holder of low priority and a waiter of high priority, as Red Hat's bug 519126 (comment 24)
//! argues about them: how long operations of one thread take while another of a lower priority uses
//! the same file system, under the fair big lock, the spinning one and the fine locks.
//!
//! A thread of low priority works on its own file on a CPU that a third thread keeps busy at the
//! usual priority. So when it is preempted inside an operation it is long before it runs again, and
//! under a big lock nobody's operation begins meanwhile. The waiter, whose operations are timed,
//! works on a file of its own on another CPU, or above both on theirs.

use crate::result::median;
use anyhow::{Context, Result, anyhow, ensure};
use finefs::{LockingScheme, MemoryOptions};
use finefs_harness::run;
use finefs_lockmeter::Histogram;
use finefs_workloads::affinity;
use finefs_workloads::targets::{File, OFlags};
use finefs_workloads::{InProcess, Target};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use serde_json::json;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How to compare.
#[derive(clap::Args)]
pub struct Options {
    /// Locking schemes
    #[arg(long, value_delimiter = ',', default_value = "big-sleep,big-spin,fine")]
    locking: Vec<LockingScheme>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds; each runs all schemes in turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A priority of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Priority {
    Nice(i32),
    /// SCHED_IDLE (sched(7)): below all nice values. By chrt(1), since rustix has it not.
    Idle,
}

impl Priority {
    fn name(self) -> String {
        match self {
            Priority::Nice(nice) => format!("nice {nice}"),
            Priority::Idle => "idle".to_owned(),
        }
    }

    /// Gives the calling thread this priority.
    fn take(self) -> Result<()> {
        match self {
            // For Linux it is the thread's own (setpriority(2), "C library/kernel differences").
            Priority::Nice(nice) => setpriority_process(None, nice)
                .with_context(|| format!("a priority of nice {nice}")),
            Priority::Idle => {
                let thread = gettid().as_raw_nonzero().to_string();
                let mut command = run::cmd("chrt", ["--idle", "--pid", "0", &thread]);
                run::ok(&mut command).context("the priority SCHED_IDLE")?;
                Ok(())
            }
        }
    }
}

/// Who has which priority.
#[derive(Clone, Copy)]
struct Situation {
    holder: Priority,
    waiter: Priority,
    /// The waiter is on the holder's CPU, not on another.
    is_crowded: bool,
}

const SITUATIONS: [Situation; 4] = [
    Situation {
        holder: Priority::Nice(0),
        waiter: Priority::Nice(0),
        is_crowded: false,
    },
    Situation {
        holder: Priority::Nice(19),
        waiter: Priority::Nice(0),
        is_crowded: false,
    },
    Situation {
        holder: Priority::Idle,
        waiter: Priority::Nice(0),
        is_crowded: false,
    },
    Situation {
        holder: Priority::Nice(19),
        waiter: Priority::Nice(-10),
        is_crowded: true,
    },
];

/// What a measurement found.
struct Found {
    /// Of the waiter's operations.
    latencies: Histogram,
    longest: Duration,
    /// Operations of the waiter and of the holder, a second.
    rates: [f64; 2],
}

const FILE_BYTES: usize = 16 << 10;

/// Measures all and prints a table.
pub fn run(options: &Options) -> Result<()> {
    let cpus = affinity::allowed();
    ensure!(
        cpus.len() > 1,
        "this process may use one CPU only: priorities need two"
    );
    let is_allowed = std::thread::spawn(|| Priority::Nice(-10).take().is_ok());
    let is_allowed = is_allowed
        .join()
        .map_err(|_| anyhow!("a thread panicked"))?;
    let mut rows = Vec::new();
    for situation in SITUATIONS {
        if situation.waiter != Priority::Nice(0) && !is_allowed {
            eprintln!("finefs-bench: raising a priority is not allowed here; skipped");
            continue;
        }
        let mut found: Vec<Vec<Found>> = options.locking.iter().map(|_| Vec::new()).collect();
        for round in 0..options.rounds {
            for turn in 0..options.locking.len() {
                let at = (round + turn) % options.locking.len();
                let scheme = options.locking[at];
                found[at].push(measure(scheme, situation, &cpus, options.seconds)?);
            }
        }
        let schemes = options.locking.iter().copied();
        rows.extend(
            schemes
                .zip(found)
                .map(|(scheme, found)| Row::of(situation, scheme, &found)),
        );
    }
    if options.json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(());
    }
    println!(
        "An open and a write of 16 KiB in microseconds, medians of {} rounds\n",
        options.rounds
    );
    println!("| holder | waiter | locks | p50 | p99 | longest | waiter's, 1/s | holder's, 1/s |");
    println!("|---|---|---|---:|---:|---:|---:|---:|");
    rows.iter().for_each(Row::print);
    Ok(())
}

/// Medians of the rounds.
struct Row {
    situation: Situation,
    scheme: LockingScheme,
    p50_us: f64,
    p99_us: f64,
    longest_us: f64,
    rates: [f64; 2],
}

impl Row {
    fn of(situation: Situation, scheme: LockingScheme, found: &[Found]) -> Row {
        let middle = |value: &dyn Fn(&Found) -> f64| {
            let values: Vec<_> = found.iter().map(value).collect();
            median(&values).unwrap_or(f64::NAN)
        };
        let quantile = |share: f64| {
            middle(&|found: &Found| {
                let ns = found.latencies.quantile_ns(share);
                ns.map_or(f64::NAN, |ns| ns as f64 / 1e3)
            })
        };
        Row {
            situation,
            scheme,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            longest_us: middle(&|found: &Found| found.longest.as_secs_f64() * 1e6),
            rates: [0, 1].map(|who| middle(&|found: &Found| found.rates[who])),
        }
    }

    fn waiter(&self) -> String {
        let place = match self.situation.is_crowded {
            true => ", same CPU",
            false => "",
        };
        self.situation.waiter.name() + place
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "holder": self.situation.holder.name(), "waiter": self.waiter(),
            "locking": self.scheme.name(), "p50_us": self.p50_us, "p99_us": self.p99_us,
            "longest_us": self.longest_us, "operations_per_second": self.rates,
        })
    }

    fn print(&self) {
        println!(
            "| {} | {} | {} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} |",
            self.situation.holder.name(),
            self.waiter(),
            self.scheme.name(),
            self.p50_us,
            self.p99_us,
            self.longest_us,
            self.rates[0],
            self.rates[1],
        );
    }
}

fn measure(
    scheme: LockingScheme,
    situation: Situation,
    cpus: &[usize],
    seconds: f64,
) -> Result<Found> {
    let file_system = MemoryOptions::new().locking(scheme).open(1 << 30)?;
    let root = file_system.open_dir(".")?;
    let target = InProcess::new(file_system, root, "memory".to_owned());
    let (is_over, held) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Barrier::new(3);
    let bound = |priority: Priority, cpu: usize| {
        let outcome = priority.take().and_then(|()| {
            ensure!(affinity::bind_to(cpu), "a thread may not be bound to a CPU");
            Ok(())
        });
        start.wait();
        outcome
    };
    let waiters_cpu = if situation.is_crowded {
        cpus[0]
    } else {
        cpus[1]
    };
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            bound(Priority::Nice(0), cpus[0])?;
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            anyhow::Ok(())
        });
        let holder = scope.spawn(|| {
            bound(situation.holder, cpus[0])?;
            while !is_over.load(Ordering::Relaxed) {
                write_anew(&target, "holder")?;
                held.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
        let waiter = scope.spawn(|| {
            let outcome = bound(situation.waiter, waiters_cpu)
                .and_then(|()| timed(&target, Duration::from_secs_f64(seconds)));
            let held = held.load(Ordering::Relaxed);
            is_over.store(true, Ordering::Relaxed);
            outcome.map(|(latencies, longest, took)| {
                let rate = |count: u64| count as f64 / took.as_secs_f64();
                let rates = [rate(latencies.count()), rate(held)];
                Found {
                    latencies,
                    longest,
                    rates,
                }
            })
        });
        let found = waiter.join().map_err(|_| anyhow!("the waiter panicked"))?;
        for other in [busy, holder] {
            other.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        found
    })
}

/// Opens a file, writes it, and closes it.
fn write_anew(target: &InProcess, path: &str) -> Result<()> {
    let file = target.open(path, OFlags::WRONLY | OFlags::CREATE)?;
    file.write_at(&[1; FILE_BYTES], 0)?;
    Ok(())
}

/// Latencies of operations for this long, the longest, and how long it was.
fn timed(target: &InProcess, time: Duration) -> Result<(Histogram, Duration, Duration)> {
    let (mut latencies, mut longest) = (Histogram::default(), Duration::ZERO);
    let started = Instant::now();
    let mut before = Duration::ZERO;
    while before < time {
        write_anew(target, "waiter")?;
        let now = started.elapsed();
        latencies.add((now - before).as_nanos() as u64, 1);
        longest = longest.max(now - before);
        before = now;
    }
    Ok((latencies, longest, before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_is_measured() {
        let cpus = affinity::allowed();
        if cpus.len() < 2 {
            eprintln!("skipped: needs two CPUs");
            return;
        }
        for scheme in [
            LockingScheme::BigSleep,
            LockingScheme::BigSpin,
            LockingScheme::Fine,
        ] {
            let found = measure(scheme, SITUATIONS[0], &cpus, 0.05).unwrap();
            assert!(found.latencies.count() > 0 && !found.longest.is_zero());
        }
    }

    #[test]
    fn priorities_are_the_threads_own() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        let other = std::thread::spawn(move || {
            Priority::Nice(19).take().unwrap();
            nice()
        });
        assert_eq!((other.join().unwrap(), nice()), (19, before));
    }
}
