//! What a mount does about a journal: replay on the device, replay in memory, or leave it.
//!
//! # Rules
//! - A journal is replayed only when the superblock says so (`needs_recovery`); otherwise what its
//!   log holds is old, and a mount that writes empties it, as the kernel does.
//! - A mount that writes replays to the device, then makes that durable, then empties the log, then
//!   clears `needs_recovery`: a crash in between only means that the replay is done again.
//! - A mount that reads shows what a replay would give, from the journal itself (see `overlay`).
//! - A damaged journal, or one with fast commits, allows reading only.
//!
//! # References
//! `fs/jbd2/recovery.c`, `fs/ext4/super.c` (ext4_load_journal, ext4_clear_journal_err).

use std::collections::BTreeMap;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{BufferCache, Overlay, Source};
use finefs_ext_disk::features::{Compat, Incompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use finefs_namespace::{Error, Result};

use crate::error::detail;
use crate::journal::{Journal, Log};

/// Adjacent blocks are replayed together up to this size.
const WRITE_BYTES: usize = 1 << 20;

/// What is to be done about the journal of an image.
pub(crate) enum Finding {
    /// There is none, or there is nothing in it that counts.
    Nothing,
    /// The log can be replayed.
    Replay(Journal, Log),
    /// It must be left alone, for this reason; this much of it can be shown.
    ReadOnly(String, Overlay),
}

/// Looks at the journal of an image. Reads only.
pub(crate) fn inspect(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    geometry: &Geometry,
) -> Finding {
    if !superblock.compat().contains(Compat::HAS_JOURNAL) || superblock.journal_inum() == 0 {
        return Finding::Nothing;
    }
    let must_replay = superblock.incompat().contains(Incompat::NEEDS_RECOVERY);
    match examine(device, superblock, geometry, must_replay) {
        Ok(finding) => finding,
        Err(error) => {
            let consequence = if must_replay {
                "; the changes in it are not shown"
            } else {
                ""
            };
            Finding::ReadOnly(
                format!("the journal is damaged ({}){consequence}", detail(&error)),
                Overlay::default(),
            )
        }
    }
}

fn examine(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    geometry: &Geometry,
    must_replay: bool,
) -> Result<Finding> {
    // The journal's inode and map are found without the journal: it never changes them.
    let buffers = BufferCache::with(
        device.clone(),
        geometry.block_size,
        Overlay::default(),
        1 << 20,
    );
    let journal = Journal::open(device, &buffers, superblock, geometry)?;
    if !must_replay {
        // Numbers go on behind those of the log that is skipped, so that nothing in it can ever be
        // taken for what follows a new transaction.
        let log = Log::skipped(&journal)?;
        let is_empty = journal.superblock.start() == 0 && journal.superblock.errno() == 0;
        return Ok(if is_empty {
            Finding::Nothing
        } else {
            Finding::Replay(journal, log)
        });
    }
    let log = Log::scan(&journal)?;
    if let Some(damage) = &log.damage {
        let reason = format!("the journal is damaged ({damage}); what is before that is shown");
        return Ok(Finding::ReadOnly(reason, overlay(&journal, &log)?));
    }
    if journal.superblock.start() != 0 && journal.has_fast_commits(log.next_sequence)? {
        let reason = "the journal holds fast commits, which cannot be replayed yet; \
                      what is before them is shown";
        return Ok(Finding::ReadOnly(
            reason.to_owned(),
            overlay(&journal, &log)?,
        ));
    }
    Ok(Finding::Replay(journal, log))
}

/// What a replay would give.
pub(crate) fn overlay(journal: &Journal, log: &Log) -> Result<Overlay> {
    Ok(Overlay::new(
        journal.format.block_size,
        log.sources(journal)?,
    ))
}

/// Replays a log to the device and empties it.
pub(crate) fn replay(
    device: &dyn BlockDevice,
    geometry: &Geometry,
    journal: &Journal,
    log: &Log,
) -> Result<()> {
    let io = |error: std::io::Error| Error::io(format_args!("replaying the journal: {error}"));
    let sources: BTreeMap<u64, Source> = log.sources(journal)?.into_iter().collect();
    copy(device, geometry.block_size as usize, &sources).map_err(io)?;
    device.flush().map_err(io)?;
    let errno = empty(device, journal, log)?;
    device.flush().map_err(io)?;

    // The superblock may have been among the replayed blocks: it is read again.
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(io)?;
    let mut superblock = Superblock::parse(&bytes)
        .map_err(|error| Error::corrupt(format_args!("superblock after the replay: {error}")))?;
    superblock.set_incompat(superblock.incompat() - Incompat::NEEDS_RECOVERY);
    if errno != 0 {
        superblock.set_state(superblock.state() | State::ERROR);
    }
    superblock.update_checksum();
    device
        .write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())
        .map_err(io)?;
    device.flush().map_err(io)
}

/// Copies the blocks to their places, adjacent ones together.
fn copy(
    device: &dyn BlockDevice,
    block_size: usize,
    sources: &BTreeMap<u64, Source>,
) -> std::io::Result<()> {
    let mut run = Vec::new();
    let mut run_start = 0;
    for (&block, source) in sources {
        let goes_on = run_start + (run.len() / block_size) as u64 == block;
        if !run.is_empty() && (!goes_on || run.len() >= WRITE_BYTES) {
            device.write_at(run_start * block_size as u64, &run)?;
            run.clear();
        }
        if run.is_empty() {
            run_start = block;
        }
        let start = run.len();
        run.resize(start + block_size, 0);
        source.read(device, 0, &mut run[start..])?;
    }
    if !run.is_empty() {
        device.write_at(run_start * block_size as u64, &run)?;
    }
    Ok(())
}

/// Marks the log empty. The next transaction's number is past all that the log holds, so that none
/// of them can be taken for new. Gives the error that the journal was stopped with.
fn empty(device: &dyn BlockDevice, journal: &Journal, log: &Log) -> Result<i32> {
    let mut superblock = journal.superblock.clone();
    let errno = superblock.errno();
    superblock.set_sequence(log.next_sequence.wrapping_add(1));
    superblock.set_start(0);
    superblock.set_errno(0);
    superblock.update_checksum();
    device
        .write_at(journal.offset_bytes(0)?, superblock.as_bytes())
        .map_err(|error| Error::io(format_args!("emptying the journal: {error}")))?;
    Ok(errno)
}
