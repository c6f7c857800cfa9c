//! What a table takes in memory.

use crossbeam_epoch::Guard;

use super::chain::{Bucket, Node};
use super::{Line, NameTable, Table};

/// In tables of at most so many buckets names are counted.
const COUNTED_MAX: usize = 256;
/// What a name takes, with what its allocation costs.
const NAME_BYTES: usize = size_of::<Node>() + 16;

impl Table {
    /// Bytes of the buckets.
    pub(super) fn own_bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}

impl NameTable {
    /// About what a name takes, with its part of a bucket.
    pub const BYTES_A_NAME: u64 = (NAME_BYTES + size_of::<Bucket>() / 2) as u64;

    /// About how many bytes it takes on the heap: exactly so many while it is small.
    pub fn bytes(&self, guard: &Guard) -> usize {
        let current = self.current(guard);
        let names = match current.count() {
            ..=COUNTED_MAX => current
                .buckets()
                .map(|bucket| bucket.length() as usize)
                .sum(),
            _ => self.length_about(guard) as usize,
        };
        names * NAME_BYTES + current.own_bytes()
    }

    /// About how many names there are: three for each bucket, and nothing is counted.
    pub fn length_about(&self, guard: &Guard) -> u64 {
        self.current(guard).count() as u64 * 3
    }
}
