//! File locks: byte ranges of processes (fcntl F_SETLK) and of open files (F_OFD_SETLK), and flock.
//!
//! # Rules
//! | | owner | range | deadlock | dropped |
//! |---|---|---|---|---|
//! | [`RangeOwner::Process`] | a number that stands for a process | bytes | EDEADLK | (below) |
//! | [`RangeOwner::OpenFile`] | the open file | bytes | waits for ever | when that is closed |
//! | [`FileLocker::flock`] | the open file | all | waits for ever | when that is closed |
//!
//! A process's locks are dropped by [`FileLocker::release_owner`], which is to be called when the
//! owner closes any open file of the inode.
//!
//! Locks on byte ranges exclude each other whichever their owners; flock locks are a family of
//! their own, as on local file systems of Linux. All are advisory. A range ends before its end;
//! `u64::MAX` is beyond all files ("to the end, however far that moves").
//!
//! A request that conflicts with no lock that is held is granted at once, even past others that
//! wait: POSIX has F_SETLK succeed then, and to let F_SETLKW wait for a request that waits itself
//! could close a cycle of waits that the locks do not contain. Where locks go or become weaker,
//! waiters are granted in the order of their arrival, each when it conflicts with none; no others
//! are woken. The thread that releases a lock makes the waiter its holder.
//!
//! # Data model
//! An inode with locks has a [`FileLocks`]: for each family what is held ([`lock_set`], over
//! [`interval_tree`]) and the queue of waiters ([`queue`], [`waiter`]). It comes with the first
//! lock and goes with the last. While it is there it holds a reference on the inode, which so stays
//! in memory. The wait-for graph is [`waits_for`]. The number of locks and waiting requests is
//! limited ([`Options::file_locks_max`](crate::Options), ENOLCK).
//!
//! # Locking
//! ```text
//! ns.file_locks       the locks of one inode
//!   ns.lock_graph     which processes wait; taken only by a process that must sleep
//!     ns.lock_wait    one waiting request; its sleeper waits on it, with nothing else held
//! ns.lock_interrupt   which waits an Interrupt ends; alone
//! ```
//! Waiting is no part of an operation: it passes the gate before and after, so that a sleeper holds
//! up neither freeze nor shut-down nor the reclamation of memory. Shut-down drops all locks and
//! ends all waits (EIO).
//!
//! References: POSIX.1-2024, fcntl(); Linux man-pages fcntl(2), fcntl_locking(2), flock(2); Linux
//! `fs/locks.c`, whose observable behaviour this is.
//!
//! # May use
//! `base`. What open files and inodes do with it stands in `operations::file_locks`.
//!
//! [`FileLocker`]: crate::FileLocker
//! [`FileLocker::release_owner`]: crate::FileLocker::release_owner
//! [`FileLocker::flock`]: crate::FileLocker::flock

mod interval_tree;
mod lock_set;
mod queue;
mod waiter;
mod waits_for;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests;

use std::ops::Range;
use std::time::{Duration, Instant};

pub(crate) use self::queue::{Asked, CREDIT, FileLocks, IfBusy, WHOLE, checked};
pub use self::waiter::Interrupt;
pub(crate) use self::waiter::Waiter;
pub(crate) use self::waits_for::WaitsFor;

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
    pub(crate) may_wait: bool,
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

/// Whose a lock is. An open file is known by its place on the list of open files, which is its own
/// for as long as it is open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Owner {
    Process(u64),
    OpenFile(u64),
}

impl Owner {
    pub fn has_deadlock_detection(self) -> bool {
        matches!(self, Owner::Process(_))
    }
}

/// Locks that exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    Range,
    Whole,
}

/// A lock that is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub owner: Owner,
    pub kind: LockKind,
    pub range: Range<u64>,
}
