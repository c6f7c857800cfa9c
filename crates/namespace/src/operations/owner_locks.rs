//! Byte-range locks of owners that have no open file here, but a number: clients of other machines.
//! They exclude the locks of open files and of processes, and wait without a thread.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::base::error::Result;
use crate::base::types::Ino;
use crate::file_lock::{
    Asked, BlockingLock, Family, FileLocks, IfBusy, LockKind, Owner, Waiter, checked,
};
use crate::namespace::Namespace;

/// The locks on an inode: see [`Namespace::owner_locks`]. Owners are numbers as those of
/// [`RangeOwner::Process`](crate::RangeOwner::Process), which they must differ from.
#[derive(Clone, Copy)]
pub struct OwnerLocks<'a> {
    namespace: &'a Namespace,
    ino: Ino,
}

/// A request that waits without a thread.
pub struct PendingLock {
    ino: Ino,
    waiter: Arc<Waiter>,
}

impl Namespace {
    /// The locks on an inode that the caller has a reference on.
    pub fn owner_locks(&self, ino: Ino) -> OwnerLocks<'_> {
        OwnerLocks {
            namespace: self,
            ino,
        }
    }

    /// How a wait has ended; `None` while it goes on. To be asked once more after the end, which
    /// takes the request out of what is known of deadlocks.
    pub fn pending_lock(&self, pending: &PendingLock) -> Option<Result<()>> {
        let outcome = pending.waiter.outcome()?;
        self.waits_for.leave(&pending.waiter);
        Some(outcome)
    }

    /// Takes a request back. If it was granted in the meantime it is, and this says so by `false`.
    pub fn withdraw_pending_lock(&self, pending: &PendingLock) -> bool {
        let is_withdrawn = self.withdraw_lock(pending.ino, Family::Range, &pending.waiter);
        self.waits_for.leave(&pending.waiter);
        is_withdrawn || !matches!(pending.waiter.outcome(), Some(Ok(())))
    }
}

impl OwnerLocks<'_> {
    /// Locks a range of bytes, or fails: EAGAIN if others are in the way, ENOLCK if there are too
    /// many locks.
    pub fn lock(&self, owner: u64, kind: LockKind, range: &Range<u64>) -> Result<()> {
        match self.ask(owner, kind, range, IfBusy::Refuse)? {
            Asked::Granted => Ok(()),
            Asked::Refused(error) => Err(error),
            Asked::Waits(_) => unreachable!("it may not wait"),
        }
    }

    /// Locks a range, or waits for that: `at_end` is called when the wait has ended, under the lock
    /// of the file's locks, so that it may only make a note. EDEADLK: the owner would wait for
    /// itself.
    pub fn lock_later(
        &self,
        owner: u64,
        kind: LockKind,
        range: &Range<u64>,
        at_end: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Option<PendingLock>> {
        match self.ask(owner, kind, range, IfBusy::Call(at_end))? {
            Asked::Granted => Ok(None),
            Asked::Refused(error) => Err(error),
            Asked::Waits(waiter) => Ok(Some(PendingLock {
                ino: self.ino,
                waiter,
            })),
        }
    }

    fn ask(
        &self,
        owner: u64,
        kind: LockKind,
        range: &Range<u64>,
        if_busy: IfBusy,
    ) -> Result<Asked> {
        checked(range)?;
        let request = (Owner::Process(owner), kind, range);
        self.namespace
            .ask_for_lock(self.ino, Family::Range, request, if_busy)
    }

    /// Unlocks a range of the owner's; errors as of
    /// [`FileLocker::unlock_range`](crate::FileLocker::unlock_range).
    pub fn unlock(&self, owner: u64, range: &Range<u64>) -> Result<()> {
        let owner = Owner::Process(owner);
        self.namespace.unlock_range(self.ino, owner, range)
    }

    /// The first lock, by its start, that keeps the owner from locking the range.
    pub fn blocking_lock(
        &self,
        owner: u64,
        kind: LockKind,
        range: &Range<u64>,
    ) -> Result<Option<BlockingLock>> {
        let owner = Owner::Process(owner);
        self.namespace.blocking_lock(self.ino, owner, kind, range)
    }

    /// Whether the owner has any lock on the file.
    pub fn has_any(&self, owner: u64) -> bool {
        let all = 0..u64::MAX;
        let has = |locks: &mut FileLocks| {
            let held = locks.held(Family::Range);
            held.has_any(Owner::Process(owner), &all)
        };
        let found = self
            .namespace
            .with_file_locks(self.ino, |_, locks, _| has(locks));
        found == Some(true)
    }

    /// Drops all locks of these owners on the file, and takes back what they wait for, whose
    /// [`PendingLock`]s are still to be withdrawn.
    pub fn release_all(&self, owners: impl IntoIterator<Item = u64>) {
        let owners: HashSet<Owner> = owners.into_iter().map(Owner::Process).collect();
        let namespace = self.namespace;
        namespace.with_file_locks(self.ino, |_, locks, credits| {
            locks.clear_all(&owners, credits);
        });
    }

    /// Drops all locks of the owner on the file.
    pub fn release(&self, owner: u64) {
        let owner = Owner::Process(owner);
        let namespace = self.namespace;
        namespace.with_file_locks(self.ino, |_, locks, credits| locks.clear(owner, credits));
    }
}
