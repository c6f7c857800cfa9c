//! The five threads that finefs begins with: their published tables, beside the same measured here.
//!
//! | Module | What |
//! |---|---|
//! | [`published`] | the numbers of the threads |
//! | `experiment` | one run: a load under a scheme on some CPUs; its samples, and their medians |
//! | `place` | where it runs: memory, an image, a directory |
//! | `device` | a modelled device under files in memory |
//! | `bkl_removal`, `files_lock`, `bkl_semaphore`, `kill_bkl`, `extent_locks` | a thread each: what runs, and its tables |
//! | `over_nfs` | that of the semaphore once more, with an NFS client and server |
//! | `what_if` | more cores than there are, by the model |
//! | `ratios` | what all tables compute |
//!
//! Machines of 2002 and of today do not compare, nor do a kernel with a disk and a file system in
//! memory in one process. What carries over are ratios within one machine: one lock against
//! another, many CPUs against one, the share of time that goes into waiting. So every table gives
//! these, too.
//!
//! # Order
//! All experiments run once, then all once more, and so on: what disturbs the machine for a while
//! disturbs all of them, and a run that is ended early has something of each. Tables show medians.
//! Runs in which all acquisitions are counted are for contention and the model; they run once.

mod bkl_removal;
mod bkl_semaphore;
mod device;
mod experiment;
mod extent_locks;
mod files_lock;
mod kill_bkl;
mod over_nfs;
mod place;
pub mod published;
mod ratios;
mod what_if;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use crate::model::costs;
use crate::model::preemption::Preemption;
use crate::page::{Document, Fact, Section};
use experiment::{Experiment, Results};
pub use extent_locks::DeviceTimes;
use finefs_workloads::Watch;
use finefs_workloads::affinity;
use finefs_workloads::targets::Errno;
use finefs_workloads::{Result, WorkloadError};
pub use place::{MEMORY_BYTES, Mounted, Place, ServerMeter};

/// How to run them.
#[derive(Clone)]
pub struct Options {
    /// Where they run.
    pub place: Place,
    /// Length of each run, seconds.
    pub seconds: f64,
    /// Times that everything runs.
    pub rounds: usize,
    /// Threads of the loads that had eight processes; `None` for as many as were published, for
    /// each load.
    pub threads: Option<usize>,
    /// Threads to look at; empty for all.
    pub only: Vec<Study>,
    /// The modelled device of the part on range locks.
    pub device: DeviceTimes,
}

/// One of the threads, or the model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Study {
    /// BKL removal from VFS, 2002: PostMark
    BklRemoval,
    /// Scaling files_lock, 2010: who removes open files from their list
    FilesLock,
    /// BKL as a semaphore, 2009: openspeed and POSIX locks
    BklSemaphore,
    /// The same over NFS
    OverNfs,
    /// Reiserfs without the BKL, 2009: dbench
    KillBkl,
    /// Range locks instead of i_mutex, 2012: random reads and writes
    ExtentLocks,
    /// More cores than there are, by mean value analysis
    WhatIf,
}

impl Study {
    /// All of them, in the order of the page.
    pub const ALL: [Study; 7] = [
        Study::BklRemoval,
        Study::BklSemaphore,
        Study::OverNfs,
        Study::KillBkl,
        Study::FilesLock,
        Study::ExtentLocks,
        Study::WhatIf,
    ];

    fn experiments(self, options: &Options) -> Vec<Experiment> {
        match self {
            Study::BklRemoval => bkl_removal::experiments(options),
            Study::FilesLock => files_lock::experiments(options),
            Study::BklSemaphore => bkl_semaphore::experiments(options),
            Study::OverNfs => over_nfs::experiments(options),
            Study::KillBkl => kill_bkl::experiments(options),
            Study::ExtentLocks => extent_locks::experiments(options),
            Study::WhatIf => what_if::experiments(options),
        }
    }

