//! Measuring contended acquisitions.

use finefs_lockmeter::{self as lockmeter, Kind, LockClass};

/// Takes a lock: at once if `fast` gives it, else by `slow`, whose duration the meter notes.
#[inline]
pub(crate) fn metered<G>(
    class: &'static LockClass,
    kind: Kind,
    fast: impl FnOnce() -> Option<G>,
    slow: impl FnOnce() -> G,
) -> G {
    lockmeter::acquired(class, kind);
    // A first attempt only adds schedules without adding behaviours for a model checker to find.
    #[cfg(not(any(loom, feature = "shuttle")))]
    if let Some(guard) = fast() {
        return guard;
    }
    #[cfg(any(loom, feature = "shuttle"))]
    let _ = fast;
    waited(class, kind, slow)
}

/// Runs `wait` and notes its duration as the wait of a contended acquisition.
#[cold]
pub(crate) fn waited<R>(class: &'static LockClass, kind: Kind, wait: impl FnOnce() -> R) -> R {
    let start = std::time::Instant::now();
    let result = wait();
    let wait_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    lockmeter::contended(class, kind, wait_ns);
    result
}
