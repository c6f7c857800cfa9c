//! How many blocks of metadata committing a transaction changes, at most.
//!
//! # Counted
//! - blocks of the inode table, each once, however many of its inodes change;
//! - what inodes change beside that, and how often they change what is free;
//! - names of directories: those that changed, and those that are new.
//!
//! Of changes and names the store says how many blocks they come to ([`BatchCost`]). Here they are
//! only counted, as they come and go.

use crossbeam_epoch::Guard;

use crate::base::number_map::NumberMap;
use crate::base::store::{BatchCost, InodeChange, NameChanges};
use crate::base::types::Ino;
use crate::commit::coalesce::{NameFate, Transaction};
use crate::inode::inode_table::InodeTable;

/// What is in a transaction, counted as it comes in.
#[derive(Default)]
pub(crate) struct Tally {
    /// Blocks that belong to one inode alone.
    own_blocks: u64,
    /// Changes of what is free.
    space_changes: u64,
    directories: NumberMap<Ino, NameChanges>,
    /// Names that were not there and are not.
    pub came_and_went: usize,
}

impl Tally {
    /// An inode changes. Nothing is counted where no batch is too large.
    pub fn put_in(&mut self, change: &InodeChange, cost: Option<&dyn BatchCost>) {
        if let Some(cost) = cost.map(|cost| cost.of_inode(change)) {
            self.own_blocks += cost.own_blocks;
            self.space_changes += cost.space_changes;
        }
    }

    /// What was counted for a change does not hold any more.
    pub fn take_out(&mut self, change: &InodeChange, cost: Option<&dyn BatchCost>) {
        if let Some(cost) = cost.map(|cost| cost.of_inode(change)) {
            self.own_blocks -= cost.own_blocks;
            self.space_changes -= cost.space_changes;
        }
    }

    /// What becomes of a name is another thing than before.
    pub fn name(&mut self, dir: Ino, length_bytes: usize, before: NameFate, now: NameFate) {
        let names = self.directories.entry(dir).or_default();
        let length_bytes = length_bytes as u64;
        match before {
            NameFate::CameAndWent => self.came_and_went -= 1,
            NameFate::New => {
                names.added -= 1;
                names.added_bytes -= length_bytes;
            }
            NameFate::Changed => {}
        }
        match now {
            NameFate::CameAndWent => self.came_and_went += 1,
            NameFate::New => {
                names.added += 1;
                names.added_bytes += length_bytes;
            }
            NameFate::Changed => {}
        }
        names.changed += u64::from(now != NameFate::CameAndWent);
        names.changed -= u64::from(before != NameFate::CameAndWent);
    }
}

/// The block of the inode table that an inode is in; some block where it does not matter.
pub(crate) fn table_block(ino: Ino, cost: Option<&dyn BatchCost>) -> u64 {
    cost.map_or(ino.0 / 16, |cost| cost.table_block(ino))
}

/// What is added up anew must leave at least one part in so many of the limit for what comes, so
/// that adding up remains rare.
const WORTH_COUNTING_PART: u64 = 8;

impl Transaction {
    /// Whether `more` records can be taken in and the whole be within the limit.
    pub fn takes_more(
        &mut self,
        more: u64,
        cost: &dyn BatchCost,
        inodes: &InodeTable,
        guard: &Guard,
    ) -> bool {
        let blocks_max = cost.blocks_max();
        if self.blocks_max + more <= blocks_max {
            return true;
        }
        self.blocks_max = self.blocks(cost, inodes, guard);
        let wanted = more.max(blocks_max / WORTH_COUNTING_PART);
        self.blocks_max + wanted <= blocks_max
    }

