//! Every lock tells the meter how it is taken.

#![cfg(not(any(loom, feature = "shuttle", feature = "meter-off")))]

use std::sync::{Mutex as StdMutex, PoisonError};
use std::time::{Duration, Instant};

use finefs_lockmeter::{
    CallSite, Counts, Kind, Mode, Snapshot, set_hold_sampling, set_mode, snapshot, waiting,
};
use finefs_locks::{
    BigLock, BigLockKind, BigReader, Condvar, LocalGlobal, LockClass, Mutex, OnceLatch, RangeLock,
    RawLock, RelaxedMutex, RwLock, ShardedList,
};

/// Counts while `f` runs with the full mode on and every holding timed. Tests take turns.
fn counted(f: impl FnOnce()) -> Snapshot {
    counted_in(Mode::Full, f)
}

fn counted_in(mode: Mode, f: impl FnOnce()) -> Snapshot {
    static TURN: StdMutex<()> = StdMutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = snapshot();
    set_hold_sampling(1);
    set_mode(mode);
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

/// Longer than the meter's clock can be off when it changes from the system's clock to the CPU's: a
/// wait or a hold of so long is never measured as nothing.
const LONG: Duration = Duration::from_millis(10);

/// Holds what `hold` gives while another thread runs `wait`, until the meter sees that one wait and
/// `LONG` after.
fn contend<G>(class: &'static LockClass, hold: impl FnOnce() -> G, wait: impl FnOnce() + Send) {
    let guard = hold();
    std::thread::scope(|scope| {
        scope.spawn(wait);
        while !waiting().iter().any(|queue| queue.class == class.name()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(LONG);
        drop(guard);
    });
}

/// Counts `f`, which does not hold the lock of `class` for at least `apart` of its time, and checks
/// that this time is in no holding. However long the thread is kept from its CPU, all holdings fit
/// into the rest.
fn held_at_most_but(class: &'static LockClass, apart: Duration, f: impl FnOnce()) -> Counts {
    let mut took = Duration::ZERO;
    let counts = counted(|| {
        let began = Instant::now();
        f();
        took = began.elapsed();
    });
    let writer = of(&counts, class, Kind::Writer);
    let held = Duration::from_nanos(writer.hold.total_ns);
    // The two clocks may differ by a thousandth.
    assert!(held + apart <= took + took / 100, "{held:?} of {took:?}");
    writer
}

#[test]
fn mutex() {
    static CLASS: LockClass = LockClass::new("meter.mutex", 1);
    static OTHER: LockClass = LockClass::new("meter.mutex.never", 2);
    let lock = Mutex::new(&CLASS, 0);
    let counts = counted(|| {
        drop(lock.lock());
        drop(lock.lock_nested(3));
        drop(lock.try_lock());
        contend(&CLASS, || lock.lock(), || drop(lock.lock()));
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        let _free = Mutex::new(&OTHER, ());
    });
    let writer = of(&counts, &CLASS, Kind::Writer);
    assert_eq!(plain(&writer), (6, 1, 6));
    assert!(writer.wait.min_ns > 0);
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

/// The wait on a condition variable cuts the holding in two and is in neither.
#[test]
fn condition_variable() {
    static CLASS: LockClass = LockClass::new("meter.condvar", 1);
    let (lock, condvar) = (Mutex::new(&CLASS, 0), Condvar::new());
    let time = Duration::from_millis(100);
    let mut waits = 1;
    let writer = held_at_most_but(&CLASS, time, || {
        let mut guard = lock.lock();
        // It may wake up for no reason.
        while !condvar.wait_timeout(&mut guard, time) {
            waits += 1;
        }
    });
    assert_eq!(plain(&writer), (1, 0, 1 + waits));
}

/// Readers and writers of the lock are counted apart.
macro_rules! assert_readers_and_writers {
    ($class:expr, $lock:ident) => {
        let counts = counted(|| {
            drop($lock.read());
            drop($lock.try_read());
            drop($lock.write());
            drop($lock.try_write());
            contend($class, || $lock.write(), || drop($lock.read()));
            contend($class, || $lock.read(), || drop($lock.write()));
        });
        assert_eq!(plain(&of(&counts, $class, Kind::Reader)), (4, 1, 4));
        assert_eq!(plain(&of(&counts, $class, Kind::Writer)), (4, 1, 4));
    };
}

#[test]
fn rw_lock() {
    static CLASS: LockClass = LockClass::new("meter.rw", 1);
    let lock = RwLock::new(&CLASS, 0);
    assert_readers_and_writers!(&CLASS, lock);
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
fn range_lock() {
    static CLASS: LockClass = LockClass::new("meter.range", 1);
    let lock = RangeLock::new(&CLASS);
    let second = Duration::from_secs(1);
    let counts = counted(|| {
        drop(lock.read(0..10));
        drop(lock.read_nested(0..10, 7));
        drop(lock.read_timeout(0..10, second));
        // Readers of one range share a cell.
        let one = lock.read(0..10).into_send();
        let other = lock.try_read(0..10).expect("shares");
        assert!(lock.try_write(0..10).is_none());
        drop(one);
        drop(other);
        drop(lock.write(0..10));
        drop(lock.write_nested(0..10, 7));
        drop(lock.try_write(0..10));
        drop(lock.append(|| 5));
        // Comes by the queue without waiting.
        let low = lock.write(0..10).into_send();
        drop(lock.write(10..20));
        drop(low);
        contend(&CLASS, || lock.write(0..10), || drop(lock.read(5..6)));
        contend(&CLASS, || lock.read(0..10), || drop(lock.write(5..6)));
        contend(&CLASS, || lock.write(0..10), || drop(lock.append(|| 5)));
    });
    let (reader, writer) = (
        of(&counts, &CLASS, Kind::Reader),
        of(&counts, &CLASS, Kind::Writer),
    );
    assert_eq!(plain(&reader), (7, 1, 7));
    assert_eq!(plain(&writer), (10, 2, 10));
    assert!(writer.wait.min_ns > 0 && reader.wait.min_ns > 0);
    let is_here = |site: &CallSite| site.location.contains(file!());
    assert!(writer.sites.iter().chain(&reader.sites).all(is_here));
    assert_eq!(writer.sites.len(), 10, "{:?}", writer.sites);
    assert!(lock.settle());
}

/// What the meter watches is held by another way; it is reduced and released all the same, on
/// whatever thread, and counted once.
#[test]
fn range_lock_reduced() {
    static CLASS: LockClass = LockClass::new("meter.range.reduced", 1);
    let lock = RangeLock::new(&CLASS);
    let counts = counted(|| {
        let mut guard = lock.write(0..10);
        assert!(lock.is_fast());
        guard.downgrade();
        assert!(lock.try_read(5..6).is_some());
        assert!(lock.try_write(5..6).is_none());
        drop(guard);
        assert!(lock.try_write(5..6).is_some());
        let mut guard = lock.write(0..10);
        guard.shrink(0..4);
        assert!(lock.try_write(4..6).is_some());
        assert!(lock.try_write(3..6).is_none());
        guard.shrink(0..2);
        guard.downgrade();
        assert!(lock.try_write(1..6).is_none());
        assert!(lock.try_read(1..6).is_some());
        drop(guard);
        // One of two that share a cell.
        let mut one = lock.read(0..10).into_send();
        let other = lock.try_read(0..10).expect("shares");
        one.shrink(0..4);
        drop(other);
        assert!(lock.try_write(4..10).is_some());
        assert!(lock.try_write(3..10).is_none());
        std::thread::scope(|scope| scope.spawn(move || drop(one)).join().unwrap());
        assert!(lock.try_write(0..10).is_some());
    });
    assert!(lock.settle());
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Reader)), (4, 0, 4));
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Writer)), (6, 0, 6));
}

