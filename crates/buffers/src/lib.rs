//! What stores of formats on block devices share: blocks of metadata in memory ([`BufferCache`]),
//! and a journal that is replayed in memory over a device that must not be written ([`Overlay`]).
//!
//! Nothing here knows a format. What a transaction is, which blocks it holds, and when they may go
//! to their places, the stores know.
//!
//! # Locking
//! `buffers.shard` (80), a leaf; see [`cache`].

pub mod cache;
pub mod overlay;

pub use cache::{BufferCache, BufferRead, BufferWrite, CLEAN_LIMIT_BYTES};
pub use overlay::{Overlay, Source};
