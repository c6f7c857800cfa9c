//! [`RangeRwLock`]: a slice of which threads read and write different parts at the same time.
//!
//! A [`RangeLock`] over the indices decides who may have which part; the guards give it as a slice.
//!
//! # Invariants
//! 1. A guard's slice is the part of the items whose indices its range of the lock holds. So slices
//!    that may be written to overlap no other.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::time::{Duration, Instant};

use finefs_lockmeter::LockClass;

use crate::range_lock::{RangeGuard, RangeLock};

/// A slice with a lock over ranges of its indices: a [`RangeLock`], whose promises hold here too,
/// and guards that give the part that they hold as a slice. So a thread holds one part at a time;
/// ranges that a slice would not take panic.
///
/// ```
/// use finefs_locks::{LockClass, RangeRwLock};
/// static PIXELS: LockClass = LockClass::new("example.pixels", 10);
/// let pixels = RangeRwLock::new(&PIXELS, vec![0_u8; 100]);
/// std::thread::scope(|scope| {
///     scope.spawn(|| pixels.write(0..50).fill(1));
///     scope.spawn(|| pixels.write(50..100).fill(2));
/// });
/// assert_eq!(pixels.read(49..51)[..], [1, 2]);
/// ```
pub struct RangeRwLock<T> {
    lock: RangeLock,
    items: Box<[UnsafeCell<T>]>,
}

// SAFETY: the lock gives a part to one writer or to readers only (invariant 1). A writer may take
// items out and put others in, so `T` must be `Send`; readers share them, so it must be `Sync`.
unsafe impl<T: Send + Sync> Sync for RangeRwLock<T> {}

/// Reads a part of a [`RangeRwLock`]'s items.
///
/// ```
/// # use finefs_locks::{LockClass, RangeRwLock};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
/// let part = items.read(1..3);
/// assert_eq!(part[..], [2, 3]);
/// ```
#[must_use = "the range is released when the guard is dropped"]
pub struct RangeReadGuard<'a, T> {
    items: &'a [UnsafeCell<T>],
    range: RangeGuard<'a>,
}

/// Reads and writes a part of a [`RangeRwLock`]'s items.
///
/// ```
/// # use finefs_locks::{LockClass, RangeRwLock};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
/// let mut part = items.write(1..3);
/// part.reverse();
/// drop(part);
/// assert_eq!(items.into_inner(), [1, 3, 2, 4]);
/// ```
#[must_use = "the range is released when the guard is dropped"]
pub struct RangeWriteGuard<'a, T> {
    items: &'a [UnsafeCell<T>],
    range: RangeGuard<'a>,
}

/// The numbers of a lock's offsets for a slice's indices. Panics where a slice would.
fn offsets<T>(items: &[UnsafeCell<T>], range: &Range<usize>) -> Range<u64> {
    assert!(
        range.start <= range.end && range.end <= items.len(),
        "range {range:?} of a slice of length {}",
        items.len()
    );
    range.start as u64..range.end as u64
}

/// The items of a held range.
fn held<'a, T>(items: &'a [UnsafeCell<T>], range: &RangeGuard<'_>) -> &'a [UnsafeCell<T>] {
    let range = range.range();
    &items[range.start as usize..range.end as usize]
}

impl<T> RangeRwLock<T> {
    /// A lock over `items`, of which nothing is held.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// static CLASS: LockClass = LockClass::new("example", 10);
    /// let items = RangeRwLock::new(&CLASS, vec![0; 8]);
    /// assert_eq!(items.len(), 8);
    /// ```
    pub fn new(class: &'static LockClass, items: impl Into<Vec<T>>) -> RangeRwLock<T> {
        RangeRwLock {
            lock: RangeLock::new(class),
            items: items.into().into_iter().map(UnsafeCell::new).collect(),
        }
    }