/// Acquisitions are counted exactly where only some holdings are timed.
#[test]
fn sampled_holdings() {
    static CLASS: LockClass = LockClass::new("meter.sampled", 1);
    let (mutex, rw, raw) = (
        Mutex::new(&CLASS, 0),
        RwLock::new(&CLASS, 0),
        RawLock::new(),
    );
    let (big, range) = (BigReader::new(&CLASS), RangeLock::new(&CLASS));
    let counts = counted(|| {
        set_hold_sampling(16);
        for _ in 0..1_000 {
            drop(mutex.lock());
            drop(rw.write());
            drop(raw.lock(&CLASS, (1, 1)));
            drop(range.write(0..10));
            drop(rw.read());
            drop(big.read());
            drop(range.read(0..10));
        }
    });
    for (kind, acquisitions) in [(Kind::Writer, 4_000), (Kind::Reader, 3_000)] {
        let counts = of(&counts, &CLASS, kind);
        assert_eq!((counts.acquisitions, counts.contended), (acquisitions, 0));
        assert!((acquisitions - 31..=acquisitions).contains(&counts.hold.count()));
        assert!((acquisitions / 24..acquisitions / 10).contains(&counts.hold_timed));
    }
    assert!(big.try_write().is_some());
    assert!(range.settle() && range.try_write(0..10).is_some());
}

