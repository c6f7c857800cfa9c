//! Where the disk that an image lies on is full.

use std::sync::Arc;

use crate::support::{made, reiserfsck};
use finefs_block::{BlockDevice, MemoryDevice};
use finefs_namespace::{
    Caller, Error, Ino, Namespace, Options, SetAttributes, SetTime, Store, Timestamp, XattrMode,
};
use finefs_reiser::{ReiserOptions, ReiserStore};
use finefs_sim::{Fault, FaultDevice, FaultOn};

const LINKS: usize = 5000;
/// When the links were last changed.
const TIME_S: i64 = 1_000_000;

/// A file system on memory whose writes, and whose storage, can be made to fail.
struct World {
    memory: Arc<MemoryDevice>,
    writes: Arc<FaultDevice>,
    storage: Arc<FaultDevice>,
    namespace: Namespace,
}

fn open(image: &[u8]) -> World {
    open_failing(image, Fault::Error)
}

/// With writes that fail so.
fn open_failing(image: &[u8], fault: Fault) -> World {
    let memory = Arc::new(MemoryDevice::from_bytes(image));
    let writes = FaultDevice::new(memory.clone(), FaultOn::Write, u64::MAX, u64::MAX);
    let writes = Arc::new(writes.failing(fault));
    let storage = FaultDevice::new(writes.clone(), FaultOn::Reserve, u64::MAX, u64::MAX);
    let storage = Arc::new(storage.failing(Fault::Full));
    let store = ReiserStore::open(storage.clone(), &ReiserOptions::default()).expect("it mounts");
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    let namespace = Namespace::without_thread(Arc::new(store), Options::default());
    World {
        memory,
        writes,
        storage,
        namespace: namespace.expect("it is"),
    }
}

impl World {
    fn image(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.memory.len_bytes() as usize];
        self.memory.read_at(0, &mut bytes).expect("it is memory");
        bytes
    }

    fn link(&self, number: usize) -> Ino {
        let (root, name) = (self.namespace.root(), format!("link {number}"));
        let found = self
            .namespace
            .lookup(&Caller::root(), root, name.as_bytes());
        found.expect("it is there").ino
    }

    fn time_s(&self, number: usize) -> i64 {
        let ino = self.link(number);
        let found = self.namespace.attributes(ino).expect("it is there");
        self.namespace.forget(ino, 1);
        found.times.modified.seconds()
    }

    /// Sets the times of links until that is refused; tells of how many. They are so long that only
    /// a few are in a leaf, and each leaf changes.
    fn touch(&self) -> usize {
        let touched = (0..LINKS).take_while(|number| {
            let ino = self.link(*number);
            let time = Timestamp::new(TIME_S, 0);
            let change = SetAttributes {
                modified: Some(SetTime::To(time)),
                ..SetAttributes::default()
            };
            let set = self.namespace.set_attributes(&Caller::root(), ino, &change);
            self.namespace.forget(ino, 1);
            assert!(matches!(set, Ok(_) | Err(Error::NoSpace)), "{set:?}");
            set.is_ok()
        });
        touched.count()
    }
}

/// Very many long symbolic links.
fn links() -> Vec<u8> {
    let world = open(&made(32, &["-s", "600"]));
    let root = world.namespace.root();
    for number in 0..LINKS {
        let (name, target) = (format!("link {number}"), vec![b'a'; 1900]);
        let made = (world.namespace).make_symlink(&Caller::root(), root, name.as_bytes(), &target);
        world.namespace.forget(made.expect("there is room").ino, 1);
    }
    world.namespace.shut_down().expect("it is durable");
    world.image()
}

/// Several commits that could not be made durable are, together, more than the journal takes.
#[test]
fn commits_wait_for_storage_however_many_blocks_they_change() {
    let image = links();
    let world = open(&image);
    world.storage.arm(0);
    let touched = world.touch();
    assert!(touched > 1200, "{touched}");
    assert_eq!(world.namespace.sync(), Err(Error::NoSpace));
    world.storage.arm(u64::MAX);
    world.namespace.sync().expect("there is storage again");
    let root = world.namespace.root();
    let made = world
        .namespace
        .create_file(&Caller::root(), root, b"file", 0o600);
    world.namespace.forget(made.expect("there is room").ino, 1);
    world.namespace.shut_down().expect("it is durable");
    let image = world.image();
    drop(world);
    reiserfsck(&image);
    let world = open(&image);
    assert!((0..touched).all(|number| world.time_s(number) == TIME_S));
}

