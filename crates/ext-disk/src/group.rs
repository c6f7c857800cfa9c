//! Group descriptors: where a group's bitmaps and inode table lie, and what is free in it.
//!
//! A descriptor has 32 bytes, or 64 (and formally more) with `64bit`. [`GroupDesc`] is a view
//! over exactly one descriptor; its length says which form it is.
//!
//! A descriptor's checksum is the low half of a crc32c with `metadata_csum`, a crc16 with
//! `uninit_bg` alone, and absent without both. A bitmap has a checksum only with `metadata_csum`:
//! 32 bits in a 64-byte descriptor, their low 16 in a 32-byte one.
//!
//! Reference: Linux `Documentation/filesystems/ext4/group_descr.rst`.

use crate::bytes::{Field, clip};
use crate::checksum::{FsSeed, crc16, crc32c};
use crate::error::{Checksummed, Corrupt, Result, check_sum, need};
use crate::features::RoCompat;
use crate::geometry::Geometry;
use crate::superblock::Superblock;
use crate::units::{GroupNo, PhysBlock};
use bitflags::bitflags;

/// The short form's size.
pub const DESC_SIZE_MIN: usize = 32;
/// The size from which a descriptor has the upper halves.
pub const DESC_SIZE_64BIT: usize = 64;

const CHECKSUM_OFFSET: usize = 0x1E;

bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct GroupFlags: u16 {
        /// Inode bitmap and table are not initialised: no inode is in use.
        const INODE_UNINIT = 1;
        /// The block bitmap is not initialised: only fixed metadata is in use.
        const BLOCK_UNINIT = 2;
        /// The inode table is zeroed.
        const ITABLE_ZEROED = 4;
        const _ = !0;
    }
}

/// How descriptors and bitmaps are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupChecksum {
    /// Not at all.
    None,
    /// `uninit_bg`: crc16 of the descriptor, started with the UUID.
    Crc16([u8; 16]),
    /// `metadata_csum`: crc32c of descriptor and bitmaps.
    Crc32c(FsSeed),
}

impl GroupChecksum {
    /// What the superblock's features ask for.
    pub fn of(sb: &Superblock) -> GroupChecksum {
        if sb.has_metadata_csum() {
            GroupChecksum::Crc32c(sb.seed())
        } else if sb.ro_compat().contains(RoCompat::GDT_CSUM) {
            GroupChecksum::Crc16(sb.uuid())
        } else {
            GroupChecksum::None
        }
    }

    /// Whether flags and the count of unused inodes mean something.
    pub fn is_present(&self) -> bool {
        *self != GroupChecksum::None
    }
}

/// A view of one group descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc<B> {
    bytes: B,
}

fields!(view GroupDesc get_le put_le {
    /// The checksum.
    0x1E u16 checksum set_checksum;
});

