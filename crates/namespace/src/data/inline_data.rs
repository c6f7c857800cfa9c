//! The content of a file that lies in its inode (inline_data).
//!
//! A file of a store that keeps small contents in inodes begins there, and goes to blocks when it
//! outgrows its inode. It never comes back, as in Linux.
//!
//! # Locking
//! The content is replaced as a whole under `ns.inline`, so a read needs no other lock. A change
//! holds the range lock of the file's first block, in which all of it lies, and appends the log
//! record before: under the inode's lock, which orders it against changes of extended attributes,
//! as they share the inode's room.

use finefs_locks::Mutex;
use finefs_locks::primitive::atomic::{AtomicBool, Ordering};

use crate::base::classes;

/// See the module's head.
pub(crate) struct InlineData {
    is_inline: AtomicBool,
    content: Mutex<Box<[u8]>>,
}

impl InlineData {
    pub fn new(content: Box<[u8]>) -> InlineData {
        InlineData {
            is_inline: AtomicBool::new(true),
            content: Mutex::new(&classes::INLINE, content),
        }
    }

    /// False once the content lies in blocks.
    pub fn is_inline(&self) -> bool {
        self.is_inline.load(Ordering::Acquire)
    }

    /// The content; `None` where it lies in blocks.
    pub fn content(&self) -> Option<Box<[u8]>> {
        let content = self.content.lock();
        self.is_inline().then(|| content.clone())
    }

    /// Bytes of the content; none where it lies in blocks.
    pub fn length_bytes(&self) -> usize {
        self.content.lock().len()
    }

    /// Reads from `offset_bytes` on; `None` where the content lies in blocks.
    pub fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Option<usize> {
        let content = self.content.lock();
        if !self.is_inline() {
            return None;
        }
        let start = offset_bytes.min(content.len() as u64) as usize;
        let length = buffer.len().min(content.len() - start);
        buffer[..length].copy_from_slice(&content[start..start + length]);
        Some(length)
    }

    /// Replaces the content.
    pub fn set(&self, content: Box<[u8]>) {
        *self.content.lock() = content;
    }

    /// The content lies in blocks from now on.
    pub fn leave(&self) {
        let mut content = self.content.lock();
        *content = Box::default();
        self.is_inline.store(false, Ordering::Release);
    }
}
