//! Threads at once on one namespace, while another one syncs: random operations, mail, clients of a
//! file server, records, large files.
//!
//! Each thread has a directory of its own and names of its own in a shared one, and its own model
//! and history. Nobody else touches what it made, so the oracle for one thread holds for each of
//! them: only how far each had come may differ. Which thread runs when is up to the machine; the
//! operations are the seed's, and so is how many threads work on a commit, and whether one commits
//! at times beside who syncs ([`Committing`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use finefs_namespace::{AllocateMode, Namespace, RenameMode};
use finefs_sim::{Recorded, RecordingDevice};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::base::{Base, Committing};
use super::judge::{Effort, begun, mark_synced};
use super::oracle::{History, Synced};
use super::report::Report;
use super::single::{self, Lie};
use super::step::{Path, Persist, Step, find, with};
use super::{SHARED_LOG, mix};
use super::{dbench, shared_log};

/// How much runs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Threads, at most [`THREADS_MAX`].
    pub threads: usize,
    /// Operations of each that succeed.
    pub operations: usize,
    /// What they do.
    pub work: Work,
}

/// What threads do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// All operations, by chance.
    Anything,
    /// What a mail server does, after PostMark: small files are made, appended to and removed.
    Mail,
    /// What clients of a file server do: dbench's load.
    Dbench,
    /// After fio: blocks of a file are overwritten at random, and all append records to one file.
    Records,
    /// A file grows beyond the size at which its data goes out before the commit, is changed, cut,
    /// removed, and another made where it was.
    Large,
}

/// The blocks that are overwritten at random.
const OVERWRITTEN_BYTES: usize = 4096;
const OVERWRITTEN_BLOCKS: u64 = 16;

/// Appends are held in memory up to 64 KiB.
const LARGE_APPENDS: std::ops::Range<usize> = 30_000..64 << 10;
/// Some way beyond 1 MiB, where a piece goes out.
const LARGE_SIZES: std::ops::Range<u64> = 1_060_000..1_600_000;

/// Most threads of a run.
pub const THREADS_MAX: usize = 8;

/// What there is before: the shared directory with the shared log, and a directory for each thread.
pub fn setup() -> Vec<Step> {
    let own = (0..THREADS_MAX).map(|thread| format!("t{thread}"));
    std::iter::once("shared".to_owned())
        .chain(own)
        .map(Step::MakeDirectory)
        .chain([Step::Create(SHARED_LOG.to_owned())])
        .collect()
}

/// Runs threads over the base, and judges what crashes leave.
pub fn judge_run(base: &Base, shape: Shape, effort: &Effort, lie: Lie, seed: u64) -> Report {
    let name = format!("{} {shape:?}, seed {seed}", base.profile.name);
    single::judge_recorded(base, effort, lie, seed, &name, run(base, shape, seed))
}

fn run(base: &Base, shape: Shape, seed: u64) -> Result<(Recorded, Vec<History>), String> {
    let device = Arc::new(RecordingDevice::over(base.image.clone()));
    let opened = base.open(&device, Committing::of_seed(mix(seed)))?;
    let ns = &opened.ns;
    let done: Vec<AtomicUsize> = (0..shape.threads).map(|_| AtomicUsize::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..shape.threads)
            .map(|thread| {
                let worker = Worker {
                    ns,
                    device: &device,
                    thread,
                    done: &done[thread],
                    random: StdRng::seed_from_u64(mix(seed ^ mix(thread as u64))),
                    history: History::new(&base.model, mine(thread)),
                    model: base.model.clone(),
                };
                scope.spawn(move || worker.work(shape))
            })
            .collect();
        let syncer = scope.spawn(|| sync_at_times(ns, &device, &done, &is_over, shape.work));
        let outcomes: Vec<_> = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("a panic".to_owned())))
            .collect();
        is_over.store(true, Ordering::SeqCst);
        let synced = syncer.join().unwrap_or_else(|_| Err("a panic".to_owned()));
        synced.and(
            outcomes
                .into_iter()
                .collect::<Result<Vec<History>, String>>(),
        )
    })?;
    opened.ns.shut_down().map_err(|error| error.to_string())?;
    let mut outcomes = outcomes;
    for (thread, history) in outcomes.iter_mut().enumerate() {
        mark_synced(&device, thread, history.sync(&Persist::All));
    }
    drop(opened);
    Ok((device.take_recorded(), outcomes))
}

/// The paths that are a thread's.
fn mine(thread: usize) -> Vec<String> {
    vec![format!("t{thread}"), format!("shared/t{thread}-")]
}

