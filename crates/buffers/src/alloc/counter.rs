//! How many free blocks may still be promised.
//!
//! # Data model
//! Only blocks of groups whose bitmap was found sound are promised ([`SpaceCounter::admit`]): a
//! promise is kept when a batch is applied, and then it would be too late to find a bitmap damaged.
//! What the descriptors of the other groups call free is `unverified`. The blocks that nobody was
//! promised are split in two:
//! - `open`: for all that ask, spread over the CPUs so that allocations share no cache line;
//! - `backing`: kept back for metadata. It holds up to [`SpaceCounter::backing_wanted`] blocks: the
//!   `pool`, which is kept for commits alone, and of those reserved for the superuser
//!   (`s_r_blocks_count`) what is not unverified.
//!
//! Data takes from `open` only. A reservation for metadata takes from `open`, then from `backing`
//! down to the pool; one that must not fail where space has run out, down to half of it. Applying a
//! batch lives on the batch's reservation and, where that was too small, on the pool. Blocks that
//! come back fill `backing` first.
//!
//! # Why there is a pool
//! An operation reserves what it needs in the lowest level of a tree (a new leaf). A split of an
//! index node needs another block, but only once per hundreds of insertions into a full node, and a
//! full node stands for hundreds of blocks in use. So these are bounded by a small share of the
//! file system, which the pool holds (the kernel keeps the same share for the same reason:
//! `s_resv_clusters`).

use std::sync::atomic::{AtomicU64, Ordering};

use finefs_locks::LimitedCounter;

/// See the module's head.
pub struct SpaceCounter {
    open: LimitedCounter,
    backing: AtomicU64,
    unverified: AtomicU64,
    /// As `unverified`, but lowered only when what was found is counted.
    uncounted: AtomicU64,
    reserved_for_root: u64,
    pool: u64,
}

/// The pool of a file system of this many blocks: 2 %, at most 4096 blocks.
pub fn pool_blocks(blocks: u64) -> u64 {
    (blocks / 50).min(4096)
}

impl SpaceCounter {
    /// For groups whose descriptors call `free` blocks free, of which the superuser's share is
    /// `reserved_for_root`. None of the groups is known to be sound yet.
    pub fn new(free: u64, reserved_for_root: u64, pool: u64) -> SpaceCounter {
        SpaceCounter {
            open: LimitedCounter::new(0),
            backing: AtomicU64::new(0),
            unverified: AtomicU64::new(free),
            uncounted: AtomicU64::new(free),
            reserved_for_root,
            pool,
        }
    }

    /// Blocks that groups may have whose bitmap nobody looked at. Where it is 0, whatever was found
    /// can be taken.
    pub fn unverified(&self) -> u64 {
        self.uncounted.load(Ordering::Acquire)
    }

    /// A group was looked at: its descriptor calls `expected` blocks free, and `found` are. (They
    /// differ where it is damaged.)
    pub fn admit(&self, expected: u64, found: u64) {
        self.unverified.fetch_sub(expected, Ordering::AcqRel);
        self.give(found);
        // The superuser's share may have been among what was unverified.
        let missing = self
            .backing_wanted()
            .saturating_sub(self.backing.load(Ordering::Acquire));
        let moved = self.open.take_up_to(missing);
        self.backing.fetch_add(moved, Ordering::AcqRel);
        self.uncounted.fetch_sub(expected, Ordering::AcqRel);
    }

    /// What `backing` should hold.
    fn backing_wanted(&self) -> u64 {
        let unverified = self.unverified.load(Ordering::Relaxed);
        self.reserved_for_root
            .saturating_sub(unverified)
            .saturating_add(self.pool)
    }

    /// Takes up to `wanted` blocks for data; 0 when there are none.
    pub fn take_data(&self, wanted: u64) -> u64 {
        self.open.take_up_to(wanted)
    }

    /// Takes exactly `blocks` for metadata to come; false when there are not as many.
    pub fn reserve(&self, blocks: u64) -> bool {
        self.take_exactly(blocks, self.pool)
    }

    /// The same for what must go on when others find no space: takes from the pool too, and leaves
    /// half of it.
    pub fn reserve_from_pool(&self, blocks: u64) -> bool {
        self.take_exactly(blocks, self.pool / 2)
    }

