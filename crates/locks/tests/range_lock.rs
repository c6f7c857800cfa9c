//! The range lock from outside: against a sequential model, and with threads against shadow state.

#![cfg(not(any(loom, feature = "shuttle")))]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use finefs_locks::{LockClass, RangeGuard, RangeLock};
use proptest::prelude::*;

static CLASS: LockClass = LockClass::new("test.range", 10);

#[derive(Clone, Debug)]
enum Step {
    Read(Range<u64>),
    Write(Range<u64>),
    Append,
    Release(usize),
    Shrink(usize, Range<u64>),
    Downgrade(usize),
}

fn any_range() -> impl Strategy<Value = Range<u64>> {
    prop_oneof![
        4 => (0..40_u64, 0..20_u64).prop_map(|(start, length)| start..start + length),
        1 => (0..40_u64).prop_map(|start| start..u64::MAX),
        1 => Just(u64::MAX..u64::MAX),
        // Empty; the end comes first.
        1 => (1..40_u64, 1..20_u64).prop_map(|(start, below)| start..start.saturating_sub(below)),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any_range().prop_map(Step::Read),
        3 => any_range().prop_map(Step::Write),
        1 => Just(Step::Append),
        3 => any::<usize>().prop_map(Step::Release),
        1 => (any::<usize>(), any_range()).prop_map(|(which, range)| Step::Shrink(which, range)),
        1 => any::<usize>().prop_map(Step::Downgrade),
    ]
}

/// What the model knows of a holding.
struct Holding<'a> {
    offsets: Vec<u64>,
    is_write: bool,
    guard: RangeGuard<'a>,
}

/// Offsets that stand for all: no range of the test starts or ends between 61 and `u64::MAX`.
fn offsets(range: &Range<u64>) -> Vec<u64> {
    (0..62).filter(|offset| range.contains(offset)).collect()
}

proptest! {
    /// Without waiters, an attempt succeeds exactly when no holding has an offset in common with it
    /// unless both are shared.
    #[test]
    fn attempts_agree_with_a_model(
        steps in prop::collection::vec(any_step(), 1..60),
        end_of_file in 0..50_u64,
    ) {
        let lock = RangeLock::new(&CLASS);
        let mut holdings: Vec<Holding<'_>> = Vec::new();
        let is_possible = |holdings: &[Holding<'_>], range: &Range<u64>, is_write: bool| {
            let wanted = offsets(range);
            !holdings.iter().any(|held| {
                (held.is_write || is_write) && held.offsets.iter().any(|at| wanted.contains(at))
            })
        };
        for step in steps {
            match step {
                Step::Read(range) => {
                    let guard = lock.try_read(range.clone());
                    prop_assert_eq!(guard.is_some(), is_possible(&holdings, &range, false));
                    let offsets = offsets(&range);
                    holdings.extend(guard.map(|guard| Holding { offsets, is_write: false, guard }));
                }
                Step::Write(range) => {
                    let guard = lock.try_write(range.clone());
                    prop_assert_eq!(guard.is_some(), is_possible(&holdings, &range, true));
                    let offsets = offsets(&range);
                    holdings.extend(guard.map(|guard| Holding { offsets, is_write: true, guard }));
                }
                Step::Append => {
                    let range = end_of_file..u64::MAX;
                    // The order checker lets a thread block only when it holds nothing.
                    if holdings.is_empty() {
                        let guard = lock.append(|| end_of_file);
                        prop_assert_eq!(guard.range(), range.clone());
                        holdings.push(Holding { offsets: offsets(&range), is_write: true, guard });
                    }
                }
                Step::Release(which) if !holdings.is_empty() => {
                    holdings.swap_remove(which % holdings.len());
                }
                Step::Shrink(which, to) if !holdings.is_empty() => {
                    let count = holdings.len();
                    let holding = &mut holdings[which % count];
                    holding.guard.shrink(to.clone());
                    holding.offsets.retain(|offset| to.contains(offset));
                    prop_assert_eq!(&offsets(&holding.guard.range()), &holding.offsets);
                }
                Step::Downgrade(which) if !holdings.is_empty() => {
                    let count = holdings.len();
                    let holding = &mut holdings[which % count];
                    holding.guard.downgrade();
                    prop_assert!(!holding.guard.is_write());
                    holding.is_write = false;
                }
                Step::Release(_) | Step::Shrink(..) | Step::Downgrade(_) => {}
            }
        }
        holdings.clear();
        prop_assert!(lock.settle());
    }
}

