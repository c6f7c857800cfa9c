//! The primitives of ordinary builds.

use std::time::Duration;

pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A condition variable for [`Mutex`].
///
/// ```
/// use finefs_locks::primitive::{Condvar, Mutex};
/// static READY: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
/// let setter = std::thread::spawn(|| {
///     *READY.0.lock() = true;
///     READY.1.notify_all();
/// });
/// let mut ready = READY.0.lock();
/// while !*ready {
///     READY.1.wait(&mut ready);
/// }
/// # drop(ready);
/// # setter.join().unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Releases the mutex, waits for a notification, takes the mutex again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(guard);
    }

    /// Like [`Condvar::wait`], but no longer than `timeout`; true when the time ran out.
    pub fn wait_timeout<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        self.0.wait_for(guard, timeout).timed_out()
    }

    /// Wakes one waiter, if there is one.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
