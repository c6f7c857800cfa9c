//! Writing the journal: a batch's changed blocks become transactions that count all or not at all.
//!
//! # Data model
//! The log is a ring of blocks, the header behind it says where replay starts. The format bounds a
//! transaction (`transaction_max`), not a batch: so a batch is a *group* of transactions, one
//! behind the other. The log holds at most the newest group, whose blocks may not all be in their
//! places yet, and while a commit runs the one that is written behind it.
//!
//! # A commit
//! 1. The group goes into the log, but zeros stand for the first transaction's commit block.
//! 2. Flush, of both devices where the journal has its own. All of it is durable, and so is file
//!    data that was written before (data=ordered), and so is everything that the group before has
//!    put in its places.
//! 3. The first commit block, and the header, which from now on points at this group; durably.
//! 4. The changed blocks go to their places. The next commit's first flush makes that durable.
//!
//! # Invariants
//! 1. No block goes to its place before its group is durable. A group that is larger than the log
//!    is not written here: when the log is empty its blocks go to their places
//!    (`apply/durable.rs`).
//! 2. Replay begins with a group's first transaction and goes on for as long as each is whole: so
//!    before step 3 nothing of the group counts, and then all of it. The kernel and reiserfsck
//!    replay by the same rule.
//! 3. The header on the device points at the newest group, or where the log holds none to its
//!    head. So no older copy of a block is replayed over what the block is used for next: the
//!    format has no revocations.
//! 4. A group leaves the log only when all its blocks are durable in their places.
//!
//! # Locking
//! None: one thread commits.
//!
//! # References
//! `do_journal_end`, `journal_read` and `flush_journal_list` in `fs/reiserfs/journal.c` of Linux;
//! `reiserfs_replay_journal` of reiserfsprogs.

use std::ops::Range;
use std::sync::Arc;

use finefs_block::{BlockDevice, Write};
use finefs_namespace::{Error, Result};
use finefs_reiser_disk::journal::{self, Description, JournalHeader};
use finefs_reiser_disk::superblock::{JournalPlace, Superblock};

/// Adjacent blocks are written together up to this size.
const WRITE_BYTES: usize = 1 << 20;

/// What the kernel begins to count at, transactions and mounts.
const FIRST: u32 = 10;

/// What the kernel takes where neither header nor superblock say it, of 4096-byte blocks.
const TRANSACTION_MAX: u32 = 1024;

/// A changed block, and what it shall hold.
pub(crate) type Change = (u64, Arc<[u8]>);

/// What a block of the log shall hold.
type Block = Arc<[u8]>;

/// Where a log goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LogEnd {
    /// Where the next transaction begins.
    pub at: u32,
    /// Its number.
    pub number: u32,
    /// The mount that wrote the ones before.
    pub mount_id: u32,
}

impl LogEnd {
    /// Of a log that nobody has written to.
    pub const UNUSED: LogEnd = LogEnd {
        at: 0,
        number: FIRST,
        mount_id: FIRST - 1,
    };
}

/// What came of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Durable,
    /// It is larger than the journal; nothing was written.
    TooLarge,
}

/// See the module's head.
pub(crate) struct JournalWriter {
    /// What the log lies on.
    device: Arc<dyn BlockDevice>,
    /// What the file system lies on, where that is another.
    main: Option<Arc<dyn BlockDevice>>,
    block_size: usize,
    place: JournalPlace,
    transaction_max: usize,
    /// The header's block.
    header: Vec<u8>,
    /// Where the next group begins, and the number of its first transaction.
    head: u32,
    number: u32,
    mount_id: u32,
    /// Blocks of the newest group, which the log still holds.
    held: u32,
    /// A commit failed midway: there is none any more.
    has_failed: bool,
}

