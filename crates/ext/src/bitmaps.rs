//! What the allocator knows of an image: the bitmaps of the groups, checked against all else that
//! says what is in use.

use std::ops::Range;

use finefs_buffers::alloc::BitmapSource;
use finefs_buffers::alloc::bits::Bits;
use finefs_ext_disk::group::GroupFlags;
use finefs_ext_disk::{GroupNo, Ino};
use finefs_namespace::{Error, Result};

use crate::error::at;
use crate::group::DescRead;
use crate::state::ExtState;

/// So many blocks a block map gets at once: a run that fits one block of pointers needs few of them
/// (see `apply::reservation`).
pub(crate) fn block_map_run_max(block_size: u32) -> u64 {
    u64::from(block_size / 4)
}

/// The bitmaps on the device, as the last commit left them.
impl BitmapSource for ExtState {
    fn describe(&self) -> String {
        self.device.describe()
    }

    fn repairer(&self) -> &'static str {
        crate::CHECKER
    }

    fn run_max(&self) -> u64 {
        if self.groups.has_extents() {
            u64::MAX
        } else {
            block_map_run_max(self.geometry.block_size)
        }
    }

    fn block_bits(&self, group: u32) -> Result<Bits> {
        let desc = self.groups.desc(&self.geometry, &self.buffers, group)?;
        let checksum = self.groups.checksum();
        if checksum.is_present() && desc.flags().contains(GroupFlags::BLOCK_UNINIT) {
            return Ok(self.groups.initial_block_bits(&self.geometry, group));
        }
        let bitmap = self.buffers.read(desc.block_bitmap().0)?;
        desc.verify_block_bitmap(checksum, &self.geometry, &bitmap)
            .map_err(|error| at(format_args!("group {group}"), error))?;
        let bits = Bits::from_bytes(&bitmap, self.geometry.group_clusters(GroupNo(group)));
        let mut is_sound = true;
        self.groups
            .for_zones_of(&self.geometry, group, |start, count| {
                is_sound &= bits.all_used(start, count);
            });
        if is_sound {
            Ok(bits)
        } else {
            Err(Error::corrupt(format_args!(
                "group {group}: metadata blocks are marked free"
            )))
        }
    }

    fn inode_bits(&self, group: u32) -> Result<Bits> {
        let desc = self.groups.desc(&self.geometry, &self.buffers, group)?;
        let checksum = self.groups.checksum();
        let per_group = self.geometry.inodes_per_group;
        let mut bits = if checksum.is_present() && desc.flags().contains(GroupFlags::INODE_UNINIT) {
            Bits::all_free(per_group)
        } else {
            let bitmap = self.buffers.read(desc.inode_bitmap().0)?;
            desc.verify_inode_bitmap(checksum, &self.geometry, &bitmap)
                .map_err(|error| at(format_args!("group {group}"), error))?;
            Bits::from_bytes(&bitmap, per_group)
        };
        let first = self.geometry.inode_at(GroupNo(group), 0);
        let Ino(first_free) = self.geometry.first_ino;
        let reserved = first_free.saturating_sub(first.0);
        if bits.set_range(0, reserved) != 0 {
            log::warn!("group {group}: reserved inodes are marked free");
        }
        // What is taken anew from there is zeroed first.
        let used = self.initialised_inodes(&desc);
        if !bits.all_free_from(used) {
            return Err(Error::corrupt(format_args!(
                "group {group}: inodes are in use that the descriptor says were never used"
            )));
        }
        Ok(bits)
    }

    fn check_inodes(
        &self,
        group: u32,
        indices: Range<u32>,
        is_free: &dyn Fn(u32) -> bool,
    ) -> Result<()> {
        let desc = self.groups.desc(&self.geometry, &self.buffers, group)?;
        // What was never used may hold anything.
        let end = indices.end.min(self.initialised_inodes(&desc));
        for index in indices.start..end {
            let ino = self.geometry.inode_at(GroupNo(group), index);
            let inode = self.read_inode(finefs_namespace::Ino(u64::from(ino.0)))?;
            let is_in_use = inode.links_count() > 0
                && inode.dtime() == 0
                && inode.kind().is_some()
                && inode.verify_checksum(&self.inode_rules, ino).is_ok();
            if is_in_use && is_free(index) {
                return Err(Error::corrupt(format_args!(
                    "inode {ino} is in use, but marked free"
                )));
            }
        }
        Ok(())
    }
}

impl ExtState {
    /// How many of a group's inodes were ever used, from the first on.
    fn initialised_inodes(&self, desc: &DescRead) -> u32 {
        let per_group = self.geometry.inodes_per_group;
        match desc.flags() {
            _ if !self.groups.checksum().is_present() => per_group,
            flags if flags.contains(GroupFlags::INODE_UNINIT) => 0,
            _ => per_group.saturating_sub(desc.itable_unused()),
        }
    }
}
