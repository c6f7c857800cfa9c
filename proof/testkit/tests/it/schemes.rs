//! Locking schemes: the same results under each, and the exclusion that each promises, no more.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use crate::sized;
use finefs_block::{Access, BlockDevice, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{Caller, Error, Ino, LockingScheme, MemoryStore, Namespace, Options};
use finefs_testkit::{CheckedStore, Subject, check_seed};

/// Those that put a lock around operations, with the name of its class.
const AROUND: [(LockingScheme, &str); 4] = [
    (LockingScheme::BigSpin, "ns.big"),
    (LockingScheme::BigSleep, "ns.big"),
    (LockingScheme::BigOptional, "ns.big"),
    (LockingScheme::PerSuperblock, "ns.superblock"),
];

const WITHOUT: [LockingScheme; 4] = [
    LockingScheme::Fine,
    LockingScheme::WholeFile,
    LockingScheme::WholeFileMutex,
    LockingScheme::UnlockedData,
];

fn options(locking: LockingScheme) -> Options {
    Options {
        // So little that whatever may be evicted is, all the time.
        cache_bytes: 0,
        locking,
        ..Options::default()
    }
}

fn memory(locking: LockingScheme) -> Arc<Namespace> {
    let store = MemoryStore::new(64 << 20, 0o755, 0, 0).unwrap();
    store.into_namespace(options(locking)).unwrap()
}

struct Memory(Arc<Namespace>);

impl Subject for Memory {
    fn namespace(&self) -> &Namespace {
        &self.0
    }

    fn reopen(&mut self) -> Result<bool, String> {
        Ok(false)
    }
}

/// A store from which objects are loaded again: what waits for a device, as far as schemes can
/// tell.
struct Reloading(Arc<CheckedStore>, Namespace, LockingScheme);

impl Reloading {
    fn open(store: &Arc<CheckedStore>, locking: LockingScheme) -> Namespace {
        Namespace::without_thread(Arc::<CheckedStore>::clone(store), options(locking)).unwrap()
    }
}

impl Subject for Reloading {
    fn namespace(&self) -> &Namespace {
        &self.1
    }

    fn reopen(&mut self) -> Result<bool, String> {
        self.1.shut_down().map_err(|error| error.to_string())?;
        self.0.assert_at_rest();
        self.1 = Reloading::open(&self.0, self.2);
        Ok(true)
    }
}

#[test]
fn every_scheme_does_what_the_model_does() {
    for locking in LockingScheme::ALL {
        for seed in 0..sized(4, 12) {
            check_seed(seed, 400, &|| Box::new(Memory(memory(locking))));
        }
    }
}

#[test]
fn every_scheme_reloads_what_the_model_has() {
    for locking in LockingScheme::ALL {
        for seed in 100..sized(103, 108) {
            check_seed(seed, 400, &|| {
                let store = Arc::new(CheckedStore::reloading(64 << 20));
                let namespace = Reloading::open(&store, locking);
                Box::new(Reloading(store, namespace, locking))
            });
        }
    }
}

/// True while the thread of that name waits for a lock of that class.
fn waits(thread: &str, class: &str) -> bool {
    finefs_lockmeter::waiting()
        .iter()
        .filter(|queue| queue.class == class)
        .flat_map(|queue| &queue.waiters)
        .any(|waiter| waiter.thread == thread)
}

/// Runs `inner` in another thread while this one is inside an operation that holds its CPU. True if
/// it ended meanwhile, false if it came to wait for a lock of `class`; waits for one of the two.
fn overlaps(
    namespace: &Namespace,
    class: &str,
    outer: impl FnOnce(&Namespace, &mut dyn FnMut()),
    inner: impl FnOnce(&Namespace) + Send,
) -> bool {
    static NUMBER: Mutex<u64> = Mutex::new(0);
    let name = {
        let mut number = NUMBER.lock().unwrap();
        *number += 1;
        format!("inner-{number}")
    };
    let (has_ended, mut inner) = (AtomicBool::new(false), Some(inner));
    let mut overlapped = None;
    thread::scope(|scope| {
        outer(namespace, &mut || {
            // The operation calls back more than once.
            let Some(inner) = inner.take() else { return };
            let has_ended = &has_ended;
            let thread = thread::Builder::new().name(name.clone());
            let spawned = thread.spawn_scoped(scope, move || {
                inner(namespace);
                has_ended.store(true, Ordering::SeqCst);
            });
            spawned.unwrap();
            overlapped = loop {
                if has_ended.load(Ordering::SeqCst) {
                    break Some(true);
                }
                if waits(&name, class) {
                    break Some(false);
                }
                thread::yield_now();
            };
        });
    });
    assert!(has_ended.load(Ordering::SeqCst));
    overlapped.expect("the outer operation called back")
}

/// In readdir, which calls back.
fn in_readdir(namespace: &Namespace, inside: &mut dyn FnMut()) {
    let mut sink = |_: finefs_namespace::DirectoryEntry<'_>| {
        inside();
        true
    };
    namespace
        .read_directory(namespace.root(), 0, &mut sink)
        .unwrap();
}

