//! The order checker: what it forbids, what it allows, and that it names both places.

#![cfg(not(any(loom, feature = "shuttle")))]

use std::panic::{AssertUnwindSafe, catch_unwind};

use finefs_locks::{
    BigLock, BigLockKind, BigReader, Condvar, LocalGlobal, LockClass, Mutex, OnceLatch, RangeLock,
    RawLock, RelaxedMutex, RwLock, order,
};

static LOW: LockClass = LockClass::new("test.low", 10);
static MIDDLE: LockClass = LockClass::new("test.middle", 20);
static ALSO_MIDDLE: LockClass = LockClass::new("test.also_middle", 20);
static HIGH: LockClass = LockClass::new("test.high", 30);

/// The message of the panic that `f` ends with.
fn panic_of(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("the checker must object");
    payload
        .downcast_ref::<String>()
        .expect("a formatted message")
        .clone()
}

fn assert_forbidden(expected: &str, f: impl FnOnce()) {
    if order::IS_CHECKING {
        let message = panic_of(f);
        assert!(message.contains(expected), "{message}");
        assert_eq!(
            order::held_classes(),
            Vec::<&str>::new(),
            "unwinding releases all"
        );
    }
}

#[test]
fn ascending_levels_are_fine_and_guards_may_go_in_any_order() {
    let (low, middle, high) = (
        Mutex::new(&LOW, ()),
        RwLock::new(&MIDDLE, ()),
        RangeLock::new(&HIGH),
    );
    let first = low.lock();
    let second = middle.read();
    let third = high.write(0..1);
    if order::IS_CHECKING {
        assert_eq!(
            order::held_classes(),
            ["test.low", "test.middle", "test.high"]
        );
    }
    drop(first);
    drop(third);
    drop(second);
    drop(low.lock());
    assert_eq!(order::held_classes(), Vec::<&str>::new());
}

#[test]
fn inversion_names_both_classes_and_both_places() {
    if !order::IS_CHECKING {
        return;
    }
    let (low, high) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
    let held_line = line!() + 2;
    let message = panic_of(|| {
        let _high = high.lock();
        let _low = low.lock();
    });
    assert!(message.contains("inversion"), "{message}");
    assert!(
        message.contains("test.low") && message.contains("test.high"),
        "{message}"
    );
    for line in [held_line, held_line + 1] {
        assert!(
            message.contains(&format!("{}:{line}:", file!())),
            "{message}"
        );
    }
}

#[test]
fn classes_of_one_level_do_not_nest() {
    let (one, other) = (Mutex::new(&MIDDLE, ()), Mutex::new(&ALSO_MIDDLE, ()));
    assert_forbidden("inversion", || {
        let _one = one.lock();
        let _other = other.lock();
    });
}

#[test]
fn one_class_nests_only_by_ascending_keys() {
    let locks = [Mutex::new(&LOW, ()), Mutex::new(&LOW, ())];
    {
        let _first = locks[0].lock_nested(1);
        let _second = locks[1].lock_nested(2);
    }
    assert_forbidden("out of key order", || {
        let _second = locks[1].lock_nested(2);
        let _first = locks[0].lock_nested(1);
    });
    assert_forbidden("out of key order", || {
        let _first = locks[0].lock_nested(1);
        let _second = locks[1].lock_nested(1);
    });
    assert_forbidden("without keys", || {
        let _first = locks[0].lock();
        let _second = locks[1].lock_nested(2);
    });
}

#[test]
fn raw_locks_order_by_pairs() {
    let locks = [RawLock::new(), RawLock::new(), RawLock::new()];
    {
        let _a = locks[0].lock(&LOW, (1, 9));
        let _b = locks[1].lock(&LOW, (2, 0));
        let _c = locks[2].lock(&LOW, (2, 1));
    }
    assert_forbidden("out of key order", || {
        let _b = locks[1].lock(&LOW, (2, 0));
        let _a = locks[0].lock(&LOW, (1, 9));
    });
}

#[test]
fn re_entry_is_forbidden_even_when_shared() {
    let lock = RwLock::new(&LOW, ());
    assert_forbidden("re-entry", || {
        let _once = lock.read();
        let _twice = lock.read();
    });
    let big = BigReader::new(&LOW);
    assert_forbidden("re-entry", || {
        let _once = big.read();
        let _twice = big.read();
    });
    let ranges = RangeLock::new(&LOW);
    assert_forbidden("re-entry", || {
        let _once = ranges.write(0..10);
        let _twice = ranges.write_nested(20..30, 1);
    });
}

#[test]
fn ranges_of_several_files_nest_by_key() {
    let (one, two) = (RangeLock::new(&LOW), RangeLock::new(&LOW));
    let _one = one.read_nested(0..10, 1);
    let _two = two.write_nested(0..10, 2);
}

#[test]
fn try_is_not_checked_but_counts_as_held() {
    let (low, high) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
    {
        let _high = high.lock();
        let _low = low.try_lock().expect("free");
    }
    let low_too = Mutex::new(&LOW, ());
    assert_forbidden("without keys", || {
        let _low = low.try_lock().expect("free");
        let _low_too = low_too.lock();
    });
}

