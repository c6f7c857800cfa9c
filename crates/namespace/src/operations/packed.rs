//! Files whose last blocks are packed: they lie in the store beside other things, as the tails of
//! reiserfs lie in its tree, can be read there, and not written.
//!
//! A change of the file that touches them, or lets the file end elsewhere, moves them to blocks of
//! their own first, and then goes on as for any other file. Its range is held from the last block
//! of the file on. So a change that finds no space has changed nothing that anybody can see.

use crossbeam_epoch::Guard;

use crate::base::error::Result;
use crate::base::store::{ExtentState, MapChange};
use crate::base::types::LogicalBlock;
use crate::data::extent_map::Found;
use crate::namespace::Namespace;
use crate::operations::data::File;
use crate::operations::mapping::{mapped, unmapped};
use crate::operations::pending::Pending;

impl Namespace {
    /// Moves packed blocks to blocks of their own, where they lie in these bytes or the file ends
    /// before these bytes do.
    pub(crate) fn unpack(
        &self,
        file: &File<'_>,
        (from, to): (u64, u64),
        guard: &Guard,
    ) -> Result<()> {
        if !self.geometry.has_packed_blocks {
            return Ok(());
        }
        let (block_bytes, size) = (self.block_bytes(), file.inode.size_bytes());
        let Some((first, end)) = self.packed_blocks(file, size, guard) else {
            return Ok(());
        };
        let (start_bytes, end_bytes) = (
            first.offset_bytes(block_bytes),
            end.offset_bytes(block_bytes),
        );
        let is_touched = from < end_bytes && to > start_bytes || to > size;
        if !is_touched {
            return Ok(());
        }
        let mut content = vec![0; ((end - first) * block_bytes) as usize];
        self.read_mapped(
            (file.inode.ino, file.extents),
            start_bytes,
            &mut content,
            guard,
        )?;
        let mut pending = Pending::new(self);
        let mut block = first;
        while block < end {
            let state = ExtentState::Written;
            let extent = pending.fill_hole(file.place(), block, end - block, state, guard)?;
            block = extent.end();
        }
        let reservation = pending.reserve(0, 0)?;
        for extent in &pending.extents {
            let start = ((extent.logical - first) * block_bytes) as usize;
            let part = &content[start..start + (extent.length * block_bytes) as usize];
            let written = self.write_blank(file, extent, 0, part);
            self.note_write(file, written)?;
        }
        let inode = file.inode;
        let lock = inode.lock();
        let group = || {
            let maps = pending.extents.iter().map(|extent| MapChange::Map(*extent));
            [unmapped(inode, first, end - first, &[])]
                .into_iter()
                .chain(maps.map(|change| mapped(inode, change)))
        };
        self.log_group(group, reservation.take(), &[inode.untimed()]);
        file.extents.remove(first, end, guard);
        for extent in std::mem::take(&mut pending.extents) {
            file.extents.insert(extent, guard);
        }
        drop(lock);
        Ok(())
    }

    /// The same before the file gets another size, unless that cuts them off.
    pub(crate) fn unpack_for_size(
        &self,
        file: &File<'_>,
        size_bytes: u64,
        guard: &Guard,
    ) -> Result<()> {
        let is_cut =
            |(first, _): (LogicalBlock, _)| first.offset_bytes(self.block_bytes()) >= size_bytes;
        let size = file.inode.size_bytes();
        match self.geometry.has_packed_blocks {
            true if !self.packed_blocks(file, size, guard).is_some_and(is_cut) => {
                self.unpack(file, (0, u64::MAX), guard)
            }
            _ => Ok(()),
        }
    }

    /// The packed blocks at the end of a file of this size: the first one, and the one behind the
    /// last.
    fn packed_blocks(
        &self,
        file: &File<'_>,
        size: u64,
        guard: &Guard,
    ) -> Option<(LogicalBlock, LogicalBlock)> {
        let end = LogicalBlock::not_before(size, self.block_bytes());
        let mut first = end;
        while let Some(before) = first.0.checked_sub(1).map(LogicalBlock)
            && let Found::Mapped(extent) = file.extents.find(before, guard)
            && extent.physical.is_packed()
        {
            first = before;
        }
        (first < end).then_some((first, end))
    }
}
