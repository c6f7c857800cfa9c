//! Revoke blocks: blocks whose copies in this and older transactions must not be replayed.

use super::descriptor::{expect, start, update_tail, verify_tail};
use super::{BlockType, Format, HEADER_SIZE};
use crate::bytes::{Field, be32, put_be32};
use crate::error::{Checksummed, Corrupt, DiskError, Result};
use crate::units::PhysBlock;

/// Behind the header, the count of bytes in use, header included.
const RECORDS_AT: usize = HEADER_SIZE + 4;

/// A revoke block as read.
#[derive(Clone, Copy, Debug)]
pub struct RevokeBlock<'a> {
    block: &'a [u8],
    format: Format,
    end: usize,
}

impl<'a> RevokeBlock<'a> {
    /// Takes a whole block, after checking header and count.
    pub fn new(block: &'a [u8], format: &Format) -> Result<RevokeBlock<'a>> {
        expect(block, format, BlockType::Revoke)?;
        let count = be32(block, HEADER_SIZE);
        let end = count as usize;
        if !(RECORDS_AT..=format.limit()).contains(&end) {
            return Err(Corrupt::JournalRevokeCount(count).into());
        }
        Ok(RevokeBlock {
            block,
            format: *format,
            end,
        })
    }

    /// Compares the checksum of the block, with v2 and v3.
    pub fn verify_checksum(&self) -> Result<()> {
        verify_tail(self.block, &self.format, Checksummed::JournalRevoke)
    }

    /// The revoked blocks.
    pub fn blocks(&self) -> impl Iterator<Item = PhysBlock> + use<'a> {
        let (block, size, end) = (self.block, self.format.revoke_size(), self.end);
        let ends = (RECORDS_AT + size..=end).step_by(size);
        ends.map(move |record_end| {
            let at = record_end - size;
            PhysBlock(if size == 8 {
                u64::get_be(block, at)
            } else {
                be32(block, at).into()
            })
        })
    }
}

/// Fills a revoke block.
#[derive(Debug)]
pub struct RevokeWriter<'a> {
    block: &'a mut [u8],
    format: Format,
    next: usize,
}

impl<'a> RevokeWriter<'a> {
    /// Starts a block, which is zeroed.
    pub fn new(block: &'a mut [u8], format: &Format, sequence: u32) -> Result<RevokeWriter<'a>> {
        start(block, format, BlockType::Revoke, sequence)?;
        Ok(RevokeWriter {
            block,
            format: *format,
            next: RECORDS_AT,
        })
    }

    /// How many block numbers fit.
    pub fn capacity(format: &Format) -> usize {
        format.limit().saturating_sub(RECORDS_AT) / format.revoke_size()
    }

    /// Adds a block; false when this revoke block is full.
    pub fn push(&mut self, revoked: PhysBlock) -> Result<bool> {
        let size = self.format.revoke_size();
        let short = u32::try_from(revoked.0);
        if size == 4 && short.is_err() {
            return Err(DiskError::Unrepresentable {
                what: "revoke record",
                value: revoked.0,
            });
        }
        if self.next + size > self.format.limit() {
            return Ok(false);
        }
        match short {
            Ok(short) if size == 4 => put_be32(self.block, self.next, short),
            _ => u64::put_be(self.block, self.next, revoked.0),
        }
        self.next += size;
        Ok(true)
    }

    /// Sets count and checksum.
    pub fn finish(self) {
        put_be32(self.block, HEADER_SIZE, self.next as u32);
        update_tail(self.block, &self.format);
    }
}