/// A cell per offset: -1 a writer, n readers.
struct Shadow(Vec<AtomicI32>);

impl Shadow {
    fn cells(&self, range: &Range<u64>) -> &[AtomicI32] {
        let length = self.0.len() as u64;
        &self.0[range.start.min(length) as usize..range.end.min(length) as usize]
    }

    fn enter(&self, guard: &RangeGuard<'_>) {
        for cell in self.cells(&guard.range()) {
            if guard.is_write() {
                let old = cell.swap(-1, Ordering::Relaxed);
                assert_eq!(old, 0, "a writer is not alone");
            } else {
                let old = cell.fetch_add(1, Ordering::Relaxed);
                assert!(old >= 0, "a reader beside a writer");
            }
        }
    }

    fn leave(&self, range: &Range<u64>, is_write: bool) {
        for cell in self.cells(range) {
            let old = cell.fetch_add(if is_write { 1 } else { -1 }, Ordering::Relaxed);
            assert!(
                if is_write { old == -1 } else { old > 0 },
                "somebody else was here"
            );
        }
    }

    /// To be called while the range is still exclusive.
    fn downgrade(&self, range: &Range<u64>) {
        for cell in self.cells(range) {
            assert_eq!(cell.swap(1, Ordering::Relaxed), -1);
        }
    }
}

/// A small generator: the threads must differ, nothing more.
struct Xorshift(u64);

impl Xorshift {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn threads_exclude_each_other() {
    const OFFSETS: u64 = 48;
    let lock = RangeLock::new(&CLASS);
    let shadow = Shadow((0..OFFSETS).map(|_| AtomicI32::new(0)).collect());
    let size = AtomicU64::new(OFFSETS / 2);
    let granted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (lock, shadow, size, granted) = (&lock, &shadow, &size, &granted);
            scope.spawn(move || {
                let mut random = Xorshift(0x9e37_79b9 + thread);
                for _ in 0..20_000 {
                    let start = random.below(OFFSETS);
                    let range = start..start + random.below(8);
                    let guard = match random.below(8) {
                        0..=1 => Some(lock.read(range)),
                        2..=3 => Some(lock.write(range)),
                        4 => lock.try_write(range),
                        5 => lock.write_timeout(range, Duration::from_micros(random.below(50))),
                        6 => Some(lock.write_to_end(start)),
                        _ => Some(lock.append(|| size.load(Ordering::Acquire))),
                    };
                    let Some(mut guard) = guard else { continue };
                    granted.fetch_add(1, Ordering::Relaxed);
                    shadow.enter(&guard);
                    match random.below(6) {
                        0 if guard.is_write() => {
                            shadow.downgrade(&guard.range());
                            guard.downgrade();
                        }
                        1 => {
                            let keep = guard.range().start..guard.range().start + 2;
                            let rest = keep.end..guard.range().end.max(keep.end);
                            shadow.leave(&rest, guard.is_write());
                            guard.shrink(keep);
                        }
                        2 => std::thread::yield_now(),
                        _ => {}
                    }
                    if guard.is_write() && guard.range().end == u64::MAX {
                        // A holder of the range to the end may move the end to or above its start.
                        size.store(
                            guard.range().start + random.below(4).min(OFFSETS),
                            Ordering::Release,
                        );
                    }
                    shadow.leave(&guard.range(), guard.is_write());
                    drop(guard);
                }
            });
        }
    });
    assert!(granted.load(Ordering::Relaxed) > 20_000);
    assert!(
        lock.settle(),
        "the fast path is open again when all is quiet"
    );
    assert!(lock.try_write(0..u64::MAX).is_some());
}

