//! What the journal holds and is not in its place: which copy of a block is the newest.
//!
//! Transactions stand in a ring. The header behind it says where the first one begins that may not
//! be in place, and its number. From there on they are read as long as each follows the one before;
//! the first that is cut off, or older, or of another mount, ends the log. Without a header (as
//! mkreiserfs leaves it) the oldest of the newest mount is looked for.
//!
//! # References
//! `journal_read` and `journal_read_transaction` in `fs/reiserfs/journal.c` of Linux.

pub(crate) mod external;
pub(crate) mod writer;

use std::collections::HashMap;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{Overlay, Source};
use finefs_reiser_disk::journal::{Description, JournalHeader};
use finefs_reiser_disk::superblock::{JournalPlace, Superblock};

use crate::error::MountErrorKind;
use writer::LogEnd;

type Result<T> = std::result::Result<T, MountErrorKind>;

/// What a replay would give.
#[derive(Debug)]
pub(crate) struct Replay {
    /// Where the newest copies lie.
    pub sources: HashMap<u64, Source>,
    /// Whole transactions.
    pub transactions: u32,
    /// Where the log goes on.
    pub end: LogEnd,
}

impl Replay {
    /// What it shows in place of what the device holds; the log lies on `log`.
    pub fn overlay(&self, log: &Arc<dyn BlockDevice>, block_size: u32) -> Overlay {
        Overlay::new(block_size, self.sources.clone()).with_log_on(Some(log.clone()))
    }

    /// Puts the newest copies to their places, durably.
    pub fn carry_out(
        &self,
        device: &dyn BlockDevice,
        log: &dyn BlockDevice,
        block_size: u32,
    ) -> Result<()> {
        let failed = |error| MountErrorKind::Io(format!("replaying the journal: {error}"));
        let mut copies: Vec<(&u64, &Source)> = self.sources.iter().collect();
        copies.sort_unstable_by_key(|(block, _)| **block);
        let mut bytes = vec![0; block_size as usize];
        for (block, source) in copies {
            source.read(log, 0, &mut bytes).map_err(failed)?;
            let place = *block * u64::from(block_size);
            device.write_at(place, &bytes).map_err(failed)?;
        }
        device.flush().map_err(failed)
    }
}

/// A transaction that counts.
struct Transaction {
    number: u32,
    mount_id: u32,
    /// Where its copies belong.
    places: Vec<u32>,
}

struct Log<'a> {
    device: &'a dyn BlockDevice,
    block_size: u32,
    block_count: u32,
    place: JournalPlace,
    transaction_max: u32,
}

/// Reads the log, which lies on `device`.
pub(crate) fn replay(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Replay> {
    let log = Log {
        device,
        block_size: superblock.block_size(),
        block_count: superblock.block_count(),
        place: superblock.journal(),
        transaction_max: superblock.transaction_max(),
    };
    let mut sources = HashMap::new();
    let mut transactions = 0;
    let (first, end) = log.first()?;
    let Some((mut at, mut transaction)) = first else {
        return Ok(Replay {
            sources,
            transactions,
            end,
        });
    };
    let mut walked = 0;
    loop {
        log.take(at, &transaction, &mut sources)?;
        transactions += 1;
        let length = transaction.places.len() as u32 + 2;
        walked += length;
        at = (at + length) % log.place.blocks;
        let (number, mount_id) = (transaction.number, transaction.mount_id);
        let next = match walked < log.place.blocks {
            true => log.transaction(at)?,
            false => None,
        };
        match next {
            Some(next) if next.number > number && next.mount_id == mount_id => transaction = next,
            _ => break,
        }
    }
    let end = LogEnd {
        at,
        number: transaction
            .number
            .wrapping_add(1)
            .max(LogEnd::UNUSED.number),
        mount_id: transaction.mount_id,
    };
    Ok(Replay {
        sources,
        transactions,
        end,
    })
}

impl Log<'_> {
    fn offset_bytes(&self, at: u32) -> u64 {
        (u64::from(self.place.start) + u64::from(at)) * u64::from(self.block_size)
    }

    fn block(&self, at: u32) -> Result<Vec<u8>> {
        let mut block = vec![0; self.block_size as usize];
        let read = self.device.read_at(self.offset_bytes(at), &mut block);
        read.map_err(|error| MountErrorKind::Io(format!("reading the journal: {error}")))?;
        Ok(block)
    }

    /// The transaction that begins at a block of the log, if one does that counts.
    fn transaction(&self, at: u32) -> Result<Option<Transaction>> {
        let block = self.block(at)?;
        let Some(description) = Description::parse(&block) else {
            return Ok(None);
        };
        let length = description.length();
        let is_too_long = self.transaction_max != 0 && length > self.transaction_max;
        if is_too_long || length > self.place.blocks - 2 {
            return Ok(None);
        }
        let commit = self.block((at + length + 1) % self.place.blocks)?;
        Ok(description.places(&commit).map(|places| Transaction {
            number: description.transaction(),
            mount_id: description.mount_id(),
            places,
        }))
    }

    /// The first transaction that may not be in its place, and where it begins; and where the log
    /// goes on if there is none.
    fn first(&self) -> Result<(Option<(u32, Transaction)>, LogEnd)> {
        let header = self.block(self.place.blocks)?;
        let header = JournalHeader::parse(&header)
            .map_err(|error| MountErrorKind::Journal(error.to_string()))?;
        if header.next_start < self.place.blocks && header.flushed > 0 {
            let found = self.transaction(header.next_start)?;
            let counts = |found: &Transaction| {
                found.number > header.flushed && found.mount_id == header.mount_id
            };
            let found = found.filter(counts).map(|found| (header.next_start, found));
            let end = LogEnd {
                at: header.next_start,
                number: header.flushed.wrapping_add(1).max(LogEnd::UNUSED.number),
                mount_id: header.mount_id,
            };
            return Ok((found, end));
        }
        Ok((self.oldest()?, LogEnd::UNUSED))
    }

    /// The oldest transaction of the newest mount, where no header says which one it is.
    fn oldest(&self) -> Result<Option<(u32, Transaction)>> {
        let mut oldest: Option<(u32, Transaction)> = None;
        let mut at = 0;
        while at < self.place.blocks {
            let Some(found) = self.transaction(at)? else {
                at += 1;
                continue;
            };
            let length = found.places.len() as u32 + 2;
            let is_older = oldest.as_ref().is_none_or(|(_, oldest)| {
                let (mount, number) = (oldest.mount_id, oldest.number);
                found.mount_id > mount || found.mount_id == mount && found.number < number
            });
            if is_older {
                oldest = Some((at, found));
            }
            at += length;
        }
        Ok(oldest)
    }

    /// Takes the copies of a transaction in, over those of earlier ones.
    fn take(
        &self,
        at: u32,
        transaction: &Transaction,
        sources: &mut HashMap<u64, Source>,
    ) -> Result<()> {
        for (copy, &place) in (1..).zip(&transaction.places) {
            if place >= self.block_count || self.place.reserves(place) {
                return Err(MountErrorKind::Journal(format!(
                    "transaction {} has a copy of block {place}",
                    transaction.number
                )));
            }
            let source = Source::Log {
                offset_bytes: self.offset_bytes((at + copy) % self.place.blocks),
                escaped: None,
            };
            sources.insert(u64::from(place), source);
        }
        Ok(())
    }
}
