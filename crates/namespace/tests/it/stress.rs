//! Threads at random work on few names, over a store that checks every commit.
//!
//! At the end what the namespace shows must be what was committed, with true link counts, and
//! nothing leaked. `FINEFS_STRESS_SECONDS=n` makes each test run that long; the default is short.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use finefs_namespace::{
    AllocateMode, Attributes, Caller, Error, FileKind, Ino, Namespace, OpenAccess, Options,
    RenameMode, SetAttributes, Store, SyncScope, XattrMode,
};
use finefs_testkit::CheckedStore;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn duration() -> Duration {
    let seconds = std::env::var("FINEFS_STRESS_SECONDS").ok();
    seconds.map_or(Duration::from_millis(1500), |text| {
        Duration::from_secs(text.parse().unwrap())
    })
}

/// One thread's work. It holds references on what it uses, and gives all of them back at its end.
struct Worker<'a> {
    namespace: &'a Namespace,
    user: Caller,
    random: StdRng,
    dirs: Vec<Ino>,
    files: Vec<Ino>,
}

impl<'a> Worker<'a> {
    const HELD_MAX: usize = 4;

    fn new(namespace: &'a Namespace, seed: u64) -> Worker<'a> {
        Worker {
            namespace,
            user: Caller::root(),
            random: StdRng::seed_from_u64(seed),
            dirs: vec![namespace.root()],
            files: Vec::new(),
        }
    }

    fn name(&mut self) -> [u8; 1] {
        [b'a' + self.random.random_range(0..6)]
    }

    fn dir(&mut self) -> Ino {
        self.dirs[self.random.random_range(0..self.dirs.len())]
    }

    /// Keeps a reference for later, and gives an old one back.
    fn keep(&mut self, result: Result<Attributes, Error>) {
        let Ok(found) = result else { return };
        let (held, first) = match found.kind {
            FileKind::Directory => (&mut self.dirs, 1),
            _ => (&mut self.files, 0),
        };
        held.push(found.ino);
        if held.len() > Self::HELD_MAX + first {
            let gone = held.remove(first);
            self.namespace.forget(gone, 1);
        }
    }

    fn step(&mut self) {
        let ns = self.namespace;
        let (dir, name) = (self.dir(), self.name());
        let made = match self.random.random_range(0..100) {
            0..14 => ns.create_file(&self.user, dir, &name, 0o644),
            14..22 => ns.make_directory(&self.user, dir, &name, 0o755),
            22..24 => ns.make_symlink(&self.user, dir, &name, b"target"),
            24..26 => ns.create_unnamed(&self.user, dir, 0o600),
            26..40 => ns.lookup(&self.user, dir, &name),
            40..52 => return self.check_result(ns.remove_file(&self.user, dir, &name)),
            52..58 => return self.check_result(ns.remove_directory(&self.user, dir, &name)),
            58..74 => return self.rename(dir, &name),
            74..76 => {
                let result = ns.sync();
                return result.unwrap();
            }
            76..80 => return self.list(dir),
            _ => return self.use_file(dir, &name),
        };
        if let Err(error) = &made {
            check_error(error);
        }
        self.keep(made);
    }

    fn rename(&mut self, dir: Ino, name: &[u8]) {
        let (to, to_name) = (self.dir(), self.name());
        let mode = match self.random.random_range(0..4) {
            0 => RenameMode::NoReplace,
            1 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        let result = self
            .namespace
            .rename(&self.user, (dir, name), (to, &to_name), mode);
        self.check_result(result);
    }

    fn list(&mut self, dir: Ino) {
        let mut names = Vec::new();
        let result = self.namespace.read_directory(dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        });
        self.check_result(result);
        let count = names.len();
        names.sort();
        names.dedup();
        // A name that moves meanwhile may be missed, but with so few names none comes twice
        // unless it was removed and made again behind the reader.
        assert!(count - names.len() <= 6);
    }

    fn use_file(&mut self, dir: Ino, name: &[u8]) {
        if self.files.is_empty() {
            return;
        }
        let ns = self.namespace;
        let ino = self.files[self.random.random_range(0..self.files.len())];
        let offset_bytes = self.random.random_range(0..20_000);
        let length = self.random.random_range(1..6_000_usize);
        let fill: u8 = self.random.random_range(1..=255);
        let result = match self.random.random_range(0..11) {
            0..3 => ns.write(ino, offset_bytes, &vec![fill; length]).map(drop),
            3 => ns.append(ino, &vec![fill; length]).map(drop),
            4 => {
                let mut buffer = vec![0; length];
                ns.read(ino, offset_bytes, &mut buffer).map(drop)
            }
            5 => {
                let set = SetAttributes {
                    size_bytes: Some(offset_bytes),
                    ..SetAttributes::default()
                };
                ns.set_attributes(&self.user, ino, &set).map(drop)
            }
            6 => {
                let modes = [
                    AllocateMode::Extend,
                    AllocateMode::KeepSize,
                    AllocateMode::PunchHole,
                    AllocateMode::ZeroRange,
                ];
                let mode = modes[self.random.random_range(0..modes.len())];
                ns.allocate(ino, mode, offset_bytes, length as u64)
            }
            7 => {
                let linked = ns.make_link(&self.user, ino, dir, name);
                if linked.is_ok() {
                    ns.forget(ino, 1);
                }
                linked.map(drop)
            }
            8 => ns.set_xattr(&self.user, ino, b"user.k", &[fill], XattrMode::Set),
            9 => ns.sync_file(ino, SyncScope::All),
            _ => {
                let set = SetAttributes {
                    permissions: Some(u32::from(fill)),
                    ..SetAttributes::default()
                };
                ns.set_attributes(&self.user, ino, &set).map(drop)
            }
        };
        self.check_result(result);
    }

    fn check_result(&self, result: Result<(), Error>) {
        if let Err(error) = result {
            check_error(&error);
        }
    }

    fn finish(self) {
        for ino in self.dirs.iter().skip(1).chain(&self.files) {
            self.namespace.forget(*ino, 1);
        }
    }
}

/// Errors that random work may meet; whoever holds a reference never meets ESTALE.
fn check_error(error: &Error) {
    let is_expected = matches!(
        error,
        Error::NotFound
            | Error::Exists
            | Error::NotADirectory
            | Error::IsADirectory
            | Error::NotEmpty
            | Error::Invalid
            | Error::NotPermitted
            | Error::NoSpace
    );
    assert!(is_expected, "{error:?}");
}

/// Compares what is shown with what is committed or, without batches, with what is allocated.
fn compare(namespace: &Namespace, store: &CheckedStore) {
    let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut held = BTreeSet::new();
    let mut dirs = vec![namespace.root()];
    while let Some(dir) = dirs.pop() {
        let mut shown = Vec::new();
        let mut subdirectories = 0;
        namespace
            .read_directory(dir, 2, &mut |entry| {
                shown.push((entry.name.to_vec(), entry.ino));
                if entry.kind == Some(FileKind::Directory) {
                    dirs.push(entry.ino);
                    subdirectories += 1;
                } else {
                    *links.entry(entry.ino).or_default() += 1;
                }
                true
            })
            .unwrap();
        shown.sort();
        if store.takes_batches() {
            assert_eq!(shown, store.committed_names(dir), "directory {dir}");
        }
        held.insert(dir);
        let attributes = namespace.attributes(dir).unwrap();
        assert_eq!(attributes.link_count, 2 + subdirectories, "links of {dir}");
    }
    let mut sectors = 0;
    for (ino, count) in links {
        let attributes = namespace.attributes(ino).unwrap();
        assert_eq!(attributes.link_count, count);
        held.insert(ino);
        sectors += attributes.sectors;
    }
    if !store.takes_batches() {
        store.assert_holds(&held, sectors / 8);
    }
}

fn stress(threads: u64, store: CheckedStore) {
    let store = Arc::new(store);
    let shared: Arc<CheckedStore> = Arc::clone(&store);
    let options = Options {
        commit_interval: Duration::from_millis(3),
        // So little that whatever may be evicted is, all the time.
        cache_bytes: 0,
        ..Options::default()
    };
    let namespace = Namespace::new(shared, options).unwrap();
    let is_over = AtomicBool::new(false);
    let end = Instant::now() + duration();
    std::thread::scope(|scope| {
        for seed in 0..threads {
            let (namespace, is_over) = (&namespace, &is_over);
            scope.spawn(move || {
                /// Ends the others when this thread panics.
                struct Ends<'a>(&'a AtomicBool);
                impl Drop for Ends<'_> {
                    fn drop(&mut self) {
                        self.0.store(true, Ordering::Relaxed);
                    }
                }
                let _ends = Ends(is_over);
                let mut worker = Worker::new(namespace, seed);
                while Instant::now() < end && !is_over.load(Ordering::Relaxed) {
                    for _ in 0..50 {
                        worker.step();
                    }
                }
                worker.finish();
            });
        }
    });
    namespace.sync().unwrap();
    compare(&namespace, &store);
    namespace.shut_down().unwrap();
    if !store.takes_batches() {
        return;
    }
    assert!(store.commits() > 1);
    store.assert_at_rest();
    store.assert_no_orphans();
}

