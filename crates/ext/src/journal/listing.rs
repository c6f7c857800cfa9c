//! The blocks of a log, one by one, for who looks at it: those that a replay reads, and what older
//! transactions have left behind. Nothing is judged but checksums.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{BufferCache, Overlay};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::jbd2::commit::CommitBlock;
use finefs_ext_disk::jbd2::descriptor::{DescriptorBlock, TagFlags};
use finefs_ext_disk::jbd2::revoke::RevokeBlock;
use finefs_ext_disk::jbd2::{BlockHeader, BlockType, JournalSuperblock};
use finefs_ext_disk::superblock::Superblock;
use finefs_ext_disk::time::Timestamp;
use finefs_namespace::Result;

use super::{Journal, Log};

/// A log as it lies on an image.
#[derive(Debug)]
pub struct LogListing {
    /// The journal's superblock.
    pub superblock: JournalSuperblock,
    /// Size of its blocks in bytes.
    pub block_size: u32,
    /// Blocks of the log's own, in the order of the ring: from where a replay begins, or else from
    /// the ring's first block on.
    pub blocks: Vec<LogBlock>,
    /// The first transaction that a replay does not take in.
    pub next_sequence: u32,
    /// Why a replay ends there, where that is damage.
    pub damage: Option<String>,
}

/// A block of the log's own.
#[derive(Debug)]
pub struct LogBlock {
    /// Its number in the journal.
    pub number: u32,
    /// The transaction that it is of.
    pub sequence: u32,
    /// What it says.
    pub content: LogContent,
    /// What is wrong with it.
    pub damage: Option<String>,
}

/// What a block of the log says.
#[derive(Debug)]
pub enum LogContent {
    /// Behind it lie copies of blocks.
    Descriptor(Vec<LogCopy>),
    /// Older copies of these blocks do not count.
    Revoke(Vec<u64>),
    /// Its transaction counts.
    Commit(Timestamp),
}

/// A block's copy in the log.
#[derive(Debug)]
pub struct LogCopy {
    /// The block of the file system.
    pub block: u64,
    /// Where in the journal its copy lies.
    pub number: u32,
    /// The copy's first bytes were replaced, as they looked like a block of the log's own.
    pub is_escaped: bool,
}

/// Lists the log of an image, on the device `external` where that is given.
pub fn list(
    device: &Arc<dyn BlockDevice>,
    external: Option<&Arc<dyn BlockDevice>>,
    superblock: &Superblock,
    geometry: &Geometry,
) -> Result<LogListing> {
    let overlay = Overlay::default();
    let buffers = BufferCache::with(device.clone(), geometry.block_size, overlay, 1 << 20);
    let journal = Journal::open(device, external, &buffers, superblock, geometry)?;
    let log = Log::scan(&journal)?;
    let (first, end) = (journal.superblock.first(), journal.superblock.log_end());
    let length = end.saturating_sub(first);
    let start = journal.superblock.start().max(first);
    let place = |step: u32| first + (start - first + step) % length;
    let mut blocks = Vec::new();
    let mut bytes = vec![0; journal.format.block_size as usize];
    let mut step = 0;
    while step < length {
        let number = place(step);
        journal.read(number, &mut bytes)?;
        step += 1;
        let found = BlockHeader::parse(&bytes).and_then(|header| {
            let (content, damage) = content(&journal, &header, &bytes, |by| place(step - 1 + by))?;
            Some(LogBlock {
                number,
                sequence: header.sequence,
                content,
                damage,
            })
        });
        // What the copies behind a descriptor hold only looks like a block of the log's own.
        if let Some(LogBlock {
            content: LogContent::Descriptor(copies),
            ..
        }) = &found
        {
            step = step.saturating_add(copies.len() as u32);
        }
        blocks.extend(found);
    }
    Ok(LogListing {
        block_size: journal.format.block_size,
        blocks,
        next_sequence: log.next_sequence,
        damage: log.damage,
        superblock: journal.superblock,
    })
}

/// What a block says, and what is wrong with it; `None` for what is none of the log's own.
fn content(
    journal: &Journal,
    header: &BlockHeader,
    bytes: &[u8],
    place: impl Fn(u32) -> u32,
) -> Option<(LogContent, Option<String>)> {
    let format = &journal.format;
    let (content, sound) = match header.block_type {
        BlockType::Descriptor => {
            let block = DescriptorBlock::new(bytes, format).ok()?;
            let copies = (1..).zip(block.tags()).map(|(by, tag)| LogCopy {
                block: tag.block.0,
                number: place(by),
                is_escaped: tag.flags.contains(TagFlags::ESCAPE),
            });
            let copies = copies.collect();
            (LogContent::Descriptor(copies), block.verify_checksum())
        }
        BlockType::Revoke => {
            let block = RevokeBlock::new(bytes, format).ok()?;
            let blocks = block.blocks().map(|block| block.0).collect();
            (LogContent::Revoke(blocks), block.verify_checksum())
        }
        BlockType::Commit => {
            let commit = CommitBlock::parse(bytes, format).ok()?;
            let sound = CommitBlock::verify_checksum(bytes, format);
            (LogContent::Commit(commit.time), sound)
        }
        _ => return None,
    };
    Some((content, sound.err().map(|error| error.to_string())))
}
