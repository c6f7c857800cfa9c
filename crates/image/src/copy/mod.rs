//! Copies files and trees from the host into images, out of them, and between them.
//!
//! # What is never seen
//! A half-made file. What is new is made under a name of its own beside its place,
//! `.NAME.finefs-N`, and renamed when it is whole: a file, or a tree in a directory that was not
//! there. Inside such a tree files are made in place. An interrupted copy removes it; one that is
//! killed leaves it under that name. An append-only directory (`chattr +a`) lets nothing be renamed
//! or removed: files are made in place there, and a directory before it is filled.
//!
//! # Data model
//! One thread walks the sources, makes directories, and hands the other files to workers; when all
//! of them are busy it does the work itself. A directory that is filled is a `target::Target`:
//! whoever makes something in it holds a reference, and the last that goes sets its attributes and
//! gives it its name.
//!
//! # Invariants
//! 1. Nothing is made outside of the directory that a copy was started on: names are single
//!    components, directories are opened without following links, files are made exclusively.
//! 2. A file with several links is copied by the walking thread, so that the next link finds it.
//! 3. A directory has its times and permissions after everything in it has been made.
//!
//! # Locking
//! None of its own: work goes through channels, one for each worker; counts are atomic.

mod data;
mod file;
mod measure;
mod target;
mod walk;

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

pub use file::from_stream;
pub(crate) use file::may_be_kept;
pub use measure::{Totals, measure};
pub(crate) use target::{temporary, temporary_name};
pub use walk::Task;

use crate::attributes::Lacking;
use crate::error::Error;
use file::Work;

/// Which attributes of the sources are kept.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Preserve {
    /// Permission bits, set-id bits among them, and ACLs.
    pub mode: bool,
    /// Owner and group, as numbers.
    pub ownership: bool,
    /// Times of the last read and change, in nanoseconds.
    pub timestamps: bool,
    /// Hard links among the files that are copied.
    pub links: bool,
    /// All extended attributes.
    pub xattrs: bool,
}

impl Preserve {
    /// Everything.
    pub const ALL: Preserve = Preserve {
        mode: true,
        ownership: true,
        timestamps: true,
        links: true,
        xattrs: true,
    };
}

/// Which symbolic links of the sources are followed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Links {
    /// None: links are copied.
    #[default]
    Kept,
    /// Those that are named.
    FollowedIfNamed,
    /// All.
    Followed,
}

/// What becomes of holes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Sparse {
    /// Holes stay holes.
    #[default]
    Kept,
    /// Blocks of zeros become holes too.
    Made,
    /// Holes are filled with zeros.
    Filled,
}

/// What becomes of files that are there already.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Existing {
    /// They are replaced.
    #[default]
    Replaced,
    /// They stay.
    Kept,
    /// They are replaced by newer ones.
    ReplacedIfOlder,
}

/// What is made of files that are no directories.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Makes {
    /// Copies.
    #[default]
    Copies,
    /// Hard links to the sources, in the same image.
    HardLinks,
    /// Symbolic links with the paths of the sources, in the same image.
    Symlinks,
}

/// How files are copied.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directories with all that is in them, and special files as such.
    pub is_recursive: bool,
    /// Which attributes are kept.
    pub preserve: Preserve,
    /// Which symbolic links are followed.
    pub links: Links,
    /// What becomes of holes.
    pub sparse: Sparse,
    /// What becomes of files that are there.
    pub existing: Existing,
    /// The observer is asked before a file that is there is replaced.
    pub asks: bool,
    /// What is made of files.
    pub makes: Makes,
    /// Links take the place of files that are there.
    pub replaces_by_links: bool,
    /// Files that are there are removed first: copies have nothing of them.
    pub removes_existing: bool,
    /// A directory takes the place of one that is there, which must be empty, as with rename(2);
    /// else it joins that.
    pub replaces_directories: bool,
    /// Devices, FIFOs and the like of the host that are there are written, not replaced.
    pub writes_special: bool,
    /// Permission bits that new files do not get unless modes are kept.
    pub umask: u32,
    /// New files have the modes that such get, whatever the sources have.
    pub has_new_modes: bool,
    /// Threads, at least 1.
    pub jobs: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            is_recursive: false,
            preserve: Preserve::default(),
            links: Links::Kept,
            sparse: Sparse::Kept,
            existing: Existing::Replaced,
            asks: false,
            makes: Makes::Copies,
            replaces_by_links: false,
            removes_existing: false,
            replaces_directories: false,
            writes_special: false,
            umask: 0o022,
            has_new_modes: false,
            jobs: 1,
        }
    }
}

