//! What a batch takes and frees: the bitmaps and descriptors as they will be on the device.
//!
//! # Data model
//! What becomes of the groups all threads of a commit share ([`Groups`]); beside that each has a
//! [`Space`] of its own, and one takes in the others' at the end. Metadata blocks that applying
//! needs come from the live allocator, on the batch's reservation; what the batch frees is listed
//! and given to the live allocator by [`Space::release`], once the commit is durable.
//!
//! # Invariants
//! 1. A group's live bitmaps are loaded before its first edit (see `alloc`).
//! 2. A block is marked used exactly once and freed exactly once: a bit that already is what it
//!    shall become means damage, is reported, and is not counted.
//! 3. What cannot be freed (its group's bitmap is damaged, or calls it free already) leaks, as in
//!    the kernel: that is damage to be noted, but no change of the batch is lost by it
//!    ([`Space::note_leak`]).

use std::collections::HashSet;

use finefs_ext_disk::{GroupNo, Ino, LogicalBlock, PhysBlock};
use finefs_namespace::{BlockNo, BlockRun, CommitThreads, Error, Result, Settled, parallel};

use smallvec::SmallVec;

use super::groups::Groups;
use super::reservation;
use crate::error::detail;
use crate::state::{ExtState, Postponed};
use crate::trim;

/// See the module's head.
pub(crate) struct Space<'a> {
    pub(crate) state: &'a ExtState,
    groups: &'a Groups,
    freed: Vec<BlockRun>,
    /// Blocks that became metadata by this batch: nothing that is durable refers to them.
    fresh: HashSet<u64>,
    /// Freed inode numbers, and whether they were directories.
    freed_inodes: Vec<(u32, bool)>,
    /// The first error that did not stop what was going on.
    error: Option<Error>,
    /// The first damage that lost nothing but space.
    leak: Option<Error>,
}

/// So many are told one by one.
const LEAKS_TOLD: usize = 5;

