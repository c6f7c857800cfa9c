//! Random operations on a namespace over a reiserfs image against the reference model: images of
//! several kinds, reopened now and then, and reiserfsck finds nothing each time.
//!
//! `FINEFS_SEEDS=first..end` and `FINEFS_STEPS=n` run others than the default.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::image::{self, Format};
use finefs_block::{Access, FileDevice};
use finefs_namespace::{
    Caller, Error, FileKind, Ino, Namespace, Options, RenameMode, SetAttributes, SetTime, Store,
    Timestamp,
};
use finefs_reiser::{ReiserOptions, ReiserStore};
use finefs_reiser_disk::hash::NameHash;

/// Why reiserfsck is not content, if it is not.
fn check(path: &Path) -> Result<(), String> {
    let output = Command::new("reiserfsck")
        .args(["--check", "--yes"])
        .arg(path)
        .output()
        .map_err(|error| error.to_string())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    match output.status.success() && text.contains("No corruptions found") {
        true => Ok(()),
        false => Err(format!("reiserfsck: {}\n{text}", output.status)),
    }
}

fn open(path: &Path) -> Namespace {
    let device = Arc::new(FileDevice::open(path, Access::ReadWrite).unwrap());
    let store = ReiserStore::open(device, &ReiserOptions::default()).unwrap();
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    let options = Options {
        // So few that commits evict whatever they may.
        cache_bytes: 0,
        ..Options::default()
    };
    Namespace::without_thread(Arc::new(store), options).unwrap()
}

