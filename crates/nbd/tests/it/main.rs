//! The client, by servers of the tests and nbdkit.

mod client;
mod reconnect;
mod tls;
