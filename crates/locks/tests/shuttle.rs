//! The protocols under shuttle, which tries random schedules, random CPUs (`cpu::current`) and
//! random ends of timed waits.
//!
//! `cargo test -p finefs-locks --features shuttle --test shuttle`
//!
//! Tests name the lines without which they fail; that was tried for each of them.

#![cfg(all(feature = "shuttle", not(loom)))]

use std::ops::Range;
use std::sync::atomic::{AtomicI32, Ordering as StdOrdering};
use std::time::Duration;

use finefs_locks::primitive::Arc;
use finefs_locks::primitive::atomic::{AtomicU64, Ordering};
use finefs_locks::primitive::thread;
use finefs_locks::{
    BigLock, BigLockKind, BigReader, Condvar, LimitedCounter, LocalGlobal, LockClass, Mutex,
    OnceLatch, PerCpuCounter, RangeGuard, RangeLock, RelaxedMutex, ShardedList,
};
use shuttle::rand::{Rng, thread_rng};

static CLASS: LockClass = LockClass::new("test.shuttle", 10);
static OUTER: LockClass = LockClass::new("test.shuttle.outer", 5);

fn check(iterations: usize, f: impl Fn() + Send + Sync + 'static) {
    let f = Arc::new(f);
    let again = Arc::clone(&f);
    shuttle::check_random(move || f(), iterations);
    shuttle::check_pct(move || again(), iterations / 2, 3);
}

