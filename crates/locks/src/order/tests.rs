//! The order checker with very many locks held.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{IS_CHECKING, STEPS, allowing_io, check_io, held_classes};
use crate::{LockClass, Mutex, RawGuard, RawLock};

static RESIZE: LockClass = LockClass::new("test.resize", 10);
static BUCKET: LockClass = LockClass::new("test.bucket", 20);
static INODE: LockClass = LockClass::new("test.inode", 30);

/// As removing a directory does: all its buckets between two other locks.
#[test]
fn many_locks_of_one_class_take_a_few_steps_each() {
    const LOCKS: usize = 1 << 16;
    let buckets: Vec<RawLock> = (0..LOCKS).map(|_| RawLock::new()).collect();
    let (resize, inode) = (Mutex::new(&RESIZE, ()), Mutex::new(&INODE, ()));
    for is_from_front in [true, false] {
        let before = STEPS.get();
        let below = resize.lock();
        let keys = (0..).map(|index| (7, index));
        let mut held: Vec<RawGuard<'_>> = buckets
            .iter()
            .zip(keys)
            .map(|(bucket, key)| bucket.lock(&BUCKET, key))
            .collect();
        let above = inode.lock();
        if is_from_front {
            drop(held);
        } else {
            while held.pop().is_some() {}
        }
        drop((above, below));
        let steps = STEPS.get() - before;
        assert!(steps <= 4 * LOCKS, "{steps} steps");
        assert_eq!(steps > 0, IS_CHECKING);
        assert_eq!(held_classes(), Vec::<&str>::new());
    }
}

/// Far from the last one, and with a greater key.
#[test]
fn a_lock_is_not_taken_twice_among_many() {
    if !IS_CHECKING {
        return;
    }
    for count in [3, 16, 17, 18, 100] {
        let buckets: Vec<RawLock> = (0..count).map(|_| RawLock::new()).collect();
        for again in [0, 1, count as usize - 1] {
            let keys = (0..count).map(|index| (7, index));
            let mut held: Vec<RawGuard<'_>> = buckets
                .iter()
                .zip(keys)
                .map(|(bucket, key)| bucket.lock(&BUCKET, key))
                .collect();
            let taken = catch_unwind(AssertUnwindSafe(|| {
                drop(buckets[again].lock(&BUCKET, (8, 0)))
            }));
            let payload = taken.expect_err("it is held");
            let message = payload.downcast_ref::<String>().expect("formatted");
            assert!(message.contains("re-entry"), "{message}");
            drop(held.remove(again));
            held.push(buckets[again].lock(&BUCKET, (8, 0)));
        }
    }
}

#[test]
fn only_some_locks_are_held_over_io() {
    static COMMIT: LockClass = LockClass::new("test.commit", 10).held_over_io();
    let (commit, bucket) = (Mutex::new(&COMMIT, ()), Mutex::new(&BUCKET, ()));
    check_io();
    let _commit = commit.lock();
    check_io();
    let held = bucket.try_lock();
    let refused = catch_unwind(check_io);
    assert_eq!(refused.is_err(), IS_CHECKING);
    if let Err(payload) = refused {
        let message = payload.downcast_ref::<String>().expect("formatted");
        assert!(message.contains("while `test.bucket` is held"), "{message}");
    }
    allowing_io(check_io);
    assert_eq!(catch_unwind(check_io).is_err(), IS_CHECKING);
    drop(held);
    check_io();
}
