//! What a batch takes and frees: the bitmaps and descriptors as they will be on the device.
//!
//! # Data model
//! Each group that the batch touches has a [`GroupEdit`]: copies of its bitmaps and counts, which
//! [`Space::finish`] puts into the buffer cache with their checksums. Metadata blocks that applying
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

use std::collections::{BTreeMap, HashSet};

use finefs_ext_disk::group::{GroupDesc, GroupFlags};
use finefs_ext_disk::{GroupNo, Ino, PhysBlock};
use finefs_namespace::{BlockNo, BlockRun, Error, Result, Settled};

use smallvec::SmallVec;

use super::reservation;
use crate::alloc::BitmapSource;
use crate::alloc::bits::Bits;
use crate::error::{at, detail};
use crate::state::{ExtState, Postponed};
use crate::trim;

/// See the module's head.
pub(crate) struct Space<'a> {
    pub(crate) state: &'a ExtState,
    /// Blocks left of the batch's reservation.
    reserved: u64,
    /// Inodes left of it.
    reserved_inodes: u64,
    groups: BTreeMap<u32, GroupEdit>,
    freed: Vec<BlockRun>,
    /// Blocks that became metadata by this batch: nothing that is durable refers to them.
    fresh: HashSet<u64>,
    /// Freed inode numbers, and whether they were directories.
    freed_inodes: Vec<(u32, bool)>,
    /// The first error that did not stop what was going on.
    error: Option<Error>,
    /// The first damage that lost nothing but space, and how often there was some.
    leak: Option<Error>,
    leaks: usize,
}

/// So many are told one by one.
const LEAKS_TOLD: usize = 5;

/// One group as it will be.
struct GroupEdit {
    blocks: Option<Bits>,
    inodes: Option<Bits>,
    flags: GroupFlags,
    free_blocks: u32,
    free_inodes: u32,
    used_dirs: u32,
    itable_unused: u32,
    /// What the commit adds to the totals.
    blocks_delta: i64,
    inodes_delta: i64,
}

impl<'a> Space<'a> {
    /// Begins with what earlier commits postponed.
    pub(crate) fn new(state: &'a ExtState, reservation: u64, postponed: Postponed) -> Space<'a> {
        let (reserved, reserved_inodes) = reservation::split(reservation);
        Space {
            state,
            reserved,
            reserved_inodes,
            groups: BTreeMap::new(),
            freed: postponed.freed,
            fresh: postponed.fresh,
            freed_inodes: postponed.freed_inodes,
            error: None,
            leak: None,
            leaks: 0,
        }
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
            self.error.get_or_insert(error);
        }
    }

