//! What follows from the superblock's numbers: sizes, groups and the places of fixed metadata.
//!
//! A [`Geometry`] exists only after the superblock's numbers passed the checks in
//! [`Geometry::new`], so its methods divide and shift without further ado.
//!
//! A group may start with a superblock copy, followed by a copy of the descriptor table and by
//! blocks reserved for its growth. With `meta_bg` the descriptors of meta group `m` (as many
//! groups as descriptors fill a block) lie in its first, second and last group instead, each one
//! block, after the superblock copy if there is one.

use crate::error::{Corrupt, DiskError, Incompatible, Result};
use crate::features::{Compat, Incompat, RoCompat};
use crate::superblock::{SUPERBLOCK_OFFSET, Superblock};
use crate::units::{GroupNo, Ino, PhysBlock};

/// Checked numbers of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes in a block, 1024 to 65536.
    pub block_size: u32,
    /// Base-2 logarithm of the block size.
    pub block_bits: u32,
    /// Blocks in a cluster; 1 without `bigalloc`.
    pub cluster_ratio: u32,
    /// Number of blocks.
    pub blocks_count: u64,
    /// First block that groups are counted from.
    pub first_data_block: u32,
    /// Blocks in each group but the last.
    pub blocks_per_group: u32,
    /// Clusters in each group but the last: bits in use in a block bitmap.
    pub clusters_per_group: u32,
    /// Number of groups.
    pub groups_count: u32,
    /// Number of inodes.
    pub inodes_count: u32,
    /// Inodes in each group.
    pub inodes_per_group: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// First inode that is not reserved.
    pub first_ino: Ino,
    /// Blocks of each group's inode table.
    pub inode_table_blocks: u32,
    /// Bytes of a group descriptor.
    pub desc_size: u16,
    /// Group descriptors in a block: groups in a meta block group.
    pub descs_per_block: u32,
    /// Blocks of the descriptor table.
    pub desc_blocks: u32,
    /// Blocks after the descriptor table reserved for its growth.
    pub reserved_gdt_blocks: u32,
    /// Groups in a flex group; 1 without `flex_bg`.
    pub groups_per_flex: u32,
    meta_bg_from: Option<u32>,
    sparse: Sparse,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Sparse {
    Everywhere,
    PowersOf357,
    Two([u32; 2]),
}

/// Where an inode lies in its group's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeLocation {
    /// The group.
    pub group: GroupNo,
    /// Index in the group, which is its bit in the inode bitmap.
    pub index: u32,
    /// Block of the inode table, counted from the table's start.
    pub table_block: u32,
    /// Byte offset in that block.
    pub offset: u32,
}

impl Superblock {
    /// Checks everything that the superblock says by itself, checksum first, and derives the
    /// geometry. Unknown features are not refused here: that depends on what the caller can do.
    pub fn validate(&self) -> Result<Geometry> {
        if self.rev_level() > 1 {
            return Err(Incompatible::RevisionLevel(self.rev_level()).into());
        }
        if self.has_metadata_csum() && self.checksum_type() != 1 {
            return Err(Incompatible::ChecksumType(self.checksum_type()).into());
        }
        self.verify_checksum()?;
        Geometry::new(self)
    }
}

