//! Requests look at a range lock before they write to it, while one is spread: one word says so for
//! all locks of the process. So this is a process of its own.

#![cfg(not(any(loom, feature = "shuttle")))]

use finefs_lockmeter::may_go_straight;
use finefs_locks::{LockClass, RangeLock};

static CLASS: LockClass = LockClass::new("test.detour", 10);

fn spread() -> RangeLock {
    let lock = RangeLock::new(&CLASS);
    while lock.is_fast() {
        let pair = (lock.try_write(0..4096), lock.try_write(1 << 20..2 << 20));
        assert!(pair.0.is_some() && pair.1.is_some());
    }
    lock
}

/// Fails without `begin_detour` or `end_detour` where groups are taken and given back.
#[test]
fn requests_go_round_while_a_lock_is_spread() {
    assert!(may_go_straight(0));
    let (one, other) = (spread(), spread());
    assert!(!may_go_straight(0));
    assert!(one.settle());
    assert!(!may_go_straight(0), "one is left");
    // Which gives its group back.
    drop(other);
    assert!(may_go_straight(0));
    drop(one.write(0..10));
    assert!(one.is_fast());
}
