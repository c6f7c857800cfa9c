//! Writing the journal: a batch's metadata becomes one jbd2 transaction.
//!
//! # Data model
//! The log is a ring of blocks. It holds at most the newest transaction, whose blocks may not all
//! be at their places yet, and while a commit runs the one that is being written behind it. The
//! journal's superblock says where recovery starts.
//!
//! # A commit
//! 1. The transaction's blocks but the last go into the log: descriptors with the copies of the
//!    changed blocks, and revoke blocks; zeros for the last.
//! 2. Flush. All of them are durable now, and so is file data that was written before
//!    (data=ordered), and so is everything that the transaction before has put in its places. That
//!    one is no longer needed: the journal's superblock is made to point at the new one.
//! 3. The commit block, durably. The transaction is durable, and what it freed may be used again.
//! 4. The changed blocks go to their places. The next commit's first flush makes that durable.
//!
//! # Invariants
//! 1. No block goes to its place before the transaction that changed it is durable.
//! 2. A transaction leaves the log only when all its blocks are durable at their places.
//! 3. A block that has a copy in the log and was freed is revoked by the transaction that frees it,
//!    so that recovery does not put the copy over what the block is used for next.
//!
//! # Locking
//! None: one thread commits. It takes the writer out of the mount's state and puts it back. Others
//! help with the checksums of a large transaction; the order in the log is that of the blocks.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/journal.rst`, `fs/jbd2/commit.c`, `fs/jbd2/checkpoint.c`.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use finefs_block::{BlockDevice, Write};
use finefs_ext_disk::PhysBlock;
use finefs_ext_disk::checksum::crc32_be;
use finefs_ext_disk::features::{Incompat, JournalCompat, JournalIncompat};
use finefs_ext_disk::jbd2::commit::CommitBlock;
use finefs_ext_disk::jbd2::descriptor::{self, DescriptorWriter};
use finefs_ext_disk::jbd2::revoke::RevokeWriter;
use finefs_ext_disk::jbd2::{self, Format, JournalSuperblock};
use finefs_ext_disk::superblock::Superblock;
use finefs_ext_disk::time::Timestamp;
use finefs_namespace::{BlockRun, CommitThreads, Error, Result, parallel};

use super::Journal;

/// Adjacent blocks are written together up to this size.
const WRITE_BYTES: u64 = 1 << 20;

/// A changed block, and what it shall hold.
pub(crate) type Change = (u64, Arc<[u8]>);

/// See the module's head.
pub(crate) struct JournalWriter {
    journal: Journal,
    superblock: JournalSuperblock,
    format: Format,
    /// Where the next transaction begins, and its number.
    head: u32,
    sequence: u32,
    /// Blocks of the newest transaction, which the log still holds.
    held: u32,
    /// The blocks that it has copies of.
    logged: BTreeSet<u64>,
    /// A commit failed midway. What it left in the log must not be written over by a transaction of
    /// the same number, so there is none any more.
    has_failed: bool,
}

/// What the file system says about how its journal shall be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogFeatures {
    pub has_checksums: bool,
    pub has_64bit: bool,
    /// The area of fast commits counts until the first transaction is durable.
    pub keeps_fast_commits: bool,
}

impl LogFeatures {
    /// What the superblock says.
    pub fn of(superblock: &Superblock) -> LogFeatures {
        LogFeatures {
            has_checksums: superblock.has_metadata_csum(),
            has_64bit: superblock.incompat().contains(Incompat::BIT64),
            keeps_fast_commits: false,
        }
    }
}

/// What came of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Durable,
    /// It is larger than the journal; nothing was written.
    TooLarge,
}

impl JournalWriter {
    /// Takes over a journal whose log holds nothing that counts. `None` when the journal is of the
    /// first version, which has no revoke blocks and cannot be written safely.
    pub fn new(journal: Journal, features: LogFeatures) -> Option<JournalWriter> {
        let mut superblock = journal.superblock.clone();
        if !superblock.is_v2() {
            return None;
        }
        // As the kernel does at mount: the log is empty, so its format may change.
        let mut incompat = superblock.incompat() | JournalIncompat::REVOKE;
        if !features.keeps_fast_commits {
            // Their area becomes a part of the log: none are made.
            incompat -= JournalIncompat::FAST_COMMIT;
        }
        if features.has_64bit {
            incompat |= JournalIncompat::BIT64;
        }
        if features.has_checksums {
            incompat -= JournalIncompat::CSUM_V2;
            incompat |= JournalIncompat::CSUM_V3;
            superblock.set_compat(superblock.compat() - JournalCompat::CHECKSUM);
            superblock.set_checksum_type(4);
        }
        superblock.set_incompat(incompat);
        let format = superblock.format();
        Some(JournalWriter {
            head: superblock.first(),
            sequence: superblock.sequence(),
            held: 0,
            logged: BTreeSet::new(),
            has_failed: false,
            journal,
            superblock,
            format,
        })
    }

