//! Copying a range of one file to another, or to elsewhere in the same (copy_file_range(2)).
//!
//! # Protocol
//! The range is copied in parts of one kind: data, [`PIECE_BYTES`] at most, or a hole. Each part is
//! a read and then a write like any other, so a thread never holds two files' ranges. Who changes
//! the source meanwhile may find some parts copied from before and others from after. So it is with
//! a program that reads and writes.
//!
//! A hole stays one where the destination has no data; where it has some, all blocks that lie there
//! go. An unwritten extent of the source counts as a hole.
//!
//! A copy ends early at the end of the source, after [`COPY_BYTES`] of data or [`COPY_TIME`], and
//! at the first failure after something was copied: the next call tells of that.
//!
//! Files with the flag `S` are refused: the kernel does not say when a copy has to be durable.
//!
//! # References
//! copy_file_range(2); Linux `fs/read_write.c`, `generic_copy_file_checks`.

use std::time::{Duration, Instant};

use crossbeam_epoch::Guard;

use crate::access::access_time::AtimeUpdate;
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::ExtentState;
use crate::base::types::{Ino, LogicalBlock};
use crate::data::extent_map::{ExtentMap, Found};
use crate::namespace::Namespace;
use crate::operations::data::{File, Written, check_unsealed, check_write};
use crate::operations::mapping::written_ranges;
use crate::operations::pending::Pending;
use crate::operations::write_back::{DataTimes, Origin};
use crate::schemes::{Call, DataGuard};

/// So much data is copied at once, at most.
const PIECE_BYTES: u64 = 1 << 20;
/// So much data is copied by one call, and so long, at most: others wait for its thread meanwhile,
/// and whoever asked cannot be killed.
const COPY_BYTES: u64 = 64 << 20;
const COPY_TIME: Duration = Duration::from_millis(50);

/// Where the source of a copy ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceEnd {
    /// At its size.
    Size,
    /// Not before the end of the range. A kernel that keeps sizes (FUSE writeback cache) has cut
    /// the range at the end that it knows of. It has written out what it has of the range: what
    /// lies there beyond the size is a hole.
    Beyond,
}

/// What the source has at some place.
enum Part {
    /// So many bytes of data, which are in the buffer.
    Data(usize),
    /// So many bytes that read as zeros.
    Hole(u64),
    /// Nothing: it ends there.
    End,
}

impl Namespace {
    /// How many bytes of `length_bytes` a copy between these places can be about: none at the end
    /// of the source. EFBIG where the destination is at the end of the largest file, EINVAL where
    /// the ranges overlap, EOPNOTSUPP where each change of it has to be durable at once.
    pub fn copy_length(
        &self,
        (source, from_bytes): (Ino, u64),
        (target, to_bytes): (Ino, u64),
        length_bytes: u64,
        end: SourceEnd,
    ) -> Result<u64> {
        let operation = self.begin(Call::Data)?;
        let from = self.inode(source, &operation.guard)?;
        let to = self.inode(target, &operation.guard)?;
        from.file().and_then(|_| to.file())?;
        if to.flags().contains(FileFlags::SYNC) {
            return Err(Error::NotSupported);
        }
        let left = match end {
            SourceEnd::Size => from.size_bytes().saturating_sub(from_bytes),
            SourceEnd::Beyond => u64::MAX - from_bytes,
        };
        let length = length_bytes.min(left);
        if length == 0 {
            return Ok(0);
        }
        if source == target && from_bytes.abs_diff(to_bytes) < length {
            return Err(Error::Invalid);
        }
        match self.form_of(to).size_max_bytes.saturating_sub(to_bytes) {
            0 => Err(Error::FileTooLarge),
            room => Ok(length.min(room)),
        }
    }

    /// Copies bytes of a file to a place in another or the same; gives how many, which may be fewer
    /// than asked for: 0 only at the end of the source. Fails where nothing was copied, as
    /// [`Namespace::write`] and as [`Namespace::copy_length`] do.
    pub fn copy_range(
        &self,
        from: (Ino, u64),
        to: (Ino, u64),
        length_bytes: u64,
        end: SourceEnd,
    ) -> Result<u64> {
        let length = self.copy_length(from, to, length_bytes, end)?;
        self.copy_parts(from, to, length, (end, COPY_TIME))
    }

