//! How many blocks of metadata committing what was logged changes, at most.
//!
//! # Counted
//! - blocks of the inode table, each once, however many of its inodes change;
//! - what inodes change beside that, and how often they change what is free;
//! - names of directories: those that changed, and those that are new.
//!
//! Of changes and names the store says how many blocks they come to ([`BatchCost`]). Here they are
//! only counted, as they come and go. Each shard of the log has a count of its own; what two of
//! them change is counted twice.

use crossbeam_epoch::Guard;

use crate::base::number_map::NumberMap;
use crate::base::store::{BatchCost, InodeCost, NameChanges};
use crate::base::types::Ino;
use crate::commit::delta::NameOutcome;
use crate::inode::inode_table::InodeTable;

/// What is in a part of a transaction, counted as it comes in.
#[derive(Default)]
pub(super) struct Tally {
    /// Blocks of the inode table.
    pub table_blocks: u64,
    /// Blocks that belong to one inode alone.
    own_blocks: u64,
    /// Changes of what is free.
    space_changes: u64,
    directories: NumberMap<Ino, NameChanges>,
}

impl Tally {
    /// Nothing is counted; the memory is kept.
    pub fn clear(&mut self) {
        let mut directories = std::mem::take(&mut self.directories);
        directories.clear();
        *self = Tally {
            directories,
            ..Tally::default()
        };
    }

    /// An inode comes to other blocks than before.
    pub fn change(&mut self, before: InodeCost, now: InodeCost) {
        self.own_blocks = self.own_blocks + now.own_blocks - before.own_blocks;
        self.space_changes = self.space_changes + now.space_changes - before.space_changes;
    }

    /// What becomes of a name is another thing than before.
    pub fn name(&mut self, dir: Ino, length_bytes: usize, before: NameOutcome, now: NameOutcome) {
        let names = self.directories.entry(dir).or_default();
        let length_bytes = length_bytes as u64;
        if before == NameOutcome::New {
            names.added -= 1;
            names.added_bytes -= length_bytes;
        }
        if now == NameOutcome::New {
            names.added += 1;
            names.added_bytes += length_bytes;
        }
        names.changed += u64::from(now != NameOutcome::CameAndWent);
        names.changed -= u64::from(before != NameOutcome::CameAndWent);
    }

    /// Adds up what was counted.
    pub fn blocks(&self, cost: &dyn BatchCost, inodes: &InodeTable, guard: &Guard) -> u64 {
        let mut blocks = self.table_blocks + self.own_blocks + cost.of_space(self.space_changes);
        for (dir, names) in &self.directories {
            if names.changed == 0 {
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

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::base::store::InodeFootprint;

    /// Names, new names and their bytes can be told apart.
    struct Plain;

    impl BatchCost for Plain {
        fn blocks_max(&self) -> u64 {
            800
        }
        fn table_block(&self, ino: Ino) -> u64 {
            ino.0 / 16
        }
        fn of_inode(&self, _: &InodeFootprint) -> InodeCost {
            InodeCost::default()
        }
        fn of_space(&self, changes: u64) -> u64 {
            changes.min(10)
        }
        fn of_names(&self, names: &NameChanges) -> u64 {
            1_000_000 * names.changed + 1000 * names.added + names.added_bytes
        }
    }

    fn blocks(tally: &Tally) -> u64 {
        tally.blocks(&Plain, &InodeTable::new(), &crossbeam_epoch::pin())
    }

    #[test]
    fn what_is_taken_out_again_leaves_nothing() {
        let mut tally = Tally::default();
        let cost = InodeCost {
            own_blocks: 7,
            space_changes: 30,
        };
        tally.change(InodeCost::default(), cost);
        tally.table_blocks = 1;
        assert_eq!(blocks(&tally), 1 + 7 + 10);
        tally.change(cost, InodeCost::default());
        tally.table_blocks = 0;
        assert_eq!(blocks(&tally), 0);
    }

    #[test]
    fn names_count_as_what_becomes_of_them() {
        use NameOutcome::{CameAndWent, Changed, New};
        let mut tally = Tally::default();
        tally.name(Ino(2), 20, CameAndWent, New);
        assert_eq!(blocks(&tally), 1_001_020);
        tally.name(Ino(2), 20, New, Changed);
        assert_eq!(blocks(&tally), 1_000_000);
        tally.name(Ino(2), 20, Changed, CameAndWent);
        assert_eq!(blocks(&tally), 0);
        tally.name(Ino(3), 20, CameAndWent, New);
        tally.clear();
        assert_eq!(blocks(&tally), 0);
    }
}
