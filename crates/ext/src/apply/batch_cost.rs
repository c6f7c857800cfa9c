//! How many blocks of metadata applying a batch changes, at most.
//!
//! # Counted
//! - blocks of directories: one for each name, but not more than the directory has, and those that
//!   it grows by;
//! - blocks of the trees of mappings that do not fit their inodes, of extended attributes and
//!   symbolic links, and of values in inodes of their own;
//! - bitmaps and counts: all that there are, or one for each change;
//! - quota files: one for each change and kind, and what they grow by.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use finefs_ext_disk::inode::BLOCK_AREA_SIZE;
use finefs_ext_disk::{dirent, extent, indirect};
use finefs_namespace::{BatchCost, Ino, InodeCost, InodeFootprint, LinkState, NameChanges};

use super::FAST_SYMLINK_MAX;
use super::xattrs::MOVABLE_MIN;
use crate::quota::QuotaSize;
use crate::state::ExtState;

/// Changed blocks of a batch, about, in bytes: who syncs waits for a batch to be written, so that
/// it should not take long, however large the journal is.
const BATCH_BYTES_MAX: u64 = 48 << 20;

/// The same where there is little memory: they stay there until they are durable.
const BATCH_BYTES_SMALL: u64 = 8 << 20;

/// New entries fill at least one part in so many of the blocks that a directory gets for them: a
/// block that is full is split, and by the length of names the halves may be uneven.
const FILLED_PART: u64 = 4;

/// Upper blocks of a directory's index that grow with it, or are made when it has none.
const INDEX_BLOCKS: u64 = 3;

/// A change of a mapping changes at most so many blocks of its tree, or of its block map.
const TREE_BLOCKS: u64 = extent::DEPTH_MAX as u64;

/// Blocks of the inode table with the values of a file that is gone: most have one, or none.
const VALUE_INODES_FREED: u64 = 1;

/// A name or target gets at most so many bytes longer when it is encrypted.
const PADDING_MAX: usize = 34;

/// The space that an inode takes is told in units of so many bytes.
const SECTOR_BYTES: u64 = 512;

/// So many changed blocks may wait in memory, beside so many bytes of clean ones.
pub(crate) fn blocks_in_memory(block_bytes: u64, buffer_bytes: u64) -> u64 {
    let memory = buffer_bytes.saturating_add(buffer_bytes / 4);
    memory.clamp(BATCH_BYTES_SMALL, BATCH_BYTES_MAX) / block_bytes
}

/// What follows from the geometry of an image, and from its journal.
pub(crate) struct ImageCost {
    blocks_max: u64,
    block_bytes: u64,
    inodes_per_block: u64,
    /// Blocks that say what is free, and how much.
    space_blocks: u64,
    has_extents: bool,
    /// Values of extended attributes may lie in inodes of their own, whose blocks are metadata.
    has_value_inodes: bool,
    /// Names and targets may be encrypted, and then longer than they are.
    has_keys: bool,
    /// Kinds of quotas, and how large their files are.
    quotas: Option<(u64, Arc<QuotaSize>)>,
}

impl ImageCost {
    /// For a journal that takes so many changed blocks, if there is one, beside so many bytes of
    /// clean ones.
    pub fn new(
        state: &ExtState,
        has_extents: bool,
        journal_blocks: Option<u64>,
        buffer_bytes: u64,
    ) -> ImageCost {
        let geometry = &state.geometry;
        let block_bytes = u64::from(geometry.block_size);
        let groups = u64::from(geometry.groups_count);
        let in_memory = blocks_in_memory(block_bytes, buffer_bytes);
        ImageCost {
            blocks_max: journal_blocks.map_or(in_memory, |most| in_memory.min(most * 3 / 4)),
            block_bytes,
            inodes_per_block: (block_bytes / u64::from(geometry.inode_size)).max(1),
            // Two bitmaps for each group, its descriptor, and the superblock.
            space_blocks: 2 * groups + (groups * 64).div_ceil(block_bytes) + 1,
            has_extents,
            has_value_inodes: state.has_value_inodes,
            has_keys: state.keyring.is_some(),
            quotas: (state.quotas.get())
                .map(|quotas| (quotas.ledgers().len() as u64, quotas.size.clone())),
        }
    }

