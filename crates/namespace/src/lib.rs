//! The namespace: inodes, directories, data mappings and open files in memory, concurrent and
//! authoritative, over a store that loads objects and takes batches of changes.

pub mod error;
pub mod store;
pub mod types;

pub use error::{Error, Result};