impl Geometry {
    /// Checks the superblock's numbers, one by one and against each other.
    pub fn new(sb: &Superblock) -> Result<Geometry> {
        let block_size = match sb.block_size() {
            Some(size) => size,
            None if sb.log_block_size() < 20 => {
                return Err(Incompatible::BlockSize(10 + sb.log_block_size()).into());
            }
            None => return Err(Corrupt::BlockSize(sb.log_block_size()).into()),
        };
        let bits_per_block = block_size * 8;
        let (cluster_ratio, clusters_per_group) = clusters(sb, block_size)?;

        let blocks_per_group = sb.blocks_per_group();
        if blocks_per_group == 0
            || !blocks_per_group.is_multiple_of(8)
            || u64::from(blocks_per_group)
                != u64::from(clusters_per_group) * u64::from(cluster_ratio)
            || clusters_per_group > bits_per_block
        {
            return Err(Corrupt::BlocksPerGroup(blocks_per_group).into());
        }

        let (inode_size, inodes_per_group) = inodes(sb, block_size)?;
        let desc_size = desc_size(sb, block_size)?;

        let first_data_block = sb.first_data_block();
        let first_expected = u32::from(block_size == 1024 && cluster_ratio == 1);
        if first_data_block != first_expected {
            return Err(Corrupt::FirstDataBlock(first_data_block).into());
        }
        let (blocks_count, groups_count) = groups(sb, blocks_per_group)?;

        if u64::from(sb.inodes_count()) != u64::from(groups_count) * u64::from(inodes_per_group) {
            return Err(Corrupt::InodeCount(sb.inodes_count()).into());
        }
        let first_ino = sb.first_ino();
        if first_ino.0 < 11 || first_ino.0 > sb.inodes_count() {
            return Err(Corrupt::FirstIno(first_ino.0).into());
        }
        counts(sb, blocks_count)?;

        let descs_per_block = block_size / u32::from(desc_size);
        let desc_blocks = groups_count.div_ceil(descs_per_block);
        let meta_bg_from = sb
            .incompat()
            .contains(Incompat::META_BG)
            .then(|| sb.first_meta_bg());
        if meta_bg_from.is_some_and(|first| first > desc_blocks) {
            return Err(Corrupt::FirstMetaBg(sb.first_meta_bg()).into());
        }
        let groups_per_flex = match sb.log_groups_per_flex() {
            log if !sb.incompat().contains(Incompat::FLEX_BG) || log == 0 => 1,
            log @ 1..=31 => 1 << log,
            log => return Err(Corrupt::FlexGroupSize(log).into()),
        };
        let sparse = if sb.compat().contains(Compat::SPARSE_SUPER2) {
            Sparse::Two(sb.backup_bgs())
        } else if sb.ro_compat().contains(RoCompat::SPARSE_SUPER) {
            Sparse::PowersOf357
        } else {
            Sparse::Everywhere
        };
        Ok(Geometry {
            block_size,
            block_bits: block_size.trailing_zeros(),
            cluster_ratio,
            blocks_count,
            first_data_block,
            blocks_per_group,
            clusters_per_group,
            groups_count,
            inodes_count: sb.inodes_count(),
            inodes_per_group,
            inode_size,
            first_ino,
            inode_table_blocks: inodes_per_group / (block_size / u32::from(inode_size)),
            desc_size,
            descs_per_block,
            desc_blocks,
            reserved_gdt_blocks: u32::from(sb.reserved_gdt_blocks()),
            groups_per_flex,
            meta_bg_from,
            sparse,
        })
    }

    /// Bytes of the file system.
    pub fn size_bytes(&self) -> u64 {
        self.blocks_count.saturating_mul(u64::from(self.block_size))
    }

    /// The block that holds the primary superblock.
    pub fn super_block(&self) -> PhysBlock {
        PhysBlock(SUPERBLOCK_OFFSET / u64::from(self.block_size))
    }

    /// The first block of a group.
    pub fn group_first_block(&self, group: GroupNo) -> PhysBlock {
        let from = u64::from(group.0) * u64::from(self.blocks_per_group);
        PhysBlock(u64::from(self.first_data_block) + from)
    }

