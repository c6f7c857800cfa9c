//! What holds a range: [`RangeGuard`], and [`SendRangeGuard`], which may go to another thread.

use std::ops::Range;

use super::RangeLock;
use super::cell::Cell;
use super::node::Access;
use crate::metered_guard::MeteredGuard;
use crate::order::Held;
use crate::wait;

/// A range of a lock, and its cell: the lock's, one of a group, or a node's, none of which is the
/// thread's. So a holding may be given back by any thread.
#[derive(Debug)]
struct HeldRange<'a> {
    lock: &'a RangeLock,
    range: Range<u64>,
    access: Access,
    cell: &'a Cell,
}

impl HeldRange<'_> {
    fn shrink(&mut self, to: &Range<u64>) {
        if self.range.is_empty() {
            // Nothing to give back; and its end may come before its start.
            return;
        }
        let start = to.start.clamp(self.range.start, self.range.end);
        let range = start..to.end.clamp(start, self.range.end);
        if range != self.range {
            self.cell = self.lock.shrink(self.cell, &range, self.access);
            self.range = range;
        }
    }

    fn downgrade(&mut self) {
        if self.access == Access::Write {
            self.lock.downgrade(self.cell, &self.range);
            self.access = Access::Read;
        }
    }
}

impl Drop for HeldRange<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.release(self.cell, self.access);
    }
}

/// Holds a range of a [`RangeLock`]; releases it when dropped. Stays with its thread, whose held
/// locks the order checker knows; [`RangeGuard::into_send`] makes one that need not.
///
/// ```
/// # use finefs_locks::{LockClass, RangeLock};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let data = RangeLock::new(&CLASS);
/// let guard = data.write(0..10);
/// assert!(guard.is_write());
/// drop(guard);
/// ```
#[derive(Debug)]
#[must_use = "the range is released when the guard is dropped"]
pub struct RangeGuard<'a> {
    holding: MeteredGuard<HeldRange<'a>>,
    _held: Held,
}

impl<'a> RangeGuard<'a> {
    #[inline]
    pub(super) fn new(
        lock: &'a RangeLock,
        range: Range<u64>,
        access: Access,
        cell: &'a Cell,
        held: Held,
        metered: wait::Holding,
    ) -> RangeGuard<'a> {
        let holding = HeldRange {
            lock,
            range,
            access,
            cell,
        };
        RangeGuard {
            holding: MeteredGuard::new(holding, metered),
            _held: held,
        }
    }

    /// The range that is held, as it was asked for or shrunk.
    pub fn range(&self) -> Range<u64> {
        self.holding.range.clone()
    }

    /// True when the range is held exclusively.
    pub fn is_write(&self) -> bool {
        self.holding.access == Access::Write
    }

    /// Gives back all but `to`, or but what of `to` is held.
    pub fn shrink(&mut self, to: Range<u64>) {
        self.holding.shrink(&to);
    }

    /// Turns an exclusive range into a shared one, without anybody else in between.
    pub fn downgrade(&mut self) {
        self.holding.downgrade();
    }

    /// A guard that may go to another thread, as the buffer of an asynchronous write does. The
    /// order checker loses sight of it: a thread that waits for the range while holding other locks
    /// must know that its holder needs none of them.
    pub fn into_send(self) -> SendRangeGuard<'a> {
        SendRangeGuard(self.holding)
    }
}

/// Holds a range of a [`RangeLock`]; releases it when dropped, on whatever thread. See
/// [`RangeGuard::into_send`].
///
/// ```
/// # use finefs_locks::{LockClass, RangeLock};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let data = RangeLock::new(&CLASS);
/// let guard = data.write(0..10).into_send();
/// std::thread::scope(|scope| {
///     scope.spawn(move || drop(guard));
/// });
/// ```
#[derive(Debug)]
#[must_use = "the range is released when the guard is dropped"]
pub struct SendRangeGuard<'a>(MeteredGuard<HeldRange<'a>>);

impl SendRangeGuard<'_> {
    /// The range that is held.
    pub fn range(&self) -> Range<u64> {
        self.0.range.clone()
    }

    /// True when the range is held exclusively.
    pub fn is_write(&self) -> bool {
        self.0.access == Access::Write
    }

    /// Gives back all but `to`, or but what of `to` is held.
    pub fn shrink(&mut self, to: Range<u64>) {
        self.0.shrink(&to);
    }

    /// Turns an exclusive range into a shared one, without anybody else in between.
    pub fn downgrade(&mut self) {
        self.0.downgrade();
    }
}
