//! More cores than there are, by the model: against what was published, against what can be measured here,
//! and beyond.

use finefs::LockingScheme;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::Options;
use super::affinity;
use super::experiment::{Experiment, Key, Results};
use super::place::Place;
use super::published::bkl_removal::{BIG_LOCK, BIG_LOCK_SOURCE, FINE_LOCKS, Row};
use super::ratios::{percent, ratio, tone};
use super::{bkl_removal, bkl_semaphore};
use crate::model::calibrate::{one_lock, share_for_waiting};
use crate::model::measured::{Observed, Sharing};
use crate::model::{HandOver, Network, Station, rehearsal};
use crate::page::{Cell, Chart, Exhibit, Line, Origin, Scale, Section, Table, Tone};

/// What is looked at.
#[derive(Clone, Copy, PartialEq)]
enum Load {
    PostMark,
    OpenSpeed,
}

impl Load {
    const ALL: [Load; 2] = [Load::PostMark, Load::OpenSpeed];

    fn name(self) -> &'static str {
        match self {
            Load::PostMark => "PostMark",
            Load::OpenSpeed => "openspeed",
        }
    }

    fn key(self, scheme: LockingScheme, threads: usize) -> Key {
        match self {
            Load::PostMark => bkl_removal::key(scheme, affinity::cpus(), threads),
            Load::OpenSpeed => bkl_semaphore::key(scheme, affinity::cpus(), threads),
        }
    }

    fn experiment(self, key: Key) -> Experiment {
        match self {
            Load::PostMark => bkl_removal::experiment(key),
            Load::OpenSpeed => bkl_semaphore::experiment(key),
        }
    }

    /// Which locks of a class the threads meet at. Classes that are not known are taken as one lock for
    /// all: the worse case.
    fn sharing(self, class: &str) -> Sharing {
        match class {
            // A lock for each CPU.
            "ns.files" | "ns.log" | "memory.free" => Sharing::Private,
            // A lock for each directory, file or part of it.
            "ns.bucket" | "ns.resize" | "ns.inode" | "ns.range" | "ns.segment" | "ns.load"
            | "ns.xattr" => match self {
                Load::PostMark => Sharing::Private,
                Load::OpenSpeed => Sharing::Locks(super::published::bkl_semaphore::FILES),
            },
            _ => Sharing::Locks(1),
        }
    }
}

const SCHEMES: [LockingScheme; 3] = [
    LockingScheme::BigSpin,
    LockingScheme::BigSleep,
    LockingScheme::Fine,
];

/// Threads of the runs that the model is held against.
const THREADS: [usize; 4] = [1, 2, 4, 8];

/// Cores that are asked for.
const CORES: [usize; 7] = [1, 2, 4, 8, 16, 64, 256];

/// The class of the big lock: under it no other is waited for.
const BIG: &str = "ns.big";

pub(super) fn experiments(options: &Options) -> Vec<Experiment> {
    if !is_possible(options) {
        return Vec::new();
    }
    let mut experiments = Vec::new();
    for load in Load::ALL {
        for scheme in SCHEMES {
            experiments.push(load.experiment(load.key(scheme, 1).counted()));
            for threads in THREADS {
                experiments.push(load.experiment(load.key(scheme, threads)));
            }
        }
    }
    experiments
}

/// What one thread showed, as a network; none without its runs.
fn network(results: &Results, load: Load, scheme: LockingScheme) -> Option<Network> {
    let key = load.key(scheme, 1);
    let counted = results.last(&key.counted())?;
    let costs = results.costs();
    let observed = Observed {
        counts: &counted.locks,
        operations: counted.operations,
        operation_ns: 1e9 / results.per_second(&key).filter(|rate| *rate > 0.0)?,
        empty_hold_ns: costs.empty_hold_ns,
    };
    let spinning = HandOver::Spinning {
        line_transfer_ns: costs.line_transfer_ns.unwrap_or(0.0),
    };
    let hand_over = match scheme {
        LockingScheme::BigSleep => HandOver::Sleeping {
            wake_up_ns: costs.wake_up_ns,
        },
        _ => spinning,
    };
    let has_big = counted
        .locks
        .class(BIG)
        .is_some_and(|class| !class.writer.is_empty());
    let network = observed.network(|class| match class {
        _ if has_big && class != BIG => None,
        _ => Some((load.sharing(class), hand_over)),
    });
    Some(without_rare(network))
}

/// Cores of this machine that so many threads keep busy.
fn cores(threads: usize) -> usize {
    threads.min(affinity::cpus())
}

