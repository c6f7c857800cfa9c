//! Linearizability: threads run a few operations at once, and some order of all of them, in which
//! each stands between its call and its return, must explain what they gave.
//!
//! # Mechanism
//! [`record`] runs threads over one directory and notes of each operation when it was called, when
//! it returned (by one counter) and what it gave. [`explain`] looks for the order, by depth-first
//! search: an operation may come next if none that is left had returned before it was called, and
//! the reference model gives what it gave. Whatever threads can learn of each other by their
//! operations is in those times, so an order that is found is one that no program could refute.
//! One thing is looser: a link count is changed a moment before the name that it counts, as in
//! Linux, so it may differ by the operations on names that ran beside the look at it.
//!
//! # References
//! Herlihy and Wing, "Linearizability", TOPLAS 1990; Wing and Gong, "Testing and verifying
//! concurrent objects", JPDC 1993.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use finefs_namespace::{
    Caller, Error, FileKind, Geometry, Ino, Namespace, RenameMode, SetAttributes,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::model::{Id, Model, New};

mod mount;

pub use mount::record_in_mount;

/// Directories of a history: its root, and two in it.
const DIRECTORIES: usize = 3;
/// Names of those two, and another one.
const NAMES: [&str; 3] = ["d", "e", "f"];
/// The file that all threads use.
const FILE: &str = "file";
/// It is so long at first, and its data lies below twice as much.
const FILE_BYTES: usize = 6000;
/// A size that was not looked at.
const UNSEEN: u64 = u64::MAX;
/// A search that has tried so much more than there is to do gives up.
const TRIES_MAX: usize = 1_000_000;

/// A directory of the history and a name.
type At = (usize, &'static str);

/// An operation on the directories, or on the file.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "they are named as the namespace's functions")]
pub enum Operation {
    CreateFile(At),
    MakeDirectory(At),
    RemoveFile(At),
    RemoveDirectory(At),
    Rename(At, At, RenameMode),
    /// Of the file.
    MakeLink(At),
    Lookup(At),
    /// The file's size and links.
    Attributes,
    Read(u64, usize),
    Write(u64, usize, u8),
    Append(usize, u8),
    Truncate(u64),
}

/// What an operation gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Given {
    /// Nothing but that it was done.
    Done,
    /// An inode.
    Inode(Ino),
    /// What was read.
    Data(Vec<u8>),
    /// Where something was appended, or how much was written.
    Number(u64),
    /// Size and links.
    Shown(u64, u32),
    /// An error.
    Failed(Error),
}

/// One operation of a history.
#[derive(Clone, Debug)]
pub struct Event {
    /// What was done.
    pub operation: Operation,
    /// What it gave.
    pub given: Given,
    /// When it was called.
    pub called: u64,
    /// When it returned.
    pub returned: u64,
}

/// What was done, by thread and in the order in which it was.
#[derive(Clone, Debug)]
pub struct History {
    /// One list for each thread.
    pub threads: Vec<Vec<Event>>,
    /// What there was before.
    start: State,
    /// They were system calls.
    in_mount: bool,
}

impl std::fmt::Display for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (thread, events) in self.threads.iter().enumerate() {
            for event in events {
                let given = match &event.given {
                    // Runs of one byte: how long, and which.
                    Given::Data(data) => {
                        let runs = data.chunk_by(|one, other| one == other);
                        let runs: Vec<_> = runs.map(|run| (run.len(), run[0])).collect();
                        format!("{runs:?}")
                    }
                    given => format!("{given:?}"),
                };
                let (called, returned) = (event.called, event.returned);
                writeln!(
                    f,
                    "{thread}: {called}-{returned} {:?}: {given}",
                    event.operation
                )?;
            }
        }
        Ok(())
    }
}

/// The model, with the number of each of its inodes.
#[derive(Clone, Debug)]
struct State {
    model: Model,
    directories: [Id; DIRECTORIES],
    file: Id,
    inodes: HashMap<Id, Ino>,
}

/// Random operations.
fn operations(seed: u64, count: usize) -> Vec<Operation> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let mut at = || {
            let directory = random.random_range(0..DIRECTORIES);
            (directory, NAMES[random.random_range(0..NAMES.len())])
        };
        let (one, two) = (at(), at());
        let offset = random.random_range(0..FILE_BYTES as u64);
        let length = random.random_range(1..FILE_BYTES);
        let fill = random.random_range(1..=255);
        let mode = match random.random_range(0..4) {
            0 => RenameMode::Exchange,
            1 => RenameMode::NoReplace,
            _ => RenameMode::Replace,
        };
        all.push(match random.random_range(0..16) {
            0 | 1 => Operation::CreateFile(one),
            2 => Operation::MakeDirectory(one),
            3 => Operation::RemoveFile(one),
            4 => Operation::RemoveDirectory(one),
            5..=7 => Operation::Rename(one, two, mode),
            8 => Operation::MakeLink(one),
            9 | 10 => Operation::Lookup(one),
            11 => Operation::Attributes,
            12 => Operation::Read(offset, length),
            13 => Operation::Write(offset, length, fill),
            14 => Operation::Append(length / 4, fill),
            _ => Operation::Truncate(2 * offset),
        });
    }
    all
}

