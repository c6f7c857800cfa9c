//! One run: a load under a locking scheme on some CPUs, its samples and their medians.

use std::time::Duration;

use finefs_lockmeter::{Mode, Snapshot, set_mode};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::place::{Mounted, Opened, Place, Storage, Subject};
use crate::model::costs::Costs;
use finefs_workloads::Dbench;
use finefs_workloads::Report;
use finefs_workloads::Workload;
use finefs_workloads::affinity::{self, Limit};
use finefs_workloads::dbench::run_dual;
use finefs_workloads::now_ns;
use finefs_workloads::targets::{HostDirectory, OpenFileStatistics, Target};
use finefs_workloads::{Crew, Length, Plan, Watch};
use finefs_workloads::{During, Result, WorkloadError};

/// What runs: two runs of the same key are samples of one thing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    /// The load, with what makes it differ from others of its workload.
    pub load: &'static str,
    /// The locks around it.
    pub subject: Subject,
    /// CPUs.
    pub cpus: usize,
    /// Threads.
    pub threads: usize,
    /// All acquisitions are counted, which takes time: throughput is from other runs.
    pub is_counted: bool,
    /// Threads sleep before each operation.
    pub naps: bool,
}

impl Key {
    pub fn new(
        load: &'static str,
        subject: impl Into<Subject>,
        cpus: usize,
        threads: usize,
    ) -> Key {
        Key {
            load,
            subject: subject.into(),
            cpus: cpus.min(affinity::cpus()),
            threads,
            is_counted: false,
            naps: false,
        }
    }

    /// The run of the same thing in which all acquisitions are counted.
    pub fn counted(&self) -> Key {
        Key {
            is_counted: true,
            ..self.clone()
        }
    }

    /// The run of the same thing in which threads sleep before each operation.
    pub fn napping(&self) -> Key {
        Key {
            naps: true,
            ..self.clone()
        }
    }

    /// Both: counted, for the contention, and not, for the throughput.
    pub fn both(self) -> [Key; 2] {
        [self.counted(), self]
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (locks, counted) = (
            self.subject.name(),
            if self.is_counted { ", counted" } else { "" },
        );
        let naps = if self.naps { ", napping" } else { "" };
        write!(
            f,
            "{}, {locks}, {} CPUs, {} threads{counted}{naps}",
            self.load, self.cpus, self.threads
        )
    }
}

/// What a run found.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Operations.
    pub operations: u64,
    /// Operations a second.
    pub per_second: f64,
    /// Operations of each thread a second.
    pub of_each_per_second: Vec<f64>,
    /// Waits for locks, in the time of all threads, 0 to 1.
    pub waiting_share: f64,
    /// What the meter counted while the load ran.
    pub locks: Snapshot,
    /// Time in user space by time and CPU, 0 to 1.
    pub user_share: f64,
    /// The same in the kernel.
    pub system_share: f64,
    /// Removals of open files from their list, from the file system's beginning to its end.
    pub removals: Option<OpenFileStatistics>,
    /// What a load counts besides, in the order that its section knows.
    pub more: Vec<f64>,
}

