//! What waits for a commit, and how that calls its store.

#![cfg(not(feature = "shuttle"))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use finefs_namespace::{Caller, Ino, Namespace, Options, RenameMode, Store, SyncScope};
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

/// Writers who waited for a commit while generations piled up do not each commit one of them.
#[test]
fn of_writers_that_are_behind_one_commits() {
    const LONG: Duration = Duration::from_secs(20);
    let store = Arc::new(CheckedStore::new(64 << 20).with_batches_of(8));
    let (tell, told) = channel();
    let (let_go, wait) = channel::<()>();
    let first = Mutex::new(Some((tell, wait)));
    store.call_before_commits(move || {
        let held = first.lock().unwrap().take();
        if let Some((tell, wait)) = held {
            let _ = tell.send(());
            let _ = wait.recv_timeout(LONG);
        }
    });
    let shared = Arc::clone(&store);
    let ns = &Namespace::without_thread(shared, Options::default()).unwrap();
    let create = |name: String| {
        let made = ns.create_file(&Caller::root(), ns.root(), name.as_bytes(), 0o644);
        made.unwrap();
    };
    create("before".into());
    let (is_over, all_begin) = (AtomicBool::new(false), Barrier::new(3));
    std::thread::scope(|scope| {
        scope.spawn(|| ns.sync().unwrap());
        told.recv_timeout(LONG).unwrap();
        // Until there is as much to commit as may wait; then it waits.
        let first = scope.spawn(|| {
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) || number == 100_000 {
                    return number;
                }
                create(format!("first {number}"));
            }
            0
        });
        std::thread::sleep(Duration::from_millis(300));
        for writer in ["second", "third", "fourth"] {
            let all_begin = &all_begin;
            scope.spawn(move || {
                all_begin.wait();
                create(writer.into());
            });
        }
        std::thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::Relaxed);
        drop(let_go);
        assert!((1..100_000).contains(&first.join().unwrap()));
    });
    // The sync's, one that made room, and perhaps another for who came late.
    let commits = store.commits();
    assert!((2..4).contains(&commits), "{commits} commits");
    ns.shut_down().unwrap();
    store.assert_at_rest();
}

/// Has work that comes to nothing keep next to no blocks reserved, without a commit: else such a
/// program soon finds no space on a small image, and waits for commits.
fn assert_reservations_are_given_back(work: impl Fn(&Namespace, &Caller)) {
    let store = Arc::new(CheckedStore::new(16 << 20).with_records_of(64));
    let shared = Arc::clone(&store);
    let ns = Namespace::without_thread(shared, Options::default()).unwrap();
    work(&ns, &Caller::root());
    let reserved = store.reserved_blocks();
    assert!(reserved < 1000, "{reserved} blocks are reserved");
    assert_eq!(store.commits(), 0);
    ns.shut_down().unwrap();
    store.assert_at_rest();
}

fn make(ns: &Namespace, user: &Caller, name: &[u8]) -> Ino {
    let file = ns.create_file(user, ns.root(), name, 0o644).unwrap().ino;
    ns.write(file, 0, &[7; 5000]).unwrap();
    file
}

#[test]
fn what_was_reserved_for_files_that_are_gone_is_given_back() {
    assert_reservations_are_given_back(|ns, user| {
        let root = ns.root();
        let replaced = make(ns, user, b"replaced");
        ns.forget(replaced, 1);
        for _ in 0..2000 {
            let file = make(ns, user, b"name");
            ns.make_link(user, file, root, b"other").unwrap();
            ns.remove_file(user, root, b"name").unwrap();
            ns.remove_file(user, root, b"other").unwrap();
            ns.forget(file, 2);
            let file = make(ns, user, b"new");
            let mode = RenameMode::Replace;
            ns.rename(user, (root, b"new"), (root, b"replaced"), mode)
                .unwrap();
            ns.forget(file, 1);
        }
    });
}

