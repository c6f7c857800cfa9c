//! Red Hat's bug 519126 over NFS, as it was: the files lie on a server, and the big lock stands
//! around the client's file operations, and around the server's.
//!
//! Client and server are in this process, on one machine's own network. The client is
//! [`Files`]; the server is `finefs serve`'s, over memory.

use std::net::SocketAddr;
use std::sync::Arc;

use finefs::front_end::namespace::Namespace;
use finefs::{LockingScheme, MemoryOptions};
use finefs_locks::BigLockKind;
use finefs_nfs::{ExportOptions, Server, Squash};
use finefs_nfs_client::files::{Consistency, Files};
use finefs_workloads::targets::Errno;
use finefs_workloads::{During, OpenSpeed, PosixLock, Result, Workload};

use super::Options;
use super::experiment::{Experiment, Holds, Key, Results};
use super::place::{Place, Subject};
use super::published::bkl_semaphore::{
    FILES, Run, SEMAPHORE_ON_1_CPU, SEMAPHORE_ON_8_CPUS, SOURCE, THREADS,
};
use super::ratios::{contention, lock_table, percent, ratio};
use crate::page::{Cell, Exhibit, Origin, Section, Table};
use finefs_workloads::affinity;

const REMEMBERED: &str = "openspeed over NFS, nocto";
const ASKED: &str = "openspeed over NFS";
const LOCKS: &str = "POSIX locks over NFS";
/// What a served file system takes at most; the loads' files are small.
const MEMORY_BYTES: u64 = 64 << 20;

const SCHEMES: [LockingScheme; 3] = [
    LockingScheme::BigSleep,
    LockingScheme::BigSpin,
    LockingScheme::Fine,
];

/// Those of the report among them.
fn thread_counts(options: &Options) -> Vec<usize> {
    match options.threads {
        Some(threads) => vec![threads],
        None => vec![1, 2, THREADS as usize, 8, 16],
    }
}

/// Those whose locks are counted, and that run on one CPU as well.
fn usual(options: &Options) -> usize {
    options.threads.unwrap_or(THREADS as usize)
}

pub(super) fn experiments(options: &Options) -> Vec<Experiment> {
    // A mount has its own client and server.
    if matches!(options.place, Place::Directory(_)) {
        return Vec::new();
    }
    let mut experiments = Vec::new();
    for scheme in SCHEMES {
        for load in [REMEMBERED, ASKED] {
            for key in keys(options, load, scheme) {
                experiments.push(experiment(key, OpenSpeed { files: FILES }));
            }
        }
        let key = Key::new(LOCKS, scheme, affinity::cpus(), usual(options));
        experiments.extend(key.both().map(|key| experiment(key, PosixLock::default())));
    }
    experiments
}

fn keys(options: &Options, load: &'static str, scheme: LockingScheme) -> Vec<Key> {
    let all = affinity::cpus();
    let threads = thread_counts(options).into_iter();
    let mut keys: Vec<Key> = threads
        .map(|threads| Key::new(load, scheme, all, threads))
        .collect();
    keys.push(Key::new(load, scheme, all, usual(options)).counted());
    if all > 1 {
        keys.push(Key::new(load, scheme, 1, usual(options)));
    }
    keys
}

fn experiment<W: Workload + 'static>(key: Key, workload: W) -> Experiment {
    Experiment::on_target(key, workload, serve)
}

/// A server and its client.
struct Served {
    files: Files,
    server: Server,
    namespace: Arc<Namespace>,
}

impl Holds for Served {
    type Target = Files;

    fn target(&self) -> &Files {
        &self.files
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.end();
        // It is of memory, and ends with everything in it.
        let _ = self.namespace.shut_down();
    }
}

