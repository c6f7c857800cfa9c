//! The lock order checker.
//!
//! # Rules
//! 1. A lock may be taken only when its class's level is higher than the level of every lock that
//!    the thread holds.
//! 2. Exception: locks of one class nest when they are taken with keys, each key greater than the
//!    keys of all held locks of the class (`lock_nested` and its kin), nothing of a higher level
//!    being held.
//! 3. No lock is taken twice by a thread, not even shared.
//! 4. A lock taken by a `try_` function cannot deadlock at that moment, so rules 1 and 2 do not
//!    apply to it; later acquisitions are checked against it.
//!    The same goes for what a `sleep` of a recursive lock takes back.
//! 5. Waiting for a latch or on a condition variable counts as taking a lock at that moment.
//! 6. While a thread waits for a device it holds only locks whose classes allow that
//!    ([`LockClass::held_over_io`]), however they were taken: [`check_io`].
//!
//! If all threads keep rules 1 to 3, no cycle of waiting threads can form: in a cycle, some thread
//! would wait for a lock that is not above all it holds.
//!
//! # Data model
//! Each thread has a list of what it holds: class, key, address, and where it was taken. A `Held`
//! in every guard removes its entry when the guard goes. Guards may go in any order.
//!
//! What was taken by the rules is in ascending order of level and key. So a lock above the last of
//! these is above them all. What came in another way (rule 4) is apart, and looked through; it is
//! little.
//!
//! # Cost
//! In debug builds, and with the feature `order-check`, a list operation per acquisition. It does
//! not grow with the number of locks held: removing a directory of a million names holds some
//! hundred thousand. Only guards that go from the middle of many move the others. Otherwise
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
    use std::collections::{HashSet, VecDeque};
    use std::panic::Location;

    use super::{Held, LockClass, OrderKey, PhantomData};

    /// So many entries are looked through for a lock that is taken twice; of more there is an
    /// index.
    const SEARCHED_MAX: usize = 16;

    /// A class, and the address of a lock of it: a lock may lie at the address of another that
    /// contains it.
    type Place = (usize, usize);

    #[derive(Clone, Copy)]
    struct Entry {
        id: u64,
        class: &'static LockClass,
        key: Option<OrderKey>,
        /// `None` for what is only waited for.
        address: Option<usize>,
        location: &'static Location<'static>,
    }

    #[derive(Default)]
    struct HeldList {
        /// Each above the one before it, so above all before it; ids ascend too.
        ordered: VecDeque<Entry>,
        /// Those of `ordered` by their places, while they are too many to look through; else empty.
        places: HashSet<Place>,
        /// What was taken without a check, and is not above `ordered`.
        exempt: Vec<Entry>,
        last_id: u64,
        /// So many calls of [`allowing_io`] are under way.
        io_allowed: u32,
    }

    crate::primitive::thread_local! {
        static HELD: RefCell<HeldList> = RefCell::new(HeldList::default());
    }

    impl Entry {
        fn is_of_class_of(&self, other: &Entry) -> bool {
            std::ptr::eq(self.class, other.class)
        }

        fn place(&self) -> Option<Place> {
            let class = std::ptr::from_ref(self.class).addr();
            self.address.map(|address| (class, address))
        }

        fn is_same_lock(&self, other: &Entry) -> bool {
            self.place().is_some() && self.place() == other.place()
        }

        /// True when the rules let a thread take this while it holds `held`.
        fn is_above(&self, held: &Entry) -> bool {
            super::count_steps(1);
            if !self.is_of_class_of(held) {
                return held.class.level() < self.class.level();
            }
            let is_greater = matches!((held.key, self.key), (Some(old), Some(new)) if new > old);
            is_greater && !self.is_same_lock(held)
        }

        /// What is wrong with taking this while `held` is, which it is not above.
        fn problem(&self, held: &Entry) -> &'static str {
            match (held.key, self.key) {
                _ if self.is_same_lock(held) => "re-entry into a lock",
                _ if !self.is_of_class_of(held) => "lock order inversion",
                (Some(_), Some(_)) => "same-class locks nested out of key order",
                _ => "same-class locks nested without keys",
            }
        }
    }

    impl HeldList {
        /// What is held, in the order of acquisition.
        fn all(&self) -> Vec<Entry> {
            let mut all: Vec<Entry> = self.ordered.iter().chain(&self.exempt).copied().collect();
            all.sort_unstable_by_key(|entry| entry.id);
            all
        }

        /// True when `new` keeps `ordered` in order.
        fn is_above_ordered(&self, new: &Entry) -> bool {
            let Some(last) = self.ordered.back() else {
                return true;
            };
            // What is above the last in another class is in one that is not held.
            new.is_above(last) && !(new.is_of_class_of(last) && self.holds(new))
        }

        /// True when the lock is among `ordered`.
        fn holds(&self, new: &Entry) -> bool {
            match new.place() {
                Some(place) if self.ordered.len() > SEARCHED_MAX => self.places.contains(&place),
                _ => self.ordered.iter().any(|held| new.is_same_lock(held)),
            }
        }

        fn is_above_exempt(&self, new: &Entry) -> bool {
            self.exempt.iter().all(|held| new.is_above(held))
        }

        /// Says what stands in the way of taking `new`.
        fn refuse(&self, new: &Entry) -> ! {
            let held = self.all().into_iter();
            let mut lower = held.filter(|held| new.is_same_lock(held) || !new.is_above(held));
            let held = lower.next().expect("one of them is what was found");
            panic!(
                "{}: taking `{}` (level {}, key {:?}) at {}, while `{}` \
                 (level {}, key {:?}) is held since {}",
                new.problem(&held),
                new.class.name(),
                new.class.level(),
                new.key,
                new.location,
                held.class.name(),
                held.class.level(),
                held.key,
                held.location,
            );
        }

        fn push(&mut self, new: Entry, is_checked: bool) {
            let is_above_ordered = self.is_above_ordered(&new);
            if is_checked && !(is_above_ordered && self.is_above_exempt(&new)) {
                self.refuse(&new);
            }
            if !is_above_ordered {
                self.exempt.push(new);
                return;
            }
            self.ordered.push_back(new);
            match self.ordered.len() {
                0..=SEARCHED_MAX => {}
                length if length == SEARCHED_MAX + 1 => {
                    self.places = self.ordered.iter().filter_map(Entry::place).collect();
                }
                _ => self.places.extend(new.place()),
            }
        }

        fn remove(&mut self, id: u64) {
            let Ok(at) = self.ordered.binary_search_by_key(&id, |entry| entry.id) else {
                if let Some(at) = self.exempt.iter().rposition(|entry| entry.id == id) {
                    self.exempt.remove(at);
                }
                return;
            };
            super::count_steps(at.min(self.ordered.len() - at));
            let removed = self.ordered.remove(at);
            if self.ordered.len() <= SEARCHED_MAX {
                self.places = HashSet::new();
            } else if let Some(place) = removed.and_then(|entry| entry.place()) {
                self.places.remove(&place);
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
            list.last_id += 1;
            let new = Entry {
                id: list.last_id,
                class,
                key,
                address: Some(address),
                location,
            };
            // A second panic would abort and hide the first.
            list.push(new, is_checked && !std::thread::panicking());
            new.id
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
        let waited_for = Entry {
            id: 0,
            class,
            key: None,
            address: None,
            location: Location::caller(),
        };
        if std::thread::panicking() {
            return;
        }
        let _ = HELD.try_with(|list| {
            let list = list.borrow();
            if !(list.is_above_ordered(&waited_for) && list.is_above_exempt(&waited_for)) {
                list.refuse(&waited_for);
            }
        });
    }

    /// Panics where the thread holds a lock that is not to be held over I/O: to be called by what
    /// reads and writes a device.
    #[track_caller]
    pub fn check_io() {
        if std::thread::panicking() {
            return;
        }
        let location = Location::caller();
        let _ = HELD.try_with(|list| {
            let list = list.borrow();
            let (all, is_allowed) = (list.all(), list.io_allowed > 0);
            drop(list);
            let mut forbidden = all.iter().filter(|held| !held.class.is_held_over_io());
            if let Some(held) = forbidden.next().filter(|_| !is_allowed) {
                panic!(
                    "I/O at {location} while `{}` is held since {}",
                    held.class.name(),
                    held.location,
                );
            }
        });
    }

    /// Does work in which the thread may wait for a device whatever it holds: for a rare operation,
    /// for whose locks only threads wait that want the same object.
    pub fn allowing_io<T>(work: impl FnOnce() -> T) -> T {
        struct Allowed;
        impl Drop for Allowed {
            fn drop(&mut self) {
                let _ = HELD.try_with(|list| list.borrow_mut().io_allowed -= 1);
            }
        }
        let allowed = HELD.try_with(|list| list.borrow_mut().io_allowed += 1);
        let _allowed = allowed.map(|()| Allowed);
        work()
    }

    impl Held {
        /// Checks that taking this lock once more, after releasing it, would keep the order: what a
        /// wait on a condition variable does.
        #[track_caller]
        pub(crate) fn check_retake(&self) {
            let location = Location::caller();
            let _ = HELD.try_with(|list| {
                let all = list.borrow().all();
                let Some(own) = all.iter().find(|entry| entry.id == self.id) else {
                    return;
                };
                let mut others = all.iter().filter(|entry| entry.id != self.id);
                if let Some(other) = others.find(|other| !own.is_above(other)) {
                    panic!(
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
            let _ = HELD.try_with(|list| list.borrow_mut().remove(self.id));
        }
    }

    /// The names of the classes of the locks that the thread holds, in the order of acquisition.
    pub fn held_classes() -> Vec<&'static str> {
        let names = |list: &RefCell<HeldList>| {
            let all = list.borrow().all().into_iter();
            all.map(|entry| entry.class.name()).collect()
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
    pub fn held_classes() -> Vec<&'static str> {
        Vec::new()
    }

    /// Nothing: this build does not keep the list.
    #[inline(always)]
    pub fn check_io() {}

    /// The work: this build does not keep the list.
    #[inline(always)]
    pub fn allowing_io<T>(work: impl FnOnce() -> T) -> T {
        work()
    }
}

pub(crate) use checking::{acquire, acquired_by_try, check_wait};
pub use checking::{allowing_io, check_io, held_classes};

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts entries that are looked at or moved, in tests.
#[cfg(any(debug_assertions, feature = "order-check"))]
#[inline(always)]
fn count_steps(_steps: usize) {
    #[cfg(all(test, not(any(loom, feature = "shuttle"))))]
    STEPS.with(|steps| steps.set(steps.get() + _steps));
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests;
