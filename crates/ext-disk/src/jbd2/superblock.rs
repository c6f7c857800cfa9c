//! The journal's superblock: 1024 bytes at the start of its first block.

use super::{BlockHeader, BlockType, checksum_around};
use crate::bytes::{Field, get_array, put_bytes};
use crate::checksum::FsSeed;
use crate::error::{Checksummed, Corrupt, Incompatible, Result, check_sum, need};
use crate::features::{FeatureWord, JournalCompat, JournalIncompat, JournalRoCompat};

/// Bytes of the superblock.
pub const SIZE: usize = 1024;
/// Blocks of the fast commit area when the superblock says 0.
pub const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;

const CHECKSUM_OFFSET: usize = 0xFC;

/// The journal's superblock; it owns its bytes, and fields without accessor survive.
#[derive(Clone, PartialEq, Eq)]
pub struct JournalSuperblock {
    bytes: Box<[u8; SIZE]>,
}

fields!(owned JournalSuperblock get_be put_be {
    /// Bytes of a block.
    0x0C u32 block_size set_block_size;
    /// Blocks of the journal.
    0x10 u32 max_len set_max_len;
    /// First block of the log.
    0x14 u32 first set_first;
    /// First sequence number expected in the log.
    0x18 u32 sequence set_sequence;
    /// Block where the log starts; 0 when it is empty.
    0x1C u32 start set_start;
    /// The error that the journal was aborted with.
    0x20 i32 errno set_errno;
    /// File systems that share the journal.
    0x40 u32 nr_users set_nr_users;
    /// Block of the dynamic superblock (unused).
    0x44 u32 dynsuper set_dynsuper;
    /// Limit of journal blocks in a transaction (unused).
    0x48 u32 max_transaction set_max_transaction;
    /// Limit of data blocks in a transaction (unused).
    0x4C u32 max_trans_data set_max_trans_data;
    /// Checksum algorithm of v2 and v3; 4 is crc32c.
    0x50 u8 checksum_type set_checksum_type;
    /// Blocks of the fast commit area, raw; see [`JournalSuperblock::fast_commit_blocks`].
    0x54 u32 num_fc_blocks set_num_fc_blocks;
    /// Where the log's head was at the last clean unmount; 0 when not recorded.
    0x58 u32 head set_head;
    /// The checksum.
    0xFC u32 checksum set_checksum;
});

/// How data blocks are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagChecksum {
    /// Not at all, or by v1's checksum of the whole transaction.
    None,
    /// 16 bits in each tag.
    V2,
    /// 32 bits in each tag.
    V3,
}

/// What the features say about the blocks of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bytes of a block.
    pub block_size: u32,
    /// Block numbers have 64 bits.
    pub has_64bit: bool,
    /// Which checksums tags, descriptor, revoke and commit blocks have.
    pub checksum: TagChecksum,
    /// The commit block holds v1's checksum.
    pub has_v1_checksum: bool,
    /// Revoke blocks may be written.
    pub has_revoke: bool,
    /// Commit blocks may reach the disk before the rest.
    pub is_async_commit: bool,
    /// The journal's UUID, which descriptor blocks repeat.
    pub uuid: [u8; 16],
    /// Where v2's and v3's checksums start.
    pub seed: FsSeed,
}

impl Format {
    /// Whether descriptor and revoke blocks end in a checksum.
    pub fn has_tail(&self) -> bool {
        self.checksum != TagChecksum::None
    }

    /// Bytes of a tag, without the UUID that may follow it.
    pub fn tag_size(&self) -> usize {
        match (self.checksum, self.has_64bit) {
            (TagChecksum::V3, _) => 16,
            // v2 made tags 2 bytes longer than they needed to be.
            (TagChecksum::V2, true) => 14,
            (TagChecksum::V2, false) => 10,
            (TagChecksum::None, true) => 12,
            (TagChecksum::None, false) => 8,
        }
    }

    /// Bytes of a block number in a revoke block.
    pub fn revoke_size(&self) -> usize {
        if self.has_64bit { 8 } else { 4 }
    }

