//! How many blocks applying an operation's records can need at most, and a batch can change.
//!
//! # Needed
//! Counted is what an operation needs in the leaves: each item that comes or grows can split one.
//! Splits further up are so rare that they live on the pool of the allocator.
//!
//! # Changed
//! Objects that were made one after the other lie beside each other. So a leaf is counted for some
//! objects in a row, one for each name, and those that names and pointers fill. Of a file that is
//! new all pointers count, those of holes too. What is mapped far behind the end of an older one
//! counts as little as what is mapped at its end: such a batch can be larger than was counted.

use finefs_namespace::{
    BatchCost, Error, Ino, InodeCost, InodeFootprint, NameChanges, Plan, Result,
};

use crate::space::run_max;
use crate::state::Mounted;

/// Changed blocks of a batch, about, in bytes: who syncs waits for a batch to be written, so that
/// it should not take long, however large the journal is.
const BATCH_BYTES_MAX: u64 = 48 << 20;

/// So many objects in a row count as lying in one leaf: the kernel packs tails of files, which fill
/// half a leaf on average.
const OBJECTS_PER_LEAF: u64 = 2;

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
        Plan::Mapping { extents, hole, .. } => {
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
        let leaves = 1 + change.mapped_end.0 / pointers_per_leaf;
        let mapping = match change.map_changes {
            0 => 0,
            // Holes have pointers, too.
            _ if change.is_created => leaves,
            // Each run lies in two leaves at most.
            changes => leaves.min(2 * changes),
        };
        // A target lies in a leaf of its own.
        let own_blocks = mapping
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

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_namespace::{LinkState, LogicalBlock};

    /// Blocks of 4096 bytes, and the kernel's usual journal.
    fn cost() -> ImageCost {
        ImageCost::new(4096, 10, 8000)
    }

    fn own_blocks(is_created: bool, map_changes: u64, mapped_end: u64) -> u64 {
        let change = InodeFootprint {
            is_created,
            link_state: LinkState::Linked,
            size_bytes: None,
            target_bytes: 0,
            has_xattrs: false,
            value_changes: 0,
            value_bytes: 0,
            map_changes,
            mapped_end: LogicalBlock(mapped_end),
            mapped_blocks: 0,
        };
        cost().of_inode(&change).own_blocks
    }

    /// A batch of the most objects that count for it fits the journal, if there are as many leaves.
    #[test]
    fn objects_with_packed_tails_fit_the_journal() {
        let cost = cost();
        let blocks: std::collections::BTreeSet<u64> = (10_000..18_000)
            .map(|ino| cost.table_block(Ino(ino)))
            .collect();
        assert!(blocks.len() as u64 >= cost.blocks_max());
    }

    #[test]
    fn holes_of_new_files_count() {
        let per_leaf = run_max(4096);
        assert_eq!(own_blocks(true, 1, 1), 1);
        assert_eq!(own_blocks(true, 1, 300 * per_leaf), 301);
        assert_eq!(own_blocks(true, 0, 0), 0);
        // What is written at the end of an older file does not count for all of it.
        assert_eq!(own_blocks(false, 1, 300 * per_leaf), 2);
        assert_eq!(own_blocks(false, 1000, 300 * per_leaf), 301);
    }
}
