//! File locks by themselves: the model, the rules one by one, and that memory goes.

mod model;

use std::sync::Arc;
use std::thread;

use super::*;
use crate::base::types::{Caller, Ino};
use crate::operations::open_file::OpenFile;
use crate::{Error, MemoryStore, Namespace, OpenAccess, Options};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(5);
use LockKind::{Exclusive, Shared};

fn namespace(file_locks_max: u64) -> Arc<Namespace> {
    let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
    let options = Options {
        file_locks_max,
        ..Options::default()
    };
    Arc::new(Namespace::without_thread(Arc::new(store), options).unwrap())
}

fn file(namespace: &Arc<Namespace>, name: &str) -> Ino {
    let root = namespace.root();
    let made = namespace.create_file(&Caller::root(), root, name.as_bytes(), 0o644);
    let ino = made.unwrap().ino;
    namespace.forget(ino, 1);
    ino
}

fn open(namespace: &Namespace, ino: Ino) -> OpenFile<'_> {
    namespace
        .open(&Caller::root(), ino, OpenAccess::ReadWrite)
        .unwrap()
}

/// Waits until so many requests wait for a lock on the file.
fn until_waiting(namespace: &Namespace, ino: Ino, family: Family, count: usize) {
    loop {
        let guard = &crossbeam_epoch::pin();
        let inode = namespace.inodes.get(ino, guard).unwrap();
        if inode
            .file_locks()
            .as_ref()
            .map_or(0, |locks| locks.waiting(family))
            == count
        {
            return;
        }
        thread::yield_now();
    }
}

/// Nothing is left in memory of locks on the file, and it can be evicted.
fn assert_gone(namespace: &Namespace, ino: Ino) {
    let guard = &crossbeam_epoch::pin();
    let inode = namespace.inodes.get(ino, guard).unwrap();
    assert!(inode.file_locks().is_none());
    inode
        .references
        .join(&namespace.inodes.split_counts, &inode.lock());
    assert!(!inode.references.any());
    assert!(namespace.waits_for.is_empty());
    assert_eq!(namespace.file_lock_count(), 0);
}

const P1: RangeOwner = RangeOwner::Process(1);
const P2: RangeOwner = RangeOwner::Process(2);
const P3: RangeOwner = RangeOwner::Process(3);

#[test]
fn a_range_is_split_merged_upgraded_and_downgraded() {
    let namespace = namespace(100);
    let ino = file(&namespace, "f");
    let open = open(&namespace, ino);
    let lock = |kind, range| open.locks().lock_range(P1, kind, range, LockWait::never());
    let seen = |kind, at: u64| open.locks().blocking_lock(P2, kind, at..at + 1).unwrap();
    lock(Exclusive, 0..100).unwrap();
    assert_eq!(namespace.file_lock_count(), 1);
    lock(Shared, 40..60).unwrap();
    assert_eq!(namespace.file_lock_count(), 3);
    assert_eq!(seen(Shared, 50), None);
    let found = seen(Exclusive, 50).unwrap();
    assert_eq!((found.range, found.process), (40..60, Some(1)));
    open.locks().unlock_range(P1, 45..50).unwrap();
    assert_eq!(namespace.file_lock_count(), 4);
    assert_eq!(seen(Exclusive, 47), None);
    lock(Exclusive, 30..70).unwrap();
    assert_eq!(namespace.file_lock_count(), 1);
    assert_eq!(seen(Shared, 47).unwrap().range, 0..100);
    open.locks().unlock_range(P1, 0..u64::MAX).unwrap();
    assert_eq!(namespace.file_lock_count(), 0);
    drop(open);
    assert_gone(&namespace, ino);
}