type Load = Box<dyn Fn(&Key, &Place, f64, Watch<'_>) -> Result<Option<Sample>>>;

/// What a target needs to be there.
pub(super) trait Holds {
    type Target: Target;

    fn target(&self) -> &Self::Target;
}

/// A key, and how it is run.
pub(super) struct Experiment {
    pub key: Key,
    load: Load,
}

impl Experiment {
    /// `workload` on a new file system, or in a directory. `more` picks what else the section wants
    /// to know.
    pub fn new<W: Workload + 'static>(
        key: Key,
        workload: W,
        more: impl Fn(&Report<W>) -> Vec<f64> + 'static,
    ) -> Experiment {
        Experiment::on(Storage::Usual, key, workload, more)
    }

    /// The same on a storage of its own.
    pub fn on<W: Workload + 'static>(
        storage: Storage,
        key: Key,
        workload: W,
        more: impl Fn(&Report<W>) -> Vec<f64> + 'static,
    ) -> Experiment {
        let load = move |key: &Key, place: &Place, seconds: f64, watch: Watch<'_>| {
            if let Place::Directory(mounted) = place {
                let target = HostDirectory::open(&mounted.dir);
                let target = target.during("open", &mounted.dir.display().to_string())?;
                return run_once(&workload, &target, key, seconds, watch, &more);
            }
            let opened = place.open(storage, key.subject)?;
            let outcome = run_once(&workload, &opened.target, key, seconds, watch, &more);
            // What is said of the run comes before what is said of its end.
            let closed = opened.close();
            outcome.and_then(|sample| closed.map(|()| sample))
        };
        Experiment {
            key,
            load: Box::new(load),
        }
    }

    /// `workload` on a target of its own, which `open` makes for the key.
    pub fn on_target<W: Workload + 'static, O: Holds + 'static>(
        key: Key,
        workload: W,
        open: impl Fn(&Key) -> Result<O> + 'static,
    ) -> Experiment {
        let load = move |key: &Key, _: &Place, seconds: f64, watch: Watch<'_>| {
            let opened = open(key)?;
            run_once(&workload, opened.target(), key, seconds, watch, &|_| {
                Vec::new()
            })
        };
        Experiment {
            key,
            load: Box::new(load),
        }
    }

    /// As many instances of `workload` as the key has threads, but no more than CPUs: each on a new
    /// file system of its own, by one thread. They share the machine and nothing else.
    pub fn apart<W: Workload + 'static>(key: Key, workload: W) -> Experiment {
        let load = move |key: &Key, place: &Place, seconds: f64, watch: Watch<'_>| {
            let instances = key.threads.min(key.cpus).max(1);
            let opened: Vec<Opened> = (0..instances)
                .map(|_| place.open(Storage::Usual, key.subject))
                .collect::<Result<_>>()?;
            let each = Key {
                threads: 1,
                ..key.clone()
            };
            let before = CpuTime::now();
            let (workload, plan) = (&workload, &plan(&each, seconds));
            let reports: Result<Vec<Report<W>>> = std::thread::scope(|scope| {
                let runs: Vec<_> = opened
                    .iter()
                    .map(|opened| {
                        scope.spawn(|| finefs_workloads::run(workload, &opened.target, plan, watch))
                    })
                    .collect();
                let joined = runs.into_iter().map(|run| run.join());
                joined
                    .map(|run| run.unwrap_or(Err(WorkloadError::Panicked)))
                    .collect()
            });
            let cpu = CpuTime::now().since(&before);
            for one in opened {
                one.close()?;
            }
            let samples: Vec<Sample> = reports?
                .iter()
                .filter(|report| !report.is_interrupted)
                .map(|report| Sample::of(report, key, &cpu, Vec::new()))
                .collect();
            let is_whole = samples.len() == instances;
            Ok(samples
                .into_iter()
                .reduce(Sample::beside)
                .filter(|_| is_whole))
        };
        Experiment {
            key,
            load: Box::new(load),
        }
    }

    /// dbench on two new file systems in memory at once, with half of the threads on each. `of` is
    /// what the section wants to know of each.
    pub fn on_two(
        key: Key,
        workload: Dbench,
        of: impl Fn(&Report<Dbench>) -> f64 + 'static,
    ) -> Experiment {
        let load = move |key: &Key, place: &Place, seconds: f64, watch: Watch<'_>| {
            let open = || place.open(Storage::Usual, key.subject);
            let opened = (open()?, open()?);
            let each = Key {
                threads: (key.threads / 2).max(1),
                ..key.clone()
            };
            let before = CpuTime::now();
            let targets = (&opened.0.target, &opened.1.target);
            let reports = run_dual(&workload, targets, &plan(&each, seconds), watch)?;
            let cpu = CpuTime::now().since(&before);
            let is_whole = !reports.0.is_interrupted && !reports.1.is_interrupted;
            let more = vec![of(&reports.0), of(&reports.1)];
            // The meter is one for both.
            Ok(is_whole.then(|| Sample::of(&reports.0, key, &cpu, more)))
        };
        Experiment {
            key,
            load: Box::new(load),
        }
    }

    /// One sample; none if the run was ended before its time.
    pub fn run(&self, place: &Place, seconds: f64, watch: Watch<'_>) -> Result<Option<Sample>> {
        let _limit = Limit::to(self.key.cpus);
        let outcome = match place {
            Place::Directory(mounted) => self.run_mounted(place, mounted, seconds, watch),
            _ => {
                if self.key.is_counted {
                    set_mode(Mode::Full);
                }
                let outcome = (self.load)(&self.key, place, seconds, watch);
                set_mode(Mode::ContendedOnly);
                outcome
            }
        };
        match outcome {
            Err(WorkloadError::Interrupted) => Ok(None),
            outcome => outcome,
        }
    }

    /// The same with the counts of the server's meter: of the whole run, not of its measured part
    /// only.
    fn run_mounted(
        &self,
        place: &Place,
        mounted: &Mounted,
        seconds: f64,
        watch: Watch<'_>,
    ) -> Result<Option<Sample>> {
        let Some(meter) = &mounted.meter else {
            return (self.load)(&self.key, place, seconds, watch);
        };
        let failed = |reason| WorkloadError::Process(format!("the mount's lock meter: {reason}"));
        if self.key.is_counted {
            meter.set_full(true).map_err(failed)?;
        }
        let run = || {
            let (before, began_ns) = (meter.snapshot().map_err(failed)?, now_ns());
            let sample = (self.load)(&self.key, place, seconds, watch)?;
            let locks = meter.snapshot().map_err(failed)?.since(&before);
            let took_s = (now_ns() - began_ns) as f64 / 1e9;
            Ok(sample.map(|sample| sample.with_locks(locks, took_s, &self.key)))
        };
        let outcome = run();
        if self.key.is_counted {
            meter.set_full(false).map_err(failed)?;
        }
        outcome
    }
}

