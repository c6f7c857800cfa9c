//! "working on extent locks for i_mutex": random reads and writes of one file under a lock over the whole of
//! it, under range locks, and under none.

use finefs::LockingScheme;

use super::Options;
use super::affinity;
use super::experiment::{Experiment, Key, Results, Sample};
use super::published::extent_locks::{BLOCK_BYTES, READ_PERCENT, ROWS, Round, SOURCE, THREADS};
use super::ratios::{lock_table, ratio, tone};
use crate::RandRw;
use crate::page::{Bar, BarGroup, Cell, Chart, Exhibit, Origin, Section, Table, Tone};

const LOAD: &str = "randrw";

/// The order is that of the published rows: the mutex, shared reads, no lock; and what was not measured then.
const SCHEMES: [LockingScheme; 4] = [
    LockingScheme::WholeFileMutex,
    LockingScheme::WholeFile,
    LockingScheme::Fine,
    LockingScheme::UnlockedData,
];

/// Rounds of the published tables.
const ROUNDS: usize = 3;

/// What a sample has in `more`.
enum Field {
    Rate,
    LatencyUs,
}

fn key(options: &Options, scheme: LockingScheme) -> Key {
    let threads = options.threads.unwrap_or(THREADS as usize);
    Key::new(LOAD, scheme, affinity::cpus(), threads)
}

pub(super) fn experiments(options: &Options) -> Vec<Experiment> {
    let workload = RandRw {
        block_size: BLOCK_BYTES,
        read_share: READ_PERCENT as u8,
        ..RandRw::default()
    };
    let experiment = |key| {
        Experiment::with_races(key, workload.clone(), |report| {
            let (reads, writes) = (&report.detail.reads, &report.detail.writes);
            let rate = |count: u64| count as f64 / report.seconds.max(1e-9);
            let us = |ns: Option<u64>| ns.map_or(f64::NAN, |ns| ns as f64 / 1e3);
            vec![
                rate(reads.count()),
                rate(writes.count()),
                us(reads.mean_ns()),
                us(writes.mean_ns()),
            ]
        })
    };
    SCHEMES
        .into_iter()
        .flat_map(|scheme| {
            let key = key(options, scheme);
            [experiment(key.counted()), experiment(key)]
        })
        .collect()
}

fn round(sample: &Sample, field: &Field) -> Round {
    let first = match field {
        Field::Rate => 0,
        Field::LatencyUs => 2,
    };
    let get = |index: usize| sample.more.get(index).copied().unwrap_or(f64::NAN);
    Round {
        read: get(first),
        write: get(first + 1),
    }
}

pub(super) fn section(options: &Options, results: &Results) -> Section {
    let kb = f64::from(BLOCK_BYTES) / 1024.0;
    Section {
        id: "extent-locks",
        title: "2012: range locks instead of i_mutex".to_owned(),
        paragraphs: vec![
            format!("Published: {SOURCE}. Three rounds, reads and writes apart."),
            format!(
                "Here: {} threads, blocks of 16 KiB of one file of 64 MiB, {READ_PERCENT} % reads. \
                 `whole-file-mutex` is ext4's i_mutex over direct I/O; `whole-file` shares it among reads, as \
                 XFS does; `fine` is the range lock that the thread set out to write; `unlocked-data` is the \
                 experiment without a lock, which lets a read see half of a write.",
                options.threads.unwrap_or(THREADS as usize)
            ),
        ],
        exhibits: vec![
            Exhibit {
                chart: Some(chart(options, results)),
                notes: notes(options, results),
                ..exhibit(
                    options,
                    results,
                    "I/O operations a second",
                    0,
                    |row| row.iops,
                    |sample| round(sample, &Field::Rate),
                )
            },
            exhibit(
                options,
                results,
                "Bandwidth, KB a second",
                0,
                |row| row.bandwidth_kb_per_s,
                |sample| {
                    let rates = round(sample, &Field::Rate);
                    Round {
                        read: rates.read * kb,
                        write: rates.write * kb,
                    }
                },
            ),
            exhibit(
                options,
                results,
                "Mean latency, µs",
                2,
                |row| row.latency_us,
                |sample| round(sample, &Field::LatencyUs),
            ),
            locks(options, results),
        ],
    }
}