#[test]
fn two_threads() {
    stress(2, CheckedStore::new(16 << 20));
}

#[test]
fn eight_threads() {
    stress(8, CheckedStore::new(16 << 20));
}

#[test]
fn threads_without_batches() {
    stress(2, CheckedStore::without_batches(16 << 20));
    stress(8, CheckedStore::without_batches(16 << 20));
}

#[test]
fn threads_beside_eviction() {
    stress(4, CheckedStore::reloading(16 << 20));
}

/// Most of the time what was taken out of the log waits for a commit, or is taken out while one
/// runs.
#[test]
fn threads_whose_changes_are_folded() {
    stress(4, CheckedStore::reloading(16 << 20).with_batches_of(200));
}

/// What cancels out needs no commit, however much it is; what does not is committed in batches of
/// about the size that the store wants.
#[test]
fn batches_are_as_large_as_what_is_left() {
    const LIMIT: u64 = 800;
    let store = CheckedStore::reloading(128 << 20).with_batches_of(LIMIT);
    let store = Arc::new(store.with_records_of(LIMIT));
    let shared: Arc<CheckedStore> = Arc::clone(&store);
    let namespace = Namespace::without_thread(shared, Options::default()).unwrap();
    let caller = &Caller::root();
    let root = namespace.root();
    let make = |name: String| {
        let made = namespace.create_file(caller, root, name.as_bytes(), 0o644);
        namespace.forget(made.unwrap().ino, 1);
    };
    for round in 0..2000 {
        make(format!("short{round}"));
        let name = format!("short{round}");
        namespace
            .remove_file(caller, root, name.as_bytes())
            .unwrap();
    }
    assert_eq!(store.commits(), 0);
    for number in 0..24_000 {
        make(format!("long{number}"));
    }
    // 6000 blocks of inodes, at least, which no thread commits: so writers do, when three batches
    // wait. A batch may be larger by what the log holds before it is taken in.
    let commits = store.commits();
    assert!(commits >= 3, "{commits} commits");
    assert!(store.inode_blocks_max() <= 2 * LIMIT as usize);
    // However far writers are ahead, a batch is nearly as large as it may be.
    assert!(commits <= 9, "{commits} commits");
    namespace.sync().unwrap();
    assert_eq!(store.inode_count(), 24_001);
    namespace.shut_down().unwrap();
    store.assert_at_rest();
}

