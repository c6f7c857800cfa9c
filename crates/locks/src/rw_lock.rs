//! [`RwLock`]: shared or exclusive access, with a class.
//!
//! Built on the primitive RwLock (parking_lot: one word, writers do not starve). A holder that
//! panics releases the lock; there is no poisoning. A thread must not take the lock twice, not even
//! shared: a writer that came between would wait for the first and be waited for by the second.

use std::ops::{Deref, DerefMut};

use finefs_lockmeter::{Kind, LockClass};

use crate::metered_guard::MeteredGuard;
use crate::order::{self, Held};
use crate::primitive::{self, const_unless_loom};
use crate::wait::{LastCpu, MeteredLock};

/// A reader/writer lock around a `T`.
///
/// ```
/// use finefs_locks::{LockClass, RwLock};
/// static NAMES: LockClass = LockClass::new("example.names", 10);
/// let names = RwLock::new(&NAMES, vec!["a"]);
/// names.write().push("b");
/// assert_eq!(names.read().len(), 2);
/// ```
#[derive(Debug)]
pub struct RwLock<T> {
    class: &'static LockClass,
    last_cpu: LastCpu,
    inner: primitive::RwLock<T>,
}

/// Holds a [`RwLock`] shared; releases it when dropped.
///
/// ```
/// # use finefs_locks::{LockClass, RwLock};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let names = RwLock::new(&CLASS, 1);
/// let guard = names.read();
/// assert_eq!(*guard, 1);
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockReadGuard<'a, T> {
    inner: MeteredGuard<primitive::RwLockReadGuard<'a, T>>,
    _held: Held,
}

/// Holds a [`RwLock`] exclusively; releases it when dropped.
///
/// ```
/// # use finefs_locks::{LockClass, RwLock};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let names = RwLock::new(&CLASS, 1);
/// let mut guard = names.write();
/// *guard += 1;
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockWriteGuard<'a, T> {
    inner: MeteredGuard<primitive::RwLockWriteGuard<'a, T>>,
    _held: Held,
}

impl<T> RwLock<T> {
    const_unless_loom! {
        /// An unlocked lock of `class`.
        pub const fn new(class: &'static LockClass, value: T) -> RwLock<T> {
            RwLock { class, last_cpu: LastCpu::new(), inner: primitive::RwLock::new(value) }
        }
    }

    /// Takes the lock shared, waiting for it if need be.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = order::acquire(self.class, None, self.address());
        let (inner, holding) = self
            .metered(Kind::Reader)
            .take(|| self.inner.try_read(), || self.inner.read());
        RwLockReadGuard {
            inner: MeteredGuard::new(inner, holding),
            _held: held,
        }
    }

    /// Takes the lock exclusively, waiting for it if need be.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = order::acquire(self.class, None, self.address());
        let (inner, holding) = self
            .metered(Kind::Writer)
            .take(|| self.inner.try_write(), || self.inner.write());
        RwLockWriteGuard {
            inner: MeteredGuard::new(inner, holding),
            _held: held,
        }
    }

    /// Takes the lock shared if that needs no waiting.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let inner = self.inner.try_read()?;
        let held = order::acquired_by_try(self.class, None, self.address());
        Some(RwLockReadGuard {
            inner: MeteredGuard::new(inner, self.metered(Kind::Reader).taken()),
            _held: held,
        })
    }

    /// Takes the lock exclusively if that needs no waiting.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let inner = self.inner.try_write()?;
        let held = order::acquired_by_try(self.class, None, self.address());
        Some(RwLockWriteGuard {
            inner: MeteredGuard::new(inner, self.metered(Kind::Writer).taken()),
            _held: held,
        })
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

impl<T> MeteredLock for RwLock<T> {
    #[inline]
    fn parts(&self) -> (&'static LockClass, &LastCpu) {
        (self.class, &self.last_cpu)
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
