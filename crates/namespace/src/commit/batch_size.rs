//! How many blocks of metadata committing a transaction changes, at most.
//!
//! # Counted
//! - blocks of the inode table, each once, however many of its inodes change;
//! - blocks of directories: one for each name, but not more than the directory has, and those that
//!   it grows by;
//! - blocks of the trees of mappings that do not fit their inodes, of extended attributes and
//!   symbolic links;
//! - bitmaps and counts: all that there are, or one for each change.
//!
//! It is a bound for what batches look like, not for the worst that could be made up: one hole
//! punched into a file of a million extents changes more. So the store gives a limit that is well
//! below what it can hold.

use crossbeam_epoch::Guard;

use crate::base::number_map::NumberMap;
use crate::base::store::{BatchLimit, Fate, Geometry, InodeChange, MapChange};
use crate::base::types::Ino;
use crate::commit::coalesce::{NameFate, Transaction};
use crate::inode::inode_table::InodeTable;

/// An entry has so many bytes beside its name, padding included.
const ENTRY_BYTES: u64 = 12;
/// New entries fill at least one part in so many of the blocks that a directory gets for them: a
/// block that is full is split, and by the length of names the halves may be uneven.
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

/// What is needed to count.
pub(crate) struct Sizing<'a> {
    pub limit: &'a BatchLimit,
    pub geometry: &'a Geometry,
}

/// Names of one directory.
#[derive(Default)]
struct Entries {
    changed: u64,
    added_bytes: u64,
}

/// What is in a transaction, counted as it comes in.
#[derive(Default)]
pub(crate) struct Tally {
    /// Blocks that belong to one inode alone.
    own_blocks: u64,
    /// Changes of what is free.
    space_changes: u64,
    directories: NumberMap<Ino, Entries>,
    /// Names that were not there and are not.
    pub came_and_went: usize,
}

impl Tally {
    /// An inode changes.
    pub fn put_in(&mut self, change: &InodeChange, sizing: &Sizing<'_>) {
        self.own_blocks += own_blocks(change, sizing.geometry);
        self.space_changes += space_changes(change);
    }

    /// What was counted for a change does not hold any more.
    pub fn take_out(&mut self, change: &InodeChange, sizing: &Sizing<'_>) {
        self.own_blocks -= own_blocks(change, sizing.geometry);
        self.space_changes -= space_changes(change);
    }

    /// What becomes of a name is another thing than before.
    pub fn name(&mut self, dir: Ino, length_bytes: usize, before: NameFate, now: NameFate) {
        let entries = self.directories.entry(dir).or_default();
        let added_bytes = ENTRY_BYTES + length_bytes as u64;
        match before {
            NameFate::CameAndWent => self.came_and_went -= 1,
            NameFate::New => entries.added_bytes -= added_bytes,
            NameFate::Changed => {}
        }
        match now {
            NameFate::CameAndWent => self.came_and_went += 1,
            NameFate::New => entries.added_bytes += added_bytes,
            NameFate::Changed => {}
        }
        entries.changed += u64::from(now != NameFate::CameAndWent);
        entries.changed -= u64::from(before != NameFate::CameAndWent);
    }
}

/// The block of the inode table that an inode is in; some block where it does not matter.
pub(crate) fn table_block(ino: Ino, sizing: Option<&Sizing<'_>>) -> u64 {
    let per_block = sizing.map_or(16, |sizing| sizing.limit.inodes_per_block.max(1));
    ino.0.saturating_sub(1) / per_block
}

/// How often bitmaps and counts change.
fn space_changes(change: &InodeChange) -> u64 {
    2 + change.map.len() as u64
}

/// What is added up anew must leave at least one part in so many of the limit for what comes, so
/// that adding up remains rare.
const WORTH_COUNTING_PART: u64 = 8;

impl Transaction {
    /// Whether `more` records can be taken in and the whole be within the limit.
    pub fn takes_more(
        &mut self,
        more: u64,
        sizing: &Sizing<'_>,
        inodes: &InodeTable,
        guard: &Guard,
    ) -> bool {
        if self.blocks_max + more <= sizing.limit.blocks {
            return true;
        }
        self.blocks_max = self.blocks(sizing, inodes, guard);
        let wanted = more.max(sizing.limit.blocks / WORTH_COUNTING_PART);
        self.blocks_max + wanted <= sizing.limit.blocks
    }