    fn section(self, options: &Options, results: &Results) -> Section {
        match self {
            Study::BklRemoval => bkl_removal::section(options, results),
            Study::FilesLock => files_lock::section(options, results),
            Study::BklSemaphore => bkl_semaphore::section(options, results),
            Study::OverNfs => over_nfs::section(options, results),
            Study::KillBkl => kill_bkl::section(options, results),
            Study::ExtentLocks => extent_locks::section(options, results),
            Study::WhatIf => what_if::section(options, results),
        }
    }
}

/// Runs what `options` say, and makes the page of it. Ends early with what there is when
/// `watch.stop` becomes true; `watch.progress` is told the share of the whole; `name` is told what
/// runs now.
///
/// # Errors
/// The first one of any run; for lack of room only if nothing could be measured at all.
pub fn run(options: &Options, watch: Watch<'_>, name: &dyn Fn(&str)) -> Result<Document> {
    let began = (SystemTime::now(), Instant::now());
    let studies: Vec<Study> = Study::ALL
        .into_iter()
        .filter(|study| options.only.is_empty() || options.only.contains(study))
        .collect();
    name("calibration");
    let mut results = Results::new(costs::measure(watch.stop));
    let mut experiments = experiments(options, &studies);
    let mut left_out = Vec::new();
    // Counts are of no use as medians: once is enough.
    let runs = |round: usize, experiment: &&Experiment| round == 0 || !experiment.key.is_counted;
    let rounds = 0..options.rounds.max(1);
    let of_round = |round| experiments.iter().filter(|one| runs(round, one)).count();
    let total = rounds.clone().map(of_round).sum::<usize>() as f64;
    let mut done = 0.0;
    'rounds: for round in rounds {
        let mut impossible = Vec::new();
        if round > 0 && studies.contains(&Study::WhatIf) {
            name("calibration");
            results.add_costs(costs::measure(watch.stop));
        }
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
            match experiment.run(&options.place, options.seconds, watch) {
                Ok(Some(sample)) => {
                    results.add(experiment.key.clone(), sample);
                    if studies.contains(&Study::WhatIf) {
                        // In the state in which the machine was.
                        what_if::rehearse(
                            &mut results,
                            &experiment.key,
                            options.seconds,
                            watch.stop,
                        );
                    }
                }
                Ok(None) => {}
                Err(error) if is_too_large(&error) && !options.place.is_memory() => {
                    left_out.push((experiment.key.to_string(), error));
                    impossible.push(experiment.key.clone());
                }
                Err(error) => return Err(error),
            }
            done += 1.0;
        }
        if studies.contains(&Study::WhatIf) {
            name("the big locks alone");
            what_if::rehearse_missing(&mut results, options.seconds, watch.stop);
        }
        experiments.retain(|experiment| !impossible.contains(&experiment.key));
    }
    if results.count() == 0
        && !watch.stop.load(Ordering::Relaxed)
        && let Some((_, error)) = left_out.pop()
    {
        return Err(error);
    }
    Ok(Document {
        title: "Five threads on file system locks, measured again".to_owned(),
        lead: lead(&options.place),
        facts: facts(options, began.0, began.1.elapsed(), &results, &left_out),
        sections: studies
            .iter()
            .map(|study| study.section(options, &results))
            .collect(),
        is_partial: watch.stop.load(Ordering::Relaxed),
        is_empty: results.count() == 0,
    })
}

/// What `studies` run, each once though two sections may look at it.
fn experiments(options: &Options, studies: &[Study]) -> Vec<Experiment> {
    let mut experiments: Vec<Experiment> = Vec::new();
    for study in studies {
        for experiment in study.experiments(options) {
            let is_known = experiments.iter().any(|known| known.key == experiment.key);
            let is_blind = experiment.key.is_counted && !options.place.has_lock_counts();
            if !is_known && !is_blind {
                experiments.push(experiment);
            }
        }
    }
    experiments
}

/// The place has no room for a load: another one may fit.
fn is_too_large(error: &WorkloadError) -> bool {
    match error {
        WorkloadError::Operation { errno, .. } => *errno == Errno::NOSPC,
        WorkloadError::NoSpace { .. } => true,
        _ => false,
    }
}

