//! The other locks with real threads, at real speed. The range lock has its own file.

#![cfg(not(any(loom, feature = "shuttle")))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use finefs_locks::{
    BigLock, BigLockKind, BigReader, LimitedCounter, LocalGlobal, LockClass, Mutex, OnceLatch,
    PerCpuCounter, RelaxedMutex, SeqLock, ShardedList, ShardedMax,
};

static CLASS: LockClass = LockClass::new("test.threads", 10);
const THREADS: usize = 4;

fn in_threads(f: impl Fn(usize) + Sync) {
    let f = &f;
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || f(number));
        }
    });
}

#[test]
fn local_global_keeps_sums() {
    let lock = LocalGlobal::new(&CLASS, |_| 0_i64);
    in_threads(|number| {
        for round in 0..5_000 {
            if round % 100 == 0 && number == 0 {
                let mut all = lock.global();
                let sum: i64 = all.iter().sum();
                // A consistent state: moving between shards shows nowhere.
                all.iter_mut().for_each(|part| *part = 0);
                *all.iter_mut().next().expect("a shard") = sum;
            }
            *lock.local() += 1;
        }
    });
    let sum: i64 = lock.global().iter().sum();
    assert_eq!(sum, 5_000 * THREADS as i64);
}

#[test]
fn sharded_list_keeps_its_items() {
    let list = ShardedList::new(&CLASS);
    in_threads(|number| {
        let mut tickets = Vec::new();
        for round in 0..5_000 {
            tickets.push((list.add((number, round)), round));
            if round % 3 != 0 {
                let (ticket, expected) = tickets.swap_remove(round % tickets.len());
                assert_eq!(list.remove(ticket), (number, expected));
            }
        }
        let mut own = 0;
        list.for_each(|item| own += usize::from(item.0 == number));
        assert_eq!(own, tickets.len());
        for (ticket, _) in tickets {
            list.remove(ticket);
        }
    });
    assert!(list.is_empty());
    assert_eq!(list.removals_total(), 5_000 * THREADS as u64);
    assert!(list.removals_local() <= list.removals_total());
    assert!(list.removals_local() > 0);
}

#[test]
fn limited_counter_balances() {
    let counter = LimitedCounter::new(1_000);
    let outstanding = AtomicI64::new(0);
    in_threads(|number| {
        for round in 0..20_000_u64 {
            let amount = 1 + (round + number as u64 * 7) % 300;
            if counter.try_take(amount) {
                let out = outstanding.fetch_add(amount as i64, Ordering::SeqCst) + amount as i64;
                assert!(out <= 1_000, "more was taken than there is");
                outstanding.fetch_sub(amount as i64, Ordering::SeqCst);
                counter.give(amount);
            }
        }
    });
    assert_eq!(counter.available(), 1_000);
    assert!(counter.try_take(1_000), "spread over shards, but all there");
    assert!(!counter.try_take(1));
}

#[test]
fn per_cpu_counter_loses_nothing() {
    let counter = PerCpuCounter::default();
    in_threads(|_| (0..50_000).for_each(|round| counter.add(round % 7 - 2)));
    let expected: i64 = (0..50_000).map(|round| round % 7 - 2).sum();
    assert_eq!(counter.exact(), expected * THREADS as i64);
}

#[test]
fn big_reader_excludes() {
    let lock = BigReader::new(&CLASS);
    let inside = AtomicI64::new(0);
    in_threads(|number| {
        for round in 0..5_000 {
            if number == 0 && round % 10 == 0 {
                let _guard = lock.write();
                assert_eq!(inside.swap(-1_000, Ordering::Relaxed), 0);
                inside.store(0, Ordering::Relaxed);
            } else {
                let _guard = lock.read();
                assert!(inside.fetch_add(1, Ordering::Relaxed) >= 0);
                inside.fetch_sub(1, Ordering::Relaxed);
            }
        }
    });
    assert!(lock.try_write().is_some());
}

#[test]
fn seq_lock_never_shows_a_mixture() {
    let (alone, seq) = (Mutex::new(&CLASS, ()), SeqLock::new());
    let fields: [AtomicU64; 4] = std::array::from_fn(|_| AtomicU64::new(0));
    in_threads(|number| {
        for round in 0..20_000 {
            if number % 2 == 0 {
                let guard = alone.lock();
                let value = fields[0].load(Ordering::Relaxed) + round;
                seq.write(&guard, || {
                    fields
                        .iter()
                        .for_each(|field| field.store(value, Ordering::Relaxed));
                });
            } else {
                let seen = seq.read(|| {
                    std::array::from_fn::<u64, 4, _>(|i| fields[i].load(Ordering::Relaxed))
                });
                assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
            }
        }
    });
}

#[test]
fn once_latch_survives_a_panic_and_drops_its_value() {
    let value = std::sync::Arc::new(());
    {
        let latch = OnceLatch::new(&CLASS);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            latch.get_or_init(|| panic!("no disk"));
        }));
        assert!(result.is_err());
        in_threads(|_| {
            latch.get_or_init(|| std::sync::Arc::clone(&value));
        });
        assert_eq!(std::sync::Arc::strong_count(&value), 2);
        assert!(OnceLatch::ready(&CLASS, 1).get_mut().is_some());
    }
    assert_eq!(std::sync::Arc::strong_count(&value), 1);
}

