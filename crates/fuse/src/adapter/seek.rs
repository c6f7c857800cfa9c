//! SEEK_DATA and SEEK_HOLE.
//!
//! What a program has stored through a mapping, or written into the kernel's write-back cache, is
//! in no request until the kernel writes the pages out, and it asks for data and holes without
//! doing so (`fuse_lseek` in Linux's `fs/fuse/file.c`). Nor does a server know which files are
//! mapped. So before a hole is told of, the kernel writes out and forgets what pages it has there.
//! It keeps those of data, so a file without holes costs nothing but the end of its last page.
//!
//! The kernel holds the file's lock for changes (`i_rwsem`) while it waits for the answer. Writing
//! pages out does not take it, but needs other threads to serve the writes: whoever seeks may wait
//! for these, and has a thread of its own (`waiting`).
//!
//! While the file system is frozen these writes would wait for the thaw. Then all of a file counts
//! as data, as on a file system that knows of no holes.
//!
//! # References
//! lseek(2).

use finefs_namespace::types::Ino;
use finefs_namespace::{Error, Result};

use super::Adapter;

impl Adapter {
    /// The first offset, from `offset` on, of data or of a hole.
    pub(super) fn seek(&self, node: u64, offset: u64, whence: i32) -> Result<u64> {
        let ino = self.numbers.ino(node);
        let wants_data = match whence {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return Err(Error::Invalid),
        };
        if i64::try_from(offset).is_err() {
            return Err(Error::NoSuchOffset);
        }
        // With the write-back cache the kernel may know of a larger size.
        if self.namespace.is_frozen() && !self.negotiated.has_writeback_cache {
            let size_bytes = self.namespace.attributes(ino)?.size_bytes;
            return match offset < size_bytes {
                true if wants_data => Ok(offset),
                true => Ok(size_bytes),
                false => Err(Error::NoSuchOffset),
            };
        }
        match wants_data {
            true => self.seek_data(node, ino, offset),
            false => self.seek_hole(node, ino, offset),
        }
    }

    fn seek_data(&self, node: u64, ino: Ino, offset: u64) -> Result<u64> {
        let end = match self.namespace.seek_data(ino, offset) {
            Ok(at) if at == offset => return Ok(at),
            Ok(at) => Some(at),
            Err(Error::NoSuchOffset) => None,
            Err(error) => return Err(error),
        };
        self.write_out_hole(node, offset, end);
        self.namespace.seek_data(ino, offset)
    }

    fn seek_hole(&self, node: u64, ino: Ino, offset: u64) -> Result<u64> {
        let mut found = self.namespace.seek_hole(ino, offset);
        loop {
            let hole = match found {
                Ok(at) => at,
                // The kernel may know of more.
                Err(Error::NoSuchOffset) => offset,
                Err(error) => return Err(error),
            };
            let end = self.namespace.seek_data(ino, hole).ok();
            self.write_out_hole(node, hole, end);
            found = self.namespace.seek_hole(ino, offset);
            if !matches!(found, Ok(at) if at > hole) {
                return found;
            }
        }
    }

    /// Has the kernel write out what it has of a hole, which may make it smaller.
    fn write_out_hole(&self, node: u64, from: u64, to: Option<u64>) {
        if let Some(kernel) = &self.kernel {
            kernel.write_out_pages(node, from, to);
        }
    }
}