fn make(path: &Path, mib: u64, mkfs: &[&str]) {
    File::create(path).unwrap().set_len(mib << 20).unwrap();
    let output = Command::new("mkreiserfs")
        .args(["-q", "-q", "-f", "-f"])
        .args(mkfs)
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn check_images(seeds: std::ops::Range<u64>, mib: u64, mkfs: &[&str]) {
    image::check_images(Format { open, check }, seeds, &|path| make(path, mib, mkfs));
}

#[test]
fn usual_blocks() {
    check_images(0..8, 48, &[]);
}

#[test]
fn a_small_journal() {
    check_images(100..106, 24, &["-s", "600", "--hash", "tea"]);
}

#[test]
fn small_blocks() {
    check_images(200..208, 24, &["-b", "1024", "--hash", "rupasov"]);
}

#[test]
fn the_smallest_blocks() {
    check_images(300..306, 16, &["-b", "512", "-s", "1100"]);
}

#[test]
fn the_old_format() {
    check_images(400..406, 24, &["--format", "3.5", "-s", "600"]);
}

#[test]
fn the_old_format_with_the_usual_journal() {
    check_images(500..504, 48, &["--format", "3.5", "--hash", "rupasov"]);
}

/// Names of one hash, as many as there are; and the hash's option of mkreiserfs.
fn colliding(hash: NameHash) -> Vec<Vec<u8>> {
    // One letter up and the next one so far down that the sum of the hash stays.
    let pairs = |up: &[u8; 2], down: &[u8; 2]| {
        let names = 0..256_u32;
        let one = |number: u32| {
            let bits = (0..8).map(|bit| number >> bit & 1 == 1);
            bits.flat_map(|is_up| if is_up { *up } else { *down })
                .collect()
        };
        names.map(one).collect()
    };
    match hash {
        NameHash::R5 => pairs(b"ba", b"al"),
        NameHash::Rupasov => pairs(b"ba", b"ak"),
        // A negative byte covers those behind it.
        NameHash::Tea => (0..256_u32)
            .map(|number| format!("{number:03}").into_bytes())
            .map(|digits| [b"\x80", &digits[..]].concat())
            .collect(),
    }
}

/// A directory holds 128 names of one hash. The next one is refused by the operation, not by the
/// commit, and one more fits where another one goes.
#[test]
fn names_of_one_hash() {
    for hash in [NameHash::R5, NameHash::Tea, NameHash::Rupasov] {
        let names = colliding(hash);
        let place = |name: &Vec<u8>| hash.entry_offset(name);
        assert!(names.iter().all(|name| place(name) == place(&names[0])));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        make(&path, 24, &["-s", "600", "--hash", hash.name()]);
        let namespace = open(&path);
        let caller = &Caller::root();
        let made = namespace.make_directory(caller, namespace.root(), b"dir", 0o755);
        let dir = made.unwrap().ino;
        for name in &names[..128] {
            let made = namespace.create_file(caller, dir, name, 0o644);
            namespace.forget(made.unwrap().ino, 1);
        }
        refuses(&namespace, dir, &names[128]);
        // In one commit.
        namespace.remove_file(caller, dir, &names[5]).unwrap();
        let (root, last) = (namespace.root(), &names[128]);
        let other = namespace.create_file(caller, root, b"other", 0o644);
        namespace.forget(other.unwrap().ino, 1);
        let mode = RenameMode::NoReplace;
        namespace
            .rename(caller, (root, b"other"), (dir, last), mode)
            .unwrap();
        namespace.sync().unwrap();
        refuses(&namespace, dir, &names[129]);
        namespace.forget(dir, 1);
        namespace.shut_down().unwrap();
        drop(namespace);
        check(&path).unwrap();
        let namespace = open(&path);
        let dir = namespace.lookup(caller, root, b"dir").unwrap().ino;
        refuses(&namespace, dir, &names[129]);
        let mut listed = Vec::new();
        namespace
            .read_directory(dir, 0, &mut |entry| {
                listed.push(entry.name.to_vec());
                true
            })
            .unwrap();
        listed.retain(|name| name != b"." && name != b"..");
        listed.sort();
        let mut expected = [&names[..5], &names[6..129]].concat();
        expected.sort();
        assert_eq!(listed, expected);
    }
}

/// Whatever would give a directory this name is EBUSY, and nothing comes of it.
fn refuses(namespace: &Namespace, dir: Ino, name: &[u8]) {
    let (caller, root) = (&Caller::root(), namespace.root());
    let file = namespace.create_file(caller, root, b"a file", 0o644);
    let file = file.unwrap().ino;
    let before = (namespace.statfs(), namespace.attributes(dir).unwrap());
    let refused = [
        namespace.create_file(caller, dir, name, 0o644),
        namespace.make_directory(caller, dir, name, 0o755),
        namespace.make_symlink(caller, dir, name, b"target"),
        namespace.make_node(caller, dir, name, FileKind::Fifo, 0o644, 0),
        namespace.make_link(caller, file, dir, name),
    ];
    assert_eq!(refused, [const { Err(Error::Busy) }; 5]);
    for mode in [
        RenameMode::Replace,
        RenameMode::NoReplace,
        RenameMode::Whiteout,
    ] {
        let renamed = namespace.rename(caller, (root, b"a file"), (dir, name), mode);
        assert_eq!(renamed, Err(Error::Busy));
    }
    assert_eq!(
        before,
        (namespace.statfs(), namespace.attributes(dir).unwrap())
    );
    let found = namespace.lookup(caller, dir, name).map(drop);
    assert_eq!(found, Err(Error::NotFound));
    assert_eq!(namespace.attributes(file).unwrap().link_count, 1);
    namespace.remove_file(caller, root, b"a file").unwrap();
    namespace.forget(file, 1);
}

/// Times are whole seconds without a sign, from the operation on and not only once they are loaded.
#[test]
fn times_are_shown_as_they_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    make(&path, 24, &["-s", "600"]);
    let caller = &Caller::root();
    let times = [-5, 5, 1 << 31, (1 << 32) - 1, 1 << 33];
    let expected = [0, 5, 1 << 31, (1 << 32) - 1, (1 << 32) - 1];
    let shown = |namespace: &Namespace| {
        let seconds = (0..times.len()).map(|number| {
            let name = format!("file {number}");
            let found = namespace.lookup(caller, namespace.root(), name.as_bytes());
            let found = found.unwrap();
            namespace.forget(found.ino, 1);
            assert_eq!(found.times.modified.nanoseconds(), 0);
            found.times.modified.seconds()
        });
        seconds.collect::<Vec<i64>>()
    };
    let namespace = open(&path);
    for (number, seconds) in times.iter().enumerate() {
        let name = format!("file {number}");
        let made = namespace.create_file(caller, namespace.root(), name.as_bytes(), 0o644);
        let ino = made.unwrap().ino;
        let change = SetAttributes {
            modified: Some(SetTime::To(Timestamp::new(*seconds, 7))),
            ..SetAttributes::default()
        };
        namespace.set_attributes(caller, ino, &change).unwrap();
        namespace.forget(ino, 1);
    }
    assert_eq!(shown(&namespace), expected);
    namespace.shut_down().unwrap();
    drop(namespace);
    assert_eq!(shown(&open(&path)), expected);
}