#[test]
fn ranges_of_processes_and_open_files_exclude_each_other_and_flock_neither() {
    let namespace = namespace(100);
    let ino = file(&namespace, "f");
    let (a, b) = (open(&namespace, ino), open(&namespace, ino));
    a.locks()
        .lock_range(P1, Exclusive, 0..10, LockWait::never())
        .unwrap();
    // The same process, through another open file.
    b.locks()
        .lock_range(P1, Exclusive, 5..15, LockWait::never())
        .unwrap();
    let by_file = b
        .locks()
        .lock_range(RangeOwner::OpenFile, Shared, 0..1, LockWait::never());
    assert_eq!(by_file, Err(Error::WouldBlock));
    b.locks().flock(Exclusive, LockWait::never()).unwrap();
    assert_eq!(
        a.locks().flock(Shared, LockWait::never()),
        Err(Error::WouldBlock)
    );
    a.locks().release_owner(1);
    b.locks()
        .lock_range(RangeOwner::OpenFile, Exclusive, 0..1, LockWait::never())
        .unwrap();
    let found = a
        .locks()
        .blocking_lock(RangeOwner::OpenFile, Shared, 0..9)
        .unwrap()
        .unwrap();
    assert_eq!((found.kind, found.process), (Exclusive, None));
    drop(b);
    a.locks().flock(Exclusive, LockWait::never()).unwrap();
    a.locks()
        .lock_range(P1, Exclusive, 0..1, LockWait::never())
        .unwrap();
    a.locks().release_owner(1);
    drop(a);
    assert_gone(&namespace, ino);
}

#[test]
fn the_mode_of_the_open_file_is_checked() {
    let namespace = namespace(100);
    let ino = file(&namespace, "f");
    let open = |access| {
        let opened = namespace.open(&Caller::root(), ino, access);
        opened.unwrap()
    };
    let (reader, writer) = (open(OpenAccess::Read), open(OpenAccess::Write));
    let lock =
        |file: &OpenFile<'_>, kind| file.locks().lock_range(P1, kind, 0..1, LockWait::never());
    assert_eq!(lock(&reader, Exclusive), Err(Error::BadHandle));
    assert_eq!(lock(&writer, Shared), Err(Error::BadHandle));
    let empty = Range { start: 3, end: 3 };
    assert_eq!(
        reader
            .locks()
            .lock_range(P1, Shared, empty, LockWait::never()),
        Err(Error::Invalid)
    );
    // flock(2) does not ask.
    reader.locks().flock(Exclusive, LockWait::never()).unwrap();
}

/// flock(2): the conversion drops the old lock first.
#[test]
fn flock_loses_its_lock_when_a_conversion_fails() {
    let namespace = namespace(100);
    let ino = file(&namespace, "f");
    let (a, b) = (open(&namespace, ino), open(&namespace, ino));
    a.locks().flock(Shared, LockWait::never()).unwrap();
    b.locks().flock(Shared, LockWait::never()).unwrap();
    assert_eq!(
        a.locks().flock(Exclusive, LockWait::never()),
        Err(Error::WouldBlock)
    );
    b.locks().flock(Exclusive, LockWait::never()).unwrap();
    b.locks().flock(Shared, LockWait::never()).unwrap();
    a.locks().flock(Shared, LockWait::never()).unwrap();
    b.locks().unlock_flock();
    a.locks().flock(Exclusive, LockWait::never()).unwrap();
    drop((a, b));
    assert_gone(&namespace, ino);
}

#[test]
fn the_number_of_locks_is_limited() {
    let namespace = namespace(4);
    let ino = file(&namespace, "f");
    let open = open(&namespace, ino);
    let lock = |at| {
        open.locks()
            .lock_range(P1, Shared, at..at + 1, LockWait::never())
    };
    (0..3).for_each(|at| lock(at * 2).unwrap());
    // A request takes two before it knows what it needs.
    assert_eq!(lock(100), Err(Error::NoLocks));
    open.locks().unlock_range(P1, 0..u64::MAX).unwrap();
    open.locks()
        .lock_range(P1, Shared, 0..100, LockWait::never())
        .unwrap();
    for at in [10, 30, 50] {
        open.locks().unlock_range(P1, at..at + 1).unwrap();
    }
    assert_eq!(namespace.file_lock_count(), 4);
    assert_eq!(open.locks().unlock_range(P1, 70..71), Err(Error::NoLocks));
    open.locks().unlock_range(P1, 0..11).unwrap();
    open.locks().unlock_range(P1, 70..71).unwrap();
    open.locks().release_owner(1);
    drop(open);
    assert_gone(&namespace, ino);
}

