//! File locks: byte ranges of processes (fcntl F_SETLK) and of open files (F_OFD_SETLK), and flock.
//!
//! # Rules
//! | | owner | range | deadlock | dropped |
//! |---|---|---|---|---|
//! | [`RangeOwner::Process`] | a number that stands for a process | bytes | EDEADLK | [`FileLocker::release_owner`], which is to be called when the owner closes any open file of the inode |
//! | [`RangeOwner::OpenFile`] | the open file | bytes | waits for ever | when the open file is closed |
//! | [`FileLocker::flock`] | the open file | all | waits for ever | when the open file is closed |
//!
//! Locks on byte ranges exclude each other whichever their owners; flock locks are a family of their own,
//! as on local file systems of Linux. All are advisory. A range ends before its end; `u64::MAX` is
//! beyond all files ("to the end, however far that moves").
//!
//! A request that conflicts with no lock that is held is granted at once, even past others that wait:
//! POSIX has F_SETLK succeed then, and to let F_SETLKW wait for somebody who is himself waiting could
//! close a cycle of waits that the locks do not contain. Where locks go or become weaker, those that wait
//! are granted in the order of their arrival, each of which then conflicts with none; nobody else is
//! woken. A lock goes from its holder to the waiter by the hand of who releases it.
//!
//! # Data model
//! An inode with locks has a [`FileLocks`]: for each family what is held ([`lock_set`], over
//! [`interval_tree`]) and the queue of those who wait ([`queue`], [`waiter`]). It comes with the first lock
//! and goes with the last. While it is there it holds a reference on the inode, which so stays in
//! memory. Who waits for whom stands in [`waits_for`]. The number of locks and waiting requests is limited
//! ([`Options::file_locks_max`](crate::Options), ENOLCK).
//!
//! # Locking
//! ```text
//! ns.file_locks       the locks of one inode
//!   ns.lock_graph     which processes wait; taken only by a process that must sleep
//!     ns.lock_wait    one waiting request; its sleeper waits on it, with nothing else held
//! ns.lock_interrupt   which waits an Interrupt ends; alone
//! ```
//! Waiting is no part of an operation: it passes the gate before and after, so that a sleeper holds up
//! neither freeze nor shut-down nor the reclamation of memory. Shut-down drops all locks and ends all waits
//! (EIO).
//!
//! References: POSIX.1-2024, fcntl(); Linux man-pages fcntl(2), fcntl_locking(2), flock(2); Linux
//! `fs/locks.c`, whose observable behaviour this is.

mod interval_tree;
mod lock_set;
mod queue;
mod waiter;
mod waits_for;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::queue::FileLocks;
use self::queue::{Asked, CREDIT, WHOLE, checked};
pub use self::waiter::Interrupt;
use self::waiter::Waiter;
pub(crate) use self::waits_for::WaitsFor;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::namespace::Namespace;
use crate::open_file::{OpenAccess, Opened};
use crate::references::Referred;
use crate::scheme::Call;

/// What a lock excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// Exclusive locks of others (F_RDLCK, LOCK_SH).
    Shared,
    /// All locks of others (F_WRLCK, LOCK_EX).
    Exclusive,
}

/// Whose a lock on a range is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeOwner {
    /// A process, or what else a number stands for, whichever open file it uses (F_SETLK).
    Process(u64),
    /// The open file (F_OFD_SETLK).
    OpenFile,
}

/// Somebody's lock that is in the way (F_GETLK).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockingLock {
    /// What it excludes.
    pub kind: LockKind,
    /// Where it lies.
    pub range: Range<u64>,
    /// The process; `None` when an open file owns it (F_GETLK then says -1).
    pub process: Option<u64>,
}

/// Whether a request waits, and for how long.
#[derive(Clone, Copy, Default)]
pub struct LockWait<'a> {
    may_wait: bool,
    deadline: Option<Instant>,
    interrupt: Option<&'a Interrupt>,
}

impl<'a> LockWait<'a> {
    /// Fail rather than wait (F_SETLK, LOCK_NB): EAGAIN.
    pub fn never() -> LockWait<'a> {
        LockWait::default()
    }

    /// Wait until it is granted (F_SETLKW).
    pub fn forever() -> LockWait<'a> {
        LockWait {
            may_wait: true,
            ..LockWait::default()
        }
    }

    /// Wait so long and then fail: ETIMEDOUT.
    pub fn at_most(timeout: Duration) -> LockWait<'a> {
        LockWait {
            // A time that is too far to be told is never.
            deadline: Instant::now().checked_add(timeout),
            ..LockWait::forever()
        }
    }

    /// And fail once `interrupt` is raised: EINTR.
    pub fn or_until(self, interrupt: &'a Interrupt) -> LockWait<'a> {
        LockWait {
            interrupt: Some(interrupt),
            ..self
        }
    }
}

/// Whose a lock is. An open file is known by its place on the list of open files, which is its own for
/// as long as it is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Owner {
    Process(u64),
    OpenFile(u64),
}

impl Owner {
    fn has_deadlock_detection(self) -> bool {
        matches!(self, Owner::Process(_))
    }
}

/// Locks that exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Range,
    Whole,
}

