//! Names that a directory must not have: those that operations refuse, and those that damage left.

use std::sync::Arc;

use crate::support::{made, reiserfsck};
use finefs_block::MemoryDevice;
use finefs_namespace::{
    Batch, Caller, DirectoryChange, Error, FileKind, Ino, Namespace, Options, RenameMode, Store,
    XattrMode,
};
use finefs_reiser::{ReiserOptions, ReiserStore};
use finefs_reiser_disk::hash::NameHash;

const BLOCK: usize = 4096;
/// The directory of the root that holds all attributes.
const HIDDEN: &[u8] = b".reiserfs_priv";

fn store(image: &[u8]) -> (Arc<MemoryDevice>, ReiserStore) {
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let store = ReiserStore::open(device.clone(), &ReiserOptions::default()).expect("it mounts");
    assert!(!store.geometry().is_read_only, "{:?}", store.notes());
    (device, store)
}

fn open(image: &[u8]) -> (Arc<MemoryDevice>, Namespace) {
    let (device, store) = store(image);
    let namespace = Namespace::without_thread(Arc::new(store), Options::default());
    (device, namespace.expect("it is"))
}

fn made_file(namespace: &Namespace, parent: Ino, name: &[u8]) -> Ino {
    let made = namespace.create_file(&Caller::root(), parent, name, 0o600);
    made.expect("there is room").ino
}

fn found(namespace: &Namespace, parent: Ino, name: &[u8]) -> Ino {
    let found = namespace.lookup(&Caller::root(), parent, name);
    found.expect("it is there").ino
}

fn set(namespace: &Namespace, ino: Ino, name: &[u8]) -> Result<(), Error> {
    namespace.set_xattr(&Caller::root(), ino, name, b"value", XattrMode::Set)
}

/// An image on which a name is another of the same length, where directories and files have it.
/// With `moves`, it then lies where its hash says.
fn renamed(image: &[u8], from: &[u8], to: &[u8], moves: bool) -> Vec<u8> {
    let mut image = image.to_vec();
    let mut renamed = 0;
    for block in image.chunks_mut(BLOCK) {
        let before = renamed;
        renamed += replace(block, from, to);
        if moves && renamed > before {
            let [old, new] = [from, to].map(|name| NameHash::R5.entry_offset(name).to_le_bytes());
            assert!(replace(block, &old, &new) > 0);
        }
    }
    assert!(renamed > 0);
    image
}

/// Replaces bytes by others, as many; tells how often.
fn replace(block: &mut [u8], from: &[u8], to: &[u8]) -> usize {
    let mut count = 0;
    for at in 0..=block.len() - from.len() {
        if block[at..].starts_with(from) {
            block[at..at + to.len()].copy_from_slice(to);
            count += 1;
        }
    }
    count
}

/// A directory cannot have such a name, and an attribute's is one.
#[test]
fn attributes_with_a_slash_in_their_names_are_refused() {
    let (device, namespace) = open(&made(8, &["-s", "600"]));
    let (root, caller) = (namespace.root(), Caller::root());
    let file = made_file(&namespace, root, b"file");
    for name in [&b"user.a/b"[..], b"security./"] {
        assert_eq!(set(&namespace, file, name), Err(Error::AccessDenied));
    }
    // No file system has such an attribute.
    let refused = set(&namespace, file, b"user.a\0b");
    assert_eq!(refused, Err(Error::Invalid));
    let labels = [(&b"security.a/b"[..], &b"value"[..])];
    let labelled = namespace.labelled(&labels);
    let refused = [
        labelled.create_file(&caller, root, b"one", 0o600),
        labelled.make_directory(&caller, root, b"two", 0o700),
        labelled.make_symlink(&caller, root, b"three", b"target"),
        labelled.create_unnamed(&caller, root, 0o600),
    ];
    for made in refused {
        assert_eq!(made.map(drop), Err(Error::AccessDenied));
    }
    assert_eq!(set(&namespace, file, b"user.a_b"), Ok(()));
    namespace.sync().expect("it is durable");
    let removed = namespace.remove_xattr(&caller, file, b"user.a_b");
    assert_eq!(removed, Ok(()));
    namespace.forget(file, 1);
    namespace.shut_down().expect("it is durable");
    reiserfsck(&device.to_bytes());
}

/// An image that has such an attribute all the same is rid of it with the attribute, or the file.
#[test]
fn attributes_with_a_slash_in_their_names_can_be_removed() {
    let (device, namespace) = open(&made(8, &["-s", "600"]));
    let (root, caller) = (namespace.root(), Caller::root());
    for name in [&b"cleaned"[..], b"removed"] {
        let file = made_file(&namespace, root, name);
        assert_eq!(set(&namespace, file, b"user.a_b"), Ok(()));
        assert_eq!(set(&namespace, file, b"user.other"), Ok(()));
        namespace.forget(file, 1);
    }
    namespace.shut_down().expect("it is durable");
    for moves in [true, false] {
        let image = renamed(&device.to_bytes(), b"user.a_b", b"user.a/b", moves);
        let (device, namespace) = open(&image);
        let file = found(&namespace, root, b"cleaned");
        let mut names = namespace.list_xattrs(&caller, file).expect("they are read");
        names.sort();
        assert_eq!(names, [&b"user.a/b"[..], b"user.other"]);
        let removed = namespace.remove_xattr(&caller, file, b"user.a/b");
        assert_eq!(removed, Ok(()));
        let removed = namespace.remove_file(&caller, root, b"removed");
        assert_eq!(removed, Ok(()));
        namespace.forget(file, 1);
        namespace.shut_down().expect("it is durable");
        let image = device.to_bytes();
        reiserfsck(&image);
        let (_, namespace) = open(&image);
        let file = found(&namespace, root, b"cleaned");
        let names = namespace.list_xattrs(&caller, file);
        assert_eq!(names, Ok(vec![b"user.other".to_vec()]));
    }
}

