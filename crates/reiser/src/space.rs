//! Free blocks: what the live allocator reads of an image, and what a batch takes and frees.
//!
//! # Data model
//! A group of the allocator is what one bitmap is about. Blocks that operations take are known to
//! the allocator alone until a batch names them; the batch sets their bits in the bitmaps on the
//! device. Nodes of the tree are taken while a batch is applied, from its reservation; their bits
//! are set when it is ([`settle_nodes`]).

use std::ops::Range;

use finefs_buffers::alloc::bits::Bits;
use finefs_buffers::alloc::{BitmapSource, GroupCounts, Layout};
use finefs_namespace::{BlockNo, BlockRun, Error, Result};
use finefs_reiser_disk::superblock::Superblock;

use crate::state::{Mounted, Writing};
use crate::tree::staged::{NodeSpace, Staged};
use crate::tree::{Nodes, Tree};

impl BitmapSource for Mounted {
    fn describe(&self) -> String {
        self.device.describe()
    }

    fn repairer(&self) -> &'static str {
        "reiserfsck --fix-fixable"
    }

    fn run_max(&self) -> u64 {
        run_max(self.superblock.block_size())
    }

    fn block_bits(&self, group: u32) -> Result<Bits> {
        block_bits(&self.tree, group)
    }

    fn inode_bits(&self, _: u32) -> Result<Bits> {
        Ok(Bits::all_free(0))
    }

    fn check_inodes(&self, _: u32, _: Range<u32>, _: &dyn Fn(u32) -> bool) -> Result<()> {
        Ok(())
    }
}

/// The most blocks that one allocation gives: as many as a leaf has pointers, so that what maps
/// them is in two leaves at most.
pub(crate) fn run_max(block_size: u32) -> u64 {
    u64::from(block_size / 4).saturating_sub(12).max(1)
}

/// The bitmap of a group; what no file can have must be set in it.
fn block_bits(tree: &Tree, group: u32) -> Result<Bits> {
    let bitmaps = &tree.bitmaps;
    let first = group * bitmaps.bits;
    let length = bitmaps.bits.min(tree.block_count.saturating_sub(first));
    let bitmap = tree.buffers.read(u64::from(bitmaps.block(group)))?;
    let bits = Bits::from_bytes(&bitmap, length);
    let mut block = first;
    while let Some(free) = bits.next_free(block - first) {
        // A run of free blocks: none of them may be the file system's own.
        let run = bits.run_at(free, length);
        let taken = (first + free..first + free + run).find(|block| !tree.may_hold(*block));
        if let Some(taken) = taken {
            return Err(Error::corrupt(format_args!(
                "block {taken}, of the file system itself, is marked free"
            )));
        }
        block = first + free + run;
    }
    Ok(bits)
}

/// What the allocator is to know of an image, and how many blocks of each group are free.
///
/// # Errors
/// A bitmap that cannot be read or is damaged.
pub(crate) fn layout(tree: &Tree, superblock: &Superblock) -> Result<(Layout, Vec<GroupCounts>)> {
    let counts: Result<Vec<GroupCounts>> = (0..tree.bitmaps.count)
        .map(|group| {
            Ok(GroupCounts {
                free_blocks: block_bits(tree, group)?.free(),
                free_inodes: 0,
                directories: 0,
            })
        })
        .collect();
    let counts = counts?;
    let layout = Layout {
        first_data_block: 0,
        blocks: u64::from(tree.block_count),
        blocks_per_group: tree.bitmaps.bits,
        cluster_bits: 0,
        inodes_per_group: 1,
        inodes_per_block: 1,
        // Objects have no place of their own, so that what is made on a CPU goes anywhere.
        groups_per_flex: tree.bitmaps.count.max(1),
        reserved_for_root: 0,
        run_max: run_max(superblock.block_size()),
    };
    Ok((layout, counts))
}

/// What nodes of a batch take and give back.
pub(crate) struct Space<'a> {
    mounted: &'a Mounted,
    writing: &'a Writing,
    /// Blocks left of the batch's reservation.
    pub reserved: u64,
    /// Nodes that were taken and whose bits are not set yet.
    taken: Vec<u32>,
    /// Nodes that are gone and whose bits are not cleared yet.
    gone: Vec<u32>,
}

impl<'a> Space<'a> {
    /// So much is reserved.
    pub fn new(mounted: &'a Mounted, writing: &'a Writing, reserved: u64) -> Space<'a> {
        Space {
            mounted,
            writing,
            reserved,
            taken: Vec::new(),
            gone: Vec::new(),
        }
    }
}