/// What was left out, equal errors together: they differ in the file.
fn group(left_out: &[(String, WorkloadError)]) -> String {
    let cause = |error: &WorkloadError| match error {
        WorkloadError::Operation {
            operation, errno, ..
        } => format!("{operation}: {errno}"),
        error => error.to_string(),
    };
    let mut groups: Vec<(String, &str, usize)> = Vec::new();
    for (run, error) in left_out {
        let cause = cause(error);
        match groups.iter_mut().find(|group| group.0 == cause) {
            Some(group) => group.2 += 1,
            None => groups.push((cause, run, 1)),
        }
    }
    let lines: Vec<String> = groups
        .into_iter()
        .map(|(cause, first, count)| match count {
            1 => format!("{first}: {cause}"),
            _ => format!("{count} runs: {cause} ({first} first)"),
        })
        .collect();
    lines.join("; ")
}

fn lead(place: &Place) -> Vec<String> {
    let here = match place {
        Place::Directory(mounted) => format!(
            "Here their loads run again, through system calls in a directory, under the locks that its file \
             system has (`{}`). A load's threads are bound to a number of CPUs where a table says so; a server \
             behind the mount is not.",
            mounted.name
        ),
        _ => {
            let what = match place {
                Place::Image(_) => "one image, opened in",
                _ => "one file system in memory, in",
            };
            format!(
                "Here their loads run again, on finefs: {what} one process, whose operations are put under the \
                 locks of those days by a locking scheme and are the same code otherwise."
            )
        }
    };
    vec![
        format!(
            "Five threads on mailing lists and in a bug tracker, from 2002 to 2012, measured what the big \
             kernel lock and its kin cost. {here}"
        ),
        "Published rows are set off by a band. Absolute rates of different machines do not compare; \
         ratios within one machine do: one lock against another, many CPUs against one, the share of time \
         spent waiting."
            .to_owned(),
    ]
}

fn facts(
    options: &Options,
    at: SystemTime,
    took: Duration,
    results: &Results,
    left_out: &[(String, WorkloadError)],
) -> Vec<Fact> {
    let kernel = rustix::system::uname();
    let costs = results.costs();
    let hand_over = match (costs.line_transfer_ns, costs.spinning_ns, costs.sleeping_ns) {
        (Some(line_ns), Some(spinning_ns), Some(sleeping_ns)) => format!(
            "to another CPU: {line_ns:.0} ns for a cache line, {spinning_ns:.0} ns for a spinning lock, {:.1} µs \
             for a sleeping lock",
            sleeping_ns / 1e3
        ),
        _ => "a single CPU, nothing is handed over to another".to_owned(),
    };
    let Preemption { slice_ns, away_ns } = costs.preemption;
    let preemption = match slice_ns.is_finite() {
        true => format!(
            "{:.2} ms away after {:.1} ms of running where two spin",
            away_ns / 1e6,
            slice_ns / 1e6
        ),
        false => "not seen".to_owned(),
    };
    let fact = |name, value| Fact { name, value };
    let mut facts = vec![
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
        fact("Hand-over", hand_over),
        fact("A CPU for two threads", preemption),
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
        fact("Place", options.place.to_string()),
        fact("Program", format!("finefs {}", env!("CARGO_PKG_VERSION"))),
    ];
    if !options.place.has_lock_counts() {
        let line = "not known: there is no lock meter to ask".to_owned();
        facts.push(fact("Contention and waiting", line));
    }
    if !left_out.is_empty() {
        facts.push(fact("Left out", group(left_out)));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_errors_are_told_once() {
        let full = |path: &str| WorkloadError::Operation {
            operation: "write",
            path: path.to_owned(),
            errno: Errno::NOSPC,
        };
        let no_space = WorkloadError::NoSpace {
            what: "the file".to_owned(),
            needed_bytes: 9,
            free_bytes: 1,
        };
        let left_out = [
            ("a".to_owned(), full("x")),
            ("b".to_owned(), no_space),
            ("c".to_owned(), full("y")),
        ];
        let expected = format!(
            "2 runs: write: {} (a first); b: the file needs 9 bytes, and 1 are free",
            Errno::NOSPC
        );
        assert_eq!(group(&left_out), expected);
    }
}