#[test]
fn a_shard_is_not_held_when_the_global_lock_is_taken() {
    let lock = LocalGlobal::new(&LOW, |_| ());
    assert_forbidden("", || {
        let _local = lock.shard(0);
        let _global = lock.global();
    });
    drop(lock.global());
}

#[test]
fn waiting_for_a_latch_counts() {
    let (mutex, latch) = (Mutex::new(&HIGH, ()), OnceLatch::new(&MIDDLE));
    assert_forbidden("inversion", || {
        let _held = mutex.lock();
        let _ = latch.get_or_init(|| 1);
    });
    latch.get_or_init(|| 1);
    // No wait is possible any more.
    let _held = mutex.lock();
    assert_eq!(latch.get_or_init(|| 2), &1);
}

#[test]
fn waiting_on_a_condition_variable_below_a_held_lock_is_forbidden() {
    let (low, high, condvar) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()), Condvar::new());
    assert_forbidden("retakes it", || {
        let mut low = low.lock();
        let _high = high.lock();
        condvar.wait(&mut low);
    });
}

#[test]
fn locks_stay_usable_after_a_panic() {
    let (mutex, ranges) = (Mutex::new(&LOW, 0), RangeLock::new(&MIDDLE));
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _mutex = mutex.lock();
        let _range = ranges.write(0..10);
        panic!("holder");
    }));
    assert!(result.is_err());
    let _mutex = mutex.lock();
    let _range = ranges.write(0..10);
}

#[test]
fn every_problem_names_both_places() {
    if !order::IS_CHECKING {
        return;
    }
    let (one, other, rw) = (
        Mutex::new(&LOW, ()),
        Mutex::new(&LOW, ()),
        RwLock::new(&LOW, ()),
    );
    let both_lines = |first: u32, f: &dyn Fn()| {
        let message = panic_of(f);
        for line in [first, first + 1] {
            let place = format!("{}:{line}:", file!());
            assert!(message.contains(&place), "{place} in {message}");
        }
    };
    both_lines(line!() + 1, &|| {
        let _first = one.lock();
        let _again = one.lock();
    });
    both_lines(line!() + 1, &|| {
        let _first = rw.read();
        let _again = rw.read();
    });
    both_lines(line!() + 1, &|| {
        let _second = one.lock_nested(2);
        let _first = other.lock_nested(1);
    });
}

#[test]
fn recursive_locks_may_be_taken_again_but_not_below() {
    let (low, high) = (Mutex::new(&LOW, ()), Mutex::new(&HIGH, ()));
    let relaxed = RelaxedMutex::new(&MIDDLE);
    let big = BigLock::new(&MIDDLE, BigLockKind::Sleeping);
    {
        let _one = relaxed.lock();
        let _above = high.lock();
        // Recursion waits for nothing: what is held above does not matter.
        let _two = relaxed.lock();
        let _three = relaxed.try_lock().expect("mine");
    }
    assert_forbidden("inversion", || {
        let _above = high.lock();
        let _lock = relaxed.lock();
    });
    assert_forbidden("inversion", || {
        let _big = big.lock();
        let _low = low.lock();
    });
    // The two are of one class here.
    assert_forbidden("without keys", || {
        let _big = big.lock();
        let _relaxed = relaxed.lock();
    });
}

#[test]
fn a_sleep_takes_back_below_what_is_held() {
    let (middle, high) = (Mutex::new(&MIDDLE, ()), Mutex::new(&HIGH, ()));
    let big = BigLock::new(&LOW, BigLockKind::Spinning);
    let outer = big.lock();
    let middle = middle.lock();
    // What the sleeper takes stays with it when it wakes up.
    let high = big.sleep(|| {
        assert!(!big.is_mine());
        high.lock()
    });
    assert_eq!(high.others, 0);
    assert!(big.is_mine());
    drop((middle, high, outer));
    // Later acquisitions are checked against what was taken back.
    let (low, relaxed) = (Mutex::new(&LOW, ()), RelaxedMutex::new(&MIDDLE));
    assert_forbidden("inversion", || {
        let _lock = relaxed.lock();
        relaxed.sleep(|| ());
        drop(low.lock());
    });
}

#[test]
fn relaxing_below_a_held_lock_is_forbidden() {
    let (low, high, relaxed) = (
        Mutex::new(&LOW, ()),
        Mutex::new(&HIGH, ()),
        RelaxedMutex::new(&MIDDLE),
    );
    assert_forbidden("retakes it", || {
        let _lock = relaxed.lock();
        let _high = high.lock();
        relaxed.relax(|| ());
    });
    let _low = low.lock();
    let _lock = relaxed.lock();
    relaxed.relax(|| {
        if order::IS_CHECKING {
            assert_eq!(order::held_classes(), ["test.low"]);
        }
        drop(high.lock());
    });
    if order::IS_CHECKING {
        assert_eq!(order::held_classes(), ["test.low", "test.middle"]);
    }
}