/// Tries the sleeping big lock with each load's times, by so many threads as it ran with.
pub(super) fn rehearse(results: &mut Results, seconds: f64, stop: &AtomicBool) {
    for load in Load::ALL {
        let network = network(results, load, LockingScheme::BigSleep);
        let Some((network, big)) = network.and_then(|network| {
            let big = network
                .stations
                .iter()
                .find(|station| station.name == BIG)?;
            Some((network.clone(), big.clone()))
        }) else {
            continue;
        };
        let hold = Duration::from_secs_f64(big.hold_ns / 1e9);
        let think = Duration::from_secs_f64(network.delay_ns / big.visits / 1e9);
        for threads in THREADS {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let time = Duration::from_secs_f64(seconds);
            let rate = rehearsal::visits_per_second(threads, hold, think, time);
            results.add_rehearsal(load.key(LockingScheme::BigSleep, threads), rate);
        }
    }
}

/// The share of the time in which a sleeping lock is in a convoy, with so many threads: from its rehearsal,
/// taken as a multiple of what one thread got through there.
fn convoy_share(results: &Results, load: Load, network: &Network, threads: usize) -> Option<f64> {
    let rate = |threads| results.rehearsed(&load.key(LockingScheme::BigSleep, threads));
    let gain = ratio(rate(threads), rate(1))?;
    let throughput_per_ns = gain * network.solve(1).throughput_per_ns;
    Some(network.convoy_share(cores(threads), throughput_per_ns))
}

/// Below this share of an operation a lock is one of the commit's, taken a few times a second and not once an
/// operation: its count says nothing of operations.
const SHARE_MIN: f64 = 1e-4;

fn without_rare(network: Network) -> Network {
    let least_ns = network.alone_ns() * SHARE_MIN;
    let (stations, rare): (Vec<_>, Vec<_>) = network
        .stations
        .into_iter()
        .partition(|station| station.demand_ns() >= least_ns);
    Network {
        delay_ns: network.delay_ns + rare.iter().map(Station::demand_ns).sum::<f64>(),
        stations,
    }
}

fn paragraphs() -> Vec<String> {
    vec![
        "A closed queueing network, solved by exact mean value analysis (Reiser and Lavenberg, J. ACM \
         1980): cores are customers, each lock is a station, work outside of locks is a delay. Visits \
         and hold times come from one thread's run with all acquisitions counted, less what the meter \
         itself shows for an empty hold; the time of an operation from a run with the meter at rest."
            .to_owned(),
        "A lock that is waited for also has to change hands. A spinning lock keeps all waiters' caches \
         busy: half a line transfer per waiter and hand-over, by which throughput falls again \
         (Boyd-Wickizer and others, \"Non-scalable locks are dangerous\", Linux Symposium 2012). A \
         sleeping one lies idle until its next holder has been woken, as long as the convoy lasts (Blasgen \
         and others, \"The Convoy Phenomenon\", 1979). With these costs the network is \
         solved by its normalizing constants (Buzen, CACM 1973), which keep their digits near saturation."
            .to_owned(),
        "Assumed: hold times do not grow with cores; memory and caches are without limit; times vary as \
         exponential ones; a thread waits for one lock at a time; as many threads as cores, none \
         preempted while it holds a lock. The first two make predictions too good, the third one slightly \
         too bad."
            .to_owned(),
    ]
}

/// A directory has one way of locking, and mostly that of another process.
fn is_possible(options: &Options) -> bool {
    !matches!(options.place, Place::Directory(_))
}

pub(super) fn section(options: &Options, results: &Results) -> Section {
    let mut exhibits = vec![against_2002()];
    if is_possible(options) {
        exhibits.extend(Load::ALL.map(|load| beyond(results, load)));
        exhibits.push(against_here(results));
        exhibits.push(inputs(results));
    }
    let mut paragraphs = paragraphs();
    if !is_possible(options) {
        paragraphs.push(
            "More cores are not predicted here: the model is fed with a run of one thread under each locking \
             scheme, and a directory has the locks that it has."
                .to_owned(),
        );
    }
    Section {
        id: "what-if",
        title: "What if there were more cores".to_owned(),
        paragraphs,
        exhibits,
    }
}