    /// The end of what a block may hold before its tail.
    pub(super) fn limit(&self) -> usize {
        let tail = if self.has_tail() { super::TAIL_SIZE } else { 0 };
        (self.block_size as usize).saturating_sub(tail)
    }
}

impl JournalSuperblock {
    /// Takes the first 1024 bytes of `bytes`; asks for magic and type only.
    pub fn parse(bytes: &[u8]) -> Result<JournalSuperblock> {
        need("journal superblock", SIZE, bytes.len())?;
        let Some(header) = BlockHeader::parse(bytes) else {
            return Err(Corrupt::JournalMagic(crate::bytes::be32(bytes, 0)).into());
        };
        match header.block_type {
            BlockType::SuperblockV1 | BlockType::SuperblockV2 => Ok(JournalSuperblock {
                bytes: Box::new(get_array(bytes, 0)),
            }),
            other => Err(Incompatible::JournalVersion(other.raw()).into()),
        }
    }

    /// A version 2 superblock of an empty journal.
    pub fn blank(block_size: u32, max_len: u32, uuid: [u8; 16]) -> JournalSuperblock {
        let mut sb = JournalSuperblock {
            bytes: Box::new([0; SIZE]),
        };
        let header = BlockHeader {
            block_type: BlockType::SuperblockV2,
            sequence: 0,
        };
        header.write(&mut sb.bytes[..]);
        sb.set_block_size(block_size);
        sb.set_max_len(max_len);
        sb.set_first(1);
        sb.set_sequence(1);
        sb.set_nr_users(1);
        sb.set_uuid(&uuid);
        sb
    }

    /// The bytes, ready to be written.
    pub fn as_bytes(&self) -> &[u8; SIZE] {
        &self.bytes
    }

    /// Whether the superblock has features and what follows them.
    pub fn is_v2(&self) -> bool {
        u32::get_be(&self.bytes[..], 4) == BlockType::SuperblockV2.raw()
    }

    fn feature_bits(&self, offset: usize) -> u32 {
        if self.is_v2() {
            u32::get_be(&self.bytes[..], offset)
        } else {
            0
        }
    }

    /// Features that may be ignored.
    pub fn compat(&self) -> JournalCompat {
        JournalCompat::from_bits_retain(self.feature_bits(0x24))
    }
    /// Sets them.
    pub fn set_compat(&mut self, features: JournalCompat) {
        u32::put_be(&mut self.bytes[..], 0x24, features.bits());
    }
    /// Features that must be known.
    pub fn incompat(&self) -> JournalIncompat {
        JournalIncompat::from_bits_retain(self.feature_bits(0x28))
    }
    /// Sets them.
    pub fn set_incompat(&mut self, features: JournalIncompat) {
        u32::put_be(&mut self.bytes[..], 0x28, features.bits());
    }
    /// Features that must be known to write.
    pub fn ro_compat(&self) -> JournalRoCompat {
        JournalRoCompat::from_bits_retain(self.feature_bits(0x2C))
    }

    /// All feature names, in the order of `dumpe2fs`.
    pub fn feature_names(&self) -> Vec<String> {
        let mut names = self.compat().feature_names();
        names.extend(self.incompat().feature_names());
        names.extend(self.ro_compat().feature_names());
        names
    }

    /// The UUID.
    pub fn uuid(&self) -> [u8; 16] {
        get_array(&self.bytes[..], 0x30)
    }
    /// Sets the UUID.
    pub fn set_uuid(&mut self, uuid: &[u8; 16]) {
        put_bytes(&mut self.bytes[..], 0x30, uuid);
    }

    /// The UUID of one of the file systems that share the journal.
    pub fn user(&self, index: usize) -> Option<[u8; 16]> {
        (index < 48).then(|| get_array(&self.bytes[..], 0x100 + 16 * index))
    }

    /// Sets the UUID of one of the file systems that share the journal.
    pub fn set_user(&mut self, index: usize, uuid: &[u8; 16]) {
        if index < 48 {
            put_bytes(&mut self.bytes[..], 0x100 + 16 * index, uuid);
        }
    }

    /// Blocks at the journal's end that belong to the fast commit area.
    pub fn fast_commit_blocks(&self) -> u32 {
        match self.num_fc_blocks() {
            _ if !self.incompat().contains(JournalIncompat::FAST_COMMIT) => 0,
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            count => count,
        }
    }

