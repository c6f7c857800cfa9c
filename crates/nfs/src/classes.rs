//! The lock classes of the server. None is held while the namespace is called.
//!
//! ```text
//! nfs.clients        which client machines there are
//!   nfs.place        the connection at a place of the table
//!     nfs.input      what was read of a connection and not served yet
//!       nfs.output   what waits until a client reads on
//! nfs.replies        one reply that is kept, and whether its call is under way
//! nfs.threads        the threads that serve
//! nfs.mounts         who says that it has mounted
//! ```

use finefs_lockmeter::LockClass;

/// Which client machines there are; when connections come and go.
pub(crate) static CLIENTS: LockClass = LockClass::new("nfs.clients", 84);
/// The connection at one place of the table.
pub(crate) static PLACE: LockClass = LockClass::new("nfs.place", 85);
/// What was read of one connection.
pub(crate) static INPUT: LockClass = LockClass::new("nfs.input", 86);
/// One reply of one client that is kept.
pub(crate) static REPLIES: LockClass = LockClass::new("nfs.replies", 87);
/// The threads that serve; when one is started, and at the end.
pub(crate) static THREADS: LockClass = LockClass::new("nfs.threads", 84);
/// Who says that it has mounted.
pub(crate) static MOUNTS: LockClass = LockClass::new("nfs.mounts", 87);
/// What waits until one client reads on.
pub(crate) static OUTPUT: LockClass = LockClass::new("nfs.output", 88);
