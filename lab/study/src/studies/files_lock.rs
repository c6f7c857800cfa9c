//! "fs: scale files_lock": on which CPU open files are taken off their list, and where the CPUs'
//! time goes.

use finefs::LockingScheme;

use super::Options;
use super::experiment::{Experiment, Key, Results, Sample};
use super::published::files_lock::{COMPILE, COMPILE_SOURCE, REMOVALS, REMOVALS_SOURCE};
use super::ratios::percent;
use super::{bkl_removal, kill_bkl};
use crate::page::{Cell, Exhibit, Origin, Section, Table};
use finefs_workloads::FileList;
use finefs_workloads::affinity;

/// Clients of the published dbench.
const CLIENTS: usize = 64;

const FILE_LIST: &str = "file-list";

/// The schemes whose use of the CPUs is shown.
const TIMED: [LockingScheme; 2] = [LockingScheme::BigSpin, LockingScheme::Fine];

fn file_list(options: &Options) -> Key {
    Key::new(FILE_LIST, options.place.own(), affinity::cpus(), 16)
}

/// Loads whose open files are looked at, each with its name.
fn loads(options: &Options) -> Vec<(&'static str, Key)> {
    let cpus = affinity::cpus();
    let post_mark = options.threads.unwrap_or(8);
    vec![
        (
            "PostMark",
            bkl_removal::key(options.place.own(), cpus, post_mark),
        ),
        ("dbench 64", kill_bkl::key(options.place.own(), CLIENTS)),
        ("file-list, 16 threads", file_list(options)),
    ]
}

pub(super) fn experiments(options: &Options) -> Vec<Experiment> {
    let cpus = affinity::cpus();
    let post_mark = options.threads.unwrap_or(8);
    let mut experiments = Vec::new();
    if options.place.tells_removals() {
        experiments.push(bkl_removal::experiment(bkl_removal::key(
            options.place.own(),
            cpus,
            post_mark,
        )));
        let file_list = file_list(options);
        experiments.push(Experiment::new(file_list, FileList::default(), |_| {
            Vec::new()
        }));
    }
    if kill_bkl::is_possible() {
        for scheme in options.place.subjects(&TIMED) {
            experiments.push(kill_bkl::experiment(kill_bkl::key(scheme, CLIENTS)));
        }
    }
    experiments
}

pub(super) fn section(options: &Options, results: &Results) -> Section {
    let mut paragraphs = vec![
        format!(
            "Published: {REMOVALS_SOURCE}; and {}, {}.",
            COMPILE_SOURCE.machine, COMPILE_SOURCE.setup
        ),
        "finefs keeps its open files as the patch did: on a list for each CPU, under a local/global \
         lock. It counts each removal, and whether the remover ran on the CPU, or the node, of the list."
            .to_owned(),
    ];
    if !options.place.tells_removals() {
        paragraphs.push(
            "Removals are not measured here: only a file system in this process tells them. User and system \
             time are this process's, not those of a server behind the mount."
                .to_owned(),
        );
    }
    Section {
        id: "files-lock",
        title: "2010: scaling files_lock".to_owned(),
        paragraphs,
        exhibits: vec![removals(options, results), times(options, results)],
    }
}

fn removals(options: &Options, results: &Results) -> Exhibit {
    let mut table = Table::new(
        "Removals of open files: by the CPU and by the node that had added them",
        &["load<", "removals", "by the CPU", "%", "by the node", "%"],
    );
    for row in &REMOVALS {
        table.push(
            Origin::Published,
            vec![
                Cell::text(row.load),
                Cell::count(row.locks as f64),
                Cell::count(row.cpu_hits as f64),
                Cell::number(row.cpu_hits_percent, 1),
                Cell::count(row.node_hits as f64),
                Cell::number(row.node_hits_percent, 1),
            ],
        );
    }
    for (name, key) in loads(options) {
        let Some(found) = results.last(&key).and_then(|sample| sample.removals) else {
            continue;
        };
        let share = |part: u64| Some(part as f64 / found.removals.max(1) as f64);
        table.push(
            Origin::Measured,
            vec![
                Cell::text(name),
                Cell::count(found.removals as f64),
                Cell::count(found.removals_on_cpu as f64),
                percent(share(found.removals_on_cpu)),
                Cell::count(found.removals_on_node as f64),
                percent(share(found.removals_on_node)),
            ],
        );
    }
    Exhibit {
        table,
        chart: None,
        notes: vec![
            "The shares carry over: they tell how often the scheduler moves a thread between opening and \
             closing a file. Misses grow with the time that files stay open (booting) and with threads that \
             are more than CPUs. A client of dbench has 4.7 files open on average and 23 at most, and each of \
             them is a miss when the client moves."
                .to_owned(),
        ],
    }
}

fn times(options: &Options, results: &Results) -> Exhibit {
    let mut table = Table::new(
        "Where the CPUs' time goes: a compile there, dbench with 64 clients here",
        &[
            "load and locks<",
            "throughput",
            "user, %",
            "system, %",
            "idle, %",
            "I/O wait, %",
        ],
    );
    for row in &COMPILE {
        table.push(
            Origin::Published,
            vec![
                Cell::text(format!("compile, {}", row.kernel)),
                Cell::number(row.throughput, 1),
                Cell::number(row.user_percent, 2),
                Cell::number(row.system_percent, 2),
                Cell::number(row.idle_percent, 2),
                Cell::number(row.io_wait_percent, 2),
            ],
        );
    }
    for scheme in options.place.subjects(&TIMED) {
        let key = kill_bkl::key(scheme, CLIENTS);
        let share = |of: fn(&Sample) -> f64| results.median(&key, of);
        let Some(rate) = share(kill_bkl::mb_per_s) else {
            continue;
        };
        table.push(
            Origin::Measured,
            vec![
                Cell::text(format!("dbench, {} (MB/s)", scheme.name())),
                Cell::number(rate, 1),
                percent(share(|sample| sample.user_share)),
                percent(share(|sample| sample.system_share)),
                percent(share(|sample| {
                    1.0 - sample.user_share - sample.system_share
                })),
                Cell::missing(),
            ],
        );
    }
    Exhibit {
        table,
        chart: None,
        notes: vec![
            "The patch saved system time: the kernel no longer spun for files_lock. In finefs the file \
             system is the program, so spinning for a lock shows as user time; sleeping shows as idle and \
             its wake-ups as system time. Idle is what this process left of the CPUs, others' work included; \
             a compile itself cannot run here."
                .to_owned(),
        ],
    }
}
