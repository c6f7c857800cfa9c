//! Locking schemes: the locks of other times around the same code, to compare with.
//!
//! # What a scheme is
//! Every operation is written for fine locks and takes them under every scheme. A scheme puts a
//! lock around the operations, or coarsens the one over a file's data
//! ([`crate::schemes::data_lock`]). So what two schemes differ in is their locking and nothing
//! else, for every store alike.
//!
//! | scheme | the lock | how the kernel had it |
//! |---|---|---|
//! | `fine` | none | |
//! | `big-spin` | one for the process, spinning | the big kernel lock before 2.6.11 |
//! | `big-sleep` | one for the process, fair, sleeping | `CONFIG_PREEMPT_BKL`, 2.6.11 to 2.6.25 |
//! | `big-optional` | as `big-spin`, see [`Call::is_under_kernel_lock`] | 2.5.5-pre1 |
//! | `per-superblock` | one for each, recursive, spins while its owner runs | reiserfs, 2.6.32 |
//! | `whole-file` | a reader/writer lock for each file's data | XFS's iolock, `i_rwsem` |
//! | `whole-file-mutex` | the same, reads exclusive too | `i_mutex` in ext4's direct I/O, 2012 |
//! | `unlocked-data` | none over reads and overwrites | an experiment of 2012; not for mounts |
//!
//! # Sleeping
//! The kernel's scheduler took the big lock from a task that went to sleep and gave it back when
//! the task ran again. Here whatever waits for the device ([`Scheme::device`]: data, loads), for a
//! lock that others hold while they wait for it ([`Scheme::wait`]: ranges of data, the topology),
//! or for somebody else's load ([`Scheme::load`]) does the same. A store that does not wait for a
//! device is called with the lock held. Commits run outside of operations and wait for the device
//! all the time: they are not under the lock.
//!
//! # No deadlock
//! 1. The lock stands just inside the gate: a task waits for the gate without it, and a task that
//!    waits for the gate's readers to leave does not hold it.
//! 2. A task that sleeps takes the lock back with other locks held, against the order. What others
//!    may hold over a sleep is a range (or whole file), a load and the topology; a holder of the
//!    lock that waits for one of these does so in a sleep itself. So nobody keeps the lock from a
//!    sleeper while waiting for it.
//! 3. Operations that `big-optional` leaves out never take the lock while they hold another.

use std::str::FromStr;

use finefs_locks::{
    BigLock, BigLockGuard, BigLockKind, BigReader, OnceLatch, RelaxedMutex, RelaxedMutexGuard,
};

use crate::base::classes;
use crate::schemes::call::Call;

/// Which locks stand around operations and file data, beside the fine ones. For comparison: `Fine`
/// is never slower.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LockingScheme {
    /// None: only the fine locks.
    #[default]
    Fine,
    /// One spinning lock around every operation of every file system of the process.
    BigSpin,
    /// One fair, sleeping lock around every operation of every file system of the process.
    BigSleep,
    /// As `BigSpin`, around those operations that Linux 2.5.5-pre1 still had under its big lock.
    BigOptional,
    /// A lock for each file system around its operations.
    PerSuperblock,
    /// Reads of a file's data exclude its writes, and these each other, wherever they lie.
    WholeFile,
    /// All reads and writes of a file's data exclude each other.
    WholeFileMutex,
    /// Reads and overwrites exclude nothing: concurrent ones of the same bytes may mix. What
    /// allocates, frees or resizes excludes all of them in the file system. Only for
    /// benchmarks: it breaks POSIX.
    UnlockedData,
}

impl LockingScheme {
    /// All of them.
    pub const ALL: [LockingScheme; 8] = [
        LockingScheme::Fine,
        LockingScheme::BigSpin,
        LockingScheme::BigSleep,
        LockingScheme::BigOptional,
        LockingScheme::PerSuperblock,
        LockingScheme::WholeFile,
        LockingScheme::WholeFileMutex,
        LockingScheme::UnlockedData,
    ];

    /// The name that options and tables give it.
    pub fn name(self) -> &'static str {
        match self {
            LockingScheme::Fine => "fine",
            LockingScheme::BigSpin => "big-spin",
            LockingScheme::BigSleep => "big-sleep",
            LockingScheme::BigOptional => "big-optional",
            LockingScheme::PerSuperblock => "per-superblock",
            LockingScheme::WholeFile => "whole-file",
            LockingScheme::WholeFileMutex => "whole-file-mutex",
            LockingScheme::UnlockedData => "unlocked-data",
        }
    }

    /// True where files keep what POSIX promises of them: such a file system may be mounted.
    pub fn keeps_semantics(self) -> bool {
        self != LockingScheme::UnlockedData
    }
}

/// No scheme has that name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no locking scheme {0:?}")]
pub struct UnknownScheme(String);

impl FromStr for LockingScheme {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<LockingScheme, UnknownScheme> {
        let mut all = LockingScheme::ALL.into_iter();
        all.find(|scheme| scheme.name() == name)
            .ok_or_else(|| UnknownScheme(name.to_owned()))
    }
}