    /// The block behind the log proper: it wraps here, to [`JournalSuperblock::first`].
    pub fn log_end(&self) -> u32 {
        self.max_len().saturating_sub(self.fast_commit_blocks())
    }

    fn has_checksum(&self) -> bool {
        self.incompat()
            .intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3)
    }

    /// The checksum that the present contents should have.
    pub fn compute_checksum(&self) -> u32 {
        checksum_around(FsSeed(!0), &self.bytes[..], CHECKSUM_OFFSET)
    }

    /// Sets the checksum, with v2 and v3.
    pub fn update_checksum(&mut self) {
        if self.has_checksum() {
            self.set_checksum(self.compute_checksum());
        }
    }

    /// Compares the checksum, with v2 and v3.
    pub fn verify_checksum(&self) -> Result<()> {
        if !self.has_checksum() {
            return Ok(());
        }
        check_sum(
            Checksummed::JournalSuperblock,
            self.checksum(),
            self.compute_checksum(),
        )
    }

    /// Checks everything: checksum, unknown features, sizes against the file system's block size
    /// and the `blocks` that the journal's file or device has.
    pub fn validate(&self, fs_block_size: u32, blocks: u64) -> Result<Format> {
        let unknown: Vec<String> = [
            (self.incompat() - known_incompat()).feature_names(),
            self.ro_compat().feature_names(),
        ]
        .concat();
        if !unknown.is_empty() {
            return Err(
                Incompatible::Features(format!("{} of the journal", unknown.join(" "))).into(),
            );
        }
        let (v2, v3) = (JournalIncompat::CSUM_V2, JournalIncompat::CSUM_V3);
        let both = self.incompat().contains(v2 | v3);
        if both || (self.has_checksum() && self.compat().contains(JournalCompat::CHECKSUM)) {
            return Err(Corrupt::JournalFeatures.into());
        }
        if self.has_checksum() && self.checksum_type() != 4 {
            return Err(Incompatible::ChecksumType(self.checksum_type()).into());
        }
        self.verify_checksum()?;
        if self.block_size() != fs_block_size {
            return Err(Corrupt::JournalBlockSize(self.block_size()).into());
        }
        if u64::from(self.max_len()) > blocks || self.first() >= self.log_end() || self.first() == 0
        {
            return Err(Corrupt::JournalLength(self.max_len()).into());
        }
        let start = self.start();
        if start != 0 && !(self.first()..self.log_end()).contains(&start) {
            return Err(Corrupt::JournalLength(start).into());
        }
        Ok(self.format())
    }

    /// The format of the log, without any check.
    pub fn format(&self) -> Format {
        let incompat = self.incompat();
        let checksum = if incompat.contains(JournalIncompat::CSUM_V3) {
            TagChecksum::V3
        } else if incompat.contains(JournalIncompat::CSUM_V2) {
            TagChecksum::V2
        } else {
            TagChecksum::None
        };
        Format {
            block_size: self.block_size(),
            has_64bit: incompat.contains(JournalIncompat::BIT64),
            checksum,
            has_v1_checksum: self.compat().contains(JournalCompat::CHECKSUM),
            has_revoke: incompat.contains(JournalIncompat::REVOKE),
            is_async_commit: incompat.contains(JournalIncompat::ASYNC_COMMIT),
            uuid: self.uuid(),
            seed: FsSeed::from_uuid(&self.uuid()),
        }
    }
}

/// The features that this module can read.
fn known_incompat() -> JournalIncompat {
    JournalIncompat::REVOKE
        | JournalIncompat::BIT64
        | JournalIncompat::ASYNC_COMMIT
        | JournalIncompat::CSUM_V2
        | JournalIncompat::CSUM_V3
        | JournalIncompat::FAST_COMMIT
}

impl core::fmt::Debug for JournalSuperblock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("JournalSuperblock")
            .field("block_size", &self.block_size())
            .field("max_len", &self.max_len())
            .field("sequence", &self.sequence())
            .field("start", &self.start())
            .field("features", &self.feature_names())
            .finish_non_exhaustive()
    }
}
