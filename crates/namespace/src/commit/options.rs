//! How a namespace behaves: the options of a mount.

use std::time::Duration;

use crate::base::parallel::CommitThreads;
use crate::base::types::Timestamp;
use crate::schemes::LockingScheme;

/// When reading a file updates its access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AtimePolicy {
    /// When it is not later than the modification or change, or older than a day.
    #[default]
    Relatime,
    /// Never.
    Noatime,
    /// Always.
    Strict,
}

/// How a namespace behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest time between a change and its commit.
    pub commit_interval: Duration,
    /// When reads update the access time.
    pub atime: AtimePolicy,
    /// Reads of directories update it too (else `nodiratime` of mount(8)).
    pub notes_directories: bool,
    /// What is made gets its directory's group (`grpid` of ext4's mounts); else as the directory's
    /// set-group-ID bit says.
    pub has_bsd_groups: bool,
    /// Every change of a directory is durable when it returns (`dirsync` of mount(8)), also without
    /// the flags that say so of some; see
    /// [`Namespace::set_synchronous_directories`](crate::Namespace::set_synchronous_directories).
    pub has_synchronous_directories: bool,
    /// Refuse all changes.
    pub is_read_only: bool,
    /// Bytes of memory for what can be loaded again: inodes, names, mappings, attributes. Above
    /// them what was not used lately is evicted, also if it is open or the kernel refers to it.
    /// What waits for a commit is held in bounds that are made of this one.
    pub cache_bytes: u64,
    /// Changes wait while the file system is frozen. Else they fail with
    /// [`Error::Frozen`](crate::Error::Frozen) before anything has happened, and the caller tries
    /// again after [`Namespace::wait_for_thaw`](crate::Namespace::wait_for_thaw).
    pub waits_for_thaw: bool,
    /// Locks on files, and requests for them, beyond which there is an error (ENOLCK).
    pub file_locks_max: u64,
    /// POSIX ACLs count. Else they are neither shown nor enforced nor set (`noacl` of ext4's
    /// mounts).
    pub has_acls: bool,
    /// Locks beside the fine ones, to compare with.
    #[cfg(feature = "locking-schemes")]
    pub locking: LockingScheme,
    /// How many threads work on a commit.
    pub commit_threads: CommitThreads,
    /// What the commit thread calls when nothing was committed for [`Options::commit_interval`] and
    /// nothing waits to be, once until something is: the time to give memory back. Never called
    /// over a store that takes no batches.
    pub when_quiet: Option<fn()>,
    /// The time of all changes, for images that come out the same each time; else the clock's.
    pub fixed_time: Option<Timestamp>,
}

impl Options {
    /// The locks of the namespace.
    #[cfg(feature = "locking-schemes")]
    pub(crate) fn locking(&self) -> LockingScheme {
        self.locking
    }

    /// The locks of the namespace.
    #[cfg(not(feature = "locking-schemes"))]
    pub(crate) fn locking(&self) -> LockingScheme {
        LockingScheme::Fine
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            commit_interval: Duration::from_secs(5),
            atime: AtimePolicy::Relatime,
            notes_directories: true,
            has_bsd_groups: false,
            has_synchronous_directories: false,
            is_read_only: false,
            cache_bytes: u64::MAX,
            waits_for_thaw: true,
            file_locks_max: 1 << 20,
            has_acls: true,
            #[cfg(feature = "locking-schemes")]
            locking: LockingScheme::Fine,
            commit_threads: CommitThreads::default(),
            when_quiet: None,
            fixed_time: None,
        }
    }
}