impl JournalWriter {
    /// Takes over the log on `device` whose transactions are all in their places, durably: from now
    /// on none of them counts. `main`: what the file system lies on, where that is another.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        main: Option<Arc<dyn BlockDevice>>,
        superblock: &Superblock,
        end: LogEnd,
    ) -> Result<JournalWriter> {
        let (place, block_size) = (superblock.journal(), superblock.block_size());
        let mut writer = JournalWriter {
            device,
            main,
            block_size: block_size as usize,
            place,
            transaction_max: 0,
            header: vec![0; block_size as usize],
            head: end.at % place.blocks,
            number: end.number,
            mount_id: end.mount_id.wrapping_add(1).max(FIRST),
            held: 0,
            has_failed: false,
        };
        let at = writer.offset_bytes(place.blocks);
        let read = writer.device.read_at(at, &mut writer.header);
        read.map_err(|error| Error::io(format_args!("reading the journal's header: {error}")))?;
        let told = [
            superblock.transaction_max(),
            journal::transaction_max(&writer.header),
        ];
        let told = told.into_iter().filter(|max| *max > 0).min();
        let usual = (TRANSACTION_MAX * block_size / 4096).clamp(1, TRANSACTION_MAX);
        let framed = 2 * Description::places_max(writer.block_size);
        writer.transaction_max = (told.unwrap_or(usual) as usize)
            .min(framed)
            .min(place.blocks as usize - 2);
        writer.checkpoint()?;
        Ok(writer)
    }

    /// How many changed blocks one commit can take.
    pub fn capacity(&self) -> usize {
        let (log, each) = (self.place.blocks as usize, self.transaction_max + 2);
        log / each * self.transaction_max + (log % each).saturating_sub(2)
    }

    /// Blocks of the log that so many changed blocks take.
    fn needed(&self, changes: usize) -> usize {
        changes + 2 * changes.div_ceil(self.transaction_max)
    }

    /// What the log lies on.
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// The parts of that device that a commit of so many changed blocks writes in the log.
    pub fn places(&self, changes: usize) -> Vec<Range<u64>> {
        let needed = self.needed(changes).min(self.place.blocks as usize) as u32;
        let to_end = needed.min(self.place.blocks - self.head);
        [(self.head, to_end), (0, needed - to_end)]
            .into_iter()
            .filter(|(_, blocks)| *blocks > 0)
            .map(|(at, blocks)| self.offset_bytes(at)..self.offset_bytes(at + blocks))
            .collect()
    }

    /// Makes changes durable, all or none. The caller then puts them to their places, before the
    /// next commit.
    pub fn commit(&mut self, changes: &[Change]) -> Result<Outcome> {
        if changes.is_empty() {
            return self.flush().map(|()| Outcome::Durable);
        }
        if self.has_failed {
            return Err(Error::io("the journal was stopped by an earlier error"));
        }
        if changes.len() > self.capacity() {
            return Ok(Outcome::TooLarge);
        }
        self.has_failed = true;
        let (needed, parts) = (
            self.needed(changes.len()) as u32,
            changes.len().div_ceil(self.transaction_max) as u32,
        );
        let is_at_end = self.number.checked_add(parts).is_none();
        if needed > self.place.blocks - self.held || is_at_end {
            if is_at_end {
                // Numbers of another mount do not count.
                (self.number, self.mount_id) = (FIRST, self.mount_id.wrapping_add(1).max(FIRST));
            }
            self.checkpoint()?;
        }
        let (blocks, first_commit) = self.group(changes)?;
        let commit_at = self.advance(
            self.head,
            changes.len().min(self.transaction_max) as u32 + 1,
        );
        self.write(self.head, &blocks)?;
        self.flush()?;
        let mut last = vec![Write::new(self.offset_bytes(commit_at), &first_commit)];
        if self.held > 0 {
            self.set_header();
            let at = self.offset_bytes(self.place.blocks);
            last.push(Write::new(at, &self.header));
        }
        self.device.write_durably(&last).map_err(writing)?;
        self.held = needed;
        self.head = self.advance(self.head, needed);
        self.number += parts;
        self.has_failed = false;
        Ok(Outcome::Durable)
    }

    /// Empties the log: everything that was put to its place becomes durable there.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.flush()?;
        self.set_header();
        let at = self.offset_bytes(self.place.blocks);
        self.device.write_at(at, &self.header).map_err(writing)?;
        self.flush()?;
        self.held = 0;
        Ok(())
    }

    /// Makes all that was written durable.
    pub fn flush(&self) -> Result<()> {
        let flush = |device: &dyn BlockDevice| {
            let flushed = device.flush();
            flushed.map_err(|error| Error::io(format_args!("flush: {error}")))
        };
        self.main.as_deref().map_or(Ok(()), flush)?;
        flush(&*self.device)
    }

    /// The blocks of a group, with zeros in place of the first commit block, which is given
    /// beside.
    fn group(&self, changes: &[Change]) -> Result<(Vec<Block>, Vec<u8>)> {
        let mut blocks = Vec::with_capacity(self.needed(changes.len()));
        let mut first_commit = None;
        for (part, number) in changes.chunks(self.transaction_max).zip(self.number..) {
            let places: Vec<u32> = part.iter().map(|(block, _)| *block as u32).collect();
            let framed = journal::frame(self.block_size, number, self.mount_id, &places);
            let Some((description, commit)) = framed else {
                return Err(Error::io("a transaction that the format has no room for"));
            };
            blocks.push(description.into());
            blocks.extend(part.iter().map(|(_, data)| data.clone()));
            match first_commit {
                None => {
                    first_commit = Some(commit);
                    blocks.push(vec![0; self.block_size].into());
                }
                Some(_) => blocks.push(commit.into()),
            }
        }
        Ok((blocks, first_commit.unwrap_or_default()))
    }

    /// Everything before the next transaction is in its place.
    fn set_header(&mut self) {
        let header = JournalHeader {
            flushed: self.number - 1,
            next_start: self.head,
            mount_id: self.mount_id,
        };
        header.write_to(&mut self.header);
    }

    fn advance(&self, at: u32, by: u32) -> u32 {
        (at + by) % self.place.blocks
    }

    fn offset_bytes(&self, at: u32) -> u64 {
        (u64::from(self.place.start) + u64::from(at)) * self.block_size as u64
    }

    /// Writes blocks into the log from `at` on, around its end, adjacent ones together.
    fn write(&self, at: u32, blocks: &[Block]) -> Result<()> {
        let to_end = (self.place.blocks - at) as usize;
        let (before, behind) = blocks.split_at(blocks.len().min(to_end));
        let mut writes: Vec<Write<'_>> = Vec::new();
        for (start, blocks) in [(at, before), (0, behind)] {
            let per_write = (WRITE_BYTES / self.block_size).max(1);
            for (number, run) in blocks.chunks(per_write).enumerate() {
                let first = start + (number * per_write) as u32;
                writes.push(Write {
                    offset_bytes: self.offset_bytes(first),
                    parts: run.iter().map(|block| &block[..]).collect(),
                });
            }
        }
        self.device.write_many(&writes).map_err(writing)
    }
}

fn writing(error: std::io::Error) -> Error {
    Error::io(format_args!("writing the journal: {error}"))
}
