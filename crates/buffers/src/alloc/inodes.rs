//! Where inode numbers are taken.
//!
//! Files go into the group of their directory. Directories spread: those of the root go to the flex
//! group with the fewest directories among those with more free inodes and blocks than the
//! average; others stay near their parent while that is not overcrowded (Orlov). Within a group the
//! lowest free number is taken.

use std::sync::atomic::Ordering;

use finefs_locks::MutexGuard;
use finefs_namespace::Error;

use super::bits::Bits;
use super::{Allocator, BitmapSource, Bitmaps};

/// Free space of one flex group, or of all.
#[derive(Clone, Copy, Default)]
struct Sums {
    free_inodes: u64,
    free_blocks: u64,
    directories: u64,
}

impl Allocator {
    /// Takes a free inode number near `parent_group`; also gives a generation for it.
    /// `spreads`: it is a directory of the root.
    pub fn allocate_inode_number(
        &self,
        source: &dyn BitmapSource,
        parent_group: u32,
        is_directory: bool,
        spreads: bool,
    ) -> Result<(u32, u32), Error> {
        let start = if is_directory {
            self.directory_group(parent_group, spreads)
        } else {
            parent_group
        };
        let count = self.groups.len() as u32;
        let start = start.min(count - 1);
        let flex = self.layout.groups_per_flex;
        let flex_start = start / flex * flex;
        let in_flex = flex.min(count - flex_start);
        // The group itself, then its flex group from this CPU's place on, passing over busy ones.
        let (cpu, _) = self.this_cpu();
        let near =
            (0..in_flex).map(|i| flex_start + (start - flex_start + 1 + cpu as u32 + i) % in_flex);
        for group in std::iter::once(start).chain(near) {
            if let Some(taken) = self.take_inode(source, group, is_directory, false) {
                return Ok(taken);
            }
        }
        for i in 0..count {
            let group = (start + i) % count;
            if let Some(taken) = self.take_inode(source, group, is_directory, true) {
                return Ok(taken);
            }
        }
        Err(Error::NoSpace)
    }

    fn take_inode(
        &self,
        source: &dyn BitmapSource,
        number: u32,
        is_directory: bool,
        can_wait: bool,
    ) -> Option<(u32, u32)> {
        let group = self.group(number)?;
        if group.free_inodes.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let (mut bitmaps, index) = loop {
            let bitmaps = self.lock_inodes(source, number, can_wait)?;
            let index = bitmaps.inodes.as_ref()?.next_free(0)?;
            match self.unchecked_block(&bitmaps, index) {
                None => break (bitmaps, index),
                Some(block) => self.check_block(source, number, bitmaps, block),
            }
        };
        let bits = bitmaps.inodes.as_mut()?;
        bits.set_range(index, 1);
        group.free_inodes.store(bits.free(), Ordering::Relaxed);
        drop(bitmaps);
        if is_directory {
            group.directories.fetch_add(1, Ordering::Relaxed);
        }
        Some((
            number * self.layout.inodes_per_group + index + 1,
            self.random() as u32,
        ))
    }

    /// The block of the inode table that an index lies in, if nobody has looked at it yet.
    fn unchecked_block(&self, bitmaps: &Bitmaps, index: u32) -> Option<u32> {
        let block = index / self.layout.inodes_per_block;
        let is_checked =
            (bitmaps.checked_blocks.as_ref()).is_some_and(|seen| seen.all_used(block, 1));
        (!is_checked).then_some(block)
    }

    /// Looks at a block of a group's inode table: the inodes that the bitmap calls free must not be
    /// in use. Until then none of them is given out, so what is seen is not of their next use.
    fn check_block(
        &self,
        source: &dyn BitmapSource,
        number: u32,
        bitmaps: MutexGuard<'_, Bitmaps>,
        block: u32,
    ) {
        let (Some(group), Some(bits)) = (self.group(number), bitmaps.inodes.clone()) else {
            return;
        };
        drop(bitmaps);
        let per_block = self.layout.inodes_per_block;
        let first = block * per_block;
        let end = self.layout.inodes_per_group.min(first + per_block);
        let is_free = |index| !bits.all_used(index, 1);
        let outcome = source.check_inodes(number, first..end, &is_free);
        let mut bitmaps = group.bitmaps.lock();
        let blocks = self.layout.inodes_per_group.div_ceil(per_block);
        let checked = bitmaps
            .checked_blocks
            .get_or_insert_with(|| Bits::all_free(blocks));
        // Where somebody else has looked meanwhile, numbers may have been given out since.
        if checked.set_range(block, 1) == 0 {
            return;
        }
        if let Err(problem) = outcome {
            self.condemn_held_inodes(source, number, bitmaps, problem);
        }
    }

