//! The journal as it lies on the image: its superblock, where its blocks are, and the transactions
//! that its log holds. What is here only reads; `recover` does something about what is found, and
//! [`writer`] writes new transactions.
//!
//! # Data model
//! [`Log::scan`] reads the log once, from its start to the first block that cannot belong to it,
//! and keeps of every whole transaction which block's copy lies where, and which blocks it revokes.
//! Then [`Log::sources`] knows the newest copy of each block.
//!
//! # What ends the log
//! A block without the magic, of another transaction, or of an unknown type; that is how every log
//! ends. A transaction whose commit block is there but whose checksums are wrong ends it too, and
//! is reported as damage ([`Log::damage`]): the kernel does not mount such an image, e2fsck replays
//! what is before. Not so where it was committed before the last whole one: it is what an older
//! journal left there (mke2fs -E lazy_journal_init), and ends the log as anything else does.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/journal.rst`; `fs/jbd2/recovery.c` for the rules.

pub mod external;
mod fast_commits;
pub mod listing;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{BufferCache, Source};
use finefs_ext_disk::checksum::crc32_be;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::inode::InodeRules;
use finefs_ext_disk::jbd2::commit::{self, CommitBlock};
use finefs_ext_disk::jbd2::descriptor::{self, DescriptorBlock, TagFlags};
use finefs_ext_disk::jbd2::revoke::RevokeBlock;
use finefs_ext_disk::jbd2::{self, BlockHeader, BlockType, Format, JournalSuperblock};
use finefs_ext_disk::superblock::Superblock;
use finefs_ext_disk::{self as disk, PhysBlock};
use finefs_namespace::{BlockRun, Error, Extent, ExtentState, Ino, LogicalBlock, Result};

use crate::error::at;
use crate::group::GroupTable;
use crate::load::{content, map};
use crate::state::{disk_ino, read_inode};

pub(crate) use fast_commits::FastCommits;

/// A journal whose superblock is sound.
pub(crate) struct Journal {
    /// Where the log lies.
    device: Arc<dyn BlockDevice>,
    /// That is another device than the file system's.
    is_external: bool,
    /// The block that the journal's superblock is in.
    superblock_block: u32,
    /// The journal's superblock.
    pub superblock: JournalSuperblock,
    /// What it says about the log's blocks.
    pub format: Format,
    extents: Vec<Extent>,
    /// The blocks of the file system.
    fs_blocks: u64,
}

impl Journal {
    /// Opens the journal of a file system: what lies on the device `external`, if that is given,
    /// or what the inode `s_journal_inum` holds.
    pub fn open(
        device: &Arc<dyn BlockDevice>,
        external: Option<&Arc<dyn BlockDevice>>,
        buffers: &BufferCache,
        superblock: &Superblock,
        geometry: &Geometry,
    ) -> Result<Journal> {
        match external {
            Some(external) => external::open(external, superblock, geometry),
            None => Journal::open_internal(device, buffers, superblock, geometry),
        }
    }

    fn open_internal(
        device: &Arc<dyn BlockDevice>,
        buffers: &BufferCache,
        superblock: &Superblock,
        geometry: &Geometry,
    ) -> Result<Journal> {
        let extents = extents(buffers, superblock, geometry)?;
        let blocks = extents.last().map_or(0, |last| last.end().0);
        let first = content::block_at(&extents, LogicalBlock(0))
            .ok_or_else(|| Error::corrupt("journal: its first block is missing"))?;
        let bytes = buffers.read(first)?;
        let place = "journal superblock";
        let journal_superblock =
            JournalSuperblock::parse(&bytes).map_err(|error| at_journal(place, error))?;
        let format = journal_superblock
            .validate(geometry.block_size, blocks)
            .map_err(|error| at_journal(place, error))?;
        Ok(Journal {
            device: device.clone(),
            is_external: false,
            superblock_block: 0,
            superblock: journal_superblock,
            format,
            extents,
            fs_blocks: geometry.blocks_count,
        })
    }

    /// What keeps the journal from being written: all of its blocks must be there, and be its own.
    pub fn check_writable(&self, groups: &GroupTable, geometry: &Geometry) -> Result<()> {
        let mut next = LogicalBlock(0);
        for extent in &self.extents {
            if extent.logical != next {
                break;
            }
            next = extent.end();
            let (start, length) = (extent.physical.0, extent.length);
            if !self.is_external && !groups.can_own(geometry, start, length) {
                return Err(Error::corrupt(format_args!(
                    "journal: blocks {start} to {} belong to the file system itself",
                    start + length - 1
                )));
            }
        }
        match next < LogicalBlock(self.superblock.max_len().into()) {
            true => Err(Error::corrupt(format_args!(
                "journal: block {next} is missing"
            ))),
            false => Ok(()),
        }
    }

