//! Which thread (or model's task) this is: a number that no other has or will have.

use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

crate::primitive::thread_local! {
    static ID: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
}

/// The calling task's number; never 0.
#[inline]
pub(crate) fn current() -> u64 {
    ID.with(|id| *id)
}
