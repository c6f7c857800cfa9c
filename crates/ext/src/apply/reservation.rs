//! How many blocks applying an operation's records can need at most.
//!
//! Counted is what an operation can need in the lowest level of the trees that it changes. Splits
//! further up are so rare that they live on the pool of the allocator (see `alloc::counter`).

use finefs_namespace::{Error, Plan, Result};

use super::FAST_SYMLINK_MAX;
use crate::state::ExtState;

/// Reserves what applying `plans` can need; gives the number of blocks.
pub(crate) fn reserve(state: &ExtState, plans: &[Plan]) -> Result<u64> {
    let has_extents = state.groups.has_extents();
    let blocks = plans.iter().map(|plan| blocks_for(*plan, has_extents)).sum();
    if state.allocator.reserve(blocks) { Ok(blocks) } else { Err(Error::NoSpace) }
}

fn blocks_for(plan: Plan, has_extents: bool) -> u64 {
    // A new block of a directory can need a new leaf of the extent tree, or an indirect block at
    // each of three levels.
    let map_of_a_block = if has_extents { 1 } else { 3 };
    match plan {
        // Either the directory gets a block, or its only one becomes an index over two (whose map
        // then still fits the inode).
        Plan::AddEntry { .. } => (1 + map_of_a_block).max(2),
        Plan::NewDirectory => 1,
        Plan::NewSymlink { length_bytes } => u64::from(length_bytes as usize > FAST_SYMLINK_MAX),
        // A run that fits one indirect block (see `GroupTable::run_max`) can touch two of them,
        // two double ones, and the triple one.
        Plan::Mapping { extents } => extents.saturating_mul(if has_extents { 1 } else { 5 }),
        Plan::Xattr => 1,
    }
}
