//! What a caller may do with an inode, and what a use notes in it.
//!
//! | module | about |
//! |---|---|
//! | `permission` | permission checks, by mode and by ACL |
//! | `acls` | ACLs beside modes: set, changed by chmod, inherited |
//! | `access_time` | which reads are noted in the access time |
//!
//! # Invariants
//! 1. A caller whose checks were made already ([`Caller::is_checked`](crate::Caller)) passes all of
//!    them, but for what the flags of an inode forbid.
//! 2. An access ACL and the mode change together, for readers as in the log.
//!
//! # May use
//! Everything below: `namespace` and what it may use.

pub(crate) mod access_time;
pub(crate) mod acls;
pub(crate) mod permission;