/// As in the kernel nobody gets at the directory that holds all attributes.
#[test]
fn the_hidden_directory_is_not_replaced() {
    let (device, namespace) = open(&made(8, &["-s", "600"]));
    let (root, caller) = (namespace.root(), Caller::root());
    let file = made_file(&namespace, root, b"file");
    assert_eq!(set(&namespace, file, b"user.a"), Ok(()));
    namespace.sync().expect("it is durable");
    let made = namespace.make_directory(&caller, root, b"dir", 0o700);
    let dir = made.expect("there is room").ino;
    let fifo = FileKind::Fifo;
    let refused = [
        namespace.create_file(&caller, root, HIDDEN, 0o600),
        namespace.make_directory(&caller, root, HIDDEN, 0o700),
        namespace.make_symlink(&caller, root, HIDDEN, b"target"),
        namespace.make_node(&caller, root, HIDDEN, fifo, 0o600, 0),
        namespace.make_link(&caller, file, root, HIDDEN),
    ];
    for made in refused {
        assert_eq!(made.map(drop), Err(Error::NotPermitted));
    }
    for mode in [
        RenameMode::Replace,
        RenameMode::NoReplace,
        RenameMode::Exchange,
        RenameMode::Whiteout,
    ] {
        for (from, to) in [(&b"dir"[..], HIDDEN), (HIDDEN, b"dir"), (b"file", HIDDEN)] {
            let renamed = namespace.rename(&caller, (root, from), (root, to), mode);
            assert_eq!(renamed, Err(Error::NotPermitted));
        }
    }
    // Elsewhere it is a name like any other.
    let elsewhere = made_file(&namespace, dir, HIDDEN);
    let renamed = namespace.rename(
        &caller,
        (dir, HIDDEN),
        (root, HIDDEN),
        RenameMode::default(),
    );
    assert_eq!(renamed, Err(Error::NotPermitted));
    for ino in [file, dir, elsewhere] {
        namespace.forget(ino, 1);
    }
    namespace.shut_down().expect("it is durable");
    let image = device.to_bytes();
    reiserfsck(&image);
    let (_, namespace) = open(&image);
    let file = found(&namespace, root, b"file");
    let value = namespace.xattr(&caller, file, b"user.a");
    assert_eq!(value, Ok(b"value".to_vec()));
}

/// A batch that names it is not applied.
#[test]
fn no_batch_changes_the_hidden_directory() {
    let (device, store) = store(&made(8, &["-s", "600"]));
    let root = store.geometry().root;
    for names in [None, Some((root, FileKind::Directory))] {
        let before = device.to_bytes();
        let change = DirectoryChange {
            dir: root,
            parent: None,
            entries: vec![(HIDDEN.into(), names)],
        };
        let batch = Batch {
            directories: vec![change],
            ..Batch::default()
        };
        let committed = store.commit(batch, &|_| None);
        assert!(matches!(committed, Err(Error::Corrupt(_))), "{names:?}");
        assert_eq!(device.to_bytes(), before);
    }
}

/// To remove it would find nothing, and to make it would find it absent.
#[test]
fn a_name_that_lies_where_another_hash_does_is_damage() {
    let (device, namespace) = open(&made(8, &["-s", "600"]));
    let (root, caller) = (namespace.root(), Caller::root());
    let dir = namespace.make_directory(&caller, root, b"dir", 0o700);
    let dir = dir.expect("there is room").ino;
    for name in [&b"a name of before"[..], b"another one"] {
        let file = made_file(&namespace, dir, name);
        assert_eq!(namespace.write(file, 0, name), Ok(name.len()));
        namespace.forget(file, 1);
    }
    namespace.forget(dir, 1);
    namespace.shut_down().expect("it is durable");
    let good = device.to_bytes();
    let (_, sound) = store(&good);
    let listed = sound.load_directory(dir).expect("it is read");
    assert_eq!((listed.damage, listed.entries.len()), (None, 2));

    let image = renamed(&good, b"a name of before", b"a name of after!", false);
    let (_, damaged) = store(&image);
    let listed = damaged.load_directory(dir).expect("it is read");
    assert!(matches!(listed.damage, Some(Error::Corrupt(_))));
    let is_there = |name: &[u8]| listed.entries.iter().any(|entry| entry.name == name);
    assert!(is_there(b"a name of after!") && is_there(b"another one"));

    let (device, namespace) = open(&image);
    let dir = found(&namespace, root, b"dir");
    let file = found(&namespace, dir, b"a name of after!");
    let mut content = [0; 16];
    assert_eq!(namespace.read(file, 0, &mut content), Ok(16));
    let removed = namespace.remove_file(&caller, dir, b"a name of after!");
    let made = namespace.create_file(&caller, dir, b"new", 0o600);
    for changed in [removed, made.map(drop)] {
        let is_refused = matches!(changed, Err(Error::Corrupt(_) | Error::ReadOnly));
        assert!(is_refused, "{changed:?}");
    }
    for ino in [file, dir] {
        namespace.forget(ino, 1);
    }
    // Damage was found; not all stores go on after that.
    let ended = namespace.shut_down();
    assert!(
        matches!(ended, Ok(()) | Err(Error::Corrupt(_))),
        "{ended:?}"
    );
    let (_, store) = store(&device.to_bytes());
    let listed = store.load_directory(dir).expect("it is read");
    assert_eq!(listed.entries.len(), 2);
}