    /// Blocks of a group; the last may be shorter; 0 beyond it.
    pub fn group_blocks(&self, group: GroupNo) -> u32 {
        let left = self
            .blocks_count
            .saturating_sub(self.group_first_block(group).0);
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Clusters of a group: the bits of its block bitmap that stand for something.
    pub fn group_clusters(&self, group: GroupNo) -> u32 {
        self.group_blocks(group).div_ceil(self.cluster_ratio)
    }

    /// The shift from blocks to clusters; 0 without `bigalloc`.
    pub fn cluster_bits(&self) -> u32 {
        self.cluster_ratio.trailing_zeros()
    }

    /// The first block of the cluster that a block lies in. As in files so on the device: logical
    /// and physical blocks have the same place in their clusters.
    pub fn cluster_start<B: From<u64> + Into<u64>>(&self, block: B) -> B {
        B::from(block.into() & !(u64::from(self.cluster_ratio) - 1))
    }

    /// The block itself where a cluster begins with it, else the first block of the next one.
    pub fn cluster_end<B: From<u64> + Into<u64>>(&self, block: B) -> B {
        self.cluster_start(B::from(block.into() + u64::from(self.cluster_ratio) - 1))
    }

    /// Whether a block lies in the file system (boot block excluded).
    pub fn contains_block(&self, block: PhysBlock) -> bool {
        block.0 >= u64::from(self.first_data_block) && block.0 < self.blocks_count
    }

    /// Whether `count` blocks from `block` lie in the file system.
    pub fn contains_run(&self, block: PhysBlock, count: u64) -> bool {
        let end = block.0.checked_add(count);
        block.0 >= u64::from(self.first_data_block) && end.is_some_and(|e| e <= self.blocks_count)
    }

    /// The group of a block and the block's index in it; `None` outside.
    pub fn locate_block(&self, block: PhysBlock) -> Option<(GroupNo, u32)> {
        if !self.contains_block(block) {
            return None;
        }
        let from = block.0 - u64::from(self.first_data_block);
        let per_group = u64::from(self.blocks_per_group);
        Some((
            GroupNo((from / per_group) as u32),
            (from % per_group) as u32,
        ))
    }

    /// Where an inode lies; `None` when there is no such inode.
    pub fn locate_inode(&self, ino: Ino) -> Option<InodeLocation> {
        if ino.0 == 0 || ino.0 > self.inodes_count {
            return None;
        }
        let index = (ino.0 - 1) % self.inodes_per_group;
        let per_block = self.block_size / u32::from(self.inode_size);
        Some(InodeLocation {
            group: GroupNo((ino.0 - 1) / self.inodes_per_group),
            index,
            table_block: index / per_block,
            offset: index % per_block * u32::from(self.inode_size),
        })
    }

    /// The inode that a bit of a group's inode bitmap stands for.
    pub fn inode_at(&self, group: GroupNo, index: u32) -> Ino {
        Ino(group
            .0
            .saturating_mul(self.inodes_per_group)
            .saturating_add(index)
            .saturating_add(1))
    }

    /// Whether a group starts with a superblock (the primary one or a copy).
    pub fn group_has_super(&self, group: GroupNo) -> bool {
        match &self.sparse {
            _ if group.0 == 0 => true,
            Sparse::Everywhere => true,
            Sparse::Two(groups) => groups.contains(&group.0),
            Sparse::PowersOf357 => {
                group.0 == 1 || [3, 5, 7].into_iter().any(|base| is_power_of(group.0, base))
            }
        }
    }

    /// Groups other than 0 that hold a superblock copy, in ascending order.
    pub fn backup_groups(&self) -> impl Iterator<Item = GroupNo> + '_ {
        (1..self.groups_count)
            .map(GroupNo)
            .filter(|g| self.group_has_super(*g))
    }

    /// Whether meta block group `meta` has its descriptors in itself.
    fn is_meta_bg(&self, meta: u32) -> bool {
        self.meta_bg_from.is_some_and(|first| meta >= first)
    }

    /// Descriptor block index and byte offset in it of a group's descriptor.
    pub fn desc_position(&self, group: GroupNo) -> (u32, u32) {
        let index = group.0 / self.descs_per_block;
        (
            index,
            group.0 % self.descs_per_block * u32::from(self.desc_size),
        )
    }

    /// Where descriptor block `index` (of [`Geometry::desc_blocks`]) lies: the primary copy.
    pub fn desc_block(&self, index: u32) -> PhysBlock {
        if !self.is_meta_bg(index) {
            return PhysBlock(self.super_block().0 + u64::from(index) + 1);
        }
        self.meta_desc_block(GroupNo(index.saturating_mul(self.descs_per_block)))
    }

    /// Where all copies of descriptor block `index` lie, the primary one first.
    pub fn desc_block_copies(&self, index: u32) -> Vec<PhysBlock> {
        let mut copies = vec![self.desc_block(index)];
        if self.is_meta_bg(index) {
            let first = u64::from(index) * u64::from(self.descs_per_block);
            let others = [first + 1, first + u64::from(self.descs_per_block) - 1];
            for group in others
                .into_iter()
                .filter(|g| *g < u64::from(self.groups_count))
            {
                copies.push(self.meta_desc_block(GroupNo(group as u32)));
            }
        } else {
            let offset = u64::from(index) + 1;
            let backups = self.backup_groups();
            copies.extend(backups.map(|g| PhysBlock(self.group_first_block(g).0 + offset)));
        }
        copies.dedup();
        copies
    }

    /// The descriptor block inside a group of a meta block group.
    fn meta_desc_block(&self, group: GroupNo) -> PhysBlock {
        let mut block = self.group_first_block(group).0 + u64::from(self.group_has_super(group));
        // With 1 KiB blocks and clusters, group 0 starts at block 0 but its superblock is block 1.
        if group.0 == 0 && self.block_size == 1024 && self.first_data_block == 0 {
            block += 1;
        }
        PhysBlock(block)
    }

