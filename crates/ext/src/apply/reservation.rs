//! How many blocks applying an operation's records can need at most.
//!
//! Counted is what an operation can need in the lowest level of the trees that it changes. Splits
//! further up are so rare that they live on the pool of the allocator (see `alloc::counter`).

use finefs_namespace::{Error, FileKind, Ino, Plan, Result};

use super::FAST_SYMLINK_MAX;
use crate::state::ExtState;

/// A directory of so many names has more than one block, with blocks of any size. (How many it has
/// is a guess by its table in memory, which does not shrink. Where that is wrong the pool has the
/// block, too.)
const LARGE_DIRECTORY: u64 = 1 << 14;

/// A reservation: the number of blocks, and above it the number of inodes. It adds up as both do.
const INODES_SHIFT: u32 = 40;

/// The blocks and the inodes of a reservation.
pub(crate) fn split(reservation: u64) -> (u64, u64) {
    (
        reservation & ((1 << INODES_SHIFT) - 1),
        reservation >> INODES_SHIFT,
    )
}

/// A reservation of so many blocks and inodes.
pub(crate) fn joined(blocks: u64, inodes: u64) -> u64 {
    blocks | inodes << INODES_SHIFT
}

/// Reserves what applying `plans` can need.
pub(crate) fn reserve(state: &ExtState, plans: &[Plan]) -> Result<u64> {
    let is_value = |plan: &&Plan| state.has_value_inodes && matches!(plan, Plan::LargeXattr { .. });
    let inodes = plans.iter().filter(is_value).count() as u64;
    let blocks = reserve_blocks(state, plans)?;
    for taken in 0..inodes {
        if let Err(error) = reserve_inode(state) {
            unreserve(state, joined(blocks, taken));
            return Err(error);
        }
    }
    Ok(joined(blocks, inodes))
}

/// Gives back a reservation.
pub(crate) fn unreserve(state: &ExtState, reservation: u64) {
    let (blocks, inodes) = split(reservation);
    state.allocator.unreserve(blocks);
    for _ in 0..inodes {
        let taken = state.reserved_inodes.lock().pop();
        if let Some((number, _)) = taken {
            super::release_inode(state, Ino(u64::from(number)), FileKind::Regular);
        }
    }
}

/// Takes the number of an inode that a commit may need.
fn reserve_inode(state: &ExtState) -> Result<()> {
    let taken = state
        .allocator
        .allocate_inode_number(state, 0, false, false)?;
    state.reserved_inodes.lock().push(taken);
    Ok(())
}

fn reserve_blocks(state: &ExtState, plans: &[Plan]) -> Result<u64> {
    let has_extents = state.groups.has_extents();
    let blocks = plans
        .iter()
        .map(|plan| blocks_for(state, *plan, has_extents))
        .sum();
    let may_use_pool = |plan: &Plan| matches!(plan, Plan::Split { .. } | Plan::XattrRemoval);
    let is_reserved = state.allocator.reserve(state, blocks)
        || plans.iter().all(may_use_pool) && state.allocator.reserve_from_pool(blocks);
    if is_reserved {
        Ok(blocks)
    } else {
        Err(Error::NoSpace)
    }
}

fn blocks_for(state: &ExtState, plan: Plan, has_extents: bool) -> u64 {
    match plan {
        // The directory gets a block, which can need a new leaf of its extent tree or an indirect
        // block; or its only block becomes an index over two, whose map still fits the inode. A
        // large directory has an index; a leaf, an indirect block or a new index block is for some
        // fifty blocks or more, and comes out of the pool (`alloc::counter`).
        Plan::AddEntry { entries_about } if entries_about >= LARGE_DIRECTORY => 1,
        Plan::AddEntry { .. } => 2,
        Plan::NewDirectory => 1,
        Plan::NewSymlink { length_bytes } => u64::from(length_bytes as usize > FAST_SYMLINK_MAX),
        // Block maps: a run that fits one indirect block (see `block_map_run_max`) can touch
        // two of them, two double ones, and the triple one. A file may have holes anywhere, so that
        // the upper ones are no rarer than the lower.
        Plan::Mapping {
            extents,
            is_old_form,
            ..
        } => {
            let is_block_mapped = is_old_form || !has_extents;
            extents.saturating_mul(if is_block_mapped { 5 } else { 1 })
        }
        Plan::Split { extents } => match has_extents {
            true => extents,
            // A block map has a pointer for each block, and nothing to split.
            false => 0,
        },
        Plan::Xattr | Plan::XattrRemoval => 1,
        // The attribute block, and those of a value in an inode of its own. Each may lie apart from
        // the one before, so that the map needs a block too.
        Plan::LargeXattr { length_bytes } if state.has_value_inodes => {
            2 + u64::from(length_bytes.div_ceil(state.geometry.block_size))
        }
        Plan::LargeXattr { .. } => 1,
    }
}