/// Waits until a second thread is queueing up. It enters its request in the same critical section,
/// so that an attempt made after this comes behind it.
fn wait_until_queued(lock: &RangeLock) {
    while lock.is_fast() {
        std::thread::yield_now();
    }
}

#[test]
fn a_writer_is_not_passed_by_later_readers() {
    let lock = RangeLock::new(&CLASS);
    let reader = lock.read(0..10);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| drop(lock.write(0..10)));
        wait_until_queued(&lock);
        // Shares with the holder, but came after the writer.
        assert!(lock.try_read(5..6).is_none());
        // Nobody's business.
        assert!(lock.try_write(10..20).is_some());
        drop(reader);
        writer.join().unwrap();
    });
    assert!(lock.is_fast());
}

#[test]
fn a_timeout_leaves_no_trace() {
    let lock = RangeLock::new(&CLASS);
    let reader = lock.read(0..10);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(
                lock.write_timeout(0..10, Duration::from_millis(30))
                    .is_none()
            );
        });
    });
    assert!(start.elapsed() >= Duration::from_millis(30));
    // The writer is gone: it blocks no reader any more.
    assert!(lock.try_read(0..10).is_some());
    drop(reader);
    assert!(lock.is_fast());
}

#[test]
fn an_append_does_not_wait_for_readers_below_the_end_of_file() {
    let lock = RangeLock::new(&CLASS);
    let reader = lock.read(0..100);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(lock.append(|| 100).range(), 100..u64::MAX));
    });
    drop(reader);
}

#[test]
fn an_append_behind_a_truncation_starts_where_that_ends() {
    let lock = RangeLock::new(&CLASS);
    let size = AtomicU64::new(100);
    let has_written = AtomicBool::new(false);
    let truncation = lock.write_to_end(40);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.append(|| size.load(Ordering::Acquire));
            assert!(has_written.load(Ordering::Acquire), "the write came first");
            assert_eq!(guard.range(), 60..u64::MAX);
        });
        wait_until_queued(&lock);
        // A write below the append's place comes after it and does not pass it.
        assert!(lock.try_write(50..60).is_none());
        assert!(lock.try_write(0..40).is_some());
        size.store(60, Ordering::Release);
        has_written.store(true, Ordering::Release);
        drop(truncation);
    });
}

#[test]
fn a_panic_in_end_of_file_releases() {
    let lock = RangeLock::new(&CLASS);
    let failing = || -> u64 { panic!("no size") };
    assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.append(failing)))).is_err());
    assert!(lock.try_write(0..u64::MAX).is_some());
    // On the slow path.
    let reader = lock.read(0..1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(catch_unwind(AssertUnwindSafe(|| drop(lock.append(failing)))).is_err());
        });
    });
    drop(reader);
    assert!(lock.try_write(0..u64::MAX).is_some());
    assert!(lock.is_fast());
}

#[test]
fn a_deadline_ends_a_wait_of_a_reader_and_not_before() {
    let lock = RangeLock::new(&CLASS);
    let writer = lock.write(0..10);
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_millis(20);
            let is_refused = lock.read_deadline(5..15, deadline).is_none();
            is_refused && Instant::now() >= deadline
        });
        assert!(refused.join().unwrap());
        let granted = scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(20);
            lock.read_deadline(5..15, deadline).is_some()
        });
        wait_until_queued(&lock);
        drop(writer);
        assert!(granted.join().unwrap());
    });
    // Nothing is held, so a deadline that has passed does not matter.
    assert!(lock.read_deadline(0..10, Instant::now()).is_some());
}