    /// How many changed blocks one transaction can hold, with one block of revocations.
    pub fn capacity(&self) -> u64 {
        let log = u64::from(self.log_blocks());
        let per_descriptor = DescriptorWriter::capacity(&self.format) as u64;
        // The commit block, a revoke block, and the descriptors.
        (log.saturating_sub(2)) * per_descriptor / (per_descriptor + 1)
    }

    fn log_blocks(&self) -> u32 {
        self.superblock.log_end() - self.superblock.first()
    }

    /// Makes a transaction of `changes` durable, in ascending order of blocks; `freed` is what it
    /// frees. The caller then puts the changes to their places, before the next commit.
    pub fn commit(
        &mut self,
        device: &dyn BlockDevice,
        changes: &[Change],
        freed: &[BlockRun],
        threads: CommitThreads,
    ) -> Result<Outcome> {
        let revoked = self.revoked(freed);
        let mut blocks = self.transaction(changes, &revoked, threads)?;
        let commit = self.commit_block(&blocks)?;
        let commit_at = self.advance(self.head, blocks.len() as u32);
        // Zeros where the commit block goes: should only its first sector reach the disk, what is
        // behind that is what it would be.
        blocks.push(self.block().into());
        let needed = blocks.len() as u32;
        if needed > self.log_blocks() {
            return Ok(Outcome::TooLarge);
        }
        if self.has_failed {
            return Err(Error::io("the journal was stopped by an earlier error"));
        }
        self.has_failed = true;
        if needed > self.log_blocks() - self.held {
            self.checkpoint(device)?;
        }
        let is_first = self.held == 0;
        if is_first {
            // Recovery has to know where to look, before there is anything to find.
            self.write_superblock(self.head)?;
        }
        self.write(self.head, &blocks)?;
        self.journal.flush(device)?;
        let mut last = Vec::new();
        if !is_first {
            self.set_start(self.head);
            let place = self.journal.superblock_place()?;
            last.push(Write::new(place, self.superblock.as_bytes()));
        }
        last.push(Write::new(self.journal.offset_bytes(commit_at)?, &commit));
        let log = &self.journal.device;
        log.write_durably(&last).map_err(writing)?;
        self.logged = changes.iter().map(|(block, _)| *block).collect();
        self.held = needed;
        self.head = self.advance(commit_at, 1);
        self.sequence = self.sequence.wrapping_add(1);
        self.has_failed = false;
        Ok(Outcome::Durable)
    }

    /// Empties the log: everything that was put to its place becomes durable there.
    pub fn checkpoint(&mut self, device: &dyn BlockDevice) -> Result<()> {
        self.journal.flush(device)?;
        self.superblock.set_sequence(self.sequence);
        self.write_superblock(0)?;
        self.held = 0;
        self.logged.clear();
        self.journal.flush(device)
    }

    /// The parts of the device that a transaction of so many blocks is written to.
    pub fn places(&self, changes: usize, freed: usize) -> Result<Vec<Range<u64>>> {
        if self.journal.external_device().is_some() {
            return Ok(Vec::new());
        }
        let per_descriptor = DescriptorWriter::capacity(&self.format).max(1);
        let per_revoke = RevokeWriter::capacity(&self.format).max(1);
        let blocks = changes + changes.div_ceil(per_descriptor) + freed.div_ceil(per_revoke) + 1;
        let blocks = blocks.min(self.log_blocks() as usize) as u32;
        let block_bytes = u64::from(self.format.block_size);
        let mut places: Vec<Range<u64>> = Vec::new();
        for index in 0..blocks {
            let start = self.journal.offset_bytes(self.advance(self.head, index))?;
            match places.last_mut() {
                Some(last) if last.end == start => last.end += block_bytes,
                _ => places.push(start..start + block_bytes),
            }
        }
        Ok(places)
    }

    /// Notes in the journal's superblock, as the device has it, that the file system was stopped by
    /// an error. Whoever replays the log marks the file system.
    pub fn note_error(&mut self) -> Result<()> {
        let mut superblock = self.journal.read_superblock()?;
        superblock.set_errno(-libc::EIO);
        superblock.update_checksum();
        self.journal.write_superblock(&superblock)
    }

    /// The blocks among `freed` whose copies recovery would find.
    fn revoked(&self, freed: &[BlockRun]) -> Vec<u64> {
        let mut revoked: Vec<u64> = freed
            .iter()
            .flat_map(|run| self.logged.range(run.start.0..run.start.0 + run.length))
            .copied()
            .collect();
        revoked.sort_unstable();
        revoked.dedup();
        revoked
    }

    fn block(&self) -> Vec<u8> {
        vec![0; self.format.block_size as usize]
    }

