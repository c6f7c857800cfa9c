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
//!
//! # Data model
//! One [`Group`] per block group: its lock guards the two bitmaps, which are loaded at first use. Beside
//! the lock lie approximate counts that choosers read without it.
//!
//! # Invariants
//! 1. The free bits of all groups together are at least the blocks that the counter gives out: who
//!    took `n` from the counter finds `n` free bits, maybe only after looking twice. (Groups whose
//!    bitmap is not loaded count by their descriptor; if the bitmap then turns out to be damaged,
//!    the group counts as full and its blocks are struck from the counter.)
//! 2. A bitmap is loaded once, before the first commit changes the group's bitmap on the device (the
//!    commit calls [`Allocator::load_group`] first), and never dropped.
//!
//! # Locking
//! ```text
//! ext.group      one at a time; nothing is called under it
//! ```
//! Bitmaps are read from the device before the lock is taken. A busy group is passed over where
//! another will do.
//!
//! # References
//! Linux `fs/ext4/{mballoc,ialloc}.c` for the policies.

pub(crate) mod bits;
mod blocks;
pub(crate) mod counter;
mod inodes;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use finefs_locks::{LockClass, Mutex, MutexGuard, cpu};
use finefs_namespace::Error;

use bits::Bits;
use counter::SpaceCounter;

/// The two bitmaps of a block group.
pub static GROUP: LockClass = LockClass::new("ext.group", 60);

/// Where bitmaps come from: the device, or what a descriptor says of a group never used.
pub(crate) trait BitmapSource: Sync {
    /// The most blocks that one allocation may give.
    fn run_max(&self) -> u64;
    /// The block bitmap of a group, with all metadata blocks set.
    fn block_bits(&self, group: u32) -> Result<Bits, Error>;
    /// The inode bitmap of a group, with reserved inodes set.
    fn inode_bits(&self, group: u32) -> Result<Bits, Error>;
}

/// The numbers that the allocator needs to know of the file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The block that group 0 starts at.
    pub(crate) first_data_block: u64,
    /// Blocks in the file system, `first_data_block` included.
    pub(crate) blocks: u64,
    /// Blocks of a group; the last may have fewer.
    pub(crate) blocks_per_group: u32,
    /// Inodes of a group.
    pub(crate) inodes_per_group: u32,
    /// Groups whose metadata lies together (flex_bg), at least 1.
    pub(crate) groups_per_flex: u32,
    /// Blocks kept for the superuser.
    pub(crate) reserved_for_root: u64,
    /// The most blocks that one allocation gives.
    pub(crate) run_max: u64,
}

/// What a descriptor says of its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupCounts {
    /// Free blocks.
    pub(crate) free_blocks: u32,
    /// Free inodes.
    pub(crate) free_inodes: u32,
    /// Directories.
    pub(crate) directories: u32,
}

#[derive(Default)]
struct Bitmaps {
    blocks: Option<Bits>,
    inodes: Option<Bits>,
    /// The bitmap on the device is damaged: nothing is taken, nothing given back.
    has_damaged_blocks: bool,
    has_damaged_inodes: bool,
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
    /// A bitmap was found damaged since this was last asked.
    found_damage: AtomicBool,
}

impl Allocator {
    /// The allocator of a file system whose descriptors say `counts`.
    pub(crate) fn new(layout: Layout, counts: &[GroupCounts]) -> Allocator {
        let groups: Box<[Group]> = counts
            .iter()
            .map(|counts| Group {
                bitmaps: Mutex::new(&GROUP, Bitmaps::default()),
                free_blocks: AtomicU32::new(counts.free_blocks),
                free_inodes: AtomicU32::new(counts.free_inodes),
                directories: AtomicU32::new(counts.directories),
                longest_run: AtomicU32::new(counts.free_blocks),
            })
            .collect();
        let free = counts
            .iter()
            .map(|counts| u64::from(counts.free_blocks))
            .sum();
        Allocator {
            space: SpaceCounter::new(
                free,
                layout.reserved_for_root,
                counter::pool_blocks(layout.blocks),
            ),
            layout,
            groups,
            per_cpu: (0..cpu::count()).map(|_| PerCpu::default()).collect(),
            seed: std::collections::hash_map::RandomState::new()
                .build_hasher()
                .finish(),
            found_damage: AtomicBool::new(false),
        }
    }