fn run_once<W: Workload, T: Target>(
    workload: &W,
    target: &T,
    key: &Key,
    seconds: f64,
    watch: Watch<'_>,
    more: &impl Fn(&Report<W>) -> Vec<f64>,
) -> Result<Option<Sample>> {
    let before = CpuTime::now();
    let report = finefs_workloads::run(workload, target, &plan(key, seconds), watch)?;
    let cpu = CpuTime::now().since(&before);
    Ok((!report.is_interrupted).then(|| Sample {
        removals: target.open_file_statistics(),
        ..Sample::of(&report, key, &cpu, more(&report))
    }))
}

/// Longer than it takes to wake the next holder of a lock.
const NAP: Duration = Duration::from_micros(50);

fn plan(key: &Key, seconds: f64) -> Plan {
    Plan {
        warm_up_seconds: (seconds / 10.0).min(0.2),
        is_verified: false,
        has_lock_counts: true,
        nap: match key.naps {
            true => NAP,
            false => Duration::ZERO,
        },
        ..Plan::new(Crew::Threads(key.threads), Length::Seconds(seconds))
    }
}

impl Sample {
    fn of<W: Workload>(report: &Report<W>, key: &Key, cpu: &CpuTime, more: Vec<f64>) -> Sample {
        let locks = report.locks.clone().unwrap_or_default();
        let seconds = report.seconds.max(1e-9);
        let cpu_share = share(report.cpu_seconds, seconds * key.cpus as f64);
        // User and system apart are known of the whole run only, its making and removing of files
        // included.
        let user_part = share(cpu.user_s, cpu.user_s + cpu.system_s);
        Sample {
            operations: report.operations,
            per_second: report.operations_per_second,
            of_each_per_second: report
                .operations_of_each
                .iter()
                .map(|operations| *operations as f64 / seconds)
                .collect(),
            waiting_share: waiting_share(&locks, seconds, key),
            locks,
            user_share: cpu_share * user_part,
            system_share: cpu_share * (1.0 - user_part),
            removals: None,
            more,
        }
    }

