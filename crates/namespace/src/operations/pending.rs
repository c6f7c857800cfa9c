//! Blocks of a write that no log names yet.

use std::ops::Range;

use crossbeam_epoch::Guard;
use smallvec::SmallVec;

use crate::base::error::{Error, Result};
use crate::base::store::{BlockRun, Charge, Extent, ExtentState, Goal, Plan};
use crate::base::types::LogicalBlock;
use crate::data::extent_map::ExtentMap;
use crate::inode::{Inode, Ownership};
use crate::namespace::{Namespace, Reservation};

/// The blocks of a write that no log names yet: given back on drop, to the quota too.
pub(crate) struct Pending<'n> {
    namespace: &'n Namespace,
    pub extents: Vec<Extent>,
    /// The file is: see [`Plan::Mapping`].
    is_old_form: bool,
    /// On whose quota they are.
    owner: Charge,
}

impl<'n> Pending<'n> {
    pub fn new(namespace: &'n Namespace) -> Pending<'n> {
        Pending {
            namespace,
            extents: Vec::new(),
            is_old_form: false,
            owner: Charge::default(),
        }
    }

    /// Takes blocks for the hole of a file at `block`: whole clusters. Up to `wanted` blocks from
    /// there on get the state, which it gives; what else was taken is unwritten.
    pub fn fill_hole(
        &mut self,
        file: (&Inode, &ExtentMap),
        block: LogicalBlock,
        wanted: u64,
        state: ExtentState,
        guard: &Guard,
    ) -> Result<Extent> {
        let cluster = self.namespace.geometry.cluster_blocks;
        if cluster == 1 {
            return self.take_blocks(file, (block, wanted), state, guard);
        }
        let end = block + wanted;
        if !self.has_unwritten(block) {
            let start = block.cluster_start(cluster);
            let run = (start, end.cluster_end(cluster) - start);
            self.take_blocks(file, run, ExtentState::Unwritten, guard)?;
        }
        self.give_state(block..end, state).ok_or(Error::Invalid)
    }

    /// Takes up to `wanted` blocks for the hole at `block`, where a cluster begins.
    fn take_blocks(
        &mut self,
        (inode, mapped): (&Inode, &ExtentMap),
        (block, wanted): (LogicalBlock, u64),
        state: ExtentState,
        guard: &Guard,
    ) -> Result<Extent> {
        let goal = match self.extents.last() {
            Some(last) if last.end() == block => Some(last.place_of(block)),
            _ => mapped.goal(block, guard),
        };
        let goal = goal.map(|goal| Goal {
            block: goal,
            logical: block,
        });
        let namespace = self.namespace;
        let wanted = wanted.min(namespace.form_of(inode).run_max_blocks);
        self.is_old_form = inode.is_old_form();
        let run = namespace.store.allocate_blocks(inode.ino, goal, wanted);
        let run = namespace.note_load(run)?;
        self.charge(inode.ownership(), run)?;
        let extent = Extent {
            logical: block,
            physical: run.start,
            length: run.length,
            state,
        };
        self.extents.push(extent);
        Ok(extent)
    }

    /// Takes up to so many blocks wherever they can be had in one run, for a caller that says later
    /// what of the file lies there; tells how many.
    pub fn take_apart(&mut self, inode: &Inode, wanted: u64) -> Result<u64> {
        let namespace = self.namespace;
        let wanted = wanted.min(namespace.form_of(inode).run_max_blocks);
        self.is_old_form = inode.is_old_form();
        let run = namespace.store.allocate_blocks(inode.ino, None, wanted);
        let run = namespace.note_load(run)?;
        self.charge(inode.ownership(), run)?;
        self.extents.push(Extent {
            logical: LogicalBlock(0),
            physical: run.start,
            length: run.length,
            state: ExtentState::Unwritten,
        });
        Ok(run.length)
    }

    /// Asks for blocks that were just taken on the quota of the file's owner; gives them back where
    /// that is not allowed.
    fn charge(&mut self, owner: Ownership, run: BlockRun) -> Result<()> {
        self.owner = Charge {
            uid: Some(owner.uid),
            gid: Some(owner.gid),
            project: Some(owner.project),
            ..Charge::default()
        };
        let charged = self.namespace.charge(&self.of(run.length));
        charged.inspect_err(|_| self.namespace.store.release_blocks(run))
    }

    /// True when the blocks that were taken last are there for this one of the file, and hold
    /// nothing.
    fn has_unwritten(&self, block: LogicalBlock) -> bool {
        self.extents.last().is_some_and(|last| {
            last.state == ExtentState::Unwritten && (last.logical..last.end()).contains(&block)
        })
    }

    /// Gives a part of the blocks that were taken last, which hold nothing, this state, as far as
    /// they reach. `None` where they are elsewhere.
    fn give_state(&mut self, blocks: Range<LogicalBlock>, state: ExtentState) -> Option<Extent> {
        let last = self
            .has_unwritten(blocks.start)
            .then(|| self.extents.pop())??;
        let part = |from, to, state| Extent {
            state,
            ..last.part(from, to)
        };
        if state == ExtentState::Unwritten {
            self.extents.push(last);
            return Some(part(blocks.start, last.end(), state));
        }
        let given = part(blocks.start, blocks.end.min(last.end()), state);
        let pieces = [
            part(last.logical, given.logical, ExtentState::Unwritten),
            given,
            part(given.end(), last.end(), ExtentState::Unwritten),
        ];
        let pieces = pieces.into_iter().filter(|piece| piece.length > 0);
        self.extents.extend(pieces);
        Some(given)
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

    /// Reserves what it takes to map these blocks into their file, behind a hole, and to split
    /// extents so many times.
    pub fn reserve(&self, hole: u64, splits: usize) -> Result<Reservation<'n>> {
        let runs = (self.extents.len(), self.is_old_form);
        self.namespace.reserve_runs(runs, hole, splits)
    }

    fn of(&self, blocks: u64) -> Charge {
        Charge {
            bytes: blocks * self.namespace.block_bytes(),
            ..self.owner
        }
    }
}

impl Namespace {
    /// Reserves what it takes to map so many runs into a file, of the old form or the new one.
    pub(crate) fn reserve_runs(
        &self,
        (runs, is_old_form): (usize, bool),
        hole: u64,
        splits: usize,
    ) -> Result<Reservation<'_>> {
        let runs = (runs > 0).then_some(Plan::Mapping {
            extents: runs as u64,
            hole,
            is_old_form,
        });
        let splits = (splits > 0).then_some(Plan::Split {
            extents: splits as u64,
        });
        let plans: SmallVec<[Plan; 2]> = runs.into_iter().chain(splits).collect();
        self.reserve(&plans)
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
