//! Commit blocks: a transaction counts from the moment that its commit block is on the disk.

use super::descriptor::{expect, start};
use super::{BlockType, Format, checksum_around};
use crate::bytes::{Field, be32, clip, put_be32};
use crate::checksum::crc32c;
use crate::error::{Checksummed, Result, check_sum};
use crate::time::Timestamp;

const CHECKSUM_TYPE: usize = 0x0C;
const CHECKSUM_SIZE: usize = 0x0D;
const CHECKSUM: usize = 0x10;
const COMMIT_SEC: usize = 0x30;
const COMMIT_NSEC: usize = 0x38;
/// The size of `struct commit_header`; the rest of the block is zero.
const USED_BYTES: usize = 60;
/// `JBD2_CRC32_CHKSUM`.
const TYPE_CRC32: u8 = 1;

/// A commit block as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitBlock {
    /// The transaction.
    pub sequence: u32,
    /// When it was committed.
    pub time: Timestamp,
    /// v1's checksum of the transaction's blocks, when it holds one.
    pub v1_checksum: Option<u32>,
}

impl CommitBlock {
    /// Reads a whole block, after checking the header.
    pub fn parse(block: &[u8], format: &Format) -> Result<CommitBlock> {
        let header = expect(block, format, BlockType::Commit)?;
        let has_v1 = u8::get_be(block, CHECKSUM_TYPE) == TYPE_CRC32
            && u8::get_be(block, CHECKSUM_SIZE) == 4
            && format.has_v1_checksum;
        Ok(CommitBlock {
            sequence: header.sequence,
            time: Timestamp {
                sec: u64::get_be(block, COMMIT_SEC).cast_signed(),
                nsec: be32(block, COMMIT_NSEC).min(crate::time::NSEC_PER_SEC - 1),
            },
            v1_checksum: has_v1.then(|| be32(block, CHECKSUM)),
        })
    }

    /// Compares the checksum of the block itself, with v2 and v3. Only its first bytes mean
    /// anything; a crash can leave the disk with its first sectors alone, and old content behind
    /// them. The transaction counts then all the same, as for the kernel
    /// (`jbd2_commit_block_csum_verify_partial`).
    pub fn verify_checksum(block: &[u8], format: &Format) -> Result<()> {
        if !format.has_tail() {
            return Ok(());
        }
        let stored = be32(block, CHECKSUM);
        let computed = checksum_around(format.seed, block, CHECKSUM);
        let is_whole = block.len() >= USED_BYTES;
        if stored != computed && is_whole && partial_checksum(format, block) == stored {
            return Ok(());
        }
        check_sum(Checksummed::JournalCommit, stored, computed)
    }

    /// Writes a whole block with its checksum. `v1_checksum` is only stored where the format
    /// asks for it.
    pub fn write(&self, block: &mut [u8], format: &Format) -> Result<()> {
        start(block, format, BlockType::Commit, self.sequence)?;
        u64::put_be(block, COMMIT_SEC, self.time.sec.cast_unsigned());
        put_be32(block, COMMIT_NSEC, self.time.nsec);
        if format.has_tail() {
            let crc = checksum_around(format.seed, block, CHECKSUM);
            put_be32(block, CHECKSUM, crc);
        } else if let Some(crc) = self.v1_checksum.filter(|_| format.has_v1_checksum) {
            u8::put_be(block, CHECKSUM_TYPE, TYPE_CRC32);
            u8::put_be(block, CHECKSUM_SIZE, 4);
            put_be32(block, CHECKSUM, crc);
        }
        Ok(())
    }
}

/// When a block says that it was committed, in seconds since 1970, whatever its checksum.
pub fn seconds(block: &[u8]) -> u64 {
    u64::get_be(block, COMMIT_SEC)
}

/// The checksum of the block as if only its used bytes were not zero.
fn partial_checksum(format: &Format, block: &[u8]) -> u32 {
    const ZEROS: [u8; 512] = [0; 512];
    let mut crc = checksum_around(format.seed, clip(block, 0..USED_BYTES), CHECKSUM);
    let mut left = block.len() - USED_BYTES;
    while left > 0 {
        let part = left.min(ZEROS.len());
        crc = crc32c(crc, &ZEROS[..part]);
        left -= part;
    }
    crc
}
