//! How results become replies, and which errors are logged.

use std::sync::atomic::Ordering;
use std::time::Duration;

use finefs_namespace::types::{Attributes, Ino, Timestamp};
use finefs_namespace::{Error, Result};
use fuser::{Errno, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr};

use crate::adapter::Adapter;
use crate::convert::{FOREVER, file_attr};

/// What stat(2) recommends as the size of reads and writes. Programs size their buffers by it
/// (stdio does), and each buffer that is written costs a round trip.
pub(crate) const IO_SIZE_BYTES: u32 = 64 << 10;

/// Errors of the device or of the image that are logged in a second; the rest is not.
const LOGGED_ERRORS_PER_SECOND: u64 = 5;

impl Adapter {
    /// The errno of an error. What points at the device or the image is logged as well.
    pub(crate) fn errno(&self, operation: &str, ino: Ino, error: &Error) -> Errno {
        if matches!(error, Error::Io(_) | Error::Corrupt(_)) && self.may_log() {
            log::error!("{operation} of inode {ino}: {error}");
        }
        Errno::from_i32(error.errno())
    }

    /// Keeps a bad device from filling the log.
    fn may_log(&self) -> bool {
        let second = Timestamp::now().seconds() as u64 & 0xffff_ffff;
        let update = |logged: u64| {
            Some(if logged >> 32 == second {
                logged.saturating_add(1)
            } else {
                second << 32
            })
        };
        let before = self
            .logged
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, update)
            .unwrap_or(0);
        before >> 32 != second || before & 0xffff_ffff < LOGGED_ERRORS_PER_SECOND
    }

    pub(crate) fn reply_entry(
        &self,
        name: &str,
        parent: Ino,
        result: Result<Attributes>,
        reply: ReplyEntry,
    ) {
        match result {
            Ok(attributes) => {
                let node = self.numbers.node(attributes.ino);
                // The form has one number for the node and for stat(2): where the two differ,
                // the attributes must be asked for again.
                let lifetime = if node.0 == attributes.ino.0 {
                    FOREVER
                } else {
                    Duration::ZERO
                };
                reply.entry_with_ttls(
                    &lifetime,
                    &FOREVER,
                    &file_attr(&attributes, node, IO_SIZE_BYTES),
                    Generation(u64::from(attributes.generation)),
                );
            }
            Err(error) => reply.error(self.errno(name, parent, &error)),
        }
    }

    pub(crate) fn reply_attr(
        &self,
        name: &str,
        ino: Ino,
        result: Result<Attributes>,
        reply: ReplyAttr,
    ) {
        match result {
            Ok(attributes) => {
                let number = INodeNo(attributes.ino.0);
                reply.attr(&FOREVER, &file_attr(&attributes, number, IO_SIZE_BYTES));
            }
            Err(error) => reply.error(self.errno(name, ino, &error)),
        }
    }

    pub(crate) fn reply_empty(&self, name: &str, ino: Ino, result: Result<()>, reply: ReplyEmpty) {
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(self.errno(name, ino, &error)),
        }
    }

    /// The two forms of an answer about xattrs: its size when no room is offered, else itself.
    pub(crate) fn reply_xattr(
        &self,
        ino: Ino,
        size: u32,
        result: Result<Vec<u8>>,
        reply: ReplyXattr,
    ) {
        match result {
            Ok(value) if size == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(value) => reply.data(&value),
            Err(error) => reply.error(self.errno("xattr", ino, &error)),
        }
    }
}