    /// How much longer a name can be as it is stored.
    fn padding_max(&self) -> usize {
        match self.has_keys {
            true => PADDING_MAX,
            false => 0,
        }
    }

    /// Blocks of values that lie in inodes of their own, and of these inodes.
    fn of_values(&self, change: &InodeFootprint) -> u64 {
        if !self.has_value_inodes {
            return 0;
        }
        if change.link_state == LinkState::Freed {
            return VALUE_INODES_FREED;
        }
        // The inode that had the value before goes.
        let gone = if change.is_created {
            0
        } else {
            change.value_changes
        };
        if change.value_bytes < MOVABLE_MIN as u64 {
            return gone;
        }
        // Of each the last block is not full, its map may need one, and it lies in the inode table.
        gone + 3 * change.value_changes + change.value_bytes / self.block_bytes
    }

    fn pointers_per_block(&self) -> u64 {
        u64::from(indirect::pointers_per_block(self.block_bytes as u32))
    }

    /// Blocks of the tree of a file's mapping.
    fn of_mapping(&self, change: &InodeFootprint) -> u64 {
        let per_leaf = match self.has_extents {
            true => u64::from(extent::capacity(self.block_bytes as usize)),
            false => self.pointers_per_block(),
        };
        // Of an older file whose size stays, the tree may be of any size.
        let unknown = if change.is_created { 0 } else { u64::MAX };
        let size_bytes = change.size_bytes.unwrap_or(unknown);
        let size_blocks = size_bytes.div_ceil(self.block_bytes);
        let changes = change.map_changes;
        let blocks = size_blocks.max(change.mapped_end.0);
        let is_small = blocks <= blocks_in_inode(!self.has_extents);
        let is_new =
            change.is_created && self.has_extents && changes <= blocks_in_inode(!self.has_extents);
        if is_small || is_new {
            return 0;
        }
        let leaves = 1 + size_blocks / per_leaf;
        // Adjacent blocks are one change, for which a block map has a pointer each; an older file
        // may have one wherever there are extents.
        let pointers = match change.is_created && self.has_extents {
            true => 0,
            false => change.mapped_blocks / self.pointers_per_block(),
        };
        (TREE_BLOCKS * changes + pointers).min(leaves + TREE_BLOCKS)
    }
}

impl BatchCost for ImageCost {
    fn blocks_max(&self) -> u64 {
        self.blocks_max
    }

    fn table_block(&self, ino: Ino) -> u64 {
        ino.0.saturating_sub(1) / self.inodes_per_block
    }

    fn of_inode(&self, change: &InodeFootprint) -> InodeCost {
        let own_blocks = [
            // Its neighbour in the list of orphans.
            u64::from(change.link_state == LinkState::Orphan),
            // The old and the new one.
            2 * u64::from(change.has_xattrs),
            self.of_values(change),
            u64::from(
                change.target_bytes > 0
                    && change.target_bytes + self.padding_max() > FAST_SYMLINK_MAX,
            ),
            match change.link_state {
                LinkState::Freed => 0,
                LinkState::Linked | LinkState::Orphan => self.of_mapping(change),
            },
        ];
        InodeCost {
            own_blocks: own_blocks.iter().sum(),
            // An inode for a value comes, and one goes.
            space_changes: 2 + change.map_changes + 4 * change.value_changes,
        }
    }

    fn of_space(&self, changes: u64) -> u64 {
        let entries = self.quotas.as_ref().map_or(0, |(kinds, size)| {
            let blocks = size.blocks.load(Ordering::Relaxed);
            (kinds * changes).min(blocks)
        });
        self.space_blocks.min(changes) + entries
    }

    fn of_charges(&self) -> u64 {
        let size = self.quotas.as_ref().map(|(_, size)| size);
        size.map_or(0, |size| size.room.load(Ordering::Relaxed))
    }