/// A lock that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Held {
    owner: Owner,
    kind: LockKind,
    range: Range<u64>,
}

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
    /// EBADF: the file is not open for reading (shared) or writing (exclusive). EINVAL: the range is empty.
    /// EAGAIN, ETIMEDOUT, EINTR: as `wait` says. EDEADLK: a process would wait for itself. ENOLCK: there
    /// are too many locks. After an error the owner has what it had before.
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
        checked(&range)?;
        let owner = self.owner(owner);
        self.with_locks(|namespace, locks, credits| {
            let is_cut = locks.held(Family::Range).is_inside(owner, &range);
            if is_cut && !namespace.file_lock_credit.try_take(1) {
                return Err(Error::NoLocks);
            }
            *credits += i64::from(is_cut);
            locks.unlock(Family::Range, owner, &range, credits);
            Ok(())
        })
        .unwrap_or(Ok(()))
    }

    /// The first lock, by its start, that keeps the owner from locking the range (F_GETLK).
    pub fn blocking_lock(
        &self,
        owner: RangeOwner,
        kind: LockKind,
        range: Range<u64>,
    ) -> Result<Option<BlockingLock>> {
        checked(&range)?;
        let owner = self.owner(owner);
        let found =
            self.with_locks(|_, locks, _| locks.held(Family::Range).conflict(owner, kind, &range));
        Ok(found.flatten().map(|held| BlockingLock {
            kind: held.kind,
            range: held.range,
            process: match held.owner {
                Owner::Process(number) => Some(number),
                Owner::OpenFile(_) => None,
            },
        }))
    }

    /// Drops all locks of a process on the file, whichever open file they were taken through. POSIX
    /// wants this whenever the process closes one of them.
    pub fn release_owner(&self, process: u64) {
        self.with_locks(|_, locks, credits| locks.clear(Owner::Process(process), credits));
    }

    /// Locks the whole file for this open file (flock).
    ///
    /// Another kind of lock that it has is dropped first: others may get in between, and when the request
    /// then fails, the old lock is gone (flock(2)). Errors as of [`FileLocker::lock_range`].
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
        let asked = {
            let operation = namespace.begin(Call::FileLock)?;
            let inode = namespace.inode(self.opened.ino(), &operation.guard)?;
            if !namespace.file_lock_credit.try_take(CREDIT) {
                return Err(Error::NoLocks);
            }
            namespace.change_locks(inode, |locks, credits| {
                let request = (owner, kind, range);
                locks.ask(
                    family,
                    request,
                    wait.may_wait,
                    &namespace.waits_for,
                    credits,
                )
            })
        };
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
        let is_withdrawn = self.with_locks(|_, locks, credits| {
            let is_withdrawn = locks.withdraw(family, waiter);
            *credits += if is_withdrawn { CREDIT as i64 } else { 0 };
            is_withdrawn
        });
        match is_withdrawn {
            Some(true) => Err(given_up),
            // It was granted, or ended by the shut-down, at the last moment.
            _ => waiter.outcome().unwrap_or(Err(given_up)),
        }
    }

    /// Does something with the file's locks, if it has any. Goes on after the shut-down, which drops all
    /// locks.
    fn with_locks<R>(
        &self,
        f: impl FnOnce(&Namespace, &mut FileLocks, &mut i64) -> R,
    ) -> Option<R> {
        let namespace = self.namespace;
        let _gate = namespace.gate.read();
        let _outer = namespace.scheme.enter(Call::FileLock);
        if namespace.committer.is_closed() {
            return None;
        }
        let _outer = namespace.scheme.enter(Call::FileLock);
        let guard = &crossbeam_epoch::pin();
        let inode = namespace.inodes.get(self.opened.ino(), guard)?;
        let core = inode.loaded().filter(|core| !core.never_had_locks())?;
        core.file_locks().as_ref()?;
        Some(namespace.change_locks(inode, |locks, credits| f(namespace, locks, credits)))
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

    /// Changes the locks of an inode that an open file refers to; makes a place for them if there is none,
    /// and lets it go when none are left.
    fn change_locks<R>(&self, inode: &Inode, f: impl FnOnce(&mut FileLocks, &mut i64) -> R) -> R {
        let mut credits = 0;
        let mut place = inode.file_locks();
        let locks = place.get_or_insert_with(|| {
            let referred = inode.references.refer(&self.split_counts);
            debug_assert!(referred != Referred::Gone, "the open file has a reference");
            Box::new(FileLocks::new())
        });
        let result = f(locks, &mut credits);
        let is_last = locks.is_empty();
        if is_last {
            *place = None;
        }
        drop(place);
        if is_last {
            let is_unused = inode.references.release(&self.split_counts, 1);
            debug_assert!(!is_unused, "the open file has a reference");
        }
        debug_assert!(credits >= 0);
        self.file_lock_credit.give(credits as u64);
        result
    }

    /// Drops the locks of all files and ends all waits: part of the shut-down, when no request can come
    /// any more.
    pub(crate) fn end_file_locks(&self, error: &Error) {
        let guard = &crossbeam_epoch::pin();
        self.inodes
            .for_each_from(crate::types::Ino(0), guard, |inode| {
                let core = inode.loaded().filter(|core| !core.never_had_locks());
                let locks = core.and_then(|core| core.file_locks().take());
                if let Some(locks) = locks {
                    let _ = inode.references.release(&self.split_counts, 1);
                    self.file_lock_credit.give(locks.end(error));
                }
                true
            });
    }
}
