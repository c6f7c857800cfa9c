//! Which groups were trimmed and got no free blocks since, so that fstrim(8) passes over them.
//!
//! As in ext4 (EXT4_GROUP_INFO_WAS_TRIMMED), and as there it is only known while it is mounted. The
//! blocks that a trim takes and gives back count, too: so a group that others give blocks to
//! meanwhile is not taken for trimmed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Allocator;

/// Of one group.
#[derive(Default)]
pub(super) struct Trims {
    /// How often blocks were given back. It wraps.
    releases: AtomicU32,
    /// `releases` when all of it was trimmed, above that the shortest run that was; 0 for never.
    trimmed: AtomicU64,
}

impl Trims {
    pub(super) fn note_release(&self) {
        self.releases.fetch_add(1, Ordering::AcqRel);
    }
}

impl Allocator {
    /// How often blocks of the group that holds this block were given back.
    pub fn releases_around(&self, block: u64) -> u32 {
        let group = self.trims_around(block);
        group.map_or(0, |group| group.releases.load(Ordering::Acquire))
    }

    /// True when all free runs of so many blocks or more were trimmed in the group that holds this
    /// block, and nothing was given back since.
    pub fn is_trimmed(&self, block: u64, run_min: u64) -> bool {
        self.trims_around(block).is_some_and(|group| {
            let trimmed = group.trimmed.load(Ordering::Acquire);
            let least = trimmed >> 32;
            least > 0
                && run_min >= least
                && trimmed as u32 == group.releases.load(Ordering::Acquire)
        })
    }

    /// All of the group that holds this block was trimmed, blocks having been given back so often.
    pub fn note_trimmed(&self, block: u64, run_min: u64, releases: u32) {
        if let Some(group) = self.trims_around(block) {
            let least = run_min.clamp(1, u64::from(u32::MAX));
            let trimmed = least << 32 | u64::from(releases);
            group.trimmed.store(trimmed, Ordering::Release);
        }
    }

    fn trims_around(&self, block: u64) -> Option<&Trims> {
        let (group, _) = self.split_block(block)?;
        self.group(group).map(|group| &group.trims)
    }
}
