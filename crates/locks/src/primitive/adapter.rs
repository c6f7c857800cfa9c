//! The primitives of loom and shuttle builds, in the shape of the native ones: no poisoning, and a
//! condition variable that takes the guard by reference.

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError};
use std::time::Duration;

use super::{const_unless_loom, source};

fn ignore_poison<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

fn as_option<G>(result: Result<G, TryLockError<G>>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A mutex.
#[derive(Debug)]
pub struct Mutex<T>(source::sync::Mutex<T>);

/// Holds a [`Mutex`].
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    /// For shuttle's `wait_timeout`.
    #[cfg_attr(loom, expect(dead_code))]
    mutex: &'a Mutex<T>,
    /// `None` only inside [`Condvar`]'s waits.
    inner: Option<source::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    const_unless_loom! {
        /// An unlocked mutex.
        pub const fn new(value: T) -> Mutex<T> {
            Mutex(source::sync::Mutex::new(value))
        }
    }

    /// Takes the mutex.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            mutex: self,
            inner: Some(ignore_poison(self.0.lock())),
        }
    }

    /// Takes the mutex if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        as_option(self.0.try_lock()).map(|guard| MutexGuard {
            mutex: self,
            inner: Some(guard),
        })
    }

    /// True when the mutex is held at this moment.
    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    /// The value, through exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        ignore_poison(self.0.get_mut())
    }

    /// The value.
    pub fn into_inner(self) -> T {
        ignore_poison(self.0.into_inner())
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_ref().expect("held outside of a wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("held outside of a wait")
    }
}

/// A reader/writer lock.
#[derive(Debug)]
pub struct RwLock<T>(source::sync::RwLock<T>);

/// Holds a [`RwLock`] shared.
pub type RwLockReadGuard<'a, T> = source::sync::RwLockReadGuard<'a, T>;
/// Holds a [`RwLock`] exclusively.
pub type RwLockWriteGuard<'a, T> = source::sync::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    const_unless_loom! {
        /// An unlocked lock.
        pub const fn new(value: T) -> RwLock<T> {
            RwLock(source::sync::RwLock::new(value))
        }
    }

    /// Takes the lock shared.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        ignore_poison(self.0.read())
    }

    /// Takes the lock exclusively.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        ignore_poison(self.0.write())
    }

    /// Takes the lock shared if that needs no waiting.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        as_option(self.0.try_read())
    }

    /// Takes the lock exclusively if that needs no waiting.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        as_option(self.0.try_write())
    }

    /// The value, through exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        ignore_poison(self.0.get_mut())
    }

    /// The value.
    pub fn into_inner(self) -> T {
        ignore_poison(self.0.into_inner())
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug)]
pub struct Condvar(source::sync::Condvar);

impl Condvar {
    const_unless_loom! {
        /// A condition variable that nobody waits for.
        pub const fn new() -> Condvar {
            Condvar(source::sync::Condvar::new())
        }
    }

    /// Releases the mutex, waits for a notification, takes the mutex again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let inner = guard.inner.take().expect("held outside of a wait");
        guard.inner = Some(ignore_poison(self.0.wait(inner)));
    }

    /// Like [`Condvar::wait`], but no longer than `timeout`; true when the time ran out.
    ///
    /// Shuttle has no time. Here the wait ends by chance: spuriously, or as if the time had run
    /// out.
    #[cfg(all(feature = "shuttle", not(loom)))]
    pub fn wait_timeout<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) -> bool {
        use shuttle::rand::Rng;
        drop(guard.inner.take());
        shuttle::thread::yield_now();
        guard.inner = Some(ignore_poison(guard.mutex.0.lock()));
        shuttle::rand::thread_rng().gen_bool(0.25)
    }

    /// Loom has no time: the wait ends only by a notification.
    #[cfg(loom)]
    pub fn wait_timeout<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) -> bool {
        self.wait(guard);
        false
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

impl Default for Condvar {
    fn default() -> Condvar {
        Condvar::new()
    }
}
