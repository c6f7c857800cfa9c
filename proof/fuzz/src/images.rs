//! Whole images, mutated: replayed, mounted and walked, written.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::sync::Arc;

use finefs_block::{BlockDevice, MemoryDevice};
use finefs_ext::{ExtOptions, ExtStore, ImageInfo};
use finefs_namespace::{AtimePolicy, Caller, Error, FileKind, Ino, Namespace, Options};

use crate::patch::{self, Patched};
use crate::seed::{self, Seed};
use crate::work;

/// A damaged directory tree may have loops, and a damaged inode claim any size.
const ENTRIES_MAX: usize = 3000;
const READ_MAX: usize = 256 << 10;

/// A device whose writes are bugs.
struct Sealed(MemoryDevice);

impl BlockDevice for Sealed {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn is_read_only(&self) -> bool {
        false
    }
    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset_bytes, buffer)
    }
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        panic!("a read-only mount writes");
    }
    fn write_zeros_at(&self, _: u64, _: u64) -> io::Result<()> {
        panic!("a read-only mount writes zeros");
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

fn patched<'d>(data: &'d [u8]) -> Option<Patched<'d>> {
    let seeds: Vec<&Seed> = seed::all().iter().collect();
    patch::apply(data, &seeds, |layout| &layout.metadata)
}

/// Mounts; `None` when the image is refused, in one line.
fn mount(device: Arc<dyn BlockDevice>, is_read_only: bool) -> Option<(Arc<ExtStore>, Namespace)> {
    let options = ExtOptions {
        is_read_only,
        ..ExtOptions::default()
    };
    let store = match ExtStore::open(device, &options) {
        Ok(store) => Arc::new(store),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n') && !line.is_empty(), "{line:?}");
            return None;
        }
    };
    let options = Options {
        is_read_only,
        atime: AtimePolicy::Noatime,
        ..Options::default()
    };
    let namespace = Namespace::without_thread(store.clone(), options).ok()?;
    Some((store, namespace))
}

/// What a walk saw of an object: a digest, or that it could not be read.
type Walked = BTreeMap<Vec<u8>, Option<u64>>;

/// Reads all that can be reached from the root, within limits.
pub(crate) fn walk_all(namespace: &Namespace) -> Walked {
    let mut walked = Walked::new();
    let mut seen = HashSet::new();
    let mut todo = vec![(Vec::new(), namespace.root(), Some(FileKind::Directory))];
    while let Some((path, ino, kind)) = todo.pop() {
        if walked.len() >= ENTRIES_MAX {
            break;
        }
        walked.insert(path.clone(), look(namespace, ino).ok());
        if kind != Some(FileKind::Directory) || !seen.insert(ino) {
            continue;
        }
        let mut below = Vec::new();
        let listed = namespace.read_directory(ino, 0, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                below.push((entry.name.to_vec(), entry.ino, entry.kind));
            }
            below.len() < ENTRIES_MAX
        });
        if listed.is_err() {
            walked.insert(path.clone(), None);
        }
        for (name, ino, kind) in below {
            let _ = namespace.lookup(&Caller::root(), ino, &name);
            todo.push(([&path[..], b"/", &name].concat(), ino, kind));
        }
    }
    let _ = namespace.statfs();
    walked
}

/// All that one object shows of itself.
fn look(namespace: &Namespace, ino: Ino) -> Result<u64, Error> {
    let caller = Caller::root();
    let attributes = namespace.reference(ino)?;
    let mut digest = DefaultHasher::new();
    digest.write(format!("{attributes:?}").as_bytes());
    let mut names = namespace.list_xattrs(&caller, ino)?;
    names.sort();
    for name in names {
        digest.write(&name);
        digest.write(&namespace.xattr(&caller, ino, &name)?);
    }
    match attributes.kind {
        FileKind::Symlink => digest.write(&namespace.read_symlink(ino)?),
        FileKind::Regular => {
            let length = attributes.size_bytes.clamp(5000, READ_MAX as u64);
            let mut buffer = vec![0; length as usize];
            let length = namespace.read(ino, 0, &mut buffer)?;
            digest.write(&buffer[..length]);
            // The end, and where there is data.
            let end = attributes.size_bytes.saturating_sub(5000);
            let length = namespace.read(ino, end, &mut buffer[..5000])?;
            digest.write(&buffer[..length]);
            if let Ok(data) = namespace.seek_data(ino, attributes.size_bytes / 2) {
                digest.write_u64(data);
                let _ = namespace.seek_hole(ino, data);
            }
        }
        _ => {}
    }
    namespace.forget(ino, 1);
    Ok(digest.finish())
}