/// Each of three processes has a file and wants the next one's.
#[test]
fn a_cycle_over_three_files_is_refused() {
    let namespace = namespace(100);
    let inos: Vec<Ino> = (0..3).map(|n| file(&namespace, &format!("f{n}"))).collect();
    let opens: Vec<OpenFile<'_>> = inos.iter().map(|ino| open(&namespace, *ino)).collect();
    let process = |n: usize| RangeOwner::Process(n as u64);
    for (n, open) in opens.iter().enumerate() {
        open.locks()
            .lock_range(process(n), Exclusive, 0..9, LockWait::never())
            .unwrap();
    }
    thread::scope(|scope| {
        for n in 0..2 {
            let (opens, namespace) = (&opens, &namespace);
            scope.spawn(move || {
                let result = opens[n + 1].locks().lock_range(
                    process(n),
                    Exclusive,
                    3..4,
                    LockWait::forever(),
                );
                assert_eq!(result, Ok(()));
                opens[n].locks().release_owner(n as u64);
                opens[n + 1].locks().release_owner(n as u64);
            });
            until_waiting(namespace, inos[n + 1], Family::Range, 1);
        }
        let wait = LockWait::at_most(LONG);
        assert_eq!(
            opens[0].locks().lock_range(process(2), Shared, 8..9, wait),
            Err(Error::Deadlock)
        );
        opens[2].locks().release_owner(2);
    });
    drop(opens);
    inos.iter().for_each(|ino| assert_gone(&namespace, *ino));
}

/// The second of two that are in the way is in the cycle.
#[test]
fn a_cycle_through_any_of_several_holders_is_refused() {
    let namespace = namespace(100);
    let (f, g) = (file(&namespace, "f"), file(&namespace, "g"));
    let (on_f, on_g) = (open(&namespace, f), open(&namespace, g));
    on_f.locks()
        .lock_range(P2, Shared, 0..5, LockWait::never())
        .unwrap();
    on_f.locks()
        .lock_range(P3, Shared, 0..5, LockWait::never())
        .unwrap();
    on_g.locks()
        .lock_range(P1, Exclusive, 0..5, LockWait::never())
        .unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            on_f.locks()
                .lock_range(P1, Exclusive, 0..5, LockWait::forever())
                .unwrap()
        });
        until_waiting(&namespace, f, Family::Range, 1);
        let wait = LockWait::at_most(LONG);
        assert_eq!(
            on_g.locks().lock_range(P3, Shared, 0..1, wait),
            Err(Error::Deadlock)
        );
        // An owner that is in the way only later is in the graph too.
        on_f.locks()
            .lock_range(RangeOwner::Process(4), Shared, 4..5, LockWait::never())
            .unwrap();
        let late = on_g
            .locks()
            .lock_range(RangeOwner::Process(4), Shared, 0..1, wait);
        assert_eq!(late, Err(Error::Deadlock));
        (2..5).for_each(|process| on_f.locks().release_owner(process));
    });
    on_f.locks().release_owner(1);
    on_g.locks().release_owner(1);
    drop((on_f, on_g));
    assert_gone(&namespace, f);
    assert_gone(&namespace, g);
}

#[test]
fn deadlocks_of_open_files_are_not_looked_for() {
    let namespace = namespace(100);
    let ino = file(&namespace, "f");
    let (a, b) = (open(&namespace, ino), open(&namespace, ino));
    let by_file = RangeOwner::OpenFile;
    a.locks()
        .lock_range(by_file, Exclusive, 0..1, LockWait::never())
        .unwrap();
    b.locks()
        .lock_range(by_file, Exclusive, 1..2, LockWait::never())
        .unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            a.locks()
                .lock_range(by_file, Exclusive, 1..2, LockWait::forever())
                .unwrap()
        });
        until_waiting(&namespace, ino, Family::Range, 1);
        let result = b
            .locks()
            .lock_range(by_file, Exclusive, 0..1, LockWait::at_most(SHORT));
        assert_eq!(result, Err(Error::TimedOut));
        b.locks().unlock_range(by_file, 1..2).unwrap();
    });
}