    /// Takes a number, if it is free, for a caller that knows already what becomes of it.
    pub fn claim_inode(&self, source: &dyn BitmapSource, ino: u32, is_directory: bool) {
        let index = ino.saturating_sub(1);
        let number = index / self.layout.inodes_per_group;
        if let Some(mut bitmaps) = self.lock_inodes(source, number, true)
            && let Some(bits) = bitmaps.inodes.as_mut()
            && let Some(group) = self.group(number)
        {
            bits.set_range(index % self.layout.inodes_per_group, 1);
            group.free_inodes.store(bits.free(), Ordering::Relaxed);
            group
                .directories
                .fetch_add(u32::from(is_directory), Ordering::Relaxed);
        }
    }

    /// Makes an inode number free at once.
    pub fn release_inode_number(&self, source: &dyn BitmapSource, ino: u32, is_directory: bool) {
        let Some(index) = ino.checked_sub(1) else {
            return;
        };
        let number = index / self.layout.inodes_per_group;
        let Some(group) = self.group(number) else {
            log::error!("inode {ino} given back: there is no such inode");
            return;
        };
        let Some(mut bitmaps) = self.lock_inodes(source, number, true) else {
            return;
        };
        if bitmaps.has_damaged_inodes {
            return;
        }
        let Some(bits) = bitmaps.inodes.as_mut() else {
            return;
        };
        if bits.clear_range(index % self.layout.inodes_per_group, 1) == 0 {
            log::error!("inode {ino} given back: it was free");
            return;
        }
        group.free_inodes.store(bits.free(), Ordering::Relaxed);
        if is_directory {
            let _ = group
                .directories
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
                    now.checked_sub(1)
                });
        }
    }

    fn sums(&self, groups: impl Iterator<Item = u32>) -> Sums {
        let mut sums = Sums::default();
        for group in groups.filter_map(|number| self.group(number)) {
            sums.free_inodes += u64::from(group.free_inodes.load(Ordering::Relaxed));
            sums.free_blocks += u64::from(group.free_blocks.load(Ordering::Relaxed));
            sums.directories += u64::from(group.directories.load(Ordering::Relaxed));
        }
        sums
    }

    /// The group to look in first for a new directory.
    fn directory_group(&self, parent_group: u32, spreads: bool) -> u32 {
        let count = self.groups.len() as u32;
        let flex = self.layout.groups_per_flex;
        let flexes = count.div_ceil(flex);
        let groups_of = |number: u32| number * flex..((number + 1) * flex).min(count);
        let all = self.sums(0..count);
        let average = Sums {
            free_inodes: all.free_inodes / u64::from(flexes),
            free_blocks: all.free_blocks / u64::from(flexes),
            directories: all.directories / u64::from(flexes),
        };
        let chosen = if spreads {
            // From a random place on, so that equals are equally likely.
            let start = (self.random() % u64::from(flexes)) as u32;
            (0..flexes)
                .map(|i| (start + i) % flexes)
                .map(|number| (number, self.sums(groups_of(number))))
                .filter(|(_, sums)| {
                    sums.free_inodes > 0
                        && sums.free_inodes >= average.free_inodes
                        && sums.free_blocks >= average.free_blocks
                })
                .min_by_key(|(_, sums)| sums.directories)
                .map(|(number, _)| number)
        } else {
            let inodes = u64::from(self.layout.inodes_per_group) * u64::from(flex);
            let blocks = u64::from(self.layout.clusters_per_group()) * u64::from(flex);
            let inodes_min = average.free_inodes.saturating_sub(inodes / 4).max(1);
            let blocks_min = average.free_blocks.saturating_sub(blocks / 4);
            let directories_max = average.directories + inodes / 16;
            let start = parent_group / flex;
            (0..flexes).map(|i| (start + i) % flexes).find(|number| {
                let sums = self.sums(groups_of(*number));
                sums.free_inodes >= inodes_min
                    && sums.free_blocks >= blocks_min
                    && sums.directories <= directories_max
            })
        };
        match chosen {
            // Near the parent means in its own group where that has room.
            Some(number) if number == parent_group / flex && !spreads => parent_group,
            Some(number) => groups_of(number)
                .find(|group| {
                    self.group(*group)
                        .is_some_and(|group| group.free_inodes.load(Ordering::Relaxed) > 0)
                })
                .unwrap_or(parent_group),
            None => parent_group,
        }
    }
}
