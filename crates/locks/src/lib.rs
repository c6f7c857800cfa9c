//! Locks of finefs.

pub mod cpu;
mod mutex;
pub mod order;
pub mod primitive;
mod raw_lock;
mod rw_lock;
mod wait;

pub use finefs_lockmeter::LockClass;
pub use mutex::{Condvar, Mutex, MutexGuard};
pub use order::OrderKey;
pub use raw_lock::{RawGuard, RawLock};
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