/// Where a history happens.
trait Place: Sync {
    /// Does it, as this thread of the history.
    fn perform(&self, thread: usize, operation: &Operation) -> Given;
}

/// In process.
struct InProcess<'n> {
    namespace: &'n Namespace,
    user: Caller,
    directories: [Ino; DIRECTORIES],
    file: Ino,
}

impl Place for InProcess<'_> {
    fn perform(&self, _thread: usize, operation: &Operation) -> Given {
        self.try_to(operation).unwrap_or_else(Given::Failed)
    }
}

impl InProcess<'_> {
    fn at(&self, at: At) -> (Ino, &'static [u8]) {
        (self.directories[at.0], at.1.as_bytes())
    }

    fn try_to(&self, operation: &Operation) -> Result<Given, Error> {
        let (namespace, user, file) = (self.namespace, &self.user, self.file);
        let held = |ino: Ino| {
            namespace.forget(ino, 1);
            Given::Inode(ino)
        };
        let name = |at: At| self.at(at);
        Ok(match *operation {
            Operation::CreateFile(at) => {
                let (dir, name) = name(at);
                held(namespace.create_file(user, dir, name, 0o644)?.ino)
            }
            Operation::MakeDirectory(at) => {
                let (dir, name) = name(at);
                held(namespace.make_directory(user, dir, name, 0o755)?.ino)
            }
            Operation::RemoveFile(at) => {
                let (dir, name) = name(at);
                namespace.remove_file(user, dir, name)?;
                Given::Done
            }
            Operation::RemoveDirectory(at) => {
                let (dir, name) = name(at);
                namespace.remove_directory(user, dir, name)?;
                Given::Done
            }
            Operation::Rename(from, to, mode) => {
                namespace.rename(user, name(from), name(to), mode)?;
                Given::Done
            }
            Operation::MakeLink(at) => {
                let (dir, name) = name(at);
                held(namespace.make_link(user, file, dir, name)?.ino)
            }
            Operation::Lookup(at) => {
                let (dir, name) = name(at);
                held(namespace.lookup(user, dir, name)?.ino)
            }
            Operation::Attributes => {
                let shown = namespace.attributes(file)?;
                Given::Shown(shown.size_bytes, shown.link_count)
            }
            Operation::Read(offset, length) => {
                let mut data = vec![0; length];
                let read = namespace.read(file, offset, &mut data)?;
                data.truncate(read);
                Given::Data(data)
            }
            Operation::Write(offset, length, fill) => {
                let written = namespace.write(file, offset, &vec![fill; length])?;
                Given::Number(written as u64)
            }
            Operation::Append(length, fill) => {
                Given::Number(namespace.append(file, &vec![fill; length])?)
            }
            Operation::Truncate(size_bytes) => {
                namespace.set_attributes(user, file, &truncated(size_bytes))?;
                Given::Done
            }
        })
    }
}

fn truncated(size_bytes: u64) -> SetAttributes {
    SetAttributes {
        size_bytes: Some(size_bytes),
        ..SetAttributes::default()
    }
}

/// Lets threads do random operations at once, in a directory of this name, which is made.
///
/// # Errors
/// Of the namespace, before the threads start.
pub fn record(
    namespace: &Namespace,
    name: &str,
    seed: u64,
    threads: usize,
    each: usize,
) -> Result<History, Error> {
    let place = prepare(namespace, name)?;
    let start = State::new(namespace.geometry(), place.directories, place.file)?;
    let lists = lists(seed, threads, each);
    let threads = run(&place, lists);
    for ino in place.directories.into_iter().chain([place.file]) {
        namespace.forget(ino, 1);
    }
    let in_mount = false;
    Ok(History {
        threads,
        start,
        in_mount,
    })
}

