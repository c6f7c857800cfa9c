//! The locks of this crate, named in one place.

pub(crate) use finefs_locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
