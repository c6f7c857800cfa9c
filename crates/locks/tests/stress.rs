//! Every lock under real threads, guarding plain memory: a pair of words that a holder makes
//! unequal for a moment. A thread that sees them unequal was not kept out; and the thread sanitizer
//! (`xtask prove tsan`) sees every access that no lock orders, whether it did harm or not.
//!
//! `FINEFS_STRESS_MS` says how long each test runs.
//!
//! Tried with a lock left out: `without_a_lock`, to which `xtask prove tsan` expects the sanitizer
//! to object.
//!
//! A program of its own, not a set of `#[test]`s: what the test harness and scoped threads do to
//! order things happens inside the standard library, which the sanitizer does not see.

#![cfg_attr(any(loom, feature = "shuttle"), allow(unused))]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use finefs_locks::{
    BigLock, BigLockKind, BigReader, LocalGlobal, LockClass, Mutex, OnceLatch, RangeLock, RawLock,
    RelaxedMutex, RwLock, ShardedList,
};

static CLASS: LockClass = LockClass::new("test.stress", 10);
static INNER: LockClass = LockClass::new("test.stress.inner", 20);
const THREADS: u64 = 4;
const PAIRS: u64 = 8;

/// What runs, by name.
const TESTS: &[(&str, fn())] = &[
    (
        "mutex_and_rw_lock_and_raw_lock",
        mutex_and_rw_lock_and_raw_lock,
    ),
    ("big_reader", big_reader),
    ("local_global", local_global),
    (
        "sharded_list_whose_items_change_hands",
        sharded_list_whose_items_change_hands,
    ),
    ("recursive_locks", recursive_locks),
    ("range_lock", range_lock),
    ("once_latch", once_latch),
];

fn main() {
    if cfg!(any(loom, feature = "shuttle")) {
        return;
    }
    let wanted = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    if wanted.as_deref() == Some("without_a_lock") {
        without_a_lock();
        return;
    }
    let chosen = TESTS
        .iter()
        .filter(|(name, _)| wanted.as_ref().is_none_or(|wanted| name.contains(wanted)));
    for (name, test) in chosen {
        test();
        println!("stress {name} ... ok");
    }
}

/// Plain memory that only locks guard.
struct Pairs([UnsafeCell<(u64, u64)>; PAIRS as usize]);

// SAFETY: that accesses are ordered is what these tests are about.
unsafe impl Sync for Pairs {}

impl Pairs {
    fn new() -> Pairs {
        Pairs(std::array::from_fn(|_| UnsafeCell::new((0, 0))))
    }

    fn write(&self, at: u64, pause: bool) {
        let pair = self.0[at as usize].get();
        // SAFETY: the caller holds the pair's lock exclusively.
        unsafe {
            assert_eq!((*pair).0, (*pair).1, "another writer is inside");
            (*pair).0 += 1;
            if pause {
                std::thread::yield_now();
            }
            (*pair).1 += 1;
        }
    }

    fn read(&self, at: u64) {
        let pair = self.0[at as usize].get();
        // SAFETY: the caller holds the pair's lock at least shared.
        unsafe { assert_eq!((*pair).0, (*pair).1, "a writer is inside") };
    }
}

/// A thread's own choices.
struct Choices(u64);