/// The lock around operations.
enum Outer {
    None,
    Big {
        lock: &'static BigLock,
        is_optional: bool,
    },
    Superblock(RelaxedMutex),
}

/// Holds the lock around operations, where there is one.
#[must_use = "the lock is released when the guard is dropped"]
pub(crate) enum OuterGuard<'a> {
    None,
    #[expect(dead_code, reason = "held for its drop")]
    Big(BigLockGuard<'a>),
    #[expect(dead_code, reason = "held for its drop")]
    Superblock(RelaxedMutexGuard<'a>),
}

/// A file system's scheme.
pub(crate) struct Scheme {
    kind: LockingScheme,
    outer: Outer,
    /// `UnlockedData`: reads and overwrites against what changes the mapping or size of files.
    unlocked: Option<BigReader>,
    /// The store's data and loads come from a device.
    waits_for_device: bool,
}

impl Scheme {
    pub fn new(kind: LockingScheme, waits_for_device: bool) -> Scheme {
        let big = |kind, is_optional| Outer::Big {
            lock: big_lock(kind),
            is_optional,
        };
        Scheme {
            kind,
            outer: match kind {
                LockingScheme::BigSpin => big(BigLockKind::Spinning, false),
                LockingScheme::BigSleep => big(BigLockKind::Sleeping, false),
                LockingScheme::BigOptional => big(BigLockKind::Spinning, true),
                LockingScheme::PerSuperblock => {
                    Outer::Superblock(RelaxedMutex::new(&classes::SUPERBLOCK))
                }
                _ => Outer::None,
            },
            unlocked: (kind == LockingScheme::UnlockedData)
                .then(|| BigReader::new(&classes::UNLOCKED)),
            waits_for_device,
        }
    }

    pub fn kind(&self) -> LockingScheme {
        self.kind
    }

    /// Reads and overwrites of data without a lock, against all else. Only `UnlockedData` has it.
    pub fn unlocked(&self) -> Option<&BigReader> {
        self.unlocked.as_ref()
    }

    #[inline]
    fn has_outer(&self) -> bool {
        !matches!(self.outer, Outer::None)
    }

    /// Takes the lock around an operation.
    #[inline]
    pub fn enter(&self, call: Call) -> OuterGuard<'_> {
        if self.has_outer() {
            self.enter_outer(call)
        } else {
            OuterGuard::None
        }
    }

    #[cold]
    fn enter_outer(&self, call: Call) -> OuterGuard<'_> {
        match &self.outer {
            Outer::Big { is_optional, .. } if *is_optional && !call.is_under_kernel_lock() => {
                OuterGuard::None
            }
            Outer::None => OuterGuard::None,
            Outer::Big { lock, .. } => OuterGuard::Big(lock.lock()),
            Outer::Superblock(lock) => OuterGuard::Superblock(lock.lock()),
        }
    }

    /// Runs what sleeps without the lock.
    #[cold]
    fn sleep<R>(&self, f: impl FnOnce() -> R) -> R {
        match &self.outer {
            Outer::None => f(),
            Outer::Big { lock, .. } => lock.sleep(f).value,
            Outer::Superblock(lock) => lock.sleep(f).value,
        }
    }

    /// Runs what waits for the device.
    #[inline]
    pub fn device<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.has_outer() && self.waits_for_device {
            self.sleep(f)
        } else {
            f()
        }
    }

    /// Takes a lock that may be held by a thread that waits for the device.
    #[inline]
    pub fn wait<G>(&self, try_take: impl FnOnce() -> Option<G>, take: impl FnOnce() -> G) -> G {
        if self.has_outer() {
            try_take().unwrap_or_else(|| self.sleep(take))
        } else {
            take()
        }
    }

    /// What is in a latch; loaded if need be, by this task or another.
    #[inline]
    pub fn load<'a, T, E>(
        &self,
        latch: &'a OnceLatch<T>,
        load: impl FnOnce() -> Result<T, E>,
    ) -> Result<&'a T, E> {
        match latch.get() {
            Some(value) => Ok(value),
            None if self.has_outer() => self.sleep(|| latch.get_or_try_init(load)),
            None => latch.get_or_try_init(load),
        }
    }
}

/// The big lock of a kind: one for all file systems of the process.
#[cfg(not(feature = "shuttle"))]
fn big_lock(kind: BigLockKind) -> &'static BigLock {
    static SPINNING: BigLock = BigLock::new(&classes::BIG, BigLockKind::Spinning);
    static SLEEPING: BigLock = BigLock::new(&classes::BIG, BigLockKind::Sleeping);
    match kind {
        BigLockKind::Spinning => &SPINNING,
        BigLockKind::Sleeping => &SLEEPING,
    }
}

/// What the model's scheduler knows of a lock ends with a run: each needs locks of its own.
#[cfg(feature = "shuttle")]
fn big_lock(kind: BigLockKind) -> &'static BigLock {
    Box::leak(Box::new(BigLock::new(&classes::BIG, kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_schemes() {
        for scheme in LockingScheme::ALL {
            assert_eq!(scheme.name().parse(), Ok(scheme));
        }
        let error = "big".parse::<LockingScheme>().unwrap_err();
        assert!(error.to_string().contains("\"big\""));
    }
}