    /// The transaction's blocks in the order of the log, without the commit block.
    fn transaction(
        &self,
        changes: &[Change],
        revoked: &[u64],
        threads: CommitThreads,
    ) -> Result<Vec<Arc<[u8]>>> {
        let mut blocks: Vec<Arc<[u8]>> = Vec::with_capacity(changes.len() + changes.len() / 64 + 4);
        let per_revoke = RevokeWriter::capacity(&self.format).max(1);
        for part in revoked.chunks(per_revoke) {
            let mut block = self.block();
            let mut writer =
                RevokeWriter::new(&mut block, &self.format, self.sequence).map_err(wrong)?;
            for revoked in part {
                writer.push(PhysBlock(*revoked)).map_err(wrong)?;
            }
            writer.finish();
            blocks.push(block.into());
        }
        let per_descriptor = DescriptorWriter::capacity(&self.format).max(1);
        let parts = changes.chunks(per_descriptor).enumerate().collect();
        let sharing = threads.for_items(changes.len());
        let mut described = parallel::share(sharing, parts, |parts| {
            let describe = |(number, part): (usize, &[Change])| (number, self.described(part));
            parts.map(describe).collect::<Vec<_>>()
        });
        let mut described: Vec<_> = described.iter_mut().flat_map(std::mem::take).collect();
        described.sort_unstable_by_key(|(number, _)| *number);
        for (_, part) in described {
            blocks.append(&mut part?);
        }
        Ok(blocks)
    }

    /// A descriptor, and the copies of the blocks that it describes.
    fn described(&self, part: &[Change]) -> Result<Vec<Arc<[u8]>>> {
        let mut block = self.block();
        let mut copies = Vec::with_capacity(part.len() + 1);
        copies.push(Arc::from([]));
        let mut writer =
            DescriptorWriter::new(&mut block, &self.format, self.sequence).map_err(wrong)?;
        for (to, data) in part {
            let is_escaped = jbd2::needs_escape(data);
            let copy: Arc<[u8]> = if is_escaped {
                let mut escaped = data.to_vec();
                jbd2::escape(&mut escaped);
                escaped.into()
            } else {
                data.clone()
            };
            let checksum = descriptor::data_checksum(&self.format, self.sequence, &copy);
            if !writer
                .push(PhysBlock(*to), is_escaped, checksum)
                .map_err(wrong)?
            {
                return Err(Error::corrupt(
                    "journal: a descriptor holds less than it should",
                ));
            }
            copies.push(copy);
        }
        writer.finish();
        copies[0] = block.into();
        Ok(copies)
    }

    fn commit_block(&self, blocks: &[Arc<[u8]>]) -> Result<Arc<[u8]>> {
        let now = finefs_namespace::Timestamp::now();
        let commit = CommitBlock {
            sequence: self.sequence,
            time: Timestamp {
                sec: now.seconds(),
                nsec: now.nanoseconds(),
            },
            v1_checksum: self.format.has_v1_checksum.then(|| {
                crc32_be(
                    blocks
                        .iter()
                        .filter(|block| !is_revoke(block))
                        .map(|b| &b[..]),
                )
            }),
        };
        let mut block = self.block();
        commit.write(&mut block, &self.format).map_err(wrong)?;
        Ok(block.into())
    }

    fn advance(&self, block: u32, by: u32) -> u32 {
        let first = self.superblock.first();
        first + (block - first + by) % self.log_blocks()
    }

    /// Writes blocks into the log from `at` on, around its end, adjacent ones together.
    fn write(&self, at: u32, blocks: &[Arc<[u8]>]) -> Result<()> {
        let mut writes: Vec<Write<'_>> = Vec::new();
        let mut length = 0;
        for (index, block) in blocks.iter().enumerate() {
            let place = self.journal.offset_bytes(self.advance(at, index as u32))?;
            match writes.last_mut() {
                Some(last) if last.offset_bytes + length == place && length < WRITE_BYTES => {
                    last.parts.push(block);
                    length += block.len() as u64;
                }
                _ => {
                    writes.push(Write::new(place, block));
                    length = block.len() as u64;
                }
            }
        }
        self.journal.device.write_many(&writes).map_err(writing)
    }

    /// Recovery starts at `start`, with the next transaction.
    fn set_start(&mut self, start: u32) {
        self.superblock.set_start(start);
        self.superblock.set_sequence(self.sequence);
        self.superblock.update_checksum();
    }

    /// Writes the journal's superblock with another start.
    fn write_superblock(&mut self, start: u32) -> Result<()> {
        self.set_start(start);
        self.journal.write_superblock(&self.superblock)
    }
}

fn wrong(error: impl std::fmt::Display) -> Error {
    Error::corrupt(format_args!("journal: {error}"))
}

fn writing(error: std::io::Error) -> Error {
    Error::io(format_args!("writing the journal: {error}"))
}

/// v1's checksum leaves revoke blocks out.
fn is_revoke(block: &[u8]) -> bool {
    jbd2::BlockHeader::parse(block)
        .is_some_and(|header| header.block_type == jbd2::BlockType::Revoke)
}
