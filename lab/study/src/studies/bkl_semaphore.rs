//! Red Hat's bug 519126: four threads open and close ten files, under the big lock as a semaphore
//! and as a spinlock, on all CPUs and on one.

use finefs::LockingScheme;

use super::Options;
use super::experiment::{Experiment, Key, Results};
use super::place::Subject;
use super::published::bkl_semaphore::{
    AFTER_THE_REVERT, BEFORE_THE_REVERT, FILES, POSIX_LOCKS_SOURCE, RUNS, Run, SEMAPHORE_ON_1_CPU,
    SEMAPHORE_ON_8_CPUS, SOURCE, THREADS,
};
use super::ratios::{contention, lock_table, percent, ratio, tone};
use crate::page::{Bar, BarGroup, Cell, Chart, Exhibit, Origin, Section, Table, Tone};
use finefs_workloads::affinity;
use finefs_workloads::{OpenSpeed, PosixLock};

const LOAD: &str = "openspeed";
const POSIX_LOCKS: &str = "POSIX locks";

const SCHEMES: [LockingScheme; 3] = [
    LockingScheme::BigSleep,
    LockingScheme::BigSpin,
    LockingScheme::Fine,
];

pub(super) fn experiment(key: Key) -> Experiment {
    Experiment::new(key, workload(), |_| Vec::new())
}

pub(super) fn workload() -> OpenSpeed {
    OpenSpeed { files: FILES }
}

pub(super) fn key(subject: impl Into<Subject>, cpus: usize, threads: usize) -> Key {
    Key::new(LOAD, subject, cpus, threads)
}

fn threads(options: &Options) -> usize {
    options.threads.unwrap_or(THREADS as usize)
}

/// All CPUs first, as the report has it.
fn cpu_counts() -> Vec<usize> {
    let mut counts = vec![affinity::cpus(), 1];
    counts.dedup();
    counts
}

pub(super) fn experiments(options: &Options) -> Vec<Experiment> {
    let mut experiments = Vec::new();
    for cpus in cpu_counts() {
        for scheme in options.place.subjects(&SCHEMES) {
            let key = key(scheme, cpus, threads(options));
            experiments.extend(key.both().map(experiment));
        }
    }
    for scheme in options.place.subjects(&SCHEMES) {
        let key = posix_key(options, scheme);
        let experiment = |key| Experiment::new(key, PosixLock::default(), |_| Vec::new());
        experiments.extend(key.both().map(experiment));
    }
    experiments
}

fn posix_key(options: &Options, subject: Subject) -> Key {
    Key::new(POSIX_LOCKS, subject, affinity::cpus(), threads(options))
}

pub(super) fn section(options: &Options, results: &Results) -> Section {
    Section {
        id: "bkl-semaphore",
        title: "2009: the BKL as a semaphore".to_owned(),
        paragraphs: vec![
            format!("Published: {SOURCE}."),
            format!(
                "Here: {} threads open and close one of {FILES} files at random. `big-sleep` is the big lock \
                 that hands itself to the longest waiter, as the semaphore did; `big-spin` the one before and \
                 after.",
                threads(options)
            ),
            format!(
                "The bug's second load, POSIX locks ({}; {}), came without numbers: only the backtrace of \
                 a process that waits for the big lock. `finefs bench LOAD --threshold-us 100` prints such \
                 backtraces of ours.",
                POSIX_LOCKS_SOURCE.date, POSIX_LOCKS_SOURCE.setup
            ),
        ],
        exhibits: vec![
            Exhibit {
                table: table(options, results),
                chart: Some(chart(options, results)),
                notes: notes(options, results),
            },
            posix_locks(options, results),
        ],
    }
}

fn table(options: &Options, results: &Results) -> Table {
    let mut table = Table::new(
        "openspeed: opens a second, of all threads and of the slowest and fastest",
        &[
            "locks<",
            "CPUs",
            "opens/s",
            "slowest",
            "fastest",
            "/ 1 CPU",
            "contention<",
            "waiting, %",
        ],
    );
    for run in &RUNS {
        table.push(Origin::Published, published(run));
    }
    for scheme in options.place.subjects(&SCHEMES) {
        let one = results.per_second(&key(scheme, 1, threads(options)));
        for cpus in cpu_counts() {
            let key = key(scheme, cpus, threads(options));
            let rate = results.per_second(&key);
            let each = |pick: fn(f64, f64) -> f64| {
                results.median(&key, |sample| {
                    let rates = sample.of_each_per_second.iter().copied();
                    rates.reduce(pick).unwrap_or(f64::NAN)
                })
            };
            table.push(
                Origin::Measured,
                vec![
                    Cell::text(scheme.name()),
                    Cell::count(cpus as f64),
                    Cell::maybe(rate, 0),
                    Cell::maybe(each(f64::min), 0),
                    Cell::maybe(each(f64::max), 0),
                    Cell::maybe(ratio(rate, one), 2),
                    contention(results, &key),
                    percent(results.median(&key, |sample| sample.waiting_share)),
                ],
            );
        }
    }
    table
}