/// The model fed with one published number, against the others.
fn against_2002() -> Exhibit {
    let mut table = Table::new(
        "The tables of 2002: what one of their numbers predicts of the others",
        &["kernel<", "CPUs", "speed-up", "CPU time waiting, %"],
    );
    let mut lines = Vec::new();
    let mut notes = vec![format!(
        "Published: {}, {}. Waiting is the column `spinlock contention`, read as a share of CPU time; \
         for 2.4.17 the BKL's part.",
        BIG_LOCK_SOURCE.author, BIG_LOCK_SOURCE.thread
    )];
    let cases = [
        ("2.4.17, BKL", Tone::Spin, &BIG_LOCK[..], 4),
        ("2.5.1, BKL removed", Tone::Fine, &FINE_LOCKS[..], 8),
    ];
    for (name, tone, rows, known) in cases {
        let waiting = |row: &Row| row.big_lock_percent.or(row.contention_percent);
        let one = f64::from(rows[0].transactions_per_s);
        let given = rows.iter().find(|row| row.cpus == known).and_then(waiting);
        let Some(share) = given.and_then(|given| share_for_waiting(known as usize, given / 100.0))
        else {
            continue;
        };
        notes.push(format!(
            "{name}: the waiting at {known} CPUs is that of a lock held for {:.1} % of a transaction.",
            share * 100.0
        ));
        let network = one_lock(share);
        let (mut told, mut computed) = (Vec::new(), Vec::new());
        for row in rows {
            let cpus = f64::from(row.cpus);
            let speed_up = f64::from(row.transactions_per_s) / one;
            let solution = network.solve(row.cpus as usize);
            told.push((cpus, speed_up));
            table.push(
                Origin::Published,
                vec![
                    Cell::text(name),
                    Cell::count(cpus),
                    Cell::number(speed_up, 2),
                    Cell::maybe(waiting(row), 1),
                ],
            );
            table.push(
                Origin::Predicted,
                vec![
                    Cell::text(name),
                    Cell::count(cpus),
                    Cell::number(solution.throughput_per_ns, 2),
                    Cell::number(solution.waiting_share * 100.0, 1),
                ],
            );
        }
        computed.extend(
            [1, 2, 3, 4, 6, 8].map(|cpus| (cpus as f64, network.solve(cpus).throughput_per_ns)),
        );
        let line = |name: String, origin, points| Line {
            name,
            origin,
            tone,
            points,
        };
        lines.push(line(name.to_owned(), Origin::Published, told));
        let kernel = name.split(',').next().unwrap_or(name);
        let predicted = format!("{kernel} predicted");
        lines.push(line(predicted, Origin::Predicted, computed));
    }
    notes.push(
        "The waiting at the other numbers of CPUs is met within a few per cent of the CPUs' time, and so is \
         the shape: under the big lock nothing is gained beyond 4 CPUs. The rest of the lost speed-up is not \
         waiting but memory and caches that eight processors share, which the model leaves out."
            .to_owned(),
    );
    Exhibit {
        table,
        chart: Some(Chart::Lines {
            title: "Speed-up over one CPU, published and predicted".to_owned(),
            x_label: "CPUs".to_owned(),
            y_label: "× one CPU".to_owned(),
            y_scale: Scale::Linear,
            lines,
        }),
        notes,
    }
}

/// The prediction for a load.
fn beyond(results: &Results, load: Load) -> Exhibit {
    let mut columns = vec!["locks<".to_owned(), "hand-over<".to_owned()];
    columns.extend(CORES.map(|cores| match cores {
        1 => "1 core".to_owned(),
        _ => format!("{cores} cores"),
    }));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(
        format!(
            "{}: operations a second that the model predicts",
            load.name()
        ),
        &columns,
    );
    let (mut lines, mut notes) = (Vec::new(), Vec::new());
    for scheme in SCHEMES {
        let Some(network) = network(results, load, scheme) else {
            continue;
        };
        let alone = network.solve(1).throughput_per_ns;
        for (hand_over, network) in [
            ("for free", &network.without_hand_over()),
            ("as measured", &network),
        ] {
            let solutions = CORES.map(|cores| network.solve(cores));
            let mut cells = vec![Cell::text(scheme.name()), Cell::text(hand_over)];
            cells.extend(
                solutions
                    .iter()
                    .map(|solution| Cell::count(solution.per_second())),
            );
            table.push(Origin::Predicted, cells);
            if hand_over == "as measured" {
                let points = solutions
                    .iter()
                    .map(|solution| (solution.cores as f64, solution.throughput_per_ns / alone))
                    .collect();
                lines.push(Line {
                    name: scheme.name().to_owned(),
                    origin: Origin::Predicted,
                    tone: tone(scheme),
                    points,
                });
            }
        }
        if let Some(share) = mixed_share(results, load, scheme, &network) {
            let rates = CORES.map(|cores| network.mixed_per_ns(cores, share));
            let mut cells = vec![Cell::text(scheme.name()), Cell::text("sometimes")];
            cells.extend(rates.map(|rate| Cell::count(rate * 1e9)));
            table.push(Origin::Predicted, cells);
            notes.push(format!(
                "`{}`, hand-over `sometimes`: the lock is in a convoy for {:.0} % of the time, as its rehearsal \
                 was with as many threads as this machine has CPUs. That share is taken for all numbers of \
                 cores; it can only grow with them, so this is the better case.",
                scheme.name(),
                share * 100.0
            ));
        }
        notes.push(match network.bottleneck() {
            Some(lock) => format!(
                "`{}`: {} bounds the speed-up at {:.2}.",
                scheme.name(),
                lock.name,
                network.bound_per_ns(usize::MAX) * network.alone_ns()
            ),
            None => format!(
                "`{}`: no lock that threads share is taken exclusively, so the model sees no bound; what \
                 bounds it is what the model leaves out.",
                scheme.name()
            ),
        });
    }
    Exhibit {
        table,
        chart: Some(Chart::Lines {
            title: format!("{}: predicted speed-up, both axes logarithmic", load.name()),
            x_label: "cores".to_owned(),
            y_label: "× one core".to_owned(),
            y_scale: Scale::Logarithmic,
            lines,
        }),
        notes,
    }
}

