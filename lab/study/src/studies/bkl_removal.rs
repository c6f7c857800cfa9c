//! "BKL removal from VFS": eight PostMarks under the big lock and without, over numbers of CPUs.

use finefs::LockingScheme;

use super::Options;
use super::experiment::{Experiment, Key, Results};
use super::place::Subject;
use super::published::bkl_removal::{
    BIG_LOCK, BIG_LOCK_SOURCE, FINE_LOCKS, FINE_LOCKS_SOURCE, PROCESSES, Row,
};
use super::ratios::{contention, cpu_counts, percent, times, tone};
use crate::page::{Cell, Chart, Exhibit, Line, Origin, Scale, Section, Table, Tone};
use finefs_workloads::PostMark;

const LOAD: &str = "PostMark";

/// 2.4.17's big lock, RHEL 5's, what 2.5.5-pre1 had left of it, and none.
const SCHEMES: [LockingScheme; 4] = [
    LockingScheme::BigSpin,
    LockingScheme::BigSleep,
    LockingScheme::BigOptional,
    LockingScheme::Fine,
];

/// The load of this thread; the model looks at it, too.
pub(super) fn experiment(key: Key) -> Experiment {
    Experiment::new(key, workload(), |_| Vec::new())
}

pub(super) fn workload() -> PostMark {
    // 1,000 files, as for the patched kernel; transactions as time allows.
    PostMark {
        number: 1_000,
        ..PostMark::default()
    }
}

pub(super) fn key(subject: impl Into<Subject>, cpus: usize, threads: usize) -> Key {
    Key::new(LOAD, subject, cpus, threads)
}

fn threads(options: &Options) -> usize {
    options.threads.unwrap_or(PROCESSES as usize)
}

pub(super) fn experiments(options: &Options) -> Vec<Experiment> {
    let mut experiments = Vec::new();
    for cpus in cpu_counts() {
        for scheme in options.place.subjects(&SCHEMES) {
            let key = key(scheme, cpus, threads(options));
            experiments.extend(key.both().map(experiment));
        }
    }
    experiments
}

pub(super) fn section(options: &Options, results: &Results) -> Section {
    Section {
        id: "bkl-removal",
        title: "2002: BKL removal from VFS".to_owned(),
        paragraphs: vec![
            format!(
                "Published: {BIG_LOCK_SOURCE}; and {}.",
                FINE_LOCKS_SOURCE.setup
            ),
            format!(
                "Here: {} threads, a PostMark each in a directory of its own, 1,000 files of 500 to 10,000 \
                 bytes. `big-spin` stands for 2.4.17, `fine` for the patched kernel; `big-sleep` is the big \
                 lock as a semaphore; `big-optional` has the big lock only where 2.5.5-pre1 still had it.",
                threads(options)
            ),
        ],
        exhibits: vec![Exhibit {
            table: table(options, results),
            chart: Some(chart(options, results)),
            notes: notes(options, results),
        }],
    }
}

fn table(options: &Options, results: &Results) -> Table {
    let mut table = Table::new(
        "PostMark: transactions a second, contention and speed-up",
        &[
            "locks<",
            "CPUs",
            "transactions/s",
            "speed-up",
            "contention<",
            "waiting, %",
        ],
    );
    for (name, rows) in [
        ("2.4.17, BKL", &BIG_LOCK[..]),
        ("2.5.1, BKL removed", &FINE_LOCKS),
    ] {
        for row in rows {
            table.push(Origin::Published, published(name, row, &rows[0]));
        }
    }
    for scheme in options.place.subjects(&SCHEMES) {
        let one = results.per_second(&key(scheme, 1, threads(options)));
        for cpus in cpu_counts() {
            let key = key(scheme, cpus, threads(options));
            let rate = results.per_second(&key);
            let cells = vec![
                Cell::text(scheme.name()),
                Cell::count(cpus as f64),
                Cell::maybe(rate, 0),
                times(rate, one),
                contention(results, &key),
                percent(results.median(&key, |sample| sample.waiting_share)),
            ];
            table.push(Origin::Measured, cells);
        }
    }
    table
}

fn published(name: &str, row: &Row, one: &Row) -> Vec<Cell> {
    let rate = f64::from(row.transactions_per_s);
    let contention = match (row.contention_percent, row.big_lock_percent) {
        (Some(all), Some(big)) => Cell::text(format!("{all:.1}% (BKL={big:.1}%)")),
        (Some(all), None) => Cell::text(format!("{all:.1}%")),
        _ => Cell::missing(),
    };
    vec![
        Cell::text(name),
        Cell::count(f64::from(row.cpus)),
        Cell::count(rate),
        times(Some(rate), Some(f64::from(one.transactions_per_s))),
        contention,
        Cell::missing(),
    ]
}

fn chart(options: &Options, results: &Results) -> Chart {
    let of = |name: &str, tone: Tone, rows: &[Row]| {
        let one = f64::from(rows[0].transactions_per_s);
        Line {
            name: name.to_owned(),
            origin: Origin::Published,
            tone,
            points: rows
                .iter()
                .map(|row| (f64::from(row.cpus), f64::from(row.transactions_per_s) / one))
                .collect(),
        }
    };
    let mut lines = vec![
        of("2.4.17, BKL", Tone::Spin, &BIG_LOCK),
        of("2.5.1, removed", Tone::Fine, &FINE_LOCKS),
    ];
    for scheme in options.place.subjects(&SCHEMES) {
        let rate = |cpus| results.per_second(&key(scheme, cpus, threads(options)));
        let points = cpu_counts()
            .into_iter()
            .filter_map(|cpus| Some((cpus as f64, rate(cpus)? / rate(1)?)))
            .collect();
        lines.push(Line {
            name: scheme.name().to_owned(),
            origin: Origin::Measured,
            tone: tone(scheme),
            points,
        });
    }
    Chart::Lines {
        title: "Speed-up over one CPU".to_owned(),
        x_label: "CPUs".to_owned(),
        y_label: "× one CPU".to_owned(),
        y_scale: Scale::Linear,
        lines,
    }
}

fn notes(options: &Options, results: &Results) -> Vec<String> {
    let most = *cpu_counts().last().unwrap_or(&1);
    let at = |scheme: LockingScheme, cpus| results.per_second(&key(scheme, cpus, threads(options)));
    let mut notes = Vec::new();
    let ours = super::ratios::ratio(
        at(LockingScheme::Fine, most),
        at(LockingScheme::BigSpin, most),
    );
    if let Some(ours) = ours {
        notes.push(format!(
            "Fine locks against the spinning big lock on {most} CPUs here: {ours:.2} times. The published \
             tables cannot be divided so: they differ in PostMark's parameters."
        ));
    }
    notes.extend([
        "What `spinlock contention` counts was not published. Ours is the share of acquisitions that had to \
         wait, over all locks, with the class that has most of them. The class's figure of 2002 is nearly the \
         whole, although PostMark takes many other spinlocks: that fits a share of CPU time better, which is \
         our last column."
            .to_owned(),
        "There the processes shared nothing but the kernel; here the threads share a file system in memory \
         too, and no system call lies between two operations. So the lock is asked for far more often, for a \
         shorter time."
            .to_owned(),
    ]);
    notes
}
