//! The live allocator of blocks and inode numbers.
//!
//! # Purpose
//! Hands out what is free *now*, to many threads at once. What it holds in memory runs ahead of the
//! bitmaps on the device: blocks that were handed out but not committed are used here and free
//! there; blocks that a commit frees stay used here until that commit is durable.
//!
//! | Module | Thing |
//! |---|---|
//! | [`bits`] | a bitmap in memory and its searches |
//! | [`counter`] | how many blocks may still be promised, to data and to metadata |
//! | [`blocks`] | where blocks are taken |
//! | [`inodes`] | where inode numbers are taken (Orlov) |
//! | [`damage`] | what is done about damaged groups |
//! | [`trims`] | which groups were trimmed |
//!
//! # Data model
//! One [`Group`] per block group: its lock guards the two bitmaps, which are loaded at first use.
//! Beside the lock lie approximate counts that choosers read without it.
//!
//! What is taken and given back is a *cluster*: one block, or, with the feature `bigalloc` of
//! ext4, a power of two of them. Bits and counts are of clusters; block numbers and runs, as others
//! see them, are of blocks. A run that begins or ends within a cluster stands for the clusters
//! whose first block it has, so that the pieces of a run stand for what the run stands for.
//!
//! # Invariants
//! 1. The counter gives out blocks of groups whose bitmap is loaded and sound, and of no others;
//!    when it runs short further groups are loaded. The free bits of these groups together are at
//!    least the blocks that the counter gives out: a thread that took `n` from the counter finds
//!    `n` free bits, maybe only after looking twice.
//! 2. A group whose bitmap is damaged gives nothing and takes nothing back, like the groups that
//!    the kernel marks EXT4_GROUP_INFO_BBITMAP_CORRUPT and EXT4_GROUP_INFO_IBITMAP_CORRUPT; the
//!    others go on.
//! 3. A bitmap is loaded once, before the first commit changes the group's bitmap on the device
//!    (the commit calls [`Allocator::load_group`] first), and never dropped.
//! 4. An inode number is given out only after the block of the inode table that holds it was read,
//!    and if no inode in it that the bitmap calls free is in use.
//!
//! # Locking
//! ```text
//! buffers.group      one at a time; nothing is called under it but the counter of blocks
//! ```
//! Bitmaps are read from the device before the lock is taken. A busy group is passed over where
//! another will do.
//!
//! # References
//! Linux `fs/ext4/{mballoc,ialloc}.c` for the policies.

pub mod bits;
mod blocks;
pub mod counter;
mod damage;
mod inodes;
#[cfg(test)]
mod tests;
mod trims;

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use finefs_locks::{LockClass, Mutex, MutexGuard, cpu};
use finefs_namespace::Error;

use bits::Bits;
use counter::SpaceCounter;
use damage::{Damage, Kind};
use trims::Trims;

/// The two bitmaps of a block group.
pub static GROUP: LockClass = LockClass::new("buffers.group", 60);

/// Where bitmaps come from: the device, or what a descriptor says of a group never used.
pub trait BitmapSource: Sync {
    /// Names it for messages.
    fn describe(&self) -> String;
    /// The command that repairs what it holds.
    fn repairer(&self) -> &'static str;
    /// The most blocks that one allocation may give.
    fn run_max(&self) -> u64;
    /// The block bitmap of a group, a bit for each cluster, with all metadata set.
    fn block_bits(&self, group: u32) -> Result<Bits, Error>;
    /// The inode bitmap of a group, with reserved inodes set.
    fn inode_bits(&self, group: u32) -> Result<Bits, Error>;
    /// Reads the block of a group's inode table that holds the inodes `indices`, and checks that
    /// none of those that
    /// `is_free` calls free is in use.
    fn check_inodes(
        &self,
        group: u32,
        indices: Range<u32>,
        is_free: &dyn Fn(u32) -> bool,
    ) -> Result<(), Error>;
}

