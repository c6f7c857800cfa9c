//! Times that operations set.
//!
//! A commit writes times as they stand when it comes to an inode, and nobody commits an inode that
//! has no records. So times are set before what tells of them is appended to the log: set after
//! that, they could come after the commit of the records, and be lost when the inode leaves memory.
//! Therefore no code outside of this module can set a time, and a [`Stamped`] goes to the log:
//! [`Namespace::log_group`](crate::namespace::Namespace::log_group) and
//! [`Namespace::log_times`](crate::namespace::Namespace::log_times) set the times first. A thread
//! that looks meanwhile may see the new time of what is about to change.

use finefs_locks::primitive::atomic::Ordering;

use crate::base::types::Timestamp;
use crate::inode::Core;

/// Which of the four times.
#[derive(Clone, Copy)]
pub(crate) enum Time {
    Accessed,
    Modified,
    Changed,
    Created,
}

/// An inode that an operation changes, and the times that it gets.
#[derive(Clone, Copy)]
pub(crate) struct Stamped<'c> {
    core: &'c Core,
    change: TimeChange,
}

#[derive(Clone, Copy)]
enum TimeChange {
    Nothing,
    One(Time, Timestamp),
    Modified(Timestamp),
}

impl<'c> Stamped<'c> {
    pub fn core(self) -> &'c Core {
        self.core
    }

    /// Sets the times, before the change is logged. True when they were others.
    #[inline]
    pub fn set(self) -> bool {
        match self.change {
            TimeChange::Nothing => false,
            TimeChange::One(which, to) => self.core.set_time(which, to),
            TimeChange::Modified(now) => {
                let has_changed = self.core.set_time(Time::Modified, now);
                self.core.set_time(Time::Changed, now) | has_changed
            }
        }
    }
}

impl Core {
    /// It changes, and its times stay.
    #[inline]
    pub fn untimed(&self) -> Stamped<'_> {
        self.stamped(TimeChange::Nothing)
    }

    /// Its attributes or links change now.
    #[inline]
    pub fn changed(&self, now: Timestamp) -> Stamped<'_> {
        self.timed(Time::Changed, now)
    }

    /// Its data or names change now.
    #[inline]
    pub fn modified(&self, now: Timestamp) -> Stamped<'_> {
        self.stamped(TimeChange::Modified(now))
    }

    /// It gets this time.
    #[inline]
    pub fn timed(&self, which: Time, to: Timestamp) -> Stamped<'_> {
        self.stamped(TimeChange::One(which, to))
    }

    #[inline]
    fn stamped(&self, change: TimeChange) -> Stamped<'_> {
        Stamped { core: self, change }
    }

    /// True when it was another time.
    #[inline]
    fn set_time(&self, which: Time, to: Timestamp) -> bool {
        let word = &self.times[which as usize];
        // A hot directory's time line is written once a tick of the clock, not at each operation.
        let has_changed = word.load(Ordering::Relaxed) != to.to_bits();
        if has_changed {
            word.store(to.to_bits(), Ordering::Release);
        }
        has_changed
    }
}