/// What each thread is to do.
fn lists(seed: u64, threads: usize, each: usize) -> Vec<Vec<Operation>> {
    let seeds = (1..=threads as u64).map(|n| seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    seeds.map(|seed| operations(seed, each)).collect()
}

/// Threads do that at once.
fn run(place: &impl Place, lists: Vec<Vec<Operation>>) -> Vec<Vec<Event>> {
    let threads = lists.len();
    let (clock, ready) = (AtomicU64::new(0), AtomicUsize::new(0));
    let events = std::thread::scope(|scope| {
        let (clock, ready) = (&clock, &ready);
        let running: Vec<_> = lists
            .into_iter()
            .enumerate()
            .map(|(thread, list)| {
                scope.spawn(move || {
                    ready.fetch_add(1, Ordering::SeqCst);
                    while ready.load(Ordering::SeqCst) < threads {
                        std::hint::spin_loop();
                    }
                    list.into_iter()
                        .map(|operation| {
                            let called = clock.fetch_add(1, Ordering::SeqCst);
                            let given = place.perform(thread, &operation);
                            let returned = clock.fetch_add(1, Ordering::SeqCst);
                            Event {
                                operation,
                                given,
                                called,
                                returned,
                            }
                        })
                        .collect()
                })
            })
            .collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.collect::<Result<Vec<Vec<Event>>, _>>()
    });
    events.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The directories and the file, each with a reference.
fn prepare<'n>(namespace: &'n Namespace, name: &str) -> Result<InProcess<'n>, Error> {
    let user = Caller::root();
    let root = namespace.make_directory(&user, namespace.root(), name.as_bytes(), 0o755)?;
    let mut directories = [root.ino; DIRECTORIES];
    for (directory, name) in directories[1..].iter_mut().zip(NAMES) {
        let made = namespace.make_directory(&user, root.ino, name.as_bytes(), 0o755)?;
        *directory = made.ino;
    }
    let made = namespace.create_file(&user, root.ino, FILE.as_bytes(), 0o644)?;
    namespace.write(made.ino, 0, &[1; FILE_BYTES])?;
    Ok(InProcess {
        namespace,
        user,
        directories,
        file: made.ino,
    })
}

fn new(kind: FileKind) -> New<'static> {
    New {
        kind,
        permissions: match kind {
            FileKind::Directory => 0o755,
            _ => 0o644,
        },
        device: 0,
        target: b"",
    }
}

impl Event {
    /// Whether one was called before the other returned.
    fn overlaps(&self, other: &Event) -> bool {
        self.called < other.returned && other.called < self.returned
    }

    /// Whether it may change how many names the file has.
    fn may_link(&self) -> bool {
        matches!(
            self.operation,
            Operation::MakeLink(..) | Operation::RemoveFile(..) | Operation::Rename(..)
        )
    }
}

impl State {
    /// What every history begins with, whose directories and file have these numbers.
    fn new(geometry: &Geometry, numbers: [Ino; DIRECTORIES], file: Ino) -> Result<State, Error> {
        let user = Caller::root();
        let mut model = Model::new(geometry, 0o755, 0, 0);
        let refused = |_| Error::corrupt("the model refuses what every history begins with");
        let mut inodes = HashMap::from([(Model::ROOT, numbers[0])]);
        let mut directories = [Model::ROOT; DIRECTORIES];
        for number in 1..DIRECTORIES {
            let name = NAMES[number - 1].as_bytes();
            let made = model.create(&user, Model::ROOT, name, &new(FileKind::Directory));
            directories[number] = made.map_err(refused)?;
            inodes.insert(directories[number], numbers[number]);
        }
        let made = model.create(&user, Model::ROOT, FILE.as_bytes(), &new(FileKind::Regular));
        let made = made.map_err(refused)?;
        inodes.insert(made, file);
        model.write(made, 0, &[1; FILE_BYTES]).map_err(refused)?;
        Ok(State {
            model,
            directories,
            file: made,
            inodes,
        })
    }

    /// An inode that there is has this number.
    fn has(&self, number: Ino) -> bool {
        let mut all = self.inodes.iter();
        all.any(|(id, ino)| *ino == number && self.model.node(*id).is_some())
    }

    /// Does it in the model; true when the model gives the same, but for a link count that
    /// operations of the history which ran beside it may have changed.
    fn gives(&mut self, event: &Event, history: &History) -> bool {
        let is_refused = event.given == Given::Failed(Error::NotFound);
        if is_refused && matches!(event.operation, Operation::MakeLink(..)) {
            // A mount's kernel counts a link twice that goes while it asks for the count, and makes
            // no link to what it takes for gone (`fuse_entry_unlinked`, `vfs_link`).
            let mut all = history.threads.iter().flatten();
            let is_beside = |other: &Event| {
                other.may_link() && other.overlaps(event) && !std::ptr::eq(other, event)
            };
            if history.in_mount && all.any(is_beside) {
                return true;
            }
        }
        match (self.perform(&event.operation, &event.given), &event.given) {
            (Ok(Given::Shown(size, links)), Given::Shown(found_size, found_links)) => {
                let all = history.threads.iter().flatten();
                let beside = all.filter(|other| other.may_link() && other.overlaps(event));
                (size == *found_size || *found_size == UNSEEN)
                    && u64::from(links.abs_diff(*found_links)) <= beside.count() as u64
            }
            (Ok(given), found) => given == *found,
            (Err(refused), Given::Failed(error)) => refused.contains(error),
            (Err(_), _) => false,
        }
    }

