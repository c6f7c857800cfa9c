//! Blocks of a write that no log names yet.

use crossbeam_epoch::Guard;

use crate::base::error::Result;
use crate::base::store::{BlockRun, Charge, Extent};
use crate::data::extent_map::ExtentMap;
use crate::inode::Ownership;
use crate::namespace::Namespace;

/// The blocks of a write that no log names yet: given back on drop, to the quota too.
pub(crate) struct Pending<'n> {
    namespace: &'n Namespace,
    pub extents: Vec<Extent>,
    /// On whose quota they are.
    owner: Charge,
}

impl<'n> Pending<'n> {
    pub fn new(namespace: &'n Namespace) -> Pending<'n> {
        Pending {
            namespace,
            extents: Vec::new(),
            owner: Charge::default(),
        }
    }

    /// Asks for blocks that were just taken on the quota of the file's owner; gives them back where
    /// that is not allowed.
    pub fn charge(&mut self, owner: Ownership, run: BlockRun) -> Result<()> {
        self.owner = Charge {
            uid: Some(owner.uid),
            gid: Some(owner.gid),
            project: Some(owner.project),
            ..Charge::default()
        };
        let charged = self.namespace.charge(&self.of(run.length));
        charged.inspect_err(|_| self.namespace.store.release_blocks(run))
    }

    /// Blocks of the hole between what is mapped and these blocks, if they come behind all of it; 0
    /// where holes take no space.
    pub fn hole_before(&self, mapped: &ExtentMap, guard: &Guard) -> u64 {
        let first = self.extents.first().map(|extent| extent.logical);
        match first.filter(|_| self.namespace.geometry.maps_holes) {
            Some(first) if mapped.next_mapped(first, guard).is_none() => {
                first - mapped.mapped_end(first, guard)
            }
            _ => 0,
        }
    }

    fn of(&self, blocks: u64) -> Charge {
        Charge {
            bytes: blocks * self.namespace.block_bytes(),
            ..self.owner
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        for extent in &self.extents {
            self.namespace.store.release_blocks(BlockRun {
                start: extent.physical,
                length: extent.length,
            });
            self.namespace.store.uncharge(&self.of(extent.length));
        }
    }
}
