//! [`FileLocks`]: the locks that are held on one file, and its waiters.
//!
//! # Invariants
//! 1. A request in the queue conflicts with a lock that is held.
//! 2. Its waiter's blockers are the owners of just the locks that it conflicts with.
//! 3. A request counts [`CREDIT`] locks against the limit while it waits, so that granting it
//!    cannot fail.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::lock_set::{ADDED_MAX, Change, LockSet};
use super::waiter::Waiter;
use super::waits_for::WaitsFor;
use super::{Family, LockKind, Owner};
use crate::base::error::{Error, Result};

/// What a request takes from the limit before it knows what it needs.
pub(crate) const CREDIT: u64 = ADDED_MAX;

/// The locks of one file.
pub(crate) struct FileLocks {
    /// Byte ranges: of processes and of open files, which exclude each other.
    ranges: Queue,
    /// flock: whole files, of open files.
    whole: Queue,
}

/// The locks of one family, and its waiters in the order of arrival.
struct Queue {
    held: LockSet,
    waiters: Vec<Arc<Waiter>>,
}

/// What becomes of a request that is not granted at once.
pub(crate) enum IfBusy {
    /// It fails.
    Refuse,
    /// It waits, and somebody sleeps for it.
    Wait,
    /// It waits, and this is called at the end of the wait, under the lock of the file's locks.
    Call(Box<dyn Fn() + Send + Sync>),
}

/// What a request comes to.
pub(crate) enum Asked {
    /// It is granted.
    Granted,
    /// It waits.
    Waits(Arc<Waiter>),
    /// It is refused.
    Refused(Error),
}

impl FileLocks {
    pub(crate) fn new() -> FileLocks {
        let queue = || Queue {
            held: LockSet::new(),
            waiters: Vec::new(),
        };
        FileLocks {
            ranges: queue(),
            whole: queue(),
        }
    }

    fn queue(&mut self, family: Family) -> &mut Queue {
        match family {
            Family::Range => &mut self.ranges,
            Family::Whole => &mut self.whole,
        }
    }

    /// True when nothing is held. Then nobody waits (invariant 1).
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.held.is_empty() && self.whole.held.is_empty()
    }

    /// Asks for a lock. `credits` counts what goes back to the limit; a request that waits keeps
    /// its own.
    pub(crate) fn ask(
        &mut self,
        family: Family,
        (owner, kind, range): (Owner, LockKind, &Range<u64>),
        if_busy: IfBusy,
        graph: &WaitsFor,
        credits: &mut i64,
    ) -> Asked {
        let queue = self.queue(family);
        *credits += CREDIT as i64;
        if queue.held.has(owner, kind, range) {
            return Asked::Granted;
        }
        // flock(2): to convert a lock is not atomic, the old one goes first.
        if family == Family::Whole && queue.held.has_any(owner, range) {
            queue.change(owner, None, range, credits);
        }
        if queue.held.conflict(owner, kind, range).is_none() {
            queue.change(owner, Some(kind), range, credits);
            return Asked::Granted;
        }
        let at_end = match if_busy {
            IfBusy::Refuse => return Asked::Refused(Error::WouldBlock),
            IfBusy::Wait => None,
            IfBusy::Call(at_end) => Some(at_end),
        };
        let blockers = queue.held.blockers(owner, kind, range);
        let request = (owner, kind, range.clone());
        let waiter = Arc::new(Waiter::new(request, blockers, at_end));
        if owner.has_deadlock_detection() && !graph.enter(&waiter) {
            return Asked::Refused(Error::Deadlock);
        }
        *credits -= CREDIT as i64;
        queue.waiters.push(Arc::clone(&waiter));
        Asked::Waits(waiter)
    }

    /// Unlocks a range of the owner's.
    pub(crate) fn unlock(
        &mut self,
        family: Family,
        owner: Owner,
        range: &Range<u64>,
        credits: &mut i64,
    ) {
        self.queue(family).change(owner, None, range, credits);
    }

    /// Drops all locks of the owner, of both families.
    pub(crate) fn clear(&mut self, owner: Owner, credits: &mut i64) {
        for queue in [&mut self.ranges, &mut self.whole] {
            let change = queue.held.clear(owner);
            queue.changed(change, &(0..u64::MAX), credits);
        }
    }

    /// Drops all locks of these owners, of both families, and takes back what they wait for: first
    /// that, so that no lock goes from one of them to the next.
    pub(crate) fn clear_all(&mut self, owners: &HashSet<Owner>, credits: &mut i64) {
        for queue in [&mut self.ranges, &mut self.whole] {
            let before = queue.waiters.len();
            queue
                .waiters
                .retain(|waiter| !owners.contains(&waiter.owner));
            *credits += ((before - queue.waiters.len()) as u64 * CREDIT) as i64;
            let mut all = Change {
                is_weaker: false,
                added: 0,
            };
            for owner in owners {
                let change = queue.held.clear(*owner);
                all.is_weaker |= change.is_weaker;
                all.added += change.added;
            }
            queue.changed(all, &(0..u64::MAX), credits);
        }
    }

    /// Takes a waiting request back; false when it is not waiting any more.
    pub(crate) fn withdraw(&mut self, family: Family, waiter: &Arc<Waiter>) -> bool {
        let waiters = &mut self.queue(family).waiters;
        let place = waiters.iter().position(|other| Arc::ptr_eq(other, waiter));
        place.map(|at| waiters.remove(at)).is_some()
    }

    /// Ends everything: the locks are gone, the waits fail with `error`. Gives what goes back to
    /// the limit.
    pub(crate) fn end(self, error: &Error) -> u64 {
        let mut credits = 0;
        for queue in [self.ranges, self.whole] {
            credits += queue.held.len() + CREDIT * queue.waiters.len() as u64;
            for waiter in queue.waiters {
                waiter.end(Err(error.clone()));
            }
        }
        credits
    }

    pub(crate) fn held(&self, family: Family) -> &LockSet {
        match family {
            Family::Range => &self.ranges.held,
            Family::Whole => &self.whole.held,
        }
    }

    #[cfg(test)]
    pub(super) fn waiting(&self, family: Family) -> usize {
        match family {
            Family::Range => self.ranges.waiters.len(),
            Family::Whole => self.whole.waiters.len(),
        }
    }
}

