//! File data: read, write, append, truncate, seek. (`fallocate` is beside it.)
//!
//! # Protocol
//! An operation holds the file's range lock on the bytes that it touches, rounded out to clusters
//! where it may allocate: disjoint ones run in parallel, overlapping ones one after the other, and
//! a write is atomic against both. It is held over the I/O of the data (what else is, stands in
//! `docs/locking.md`). An append and a truncate hold the range from the end of file to infinity.
//!
//! # Invariants
//! 1. Data first: the store has the data of blocks before the log names them, and writes it before
//!    a commit that names them is durable, so a committed mapping never shows what an earlier file
//!    left there. A block that is mapped as written was written whole.
//! 2. Bytes between the end of file and the end of its block read as zeros if the file grows: a
//!    truncate clears them, and a write past the end clears the gap.
//! 3. The size changes under the inode's lock, inside the range lock.
//! 4. Of a cluster all blocks are mapped, or none is: those that hold no data are unwritten.

use std::ops::Range;

use crossbeam_epoch::Guard;
use smallvec::SmallVec;

use crate::access::access_time::AtimeUpdate;
use crate::access::permission::{check_mutable, check_unrestricted};
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::{ContentPlace, Extent, ExtentState, MapChange};
use crate::base::types::{Ino, LogicalBlock, SECTOR_BYTES};
use crate::commit::oplog::Record;
use crate::data::extent_map::{ExtentMap, Found};
use crate::inode::{Core, FileBody, Inode, Stamped};
use crate::namespace::{Namespace, Reservation};
use crate::operations::mapping::{Conversion, mapped, records_of, unmapped, written_ranges};
use crate::operations::pending::Pending;
use crate::operations::sync::SyncScope;
use crate::operations::write_back::{DataTimes, Origin};
use crate::schemes::{Call, DataGuard};

/// A regular file in an operation.
pub(crate) struct File<'g> {
    pub inode: &'g Inode,
    pub body: &'g FileBody,
    pub extents: &'g ExtentMap,
}

impl<'g> File<'g> {
    /// The inode and its mapping.
    pub fn place(&self) -> (&'g Inode, &'g ExtentMap) {
        (self.inode, self.extents)
    }

    /// What lies at the block of a number.
    pub fn content_at(&self, logical: LogicalBlock) -> ContentPlace {
        ContentPlace {
            ino: self.inode.ino,
            logical,
        }
    }
}

/// What the bytes of a write lie over that are not blank.
#[derive(Clone, Copy)]
enum Over {
    /// Others of the file, all of which goes on as it was but for them.
    OwnData,
    /// Others perhaps, in a file of which more changes.
    Anything,
}

impl Over {
    /// By whether more than bytes changes: others cannot cut the file meanwhile.
    fn of(changes_more: bool) -> Over {
        match changes_more {
            true => Over::Anything,
            false => Over::OwnData,
        }
    }
}

/// A part of a write that lies in one extent.
struct Piece {
    /// The extent from the piece's first block on.
    extent: Extent,
    /// Where in that block the piece starts, in bytes.
    within: u64,
    /// Which bytes of the data.
    bytes: std::ops::Range<usize>,
    /// The blocks hold nothing yet: what the piece leaves of them becomes zeros.
    is_blank: bool,
}

/// The bytes of a file that an operation wrote or filled.
pub(crate) struct Written {
    pub bytes: Range<u64>,
    /// The file then ends no sooner than they do.
    pub may_grow: bool,
    pub times: DataTimes,
}

/// EPERM for a file whose data are sealed: they change no more.
pub(crate) fn check_unsealed(inode: &Core) -> Result<()> {
    match inode.flags().contains(FileFlags::VERITY) {
        true => Err(Error::NotPermitted),
        false => Ok(()),
    }
}

/// EPERM where the flags of a file forbid a write there.
pub(crate) fn check_write(inode: &Core, offset_bytes: u64) -> Result<()> {
    check_unsealed(inode)?;
    let is_append = offset_bytes >= inode.size_bytes();
    if is_append {
        check_mutable(inode)
    } else {
        check_unrestricted(inode)
    }
}

