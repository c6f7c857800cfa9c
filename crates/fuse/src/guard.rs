//! A panic inside one operation stays inside it.
//!
//! A panic is a bug. The request that met it is answered with EIO, the thread goes on serving, and
//! the number of such failures is kept so that the end of the mount can say that the image should
//! be checked. Ending the mount at once instead would take the files away from all other users, and
//! no state is lost by going on: locks are released by their guards, and an operation logs its
//! changes in one step that cannot fail.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static IS_IN_OPERATION: Cell<bool> = const { Cell::new(false) };
}

static FAILED: AtomicU64 = AtomicU64::new(0);
static LOST: AtomicU64 = AtomicU64::new(0);

/// Runs one operation; `None` when it panicked.
pub(crate) fn guarded<T>(name: &'static str, operation: impl FnOnce() -> T) -> Option<T> {
    IS_IN_OPERATION.set(true);
    let result = catch_unwind(AssertUnwindSafe(operation));
    IS_IN_OPERATION.set(false);
    if result.is_err() {
        FAILED.fetch_add(1, Ordering::Relaxed);
        log::error!("{name} failed by a bug in finefs (its caller got EIO); the mount goes on");
    }
    result.ok()
}

/// True while this thread is inside an operation, whose panic is caught. A panic of a server
/// thread outside of one ends that thread; a panic hook can tell the two apart by this.
pub fn is_in_operation() -> bool {
    IS_IN_OPERATION.get()
}

/// How many operations of this process ended in a panic.
pub fn failed_operations() -> u64 {
    FAILED.load(Ordering::Relaxed)
}

/// Counts a write that the kernel had put off and that failed: only an fsync tells it to a program.
pub(crate) fn note_lost_write() {
    LOST.fetch_add(1, Ordering::Relaxed);
}

/// How many writes that the kernel had put off (write-back cache, shared mappings) failed: what
/// they held is not in the files.
pub fn lost_writes() -> u64 {
    LOST.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_and_counted() {
        let before = failed_operations();
        assert_eq!(
            guarded("test", || panic!("expected by the test")),
            None::<()>
        );
        assert_eq!(failed_operations(), before + 1);
        assert!(!is_in_operation());
        assert_eq!(guarded("test", is_in_operation), Some(true));
    }
}
