//! The superblock: 1024 bytes at byte offset 1024 of the file system.
//!
//! [`Superblock`] owns the raw bytes and reads and writes fields in them, so fields that have no
//! accessor survive a rewrite. [`Superblock::parse`] accepts anything with the right magic, for
//! the inspector; [`Superblock::validate`] is what a mount asks for.
//!
//! Reference: Linux `Documentation/filesystems/ext4/super.rst`.

use crate::bytes::{Field, get_array, put_bytes};
use crate::checksum::{FsSeed, crc32c};
use crate::error::{Checksummed, Corrupt, DiskError, Result, check_sum, need};
use crate::features::{Compat, Incompat, RoCompat};
use crate::units::Ino;
use bitflags::bitflags;

/// Byte offset of the primary superblock in the file system.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Size of a superblock in bytes.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xEF53;

const MAGIC_OFFSET: usize = 0x38;
const CHECKSUM_OFFSET: usize = 0x3FC;

bitflags! {
    /// `s_state`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct State: u16 {
        /// Unmounted cleanly.
        const VALID = 1;
        /// Errors were found.
        const ERROR = 2;
        /// Orphans are being cleaned.
        const ORPHAN = 4;
        /// A fast commit is being replayed.
        const FC_REPLAY = 0x20;
        const _ = !0;
    }
}

bitflags! {
    /// `s_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SuperFlags: u32 {
        /// Directory hashes take names as signed characters.
        const SIGNED_HASH = 1;
        /// Directory hashes take names as unsigned characters.
        const UNSIGNED_HASH = 2;
        /// To test development code.
        const TEST_FILESYS = 4;
        const _ = !0;
    }
}

/// What to do when an error is found (`s_errors`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// Go on.
    Continue,
    /// Remount read-only.
    ReadOnly,
    /// Panic (the kernel).
    Panic,
    /// A value that means none of these.
    Unknown(u16),
}

/// A superblock.
#[derive(Clone, PartialEq, Eq)]
pub struct Superblock {
    bytes: Box<[u8; SUPERBLOCK_SIZE]>,
}