#[test]
fn waits_end_by_time_by_an_interrupt_and_by_the_shut_down() {
    let namespace = namespace(100);
    let ino = file(&namespace, "f");
    let (a, b) = (open(&namespace, ino), open(&namespace, ino));
    a.locks().flock(Exclusive, LockWait::never()).unwrap();
    assert_eq!(
        b.locks().flock(Shared, LockWait::at_most(SHORT)),
        Err(Error::TimedOut)
    );
    until_waiting(&namespace, ino, Family::Whole, 0);
    let interrupt = Interrupt::new();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            b.locks()
                .flock(Shared, LockWait::forever().or_until(&interrupt))
        });
        until_waiting(&namespace, ino, Family::Whole, 1);
        interrupt.raise();
        assert_eq!(waits.join().unwrap(), Err(Error::Interrupted));
    });
    assert!(interrupt.is_raised());
    let raised = LockWait::forever().or_until(&interrupt);
    assert_eq!(b.locks().flock(Shared, raised), Err(Error::Interrupted));
    thread::scope(|scope| {
        let waits = scope.spawn(|| b.locks().flock(Shared, LockWait::forever()));
        until_waiting(&namespace, ino, Family::Whole, 1);
        namespace.shut_down().unwrap();
        assert_eq!(waits.join().unwrap(), Err(Namespace::shut_down_error()));
    });
    assert_eq!(namespace.file_lock_count(), 0);
    a.locks().unlock_flock();
    assert_eq!(
        a.locks().flock(Shared, LockWait::never()),
        Err(Namespace::shut_down_error())
    );
}

/// Those whose last blocker left are granted in the order in which they came, and nobody else
/// moves.
#[test]
fn first_come_first_served() {
    let namespace = namespace(100);
    let ino = file(&namespace, "f");
    let holder = open(&namespace, ino);
    holder
        .locks()
        .lock_range(P1, Exclusive, 0..100, LockWait::never())
        .unwrap();
    let order = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for n in 0..4_u64 {
            let (order, namespace) = (&order, &namespace);
            scope.spawn(move || {
                let open = open(namespace, ino);
                // 0 and 2 want one half, 1 and 3 the other.
                let range = n % 2 * 50..n % 2 * 50 + 50;
                let owner = RangeOwner::Process(10 + n);
                open.locks()
                    .lock_range(owner, Exclusive, range, LockWait::forever())
                    .unwrap();
                order.lock().unwrap().push(n);
                open.locks().release_owner(10 + n);
            });
            until_waiting(namespace, ino, Family::Range, n as usize + 1);
        }
        holder.locks().unlock_range(P1, 0..10).unwrap();
        thread::sleep(SHORT);
        until_waiting(&namespace, ino, Family::Range, 4);
        holder.locks().unlock_range(P1, 10..50).unwrap();
        until_waiting(&namespace, ino, Family::Range, 2);
        while order.lock().unwrap().len() < 2 {
            thread::yield_now();
        }
        holder.locks().unlock_range(P1, 50..100).unwrap();
    });
    assert_eq!(order.into_inner().unwrap(), [0, 2, 1, 3]);
    drop(holder);
    assert_gone(&namespace, ino);
}

#[test]
fn owners_that_go_together_grant_each_other_nothing() {
    let namespace = namespace(100);
    let ino = file(&namespace, "f");
    let open = open(&namespace, ino);
    let locks = namespace.owner_locks(ino);
    let granted = Arc::new(std::sync::Mutex::new(Vec::new()));
    let wait = |owner, range: Range<u64>| {
        let granted = Arc::clone(&granted);
        let at_end = Box::new(move || granted.lock().unwrap().push(owner));
        let waits = locks.lock_later(owner, Exclusive, &range, at_end).unwrap();
        waits.expect("others are in the way")
    };
    locks.lock(1, Exclusive, &(0..10)).unwrap();
    locks.lock(4, Exclusive, &(20..30)).unwrap();
    let (of_second, of_third) = (wait(2, 0..10), wait(3, 5..6));
    let stays = wait(3, 20..21);
    locks.release_all([1, 2]);
    assert_eq!(
        *granted.lock().unwrap(),
        [3],
        "not the second, which goes too"
    );
    assert_eq!(namespace.pending_lock(&of_third), Some(Ok(())));
    assert!(namespace.withdraw_pending_lock(&of_second));
    assert!(!locks.has_any(1) && !locks.has_any(2));
    locks.release_all([3, 4]);
    assert!(namespace.withdraw_pending_lock(&stays));
    assert_eq!(*granted.lock().unwrap(), [3]);
    drop(open);
    assert_gone(&namespace, ino);
}
