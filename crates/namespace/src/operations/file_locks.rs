//! Locks on open files: lock, unlock, ask for the holder, wait. The rules stand in
//! [`crate::file_lock`].

use std::ops::Range;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::types::Ino;
use crate::file_lock::{
    Asked, BlockingLock, CREDIT, Family, FileLocks, Held, IfBusy, LockKind, LockWait, Owner,
    RangeOwner, WHOLE, Waiter, checked,
};
use crate::inode::Inode;
use crate::inode::references::Referred;
use crate::namespace::Namespace;
use crate::operations::open_file::{OpenAccess, OpenFile, Opened};
use crate::schemes::Call;

/// The locks of an open file: see [`Namespace::locker`].
#[derive(Clone, Copy)]
pub struct FileLocker<'a> {
    namespace: &'a Namespace,
    opened: &'a Opened,
    access: OpenAccess,
}

impl FileLocker<'_> {
    /// Locks a range of bytes, replacing what the owner has there (F_SETLK, F_OFD_SETLK and their
    /// waiting forms).
    ///
    /// EBADF: the file is not open for reading (shared) or writing (exclusive). EINVAL: the range
    /// is empty. EAGAIN, ETIMEDOUT, EINTR: as `wait` says. EDEADLK: a process would wait for
    /// itself. ENOLCK: there are too many locks. After an error the owner has what it had before.
    pub fn lock_range(
        &self,
        owner: RangeOwner,
        kind: LockKind,
        range: Range<u64>,
        wait: LockWait<'_>,
    ) -> Result<()> {
        checked(&range)?;
        let is_open_for_it = match kind {
            LockKind::Shared => self.access != OpenAccess::Write,
            LockKind::Exclusive => self.access != OpenAccess::Read,
        };
        if !is_open_for_it {
            return Err(Error::BadHandle);
        }
        self.acquire(Family::Range, self.owner(owner), kind, &range, wait)
    }

    /// Unlocks a range of the owner's; what of it is not locked does not matter.
    ///
    /// ENOLCK: one lock would become two, and there are too many.
    pub fn unlock_range(&self, owner: RangeOwner, range: Range<u64>) -> Result<()> {
        let owner = self.owner(owner);
        self.namespace
            .unlock_range(self.opened.ino(), owner, &range)
    }

    /// The first lock, by its start, that keeps the owner from locking the range (F_GETLK).
    pub fn blocking_lock(
        &self,
        owner: RangeOwner,
        kind: LockKind,
        range: Range<u64>,
    ) -> Result<Option<BlockingLock>> {
        let (owner, namespace) = (self.owner(owner), self.namespace);
        namespace.blocking_lock(self.opened.ino(), owner, kind, &range)
    }

    /// Drops all locks of a process on the file, whichever open file they were taken through. POSIX
    /// wants this whenever the process closes one of them.
    pub fn release_owner(&self, process: u64) {
        self.with_locks(|_, locks, credits| locks.clear(Owner::Process(process), credits));
    }

    /// Locks the whole file for this open file (flock).
    ///
    /// Another kind of lock that it has is dropped first: others may get in between, and when the
    /// request then fails, the old lock is gone (flock(2)). Errors as of
    /// [`FileLocker::lock_range`].
    pub fn flock(&self, kind: LockKind, wait: LockWait<'_>) -> Result<()> {
        let owner = Owner::OpenFile(self.opened.key());
        self.acquire(Family::Whole, owner, kind, &WHOLE, wait)
    }

    /// Drops this open file's lock on the whole file, if it has one (flock, LOCK_UN).
    pub fn unlock_flock(&self) {
        let owner = Owner::OpenFile(self.opened.key());
        self.with_locks(|_, locks, credits| locks.unlock(Family::Whole, owner, &WHOLE, credits));
    }

    fn owner(&self, owner: RangeOwner) -> Owner {
        match owner {
            RangeOwner::Process(number) => Owner::Process(number),
            RangeOwner::OpenFile => Owner::OpenFile(self.opened.key()),
        }
    }

    fn acquire(
        &self,
        family: Family,
        owner: Owner,
        kind: LockKind,
        range: &Range<u64>,
        wait: LockWait<'_>,
    ) -> Result<()> {
        if let Owner::OpenFile(_) = owner {
            self.opened.note_locked();
        }
        let namespace = self.namespace;
        let if_busy = match wait.may_wait {
            true => IfBusy::Wait,
            false => IfBusy::Refuse,
        };
        let request = (owner, kind, range);
        let asked = namespace.ask_for_lock(self.opened.ino(), family, request, if_busy)?;
        match asked {
            Asked::Granted => Ok(()),
            Asked::Refused(error) => Err(error),
            Asked::Waits(waiter) => {
                let result = self.wait_for(family, &waiter, &wait);
                if owner.has_deadlock_detection() {
                    namespace.waits_for.leave(&waiter);
                }
                result
            }
        }
    }

    fn wait_for(&self, family: Family, waiter: &Arc<Waiter>, wait: &LockWait<'_>) -> Result<()> {
        let given_up = match waiter.sleep(wait) {
            Err(error @ (Error::TimedOut | Error::Interrupted)) => error,
            ended => return ended,
        };
        match self
            .namespace
            .withdraw_lock(self.opened.ino(), family, waiter)
        {
            true => Err(given_up),
            // It was granted, or ended by the shut-down, at the last moment.
            false => waiter.outcome().unwrap_or(Err(given_up)),
        }
    }

    fn with_locks<R>(
        &self,
        f: impl FnOnce(&Namespace, &mut FileLocks, &mut i64) -> R,
    ) -> Option<R> {
        self.namespace.with_file_locks(self.opened.ino(), f)
    }
}

