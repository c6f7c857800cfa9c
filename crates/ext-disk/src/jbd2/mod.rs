//! The journal: blocks of a log that jbd2 replays after a crash. All of it is big-endian, but for
//! the fast commit area.
//!
//! | Module | Block |
//! |---|---|
//! | [`superblock`] | the journal's superblock, its features, and the [`Format`] that they give |
//! | [`descriptor`] | descriptor blocks: which blocks the data blocks behind them are copies of |
//! | [`revoke`] | revoke blocks: which blocks must not be replayed from older transactions |
//! | [`commit`] | commit blocks |
//! | [`fast_commit`] | records of the fast commit area |
//!
//! A transaction is descriptor blocks, each followed by the data blocks of its tags, revoke
//! blocks, and a commit block; all hold the transaction's sequence number. A data block that
//! happens to start with the journal's magic is *escaped*: its first 4 bytes are zeroed in the log.
//!
//! Checksums: `journal_checksum` (v1) puts one crc32 over all descriptor and data blocks into the
//! commit block. v2 and v3 give every block a crc32c, seeded with the journal's UUID; data blocks
//! have theirs in their tags, 16 bits in v2 and 32 in v3.
//!
//! Reference: Linux `Documentation/filesystems/ext4/journal.rst`.

pub mod commit;
pub mod descriptor;
pub mod fast_commit;
pub mod revoke;
pub mod superblock;

pub use superblock::{Format, JournalSuperblock, TagChecksum};

use crate::bytes::{be32, clip, put_be32};
use crate::checksum::{FsSeed, crc32c};

/// `h_magic`.
pub const MAGIC: u32 = 0xC03B_3998;
/// Bytes of the header of every block of the log but data.
pub const HEADER_SIZE: usize = 12;
/// Bytes of the checksum at the end of descriptor and revoke blocks.
pub const TAIL_SIZE: usize = 4;

/// `h_blocktype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockType {
    /// Describes the data blocks behind it.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// The first superblock.
    SuperblockV1,
    /// The superblock with features.
    SuperblockV2,
    /// Lists revoked blocks.
    Revoke,
    /// None of these.
    Unknown(u32),
}

impl BlockType {
    /// From the number on disk.
    pub fn from_raw(raw: u32) -> BlockType {
        match raw {
            1 => BlockType::Descriptor,
            2 => BlockType::Commit,
            3 => BlockType::SuperblockV1,
            4 => BlockType::SuperblockV2,
            5 => BlockType::Revoke,
            other => BlockType::Unknown(other),
        }
    }

    /// The number on disk.
    pub fn raw(self) -> u32 {
        match self {
            BlockType::Descriptor => 1,
            BlockType::Commit => 2,
            BlockType::SuperblockV1 => 3,
            BlockType::SuperblockV2 => 4,
            BlockType::Revoke => 5,
            BlockType::Unknown(other) => other,
        }
    }
}

/// The header of every block of the log but data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// What the block is.
    pub block_type: BlockType,
    /// The transaction.
    pub sequence: u32,
}

impl BlockHeader {
    /// Reads it; `None` without the magic: not a block of the log's own.
    pub fn parse(block: &[u8]) -> Option<BlockHeader> {
        (be32(block, 0) == MAGIC).then(|| BlockHeader {
            block_type: BlockType::from_raw(be32(block, 4)),
            sequence: be32(block, 8),
        })
    }

    /// Writes it to the start of a block.
    pub fn write(&self, block: &mut [u8]) {
        put_be32(block, 0, MAGIC);
        put_be32(block, 4, self.block_type.raw());
        put_be32(block, 8, self.sequence);
    }
}

/// Whether a data block starts with the magic, so that it must be escaped in the log.
pub fn needs_escape(data: &[u8]) -> bool {
    data.len() >= 4 && be32(data, 0) == MAGIC
}

/// Escapes a data block that is to be logged; whether it was necessary.
pub fn escape(data: &mut [u8]) -> bool {
    let is_needed = needs_escape(data);
    if is_needed {
        put_be32(data, 0, 0);
    }
    is_needed
}

/// Undoes [`escape`] on a data block read from the log under a tag with the escape flag.
pub fn unescape(data: &mut [u8]) {
    put_be32(data, 0, MAGIC);
}

/// The crc32c of a block, one word of which counts as zero: the place of the checksum.
fn checksum_around(seed: FsSeed, block: &[u8], hole: usize) -> u32 {
    let crc = crc32c(crc32c(seed.0, clip(block, 0..hole)), &[0; 4]);
    crc32c(crc, clip(block, hole + 4..block.len()))
}

#[cfg(test)]
mod tests;
