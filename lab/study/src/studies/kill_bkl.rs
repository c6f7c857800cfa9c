//! "Reiserfs/kill-bkl": dbench under the big lock and a lock per file system, on one and two file
//! systems.

use std::path::Path;

use finefs::LockingScheme;

use super::Options;
use super::experiment::{Experiment, Key, Results, Sample};
use super::place::Subject;
use super::published::kill_bkl::{ONE_FILE_SYSTEM, SOURCE, TWO_FILE_SYSTEMS};
use super::ratios::{contention, percent, ratio, tone};
use crate::page::{Bar, BarGroup, Cell, Chart, Exhibit, Origin, Section, Table, Tone};
use finefs_workloads::Dbench;
use finefs_workloads::Report;
use finefs_workloads::affinity;

const LOAD: &str = "dbench";
const DUAL: &str = "dbench on two file systems";

const SCHEMES: [LockingScheme; 4] = [
    LockingScheme::BigSpin,
    LockingScheme::BigSleep,
    LockingScheme::PerSuperblock,
    LockingScheme::Fine,
];

/// What Debian's package dbench has; the load is its, not ours.
const LOAD_FILE: &str = "/usr/share/dbench/client.txt";

/// True when there is a load to run.
pub(super) fn is_possible() -> bool {
    Path::new(LOAD_FILE).exists()
}

pub(super) fn key(subject: impl Into<Subject>, clients: usize) -> Key {
    Key::new(LOAD, subject, affinity::cpus(), clients)
}

fn dual_key(subject: impl Into<Subject>) -> Key {
    Key::new(DUAL, subject, affinity::cpus(), 2)
}

pub(super) fn experiment(key: Key) -> Experiment {
    Experiment::new(key, Dbench::new(LOAD_FILE), |report| {
        vec![mb(report.detail.bytes, report.seconds)]
    })
}

/// 10^6 bytes a second, dbench's unit.
fn mb(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(1e-9)
}

/// Of a sample of dbench on one file system.
pub(super) fn mb_per_s(sample: &Sample) -> f64 {
    sample.more.first().copied().unwrap_or(f64::NAN)
}

pub(super) fn experiments(options: &Options) -> Vec<Experiment> {
    if !is_possible() {
        return Vec::new();
    }
    let mut experiments = Vec::new();
    for scheme in options.place.subjects(&SCHEMES) {
        for published in &ONE_FILE_SYSTEM {
            let key = key(scheme, published.clients as usize);
            experiments.extend(key.both().map(experiment));
        }
        if options.place.is_memory() {
            let of = |report: &Report<Dbench>| mb(report.detail.bytes, report.seconds);
            let experiment = Experiment::on_two(dual_key(scheme), Dbench::new(LOAD_FILE), of);
            experiments.push(experiment);
        }
    }
    experiments
}

pub(super) fn section(options: &Options, results: &Results) -> Section {
    let mut paragraphs = vec![
        format!("Published: {SOURCE}."),
        "Here: as many threads as clients, each replays dbench's load in a directory of its own. \
         `per-superblock` is the lock of that tree: recursive, let go of around sleeping, spinning while \
         its owner runs."
            .to_owned(),
    ];
    if !is_possible() {
        paragraphs.push(format!(
            "Not measured: dbench's load {LOAD_FILE} is missing (Debian's package dbench has it)."
        ));
    }
    if !options.place.is_memory() {
        paragraphs.push(
            "Two file systems at once are not measured here: there is one. `--memory` has two."
                .to_owned(),
        );
    }
    Section {
        id: "kill-bkl",
        title: "2009: reiserfs without the BKL".to_owned(),
        paragraphs,
        exhibits: vec![one(options, results), two(options, results)],
    }
}