impl From<Held> for BlockingLock {
    fn from(held: Held) -> BlockingLock {
        BlockingLock {
            kind: held.kind,
            range: held.range,
            process: match held.owner {
                Owner::Process(number) => Some(number),
                Owner::OpenFile(_) => None,
            },
        }
    }
}

impl Namespace {
    /// The locks of an open file, which was opened for `access`.
    pub fn locker<'a>(&'a self, opened: &'a Opened, access: OpenAccess) -> FileLocker<'a> {
        FileLocker {
            namespace: self,
            opened,
            access,
        }
    }

    /// Drops what an open file itself owns, as it is closed.
    pub(crate) fn release_own_locks(&self, opened: &Opened) {
        if opened.has_locked() {
            let owner = Owner::OpenFile(opened.key());
            self.locker(opened, OpenAccess::Read)
                .with_locks(|_, locks, credits| locks.clear(owner, credits));
        }
    }

    /// The locks on files that are held, and the requests that wait for one (these count as two).
    pub fn file_lock_count(&self) -> u64 {
        self.options.file_locks_max - self.file_lock_credit.available()
    }

    /// Asks for a lock on an inode that is referred to.
    pub(super) fn ask_for_lock(
        &self,
        ino: Ino,
        family: Family,
        request: (Owner, LockKind, &Range<u64>),
        if_busy: IfBusy,
    ) -> Result<Asked> {
        let operation = self.begin(Call::FileLock)?;
        let inode = self.inode(ino, &operation.guard)?;
        if !self.file_lock_credit.try_take(CREDIT) {
            return Err(Error::NoLocks);
        }
        Ok(self.change_locks(inode, |locks, credits| {
            locks.ask(family, request, if_busy, &self.waits_for, credits)
        }))
    }

    /// Takes a waiting request back; false when it is not waiting any more.
    pub(super) fn withdraw_lock(&self, ino: Ino, family: Family, waiter: &Arc<Waiter>) -> bool {
        let is_withdrawn = self.with_file_locks(ino, |_, locks, credits| {
            let is_withdrawn = locks.withdraw(family, waiter);
            *credits += if is_withdrawn { CREDIT as i64 } else { 0 };
            is_withdrawn
        });
        is_withdrawn == Some(true)
    }

    /// See [`FileLocker::unlock_range`].
    pub(super) fn unlock_range(&self, ino: Ino, owner: Owner, range: &Range<u64>) -> Result<()> {
        checked(range)?;
        self.with_file_locks(ino, |_, locks, credits| {
            let is_cut = locks.held(Family::Range).is_inside(owner, range);
            if is_cut && !self.file_lock_credit.try_take(1) {
                return Err(Error::NoLocks);
            }
            *credits += i64::from(is_cut);
            locks.unlock(Family::Range, owner, range, credits);
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    /// See [`FileLocker::blocking_lock`].
    pub(super) fn blocking_lock(
        &self,
        ino: Ino,
        owner: Owner,
        kind: LockKind,
        range: &Range<u64>,
    ) -> Result<Option<BlockingLock>> {
        checked(range)?;
        let found = self.with_file_locks(ino, |_, locks, _| {
            locks.held(Family::Range).conflict(owner, kind, range)
        });
        Ok(found.flatten().map(BlockingLock::from))
    }

    /// Does something with a file's locks, if it has any. Goes on after the shut-down, which drops
    /// all locks.
    pub(super) fn with_file_locks<R>(
        &self,
        ino: Ino,
        f: impl FnOnce(&Namespace, &mut FileLocks, &mut i64) -> R,
    ) -> Option<R> {
        let _gate = self.gate.read();
        let _outer = self.scheme.enter(Call::FileLock);
        if self.committer.is_closed() {
            return None;
        }
        let guard = &crossbeam_epoch::pin();
        let inode = self.inodes.get(ino, guard)?;
        let core = inode.loaded().filter(|core| !core.never_had_locks())?;
        core.file_locks().as_ref()?;
        Some(self.change_locks(inode, |locks, credits| f(self, locks, credits)))
    }

    /// Changes the locks of an inode that is referred to; makes a place for them if there
    /// is none, and lets it go when none are left.
    fn change_locks<R>(&self, inode: &Inode, f: impl FnOnce(&mut FileLocks, &mut i64) -> R) -> R {
        let mut credits = 0;
        let mut place = inode.file_locks();
        let locks = place.get_or_insert_with(|| {
            let referred = inode.references.refer(&self.inodes.split_counts);
            debug_assert!(referred != Referred::Gone, "who asks has a reference");
            Box::new(FileLocks::new())
        });
        let result = f(locks, &mut credits);
        let is_last = locks.is_empty();
        if is_last {
            *place = None;
        }
        drop(place);
        if is_last {
            let is_unused = inode.references.release(&self.inodes.split_counts, 1);
            debug_assert!(!is_unused, "who asks has a reference");
        }
        debug_assert!(credits >= 0);
        self.file_lock_credit.give(credits as u64);
        result
    }

    /// Drops the locks of all files and ends all waits: part of the shut-down, when no request can
    /// come any more.
    pub(crate) fn end_file_locks(&self, error: &Error) {
        let guard = &crossbeam_epoch::pin();
        self.inodes.for_each_from(Ino(0), guard, |inode| {
            let core = inode.loaded().filter(|core| !core.never_had_locks());
            let locks = core.and_then(|core| core.file_locks().take());
            if let Some(locks) = locks {
                let _ = inode.references.release(&self.inodes.split_counts, 1);
                self.file_lock_credit.give(locks.end(error));
            }
            true
        });
    }
}

impl OpenFile<'_> {
    /// Its locks.
    pub fn locks(&self) -> FileLocker<'_> {
        self.namespace().locker(self.opened(), self.access())
    }
}
