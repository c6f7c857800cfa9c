//! Locks of finefs.

mod big_reader;
pub mod cpu;
mod limited_counter;
mod local_global;
mod mutex;
mod once_latch;
pub mod order;
mod per_cpu_counter;
pub mod primitive;
mod range_lock;
mod raw_lock;
mod rw_lock;
mod seq_lock;
mod sharded_list;
mod wait;

pub use big_reader::{BigReadGuard, BigReader, BigWriteGuard};
pub use finefs_lockmeter::LockClass;
pub use limited_counter::LimitedCounter;
pub use local_global::{GlobalGuard, LocalGlobal, LocalGuard};
pub use mutex::{Condvar, Mutex, MutexGuard};
pub use once_latch::OnceLatch;
pub use order::OrderKey;
pub use per_cpu_counter::PerCpuCounter;
pub use range_lock::{RangeGuard, RangeLock};
pub use raw_lock::{RawGuard, RawLock};
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use seq_lock::{ExclusiveGuard, SeqLock};
pub use sharded_list::{ShardedList, Ticket};