    /// Adds up what was counted; before that each record counted for a block.
    fn blocks(&self, cost: &dyn BatchCost, inodes: &InodeTable, guard: &Guard) -> u64 {
        let tally = &self.tally;
        let mut blocks = self.inodes.len() as u64 + tally.own_blocks;
        blocks += cost.of_space(tally.space_changes);
        for (dir, names) in &tally.directories {
            if names.changed == 0 || self.freed_directories.contains(dir) {
                continue;
            }
            let core = inodes.get(*dir, guard).and_then(|inode| inode.loaded());
            blocks += cost.of_names(&NameChanges {
                sectors: core.map_or(0, |core| core.attributes().sectors),
                ..*names
            });
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::store::{Fate, InodeCost, Store};
    use crate::base::types::{FileKind, NameBytes};
    use crate::commit::coalesce::NameKey;
    use crate::memory::memory_store::MemoryStore;

    /// Sixteen inodes in a block, of which an orphan changes another one. Names, new names and
    /// their bytes can be told apart.
    struct Plain;

    impl BatchCost for Plain {
        fn blocks_max(&self) -> u64 {
            800
        }

        fn table_block(&self, ino: Ino) -> u64 {
            (ino.0 - 1) / 16
        }

        fn of_inode(&self, change: &InodeChange) -> InodeCost {
            InodeCost {
                own_blocks: u64::from(change.fate == Fate::Orphan),
                space_changes: 2,
            }
        }

        fn of_space(&self, changes: u64) -> u64 {
            changes.min(10)
        }

        fn of_names(&self, names: &NameChanges) -> u64 {
            names.changed + 1000 * names.added + 1_000_000 * names.added_bytes
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
        transaction.blocks(&Plain, &InodeTable::new(), &crossbeam_epoch::pin())
    }

    fn of_inodes(changes: impl IntoIterator<Item = InodeChange>) -> Transaction {
        let mut transaction = Transaction::default();
        for change in changes {
            transaction.change(change.ino, change, Some(&Plain));
        }
        transaction
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
    fn new_names_count_with_their_lengths() {
        let mut transaction = Transaction::default();
        for number in 0..10 {
            name(&mut transaction, 2, number, false, true);
        }
        name(&mut transaction, 2, 10, true, false);
        assert_eq!(measured(&transaction), 200_010_011);
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
        assert_eq!(measured(&transaction), 1);
        assert_eq!(transaction.tally.came_and_went, 1000);
    }

    #[test]
    fn what_is_taken_out_again_leaves_nothing() {
        let orphan = InodeChange {
            fate: Fate::Orphan,
            is_created: false,
            ..change(20)
        };
        let mut transaction = of_inodes([change(5), orphan.clone()]);
        let both = measured(&transaction);
        assert_eq!(both, 2 + 1 + 4);
        transaction.take_change(Ino(20), Some(&Plain));
        assert_eq!(measured(&transaction), 1 + 2);
        transaction.change(Ino(20), orphan, Some(&Plain));
        assert_eq!(measured(&transaction), both);
        transaction.take_change(Ino(20), Some(&Plain));
        transaction.take_change(Ino(5), Some(&Plain));
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
        let (guard, inodes) = (&crossbeam_epoch::pin(), &InodeTable::new());
        let mut transaction = of_inodes((1..=16).map(change));
        transaction.blocks_max = 700;
        assert!(transaction.takes_more(100, &Plain, inodes, guard));
        assert_eq!(transaction.blocks_max, 700, "added up without need");
        assert!(transaction.takes_more(101, &Plain, inodes, guard));
        assert_eq!(transaction.blocks_max, 11);
        assert!(!transaction.takes_more(790, &Plain, inodes, guard));
    }

    #[test]
    fn it_is_full_before_it_would_be_added_up_every_time() {
        let (guard, inodes) = (&crossbeam_epoch::pin(), &InodeTable::new());
        // One inode a block, 690 and 691 blocks with the ten: an eighth of 800 is left, or less.
        for (count, takes) in [(690, true), (691, false)] {
            let mut transaction = of_inodes((0..count).map(|index| change(1 + 16 * index)));
            transaction.blocks_max = 800;
            let more = transaction.takes_more(1, &Plain, inodes, guard);
            assert_eq!(more, takes, "{count} blocks");
        }
    }
}
