//! Copies of ranges, over the memory store: data and holes, beside a model of both files.

use std::sync::Arc;

use finefs_namespace::types::{Caller, Ino, SetAttributes};
use finefs_namespace::{
    AllocateMode, Error, FileFlags, MemoryStore, Namespace, Options, SetTime, SourceEnd, Timestamp,
    XattrMode,
};

const BLOCK: u64 = 4096;

fn memory(bytes: u64) -> Arc<Namespace> {
    let store = MemoryStore::new(bytes, 0o755, 0, 0).unwrap();
    store.into_namespace(Options::default()).unwrap()
}

fn file(ns: &Namespace, name: &[u8]) -> Ino {
    let made = ns.create_file(&Caller::root(), ns.root(), name, 0o644);
    made.unwrap().ino
}

fn content(ns: &Namespace, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![1; ns.attributes(ino).unwrap().size_bytes as usize + 1];
    let length = ns.read(ino, 0, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

fn sectors(ns: &Namespace, ino: Ino) -> u64 {
    ns.attributes(ino).unwrap().sectors
}

fn set_flags(ns: &Namespace, ino: Ino, flags: FileFlags) {
    const ALL: FileFlags = FileFlags::IMMUTABLE
        .union(FileFlags::APPEND_ONLY)
        .union(FileFlags::SYNC);
    let change = |before: FileFlags| (before - ALL) | flags;
    ns.set_flags(&Caller::root(), ino, change).unwrap();
}

#[test]
fn data_and_holes_are_copied_up_to_the_end() {
    let ns = memory(64 << 20);
    let (from, to) = (file(&ns, b"from"), file(&ns, b"to"));
    ns.write(from, 0, &[1; 5000]).unwrap();
    ns.write(from, 3 << 20, &[2; 5000]).unwrap();
    let size = (3 << 20) + 5000;
    let copy = |length| ns.copy_range((from, 0), (to, 0), length, SourceEnd::Size);
    assert_eq!(copy(u64::MAX), Ok(size));
    assert!(content(&ns, to) == content(&ns, from));
    assert_eq!(sectors(&ns, to), sectors(&ns, from));
    let end = |at| ns.copy_range((from, at), (to, 0), 10, SourceEnd::Size);
    assert_eq!(end(size), Ok(0));
    assert_eq!(end(u64::MAX), Ok(0));
    assert_eq!(end(size - 3), Ok(3));
    assert_eq!(copy(0), Ok(0));
    // A part of it, to beyond the end of another.
    let at = 100_001;
    let other = file(&ns, b"other");
    let copied = ns.copy_range((from, 4000), (other, at), 2000, SourceEnd::Size);
    assert_eq!(copied, Ok(2000));
    let mut expected = vec![0; at as usize];
    expected.extend([1; 1000]);
    expected.extend([0; 1000]);
    assert!(content(&ns, other) == expected);
}

#[test]
fn a_hole_takes_what_was_there() {
    let ns = memory(64 << 20);
    let (from, to) = (file(&ns, b"from"), file(&ns, b"to"));
    let truncated = SetAttributes {
        size_bytes: Some(1 << 20),
        ..SetAttributes::default()
    };
    ns.set_attributes(&Caller::root(), from, &truncated)
        .unwrap();
    ns.write(to, 0, &[7; 10 * BLOCK as usize]).unwrap();
    let copied = ns.copy_range((from, 5), (to, 100), 5 * BLOCK, SourceEnd::Size);
    assert_eq!(copied, Ok(5 * BLOCK));
    let mut expected = vec![7; 10 * BLOCK as usize];
    expected[100..100 + 5 * BLOCK as usize].fill(0);
    assert!(content(&ns, to) == expected);
    assert_eq!(sectors(&ns, to), 6 * 8);
    // What is allocated and holds nothing stays so.
    let kept = file(&ns, b"kept");
    ns.allocate(kept, AllocateMode::Extend, 0, 10 * BLOCK)
        .unwrap();
    let before = sectors(&ns, kept);
    ns.copy_range((from, 0), (kept, 0), 20 * BLOCK, SourceEnd::Size)
        .unwrap();
    assert_eq!(sectors(&ns, kept), before);
    assert_eq!(content(&ns, kept), [0; 20 * BLOCK as usize]);
    // And so is copied what is allocated and holds nothing: as a hole.
    let last = file(&ns, b"last");
    ns.copy_range((kept, 0), (last, 0), 20 * BLOCK, SourceEnd::Size)
        .unwrap();
    assert_eq!(sectors(&ns, last), 0);
    assert_eq!(content(&ns, last).len() as u64, 20 * BLOCK);
}

/// The kernel's write-back cache has written out what it has, and has cut the range at its end.
#[test]
fn beyond_the_end_there_may_be_a_hole() {
    let ns = memory(64 << 20);
    let (from, to) = (file(&ns, b"from"), file(&ns, b"to"));
    ns.write(from, 0, b"text").unwrap();
    let copied = ns.copy_range((from, 2), (to, 0), 10, SourceEnd::Beyond);
    assert_eq!(copied, Ok(10));
    assert_eq!(content(&ns, to), b"xt\0\0\0\0\0\0\0\0");
    let copied = ns.copy_range((from, 100), (to, 1), 2, SourceEnd::Beyond);
    assert_eq!(copied, Ok(2));
    assert_eq!(content(&ns, to), [b'x', 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn what_cannot_be_copied_is_refused() {
    let ns = memory(64 << 20);
    let (from, to) = (file(&ns, b"from"), file(&ns, b"to"));
    ns.write(from, 0, &[1; 100]).unwrap();
    ns.write(to, 0, &[2; 100]).unwrap();
    let copy = |from, to, length| ns.copy_range(from, to, length, SourceEnd::Size);
    assert_eq!(copy((from, 0), (from, 50), 51), Err(Error::Invalid));
    assert_eq!(copy((from, 49), (from, 0), 51), Err(Error::Invalid));
    assert_eq!(copy((from, 0), (from, 0), 1), Err(Error::Invalid));
    assert_eq!(copy((from, 0), (from, 50), 50), Ok(50));
    // What is behind the end does not overlap.
    assert_eq!(copy((from, 50), (from, 100), 70), Ok(50));
    let dir = ns.root();
    assert_eq!(copy((dir, 0), (to, 0), 1), Err(Error::IsADirectory));
    assert_eq!(copy((from, 0), (dir, 0), 1), Err(Error::IsADirectory));
    assert_eq!(copy((from, 0), (to, u64::MAX), 1), Err(Error::FileTooLarge));
    for (flags, at, outcome) in [
        (FileFlags::IMMUTABLE, 0, Err(Error::NotPermitted)),
        (FileFlags::SYNC, 0, Err(Error::NotSupported)),
        (FileFlags::APPEND_ONLY, 99, Err(Error::NotPermitted)),
        (FileFlags::APPEND_ONLY, 100, Ok(10)),
    ] {
        set_flags(&ns, to, flags);
        assert_eq!(copy((from, 0), (to, at), 10), outcome, "{flags:?}");
        set_flags(&ns, to, FileFlags::empty());
    }
    // A hole is no way around it.
    let hole = file(&ns, b"hole");
    let size = SetAttributes {
        size_bytes: Some(50),
        ..SetAttributes::default()
    };
    ns.set_attributes(&Caller::root(), hole, &size).unwrap();
    set_flags(&ns, to, FileFlags::IMMUTABLE);
    assert_eq!(copy((hole, 0), (to, 0), 10), Err(Error::NotPermitted));
    assert_eq!(copy((to, 0), (from, 0), 10), Ok(10), "it can be read");
}

#[test]
fn what_fits_is_copied() {
    let ns = memory(8 << 20);
    let (from, to) = (file(&ns, b"from"), file(&ns, b"to"));
    let data: Vec<u8> = (0..5 << 20).map(|at: u32| (at / 1000) as u8).collect();
    ns.write(from, 0, &data).unwrap();
    let copy = |at: u64| ns.copy_range((from, at), (to, at), u64::MAX, SourceEnd::Size);
    let copied = copy(0).unwrap();
    assert!(copied > 1 << 20 && copied < 5 << 20, "{copied}");
    assert_eq!(copy(copied), Err(Error::NoSpace));
    assert!(content(&ns, to) == data[..copied as usize]);
}

#[test]
fn times_and_capabilities_change_as_by_a_write() {
    const NAME: &[u8] = b"security.capability";
    let long_ago = Timestamp::new(1_000_000, 0);
    let ns = memory(64 << 20);
    let root = Caller::root();
    let (data, hole, to) = (file(&ns, b"data"), file(&ns, b"hole"), file(&ns, b"to"));
    ns.write(data, 0, &[1; 100]).unwrap();
    let size = SetAttributes {
        size_bytes: Some(100),
        ..SetAttributes::default()
    };
    ns.set_attributes(&root, hole, &size).unwrap();
    let past = SetAttributes {
        accessed: Some(SetTime::To(long_ago)),
        modified: Some(SetTime::To(long_ago)),
        ..SetAttributes::default()
    };
    // The last one finds a hole.
    for from in [hole, data, hole, hole] {
        ns.set_xattr(&root, to, NAME, b"caps", XattrMode::Set)
            .unwrap();
        for ino in [from, to] {
            ns.set_attributes(&root, ino, &past).unwrap();
        }
        let changed = ns.attributes(to).unwrap().times.changed;
        std::thread::sleep(std::time::Duration::from_millis(20));
        let copied = ns.copy_range((from, 0), (to, 0), 100, SourceEnd::Size);
        assert_eq!(copied, Ok(100));
        let (source, target) = (ns.attributes(from).unwrap(), ns.attributes(to).unwrap());
        assert_ne!(target.times.modified, long_ago);
        assert!(target.times.changed > changed);
        assert_eq!(target.times.accessed, long_ago);
        assert_ne!(source.times.accessed, long_ago);
        assert_eq!(source.times.modified, long_ago);
        assert_eq!(ns.xattr(&root, to, NAME), Err(Error::NoAttribute));
    }
}

/// Writes, holes and copies at random, in one file and between two.
#[test]
fn copies_are_as_the_model_has_them() {
    const SPACE: u64 = 20 * BLOCK;
    let ns = memory(64 << 20);
    let files = [file(&ns, b"one"), file(&ns, b"two")];
    let mut models = [Vec::new(), Vec::new()];
    let mut state = 12_345_u64;
    let mut below = move |limit: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    for round in 0..3000 {
        let (which, at) = (below(2) as usize, below(SPACE));
        let (ino, length) = (files[which], 1 + below(4 * BLOCK));
        let model = &mut models[which];
        match below(6) {
            0 => {
                let data = vec![1 + (round % 255) as u8; length as usize];
                ns.write(ino, at, &data).unwrap();
                put(model, at, &data);
            }
            1 => {
                ns.allocate(ino, AllocateMode::PunchHole, at, length)
                    .unwrap();
                let end = model.len().min((at + length) as usize);
                model[end.min(at as usize)..end].fill(0);
            }
            2 if round % 4 == 0 => {
                let size = SetAttributes {
                    size_bytes: Some(at),
                    ..SetAttributes::default()
                };
                ns.set_attributes(&Caller::root(), ino, &size).unwrap();
                model.resize(at as usize, 0);
            }
            _ => {
                let (to, there) = (below(2) as usize, below(SPACE));
                let copied = ns.copy_range((ino, at), (files[to], there), length, SourceEnd::Size);
                let start = model.len().min(at as usize);
                let end = model.len().min((at + length) as usize);
                let data = model[start..end].to_vec();
                if which == to && at.abs_diff(there) < data.len() as u64 {
                    assert_eq!(copied, Err(Error::Invalid));
                    continue;
                }
                assert_eq!(copied, Ok(data.len() as u64));
                if !data.is_empty() {
                    put(&mut models[to], there, &data);
                }
            }
        }
        for (ino, model) in files.iter().zip(&models) {
            assert!(content(&ns, *ino) == *model, "round {round}");
        }
    }
}

fn put(model: &mut Vec<u8>, at: u64, data: &[u8]) {
    let end = at as usize + data.len();
    model.resize(model.len().max(end), 0);
    model[at as usize..end].copy_from_slice(data);
}
