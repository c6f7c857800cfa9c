//! Locks on files under shuttle, which tries random schedules.
//!
//! `cargo test -p finefs-namespace --features shuttle --test shuttle_file_locks`;
//! `FINEFS_SCHEDULES=n` tries n per test.
//!
//! Each test names, after "Without:", the lines without which it fails; each was tried, in a copy.
//! A wait that nobody ends shows as shuttle's "deadlock". Every test ends by asserting that no lock
//! and no waiting request is left.

#![cfg(feature = "shuttle")]

use std::sync::Arc;
use std::time::Duration;

use finefs_locks::primitive::atomic::{AtomicBool, AtomicU32, Ordering};
use finefs_namespace::{
    Caller, Error, Ino, Interrupt, LockKind, LockWait, MemoryStore, Namespace, OpenAccess,
    OpenFile, Options, RangeOwner,
};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

use LockKind::{Exclusive, Shared};

/// Shuttle has no time: such a wait ends by chance.
const SOME_TIME: Duration = Duration::from_secs(3600);

struct World {
    namespace: Namespace,
    files: Vec<Ino>,
}

impl World {
    fn new(count: usize) -> World {
        let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
        let namespace = Namespace::without_thread(Arc::new(store), Options::default()).unwrap();
        let file = |n: usize| {
            let name = format!("f{n}");
            let root = namespace.root();
            let made = namespace.create_file(&Caller::root(), root, name.as_bytes(), 0o644);
            let ino = made.unwrap().ino;
            namespace.forget(ino, 1);
            ino
        };
        let files = (0..count).map(file).collect();
        World { namespace, files }
    }

    fn open(&self, file: usize) -> OpenFile<'_> {
        let access = OpenAccess::ReadWrite;
        self.namespace
            .open(&Caller::root(), self.files[file], access)
            .unwrap()
    }

    fn finish(&self) {
        assert_eq!(self.namespace.file_lock_count(), 0);
        assert_eq!(self.namespace.open_file_count(), 0);
    }
}

fn check(schedules: usize, run: impl Fn() + Send + Sync + 'static) {
    let schedules =
        std::env::var("FINEFS_SCHEDULES").map_or(schedules, |text| text.parse().unwrap());
    let config = || {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.silence_warnings = true;
        config
    };
    let run = Arc::new(run);
    let again = Arc::clone(&run);
    Runner::new(RandomScheduler::new(schedules), config()).run(move || run());
    Runner::new(PctScheduler::new(3, schedules / 2 + 1), config()).run(move || again());
}

type Task<'w, T> = Box<dyn FnOnce(&'w World) -> T + Send + 'w>;

fn task<'w, T>(f: impl FnOnce(&'w World) -> T + Send + 'w) -> Task<'w, T> {
    Box::new(f)
}

fn race<'w, T: Send>(world: &'w World, tasks: Vec<Task<'w, T>>) -> Vec<T> {
    thread::scope(|scope| {
        let tasks = tasks.into_iter();
        let handles: Vec<_> = tasks.map(|task| scope.spawn(move || task(world))).collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    })
}

/// Processes lock overlapping ranges and find nobody else where they may not; every wait ends.
///
/// Without: `waiter.end(Ok(()))` in `Queue::changed`; the conflict's `is_some()` there, negated.
#[test]
fn ranges_exclude_each_other_and_every_wait_ends() {
    check(400, || {
        let world = World::new(1);
        let inside: Arc<Vec<AtomicU32>> = Arc::new((0..4).map(|_| AtomicU32::new(0)).collect());
        let lock = |process: u64, kind: LockKind, range: std::ops::Range<u64>| {
            let inside = Arc::clone(&inside);
            task(move |world: &World| {
                let open = world.open(0);
                let owner = RangeOwner::Process(process);
                open.locks()
                    .lock_range(owner, kind, range.clone(), LockWait::forever())
                    .unwrap();
                // A writer counts 100.
                let weight = if kind == Exclusive { 100 } else { 1 };
                for at in range.clone() {
                    let before = inside[at as usize].fetch_add(weight, Ordering::SeqCst);
                    assert!(before == 0 || (kind == Shared && before < 100), "byte {at}");
                }
                thread::yield_now();
                for at in range.clone() {
                    inside[at as usize].fetch_sub(weight, Ordering::SeqCst);
                }
                open.locks().release_owner(process);
            })
        };
        race(
            &world,
            vec![
                lock(1, Exclusive, 0..3),
                lock(2, Shared, 2..4),
                lock(3, Shared, 1..3),
                lock(4, Exclusive, 3..4),
            ],
        );
        world.finish();
    });
}

/// flock: a conversion lets others in between and takes the lock in the end.
///
/// Without: `queue.change(owner, None, range, credits)` of the conversion in `FileLocks::ask` (both
/// hold shared locks and wait for each other).
#[test]
fn conversions_of_flock_do_not_wait_for_each_other() {
    check(200, || {
        let world = World::new(1);
        let is_inside = Arc::new(AtomicBool::new(false));
        let convert = || {
            let is_inside = Arc::clone(&is_inside);
            task(move |world: &World| {
                let open = world.open(0);
                open.locks().flock(Shared, LockWait::forever()).unwrap();
                assert!(!is_inside.load(Ordering::SeqCst));
                open.locks().flock(Exclusive, LockWait::forever()).unwrap();
                assert!(!is_inside.swap(true, Ordering::SeqCst));
                thread::yield_now();
                is_inside.store(false, Ordering::SeqCst);
            })
        };
        race(&world, vec![convert(), convert()]);
        world.finish();
    });
}