fn walk_read_only(bytes: &[u8]) -> Option<Walked> {
    let device: Arc<dyn BlockDevice> = Arc::new(Sealed(MemoryDevice::from_bytes(bytes)));
    if let Ok(info) = ImageInfo::gather(device.clone()) {
        assert!(info.to_string().lines().count() > 5);
    }
    let (_, namespace) = mount(device, true)?;
    let walked = walk_all(&namespace);
    let _ = namespace.shut_down();
    Some(walked)
}

/// Mounts a mutated image read-only and reads everything. A good image must mount without an error.
pub fn walk(data: &[u8]) {
    let Some(patched) = patched(data) else { return };
    let walked = walk_read_only(&patched.bytes);
    if patched.is_good {
        let walked = walked.expect("a good image mounts");
        assert!(walked.values().all(Option::is_some), "a good image reads");
    }
}

/// Replays a mutated journal, in memory and on the device: the same must be seen.
pub fn replay(data: &[u8]) {
    let seeds: Vec<&Seed> = seed::with_log().collect();
    let Some(patched) = patch::apply(data, &seeds, |layout| &layout.log) else {
        return;
    };
    let shown = walk_read_only(&patched.bytes);
    let device = Arc::new(MemoryDevice::from_bytes(&patched.bytes));
    let Some((store, namespace)) = mount(device.clone(), false) else {
        assert!(!patched.is_good, "a good image mounts");
        return;
    };
    let notes = store.notes();
    assert!(
        notes.iter().all(|note| note.lines().count() == 1),
        "{notes:?}"
    );
    let _ = namespace.shut_down();
    drop((store, namespace));
    let is_changed = |note: &String| note.contains("orphan") || note.contains("read-only");
    if !notes.iter().any(is_changed) {
        let replayed = walk_read_only(&device.to_bytes());
        expect_equal(shown.as_ref(), replayed.as_ref(), &notes);
    }
}

/// The target `check`: a check writes nothing and finds the same with any number of threads, a
/// repair that is possible leaves nothing to find.
pub fn check(data: &[u8]) {
    let Some(patched) = patched(data) else {
        return;
    };
    let sealed: Arc<dyn BlockDevice> = Arc::new(Sealed(MemoryDevice::from_bytes(&patched.bytes)));
    let [one, two] = [1, 3].map(|jobs| {
        let report = finefs_check::check(
            &sealed,
            &finefs_check::Options {
                jobs,
                ..Default::default()
            },
        );
        report.map(|report| (report.clean, report.to_string()))
    });
    assert!(
        !patched.is_good || one.as_ref().is_ok_and(|(clean, _)| *clean),
        "{one:?}"
    );
    // Which of two entries of a directory is the second depends on who is first.
    let is_twice = |said: &str| said.contains("is also in directory");
    match (&one, &two) {
        (Ok((_, first)), Ok((_, second))) if is_twice(first) && is_twice(second) => {}
        _ => assert_eq!(one, two),
    }
    // What it returns, it has checked.
    let repaired = finefs_check::repair::repair(
        &sealed,
        &finefs_check::Options {
            jobs: 1,
            ..Default::default()
        },
        None,
    );
    if let Ok(finefs_check::repair::Outcome::Done { report, .. }) = repaired {
        assert!(report.clean, "{report}");
    }
}

fn expect_equal(shown: Option<&Walked>, replayed: Option<&Walked>, notes: &[String]) {
    match (shown, replayed) {
        (Some(shown), Some(replayed)) => {
            let differs = |(path, seen): &(&Vec<u8>, &Option<u64>)| shown.get(*path) != Some(*seen);
            let other = replayed
                .iter()
                .find(differs)
                .map(|(path, _)| String::from_utf8_lossy(path));
            assert!(
                other.is_none(),
                "{other:?} is not what was shown: {notes:?}"
            );
            assert_eq!(shown.len(), replayed.len(), "{notes:?}");
        }
        _ => assert_eq!(
            shown.is_some(),
            replayed.is_some(),
            "only one mounts: {notes:?}"
        ),
    }
}

/// Mounts a mutated image for writing, works on it as the rest of the input says, closes it and
/// walks it again.
pub fn write(data: &[u8]) {
    let Some(patched) = patched(data) else { return };
    let device = Arc::new(MemoryDevice::from_bytes(&patched.bytes));
    let Some((store, namespace)) = mount(device.clone(), false) else {
        assert!(!patched.is_good, "a good image mounts");
        return;
    };
    work::work(&namespace, patched.rest);
    let closed = namespace.shut_down();
    drop((store, namespace));
    let walked = walk_read_only(&device.to_bytes());
    if patched.is_good {
        closed.expect("a good image closes");
        let walked = walked.expect("a good image mounts again");
        assert!(walked.values().all(Option::is_some), "a good image reads");
    }
}
