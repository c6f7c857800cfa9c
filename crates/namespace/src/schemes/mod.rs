//! Locking schemes: the locks of other times around the same operations, to compare with.
//!
//! | module | about |
//! |---|---|
//! | `call` | the kinds of operations |
//! | `scheme` | which schemes there are; the lock around operations, and what sleeps without it |
//! | `data_lock` | the lock over one file's data, as the scheme has it |
//! | `fine` | takes the place of both without the feature `locking-schemes` |
//!
//! # Invariants
//! 1. Under `LockingScheme::Fine` nothing here is a lock but the
//!    range lock of a file.
//! 2. No scheme takes a fine lock away, except that over a file's data.
//!
//! # May use
//! `base`.

mod call;
#[cfg(feature = "locking-schemes")]
mod data_lock;
#[cfg(not(feature = "locking-schemes"))]
mod fine;
#[cfg(feature = "locking-schemes")]
mod scheme;

pub(crate) use call::Call;
#[cfg(feature = "locking-schemes")]
pub(crate) use data_lock::{DataGuard, DataLock};
#[cfg(not(feature = "locking-schemes"))]
pub(crate) use fine::{DataGuard, DataLock, LockingScheme, OuterGuard, Scheme};
#[cfg(feature = "locking-schemes")]
pub use scheme::{LockingScheme, UnknownScheme};
#[cfg(feature = "locking-schemes")]
pub(crate) use scheme::{OuterGuard, Scheme};