/// The numbers that the allocator needs to know of the file system.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The block that group 0 starts at.
    pub first_data_block: u64,
    /// Blocks in the file system, `first_data_block` included.
    pub blocks: u64,
    /// Blocks of a group; the last may have fewer.
    pub blocks_per_group: u32,
    /// Base-2 logarithm of the blocks of a cluster.
    pub cluster_bits: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Inodes of a block of the inode table.
    pub inodes_per_block: u32,
    /// Groups whose metadata lies together (flex_bg), at least 1.
    pub groups_per_flex: u32,
    /// Blocks kept for the superuser.
    pub reserved_for_root: u64,
    /// The most blocks that one allocation gives.
    pub run_max: u64,
}

impl Layout {
    /// Clusters of a group.
    fn clusters_per_group(&self) -> u32 {
        self.blocks_per_group >> self.cluster_bits
    }

    /// The clusters whose first block lies in a run of a group: the first of them, and how many.
    fn clusters_of(&self, start: u32, blocks: u32) -> (u32, u32) {
        let up = |block: u32| block.div_ceil(1 << self.cluster_bits);
        (up(start), up(start + blocks) - up(start))
    }
}

/// What a descriptor says of its group.
#[derive(Clone, Copy, Debug)]
pub struct GroupCounts {
    /// Free clusters.
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub directories: u32,
}

#[derive(Default)]
struct Bitmaps {
    blocks: Option<Bits>,
    inodes: Option<Bits>,
    /// The bitmap on the device is damaged: nothing is taken, nothing given back.
    has_damaged_blocks: bool,
    has_damaged_inodes: bool,
    /// Blocks of the inode table that were looked at: see invariant 4.
    checked_blocks: Option<Bits>,
}

/// One block group. A line pair of its own, so that groups do not share cache lines.
#[repr(align(128))]
struct Group {
    bitmaps: Mutex<Bitmaps>,
    // Written under the lock, read without it by choosers.
    free_blocks: AtomicU32,
    free_inodes: AtomicU32,
    directories: AtomicU32,
    /// No free run is longer than this.
    longest_run: AtomicU32,
    trims: Trims,
}

/// What belongs to one CPU.
#[repr(align(128))]
#[derive(Default)]
struct PerCpu {
    /// Where this CPU's last new file got its blocks: the block after them, 0 for none.
    cursor: AtomicU64,
    /// Inodes made on this CPU, for their generations.
    inodes_made: AtomicU32,
}

/// The live allocator. See the module's head.
pub struct Allocator {
    layout: Layout,
    groups: Box<[Group]>,
    space: SpaceCounter,
    per_cpu: Box<[PerCpu]>,
    seed: u64,
    /// No group before this one has a bitmap that nobody looked at and that may have free blocks.
    first_unverified: AtomicU32,
    damage: Damage,
}

impl Allocator {
    /// The allocator of a file system whose descriptors say `counts`.
    pub fn new(layout: Layout, counts: &[GroupCounts]) -> Allocator {
        let seed = std::collections::hash_map::RandomState::new()
            .build_hasher()
            .finish();
        Allocator::with(layout, counts, seed, cpu::count())
    }

    /// One that gives one thread the same each time, on whatever CPUs it runs.
    pub fn repeatable(layout: Layout, counts: &[GroupCounts], seed: u64) -> Allocator {
        Allocator::with(layout, counts, seed, 1)
    }

    fn with(layout: Layout, counts: &[GroupCounts], seed: u64, cpus: usize) -> Allocator {
        let groups: Box<[Group]> = counts
            .iter()
            .map(|counts| Group {
                bitmaps: Mutex::new(&GROUP, Bitmaps::default()),
                free_blocks: AtomicU32::new(counts.free_blocks),
                free_inodes: AtomicU32::new(counts.free_inodes),
                directories: AtomicU32::new(counts.directories),
                longest_run: AtomicU32::new(counts.free_blocks),
                trims: Trims::default(),
            })
            .collect();
        let free = counts
            .iter()
            .map(|counts| u64::from(counts.free_blocks))
            .sum();
        Allocator {
            space: SpaceCounter::new(
                free,
                layout.reserved_for_root >> layout.cluster_bits,
                counter::pool_blocks(layout.blocks >> layout.cluster_bits),
            ),
            layout,
            groups,
            per_cpu: (0..cpus).map(|_| PerCpu::default()).collect(),
            seed,
            first_unverified: AtomicU32::new(0),
            damage: Damage::default(),
        }
    }