    /// The blocks of the file system that it has.
    pub fn runs(&self) -> impl Iterator<Item = BlockRun> {
        let extents = self.extents.iter().filter(|_| !self.is_external);
        extents.map(|extent| BlockRun {
            start: extent.physical,
            length: extent.length,
        })
    }

    /// Where a block of the journal lies on the device, in bytes.
    pub fn offset_bytes(&self, block: u32) -> Result<u64> {
        content::block_at(&self.extents, LogicalBlock(block.into()))
            .map(|physical| physical * u64::from(self.format.block_size))
            .ok_or_else(|| Error::corrupt(format_args!("journal: block {block} is missing")))
    }

    fn read(&self, block: u32, buffer: &mut [u8]) -> Result<()> {
        self.device
            .read_at(self.offset_bytes(block)?, buffer)
            .map_err(|error| Error::io(format_args!("journal block {block}: {error}")))
    }

    /// The device that the log lies on, where that is not the file system's.
    pub fn external_device(&self) -> Option<&Arc<dyn BlockDevice>> {
        self.is_external.then_some(&self.device)
    }

    /// Reads the journal's superblock, as the device has it now.
    fn read_superblock(&self) -> Result<JournalSuperblock> {
        let mut bytes = vec![0; self.format.block_size as usize];
        self.read(self.superblock_block, &mut bytes)?;
        JournalSuperblock::parse(&bytes).map_err(|error| at_journal("journal superblock", error))
    }

    /// Where the journal's superblock lies on its device, in bytes.
    fn superblock_place(&self) -> Result<u64> {
        self.offset_bytes(self.superblock_block)
    }

    /// Writes the journal's superblock.
    pub fn write_superblock(&self, superblock: &JournalSuperblock) -> Result<()> {
        self.device
            .write_at(self.superblock_place()?, superblock.as_bytes())
            .map_err(|error| Error::io(format_args!("journal superblock: {error}")))
    }

    /// Makes everything durable that was written, also on the file system's `device`.
    pub fn flush(&self, device: &dyn BlockDevice) -> Result<()> {
        let flush = |device: &dyn BlockDevice| {
            let flushed = device.flush();
            flushed.map_err(|error| Error::io(format_args!("flush: {error}")))
        };
        flush(device)?;
        match self.is_external {
            true => flush(&*self.device),
            false => Ok(()),
        }
    }
}

/// A codec's error about the journal; unlike elsewhere what is not supported is named.
fn at_journal(place: &str, error: disk::DiskError) -> Error {
    Error::corrupt(format_args!("{place}: {error}"))
}

/// The mapping of the journal's inode.
fn extents(
    buffers: &BufferCache,
    superblock: &Superblock,
    geometry: &Geometry,
) -> Result<Vec<Extent>> {
    let rules = InodeRules::of(superblock);
    let ino = Ino(u64::from(superblock.journal_inum()));
    let place = || format!("journal inode {ino}");
    let inode = match read_inode(buffers, geometry, ino) {
        Err(Error::Stale) => {
            return Err(Error::corrupt(format_args!(
                "{}: there is no such inode",
                place()
            )));
        }
        outcome => outcome?,
    };
    inode
        .verify_checksum(&rules, disk_ino(ino)?)
        .map_err(|error| at(place(), error))?;
    let is_file = inode.kind() == Some(disk::inode::FileKind::Regular);
    if inode.links_count() == 0 || !is_file {
        let what = match inode.links_count() {
            0 => "not in use",
            _ => "not a file",
        };
        return Err(Error::corrupt(format_args!("{}: {what}", place())));
    }
    let mapping = map::load_with(buffers, geometry, None, &rules, ino, &inode)?;
    let size_blocks = inode.size(&rules) / u64::from(geometry.block_size);
    let mut extents = mapping.extents;
    // Only what lies within the size counts.
    extents.retain_mut(|extent| {
        extent.length = extent
            .length
            .min(size_blocks.saturating_sub(extent.logical.0));
        extent.length > 0 && extent.state == ExtentState::Written
    });
    Ok(extents)
}