impl Space<'_> {
    /// Takes one block for a batch, of its reservation or beyond it.
    pub fn take(&mut self, near: u32) -> Result<u32> {
        let allocator = &self.writing.allocator;
        match self.reserved.checked_sub(1) {
            Some(left) => self.reserved = left,
            None if allocator.extend_reservation(self.mounted) => {}
            None => return Err(Error::NoSpace),
        }
        let taken = allocator.take_reserved(self.mounted, u64::from(near));
        taken.map(|block| block as u32).ok_or_else(|| {
            self.reserved += 1;
            Error::NoSpace
        })
    }

    /// Loads a group's bitmap into the live allocator.
    fn load(&self, group: u32) {
        self.writing.allocator.load_group(self.mounted, group);
    }

    /// The blocks that were taken for nodes since the last settlement.
    pub fn unsettled(&self) -> usize {
        self.taken.len() + self.gone.len()
    }

    /// Gives back what was taken for nodes that nothing will name.
    pub fn abandon(self) {
        let allocator = &self.writing.allocator;
        for block in self.taken {
            let run = BlockRun {
                start: BlockNo(u64::from(block)),
                length: 1,
            };
            allocator.release_blocks(self.mounted, run);
        }
        allocator.unreserve(self.reserved);
    }
}

impl NodeSpace for Space<'_> {
    fn allocate_node(&mut self, near: u32) -> Result<u32> {
        let block = self.take(near)?;
        self.taken.push(block);
        Ok(block)
    }

    fn free_node(&mut self, block: u32) {
        self.gone.push(block);
    }
}

/// Sets the bits of nodes that a batch took, and clears those of nodes that are gone. Tells how
/// many blocks more are in use by that, and gives those that are gone.
pub(crate) fn settle_nodes(
    staged: &mut Staged<'_, Space<'_>>,
    tree: &Tree,
) -> Result<(i64, Vec<u32>)> {
    let taken = std::mem::take(&mut staged.space().taken);
    let gone = std::mem::take(&mut staged.space().gone);
    // A node may come and go within a batch.
    for block in &taken {
        mark(staged, tree, *block, 1, true)?;
    }
    for block in &gone {
        mark(staged, tree, *block, 1, false)?;
    }
    Ok((taken.len() as i64 - gone.len() as i64, gone))
}

/// Marks blocks as used or as free in the bitmaps of a batch. Each must be the other before:
/// otherwise none of them is changed.
pub(crate) fn mark(
    staged: &mut Staged<'_, Space<'_>>,
    tree: &Tree,
    first: u32,
    count: u32,
    is_used: bool,
) -> Result<()> {
    let bitmaps = tree.bitmaps;
    let blocks = first..first.saturating_add(count);
    if blocks.clone().any(|block| !tree.may_hold(block)) {
        return Err(Error::corrupt(format_args!(
            "blocks {first}+{count}: no file can own them"
        )));
    }
    let place = |block: u32| {
        let bit = block % bitmaps.bits;
        (bit as usize / 8, 1_u8 << (bit % 8))
    };
    for (group, blocks) in by_group(bitmaps.bits, blocks.clone()) {
        // Whoever loads it later must not take what the batch frees for free before that is
        // durable.
        staged.space().load(group);
        let bytes = staged.read(bitmaps.block(group))?;
        for block in blocks {
            let (byte, mask) = place(block);
            if (bytes[byte] & mask != 0) == is_used {
                let what = if is_used { "in use" } else { "free" };
                return Err(Error::corrupt(format_args!(
                    "block {block}: is {what} already"
                )));
            }
        }
    }
    for (group, blocks) in by_group(bitmaps.bits, blocks) {
        let bytes = staged.edit(bitmaps.block(group))?;
        for block in blocks {
            let (byte, mask) = place(block);
            bytes[byte] ^= mask;
        }
    }
    Ok(())
}

/// Parts of a range of blocks, each with the bitmap of so many bits that it is in.
fn by_group(bits: u32, blocks: Range<u32>) -> impl Iterator<Item = (u32, Range<u32>)> {
    let groups = blocks.start / bits..blocks.end.div_ceil(bits);
    groups.map(move |group| {
        let start = blocks.start.max(group * bits);
        let end = blocks.end.min((group + 1).saturating_mul(bits));
        (group, start..end)
    })
}