    fn perform(
        &mut self,
        operation: &Operation,
        given: &Given,
    ) -> Result<Given, crate::model::Refused> {
        let user = &Caller::root();
        let (file, directories) = (self.file, self.directories);
        let name = |at: At| (directories[at.0], at.1.as_bytes());
        let model = &mut self.model;
        let mut made = None;
        let result = match *operation {
            Operation::CreateFile(at) | Operation::MakeDirectory(at) => {
                let kind = match operation {
                    Operation::CreateFile(_) => FileKind::Regular,
                    _ => FileKind::Directory,
                };
                let (dir, name) = name(at);
                made = Some((model.create(user, dir, name, &new(kind))?, true));
                match given {
                    Given::Inode(ino) => Given::Inode(*ino),
                    _ => Given::Done,
                }
            }
            Operation::RemoveFile(at) => {
                let (dir, name) = name(at);
                model.remove_file(user, dir, name)?;
                Given::Done
            }
            Operation::RemoveDirectory(at) => {
                let (dir, name) = name(at);
                model.remove_directory(user, dir, name)?;
                Given::Done
            }
            Operation::Rename(from, to, mode) => {
                model.rename(user, name(from), name(to), mode)?;
                Given::Done
            }
            Operation::MakeLink(at) => {
                let (dir, name) = name(at);
                model.link(user, file, dir, name)?;
                model.forget(file, 1);
                Given::Inode(self.inodes[&file])
            }
            Operation::Lookup(at) => {
                let (dir, name) = name(at);
                let found = model.lookup(user, dir, name)?;
                model.forget(found, 1);
                // Who made a directory by a path has not learned its number.
                let number = self.inodes.get(&found).copied();
                match (number, given) {
                    (Some(ino), _) => Given::Inode(ino),
                    (None, Given::Inode(ino)) if !self.has(*ino) => {
                        made = Some((found, false));
                        Given::Inode(*ino)
                    }
                    (None, _) => Given::Done,
                }
            }
            _ => self.perform_on_file(operation)?,
        };
        if let Some((id, has_reference)) = made {
            if let Given::Inode(ino) = given {
                self.inodes.insert(id, *ino);
            }
            if has_reference {
                self.model.forget(id, 1);
            }
        }
        Ok(result)
    }

    fn perform_on_file(&mut self, operation: &Operation) -> Result<Given, crate::model::Refused> {
        let (model, file) = (&mut self.model, self.file);
        Ok(match *operation {
            Operation::Attributes => match model.node(file) {
                Some(node) => Given::Shown(node.data.len() as u64, node.links),
                None => return Err(vec![Error::Stale]),
            },
            Operation::Read(offset, length) => Given::Data(model.read(file, offset, length)?),
            Operation::Write(offset, length, fill) => {
                Given::Number(model.write(file, offset, &vec![fill; length])? as u64)
            }
            Operation::Append(length, fill) => {
                Given::Number(model.append(file, &vec![fill; length])?)
            }
            Operation::Truncate(size_bytes) => {
                model.set_attributes(&Caller::root(), file, &truncated(size_bytes))?;
                Given::Done
            }
            _ => return Err(Vec::new()),
        })
    }
}

/// What a search came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is an order that explains the history.
    Explained,
    /// There is none.
    Impossible,
    /// It was not found in the time that there is.
    Undecided,
}

/// Looks for an order that explains the history.
pub fn explain(history: &History) -> Verdict {
    let mut tries = TRIES_MAX;
    let mut done = vec![0; history.threads.len()];
    match search(history, &history.start, &mut done, &mut tries) {
        true => Verdict::Explained,
        false if tries == 0 => Verdict::Undecided,
        false => Verdict::Impossible,
    }
}

/// `done`: how many operations of each thread stand in the order already.
fn search(history: &History, state: &State, done: &mut [usize], tries: &mut usize) -> bool {
    let next = |done: &[usize], thread: usize| history.threads[thread].get(done[thread]);
    let left = (0..done.len()).filter_map(|thread| next(done, thread));
    let Some(first_return) = left.map(|event| event.returned).min() else {
        return true;
    };
    for thread in 0..done.len() {
        let Some(event) = next(done, thread).filter(|event| event.called < first_return) else {
            continue;
        };
        if *tries == 0 {
            return false;
        }
        *tries -= 1;
        let mut after = state.clone();
        if !after.gives(event, history) {
            continue;
        }
        done[thread] += 1;
        if search(history, &after, done, tries) {
            return true;
        }
        done[thread] -= 1;
    }
    false
}