/// A file that is written from one end to the other is written out in pieces of so many bytes: it
/// is not one of those that are often removed at once, and what waits of it would fill the memory
/// of many of them.
const BEHIND_BYTES: u64 = 1 << 20;

impl Namespace {
    pub(crate) fn sectors_of(&self, blocks: u64) -> i64 {
        (blocks * (self.block_bytes() / SECTOR_BYTES)) as i64
    }

    pub(crate) fn file<'g>(&self, ino: Ino, guard: &'g Guard) -> Result<File<'g>> {
        let inode = self.inode(ino, guard)?;
        let body = inode.file()?;
        Ok(File {
            inode,
            body,
            extents: self.extents(inode, guard)?,
        })
    }

    /// Reads from `offset_bytes` on; gives the number of bytes read, less than asked for only at
    /// the end of the file.
    pub fn read(&self, ino: Ino, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_with_atime(ino, offset_bytes, buffer, AtimeUpdate::ByPolicy)
    }

    /// As [`Namespace::read`], noted in the access time or not.
    pub fn read_with_atime(
        &self,
        ino: Ino,
        offset_bytes: u64,
        buffer: &mut [u8],
        atime: AtimeUpdate,
    ) -> Result<usize> {
        let operation = self.begin(Call::Data)?;
        let guard = &operation.guard;
        let inode = self.inode(ino, guard)?;
        let body = inode.file()?;
        let end = offset_bytes.saturating_add(buffer.len() as u64);
        if buffer.is_empty() {
            return Ok(0);
        }
        if let Some(length) = body.inline().and_then(|c| c.read(offset_bytes, buffer)) {
            self.note_access(inode, atime);
            return Ok(length);
        }
        let extents = self.extents(inode, guard)?;
        let _range = body.contents().data.read(&self.scheme, offset_bytes..end);
        let end = end.min(inode.size_bytes());
        let length = end.saturating_sub(offset_bytes) as usize;
        self.read_mapped((ino, extents), offset_bytes, &mut buffer[..length], guard)?;
        self.note_access(inode, atime);
        Ok(length)
    }

    /// Reads bytes within the file; holes and unwritten blocks are zeros.
    pub(crate) fn read_mapped(
        &self,
        (ino, extents): (Ino, &ExtentMap),
        offset_bytes: u64,
        buffer: &mut [u8],
        guard: &Guard,
    ) -> Result<()> {
        let block_bytes = self.block_bytes();
        let mut done = 0;
        while done < buffer.len() {
            let at = offset_bytes + done as u64;
            let (block, within) = (LogicalBlock::of_byte(at, block_bytes), at % block_bytes);
            let (blocks, source) = match extents.find(block, guard) {
                Found::Mapped(extent) if extent.state == ExtentState::Written => {
                    (extent.length, Some(extent.physical))
                }
                Found::Mapped(extent) => (extent.length, None),
                Found::Hole(blocks) => (blocks, None),
            };
            let available = blocks * block_bytes - within;
            let length = available.min((buffer.len() - done) as u64) as usize;
            let piece = &mut buffer[done..done + length];
            match source {
                Some(physical) => {
                    let place = ContentPlace {
                        ino,
                        logical: block,
                    };
                    let read = || self.store.read_content(place, physical, within, piece);
                    self.scheme.device(read)?;
                }
                None => piece.fill(0),
            }
            done += length;
        }
        Ok(())
    }

    /// Writes all of `data` at `offset_bytes`; the file grows as needed. EFBIG beyond the largest
    /// file, ENOSPC when space runs out; nothing is written then.
    ///
    /// EPERM for an immutable file, and before the end of one that is append-only. What is written
    /// to a synchronous file ([`FileFlags::SYNC`]) is durable.
    pub fn write(&self, ino: Ino, offset_bytes: u64, data: &[u8]) -> Result<usize> {
        self.write_from(ino, offset_bytes, data, Origin::Caller)
    }

    pub(crate) fn write_from(
        &self,
        ino: Ino,
        offset_bytes: u64,
        data: &[u8],
        origin: Origin,
    ) -> Result<usize> {
        let is_synchronous =
            self.with_space(|| self.write_once(ino, offset_bytes, data, origin))?;
        if is_synchronous {
            self.sync_file(ino, SyncScope::All)?;
        }
        Ok(data.len())
    }

    /// One attempt; true when what was written has to be made durable now.
    pub(crate) fn write_once(
        &self,
        ino: Ino,
        offset_bytes: u64,
        data: &[u8],
        origin: Origin,
    ) -> Result<bool> {
        let operation = self.begin_change(Call::Data)?;
        let guard = &operation.guard;
        let file = self.file(ino, guard)?;
        if data.is_empty() {
            return Ok(false);
        }
        if origin == Origin::Caller {
            check_write(file.inode, offset_bytes)?;
        }
        let end = self.end_of(file.inode, offset_bytes, data.len() as u64)?;
        if origin == Origin::Caller {
            self.take_capabilities(file.inode)?;
        }
        let range = self.lock_write(&file, (offset_bytes, end), true, guard);
        let bytes = (offset_bytes, data);
        // It may have been sealed meanwhile.
        if let Err(error) = check_unsealed(file.inode) {
            let is_kept = origin != Origin::Caller && self.holds(&file, bytes, guard)?;
            return if is_kept { Ok(false) } else { Err(error) };
        }
        self.write_locked(&file, &range, bytes, origin.times(), guard)?;
        drop(range);
        self.write_behind(&file, offset_bytes, end, guard);
        Ok(file.inode.flags().contains(FileFlags::SYNC))
    }

    /// Writes all of `data` at the end of the file; gives the offset. Concurrent appends each stay
    /// whole.
    pub fn append(&self, ino: Ino, data: &[u8]) -> Result<u64> {
        let (offset_bytes, is_synchronous) = self.with_space(|| {
            let operation = self.begin_change(Call::Data)?;
            let guard = &operation.guard;
            let file = self.file(ino, guard)?;
            check_mutable(file.inode)?;
            check_unsealed(file.inode)?;
            if !data.is_empty() {
                self.end_of(file.inode, file.inode.size_bytes(), data.len() as u64)?;
                self.take_capabilities(file.inode)?;
            }
            let cluster_bytes = self.cluster_bytes();
            let packed = u64::from(self.geometry.has_packed_blocks);
            let range = file.body.contents().data.append(&self.scheme, || {
                file.inode.size_bytes().saturating_sub(packed) / cluster_bytes * cluster_bytes
            });
            check_unsealed(file.inode)?;
            let offset_bytes = file.inode.size_bytes();
            let end = self.end_of(file.inode, offset_bytes, data.len() as u64)?;
            if !data.is_empty() {
                self.write_locked(&file, &range, (offset_bytes, data), DataTimes::Set, guard)?;
                drop(range);
                self.write_behind(&file, offset_bytes, end, guard);
            }
            Ok((offset_bytes, file.inode.flags().contains(FileFlags::SYNC)))
        })?;
        if is_synchronous {
            self.sync_file(ino, SyncScope::All)?;
        }
        Ok(offset_bytes)
    }

    /// The end of what is written; EFBIG where it is beyond the largest file.
    pub(crate) fn end_of(
        &self,
        inode: &Inode,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<u64> {
        offset_bytes
            .checked_add(length_bytes)
            .filter(|end| *end <= self.form_of(inode).size_max_bytes)
            .ok_or(Error::FileTooLarge)
    }

    pub(crate) fn cluster_bytes(&self) -> u64 {
        self.block_bytes() * self.geometry.cluster_blocks
    }

    /// The range of whole clusters around a range of bytes.
    pub(crate) fn rounded(&self, from: u64, to: u64) -> std::ops::Range<u64> {
        let cluster_bytes = self.cluster_bytes();
        from / cluster_bytes * cluster_bytes
            ..to.checked_next_multiple_of(cluster_bytes)
                .unwrap_or(u64::MAX)
    }

    /// Takes the range of a change that may grow the file: from the end of file on where that lies
    /// before `from` and within a block, because the rest of that block is cleared.
    pub(crate) fn lock_write<'g>(
        &'g self,
        file: &File<'g>,
        (from, to): (u64, u64),
        may_overwrite: bool,
        guard: &Guard,
    ) -> DataGuard<'g> {
        let block_bytes = self.block_bytes();
        let start_for = |size: u64| {
            if file.body.inline().is_some() {
                0
            } else if to > size && self.geometry.has_packed_blocks {
                // The last block must not stay packed.
                from.min(size.saturating_sub(1))
            } else if size.is_multiple_of(block_bytes) {
                from
            } else {
                from.min(size)
            }
        };
        loop {
            let start = start_for(file.inode.size_bytes());
            let range =
                file.body
                    .contents()
                    .data
                    .write(&self.scheme, self.rounded(start, to), || {
                        may_overwrite && self.is_overwrite(file, from, to, guard)
                    });
            // The file may have shrunk before the range was granted.
            if range.start() <= start_for(file.inode.size_bytes()) {
                return range;
            }
        }
    }

    /// True when a write changes neither mapping nor size.
    fn is_overwrite(&self, file: &File<'_>, from: u64, to: u64, guard: &Guard) -> bool {
        if to > file.inode.size_bytes() {
            return false;
        }
        let block_bytes = self.block_bytes();
        let mut block = LogicalBlock::of_byte(from, block_bytes);
        while block.offset_bytes(block_bytes) < to {
            match file.extents.find(block, guard) {
                Found::Mapped(extent)
                    if extent.state == ExtentState::Written && !extent.physical.is_packed() =>
                {
                    block = extent.end();
                }
                _ => return false,
            }
        }
        true
    }

    /// Clears the rest of the block in which the file ends, before the file grows to `to`. Where
    /// that block is not in the range that is held, somebody else grew the file since the range was
    /// granted, into a block of zeros.
    pub(crate) fn clear_end(
        &self,
        file: &File<'_>,
        range: &DataGuard<'_>,
        to: u64,
        guard: &Guard,
    ) -> Result<()> {
        let size = file.inode.size_bytes();
        if to > size && range.start() <= size {
            self.clear_tail(file, size, to, guard)?;
        }
        Ok(())
    }

    fn write_locked(
        &self,
        file: &File<'_>,
        range: &DataGuard<'_>,
        (offset_bytes, data): (u64, &[u8]),
        times: DataTimes,
        guard: &Guard,
    ) -> Result<()> {
        if self.write_inline(file, offset_bytes, data, times)? {
            return Ok(());
        }
        self.move_out(file, guard)?;
        let block_bytes = self.block_bytes();
        let end = offset_bytes + data.len() as u64;
        self.unpack(file, (offset_bytes, end), guard)?;
        let mut pending = Pending::new(self);
        let mut converted: Vec<Conversion> = Vec::new();
        let mut pieces: SmallVec<[Piece; 4]> = SmallVec::new();
        let mut done = 0;
        // Space first: a write that finds none has changed nothing.
        while done < data.len() {
            let at = offset_bytes + done as u64;
            let (block, within) = (LogicalBlock::of_byte(at, block_bytes), at % block_bytes);
            let left = data.len() - done;
            let (extent, is_blank) = match file.extents.find(block, guard) {
                Found::Hole(length) => {
                    let wanted = length.min((within + left as u64).div_ceil(block_bytes));
                    let state = ExtentState::Written;
                    let filled = pending.fill_hole(file.place(), block, wanted, state, guard);
                    (filled?, true)
                }
                Found::Mapped(extent) => (extent, extent.state == ExtentState::Unwritten),
            };
            let space = extent.length * block_bytes - within;
            let length = space.min(left as u64) as usize;
            if extent.state == ExtentState::Unwritten {
                let blocks = (within + length as u64).div_ceil(block_bytes);
                converted.push(Conversion {
                    from: block,
                    to: block + blocks,
                    state: ExtentState::Written,
                });
            }
            let bytes = done..done + length;
            pieces.push(Piece {
                extent,
                within,
                bytes,
                is_blank,
            });
            done += length;
        }
        let hole = pending.hole_before(file.extents, guard);
        let reservation = pending.reserve(hole, converted.len())?;

        let changes_map = !pending.extents.is_empty() || !converted.is_empty();
        let over = Over::of(changes_map || end > file.inode.size_bytes());
        let written = self
            .clear_end(file, range, offset_bytes, guard)
            .and_then(|()| self.write_pieces(file, pieces, data, over));
        self.note_write(file, written)?;
        let written = Written {
            bytes: offset_bytes..end,
            may_grow: true,
            times,
        };
        self.publish_write(file, pending, &converted, written, reservation, guard);
        Ok(())
    }

    /// Lets the store write out a piece that a write has come to the end of. No range is locked any
    /// more, so that others go on with the file meanwhile.
    fn write_behind(&self, file: &File<'_>, offset_bytes: u64, end: u64, guard: &Guard) {
        let piece_end = end - end % BEHIND_BYTES;
        if piece_end <= offset_bytes || !self.store.takes_batches() {
            return;
        }
        let block_bytes = self.block_bytes();
        let block_at = |offset_bytes| LogicalBlock::of_byte(offset_bytes, block_bytes);
        let (from, to) = (block_at(piece_end - BEHIND_BYTES), block_at(piece_end));
        for run in file.extents.runs(from, to, guard) {
            self.scheme.device(|| self.store.write_behind(run));
        }
    }

    fn write_pieces(
        &self,
        file: &File<'_>,
        pieces: SmallVec<[Piece; 4]>,
        data: &[u8],
        over: Over,
    ) -> Result<()> {
        for piece in pieces {
            let bytes = &data[piece.bytes];
            let (extent, within) = (&piece.extent, piece.within);
            match over {
                _ if piece.is_blank => self.write_blank(file, extent, within, bytes)?,
                Over::Anything => self.write_store(file, extent, within, bytes)?,
                Over::OwnData => self.overwrite_store(file, extent, within, bytes)?,
            }
        }
        Ok(())
    }

    /// Passes on how writing data ended. What failed is told by the next sync too: the writer may
    /// have looked away, and what was in the file before may be there only in part.
    pub(crate) fn note_write(&self, file: &File<'_>, written: Result<()>) -> Result<()> {
        if matches!(written, Err(Error::Io(_))) {
            file.body.write_errors.record();
            self.write_errors.record();
        }
        written
    }

    /// Writes from the start of an extent on.
    pub(crate) fn write_store(
        &self,
        file: &File<'_>,
        extent: &Extent,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        let (place, block) = (file.content_at(extent.logical), extent.physical);
        let write = || (self.store).write_content(place, block, offset_bytes, data);
        self.scheme.device(write)
    }

    /// The same where the bytes lie over others of the file: see [`Store::overwrite_content`].
    ///
    /// [`Store::overwrite_content`]: crate::Store::overwrite_content
    fn overwrite_store(
        &self,
        file: &File<'_>,
        extent: &Extent,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        let (place, block) = (file.content_at(extent.logical), extent.physical);
        let write = || (self.store).overwrite_content(place, block, offset_bytes, data);
        self.scheme.device(write)
    }

    /// The same where the blocks hold nothing yet.
    pub(crate) fn write_blank(
        &self,
        file: &File<'_>,
        extent: &Extent,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        let (place, block) = (file.content_at(extent.logical), extent.physical);
        let write = || (self.store).write_blank_content(place, block, offset_bytes, data);
        self.scheme.device(write)
    }

    /// Logs and shows what a write did.
    pub(crate) fn publish_write(
        &self,
        file: &File<'_>,
        mut pending: Pending<'_>,
        converted: &[Conversion],
        written: Written,
        reservation: Reservation<'_>,
        guard: &Guard,
    ) {
        let inode = file.inode;
        let now = self.now();
        let end = if written.may_grow {
            written.bytes.end
        } else {
            0
        };
        let changes_map = !pending.extents.is_empty() || !converted.is_empty();
        if !changes_map && end <= inode.size_bytes() {
            self.note_overwrite(file, written.bytes, written.times.of(inode, now));
            return;
        }
        let lock = inode.lock();
        // Another write may have grown the file further meanwhile.
        let grows = end > inode.size_bytes();
        let group = || {
            let maps = pending.extents.iter().map(|extent| MapChange::Map(*extent));
            let converts = converted.iter().map(Conversion::change);
            // Numbered when its turn comes, as the changes before it are: see `delta`.
            let sized = grows.then_some(end).into_iter();
            let sized = sized.map(|size_bytes| Record::Sized {
                ino: inode.ino,
                sequence: inode.next_sequence(),
                size_bytes,
            });
            maps.chain(converts)
                .map(|change| mapped(inode, change))
                .chain(sized)
        };
        self.log_group(group, reservation.take(), &[written.times.of(inode, now)]);
        let mut blocks = 0;
        for extent in std::mem::take(&mut pending.extents) {
            let is_held = file.extents.insert(extent, guard);
            debug_assert!(is_held, "end_of keeps writes below the largest file");
            blocks += extent.length;
        }
        for range in converted {
            (file.extents).convert(range.from, range.to, range.state, guard);
        }
        inode.add_sectors(self.sectors_of(blocks));
        if grows {
            inode.set_size(&lock, end);
        }
    }

    /// Notes that bytes changed at blocks that were mapped before, which the store has by now.
    pub(crate) fn note_overwrite(&self, file: &File<'_>, bytes: Range<u64>, times: Stamped<'_>) {
        if self.keeps_log {
            let block_bytes = self.block_bytes();
            let first = LogicalBlock::of_byte(bytes.start, block_bytes);
            let end = LogicalBlock::not_before(bytes.end, block_bytes);
            let unsynced = &file.body.contents().unsynced;
            unsynced.note(first..end, self.log.current());
        }
        // What is in this tick of the clock was noted with the first of them; see `sync`.
        self.log_times(times);
    }

    /// Reserves what it takes to map so many new runs into a file of the new form, behind a hole,
    /// and to split extents so many times.
    pub(crate) fn reserve_mapping(
        &self,
        runs: usize,
        hole: u64,
        splits: usize,
    ) -> Result<Reservation<'_>> {
        self.reserve_runs((runs, false), hole, splits)
    }

    /// Writes zeros over `from..to` where written blocks lie there, both in the same block or `to`
    /// beyond it: only the rest of `from`'s block matters.
    pub(crate) fn clear_tail(
        &self,
        file: &File<'_>,
        from: u64,
        to: u64,
        guard: &Guard,
    ) -> Result<()> {
        let block_bytes = self.block_bytes();
        let within = from % block_bytes;
        if within == 0 {
            return Ok(());
        }
        let block = LogicalBlock::of_byte(from, block_bytes);
        if let Found::Mapped(extent) = file.extents.find(block, guard)
            && extent.state == ExtentState::Written
        {
            let length = (block_bytes - within).min(to - from);
            self.write_store(file, &extent, within, &vec![0; length as usize])?;
        }
        Ok(())
    }

    /// Sets the size of a file; what is beyond is freed, what is new reads as zeros.
    pub(crate) fn truncate(&self, ino: Ino, size_bytes: u64) -> Result<()> {
        let operation = self.begin_change(Call::SetAttributes)?;
        let guard = &operation.guard;
        let file = self.file(ino, guard)?;
        check_unrestricted(file.inode).and_then(|()| check_unsealed(file.inode))?;
        if size_bytes > self.form_of(file.inode).size_max_bytes {
            return Err(Error::FileTooLarge);
        }
        self.take_capabilities(file.inode)?;
        let inode = file.inode;
        let packed = u64::from(self.geometry.has_packed_blocks);
        let last = || inode.size_bytes().saturating_sub(packed);
        let cluster_bytes = self.cluster_bytes();
        let from = size_bytes.min(last()) / cluster_bytes * cluster_bytes;
        let mut range = file.body.contents().data.write_to_end(&self.scheme, from);
        // The file may have shrunk before the range was granted: take it from further down.
        while range.start() > last() {
            let start = last() / cluster_bytes * cluster_bytes;
            drop(range);
            range = file.body.contents().data.write_to_end(&self.scheme, start);
        }
        check_unsealed(inode)?;
        if self.truncate_inline(&file, size_bytes)? {
            return Ok(());
        }
        self.move_out(&file, guard)?;
        self.unpack_for_size(&file, size_bytes, guard)?;
        let size_before = inode.size_bytes();
        let first_cut = LogicalBlock::not_before(size_bytes, self.block_bytes());
        let first_gone = first_cut.cluster_end(self.geometry.cluster_blocks);
        // A file that grows keeps what it has.
        let goes = size_bytes <= size_before;
        let end = LogicalBlock(if goes { ExtentMap::END.0 } else { 0 });
        let freed = file.extents.runs(first_gone, end, guard);
        let in_cluster = first_cut..first_gone.min(end);
        let cut = written_ranges(file.extents, &in_cluster, guard);
        // Elsewhere nothing is split: the nodes of the mapping are written anew in place.
        let reservation = self.reserve_mapping(0, 0, cut.len())?;
        match goes {
            true => self.clear_tail(&file, size_bytes, u64::MAX, guard)?,
            false => self.clear_tail(&file, size_before, size_bytes, guard)?,
        }
        let lock = inode.lock();
        let frees = !freed.is_empty();
        let group = || {
            let cleared = records_of(inode, &cut);
            let to_end = LogicalBlock::MAX - first_gone;
            let unmapped = frees.then(|| unmapped(inode, first_gone, to_end, &freed));
            let sized = Record::Sized {
                ino,
                sequence: inode.next_sequence(),
                size_bytes,
            };
            cleared.into_iter().chain(unmapped).chain([sized])
        };
        // Also where the size is what it was (POSIX ftruncate()).
        let touched = [inode.modified(self.now())];
        self.log_group(group, reservation.take(), &touched);
        for range in &cut {
            (file.extents).convert(range.from, range.to, range.state, guard);
        }
        if frees {
            let blocks = file.extents.remove(first_gone, end, guard);
            inode.add_sectors(-self.sectors_of(blocks));
            self.reclaim_blocks(&freed);
        }
        inode.set_size(&lock, size_bytes);
        Ok(())
    }

    /// The first offset at or after `offset_bytes` that holds data (lseek SEEK_DATA). ENXIO when
    /// there is none before the end of the file.
    pub fn seek_data(&self, ino: Ino, offset_bytes: u64) -> Result<u64> {
        self.seek(ino, offset_bytes, true)
    }

    /// The first offset at or after `offset_bytes` in a hole; the end of file counts as one.
    pub fn seek_hole(&self, ino: Ino, offset_bytes: u64) -> Result<u64> {
        self.seek(ino, offset_bytes, false)
    }

    fn seek(&self, ino: Ino, offset_bytes: u64, wants_data: bool) -> Result<u64> {
        let operation = self.begin(Call::Data)?;
        let guard = &operation.guard;
        let inode = self.inode(ino, guard)?;
        let body = inode.file()?;
        let size = inode.size_bytes();
        if offset_bytes >= size {
            return Err(Error::NoSuchOffset);
        }
        if body.inline().is_some() {
            return Ok(if wants_data { offset_bytes } else { size });
        }
        let extents = self.extents(inode, guard)?;
        let _range = body
            .contents()
            .data
            .read(&self.scheme, offset_bytes..u64::MAX);
        let size = inode.size_bytes();
        let block_bytes = self.block_bytes();
        let mut at = offset_bytes;
        while at < size {
            let block = LogicalBlock::of_byte(at, block_bytes);
            let (blocks, is_data) = match extents.find(block, guard) {
                Found::Mapped(extent) => (extent.length, extent.state == ExtentState::Written),
                Found::Hole(_) if wants_data => match extents.next_mapped(block, guard) {
                    Some(next) => (next - block, false),
                    None => break,
                },
                Found::Hole(blocks) => (blocks, false),
            };
            if is_data == wants_data {
                return Ok(at);
            }
            at = (block + blocks).offset_bytes(block_bytes);
        }
        if wants_data {
            Err(Error::NoSuchOffset)
        } else {
            Ok(size)
        }
    }
}
