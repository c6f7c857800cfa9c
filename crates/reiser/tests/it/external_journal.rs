//! Journals on a device of their own, as mkreiserfs makes them: replayed, written, and told apart
//! from those of others; what a loss of power leaves of two devices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::support;
use crate::support::reiserfsck::check_with;
use finefs_block::{Access, BlockDevice, FileDevice, MemoryDevice};
use finefs_namespace::{Caller, Namespace, Options, Store};
use finefs_reiser::{MountErrorKind, ReiserOptions, ReiserStore};

/// Where the superblock's state is.
const STATE_AT: usize = 65_536 + 50;
const NOT_CLEAN: u8 = 2;
/// Where a journal of 600 blocks has its number.
const MAGIC_AT: usize = 599 * 4096 + 28;

struct Pair {
    _directory: tempfile::TempDir,
    image: PathBuf,
    journal: PathBuf,
}

/// An empty file system, and its journal from a block of the other file on.
fn make(format: &str, journal_at: u32) -> Pair {
    let directory = tempfile::tempdir().expect("a directory");
    let pair = Pair {
        image: directory.path().join("image"),
        journal: directory.path().join("journal"),
        _directory: directory,
    };
    std::fs::write(&pair.image, vec![0; 8 << 20]).expect("there is room");
    std::fs::write(&pair.journal, vec![0; 4 << 20]).expect("there is room");
    let made = Command::new("mkreiserfs")
        .args(["-q", "-q", "-f", "-f", "-s", "600", "--format", format])
        .args(["-o", &journal_at.to_string(), "-j"])
        .args([&pair.journal, &pair.image])
        .output()
        .expect("mkreiserfs runs");
    assert!(made.status.success(), "{made:?}");
    pair
}

fn file(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(FileDevice::open(path, Access::ReadWrite).expect("it opens"))
}

fn with(journal: Option<Arc<dyn BlockDevice>>) -> ReiserOptions {
    ReiserOptions {
        journal,
        ..ReiserOptions::default()
    }
}

fn namespace(store: ReiserStore) -> Namespace {
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    Namespace::without_thread(Arc::new(store), Options::default()).expect("it is")
}

fn add(namespace: &Namespace, name: &str) {
    let made = namespace.create_file(&Caller::root(), namespace.root(), name.as_bytes(), 0o600);
    let ino = made.expect("there is room").ino;
    assert_eq!(namespace.write(ino, 0, &[7; 5000]), Ok(5000));
    namespace.forget(ino, 1);
}

#[test]
fn a_journal_elsewhere_is_written_and_replayed() {
    for (format, journal_at) in [("3.6", 0), ("3.6", 40), ("3.5", 7)] {
        let pair = make(format, journal_at);
        let store = ReiserStore::open(file(&pair.image), &with(Some(file(&pair.journal))));
        let namespace = namespace(store.expect("it mounts"));
        add(&namespace, "first");
        namespace.sync().expect("it is durable");
        // As a crash leaves it: what is in the log, and not in its place.
        let places = std::fs::read(&pair.image).expect("it is there");
        add(&namespace, "second");
        namespace.sync().expect("it is durable");
        let log = std::fs::read(&pair.journal).expect("it is there");
        namespace.shut_down().expect("it is durable");
        drop(namespace);
        check_with(&[Path::new("-j"), &pair.journal], &pair.image);

        let devices = (
            Arc::new(MemoryDevice::from_bytes(&places)),
            Arc::new(MemoryDevice::from_bytes(&log)),
        );
        let options = ReiserOptions {
            is_read_only: true,
            ..with(Some(devices.1.clone()))
        };
        let shown = ReiserStore::open(devices.0.clone(), &options).expect("it mounts");
        assert_eq!(names(&shown), ["first", "second"]);
        assert!(shown.notes()[0].contains("shown as replayed"));
        drop(shown);
        let store = ReiserStore::open(devices.0, &with(Some(devices.1))).expect("it mounts");
        assert_eq!(names(&store), ["first", "second"]);
        assert!(store.notes()[0].contains("replayed"), "{:?}", store.notes());
    }
}