/// Runs `f` in `count` tasks, told their number, and waits for them.
fn in_tasks(count: usize, f: impl Fn(usize) + Send + Sync + 'static) {
    let f = Arc::new(f);
    let tasks: Vec<_> = (0..count)
        .map(|number| {
            let f = Arc::clone(&f);
            thread::spawn(move || f(number))
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
}

const OFFSETS: u64 = 8;

/// A cell per offset: -1 a writer, n readers. Its own accesses are no scheduling points.
struct Shadow(Vec<AtomicI32>);

impl Shadow {
    fn new() -> Shadow {
        Shadow((0..OFFSETS).map(|_| AtomicI32::new(0)).collect())
    }

    fn cells(&self, range: &Range<u64>) -> &[AtomicI32] {
        &self.0[range.start.min(OFFSETS) as usize..range.end.min(OFFSETS) as usize]
    }

    fn enter(&self, guard: &RangeGuard<'_>) {
        for cell in self.cells(&guard.range()) {
            if guard.is_write() {
                assert_eq!(
                    cell.swap(-1, StdOrdering::Relaxed),
                    0,
                    "a writer is not alone"
                );
            } else {
                assert!(
                    cell.fetch_add(1, StdOrdering::Relaxed) >= 0,
                    "a reader beside a writer"
                );
            }
        }
    }

    fn leave(&self, range: &Range<u64>, is_write: bool) {
        for cell in self.cells(range) {
            cell.fetch_add(if is_write { 1 } else { -1 }, StdOrdering::Relaxed);
        }
    }
}

fn random_range() -> Range<u64> {
    let start = thread_rng().gen_range(0..OFFSETS);
    let end = if thread_rng().gen_bool(0.2) {
        u64::MAX
    } else {
        start + thread_rng().gen_range(0..4)
    };
    start..end
}

/// Fails without: the wait for the range in `close`, the entry of a closed cell's holders in the
/// queue, the removal after the time ran out, the waking in `unblock`.
#[test]
fn range_lock_excludes_whatever_happens() {
    check(1500, || {
        let shared = Arc::new((RangeLock::new(&CLASS), Shadow::new()));
        // The cell comes due at any time.
        (0..thread_rng().gen_range(0..8)).for_each(|_| drop(shared.0.write(0..1)));
        let theirs = Arc::clone(&shared);
        in_tasks(3, move |_| {
            let (lock, shadow) = &*theirs;
            for _ in 0..3 {
                let range = random_range();
                let guard = match thread_rng().gen_range(0..6) {
                    0 => Some(lock.read(range)),
                    1 => Some(lock.write(range)),
                    2 => lock.try_read(range),
                    3 => lock.try_write(range),
                    4 => lock.read_timeout(range, Duration::from_secs(1)),
                    _ => lock.write_timeout(range, Duration::from_secs(1)),
                };
                let Some(mut guard) = guard else { continue };
                shadow.enter(&guard);
                thread::yield_now();
                match thread_rng().gen_range(0..3) {
                    0 if guard.is_write() => {
                        let range = guard.range();
                        shadow.cells(&range).iter().for_each(|cell| {
                            cell.store(1, StdOrdering::Relaxed);
                        });
                        guard.downgrade();
                        thread::yield_now();
                    }
                    1 => {
                        let keep = guard.range().start..guard.range().start + 1;
                        shadow.leave(
                            &(keep.end..guard.range().end.max(keep.end)),
                            guard.is_write(),
                        );
                        guard.shrink(keep);
                        thread::yield_now();
                    }
                    _ => {}
                }
                shadow.leave(&guard.range(), guard.is_write());
            }
        });
        let (lock, _) = &*shared;
        assert!(lock.settle());
        assert!(lock.try_write(0..u64::MAX).is_some());
    });
}

/// Fails without: the minimum with `write_to_end_min`, the look at the end of file after
/// `close_all` (before it), the shrinking after the grant.
#[test]
fn range_lock_appends_start_at_the_end_of_file() {
    check(3000, || {
        let shared = Arc::new((RangeLock::new(&CLASS), AtomicU64::new(4)));
        let theirs = Arc::clone(&shared);
        in_tasks(4, move |number| {
            let (lock, size) = &*theirs;
            let current = || size.load(Ordering::SeqCst);
            match number {
                0 => {
                    let start = thread_rng().gen_range(0..4);
                    let mut guard = lock.write_to_end(start);
                    thread::yield_now();
                    size.store(start, Ordering::SeqCst);
                    if thread_rng().gen_bool(0.5) {
                        guard.shrink(start..start + 1);
                    }
                }
                1 => {
                    let start = thread_rng().gen_range(0..8);
                    let guard = lock.write(start..start + 2);
                    // What a write does that ends beyond the end of file.
                    let before = current();
                    thread::yield_now();
                    if guard.range().end > before {
                        assert_eq!(current(), before, "somebody else moved the end of file");
                        size.store(guard.range().end, Ordering::SeqCst);
                    }
                }
                _ => {
                    let guard = lock.append(current);
                    assert_eq!(guard.range(), current()..u64::MAX);
                    thread::yield_now();
                    assert_eq!(guard.range().start, current(), "the end of file moved");
                    size.store(guard.range().start + 1, Ordering::SeqCst);
                }
            }
        });
        assert!(shared.0.settle());
    });
}

/// Spreads a lock: in a model one meeting without conflict is enough.
fn spread(lock: &RangeLock) {
    let one = lock.try_write(0..1);
    let other = lock.try_write(4..5);
    assert!(one.is_some() && other.is_some());
    drop((one, other));
    assert!(!lock.is_fast());
}

/// Tasks in the cells of a group and beside them, while a task sends the lock home, from where
/// others spread it again. Fails without the closing of the cells in `enter`, and the covering of
/// entries in `spread`.
#[test]
fn range_lock_spreads_and_goes_home() {
    check(4000, || {
        let shared = Arc::new((RangeLock::new(&CLASS), Shadow::new()));
        spread(&shared.0);
        let theirs = Arc::clone(&shared);
        in_tasks(4, move |number| {
            let (lock, shadow) = &*theirs;
            for _ in 0..3 {
                if number == 0 && thread_rng().gen_bool(0.4) {
                    lock.settle();
                    thread::yield_now();
                    continue;
                }
                // Short ones stay in a cell; readers often ask for the same range.
                let start = thread_rng().gen_range(0..OFFSETS);
                let guard = match thread_rng().gen_range(0..6) {
                    0 => lock.write(random_range()),
                    1..=2 => lock.write(start..start + 1),
                    3 => lock.read(0..2),
                    4 => lock.read(2..4),
                    _ => lock.read(random_range()),
                };
                shadow.enter(&guard);
                thread::yield_now();
                shadow.leave(&guard.range(), guard.is_write());
            }
        });
        assert!(shared.0.settle());
        assert!(shared.0.try_write(0..u64::MAX).is_some());
    });
}

/// A writer looks where to go; meanwhile the lock goes home and spreads anew, and in the new
/// session the place has another cell. Fails when a cell is always `ours` (`try_cell`).
#[test]
fn range_lock_session_changes_under_a_writer() {
    check(10_000, || {
        let shared = Arc::new((RangeLock::new(&CLASS), Shadow::new()));
        spread(&shared.0);
        let theirs = Arc::clone(&shared);
        in_tasks(2, move |number| {
            let (lock, shadow) = &*theirs;
            if number == 1 {
                lock.settle();
                let pair = (lock.try_write(5..6), lock.try_write(7..8));
                drop(pair);
            }
            let guard = lock.write(2..3);
            shadow.enter(&guard);
            thread::yield_now();
            shadow.leave(&guard.range(), true);
        });
    });
}

/// Readers of one range; some give back a part or are joined by others.
#[test]
fn range_lock_joined_readers_part() {
    check(2000, || {
        let shared = Arc::new((RangeLock::new(&CLASS), Shadow::new()));
        let theirs = Arc::clone(&shared);
        in_tasks(4, move |number| {
            let (lock, shadow) = &*theirs;
            for _ in 0..2 {
                let mut guard = match number {
                    0 => lock.write(1..2),
                    _ => lock.read(0..4),
                };
                shadow.enter(&guard);
                thread::yield_now();
                if number > 1 {
                    shadow.leave(&(2..4), false);
                    guard.shrink(0..2);
                    thread::yield_now();
                }
                shadow.leave(&guard.range(), guard.is_write());
            }
        });
        assert!(shared.0.settle());
    });
}

/// Ranges of two locks, taken in the order of keys by all.
#[test]
fn range_locks_of_two_files_nest() {
    check(500, || {
        let files = Arc::new([RangeLock::new(&CLASS), RangeLock::new(&CLASS)]);
        in_tasks(3, move |number| {
            let _first = files[0].read_nested(0..10, 1);
            let _second = files[1].write_nested(number as u64..10, 2);
            thread::yield_now();
        });
    });
}

/// The global lock sees one consistent state. Fails when `global` leaves a shard out.
#[test]
fn local_global_is_consistent() {
    check(1000, || {
        let lock = Arc::new(LocalGlobal::new(&CLASS, |_| 10_i64));
        let theirs = Arc::clone(&lock);
        in_tasks(3, move |number| {
            if number == 0 {
                for _ in 0..2 {
                    let sum: i64 = theirs.global().iter().sum();
                    assert_eq!(sum, 10 * theirs.shard_count() as i64);
                }
                return;
            }
            let mut low = theirs.shard(0);
            let mut high = theirs.shard(1);
            *low -= 1;
            thread::yield_now();
            *high += 1;
            drop(high);
            drop(low);
            let mut local = theirs.local();
            *local += 1;
            thread::yield_now();
            *local -= 1;
        });
    });
}

/// Items are removed from the shard they are on, wherever the remover runs.
#[test]
fn sharded_list_finds_its_items() {
    check(500, || {
        let list = Arc::new(ShardedList::new(&CLASS));
        let theirs = Arc::clone(&list);
        in_tasks(3, move |number| {
            let first = theirs.add((number, 1));
            let second = theirs.add((number, 2));
            assert_eq!(theirs.remove(first), (number, 1));
            let third = theirs.add((number, 3));
            let mut count = 0;
            theirs.for_each(|item| count += usize::from(item.0 == number));
            assert_eq!(count, 2);
            assert_eq!(theirs.remove(third), (number, 3));
            assert_eq!(theirs.remove(second), (number, 2));
        });
        assert!(list.is_empty());
        assert_eq!(list.removals_total(), 9);
        assert!(list.removals_local() <= 9);
    });
}

/// At every moment 10 are left for each of the takers, so nobody may be refused. Fails when
/// `collect` takes the stashes by `swap(0)` instead of freezing them.
#[test]
fn limited_counter_refuses_only_when_short() {
    check(4000, || {
        let counter = Arc::new(LimitedCounter::new(20));
        let theirs = Arc::clone(&counter);
        in_tasks(3, move |number| {
            if number == 0 {
                assert!(theirs.try_take(10));
                return;
            }
            // Gives before it takes: the amount never falls below what the first task takes.
            theirs.give(5);
            assert!(theirs.try_take(5));
            theirs.give(5);
            assert!(theirs.try_take(5));
        });
        assert_eq!(counter.available(), 10);
    });
}

/// Never more is taken than there is, and the last unit can be had. Fails when `try_take` stores
/// instead of exchanging.
#[test]
fn limited_counter_is_exact() {
    check(1000, || {
        let counter = Arc::new(LimitedCounter::new(7));
        let taken = Arc::new(AtomicU64::new(0));
        let (theirs, their_taken) = (Arc::clone(&counter), Arc::clone(&taken));
        in_tasks(3, move |_| {
            for amount in [1, 2, 1] {
                if theirs.try_take(amount) {
                    their_taken.fetch_add(amount, Ordering::SeqCst);
                }
            }
        });
        let taken = taken.load(Ordering::SeqCst);
        assert!(taken <= 7);
        assert_eq!(counter.available(), 7 - taken);
        // 12 were asked for in all, in pieces of at most 2.
        assert!(taken >= 6, "{taken}");
        assert!(counter.try_take(7 - taken));
        assert!(!counter.try_take(1));
    });
}

/// A thread that takes what is left gets all of it, and together they get no more. Fails when
/// `take_up_to` does not collect the stashes.
#[test]
fn limited_counter_gives_what_is_left() {
    check(1000, || {
        let counter = Arc::new(LimitedCounter::new(7));
        let taken = Arc::new(AtomicU64::new(0));
        let (theirs, their_taken) = (Arc::clone(&counter), Arc::clone(&taken));
        in_tasks(3, move |_| {
            let mine = theirs.take_up_to(2) + theirs.take_up_to(1);
            their_taken.fetch_add(mine, Ordering::SeqCst);
        });
        assert_eq!(taken.load(Ordering::SeqCst), 7);
        assert_eq!(counter.available(), 0);
    });
}

/// No addition is lost. Fails when `add` loads and stores.
#[test]
fn per_cpu_counter_loses_nothing() {
    check(1000, || {
        let counter = Arc::new(PerCpuCounter::new(5));
        let theirs = Arc::clone(&counter);
        in_tasks(3, move |_| {
            for amount in [40, 40, -10, 40] {
                theirs.add(amount);
            }
            // Of the other two each amount may be in it or not.
            assert!(theirs.exact() >= 5 + 110 - 2 * 10);
        });
        assert_eq!(counter.exact(), 5 + 330);
    });
}

/// Readers and writers, some only trying. Fails without: the look for a writer in `enter`; the
/// gate's mutex or the notification in `wake_writer` (deadlock); the notification after the last
/// reader that was turned away (deadlock).
#[test]
fn big_reader_excludes() {
    check(1500, || {
        let lock = Arc::new((BigReader::new(&CLASS), AtomicI32::new(0)));
        let theirs = Arc::clone(&lock);
        in_tasks(4, move |number| {
            let (lock, inside) = &*theirs;
            for _ in 0..2 {
                if number < 2 {
                    let Some(_guard) = (if thread_rng().gen_bool(0.5) {
                        Some(lock.read())
                    } else {
                        lock.try_read()
                    }) else {
                        continue;
                    };
                    assert!(inside.fetch_add(1, StdOrdering::Relaxed) >= 0);
                    thread::yield_now();
                    inside.fetch_sub(1, StdOrdering::Relaxed);
                } else {
                    let Some(_guard) = (if thread_rng().gen_bool(0.7) {
                        Some(lock.write())
                    } else {
                        lock.try_write()
                    }) else {
                        continue;
                    };
                    assert_eq!(inside.swap(-1, StdOrdering::Relaxed), 0);
                    thread::yield_now();
                    inside.store(0, StdOrdering::Relaxed);
                }
            }
        });
        assert!(lock.0.try_write().is_some());
    });
}

/// One load at a time; failures and panics pass the turn on.
#[test]
fn once_latch_loads_once() {
    check(1000, || {
        let latch = Arc::new(OnceLatch::new(&CLASS));
        let loading = Arc::new(AtomicI32::new(0));
        let loads = Arc::new(AtomicI32::new(0));
        let shared = (Arc::clone(&latch), Arc::clone(&loading), Arc::clone(&loads));
        in_tasks(3, move |number| {
            let (latch, loading, loads) = &shared;
            let result = latch.get_or_try_init(|| {
                assert_eq!(loading.swap(1, StdOrdering::Relaxed), 0, "two load");
                thread::yield_now();
                loading.store(0, StdOrdering::Relaxed);
                if number == 0 {
                    return Err(());
                }
                loads.fetch_add(1, StdOrdering::Relaxed);
                Ok(number)
            });
            if number != 0 {
                assert!(result.is_ok());
            }
        });
        assert_eq!(loads.load(StdOrdering::Relaxed), 1);
        assert!(latch.get().is_some());
    });
}

/// The condition variable gives the mutex up while it waits, and the checker's list is per task.
#[test]
fn mutex_and_condvar_hand_over() {
    check(1000, || {
        let shared = Arc::new((Mutex::new(&OUTER, 0), Mutex::new(&CLASS, 0), Condvar::new()));
        let theirs = Arc::clone(&shared);
        in_tasks(3, move |number| {
            let (outer, turn, changed) = &*theirs;
            let _outer = (number == 2).then(|| outer.lock());
            let mut turn = turn.lock();
            while *turn != number {
                if thread_rng().gen_bool(0.5) {
                    changed.wait(&mut turn);
                } else {
                    changed.wait_timeout(&mut turn, Duration::from_secs(1));
                }
            }
            *turn += 1;
            changed.notify_all();
        });
        assert_eq!(*shared.1.lock(), 3);
    });
}

/// Relaxing races with relaxing and with ordinary users: levels come back as they were, nobody is
/// ever beside another, and the change count tells exactly which were in between. Fails without:
/// the depth that `relax` restores, `changes` being counted, the look for sleepers in `give`
/// (deadlock).
#[test]
fn relaxed_mutex_relaxes_beside_others() {
    check(1500, || {
        let shared = Arc::new((RelaxedMutex::new(&CLASS), Shadow::new(), AtomicU64::new(0)));
        let theirs = Arc::clone(&shared);
        in_tasks(3, move |_| {
            let (lock, shadow, entries) = &*theirs;
            let relax = || lock.relax(thread::yield_now).others;
            recursive_user(lock, || lock.lock(), relax, shadow, entries);
        });
        assert!(shared.0.try_lock().is_some());
    });
}

/// The same for both kinds of the big lock. Fails without: the release of the word in `Spin::give`,
/// the hand-over in `Fair::give` (deadlock).
#[test]
fn big_lock_relaxes_beside_others() {
    for kind in [BigLockKind::Spinning, BigLockKind::Sleeping] {
        check(1000, move || {
            let shared = Arc::new((BigLock::new(&CLASS, kind), Shadow::new(), AtomicU64::new(0)));
            let theirs = Arc::clone(&shared);
            in_tasks(3, move |_| {
                let (lock, shadow, entries) = &*theirs;
                let relax = || lock.relax(thread::yield_now).others;
                recursive_user(lock, || lock.lock(), relax, shadow, entries);
            });
            assert!(shared.0.try_lock().is_some());
        });
    }
}

/// Takes a recursive lock up to three deep, relaxes at some depth, and checks that nobody else is
/// inside but while relaxed. `entries` counts outermost entries under the lock.
fn recursive_user<L, G>(
    _lock: &L,
    lock: impl Fn() -> G,
    relax: impl Fn() -> u64,
    shadow: &Shadow,
    entries: &AtomicU64,
) {
    let alone = &shadow.0[0];
    let enter = || {
        assert_eq!(alone.swap(-1, StdOrdering::Relaxed), 0, "two inside");
        entries.fetch_add(1, Ordering::SeqCst);
    };
    let leave = || alone.store(0, StdOrdering::Relaxed);
    let mut levels = vec![lock()];
    enter();
    for _ in 0..thread_rng().gen_range(0..3) {
        levels.push(lock());
        thread::yield_now();
    }
    let before = entries.load(Ordering::SeqCst);
    leave();
    let others = relax();
    enter();
    assert_eq!(others, entries.load(Ordering::SeqCst) - before - 1);
    while levels.len() > 1 {
        levels.pop();
        thread::yield_now();
        assert_eq!(alone.load(StdOrdering::Relaxed), -1, "somebody came in");
    }
    leave();
}

/// The sleeping big lock is handed over in the order of arrival. Fails when `Fair::give` takes the
/// last.
#[test]
fn big_lock_that_sleeps_is_fair() {
    check(500, || {
        let lock = Arc::new(BigLock::new(&CLASS, BigLockKind::Sleeping));
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let guard = lock.lock();
        let mut tasks = Vec::new();
        for number in 0..3 {
            let (theirs, order) = (Arc::clone(&lock), Arc::clone(&order));
            tasks.push(thread::spawn(move || {
                let _guard = theirs.lock();
                order.lock().unwrap().push(number);
            }));
            while lock.waiters() <= number {
                thread::yield_now();
            }
        }
        drop(guard);
        for task in tasks {
            task.join().unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    });
}