    /// Takes one block while a batch is applied whose reservation is used up.
    pub fn take_for_commit(&self) -> bool {
        take_up_to(&self.backing, 1, 0) == 1 || self.open.try_take(1)
    }

    fn take_exactly(&self, blocks: u64, keep: u64) -> bool {
        let from_open = self.open.take_up_to(blocks);
        let rest = blocks - from_open;
        let from_backing = take_up_to(&self.backing, rest, keep);
        if from_open + from_backing == blocks {
            return true;
        }
        self.give(from_open + from_backing);
        false
    }

    /// Gives blocks back.
    pub fn give(&self, blocks: u64) {
        let mut left = blocks;
        let wanted = self.backing_wanted();
        // The common case reads lines that hardly ever change.
        if self.backing.load(Ordering::Relaxed) < wanted {
            let _ = self
                .backing
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |now| {
                    let fill = blocks.min(wanted.saturating_sub(now));
                    left = blocks - fill;
                    Some(now + fill)
                });
        }
        if left > 0 {
            self.open.give(left);
        }
    }

    /// Strikes blocks of a group that turned out to be damaged.
    pub fn strike(&self, blocks: u64) {
        let from_open = self.open.take_up_to(blocks);
        take_up_to(&self.backing, blocks - from_open, 0);
    }

    /// What is kept back for metadata when there is enough of it.
    pub fn backing_target(&self) -> u64 {
        self.reserved_for_root.saturating_add(self.pool)
    }

    /// All that is not promised to anybody, and the part of it that data may use.
    #[cfg(test)]
    fn free_and_available(&self) -> (u64, u64) {
        let open = self.open.available();
        (open + self.backing.load(Ordering::Acquire), open)
    }
}

/// Takes up to `wanted` from a counter that must keep at least `keep`.
fn take_up_to(counter: &AtomicU64, wanted: u64, keep: u64) -> u64 {
    if wanted == 0 {
        return 0;
    }
    let mut taken = 0;
    let _ = counter.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |now| {
        taken = wanted.min(now.saturating_sub(keep));
        (taken > 0).then(|| now - taken)
    });
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All groups are known to be sound.
    fn counter(free: u64, reserved_for_root: u64, pool: u64) -> SpaceCounter {
        let counter = SpaceCounter::new(free, reserved_for_root, pool);
        counter.admit(free, free);
        counter
    }

    #[test]
    fn data_leaves_the_backing_alone() {
        let counter = counter(100, 20, 10);
        assert_eq!(counter.free_and_available(), (100, 70));
        assert_eq!(counter.take_data(60), 60);
        assert_eq!(counter.take_data(60), 10);
        assert_eq!(counter.take_data(60), 0);
        assert!(counter.reserve(20));
        assert!(!counter.reserve(1));
        for _ in 0..10 {
            assert!(counter.take_for_commit());
        }
        assert!(!counter.take_for_commit());
        counter.give(35);
        assert_eq!(counter.free_and_available(), (35, 5));
    }

    #[test]
    fn a_failed_reservation_takes_nothing() {
        let counter = counter(50, 20, 10);
        assert!(!counter.reserve(41));
        assert_eq!(counter.free_and_available(), (50, 20));
        assert!(counter.reserve(40));
    }

    #[test]
    fn fewer_blocks_than_the_backing_wants() {
        let counter = counter(5, 20, 10);
        assert_eq!(counter.take_data(1), 0);
        assert!(!counter.reserve(1));
        assert!(counter.take_for_commit());
    }

    /// The superuser's share lies in what is unverified as long as there is enough of that.
    #[test]
    fn only_what_was_looked_at_is_promised() {
        let counter = SpaceCounter::new(100, 20, 10);
        assert_eq!(counter.take_data(1), 0);
        assert!(!counter.reserve(1));
        counter.admit(50, 50);
        assert_eq!(counter.free_and_available(), (50, 40));
        assert_eq!(counter.take_data(25), 25);
        // The other half is damaged.
        counter.admit(50, 0);
        assert_eq!(counter.unverified(), 0);
        assert_eq!(counter.free_and_available(), (25, 0));
        assert!(counter.reserve(15));
        assert!(!counter.reserve(1));
    }
}