/// Every recursive lock with real threads: levels, relaxing, and a plain number that only its
/// holder changes.
#[test]
fn recursive_locks_exclude_and_relax() {
    fn check<G>(lock: impl Fn() -> G + Sync, relax: impl Fn(&dyn Fn()) -> u64 + Sync) {
        let inside = AtomicI64::new(0);
        in_threads(|_| {
            for round in 0..2_000 {
                let _outer = lock();
                let _inner = (round % 2 == 0).then(&lock);
                assert_eq!(inside.swap(1, Ordering::Relaxed), 0);
                inside.store(0, Ordering::Relaxed);
                if round % 10 == 0 {
                    relax(&std::thread::yield_now);
                }
                assert_eq!(inside.swap(1, Ordering::Relaxed), 0);
                inside.store(0, Ordering::Relaxed);
            }
        });
        // One that comes in between is counted.
        let _outer = lock();
        let others = relax(&|| {
            std::thread::scope(|scope| scope.spawn(|| drop(lock())).join().unwrap());
        });
        assert_eq!(others, 1);
    }
    let relaxed = RelaxedMutex::new(&CLASS);
    check(|| relaxed.lock(), |f| relaxed.relax(f).others);
    for kind in [BigLockKind::Spinning, BigLockKind::Sleeping] {
        let big = BigLock::new(&CLASS, kind);
        check(|| big.lock(), |f| big.relax(f).others);
        check(|| big.lock(), |f| big.sleep(f).others);
    }
}

#[test]
fn a_panic_while_relaxed_takes_the_levels_back() {
    let lock = RelaxedMutex::new(&CLASS);
    let outer = lock.lock();
    let inner = lock.lock();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        lock.relax(|| panic!("slept badly"));
    }));
    assert!(result.is_err() && lock.is_mine());
    drop((outer, inner));
    assert!(!lock.is_mine());
    in_threads(|_| drop(lock.lock()));
}

/// Readers that are guards of ended threads, forgotten guards and more threads than slots.
#[test]
fn big_reader_with_many_threads() {
    let lock = BigReader::new(&CLASS);
    let inside = AtomicI64::new(0);
    std::thread::scope(|scope| {
        for number in 0..100 {
            let (lock, inside) = (&lock, &inside);
            scope.spawn(move || {
                for round in 0..50 {
                    if (number + round) % 50 == 0 {
                        let _guard = lock.write();
                        assert_eq!(inside.swap(-1_000, Ordering::Relaxed), 0);
                        inside.store(0, Ordering::Relaxed);
                    } else {
                        let _guard = lock.read();
                        assert!(inside.fetch_add(1, Ordering::Relaxed) >= 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(lock.try_write().is_some());
    std::thread::scope(|scope| {
        scope.spawn(|| std::mem::forget(lock.read()));
    });
    in_threads(|_| drop(lock.read()));
    assert!(lock.try_write().is_none(), "a forgotten guard holds on");
}

#[test]
fn sharded_max_is_the_greatest() {
    let max = ShardedMax::new(3);
    in_threads(|number| (0..50_000).for_each(|value| max.raise(value * 4 + number as u64)));
    assert_eq!(max.get(), 199_999);
}

/// A guard that is dropped where its lock was let go of does not end the holding of the thread that
/// has it now.
#[test]
fn a_guard_from_before_a_relax_ends_nobody_elses_holding() {
    let lock = RelaxedMutex::new(&CLASS);
    let guard = lock.lock();
    let ((taken, is_taken), (end, ends)) = (channel(), channel::<()>());
    std::thread::scope(|scope| {
        let lock = &lock;
        let other = scope.spawn(move || {
            let _theirs = lock.lock();
            taken.send(()).unwrap();
            let _ = ends.recv_timeout(Duration::from_secs(20));
            lock.is_mine()
        });
        let relaxed = lock.relax(|| {
            is_taken.recv().unwrap();
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(guard)));
            drop(end);
            dropped.is_err()
        });
        assert!(other.join().unwrap(), "it was taken from its holder");
        assert!(relaxed.value, "a panic");
    });
}

/// The first panic is told, not a second one that ends the process; the level stays, as if the
/// guard had been leaked.
#[test]
fn a_panic_that_drops_a_guard_in_a_relax_can_be_caught() {
    let lock = RelaxedMutex::new(&CLASS);
    let guard = lock.lock();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        lock.relax(move || {
            let _guard = guard;
            panic!("of the work");
        })
    }));
    let reason = *caught.unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(reason, "of the work");
    assert!(lock.is_mine());
}

/// A guard that leaves the `relax` in which it was made holds a level like any other, after a panic
/// too; its task does not wait for itself.
#[test]
fn a_guard_may_leave_a_relax() {
    let lock = RelaxedMutex::new(&CLASS);
    let others_get_it =
        || std::thread::scope(|scope| scope.spawn(|| lock.try_lock().is_some()).join().unwrap());
    for panics in [false, true] {
        let outer = (lock.lock(), lock.lock());
        let mut kept = None;
        let relaxed = catch_unwind(AssertUnwindSafe(|| {
            lock.relax(|| {
                kept = Some(lock.lock());
                assert!(!panics);
            });
        }));
        assert_eq!(relaxed.is_err(), panics);
        drop(outer);
        assert!(lock.is_mine() && !others_get_it());
        drop(kept);
        assert!(!lock.is_mine() && others_get_it());
    }
}
