//! The locks that finefs is built on. They know nothing of file systems.
//!
//! # What there is
//! | Item | For |
//! |---|---|
//! | [`Mutex`], [`Condvar`], [`RwLock`] | data that few threads want at a time |
//! | [`RawLock`] | arrays of buckets: one byte each |
//! | [`RangeLock`] | ranges of a file: disjoint ones in parallel, FIFO where they overlap |
//! | [`LocalGlobal`], [`ShardedList`] | data per CPU, and a lock over it all |
//! | [`BigReader`] | "an operation is running" against freeze and unmount |
//! | [`SeqLock`] | a few atomics read together without writing |
//! | [`PerCpuCounter`], [`LimitedCounter`], [`ShardedMax`] | sums written everywhere; amounts that must not go negative; a latest time |
//! | [`SplitCounts`] | references on what all CPUs use, while they do |
//! | `RelaxedMutex` | code that takes its lock recursively and lets go of it to sleep; with the feature `locking-schemes` |
//! | `BigLock` | the big kernel lock, to compare with; with the same feature |
//! | [`OnceLatch`] | something loaded by the first thread that needs it |
//! | [`cpu`], [`prefetch_to_read`], [`prefetch_to_write`] | which shard to use; a line that will be read or written |
//! | [`order`] | the lock order and its checker |
//! | [`primitive`] | the switch between std, loom and shuttle |
//!
//! # Rules for all
//! - Every lock has a [`LockClass`]: a name, and a level that orders it. The order checker (debug
//!   builds and the feature `order-check`) panics where a thread breaks the order; the rules stand
//!   in [`order`]. Release builds pay nothing for it.
//! - Acquisitions are metered by class in `finefs-lockmeter`: those that wait always, all of them
//!   while its full mode is on, none with the feature `meter-off`.
//! - A guard releases when dropped, after a panic too; nothing is poisoned. Guards stay with their
//!   thread.
//! - The mutexes inside the locks are leaves: nothing else is locked under them.
//!
//! # Tests
//! - `cargo test -p finefs-locks`: models, real threads, the order checker.
//! - `RUSTFLAGS="--cfg loom" cargo test -p finefs-locks --release --test loom`: the atomic
//!   protocols.
//! - `cargo test -p finefs-locks --features shuttle --test shuttle`: everything that blocks.

mod barrier;
#[cfg(feature = "locking-schemes")]
mod big_lock;
mod big_reader;
pub mod cpu;
mod limited_counter;
mod local_global;
mod metered_guard;
mod mutex;
mod once_latch;
pub mod order;
mod per_cpu_counter;
mod prefetch;
pub mod primitive;
mod range_lock;
mod raw_lock;
#[cfg(feature = "locking-schemes")]
mod recursive;
#[cfg(feature = "locking-schemes")]
mod relaxed_mutex;
mod rw_lock;
mod seq_lock;
mod shard_lock;
mod sharded_list;
mod sharded_max;
mod split_counts;
#[cfg(feature = "locking-schemes")]
mod task;
mod thread_slot;
mod wait;

#[cfg(feature = "locking-schemes")]
pub use big_lock::{BigLock, BigLockGuard, BigLockKind};
pub use big_reader::{BigReadGuard, BigReader, BigWriteGuard};
pub use finefs_lockmeter::LockClass;
pub use limited_counter::LimitedCounter;
pub use local_global::{GlobalGuard, LocalGlobal, LocalGuard};
pub use mutex::{Condvar, Mutex, MutexGuard};
pub use once_latch::OnceLatch;
pub use order::OrderKey;
pub use per_cpu_counter::PerCpuCounter;
pub use prefetch::{prefetch_to_read, prefetch_to_write};
pub use range_lock::{RangeGuard, RangeLock, SendRangeGuard};
pub use raw_lock::{RawGuard, RawLock};
#[cfg(feature = "locking-schemes")]
pub use recursive::Relaxed;
#[cfg(feature = "locking-schemes")]
pub use relaxed_mutex::{RelaxedMutex, RelaxedMutexGuard};
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use seq_lock::{ExclusiveGuard, SeqLock};
pub use sharded_list::{Removals, ShardedList, Ticket};
pub use sharded_max::ShardedMax;
pub use split_counts::{SPLIT_COUNTS_MAX, SplitCount, SplitCounts};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