    /// Blocks at the start of a group taken by superblock, descriptors and their reserve. Bitmaps
    /// and inode tables come on top, wherever the descriptors put them.
    pub fn group_base_blocks(&self, group: GroupNo) -> u32 {
        let has_super = self.group_has_super(group);
        let meta = group.0 / self.descs_per_block;
        if self.is_meta_bg(meta) {
            let within = group.0 % self.descs_per_block;
            let has_desc = within <= 1 || within == self.descs_per_block - 1;
            return u32::from(has_super) + u32::from(has_desc);
        }
        if !has_super {
            return 0;
        }
        let table = self.meta_bg_from.unwrap_or(self.desc_blocks);
        // A bitmap stands for no more than this many blocks, so a hostile sum may saturate.
        1u32.saturating_add(table)
            .saturating_add(self.reserved_gdt_blocks)
    }
}

fn is_power_of(mut n: u32, base: u32) -> bool {
    while n != 0 && n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

/// (blocks in a cluster, clusters in a group).
fn clusters(sb: &Superblock, block_size: u32) -> Result<(u32, u32)> {
    if !sb.ro_compat().contains(RoCompat::BIGALLOC) {
        // Old file systems leave the cluster fields at whatever fragments had.
        return Ok((1, sb.blocks_per_group()));
    }
    let log_ratio = sb.log_cluster_size().checked_sub(sb.log_block_size());
    // The kernel's limit of a cluster is 2^29 bytes.
    match log_ratio.filter(|_| sb.log_cluster_size() <= 19) {
        Some(log) => {
            let per_group = sb.clusters_per_group();
            if per_group == 0 || per_group > block_size * 8 {
                return Err(Corrupt::ClustersPerGroup(per_group).into());
            }
            Ok((1 << log, per_group))
        }
        None => Err(Corrupt::ClusterSize(sb.log_cluster_size()).into()),
    }
}

fn inodes(sb: &Superblock, block_size: u32) -> Result<(u16, u32)> {
    let inode_size = sb.inode_size();
    if inode_size < 128 || !inode_size.is_power_of_two() || u32::from(inode_size) > block_size {
        return Err(Corrupt::InodeSize(inode_size).into());
    }
    let per_group = sb.inodes_per_group();
    let per_block = block_size / u32::from(inode_size);
    if per_group == 0 || !per_group.is_multiple_of(per_block) || per_group > block_size * 8 {
        return Err(Corrupt::InodesPerGroup(per_group).into());
    }
    Ok((inode_size, per_group))
}

fn desc_size(sb: &Superblock, block_size: u32) -> Result<u16> {
    let size = sb.desc_size();
    let least = if sb.has_64bit() { 64 } else { 32 };
    if size < least || !size.is_power_of_two() || u32::from(size) > block_size.min(1024) {
        return Err(Corrupt::DescSize(size).into());
    }
    Ok(size)
}

fn groups(sb: &Superblock, blocks_per_group: u32) -> Result<(u64, u32)> {
    let count = sb.blocks_count();
    let bad = || DiskError::from(Corrupt::BlockCount(count));
    let from_first = count
        .checked_sub(u64::from(sb.first_data_block()))
        .ok_or_else(bad)?;
    let groups = from_first.div_ceil(u64::from(blocks_per_group));
    match u32::try_from(groups) {
        Ok(groups) if groups > 0 && count < 1 << 48 => Ok((count, groups)),
        _ => Err(bad()),
    }
}

fn counts(sb: &Superblock, blocks_count: u64) -> Result<()> {
    if sb.free_blocks_count() > blocks_count {
        return Err(Corrupt::FreeBlockCount(sb.free_blocks_count()).into());
    }
    if sb.reserved_blocks_count() > blocks_count {
        return Err(Corrupt::ReservedBlockCount(sb.reserved_blocks_count()).into());
    }
    if sb.free_inodes_count() > sb.inodes_count() {
        return Err(Corrupt::FreeInodeCount(sb.free_inodes_count()).into());
    }
    let block_size = sb.block_size().unwrap_or(0);
    if u32::from(sb.reserved_gdt_blocks()) > block_size / 4 {
        return Err(Corrupt::ReservedGdtBlocks(sb.reserved_gdt_blocks()).into());
    }
    let (compat, ro) = (sb.compat(), sb.ro_compat());
    if sb.incompat().contains(Incompat::META_BG) && compat.contains(Compat::RESIZE_INODE) {
        return Err(Corrupt::FeatureConflict("meta_bg resize_inode").into());
    }
    if ro.contains(RoCompat::BIGALLOC) && !sb.incompat().contains(Incompat::EXTENTS) {
        return Err(Corrupt::FeatureConflict("bigalloc without extent").into());
    }
    Ok(())
}