    /// With what another instance got through at the same time. The meter is one for all.
    fn beside(mut self, other: Sample) -> Sample {
        self.operations += other.operations;
        self.per_second += other.per_second;
        self.of_each_per_second.extend(other.of_each_per_second);
        self
    }

    /// With what another process's meter counted in so many seconds.
    fn with_locks(self, locks: Snapshot, seconds: f64, key: &Key) -> Sample {
        Sample {
            waiting_share: waiting_share(&locks, seconds, key),
            locks,
            ..self
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    (part / whole.max(1e-9)).clamp(0.0, 1.0)
}

/// Waits for locks in the time of all threads.
fn waiting_share(locks: &Snapshot, seconds: f64, key: &Key) -> f64 {
    let waited_ns: u64 = locks
        .classes
        .iter()
        .flat_map(|class| [&class.writer, &class.reader])
        .map(|counts| counts.wait.total_ns)
        .sum();
    share(waited_ns as f64 / 1e9, seconds * key.threads as f64)
}

/// CPU time of this process.
struct CpuTime {
    user_s: f64,
    system_s: f64,
}

impl CpuTime {
    /// So far; 0 where the system does not tell.
    fn now() -> CpuTime {
        getrusage(UsageWho::RUSAGE_SELF).map_or(
            CpuTime {
                user_s: 0.0,
                system_s: 0.0,
            },
            |usage| CpuTime {
                user_s: usage.user_time().num_microseconds() as f64 / 1e6,
                system_s: usage.system_time().num_microseconds() as f64 / 1e6,
            },
        )
    }

    fn since(&self, earlier: &CpuTime) -> CpuTime {
        CpuTime {
            user_s: self.user_s - earlier.user_s,
            system_s: self.system_s - earlier.system_s,
        }
    }
}

/// All samples.
pub(super) struct Results {
    /// Some dozens of keys, in the order of their first sample.
    samples: Vec<(Key, Vec<Sample>)>,
    /// Visits a second to a lock tried alone with the times of a load.
    rehearsals: Vec<(Key, f64)>,
    /// In each round; at least once.
    costs: Vec<Costs>,
}

impl Results {
    pub fn new(costs: Costs) -> Results {
        Results {
            samples: Vec::new(),
            rehearsals: Vec::new(),
            costs: vec![costs],
        }
    }

    pub fn add_costs(&mut self, costs: Costs) {
        self.costs.push(costs);
    }

    pub fn add(&mut self, key: Key, sample: Sample) {
        match self.samples.iter_mut().find(|(known, _)| *known == key) {
            Some((_, samples)) => samples.push(sample),
            None => self.samples.push((key, vec![sample])),
        }
    }

    pub fn add_rehearsal(&mut self, key: Key, visits_per_second: f64) {
        self.rehearsals.push((key, visits_per_second));
    }

    /// Visits a second in the rehearsals of `key`; none without them.
    pub fn rehearsed(&self, key: &Key) -> Option<f64> {
        let of_key = self.rehearsals.iter().filter(|(known, _)| known == key);
        median(of_key.map(|(_, rate)| *rate).collect())
    }

    /// The samples of `key`, in the order of the rounds.
    pub fn of(&self, key: &Key) -> Option<&[Sample]> {
        let (_, samples) = self.samples.iter().find(|(known, _)| known == key)?;
        Some(samples)
    }

    /// What handing over costs here.
    pub fn costs(&self) -> Costs {
        Costs::median_of(&self.costs)
    }

    /// Runs that came to their end.
    pub fn count(&self) -> usize {
        self.samples.iter().map(|(_, samples)| samples.len()).sum()
    }

    /// The median of something over the samples of `key`; none without samples.
    pub fn median(&self, key: &Key, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        let values: Vec<f64> = self.of(key)?.iter().map(of).collect();
        median(values)
    }

    /// Operations a second.
    pub fn per_second(&self, key: &Key) -> Option<f64> {
        self.median(key, |sample| sample.per_second)
    }

    /// The last sample of `key`.
    pub fn last(&self, key: &Key) -> Option<&Sample> {
        self.of(key)?.last()
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
    }
}
