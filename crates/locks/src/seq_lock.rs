//! [`SeqLock`]: readers that never write, for a few atomic fields that change together.
//!
//! # Protocol
//! The sequence number is even at rest and odd while a writer is at work. Writers exclude each
//! other by another lock, whose guard they show. The fields are atomics, accessed with relaxed
//! ordering; so a reader that runs into a writer reads a mixture but no undefined value, notices,
//! and reads again.
//!
//! Writer: (1) number becomes odd; (2) release fence; (3) write the fields; (4) number becomes
//! even, with release ordering. Reader: (a) load the number with acquire ordering, odd means try
//! again; (b) read the fields; (c) acquire fence; (d) load the number again, a change means try
//! again.
//!
//! Why the orderings: if (b) reads any field that (3) wrote, the fences (2) and (c) synchronize, so
//! (d) sees at least the odd number of (1), and the reader tries again. If (a) reads the number of
//! an earlier (4), it synchronizes with it, so (b) sees all that this writer wrote or newer. The
//! loom test `seq_lock_readers_see_pairs` fails without either fence, and with (4) or (a) relaxed.
//!
//! References: Boehm, "Can seqlocks get along with programming language memory models?" (MSPC
//! 2012); Linux `Documentation/locking/seqlock.rst`.

use crate::primitive::atomic::{AtomicUsize, Ordering, fence};
use crate::primitive::{const_unless_loom, hint, thread};
use crate::{MutexGuard, RawGuard, RwLockWriteGuard};

/// A guard that shows that its holder is alone: what a writer must hold.
///
/// ```
/// # use finefs_locks::{LockClass, Mutex, SeqLock};
/// # use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// # static CLASS: LockClass = LockClass::new("example", 10);
/// # let (writers, seq, size) = (Mutex::new(&CLASS, ()), SeqLock::new(), AtomicU64::new(1));
/// fn write_alone(seq: &SeqLock, alone: &impl finefs_locks::ExclusiveGuard, size: &AtomicU64) {
///     seq.write(alone, || size.store(2, Relaxed));
/// }
/// write_alone(&seq, &writers.lock(), &size);
/// assert_eq!(size.load(Relaxed), 2);
/// ```
pub trait ExclusiveGuard {}

impl<T> ExclusiveGuard for MutexGuard<'_, T> {}
impl<T> ExclusiveGuard for RwLockWriteGuard<'_, T> {}
impl ExclusiveGuard for RawGuard<'_> {}

/// A sequence number that lets readers see a set of atomic fields as one writer left them.
///
/// Readers write nothing, so they cost writers and each other nothing, and go on for as long as
/// writers come in between: they read again. The fields are the user's: atomics, read and written
/// with relaxed ordering, of which a reader may see a mixture before it notices. So what it reads
/// them with must not act on them, and neither panic nor loop over impossible values. Writers
/// exclude each other by a lock of their own, whose guard they show ([`ExclusiveGuard`]); all
/// writers of a sequence must show guards of the same lock.
///
/// Everything that a writer did before it ended is seen by a reader that got its fields.
///
/// ```
/// use finefs_locks::{LockClass, Mutex, SeqLock};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// static WRITERS: LockClass = LockClass::new("example.writers", 10);
/// let (writers, seq) = (Mutex::new(&WRITERS, ()), SeqLock::new());
/// let (size, blocks) = (AtomicU64::new(0), AtomicU64::new(0));
///
/// let guard = writers.lock();
/// seq.write(&guard, || {
///     size.store(4096, Relaxed);
///     blocks.store(8, Relaxed);
/// });
/// drop(guard);
/// assert_eq!(seq.read(|| (size.load(Relaxed), blocks.load(Relaxed))), (4096, 8));
/// ```
#[derive(Debug)]
pub struct SeqLock {
    sequence: AtomicUsize,
}

/// Spins before a reader gives up its time slice to the writer.
const SPIN_MAX: u32 = 64;

impl SeqLock {
    const_unless_loom! {
        /// A sequence without a writer.
        pub const fn new() -> SeqLock {
            SeqLock { sequence: AtomicUsize::new(0) }
        }
    }

    /// What `read_fields` gives when no writer interferes; calls it as often as that takes.
    ///
    /// `read_fields` reads the fields with relaxed loads. It may see a mixture, so it must not act
    /// on what it reads.
    #[inline]
    pub fn read<T>(&self, mut read_fields: impl FnMut() -> T) -> T {
        let mut attempts = 0;
        loop {
            if let Some(result) = self.try_read(&mut read_fields) {
                return result;
            }
            attempts += 1;
            if attempts < SPIN_MAX {
                hint::spin_loop();
            } else {
                // The writer may be off the CPU.
                thread::yield_now();
            }
        }
    }

    /// What `read_fields` gives, or `None` when a writer interfered.
    #[inline]
    pub fn try_read<T>(&self, read_fields: impl FnOnce() -> T) -> Option<T> {
        let before = self.sequence.load(Ordering::Acquire);
        if !before.is_multiple_of(2) {
            return None;
        }
        let result = read_fields();
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == before).then_some(result)
    }

    /// Runs `write_fields` as a writer. `_alone` is the guard of the lock under which alone these
    /// fields are written. Should `write_fields` panic, readers see what it wrote until then.
    #[inline]
    pub fn write<R>(&self, _alone: &impl ExclusiveGuard, write_fields: impl FnOnce() -> R) -> R {
        let before = self.sequence.load(Ordering::Relaxed);
        debug_assert!(
            before.is_multiple_of(2),
            "two writers, under different locks or nested"
        );
        self.sequence
            .store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        // Its drop ends the section, after a panic too.
        let _section = WriteSection {
            lock: self,
            end: before.wrapping_add(2),
        };
        write_fields()
    }
}

impl Default for SeqLock {
    fn default() -> SeqLock {
        SeqLock::new()
    }
}

struct WriteSection<'a> {
    lock: &'a SeqLock,
    end: usize,
}

impl Drop for WriteSection<'_> {
    fn drop(&mut self) {
        self.lock.sequence.store(self.end, Ordering::Release);
    }
}
