//! What the shuttle tests share: a namespace over a checked store, threads, schedules.

#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;

use finefs_locks::primitive::thread;
use finefs_namespace::{
    Attributes, Caller, CommitThreads, Error, FileKind, Ino, LockingScheme, Namespace, Options,
    RenameMode, Store,
};
use finefs_testkit::CheckedStore;
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// A namespace and its store, shared by the tasks of one run.
pub struct World {
    pub store: Arc<CheckedStore>,
    pub namespace: Namespace,
    pub user: Caller,
}

pub type Shared = Arc<World>;

/// What one thread does.
pub type Task<T> = Box<dyn FnOnce(&World) -> T + Send>;

/// A store whose log is folded at a commit, or, by chance, after each few records.
fn batching() -> CheckedStore {
    let store = CheckedStore::new(1 << 20);
    match shuttle::rand::thread_rng().gen_bool(0.5) {
        true => store,
        false => store.with_records_of(8),
    }
}

impl World {
    pub fn new() -> World {
        World::over(batching(), LockingScheme::Fine)
    }

    /// With batches or without, by chance.
    pub fn either() -> World {
        let store = match shuttle::rand::thread_rng().gen_bool(0.5) {
            true => batching(),
            false => CheckedStore::without_batches(1 << 20),
        };
        World::over(store, LockingScheme::Fine)
    }

    /// With batches, that are as large as they come or, by chance, limited.
    pub fn with_batches() -> World {
        let store = match shuttle::rand::thread_rng().gen_bool(0.5) {
            true => batching(),
            false => CheckedStore::new(1 << 20).with_batches_of(16),
        };
        World::over(store, LockingScheme::Fine)
    }

    /// Objects can be loaded again, so loads and transfers of data count as waiting for a device.
    pub fn under(locking: LockingScheme) -> World {
        World::over(CheckedStore::reloading(1 << 20), locking)
    }

    /// Objects can be loaded again, and of directories not all names are in memory.
    pub fn of_large_directories() -> World {
        let store = CheckedStore::reloading(1 << 20);
        let store = match shuttle::rand::thread_rng().gen_bool(0.5) {
            true => store,
            false => store.with_records_of(8),
        };
        World::over(store, LockingScheme::Fine)
    }

    pub fn over(store: CheckedStore, locking: LockingScheme) -> World {
        World::open(Arc::new(store), locking)
    }

    /// Everything is loaded again.
    pub fn reopened(self) -> World {
        self.namespace.shut_down().unwrap();
        World::open(self.store, LockingScheme::Fine)
    }

    fn open(store: Arc<CheckedStore>, locking: LockingScheme) -> World {
        let shared: Arc<CheckedStore> = Arc::clone(&store);
        let options = Options {
            locking,
            // So little that whatever may be evicted is, all the time.
            cache_bytes: 0,
            // However little there is.
            commit_threads: CommitThreads::Always(const { NonZeroUsize::new(2).unwrap() }),
            ..Options::default()
        };
        let namespace = Namespace::without_thread(shared, options).unwrap();
        let user = Caller::root();
        World {
            store,
            namespace,
            user,
        }
    }

    pub fn root(&self) -> Ino {
        self.namespace.root()
    }

    /// Makes a file and keeps no reference.
    pub fn file(&self, dir: Ino, name: &str) -> Result<Ino, Error> {
        let made = self
            .namespace
            .create_file(&self.user, dir, name.as_bytes(), 0o644)?;
        self.namespace.forget(made.ino, 1);
        Ok(made.ino)
    }

    /// Makes a directory and keeps the reference: who uses a number must hold one.
    pub fn directory(&self, dir: Ino, name: &str) -> Ino {
        let made = self
            .namespace
            .make_directory(&self.user, dir, name.as_bytes(), 0o755);
        made.unwrap().ino
    }

    /// Finds a name and keeps no reference.
    pub fn look(&self, dir: Ino, name: &str) -> Result<Attributes, Error> {
        let found = self.namespace.lookup(&self.user, dir, name.as_bytes())?;
        self.namespace.forget(found.ino, 1);
        Ok(found)
    }

    pub fn remove(&self, dir: Ino, name: &str) -> Result<(), Error> {
        self.namespace.remove_file(&self.user, dir, name.as_bytes())
    }

    pub fn rename(
        &self,
        (from, from_name): (Ino, &str),
        (to, to_name): (Ino, &str),
        mode: RenameMode,
    ) -> Result<(), Error> {
        let from = (from, from_name.as_bytes());
        self.namespace
            .rename(&self.user, from, (to, to_name.as_bytes()), mode)
    }

    pub fn names(&self, dir: Ino) -> Vec<(String, Ino, FileKind)> {
        let mut names = Vec::new();
        self.namespace
            .read_directory(dir, 2, &mut |entry| {
                let name = String::from_utf8_lossy(entry.name).into_owned();
                names.push((
                    name,
                    entry.ino,
                    entry.kind.expect("all inodes can be loaded"),
                ));
                true
            })
            .unwrap();
        names
    }

