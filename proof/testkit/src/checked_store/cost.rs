//! What a batch changes in blocks, of a store that has none: as if inodes lay in blocks of a table
//! that have room for small mappings, and a block of a directory held a hundred names.

use finefs_locks::primitive::atomic::{AtomicU64, Ordering};
use finefs_namespace::{BatchCost, Ino, InodeCost, InodeFootprint, NameChanges};

/// So many inodes share a block.
pub(super) const INODES_PER_BLOCK: u64 = 4;

/// An inode has room for one mapping less.
const MAPPED_IN_INODE: u64 = 5;

const NAMES_PER_BLOCK: u64 = 100;

/// Blocks that say what is free.
const SPACE_BLOCKS: u64 = 4;

/// Batches of so many blocks.
pub(super) struct PlainCost {
    pub blocks_max: u64,
    /// The most changes of a mapping that an inode was counted with.
    pub map_changes_max: AtomicU64,
}

impl BatchCost for PlainCost {
    fn blocks_max(&self) -> u64 {
        self.blocks_max
    }

    fn table_block(&self, ino: Ino) -> u64 {
        ino.0.saturating_sub(1) / INODES_PER_BLOCK
    }

    fn of_inode(&self, change: &InodeFootprint) -> InodeCost {
        self.map_changes_max
            .fetch_max(change.map_changes, Ordering::Relaxed);
        InodeCost {
            own_blocks: change.map_changes / MAPPED_IN_INODE + u64::from(change.has_xattrs),
            space_changes: 2 + change.map_changes,
        }
    }

    fn of_space(&self, changes: u64) -> u64 {
        changes.min(SPACE_BLOCKS)
    }

    fn of_names(&self, names: &NameChanges) -> u64 {
        names.changed.div_ceil(NAMES_PER_BLOCK)
    }
}