fn stat(namespace: &Namespace) {
    namespace.attributes(namespace.root()).unwrap();
}

#[test]
fn operations_overlap_unless_a_lock_is_around_them() {
    for locking in WITHOUT {
        assert!(
            overlaps(&memory(locking), "", in_readdir, stat),
            "{locking:?}"
        );
    }
    for (locking, class) in AROUND {
        // 2.5.5-pre1 did both without its big lock.
        let is_free = locking == LockingScheme::BigOptional;
        let found = overlaps(&memory(locking), class, in_readdir, stat);
        assert_eq!(found, is_free, "{locking:?}");
    }
}

#[test]
fn big_locks_are_for_the_process_and_the_others_for_a_file_system() {
    for (locking, class) in AROUND {
        let other = memory(locking);
        let is_own = matches!(
            locking,
            LockingScheme::PerSuperblock | LockingScheme::BigOptional
        );
        let found = overlaps(&memory(locking), class, in_readdir, |_| stat(&other));
        assert_eq!(found, is_own, "{locking:?}");
    }
}

/// An image in a file, whose device calls a hook before each read of data.
struct Hooked {
    inner: FileDevice,
    hook: Arc<Hook>,
}

type Hook = Mutex<Option<Box<dyn FnMut() + Send>>>;

impl BlockDevice for Hooked {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook();
        }
        self.inner.read_at(offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset_bytes, data)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        self.inner.write_zeros_at(offset_bytes, length_bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// An image with a file of some blocks in it.
struct World {
    directory: tempfile::TempDir,
    hook: Arc<Hook>,
    namespace: Namespace,
    file: Ino,
}

impl World {
    fn new(locking: LockingScheme) -> World {
        let directory = tempfile::tempdir().unwrap();
        let output = Command::new("mke2fs")
            .args(["-q", "-t", "ext4"])
            .arg(directory.path().join("image"))
            .arg("8M")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut world = World::open(directory, locking);
        let namespace = &world.namespace;
        let made = namespace.create_file(&Caller::root(), namespace.root(), b"f", 0o644);
        world.file = made.unwrap().ino;
        namespace.write(world.file, 0, &[7; 16384]).unwrap();
        namespace.sync().unwrap();
        world
    }

    fn open(directory: tempfile::TempDir, locking: LockingScheme) -> World {
        let hook: Arc<Hook> = Arc::default();
        let path = directory.path().join("image");
        let device = Hooked {
            inner: FileDevice::open(&path, Access::ReadWrite).unwrap(),
            hook: Arc::clone(&hook),
        };
        let store = ExtStore::open(Arc::new(device), &ExtOptions::default()).unwrap();
        // What its threads use stays in memory: to make room a thread waits for all others.
        let options = Options {
            locking,
            ..Options::default()
        };
        let namespace = Namespace::without_thread(Arc::new(store), options).unwrap();
        World {
            directory,
            hook,
            namespace,
            file: Ino(0),
        }
    }

    /// After a shut-down.
    fn reopened(self, locking: LockingScheme) -> World {
        let World {
            directory,
            namespace,
            file,
            ..
        } = self;
        // It keeps the image to itself.
        drop(namespace);
        World {
            file,
            ..World::open(directory, locking)
        }
    }

    fn read(&self) -> Result<usize, Error> {
        self.namespace.read(self.file, 0, &mut [0; 16384])
    }
}

/// Runs `wait` in another thread, and `meanwhile` while that one is in the device.
fn during_a_sleep(world: &World, wait: impl FnOnce() + Send, meanwhile: impl FnOnce()) {
    let (done, is_done) = mpsc::channel();
    let (slept, has_slept) = mpsc::channel();
    let hook = move || {
        slept.send(()).unwrap();
        // Whoever is kept out by the sleeper never gets to this.
        is_done.recv().unwrap();
    };
    *world.hook.lock().unwrap() = Some(Box::new(hook));
    thread::scope(|scope| {
        scope.spawn(wait);
        has_slept.recv().unwrap();
        meanwhile();
        done.send(()).unwrap();
    });
}

#[test]
fn a_task_that_waits_for_the_device_lets_others_in() {
    for locking in LockingScheme::ALL {
        let world = World::new(locking);
        let namespace = &world.namespace;
        let (root, user) = (namespace.root(), Caller::root());
        let read = || assert_eq!(world.read(), Ok(16384));
        during_a_sleep(&world, read, || {
            stat(namespace);
            namespace.statfs();
            let made = namespace.create_file(&user, root, b"g", 0o644).unwrap();
            namespace.forget(made.ino, 1);
            namespace.remove_file(&user, root, b"g").unwrap();
        });
        namespace.shut_down().unwrap();

        // The root's names are not in memory now.
        let world = world.reopened(locking);
        let namespace = &world.namespace;
        let lookup = || {
            let found = namespace.lookup(&user, root, b"f").unwrap();
            assert_eq!(found.ino, world.file);
        };
        during_a_sleep(&world, lookup, || {
            stat(namespace);
            namespace.statfs();
        });
    }
}

#[test]
fn errors_and_panics_leave_no_lock_held() {
    for locking in LockingScheme::ALL {
        let world = World::new(locking);
        let namespace = &world.namespace;
        let user = Caller::root();
        let missing = namespace.lookup(&user, namespace.root(), b"missing");
        assert_eq!(missing.unwrap_err(), Error::NotFound);
        let inside = AssertUnwindSafe(|| {
            in_readdir(namespace, &mut || panic!("inside of an operation"));
        });
        assert!(catch_unwind(inside).is_err());
        *world.hook.lock().unwrap() = Some(Box::new(|| panic!("on the device")));
        assert!(catch_unwind(AssertUnwindSafe(|| world.read())).is_err());
        assert!(finefs_locks::order::held_classes().is_empty());
        // Another thread would wait for what this one still holds.
        thread::scope(|scope| {
            scope.spawn(|| {
                stat(namespace);
                assert_eq!(world.read(), Ok(16384));
                namespace.sync().unwrap();
            });
        });
    }
}

/// Which operations on one file's data run beside each other.
#[test]
fn whole_file_locks_exclude_what_ranges_do_not() {
    // (scheme, a read beside a read, a write beside a read), all of them disjoint.
    for (locking, read, write) in [
        (LockingScheme::Fine, true, true),
        (LockingScheme::WholeFile, true, false),
        (LockingScheme::WholeFileMutex, false, false),
        (LockingScheme::UnlockedData, true, true),
    ] {
        let world = World::new(locking);
        let file = world.file;
        let reading = |_: &Namespace, inside: &mut dyn FnMut()| {
            let read = || assert_eq!(world.namespace.read(file, 0, &mut [0; 4096]), Ok(4096));
            during_a_sleep(&world, read, inside);
        };
        let class = "ns.whole_file";
        let found = overlaps(&world.namespace, class, reading, |namespace| {
            assert_eq!(namespace.read(file, 8192, &mut [0; 4096]), Ok(4096));
        });
        assert_eq!(found, read, "{locking:?}: reads");
        let found = overlaps(&world.namespace, class, reading, |namespace| {
            assert_eq!(namespace.write(file, 8192, &[1; 4096]), Ok(4096));
        });
        assert_eq!(found, write, "{locking:?}: a write");
    }
}
