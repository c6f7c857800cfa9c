//! How many free blocks may still be promised.
//!
//! # Data model
//! The free blocks of the live allocator that nobody was promised are split in two:
//! - `open`: for whoever asks, spread over the CPUs so that allocations share no cache line;
//! - `backing`: kept back for metadata. It holds up to `backing_target` blocks: those reserved for
//!   the superuser (`s_r_blocks_count`) and the `pool`, which is kept for commits alone.
//!
//! Data takes from `open` only. A reservation for metadata takes from `open`, then from `backing`
//! down to the pool; one that must not fail where space has run out, down to half of it. Applying a batch lives on the batch's reservation and, where that was too
//! small, on the pool. Blocks that come back fill `backing` first.
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
pub(crate) struct SpaceCounter {
    open: LimitedCounter,
    backing: AtomicU64,
    backing_target: u64,
    pool: u64,
}

/// The pool of a file system of this many blocks: 2 %, at most 4096 blocks.
pub(crate) fn pool_blocks(blocks: u64) -> u64 {
    (blocks / 50).min(4096)
}

impl SpaceCounter {
    /// For `free` free blocks, of which the superuser's share is `reserved_for_root`.
    pub(crate) fn new(free: u64, reserved_for_root: u64, pool: u64) -> SpaceCounter {
        let backing_target = reserved_for_root.saturating_add(pool);
        let backing = free.min(backing_target);
        SpaceCounter {
            open: LimitedCounter::new(free - backing),
            backing: AtomicU64::new(backing),
            backing_target,
            pool,
        }
    }

    /// Takes up to `wanted` blocks for data; 0 when there are none.
    pub(crate) fn take_data(&self, wanted: u64) -> u64 {
        self.open.take_up_to(wanted)
    }

    /// Takes exactly `blocks` for metadata to come; false when there are not as many.
    pub(crate) fn reserve(&self, blocks: u64) -> bool {
        self.take_exactly(blocks, self.pool)
    }

    /// The same for what must go on when others find no space: takes from the pool too, and leaves half of it.
    pub(crate) fn reserve_from_pool(&self, blocks: u64) -> bool {
        self.take_exactly(blocks, self.pool / 2)
    }

    /// Takes one block while a batch is applied whose reservation is used up.
    pub(crate) fn take_for_commit(&self) -> bool {
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
    pub(crate) fn give(&self, blocks: u64) {
        let mut left = blocks;
        // The common case reads a line that hardly ever changes.
        if self.backing.load(Ordering::Relaxed) < self.backing_target {
            let _ = self
                .backing
                .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |now| {
                    let fill = blocks.min(self.backing_target.saturating_sub(now));
                    left = blocks - fill;
                    Some(now + fill)
                });
        }
        if left > 0 {
            self.open.give(left);
        }
    }

    /// Strikes blocks that turned out not to be there (a damaged group).
    pub(crate) fn strike(&self, blocks: u64) {
        let from_open = self.open.take_up_to(blocks);
        take_up_to(&self.backing, blocks - from_open, 0);
    }

    /// What is kept back for metadata when there is enough of it.
    pub(crate) fn backing_target(&self) -> u64 {
        self.backing_target
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

    #[test]
    fn data_leaves_the_backing_alone() {
        let counter = SpaceCounter::new(100, 20, 10);
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
        let counter = SpaceCounter::new(50, 20, 10);
        assert!(!counter.reserve(41));
        assert_eq!(counter.free_and_available(), (50, 20));
        assert!(counter.reserve(40));
    }

    #[test]
    fn fewer_blocks_than_the_backing_wants() {
        let counter = SpaceCounter::new(5, 20, 10);
        assert_eq!(counter.take_data(1), 0);
        assert!(!counter.reserve(1));
        assert!(counter.take_for_commit());
    }
}
