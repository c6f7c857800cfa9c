//! The atomic protocols under loom, which tries every order that the memory model allows (up to the
//! preemption bound).
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p finefs-locks --release --test loom`
//!
//! Every test names the lines without which it fails; that was tried for each of them.

#![cfg(loom)]

use finefs_locks::primitive::Arc;
use finefs_locks::primitive::atomic::{AtomicUsize, Ordering::Relaxed};
use finefs_locks::{
    BigLock, BigLockKind, BigReader, LocalGlobal, LockClass, Mutex, OnceLatch, RangeLock,
    RelaxedMutex, SeqLock, ShardedMax, SplitCounts,
};
use loom::cell::UnsafeCell;
use loom::thread;

static CLASS: LockClass = LockClass::new("test.loom", 10);

fn model(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}

/// Runs both in threads of their own and waits for them. (Loom does not explore all that can happen
/// between a thread's spawning and the next operation of its spawner.)
fn both(one: impl FnOnce() + 'static, other: impl FnOnce() + 'static) {
    let one = thread::spawn(one);
    let other = thread::spawn(other);
    one.join().unwrap();
    other.join().unwrap();
}

/// A number that loom watches: unordered access by two threads fails the test.
struct Watched(UnsafeCell<usize>);

// SAFETY: loom reports any access that the lock under test does not order.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn new() -> Watched {
        Watched(UnsafeCell::new(0))
    }

    fn bump(&self) {
        // SAFETY: loom checks that nobody else has access.
        self.0.with_mut(|number| unsafe { *number += 1 });
    }

    fn get(&self) -> usize {
        // SAFETY: loom checks that nobody is writing.
        self.0.with(|number| unsafe { *number })
    }
}

/// Fails without: the light barrier in `enter`, the heavy one in `announce`, the acquire in
/// `enter`, the release at the writer's end.
#[test]
fn big_reader_excludes() {
    model(3, || {
        let shared = Arc::new((BigReader::new(&CLASS), Watched::new()));
        let (reader, writer) = (Arc::clone(&shared), Arc::clone(&shared));
        both(
            move || {
                let _guard = reader.0.read();
                let first = reader.1.get();
                assert_eq!(first, reader.1.get());
            },
            move || {
                let _guard = writer.0.write();
                writer.1.bump();
            },
        );
        let _guard = shared.0.try_read().expect("no writer is left");
        assert_eq!(shared.1.get(), 1);
    });
}

/// A reader that leaves wakes the writer; one by its own counter, one by a shared one. Fails
/// (deadlock) without `wake_writer`, and without the light barrier in `leave`; fails without the
/// release in either `Counter::leave` and without the acquire in `has_readers`.
#[test]
fn big_reader_two_readers_let_the_writer_in() {
    model(2, || {
        let shared = Arc::new((BigReader::new(&CLASS), Watched::new()));
        let (reader, writer) = (Arc::clone(&shared), Arc::clone(&shared));
        // Has a counter of its own.
        let reader = thread::spawn(move || {
            let _guard = reader.0.read();
            reader.1.get();
        });
        let writer = thread::spawn(move || {
            let _guard = writer.0.write();
            writer.1.bump();
        });
        // Has none: it is the model's first thread.
        {
            let _guard = shared.0.read();
            shared.1.get();
        }
        reader.join().unwrap();
        writer.join().unwrap();
        assert!(shared.0.try_write().is_some());
    });
}

/// Fails without: either fence, the release ordering at the end of a write section, the acquire
/// ordering of the first look at the number, the second look.
#[test]
fn seq_lock_readers_see_pairs() {
    model(3, || {
        let shared = Arc::new((
            SeqLock::new(),
            Mutex::new(&CLASS, ()),
            AtomicUsize::new(0),
            AtomicUsize::new(0),
        ));
        let (reader, writer) = (Arc::clone(&shared), Arc::clone(&shared));
        both(
            move || {
                let (seq, _, left, right) = &*reader;
                // One attempt: a loop of attempts only repeats it.
                let seen = seq.try_read(|| (left.load(Relaxed), right.load(Relaxed)));
                if let Some((left, right)) = seen {
                    assert_eq!(left, right);
                }
            },
            move || {
                let (seq, alone, left, right) = &*writer;
                for value in 1..3 {
                    let guard = alone.lock();
                    seq.write(&guard, || {
                        left.store(value, Relaxed);
                        right.store(value, Relaxed);
                    });
                }
            },
        );
        let (seq, _, left, right) = &*shared;
        assert_eq!(
            seq.read(|| (left.load(Relaxed), right.load(Relaxed))),
            (2, 2)
        );
    });
}

/// Fails without: the acquire in `get`, the release in `load`, the check of `is_loading`.
#[test]
fn once_latch_loads_once_and_publishes() {
    model(3, || {
        let shared = Arc::new((OnceLatch::new(&CLASS), AtomicUsize::new(0)));
        let user = || {
            let shared = Arc::clone(&shared);
            move || {
                if let Some(seen) = shared.0.get() {
                    assert_eq!(*seen, 7);
                }
                let made = shared.0.get_or_init(|| {
                    shared.1.fetch_add(1, Relaxed);
                    7
                });
                assert_eq!(*made, 7);
            }
        };
        both(user(), user());
        assert_eq!(shared.1.load(Relaxed), 1);
    });
}

/// A failed load passes the turn on. Fails (deadlock) without the notification in `Turn::drop`.
#[test]
fn once_latch_failure_passes_the_turn() {
    model(3, || {
        let latch = Arc::new(OnceLatch::new(&CLASS));
        let (failing, good) = (Arc::clone(&latch), Arc::clone(&latch));
        both(
            move || {
                // Whichever comes first.
                if let Ok(value) = failing.get_or_try_init(|| Err::<usize, _>(())) {
                    assert_eq!(*value, 7);
                }
            },
            move || assert_eq!(good.get_or_try_init(|| Ok::<_, ()>(7)), Ok(&7)),
        );
    });
}

/// Overlapping writers, by the fast path and by the queue. Fails without: the acquire in
/// `exchange`, the release in `leave`, the wait for the range in `close` and its orderings, the
/// entry of the cell's holder in `Slow::close`, the acquire in `Cell::close`, the release in
/// `open`, the look at OPEN in `take`.
#[test]
fn range_lock_word_excludes() {
    model(3, || {
        let shared = Arc::new((RangeLock::new(&CLASS), Watched::new()));
        let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
        both(
            move || {
                let _guard = one.0.write(0..10);
                one.1.bump();
            },
            move || {
                for _ in 0..2 {
                    let _guard = other.0.write(5..15);
                    other.1.bump();
                }
            },
        );
        assert!(shared.0.settle());
        let _guard = shared.0.read(0..20);
        assert_eq!(shared.1.get(), 3);
    });
}

/// A waiter in the queue sees what the holder before it did, though it may see the grant before it
/// is woken. Fails without the release in `Node::grant`, and without the acquire in `is_granted`.
#[test]
fn range_lock_grant_publishes() {
    model(4, || {
        let shared = Arc::new((RangeLock::new(&CLASS), Watched::new()));
        let guard = shared.0.write(0..10);
        let waiter = Arc::clone(&shared);
        let waiter = thread::spawn(move || {
            let _guard = waiter.0.write(5..15);
            waiter.1.bump();
        });
        shared.1.bump();
        drop(guard);
        waiter.join().unwrap();
        assert_eq!(shared.1.get(), 2);
    });
}

/// A reader, and a writer that downgrades. Fails without the release in `downgrade`, and when a
/// reader's leaving opens a closed cell.
#[test]
fn range_lock_reader_and_writer() {
    model(3, || {
        let shared = Arc::new((RangeLock::new(&CLASS), Watched::new()));
        let (reader, writer) = (Arc::clone(&shared), Arc::clone(&shared));
        both(
            move || {
                let _guard = reader.0.read(0..10);
                let seen = reader.1.get();
                assert_eq!(seen, reader.1.get());
            },
            move || {
                let mut guard = writer.0.write(9..20);
                writer.1.bump();
                guard.downgrade();
                assert_eq!(writer.1.get(), 1);
            },
        );
        assert!(shared.0.settle());
    });
}

/// Disjoint ranges never conflict: the exact range of a fast holder counts, not just that there is
/// one. Fails when the fast holder enters the queue with a wider range.
#[test]
fn range_lock_disjoint_ranges_do_not_conflict() {
    model(3, || {
        let lock = Arc::new(RangeLock::new(&CLASS));
        let (one, other) = (Arc::clone(&lock), Arc::clone(&lock));
        both(
            move || assert!(one.try_write(0..10).is_some()),
            move || assert!(other.try_write(10..20).is_some()),
        );
        assert!(lock.settle());
    });
}

/// Appends get places that follow each other.
#[test]
fn range_lock_appends_follow_each_other() {
    model(3, || {
        let shared = Arc::new((RangeLock::new(&CLASS), AtomicUsize::new(0)));
        let appender = || {
            let shared = Arc::clone(&shared);
            move || {
                let guard = shared.0.append(|| shared.1.load(Relaxed) as u64);
                let start = guard.range().start as usize;
                assert_eq!(start, shared.1.load(Relaxed));
                shared.1.store(start + 10, Relaxed);
            }
        };
        both(appender(), appender());
        assert_eq!(shared.1.load(Relaxed), 20);
        assert!(shared.0.settle());
    });
}

/// Readers of one range share the word, and a writer comes after both. Fails without: the release
/// in `leave`, the acquire in `exchange`, the look at the range in `take_or_join`.
#[test]
fn range_lock_readers_share_the_word() {
    model(2, || {
        let shared = Arc::new((RangeLock::new(&CLASS), Watched::new()));
        let reader = |range: std::ops::Range<u64>| {
            let shared = Arc::clone(&shared);
            move || {
                let _guard = shared.0.read(range);
                shared.1.get();
            }
        };
        let (one, other) = (reader(0..10), reader(0..10));
        both(one, other);
        let _guard = shared.0.try_write(0..10).expect("no reader is left");
        shared.1.bump();
    });
}

/// Writers of one place, one through the group's cell, one from a lock that has gone home meanwhile
/// and perhaps is spread again. Fails without the closing of the cells in `settle`.
#[test]
fn range_lock_goes_home_under_a_writer() {
    model(2, || {
        let shared = Arc::new((RangeLock::new(&CLASS), Watched::new()));
        let first = shared.0.try_write(0..1);
        let second = shared.0.try_write(4..5);
        assert!(first.is_some() && second.is_some());
        drop((first, second));
        assert!(!shared.0.is_fast());
        let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
        both(
            move || {
                let _guard = one.0.write(0..1);
                one.1.bump();
            },
            move || {
                other.0.settle();
                let _guard = other.0.write(0..2);
                other.1.bump();
            },
        );
        assert!(shared.0.settle());
        let _guard = shared.0.read(0..20);
        assert_eq!(shared.1.get(), 2);
    });
}

/// Two threads at one shard. Fails without: the acquire in `try_take`, the release in `give`.
#[test]
fn shard_lock_excludes() {
    model(3, || {
        let shared = Arc::new((LocalGlobal::new(&CLASS, |_| ()), Watched::new()));
        let user = || {
            let shared = Arc::clone(&shared);
            move || {
                for _ in 0..2 {
                    let _guard = shared.0.shard(0);
                    shared.1.bump();
                }
            }
        };
        both(user(), user());
        let _all = shared.0.global();
        assert_eq!(shared.1.get(), 4);
    });
}

/// Three at one shard: a sleeper is woken. Fails (deadlock) without: the light barrier in `give`,
/// the heavy one in `take`, the look for sleepers, the gate's mutex in `wake`.
#[test]
fn shard_lock_wakes_its_sleepers() {
    model(2, || {
        let shared = Arc::new((LocalGlobal::new(&CLASS, |_| ()), Watched::new()));
        let users: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _guard = shared.0.shard(0);
                    shared.1.bump();
                })
            })
            .collect();
        {
            let _guard = shared.0.shard(0);
            shared.1.bump();
        }
        for user in users {
            user.join().unwrap();
        }
        assert_eq!(shared.1.get(), 3);
    });
}

/// Recursion, exclusion, and sleepers that are woken. Fails (deadlock) without: the sequentially
/// consistent order of the sleeper's count and of the look at it in `give`, the look for sleepers,
/// the gate's mutex in `give`; fails when `owner` is stored before the lock is taken.
#[test]
fn relaxed_mutex_wakes_its_sleepers() {
    model(3, || {
        let shared = Arc::new((RelaxedMutex::new(&CLASS), Watched::new()));
        let user = || {
            let shared = Arc::clone(&shared);
            move || {
                let _outer = shared.0.lock();
                let _inner = shared.0.lock();
                shared.1.bump();
            }
        };
        both(user(), user());
        let _guard = shared.0.try_lock().expect("nobody is left");
        assert_eq!(shared.1.get(), 2);
    });
}

/// What others did during a `relax` is seen after it, and counted. Fails without: `changes` being
/// counted up, the giving in `relax`.
#[test]
fn relaxed_mutex_tells_who_was_in_between() {
    model(3, || {
        let shared = Arc::new((RelaxedMutex::new(&CLASS), Watched::new()));
        let (one, other) = (Arc::clone(&shared), Arc::clone(&shared));
        both(
            move || {
                let _outer = one.0.lock();
                let _inner = one.0.lock();
                let before = one.1.get();
                let relaxed = one.0.relax(|| ());
                assert_eq!(relaxed.others, (one.1.get() - before) as u64);
            },
            move || {
                let _guard = other.0.lock();
                other.1.bump();
            },
        );
        assert!(shared.0.try_lock().is_some());
    });
}

/// Fails without: the acquire in `Spin::try_take`, the release in `Spin::give`.
#[test]
fn big_lock_that_spins_excludes() {
    big_lock_excludes(BigLockKind::Spinning);
}

/// Fails without: `is_taken` in `Fair::take`, the hand-over in `Fair::give` (deadlock).
#[test]
fn big_lock_that_sleeps_excludes() {
    big_lock_excludes(BigLockKind::Sleeping);
}

fn big_lock_excludes(kind: BigLockKind) {
    model(3, move || {
        let shared = Arc::new((BigLock::new(&CLASS, kind), Watched::new()));
        let user = || {
            let shared = Arc::clone(&shared);
            move || {
                let _outer = shared.0.lock();
                shared.1.bump();
                shared.0.relax(|| ());
                shared.1.bump();
            }
        };
        both(user(), user());
        assert_eq!(shared.1.get(), 4);
    });
}

/// The first and the third thread share a part. Fails when `raise` stores instead of taking the
/// maximum.
#[test]
fn sharded_max_keeps_the_greatest() {
    model(3, || {
        let max = Arc::new(ShardedMax::new(1));
        let users: Vec<_> = [9, 5, 7]
            .map(|value| {
                let max = Arc::clone(&max);
                thread::spawn(move || max.raise(value))
            })
            .into();
        for user in users {
            user.join().unwrap();
        }
        assert_eq!(max.get(), 9);
    });
}

/// What is added while a count is closed is in its sum or refused, and never in the next count in
/// its place. Fails when `add` does not look at the generation, stores instead of exchanging, or
/// when `close` loads instead of swapping.
#[test]
fn split_counts_lose_nothing() {
    model(3, || {
        let counts = Arc::new(SplitCounts::new());
        let count = counts.open(1).unwrap();
        let refused = Arc::new(AtomicUsize::new(0));
        let users: Vec<_> = (0..2)
            .map(|_| {
                let (counts, refused) = (Arc::clone(&counts), Arc::clone(&refused));
                thread::spawn(move || {
                    if !counts.add(count, 1) {
                        refused.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        // On the first user's CPU.
        let added = counts.add(count, 2);
        assert!(added);
        let sum = counts.close(count);
        let next = counts.open(2).unwrap();
        for user in users {
            user.join().unwrap();
        }
        assert_eq!(sum + refused.load(Relaxed) as i64, 4);
        assert_eq!(counts.close(next), 0);
    });
}

/// What was done before something was added is seen by the thread that closed the count and found
/// that in its sum. Fails without the release in `add` or the acquire in `close`.
#[test]
fn split_counts_order_what_was_done() {
    model(3, || {
        let counts = Arc::new(SplitCounts::new());
        let count = counts.open(1).unwrap();
        let watched = Arc::new(Watched::new());
        let (theirs, their_watched) = (Arc::clone(&counts), Arc::clone(&watched));
        let user = thread::spawn(move || {
            their_watched.bump();
            theirs.add(count, -1)
        });
        if counts.close(count) == -1 {
            assert_eq!(watched.get(), 1);
        }
        user.join().unwrap();
    });
}
