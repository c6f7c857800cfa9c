//! Where blocks are taken.
//!
//! With a goal (the block after a file's last one): that block if it is free. If not, another file
//! grows there, too, and with the next free block both would go on to alternate; so a file that is
//! not small goes on in the next aligned *chunk* of its group that is all free, of a size that goes
//! with the file's, and alternates by chunks. A small one, or one that finds no chunk, gets the
//! next run in the group that is long enough. Without a goal, a CPU goes on where it last put a new
//! file, as long as that is in the flex group of the inode at hand; so files made in a row lie in a
//! row, and CPUs do not interleave theirs. After that come the groups in order: first those with a
//! run that is long enough, busy ones passed over; then any free block at all.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::Ordering;

use finefs_namespace::{BlockNo, BlockRun, Error, Goal};

use super::bits::Bits;
use super::{Allocator, BitmapSource};

/// Groups searched for a run that is long enough before the longest run seen will do.
const GROUPS_SEARCHED: u32 = 16;

/// Files of fewer blocks than this get no chunk of their own.
const CHUNK_MIN: u64 = 16;
/// The largest chunk, in blocks.
const CHUNK_MAX: u64 = 2048;

/// Rounds over all groups for a block that the counter says must be there.
const ROUNDS: u32 = 8;

/// What stands for the place where a search begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Near {
    /// Nothing lies there that it should be near to.
    Anywhere,
    /// The goal, and how many blocks the chunk has in which the file goes on if it is taken; 0:
    /// none.
    Goal { chunk: u32 },
}

/// How much of a group's free space a search may take.
#[derive(Clone, Copy)]
struct Search {
    wanted: u32,
    /// Take the longest run where none has `wanted` blocks.
    takes_less: bool,
}

impl Near {
    fn of(goal: Goal, cluster_bits: u32) -> Near {
        let chunk = match goal.logical.0 >> cluster_bits {
            ..CHUNK_MIN => 0,
            logical => 1 << logical.min(CHUNK_MAX).ilog2(),
        };
        Near::Goal { chunk }
    }
}

impl Allocator {
    /// Takes adjacent free blocks for data of an inode in `inode_group`: as many whole clusters as
    /// `count` blocks need, or fewer.
    pub fn allocate_data(
        &self,
        source: &dyn BitmapSource,
        inode_group: u32,
        goal: Option<Goal>,
        count: u64,
    ) -> Result<BlockRun, Error> {
        let bits = self.layout.cluster_bits;
        let run_max = (self.layout.run_max.min(source.run_max()) >> bits).max(1);
        let clusters = count.div_ceil(1 << bits);
        let claimed = self.claim(source, clusters.clamp(1, run_max));
        if claimed == 0 {
            return Err(Error::NoSpace);
        }
        let near = goal.map_or(Near::Anywhere, |goal| Near::of(goal, bits));
        let run = match goal.and_then(|goal| self.split_block(goal.block.0)) {
            Some(place) => self.take(source, place, near, claimed),
            None => {
                let place = self.window(inode_group);
                let run = self.take(source, place, Near::Anywhere, claimed);
                if let Some(run) = run {
                    let after = run.start.0 + run.length;
                    self.this_cpu().1.cursor.store(after, Ordering::Relaxed);
                }
                run
            }
        };
        match run {
            Some(run) => self.space.give(claimed - (run.length >> bits)),
            // They were in a group that was taken out of use meanwhile, and are nowhere else.
            None if self.damage().is_some() => {}
            None => self.space.give(claimed),
        }
        run.ok_or(Error::NoSpace)
    }

    /// Takes up to `wanted` clusters from the counter; 0 when there are none.
    fn claim(&self, source: &dyn BitmapSource, wanted: u64) -> u64 {
        let claimed = Cell::new(0);
        self.find(source, || {
            let more = self.space.take_data(wanted - claimed.get());
            claimed.set(claimed.get() + more);
            claimed.get() == wanted
        });
        claimed.get()
    }

    /// Takes one cluster for metadata, near `goal`, and gives its first block. The caller has it
    /// from a reservation.
    pub fn take_reserved(&self, source: &dyn BitmapSource, goal: u64) -> Option<u64> {
        let place = self.split_block(goal).unwrap_or((0, 0));
        self.take(source, place, Near::Goal { chunk: 0 }, 1)
            .map(|run| run.start.0)
    }

    /// Adds one cluster to a reservation that was too small; false when there is none.
    pub fn extend_reservation(&self, source: &dyn BitmapSource) -> bool {
        self.find(source, || self.space.take_for_commit())
    }