    fn group(&self, group: u32) -> Option<&Group> {
        self.groups.get(group as usize)
    }

    fn this_cpu(&self) -> (usize, &PerCpu) {
        let cpu = cpu::current() % self.per_cpu.len();
        (cpu, &self.per_cpu[cpu])
    }

    /// The group of a block, and the place of its cluster in it.
    fn split_block(&self, block: u64) -> Option<(u32, u32)> {
        let (group, index) = self.locate(block)?;
        Some((group, index >> self.layout.cluster_bits))
    }

    /// The group of a block, and the block's place in it.
    fn locate(&self, block: u64) -> Option<(u32, u32)> {
        let block = block.checked_sub(self.layout.first_data_block)?;
        let per_group = u64::from(self.layout.blocks_per_group);
        let group = u32::try_from(block / per_group).ok()?;
        (u64::from(group) < self.groups.len() as u64).then_some((group, (block % per_group) as u32))
    }

    /// The first block of a cluster.
    fn block_at(&self, group: u32, index: u32) -> u64 {
        self.layout.first_data_block
            + u64::from(group) * u64::from(self.layout.blocks_per_group)
            + (u64::from(index) << self.layout.cluster_bits)
    }

    /// The group's bitmaps with the block bitmap loaded. `can_wait` false: `None` when busy.
    fn lock_blocks(
        &self,
        source: &dyn BitmapSource,
        group: u32,
        can_wait: bool,
    ) -> Option<MutexGuard<'_, Bitmaps>> {
        self.lock_loaded(
            group,
            can_wait,
            |bitmaps| bitmaps.blocks.is_some(),
            || {
                self.load_blocks(source, group);
            },
        )
    }

    /// The same for the inode bitmap.
    fn lock_inodes(
        &self,
        source: &dyn BitmapSource,
        group: u32,
        can_wait: bool,
    ) -> Option<MutexGuard<'_, Bitmaps>> {
        self.lock_loaded(
            group,
            can_wait,
            |bitmaps| bitmaps.inodes.is_some(),
            || {
                self.load_inodes(source, group);
            },
        )
    }

    fn lock_loaded(
        &self,
        group: u32,
        can_wait: bool,
        is_loaded: impl Fn(&Bitmaps) -> bool,
        load: impl FnOnce(),
    ) -> Option<MutexGuard<'_, Bitmaps>> {
        let lock = &self.group(group)?.bitmaps;
        let take = || {
            if can_wait {
                Some(lock.lock())
            } else {
                lock.try_lock()
            }
        };
        let guard = take()?;
        if is_loaded(&guard) {
            return Some(guard);
        }
        drop(guard);
        load();
        take()
    }

    fn load_blocks(&self, source: &dyn BitmapSource, number: u32) {
        let Some(group) = self.group(number) else {
            return;
        };
        let loaded = source.block_bits(number);
        let mut bitmaps = group.bitmaps.lock();
        if bitmaps.blocks.is_some() {
            return;
        }
        let expected = group.free_blocks.load(Ordering::Relaxed);
        let (bits, problem) = examine(loaded, expected, self.layout.clusters_per_group());
        bitmaps.has_damaged_blocks = problem.is_some();
        group.free_blocks.store(bits.free(), Ordering::Relaxed);
        // Under the lock, so that a thread that finds the bitmap loaded finds its blocks counted.
        self.space
            .admit(u64::from(expected), u64::from(bits.free()));
        bitmaps.blocks = Some(bits);
        drop(bitmaps);
        if let Some(problem) = problem {
            self.note_damage(source, Kind::Blocks, number, &problem);
        }
    }

    /// Loads another bitmap, so that there is perhaps more to promise; false when there are none
    /// with free blocks, and what others found can be taken.
    fn admit_more(&self, source: &dyn BitmapSource) -> bool {
        if self.space.unverified() == 0 {
            return false;
        }
        let first = self.first_unverified.load(Ordering::Relaxed);
        for (number, group) in (0..).zip(&self.groups).skip(first as usize) {
            if group.free_blocks.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let is_loaded = group.bitmaps.lock().blocks.is_some();
            if !is_loaded {
                self.load_blocks(source, number);
                self.first_unverified.fetch_max(number, Ordering::Relaxed);
                return true;
            }
        }
        false
    }

    fn load_inodes(&self, source: &dyn BitmapSource, number: u32) {
        let Some(group) = self.group(number) else {
            return;
        };
        let loaded = source.inode_bits(number);
        let mut bitmaps = group.bitmaps.lock();
        if bitmaps.inodes.is_some() {
            return;
        }
        let expected = group.free_inodes.load(Ordering::Relaxed);
        let (bits, problem) = examine(loaded, expected, self.layout.inodes_per_group);
        bitmaps.has_damaged_inodes = problem.is_some();
        group.free_inodes.store(bits.free(), Ordering::Relaxed);
        bitmaps.inodes = Some(bits);
        drop(bitmaps);
        if let Some(problem) = problem {
            self.note_damage(source, Kind::Inodes, number, &problem);
        }
    }

    /// Loads both bitmaps of a group. A commit calls it before it changes them on the device, so
    /// that a later load cannot take what the commit frees for free before it is durable.
    pub fn load_group(&self, source: &dyn BitmapSource, group: u32) {
        drop(self.lock_blocks(source, group, true));
        drop(self.lock_inodes(source, group, true));
    }

    /// Reserves clusters for metadata to come; false when there are not as many.
    pub fn reserve(&self, source: &dyn BitmapSource, blocks: u64) -> bool {
        blocks == 0 || self.find(source, || self.space.reserve(blocks))
    }

    /// Whether `take` finds what it wants, perhaps only when more bitmaps were looked at.
    fn find(&self, source: &dyn BitmapSource, take: impl Fn() -> bool) -> bool {
        while !take() {
            if !self.admit_more(source) {
                // Others may have looked at the last ones meanwhile.
                return take();
            }
        }
        true
    }

    /// The same for what frees space, or uses what was allocated before: it finds blocks where
    /// others find none.
    pub fn reserve_from_pool(&self, blocks: u64) -> bool {
        blocks == 0 || self.space.reserve_from_pool(blocks)
    }

    /// Gives back what [`Allocator::reserve`] took.
    pub fn unreserve(&self, blocks: u64) {
        if blocks > 0 {
            self.space.give(blocks);
        }
    }

    /// Free blocks, and free inodes. What is only reserved for operations counts as free: most of
    /// it comes back.
    pub fn free_counts(&self) -> (u64, u64) {
        let (mut blocks, mut inodes) = (0, 0);
        for group in &self.groups {
            blocks += u64::from(group.free_blocks.load(Ordering::Relaxed));
            inodes += u64::from(group.free_inodes.load(Ordering::Relaxed));
        }
        (blocks << self.layout.cluster_bits, inodes)
    }

    /// Free blocks that data may not use.
    pub fn kept_back(&self) -> u64 {
        self.space.backing_target() << self.layout.cluster_bits
    }

    /// Those of them that are not the superuser's either.
    pub fn pool_blocks(&self) -> u64 {
        counter::pool_blocks(self.layout.blocks >> self.layout.cluster_bits)
            << self.layout.cluster_bits
    }

    /// A number that is hard to guess and hardly repeats.
    fn random(&self) -> u64 {
        let (cpu, per_cpu) = self.this_cpu();
        let count = per_cpu.inodes_made.fetch_add(1, Ordering::Relaxed);
        mix(self
            .seed
            .wrapping_add((cpu as u64) << 32 | u64::from(count)))
    }
}

/// The finalizer of splitmix64.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The bitmap to work with, and what is wrong with the one loaded: then all counts as used.
fn examine(loaded: Result<Bits, Error>, expected: u32, length: u32) -> (Bits, Option<Error>) {
    let problem = match loaded {
        Ok(bits) if bits.free() == expected => return (bits, None),
        Ok(bits) => Error::corrupt(format_args!(
            "{} are free in the bitmap, {expected} by the descriptor",
            bits.free()
        )),
        Err(error) => error,
    };
    (Bits::from_bytes(&[], length), Some(problem))
}
