//! What a file's data needs beside its bytes.
//!
//! | module | about |
//! |---|---|
//! | `extent_map` | which blocks hold which part of a file |
//! | `inline_data` | a content that lies in the inode |
//! | `unsynced` | overwritten data that no sync has made durable yet |
//! | `write_errors` | errors of writing data, until each opener was told |
//!
//! # Invariants
//! 1. Reading a map takes no lock. It changes under the lock of a segment, by the holder of the
//!    range of the file's data.
//! 2. The bytes are the store's. Nothing here reads or writes them.
//!
//! # May use
//! `base`.

pub(crate) mod extent_map;
pub(crate) mod inline_data;
pub(crate) mod unsynced;
pub(crate) mod write_errors;
