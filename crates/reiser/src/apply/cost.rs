//! How many blocks applying an operation's records can need at most, and a batch can change.
//!
//! # Needed
//! Counted is what an operation needs in the leaves: each item that comes or grows can split one.
//! Splits further up are so rare that they live on the pool of the allocator.
//!
//! # Changed
//! Objects that were made one after the other lie beside each other. So a leaf is counted for some
//! objects in a row, one for each name, and those that names and pointers fill.

use finefs_namespace::{
    BatchCost, Error, Ino, InodeCost, InodeFootprint, NameChanges, Plan, Result,
};

use crate::space::run_max;
use crate::state::Mounted;

/// Changed blocks of a batch, about, in bytes: who syncs waits for a batch to be written, so that
/// it should not take long, however large the journal is.
const BATCH_BYTES_MAX: u64 = 48 << 20;

/// So many objects in a row count as lying in one leaf.
const OBJECTS_PER_LEAF: u64 = 4;

/// An entry's head, and what fills its name up.
const ENTRY_OVERHEAD: u64 = 16 + 7;

/// What an attribute needs beside its value.
const XATTR_BLOCKS: u64 = 8;

/// Reserves what applying `plans` can need.
pub(crate) fn reserve(mounted: &Mounted, plans: &[Plan]) -> Result<u64> {
    let allocator = &mounted.writing()?.allocator;
    let block_size = mounted.superblock.block_size();
    let blocks = plans.iter().map(|plan| blocks_for(*plan, block_size)).sum();
    let may_use_pool = |plan: &Plan| matches!(plan, Plan::Split { .. } | Plan::XattrRemoval);
    let is_reserved = allocator.reserve(mounted, blocks)
        || plans.iter().all(may_use_pool) && allocator.reserve_from_pool(blocks);
    match is_reserved {
        true => Ok(blocks),
        false => Err(Error::NoSpace),
    }
}

fn blocks_for(plan: Plan, block_size: u32) -> u64 {
    match plan {
        // The leaf of the entry, and that of the object if it is new.
        Plan::AddEntry { .. } => 2,
        Plan::NewDirectory | Plan::NewSymlink { .. } => 1,
        // What maps a run is in two leaves at most, and can split both.
        Plan::Mapping { extents, hole } => {
            let leaves = hole / run_max(block_size);
            // The levels above them.
            let above = leaves / 8;
            extents.saturating_mul(2).saturating_add(leaves + above)
        }
        // There is a pointer for each block, and nothing to split.
        Plan::Split { .. } => 0,
        Plan::XattrRemoval => 1,
        // There are none.
        // An object's directory and the attribute's file, each with stat data, content and name.
        Plan::Xattr => XATTR_BLOCKS,
        Plan::LargeXattr { length_bytes } => {
            XATTR_BLOCKS + (u64::from(length_bytes) + 8).div_ceil(u64::from(block_size))
        }
    }
}

/// What follows from the geometry of an image.
pub(crate) struct ImageCost {
    blocks_max: u64,
    block_bytes: u64,
    bitmaps: u64,
}

impl ImageCost {
    /// For a journal that takes so many changed blocks.
    pub fn new(block_size: u32, bitmaps: u32, journal_blocks: usize) -> ImageCost {
        let block_bytes = u64::from(block_size);
        ImageCost {
            blocks_max: (journal_blocks as u64 / 2).min(BATCH_BYTES_MAX / block_bytes),
            block_bytes,
            bitmaps: u64::from(bitmaps),
        }
    }
}

impl BatchCost for ImageCost {
    fn blocks_max(&self) -> u64 {
        self.blocks_max
    }

    fn table_block(&self, ino: Ino) -> u64 {
        ino.0 / OBJECTS_PER_LEAF
    }

    fn of_inode(&self, change: &InodeFootprint) -> InodeCost {
        let pointers_per_leaf = run_max(self.block_bytes as u32);
        let leaves = change.mapped_end.0 / pointers_per_leaf;
        // Each run lies in two leaves at most, and a target in one of its own.
        let own_blocks = (2 * change.map_changes).min(leaves + 1)
            + (change.target_bytes as u64).div_ceil(self.block_bytes / 4)
            + XATTR_BLOCKS * change.value_changes.max(u64::from(change.has_xattrs))
            + change.value_bytes.div_ceil(self.block_bytes);
        InodeCost {
            own_blocks,
            space_changes: 1 + change.map_changes,
        }
    }

    fn of_space(&self, changes: u64) -> u64 {
        1 + self.bitmaps.min(changes)
    }

    fn of_names(&self, names: &NameChanges) -> u64 {
        let before = (names.sectors * 512).div_ceil(self.block_bytes / 2);
        let added_bytes = ENTRY_OVERHEAD * names.added + names.added_bytes;
        let grown = (2 * added_bytes).div_ceil(self.block_bytes);
        names.changed.min(before) + grown + 2
    }
}
