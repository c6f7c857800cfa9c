//! The lock order checker.
//!
//! # Rules
//! 1. A lock may be taken only when its class's level is higher than the level of every lock that the
//!    thread holds.
//! 2. Exception: locks of one class nest when they are taken with keys, each key greater than the
//!    keys of all held locks of the class (`lock_nested` and its kin), nothing of a higher level
//!    being held.
//! 3. No lock is taken twice by a thread, not even shared.
//! 4. A lock taken by a `try_` function cannot deadlock at that moment, so rules 1 and 2 do not
//!    apply to it; later acquisitions are checked against it.
//!    The same goes for what a `sleep` of a recursive lock takes back.
//! 5. Waiting for a latch or on a condition variable counts as taking a lock at that moment.
//!
//! If all threads keep rules 1 to 3, no cycle of waiting threads can form: in a cycle, some thread
//! would wait for a lock that is not above all it holds.
//!
//! # Data model
//! Each thread has a list of what it holds: class, key, address, and where it was taken. A `Held`
//! in every guard removes its entry when the guard goes. Guards may go in any order.
//!
//! # Cost
//! In debug builds, and with the feature `order-check`, a list operation per acquisition. Otherwise
//! nothing: `Held` is then empty and the functions do nothing.

use std::marker::PhantomData;

use finefs_lockmeter::LockClass;

/// Orders locks of one class that are held together: compared first by `.0`, then by `.1`.
///
/// ```
/// # use finefs_locks::OrderKey;
/// let (directory, bucket): OrderKey = (7, 3);
/// assert!((directory, bucket) < (7, 4) && (7, 4) < (8, 0));
/// ```
pub type OrderKey = (u64, u64);

/// True when this build checks the lock order.
///
/// ```
/// if finefs_locks::order::IS_CHECKING {
///     println!("a wrong order panics");
/// }
/// ```
pub const IS_CHECKING: bool = cfg!(any(debug_assertions, feature = "order-check"));

/// Evidence in a guard that the lock is on the thread's list. Not `Send`: a guard stays with its
/// thread.
#[derive(Debug)]
#[must_use]
pub(crate) struct Held {
    #[cfg(any(debug_assertions, feature = "order-check"))]
    id: u64,
    not_send: PhantomData<std::sync::MutexGuard<'static, ()>>,
}

#[cfg(any(debug_assertions, feature = "order-check"))]
mod checking {
    use std::cell::RefCell;
    use std::panic::Location;

    use super::{Held, LockClass, OrderKey, PhantomData};

    struct Entry {
        id: u64,
        class: &'static LockClass,
        key: Option<OrderKey>,
        address: usize,
        location: &'static Location<'static>,
    }

    #[derive(Default)]
    struct HeldList {
        entries: Vec<Entry>,
        last_id: u64,
    }

    crate::primitive::thread_local! {
        static HELD: RefCell<HeldList> = RefCell::new(HeldList::default());
    }

    impl HeldList {
        fn check(
            &self,
            class: &'static LockClass,
            key: Option<OrderKey>,
            address: Option<usize>,
            location: &Location<'_>,
        ) {
            for held in &self.entries {
                // A lock may lie at the address of another that contains it: compare the class too.
                let is_same_class = std::ptr::eq(held.class, class);
                let problem = if is_same_class && Some(held.address) == address {
                    "re-entry into a lock"
                } else if held.class.level() < class.level() {
                    continue;
                } else if !is_same_class {
                    "lock order inversion"
                } else {
                    match (held.key, key) {
                        (Some(old), Some(new)) if new > old => continue,
                        (Some(_), Some(_)) => "same-class locks nested out of key order",
                        _ => "same-class locks nested without keys",
                    }
                };
                panic!(
                    "{problem}: taking `{}` (level {}, key {key:?}) at {location}, while `{}` \
                     (level {}, key {:?}) is held since {}",
                    class.name(),
                    class.level(),
                    held.class.name(),
                    held.class.level(),
                    held.key,
                    held.location,
                );
            }
        }
    }