    /// Adds up what was counted; before that each record counted for a block.
    fn blocks(&self, sizing: &Sizing<'_>, inodes: &InodeTable, guard: &Guard) -> u64 {
        let tally = &self.tally;
        let mut blocks = self.inodes.len() as u64 + tally.own_blocks;
        blocks += sizing.limit.space_blocks.min(tally.space_changes);
        let block_size = u64::from(sizing.geometry.block_size_bytes);
        for (dir, entries) in &tally.directories {
            if entries.changed == 0 || self.freed_directories.contains(dir) {
                continue;
            }
            let core = inodes.get(*dir, guard).and_then(|inode| inode.loaded());
            let sectors = core.map_or(0, |core| core.attributes().sectors);
            let before = (sectors << 9).div_ceil(block_size);
            let grown = (FILLED_PART * entries.added_bytes).div_ceil(block_size);
            blocks += entries.changed.min(before) + grown + INDEX_BLOCKS;
        }
        blocks
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::store::{Extent, ExtentState, Store};
    use crate::base::types::{BlockNo, FileKind, NameBytes};
    use crate::commit::coalesce::NameKey;
    use crate::memory::memory_store::MemoryStore;

    const LIMIT: BatchLimit = BatchLimit {
        blocks: 800,
        inodes_per_block: 16,
        space_blocks: 10,
    };

    /// Blocks of 4096 bytes, and extents.
    fn geometry() -> Geometry {
        let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
        Geometry {
            block_size_bytes: 4096,
            symlink_inline_max: 59,
            has_unwritten: true,
            ..store.geometry().clone()
        }
    }

    /// A change of a file that says nothing but that it is there.
    fn change(ino: u64) -> InodeChange {
        let store = MemoryStore::new(1 << 20, 0o755, 0, 0).unwrap();
        let mut attributes = store.load_inode(store.geometry().root).unwrap().attributes;
        attributes.kind = FileKind::Regular;
        attributes.size_bytes = 0;
        InodeChange {
            ino: Ino(ino),
            is_created: true,
            fate: Fate::Linked,
            attributes,
            link_delta: 0,
            symlink: None,
            map: Vec::new(),
            xattrs: Vec::new(),
        }
    }

    fn name(transaction: &mut Transaction, dir: u64, number: u64, was_there: bool, is_there: bool) {
        note_name(transaction, dir, number, 1, was_there, is_there);
    }

    fn note_name(
        transaction: &mut Transaction,
        dir: u64,
        number: u64,
        version: u64,
        was_there: bool,
        is_there: bool,
    ) {
        let key = NameKey {
            dir: Ino(dir),
            hash: number,
            name: NameBytes::from_slice(format!("{number:020}").as_bytes()),
        };
        let names = is_there.then_some((Ino(number), FileKind::Regular));
        transaction.note_name(key, version, was_there, names);
    }

    fn measured(transaction: &Transaction) -> u64 {
        let geometry = &geometry();
        let sizing = Sizing {
            limit: &LIMIT,
            geometry,
        };
        transaction.blocks(&sizing, &InodeTable::new(), &crossbeam_epoch::pin())
    }

    fn of_inodes(changes: impl IntoIterator<Item = InodeChange>) -> Transaction {
        let geometry = &geometry();
        let sizing = Sizing {
            limit: &LIMIT,
            geometry,
        };
        let mut transaction = Transaction::default();
        for change in changes {
            transaction.change(change.ino, change, Some(&sizing));
        }
        transaction
    }

    /// Blocks that are mapped anew, with a hole before each.
    fn scattered(count: u64) -> Vec<MapChange> {
        let extents = (0..count).map(|index| Extent {
            logical: 2 * index + 1,
            physical: BlockNo(1000 + 3 * index),
            length: 1,
            state: ExtentState::Written,
        });
        extents.map(MapChange::Map).collect()
    }

    #[test]
    fn inodes_of_a_block_of_the_table_count_once() {
        // Beside the bitmaps and counts, of which there are ten.
        assert_eq!(measured(&of_inodes((1..=16).map(change))), 1 + 10);
        assert_eq!(measured(&of_inodes((1..=17).map(change))), 2 + 10);
        // Few inodes change fewer of those.
        assert_eq!(measured(&of_inodes([16, 17, 33].map(change))), 3 + 6);
        assert_eq!(measured(&of_inodes([change(5)])), 1 + 2);
    }

    #[test]
    fn a_mapping_counts_where_it_does_not_fit_its_inode() {
        let geometry = &geometry();
        let with = |map: Vec<MapChange>, is_created: bool| InodeChange {
            map,
            is_created,
            ..change(12)
        };
        assert_eq!(own_blocks(&with(scattered(4), true), geometry), 0);
        assert!(own_blocks(&with(scattered(5), true), geometry) >= TREE_BLOCKS);
        // An old file may have a tree, however little changes.
        assert!(own_blocks(&with(scattered(4), false), geometry) >= TREE_BLOCKS);
        // However much changes, not more than the tree has: 341 extents a leaf, in a file of as
        // many blocks.
        let mut large = with(scattered(3000), false);
        large.attributes.size_bytes = 6000 * 4096;
        let most = 1 + 6000 / 341 + TREE_BLOCKS;
        assert_eq!(own_blocks(&large, geometry), most);
        let freed = InodeChange {
            fate: Fate::Freed,
            ..large
        };
        assert_eq!(own_blocks(&freed, geometry), 0);
    }

    #[test]
    fn without_extents_twelve_blocks_fit_the_inode() {
        let geometry = &Geometry {
            has_unwritten: false,
            ..geometry()
        };
        let mapped = |length| InodeChange {
            map: vec![MapChange::Map(Extent {
                logical: 0,
                physical: BlockNo(50),
                length,
                state: ExtentState::Written,
            })],
            ..change(12)
        };
        assert_eq!(own_blocks(&mapped(12), geometry), 0);
        assert!(own_blocks(&mapped(13), geometry) > 0);
    }

    #[test]
    fn what_an_inode_has_beside_its_mapping_counts() {
        let geometry = &geometry();
        let orphan = InodeChange {
            fate: Fate::Orphan,
            ..change(12)
        };
        assert_eq!(own_blocks(&orphan, geometry), 1);
        let labelled = InodeChange {
            xattrs: vec![(b"user.a"[..].into(), None)],
            ..change(12)
        };
        assert_eq!(own_blocks(&labelled, geometry), 2);
        let link = |length| InodeChange {
            symlink: Some(vec![b'x'; length].into()),
            ..change(12)
        };
        assert_eq!(own_blocks(&link(59), geometry), 0);
        assert_eq!(own_blocks(&link(60), geometry), 1);
    }

    #[test]
    fn new_names_count_by_their_length() {
        let mut transaction = Transaction::default();
        for number in 0..1000 {
            name(&mut transaction, 2, number, false, true);
        }
        // 32 bytes each, in blocks of which a quarter may be filled, and the index.
        assert_eq!(
            measured(&transaction),
            (FILLED_PART * 32_000).div_ceil(4096) + 3
        );
    }

    #[test]
    fn names_that_came_and_went_do_not_count() {
        let mut transaction = Transaction::default();
        for number in 0..1000 {
            name(&mut transaction, 2, number, false, false);
        }
        assert_eq!(measured(&transaction), 0);
        assert_eq!(transaction.tally.came_and_went, 1000);
        // Of a name that was there the records come in any order.
        note_name(&mut transaction, 2, 1000, 3, true, false);
        note_name(&mut transaction, 2, 1000, 2, false, true);
        note_name(&mut transaction, 2, 1000, 1, true, false);
        // The directory has no block that is known of here.
        assert_eq!(measured(&transaction), INDEX_BLOCKS);
        assert_eq!(transaction.tally.came_and_went, 1000);
    }

    #[test]
    fn what_is_taken_out_again_leaves_nothing() {
        let geometry = &geometry();
        let sizing = Some(&Sizing {
            limit: &LIMIT,
            geometry,
        });
        let orphan = InodeChange {
            fate: Fate::Orphan,
            is_created: false,
            map: scattered(9),
            ..change(12)
        };
        let mut transaction = of_inodes([change(5), orphan.clone()]);
        let both = measured(&transaction);
        transaction.take_change(Ino(12), sizing);
        assert_eq!(measured(&transaction), 1 + 2);
        transaction.change(Ino(12), orphan, sizing);
        assert_eq!(measured(&transaction), both);
        transaction.take_change(Ino(12), sizing);
        transaction.take_change(Ino(5), sizing);
        for number in 0..10 {
            name(&mut transaction, 2, number, false, true);
            note_name(&mut transaction, 2, number, 2, true, false);
        }
        assert_eq!(measured(&transaction), 0);
    }

    #[test]
    fn names_of_a_directory_that_is_gone_do_not_count() {
        let mut transaction = Transaction::default();
        name(&mut transaction, 12, 1, false, true);
        assert!(measured(&transaction) > 0);
        transaction.freed_directories.insert(Ino(12));
        assert_eq!(measured(&transaction), 0);
    }

    #[test]
    fn it_is_added_up_only_where_records_could_be_too_many() {
        let guard = &crossbeam_epoch::pin();
        let (geometry, inodes) = (&geometry(), &InodeTable::new());
        let sizing = &Sizing {
            limit: &LIMIT,
            geometry,
        };
        let mut transaction = of_inodes((1..=16).map(change));
        transaction.blocks_max = 700;
        assert!(transaction.takes_more(100, sizing, inodes, guard));
        assert_eq!(transaction.blocks_max, 700, "added up without need");
        assert!(transaction.takes_more(101, sizing, inodes, guard));
        assert_eq!(transaction.blocks_max, 11);
        assert!(!transaction.takes_more(790, sizing, inodes, guard));
    }

    #[test]
    fn it_is_full_before_it_would_be_added_up_every_time() {
        let guard = &crossbeam_epoch::pin();
        let (geometry, inodes) = (&geometry(), &InodeTable::new());
        let sizing = &Sizing {
            limit: &LIMIT,
            geometry,
        };
        // One inode a block, 690 and 691 blocks with the ten: an eighth of 800 is left, or less.
        for (count, takes) in [(690, true), (691, false)] {
            let mut transaction = of_inodes((0..count).map(|index| change(1 + 16 * index)));
            transaction.blocks_max = 800;
            let more = transaction.takes_more(1, sizing, inodes, guard);
            assert_eq!(more, takes, "{count} blocks");
        }
    }
}
