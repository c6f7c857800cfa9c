//! The descriptors, bitmaps and inode tables of a file system whose blocks are all allocated.
//!
//! Where descriptors have checksums, a bitmap of a group with nothing but fixed metadata is not
//! written: flags say so, and whoever needs it makes it. The last group's block bitmap is always
//! written, since it may end early.

use super::build::Build;
use super::error::Result;
use super::shape::group_range;
use finefs_ext_disk::bitmap;
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::group::{GroupChecksum, GroupDesc, GroupFlags};
use finefs_ext_disk::superblock::State;
use finefs_ext_disk::units::{GroupNo, PhysBlock};
use std::sync::Arc;

/// What is known of the inode tables before they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableState {
    /// They read as zeros, or are made so.
    pub is_zeroed: bool,
}

impl Build {
    /// Makes the pieces that say what was allocated.
    pub fn finish(&mut self, state: TableState) -> Result<()> {
        self.finish_inodes();
        let used = self.used_blocks();
        let geo = self.shape.geo.clone();
        self.shape.sb.set_free_blocks_count(geo.blocks_count - used);
        self.shape
            .sb
            .set_free_inodes_count(geo.inodes_count - self.inodes.len() as u32);
        let checksum = GroupChecksum::of(&self.shape.sb);
        let desc_size = usize::from(geo.desc_size);
        let mut table = vec![0; geo.desc_blocks as usize * geo.block_size as usize];
        for group in 0..geo.groups_count {
            self.stop.check()?;
            let (block, offset) = geo.desc_position(GroupNo(group));
            let at = block as usize * geo.block_size as usize + offset as usize;
            let bytes = &mut table[at..at + desc_size];
            self.describe(&geo, group, bytes, &checksum, state)?;
        }
        self.put_descriptors(table);
        self.put_superblocks();
        Ok(())
    }

    fn describe(
        &mut self,
        geo: &Geometry,
        group: u32,
        bytes: &mut [u8],
        checksum: &GroupChecksum,
        state: TableState,
    ) -> Result<()> {
        let places = self.tables.places[group as usize];
        let blocks = group_range(geo, group);
        let first_ino = group * geo.inodes_per_group + 1;
        let last_ino = first_ino + (geo.inodes_per_group - 1);
        let used_inodes = self.inodes.range(first_ino..=last_ino).count() as u32;
        let is_last = group + 1 == geo.groups_count;
        let mut desc = GroupDesc::new(bytes)?;
        desc.set_block_bitmap(PhysBlock(places.block_bitmap));
        desc.set_inode_bitmap(PhysBlock(places.inode_bitmap));
        desc.set_inode_table(PhysBlock(places.inode_table));
        let taken = self.space.count(blocks.clone());
        let free = (blocks.end - blocks.start - taken) >> geo.cluster_bits();
        desc.set_free_blocks(free as u32);
        desc.set_free_inodes(geo.inodes_per_group - used_inodes);
        let directories = self.directories.iter();
        let here = directories.filter(|ino| (first_ino..=last_ino).contains(ino));
        desc.set_used_dirs(here.count() as u32);
        let mut flags = GroupFlags::empty();
        flags.set(GroupFlags::ITABLE_ZEROED, state.is_zeroed);
        if checksum.is_present() {
            let is_touched = self.tables.is_touched[group as usize] || used_inodes > 0;
            let is_untouched = !is_last && !is_touched;
            flags.set(GroupFlags::BLOCK_UNINIT, is_untouched);
            flags.set(GroupFlags::INODE_UNINIT, used_inodes == 0);
            // Inodes are used from the start of a table on.
            desc.set_itable_unused(geo.inodes_per_group - used_inodes);
        }
        desc.set_flags(flags);
        if !flags.contains(GroupFlags::BLOCK_UNINIT) {
            let map = self.block_bitmap(group);
            desc.update_block_bitmap(checksum, geo, &map)?;
            self.pieces.put_block(places.block_bitmap, map);
        }
        if !flags.contains(GroupFlags::INODE_UNINIT) {
            let mut map = vec![0; geo.block_size as usize];
            bitmap::set_range(&mut map, 0, used_inodes as usize);
            let bits = geo.inodes_per_group as usize;
            bitmap::set_range(&mut map, bits, geo.block_size as usize * 8 - bits);
            desc.update_inode_bitmap(checksum, geo, &map)?;
            self.pieces.put_block(places.inode_bitmap, map);
        }
        desc.update_checksum(checksum, GroupNo(group));
        self.put_inodes(places.inode_table, first_ino, used_inodes);
        Ok(())
    }

    /// A group's bits, with those set that stand for nothing.
    fn block_bitmap(&self, group: u32) -> Vec<u8> {
        let geo = &self.shape.geo;
        let blocks = group_range(geo, group);
        let bits = geo.block_size as usize * 8;
        let mut map = vec![0; geo.block_size as usize];
        for taken in self.space.taken(blocks.clone()) {
            let at = (taken.start - blocks.start) as usize >> geo.cluster_bits();
            let count = (taken.end - taken.start) as usize >> geo.cluster_bits();
            bitmap::set_range(&mut map, at, count);
        }
        let used = geo.group_clusters(GroupNo(group)) as usize;
        bitmap::set_range(&mut map, used, bits - used);
        map
    }

    /// The blocks of an inode table that hold inodes in use.
    fn put_inodes(&mut self, table: u64, first_ino: u32, count: u32) {
        if count == 0 {
            return;
        }
        let size = usize::from(self.shape.geo.inode_size);
        let block_size = self.shape.geo.block_size as usize;
        let mut bytes = vec![0; (count as usize * size).next_multiple_of(block_size)];
        for (slot, ino) in bytes.chunks_mut(size).zip(first_ino..first_ino + count) {
            if let Some(inode) = self.inodes.get(&ino) {
                slot.copy_from_slice(inode.as_bytes());
            }
        }
        self.pieces.put_block(table, bytes);
    }

    fn put_descriptors(&mut self, table: Vec<u8>) {
        let geo = &self.shape.geo;
        let size = geo.block_size as usize;
        if self.shape.features.incompat.contains(Incompat::META_BG) {
            for (index, block) in table.chunks(size).enumerate() {
                let shared = Arc::new(block.to_vec());
                for place in geo.desc_block_copies(index as u32) {
                    let offset = place.0 * size as u64;
                    self.pieces.put_bytes(offset, shared.clone());
                }
            }
            return;
        }
        let shared = Arc::new(table);
        let primary = geo.super_block().0;
        let copies = geo
            .backup_groups()
            .map(|group| geo.group_first_block(group).0);
        for super_block in std::iter::once(primary).chain(copies) {
            let offset = (super_block + 1) * size as u64;
            self.pieces.put_bytes(offset, shared.clone());
        }
    }

    fn put_superblocks(&mut self) {
        self.shape.sb.update_checksum();
        let geo = &self.shape.geo;
        for group in geo.backup_groups() {
            let mut copy = self.shape.sb.clone();
            copy.set_block_group_nr(group.0.min(u16::MAX.into()) as u16);
            copy.set_state(State::empty());
            copy.update_checksum();
            let place = geo.group_first_block(group).0;
            self.pieces.put_block(place, copy.as_bytes().to_vec());
        }
    }
}