#[test]
#[cfg(not(feature = "meter-off"))]
fn contention_is_counted() {
    static COUNTED: LockClass = LockClass::new("test.range.counted", 10);
    let lock = RangeLock::new(&COUNTED);
    let writer = lock.write(0..10);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| drop(lock.read(0..10)));
        wait_until_queued(&lock);
        std::thread::sleep(Duration::from_millis(10));
        drop(writer);
        reader.join().unwrap();
    });
    let snapshot = finefs_lockmeter::snapshot();
    let counts = snapshot.class("test.range.counted").unwrap();
    assert_eq!((counts.reader.contended, counts.writer.contended), (1, 0));
    assert!(counts.reader.wait.total_ns > 1_000_000);
}

/// A request for high offsets waits for a holder, while requests that came later and lie lower
/// overlap it and each other without a gap. In an interval tree whose holders are looked up by
/// start, each of those goes past the waiter, which starves. Here all of them wait for it.
///
/// Fails when `request_queued` counts only granted entries as blockers.
#[test]
fn a_waiter_does_not_starve_behind_later_lower_ranges() {
    let lock = RangeLock::new(&CLASS);
    let (is_done, readers) = (AtomicBool::new(false), AtomicUsize::new(0));
    let deadline = Instant::now() + Duration::from_secs(20);
    let first = lock.read(50..60);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.write_deadline(40..100, deadline);
            is_done.store(true, Ordering::Release);
            assert!(guard.is_some(), "starved");
            assert_eq!(readers.load(Ordering::Relaxed), 0, "let in beside readers");
        });
        wait_until_queued(&lock);
        for thread in 0..3 {
            let (lock, is_done, readers) = (&lock, &is_done, &readers);
            scope.spawn(move || {
                while !is_done.load(Ordering::Acquire) {
                    let _guard = lock.read(thread..55);
                    readers.fetch_add(1, Ordering::Relaxed);
                    // Longer than the others need to come back: one of them always holds.
                    std::thread::sleep(Duration::from_millis(2));
                    readers.fetch_sub(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(20));
        drop(first);
    });
    assert!(is_done.load(Ordering::Acquire));
}

/// A holder that leaves lets in those whose last blocker it was, and no others.
#[test]
fn a_waiter_comes_when_its_last_blocker_leaves() {
    let lock = RangeLock::new(&CLASS);
    let low = lock.write(0..10).into_send();
    let high = lock.write(10..20).into_send();
    let entered = [const { AtomicBool::new(false) }; 2];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = lock.read(0..10);
            entered[0].store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let _guard = lock.read(5..15);
            entered[1].store(true, Ordering::Release);
        });
        std::thread::sleep(Duration::from_millis(30));
        let seen = || [&entered[0], &entered[1]].map(|flag| flag.load(Ordering::Acquire));
        assert_eq!(seen(), [false, false]);
        drop(low);
        while !seen()[0] {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(seen(), [true, false]);
        drop(high);
    });
    assert!(entered[1].load(Ordering::Acquire));
    assert!(lock.settle());
}

#[test]
fn a_downgrade_lets_waiting_readers_in() {
    let lock = RangeLock::new(&CLASS);
    let mut guard = lock.write(0..10);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| lock.read_timeout(5..15, Duration::from_secs(20)).is_some());
        wait_until_queued(&lock);
        guard.downgrade();
        assert!(reader.join().unwrap());
    });
    assert!(lock.try_write(5..6).is_none());
    drop(guard);
    assert!(lock.settle());
}

#[test]
fn a_shrink_lets_in_who_waits_for_the_rest() {
    let lock = RangeLock::new(&CLASS);
    let mut guard = lock.write(0..20);
    let (has_low, limit) = (AtomicBool::new(false), Duration::from_secs(20));
    std::thread::scope(|scope| {
        let high = scope.spawn(|| lock.write_timeout(10..20, limit).is_some());
        let low = scope.spawn(|| {
            let guard = lock.write_timeout(0..5, limit);
            has_low.store(true, Ordering::Release);
            guard.is_some()
        });
        std::thread::sleep(Duration::from_millis(200));
        guard.shrink(0..10);
        assert!(high.join().unwrap());
        std::thread::sleep(Duration::from_millis(30));
        assert!(!has_low.load(Ordering::Acquire), "still held");
        drop(guard);
        assert!(low.join().unwrap());
    });
    assert!(lock.settle());
}

