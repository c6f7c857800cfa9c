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
//! nfs.lock_owners    a shard of the owners of locks
//! nfs.lock_waits     the locks that clients wait for
//!   nfs.lock_wait    when a client last asked for one
//! nfs.lock_shares    share reservations
//! nfs.lock_monitor   who is to be told of a start; held while its file is written
//!   nfs.lock_hosts   the client machines that lock
//! nfs.lock_outbox    what is to be told to clients; also taken under `ns.file_locks`
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
/// The threads that serve; when one is started, when they are looked at, and at the end.
pub(crate) static THREADS: LockClass = LockClass::new("nfs.threads", 84);
/// Who says that it has mounted.
pub(crate) static MOUNTS: LockClass = LockClass::new("nfs.mounts", 87);
/// What waits until one client reads on.
pub(crate) static OUTPUT: LockClass = LockClass::new("nfs.output", 88);
/// The client machines that lock; when one gets its first owner.
pub(crate) static LOCK_HOSTS: LockClass = LockClass::new("nfs.lock_hosts", 87);
/// A shard of the owners of locks.
pub(crate) static LOCK_OWNERS: LockClass = LockClass::new("nfs.lock_owners", 85);
/// The locks that clients wait for.
pub(crate) static LOCK_WAITS: LockClass = LockClass::new("nfs.lock_waits", 86);
/// When a client last asked for a lock that it waits for.
pub(crate) static LOCK_WAIT: LockClass = LockClass::new("nfs.lock_wait", 87);
/// Share reservations.
pub(crate) static LOCK_SHARES: LockClass = LockClass::new("nfs.lock_shares", 86);
/// Who is to be told of a start.
pub(crate) static LOCK_MONITOR: LockClass = LockClass::new("nfs.lock_monitor", 86).held_over_io();
/// What is to be told to clients.
pub(crate) static LOCK_OUTBOX: LockClass = LockClass::new("nfs.lock_outbox", 89);