    fn group(&self, group: u32) -> Option<&Group> {
        self.groups.get(group as usize)
    }

    fn this_cpu(&self) -> (usize, &PerCpu) {
        let cpu = cpu::current() % self.per_cpu.len();
        (cpu, &self.per_cpu[cpu])
    }

    /// The group of a block, and the block's place in it.
    fn split_block(&self, block: u64) -> Option<(u32, u32)> {
        let block = block.checked_sub(self.layout.first_data_block)?;
        let per_group = u64::from(self.layout.blocks_per_group);
        let group = u32::try_from(block / per_group).ok()?;
        (u64::from(group) < self.groups.len() as u64).then_some((group, (block % per_group) as u32))
    }

    fn block_at(&self, group: u32, index: u32) -> u64 {
        self.layout.first_data_block
            + u64::from(group) * u64::from(self.layout.blocks_per_group)
            + u64::from(index)
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
        let (bits, problem) = examine(loaded, expected, self.layout.blocks_per_group);
        bitmaps.has_damaged_blocks = problem.is_some();
        group.free_blocks.store(bits.free(), Ordering::Relaxed);
        let missing = expected - bits.free();
        bitmaps.blocks = Some(bits);
        drop(bitmaps);
        self.space.strike(u64::from(missing));
        if let Some(problem) = problem {
            self.note_damage(number, "block", &problem);
        }
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
            self.note_damage(number, "inode", &problem);
        }
    }

    fn note_damage(&self, group: u32, which: &str, problem: &Error) {
        log::error!("group {group}: {which} bitmap: {problem}; nothing is allocated there");
        self.found_damage.store(true, Ordering::Release);
    }

    /// Loads both bitmaps of a group. A commit calls it before it changes them on the device, so
    /// that a later load cannot take what the commit frees for free before it is durable.
    pub(crate) fn load_group(&self, source: &dyn BitmapSource, group: u32) {
        drop(self.lock_blocks(source, group, true));
        drop(self.lock_inodes(source, group, true));
    }

    /// True once after a bitmap was found damaged.
    pub(crate) fn take_damage(&self) -> bool {
        self.found_damage.swap(false, Ordering::AcqRel)
    }

    /// Reserves blocks for metadata to come; false when there are not as many.
    pub(crate) fn reserve(&self, blocks: u64) -> bool {
        blocks == 0 || self.space.reserve(blocks)
    }

    /// The same for what frees space, or uses what was allocated before: it finds blocks where others find none.
    pub(crate) fn reserve_from_pool(&self, blocks: u64) -> bool {
        blocks == 0 || self.space.reserve_from_pool(blocks)
    }

    /// Gives back what [`Allocator::reserve`] took.
    pub(crate) fn unreserve(&self, blocks: u64) {
        if blocks > 0 {
            self.space.give(blocks);
        }
    }

    /// Free blocks, and free inodes. What is only reserved for operations counts as free: most of it comes back.
    pub(crate) fn free_counts(&self) -> (u64, u64) {
        let (mut blocks, mut inodes) = (0, 0);
        for group in &self.groups {
            blocks += u64::from(group.free_blocks.load(Ordering::Relaxed));
            inodes += u64::from(group.free_inodes.load(Ordering::Relaxed));
        }
        (blocks, inodes)
    }

    /// Free blocks that data may not use.
    pub(crate) fn kept_back(&self) -> u64 {
        self.space.backing_target()
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
