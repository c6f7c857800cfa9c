//! What is compared: the range lock and its rivals, behind one trait.

use crossbeam_utils::CachePadded;
use finefs_locks::{LockClass, RangeLock};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// The file that all ranges lie in.
pub const FILE_BYTES: u64 = 64 << 20;

/// A lock over ranges of a file.
pub trait Candidate: Sync {
    /// Runs `body` with the range held.
    fn hold<R>(&self, range: Range<u64>, is_write: bool, body: impl FnOnce() -> R) -> R;
}

static CLASS: LockClass = LockClass::new("bench.range", 10);

/// Ours.
pub struct Ours(RangeLock);

impl Ours {
    /// A free lock.
    pub fn new() -> Ours {
        Ours(RangeLock::new(&CLASS))
    }

    /// A lock that is spread, as under contention of many ranges.
    pub fn spread() -> Ours {
        let lock = RangeLock::new(&CLASS);
        while lock.is_fast() {
            let near = lock.try_write(0..1 << 12);
            let far = lock.try_write(1 << 20..(1 << 20) + (1 << 12));
            drop((near, far));
        }
        Ours(lock)
    }
}

impl Candidate for Ours {
    #[inline]
    fn hold<R>(&self, range: Range<u64>, is_write: bool, body: impl FnOnce() -> R) -> R {
        if is_write {
            let _guard = self.0.write(range);
            body()
        } else {
            let _guard = self.0.read(range);
            body()
        }
    }
}

/// A lock for each half of the file: two threads that take disjoint ranges share nothing.
pub struct Apart([CachePadded<Ours>; 2]);

impl Apart {
    /// Free locks.
    pub fn new() -> Apart {
        Apart([Ours::new(), Ours::new()].map(CachePadded::new))
    }
}

impl Candidate for Apart {
    #[inline]
    fn hold<R>(&self, range: Range<u64>, is_write: bool, body: impl FnOnce() -> R) -> R {
        let half = usize::from(range.start >= FILE_BYTES / 2);
        self.0[half].hold(range, is_write, body)
    }
}

/// Whole-file rival: parking_lot's.
#[derive(Default)]
pub struct ParkingLot(parking_lot::RwLock<()>);

impl Candidate for ParkingLot {
    #[inline]
    fn hold<R>(&self, _: Range<u64>, is_write: bool, body: impl FnOnce() -> R) -> R {
        if is_write {
            let _guard = self.0.write();
            body()
        } else {
            let _guard = self.0.read();
            body()
        }
    }
}

/// Whole-file rival: the standard library's.
#[derive(Default)]
pub struct Std(std::sync::RwLock<()>);

impl Candidate for Std {
    #[inline]
    fn hold<R>(&self, _: Range<u64>, is_write: bool, body: impl FnOnce() -> R) -> R {
        if is_write {
            let _guard = self.0.write();
            body()
        } else {
            let _guard = self.0.read();
            body()
        }
    }
}

/// A flag to wait for, with the same short look before sleeping that ours takes.
pub struct Flag {
    is_set: AtomicBool,
    waiter: Thread,
}

impl Flag {
    /// Not set; to be waited for by this thread.
    pub fn new() -> Flag {
        Flag {
            is_set: AtomicBool::new(false),
            waiter: std::thread::current(),
        }
    }

    /// Sets it and wakes the waiter.
    pub fn set(&self) {
        let waiter = self.waiter.clone();
        self.is_set.store(true, Ordering::Release);
        waiter.unpark();
    }

    /// Waits until it is set.
    pub fn wait(&self) {
        for _ in 0..64 {
            if self.is_set.load(Ordering::Acquire) {
                return;
            }
            std::hint::spin_loop();
        }
        while !self.is_set.load(Ordering::Acquire) {
            std::thread::park();
        }
    }
}
