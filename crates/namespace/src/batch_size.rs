//! How many blocks of metadata committing what was gathered changes, at most.
//!
//! # Counted
//! - blocks of the inode table, each once, however many of its inodes change;
//! - blocks of directories: one for each name, but not more than the directory has, and those that it grows by;
//! - blocks of the trees of mappings that do not fit their inodes, of extended attributes and symbolic links;
//! - bitmaps and counts: all that there are, or one for each change.
//!
//! It is a bound for what batches look like, not for the worst that could be made up: one hole punched into a
//! file of a million extents changes more. So the store gives a limit that is well below what it can hold.

use std::collections::BTreeMap;

use crossbeam_epoch::Guard;

use crate::coalesce::Gathered;
use crate::inode_table::InodeTable;
use crate::store::{BatchLimit, Fate, Geometry, InodeChange, MapChange};
use crate::types::Ino;

/// An entry has so many bytes beside its name, padding included.
const ENTRY_BYTES: u64 = 12;
/// New entries fill at least one part in so many of the blocks that a directory gets for them: a block that is full
/// is split, and by the length of names the halves may be uneven.
const FILLED_PART: u64 = 4;
/// Upper blocks of a directory's index that grow with it, or are made when it has none.
const INDEX_BLOCKS: u64 = 3;
/// A file's first blocks and extents fit its inode, in each of the formats.
const BLOCKS_IN_INODE: u64 = 12;
const EXTENTS_IN_INODE: u64 = 4;
/// A leaf of a tree has extents, or numbers of blocks, of so many bytes.
const EXTENT_BYTES: u32 = 12;
const BLOCK_NUMBER_BYTES: u32 = 4;
/// A change of a mapping changes at most so many blocks of its tree.
const TREE_BLOCKS: u64 = 5;

/// Names of one directory.
#[derive(Default)]
struct Entries {
    changed: u64,
    added_bytes: u64,
}

impl Gathered {
    /// Counts anew; before that each record counted for a block.
    pub fn measure(
        &mut self,
        limit: &BatchLimit,
        geometry: &Geometry,
        inodes: &InodeTable,
        guard: &Guard,
    ) {
        let mut blocks = self.table_blocks(limit);
        let mut changes = 0;
        for change in self.inodes.values() {
            blocks += own_blocks(change, geometry);
            changes += 2 + change.map.len() as u64;
        }
        blocks += limit.space_blocks.min(changes);
        for (dir, entries) in self.entries() {
            let core = inodes.get(dir, guard).and_then(|inode| inode.loaded());
            let sectors = core.map_or(0, |core| core.attributes().sectors);
            let block_size = u64::from(geometry.block_size_bytes);
            let before = (sectors << 9).div_ceil(block_size);
            let grown = (FILLED_PART * entries.added_bytes).div_ceil(block_size);
            blocks += entries.changed.min(before) + grown + INDEX_BLOCKS;
        }
        self.blocks_max = blocks;
    }

    fn table_blocks(&self, limit: &BatchLimit) -> u64 {
        let mut blocks = 0;
        let mut last = None;
        for ino in self.inodes.keys() {
            let block = ino.0.saturating_sub(1) / limit.inodes_per_block.max(1);
            blocks += u64::from(last.replace(block) != Some(block));
        }
        blocks
    }

    fn entries(&self) -> BTreeMap<Ino, Entries> {
        let mut directories: BTreeMap<Ino, Entries> = BTreeMap::new();
        for (key, change) in &self.names {
            let is_nothing = !change.was_there() && !change.is_there();
            if is_nothing || self.freed.contains(&key.dir) {
                continue;
            }
            let entries = directories.entry(key.dir).or_default();
            entries.changed += 1;
            if !change.was_there() {
                entries.added_bytes += ENTRY_BYTES + key.name.len() as u64;
            }
        }
        directories
    }
}

/// What belongs to one inode alone.
fn own_blocks(change: &InodeChange, geometry: &Geometry) -> u64 {
    let mut blocks = 0;
    if change.fate == Fate::Orphan {
        // Its neighbour in the list of orphans.
        blocks += 1;
    }
    if !change.xattrs.is_empty() {
        // The old and the new one.
        blocks += 2;
    }
    let target = change.symlink.as_ref().map_or(0, |target| target.len());
    if target > geometry.symlink_inline_max as usize {
        blocks += 1;
    }
    if change.fate == Fate::Freed {
        return blocks;
    }
    let (in_inode, per_leaf) = match geometry.has_unwritten {
        true => (EXTENTS_IN_INODE, geometry.block_size_bytes / EXTENT_BYTES),
        false => (
            BLOCKS_IN_INODE,
            geometry.block_size_bytes / BLOCK_NUMBER_BYTES,
        ),
    };
    let size_blocks = change
        .attributes
        .size_bytes
        .div_ceil(u64::from(geometry.block_size_bytes));
    let changes = change.map.len() as u64;
    let is_small = size_blocks.max(end(&change.map)) <= in_inode;
    let is_new = change.is_created && geometry.has_unwritten && changes <= EXTENTS_IN_INODE;
    if !is_small && !is_new {
        let leaves = 1 + size_blocks / u64::from(per_leaf);
        blocks += (TREE_BLOCKS * changes).min(leaves + TREE_BLOCKS);
    }
    blocks
}

/// The end of what is mapped anew.
fn end(changes: &[MapChange]) -> u64 {
    let ends = changes.iter().map(|change| match change {
        MapChange::Map(extent) => extent.end(),
        MapChange::Convert { .. } | MapChange::Unmap { .. } => 0,
    });
    ends.max().unwrap_or(0)
}