/// What is told while copying goes on, from any of its threads.
pub trait Observer: Sync {
    /// Something could not be copied; the rest goes on.
    fn failed(&self, error: &Error);
    /// A file was copied; both names are as the user would write them.
    fn copied(&self, _from: &dyn Fn() -> OsString, _to: &dyn Fn() -> OsString) {}
    /// Whether a file that is there may be replaced; asked with [`Options::asks`].
    fn may_replace(&self, _to: &str) -> bool {
        true
    }
}

/// How far a copy is, and what it could not do; shared with who shows it.
#[derive(Default)]
pub struct Progress {
    /// Files, directories and others that were made.
    pub files: AtomicU64,
    /// Bytes of data that were copied.
    pub bytes: AtomicU64,
    /// What failed.
    pub failures: AtomicU64,
    /// Files whose owner could not be set.
    pub owners_lacking: AtomicU64,
    /// Files of which an extended attribute could not be set.
    pub xattrs_lacking: AtomicU64,
    /// Device nodes and the like that could not be made.
    pub nodes_lacking: AtomicU64,
    /// Sealed files (fs-verity) whose copies are not, where extended attributes are kept.
    pub seals_lost: AtomicU64,
    /// Set from outside: stop, and remove what is not whole.
    pub stop: AtomicBool,
    /// Set from inside: there is no space left.
    pub is_full: AtomicBool,
}

impl Progress {
    /// True when nothing more is to be begun.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_full.load(Ordering::Relaxed)
    }

    /// True when everything was copied with all its attributes.
    pub fn is_complete(&self) -> bool {
        let counts = [
            &self.failures,
            &self.owners_lacking,
            &self.xattrs_lacking,
            &self.nodes_lacking,
        ];
        !self.is_stopped()
            && counts
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 0)
    }

    fn note(&self, lacking: Lacking) {
        let add = |count: &AtomicU64, lacks: bool| {
            count.fetch_add(u64::from(lacks), Ordering::Relaxed);
        };
        add(&self.owners_lacking, lacking.owner);
        add(&self.xattrs_lacking, lacking.xattrs);
    }
}

/// What all parts of a copy share.
#[derive(Clone, Copy)]
struct Context<'a> {
    options: &'a Options,
    progress: &'a Progress,
    observer: &'a dyn Observer,
}

impl Context<'_> {
    fn fail(&self, error: &Error) {
        let is_full = [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT]
            .iter()
            .any(|errno| error.is(*errno));
        let was_full = is_full && self.progress.is_full.swap(true, Ordering::Relaxed);
        self.progress.failures.fetch_add(1, Ordering::Relaxed);
        if !was_full {
            self.observer.failed(error);
        }
    }
}

/// Copies the tasks one after the other. How it went is in `progress`.
pub fn run(tasks: Vec<Task>, options: &Options, observer: &dyn Observer, progress: &Progress) {
    let context = Context {
        options,
        progress,
        observer,
    };
    let mut links = walk::Firsts::new();
    for round in rounds(tasks) {
        links = run_round(round, context, links);
    }
}

/// Directories with one name become one: a later one is walked when the earlier is there.
fn rounds(tasks: Vec<Task>) -> Vec<Vec<Task>> {
    let mut rounds: Vec<Vec<Task>> = Vec::new();
    let mut names = HashSet::new();
    for task in tasks {
        let is_new = names.insert(task.to.clone());
        match rounds.last_mut() {
            Some(round) if is_new => round.push(task),
            _ => {
                names = HashSet::from([task.to.clone()]);
                rounds.push(vec![task]);
            }
        }
    }
    rounds
}

fn run_round(tasks: Vec<Task>, context: Context<'_>, links: walk::Firsts) -> walk::Firsts {
    std::thread::scope(|scope| {
        let workers: Vec<SyncSender<Work<'_>>> = (1..context.options.jobs)
            .filter_map(|_| {
                let (sender, receiver) = std::sync::mpsc::sync_channel::<Work<'_>>(QUEUE);
                let run = move || {
                    let mut buffer = Vec::new();
                    for work in receiver {
                        work.run(&context, &mut buffer);
                    }
                };
                let builder = std::thread::Builder::new().name("copy".into());
                builder.spawn_scoped(scope, run).ok().map(|_| sender)
            })
            .collect();
        walk::Walker::new(context, workers, links).run(tasks)
    })
}

/// Files that wait for one worker.
const QUEUE: usize = 32;
