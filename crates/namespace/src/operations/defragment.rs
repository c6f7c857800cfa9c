//! Moving the blocks of a file together.
//!
//! # Protocol
//! As a write (see `data`): a piece of the file is locked, new blocks are taken, the data is copied
//! into them, and one log group takes the old blocks out of the mapping and puts the new ones into
//! it. So a commit brings all of a piece or nothing; the store has the data before it names the new
//! blocks, and gives the old ones to nobody before it is durable. Contents, size and times stay.
//!
//! A piece moves only if it then lies in fewer runs than before.
//!
//! # References
//! Linux `fs/ext4/move_extent.c` (EXT4_IOC_MOVE_EXT, by which e4defrag(8) works). Its argument is a
//! number of a file that the caller has open, which no FUSE server can look up.

use std::ops::Range;

use crossbeam_epoch::Guard;

use crate::base::error::{Error, Result};
use crate::base::store::{BlockRun, Extent, ExtentState, MapChange};
use crate::base::types::{BlockNo, Ino, LogicalBlock};
use crate::commit::oplog::Record;
use crate::data::extent_map::{ExtentMap, Found};
use crate::namespace::Namespace;
use crate::operations::data::File;
use crate::operations::mapping::{mapped, unmapped};
use crate::operations::pending::Pending;
use crate::schemes::Call;

/// So many blocks of a file are moved at once.
const PIECE_BLOCKS: u64 = 1 << 14;
/// So much is copied at once.
const COPY_BYTES: u64 = 1 << 20;
/// The ends of a piece may lie within extents.
const SPLITS: usize = 2;

impl Namespace {
    /// In how many runs of adjacent blocks a file lies.
    pub fn runs(&self, ino: Ino) -> Result<u64> {
        let operation = self.begin(Call::Data)?;
        let guard = &operation.guard;
        let inode = self.inode(ino, guard)?;
        let body = inode.file()?;
        if body.inline().is_some() {
            return Ok(0);
        }
        let extents = self.extents(inode, guard)?;
        let _range = body.contents().data.read(&self.scheme, 0..u64::MAX);
        let whole = LogicalBlock(0)..LogicalBlock::MAX;
        Ok(runs_of(&extents_in(extents, whole, guard)))
    }

    /// Moves the blocks of a file together, as far as that makes fewer runs of them; tells how many
    /// there are then. ENOSPC where there is no room for a copy of a piece. EOPNOTSUPP for a file
    /// system in memory.
    pub fn defragment(&self, ino: Ino) -> Result<u64> {
        if !self.store.takes_batches() {
            return Err(Error::NotSupported);
        }
        let mut at = LogicalBlock(0);
        while let Some(next) = self.with_space(|| self.move_piece(ino, at))? {
            at = next;
        }
        self.runs(ino)
    }

    /// Moves what is mapped of a piece from `from` on; tells where the next one begins.
    fn move_piece(&self, ino: Ino, from: LogicalBlock) -> Result<Option<LogicalBlock>> {
        let operation = self.begin_change(Call::Data)?;
        let guard = &operation.guard;
        let inode = self.inode(ino, guard)?;
        if inode.file()?.inline().is_some() {
            return Ok(None);
        }
        let file = self.file(ino, guard)?;
        let Some(start) = file.extents.next_mapped(from, guard) else {
            return Ok(None);
        };
        let cluster = self.geometry.cluster_blocks;
        let end = start.saturating_add(PIECE_BLOCKS.next_multiple_of(cluster));
        let block_bytes = self.block_bytes();
        let bytes = start.offset_bytes(block_bytes)..end.offset_bytes(block_bytes);
        let data = &file.body.contents().data;
        let _range = data.write(&self.scheme, bytes, || false);
        let mut old = extents_in(file.extents, start..end, guard);
        // A tail in the tree is nobody's run.
        let packed = old.iter().position(|extent| extent.physical.is_packed());
        old.truncate(packed.unwrap_or(old.len()));
        let (Some(first), Some(last)) = (old.first().copied(), old.last().copied()) else {
            return Ok(Some(start + 1));
        };
        if let Some(pending) = self.take_fewer(&file, &old)? {
            self.move_to(&file, &old, first.logical..last.end(), pending, guard)?;
        }
        Ok(Some(last.end()))
    }