impl Choices {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        // xorshift64*, Vigna 2016.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// Calls `f` over and over in all threads.
fn stress(f: impl Fn(&mut Choices) + Sync) {
    let ms = std::env::var("FINEFS_STRESS_MS").ok();
    let ms = ms.map_or(100, |ms| ms.parse().expect("a number"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (f, stop) = (&f, &stop);
                scope.spawn(move || {
                    let mut choices = Choices(thread * 77 + 1);
                    while !stop.load(Ordering::Relaxed) {
                        f(&mut choices);
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(ms));
        stop.store(true, Ordering::Relaxed);
        // Not left to the scope, whose own waiting the sanitizer does not see.
        for thread in threads {
            thread.join().expect("kept out");
        }
    });
}

fn mutex_and_rw_lock_and_raw_lock() {
    let pairs = Pairs::new();
    let (mutex, rw, raw) = (
        Mutex::new(&CLASS, ()),
        RwLock::new(&CLASS, ()),
        RawLock::new(),
    );
    stress(|choices| {
        let pause = choices.one_in(100);
        match choices.below(5) {
            0 => {
                let _guard = mutex.lock();
                pairs.write(0, pause);
            }
            1 => {
                let _guard = rw.write();
                pairs.write(1, pause);
            }
            2 => {
                let _guard = rw.read();
                pairs.read(1);
            }
            3 => {
                let Some(_guard) = raw.try_lock(&CLASS, (1, 0)) else {
                    return;
                };
                pairs.write(2, pause);
            }
            _ => {
                let _guard = raw.lock(&CLASS, (1, 0));
                pairs.write(2, pause);
            }
        }
    });
}

fn big_reader() {
    let (lock, pairs) = (BigReader::new(&CLASS), Pairs::new());
    stress(|choices| match choices.below(200) {
        0 => {
            let _guard = lock.write();
            pairs.write(0, true);
        }
        1 => {
            let Some(_guard) = lock.try_write() else {
                return;
            };
            pairs.write(0, false);
        }
        2..10 => {
            let Some(_guard) = lock.try_read() else {
                return;
            };
            pairs.read(0);
        }
        _ => {
            let _guard = lock.read();
            pairs.read(0);
        }
    });
}

fn local_global() {
    let (lock, pairs) = (LocalGlobal::new(&CLASS, |_| ()), Pairs::new());
    let shards = (lock.shard_count() as u64).min(PAIRS);
    stress(|choices| {
        if choices.one_in(50) {
            let _all = lock.global();
            (0..shards).for_each(|shard| pairs.write(shard, false));
            return;
        }
        let guard = if choices.one_in(2) {
            lock.local()
        } else {
            lock.shard(choices.below(shards) as usize)
        };
        if (guard.shard() as u64) < shards {
            pairs.write(guard.shard() as u64, choices.one_in(50));
        }
    });
}

/// Items are owned memory, added by one thread and removed by another.
fn sharded_list_whose_items_change_hands() {
    let list = ShardedList::new(&CLASS);
    let tickets = Mutex::new(&INNER, Vec::new());
    stress(|choices| {
        if choices.one_in(2) {
            let number = choices.below(1000);
            let ticket = list.add(Box::new((number, number)));
            tickets.lock().push(ticket);
        } else {
            let ticket = tickets.lock().pop();
            if let Some(ticket) = ticket {
                let item = list.remove(ticket);
                assert_eq!(item.0, item.1);
            }
        }
        if choices.one_in(200) {
            list.for_each(|item| assert_eq!(item.0, item.1));
        }
    });
}

fn recursive_locks() {
    let (relaxed, pairs) = (RelaxedMutex::new(&CLASS), Pairs::new());
    let big = [BigLockKind::Spinning, BigLockKind::Sleeping].map(|kind| BigLock::new(&CLASS, kind));
    stress(|choices| {
        let pause = choices.one_in(100);
        let which = choices.below(3);
        let work = |relax: &dyn Fn()| {
            pairs.write(which, pause);
            if pause {
                relax();
                pairs.write(which, false);
            }
        };
        if which == 2 {
            let _outer = relaxed.lock();
            let _inner = relaxed.lock();
            work(&|| relaxed.relax(std::thread::yield_now).value);
        } else {
            let lock = &big[which as usize];
            let _outer = lock.lock();
            let _inner = lock.lock();
            work(&|| lock.relax(std::thread::yield_now).value);
        }
    });
}

fn range_lock() {
    let (lock, pairs) = (RangeLock::new(&CLASS), Pairs::new());
    stress(|choices| {
        let start = choices.below(PAIRS);
        let end = (start + 1 + choices.below(3)).min(PAIRS);
        match choices.below(4) {
            0 => {
                let _guard = lock.write(start..end);
                (start..end).for_each(|at| pairs.write(at, false));
            }
            1 => {
                let mut guard = lock.write(start..end);
                pairs.write(start, true);
                guard.downgrade();
                pairs.read(start);
            }
            2 => {
                let Some(_guard) = lock.try_write(start..end) else {
                    return;
                };
                pairs.write(start, false);
            }
            _ => {
                let _guard = lock.read(start..end);
                (start..end).for_each(|at| pairs.read(at));
            }
        }
    });
}

fn once_latch() {
    let latches: Vec<OnceLatch<Box<(u64, u64)>>> =
        (0..10_000).map(|_| OnceLatch::new(&CLASS)).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    stress(|choices| {
        let at = next.fetch_add(usize::from(choices.one_in(4)), Ordering::Relaxed);
        if let Some(latch) = latches.get(at) {
            let made = latch.get_or_init(|| Box::new((7, 7)));
            assert_eq!(made.0, made.1);
        }
    });
}

/// What the sanitizer must object to; run only when it is named.
///
/// The sanitizer keeps silent about a race whose first access is no longer in that thread's trace,
/// and does not trace an access again that it has in its shadow. So the threads do little, and none
/// stops at a wrong value.
fn without_a_lock() {
    struct Count(UnsafeCell<u64>);
    // SAFETY: none; the race is the purpose.
    unsafe impl Sync for Count {}
    impl Count {
        fn add(&self) {
            // SAFETY: as above.
            unsafe { *std::hint::black_box(self.0.get()) += 1 }
        }
    }
    let count = Count(UnsafeCell::new(0));
    stress(|_| {
        count.add();
        std::thread::sleep(Duration::from_millis(1));
    });
}