impl<'a> Space<'a> {
    /// Begins with what earlier commits postponed.
    pub(crate) fn new(state: &'a ExtState, groups: &'a Groups, postponed: Postponed) -> Space<'a> {
        Space {
            state,
            groups,
            freed: postponed.freed,
            fresh: postponed.fresh,
            freed_inodes: postponed.freed_inodes,
            error: None,
            leak: None,
        }
    }

    /// Takes in what another thread did of the same commit.
    pub(crate) fn absorb(&mut self, other: Space<'a>) {
        self.freed.extend(other.freed);
        self.fresh.extend(other.fresh);
        self.freed_inodes.extend(other.freed_inodes);
        other.error.into_iter().for_each(|error| self.keep(error));
        self.leak = self.leak.take().or(other.leak);
    }

    /// What the threads of the commit share.
    pub(crate) fn groups(&self) -> &'a Groups {
        self.groups
    }

    /// Remembers the first error and goes on.
    pub(crate) fn note(&mut self, outcome: Result<()>) {
        if let Err(error) = outcome {
            // There was to be room for all that an operation was promised: this is not about the
            // device's storage.
            let error = match error {
                Error::NoSpace => Error::corrupt("there is no room for what was promised"),
                error => error,
            };
            log::error!("{}: {error}", self.state.device.describe());
            self.keep(error);
        }
    }

    /// Keeps the first error, but one of the device before others: then nothing may be written.
    fn keep(&mut self, error: Error) {
        match &self.error {
            Some(Error::Io(_)) => {}
            Some(_) if !matches!(error, Error::Io(_)) => {}
            _ => self.error = Some(error),
        }
    }

    /// Remembers the first damage because of which something could not be freed, and goes on.
    pub(crate) fn note_leak(&mut self, outcome: Result<()>) {
        let Err(error) = outcome else { return };
        let device = self.state.device.describe();
        match self.groups.count_leak() {
            ..LEAKS_TOLD => log::error!(
                "{device}: {}; what it held stays allocated until e2fsck -f has repaired that",
                detail(&error)
            ),
            LEAKS_TOLD => log::error!("{device}: more of the kind"),
            _ => {}
        }
        self.leak.get_or_insert(error);
    }

    /// The same where it is because of a group whose bitmap is damaged, which was told when that
    /// was found.
    fn note_damaged_group(&mut self, group: u32) {
        self.leak.get_or_insert_with(|| {
            Error::corrupt(format_args!("group {group}: a bitmap is damaged"))
        });
    }

    /// The first error that was noted.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// The first damage that lost nothing but space.
    pub(crate) fn take_leak(&mut self) -> Option<Error> {
        self.leak.take()
    }

    /// The clusters whose first block lies in a run, in parts that lie in one group each: group,
    /// first cluster, length.
    fn parts(&self, start: u64, count: u64) -> Result<SmallVec<[(u32, u32, u32); 2]>> {
        let geometry = &self.state.geometry;
        if !self.state.groups.can_own(geometry, start, count) {
            return Err(Error::corrupt(format_args!(
                "blocks {start}+{count}: no file can own them"
            )));
        }
        let mut parts = SmallVec::new();
        let (mut block, end) = (
            geometry.cluster_end(start),
            geometry.cluster_end(start + count),
        );
        let bits = geometry.cluster_bits();
        while block < end {
            let Some((group, index)) = geometry.locate_block(PhysBlock(block)) else {
                break;
            };
            let here = (end - block).min(u64::from(geometry.blocks_per_group - index));
            parts.push((group.0, index >> bits, (here >> bits) as u32));
            block += here;
        }
        Ok(parts)
    }

    /// Marks blocks used that the live allocator gave out earlier.
    pub(crate) fn mark_used(&mut self, start: u64, count: u64) -> Result<()> {
        let mut outcome = Ok(());
        for (group, index, length) in self.parts(start, count)? {
            let taken = self.groups.edit_blocks(self.state, group, |bits| {
                let taken = bits.set_range(index, length);
                (-i64::from(taken), taken)
            })?;
            if taken != length {
                let bits = self.state.geometry.cluster_bits();
                outcome = Err(Error::corrupt(format_args!(
                    "blocks {start}+{count}: {} of them are in use already",
                    (length - taken) << bits
                )));
            }
        }
        outcome
    }

    /// Frees blocks, as far as they can be freed: see invariant 3. True when all of them were.
    pub(crate) fn free(&mut self, start: u64, count: u64) -> bool {
        let parts = match self.parts(start, count) {
            Ok(parts) => parts,
            Err(error) => {
                self.note_leak(Err(error));
                return false;
            }
        };
        let mut is_freed = true;
        for (group, index, length) in parts {
            match self.free_part(group, index, length) {
                Ok(is_part_freed) => is_freed &= is_part_freed,
                Err(error) => {
                    is_freed = false;
                    self.note_leak(Err(error));
                }
            }
        }
        is_freed
    }

    fn free_part(&mut self, group: u32, index: u32, length: u32) -> Result<bool> {
        let bits = self.state.geometry.cluster_bits();
        let first = self.state.geometry.group_first_block(GroupNo(group)).0;
        let start = first + (u64::from(index) << bits);
        self.groups.load(self.state, group)?;
        if self.state.allocator.has_damaged_blocks(group) {
            self.note_damaged_group(group);
            return Ok(false);
        }
        let is_freed = self.groups.edit_blocks(self.state, group, |bits| {
            // Where some are free already something is freed twice; to free none of them is the
            // safe side.
            if !bits.all_used(index, length) {
                return (0, false);
            }
            bits.clear_range(index, length);
            (i64::from(length), true)
        })?;
        if !is_freed {
            let damage = Error::corrupt(format_args!(
                "blocks {start}+{}: some of them are free already",
                length << bits
            ));
            let state = self.state;
            state.allocator.condemn_blocks(state, group, damage.clone());
            return Err(damage);
        }
        let length = u64::from(length) << bits;
        match self.freed.last_mut() {
            Some(last) if last.start.0 + last.length == start => last.length += length,
            _ => self.freed.push(BlockRun {
                start: BlockNo(start),
                length,
            }),
        }
        Ok(true)
    }

    /// Blocks of a cluster, which is what a block of metadata takes.
    pub(crate) fn cluster_blocks(&self) -> i64 {
        i64::from(self.state.geometry.cluster_ratio)
    }

    /// Blocks of the clusters whose first block lies in a run.
    pub(crate) fn blocks_taken(&self, start: u64, count: u64) -> i64 {
        let geometry = &self.state.geometry;
        (geometry.cluster_end(start + count) - geometry.cluster_end(start)) as i64
    }

    /// Frees a block that the buffer cache may hold, and the cluster that it has to itself.
    pub(crate) fn free_metadata(&mut self, block: u64) {
        if self.free(self.state.geometry.cluster_start(block), 1) {
            self.state.buffers.forget(block);
        }
    }

    /// Takes a block for what lies in a file of metadata at `logical`: the next one of a cluster
    /// that the file has already, or that of a new cluster near `goal`. The file's block before
    /// lies at `before`.
    pub(crate) fn allocate_for(
        &mut self,
        logical: LogicalBlock,
        before: Option<u64>,
        goal: u64,
    ) -> Result<u64> {
        let within = logical - self.state.geometry.cluster_start(logical);
        match before {
            Some(before) if within != 0 => {
                self.fresh.insert(before + 1);
                Ok(before + 1)
            }
            _ => Ok(self.allocate(goal)? + within),
        }
    }

    /// Takes a block for metadata near `goal` and marks it used.
    pub(crate) fn allocate(&mut self, goal: u64) -> Result<u64> {
        let allocator = &self.state.allocator;
        if !self.groups.take_reserved() && !allocator.extend_reservation(self.state) {
            log::error!("a commit needs more blocks than were reserved, and none is free");
            return Err(Error::NoSpace);
        }
        let Some(block) = allocator.take_reserved(self.state, goal) else {
            self.groups.give_reserved();
            return Err(Error::NoSpace);
        };
        self.mark_used(block, 1)?;
        self.fresh.insert(block);
        Ok(block)
    }

    /// Takes the number of an inode that was reserved, and a generation.
    pub(crate) fn allocate_inode(&mut self) -> Result<(u32, u32)> {
        let taken = match self.groups.take_reserved_inode() {
            true => self.state.reserved_inodes.lock().pop(),
            false => None,
        };
        taken.ok_or(Error::NoSpace)
    }

    fn unreserve(&self) {
        reservation::unreserve(self.state, self.groups.reservation());
    }

    /// Brings the part of a group's inode table into use that reaches to `ino`, or to the last of
    /// the inodes before it in the group that are free. Gives the indices of the inodes that come
    /// into use by that: what is there may be garbage.
    pub(crate) fn extend_table(&mut self, ino: u32) -> Result<std::ops::Range<u32>> {
        let (group, index) = self.locate(ino)?;
        self.groups.extend_table(self.state, group, index)
    }

    /// Marks an inode used.
    pub(crate) fn use_inode(&mut self, ino: u32, is_directory: bool) -> Result<()> {
        let (group, index) = self.locate(ino)?;
        match self
            .groups
            .use_inode(self.state, group, index, is_directory)?
        {
            true => Ok(()),
            false => Err(Error::corrupt(format_args!(
                "inode {ino}: is in use already"
            ))),
        }
    }

    /// Frees an inode, if that can be: see invariant 3.
    pub(crate) fn free_inode(&mut self, ino: u32, is_directory: bool) {
        let outcome = self.try_free_inode(ino, is_directory);
        self.note_leak(outcome);
    }

    fn try_free_inode(&mut self, ino: u32, is_directory: bool) -> Result<()> {
        let (group, index) = self.locate(ino)?;
        self.groups.load(self.state, group)?;
        if self.state.allocator.has_damaged_inodes(group) {
            self.note_damaged_group(group);
            return Ok(());
        }
        let groups = self.groups;
        if !groups.free_inode(self.state, group, index, is_directory)? {
            let damage = Error::corrupt(format_args!("inode {ino}: is free already"));
            let state = self.state;
            state.allocator.condemn_inodes(state, group, damage.clone());
            return Err(damage);
        }
        self.freed_inodes.push((ino, is_directory));
        Ok(())
    }

    fn locate(&self, ino: u32) -> Result<(u32, u32)> {
        let place = self.state.geometry.locate_inode(Ino(ino));
        let place =
            place.ok_or_else(|| Error::corrupt(format_args!("inode {ino}: out of range")))?;
        Ok((place.group.0, place.index))
    }

    /// The blocks that became metadata by the batch.
    pub(crate) fn fresh(&self) -> &HashSet<u64> {
        &self.fresh
    }

    /// The blocks that the batch frees.
    pub(crate) fn freed(&self) -> &[BlockRun] {
        &self.freed
    }

    /// Gives back what the batch did not need, and nothing else: the commit failed, and what it
    /// freed may still be in use on the device.
    pub(crate) fn abandon(self) {
        self.unreserve();
    }

    /// Leaves what the batch freed, and what its inodes take now, to the next commit: nothing was
    /// written.
    pub(crate) fn postpone(self, settled: Vec<Settled>) {
        self.unreserve();
        *self.state.postponed.lock() = Postponed {
            is_there: true,
            freed: self.freed,
            freed_inodes: self.freed_inodes,
            fresh: self.fresh,
            settled,
        };
    }

    /// Gives to the live allocator what the batch freed and what it did not need. Call it when the
    /// commit is durable.
    pub(crate) fn release(self, threads: CommitThreads) {
        self.unreserve();
        let state = self.state;
        release(state, &self.freed, threads);
        let pieces = self.freed_inodes.chunks(PIECE_RELEASED).collect();
        let sharing = threads.for_items(self.freed_inodes.len());
        parallel::share(sharing, pieces, |pieces| {
            for (ino, is_directory) in pieces.flatten() {
                let allocator = &state.allocator;
                allocator.release_inode_number(state, *ino, *is_directory);
            }
        });
    }
}