fields!(owned Superblock get_le put_le {
    /// Number of inodes.
    0x00 u32 inodes_count set_inodes_count;
    /// Number of free inodes.
    0x10 u32 free_inodes_count set_free_inodes_count;
    /// First block that groups are counted from: 1 with 1 KiB blocks, else 0.
    0x14 u32 first_data_block set_first_data_block;
    /// Block size is 2^(10 + this).
    0x18 u32 log_block_size set_log_block_size;
    /// Cluster size is 2^(10 + this).
    0x1C u32 log_cluster_size set_log_cluster_size;
    /// Blocks in each group but the last.
    0x20 u32 blocks_per_group set_blocks_per_group;
    /// Clusters in each group but the last.
    0x24 u32 clusters_per_group set_clusters_per_group;
    /// Inodes in each group.
    0x28 u32 inodes_per_group set_inodes_per_group;
    /// Mounts since the last check.
    0x34 u16 mount_count set_mount_count;
    /// Mounts allowed between checks; negative for no limit.
    0x36 i16 max_mount_count set_max_mount_count;
    /// `s_magic`.
    0x38 u16 magic set_magic;
    /// `s_errors`, raw; see [`Superblock::error_policy`].
    0x3C u16 errors set_errors;
    /// Minor revision.
    0x3E u16 minor_rev_level set_minor_rev_level;
    /// Seconds allowed between checks; 0 for no limit.
    0x44 u32 check_interval set_check_interval;
    /// Who made it; 0 is Linux.
    0x48 u32 creator_os set_creator_os;
    /// Revision: 0 has fixed inode sizes, 1 is dynamic.
    0x4C u32 rev_level set_rev_level;
    /// User who may use reserved blocks.
    0x50 u16 def_resuid set_def_resuid;
    /// Group that may use reserved blocks.
    0x52 u16 def_resgid set_def_resgid;
    /// `s_first_ino`, raw; see [`Superblock::first_ino`].
    0x54 u32 first_ino_raw set_first_ino_raw;
    /// `s_inode_size`, raw; see [`Superblock::inode_size`].
    0x58 u16 inode_size_raw set_inode_size_raw;
    /// The group that this copy lies in.
    0x5A u16 block_group_nr set_block_group_nr;
    /// Compression algorithms (never used).
    0xC8 u32 algorithm_usage_bitmap set_algorithm_usage_bitmap;
    /// Blocks to preallocate for files.
    0xCC u8 prealloc_blocks set_prealloc_blocks;
    /// Blocks to preallocate for directories.
    0xCD u8 prealloc_dir_blocks set_prealloc_dir_blocks;
    /// Descriptor blocks reserved for growth.
    0xCE u16 reserved_gdt_blocks set_reserved_gdt_blocks;
    /// Inode of the journal; 0 when it is external.
    0xE0 u32 journal_inum set_journal_inum;
    /// Device number of an external journal.
    0xE4 u32 journal_dev set_journal_dev;
    /// Head of the list of orphans; 0 when empty.
    0xE8 u32 last_orphan set_last_orphan;
    /// Hash of new directory indexes, without regard to signedness: 0 legacy, 1 half_md4, 2 tea.
    0xFC u8 def_hash_version set_def_hash_version;
    /// 1 when `s_jnl_blocks` holds a copy of the journal inode's map.
    0xFD u8 jnl_backup_type set_jnl_backup_type;
    /// `s_desc_size`, raw; see [`Superblock::desc_size`].
    0xFE u16 desc_size_raw set_desc_size_raw;
    /// Default mount options.
    0x100 u32 default_mount_opts set_default_mount_opts;
    /// First meta block group whose descriptors lie in itself.
    0x104 u32 first_meta_bg set_first_meta_bg;
    /// Bytes of extra inode fields that every inode has.
    0x15C u16 min_extra_isize set_min_extra_isize;
    /// Bytes of extra inode fields that new inodes shall have.
    0x15E u16 want_extra_isize set_want_extra_isize;
    /// RAID stride in blocks.
    0x164 u16 raid_stride set_raid_stride;
    /// Seconds between updates of the multiple mount protection block.
    0x166 u16 mmp_interval set_mmp_interval;
    /// Block of multiple mount protection.
    0x168 u64 mmp_block set_mmp_block;
    /// RAID stripe width in blocks.
    0x170 u32 raid_stripe_width set_raid_stripe_width;
    /// A flex group is 2^this groups.
    0x174 u8 log_groups_per_flex set_log_groups_per_flex;
    /// Metadata checksum algorithm; 1 is crc32c.
    0x175 u8 checksum_type set_checksum_type;
    /// Version of encryption.
    0x176 u8 encryption_level set_encryption_level;
    /// KiB written over the life of the file system.
    0x178 u64 kbytes_written set_kbytes_written;
    /// Inode of the active snapshot (not in the kernel).
    0x180 u32 snapshot_inum set_snapshot_inum;
    /// Sequence number of the active snapshot.
    0x184 u32 snapshot_id set_snapshot_id;
    /// Blocks reserved for the active snapshot.
    0x188 u64 snapshot_r_blocks_count set_snapshot_r_blocks_count;
    /// Head of the list of snapshots.
    0x190 u32 snapshot_list set_snapshot_list;
    /// Number of errors seen.
    0x194 u32 error_count set_error_count;
    /// Inode of the first error.
    0x19C u32 first_error_ino set_first_error_ino;
    /// Block of the first error.
    0x1A0 u64 first_error_block set_first_error_block;
    /// Source line of the first error.
    0x1C8 u32 first_error_line set_first_error_line;
    /// Inode of the last error.
    0x1D0 u32 last_error_ino set_last_error_ino;
    /// Source line of the last error.
    0x1D4 u32 last_error_line set_last_error_line;
    /// Block of the last error.
    0x1D8 u64 last_error_block set_last_error_block;
    /// Inode of user quota.
    0x240 u32 usr_quota_inum set_usr_quota_inum;
    /// Inode of group quota.
    0x244 u32 grp_quota_inum set_grp_quota_inum;
    /// Blocks that metadata takes, or 0 when not computed.
    0x248 u32 overhead_clusters set_overhead_clusters;
    /// Inode of lost+found.
    0x268 u32 lpf_ino set_lpf_ino;
    /// Inode of project quota.
    0x26C u32 prj_quota_inum set_prj_quota_inum;
    /// Checksum seed, with `metadata_csum_seed`.
    0x270 u32 checksum_seed_raw set_checksum_seed_raw;
    /// Error code of the first error.
    0x27A u8 first_error_errcode set_first_error_errcode;
    /// Error code of the last error.
    0x27B u8 last_error_errcode set_last_error_errcode;
    /// Character encoding of names, with `casefold`.
    0x27C u16 encoding set_encoding;
    /// Flags of the encoding.
    0x27E u16 encoding_flags set_encoding_flags;
    /// Inode of the orphan file.
    0x280 u32 orphan_file_inum set_orphan_file_inum;
    /// crc32c of the superblock.
    0x3FC u32 checksum set_checksum;
});