/// The names in the root, in order.
fn names(store: &ReiserStore) -> Vec<String> {
    let root = store.load_directory(store.geometry().root);
    let entries = root.expect("it is sound").entries.into_iter();
    let mut names: Vec<String> = entries
        .map(|entry| String::from_utf8(entry.name).expect("text"))
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_not_the_journal_is_refused() {
    let pair = make("3.6", 0);
    let other = pair.image.with_extension("other");
    let mut bytes = std::fs::read(&pair.journal).expect("it is there");
    bytes[MAGIC_AT] ^= 1;
    std::fs::write(&other, bytes).expect("there is room");
    let open = |journal: Option<&Path>| {
        let opened = ReiserStore::open(file(&pair.image), &with(journal.map(file)));
        opened.map(|store| (store.geometry().is_read_only, store.notes()))
    };
    let (is_read_only, notes) = open(None).expect("it is clean");
    assert!(
        is_read_only && notes[0].contains("journal_path="),
        "{notes:?}"
    );
    let refused = open(Some(&other)).expect_err("another one");
    assert!(
        matches!(refused.kind, MountErrorKind::JournalDevice(_)),
        "{refused}"
    );
    let said = refused.to_string();
    assert!(
        said.contains("is not the journal of this file system"),
        "{said}"
    );
    let small = pair.image.with_extension("small");
    std::fs::write(&small, [0; 4096]).expect("there is room");
    let refused = open(Some(&small)).expect_err("too small");
    assert!(refused.to_string().contains("too small"), "{refused}");

    let mut bytes = std::fs::read(&pair.image).expect("it is there");
    bytes[STATE_AT] = NOT_CLEAN;
    std::fs::write(&pair.image, bytes).expect("there is room");
    let refused = open(None).expect_err("it must be replayed");
    assert!(
        matches!(refused.kind, MountErrorKind::ExternalJournal),
        "{refused}"
    );
    let options = ReiserOptions {
        skips_recovery: true,
        ..with(None)
    };
    let store = ReiserStore::open(file(&pair.image), &options).expect("it is left alone");
    assert!(store.geometry().is_read_only);
    assert!(
        store.notes()[0].contains("not replayed"),
        "{:?}",
        store.notes()
    );
    drop(store);
    let (is_read_only, notes) = open(Some(&pair.journal)).expect("it is this one");
    assert!(!is_read_only, "{notes:?}");
}

/// What happened to two devices, in order.
#[derive(Clone)]
enum Event {
    Write {
        at: u64,
        data: Vec<u8>,
    },
    Flush,
    /// So many files are durable.
    Synced(usize),
}

/// One of two devices with one record.
struct Disk {
    inner: MemoryDevice,
    number: usize,
    events: Arc<Mutex<Vec<(usize, Event)>>>,
}

impl Disk {
    fn note(&self, event: Event) {
        let mut events = self.events.lock().expect("nobody panicked");
        events.push((self.number, event));
    }
}

impl BlockDevice for Disk {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.inner.read_at(offset_bytes, buffer)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        self.note(Event::Write {
            at: offset_bytes,
            data: data.to_vec(),
        });
        self.inner.write_at(offset_bytes, data)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> std::io::Result<()> {
        self.write_at(offset_bytes, &vec![0; length_bytes as usize])
    }

    fn flush(&self) -> std::io::Result<()> {
        self.note(Event::Flush);
        Ok(())
    }

    fn describe(&self) -> String {
        format!("disk {}", self.number)
    }
}

/// Whatever one of two disks holds back until it is flushed, while the other one writes at once:
/// all that was synced is there, and nothing is torn.
#[test]
fn each_disk_is_flushed_in_time() {
    const FILES: usize = 8;
    let pair = make("3.6", 0);
    let before: [Vec<u8>; 2] =
        [&pair.image, &pair.journal].map(|path| std::fs::read(path).expect("it is there"));
    let events = Arc::new(Mutex::new(Vec::new()));
    let disks: Vec<Arc<dyn BlockDevice>> = (0..2)
        .map(|number| -> Arc<dyn BlockDevice> {
            Arc::new(Disk {
                inner: MemoryDevice::from_bytes(&before[number]),
                number,
                events: events.clone(),
            })
        })
        .collect();
    let store = ReiserStore::open(disks[0].clone(), &with(Some(disks[1].clone())));
    let namespace = namespace(store.expect("it mounts"));
    for number in 0..FILES {
        add(&namespace, &format!("{number:02}"));
        if number % 2 == 1 {
            namespace.sync().expect("it is durable");
            let synced = Event::Synced(number + 1);
            events.lock().expect("nobody panicked").push((0, synced));
        }
    }
    namespace.shut_down().expect("it is durable");
    drop(namespace);
    let events = events.lock().expect("nobody panicked").clone();
    assert!(events.len() > 50, "{} events", events.len());
    for end in 0..=events.len() {
        for holds_back in [[false, false], [true, false], [false, true], [true, true]] {
            judge(&before, &events[..end], holds_back);
        }
    }
}

/// What is left of two disks, each of which may hold back what it was not told to flush.
fn judge(before: &[Vec<u8>; 2], events: &[(usize, Event)], holds_back: [bool; 2]) {
    let (mut cached, mut synced) = (before.clone(), 0);
    let mut durable = before.clone();
    for (disk, event) in events {
        match event {
            Event::Write { at, data } => {
                let at = *at as usize;
                cached[*disk][at..at + data.len()].copy_from_slice(data);
                if !holds_back[*disk] {
                    durable[*disk][at..at + data.len()].copy_from_slice(data);
                }
            }
            Event::Flush => durable[*disk].clone_from(&cached[*disk]),
            Event::Synced(files) => synced = *files,
        }
    }
    let [image, journal] = durable.map(|bytes| Arc::new(MemoryDevice::from_bytes(&bytes)));
    let what = format!("{} events, {holds_back:?}", events.len());
    let store = ReiserStore::open(image, &with(Some(journal)));
    let store = store.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(
        !store.geometry().is_read_only,
        "{what}: {:?}",
        store.notes()
    );
    let names = names(&store);
    assert!(names.len() >= synced, "{what}: {names:?}, not {synced}");
    let seen = support::walk(&store);
    let files = seen.iter().filter(|(path, _)| *path != b".");
    for (path, found) in files {
        let (_, content) = found.as_ref().expect("it is sound");
        let is_whole = *content == [7; 5000];
        assert!(is_whole, "{what}: {}", path.escape_ascii());
    }
}
