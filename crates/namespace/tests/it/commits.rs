//! What waits for a commit, and how that calls its store.

#![cfg(not(feature = "shuttle"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use finefs_namespace::{Caller, Namespace, Options, SyncScope};
use finefs_testkit::CheckedStore;

/// What was retired is freed while a commit waits for its device.
#[test]
fn no_epoch_is_pinned_over_the_io_of_a_commit() {
    let store = Arc::new(CheckedStore::reloading(1 << 20));
    let commits = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&commits);
    store.call_before_commits(move || {
        assert!(!crossbeam_epoch::is_pinned());
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let ns = Namespace::without_thread(store, Options::default()).unwrap();
    let user = Caller::root();
    let file = ns.create_file(&user, ns.root(), b"f", 0o644).unwrap().ino;
    ns.write(file, 0, b"data").unwrap();
    ns.sync_file(file, SyncScope::All).unwrap();
    ns.remove_file(&user, ns.root(), b"f").unwrap();
    ns.sync().unwrap();
    ns.forget(file, 1);
    ns.shut_down().unwrap();
    assert!(commits.load(Ordering::Relaxed) >= 3);
}

/// The memory store gives blocks beside each other, but for each CPU that the thread runs on.
#[test]
fn appends_come_to_one_change_of_the_mapping() {
    let store = Arc::new(CheckedStore::new(64 << 20).with_batches_of(1 << 20));
    let shared = Arc::clone(&store);
    let ns = Namespace::without_thread(shared, Options::default()).unwrap();
    let made = ns.create_file(&Caller::root(), ns.root(), b"f", 0o644);
    let file = made.unwrap().ino;
    for _ in 0..1000 {
        ns.append(file, &[7; 4096]).unwrap();
    }
    let changes = store.map_changes_max();
    assert!((1..100).contains(&changes), "{changes} changes");
    ns.shut_down().unwrap();
    store.assert_at_rest();
}