    /// How many items there are.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// assert_eq!(items.len(), 4);
    /// ```
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when there are no items.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// assert!(!items.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes a part for reading. Panics if it is not within the items; so do all that follow.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// assert_eq!(items.read(2..4)[..], [3, 4]);
    /// ```
    #[track_caller]
    pub fn read(&self, range: Range<usize>) -> RangeReadGuard<'_, T> {
        self.reading(self.lock.read(offsets(&self.items, &range)))
    }

    /// Takes a part for writing.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// items.write(2..4).fill(0);
    /// assert_eq!(items.into_inner(), [1, 2, 0, 0]);
    /// ```
    #[track_caller]
    pub fn write(&self, range: Range<usize>) -> RangeWriteGuard<'_, T> {
        self.writing(self.lock.write(offsets(&self.items, &range)))
    }

    /// Takes a part for reading if that needs no waiting.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// let part = items.write(0..2);
    /// assert!(items.try_read(1..3).is_none());
    /// assert!(items.try_read(2..4).is_some());
    /// # drop(part);
    /// ```
    #[track_caller]
    pub fn try_read(&self, range: Range<usize>) -> Option<RangeReadGuard<'_, T>> {
        let guard = self.lock.try_read(offsets(&self.items, &range))?;
        Some(self.reading(guard))
    }

    /// Takes a part for writing if that needs no waiting.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// let part = items.read(0..2);
    /// assert!(items.try_write(1..3).is_none());
    /// # drop(part);
    /// ```
    #[track_caller]
    pub fn try_write(&self, range: Range<usize>) -> Option<RangeWriteGuard<'_, T>> {
        let guard = self.lock.try_write(offsets(&self.items, &range))?;
        Some(self.writing(guard))
    }

    /// Takes a part for reading, waiting no longer than `timeout`.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// # use std::time::{Duration, Instant};
    /// let part = items.write(0..2);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(items.read_timeout(1..3, Duration::from_millis(1)).is_none()));
    /// });
    /// # drop(part);
    /// ```
    #[track_caller]
    pub fn read_timeout(
        &self,
        range: Range<usize>,
        timeout: Duration,
    ) -> Option<RangeReadGuard<'_, T>> {
        let range = offsets(&self.items, &range);
        Some(self.reading(self.lock.read_timeout(range, timeout)?))
    }

    /// Takes a part for writing, waiting no longer than `timeout`.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// # use std::time::{Duration, Instant};
    /// let part = items.write(0..2);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(items.write_timeout(1..3, Duration::from_millis(1)).is_none()));
    /// });
    /// # drop(part);
    /// ```
    #[track_caller]
    pub fn write_timeout(
        &self,
        range: Range<usize>,
        timeout: Duration,
    ) -> Option<RangeWriteGuard<'_, T>> {
        let range = offsets(&self.items, &range);
        Some(self.writing(self.lock.write_timeout(range, timeout)?))
    }

    /// Takes a part for reading, waiting no longer than until `deadline`.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// # use std::time::{Duration, Instant};
    /// let part = items.write(0..2);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(items.read_deadline(1..3, Instant::now()).is_none()));
    /// });
    /// # drop(part);
    /// ```
    #[track_caller]
    pub fn read_deadline(
        &self,
        range: Range<usize>,
        deadline: Instant,
    ) -> Option<RangeReadGuard<'_, T>> {
        let range = offsets(&self.items, &range);
        Some(self.reading(self.lock.read_deadline(range, deadline)?))
    }

    /// Takes a part for writing, waiting no longer than until `deadline`.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// # use std::time::{Duration, Instant};
    /// let part = items.write(0..2);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(items.write_deadline(1..3, Instant::now()).is_none()));
    /// });
    /// # drop(part);
    /// ```
    #[track_caller]
    pub fn write_deadline(
        &self,
        range: Range<usize>,
        deadline: Instant,
    ) -> Option<RangeWriteGuard<'_, T>> {
        let range = offsets(&self.items, &range);
        Some(self.writing(self.lock.write_deadline(range, deadline)?))
    }

    /// The items, through exclusive access.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let mut items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// items.get_mut()[0] = 9;
    /// assert_eq!(items.read(0..1)[..], [9]);
    /// ```
    pub fn get_mut(&mut self) -> &mut [T] {
        let items: *mut [UnsafeCell<T>] = &raw mut *self.items;
        // SAFETY: an `UnsafeCell` has the layout of what is in it, and nobody else has access.
        unsafe { &mut *(items as *mut [T]) }
    }

    /// The items.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// assert_eq!(items.into_inner().len(), 4);
    /// ```
    pub fn into_inner(self) -> Vec<T> {
        self.items.into_iter().map(UnsafeCell::into_inner).collect()
    }

    fn reading<'a>(&'a self, range: RangeGuard<'a>) -> RangeReadGuard<'a, T> {
        let items = held(&self.items, &range);
        RangeReadGuard { items, range }
    }

    fn writing<'a>(&'a self, range: RangeGuard<'a>) -> RangeWriteGuard<'a, T> {
        let items = held(&self.items, &range);
        RangeWriteGuard { items, range }
    }
}