/// A wait runs out of time, or is interrupted, while the lock is released: it either has the lock
/// or not, and says which.
///
/// Without: `waiter.outcome()` in `wait_for` (a lock that nobody knows of); `locks.withdraw(...)`
/// there (a granted request of somebody who went).
#[test]
fn a_wait_that_ends_as_the_lock_is_released_says_what_it_has() {
    check(300, || {
        let world = World::new(1);
        let interrupt = Interrupt::new();
        let held = world.open(0);
        held.locks().flock(Exclusive, LockWait::never()).unwrap();
        let raise = interrupt.clone();
        let waits = |wait: fn(&Interrupt) -> LockWait<'_>, expected: Error| {
            let interrupt = interrupt.clone();
            task(move |world: &World| {
                let open = world.open(0);
                let result = open.locks().flock(Exclusive, wait(&interrupt));
                assert!(result.is_ok() || result == Err(expected));
                if result.is_ok() {
                    open.locks().unlock_flock();
                }
                Some(open)
            })
        };
        let tasks = vec![
            waits(|_| LockWait::at_most(SOME_TIME), Error::TimedOut),
            waits(
                |interrupt| LockWait::forever().or_until(interrupt),
                Error::Interrupted,
            ),
            task(move |_: &World| {
                drop(held);
                None
            }),
            task(move |_: &World| {
                raise.raise();
                None
            }),
        ];
        // Still open, and they have said that they have nothing.
        let opens = race(&world, tasks);
        let open = world.open(0);
        open.locks().flock(Exclusive, LockWait::never()).unwrap();
        drop((open, opens));
        world.finish();
    });
}

/// Two processes take two files in opposite orders: one of them is refused if they meet, never
/// both.
///
/// Without: the search in `WaitsFor::enter`; the search and the entry under one hold of its lock.
#[test]
fn a_deadlock_is_refused_once() {
    check(300, || {
        let world = World::new(2);
        let take = |process: u64, first: usize, second: usize| {
            task(move |world: &World| {
                let (one, two) = (world.open(first), world.open(second));
                let owner = RangeOwner::Process(process);
                one.locks()
                    .lock_range(owner, Exclusive, 0..1, LockWait::forever())
                    .unwrap();
                let result = two
                    .locks()
                    .lock_range(owner, Exclusive, 0..1, LockWait::forever());
                one.locks().release_owner(process);
                two.locks().release_owner(process);
                result
            })
        };
        let results = race(&world, vec![take(1, 0, 1), take(2, 1, 0)]);
        let refused = results.iter().filter(|r| **r == Err(Error::Deadlock));
        assert!(refused.count() <= 1);
        assert!(results.iter().any(|result| result.is_ok()));
        world.finish();
    });
}

/// In one order there is no cycle, and nobody is refused.
///
/// Without: `state.blockers.clear()` in `Waiter::end` (what a request that was granted waited for).
#[test]
fn what_is_no_deadlock_is_not_refused() {
    check(300, || {
        let world = World::new(2);
        let take = |process: u64| {
            task(move |world: &World| {
                let opens = [world.open(0), world.open(1)];
                let owner = RangeOwner::Process(process);
                // Again, so that it waits for whom it kept waiting a moment ago.
                for _ in 0..2 {
                    for open in &opens {
                        open.locks()
                            .lock_range(owner, Exclusive, 0..1, LockWait::forever())
                            .unwrap();
                    }
                    opens
                        .iter()
                        .for_each(|open| open.locks().release_owner(process));
                }
            })
        };
        race(&world, vec![take(1), take(2)]);
        world.finish();
    });
}

/// A process gets a lock by another's hand, and at once wants what one who waits for that lock
/// holds.
///
/// Without: granting last in `Queue::changed`, after `set_blockers`.
#[test]
fn who_is_granted_a_lock_is_waited_for_from_that_moment() {
    check(600, || {
        let world = World::new(2);
        let holder = world.open(0);
        let owner = RangeOwner::Process(9);
        holder
            .locks()
            .lock_range(owner, Exclusive, 0..1, LockWait::never())
            .unwrap();
        let take = |process: u64, files: [usize; 2]| {
            task(move |world: &World| {
                let owner = RangeOwner::Process(process);
                let opens = files.map(|file| world.open(file));
                let wait = LockWait::forever();
                let lock =
                    |open: &OpenFile<'_>| open.locks().lock_range(owner, Exclusive, 0..1, wait);
                let result = opens.iter().try_for_each(lock);
                opens
                    .iter()
                    .for_each(|open| open.locks().release_owner(process));
                result
            })
        };
        let results = race(
            &world,
            vec![
                take(1, [0, 1]),
                take(2, [1, 0]),
                task(move |_: &World| {
                    holder.locks().release_owner(9);
                    Ok(())
                }),
            ],
        );
        let refused = results.iter().filter(|r| **r == Err(Error::Deadlock));
        assert!(refused.count() <= 1);
        world.finish();
    });
}
