//! What the threads that apply a batch share: the groups as they will be, and the reservation.
//!
//! # Data model
//! Each group that the batch touches has a [`GroupEdit`]: copies of its bitmaps and counts, which
//! [`Groups::finish`] puts into the buffer cache with their checksums, when all threads are done.
//!
//! # Locking
//! Groups are spread over shards, each with one lock (class `ext.batch_groups`), a leaf. What a
//! group holds is read before it is taken; where two threads do, the first one's counts.
//! `ext.shared_xattrs` is held while a block of extended attributes changes that several inodes may
//! have.

use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use finefs_buffers::alloc::BitmapSource;
use finefs_buffers::alloc::bits::Bits;
use finefs_ext_disk::GroupNo;
use finefs_ext_disk::group::{GroupDesc, GroupFlags};
use finefs_locks::LockClass;
use finefs_namespace::{Error, NumberMap, Result};

use super::reservation;
use crate::error::at;
use crate::state::ExtState;
use crate::sync::{Mutex, MutexGuard};

/// A shard of the groups that a batch changes.
pub static BATCH_GROUPS: LockClass = LockClass::new("ext.batch_groups", 78);

/// Blocks of extended attributes that several inodes may have, while a batch is applied.
pub static SHARED_XATTRS: LockClass = LockClass::new("ext.shared_xattrs", 58).held_over_io();

const SHARDS: usize = 16;

/// See the module's head.
pub(crate) struct Groups {
    shards: [Mutex<NumberMap<u32, GroupEdit>>; SHARDS],
    /// Blocks left of the batch's reservation.
    reserved: AtomicU64,
    /// Inodes left of it.
    reserved_inodes: AtomicU64,
    /// How often something could not be freed.
    leaks: AtomicUsize,
    xattrs: Mutex<()>,
}

/// One of a group's bitmaps.
#[derive(Clone, Copy)]
enum Bitmap {
    Blocks,
    Inodes,
}

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

impl Groups {
    /// Nothing is changed; this was reserved for the batch.
    pub(crate) fn new(reservation: u64) -> Groups {
        let (reserved, reserved_inodes) = reservation::split(reservation);
        Groups {
            shards: std::array::from_fn(|_| Mutex::new(&BATCH_GROUPS, NumberMap::default())),
            reserved: AtomicU64::new(reserved),
            reserved_inodes: AtomicU64::new(reserved_inodes),
            leaks: AtomicUsize::new(0),
            xattrs: Mutex::new(&SHARED_XATTRS, ()),
        }
    }

    /// Takes one block of the reservation, if there is any left.
    pub(crate) fn take_reserved(&self) -> bool {
        take_one(&self.reserved)
    }

    /// The same of an inode.
    pub(crate) fn take_reserved_inode(&self) -> bool {
        take_one(&self.reserved_inodes)
    }

    /// Gives back what [`Groups::take_reserved`] took, or what was reserved beyond.
    pub(crate) fn give_reserved(&self) {
        self.reserved.fetch_add(1, Ordering::Relaxed);
    }

    /// What is left of the reservation.
    pub(crate) fn reservation(&self) -> u64 {
        let [blocks, inodes] =
            [&self.reserved, &self.reserved_inodes].map(|left| left.load(Ordering::Relaxed));
        reservation::joined(blocks, inodes)
    }

    /// Counts something that could not be freed; gives how often that was before.
    pub(crate) fn count_leak(&self) -> usize {
        self.leaks.fetch_add(1, Ordering::Relaxed)
    }

