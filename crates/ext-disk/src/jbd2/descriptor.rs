//! Descriptor blocks: tags, one for each data block that follows in the log.
//!
//! A tag gives the data block's place in the file system. A UUID follows it unless its flags say
//! that it is the same as the tag's before; in practice the first tag of a block has one. The last
//! tag is flagged. The list also ends where no further tag fits.

use super::{BlockHeader, BlockType, Format, HEADER_SIZE, TagChecksum};
use crate::bytes::{Field, be32, put_be32, put_bytes};
use crate::checksum::crc32c;
use crate::error::{Checksummed, Corrupt, DiskError, Result, check_sum, need};
use crate::units::PhysBlock;
use bitflags::bitflags;

const UUID_SIZE: usize = 16;

bitflags! {
    /// `t_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TagFlags: u16 {
        /// The data block is escaped.
        const ESCAPE = 1;
        /// No UUID follows.
        const SAME_UUID = 2;
        /// The block was deleted by this transaction (unused).
        const DELETED = 4;
        /// The last tag of the block.
        const LAST_TAG = 8;
        const _ = !0;
    }
}

/// A tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Where the data belongs.
    pub block: PhysBlock,
    /// Its flags.
    pub flags: TagFlags,
    /// The data block's checksum: 16 bits in v2, 32 in v3, 0 without.
    pub checksum: u32,
}

impl Tag {
    fn decode(format: &Format, b: &[u8], at: usize) -> Tag {
        let is_v3 = format.checksum == TagChecksum::V3;
        let (flags, checksum) = if is_v3 {
            (be32(b, at + 4) as u16, be32(b, at + 12))
        } else {
            let short = if format.checksum == TagChecksum::V2 {
                u16::get_be(b, at + 4)
            } else {
                0
            };
            (u16::get_be(b, at + 6), short.into())
        };
        let high = if format.has_64bit { be32(b, at + 8) } else { 0 };
        Tag {
            block: PhysBlock(u64::from(be32(b, at)) | u64::from(high) << 32),
            flags: TagFlags::from_bits_retain(flags),
            checksum,
        }
    }

    fn encode(&self, format: &Format, b: &mut [u8], at: usize) {
        put_be32(b, at, self.block.0 as u32);
        if format.checksum == TagChecksum::V3 {
            put_be32(b, at + 4, self.flags.bits().into());
            put_be32(b, at + 12, self.checksum);
        } else {
            u16::put_be(b, at + 4, self.checksum as u16);
            u16::put_be(b, at + 6, self.flags.bits());
        }
        if format.has_64bit {
            put_be32(b, at + 8, (self.block.0 >> 32) as u32);
        }
    }
}

/// The checksum that a data block's tag should hold; `data` is as in the log, that is, escaped.
pub fn data_checksum(format: &Format, sequence: u32, data: &[u8]) -> u32 {
    let crc = crc32c(crc32c(format.seed.0, &sequence.to_be_bytes()), data);
    match format.checksum {
        TagChecksum::None => 0,
        TagChecksum::V2 => crc & 0xffff,
        TagChecksum::V3 => crc,
    }
}

/// Compares a data block from the log, not yet unescaped, with its tag.
pub fn verify_data(format: &Format, sequence: u32, tag: &Tag, data: &[u8]) -> Result<()> {
    check_sum(
        Checksummed::JournalData,
        tag.checksum,
        data_checksum(format, sequence, data),
    )
}

/// A descriptor block as read.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorBlock<'a> {
    block: &'a [u8],
    format: Format,
}

impl<'a> DescriptorBlock<'a> {
    /// Takes a whole block, after checking the header.
    pub fn new(block: &'a [u8], format: &Format) -> Result<DescriptorBlock<'a>> {
        expect(block, format, BlockType::Descriptor)?;
        Ok(DescriptorBlock {
            block,
            format: *format,
        })
    }

    /// Compares the checksum of the block, with v2 and v3.
    pub fn verify_checksum(&self) -> Result<()> {
        verify_tail(self.block, &self.format, Checksummed::JournalDescriptor)
    }

    /// The tags, in the order of the data blocks.
    pub fn tags(&self) -> impl Iterator<Item = Tag> + use<'a> {
        let (block, format) = (self.block, self.format);
        let mut next = Some(HEADER_SIZE);
        core::iter::from_fn(move || {
            let at = next.filter(|at| at + format.tag_size() <= format.limit())?;
            let tag = Tag::decode(&format, block, at);
            let uuid = if tag.flags.contains(TagFlags::SAME_UUID) {
                0
            } else {
                UUID_SIZE
            };
            let is_last = tag.flags.contains(TagFlags::LAST_TAG);
            next = (!is_last).then_some(at + format.tag_size() + uuid);
            Some(tag)
        })
    }
}

