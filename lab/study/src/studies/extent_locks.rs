//! "working on extent locks for i_mutex": random reads and writes of one file under a lock over the
//! whole of it, under range locks, and under none.

use std::time::Duration;

use finefs::LockingScheme;

use super::Options;
use super::device::Device;
use super::experiment::{Experiment, Key, Results, Sample};
use super::place::{Storage, Subject};
use super::published::extent_locks::{BLOCK_BYTES, READ_PERCENT, ROWS, Round, SOURCE, THREADS};
use super::ratios::{lock_table, percent, ratio, times, tone};
use crate::page::{Bar, BarGroup, Cell, Chart, Exhibit, Origin, Section, Table, Tone};
use finefs_workloads::RandRw;
use finefs_workloads::affinity;

const LOAD: &str = "randrw";

/// The order is that of the published rows: the mutex, shared reads, no lock; and what was not
/// measured then.
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

/// With the modelled device.
const ON_DEVICE: &str = "randrw on a modelled device";

/// Blocks of the file there: making it takes the device's time, too.
const BLOCKS_ON_DEVICE: u64 = 1024;

/// What the part's modelled device is like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DeviceTimes {
    /// From a request to its end when nobody else asks, µs.
    pub latency_us: f64,
    /// Requests a second that it does at most.
    pub requests_per_s: f64,
}

impl Default for DeviceTimes {
    /// The published SSD, as its own numbers give it: under the mutex there is one request at a
    /// time, so its rate is the latency; without the lock there are 32, so its rate is what the
    /// device can do.
    fn default() -> DeviceTimes {
        let rate = |name| published_rate(name).unwrap_or(f64::NAN);
        DeviceTimes {
            latency_us: 1e6 / rate("ext4"),
            requests_per_s: rate("ext4+dio_nolock"),
        }
    }
}

impl DeviceTimes {
    fn device(self) -> Device {
        let interval = Duration::from_secs_f64(1.0 / self.requests_per_s);
        Device {
            latency: Duration::from_secs_f64(self.latency_us / 1e6).max(interval),
            interval,
        }
    }
}

fn key(options: &Options, load: &'static str, subject: impl Into<Subject>) -> Key {
    let threads = options.threads.unwrap_or(THREADS as usize);
    Key::new(load, subject, affinity::cpus(), threads)
}

