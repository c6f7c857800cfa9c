//! Descriptors, superblock, resize inode and their copies in the file system as it shall be. What
//! bitmaps and counts say is not known here: they are put right after a check of the shadow.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::features::{Compat, Incompat, RoCompat};
use finefs_ext_disk::group::{GroupChecksum, GroupDesc, GroupFlags};
use finefs_ext_disk::inode::Inode;
use finefs_ext_disk::orphan_file::OrphanBlock;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, State, Superblock};
use finefs_ext_disk::{GroupNo, Ino, PhysBlock, indirect};

use super::moving::Mover;
use super::names::{data_blocks, read_inode};
use crate::repair::superblock;

/// Writes the new file system's own structures.
pub(super) struct Writer<'a, 'b> {
    pub mover: &'b mut Mover<'a>,
    pub view: &'b Arc<dyn BlockDevice>,
    /// From here on the device is zeros.
    pub zeros_from: u64,
}

impl Writer<'_, '_> {
    /// Writes the descriptors in their first places; what new groups need with them.
    pub fn descriptors(&mut self) -> Result<(), String> {
        let geo = self.mover.shape.geo.clone();
        let size = geo.block_size as usize;
        let filled = self.mover.numbers.filled(self.mover.shape);
        for index in 0..geo.desc_blocks {
            let first = index * geo.descs_per_block;
            let mut block = vec![0; size];
            for (slot, number) in (first..geo.groups_count)
                .take(geo.descs_per_block as usize)
                .enumerate()
            {
                let index = filled.iter().find(|(group, _)| group.0 == number);
                let bytes = self.descriptor(number, index.map(|(_, index)| *index))?;
                let at = slot * bytes.len();
                block[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            self.write_block(geo.desc_block(index).0, &block)?;
        }
        Ok(())
    }

    /// A group's descriptor; `filled` is the highest inode that it gets.
    fn descriptor(&mut self, number: u32, filled: Option<u32>) -> Result<Vec<u8>, String> {
        let text = |error: finefs_ext_disk::DiskError| error.to_string();
        let (fs, shape) = (&self.mover.check.fs, self.mover.shape);
        let checksums = GroupChecksum::of(&shape.sb);
        let places = self.mover.layout.places[number as usize];
        let mut desc = GroupDesc::new(vec![0; usize::from(shape.geo.desc_size)]).map_err(text)?;
        let is_new = number >= fs.geo.groups_count;
        if is_new {
            let flags = self.new_group(number)?;
            desc.set_flags(flags);
            desc.set_free_inodes(shape.geo.inodes_per_group);
            if checksums.is_present() {
                desc.set_itable_unused(shape.geo.inodes_per_group);
            }
            desc.set_free_blocks(self.free_blocks(number));
        } else {
            let (index, offset) = fs.geo.desc_position(GroupNo(number));
            let at = fs.geo.desc_block(index).0 * u64::from(fs.geo.block_size);
            fs.source
                .read_at(at + u64::from(offset), desc.as_bytes_mut())
                .map_err(|error| error.to_string())?;
        }
        desc.set_block_bitmap(PhysBlock(places.block_bitmap));
        desc.set_inode_bitmap(PhysBlock(places.inode_bitmap));
        desc.set_inode_table(PhysBlock(places.inode_table));
        if number + 1 == shape.geo.groups_count {
            desc.set_flags(desc.flags() - GroupFlags::BLOCK_UNINIT);
        }
        if let Some(index) = filled.filter(|_| checksums.is_present()) {
            let unused = shape.geo.inodes_per_group - (index + 1);
            desc.set_itable_unused(desc.itable_unused().min(unused));
            desc.set_flags(desc.flags() - GroupFlags::INODE_UNINIT);
        }
        desc.update_checksum(&checksums, GroupNo(number));
        Ok(desc.as_bytes().to_vec())
    }

    /// Clusters of a new group that are free if nothing but its own metadata lies in it.
    fn free_blocks(&self, number: u32) -> u32 {
        let units = self.mover.layout.units;
        let geo = &self.mover.shape.geo;
        let first = geo.group_first_block(GroupNo(number)).0;
        let end = first + u64::from(geo.group_blocks(GroupNo(number)));
        let places = self.mover.layout.places[number as usize];
        let own = [
            (places.block_bitmap, 1),
            (places.inode_bitmap, 1),
            (places.inode_table, geo.inode_table_blocks),
        ];
        let own = own.into_iter().filter(|(at, _)| (first..end).contains(at));
        let taken: u64 = own
            .map(|(at, count)| units.of(at, u64::from(count)).1)
            .sum();
        let base = u64::from(geo.group_base_blocks(GroupNo(number)));
        let all = units.of(first, end - first).1;
        all.saturating_sub(units.end(base) + taken) as u32
    }

    /// Flags of a new group, whose inode table is zeros then, or said not to be.
    fn new_group(&self, number: u32) -> Result<GroupFlags, String> {
        let geo = &self.mover.shape.geo;
        let block_bytes = u64::from(geo.block_size);
        let start = self.mover.layout.places[number as usize].inode_table * block_bytes;
        let length = u64::from(geo.inode_table_blocks) * block_bytes;
        let has_flags = GroupChecksum::of(&self.mover.shape.sb).is_present();
        let is_zero = start >= self.zeros_from;
        if !is_zero && !has_flags {
            self.view
                .write_zeros_at(start, length)
                .map_err(|error| error.to_string())?;
        }
        let mut flags = GroupFlags::empty();
        flags.set(GroupFlags::ITABLE_ZEROED, has_flags && is_zero);
        flags.set(
            GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT,
            has_flags,
        );
        Ok(flags)
    }

    /// Makes zeros of the inodes between those that were ever in use and those that come.
    pub fn clear_inodes(&self) -> Result<(), String> {
        let (fs, geo) = (&self.mover.check.fs, &self.mover.shape.geo);
        for (group, index) in self.mover.numbers.filled(self.mover.shape) {
            let scanned = fs
                .groups
                .get(group.0 as usize)
                .map_or(0, |group| fs.inodes_scanned(group));
            if index >= scanned {
                let from = geo.inode_at(group, scanned).0;
                let at = self
                    .mover
                    .inode_place(from)
                    .ok_or("an inode has no place")?;
                let length = u64::from(index - scanned + 1) * u64::from(geo.inode_size);
                self.view
                    .write_zeros_at(at, length)
                    .map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn write_block(&self, block: u64, bytes: &[u8]) -> Result<(), String> {
        let at = block * u64::from(self.mover.shape.geo.block_size);
        self.view
            .write_at(at, bytes)
            .map_err(|error| error.to_string())
    }

    fn inode(&self, number: u32) -> Result<(u64, Inode<Vec<u8>>), String> {
        let place = self
            .mover
            .inode_place(number)
            .ok_or("an inode has no place")?;
        let inode = read_inode(self.view, place, self.mover.shape.geo.inode_size)?;
        Ok((place, inode))
    }

    /// The inode that maps the blocks kept for the descriptors' growth.
    pub fn resize_inode(&mut self) -> Result<(), String> {
        let shape = self.mover.shape;
        if !shape.sb.compat().contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let geo = &shape.geo;
        let (place, mut inode) = self.inode(Ino::RESIZE.0)?;
        let old = u64::from(inode.block_words()[indirect::DOUBLE as usize]);
        let double = self.mover.place_of(old)?;
        let per_block = indirect::pointers_per_block(geo.block_size);
        let mut table = vec![0; geo.block_size as usize];
        let backups: Vec<GroupNo> = geo.backup_groups().collect();
        let mut blocks = 1;
        for at in 0..geo.reserved_gdt_blocks {
            let index = geo.desc_blocks + at;
            let primary = geo.super_block().0 + 1 + u64::from(index);
            indirect::set_pointer(&mut table, index % per_block, PhysBlock(primary));
            let mut copies = vec![0; geo.block_size as usize];
            for (slot, group) in (0..).zip(&backups) {
                let copy = primary + u64::from(group.0) * u64::from(geo.blocks_per_group);
                indirect::set_pointer(&mut copies, slot, PhysBlock(copy));
            }
            self.write_block(primary, &copies)?;
            blocks += 1 + backups.len() as u64;
        }
        self.write_block(double, &table)?;
        let rules = self.mover.check.fs.rules;
        inode.set_block_word(indirect::DOUBLE as usize, double as u32);
        // With bigalloc each counts as a cluster, as e2fsprogs has it.
        let sectors = u64::from(geo.block_size / 512) << self.mover.check.cluster_bits;
        inode
            .set_blocks_512(&rules, blocks * sectors)
            .map_err(|error| error.to_string())?;
        inode.update_checksum(&rules, Ino::RESIZE);
        self.mover.write(place, inode.as_bytes())
    }

    /// The blocks of the orphan file, whose checksums know their places.
    pub fn orphan_file(&self) -> Result<(), String> {
        let sb = &self.mover.shape.sb;
        let old = sb.orphan_file_inum();
        if !sb.compat().contains(Compat::ORPHAN_FILE) || old == 0 || !sb.has_metadata_csum() {
            return Ok(());
        }
        let number = self.mover.numbers.of(old);
        let (_, inode) = self.inode(number)?;
        let size = self.mover.shape.geo.block_size;
        let seed = inode.seed(&self.mover.check.fs.rules, Ino(number));
        for place in data_blocks(self.view, &inode, size)? {
            let mut bytes = vec![0; size as usize];
            self.view
                .read_at(place * u64::from(size), &mut bytes)
                .map_err(|error| error.to_string())?;
            let mut block = OrphanBlock::new(bytes).map_err(|error| error.to_string())?;
            if let Some(seed) = seed {
                block.update_checksum(seed, PhysBlock(place));
            }
            self.write_block(place, block.as_bytes())?;
        }
        Ok(())
    }

    /// The superblock, in its first place.
    pub fn superblock(&mut self) -> Result<(), String> {
        let mut sb = self.mover.shape.sb.clone();
        let of = |old: u32| self.mover.numbers.of(old);
        sb.set_journal_inum(of(sb.journal_inum()));
        sb.set_orphan_file_inum(of(sb.orphan_file_inum()));
        sb.set_lpf_ino(of(sb.lpf_ino()));
        if sb.ro_compat().contains(RoCompat::QUOTA) {
            sb.set_usr_quota_inum(of(sb.usr_quota_inum()));
            sb.set_grp_quota_inum(of(sb.grp_quota_inum()));
            sb.set_prj_quota_inum(of(sb.prj_quota_inum()));
        }
        if sb.journal_inum() != 0 && sb.jnl_backup_type() == 1 {
            let (_, inode) = self.inode(sb.journal_inum())?;
            let mut words = sb.jnl_blocks();
            words[..15].copy_from_slice(&inode.block_words());
            sb.set_jnl_blocks(words);
        }
        let mmp = sb.mmp_block();
        if sb.incompat().contains(Incompat::MMP) && mmp != 0 {
            sb.set_mmp_block(self.mmp(mmp)?);
        }
        sb.update_checksum();
        self.mover.write(SUPERBLOCK_OFFSET, sb.as_bytes())
    }

    fn mmp(&mut self, block: u64) -> Result<u64, String> {
        let place = self.mover.place_of(block)?;
        if place != block {
            let fs = &self.mover.check.fs;
            let mut bytes = fs.block_buffer();
            fs.source
                .read_at(block * u64::from(fs.geo.block_size), &mut bytes)
                .map_err(|error| error.to_string())?;
            self.write_block(place, &bytes)?;
        }
        Ok(place)
    }
}

/// Writes the copies of superblock and descriptors, from the first ones.
pub(super) fn backups(
    view: &Arc<dyn BlockDevice>,
    geo: &finefs_ext_disk::geometry::Geometry,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let size = u64::from(geo.block_size);
    let sb: Superblock = superblock(view)?;
    for group in geo.backup_groups() {
        let mut copy = sb.clone();
        copy.set_block_group_nr(group.0.min(u32::from(u16::MAX)) as u16);
        copy.set_state(State::empty());
        copy.update_checksum();
        let at = geo.group_first_block(group).0 * size;
        view.write_at(at, copy.as_bytes()).map_err(text)?;
    }
    let mut block = vec![0; geo.block_size as usize];
    for index in 0..geo.desc_blocks {
        let copies = geo.desc_block_copies(index);
        view.read_at(copies[0].0 * size, &mut block).map_err(text)?;
        for copy in &copies[1..] {
            view.write_at(copy.0 * size, &block).map_err(text)?;
        }
    }
    Ok(())
}
