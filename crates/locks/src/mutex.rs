//! [`Mutex`] and [`Condvar`]: mutual exclusion with a class.
//!
//! Built on the primitive mutex (parking_lot: one byte, spins briefly, then parks). A holder that
//! panics releases the mutex; there is no poisoning.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use finefs_lockmeter::{Kind, LockClass};

use crate::metered_guard::MeteredGuard;
use crate::order::{self, Held, OrderKey};
use crate::primitive::{self, const_unless_loom};
use crate::wait::{LastCpu, MeteredLock};

/// Mutual exclusion around a `T`.
///
/// ```
/// use finefs_locks::{LockClass, Mutex};
/// static TABLE: LockClass = LockClass::new("example.table", 10);
/// let table = Mutex::new(&TABLE, vec![1]);
/// table.lock().push(2);
/// assert_eq!(table.into_inner(), [1, 2]);
/// ```
#[derive(Debug)]
pub struct Mutex<T> {
    class: &'static LockClass,
    last_cpu: LastCpu,
    inner: primitive::Mutex<T>,
}

/// Holds a [`Mutex`]; releases it when dropped.
///
/// ```
/// # use finefs_locks::{LockClass, Mutex};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let table = Mutex::new(&CLASS, 1);
/// let mut guard = table.lock();
/// *guard += 1;
/// assert_eq!(*guard, 2);
/// ```
#[derive(Debug)]
#[must_use = "the mutex is released when the guard is dropped"]
pub struct MutexGuard<'a, T> {
    // Declared first: the lock goes before its entry in the checker's list.
    inner: MeteredGuard<primitive::MutexGuard<'a, T>>,
    held: Held,
}

impl<T> Mutex<T> {
    const_unless_loom! {
        /// An unlocked mutex of `class`.
        pub const fn new(class: &'static LockClass, value: T) -> Mutex<T> {
            Mutex { class, last_cpu: LastCpu::new(), inner: primitive::Mutex::new(value) }
        }
    }

    /// Takes the mutex, waiting for it if need be.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_with_key(None)
    }

    /// Takes the mutex where others of its class may be held: legal when `order_key` is greater
    /// than the key of every held mutex of the class.
    #[inline]
    #[track_caller]
    pub fn lock_nested(&self, order_key: u64) -> MutexGuard<'_, T> {
        self.lock_with_key(Some((order_key, 0)))
    }

    #[inline]
    #[track_caller]
    fn lock_with_key(&self, key: Option<OrderKey>) -> MutexGuard<'_, T> {
        let held = order::acquire(self.class, key, self.address());
        let (inner, holding) = self
            .metered(Kind::Writer)
            .take(|| self.inner.try_lock(), || self.inner.lock());
        MutexGuard {
            inner: MeteredGuard::new(inner, holding),
            held,
        }
    }

    /// Takes the mutex if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        let held = order::acquired_by_try(self.class, None, self.address());
        Some(MutexGuard {
            inner: MeteredGuard::new(inner, self.metered(Kind::Writer).taken()),
            held,
        })
    }

    /// True when somebody holds the mutex at this moment.
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    /// The value, through exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }

    /// The class.
    pub fn class(&self) -> &'static LockClass {
        self.class
    }
}

impl<T> MeteredLock for Mutex<T> {
    #[inline]
    fn parts(&self) -> (&'static LockClass, &LastCpu) {
        (self.class, &self.last_cpu)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition variable for [`Mutex`]. It may be used with one mutex at a time. Waits may end
/// spuriously: wait in a loop.
///
/// ```
/// use finefs_locks::{Condvar, LockClass, Mutex};
/// static STATE: LockClass = LockClass::new("example.state", 10);
/// static READY: (Mutex<bool>, Condvar) = (Mutex::new(&STATE, false), Condvar::new());
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
#[derive(Debug)]
pub struct Condvar(primitive::Condvar);

impl Condvar {
    const_unless_loom! {
        /// A condition variable that nobody waits for.
        pub const fn new() -> Condvar {
            Condvar(primitive::Condvar::new())
        }
    }

    /// Releases the mutex, waits for a notification, and takes the mutex again.
    ///
    /// Since the mutex is taken again, no lock above it in the order may be held.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.held.check_retake();
        let (inner, holding) = guard.inner.parts();
        holding.interrupted(|| self.0.wait(inner));
    }

    /// Like [`Condvar::wait`], but no longer than `timeout`; true when the time ran out.
    #[track_caller]
    pub fn wait_timeout<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        guard.held.check_retake();
        let (inner, holding) = guard.inner.parts();
        holding.interrupted(|| self.0.wait_timeout(inner, timeout))
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
