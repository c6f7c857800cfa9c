//! What stores of formats on block devices share.
//!
//! | Module | Thing |
//! |---|---|
//! | [`cache`] | blocks of metadata in memory |
//! | [`overlay`] | a journal that is replayed in memory over a device that must not be written |
//! | [`data_cache`] | data of files in memory, with writeback |
//! | [`file_data`] | data of files: that cache over the device |
//! | [`alloc`] | the live allocator of blocks, and of inode numbers where groups have them |
//!
//! Nothing here knows a format. What a transaction is, which blocks it holds, and when they may go
//! to their places, the stores know.
//!
//! # Locking
//! `buffers.group` (60); `buffers.shard` (80), `buffers.write_out` and `buffers.behind` (81),
//! `buffers.data_cache` (82), all leaves: see the modules.

pub mod alloc;
pub mod cache;
pub mod data_cache;
pub mod file_data;
pub mod overlay;

pub use cache::{BufferCache, BufferRead, BufferWrite, CLEAN_LIMIT_BYTES};
pub use data_cache::DataMode;
pub use file_data::{CACHED_BYTES_MAX, FileData};
pub use overlay::{Overlay, Source};

use finefs_namespace::Error;

/// What an error says, without its kind: for a line that names the kind itself.
fn detail(error: &Error) -> String {
    match error {
        Error::Corrupt(what) | Error::Io(what) => what.to_string(),
        error => error.to_string(),
    }
}