/// Fields whose high half only the 64-byte form has.
macro_rules! halves {
    ($( $(#[$doc:meta])* $ty:ident $lo:literal $half:ident $hi:literal $get:ident $set:ident; )*) => {
        impl<B: AsRef<[u8]>> GroupDesc<B> { $(
            $(#[$doc])*
            pub fn $get(&self) -> $ty {
                let b = self.bytes.as_ref();
                let low = <$ty>::from($half::get_le(b, $lo));
                if self.is_large() { low | <$ty>::from($half::get_le(b, $hi)) << $half::BITS } else { low }
            }
        )* }
        impl<B: AsRef<[u8]> + AsMut<[u8]>> GroupDesc<B> { $(
            #[doc = concat!("Sets [`Self::", stringify!($get), "`]; the short form keeps the low half only.")]
            pub fn $set(&mut self, value: $ty) {
                let is_large = self.is_large();
                let b = self.bytes.as_mut();
                $half::put_le(b, $lo, value as $half);
                if is_large {
                    $half::put_le(b, $hi, (value >> $half::BITS) as $half);
                }
            }
        )* }
    };
}

halves! {
    /// Free blocks (clusters).
    u32 0x0C u16 0x2C free_blocks set_free_blocks;
    /// Free inodes.
    u32 0x0E u16 0x2E free_inodes set_free_inodes;
    /// Directories.
    u32 0x10 u16 0x30 used_dirs set_used_dirs;
    /// Inodes at the end of the table that were never used.
    u32 0x1C u16 0x32 itable_unused set_itable_unused;
    /// Checksum of the block bitmap (16 bits in the short form).
    u32 0x18 u16 0x38 block_bitmap_csum set_block_bitmap_csum;
    /// Checksum of the inode bitmap (16 bits in the short form).
    u32 0x1A u16 0x3A inode_bitmap_csum set_inode_bitmap_csum;
    /// The block bitmap's block, as a number.
    u64 0x00 u32 0x20 block_bitmap_raw set_block_bitmap_raw;
    /// The inode bitmap's block, as a number.
    u64 0x04 u32 0x24 inode_bitmap_raw set_inode_bitmap_raw;
    /// The inode table's first block, as a number.
    u64 0x08 u32 0x28 inode_table_raw set_inode_table_raw;
    /// The snapshot exclusion bitmap's block (not in the kernel).
    u64 0x14 u32 0x34 exclude_bitmap_raw set_exclude_bitmap_raw;
}

impl<B: AsRef<[u8]>> GroupDesc<B> {
    /// Makes a view; `bytes` is exactly one descriptor.
    pub fn new(bytes: B) -> Result<GroupDesc<B>> {
        let len = bytes.as_ref().len();
        need("group descriptor", DESC_SIZE_MIN, len)?;
        if len > DESC_SIZE_MIN {
            need("group descriptor", DESC_SIZE_64BIT, len)?;
        }
        Ok(GroupDesc { bytes })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    fn is_large(&self) -> bool {
        self.bytes.as_ref().len() >= DESC_SIZE_64BIT
    }

    /// The block bitmap's block.
    pub fn block_bitmap(&self) -> PhysBlock {
        PhysBlock(self.block_bitmap_raw())
    }
    /// The inode bitmap's block.
    pub fn inode_bitmap(&self) -> PhysBlock {
        PhysBlock(self.inode_bitmap_raw())
    }
    /// The inode table's first block.
    pub fn inode_table(&self) -> PhysBlock {
        PhysBlock(self.inode_table_raw())
    }
    /// `bg_flags`.
    pub fn flags(&self) -> GroupFlags {
        GroupFlags::from_bits_retain(u16::get_le(self.bytes.as_ref(), 0x12))
    }

    /// The checksum that the present contents should have; 0 where there is none.
    pub fn compute_checksum(&self, kind: &GroupChecksum, group: GroupNo) -> u16 {
        let b = self.bytes.as_ref();
        let number = group.0.to_le_bytes();
        let head = clip(b, 0..CHECKSUM_OFFSET);
        let tail = clip(b, CHECKSUM_OFFSET + 2..b.len());
        match kind {
            GroupChecksum::None => 0,
            GroupChecksum::Crc16(uuid) => crc16(&[uuid, &number, head, tail]),
            GroupChecksum::Crc32c(seed) => {
                let crc = crc32c(crc32c(seed.0, &number), head);
                // The checksum field itself counts as zero.
                (crc32c(crc32c(crc, &[0, 0]), tail) & 0xffff) as u16
            }
        }
    }

    /// Compares the checksum.
    pub fn verify_checksum(&self, kind: &GroupChecksum, group: GroupNo) -> Result<()> {
        if !kind.is_present() {
            return Ok(());
        }
        let computed = self.compute_checksum(kind, group);
        check_sum(
            Checksummed::GroupDesc,
            self.checksum().into(),
            computed.into(),
        )
    }

    /// Compares the block bitmap's checksum.
    pub fn verify_block_bitmap(
        &self,
        kind: &GroupChecksum,
        geo: &Geometry,
        bitmap: &[u8],
    ) -> Result<()> {
        self.verify_bitmap(
            Checksummed::BlockBitmap,
            self.block_bitmap_csum(),
            bitmap_checksum(kind, bitmap, geo.clusters_per_group)?,
        )
    }

    /// Compares the inode bitmap's checksum.
    pub fn verify_inode_bitmap(
        &self,
        kind: &GroupChecksum,
        geo: &Geometry,
        bitmap: &[u8],
    ) -> Result<()> {
        self.verify_bitmap(
            Checksummed::InodeBitmap,
            self.inode_bitmap_csum(),
            bitmap_checksum(kind, bitmap, geo.inodes_per_group)?,
        )
    }

    fn verify_bitmap(&self, what: Checksummed, stored: u32, computed: Option<u32>) -> Result<()> {
        let mask = if self.is_large() { u32::MAX } else { 0xffff };
        computed.map_or(Ok(()), |crc| check_sum(what, stored, crc & mask))
    }

    /// Checks places and counts against the geometry.
    pub fn validate(&self, geo: &Geometry, group: GroupNo) -> Result<()> {
        for block in [self.block_bitmap(), self.inode_bitmap()] {
            if !geo.contains_block(block) {
                return Err(Corrupt::GroupBlock(block.0).into());
            }
        }
        if !geo.contains_run(self.inode_table(), geo.inode_table_blocks.into()) {
            return Err(Corrupt::GroupBlock(self.inode_table_raw()).into());
        }
        for (count, limit) in [
            (self.free_blocks(), geo.group_clusters(group)),
            (self.free_inodes(), geo.inodes_per_group),
            (self.used_dirs(), geo.inodes_per_group),
            (self.itable_unused(), geo.inodes_per_group),
        ] {
            if count > limit {
                return Err(Corrupt::GroupCount(count).into());
            }
        }
        Ok(())
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> GroupDesc<B> {
    /// The bytes, to edit.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut()
    }
    /// Sets the block bitmap's block.
    pub fn set_block_bitmap(&mut self, block: PhysBlock) {
        self.set_block_bitmap_raw(block.0);
    }
    /// Sets the inode bitmap's block.
    pub fn set_inode_bitmap(&mut self, block: PhysBlock) {
        self.set_inode_bitmap_raw(block.0);
    }
    /// Sets the inode table's first block.
    pub fn set_inode_table(&mut self, block: PhysBlock) {
        self.set_inode_table_raw(block.0);
    }
    /// Sets `bg_flags`.
    pub fn set_flags(&mut self, flags: GroupFlags) {
        u16::put_le(self.bytes.as_mut(), 0x12, flags.bits());
    }

    /// Sets the checksum, where there is one. Call it last, after the bitmaps' checksums.
    pub fn update_checksum(&mut self, kind: &GroupChecksum, group: GroupNo) {
        if kind.is_present() {
            self.set_checksum(self.compute_checksum(kind, group));
        }
    }

    /// Sets the block bitmap's checksum, where there is one.
    pub fn update_block_bitmap(
        &mut self,
        kind: &GroupChecksum,
        geo: &Geometry,
        bitmap: &[u8],
    ) -> Result<()> {
        if let Some(crc) = bitmap_checksum(kind, bitmap, geo.clusters_per_group)? {
            self.set_block_bitmap_csum(crc);
        }
        Ok(())
    }

    /// Sets the inode bitmap's checksum, where there is one.
    pub fn update_inode_bitmap(
        &mut self,
        kind: &GroupChecksum,
        geo: &Geometry,
        bitmap: &[u8],
    ) -> Result<()> {
        if let Some(crc) = bitmap_checksum(kind, bitmap, geo.inodes_per_group)? {
            self.set_inode_bitmap_csum(crc);
        }
        Ok(())
    }
}

/// The crc32c of the first `bits` bits of a bitmap; `None` where bitmaps have no checksum.
fn bitmap_checksum(kind: &GroupChecksum, bitmap: &[u8], bits: u32) -> Result<Option<u32>> {
    let GroupChecksum::Crc32c(seed) = kind else {
        return Ok(None);
    };
    let bytes = (bits / 8) as usize;
    need("bitmap", bytes, bitmap.len())?;
    Ok(Some(crc32c(seed.0, clip(bitmap, 0..bytes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_form_keeps_low_halves() {
        let mut short = GroupDesc::new([0u8; 32]).expect("32 bytes");
        short.set_block_bitmap(PhysBlock(0x1_0000_0002));
        short.set_free_blocks(0x1_0003);
        short.set_inode_bitmap_csum(0xdead_beef);
        assert_eq!(short.block_bitmap(), PhysBlock(2));
        assert_eq!(
            (short.free_blocks(), short.inode_bitmap_csum()),
            (3, 0xbeef)
        );

        let mut long = GroupDesc::new(vec![0u8; 64]).expect("64 bytes");
        long.set_block_bitmap(PhysBlock(0x1_0000_0002));
        long.set_free_blocks(0x1_0003);
        long.set_inode_bitmap_csum(0xdead_beef);
        assert_eq!(long.block_bitmap(), PhysBlock(0x1_0000_0002));
        assert_eq!(
            (long.free_blocks(), long.inode_bitmap_csum()),
            (0x1_0003, 0xdead_beef)
        );
        assert!(GroupDesc::new([0u8; 31]).is_err());
        assert!(GroupDesc::new([0u8; 40]).is_err());
    }

    #[test]
    fn checksum_knows_its_group() {
        for kind in [
            GroupChecksum::Crc16([3; 16]),
            GroupChecksum::Crc32c(FsSeed(9)),
        ] {
            let mut desc = GroupDesc::new([5u8; 64]).expect("64 bytes");
            desc.update_checksum(&kind, GroupNo(4));
            assert_eq!(desc.verify_checksum(&kind, GroupNo(4)), Ok(()));
            assert!(desc.verify_checksum(&kind, GroupNo(5)).is_err());
            desc.set_free_inodes(1);
            assert!(desc.verify_checksum(&kind, GroupNo(4)).is_err());
        }
    }
}