/// The mode is switched while ranges are held and while the lock is spread.
#[test]
fn range_lock_whose_holders_saw_another_mode() {
    static CLASS: LockClass = LockClass::new("meter.range.switched", 1);
    let lock = RangeLock::new(&CLASS);
    let counts = counted_in(Mode::ContendedOnly, || {
        let one = lock.read(0..10).into_send();
        set_mode(Mode::Full);
        let other = lock.read(0..10).into_send();
        drop(one);
        set_mode(Mode::ContendedOnly);
        drop(other);
        drop(lock.write(0..10));
        for round in 0..10_000 {
            let low = lock.try_write(0..4096);
            drop(lock.try_write(1 << 20..(1 << 20) + 4096));
            drop(low);
            if !lock.is_fast() && round > 100 {
                break;
            }
        }
        assert!(!lock.is_fast(), "spread");
        set_mode(Mode::Full);
        for block in 0..10 {
            drop(lock.write(block * 4096..(block + 1) * 4096));
        }
        set_mode(Mode::ContendedOnly);
        drop(lock.write(0..4096));
    });
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Reader)), (1, 0, 1));
    assert_eq!(plain(&of(&counts, &CLASS, Kind::Writer)), (10, 0, 10));
    assert!(lock.settle());
}

/// By default waits are counted, and how long the range was held after them.
#[test]
fn range_lock_contended_only() {
    static CLASS: LockClass = LockClass::new("meter.range.contended", 1);
    let lock = RangeLock::new(&CLASS);
    let counts = counted_in(Mode::ContendedOnly, || {
        drop(lock.write(0..10));
        contend(&CLASS, || lock.write(0..10), || drop(lock.read(5..6)));
        let _held = lock.write(0..10).into_send();
        assert!(lock.write_timeout(5..6, Duration::from_millis(5)).is_none());
    });
    let reader = of(&counts, &CLASS, Kind::Reader);
    assert_eq!(plain(&reader), (0, 1, 1));
    assert!(reader.sites[0].location.contains(file!()));
    let writer = of(&counts, &CLASS, Kind::Writer);
    assert_eq!((plain(&writer), writer.given_up), ((0, 1, 0), 1));
}

/// A request for another part of a segment in which one waits does not wait for that. Without: the
/// look into the queue in `spin`.
#[test]
fn range_lock_in_nobodys_way() {
    static CLASS: LockClass = LockClass::new("meter.range.aside", 1);
    const BLOCK: u64 = 4096;
    let lock = RangeLock::new(&CLASS);
    while lock.is_fast() {
        let far = 256 * BLOCK;
        let pair = (lock.try_write(0..BLOCK), lock.try_write(far..far + BLOCK));
        assert!(pair.0.is_some() && pair.1.is_some());
    }
    let counts = counted_in(Mode::ContendedOnly, || {
        let held = lock.write(0..BLOCK).into_send();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(lock.write(0..BLOCK)));
            while !waiting().iter().any(|queue| queue.class == CLASS.name()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The waiter need not be in the queue yet; what cannot wait goes there at once, and
            // closes the cell of the segment on its way.
            assert!(lock.try_write(BLOCK..2 * BLOCK).is_some());
            for block in 1..5 {
                drop(lock.write(block * BLOCK..(block + 1) * BLOCK));
            }
            drop(held);
        });
    });
    assert_eq!(of(&counts, &CLASS, Kind::Writer).contended, 1);
}

/// A lock that is taken on one CPU, then on another, bounces.
#[test]
fn range_lock_bounces() {
    static CLASS: LockClass = LockClass::new("meter.range.bounces", 1);
    let lock = RangeLock::new(&CLASS);
    let mut has_two = false;
    let counts = counted(|| {
        let take_on = |cpu: usize| {
            let lock = &lock;
            let take = move || {
                // SAFETY: `set` is plain bits; the call reads it and concerns this thread only.
                let is_pinned = unsafe {
                    let mut set: libc::cpu_set_t = std::mem::zeroed();
                    libc::CPU_SET(cpu, &mut set);
                    libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0
                };
                drop(lock.write(0..10));
                is_pinned
            };
            std::thread::scope(|scope| scope.spawn(take).join().unwrap())
        };
        // With one CPU there is nothing to bounce to.
        has_two = take_on(0) && take_on(0) && take_on(1) && take_on(0);
    });
    let writer = of(&counts, &CLASS, Kind::Writer);
    assert!(!has_two || (writer.acquisitions, writer.bounces) == (4, 2));
}

#[test]
fn big_reader() {
    static CLASS: LockClass = LockClass::new("meter.big", 1);
    let lock = BigReader::new(&CLASS);
    assert_readers_and_writers!(&CLASS, lock);
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
    const RELAXED: Duration = Duration::from_millis(50);
    fn check<G>(lock: impl Fn() -> G + Sync, relax: impl Fn(fn())) {
        let writer = held_at_most_but(&CLASS, RELAXED, || {
            let levels = (lock(), lock());
            relax(|| std::thread::sleep(RELAXED));
            drop(levels);
            contend(&CLASS, &lock, || drop(lock()));
        });
        assert_eq!(plain(&writer), (4, 1, 4));
    }
    let relaxed = RelaxedMutex::new(&CLASS);
    check(|| relaxed.lock(), |f| relaxed.relax(f).value);
    for kind in [BigLockKind::Spinning, BigLockKind::Sleeping] {
        let big = BigLock::new(&CLASS, kind);
        check(|| big.lock(), |f| big.relax(f).value);
    }
}