    /// Remembers the first damage because of which something could not be freed, and goes on.
    pub(crate) fn note_leak(&mut self, outcome: Result<()>) {
        let Err(error) = outcome else { return };
        let device = self.state.device.describe();
        match self.leaks {
            ..LEAKS_TOLD => log::error!(
                "{device}: {}; what it held stays allocated until e2fsck -f has repaired that",
                detail(&error)
            ),
            LEAKS_TOLD => log::error!("{device}: more of the kind"),
            _ => {}
        }
        self.leaks += 1;
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

    fn group(&mut self, number: u32) -> Result<&mut GroupEdit> {
        use std::collections::btree_map::Entry;
        match self.groups.entry(number) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let state = self.state;
                state.allocator.load_group(state, number);
                let desc = state.groups.desc(&state.geometry, &state.buffers, number)?;
                let has_flags = state.groups.checksum().is_present();
                Ok(entry.insert(GroupEdit {
                    blocks: None,
                    inodes: None,
                    flags: desc.flags(),
                    free_blocks: desc.free_blocks(),
                    free_inodes: desc.free_inodes(),
                    used_dirs: desc.used_dirs(),
                    itable_unused: match desc.flags() {
                        _ if !has_flags => 0,
                        flags if flags.contains(GroupFlags::INODE_UNINIT) => {
                            state.geometry.inodes_per_group
                        }
                        _ => desc.itable_unused(),
                    },
                    blocks_delta: 0,
                    inodes_delta: 0,
                }))
            }
        }
    }

    /// Changes a group's block bitmap; `edit` tells how many blocks more are free by it.
    fn edit_blocks<T>(
        &mut self,
        number: u32,
        edit: impl FnOnce(&mut Bits) -> (i64, T),
    ) -> Result<T> {
        let state = self.state;
        let group = self.group(number)?;
        let bits = match &mut group.blocks {
            Some(bits) => bits,
            none => none.insert(state.block_bits(number)?),
        };
        let (more_free, value) = edit(bits);
        group.blocks_delta += more_free;
        group.free_blocks = group.free_blocks.saturating_add_signed(more_free as i32);
        Ok(value)
    }

    /// Changes a group's inode bitmap, if `edit` does.
    fn edit_inodes(
        &mut self,
        number: u32,
        edit: impl FnOnce(&mut Bits) -> u32,
    ) -> Result<(&mut GroupEdit, bool)> {
        let state = self.state;
        let group = self.group(number)?;
        let bits = match &mut group.inodes {
            Some(bits) => bits,
            none => none.insert(state.inode_bits(number)?),
        };
        let has_changed = edit(bits) > 0;
        Ok((group, has_changed))
    }

    /// The parts of a run that lie in one group each: group, first index, length.
    fn parts(&self, start: u64, count: u64) -> Result<SmallVec<[(u32, u32, u32); 2]>> {
        let geometry = &self.state.geometry;
        if !self.state.groups.can_own(geometry, start, count) {
            return Err(Error::corrupt(format_args!(
                "blocks {start}+{count}: no file can own them"
            )));
        }
        let mut parts = SmallVec::new();
        let (mut block, mut left) = (start, count);
        while left > 0 {
            let Some((group, index)) = geometry.locate_block(PhysBlock(block)) else {
                break;
            };
            let here = left.min(u64::from(geometry.blocks_per_group - index));
            parts.push((group.0, index, here as u32));
            block += here;
            left -= here;
        }
        Ok(parts)
    }

    /// Marks blocks used that the live allocator gave out earlier.
    pub(crate) fn mark_used(&mut self, start: u64, count: u64) -> Result<()> {
        let mut outcome = Ok(());
        for (group, index, length) in self.parts(start, count)? {
            let taken = self.edit_blocks(group, |bits| {
                let taken = bits.set_range(index, length);
                (-i64::from(taken), taken)
            })?;
            if taken != length {
                outcome = Err(Error::corrupt(format_args!(
                    "blocks {start}+{count}: {} of them are in use already",
                    length - taken
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
        let first = self.state.geometry.group_first_block(GroupNo(group)).0;
        let start = first + u64::from(index);
        self.group(group)?;
        if self.state.allocator.has_damaged_blocks(group) {
            self.note_damaged_group(group);
            return Ok(false);
        }
        let is_freed = self.edit_blocks(group, |bits| {
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
                "blocks {start}+{length}: some of them are free already"
            ));
            let state = self.state;
            state.allocator.condemn_blocks(state, group, damage.clone());
            return Err(damage);
        }
        let length = u64::from(length);
        match self.freed.last_mut() {
            Some(last) if last.start.0 + last.length == start => last.length += length,
            _ => self.freed.push(BlockRun {
                start: BlockNo(start),
                length,
            }),
        }
        Ok(true)
    }

    /// Frees a block that the buffer cache may hold.
    pub(crate) fn free_metadata(&mut self, block: u64) {
        if self.free(block, 1) {
            self.state.buffers.forget(block);
        }
    }

    /// Takes a block for metadata near `goal` and marks it used.
    pub(crate) fn allocate(&mut self, goal: u64) -> Result<u64> {
        let allocator = &self.state.allocator;
        if self.reserved == 0 {
            if !allocator.extend_reservation(self.state) {
                log::error!("a commit needs more blocks than were reserved, and none is free");
                return Err(Error::NoSpace);
            }
            self.reserved = 1;
        }
        let block = allocator
            .take_reserved(self.state, goal)
            .ok_or(Error::NoSpace)?;
        self.reserved -= 1;
        self.mark_used(block, 1)?;
        self.fresh.insert(block);
        Ok(block)
    }

    /// Takes the number of an inode that was reserved, and a generation.
    pub(crate) fn allocate_inode(&mut self) -> Result<(u32, u32)> {
        let taken = match self.reserved_inodes {
            0 => None,
            _ => self.state.reserved_inodes.lock().pop(),
        };
        let taken = taken.ok_or(Error::NoSpace)?;
        self.reserved_inodes -= 1;
        Ok(taken)
    }

    fn unreserve(&self) {
        reservation::unreserve(
            self.state,
            reservation::joined(self.reserved, self.reserved_inodes),
        );
    }

    /// Marks an inode used. Gives the indices of inodes before it in the group that come into the
    /// used part of the table by that and may hold garbage.
    pub(crate) fn use_inode(
        &mut self,
        ino: u32,
        is_directory: bool,
    ) -> Result<std::ops::Range<u32>> {
        let (group, index) = self.locate(ino)?;
        let per_group = self.state.geometry.inodes_per_group;
        let (edit, is_taken) = self.edit_inodes(group, |bits| bits.set_range(index, 1))?;
        if !is_taken {
            return Err(Error::corrupt(format_args!(
                "inode {ino}: is in use already"
            )));
        }
        edit.free_inodes = edit.free_inodes.saturating_sub(1);
        edit.inodes_delta -= 1;
        edit.used_dirs += u32::from(is_directory);
        let first_unused = per_group - edit.itable_unused.min(per_group);
        edit.itable_unused = edit.itable_unused.min(per_group - index - 1);
        Ok(first_unused..index.max(first_unused))
    }

    /// Frees an inode, if that can be: see invariant 3.
    pub(crate) fn free_inode(&mut self, ino: u32, is_directory: bool) {
        let outcome = self.try_free_inode(ino, is_directory);
        self.note_leak(outcome);
    }

    fn try_free_inode(&mut self, ino: u32, is_directory: bool) -> Result<()> {
        let (group, index) = self.locate(ino)?;
        self.group(group)?;
        if self.state.allocator.has_damaged_inodes(group) {
            self.note_damaged_group(group);
            return Ok(());
        }
        let (edit, is_freed) = self.edit_inodes(group, |bits| bits.clear_range(index, 1))?;
        if !is_freed {
            let damage = Error::corrupt(format_args!("inode {ino}: is free already"));
            let state = self.state;
            state.allocator.condemn_inodes(state, group, damage.clone());
            return Err(damage);
        }
        edit.free_inodes += 1;
        edit.inodes_delta += 1;
        edit.used_dirs = edit.used_dirs.saturating_sub(u32::from(is_directory));
        self.freed_inodes.push((ino, is_directory));
        Ok(())
    }

    fn locate(&self, ino: u32) -> Result<(u32, u32)> {
        let place = self.state.geometry.locate_inode(Ino(ino));
        let place =
            place.ok_or_else(|| Error::corrupt(format_args!("inode {ino}: out of range")))?;
        Ok((place.group.0, place.index))
    }

    /// Puts bitmaps and descriptors into the buffer cache.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let state = self.state;
        let mut outcome = Ok(());
        for (&number, edit) in &mut self.groups {
            let done = edit.store(state, number);
            if done.is_ok() {
                state
                    .groups
                    .add_to_totals(edit.blocks_delta, edit.inodes_delta);
            }
            outcome = outcome.and(done);
        }
        outcome
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
    pub(crate) fn release(self) {
        self.unreserve();
        let allocator = &self.state.allocator;
        release(self.state, &self.freed);
        for (ino, is_directory) in &self.freed_inodes {
            allocator.release_inode_number(self.state, *ino, *is_directory);
        }
    }
}

/// Gives blocks to the live allocator that nothing uses any more, nor anything durable. Commits
/// alone may do it so: with `discards` the device is written.
pub(super) fn release(state: &ExtState, runs: &[BlockRun]) {
    for run in runs {
        state.data.forget(run.start.0, run.length);
    }
    if state.discards {
        discard(state, runs.to_vec());
    }
    for run in runs {
        state.allocator.release_blocks(state, *run);
    }
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

impl GroupEdit {
    fn store(&mut self, state: &ExtState, number: u32) -> Result<()> {
        let place = state
            .groups
            .place(number)
            .ok_or_else(|| Error::corrupt(format_args!("group {number}: out of range")))?;
        let mut flags = self.flags;
        let mut block_bitmap = None;
        if let Some(bits) = &self.blocks {
            let mut buffer = state.buffers.zeroed(place.block_bitmap);
            bits.write_to(&mut buffer);
            block_bitmap = Some(buffer);
            flags -= GroupFlags::BLOCK_UNINIT;
        }
        let mut inode_bitmap = None;
        if let Some(bits) = &self.inodes {
            let mut buffer = state.buffers.zeroed(place.inode_bitmap);
            bits.write_to(&mut buffer);
            inode_bitmap = Some(buffer);
            flags -= GroupFlags::INODE_UNINIT;
        }
        let group = GroupNo(number);
        let (index, offset) = state.geometry.desc_position(group);
        let mut block = state.buffers.modify(state.geometry.desc_block(index).0)?;
        let range = offset as usize..offset as usize + usize::from(state.geometry.desc_size);
        let bytes = block.get_mut(range).unwrap_or_default();
        let place = |error| at(format_args!("group {number}"), error);
        let mut desc = GroupDesc::new(bytes).map_err(place)?;
        let checksum = state.groups.checksum();
        desc.set_free_blocks(self.free_blocks);
        desc.set_free_inodes(self.free_inodes);
        desc.set_used_dirs(self.used_dirs);
        if checksum.is_present() {
            desc.set_itable_unused(self.itable_unused);
            desc.set_flags(flags);
        }
        if let Some(bytes) = &block_bitmap {
            desc.update_block_bitmap(checksum, &state.geometry, bytes)
                .map_err(place)?;
        }
        if let Some(bytes) = &inode_bitmap {
            desc.update_inode_bitmap(checksum, &state.geometry, bytes)
                .map_err(place)?;
        }
        desc.update_checksum(checksum, group);
        Ok(())
    }
}
