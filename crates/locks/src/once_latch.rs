//! [`OnceLatch`]: a value that is loaded at most once, by the first thread that needs it.
//!
//! # Protocol
//! - `state` goes from EMPTY to READY once and never back. The value is written before READY is
//!   stored with release ordering, and read only after READY was loaded with acquire ordering:
//!   after that readers take no lock and write nothing.
//! - The gate (a mutex around "somebody is loading", and a condition variable) lets one thread load
//!   at a time. The load itself, possibly with I/O, runs without the gate's mutex.
//! - A load that fails or panics opens the gate for the next waiter, which then tries itself.
//!
//! # Locking
//! The gate's mutex is a leaf: nothing is called with it held. For the order checker a latch is not
//! held during the load, but a thread that may come to wait for another's load must hold only locks
//! below the latch's class.

use std::mem::MaybeUninit;

use finefs_lockmeter::{Kind, LockClass};

use crate::order;
use crate::primitive::atomic::{AtomicU8, Ordering};
use crate::primitive::{Condvar, Mutex, UnsafeCell, const_unless_loom};
use crate::wait::{Holding, LastCpu, Metered};

const EMPTY: u8 = 0;
const READY: u8 = 1;

/// A value that is loaded at most once.
///
/// ```
/// use finefs_locks::{LockClass, OnceLatch};
/// static LOAD: LockClass = LockClass::new("example.load", 10);
/// let latch = OnceLatch::new(&LOAD);
/// assert_eq!(latch.get_or_try_init(|| Err::<u32, _>("disk on fire")), Err("disk on fire"));
/// assert_eq!(latch.get(), None);
/// assert_eq!(latch.get_or_try_init(|| Ok::<_, ()>(7)), Ok(&7));
/// assert_eq!(latch.get_or_try_init(|| Ok::<_, ()>(8)), Ok(&7));
/// ```
#[repr(C)]
pub struct OnceLatch<T> {
    /// Right in front of the value, most often in its cache line.
    state: AtomicU8,
    is_loading: Mutex<bool>,
    opened: Condvar,
    /// Initialised if and only if `state` is READY. Written by the one thread that is loading.
    value: UnsafeCell<MaybeUninit<T>>,
    class: &'static LockClass,
}

// SAFETY: a latch owns its T, which may be dropped by another thread than the one that loaded it.
unsafe impl<T: Send> Send for OnceLatch<T> {}
// SAFETY: threads share `&T` after READY (Sync), and one of them moves the T in (Send). The state
// and the gate order the only write before all reads.
unsafe impl<T: Send + Sync> Sync for OnceLatch<T> {}

impl<T> OnceLatch<T> {
    const_unless_loom! {
        /// A latch without a value. `class` is where waiting for a load stands in the lock order.
        pub const fn new(class: &'static LockClass) -> OnceLatch<T> {
            OnceLatch {
                class,
                state: AtomicU8::new(EMPTY),
                is_loading: Mutex::new(false),
                opened: Condvar::new(),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            }
        }
    }

    const_unless_loom! {
        /// A latch that has its value.
        pub const fn ready(class: &'static LockClass, value: T) -> OnceLatch<T> {
            OnceLatch {
                class,
                state: AtomicU8::new(READY),
                is_loading: Mutex::new(false),
                opened: Condvar::new(),
                value: UnsafeCell::new(MaybeUninit::new(value)),
            }
        }
    }

    /// The value, if it is there.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // The acquire pairs with the release in `load`; `once_latch_loads_once_and_publishes`
        // (loom) fails without.
        if self.state.load(Ordering::Acquire) == READY {
            // SAFETY: READY says that the value is initialised, and it is not written again.
            Some(
                self.value
                    .with(|value| unsafe { (*value).assume_init_ref() }),
            )
        } else {
            None
        }
    }

    /// The value; where it is not there yet, it is loaded by `load`, or by another thread that is
    /// loading already. Gives the error of the calling thread's own load.
    #[inline]
    #[track_caller]
    pub fn get_or_try_init<E>(&self, load: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.get() {
            Some(value) => Ok(value),
            None => {
                order::check_wait(self.class);
                self.load(load)
            }
        }
    }

    /// The value; where it is not there yet, it is made by `load` or by another thread.
    #[inline]
    #[track_caller]
    pub fn get_or_init(&self, load: impl FnOnce() -> T) -> &T {
        let result = self.get_or_try_init(|| Ok::<T, std::convert::Infallible>(load()));
        match result {
            Ok(value) => value,
        }
    }

    #[cold]
    #[track_caller]
    fn load<E>(&self, load: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let Some(turn) = self.take_turn() else {
            return Ok(self.get().expect("READY was seen under the gate"));
        };
        let value = load()?;
        // SAFETY: `turn` makes this thread the only one that loads, the state is not READY (checked
        // under the gate), so nobody reads the value and nobody else writes it.
        self.value
            .with_mut(|place| unsafe { (*place).write(value) });
        self.state.store(READY, Ordering::Release);
        drop(turn);
        Ok(self.get().expect("READY was just stored"))
    }

    /// Waits until nobody is loading. `None` if there is a value then, else the turn to load.
    #[track_caller]
    fn take_turn(&self) -> Option<Turn<'_, T>> {
        let mut is_loading = self.is_loading.lock();
        let metered = Metered {
            class: self.class,
            kind: Kind::Writer,
            // A latch is loaded once or a few times: where, says nothing.
            last_cpu: &LastCpu::new(),
            address: std::ptr::from_ref(self).addr(),
        };
        let holding = if *is_loading {
            let wait = || {
                while *is_loading {
                    self.opened.wait(&mut is_loading);
                }
            };
            metered.wait(wait).1
        } else {
            metered.taken()
        };
        if self.state.load(Ordering::Acquire) == READY {
            return None;
        }
        *is_loading = true;
        Some(Turn {
            latch: self,
            _holding: holding,
        })
    }

    /// The value, through exclusive access.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if self.state.load(Ordering::Acquire) == READY {
            // SAFETY: initialised, and `&mut self` excludes everybody else.
            Some(
                self.value
                    .with_mut(|value| unsafe { (*value).assume_init_mut() }),
            )
        } else {
            None
        }
    }
}

impl<T> Drop for OnceLatch<T> {
    fn drop(&mut self) {
        if self.state.load(Ordering::Acquire) == READY {
            // SAFETY: initialised, dropped once, never used again.
            self.value
                .with_mut(|value| unsafe { (*value).assume_init_drop() });
        }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for OnceLatch<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnceLatch").field(&self.get()).finish()
    }
}

/// The right to load. Its end, by success, error or panic, opens the gate.
struct Turn<'a, T> {
    latch: &'a OnceLatch<T>,
    _holding: Holding,
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        *self.latch.is_loading.lock() = false;
        // All: after success every waiter goes on; after a failure one of them takes the turn and
        // the others wait again.
        self.latch.opened.notify_all();
    }
}