/// The share of the time in a convoy, where the lock has one.
fn mixed_share(
    results: &Results,
    load: Load,
    scheme: LockingScheme,
    network: &Network,
) -> Option<f64> {
    let is_sleeping = scheme == LockingScheme::BigSleep && affinity::cpus() > 1;
    is_sleeping
        .then(|| convoy_share(results, load, network, affinity::cpus()))
        .flatten()
}

/// The prediction against this machine.
fn against_here(results: &Results) -> Exhibit {
    let cpus = affinity::cpus();
    let mut table = Table::new(
        format!("Predicted and measured on this machine's {cpus} CPUs"),
        &[
            "load<",
            "locks<",
            "threads",
            "convoy, %",
            "predicted/s",
            "measured/s",
            "measured / predicted",
        ],
    );
    for load in Load::ALL {
        for scheme in SCHEMES {
            let Some(network) = network(results, load, scheme) else {
                continue;
            };
            for threads in THREADS {
                let share = match scheme {
                    LockingScheme::BigSleep if threads > 1 => {
                        convoy_share(results, load, &network, threads)
                    }
                    _ => None,
                };
                let predicted = 1e9 * network.mixed_per_ns(cores(threads), share.unwrap_or(1.0));
                let measured = results.per_second(&load.key(scheme, threads));
                table.push(
                    Origin::Measured,
                    vec![
                        Cell::text(load.name()),
                        Cell::text(scheme.name()),
                        Cell::count(threads as f64),
                        percent(share),
                        Cell::count(predicted),
                        Cell::maybe(measured, 0),
                        Cell::maybe(ratio(measured, Some(predicted)), 2),
                    ],
                );
            }
        }
    }
    Exhibit {
        table,
        chart: None,
        notes: vec![
            "One thread is the input, so its ratio is 1. More threads than CPUs are predicted as if there \
             were as many as CPUs: a thread without a CPU adds nothing."
                .to_owned(),
            "Below 1: what the model leaves out. A lock's cache line and the data under it have to come from \
             the other CPU, so holds grow; a holder can be preempted."
                .to_owned(),
            "`big-sleep`: a sleeping lock that is handed to the longest waiter is in one of two states. In a \
             convoy each visit costs a wake-up, since whoever gave the lock away comes back before the next one \
             has been scheduled; that is the network with hand-overs. Without one, the threads hardly meet: the \
             scheduler put a woken thread on the CPU of its waker, and they take turns there. For what share of \
             the time it is a convoy no property of the load tells; it was tried with the lock alone, held as \
             long and as often as the load holds it, in each round. Left out: that the two states last, so that a \
             short run can be all of one."
                .to_owned(),
        ],
    }
}

/// What the model was fed with.
fn inputs(results: &Results) -> Exhibit {
    let mut table = Table::new(
        "What the model is fed with",
        &[
            "load<",
            "locks<",
            "class<",
            "locks of the class",
            "visits per operation",
            "held, ns per visit",
            "share of the operation, %",
        ],
    );
    for load in Load::ALL {
        for scheme in SCHEMES {
            let Some(network) = network(results, load, scheme) else {
                continue;
            };
            let alone_ns = network.alone_ns();
            let rows = network.stations.iter().map(|station| {
                let share = station.demand_ns() / alone_ns * 100.0;
                vec![
                    Cell::text(load.name()),
                    Cell::text(scheme.name()),
                    Cell::text(station.name.as_str()),
                    Cell::count(f64::from(station.locks)),
                    Cell::number(station.visits, 2),
                    Cell::count(station.hold_ns),
                    Cell::number(share, 1),
                ]
            });
            rows.for_each(|cells| table.push(Origin::Measured, cells));
            table.push(
                Origin::Measured,
                vec![
                    Cell::text(load.name()),
                    Cell::text(scheme.name()),
                    Cell::text("outside of shared locks"),
                    Cell::missing(),
                    Cell::missing(),
                    Cell::count(network.delay_ns),
                    Cell::number(network.delay_ns / alone_ns * 100.0, 1),
                ],
            );
        }
    }
    Exhibit {
        table,
        chart: None,
        notes: vec![
            "Classes whose locks each thread or CPU has for itself are part of the time outside, as are \
             shared acquisitions."
                .to_owned(),
        ],
    }
}