/// Fills a descriptor block.
#[derive(Debug)]
pub struct DescriptorWriter<'a> {
    block: &'a mut [u8],
    format: Format,
    next: usize,
    last: Option<(usize, Tag)>,
}

impl<'a> DescriptorWriter<'a> {
    /// Starts a block, which is zeroed.
    pub fn new(
        block: &'a mut [u8],
        format: &Format,
        sequence: u32,
    ) -> Result<DescriptorWriter<'a>> {
        start(block, format, BlockType::Descriptor, sequence)?;
        Ok(DescriptorWriter {
            block,
            format: *format,
            next: HEADER_SIZE,
            last: None,
        })
    }

    /// How many tags fit in an empty block.
    pub fn capacity(format: &Format) -> usize {
        format.limit().saturating_sub(HEADER_SIZE + UUID_SIZE) / format.tag_size()
    }

    /// Adds a tag for a data block, which must already be escaped if it needs to be; false when
    /// the block is full.
    pub fn push(&mut self, to: PhysBlock, is_escaped: bool, checksum: u32) -> Result<bool> {
        if !self.format.has_64bit && to.0 > u64::from(u32::MAX) {
            return Err(DiskError::Unrepresentable {
                what: "journal tag",
                value: to.0,
            });
        }
        let uuid = if self.last.is_some() { 0 } else { UUID_SIZE };
        let size = self.format.tag_size();
        let at = self.next;
        if at + size + uuid > self.format.limit() {
            return Ok(false);
        }
        let mut flags = TagFlags::empty();
        flags.set(TagFlags::ESCAPE, is_escaped);
        flags.set(TagFlags::SAME_UUID, uuid == 0);
        let tag = Tag {
            block: to,
            flags,
            checksum,
        };
        tag.encode(&self.format, self.block, at);
        if uuid != 0 {
            put_bytes(self.block, at + size, &self.format.uuid);
        }
        self.last = Some((at, tag));
        self.next = at + size + uuid;
        Ok(true)
    }

    /// Flags the last tag and sets the checksum.
    pub fn finish(mut self) {
        if let Some((at, mut tag)) = self.last.take() {
            tag.flags |= TagFlags::LAST_TAG;
            tag.encode(&self.format, self.block, at);
        }
        update_tail(self.block, &self.format);
    }
}

/// Fails unless `block` is a whole block with the right header.
pub(super) fn expect(block: &[u8], format: &Format, want: BlockType) -> Result<BlockHeader> {
    check_size(block, format)?;
    let Some(header) = BlockHeader::parse(block) else {
        return Err(Corrupt::JournalMagic(be32(block, 0)).into());
    };
    if header.block_type != want {
        return Err(Corrupt::JournalBlockType(header.block_type.raw()).into());
    }
    Ok(header)
}

fn check_size(block: &[u8], format: &Format) -> Result<()> {
    let size = format.block_size as usize;
    need("journal block", size.max(SIZE_MIN), block.len())?;
    if block.len() != size {
        return Err(DiskError::BufferSize {
            what: "journal block",
            need: size,
            got: block.len(),
        });
    }
    Ok(())
}

/// The smallest block a journal can have.
const SIZE_MIN: usize = 1024;

/// Zeroes a block and writes its header.
pub(super) fn start(
    block: &mut [u8],
    format: &Format,
    kind: BlockType,
    sequence: u32,
) -> Result<()> {
    check_size(block, format)?;
    block.fill(0);
    BlockHeader {
        block_type: kind,
        sequence,
    }
    .write(block);
    Ok(())
}

/// Compares the checksum at the end of a descriptor or revoke block.
pub(super) fn verify_tail(block: &[u8], format: &Format, what: Checksummed) -> Result<()> {
    if !format.has_tail() {
        return Ok(());
    }
    let at = format.limit();
    check_sum(
        what,
        be32(block, at),
        super::checksum_around(format.seed, block, at),
    )
}

/// Sets it.
pub(super) fn update_tail(block: &mut [u8], format: &Format) {
    if format.has_tail() {
        let at = format.limit();
        let crc = super::checksum_around(format.seed, block, at);
        put_be32(block, at, crc);
    }
}