/// A value whose low and high part lie apart.
macro_rules! split_fields {
    ($( $(#[$doc:meta])* $lo:literal $hi:literal $hity:ident $get:ident $set:ident; )*) => {
        impl Superblock { $(
            $(#[$doc])*
            pub fn $get(&self) -> u64 {
                let low = u32::get_le(&self.bytes[..], $lo);
                u64::from(low) | u64::from(<$hity>::get_le(&self.bytes[..], $hi)) << 32
            }
            #[doc = concat!("Sets [`Self::", stringify!($get), "`]; bits that do not fit are lost.")]
            pub fn $set(&mut self, value: u64) {
                u32::put_le(&mut self.bytes[..], $lo, value as u32);
                <$hity>::put_le(&mut self.bytes[..], $hi, (value >> 32) as $hity);
            }
        )* }
    };
}

split_fields! {
    /// Time of the last mount, seconds since 1970.
    0x2C 0x275 u8 mount_time set_mount_time;
    /// Time of the last write.
    0x30 0x274 u8 write_time set_write_time;
    /// Time of the last check.
    0x40 0x277 u8 last_check set_last_check;
    /// Time of creation.
    0x108 0x276 u8 mkfs_time set_mkfs_time;
    /// Time of the first error.
    0x198 0x278 u8 first_error_time set_first_error_time;
    /// Time of the last error.
    0x1CC 0x279 u8 last_error_time set_last_error_time;
}

/// Block counts: the high half counts only with `64bit`.
macro_rules! count_fields {
    ($( $(#[$doc:meta])* $lo:literal $hi:literal $get:ident $set:ident; )*) => {
        impl Superblock { $(
            $(#[$doc])*
            pub fn $get(&self) -> u64 {
                let low = u64::from(u32::get_le(&self.bytes[..], $lo));
                if self.has_64bit() { low | u64::from(u32::get_le(&self.bytes[..], $hi)) << 32 } else { low }
            }
            #[doc = concat!("Sets [`Self::", stringify!($get), "`]; without `64bit` only its low half.")]
            pub fn $set(&mut self, value: u64) {
                u32::put_le(&mut self.bytes[..], $lo, value as u32);
                if self.has_64bit() {
                    u32::put_le(&mut self.bytes[..], $hi, (value >> 32) as u32);
                }
            }
        )* }
    };
}

count_fields! {
    /// Number of blocks.
    0x04 0x150 blocks_count set_blocks_count;
    /// Blocks kept for the privileged user.
    0x08 0x154 reserved_blocks_count set_reserved_blocks_count;
    /// Number of free blocks; with `bigalloc` too, while group descriptors count clusters.
    0x0C 0x158 free_blocks_count set_free_blocks_count;
}

/// Byte strings of fixed size.
macro_rules! array_fields {
    ($( $(#[$doc:meta])* $off:literal $len:literal $get:ident $set:ident; )*) => {
        impl Superblock { $(
            $(#[$doc])*
            pub fn $get(&self) -> [u8; $len] { get_array(&self.bytes[..], $off) }
            #[doc = concat!("Sets [`Self::", stringify!($get), "`].")]
            pub fn $set(&mut self, value: &[u8; $len]) { put_bytes(&mut self.bytes[..], $off, value); }
        )* }
    };
}

array_fields! {
    /// UUID.
    0x68 16 uuid set_uuid;
    /// Label, padded with NUL.
    0x78 16 volume_name_raw set_volume_name_raw;
    /// Where it was mounted last, padded with NUL.
    0x88 64 last_mounted_raw set_last_mounted_raw;
    /// UUID of the external journal.
    0xD0 16 journal_uuid set_journal_uuid;
    /// Function that saw the first error, padded with NUL.
    0x1A8 32 first_error_func_raw set_first_error_func_raw;
    /// Function that saw the last error, padded with NUL.
    0x1E0 32 last_error_func_raw set_last_error_func_raw;
    /// Mount options as text, padded with NUL.
    0x200 64 mount_opts_raw set_mount_opts_raw;
    /// Encryption algorithms.
    0x254 4 encrypt_algos set_encrypt_algos;
    /// Salt of the encryption password.
    0x258 16 encrypt_pw_salt set_encrypt_pw_salt;
}

/// The part of a padded string before its first NUL.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|b| *b == 0).next().unwrap_or(&[])
}

impl Superblock {
    /// Takes the first 1024 bytes of `bytes`; asks for nothing but the magic.
    pub fn parse(bytes: &[u8]) -> Result<Superblock> {
        need("superblock", SUPERBLOCK_SIZE, bytes.len())?;
        let magic = u16::get_le(bytes, MAGIC_OFFSET);
        if magic != MAGIC {
            return Err(Corrupt::SuperblockMagic(magic).into());
        }
        Ok(Superblock {
            bytes: Box::new(get_array(bytes, 0)),
        })
    }

    /// An all-zero superblock with the magic set, to build on.
    pub fn blank() -> Superblock {
        let mut sb = Superblock {
            bytes: Box::new([0; SUPERBLOCK_SIZE]),
        };
        sb.set_magic(MAGIC);
        sb
    }

    /// The raw bytes, ready to be written.
    pub fn as_bytes(&self) -> &[u8; SUPERBLOCK_SIZE] {
        &self.bytes
    }

    /// `s_feature_compat`.
    pub fn compat(&self) -> Compat {
        Compat::from_bits_retain(u32::get_le(&self.bytes[..], 0x5C))
    }
    /// Sets `s_feature_compat`.
    pub fn set_compat(&mut self, features: Compat) {
        u32::put_le(&mut self.bytes[..], 0x5C, features.bits());
    }
    /// `s_feature_incompat`.
    pub fn incompat(&self) -> Incompat {
        Incompat::from_bits_retain(u32::get_le(&self.bytes[..], 0x60))
    }
    /// Sets `s_feature_incompat`.
    pub fn set_incompat(&mut self, features: Incompat) {
        u32::put_le(&mut self.bytes[..], 0x60, features.bits());
    }
    /// `s_feature_ro_compat`.
    pub fn ro_compat(&self) -> RoCompat {
        RoCompat::from_bits_retain(u32::get_le(&self.bytes[..], 0x64))
    }
    /// Sets `s_feature_ro_compat`.
    pub fn set_ro_compat(&mut self, features: RoCompat) {
        u32::put_le(&mut self.bytes[..], 0x64, features.bits());
    }

    /// Whether block numbers have 64 bits.
    pub fn has_64bit(&self) -> bool {
        self.incompat().contains(Incompat::BIT64)
    }
    /// Whether metadata has crc32c checksums.
    pub fn has_metadata_csum(&self) -> bool {
        self.ro_compat().contains(RoCompat::METADATA_CSUM)
    }

    /// All feature names in the order of `dumpe2fs`.
    pub fn feature_names(&self) -> Vec<String> {
        use crate::features::FeatureWord;
        let mut names = self.compat().feature_names();
        names.extend(self.incompat().feature_names());
        names.extend(self.ro_compat().feature_names());
        names
    }

    /// `s_state`.
    pub fn state(&self) -> State {
        State::from_bits_retain(u16::get_le(&self.bytes[..], 0x3A))
    }
    /// Sets `s_state`.
    pub fn set_state(&mut self, state: State) {
        u16::put_le(&mut self.bytes[..], 0x3A, state.bits());
    }
    /// `s_flags`.
    pub fn flags(&self) -> SuperFlags {
        SuperFlags::from_bits_retain(u32::get_le(&self.bytes[..], 0x160))
    }
    /// Sets `s_flags`.
    pub fn set_flags(&mut self, flags: SuperFlags) {
        u32::put_le(&mut self.bytes[..], 0x160, flags.bits());
    }

    /// `s_errors`.
    pub fn error_policy(&self) -> ErrorPolicy {
        match self.errors() {
            1 => ErrorPolicy::Continue,
            2 => ErrorPolicy::ReadOnly,
            3 => ErrorPolicy::Panic,
            other => ErrorPolicy::Unknown(other),
        }
    }

    /// The first inode that is not reserved.
    pub fn first_ino(&self) -> Ino {
        Ino(if self.rev_level() == 0 {
            11
        } else {
            self.first_ino_raw()
        })
    }

    /// Bytes of an inode on disk.
    pub fn inode_size(&self) -> u16 {
        if self.rev_level() == 0 {
            128
        } else {
            self.inode_size_raw()
        }
    }

    /// Bytes of a group descriptor on disk.
    pub fn desc_size(&self) -> u16 {
        if self.has_64bit() {
            self.desc_size_raw()
        } else {
            32
        }
    }

    /// Bytes of a block; `None` when the field is out of range (above 64 KiB).
    pub fn block_size(&self) -> Option<u32> {
        (self.log_block_size() <= 6).then(|| 1024 << self.log_block_size())
    }

    /// `s_hash_seed`.
    pub fn hash_seed(&self) -> [u32; 4] {
        core::array::from_fn(|i| u32::get_le(&self.bytes[..], 0xEC + 4 * i))
    }
    /// Sets `s_hash_seed`.
    pub fn set_hash_seed(&mut self, seed: [u32; 4]) {
        for (i, word) in seed.into_iter().enumerate() {
            u32::put_le(&mut self.bytes[..], 0xEC + 4 * i, word);
        }
    }

    /// `s_jnl_blocks`: the journal inode's `i_block` (15 words) and its size (high, low).
    pub fn jnl_blocks(&self) -> [u32; 17] {
        core::array::from_fn(|i| u32::get_le(&self.bytes[..], 0x10C + 4 * i))
    }
    /// Sets `s_jnl_blocks`.
    pub fn set_jnl_blocks(&mut self, words: [u32; 17]) {
        for (i, word) in words.into_iter().enumerate() {
            u32::put_le(&mut self.bytes[..], 0x10C + 4 * i, word);
        }
    }

    /// Groups with superblock backups, with `sparse_super2`; 0 for none.
    pub fn backup_bgs(&self) -> [u32; 2] {
        core::array::from_fn(|i| u32::get_le(&self.bytes[..], 0x24C + 4 * i))
    }
    /// Sets `s_backup_bgs`.
    pub fn set_backup_bgs(&mut self, groups: [u32; 2]) {
        for (i, group) in groups.into_iter().enumerate() {
            u32::put_le(&mut self.bytes[..], 0x24C + 4 * i, group);
        }
    }

    /// The seed of metadata checksums.
    pub fn seed(&self) -> FsSeed {
        if self.incompat().contains(Incompat::CSUM_SEED) {
            FsSeed(self.checksum_seed_raw())
        } else {
            FsSeed::from_uuid(&self.uuid())
        }
    }

    /// The checksum that the present contents should have.
    pub fn compute_checksum(&self) -> u32 {
        crc32c(!0, crate::bytes::clip(&self.bytes[..], 0..CHECKSUM_OFFSET))
    }

    /// Sets the checksum, where `metadata_csum` asks for one.
    pub fn update_checksum(&mut self) {
        if self.has_metadata_csum() {
            self.set_checksum(self.compute_checksum());
        }
    }

    /// Compares the checksum, where `metadata_csum` asks for one.
    pub fn verify_checksum(&self) -> Result<()> {
        if !self.has_metadata_csum() {
            return Ok(());
        }
        check_sum(
            Checksummed::Superblock,
            self.checksum(),
            self.compute_checksum(),
        )
    }
}

impl core::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Superblock")
            .field("blocks_count", &self.blocks_count())
            .field("inodes_count", &self.inodes_count())
            .field("block_size", &self.block_size())
            .field("features", &self.feature_names())
            .finish_non_exhaustive()
    }
}

impl TryFrom<&[u8]> for Superblock {
    type Error = DiskError;
    fn try_from(bytes: &[u8]) -> Result<Superblock> {
        Superblock::parse(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Incompatible;
    use crate::geometry::Geometry;

    /// A small ext4 without a device behind it.
    fn sound() -> Superblock {
        let mut sb = Superblock::blank();
        sb.set_rev_level(1);
        sb.set_log_block_size(2);
        sb.set_blocks_per_group(32_768);
        sb.set_clusters_per_group(32_768);
        sb.set_inodes_per_group(8192);
        sb.set_inode_size_raw(256);
        sb.set_first_ino_raw(11);
        sb.set_incompat(Incompat::BIT64 | Incompat::EXTENTS | Incompat::FLEX_BG);
        sb.set_desc_size_raw(64);
        sb.set_blocks_count(5 * 32_768 + 7);
        sb.set_inodes_count(6 * 8192);
        sb.set_ro_compat(RoCompat::METADATA_CSUM | RoCompat::SPARSE_SUPER);
        sb.set_checksum_type(1);
        sb.set_uuid(&[7; 16]);
        sb.update_checksum();
        sb
    }

    #[test]
    fn each_bad_number_has_its_name() {
        assert!(sound().validate().is_ok());
        type Case = (fn(&mut Superblock), DiskError);
        let cases: [Case; 17] = [
            (|s| s.set_log_block_size(40), Corrupt::BlockSize(40).into()),
            (
                |s| s.set_log_block_size(7),
                Incompatible::BlockSize(17).into(),
            ),
            (
                |s| s.set_blocks_per_group(0),
                Corrupt::BlocksPerGroup(0).into(),
            ),
            (
                |s| s.set_blocks_per_group(32_776),
                Corrupt::BlocksPerGroup(32_776).into(),
            ),
            (
                |s| s.set_inodes_per_group(0),
                Corrupt::InodesPerGroup(0).into(),
            ),
            (
                |s| s.set_inodes_per_group(8193),
                Corrupt::InodesPerGroup(8193).into(),
            ),
            (|s| s.set_inode_size_raw(0), Corrupt::InodeSize(0).into()),
            (
                |s| s.set_inode_size_raw(384),
                Corrupt::InodeSize(384).into(),
            ),
            (
                |s| s.set_inode_size_raw(8192),
                Corrupt::InodeSize(8192).into(),
            ),
            (|s| s.set_desc_size_raw(32), Corrupt::DescSize(32).into()),
            (
                |s| s.set_first_data_block(1),
                Corrupt::FirstDataBlock(1).into(),
            ),
            (|s| s.set_inodes_count(1), Corrupt::InodeCount(1).into()),
            (|s| s.set_blocks_count(0), Corrupt::BlockCount(0).into()),
            (
                |s| s.set_free_blocks_count(1 << 40),
                Corrupt::FreeBlockCount(1 << 40).into(),
            ),
            (
                |s| s.set_rev_level(2),
                Incompatible::RevisionLevel(2).into(),
            ),
            (
                |s| s.set_checksum_type(2),
                Incompatible::ChecksumType(2).into(),
            ),
            (|s| s.set_first_ino_raw(3), Corrupt::FirstIno(3).into()),
        ];
        for (i, (damage, error)) in cases.into_iter().enumerate() {
            let mut sb = sound();
            damage(&mut sb);
            sb.update_checksum();
            assert_eq!(sb.validate(), Err(error), "case {i}");
        }
    }

    #[test]
    fn checksum_guards() {
        let mut sb = sound();
        sb.set_mount_count(1);
        assert!(matches!(
            sb.validate(),
            Err(DiskError::Corrupt(Corrupt::Checksum {
                what: Checksummed::Superblock,
                ..
            }))
        ));
    }

    #[test]
    fn times_have_40_bits() {
        let mut sb = sound();
        sb.set_write_time(0x12_3456_789a);
        assert_eq!(sb.write_time(), 0x12_3456_789a);
        assert_eq!(sb.mount_time(), 0);
    }

    #[test]
    fn without_64bit_the_high_half_is_left_alone() {
        let mut sb = sound();
        sb.set_blocks_count(1 << 33);
        sb.set_incompat(Incompat::EXTENTS);
        assert_eq!(sb.blocks_count(), 0);
        sb.set_blocks_count(9);
        sb.set_incompat(Incompat::BIT64);
        assert_eq!(sb.blocks_count(), 2 << 32 | 9);
    }

    #[test]
    fn groups_with_backups() {
        let mut sb = sound();
        sb.set_blocks_count(60 * 32_768);
        sb.set_inodes_count(60 * 8192);
        sb.update_checksum();
        let backups = |sb: &Superblock| -> Vec<u32> {
            Geometry::new(sb)
                .map(|g| g.backup_groups().map(|g| g.0).collect())
                .unwrap_or_default()
        };
        assert_eq!(backups(&sb), [1, 3, 5, 7, 9, 25, 27, 49]);
        sb.set_compat(Compat::SPARSE_SUPER2);
        sb.set_backup_bgs([1, 59]);
        assert_eq!(backups(&sb), [1, 59]);
        sb.set_compat(Compat::empty());
        sb.set_ro_compat(RoCompat::empty());
        assert_eq!(backups(&sb).len(), 59);
    }
}
