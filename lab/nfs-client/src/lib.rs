//! NFS 3 clients in this process. One asks as much as a server can answer: many calls of a
//! connection are under way, nothing is cached, nothing is decoded but what the next call needs.
//! One has files, as a kernel's client. And a server that answers at once and does nothing, which
//! is the most that RPC and sockets allow.
//!
//! | module | what it is about |
//! |---|---|
//! | [`wire`] | calls and replies as bytes |
//! | [`connection`] | a connection on which one call waits for its reply |
//! | [`files`] | files by their paths, with names and attributes that are remembered |
//! | [`load`] | connections with many calls under way, and their rate |
//! | [`null`] | the server that does nothing |
//!
//! # References
//! RFC 1813 (NFS 3, MOUNT 3), RFC 5531 (RPC), X/Open XNFS, chapter 10 (NLM 4).

pub mod connection;
pub mod files;
pub mod load;
pub mod null;
pub mod wire;

#[cfg(test)]
mod tests;
