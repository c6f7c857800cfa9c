//! The five threads that finefs begins with: their published tables, beside the same measured here.
//!
//! | Module | What |
//! |---|---|
//! | [`published`] | the numbers of the threads |
//! | `experiment` | one run: a load under a scheme on some CPUs; its samples, and their medians |
//! | `affinity` | how many CPUs a run has |
//! | `bkl_removal`, `files_lock`, `bkl_semaphore`, `kill_bkl`, `extent_locks` | a thread each: what runs, and its tables |
//! | `what_if` | more cores than there are, by the model |
//! | `ratios` | what all tables compute |
//!
//! Machines of 2002 and of today do not compare, nor do a kernel with a disk and a file system in memory in
//! one process. What carries over are ratios within one machine: one lock against another, many CPUs against
//! one, the share of time that goes into waiting. So every table gives these, too.
//!
//! # Order
//! All experiments run once, then all once more, and so on: what disturbs the machine for a while disturbs
//! all of them, and a run that is ended early has something of each. Tables show medians. Runs in which all
//! acquisitions are counted are for contention and the model; they run once.

mod affinity;
mod bkl_removal;
mod bkl_semaphore;
mod experiment;
mod extent_locks;
mod files_lock;
mod kill_bkl;
pub mod published;
mod ratios;
mod what_if;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use crate::error::Result;
use crate::model::costs;
use crate::page::{Document, Fact, Section};
use crate::plan::Watch;
use experiment::{Experiment, Results};

/// How to run them.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of each run, seconds.
    pub seconds: f64,
    /// Times that everything runs.
    pub rounds: usize,
    /// Threads of the loads that had eight processes; `None` for as many as were published, for each load.
    pub threads: Option<usize>,
    /// Threads to look at; empty for all.
    pub only: Vec<Seed>,
}

/// One of the threads, or the model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Seed {
    /// BKL removal from VFS, 2002: PostMark
    BklRemoval,
    /// Scaling files_lock, 2010: who removes open files from their list
    FilesLock,
    /// BKL as a semaphore, 2009: openspeed and POSIX locks
    BklSemaphore,
    /// Reiserfs without the BKL, 2009: dbench
    KillBkl,
    /// Range locks instead of i_mutex, 2012: random reads and writes
    ExtentLocks,
    /// More cores than there are, by mean value analysis
    WhatIf,
}

impl Seed {
    /// All of them, in the order of the page.
    pub const ALL: [Seed; 6] = [
        Seed::BklRemoval,
        Seed::BklSemaphore,
        Seed::KillBkl,
        Seed::FilesLock,
        Seed::ExtentLocks,
        Seed::WhatIf,
    ];

    fn experiments(self, options: &Options) -> Vec<Experiment> {
        match self {
            Seed::BklRemoval => bkl_removal::experiments(options),
            Seed::FilesLock => files_lock::experiments(options),
            Seed::BklSemaphore => bkl_semaphore::experiments(options),
            Seed::KillBkl => kill_bkl::experiments(),
            Seed::ExtentLocks => extent_locks::experiments(options),
            Seed::WhatIf => what_if::experiments(),
        }
    }

    fn section(self, options: &Options, results: &Results) -> Section {
        match self {
            Seed::BklRemoval => bkl_removal::section(options, results),
            Seed::FilesLock => files_lock::section(options, results),
            Seed::BklSemaphore => bkl_semaphore::section(options, results),
            Seed::KillBkl => kill_bkl::section(results),
            Seed::ExtentLocks => extent_locks::section(options, results),
            Seed::WhatIf => what_if::section(results),
        }
    }
}

/// Runs what `options` say, and makes the page of it. Ends early with what there is when `watch.stop`
/// becomes true; `watch.progress` is told the share of the whole; `name` is told what runs now.
///
/// # Errors
/// The first one of any run.
pub fn run(options: &Options, watch: Watch<'_>, name: &dyn Fn(&str)) -> Result<Document> {
    let began = (SystemTime::now(), Instant::now());
    let seeds: Vec<Seed> = Seed::ALL
        .into_iter()
        .filter(|seed| options.only.is_empty() || options.only.contains(seed))
        .collect();
    name("calibration");
    let mut results = Results::new(costs::measure());
    let mut experiments: Vec<Experiment> = Vec::new();
    for seed in &seeds {
        for experiment in seed.experiments(options) {
            // Two sections may look at the same run.
            if !experiments.iter().any(|known| known.key == experiment.key) {
                experiments.push(experiment);
            }
        }
    }
    // Counts are of no use as medians: once is enough.
    let runs = |round: usize, experiment: &&Experiment| round == 0 || !experiment.key.is_counted;
    let rounds = 0..options.rounds.max(1);
    let of_round = |round| experiments.iter().filter(|one| runs(round, one)).count();
    let total = rounds.clone().map(of_round).sum::<usize>() as f64;
    let mut done = 0.0;
    'rounds: for round in rounds {
        for experiment in experiments.iter().filter(|one| runs(round, one)) {
            if watch.stop.load(Ordering::Relaxed) {
                break 'rounds;
            }
            name(&experiment.key.to_string());
            let progress = |share: f64| (watch.progress)((done + share) / total);
            let watch = Watch {
                progress: &progress,
                ..watch
            };
            if let Some(sample) = experiment.run(options.seconds, watch)? {
                results.add(experiment.key.clone(), sample);
            }
            done += 1.0;
        }
    }
    Ok(Document {
        title: "Five threads on file system locks, measured again".to_owned(),
        lead: lead(),
        facts: facts(options, began.0, began.1.elapsed(), &results),
        sections: seeds
            .iter()
            .map(|seed| seed.section(options, &results))
            .collect(),
        is_partial: watch.stop.load(Ordering::Relaxed),
    })
}

fn lead() -> Vec<String> {
    vec![
        "Five threads on mailing lists and in a bug tracker, from 2002 to 2012, measured what the big \
         kernel lock and its kin cost. Here their loads run again, on finefs: one file system in memory, in \
         one process, whose operations are put under the locks of those days by a locking scheme \
         and are the same code otherwise."
            .to_owned(),
        "Published rows are set off by a band. Absolute rates of different machines do not compare; \
         ratios within one machine do: one lock against another, many CPUs against one, the share of time \
         spent waiting."
            .to_owned(),
    ]
}

fn facts(options: &Options, at: SystemTime, took: Duration, results: &Results) -> Vec<Fact> {
    let kernel = rustix::system::uname();
    let costs = results.costs();
    let line_transfer = costs.line_transfer_ns.map_or_else(
        || "a single CPU, no line travels".to_owned(),
        |ns| format!("{ns:.0} ns for a cache line from CPU to CPU"),
    );
    let fact = |name, value| Fact { name, value };
    vec![
        fact(
            "Measured",
            humantime::format_rfc3339_seconds(at).to_string(),
        ),
        fact(
            "Machine",
            format!(
                "{} CPUs, {} {}, {}",
                affinity::cpus(),
                kernel.sysname().to_string_lossy(),
                kernel.release().to_string_lossy(),
                kernel.machine().to_string_lossy()
            ),
        ),
        fact(
            "Hand-over",
            format!(
                "{line_transfer}, {:.1} µs until a woken thread runs",
                costs.wake_up_ns / 1e3
            ),
        ),
        fact(
            "Runs",
            format!(
                "{:.2} s each, {} in {:.0} s; medians of up to {}",
                options.seconds,
                results.count(),
                took.as_secs_f64(),
                options.rounds
            ),
        ),
        fact("Program", format!("finefs {}", env!("CARGO_PKG_VERSION"))),
    ]
}
