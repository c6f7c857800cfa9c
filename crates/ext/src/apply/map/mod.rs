//! Which blocks a file has: changes of the mapping, in extent trees and in block maps.
//!
//! Both kinds do the same four things: map a run, unmap a range, convert a range between unwritten
//! and written, list all runs. The root lies in the inode at hand ([`InodeEdit`]); other nodes are
//! edited in the buffer cache. Blocks of the map itself come from and go back to [`Space`].
//!
//! # Invariants
//! 1. An error leaves the map as it was or with a part of the change made; it never leaves a block
//!    mapped and free, nor a new block of the map that nothing points at.
//! 2. What is read is checked before it is used: checksums, order, ranges, and that no block of the
//!    file system itself is claimed.

pub(crate) mod extents;
pub(crate) mod indirect;

use std::ops::Range;

use finefs_ext_disk::LogicalBlock;
use finefs_ext_disk::inode::InodeFlags;
use finefs_namespace::{Error, ExtentState, MapChange, Result};

use super::inode::InodeEdit;
use super::space::Space;
use crate::load;
use crate::state::ExtState;

/// Adjacent blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) logical: LogicalBlock,
    pub(crate) physical: u64,
    pub(crate) length: u64,
    pub(crate) is_unwritten: bool,
}

impl Run {
    /// The first logical block behind the run.
    pub(crate) fn end(&self) -> LogicalBlock {
        self.logical + self.length
    }
}

fn has_extents(inode: &InodeEdit) -> bool {
    inode.disk.flags().contains(InodeFlags::EXTENTS)
}

/// Applies the changes of the namespace, in order. Runs that continue each other, as appending in
/// small pieces leaves them, are mapped as one.
pub(crate) fn apply(
    space: &mut Space<'_>,
    inode: &mut InodeEdit,
    changes: &[MapChange],
) -> Result<()> {
    if !changes.is_empty() && inode.disk.flags().contains(InodeFlags::INLINE_DATA) {
        return Err(inode.damaged("its content lies in the inode, and has no mapping"));
    }
    let mut rest = changes.iter().copied();
    let mut next = rest.next();
    while let Some(mut this) = next {
        next = rest.next();
        while let (MapChange::Map(held), Some(MapChange::Map(more))) = (&mut this, next)
            && held.end() == more.logical
            && held.physical.0 + held.length == more.physical.0
            && held.state == more.state
        {
            held.length += more.length;
            next = rest.next();
        }
        change(space, inode, &this)?;
    }
    Ok(())
}

/// Applies one change of the namespace.
fn change(space: &mut Space<'_>, inode: &mut InodeEdit, change: &MapChange) -> Result<()> {
    match *change {
        MapChange::Map(extent) => {
            let run = Run {
                logical: extent.logical.0.into(),
                physical: extent.physical.0,
                length: extent.length,
                is_unwritten: extent.state == ExtentState::Unwritten,
            };
            // Also when mapping fails the blocks are no longer free: leaked is better than shared.
            space.mark_used(run.physical, run.length)?;
            map(space, inode, run)
        }
        MapChange::Convert {
            logical,
            length,
            to,
        } => {
            let range = range(logical, length);
            if has_extents(inode) {
                extents::convert(space, inode, range, to)
            } else {
                Ok(())
            }
        }
        MapChange::Unmap { logical, length } => unmap(space, inode, range(logical, length)),
    }
}

fn range(logical: finefs_namespace::LogicalBlock, length: u64) -> Range<LogicalBlock> {
    let (start, end) = (LogicalBlock(logical.0), LogicalBlock::ALL.end);
    start.min(end)..start.saturating_add(length).min(end)
}

/// Maps a run whose blocks are marked used already.
pub(crate) fn map(space: &mut Space<'_>, inode: &mut InodeEdit, run: Run) -> Result<()> {
    let end = run.logical.saturating_add(run.length);
    if run.length == 0 || end > LogicalBlock::ALL.end {
        return Err(Error::corrupt(format_args!(
            "inode {}: mapping of {}+{}",
            inode.ino, run.logical, run.length
        )));
    }
    if has_extents(inode) {
        extents::map(space, inode, run)
    } else if run.is_unwritten {
        Err(Error::corrupt(format_args!(
            "inode {}: unwritten blocks in a block map",
            inode.ino
        )))
    } else {
        indirect::map(space, inode, run)
    }
}

/// Frees all blocks of a range.
pub(crate) fn unmap(
    space: &mut Space<'_>,
    inode: &mut InodeEdit,
    range: Range<LogicalBlock>,
) -> Result<()> {
    if range.is_empty() {
        Ok(())
    } else if has_extents(inode) {
        extents::unmap(space, inode, range)
    } else {
        indirect::unmap(space, inode, range)
    }
}

/// Checks the map of an inode that goes without ever having been loaded: a damaged block map may
/// lead in circles. (An extent tree is checked node by node while it is freed.)
pub(crate) fn check(state: &ExtState, inode: &InodeEdit) -> Result<()> {
    let has_indirect_blocks = inode.disk.block_words()[12..].iter().any(|word| *word != 0);
    if has_extents(inode) || !has_indirect_blocks {
        return Ok(());
    }
    let ino = finefs_namespace::Ino(u64::from(inode.ino));
    load::map::load(state, ino, &inode.disk).map(|_| ())
}

/// All runs, in ascending order.
pub(crate) fn runs(space: &Space<'_>, inode: &InodeEdit) -> Result<Vec<Run>> {
    if has_extents(inode) {
        extents::runs(space, inode)
    } else {
        indirect::runs(space, inode)
    }
}

/// Frees data blocks of an inode: whole clusters.
fn free_data(space: &mut Space<'_>, inode: &mut InodeEdit, start: u64, count: u64) {
    // The inode does not count them any more even if the bitmap does.
    inode.blocks_delta -= count as i64;
    if space.free(start, count) && inode.holds_metadata() {
        (start..start + count).for_each(|block| space.state.buffers.forget(block));
    }
}
