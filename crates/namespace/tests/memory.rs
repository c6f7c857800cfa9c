//! The namespace over the memory store, operation by operation.

use std::sync::Arc;

use finefs_namespace::types::{Caller, FileKind, Ino, SetAttributes};
use finefs_namespace::{
    AllocateMode, Error, MemoryStore, Namespace, OpenAccess, Options, RenameMode, XattrMode,
};

fn memory() -> Arc<Namespace> {
    let store = MemoryStore::new(64 << 20, 0o755, 0, 0).unwrap();
    Namespace::new(Arc::new(store), Options::default()).unwrap()
}

fn names(namespace: &Namespace, dir: Ino) -> Vec<String> {
    let mut names = Vec::new();
    namespace
        .read_directory(dir, 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            true
        })
        .unwrap();
    names.sort();
    names
}

#[test]
fn files_are_made_written_read_and_removed() {
    let ns = memory();
    let root = Caller::root();
    let file = ns.create_file(&root, ns.root(), b"a", 0o644).unwrap();
    assert_eq!(
        ns.create_file(&root, ns.root(), b"a", 0o644),
        Err(Error::Exists)
    );
    assert_eq!(ns.write(file.ino, 5000, b"hello").unwrap(), 5);
    let mut buffer = [1; 6000];
    assert_eq!(ns.read(file.ino, 0, &mut buffer).unwrap(), 5005);
    assert!(buffer[..5000].iter().all(|byte| *byte == 0));
    assert_eq!(&buffer[5000..5005], b"hello");
    assert_eq!(ns.attributes(file.ino).unwrap().sectors, 8);
    assert_eq!(ns.append(file.ino, b"!").unwrap(), 5005);
    ns.sync_file(file.ino, false).unwrap();

    let free = ns.statfs().blocks_free;
    ns.remove_file(&root, ns.root(), b"a").unwrap();
    assert_eq!(ns.lookup(&root, ns.root(), b"a"), Err(Error::NotFound));
    assert_eq!(ns.attributes(file.ino).unwrap().link_count, 0);
    assert_eq!(ns.read(file.ino, 5000, &mut buffer).unwrap(), 6);
    ns.forget(file.ino, 1);
    assert_eq!(ns.attributes(file.ino), Err(Error::Stale));
    ns.sync().unwrap();
    assert_eq!(ns.statfs().blocks_free, free + 1);
    ns.shut_down().unwrap();
    assert!(matches!(ns.attributes(ns.root()), Err(Error::Io(_))));
}

/// There is nothing to make durable, so nothing waits for a commit: no fsync, and not what was removed.
#[test]
fn what_is_removed_from_memory_is_free_at_once() {
    let store = MemoryStore::new(64 << 20, 0o755, 0, 0).unwrap();
    let options = Options {
        commit_interval: std::time::Duration::from_secs(1 << 20),
        ..Options::default()
    };
    let ns = Namespace::new(std::sync::Arc::new(store), options).unwrap();
    let root = Caller::root();
    let before = ns.statfs().blocks_free;
    let file = ns.create_file(&root, ns.root(), b"gone", 0o644).unwrap();
    ns.write(file.ino, 0, b"data").unwrap();
    ns.sync_file(file.ino, false).unwrap();
    ns.remove_file(&root, ns.root(), b"gone").unwrap();
    assert_eq!(ns.statfs().blocks_free, before - 1, "it is in use");
    ns.forget(file.ino, 1);
    assert_eq!(ns.statfs().blocks_free, before);
    ns.shut_down().unwrap();
}

/// A directory in use was removed, and then its parent: the parent's number does not lead elsewhere.
#[test]
fn a_removed_directory_has_no_strange_parent() {
    let ns = memory();
    let root = Caller::root();
    let a = ns.make_directory(&root, ns.root(), b"a", 0o755).unwrap();
    let b = ns.make_directory(&root, a.ino, b"b", 0o755).unwrap();
    ns.remove_directory(&root, a.ino, b"b").unwrap();
    ns.remove_directory(&root, ns.root(), b"a").unwrap();
    ns.forget(a.ino, 1);
    for number in 0..100 {
        let name = format!("{number}");
        let made = ns.make_directory(&root, ns.root(), name.as_bytes(), 0o755);
        ns.forget(made.unwrap().ino, 1);
    }
    assert_eq!(ns.lookup(&root, b.ino, b".."), Err(Error::Stale));
}