fn exhibit(
    options: &Options,
    results: &Results,
    caption: &str,
    decimals: usize,
    published: fn(&super::published::extent_locks::Row) -> [Round; 3],
    measured: impl Fn(&Sample) -> Round,
) -> Exhibit {
    let mut table = Table::new(
        caption,
        &[
            "locks<", "read 1", "write 1", "read 2", "write 2", "read 3", "write 3",
        ],
    );
    let cells = |name: &str, rounds: &[Round]| {
        let mut cells = vec![Cell::text(name)];
        for index in 0..ROUNDS {
            let round = rounds.get(index);
            cells.push(Cell::maybe(round.map(|round| round.read), decimals));
            cells.push(Cell::maybe(round.map(|round| round.write), decimals));
        }
        cells
    };
    for row in &ROWS {
        table.push(Origin::Published, cells(row.name, &published(row)));
    }
    for scheme in SCHEMES {
        let samples = results.of(&key(options, scheme)).unwrap_or_default();
        let rounds: Vec<Round> = samples.iter().map(&measured).collect();
        table.push(Origin::Measured, cells(scheme.name(), &rounds));
    }
    Exhibit {
        table,
        chart: None,
        notes: Vec::new(),
    }
}

/// Published reads of the first round, of this row.
fn reads(name: &str) -> Option<f64> {
    let row = ROWS.iter().find(|row| row.name == name)?;
    Some(row.iops[0].read)
}

fn chart(options: &Options, results: &Results) -> Chart {
    let mut published = Vec::new();
    for (name, tone) in [
        ("ext4+dioread_nolock", Tone::Coarse),
        ("xfs", Tone::Coarse),
        ("ext4+dio_nolock", Tone::None),
    ] {
        published.extend(ratio(reads(name), reads("ext4")).map(|value| Bar {
            name: name.to_owned(),
            value,
            origin: Origin::Published,
            tone,
        }));
    }
    let rate = |scheme| results.per_second(&key(options, scheme));
    let mutex = rate(LockingScheme::WholeFileMutex);
    let ours = SCHEMES[1..].iter().filter_map(|scheme| {
        Some(Bar {
            name: scheme.name().to_owned(),
            value: ratio(rate(*scheme), mutex)?,
            origin: Origin::Measured,
            tone: tone(*scheme),
        })
    });
    let ours = ours.collect();
    let group = |name: &str, bars| BarGroup {
        name: name.to_owned(),
        bars,
    };
    Chart::Bars {
        title: "Operations a second as a multiple of what the file's mutex lets through".to_owned(),
        unit: "× the mutex".to_owned(),
        decimals: 2,
        groups: vec![
            group("2012, an SSD", published),
            group("finefs, memory", ours),
        ],
    }
}

fn notes(options: &Options, results: &Results) -> Vec<String> {
    let rate = |scheme| results.per_second(&key(options, scheme));
    let mut notes = Vec::new();
    let gains = (
        ratio(
            rate(LockingScheme::Fine),
            rate(LockingScheme::WholeFileMutex),
        ),
        ratio(rate(LockingScheme::Fine), rate(LockingScheme::UnlockedData)),
    );
    if let (Some(gain), Some(cost)) = gains {
        notes.push(format!(
            "Range locks make {gain:.2} times what the mutex makes, and {cost:.2} of what no lock at all \
             makes. Published for no lock: {:.2} times, on an SSD that then was the limit.",
            reads("ext4+dio_nolock").unwrap_or(f64::NAN) / reads("ext4").unwrap_or(f64::NAN)
        ));
    }
    notes.push(
        "There the mutex was held while the device worked, so 32 threads kept one request at the device \
         where it could take many. In memory nothing is waited for under the lock: what it costs is bounded by \
         the CPUs."
            .to_owned(),
    );
    notes
}

fn locks(options: &Options, results: &Results) -> Exhibit {
    let table = lock_table(
        "Locks of the same runs",
        "operations/s",
        results,
        SCHEMES.map(|scheme| (scheme, key(options, scheme))),
    );
    Exhibit {
        table,
        chart: None,
        notes: Vec::new(),
    }
}
