//! Allocating, freeing and zeroing ranges of a file (fallocate(2)).
//!
//! # Protocol
//! As all changes of data (see `data`): the range is locked, everything that can find no space is
//! taken first, then data is written, and one log group names what has changed. So a call that ends
//! with ENOSPC has changed nothing. One that ends with EIO may have zeroed parts of the range.
//!
//! Blocks that are zeroed stay where they are: as unwritten extents, or, in files that know none,
//! by writing zeros.
//!
//! # References
//! fallocate(2); Linux `fs/ext4/extents.c`, `ext4_zero_range`, `ext4_punch_hole`.

use std::ops::Range;

use crossbeam_epoch::Guard;

use crate::access::permission::{check_mutable, check_unrestricted};
use crate::base::error::{Error, Result};
use crate::base::store::{BlockRun, Extent, ExtentState};
use crate::base::types::{Ino, LogicalBlock};
use crate::data::extent_map::{ExtentMap, Found};
use crate::inode::Inode;
use crate::namespace::Namespace;
use crate::operations::data::{File, Written, check_unsealed};
use crate::operations::mapping::{records_of, unmapped, written_ranges};
use crate::operations::pending::Pending;
use crate::operations::write_back::DataTimes;
use crate::schemes::{Call, DataGuard};

/// What fallocate(2) shall do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocateMode {
    /// Allocate, and grow the file if the range ends beyond it.
    Extend,
    /// Allocate, and leave the size as it is.
    KeepSize,
    /// Free the range; it reads as zeros.
    PunchHole,
    /// The range reads as zeros and stays allocated; the file may grow.
    ZeroRange,
    /// As `ZeroRange`, and leave the size as it is.
    ZeroRangeKeepSize,
}

/// The ends of a conversion may lie within extents: each splits one.
const CONVERSION_SPLITS: usize = 2;
/// A hole in the middle of an extent makes two of one.
const PUNCH_SPLITS: usize = 1;

