//! Writes that were lost, which the end of the mount tells.

use std::sync::atomic::{AtomicU64, Ordering};

static LOST: AtomicU64 = AtomicU64::new(0);

/// Counts a write that the kernel had put off and that failed: only an fsync tells it to a program.
pub(crate) fn note_lost_write() {
    LOST.fetch_add(1, Ordering::Relaxed);
}

/// How many writes that the kernel had put off (write-back cache, shared mappings) failed: what
/// they held is not in the files.
pub fn lost_writes() -> u64 {
    LOST.load(Ordering::Relaxed)
}
