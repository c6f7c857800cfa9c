//! [`RawLock`]: a lock of two bytes (one without the meter), for arrays of buckets.
//!
//! It guards what lies next to it, not a value inside it, and it does not store its class: the
//! caller names the class and the lock's place in the order of its class at each acquisition.

use finefs_lockmeter::{Kind, LockClass};

use crate::metered_guard::MeteredGuard;
use crate::order::{self, Held, OrderKey};
use crate::primitive::{self, const_unless_loom};
use crate::wait::{LastCpu, Metered};

/// A lock without data and without a stored class.
///
/// ```
/// use finefs_locks::{LockClass, RawLock};
/// static BUCKET: LockClass = LockClass::new("example.bucket", 30);
/// let buckets = [RawLock::new(), RawLock::new()];
/// let both: Vec<_> = (0..2).map(|i| buckets[i].lock(&BUCKET, (7, i as u64))).collect();
/// assert!(buckets[0].is_locked());
/// drop(both);
/// assert!(!buckets[0].is_locked());
/// ```
#[derive(Debug)]
pub struct RawLock {
    inner: primitive::Mutex<()>,
    last_cpu: LastCpu,
}

/// Holds a [`RawLock`]; releases it when dropped.
///
/// ```
/// # use finefs_locks::{LockClass, RawLock};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let bucket = RawLock::new();
/// let guard = bucket.lock(&CLASS, (7, 0));
/// drop(guard);
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct RawGuard<'a> {
    _inner: MeteredGuard<primitive::MutexGuard<'a, ()>>,
    _held: Held,
}

impl RawLock {
    const_unless_loom! {
        /// An unlocked lock.
        pub const fn new() -> RawLock {
            RawLock { inner: primitive::Mutex::new(()), last_cpu: LastCpu::new() }
        }
    }

    /// Takes the lock as one of `class`, waiting for it if need be. Locks of the class may be held
    /// if their keys are less than `order`.
    #[inline]
    #[track_caller]
    pub fn lock(&self, class: &'static LockClass, order: OrderKey) -> RawGuard<'_> {
        let held = order::acquire(class, Some(order), self.address());
        let (inner, holding) = self
            .metered(class)
            .take(|| self.inner.try_lock(), || self.inner.lock());
        RawGuard {
            _inner: MeteredGuard::new(inner, holding),
            _held: held,
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self, class: &'static LockClass, order: OrderKey) -> Option<RawGuard<'_>> {
        let inner = self.inner.try_lock()?;
        let held = order::acquired_by_try(class, Some(order), self.address());
        Some(RawGuard {
            _inner: MeteredGuard::new(inner, self.metered(class).taken()),
            _held: held,
        })
    }

    /// True when somebody holds the lock at this moment.
    pub fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn metered(&self, class: &'static LockClass) -> Metered<'_> {
        Metered {
            class,
            kind: Kind::Writer,
            last_cpu: &self.last_cpu,
            address: self.address(),
        }
    }
}

impl Default for RawLock {
    fn default() -> RawLock {
        RawLock::new()
    }
}