    /// Excludes other threads from blocks of extended attributes that inodes share.
    pub(crate) fn lock_xattrs(&self) -> MutexGuard<'_, ()> {
        self.xattrs.lock()
    }

    fn shard(&self, number: u32) -> &Mutex<NumberMap<u32, GroupEdit>> {
        &self.shards[number as usize % SHARDS]
    }

    /// Sees to it that a group's descriptor is here, and its live bitmaps are loaded.
    pub(crate) fn load(&self, state: &ExtState, number: u32) -> Result<()> {
        if self.shard(number).lock().contains_key(&number) {
            return Ok(());
        }
        state.allocator.load_group(state, number);
        let desc = state.groups.desc(&state.geometry, &state.buffers, number)?;
        let has_flags = state.groups.checksum().is_present();
        let group = GroupEdit {
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
        };
        if let Entry::Vacant(vacant) = self.shard(number).lock().entry(number) {
            vacant.insert(group);
        }
        Ok(())
    }

    /// Changes a group, of which this bitmap is needed.
    fn edit<T>(
        &self,
        state: &ExtState,
        number: u32,
        needed: Bitmap,
        edit: impl FnOnce(&mut GroupEdit, &mut Bits) -> T,
    ) -> Result<T> {
        let lock = self.shard(number);
        if let Some(group) = lock.lock().get_mut(&number)
            && let Some(mut bits) = group.bitmap(needed).take()
        {
            let value = edit(group, &mut bits);
            *group.bitmap(needed) = Some(bits);
            return Ok(value);
        }
        self.load(state, number)?;
        let read = match needed {
            Bitmap::Blocks => state.block_bits(number)?,
            Bitmap::Inodes => state.inode_bits(number)?,
        };
        let mut shard = lock.lock();
        let Some(group) = shard.get_mut(&number) else {
            return Err(Error::corrupt(format_args!("group {number}: was lost")));
        };
        let mut bits = group.bitmap(needed).take().unwrap_or(read);
        let value = edit(group, &mut bits);
        *group.bitmap(needed) = Some(bits);
        Ok(value)
    }

    /// Changes a group's block bitmap; `edit` tells how many blocks more are free by it.
    pub(crate) fn edit_blocks<T>(
        &self,
        state: &ExtState,
        number: u32,
        edit: impl FnOnce(&mut Bits) -> (i64, T),
    ) -> Result<T> {
        self.edit(state, number, Bitmap::Blocks, |group, bits| {
            let (more_free, value) = edit(bits);
            group.blocks_delta += more_free;
            group.free_blocks = group.free_blocks.saturating_add_signed(more_free as i32);
            value
        })
    }

    /// See [`super::space::Space::extend_table`].
    pub(crate) fn extend_table(
        &self,
        state: &ExtState,
        number: u32,
        index: u32,
    ) -> Result<Range<u32>> {
        let per_group = state.geometry.inodes_per_group;
        self.edit(state, number, Bitmap::Inodes, |group, bits| {
            let first_unused = per_group - group.itable_unused.min(per_group);
            // What is in use already is not this batch's to make.
            let is_free = |index: &u32| bits.run_at(*index, 1) == 1;
            let last = (first_unused..=index).rev().find(is_free);
            let end = last.map_or(first_unused, |last| last + 1);
            group.itable_unused = group.itable_unused.min(per_group - end);
            first_unused..end
        })
    }

    /// Marks an inode used; false if it is already.
    pub(crate) fn use_inode(
        &self,
        state: &ExtState,
        number: u32,
        index: u32,
        is_directory: bool,
    ) -> Result<bool> {
        self.edit(state, number, Bitmap::Inodes, |group, bits| {
            let is_taken = bits.set_range(index, 1) > 0;
            if is_taken {
                group.free_inodes = group.free_inodes.saturating_sub(1);
                group.inodes_delta -= 1;
                group.used_dirs += u32::from(is_directory);
            }
            is_taken
        })
    }

    /// Marks an inode free; false if it is already.
    pub(crate) fn free_inode(
        &self,
        state: &ExtState,
        number: u32,
        index: u32,
        is_directory: bool,
    ) -> Result<bool> {
        self.edit(state, number, Bitmap::Inodes, |group, bits| {
            let is_freed = bits.clear_range(index, 1) > 0;
            if is_freed {
                group.free_inodes += 1;
                group.inodes_delta += 1;
                group.used_dirs = group.used_dirs.saturating_sub(u32::from(is_directory));
            }
            is_freed
        })
    }

    /// Puts bitmaps and descriptors into the buffer cache.
    pub(crate) fn finish(&self, state: &ExtState) -> Result<()> {
        let shards = self.shards.iter();
        let taken = shards.map(|shard| std::mem::take(&mut *shard.lock()));
        let mut groups: Vec<(u32, GroupEdit)> = taken.flatten().collect();
        groups.sort_unstable_by_key(|(number, _)| *number);
        let mut outcome = Ok(());
        for (number, edit) in &mut groups {
            let done = edit.store(state, *number);
            if done.is_ok() {
                state
                    .groups
                    .add_to_totals(edit.blocks_delta, edit.inodes_delta);
            }
            outcome = outcome.and(done);
        }
        outcome
    }
}

fn take_one(left: &AtomicU64) -> bool {
    let less = |left: u64| left.checked_sub(1);
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        .is_ok()
}

impl GroupEdit {
    fn bitmap(&mut self, which: Bitmap) -> &mut Option<Bits> {
        match which {
            Bitmap::Blocks => &mut self.blocks,
            Bitmap::Inodes => &mut self.inodes,
        }
    }

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