    /// The same for so long, and at least one part.
    fn copy_parts(
        &self,
        from: (Ino, u64),
        to: (Ino, u64),
        length: u64,
        (end, time): (SourceEnd, Duration),
    ) -> Result<u64> {
        let (began, size) = (Instant::now(), self.attributes(from.0)?.size_bytes);
        let (mut done, mut data) = (0, 0);
        let mut buffer = Vec::new();
        while done < length && data < COPY_BYTES && (done == 0 || began.elapsed() < time) {
            let place = (from.0, from.1 + done);
            let there = to.1 + done;
            // Pieces end where the destination's blocks do.
            let piece = (length - done).min(PIECE_BYTES - there % PIECE_BYTES);
            buffer.resize(piece as usize, 0);
            let copied = self
                .part_at(place, length - done, &mut buffer)
                .and_then(|part| match (part, end) {
                    (Part::Data(count), _) => {
                        data += count as u64;
                        self.copy_data(to.0, there, &buffer[..count])
                    }
                    (Part::Hole(count), _) => self.copy_hole(to.0, (there, there + count)),
                    (Part::End, SourceEnd::Size) => Ok(0),
                    // It was cut meanwhile, or is shorter than the kernel knows.
                    (Part::End, SourceEnd::Beyond) => {
                        match self.attributes(from.0)?.size_bytes < size {
                            true => Ok(0),
                            false => self.copy_hole(to.0, (there, to.1 + length)),
                        }
                    }
                });
            match copied {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// What a file has at a place, `length_bytes` of it at most; data is read into the buffer, as
    /// much as it takes. Notes the access.
    fn part_at(
        &self,
        (ino, offset_bytes): (Ino, u64),
        length_bytes: u64,
        buffer: &mut [u8],
    ) -> Result<Part> {
        let operation = self.begin(Call::Data)?;
        let guard = &operation.guard;
        let inode = self.inode(ino, guard)?;
        let body = inode.file()?;
        if let Some(length) = body.inline().and_then(|c| c.read(offset_bytes, buffer)) {
            self.note_access(inode, AtimeUpdate::ByPolicy);
            return Ok(match length {
                0 => Part::End,
                length => Part::Data(length),
            });
        }
        let extents = self.extents(inode, guard)?;
        let buffer_end = offset_bytes + buffer.len() as u64;
        let range = offset_bytes..buffer_end;
        let _range = body.contents().data.read(&self.scheme, range);
        let size = inode.size_bytes();
        if offset_bytes >= size {
            return Ok(Part::End);
        }
        let end = size.min(offset_bytes + length_bytes);
        let (is_data, until) = self.stretch(extents, (offset_bytes, end), buffer_end, guard);
        self.note_access(inode, AtimeUpdate::ByPolicy);
        if !is_data {
            return Ok(Part::Hole(until - offset_bytes));
        }
        let length = (until.min(buffer_end) - offset_bytes) as usize;
        self.read_mapped((ino, extents), offset_bytes, &mut buffer[..length], guard)?;
        Ok(Part::Data(length))
    }

    /// Whether a range that is not empty begins with data or a hole, and up to where; of data it is
    /// enough to know that it goes so far.
    fn stretch(
        &self,
        extents: &ExtentMap,
        (from, to): (u64, u64),
        enough: u64,
        guard: &Guard,
    ) -> (bool, u64) {
        let block_bytes = self.block_bytes();
        let mut first = None;
        let mut at = from;
        while at < to && !(first == Some(true) && at >= enough) {
            let block = LogicalBlock::of_byte(at, block_bytes);
            let (blocks, is_data) = match extents.find(block, guard) {
                Found::Mapped(extent) => (extent.length, extent.state == ExtentState::Written),
                Found::Hole(blocks) => (blocks, false),
            };
            if *first.get_or_insert(is_data) != is_data {
                break;
            }
            at = block.saturating_add(blocks).offset_bytes(block_bytes);
        }
        (first.unwrap_or_default(), at.min(to))
    }

    /// Writes data; gives how much.
    fn copy_data(&self, ino: Ino, offset_bytes: u64, data: &[u8]) -> Result<u64> {
        self.with_space(|| self.write_once(ino, offset_bytes, data, Origin::Caller))?;
        Ok(data.len() as u64)
    }

    /// Makes a range read as zeros, at best without blocks, and the file reach to its end; gives
    /// its length.
    fn copy_hole(&self, ino: Ino, (from, to): (u64, u64)) -> Result<u64> {
        self.with_space(|| {
            let operation = self.begin_change(Call::Data)?;
            let guard = &operation.guard;
            let file = self.file(ino, guard)?;
            check_write(file.inode, from)?;
            self.end_of(file.inode, from, to - from)?;
            self.take_capabilities(file.inode)?;
            let range = self.lock_write(&file, (from, to), false, guard);
            check_unsealed(file.inode)?;
            self.clear(&file, &range, (from, to), guard)
        })?;
        Ok(to - from)
    }

    /// The same under the range lock.
    fn clear(
        &self,
        file: &File<'_>,
        range: &DataGuard<'_>,
        (from, to): (u64, u64),
        guard: &Guard,
    ) -> Result<()> {
        if self.zero_inline(file, (from, to))? {
            return Ok(());
        }
        self.move_out(file, guard)?;
        self.unpack(file, (from, to), guard)?;
        let block_bytes = self.block_bytes();
        let first = LogicalBlock::of_byte(from, block_bytes);
        let last = LogicalBlock::not_before(to, block_bytes).min(ExtentMap::END);
        let has_data = !written_ranges(file.extents, &(first..last), guard).is_empty();
        if has_data {
            self.punch(file, (from, to), guard)?;
        }
        if to > file.inode.size_bytes() {
            let cleared = self.clear_end(file, range, to, guard);
            self.note_write(file, cleared)?;
            let written = Written {
                bytes: from..to,
                may_grow: true,
                times: DataTimes::Set,
            };
            let (pending, reservation) = (Pending::new(self), self.reserve_mapping(0, 0, 0)?);
            self.publish_write(file, pending, &[], written, reservation, guard);
        } else if !has_data {
            self.log_times(file.inode.modified(self.now()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Caller;
    use crate::{MemoryStore, Options};

    /// One part is copied whatever the time, and the next call goes on behind it.
    #[test]
    fn a_copy_ends_when_its_time_is_over() {
        const BLOCK: u64 = 4096;
        let store = MemoryStore::new(64 << 20, 0o755, 0, 0).unwrap();
        let ns = store.into_namespace(Options::default()).unwrap();
        let file = |name: &[u8]| {
            let made = ns.create_file(&Caller::root(), ns.root(), name, 0o644);
            made.unwrap().ino
        };
        let (from, to) = (file(b"from"), file(b"to"));
        ns.write(from, 0, &[1; BLOCK as usize]).unwrap();
        ns.write(from, 3 * BLOCK, &[2; 3 << 20]).unwrap();
        let length = 3 * BLOCK + (3 << 20);
        let copy = |time| {
            let (mut done, mut calls) = (0, Vec::new());
            while done < length {
                let left = length - done;
                let limits = (SourceEnd::Size, time);
                let copied = ns.copy_parts((from, done), (to, done), left, limits);
                calls.push(copied.unwrap());
                done += calls[calls.len() - 1];
            }
            calls
        };
        let pieces = [BLOCK, 2 * BLOCK, PIECE_BYTES - 3 * BLOCK];
        let rest = [PIECE_BYTES, PIECE_BYTES, 3 * BLOCK];
        assert_eq!(copy(Duration::ZERO), [pieces, rest].concat());
        assert_eq!(copy(Duration::MAX), [length]);
        let mut content = vec![0; length as usize];
        assert_eq!(ns.read(to, 0, &mut content), Ok(length as usize));
        let expected = [1, 0, 0].map(|byte| [byte; BLOCK as usize]).concat();
        assert!(content[..expected.len()] == expected);
        assert!(content[expected.len()..].iter().all(|byte| *byte == 2));
    }
}
