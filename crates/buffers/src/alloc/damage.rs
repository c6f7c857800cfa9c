//! Groups whose bitmaps are damaged: nothing is allocated there, and the first of them is
//! remembered, for the message about lack of space, and for the superblock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use finefs_locks::MutexGuard;
use finefs_namespace::Error;

use super::bits::Bits;
use super::{Allocator, BitmapSource, Bitmaps};
use crate::detail;

/// What a bitmap is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Blocks,
    Inodes,
}

/// What was found damaged.
#[derive(Default)]
pub(super) struct Damage {
    first: OnceLock<Error>,
    /// Something was found damaged since this was last asked.
    is_new: AtomicBool,
}

impl Allocator {
    pub(super) fn note_damage(
        &self,
        source: &dyn BitmapSource,
        kind: Kind,
        group: u32,
        problem: &Error,
    ) {
        let which = match kind {
            Kind::Blocks => "block",
            Kind::Inodes => "inode",
        };
        let damage = format!("group {group}: {which} bitmap: {}", detail(problem));
        log::error!(
            "{}: {damage}; nothing is allocated or freed there until {} has repaired it",
            source.describe(),
            source.repairer()
        );
        let _ = self.damage.first.set(Error::corrupt(damage));
        self.damage.is_new.store(true, Ordering::Release);
    }

    /// Takes a group out of use, as something was freed that its bitmap calls free. What was given
    /// out there before stays given out.
    pub fn condemn_blocks(&self, source: &dyn BitmapSource, number: u32, problem: Error) {
        let Some(group) = self.group(number) else {
            return;
        };
        let mut bitmaps = group.bitmaps.lock();
        if std::mem::replace(&mut bitmaps.has_damaged_blocks, true) {
            return;
        }
        let free = bitmaps.blocks.as_ref().map_or(0, Bits::free);
        bitmaps.blocks = Some(Bits::from_bytes(&[], self.layout.clusters_per_group()));
        group.free_blocks.store(0, Ordering::Relaxed);
        drop(bitmaps);
        self.space.strike(u64::from(free));
        self.note_damage(source, Kind::Blocks, number, &problem);
    }

    /// The same for its inodes.
    pub fn condemn_inodes(&self, source: &dyn BitmapSource, number: u32, problem: Error) {
        if let Some(group) = self.group(number) {
            self.condemn_held_inodes(source, number, group.bitmaps.lock(), problem);
        }
    }

    /// The same, of a group that is held.
    pub(super) fn condemn_held_inodes(
        &self,
        source: &dyn BitmapSource,
        number: u32,
        mut bitmaps: MutexGuard<'_, Bitmaps>,
        problem: Error,
    ) {
        if std::mem::replace(&mut bitmaps.has_damaged_inodes, true) {
            return;
        }
        bitmaps.inodes = Some(Bits::from_bytes(&[], self.layout.inodes_per_group));
        if let Some(group) = self.group(number) {
            group.free_inodes.store(0, Ordering::Relaxed);
        }
        drop(bitmaps);
        self.note_damage(source, Kind::Inodes, number, &problem);
    }

    /// The first bitmap that was found damaged.
    pub fn damage(&self) -> Option<&Error> {
        self.damage.first.get()
    }

    /// The same, once for all that was found damaged since this was last asked.
    pub fn take_damage(&self) -> Option<&Error> {
        let is_new = self.damage.is_new.swap(false, Ordering::AcqRel);
        self.damage().filter(|_| is_new)
    }

    /// True when a group's block bitmap is damaged, so that its blocks must be neither taken nor
    /// freed. It is loaded.
    pub fn has_damaged_blocks(&self, group: u32) -> bool {
        self.group(group)
            .is_none_or(|group| group.bitmaps.lock().has_damaged_blocks)
    }

    /// The same for its inode bitmap.
    pub fn has_damaged_inodes(&self, group: u32) -> bool {
        self.group(group)
            .is_none_or(|group| group.bitmaps.lock().has_damaged_inodes)
    }
}
