//! Flushes of the device, numbered in the order in which they begin: who has written something to
//! the device learns from the numbers whether a flush has made it durable, whichever thread asked
//! for that flush. (Linux `ext4_sync_file` asks the journal the same, by
//! `jbd2_trans_will_send_data_barrier`.)

use finefs_locks::primitive::atomic::{AtomicU64, Ordering};

/// The newest that has begun, and the newest that has succeeded.
pub(crate) struct Flushes {
    begun: AtomicU64,
    done: AtomicU64,
}

impl Flushes {
    /// None has begun.
    pub fn new() -> Flushes {
        Flushes {
            begun: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// What is on the device by now is durable once this one, which has not begun, or a later one
    /// has succeeded.
    pub fn next(&self) -> u64 {
        // To write is to read the newest value.
        self.begun.fetch_add(0, Ordering::AcqRel) + 1
    }

    /// Notes that one begins; gives its number.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Notes that one has succeeded.
    pub fn end(&self, number: u64) {
        self.done.fetch_max(number, Ordering::AcqRel);
    }

    /// Whether this one, or one that began later, has succeeded.
    pub fn is_done(&self, number: u64) -> bool {
        number <= self.done.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn only_what_began_later_counts() {
        let flushes = Flushes::new();
        assert!(flushes.is_done(0));
        let earlier = flushes.begin();
        let wanted = flushes.next();
        flushes.end(earlier);
        assert!(!flushes.is_done(wanted));
        let (one, other) = (flushes.begin(), flushes.begin());
        flushes.end(other);
        assert!(flushes.is_done(wanted));
        flushes.end(one);
        assert!(flushes.is_done(wanted) && !flushes.is_done(flushes.next()));
    }
}
