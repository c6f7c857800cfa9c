//! Locking schemes: the locks of other times around the same operations, to compare with.
//!
//! | module | about |
//! |---|---|
//! | `scheme` | which schemes there are; the lock around operations, and who sleeps without it |
//! | `data_lock` | the lock over one file's data, as the scheme has it |
//!
//! # Invariants
//! 1. Under [`LockingScheme::Fine`](scheme::LockingScheme::Fine) nothing here is a lock but the
//!    range lock of a file.
//! 2. No scheme takes a fine lock away, except that over a file's data.
//!
//! # May use
//! `base`.

pub(crate) mod data_lock;
pub(crate) mod scheme;