    /// Blocks for all of these extents, in their order, in fewer runs; `None` where there are none.
    fn take_fewer<'n>(&'n self, file: &File<'_>, old: &[Extent]) -> Result<Option<Pending<'n>>> {
        let runs = runs_of(old);
        if runs < 2 {
            return Ok(None);
        }
        let wanted = old.iter().map(|extent| extent.length).sum();
        let mut pending = Pending::new(self);
        let mut taken = 0;
        while taken < wanted {
            taken += pending.take_apart(file.inode, wanted - taken)?;
            let is_whole = taken == wanted;
            if runs_of(&pending.extents) + u64::from(!is_whole) > runs {
                return Ok(None);
            }
        }
        pending.extents = laid_out(old, &pending.extents);
        Ok((runs_of(&pending.extents) < runs).then_some(pending))
    }

    /// Copies the data and changes the mapping.
    fn move_to(
        &self,
        file: &File<'_>,
        old: &[Extent],
        blocks: Range<LogicalBlock>,
        mut pending: Pending<'_>,
        guard: &Guard,
    ) -> Result<()> {
        let reservation = pending.reserve(0, SPLITS)?;
        for extent in &pending.extents {
            if extent.state == ExtentState::Written {
                self.copy_blocks(old, extent)?;
            }
        }
        let inode = file.inode;
        let freed = file.extents.runs(blocks.start, blocks.end, guard);
        let _lock = inode.lock();
        let group = || -> Vec<Record> {
            let length = blocks.end - blocks.start;
            let gone = [unmapped(inode, blocks.start, length, &freed)];
            let maps = pending.extents.iter().map(|extent| MapChange::Map(*extent));
            let maps = maps.map(|change| mapped(inode, change));
            gone.into_iter().chain(maps).collect()
        };
        self.log_group(group, reservation.take(), &[inode.untimed()]);
        file.extents.remove(blocks.start, blocks.end, guard);
        for extent in std::mem::take(&mut pending.extents) {
            let is_held = file.extents.insert(extent, guard);
            debug_assert!(is_held, "it was mapped before");
        }
        self.reclaim_blocks(&freed);
        Ok(())
    }

    /// Copies what lies in the old extents into a new one, which lies in one of them.
    fn copy_blocks(&self, old: &[Extent], new: &Extent) -> Result<()> {
        let holds = |extent: &&Extent| (extent.logical..extent.end()).contains(&new.logical);
        let source = old.iter().find(holds).ok_or(Error::Invalid)?;
        let from = source.place_of(new.logical).0;
        let block_bytes = self.block_bytes();
        let step = (COPY_BYTES / block_bytes).max(1);
        let mut buffer = Vec::new();
        let mut done = 0;
        while done < new.length {
            let count = step.min(new.length - done);
            buffer.resize((count * block_bytes) as usize, 0);
            self.scheme.device(|| {
                self.store.read(BlockNo(from + done), 0, &mut buffer)?;
                self.store.write(BlockNo(new.physical.0 + done), 0, &buffer)
            })?;
            done += count;
        }
        Ok(())
    }
}

/// What is mapped in a range of blocks.
pub(crate) fn extents_in(
    extents: &ExtentMap,
    blocks: Range<LogicalBlock>,
    guard: &Guard,
) -> Vec<Extent> {
    let mut found = Vec::new();
    let mut at = blocks.start;
    while at < blocks.end
        && let Some(next) = extents.next_mapped(at, guard)
        && next < blocks.end
        && let Found::Mapped(mut extent) = extents.find(next, guard)
    {
        extent.length = extent.length.min(blocks.end - next);
        at = extent.end();
        found.push(extent);
    }
    found
}

/// In how many runs of adjacent blocks extents lie, one after the other.
fn runs_of(extents: &[Extent]) -> u64 {
    let ends = extents
        .iter()
        .map(|extent| extent.physical.0 + extent.length);
    let follows = ends.zip(extents.iter().skip(1));
    let adjacent = follows
        .filter(|(end, next)| next.physical.0 == *end)
        .count();
    (extents.len() - adjacent) as u64
}

/// Extents as the old ones, in the blocks of the runs, from the first on.
fn laid_out(old: &[Extent], runs: &[Extent]) -> Vec<Extent> {
    let mut runs = runs.iter().map(|run| BlockRun {
        start: run.physical,
        length: run.length,
    });
    let mut run = runs.next();
    let mut new = Vec::new();
    for extent in old {
        let mut logical = extent.logical;
        while logical < extent.end()
            && let Some(here) = &mut run
        {
            let length = here.length.min(extent.end() - logical);
            new.push(Extent {
                logical,
                physical: here.start,
                length,
                state: extent.state,
            });
            logical += length;
            here.start.0 += length;
            here.length -= length;
            if here.length == 0 {
                run = runs.next();
            }
        }
    }
    new
}
