//! The lock over a file's data, as the scheme has it.
//!
//! Under `fine` it is a range lock: operations exclude each other where their bytes overlap. The
//! other forms are for comparison ([`crate::schemes::scheme`]): one reader/writer lock for the
//! file, or, with `unlocked-data`, none for reads and for overwrites of bytes that are there. Even
//! without a lock the mapping of a file must not change under a read, or it would read blocks that
//! are another file's by now: so whatever allocates, frees or resizes takes the write side of a
//! big-reader lock of the file system, whose read side costs a store to a line of the thread's own.

use std::ops::Range;

use finefs_locks::{
    BigReadGuard, BigReader, BigWriteGuard, RangeGuard, RangeLock, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};

use crate::base::classes;
use crate::schemes::scheme::{LockingScheme, Scheme};

/// The lock over one file's data.
pub(crate) enum DataLock {
    Ranges(RangeLock),
    /// Reads take it shared.
    WholeFile(RwLock<()>),
    /// Reads take it exclusively.
    WholeFileMutex(RwLock<()>),
    /// The scheme has the lock.
    Unlocked,
}

/// Holds bytes of a file, or more than was asked for.
#[must_use = "the bytes are released when the guard is dropped"]
pub(crate) enum DataGuard<'a> {
    Range(RangeGuard<'a>),
    #[expect(dead_code, reason = "held for its drop")]
    Shared(RwLockReadGuard<'a, ()>),
    #[expect(dead_code, reason = "held for its drop")]
    Exclusive(RwLockWriteGuard<'a, ()>),
    #[expect(dead_code, reason = "held for its drop")]
    Passing(BigReadGuard<'a>),
    #[expect(dead_code, reason = "held for its drop")]
    Alone(BigWriteGuard<'a>),
}

impl DataGuard<'_> {
    /// The first byte that is held.
    #[inline]
    pub fn start(&self) -> u64 {
        match self {
            DataGuard::Range(guard) => guard.range().start,
            _ => 0,
        }
    }
}

impl DataLock {
    pub fn new(scheme: LockingScheme) -> DataLock {
        match scheme {
            LockingScheme::WholeFile => DataLock::WholeFile(RwLock::new(&classes::WHOLE_FILE, ())),
            LockingScheme::WholeFileMutex => {
                DataLock::WholeFileMutex(RwLock::new(&classes::WHOLE_FILE, ()))
            }
            LockingScheme::UnlockedData => DataLock::Unlocked,
            _ => DataLock::Ranges(RangeLock::new(&classes::RANGE)),
        }
    }

    /// Nobody uses the file for now.
    #[inline]
    pub fn settle(&self) {
        if let DataLock::Ranges(ranges) = self {
            ranges.settle();
        }
    }

    /// Holds a range for reading.
    #[inline]
    pub fn read<'a>(&'a self, scheme: &'a Scheme, range: Range<u64>) -> DataGuard<'a> {
        match self {
            DataLock::Ranges(ranges) => DataGuard::Range(scheme.wait(
                || ranges.try_read(range.clone()),
                || ranges.read(range.clone()),
            )),
            DataLock::WholeFile(lock) => DataGuard::Shared(lock.read()),
            DataLock::WholeFileMutex(lock) => DataGuard::Exclusive(lock.write()),
            DataLock::Unlocked => DataGuard::Passing(passing(scheme)),
        }
    }

    /// Holds a range for a change. `is_overwrite` tells whether the change leaves mapping and size
    /// alone, as long as others do.
    #[inline]
    pub fn write<'a>(
        &'a self,
        scheme: &'a Scheme,
        range: Range<u64>,
        is_overwrite: impl Fn() -> bool,
    ) -> DataGuard<'a> {
        match self {
            DataLock::Ranges(ranges) => DataGuard::Range(scheme.wait(
                || ranges.try_write(range.clone()),
                || ranges.write(range.clone()),
            )),
            DataLock::WholeFile(lock) | DataLock::WholeFileMutex(lock) => {
                DataGuard::Exclusive(lock.write())
            }
            DataLock::Unlocked => {
                let passing = passing(scheme);
                if is_overwrite() {
                    return DataGuard::Passing(passing);
                }
                drop(passing);
                DataGuard::Alone(unlocked(scheme).write())
            }
        }
    }

    /// Holds all from `start` on for a change.
    pub fn write_to_end<'a>(&'a self, scheme: &'a Scheme, start: u64) -> DataGuard<'a> {
        self.write(scheme, start..u64::MAX, || false)
    }

    /// Holds all from the end of file on, as it is then, for a change.
    #[inline]
    pub fn append<'a>(
        &'a self,
        scheme: &'a Scheme,
        end_of_file: impl Fn() -> u64,
    ) -> DataGuard<'a> {
        match self {
            DataLock::Ranges(ranges) => {
                let try_append = || {
                    let guard = ranges.try_write(end_of_file()..u64::MAX)?;
                    // The file may have shrunk in between.
                    (guard.range().start <= end_of_file()).then_some(guard)
                };
                DataGuard::Range(scheme.wait(try_append, || ranges.append(&end_of_file)))
            }
            _ => self.write_to_end(scheme, end_of_file()),
        }
    }
}

fn unlocked(scheme: &Scheme) -> &BigReader {
    scheme
        .unlocked()
        .expect("files of this scheme leave their data to its lock")
}

fn passing(scheme: &Scheme) -> BigReadGuard<'_> {
    unlocked(scheme).read()
}