/// At the end of all offsets there is nothing to hold, and so nothing that others could find held.
#[test]
fn an_empty_range_at_the_last_offset_is_harmless() {
    const NOTHING: Range<u64> = u64::MAX..u64::MAX;
    let lock = RangeLock::new(&CLASS);
    for is_spread in [false, true] {
        if is_spread {
            spread(&lock);
        }
        let written = lock.write(NOTHING).into_send();
        let read = lock.read(NOTHING).into_send();
        let appended = lock.append(|| u64::MAX).into_send();
        assert_eq!(appended.range(), NOTHING);
        assert!(lock.try_write(0..u64::MAX).is_some());
        drop(written);
        drop((read, appended));
        assert!(lock.try_write(NOTHING).is_some());
        assert!(lock.settle());
    }
}

/// Ranges without an offset are nobody's: not their holders', and not a newcomer's.
#[test]
fn an_empty_range_conflicts_with_nothing() {
    const EMPTY: [(u64, u64); 6] = [
        (10, 10),
        (10, 5),
        (5000, 3),
        (0, 0),
        (u64::MAX, 3),
        (u64::MAX, u64::MAX),
    ];
    for is_spread in [false, true] {
        for ((start, end), is_write) in EMPTY.into_iter().flat_map(|e| [(e, true), (e, false)]) {
            let lock = RangeLock::new(&CLASS);
            let try_lock = |range: Range<u64>, is_write| match is_write {
                true => lock.try_write(range),
                false => lock.try_read(range),
            };
            if is_spread {
                spread(&lock);
            }
            // First, and its holder changes it in all ways; then behind one that holds all.
            let mut empty = try_lock(start..end, is_write).unwrap();
            for other in [0..1, 4..12, 0..u64::MAX] {
                drop(lock.try_write(other.clone()).unwrap());
                std::thread::scope(|scope| {
                    scope.spawn(|| drop(lock.write_timeout(start..end, Duration::ZERO).unwrap()));
                });
                empty.shrink(other);
                assert!(empty.range().is_empty());
                let _ = try_lock(start..end, is_write).unwrap();
            }
            empty.downgrade();
            let all = lock.try_write(0..u64::MAX).unwrap();
            let mut behind = try_lock(start..end, is_write).unwrap();
            behind.shrink(end..start);
            drop(empty);
            behind.downgrade();
            let mut ends_empty = lock.try_read(start..end).unwrap();
            drop(all);
            ends_empty.shrink(end..start);
            drop(lock.try_write(0..u64::MAX).unwrap());
            drop((behind, ends_empty));
            let mut some = lock.try_write(4..12).unwrap();
            some.shrink(start..end);
            assert!(some.range().is_empty());
            drop(lock.try_write(0..u64::MAX).unwrap());
            drop(some);
            assert!(lock.settle());
        }
    }
}

/// Two readers of one range share a word. When one gives back a part, the other still has it.
#[test]
fn a_reader_shrinks_for_itself_alone() {
    let lock = RangeLock::new(&CLASS);
    let mut one = lock.read(0..10).into_send();
    let other = lock.try_read(0..10).unwrap();
    assert!(lock.is_fast(), "readers of one range need only the word");
    one.shrink(0..4);
    assert_eq!((one.range(), other.range()), (0..4, 0..10));
    assert!(lock.try_write(6..8).is_none());
    drop(other);
    assert!(lock.try_write(6..8).is_some());
    assert!(lock.try_write(3..8).is_none());
    drop(one);
    assert!(lock.try_write(3..8).is_some());
    assert!(lock.settle());
}

#[test]
fn any_thread_may_release_a_send_guard() {
    fn needs_send(_: &(impl Send + Sync)) {}
    let lock = RangeLock::new(&CLASS);
    for is_contended in [false, true] {
        let aside = is_contended.then(|| lock.write(100..200).into_send());
        let guard = lock.write(0..10).into_send();
        needs_send(&guard);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                assert!(guard.is_write());
                drop(guard);
            });
        });
        assert!(lock.try_write(0..10).is_some());
        drop(aside);
    }
    assert!(lock.settle());
}