    fn push(
        class: &'static LockClass,
        key: Option<OrderKey>,
        address: usize,
        location: &'static Location<'static>,
        is_checked: bool,
    ) -> Held {
        // Where the thread is ending and its list is gone, nothing is checked (id 0).
        let id = HELD.try_with(|list| {
            let mut list = list.borrow_mut();
            // A second panic would abort and hide the first.
            if is_checked && !std::thread::panicking() {
                list.check(class, key, Some(address), location);
            }
            list.last_id += 1;
            let id = list.last_id;
            list.entries.push(Entry {
                id,
                class,
                key,
                address,
                location,
            });
            id
        });
        Held {
            id: id.unwrap_or(0),
            not_send: PhantomData,
        }
    }

    #[track_caller]
    pub(crate) fn acquire(
        class: &'static LockClass,
        key: Option<OrderKey>,
        address: usize,
    ) -> Held {
        push(class, key, address, Location::caller(), true)
    }

    #[track_caller]
    pub(crate) fn acquired_by_try(
        class: &'static LockClass,
        key: Option<OrderKey>,
        address: usize,
    ) -> Held {
        push(class, key, address, Location::caller(), false)
    }

    #[track_caller]
    pub(crate) fn check_wait(class: &'static LockClass) {
        let location = Location::caller();
        if std::thread::panicking() {
            return;
        }
        let _ = HELD.try_with(|list| list.borrow().check(class, None, None, location));
    }

    impl Held {
        /// Checks that taking this lock once more, after releasing it, would keep the order: what a
        /// wait on a condition variable does.
        #[track_caller]
        pub(crate) fn check_retake(&self) {
            let location = Location::caller();
            let _ = HELD.try_with(|list| {
                let list = list.borrow();
                let Some(own) = list.entries.iter().find(|entry| entry.id == self.id) else {
                    return;
                };
                let others = list.entries.iter().filter(|entry| entry.id != self.id);
                for other in others {
                    let is_below = other.class.level() < own.class.level()
                        || (std::ptr::eq(other.class, own.class) && other.key < own.key);
                    assert!(
                        is_below,
                        "waiting at {location} with `{}` (taken at {}) releases and retakes it \
                         below `{}`, held since {}",
                        own.class.name(),
                        own.location,
                        other.class.name(),
                        other.location,
                    );
                }
            });
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            let _ = HELD.try_with(|list| {
                let mut list = list.borrow_mut();
                // Most guards go in the reverse order.
                if let Some(at) = list.entries.iter().rposition(|entry| entry.id == self.id) {
                    list.entries.remove(at);
                }
            });
        }
    }

    /// The names of the classes of the locks that the thread holds, in the order of acquisition.
    ///
    /// ```
    /// # use finefs_locks::order::{IS_CHECKING, held_classes};
    /// # use finefs_locks::{LockClass, Mutex};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let table = Mutex::new(&CLASS, 1);
    /// let guard = table.lock();
    /// assert!(!IS_CHECKING || held_classes() == ["example"]);
    /// # drop(guard);
    /// ```
    pub fn held_classes() -> Vec<&'static str> {
        let names = |list: &RefCell<HeldList>| {
            list.borrow()
                .entries
                .iter()
                .map(|entry| entry.class.name())
                .collect()
        };
        HELD.try_with(names).unwrap_or_default()
    }
}

#[cfg(not(any(debug_assertions, feature = "order-check")))]
mod checking {
    use super::{Held, LockClass, OrderKey, PhantomData};

    #[inline(always)]
    pub(crate) fn acquire(_: &'static LockClass, _: Option<OrderKey>, _: usize) -> Held {
        Held {
            not_send: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn acquired_by_try(_: &'static LockClass, _: Option<OrderKey>, _: usize) -> Held {
        Held {
            not_send: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn check_wait(_: &'static LockClass) {}

    impl Held {
        #[inline(always)]
        pub(crate) fn check_retake(&self) {}
    }

    /// Empty: this build does not keep the list.
    ///
    /// ```
    /// assert!(finefs_locks::order::held_classes().is_empty());
    /// ```
    pub fn held_classes() -> Vec<&'static str> {
        Vec::new()
    }
}

pub use checking::held_classes;
pub(crate) use checking::{acquire, acquired_by_try, check_wait};
