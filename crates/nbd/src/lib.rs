//! A client of network block devices: what qemu-nbd, nbdkit and others export, as a
//! [`BlockDevice`](finefs_block::BlockDevice).
//!
//! | Module | Thing |
//! |---|---|
//! | [`uri`] | `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH`, nbds for TLS |
//! | `protocol` | the numbers of the protocol, and errors |
//! | `socket` | a socket that waits no longer than it may |
//! | `tls` | `nbds://`: encryption, certificates |
//! | `stream` | a socket with or without TLS |
//! | `handshake` | from the greeting to what an export can do |
//! | `connection` | requests on their way, and their replies |
//! | `unflushed` | what was written since the last flush |
//! | `link` | the connections in use, and new ones for lost ones |
//! | `device` | the block device over one or several connections |
//!
//! # Invariants
//! 1. Every wait is bounded: a server from which no reply comes for the time that the URL says
//!    (`timeout=`, 60 s without it) has failed.
//! 2. A connection on which anything was wrong (silence, its end, bytes that are no reply to what
//!    was asked) is not used again, nor are the others of the device: nobody knows which of the
//!    writes since the last flush the server has. Without `reconnect-delay=` the whole device has
//!    failed, and all later requests fail at once; with it they wait for new connections (`link`).
//! 3. What a server says is believed within bounds only: lengths and offsets of replies are those
//!    of their requests.
//! 4. A write is sent on one connection and a flush on any, so several are opened only where the
//!    server says that a flush covers them all (`CAN_MULTI_CONN`).
//!
//! # Locking
//! No thread of its own: a caller that waits for its reply receives for the others too. `nbd.send`
//! is held over one request, `nbd.receive` by the thread that receives; `nbd.requests` guards what
//! is on its way, `nbd.tls` what is encrypted, `nbd.link` which connections are in use and
//! `nbd.unflushed` what may have to be written again; none of these is held over I/O.
//!
//! # References
//! The NBD protocol and the NBD URI specification, of the project NetworkBlockDevice.

mod connection;
mod device;
mod handshake;
mod link;
mod protocol;
mod socket;
mod stream;
mod tls;
mod unflushed;
pub mod uri;

pub use device::NbdDevice;
pub use socket::{dial, dial_by};
pub use uri::NbdUri;