impl Namespace {
    /// Allocates, frees or zeroes a range (fallocate(2)). ENOSPC when space runs out: nothing has
    /// changed then.
    pub fn allocate(
        &self,
        ino: Ino,
        mode: AllocateMode,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<()> {
        self.with_space(|| {
            let operation = self.begin_change(Call::Data)?;
            let guard = &operation.guard;
            let file = self.file(ino, guard)?;
            let end = self.check_allocate(file.inode, mode, (offset_bytes, length_bytes))?;
            self.take_capabilities(file.inode)?;
            let bounds = (offset_bytes, end);
            let range = self.lock_write(&file, bounds, false, guard);
            check_unsealed(file.inode)?;
            self.move_out(&file, guard)?;
            self.unpack(&file, bounds, guard)?;
            match mode {
                AllocateMode::Extend => self.fill(&file, &range, bounds, true, guard),
                AllocateMode::KeepSize => self.fill(&file, &range, bounds, false, guard),
                AllocateMode::PunchHole => self.punch(&file, bounds, guard),
                AllocateMode::ZeroRange => self.zero(&file, &range, bounds, true, guard),
                AllocateMode::ZeroRangeKeepSize => self.zero(&file, &range, bounds, false, guard),
            }
        })
    }

    /// The end of the range, or the error of a call that is refused whatever space there is.
    pub(crate) fn check_allocate(
        &self,
        inode: &Inode,
        mode: AllocateMode,
        (offset_bytes, length_bytes): (u64, u64),
    ) -> Result<u64> {
        if length_bytes == 0 {
            return Err(Error::Invalid);
        }
        let end = self.end_of(inode, offset_bytes, length_bytes)?;
        check_unsealed(inode)?;
        match mode {
            AllocateMode::Extend | AllocateMode::KeepSize => check_mutable(inode)?,
            _ => check_unrestricted(inode)?,
        }
        if matches!(
            mode,
            AllocateMode::KeepSize | AllocateMode::ZeroRangeKeepSize
        ) {
            self.check_beyond(inode, end)?;
        }
        Ok(end)
    }

    fn has_unwritten(&self, inode: &Inode) -> bool {
        self.geometry.has_unwritten && !inode.is_old_form()
    }

    /// EOPNOTSUPP where blocks up to `to` cannot be allocated without growing the file: written
    /// ones beyond the end of file are damage to e2fsck.
    fn check_beyond(&self, inode: &Inode, to: u64) -> Result<()> {
        if to > inode.size_bytes() && !self.has_unwritten(inode) {
            return Err(Error::NotSupported);
        }
        Ok(())
    }

    /// Allocates the holes of a range.
    fn fill(
        &self,
        file: &File<'_>,
        range: &DataGuard<'_>,
        (from, to): (u64, u64),
        may_grow: bool,
        guard: &Guard,
    ) -> Result<()> {
        if !may_grow {
            self.check_beyond(file.inode, to)?;
        }
        let pending = self.take_holes(file, (from, to), guard)?;
        let hole = pending.hole_before(file.extents, guard);
        let reservation = pending.reserve(hole, 0)?;
        if may_grow {
            self.clear_end(file, range, to, guard)?;
        }
        self.zero_unless_unwritten(file, &pending)?;
        let written = Written {
            bytes: from..to,
            may_grow,
            times: DataTimes::Set,
        };
        self.publish_write(file, pending, &[], written, reservation, guard);
        Ok(())
    }

    /// Takes blocks for the holes of a range.
    fn take_holes<'n>(
        &'n self,
        file: &File<'_>,
        (from, to): (u64, u64),
        guard: &Guard,
    ) -> Result<Pending<'n>> {
        let state = match self.has_unwritten(file.inode) {
            true => ExtentState::Unwritten,
            false => ExtentState::Written,
        };
        let mut pending = Pending::new(self);
        let mut block = LogicalBlock::of_byte(from, self.block_bytes());
        let last = LogicalBlock::not_before(to, self.block_bytes()).min(ExtentMap::END);
        while block < last {
            match file.extents.find(block, guard) {
                Found::Mapped(extent) => block = extent.end(),
                Found::Hole(length) => {
                    let wanted = length.min(last - block);
                    let extent = pending.fill_hole(file.place(), block, wanted, state, guard)?;
                    block = extent.end();
                }
            }
        }
        Ok(pending)
    }

    /// Blocks that will count as written must hold zeros.
    fn zero_unless_unwritten(&self, file: &File<'_>, pending: &Pending<'_>) -> Result<()> {
        let written = |extent: &&Extent| extent.state == ExtentState::Written;
        for extent in pending.extents.iter().filter(written) {
            self.write_zeros(file, extent)?;
        }
        Ok(())
    }

    fn write_zeros(&self, file: &File<'_>, extent: &Extent) -> Result<()> {
        let run = BlockRun {
            start: extent.physical,
            length: extent.length,
        };
        let place = file.content_at(extent.logical);
        self.scheme
            .device(|| self.store.write_zero_content(place, run))
    }

    /// Makes a range read as zeros, all of it allocated.
    fn zero(
        &self,
        file: &File<'_>,
        range: &DataGuard<'_>,
        (from, to): (u64, u64),
        may_grow: bool,
        guard: &Guard,
    ) -> Result<()> {
        if !may_grow {
            self.check_beyond(file.inode, to)?;
        }
        let whole = self.whole_blocks(from, to);
        let pending = self.take_holes(file, (from, to), guard)?;
        let (converted, splits) = match self.has_unwritten(file.inode) {
            true => (
                written_ranges(file.extents, &whole, guard),
                CONVERSION_SPLITS,
            ),
            false => (Vec::new(), 0),
        };
        let hole = pending.hole_before(file.extents, guard);
        let reservation = pending.reserve(hole, splits)?;
        let zeroed = || {
            if may_grow {
                self.clear_end(file, range, to, guard)?;
            }
            self.zero_unless_unwritten(file, &pending)?;
            if !self.has_unwritten(file.inode) {
                for extent in file.extents.parts(whole.start, whole.end, guard) {
                    self.write_zeros(file, &extent)?;
                }
            }
            self.zero_ends(file, from, to, guard)
        };
        self.note_write(file, zeroed())?;
        let written = Written {
            bytes: from..to,
            may_grow,
            times: DataTimes::Set,
        };
        self.publish_write(file, pending, &converted, written, reservation, guard);
        Ok(())
    }

    /// The blocks that lie in a range of bytes from their first byte to their last.
    fn whole_blocks(&self, from: u64, to: u64) -> Range<LogicalBlock> {
        let block_bytes = self.block_bytes();
        let first = LogicalBlock::not_before(from, block_bytes);
        let last = LogicalBlock::of_byte(to, block_bytes).min(ExtentMap::END);
        first..last.max(first)
    }

    /// The clusters that lie in a range of blocks from their first block to their last; where there
    /// are none, a place in it.
    fn whole_clusters(&self, blocks: &Range<LogicalBlock>) -> Range<LogicalBlock> {
        let cluster = self.geometry.cluster_blocks;
        let first = blocks.start.cluster_end(cluster).min(blocks.end);
        let end = blocks.end.cluster_start(cluster);
        first..end.max(first)
    }

    /// Zeroes what a range has of blocks at its ends that it does not have whole.
    fn zero_ends(&self, file: &File<'_>, from: u64, to: u64, guard: &Guard) -> Result<()> {
        let block_bytes = self.block_bytes();
        self.clear_tail(file, from, to, guard)?;
        let last = LogicalBlock::of_byte(to, block_bytes);
        if !to.is_multiple_of(block_bytes)
            && last >= LogicalBlock::not_before(from, block_bytes)
            && let Found::Mapped(extent) = file.extents.find(last, guard)
            && extent.state == ExtentState::Written
        {
            self.write_store(file, &extent, 0, &vec![0; (to % block_bytes) as usize])?;
        }
        Ok(())
    }

    /// Frees the whole clusters of a range and zeroes what it has of others at its ends.
    pub(crate) fn punch(
        &self,
        file: &File<'_>,
        (from, to): (u64, u64),
        guard: &Guard,
    ) -> Result<()> {
        let inode = file.inode;
        // A hole that reaches the end of file takes the file's last block whole: nothing is left in
        // it.
        let size = inode.size_bytes();
        let to = match from < size && size <= to {
            true => to.max(size.next_multiple_of(self.cluster_bytes())),
            false => to,
        };
        let whole = self.whole_blocks(from, to);
        let gone = self.whole_clusters(&whole);
        let freed = file.extents.runs(gone.start, gone.end, guard);
        let mut cleared = written_ranges(file.extents, &(whole.start..gone.start), guard);
        cleared.extend(written_ranges(file.extents, &(gone.end..whole.end), guard));
        let splits = match (freed.is_empty(), cleared.is_empty()) {
            (true, true) => 0,
            (false, true) => PUNCH_SPLITS,
            (_, false) => PUNCH_SPLITS + 2 * CONVERSION_SPLITS,
        };
        let reservation = self.reserve_mapping(0, 0, splits)?;
        self.note_write(file, self.zero_ends(file, from, to, guard))?;
        let now = self.now();
        if splits == 0 {
            self.note_overwrite(file, from..to, file.inode.modified(now));
            return Ok(());
        }
        let _lock = inode.lock();
        let group = || {
            let cleared = records_of(inode, &cleared);
            let length = gone.end - gone.start;
            let unmapped = (length > 0).then(|| unmapped(inode, gone.start, length, &freed));
            cleared.into_iter().chain(unmapped)
        };
        self.log_group(group, reservation.take(), &[inode.modified(now)]);
        for range in &cleared {
            (file.extents).convert(range.from, range.to, range.state, guard);
        }
        let blocks = file.extents.remove(gone.start, gone.end, guard);
        inode.add_sectors(-self.sectors_of(blocks));
        self.reclaim_blocks(&freed);
        Ok(())
    }
}