/// Syncs everything again and again; what had returned before is durable after.
fn sync_at_times(
    ns: &Namespace,
    device: &RecordingDevice,
    done: &[AtomicUsize],
    is_over: &AtomicBool,
    work: Work,
) -> Result<(), String> {
    let pause = match work {
        // Most of a piece is to wait in memory until its end.
        Work::Large => Duration::from_millis(20),
        _ => Duration::from_micros(300),
    };
    while !is_over.load(Ordering::SeqCst) {
        std::thread::sleep(pause);
        let counts: Vec<usize> = done
            .iter()
            .map(|done| done.load(Ordering::SeqCst))
            .collect();
        ns.sync().map_err(|error| error.to_string())?;
        for (thread, operations) in counts.into_iter().enumerate() {
            let synced = Synced {
                operations,
                whole: operations,
                files: 0,
            };
            mark_synced(device, thread, synced);
        }
    }
    Ok(())
}

struct Worker<'a> {
    ns: &'a Namespace,
    device: &'a RecordingDevice,
    thread: usize,
    done: &'a AtomicUsize,
    random: StdRng,
    history: History,
    model: crate::Model,
}

impl Worker<'_> {
    fn work(mut self, shape: Shape) -> Result<History, String> {
        if shape.work == Work::Dbench {
            let (load, _) = dbench::load();
            let home = format!("t{}", self.thread);
            let place = self.random.random();
            for (step, persist) in dbench::script(load, &home, &self.model, place, shape.operations)
            {
                self.step(&step)?;
                self.persist(persist)?;
            }
            return Ok(self.history);
        }
        while self.history.moments.len() <= shape.operations {
            let step = match shape.work {
                Work::Mail => self.mail(),
                Work::Large => self.large(),
                Work::Records => match self.random.random_range(0..3) {
                    0 => self.overwrite(),
                    _ => {
                        self.append_record()?;
                        continue;
                    }
                },
                _ => self.anything(),
            };
            if step.on_model(&mut self.model.clone()).is_err() {
                continue;
            }
            self.step(&step)?;
            let persist = self.choose_persist(&step, shape.work);
            self.persist(persist)?;
        }
        Ok(self.history)
    }

    /// Does a step that can be done.
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let count = self.history.moments.len() - 1;
        self.device.mark(begun(self.thread, count));
        let change = step.change(self.ns, &self.model);
        step.on_namespace(self.ns)
            .map_err(|error| format!("thread {}, {step:?}: {error}", self.thread))?;
        step.on_model(&mut self.model)
            .map_err(|errors| format!("thread {}, {step:?}: {errors:?}", self.thread))?;
        self.history.push(&self.model, change);
        self.done.store(count + 1, Ordering::SeqCst);
        Ok(())
    }

    fn persist(&mut self, persist: Option<Persist>) -> Result<(), String> {
        if let Some(persist) = persist {
            persist
                .on_namespace(self.ns)
                .map_err(|error| format!("thread {}, {persist:?}: {error}", self.thread))?;
            let synced = self.history.sync(&persist);
            mark_synced(self.device, self.thread, synced);
        }
        Ok(())
    }

    fn choose_persist(&mut self, step: &Step, work: Work) -> Option<Persist> {
        let path = step.path();
        let one_in = match work {
            Work::Large => 80,
            _ => 20,
        };
        match self.random.random_range(0..one_in) {
            0 => Some(Persist::All),
            1 if work == Work::Records => Some(Persist::Data(path.into())),
            1..4 if find(&self.model, path).is_some() => Some(Persist::One(path.into())),
            4 => Some(Persist::One(super::step::parent(path).into())),
            _ => None,
        }
    }

    /// Appends the next record to the shared log.
    fn append_record(&mut self) -> Result<(), String> {
        let count = self.history.moments.len() - 1;
        let bytes = shared_log::record(self.thread, self.history.appended());
        self.device.mark(begun(self.thread, count));
        with(self.ns, SHARED_LOG, |ino| self.ns.append(ino, &bytes))
            .map_err(|error| format!("thread {}, append: {error}", self.thread))?;
        self.history.push_record(&self.model);
        self.done.store(count + 1, Ordering::SeqCst);
        let path = || SHARED_LOG.to_owned();
        let persist = match self.random.random_range(0..16) {
            0 => Some(Persist::One(path())),
            1 => Some(Persist::Data(path())),
            _ => None,
        };
        self.persist(persist)
    }

    /// A block of the thread's file is written, most often over what it held.
    fn overwrite(&mut self) -> Step {
        let at = format!("t{}/blocks", self.thread);
        if find(&self.model, &at).is_none() {
            return Step::Create(at);
        }
        let block = self.random.random_range(0..OVERWRITTEN_BLOCKS);
        Step::Write {
            at,
            offset: block * OVERWRITTEN_BYTES as u64,
            length: OVERWRITTEN_BYTES,
            fill: self.random.random(),
        }
    }

    fn path(&mut self, names: usize) -> Path {
        let thread = self.thread;
        let name = self.random.random_range(0..names);
        match self.random.random_range(0..8) {
            0..4 => format!("t{thread}/f{name}"),
            4..7 => format!("shared/t{thread}-f{name}"),
            _ => format!("t{thread}/d{}/f{name}", name % 2),
        }
    }

    /// An operation that mostly can be done.
    fn anything(&mut self) -> Step {
        let (at, to) = (self.path(5), self.path(5));
        let directory = format!("t{}/d{}", self.thread, self.random.random_range(0..2));
        let fill = self.random.random();
        let length = self.random.random_range(1..6000);
        match self.random.random_range(0..24) {
            0..4 => Step::Create(at),
            4 => Step::MakeDirectory(directory),
            5 => Step::RemoveDirectory(directory),
            6 => Step::Symlink {
                at,
                target_length: self.random.random_range(1..120),
            },
            7 => Step::Link { from: at, to },
            8..10 => Step::Unlink(at),
            10..12 => Step::Rename {
                from: at,
                to,
                mode: match self.random.random_range(0..4) {
                    0 => RenameMode::Exchange,
                    _ => RenameMode::Replace,
                },
            },
            12..15 => Step::Write {
                at,
                offset: self.random.random_range(0..9000),
                length,
                fill,
            },
            15..17 => Step::Append { at, length, fill },
            17 => Step::Truncate {
                at,
                size: self.random.random_range(0..9000),
            },
            18 => Step::Allocate {
                at,
                mode: match self.random.random_range(0..3) {
                    0 => AllocateMode::PunchHole,
                    1 => AllocateMode::ZeroRange,
                    _ => AllocateMode::Extend,
                },
                offset: self.random.random_range(0..9000),
                length: length as u64,
            },
            19 => Step::SetXattr {
                at,
                name: "user.a",
                length: self.random.random_range(0..300),
                fill,
            },
            20 => Step::RemoveXattr { at, name: "user.a" },
            21..23 => Step::Defragment(at),
            _ => Step::Chmod {
                at,
                permissions: 0o600 | self.random.random_range(0..0o100),
            },
        }
    }

    fn mail(&mut self) -> Step {
        let at = self.path(20);
        let fill = self.random.random();
        match self.random.random_range(0..10) {
            0 => Step::MakeDirectory(format!("t{}/d{}", self.thread, fill % 2)),
            1..4 => Step::Create(at),
            4..8 => Step::Append {
                at,
                length: self.random.random_range(500..5000),
                fill,
            },
            _ => Step::Unlink(at),
        }
    }

    /// Mostly an append to the thread's large file.
    fn large(&mut self) -> Step {
        let at = format!("t{}/large", self.thread);
        let Some(id) = find(&self.model, &at) else {
            return Step::Create(at);
        };
        let size = self.model.node(id).map_or(0, |node| node.data.len() as u64);
        let fill = self.random.random();
        if size > self.random.random_range(LARGE_SIZES) {
            return match self.random.random_range(0..3) {
                0 => Step::Truncate {
                    at,
                    size: self.random.random_range(0..size),
                },
                _ => Step::Unlink(at),
            };
        }
        match self.random.random_range(0..20) {
            0..2 => Step::Write {
                at,
                offset: self.random.random_range(0..=size),
                length: self.random.random_range(1..20_000),
                fill,
            },
            2 => Step::Allocate {
                at,
                mode: AllocateMode::PunchHole,
                offset: self.random.random_range(0..=size),
                length: self.random.random_range(1..200_000),
            },
            3 => Step::Defragment(at),
            // Its sync commits what there is of the large file.
            4 => match self.random.random() {
                true => Step::Create(format!("shared/t{}-small", self.thread)),
                false => Step::Append {
                    at: format!("shared/t{}-small", self.thread),
                    length: 100,
                    fill,
                },
            },
            _ => Step::Append {
                at,
                length: self.random.random_range(LARGE_APPENDS),
                fill,
            },
        }
    }
}