fn serve(key: &Key) -> Result<Served> {
    let scheme = match key.subject {
        Subject::Scheme(scheme) => scheme,
        Subject::Mounted(_) => LockingScheme::Fine,
    };
    let namespace = MemoryOptions::new()
        .locking(scheme)
        .open_namespace(MEMORY_BYTES)
        .map_err(|error| Errno::from_raw_os_error(error.errno()))
        .during("open", "a file system in memory")?;
    let export = ExportOptions {
        squash: Squash::None,
        ..ExportOptions::default()
    };
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(Arc::clone(&namespace), any, export)
        .map_err(failed)
        .during("listen", "this machine")?;
    let consistency = match key.load {
        REMEMBERED => Consistency::Remembered,
        _ => Consistency::CloseToOpen,
    };
    let big_lock = match scheme {
        LockingScheme::BigSpin => Some(BigLockKind::Spinning),
        LockingScheme::BigSleep => Some(BigLockKind::Sleeping),
        _ => None,
    };
    let files = Files::mount(server.address(), consistency, big_lock)
        .map_err(failed)
        .during("mount", "this machine")?;
    Ok(Served {
        files,
        server,
        namespace,
    })
}

pub(super) fn section(options: &Options, results: &Results) -> Section {
    let is_left_out = matches!(options.place, Place::Directory(_));
    let what = match is_left_out {
        true => {
            "Not in a directory: client and server are finefs's own, in one process.".to_owned()
        }
        false => format!(
            "Here: up to 16 threads open and close one of {FILES} files at random, through an NFS client in \
             this process, of a server in this process, over the loopback network. The lock of the row stands \
             around the client's file operations, free while a call waits for its reply, and around the \
             server's operations."
        ),
    };
    let mut exhibits = Vec::new();
    if !is_left_out {
        let notes = vec![
            "With nocto an open asks the server nothing, as in the report: what is measured is the client's \
             lock. Else an open is LOOKUP, ACCESS and GETATTR."
                .to_owned(),
        ];
        exhibits.push(Exhibit {
            table: table(options, results, REMEMBERED, true),
            chart: None,
            notes,
        });
        exhibits.push(Exhibit {
            table: table(options, results, ASKED, false),
            chart: None,
            notes: Vec::new(),
        });
        let keys = SCHEMES.map(|scheme| Key::new(LOCKS, scheme, affinity::cpus(), usual(options)));
        exhibits.push(Exhibit {
            table: lock_table(
                "POSIX locks by the lock manager: byte ranges of one file locked and unlocked, a second",
                "locks and unlocks/s",
                results,
                keys,
            ),
            chart: None,
            notes: Vec::new(),
        });
    }
    Section {
        id: "over-nfs",
        title: "2009: the same over NFS".to_owned(),
        paragraphs: vec![format!("Published: {SOURCE}."), what],
        exhibits,
    }
}

fn table(options: &Options, results: &Results, load: &'static str, has_published: bool) -> Table {
    let mut table = Table::new(
        format!("{load}: opens a second of all threads"),
        &[
            "locks<",
            "CPUs",
            "threads",
            "opens/s",
            "/ 1 CPU",
            "contention<",
            "waiting, %",
        ],
    );
    if has_published {
        for run in [&SEMAPHORE_ON_8_CPUS, &SEMAPHORE_ON_1_CPU] {
            table.push(Origin::Published, published(run));
        }
    }
    for scheme in SCHEMES {
        let one = results.per_second(&Key::new(load, scheme, 1, usual(options)));
        let mut keys = keys(options, load, scheme);
        keys.retain(|key| !key.is_counted);
        for key in keys {
            let rate = results.per_second(&key);
            let is_usual = key.threads == usual(options);
            table.push(
                Origin::Measured,
                vec![
                    Cell::text(scheme.name()),
                    Cell::count(key.cpus as f64),
                    Cell::count(key.threads as f64),
                    Cell::maybe(rate, 0),
                    Cell::maybe(ratio(rate, one).filter(|_| is_usual), 2),
                    contention(results, &key),
                    percent(results.median(&key, |sample| sample.waiting_share)),
                ],
            );
        }
    }
    table
}

fn published(run: &Run) -> Vec<Cell> {
    let total = run.opens_per_s_total();
    let one = SEMAPHORE_ON_1_CPU.opens_per_s_total();
    vec![
        Cell::text(run.kernel),
        Cell::count(if *run == SEMAPHORE_ON_1_CPU { 1.0 } else { 8.0 }),
        Cell::count(f64::from(THREADS)),
        Cell::count(total),
        Cell::maybe(Some(total / one), 2),
        Cell::missing(),
        Cell::missing(),
    ]
}
