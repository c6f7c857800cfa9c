//! Every lock tells the meter how it is taken.

#![cfg(not(any(loom, feature = "shuttle", feature = "meter-off")))]

use std::sync::{Mutex as StdMutex, PoisonError};
use std::time::Duration;

use finefs_lockmeter::{Counts, Kind, Mode, Snapshot, set_mode, snapshot, waiting};
use finefs_locks::{
    BigLock, BigLockKind, BigReader, Condvar, LocalGlobal, LockClass, Mutex, OnceLatch, RawLock,
    RelaxedMutex, RwLock, ShardedList,
};

/// Counts while `f` runs with the full mode on. Tests take turns.
fn counted(f: impl FnOnce()) -> Snapshot {
    static TURN: StdMutex<()> = StdMutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = snapshot();
    set_mode(Mode::Full);
    f();
    set_mode(Mode::ContendedOnly);
    snapshot().since(&before)
}

fn of(counts: &Snapshot, class: &LockClass, kind: Kind) -> Counts {
    let class = counts.class(class.name());
    class.map_or_else(Counts::default, |class| class.of(kind).clone())
}

/// Acquisitions, contended ones, holdings.
fn plain(counts: &Counts) -> (u64, u64, u64) {
    (counts.acquisitions, counts.contended, counts.hold.count())
}

/// Holds what `hold` gives while another thread runs `wait`, until the meter sees that one wait.
fn contend<G>(class: &'static LockClass, hold: impl FnOnce() -> G, wait: impl FnOnce() + Send) {
    let guard = hold();
    std::thread::scope(|scope| {
        scope.spawn(wait);
        while !waiting().iter().any(|queue| queue.class == class.name()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(guard);
    });
}

#[test]
fn mutex() {
    static CLASS: LockClass = LockClass::new("meter.mutex", 1);
    static OTHER: LockClass = LockClass::new("meter.mutex.never", 2);
    let (lock, condvar) = (Mutex::new(&CLASS, 0), Condvar::new());
    let counts = counted(|| {
        drop(lock.lock());
        drop(lock.lock_nested(3));
        drop(lock.try_lock());
        contend(&CLASS, || lock.lock(), || drop(lock.lock()));
        let mut guard = lock.lock();
        assert!(lock.try_lock().is_none());
        condvar.wait_timeout(&mut guard, Duration::from_millis(100));
        drop(guard);
        let _free = Mutex::new(&OTHER, ());
    });
    let writer = of(&counts, &CLASS, Kind::Writer);
    // The wait on the condition variable cuts its holding in two.
    assert_eq!(plain(&writer), (6, 1, 7));
    assert!(writer.wait.min_ns > 0);
    assert!(writer.hold.max_ns < 90_000_000 || writer.hold.max_ns > 110_000_000);
    assert!(
        writer
            .sites
            .iter()
            .all(|site| site.location.contains(file!()))
    );
    assert!(writer.sites.len() >= 5, "{:?}", writer.sites);
    assert!(counts.class(OTHER.name()).is_none());
    assert_eq!(of(&counts, &CLASS, Kind::Reader), Counts::default());
}

#[test]
fn rw_lock() {
    static CLASS: LockClass = LockClass::new("meter.rw", 1);
    let lock = RwLock::new(&CLASS, 0);
    let counts = counted(|| {
        drop(lock.read());
        drop(lock.try_read());
        drop(lock.write());
        drop(lock.try_write());
        contend(&CLASS, || lock.write(), || drop(lock.read()));
        contend(&CLASS, || lock.read(), || drop(lock.write()));
    });
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Reader)), (4, 1, 4));
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Writer)), (4, 1, 4));
}

#[test]
fn raw_lock() {
    static CLASS: LockClass = LockClass::new("meter.raw", 1);
    let lock = RawLock::new();
    let counts = counted(|| {
        drop(lock.lock(&CLASS, (1, 1)));
        drop(lock.try_lock(&CLASS, (1, 1)));
        let wait = || drop(lock.lock(&CLASS, (1, 1)));
        contend(&CLASS, || lock.lock(&CLASS, (1, 1)), wait);
    });
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Writer)), (4, 1, 4));
}

#[test]
fn big_reader() {
    static CLASS: LockClass = LockClass::new("meter.big", 1);
    let lock = BigReader::new(&CLASS);
    let counts = counted(|| {
        drop(lock.read());
        drop(lock.try_read());
        drop(lock.write());
        drop(lock.try_write());
        contend(&CLASS, || lock.write(), || drop(lock.read()));
        contend(&CLASS, || lock.read(), || drop(lock.write()));
    });
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Reader)), (4, 1, 4));
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Writer)), (4, 1, 4));
}

#[test]
fn local_global_and_its_list() {
    static CLASS: LockClass = LockClass::new("meter.local", 1);
    let lock = LocalGlobal::new(&CLASS, |_| 0);
    let list = ShardedList::new(&CLASS);
    let shards = lock.shard_count() as u64;
    let counts = counted(|| {
        drop(lock.local());
        drop(lock.shard(0));
        drop(lock.global());
        list.remove(list.add(1));
        contend(&CLASS, || lock.shard(0), || drop(lock.global()));
    });
    let all = 4 + shards + 1 + shards;
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Writer)), (all, 1, all));
}

#[test]
fn once_latch() {
    static CLASS: LockClass = LockClass::new("meter.latch", 1);
    let latch = OnceLatch::new(&CLASS);
    let counts = counted(|| {
        std::thread::scope(|scope| {
            let (latch, (loads, has_begun)) = (&latch, std::sync::mpsc::channel());
            scope.spawn(move || {
                latch.get_or_init(|| {
                    loads.send(()).unwrap();
                    while !waiting().iter().any(|queue| queue.class == "meter.latch") {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    7
                });
            });
            has_begun.recv().unwrap();
            assert_eq!(*latch.get_or_init(|| 8), 7);
        });
    });
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Writer)), (2, 1, 2));
}

/// Only outermost levels count; a relaxed lock is not held.
#[test]
fn recursive_locks() {
    static CLASS: LockClass = LockClass::new("meter.recursive", 1);
    fn use_it<G>(lock: impl Fn() -> G + Sync, relax: impl Fn(fn())) -> impl FnOnce() {
        move || {
            let levels = (lock(), lock());
            relax(|| std::thread::sleep(Duration::from_millis(50)));
            drop(levels);
            contend(&CLASS, &lock, || drop(lock()));
        }
    }
    let relaxed = RelaxedMutex::new(&CLASS);
    let counts = counted(use_it(|| relaxed.lock(), |f| relaxed.relax(f).value));
    let writer = of(&counts, &CLASS, Kind::Writer);
    assert_eq!(plain(&writer), (4, 1, 4));
    assert!(writer.hold.quantile_ns(0.5).unwrap() < 40_000_000);
    for kind in [BigLockKind::Spinning, BigLockKind::Sleeping] {
        let big = BigLock::new(&CLASS, kind);
        let counts = counted(use_it(|| big.lock(), |f| big.relax(f).value));
        assert_eq!(plain(&of(&counts, &CLASS, Kind::Writer)), (4, 1, 4));
    }
}