fn one(options: &Options, results: &Results) -> Exhibit {
    let mut table = Table::new(
        "dbench on one file system, MB/s",
        &[
            "locks<",
            "clients",
            "MB/s",
            "/ BKL",
            "/ 1 client",
            "contention<",
            "waiting, %",
        ],
    );
    let first = &ONE_FILE_SYSTEM[0];
    for row in &ONE_FILE_SYSTEM {
        for (name, rate, one) in [
            ("BKL", row.big_lock_mb_per_s, first.big_lock_mb_per_s),
            ("mutex", row.mutex_mb_per_s, first.mutex_mb_per_s),
        ] {
            table.push(
                Origin::Published,
                vec![
                    Cell::text(name),
                    Cell::count(f64::from(row.clients)),
                    Cell::number(rate, 2),
                    Cell::number(rate / row.big_lock_mb_per_s, 2),
                    Cell::number(rate / one, 2),
                    Cell::missing(),
                    Cell::missing(),
                ],
            );
        }
    }
    let rate = |subject: Subject, clients| results.median(&key(subject, clients), mb_per_s);
    for published in &ONE_FILE_SYSTEM {
        let clients = published.clients as usize;
        for scheme in options.place.subjects(&SCHEMES) {
            let own = rate(scheme, clients);
            let key = key(scheme, clients);
            table.push(
                Origin::Measured,
                vec![
                    Cell::text(scheme.name()),
                    Cell::count(clients as f64),
                    Cell::maybe(own, 1),
                    Cell::maybe(ratio(own, rate(LockingScheme::BigSpin.into(), clients)), 2),
                    Cell::maybe(ratio(own, rate(scheme, 1)), 2),
                    contention(results, &key),
                    percent(results.median(&key, |sample| sample.waiting_share)),
                ],
            );
        }
    }
    Exhibit {
        table,
        chart: Some(chart(results)),
        notes: vec![
            "Reiserfs wrote to a disk, which is part of the fall from 1 client to 100; a file system in memory \
             has none. What compares is one lock against the other at the same number of clients."
                .to_owned(),
        ],
    }
}

fn chart(results: &Results) -> Chart {
    let bar = |name: &str, value, tone, origin| Bar {
        name: name.to_owned(),
        value,
        origin,
        tone,
    };
    let groups = ONE_FILE_SYSTEM.iter().map(|row| {
        let clients = row.clients as usize;
        let big = results.median(&key(LockingScheme::BigSpin, clients), mb_per_s);
        let published = row.mutex_mb_per_s / row.big_lock_mb_per_s;
        let mut bars = vec![bar(
            "mutex, reiserfs",
            published,
            Tone::Coarse,
            Origin::Published,
        )];
        for scheme in [LockingScheme::PerSuperblock, LockingScheme::Fine] {
            let own = results.median(&key(scheme, clients), mb_per_s);
            bars.extend(
                ratio(own, big)
                    .map(|value| bar(scheme.name(), value, tone(scheme), Origin::Measured)),
            );
        }
        BarGroup {
            name: match clients {
                1 => "1 client".to_owned(),
                _ => format!("{clients} clients"),
            },
            bars,
        }
    });
    Chart::Bars {
        title: "dbench's throughput as a multiple of the big lock's".to_owned(),
        unit: "× the spinning big lock".to_owned(),
        decimals: 2,
        groups: groups.collect(),
    }
}

fn two(options: &Options, results: &Results) -> Exhibit {
    let mut table = Table::new(
        "dbench on two file systems at once, a client each, MB/s",
        &["locks<", "client #1", "client #2", "both", "/ BKL"],
    );
    let total = |pair: [f64; 2]| pair[0] + pair[1];
    let published = TWO_FILE_SYSTEMS;
    let row = |name: &str, pair: [f64; 2], big: Option<f64>| {
        vec![
            Cell::text(name),
            Cell::number(pair[0], 2),
            Cell::number(pair[1], 2),
            Cell::number(total(pair), 2),
            Cell::maybe(ratio(Some(total(pair)), big), 2),
        ]
    };
    let big = Some(total(published.big_lock_mb_per_s));
    table.push(
        Origin::Published,
        row("BKL", published.big_lock_mb_per_s, big),
    );
    table.push(
        Origin::Published,
        row("mutex", published.mutex_mb_per_s, big),
    );
    let pair = |subject: Subject| {
        let of = |index: usize| {
            results.median(&dual_key(subject), |sample| {
                sample.more.get(index).copied().unwrap_or(f64::NAN)
            })
        };
        Some([of(0)?, of(1)?])
    };
    let big = pair(LockingScheme::BigSpin.into()).map(total);
    for scheme in options.place.subjects(&SCHEMES) {
        if let Some(found) = pair(scheme) {
            table.push(Origin::Measured, row(scheme.name(), found, big));
        }
    }
    Exhibit {
        table,
        chart: None,
        notes: vec![
            "The big lock is one for all file systems, so two that share nothing else share it; a lock for \
             each does not. Published: 8 % more. Without a disk between, the difference is what a CPU more \
             gives."
                .to_owned(),
        ],
    }
}