/// One commit is more than the journal takes, and there is no storage for any part of it at first.
#[test]
fn a_commit_in_parts_waits_for_storage() {
    let world = open(&made(32, &["-s", "600"]));
    let (root, caller) = (world.namespace.root(), Caller::root());
    let file = world.namespace.create_file(&caller, root, b"file", 0o600);
    let file = file.expect("there is room").ino;
    // A hole takes a pointer for each of its blocks.
    assert_eq!(world.namespace.write(file, 4 << 30, b"end"), Ok(3));
    world.storage.arm(0);
    assert_eq!(world.namespace.sync(), Err(Error::NoSpace));
    assert_eq!(world.namespace.sync(), Err(Error::NoSpace));
    world.storage.arm(u64::MAX);
    world.namespace.sync().expect("there is storage again");
    world.namespace.forget(file, 1);
    world.namespace.shut_down().expect("it is durable");
    reiserfsck(&world.image());
    let world = open(&world.image());
    let found = world.namespace.lookup(&caller, root, b"file");
    assert_eq!(found.expect("it is there").size_bytes, (4 << 30) + 3);
}

/// Values of attributes that lie in blocks of their own wait for storage as all else does, whether
/// it is missing when it is asked for, or when they are written.
#[test]
fn attributes_wait_for_storage() {
    const LENGTHS: [usize; 4] = [10, 5000, 60_000, 65_536];
    let (caller, name) = (Caller::root(), |length: usize| format!("user.{length}"));
    for are_writes_full in [false, true] {
        let world = open_failing(&made(16, &["-s", "600"]), Fault::Full);
        let namespace = &world.namespace;
        let root = namespace.root();
        let file = namespace.create_file(&caller, root, b"file", 0o600);
        let file = file.expect("there is room").ino;
        namespace.sync().expect("it is durable");
        world.storage.arm(0);
        if are_writes_full {
            world.writes.arm(0);
        }
        let value = |length: usize| vec![length as u8; length];
        for length in LENGTHS {
            let (name, value) = (name(length), value(length));
            let set = namespace.set_xattr(&caller, file, name.as_bytes(), &value, XattrMode::Set);
            assert_eq!(set, Ok(()));
        }
        assert_eq!(namespace.sync(), Err(Error::NoSpace));
        assert_eq!(namespace.sync(), Err(Error::NoSpace));
        let removed = namespace.remove_xattr(&caller, file, b"user.10");
        assert_eq!(removed, Err(Error::NoSpace));
        world.storage.arm(u64::MAX);
        world.writes.arm(u64::MAX);
        namespace.sync().expect("there is storage again");
        namespace.forget(file, 1);
        namespace.shut_down().expect("it is durable");
        let image = world.image();
        reiserfsck(&image);
        let world = open(&image);
        let file = world.namespace.lookup(&caller, root, b"file");
        let file = file.expect("it is there").ino;
        for length in LENGTHS {
            let found = world
                .namespace
                .xattr(&caller, file, name(length).as_bytes());
            assert_eq!(found, Ok(value(length)));
        }
    }
}

/// What is written without the journal is found out when it is interrupted.
#[test]
fn what_an_interrupted_commit_without_the_journal_leaves_is_marked() {
    let image = links();
    let mut marked = 0;
    for writes in (0..40).step_by(3) {
        let world = open(&image);
        world.storage.arm(0);
        world.touch();
        assert_eq!(world.namespace.sync(), Err(Error::NoSpace));
        world.storage.arm(u64::MAX);
        world.writes.arm(writes);
        if world.namespace.sync().is_ok() {
            break;
        }
        let left = world.image();
        drop(world);
        let options = ReiserOptions::default();
        let device = Arc::new(MemoryDevice::from_bytes(&left));
        let store = ReiserStore::open(device, &options).expect("it mounts");
        match store
            .notes()
            .iter()
            .any(|note| note.contains("has found errors"))
        {
            true => marked += 1,
            false => reiserfsck(&left),
        }
    }
    assert!(marked > 3, "{marked}");
}