    /// Where a new file's blocks go: on with this CPU's last file, or into this CPU's part of the
    /// flex group.
    fn window(&self, inode_group: u32) -> (u32, u32) {
        let (cpu, per_cpu) = self.this_cpu();
        let flex = self.layout.groups_per_flex;
        let cursor = per_cpu.cursor.load(Ordering::Relaxed);
        if let Some(place) = self.split_block(cursor)
            && place.0 / flex == inode_group / flex
        {
            return place;
        }
        let first = inode_group / flex * flex;
        let groups = flex
            .min((self.groups.len() as u32).saturating_sub(first))
            .max(1);
        // In clusters from the inode's group on, wrapped around the flex group.
        let per_group = u64::from(self.layout.clusters_per_group());
        let span = u64::from(groups) * per_group;
        let from = u64::from(inode_group - first) * per_group;
        let place = (from + span * cpu as u64 / self.per_cpu.len() as u64) % span;
        (
            first + (place / per_group) as u32,
            (place % per_group) as u32,
        )
    }

    fn take(
        &self,
        source: &dyn BitmapSource,
        place: (u32, u32),
        near: Near,
        claimed: u64,
    ) -> Option<BlockRun> {
        let wanted = claimed.min(u64::from(self.layout.clusters_per_group())) as u32;
        if let Some(run) = self.take_near(source, place, near, wanted) {
            return Some(run);
        }
        let count = self.groups.len() as u32;
        let order = || (0..count).map(|i| (place.0 + i) % count);
        let mut searched = 0;
        let mut longest: Option<(u32, u32)> = None;
        for group in order() {
            let run = self.longest_run(group);
            if longest.is_none_or(|(_, length)| run > length) {
                longest = Some((group, run));
            }
            if run < wanted {
                continue;
            }
            let search = Search {
                wanted,
                takes_less: false,
            };
            if let Some(run) = self.take_in(source, group, 0, search, false) {
                return Some(run);
            }
            searched += 1;
            if searched == GROUPS_SEARCHED {
                break;
            }
        }
        let search = Search {
            wanted,
            takes_less: true,
        };
        if let Some((group, _)) = longest
            && let Some(run) = self.take_in(source, group, 0, search, true)
        {
            return Some(run);
        }
        for round in 0..ROUNDS {
            for group in order() {
                if let Some(run) = self.take_in(source, group, 0, search, true) {
                    return Some(run);
                }
            }
            // Others hold claims on what they have not marked yet, or give back behind us.
            if round > 1 {
                std::thread::yield_now();
            }
        }
        None
    }

    /// Takes at a place, or after it in its group.
    fn take_near(
        &self,
        source: &dyn BitmapSource,
        (group, index): (u32, u32),
        near: Near,
        wanted: u32,
    ) -> Option<BlockRun> {
        if let Near::Goal { chunk } = near {
            // A file goes on where it ends even if that gives less than wanted: the next call
            // goes on from there.
            let mut bitmaps = self.lock_blocks(source, group, true)?;
            let bits = bitmaps.blocks.as_mut()?;
            let length = bits.run_at(index, wanted);
            if length > 0 {
                return Some(self.mark(group, bits, index, length));
            }
            if chunk > 0
                && let Some(start) = bits.find_chunk(index, chunk)
            {
                let length = bits.run_at(start, wanted);
                return Some(self.mark(group, bits, start, length));
            }
        }
        if self.longest_run(group) < wanted {
            return None;
        }
        self.take_in(
            source,
            group,
            index,
            Search {
                wanted,
                takes_less: false,
            },
            near != Near::Anywhere,
        )
    }

    /// Takes the first run that will do at or after `from`, else before it.
    fn take_in(
        &self,
        source: &dyn BitmapSource,
        group: u32,
        from: u32,
        search: Search,
        can_wait: bool,
    ) -> Option<BlockRun> {
        if self.group(group)?.free_blocks.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut bitmaps = self.lock_blocks(source, group, can_wait)?;
        let bits = bitmaps.blocks.as_mut()?;
        let mut found = bits.find_run(from, search.wanted);
        if from > 0 && found.is_none_or(|(_, length)| length < search.wanted) {
            let before = bits.find_run(0, search.wanted);
            if before.map(|(_, length)| length) > found.map(|(_, length)| length) {
                found = before;
            }
        }
        let longest = found.map_or(0, |(_, length)| length);
        if longest < search.wanted {
            self.note_longest(group, longest);
            if !search.takes_less {
                return None;
            }
        }
        let (start, length) = found?;
        Some(self.mark(group, bits, start, length))
    }

    fn mark(&self, group: u32, bits: &mut Bits, start: u32, length: u32) -> BlockRun {
        bits.set_range(start, length);
        self.note_free(group, bits.free());
        BlockRun {
            start: BlockNo(self.block_at(group, start)),
            length: u64::from(length) << self.layout.cluster_bits,
        }
    }