/// The whole transactions of a log.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Copies in the order of the log.
    copies: Vec<Copy>,
    /// The newest transaction that revokes a block.
    revoked: HashMap<u64, u32>,
    /// The transaction that would come next.
    pub next_sequence: u32,
    /// The number of whole transactions.
    pub transactions: u32,
    /// What fast commits change on top of them.
    pub fast_commits: Option<FastReplay>,
    /// Why the log ended, when that is not how a log ends.
    pub damage: Option<String>,
    /// When the last whole transaction was committed, in seconds since 1970.
    committed: u64,
}

/// What fast commits change.
#[derive(Debug)]
pub(crate) struct FastReplay {
    /// How many there are.
    pub count: u32,
    /// The changed blocks, as they are then.
    pub changes: BTreeMap<u64, Arc<[u8]>>,
}

#[derive(Clone, Copy, Debug)]
struct Copy {
    sequence: u32,
    block: u64,
    journal_block: u32,
    is_escaped: bool,
    checksum: u32,
}

/// A transaction that is being read.
#[derive(Default)]
struct Transaction {
    copies: Vec<Copy>,
    /// Each once: a damaged map may lead to the same revoke block again and again.
    revoked: HashSet<u64>,
    /// A checksum was wrong. That counts only if the commit block is there: a crash can cut a
    /// transaction off anywhere.
    damage: Option<String>,
    /// A checksum of its descriptors or revocations was: they may be older than the journal.
    may_be_stale: bool,
    /// The log's blocks that v1's checksum covers.
    covered: Vec<u32>,
}

impl Transaction {
    /// Takes a descriptor block in; gives the number of data blocks that follow it.
    fn descriptor(
        &mut self,
        journal: &Journal,
        bytes: &[u8],
        sequence: u32,
        at: impl Fn(u32) -> u32,
    ) -> Result<u32> {
        let block = match DescriptorBlock::new(bytes, &journal.format) {
            Ok(block) => block,
            Err(error) => {
                self.damage.get_or_insert(error.to_string());
                return Ok(0);
            }
        };
        if let Err(error) = block.verify_checksum() {
            self.damage.get_or_insert(error.to_string());
            self.may_be_stale = true;
        }
        self.covered.push(at(0));
        let mut count = 0;
        for tag in block.tags() {
            count += 1;
            let journal_block = at(count);
            self.covered.push(journal_block);
            if tag.block.0 >= journal.fs_blocks {
                let what = format!("block {} lies outside the file system", tag.block);
                self.damage.get_or_insert(what);
                continue;
            }
            self.copies.push(Copy {
                sequence,
                block: tag.block.0,
                journal_block,
                is_escaped: tag.flags.contains(TagFlags::ESCAPE),
                checksum: tag.checksum,
            });
        }
        Ok(count)
    }

    fn revoke(&mut self, journal: &Journal, bytes: &[u8]) {
        match RevokeBlock::new(bytes, &journal.format) {
            Ok(block) => {
                if let Err(error) = block.verify_checksum() {
                    self.damage.get_or_insert(error.to_string());
                    self.may_be_stale = true;
                }
                self.revoked
                    .extend(block.blocks().map(|PhysBlock(block)| block));
            }
            Err(error) => {
                self.damage.get_or_insert(error.to_string());
            }
        }
    }

    /// Compares all checksums, now that the commit block is there. Gives what is wrong.
    fn check(&mut self, journal: &Journal, commit: &[u8]) -> Result<Option<String>> {
        if let Some(damage) = &self.damage {
            return Ok(Some(damage.clone()));
        }
        let format = &journal.format;
        let commit = CommitBlock::verify_checksum(commit, format)
            .and_then(|()| CommitBlock::parse(commit, format));
        let commit = match commit {
            Ok(commit) => commit,
            Err(error) => {
                self.may_be_stale = true;
                return Ok(Some(error.to_string()));
            }
        };
        let mut bytes = vec![0; format.block_size as usize];
        if format.has_tail() {
            for copy in &self.copies {
                journal.read(copy.journal_block, &mut bytes)?;
                let wanted = copy.checksum;
                let found = descriptor::data_checksum(format, copy.sequence, &bytes);
                if wanted != found {
                    return Ok(Some(format!(
                        "checksum of the copy of block {} is {found:#x}, should be {wanted:#x}",
                        copy.block
                    )));
                }
            }
        } else if let Some(wanted) = commit.v1_checksum {
            // One at a time: a transaction can fill a large journal.
            let mut failure = None;
            let found = crc32_be(self.covered.iter().map_while(|&block| {
                let mut bytes = vec![0; format.block_size as usize];
                let read = journal.read(block, &mut bytes);
                read.map_err(|error| failure = Some(error)).ok()?;
                Some(bytes)
            }));
            if let Some(error) = failure {
                return Err(error);
            }
            if wanted != found {
                self.may_be_stale = true;
                return Ok(Some(format!(
                    "checksum is {found:#x}, should be {wanted:#x}"
                )));
            }
        }
        Ok(None)
    }
}