impl<T> RangeReadGuard<'_, T> {
    /// Gives back all but `to`, or but what of `to` is held; in indices of the whole.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let items = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// let mut part = items.read(0..4);
    /// part.shrink(1..3);
    /// assert_eq!(part[..], [2, 3]);
    /// assert!(items.try_write(3..4).is_some());
    /// ```
    pub fn shrink(&mut self, to: Range<usize>) {
        let start = self.range.range().start;
        self.range.shrink(to.start as u64..to.end as u64);
        let range = self.range.range();
        self.items = &self.items[(range.start - start) as usize..(range.end - start) as usize];
    }
}

impl<'a, T> RangeWriteGuard<'a, T> {
    /// Gives back all but `to`, or but what of `to` is held; in indices of the whole.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// let numbers = RangeRwLock::new(&CLASS, vec![1, 2, 3, 4]);
    /// let mut part = numbers.write(1..4);
    /// part.shrink(2..3);
    /// assert_eq!(part[..], [3]);
    /// assert!(numbers.try_write(3..4).is_some());
    /// ```
    pub fn shrink(&mut self, to: Range<usize>) {
        let start = self.range.range().start;
        self.range.shrink(to.start as u64..to.end as u64);
        let range = self.range.range();
        self.items = &self.items[(range.start - start) as usize..(range.end - start) as usize];
    }

    /// Goes on reading, and lets others read, without anybody else writing in between.
    ///
    /// ```
    /// # use finefs_locks::{LockClass, RangeRwLock};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// let numbers = RangeRwLock::new(&CLASS, vec![1, 2]);
    /// let mut part = numbers.write(0..2);
    /// part[0] = 5;
    /// let part = part.downgrade();
    /// assert_eq!(numbers.try_read(0..2).unwrap()[..], part[..]);
    /// ```
    pub fn downgrade(mut self) -> RangeReadGuard<'a, T> {
        self.range.downgrade();
        RangeReadGuard {
            items: self.items,
            range: self.range,
        }
    }
}

impl<T> Deref for RangeReadGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        let items: *const [UnsafeCell<T>] = self.items;
        // SAFETY: an `UnsafeCell` has the layout of what is in it. While the guard lives nobody
        // writes to these items (invariant 1).
        unsafe { &*(items as *const [T]) }
    }
}

impl<T> Deref for RangeWriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        let items: *const [UnsafeCell<T>] = self.items;
        // SAFETY: as for a reader; and this guard's own writing borrows it exclusively.
        unsafe { &*(items as *const [T]) }
    }
}

impl<T> DerefMut for RangeWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let first = self.items.as_ptr().cast::<T>().cast_mut();
        // SAFETY: the items lie in `UnsafeCell`s, from which the pointer comes, and nobody else has
        // access to them while the guard lives (invariant 1), which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(first, self.items.len()) }
    }
}

impl<T: fmt::Debug> fmt::Debug for RangeReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for RangeWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Without the items: to read them would take the lock.
impl<T> fmt::Debug for RangeRwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeRwLock")
            .field("len", &self.items.len())
            .field("lock", &self.lock)
            .finish()
    }
}
