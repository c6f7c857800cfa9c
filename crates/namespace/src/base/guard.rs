//! A panic inside one operation stays inside it, and a bad device does not fill the log.
//!
//! A panic is a bug. The request that met it fails (FUSE: EIO), the thread of the front end goes on
//! serving, and the number of such failures is kept so that the end of the server can say that the
//! image should be checked. Ending it at once instead would take the files away from all other
//! users, and no state is lost by going on: locks are released by their guards, and an operation
//! logs its changes in one step that cannot fail.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::types::Timestamp;

/// Errors of the device or of the image that are logged in a second; the rest is not.
const LOGGED_ERRORS_PER_SECOND: u64 = 5;

thread_local! {
    static IS_IN_OPERATION: Cell<bool> = const { Cell::new(false) };
}

static FAILED: AtomicU64 = AtomicU64::new(0);

/// Runs one operation of a front end, or a part of one; `None` when it panicked.
pub fn guarded<T>(name: &'static str, operation: impl FnOnce() -> T) -> Option<T> {
    let was_in_operation = IS_IN_OPERATION.replace(true);
    let result = catch_unwind(AssertUnwindSafe(operation));
    IS_IN_OPERATION.set(was_in_operation);
    if result.is_err() {
        FAILED.fetch_add(1, Ordering::Relaxed);
        log::error!("{name} failed by a bug in finefs; the server goes on");
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

/// How many errors were logged in this second.
#[derive(Debug, Default)]
pub struct LogLimit {
    /// Second since the epoch in the upper half, errors logged in it in the lower.
    logged: AtomicU64,
}

impl LogLimit {
    /// Counts one more error; false where it should not be logged.
    pub fn may_log(&self) -> bool {
        let second = Timestamp::now().seconds() as u64 & 0xffff_ffff;
        let update = |logged: u64| {
            Some(if logged >> 32 == second {
                logged.saturating_add(1)
            } else {
                second << 32
            })
        };
        let before = self
            .logged
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
            .unwrap_or(0);
        before >> 32 != second || before & 0xffff_ffff < LOGGED_ERRORS_PER_SECOND
    }
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
        let after_another = || {
            guarded("inner", || ());
            is_in_operation()
        };
        assert_eq!(guarded("outer", after_another), Some(true));
    }

    #[test]
    fn few_errors_of_a_second_are_logged() {
        let limit = LogLimit::default();
        let logged = (0..1000).filter(|_| limit.may_log()).count();
        // The second may change meanwhile.
        assert!((1..=3 * LOGGED_ERRORS_PER_SECOND as usize).contains(&logged));
    }
}