impl Log {
    /// A log that holds nothing.
    pub fn empty(journal: &Journal) -> Log {
        Log {
            next_sequence: journal.superblock.sequence(),
            ..Log::default()
        }
    }

    /// A log whose transactions do not count, whatever they are; only the next number does. Damage
    /// can hide transactions behind it, so every block of the log is asked for its number.
    pub fn skipped(journal: &Journal) -> Result<Log> {
        let mut log = Log::empty(journal);
        if journal.superblock.start() == 0 {
            return Ok(log);
        }
        let mut bytes = vec![0; journal.format.block_size as usize];
        for block in journal.superblock.first()..journal.superblock.log_end() {
            journal.read(block, &mut bytes)?;
            let Some(header) = BlockHeader::parse(&bytes) else {
                continue;
            };
            // Numbers wrap.
            if header
                .sequence
                .wrapping_sub(log.next_sequence)
                .cast_signed()
                >= 0
            {
                log.next_sequence = header.sequence.wrapping_add(1);
            }
        }
        Ok(log)
    }

    /// Reads the log.
    pub fn scan(journal: &Journal) -> Result<Log> {
        let superblock = &journal.superblock;
        let mut log = Log::empty(journal);
        if superblock.start() == 0 {
            return Ok(log);
        }
        let (first, end) = (superblock.first(), superblock.log_end());
        let mut next = superblock.start();
        // The log is a ring: it ends at the latest where it began.
        let mut left = end - first;
        let mut bytes = vec![0; journal.format.block_size as usize];
        let mut current = Transaction::default();
        while left > 0 {
            journal.read(next, &mut bytes)?;
            let Some(header) = BlockHeader::parse(&bytes) else {
                break;
            };
            if header.sequence != log.next_sequence {
                break;
            }
            let here = next;
            let advance = |next: u32, by: u32| first + (next - first + by) % (end - first);
            let mut used = 1;
            match header.block_type {
                BlockType::Descriptor => {
                    used += current.descriptor(journal, &bytes, header.sequence, |index| {
                        advance(here, index)
                    })?;
                }
                BlockType::Revoke => current.revoke(journal, &bytes),
                BlockType::Commit => {
                    let mut done = std::mem::take(&mut current);
                    let damage = done.check(journal, &bytes)?;
                    let committed = commit::seconds(&bytes);
                    if done.may_be_stale && committed < log.committed {
                        break;
                    }
                    if let Some(damage) = damage {
                        log.damage = Some(format!("transaction {}: {damage}", header.sequence));
                        break;
                    }
                    log.take(done, header.sequence);
                    log.committed = committed;
                }
                _ => break,
            }
            next = advance(here, used);
            left = left.saturating_sub(used);
        }
        Ok(log)
    }

    fn take(&mut self, transaction: Transaction, sequence: u32) {
        self.copies.extend(transaction.copies);
        for block in transaction.revoked {
            self.revoked.insert(block, sequence);
        }
        self.transactions += 1;
        self.next_sequence = sequence.wrapping_add(1);
    }

    /// Where the newest copy of every block lies that the log holds one of.
    pub fn sources(&self, journal: &Journal) -> Result<HashMap<u64, Source>> {
        let mut sources = HashMap::new();
        for copy in &self.copies {
            // A revocation hides the copies of its own and of older transactions. Numbers wrap.
            let is_revoked = self
                .revoked
                .get(&copy.block)
                .is_some_and(|&by| by.wrapping_sub(copy.sequence).cast_signed() >= 0);
            if is_revoked {
                continue;
            }
            let offset_bytes = journal.offset_bytes(copy.journal_block)?;
            sources.insert(
                copy.block,
                Source::Log {
                    offset_bytes,
                    escaped: copy.is_escaped.then_some(jbd2::MAGIC.to_be_bytes()),
                },
            );
        }
        let changed = self.fast_commits.iter().flat_map(|fast| &fast.changes);
        sources.extend(changed.map(|(block, data)| (*block, Source::Memory(data.clone()))));
        Ok(sources)
    }
}