    fn longest_run(&self, group: u32) -> u32 {
        self.group(group).map_or(0, |group| {
            let free = group.free_blocks.load(Ordering::Relaxed);
            group.longest_run.load(Ordering::Relaxed).min(free)
        })
    }

    fn note_longest(&self, group: u32, longest: u32) {
        if let Some(group) = self.group(group) {
            group.longest_run.store(longest, Ordering::Relaxed);
        }
    }

    fn note_free(&self, group: u32, free: u32) {
        if let Some(group) = self.group(group) {
            group.free_blocks.store(free, Ordering::Relaxed);
        }
    }

    /// The blocks of the group that holds a block.
    pub fn group_around(&self, block: u64) -> Option<Range<u64>> {
        let (group, _) = self.split_block(block)?;
        let start = self.block_at(group, 0);
        let length = u64::from(self.layout.blocks_per_group);
        (block < self.layout.blocks).then(|| start..(start + length).min(self.layout.blocks))
    }

    /// Takes the first free run of at least `run_min` blocks, in whole clusters, in `blocks`, which
    /// lie in one group: of a longer one than `part_max` the first blocks. Tells where the run
    /// ends, too. Where others have claimed so much of what is free that it cannot be had whole, it
    /// is shorter, or not taken.
    pub fn take_free_run(
        &self,
        source: &dyn BitmapSource,
        blocks: Range<u64>,
        run_min: u64,
        part_max: u64,
    ) -> Option<(BlockRun, u64)> {
        let (group, first) = self.locate(blocks.start)?;
        let end = first + u32::try_from(blocks.end.checked_sub(blocks.start)?).ok()?;
        let (mut at, _) = self.layout.clusters_of(first, 0);
        let end = end >> self.layout.cluster_bits;
        let run_min = run_min.div_ceil(1 << self.layout.cluster_bits);
        let part_max = (part_max >> self.layout.cluster_bits).max(1);
        let mut bitmaps = self.lock_blocks(source, group, true)?;
        let bits = bitmaps.blocks.as_mut()?;
        loop {
            let start = bits.next_free(at).filter(|start| *start < end)?;
            let length = bits.run_at(start, end - start);
            at = start + length;
            if u64::from(length) < run_min {
                continue;
            }
            let part = part_max.min(length.into());
            let claimed = self.space.take_data(part);
            if claimed > 0 && claimed >= run_min.min(part) {
                let run = self.mark(group, bits, start, claimed as u32);
                let whole = u64::from(length) << self.layout.cluster_bits;
                return Some((run, run.start.0 + whole));
            }
            self.space.give(claimed);
        }
    }

    /// Takes those of these blocks that are free, for a caller that knows already what becomes of
    /// them.
    pub fn claim_blocks(&self, source: &dyn BitmapSource, run: BlockRun) {
        let mut at = run.start.0;
        let end = at.saturating_add(run.length);
        while at < end
            && let Some((group, index)) = self.locate(at)
        {
            let here = (end - at).min(u64::from(self.layout.blocks_per_group - index)) as u32;
            // All that the run has a block of: what else lies there belongs to the same file.
            let first = index >> self.layout.cluster_bits;
            let count = ((index + here - 1) >> self.layout.cluster_bits) - first + 1;
            if let Some(mut bitmaps) = self.lock_blocks(source, group, true)
                && let Some(bits) = bitmaps.blocks.as_mut()
            {
                let claimed = bits.set_range(first, count);
                self.note_free(group, bits.free());
                self.space.strike(u64::from(claimed));
            }
            at += u64::from(here);
        }
    }

    /// Makes blocks free at once: those never logged, and those whose commit is durable. Blocks
    /// that are free already are not counted twice.
    pub fn release_blocks(&self, source: &dyn BitmapSource, run: BlockRun) {
        let mut at = run.start.0;
        let end = at.saturating_add(run.length);
        while at < end {
            let Some((group, index)) = self.locate(at) else {
                log::error!("block {at} given back: there is no such block");
                return;
            };
            let here = (end - at).min(u64::from(self.layout.blocks_per_group - index)) as u32;
            let (first, count) = self.layout.clusters_of(index, here);
            let mut freed = 0;
            if let Some(mut bitmaps) = self.lock_blocks(source, group, true)
                && !bitmaps.has_damaged_blocks
                && let Some(bits) = bitmaps.blocks.as_mut()
            {
                freed = bits.clear_range(first, count);
                if freed != count {
                    let used = freed << self.layout.cluster_bits;
                    log::error!("blocks {at}+{here} given back: {used} of them were in use");
                }
                self.note_free(group, bits.free());
                self.note_longest(group, bits.free());
                if let Some(group) = self.group(group) {
                    group.trims.note_release();
                }
            }
            self.space.give(u64::from(freed));
            at += u64::from(here);
        }
    }
}