fn experiment(storage: Storage, key: Key, blocks: u64) -> Experiment {
    let workload = RandRw {
        blocks,
        block_size: BLOCK_BYTES,
        read_share: READ_PERCENT as u8,
        ..RandRw::default()
    };
    Experiment::on(storage, key, workload, |report| {
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
}

pub(super) fn experiments(options: &Options) -> Vec<Experiment> {
    let mut experiments = Vec::new();
    let mut add = |storage, load, blocks| {
        for subject in options.place.subjects(&SCHEMES) {
            let key = key(options, load, subject);
            experiments.extend(key.both().map(|key| experiment(storage, key, blocks)));
        }
    };
    add(Storage::WithRaces, LOAD, RandRw::default().blocks);
    if options.place.is_memory() {
        let storage = Storage::Behind(options.device.device());
        add(storage, ON_DEVICE, BLOCKS_ON_DEVICE);
    }
    experiments
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
    let mut paragraphs = vec![
        format!("Published: {SOURCE}. Three rounds, reads and writes apart."),
        format!(
            "Here: {} threads, blocks of 16 KiB of one file of 64 MiB, {READ_PERCENT} % reads. \
             `whole-file-mutex` is ext4's i_mutex over direct I/O; `whole-file` shares it among reads; `fine` is the range lock that the thread set out to write; `unlocked-data` is the \
             experiment without a lock, which lets a read see half of a write.",
            options.threads.unwrap_or(THREADS as usize)
        ),
    ];
    let mut exhibits = Vec::new();
    if options.place.is_memory() {
        exhibits.push(on_device(options, results));
    } else {
        paragraphs.push(
            "The modelled device is not measured here: it lies under files in memory only."
                .to_owned(),
        );
    }
    exhibits.extend([
        Exhibit {
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
    ]);
    exhibits[0].chart = Some(chart(options, results));
    Section {
        id: "extent-locks",
        title: "2012: range locks instead of i_mutex".to_owned(),
        paragraphs,
        exhibits,
    }
}

/// Reads and writes a second of a published row, first round.
fn published_rate(name: &str) -> Option<f64> {
    let row = ROWS.iter().find(|row| row.name == name)?;
    Some(row.iops[0].read + row.iops[0].write)
}

/// The published table with what the locks cost when they are held over the device's time.
fn on_device(options: &Options, results: &Results) -> Exhibit {
    let DeviceTimes {
        latency_us,
        requests_per_s,
    } = options.device;
    let mut table = Table::new(
        format!(
            "On a modelled device, {latency_us:.0} µs a request and at most {requests_per_s:.0} a second: \
             reads and writes a second"
        ),
        &[
            "locks<",
            "reads and writes/s",
            "/ mutex",
            "/ no lock",
            "read, mean µs",
            "waiting, %",
        ],
    );
    let (mutex, free) = (published_rate("ext4"), published_rate("ext4+dio_nolock"));
    for row in &ROWS {
        let rate = published_rate(row.name);
        table.push(
            Origin::Published,
            vec![
                Cell::text(row.name),
                Cell::maybe(rate, 0),
                times(rate, mutex),
                times(rate, free),
                Cell::number(row.latency_us[0].read, 0),
                Cell::missing(),
            ],
        );
    }
    let key = |scheme| key(options, ON_DEVICE, scheme);
    let rate = |scheme: LockingScheme| results.per_second(&key(scheme));
    for scheme in SCHEMES {
        let read_us = |sample: &Sample| round(sample, &Field::LatencyUs).read;
        table.push(
            Origin::Measured,
            vec![
                Cell::text(scheme.name()),
                Cell::maybe(rate(scheme), 0),
                times(rate(scheme), rate(LockingScheme::WholeFileMutex)),
                times(rate(scheme), rate(LockingScheme::UnlockedData)),
                Cell::maybe(results.median(&key(scheme), read_us), 0),
                percent(results.median(&key(scheme), |sample| sample.waiting_share)),
            ],
        );
    }
    Exhibit {
        table,
        chart: None,
        notes: device_notes(),
    }
}

fn device_notes() -> Vec<String> {
    vec![
            "The device's two numbers are those of the published SSD unless others are given: under the mutex \
             one request was at the device at a time, which gives its latency, and without a lock 32, which \
             gives what it does at most. So the mutex's row and the last one come out as published if the \
             locks are held as they were there; what is found out is the range lock's row, and that of the \
             lock that reads share."
                .to_owned(),
            "`whole-file` makes a write wait until all reads have come back from the device, and all reads \
             after it wait for the write; that costs more than a queue for a mutex. XFS's row is another lock: \
             it shares its lock among direct writes, too, as long as none makes the file longer."
                .to_owned(),
            format!(
                "The file has {BLOCKS_ON_DEVICE} blocks here. Reads and writes of data take the device's time; \
                 metadata is in memory."
            ),
    ]
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
    for subject in options.place.subjects(&SCHEMES) {
        let samples = results.of(&key(options, LOAD, subject)).unwrap_or_default();
        let rounds: Vec<Round> = samples.iter().map(&measured).collect();
        table.push(Origin::Measured, cells(subject.name(), &rounds));
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
    let bars = |load| -> Vec<Bar> {
        let rate = |scheme: LockingScheme| results.per_second(&key(options, load, scheme));
        let mutex = rate(LockingScheme::WholeFileMutex);
        let bars = SCHEMES[1..].iter().filter_map(|scheme| {
            Some(Bar {
                name: scheme.name().to_owned(),
                value: ratio(rate(*scheme), mutex)?,
                origin: Origin::Measured,
                tone: tone(*scheme),
            })
        });
        bars.collect()
    };
    let group = |name: &str, bars| BarGroup {
        name: name.to_owned(),
        bars,
    };
    let mut groups = vec![group("2012, an SSD", published)];
    for (name, load) in [
        ("finefs, a modelled SSD", ON_DEVICE),
        ("finefs, no device", LOAD),
    ] {
        let bars = bars(load);
        if !bars.is_empty() {
            groups.push(group(name, bars));
        }
    }
    Chart::Bars {
        title: "Operations a second as a multiple of what the file's mutex lets through".to_owned(),
        unit: "× the mutex".to_owned(),
        decimals: 2,
        groups,
    }
}

fn notes(options: &Options, results: &Results) -> Vec<String> {
    let rate = |scheme: LockingScheme| results.per_second(&key(options, LOAD, scheme));
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
         the CPUs, and the lock itself is what these tables show."
            .to_owned(),
    );
    notes
}

fn locks(options: &Options, results: &Results) -> Exhibit {
    let table = lock_table(
        "Locks of the same runs",
        "operations/s",
        results,
        options
            .place
            .subjects(&SCHEMES)
            .into_iter()
            .map(|subject| key(options, LOAD, subject)),
    );
    Exhibit {
        table,
        chart: None,
        notes: Vec::new(),
    }
}