    fn of_names(&self, names: &NameChanges) -> u64 {
        let before = (names.sectors * SECTOR_BYTES).div_ceil(self.block_bytes);
        let overhead = dirent::ENTRY_OVERHEAD_MAX + self.padding_max();
        let added_bytes = overhead as u64 * names.added + names.added_bytes;
        let grown = (FILLED_PART * added_bytes).div_ceil(self.block_bytes);
        names.changed.min(before) + grown + INDEX_BLOCKS
    }
}

/// True when the mapping of a file surely fits its inode: see
/// [`Store::mapping_fits_inode`](finefs_namespace::Store::mapping_fits_inode).
pub(crate) fn mapping_fits_inode(
    size_bytes: u64,
    blocks: u64,
    block_bytes: u64,
    is_block_mapped: bool,
) -> bool {
    let blocks_max = blocks_in_inode(is_block_mapped);
    blocks <= blocks_max && (!is_block_mapped || size_bytes <= blocks_max * block_bytes)
}

/// A mapping of so many blocks fits the inode: as extents wherever they lie, else as the first
/// blocks of the file.
fn blocks_in_inode(is_block_mapped: bool) -> u64 {
    match is_block_mapped {
        true => u64::from(indirect::DIRECT),
        false => u64::from(extent::capacity(BLOCK_AREA_SIZE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_namespace::LogicalBlock;

    /// Blocks of 4096 bytes, and extents.
    const COST: ImageCost = ImageCost {
        blocks_max: 800,
        block_bytes: 4096,
        inodes_per_block: 16,
        space_blocks: 10,
        has_extents: true,
        has_value_inodes: false,
        has_keys: false,
        quotas: None,
    };

    /// A change of a new file that says nothing but that it is there.
    const NEW: InodeFootprint = InodeFootprint {
        is_created: true,
        link_state: LinkState::Linked,
        size_bytes: None,
        target_bytes: 0,
        has_xattrs: false,
        value_changes: 0,
        value_bytes: 0,
        map_changes: 0,
        mapped_end: LogicalBlock(0),
        mapped_blocks: 0,
    };

    fn own_blocks(change: &InodeFootprint) -> u64 {
        COST.of_inode(change).own_blocks
    }

    #[test]
    fn a_mapping_counts_where_it_does_not_fit_its_inode() {
        // Blocks with a hole before each.
        let with = |map_changes, is_created| InodeFootprint {
            is_created,
            map_changes,
            mapped_end: LogicalBlock(2 * map_changes),
            ..NEW
        };
        assert_eq!(own_blocks(&with(4, true)), 0);
        assert!(own_blocks(&with(5, true)) >= TREE_BLOCKS);
        // An old file may have a tree, however little changes.
        assert!(own_blocks(&with(4, false)) >= TREE_BLOCKS);
        // However much changes, not more than the tree has: 340 extents a leaf, in a file of as
        // many blocks. Where its size is not known, that may be any number.
        let large = with(3000, false);
        assert_eq!(own_blocks(&large), 3000 * TREE_BLOCKS);
        let large = InodeFootprint {
            size_bytes: Some(6000 * 4096),
            ..large
        };
        assert_eq!(own_blocks(&large), 1 + 6000 / 340 + TREE_BLOCKS);
        assert_eq!(COST.of_inode(&large).space_changes, 3002);
        let freed = InodeFootprint {
            link_state: LinkState::Freed,
            ..large
        };
        assert_eq!(own_blocks(&freed), 0);
    }

    #[test]
    fn without_extents_twelve_blocks_fit_the_inode() {
        let cost = ImageCost {
            has_extents: false,
            ..COST
        };
        let mapped = |mapped_end| InodeFootprint {
            map_changes: 1,
            mapped_end: LogicalBlock(mapped_end),
            ..NEW
        };
        assert_eq!(cost.of_inode(&mapped(12)).own_blocks, 0);
        assert!(cost.of_inode(&mapped(13)).own_blocks > 0);
        assert!(mapping_fits_inode(12 * 4096, 12, 4096, true));
        assert!(!mapping_fits_inode(12 * 4096 + 1, 12, 4096, true));
    }

    #[test]
    fn adjacent_blocks_count_where_each_has_a_pointer() {
        let appended = InodeFootprint {
            is_created: false,
            map_changes: 1,
            mapped_end: LogicalBlock(32_768),
            mapped_blocks: 32_768,
            ..NEW
        };
        assert_eq!(own_blocks(&appended), TREE_BLOCKS + 32);
        let created = InodeFootprint {
            is_created: true,
            ..appended
        };
        assert_eq!(own_blocks(&created), 0);
        let cost = ImageCost {
            has_extents: false,
            ..COST
        };
        let mapped = InodeFootprint {
            size_bytes: Some(32_768 * 4096),
            ..created
        };
        assert_eq!(cost.of_inode(&mapped).own_blocks, TREE_BLOCKS + 32);
    }

    #[test]
    fn four_extents_fit_the_inode_wherever_they_lie() {
        assert!(mapping_fits_inode(1 << 40, 4, 4096, false));
        assert!(!mapping_fits_inode(5 * 4096, 5, 4096, false));
    }

    #[test]
    fn what_an_inode_has_beside_its_mapping_counts() {
        let orphan = InodeFootprint {
            link_state: LinkState::Orphan,
            ..NEW
        };
        assert_eq!(own_blocks(&orphan), 1);
        let labelled = InodeFootprint {
            has_xattrs: true,
            ..NEW
        };
        assert_eq!(own_blocks(&labelled), 2);
        let link = |target_bytes| InodeFootprint {
            target_bytes,
            ..NEW
        };
        assert_eq!(own_blocks(&link(59)), 0);
        assert_eq!(own_blocks(&link(60)), 1);
    }

    #[test]
    fn values_in_inodes_of_their_own_count_with_all_their_blocks() {
        let cost = ImageCost {
            has_value_inodes: true,
            ..COST
        };
        let set = |value_bytes| InodeFootprint {
            has_xattrs: true,
            value_changes: 1,
            value_bytes,
            ..NEW
        };
        let of = |cost: &ImageCost, change: &InodeFootprint| cost.of_inode(change).own_blocks;
        // 15 blocks, one of a map, one of the inode table, beside the attribute block.
        assert_eq!(of(&cost, &set(60_000)), 2 + 15 + 2);
        assert_eq!(of(&COST, &set(60_000)), 2);
        assert_eq!(of(&cost, &set(100)), 2);
        let replaced = InodeFootprint {
            is_created: false,
            size_bytes: Some(0),
            ..set(60_000)
        };
        assert_eq!(of(&cost, &replaced), of(&cost, &set(60_000)) + 1);
        let freed = InodeFootprint {
            link_state: LinkState::Freed,
            ..NEW
        };
        assert_eq!(of(&cost, &freed), 1);
    }

    #[test]
    fn new_names_count_by_their_length() {
        let added = NameChanges {
            changed: 1000,
            added: 1000,
            added_bytes: 20_000,
            sectors: 0,
        };
        // Up to 31 bytes each, in blocks of which a quarter may be filled, and the index.
        let grown = (FILLED_PART * 31_000).div_ceil(4096);
        assert_eq!(COST.of_names(&added), grown + INDEX_BLOCKS);
        // A directory of two blocks.
        let there = NameChanges {
            sectors: 16,
            ..added
        };
        assert_eq!(COST.of_names(&there), 2 + grown + INDEX_BLOCKS);
    }

    #[test]
    fn not_more_bitmaps_and_counts_change_than_there_are() {
        assert_eq!(COST.of_space(3), 3);
        assert_eq!(COST.of_space(30), 10);
    }

    #[test]
    fn inodes_of_a_block_have_the_same_number() {
        let blocks = [1, 16, 17].map(|ino| COST.table_block(Ino(ino)));
        assert_eq!(blocks, [0, 0, 1]);
    }
}
