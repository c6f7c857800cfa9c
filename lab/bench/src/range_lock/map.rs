//! Rival: one mutex over a `BTreeMap` of the ranges that are held, and a condition variable for all
//! who wait, as the simple range locks among the Rust crates have it.

use super::candidate::Candidate;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Default)]
struct Held {
    /// By start and a number: readers can hold the same start.
    ranges: BTreeMap<(u64, u64), (u64, bool)>,
    last: u64,
    waiting: usize,
}

/// See the module's head.
#[derive(Default)]
pub struct Map {
    held: Mutex<Held>,
    released: Condvar,
}

impl Candidate for Map {
    fn hold<R>(&self, range: Range<u64>, is_write: bool, body: impl FnOnce() -> R) -> R {
        let mut held = self.held.lock();
        loop {
            let is_free = held
                .ranges
                .range(..(range.end, 0))
                .all(|(_, (end, other))| *end <= range.start || !(*other || is_write));
            if is_free {
                break;
            }
            held.waiting += 1;
            self.released.wait(&mut held);
            held.waiting -= 1;
        }
        held.last += 1;
        let key = (range.start, held.last);
        held.ranges.insert(key, (range.end, is_write));
        drop(held);
        let result = body();
        let mut held = self.held.lock();
        held.ranges.remove(&key);
        let has_waiters = held.waiting > 0;
        drop(held);
        if has_waiters {
            self.released.notify_all();
        }
        result
    }
}