/// A mount's kernel forgets a file when the name may have been used again.
#[test]
fn a_name_that_is_used_again_gives_back_what_was_reserved_for_it_before() {
    assert_reservations_are_given_back(|ns, user| {
        let mut before = None;
        for _ in 0..2000 {
            let file = make(ns, user, b"name");
            if let Some(before) = before.replace(file) {
                ns.forget(before, 1);
            }
            ns.remove_file(user, ns.root(), b"name").unwrap();
        }
    });
}

/// The commit thread may wait for the last commit of the end.
#[test]
fn nothing_is_committed_once_the_store_is_closed() {
    for _ in 0..30 {
        let store = Arc::new(CheckedStore::new(16 << 20));
        store.call_before_commits(|| std::thread::sleep(Duration::from_millis(2)));
        let shared = Arc::clone(&store);
        let options = Options {
            commit_interval: Duration::from_millis(1),
            ..Options::default()
        };
        let ns = Namespace::new(shared, options).unwrap();
        let made = ns.create_file(&Caller::root(), ns.root(), b"file", 0o644);
        ns.forget(made.unwrap().ino, 1);
        ns.shut_down().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(store.commits_since_close(), 0);
    }
}

/// What cancels out in the log of a CPU whose thread does nothing more is given back by the thread
/// that folds, without a commit. Where there is no such thread, it stays.
#[test]
fn a_thread_folds_what_another_has_logged() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus == 1 {
        return eprintln!("skipped: on one CPU who logs folds");
    }
    std::thread::scope(|scope| scope.spawn(|| fold_for_one_cpu(cpus)).join().unwrap());
}

fn fold_for_one_cpu(cpus: usize) {
    const PATIENCE: Duration = Duration::from_secs(60);
    // All goes to the shard of one CPU.
    let mine = rustix::thread::sched_getaffinity(None).unwrap();
    let mut one = rustix::thread::CpuSet::new();
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| mine.is_set(*cpu));
    one.set(first.unwrap());
    rustix::thread::sched_setaffinity(None, &one).unwrap();
    let options = || Options {
        commit_interval: Duration::from_secs(3600),
        ..Options::default()
    };
    let store = || {
        let store = CheckedStore::reloading(64 << 20).with_batches_of(1 << 16);
        Arc::new(store.with_records_of(4096 * cpus as u64))
    };
    let come_and_go = |ns: &Namespace| {
        let (user, root) = (Caller::root(), ns.root());
        let made = ns.create_file(&user, root, b"name", 0o644).unwrap();
        ns.remove_file(&user, root, b"name").unwrap();
        ns.forget(made.ino, 1);
    };
    // How many that are gone have not given back their numbers.
    let (store_alone, store_beside) = (store(), store());
    let free = store_alone.statfs().inodes_free;
    let left = |store: &CheckedStore| free - store.statfs().inodes_free;

    let alone = Namespace::without_thread(Arc::clone(&store_alone) as _, options()).unwrap();
    let mut most = 0;
    for _ in 0..100_000 {
        come_and_go(&alone);
        match left(&store_alone) {
            now if now < most => break,
            now => most = now,
        }
    }
    // Who logs folds when it has twice what is enough for the thread.
    let some = most * 3 / 4;
    assert!(some > 20, "{some}");
    let make_some = |ns, store| (left(store)..some).for_each(|_| come_and_go(ns));
    make_some(&alone, &store_alone);
    assert_eq!(left(&store_alone), some);
    let beside = Namespace::new(Arc::clone(&store_beside) as _, options()).unwrap();
    make_some(&beside, &store_beside);
    let start = Instant::now();
    while left(&store_beside) > most / 2 && start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(left(&store_beside) <= most / 2, "nobody has folded");
    assert_eq!(left(&store_alone), some, "nobody could");
    assert_eq!(store_beside.commits(), 0);
    alone.shut_down().unwrap();
    beside.shut_down().unwrap();
    store_beside.assert_at_rest();
}
