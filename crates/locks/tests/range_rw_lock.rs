//! The locked slice from outside.

#![cfg(not(any(loom, feature = "shuttle")))]

use finefs_locks::{LockClass, RangeRwLock};

static CLASS: LockClass = LockClass::new("test.range_rw", 10);

#[test]
fn threads_write_their_parts_and_read_all() {
    const PART: usize = 100;
    let mut numbers = RangeRwLock::new(&CLASS, vec![0_u64; 4 * PART]);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let numbers = &numbers;
            scope.spawn(move || {
                for round in 0..2_000_u64 {
                    let part = thread * PART..(thread + 1) * PART;
                    numbers.write(part).fill(round);
                    let all = numbers.read(0..numbers.len());
                    // Never half a write.
                    for part in all.chunks(PART) {
                        assert!(part.iter().all(|number| *number == part[0]));
                    }
                }
            });
        }
    });
    assert!(numbers.get_mut().iter().all(|number| *number == 1_999));
    assert_eq!(numbers.into_inner().len(), 4 * PART);
}

#[test]
fn a_shrunk_part_is_the_right_one() {
    let numbers = RangeRwLock::new(&CLASS, (0..10).collect::<Vec<_>>());
    let mut part = numbers.write(2..8);
    part.shrink(4..20);
    assert_eq!(part[..], [4, 5, 6, 7]);
    part.shrink(5..7);
    part[0] = 50;
    let mut part = part.downgrade();
    assert_eq!(part[..], [50, 6]);
    part.shrink(6..7);
    assert_eq!(part[..], [6]);
    assert!(numbers.try_write(0..6).is_some());
    assert!(numbers.try_write(6..7).is_none());
}

#[test]
#[should_panic(expected = "range 3..11 of a slice of length 10")]
fn a_range_beyond_the_end_panics() {
    let numbers = RangeRwLock::new(&CLASS, vec![0; 10]);
    drop(numbers.read(3..11));
}
