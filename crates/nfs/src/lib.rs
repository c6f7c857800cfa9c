//! A namespace as an NFS version 3 server.
//!
//! # Purpose
//! A thin adapter, as the FUSE one is: each call of a client becomes one call of the namespace, or
//! a few, each result one reply. It has no semantics of its own, and knows no format. NFS version
//! 3, MOUNT version 3, the lock manager and the status monitor are served on one port. Clients are
//! told the port of NFS and MOUNT when they mount; that of the other two they ask of a port mapper,
//! which the server is if told so.
//!
//! | Module | Thing |
//! |---|---|
//! | `server` | [`Server`]: the socket, the threads, the end |
//! | `connection`, `table` | one connection; all of them, and their clients |
//! | `turn` | the calls that a thread serves one after the other |
//! | `progress` | whether a thread gets on with them |
//! | `record` | records in a stream of bytes |
//! | `datagrams` | calls by UDP |
//! | `service` | from a record to its reply |
//! | `rpc`, `xdr` | heads of calls and replies; the encoding |
//! | `replies` | replies to calls that must not be carried out twice |
//! | `procedures` | the 22 procedures of NFS |
//! | `mount` | the procedures of MOUNT |
//! | `locks` | locks of clients: the lock manager and the status monitor |
//! | `calls` | calls of clients by the server |
//! | `portmap` | the port mapper |
//! | `options` | how a server is started |
//! | `export` | what is served, to whom, as whom |
//! | `handle`, `held` | file handles; an inode that a call uses |
//! | `changes` | whether a change was the only one of its file (weak cache consistency) |
//! | `verifier` | by which clients learn that data may be lost |
//! | `status`, `clock`, `classes` | errors; seconds; lock classes |
//! | `faults` | panics that tests ask for |
//! | `fuzzing` | records from bytes, without a socket (with the feature of that name) |
//!
//! # Invariants
//! 1. A call holds a reference on each inode that it uses, and nothing of a client is held between
//!    its calls but replies and locks, for which it can ask again. So the server can be started
//!    again at any time.
//! 2. Access is checked by the namespace, as the caller that the client names and the export makes
//!    of it. There is one exception: the owner of a file reads and writes it whatever its mode,
//!    since the client checks only when it opens.
//! 3. What is not `UNSTABLE` is durable when it is answered, unless the export is `async`.
//! 4. Calls of one connection or of several share nothing that is written but what their files
//!    share, and the words of their own connection.
//! 5. What a client can make the server keep is bounded, for each connection and each client.
//!
//! # References
//! RFC 1813 (NFS 3, MOUNT 3), RFC 5531 (RPC), RFC 4506 (XDR); Callaghan, "NFS Illustrated".

mod calls;
mod changes;
mod classes;
mod clock;
mod connection;
mod datagrams;
mod export;
mod faults;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handle;
mod held;
mod locks;
mod mount;
mod options;
mod portmap;
mod procedures;
mod progress;
mod record;
mod replies;
mod rpc;
mod server;
mod service;
mod status;
mod table;
mod turn;
mod verifier;
mod xdr;

pub use export::{ExportOptions, NOBODY, Network, Served, Squash, UnknownNetwork};
pub use locks::HeldLock;
pub use options::{LockOptions, RPCBIND_PORT, Rpcbind, ServerOptions};
pub use server::Server;
pub use table::ConnectedClient;