/// A leaked guard keeps its range for ever; the lock may be moved and dropped all the same.
#[test]
fn leaked_guards_are_harmless() {
    for is_spread in [false, true] {
        let lock = RangeLock::new(&CLASS);
        if is_spread {
            spread(&lock);
        }
        std::mem::forget(lock.write(0..10).into_send());
        assert!(lock.try_write(5..15).is_none());
        std::mem::forget(lock.try_write(20..30).map(RangeGuard::into_send));
        let moved = Box::new(lock);
        assert!(moved.try_read(9..10).is_none());
        assert!(moved.try_read(20..21).is_none());
        assert!(moved.try_read(10..20).is_some());
        assert!(!moved.settle());
    }
}

/// Makes requests that meet without conflict until the lock spreads.
fn spread(lock: &RangeLock) {
    for _ in 0..1_000 {
        let one = lock.try_write(0..4096);
        let other = lock.try_write(1 << 20..(1 << 20) + 4096);
        assert!(one.is_some() && other.is_some());
        drop(one);
        drop(other);
        if !lock.is_fast() {
            return;
        }
    }
    panic!("does not spread");
}

/// Threads with ranges far apart soon find each other in the home cell.
#[test]
fn threads_that_meet_spread_the_lock() {
    let lock = RangeLock::new(&CLASS);
    let has_spread = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (lock, has_spread) = (&lock, &has_spread);
            scope.spawn(move || {
                let deadline = Instant::now() + Duration::from_secs(20);
                while !has_spread.load(Ordering::Relaxed) && Instant::now() < deadline {
                    for block in 0..100 {
                        let start = (thread << 30) + block * 4096;
                        drop(lock.write(start..start + 4096));
                    }
                    if !lock.is_fast() {
                        has_spread.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(has_spread.load(Ordering::Relaxed));
}

#[test]
fn a_spread_lock_knows_exactly_who_conflicts() {
    let lock = RangeLock::new(&CLASS);
    spread(&lock);
    let one = lock.try_write(100..200).unwrap();
    // The same segment; several segments; all.
    assert!(lock.try_write(200..300).is_some());
    assert!(lock.try_write(199..300).is_none());
    assert!(lock.try_read(200..1 << 24).is_some());
    assert!(lock.try_read(0..1 << 24).is_none());
    assert!(lock.try_write(200..u64::MAX).is_some());
    assert!(lock.try_write(0..u64::MAX).is_none());
    drop(one);
    assert!(lock.try_write(0..u64::MAX).is_some());
    assert!(lock.settle());
}

/// A lock in which a range is held stays spread, and knows it all the same.
#[test]
fn a_spread_lock_settles_when_nobody_holds_a_range() {
    let lock = RangeLock::new(&CLASS);
    spread(&lock);
    let held = lock.write(0..4096);
    assert!(!lock.settle());
    assert!(lock.try_write(100..200).is_none());
    assert!(lock.try_write(1 << 20..(1 << 20) + 4096).is_some());
    drop(held);
    assert!(lock.settle());
    assert!(lock.try_write(0..u64::MAX).is_some());
}

/// A group that a lock has given back is another's: a range that is held at home is not had by it.
#[test]
fn a_lock_at_home_leaves_its_group_alone() {
    let (one, other) = (RangeLock::new(&CLASS), RangeLock::new(&CLASS));
    spread(&one);
    assert!(one.settle());
    spread(&other);
    let guard = one.write(0..10);
    assert!(one.try_write(5..6).is_none());
    drop(guard);
    assert!(one.settle() && other.settle());
}

#[test]
fn a_panic_releases_the_range() {
    let lock = RangeLock::new(&CLASS);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.write(0..10);
        panic!("while holding");
    }));
    assert!(result.is_err());
    assert!(lock.try_write(0..10).is_some());
}
