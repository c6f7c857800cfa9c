//! The one scheme there is without the feature `locking-schemes`: no lock around operations, and a
//! range lock over each file's data.

use std::marker::PhantomData;
use std::ops::Range;

use finefs_locks::{OnceLatch, RangeGuard, RangeLock};

use crate::base::classes;
use crate::schemes::call::Call;

/// Which locks stand around operations and file data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LockingScheme {
    Fine,
}

impl LockingScheme {
    /// Files keep what POSIX promises of them.
    pub fn keeps_semantics(self) -> bool {
        match self {
            LockingScheme::Fine => true,
        }
    }
}

/// A file system's scheme.
pub(crate) struct Scheme;

/// Holds nothing.
pub(crate) struct OuterGuard<'a>(PhantomData<&'a Scheme>);

impl Scheme {
    pub fn new(_: LockingScheme, _waits_for_device: bool) -> Scheme {
        Scheme
    }

    pub fn kind(&self) -> LockingScheme {
        LockingScheme::Fine
    }

    /// Begins an operation.
    #[inline]
    pub fn enter(&self, _: Call) -> OuterGuard<'_> {
        OuterGuard(PhantomData)
    }

    /// Runs what waits for the device.
    #[inline]
    pub fn device<R>(&self, f: impl FnOnce() -> R) -> R {
        f()
    }

    /// Takes a lock that may be held by a thread that waits for the device.
    #[inline]
    pub fn wait<G>(&self, _: impl FnOnce() -> Option<G>, take: impl FnOnce() -> G) -> G {
        take()
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
            None => latch.get_or_try_init(load),
        }
    }
}

/// The lock over one file's data.
pub(crate) struct DataLock(RangeLock);

/// Holds bytes of a file.
#[must_use = "the bytes are released when the guard is dropped"]
pub(crate) struct DataGuard<'a>(RangeGuard<'a>);

impl DataGuard<'_> {
    /// The first byte that is held.
    #[inline]
    pub fn start(&self) -> u64 {
        self.0.range().start
    }
}

impl DataLock {
    pub fn new(_: LockingScheme) -> DataLock {
        DataLock(RangeLock::new(&classes::RANGE))
    }

    /// Nobody uses the file for now.
    #[inline]
    pub fn settle(&self) {
        self.0.settle();
    }

    /// Holds a range for reading.
    #[inline]
    pub fn read<'a>(&'a self, _: &'a Scheme, range: Range<u64>) -> DataGuard<'a> {
        DataGuard(self.0.read(range))
    }

    /// Holds a range for a change.
    #[inline]
    pub fn write<'a>(
        &'a self,
        _: &'a Scheme,
        range: Range<u64>,
        _is_overwrite: impl Fn() -> bool,
    ) -> DataGuard<'a> {
        DataGuard(self.0.write(range))
    }

    /// Holds all from `start` on for a change.
    pub fn write_to_end<'a>(&'a self, _: &'a Scheme, start: u64) -> DataGuard<'a> {
        DataGuard(self.0.write(start..u64::MAX))
    }

    /// Holds all from the end of file on, as it is then, for a change.
    #[inline]
    pub fn append<'a>(&'a self, _: &'a Scheme, end_of_file: impl Fn() -> u64) -> DataGuard<'a> {
        DataGuard(self.0.append(&end_of_file))
    }
}
