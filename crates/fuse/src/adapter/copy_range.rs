//! COPY_FILE_RANGE, in its two forms.
//!
//! The kernel has checked how both files were opened, that the ranges do not overlap, and the
//! limits of the caller. It has written out what it has of both ranges in its cache, and will
//! forget its pages of the one that is copied to.
//!
//! # References
//! `fuse_copy_file_range` in Linux's `fs/fuse/file.c`, `vfs_copy_file_range`.

use finefs_namespace::{DataChange, SourceEnd};

use super::{Adapter, Answer, Failure, is_in_group, put};
use crate::abi::{CopyFileRangeIn, CopyFileRangeOut, InHeader, WriteOut};

/// The most that the older form may tell that it has copied, in whole pages of any size.
const SHORT_MAX_BYTES: u64 = u32::MAX as u64 & !0xffff;

impl Adapter {
    /// Copies a range and puts the answer into `space`, which has 64 bits for the length where
    /// `is_long`.
    pub(super) fn copy_range(
        &self,
        header: &InHeader,
        fields: &CopyFileRangeIn,
        is_long: bool,
        space: &mut [u8],
    ) -> Answer {
        let limit = if is_long { u64::MAX } else { SHORT_MAX_BYTES };
        let length = self.copied_length(header, fields, limit)?;
        match is_long {
            true => put(space, &CopyFileRangeOut { length }),
            false => {
                let size = length as u32;
                put(space, &WriteOut { size, padding: 0 })
            }
        }
    }

    fn copied_length(
        &self,
        header: &InHeader,
        fields: &CopyFileRangeIn,
        limit: u64,
    ) -> Result<u64, Failure> {
        // None is known.
        if fields.flags != 0 {
            return Err(Failure::Errno(libc::EINVAL));
        }
        // The kernel does not drop its pages of the destination.
        if self.negotiated.keeps_copied_pages {
            return Err(Failure::Errno(libc::ENOSYS));
        }
        let namespace = &*self.namespace;
        // The kernel does not wait for a copy to be durable as for a write: with this answer it
        // writes. (`sync` has this too.)
        if namespace.has_synchronous_directories() {
            return Err(Failure::Errno(libc::EOPNOTSUPP));
        }
        let from = (self.numbers.ino(header.node), fields.offset);
        let to = (self.numbers.ino(fields.node_out), fields.offset_out);
        let end = match self.negotiated.has_writeback_cache {
            true => SourceEnd::Beyond,
            false => SourceEnd::Size,
        };
        let length = namespace.copy_length(from, to, fields.length.min(limit), end)?;
        if length == 0 {
            return Ok(0);
        }
        let change = DataChange::Write {
            offset_bytes: to.1,
            length_bytes: length,
        };
        let caller = self.caller(header, 0);
        let is_in_group = |gid| is_in_group(header, gid);
        let cleared = namespace.remove_privileges_unless_root(&caller, to.0, change, is_in_group);
        self.tell_of_mode(fields.node_out, cleared?);
        let accessed = || namespace.attributes(from.0).map(|seen| seen.times.accessed);
        let before = accessed()?;
        let copied = namespace.copy_range(from, to, length, end)?;
        // After a read the kernel asks for the time anew, after this it does not.
        if accessed().is_ok_and(|after| after != before) {
            self.tell_of_attributes(header.node);
        }
        Ok(copied)
    }
}