/// So many inodes or runs of blocks a thread gives back at a time.
const PIECE_RELEASED: usize = 512;

/// Gives blocks to the live allocator that nothing uses any more, nor anything durable. Commits
/// alone may do it so: with `discards` the device is written.
pub(super) fn release(state: &ExtState, runs: &[BlockRun], threads: CommitThreads) {
    let share = |work: &(dyn Fn(&BlockRun) + Sync)| {
        let pieces = runs.chunks(PIECE_RELEASED).collect();
        parallel::share(threads.for_items(runs.len()), pieces, |pieces| {
            pieces.flatten().for_each(work);
        });
    };
    share(&|run| state.data.cache().forget(run.start.0, run.length));
    if state.discards {
        discard(state, runs.to_vec());
    }
    share(&|run| state.allocator.release_blocks(state, *run));
}

/// Gives back the storage below blocks. What the device says of it is only logged: nobody waits for
/// it.
fn discard(state: &ExtState, mut runs: Vec<BlockRun>) {
    runs.sort_unstable_by_key(|run| run.start.0);
    runs.dedup_by(|next, run| {
        let is_adjacent = run.start.0 + run.length == next.start.0;
        if is_adjacent {
            run.length += next.length;
        }
        is_adjacent
    });
    for run in runs {
        if let Err(error) = trim::discard(state, run) {
            log::warn!("{}: {error}", state.device.describe());
            return;
        }
    }
}
