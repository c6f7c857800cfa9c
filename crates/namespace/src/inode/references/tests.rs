//! References that are counted in parts, by the operations that take them and give them back.

use std::sync::Arc;

use finefs_locks::SPLIT_COUNTS_MAX;

use super::*;
use crate::base::types::{Caller, Ino};
use crate::inode::Inode;
use crate::namespace::Namespace;
use crate::{MemoryStore, OpenAccess, Options};
use crossbeam_epoch::Guard;

fn namespace() -> Namespace {
    let store = Arc::new(MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap());
    Namespace::without_thread(store, Options::default()).unwrap()
}

/// A file of one name that nobody refers to.
fn file(namespace: &Namespace, name: &str) -> Ino {
    let root = namespace.root();
    let made = namespace.create_file(&Caller::root(), root, name.as_bytes(), 0o644);
    let ino = made.unwrap().ino;
    namespace.forget(ino, 1);
    ino
}

fn inode<'g>(namespace: &Namespace, ino: Ino, guard: &'g Guard) -> &'g Inode {
    namespace.inodes.get(ino, guard).expect("it is there")
}

fn is_split(inode: &Inode) -> bool {
    inode.references.sharing.load(Ordering::Relaxed) & SPLIT != 0
}

#[test]
fn a_split_count_is_exact_when_the_last_name_goes() {
    let (namespace, guard) = (namespace(), &crossbeam_epoch::pin());
    let (caller, root) = (Caller::root(), namespace.root());
    let ino = file(&namespace, "f");
    let before = namespace.open(&caller, ino, OpenAccess::Read).unwrap();
    namespace
        .inodes
        .split_references(inode(&namespace, ino, guard), guard);
    assert!(is_split(inode(&namespace, ino, guard)));
    let within = namespace.open(&caller, ino, OpenAccess::Read).unwrap();
    // Counted before, given back in a part: which is negative then.
    drop(before);
    let within_too = namespace.open(&caller, ino, OpenAccess::Read).unwrap();
    drop(within);
    namespace.remove_file(&caller, root, b"f").unwrap();
    assert!(!is_split(inode(&namespace, ino, guard)));
    assert!(namespace.attributes(ino).is_ok(), "it is open");
    namespace
        .inodes
        .split_references(inode(&namespace, ino, guard), guard);
    assert!(!is_split(inode(&namespace, ino, guard)), "it has no name");
    drop(within_too);
    assert!(namespace.attributes(ino).is_err());
    assert!(namespace.inodes.split_counts.owners().is_empty());
}

/// Without: BIAS in `split`.
#[test]
fn what_is_held_in_parts_is_not_evicted() {
    let (namespace, guard) = (namespace(), &crossbeam_epoch::pin());
    let ino = file(&namespace, "f");
    let inode = inode(&namespace, ino, guard);
    namespace.inodes.split_references(inode, guard);
    let file = namespace.open(&Caller::root(), ino, OpenAccess::Read);
    assert!(inode.references.any());
    assert_eq!(inode.references.evict(&inode.lock()), None);
    drop(file);
    namespace.inodes.join_all_references(guard);
    assert_eq!(inode.references.evict(&inode.lock()), Some(0));
}

#[test]
fn one_is_joined_for_another() {
    let (namespace, guard) = (namespace(), &crossbeam_epoch::pin());
    let inos: Vec<Ino> = (0..=SPLIT_COUNTS_MAX)
        .map(|number| file(&namespace, &number.to_string()))
        .collect();
    for ino in &inos {
        namespace
            .inodes
            .split_references(inode(&namespace, *ino, guard), guard);
        assert!(is_split(inode(&namespace, *ino, guard)));
    }
    let split = |ino: &&Ino| is_split(inode(&namespace, **ino, guard));
    assert_eq!(inos.iter().filter(split).count(), SPLIT_COUNTS_MAX);
    namespace.inodes.join_all_references(guard);
    assert_eq!(inos.iter().filter(split).count(), 0);
    let is_held = |ino: &Ino| inode(&namespace, *ino, guard).references.any();
    assert!(!inos.iter().any(is_held));
}

#[test]
fn the_end_of_the_mount_forgets_them() {
    let (namespace, guard) = (namespace(), &crossbeam_epoch::pin());
    let ino = file(&namespace, "f");
    namespace
        .inodes
        .split_references(inode(&namespace, ino, guard), guard);
    let file = namespace.open(&Caller::root(), ino, OpenAccess::Read);
    namespace.shut_down().unwrap();
    assert!(!inode(&namespace, ino, guard).references.any());
    drop(file);
}

#[test]
fn a_full_part_leaves_the_count_split() {
    let (namespace, guard) = (namespace(), &crossbeam_epoch::pin());
    let inode = inode(&namespace, file(&namespace, "f"), guard);
    namespace.inodes.split_references(inode, guard);
    let sharing = inode.references.sharing.load(Ordering::Relaxed);
    let (counts, mut taken) = (&namespace.inodes.split_counts, 0);
    while counts.add(SplitCount::from_bits(sharing), 1 << 30) {
        taken += 1 << 30;
    }
    for _ in 0..10 {
        assert_ne!(inode.references.refer(counts), Referred::Gone);
        taken += 1;
    }
    assert!(is_split(inode));
    assert!(!inode.references.release(counts, taken));
    inode.references.join(counts, &inode.lock());
    assert!(!inode.references.any());
}

#[test]
fn a_count_too_large_for_a_part_is_kept() {
    let (namespace, guard) = (namespace(), &crossbeam_epoch::pin());
    let (ino, many) = (file(&namespace, "f"), u64::from(u32::MAX));
    let inode = inode(&namespace, ino, guard);
    inode.references.life.fetch_add(many, Ordering::AcqRel);
    namespace.inodes.split_references(inode, guard);
    namespace.reference(ino).unwrap();
    namespace.forget(ino, many);
    let join = || {
        inode
            .references
            .join(&namespace.inodes.split_counts, &inode.lock())
    };
    join();
    assert_eq!(inode.references.life.load(Ordering::Acquire), 1);
    namespace.forget(ino, 1);
    assert!(!inode.references.any());
}