fn posix_locks(options: &Options, results: &Results) -> Exhibit {
    let table = lock_table(
        "POSIX locks: byte ranges of one file locked and unlocked, a second",
        "locks and unlocks/s",
        results,
        options
            .place
            .subjects(&SCHEMES)
            .into_iter()
            .map(|subject| posix_key(options, subject)),
    );
    Exhibit {
        table,
        chart: None,
        notes: vec![
            "Nothing was published to put beside it. Each thread locks a random one of 64 records and \
             waits for whoever has it; that wait is not in the columns, only the one for the locks of the \
             file system itself."
                .to_owned(),
        ],
    }
}

fn published(run: &Run) -> Vec<Cell> {
    let total = run.opens_per_s_total();
    let each = run.threads.iter().map(|thread| thread.opens_per_s);
    let is_same_machine = *run == SEMAPHORE_ON_8_CPUS || *run == SEMAPHORE_ON_1_CPU;
    let one = SEMAPHORE_ON_1_CPU.opens_per_s_total();
    vec![
        Cell::text(run.kernel),
        Cell::count(if *run == SEMAPHORE_ON_1_CPU { 1.0 } else { 8.0 }),
        Cell::count(total),
        Cell::count(each.clone().fold(f64::INFINITY, f64::min)),
        Cell::count(each.fold(0.0, f64::max)),
        Cell::maybe(is_same_machine.then_some(total / one), 2),
        Cell::missing(),
        Cell::missing(),
    ]
}

fn chart(options: &Options, results: &Results) -> Chart {
    let bar = |name: &str, value, tone, origin| Bar {
        name: name.to_owned(),
        value,
        origin,
        tone,
    };
    let one = SEMAPHORE_ON_1_CPU.opens_per_s_total();
    let semaphore = BEFORE_THE_REVERT.opens_per_s_total();
    let published = vec![
        bar(
            "2.6.18: 8 CPUs / 1 CPU",
            SEMAPHORE_ON_8_CPUS.opens_per_s_total() / one,
            Tone::Sleep,
            Origin::Published,
        ),
        bar(
            "2.6.26-rc1: semaphore / spinlock",
            semaphore / AFTER_THE_REVERT.opens_per_s_total(),
            Tone::Sleep,
            Origin::Published,
        ),
    ];
    let all = affinity::cpus();
    let rate = |subject: Subject, cpus| results.per_second(&key(subject, cpus, threads(options)));
    let mut ours: Vec<Bar> = options
        .place
        .subjects(&SCHEMES)
        .into_iter()
        .filter(|_| all > 1)
        .filter_map(|scheme| {
            let value = ratio(rate(scheme, all), rate(scheme, 1))?;
            let name = format!("{}: {all} CPUs / 1 CPU", scheme.name());
            Some(bar(&name, value, tone(scheme), Origin::Measured))
        })
        .collect();
    let kinds = ratio(
        rate(LockingScheme::BigSleep.into(), all),
        rate(LockingScheme::BigSpin.into(), all),
    );
    ours.extend(kinds.map(|value| {
        let name = "big-sleep / big-spin";
        bar(name, value, Tone::Sleep, Origin::Measured)
    }));
    Chart::Bars {
        title: "Opens a second, as ratios: below 1 is a loss".to_owned(),
        unit: "times".to_owned(),
        decimals: 2,
        groups: vec![
            BarGroup {
                name: "Bug 519126".to_owned(),
                bars: published,
            },
            BarGroup {
                name: "finefs".to_owned(),
                bars: ours,
            },
        ],
    }
}

fn notes(options: &Options, results: &Results) -> Vec<String> {
    let all = affinity::cpus();
    let rate =
        |scheme: LockingScheme, cpus| results.per_second(&key(scheme, cpus, threads(options)));
    let mut notes = vec![format!(
        "Published: with the semaphore eight CPUs made {:.2} of what one made; the semaphore made {:.2} of \
         what the spinlock made.",
        SEMAPHORE_ON_8_CPUS.opens_per_s_total() / SEMAPHORE_ON_1_CPU.opens_per_s_total(),
        BEFORE_THE_REVERT.opens_per_s_total() / AFTER_THE_REVERT.opens_per_s_total(),
    )];
    let ours = (
        ratio(
            rate(LockingScheme::BigSleep, all),
            rate(LockingScheme::BigSleep, 1),
        ),
        ratio(
            rate(LockingScheme::BigSleep, all),
            rate(LockingScheme::BigSpin, all),
        ),
    );
    if let (Some(cpus), Some(kinds)) = ours {
        notes.push(format!(
            "Here: {cpus:.2} with {all} CPUs against one, and {kinds:.2} of what the spinning lock makes."
        ));
    }
    notes.push(format!(
        "The mechanism: a lock that is handed to the longest waiter lies idle until that one has been \
         scheduled. With the semaphore {:.0} µs passed from one open to the next, on one CPU {:.1} µs. There \
         a thread is rarely interrupted while it holds the lock, so hardly anybody queues. The kernel's \
         opens went over NFS; ours are of a file in memory, so there is less work between two hand-overs.",
        1e6 / SEMAPHORE_ON_8_CPUS.opens_per_s_total(),
        1e6 / SEMAPHORE_ON_1_CPU.opens_per_s_total(),
    ));
    notes.push(
        "The fair lock gives all threads the same (7,903.1 to 7,904.1 opens a second in the report); a \
         spinning one goes to whoever comes at the right moment."
            .to_owned(),
    );
    notes
}