impl Queue {
    fn change(
        &mut self,
        owner: Owner,
        kind: Option<LockKind>,
        range: &Range<u64>,
        credits: &mut i64,
    ) {
        let change = self.held.set(owner, kind, range);
        self.changed(change, range, credits);
    }

    /// The locks in `range` changed: grants what can be granted now, first come, first served, and
    /// tells the others their blockers.
    fn changed(&mut self, change: Change, range: &Range<u64>, credits: &mut i64) {
        *credits -= change.added;
        if self.waiters.is_empty() {
            return;
        }
        let mut range = range.clone();
        let mut granted_now: SmallVec<[Arc<Waiter>; 1]> = SmallVec::new();
        let mut at = if change.is_weaker {
            0
        } else {
            self.waiters.len()
        };
        while let Some(waiter) = self.waiters.get(at) {
            if !overlaps(&waiter.range, &range)
                || self
                    .held
                    .conflict(waiter.owner, waiter.kind, &waiter.range)
                    .is_some()
            {
                at += 1;
                continue;
            }
            let waiter = self.waiters.remove(at);
            let granted = self
                .held
                .set(waiter.owner, Some(waiter.kind), &waiter.range);
            *credits += CREDIT as i64 - granted.added;
            range = range.start.min(waiter.range.start)..range.end.max(waiter.range.end);
            if granted.is_weaker {
                // It had part of the range as a stronger lock: those before it may have waited for
                // that.
                at = 0;
            }
            granted_now.push(waiter);
        }
        for waiter in &self.waiters {
            if waiter.owner.has_deadlock_detection() && overlaps(&waiter.range, &range) {
                let blockers = self.held.blockers(waiter.owner, waiter.kind, &waiter.range);
                waiter.set_blockers(blockers);
            }
        }
        // Last, so that an owner that goes on, and may then wait elsewhere, has all edges towards
        // it.
        for waiter in granted_now {
            waiter.end(Ok(()));
        }
    }
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The range of a whole file.
pub(crate) const WHOLE: Range<u64> = 0..u64::MAX;

/// Checks a range that a caller gives.
pub(crate) fn checked(range: &Range<u64>) -> Result<()> {
    if range.start < range.end {
        Ok(())
    } else {
        Err(Error::Invalid)
    }
}
