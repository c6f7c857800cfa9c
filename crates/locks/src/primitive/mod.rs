//! The one place that chooses what the locks are built on.
//!
//! | Build | Atomics, threads | Mutex, RwLock, Condvar |
//! |---|---|---|
//! | ordinary | std | parking_lot (`native`) |
//! | `--cfg loom` | loom, which tries all orders that the memory model allows | loom's (`adapter`) |
//! | feature `shuttle` | shuttle, which tries random schedules | shuttle's (`adapter`) |
//!
//! Everything in this crate takes its primitives from here. It is public for code above that wants
//! to be tested in the same models; other code has no use for it, and what is here follows what the
//! models need. Under loom and shuttle nothing here blocks the real thread. `new` functions are
//! `const` except under loom.
//!
//! The mutex, the RwLock and the condition variable have no class and no order checks: they are for
//! building locks. Use [`crate::Mutex`] and its kin for data.
//!
//! ```
//! use finefs_locks::primitive::atomic::{AtomicU32, Ordering};
//! use finefs_locks::primitive::{Arc, Condvar, Mutex, thread};
//! let shared = Arc::new((Mutex::new(false), Condvar::new(), AtomicU32::new(0)));
//! let other = Arc::clone(&shared);
//! let setter = thread::spawn(move || {
//!     other.2.store(7, Ordering::Relaxed);
//!     *other.0.lock() = true;
//!     other.1.notify_one();
//! });
//! let mut is_set = shared.0.lock();
//! while !*is_set {
//!     shared.1.wait(&mut is_set);
//! }
//! assert_eq!(shared.2.load(Ordering::Relaxed), 7);
//! # setter.join().unwrap();
//! ```

#[cfg(any(loom, feature = "shuttle"))]
mod adapter;
#[cfg(not(any(loom, feature = "shuttle")))]
mod native;

#[cfg(any(loom, feature = "shuttle"))]
pub use adapter::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(loom, feature = "shuttle")))]
pub use native::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(loom)]
use loom as source;
#[cfg(all(feature = "shuttle", not(loom)))]
use shuttle as source;
#[cfg(not(any(loom, feature = "shuttle")))]
use std as source;

pub use source::sync::Arc;

/// Atomics.
///
/// ```
/// use finefs_locks::primitive::atomic::{AtomicU32, Ordering};
/// let number = AtomicU32::new(1);
/// assert_eq!(number.fetch_add(1, Ordering::Relaxed), 1);
/// ```
pub mod atomic {
    pub use super::source::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

/// Threads.
///
/// ```
/// use finefs_locks::primitive::thread;
/// assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
/// ```
pub mod thread {
    pub use super::source::thread::{
        Builder, JoinHandle, Thread, ThreadId, current, park, spawn, yield_now,
    };
}

/// Hints for spinning.
///
/// ```
/// use finefs_locks::primitive::{atomic::{AtomicBool, Ordering}, hint};
/// let is_free = AtomicBool::new(true);
/// while !is_free.swap(false, Ordering::Acquire) {
///     hint::spin_loop();
/// }
/// ```
pub mod hint {
    pub use super::source::hint::spin_loop;
}

#[cfg(loom)]
pub use loom::thread_local;
#[cfg(all(feature = "shuttle", not(loom)))]
pub use shuttle::thread_local;
#[cfg(not(any(loom, feature = "shuttle")))]
pub use std::thread_local;

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// `std::cell::UnsafeCell` with the access functions of loom's.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Writes a function as `const` in all builds but loom's.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* pub const fn $($rest:tt)*) => {
        $(#[$meta])*
        #[cfg(not(loom))]
        pub const fn $($rest)*
        $(#[$meta])*
        #[cfg(loom)]
        pub fn $($rest)*
    };
}
pub(crate) use const_unless_loom;
