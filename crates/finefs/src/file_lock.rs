//! Locks of open files: on the whole file as `std::fs::File` has them (flock), and on ranges of
//! bytes (as F_OFD_SETLK).
//!
//! Both are advisory, belong to the open file, and go with it. The two families do not see each
//! other.

use std::fs::TryLockError;
use std::ops::{Bound, RangeBounds};

use finefs_namespace::{BlockingLock, Error as Cause, FileLocker, LockKind, LockWait, RangeOwner};

use crate::error::Result;
use crate::file::File;

/// The range in half-open form; what has no end goes to the end of the file, however far that
/// moves.
fn half_open(range: impl RangeBounds<u64>) -> std::ops::Range<u64> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    start..end
}

impl File {
    fn flock(&self, kind: LockKind) -> Result<()> {
        self.locker()
            .flock(kind, LockWait::forever())
            .map_err(self.failed("lock"))
    }

    fn try_flock(&self, kind: LockKind) -> std::result::Result<(), TryLockError> {
        match self.locker().flock(kind, LockWait::never()) {
            Ok(()) => Ok(()),
            Err(Cause::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(cause) => Err(TryLockError::Error(self.failed("lock")(cause).into())),
        }
    }

    /// Locks the file against all other open files that lock it; waits for that.
    ///
    /// A shared lock that this open file has is given back first, so others may come in between.
    ///
    /// ```
    /// # use finefs::FileSystem;
    /// let fs = FileSystem::memory(1 << 20)?;
    /// let (file, other) = (fs.create("a")?, fs.open("a")?);
    /// file.lock()?;
    /// assert!(other.try_lock_shared().is_err());
    /// drop(file);
    /// other.lock()?;
    /// # Ok::<(), finefs::Error>(())
    /// ```
    pub fn lock(&self) -> Result<()> {
        self.flock(LockKind::Exclusive)
    }

    /// Locks the file against those who lock it exclusively; waits for that.
    pub fn lock_shared(&self) -> Result<()> {
        self.flock(LockKind::Shared)
    }

    /// Like [`File::lock`], but does not wait. A shared lock that this open file had is then gone.
    pub fn try_lock(&self) -> std::result::Result<(), TryLockError> {
        self.try_flock(LockKind::Exclusive)
    }

    /// Like [`File::lock_shared`], but does not wait.
    pub fn try_lock_shared(&self) -> std::result::Result<(), TryLockError> {
        self.try_flock(LockKind::Shared)
    }

    /// Gives the lock on the file back, if there is one.
    pub fn unlock(&self) -> Result<()> {
        self.locker().unlock_flock();
        Ok(())
    }

    /// Locks a range of bytes for this open file (F_OFD_SETLK), which replaces what it had locked
    /// there.
    ///
    /// EBADF: it was not opened for reading (shared) or writing (exclusive). EINVAL: the range is
    /// empty. EAGAIN, ETIMEDOUT, EINTR: as `wait` says. ENOLCK: there are too many locks. Deadlocks
    /// are not looked for.
    ///
    /// ```
    /// # use finefs::{FileSystem, LockKind, LockWait};
    /// let fs = FileSystem::memory(1 << 20)?;
    /// let (file, other) = (fs.create("a")?, fs.open("a")?);
    /// file.lock_range(..100, LockKind::Exclusive, LockWait::forever())?;
    /// other.lock_range(100.., LockKind::Shared, LockWait::forever())?;
    /// let error = other.lock_range(99.., LockKind::Shared, LockWait::never()).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    /// # Ok::<(), finefs::Error>(())
    /// ```
    pub fn lock_range(
        &self,
        range: impl RangeBounds<u64>,
        kind: LockKind,
        wait: LockWait<'_>,
    ) -> Result<()> {
        self.locker()
            .lock_range(RangeOwner::OpenFile, kind, half_open(range), wait)
            .map_err(self.failed("lock"))
    }

    /// Unlocks a range of bytes. ENOLCK: one lock would become two, and there are too many.
    pub fn unlock_range(&self, range: impl RangeBounds<u64>) -> Result<()> {
        self.locker()
            .unlock_range(RangeOwner::OpenFile, half_open(range))
            .map_err(self.failed("unlock"))
    }

    /// The first lock that keeps this open file from locking the range (F_OFD_GETLK).
    pub fn blocking_lock(
        &self,
        range: impl RangeBounds<u64>,
        kind: LockKind,
    ) -> Result<Option<BlockingLock>> {
        self.locker()
            .blocking_lock(RangeOwner::OpenFile, kind, half_open(range))
            .map_err(self.failed("test lock"))
    }

    /// Byte ranges in the name of a process (F_SETLK), with detection of deadlocks, and all that
    /// [`FileLocker`] offers. Who acts for processes releases their locks when they close a file.
    pub fn locker(&self) -> FileLocker<'_> {
        self.namespace().locker(self.opened(), self.access())
    }
}