    pub fn content(&self, ino: Ino) -> Vec<u8> {
        let size = self.namespace.attributes(ino).unwrap().size_bytes as usize;
        let mut buffer = vec![0; size];
        assert_eq!(self.namespace.read(ino, 0, &mut buffer), Ok(size));
        buffer
    }

    /// Commits, compares what is shown with what is committed, or held, and shuts down.
    pub fn finish(&self) {
        self.namespace.sync().unwrap();
        let takes_batches = self.store.takes_batches();
        let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut dirs = vec![self.root()];
        while let Some(dir) = dirs.pop() {
            let mut shown = Vec::new();
            for (name, ino, kind) in self.names(dir) {
                *links.entry(ino).or_default() += 1;
                if kind == FileKind::Directory {
                    dirs.push(ino);
                }
                shown.push((name.into_bytes(), ino));
            }
            if takes_batches {
                shown.sort();
                assert_eq!(shown, self.store.committed_names(dir), "directory {dir}");
            }
        }
        let (mut held, mut sectors) = (BTreeSet::from([self.root()]), 0);
        for (ino, count) in links {
            let attributes = self.namespace.attributes(ino).unwrap();
            held.insert(ino);
            sectors += attributes.sectors;
            if attributes.kind != FileKind::Directory {
                assert_eq!(attributes.link_count, count, "links of {ino}");
            }
        }
        self.namespace.shut_down().unwrap();
        if !takes_batches {
            return self.store.assert_holds(&held, sectors / 8);
        }
        self.store.assert_at_rest();
        self.store.assert_no_orphans();
    }
}

/// The stacks of shuttle's tasks are small by default, for debug builds too small.
pub fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.silence_warnings = true;
    config
}

/// Runs a test under so many schedules. It gets a new world and its root; each world is finished.
pub fn check(
    schedules: usize,
    make: impl Fn() -> World + Send + Sync + 'static,
    run: impl Fn(&Shared, Ino) + Send + Sync + 'static,
) {
    let schedules =
        std::env::var("FINEFS_SCHEDULES").map_or(schedules, |text| text.parse().unwrap());
    let run = Arc::new(move || {
        let world = Arc::new(make());
        run(&world, world.root());
        world.finish();
    });
    let again = Arc::clone(&run);
    on_a_thread_that_stays(move || {
        Runner::new(RandomScheduler::new(schedules), config()).run(move || run());
        Runner::new(PctScheduler::new(3, schedules / 2 + 1), config()).run(move || again());
    });
}

/// A thread that ends destroys what was retired, and that asks shuttle, outside of its tests, for
/// locks.
fn on_a_thread_that_stays(run: impl FnOnce() + Send + 'static) {
    let (ends, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        ends.send(outcome).unwrap();
        loop {
            std::thread::park();
        }
    });
    if let Err(panic) = end.recv().unwrap() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs the tasks to their ends; gives what each gave.
pub fn race<T: Send + 'static>(world: &Shared, tasks: Vec<Task<T>>) -> Vec<T> {
    let handles: Vec<_> = tasks
        .into_iter()
        .map(|task| {
            let world = Arc::clone(world);
            thread::spawn(move || task(&world))
        })
        .collect();
    handles
        .into_iter()
        .map(|handle| handle.join().unwrap())
        .collect()
}

pub fn task<T>(f: impl FnOnce(&World) -> T + Send + 'static) -> Task<T> {
    Box::new(f)
}

/// A file of these bytes, with a reference.
pub fn file_with(world: &World, data: &[u8]) -> Ino {
    let made = world
        .namespace
        .create_file(&world.user, world.root(), b"f", 0o600);
    let ino = made.unwrap().ino;
    world.namespace.write(ino, 0, data).unwrap();
    ino
}

/// Where [`write_and_append`] writes, and how many bytes: over the edge of a block.
const WRITTEN: (u64, usize) = (4090, 10);

/// A write to a file of 4100 bytes, and an append of three bytes.
pub fn write_and_append(ino: Ino, letter: u8) -> Task<()> {
    task(move |w: &World| {
        let (at, length) = WRITTEN;
        w.namespace.write(ino, at, &vec![letter; length]).unwrap();
        w.namespace.append(ino, &[letter; 3]).unwrap();
    })
}

/// What [`write_and_append`] writes is seen whole or not at all.
pub fn assert_one_write(world: &World, ino: Ino) {
    let (at, length) = WRITTEN;
    let mut buffer = vec![0; length];
    world.namespace.read(ino, at, &mut buffer).unwrap();
    assert!(buffer.iter().all(|byte| *byte == buffer[0]), "{buffer:?}");
}