/// Who asked for a number when it was nobody's, and loads it when it is a new file's, gets the file
/// as all others do: the reference that an open file has is on the one inode of that number.
#[test]
fn an_inode_has_one_cell() {
    let store = Arc::new(CheckedStore::reloading(1 << 20));
    let shared: Arc<CheckedStore> = Arc::clone(&store);
    let namespace = Arc::new(Namespace::without_thread(shared, Options::default()).unwrap());
    let (caller, root) = (&Caller::root(), namespace.root());
    fn make(namespace: &Namespace, name: &[u8]) -> Ino {
        let made = namespace.create_file(&Caller::root(), namespace.root(), name, 0o644);
        let ino = made.unwrap().ino;
        namespace.forget(ino, 1);
        ino
    }
    let number = make(&namespace, b"old");
    namespace.remove_file(caller, root, b"old").unwrap();
    namespace.sync().unwrap();
    let (new_name, weak) = (Arc::new(OnceLock::new()), Arc::downgrade(&namespace));
    let found = Arc::clone(&new_name);
    store.call_before_loads(move |ino| {
        if ino != number || found.get().is_some() {
            return;
        }
        let namespace = weak.upgrade().unwrap();
        let work = || {
            // The number may wait on another CPU's list.
            let mut names = (0..10_000).map(|number| format!("new{number}"));
            let name = names.find(|name| make(&namespace, name.as_bytes()) == number);
            found.set(name.expect("the number is used again")).unwrap();
            namespace.sync().unwrap();
        };
        std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    });
    let open = namespace.open(caller, number, OpenAccess::Read).unwrap();
    let name = new_name.get().unwrap().as_bytes();
    namespace.remove_file(caller, root, name).unwrap();
    namespace.sync().unwrap();
    assert_eq!(namespace.attributes(number).unwrap().link_count, 0);
    drop(open);
    namespace.shut_down().unwrap();
    store.assert_at_rest();
}

/// What was removed is free at the next commit at the latest, and an operation that finds no space
/// waits for that commit, also for one that another thread has begun.
#[test]
fn space_that_was_freed_is_found() {
    const THREADS: u64 = 4;
    const BLOCK: usize = 4096;
    // 256 blocks; no more than 4 x 16 are ever in files.
    let store = CheckedStore::new(1 << 20);
    let namespace = Namespace::without_thread(Arc::new(store), Options::default()).unwrap();
    let end = Instant::now() + duration();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let namespace = &namespace;
            scope.spawn(move || {
                let root = namespace.root();
                let user = Caller::root();
                let name = [b'a' + thread as u8];
                while Instant::now() < end {
                    let file = namespace.create_file(&user, root, &name, 0o644).unwrap();
                    namespace.write(file.ino, 0, &[1; 16 * BLOCK]).unwrap();
                    namespace.remove_file(&user, root, &name).unwrap();
                    namespace.forget(file.ino, 1);
                }
            });
        }
    });
    namespace.shut_down().unwrap();
}
