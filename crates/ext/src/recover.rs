//! What a mount does about a journal: replay on the device, replay in memory, or leave it.
//!
//! # Rules
//! - A journal is replayed only when the superblock says so (`needs_recovery`); otherwise what its
//!   log holds is old, and a mount that writes empties it, as the kernel does.
//! - A mount that writes replays to the device, then makes that durable, then empties the log, then
//!   clears `needs_recovery`: a crash in between only means that the replay is done again.
//! - A mount that reads shows what a replay would give, from the journal itself (see `overlay`).
//! - A damaged journal allows reading only.
//! - What fast commits change is worked out first (see `fast_commit`). A mount that writes makes it
//!   one more transaction of the log, after which they no longer count: it has their number.
//!
//! # References
//! `fs/jbd2/recovery.c`, `fs/ext4/super.c` (ext4_load_journal, ext4_clear_journal_err).

use std::collections::BTreeMap;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{BufferCache, Overlay, Source};
use finefs_ext_disk::features::{Compat, Incompat, JournalIncompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use finefs_namespace::{CommitThreads, Error, Result};

use crate::error::detail;
use crate::fast_commit;
use crate::journal::writer::{Change, JournalWriter, LogFeatures, Outcome};
use crate::journal::{FastReplay, Journal, Log};

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

/// Looks at the journal of an image, which lies on the device `external` if that is given. Reads
/// only.
pub(crate) fn inspect(
    device: &Arc<dyn BlockDevice>,
    external: Option<&Arc<dyn BlockDevice>>,
    superblock: &Superblock,
    geometry: &Geometry,
) -> Finding {
    let is_known = superblock.journal_inum() != 0 || external.is_some();
    if !superblock.compat().contains(Compat::HAS_JOURNAL) || !is_known {
        return Finding::Nothing;
    }
    let must_replay = superblock.incompat().contains(Incompat::NEEDS_RECOVERY);
    match examine(device, external, superblock, geometry, must_replay) {
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
    external: Option<&Arc<dyn BlockDevice>>,
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
    // An external journal is not for an image that has its own.
    let external = external.filter(|_| superblock.journal_inum() == 0);
    let journal = Journal::open(device, external, &buffers, superblock, geometry)?;
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
    let mut log = Log::scan(&journal)?;
    if let Some(damage) = &log.damage {
        let reason = format!("the journal is damaged ({damage}); what is before that is shown");
        return Ok(Finding::ReadOnly(reason, overlay(&journal, &log)?));
    }
    if journal.superblock.start() != 0 {
        match fast_commits(device, &journal, &log) {
            Ok(fast) => log.fast_commits = fast,
            Err(error) => {
                let reason = format!(
                    "the journal holds fast commits that cannot be replayed ({}); \
                     what is before them is shown",
                    detail(&error)
                );
                return Ok(Finding::ReadOnly(reason, overlay(&journal, &log)?));
            }
        }
    }
    Ok(Finding::Replay(journal, log))
}

/// What the fast commits on top of a log change, if there are some.
fn fast_commits(
    device: &Arc<dyn BlockDevice>,
    journal: &Journal,
    log: &Log,
) -> Result<Option<FastReplay>> {
    let commits = journal.fast_commits(log.next_sequence)?;
    if commits.count == 0 {
        return Ok(None);
    }
    let overlay = overlay(journal, log)?;
    let block_size = journal.format.block_size;
    let changes = fast_commit::replayed(device, overlay, block_size, &commits)?;
    Ok(Some(FastReplay {
        count: commits.count,
        changes,
    }))
}

/// What a replay would give.
pub(crate) fn overlay(journal: &Journal, log: &Log) -> Result<Overlay> {
    let overlay = Overlay::new(journal.format.block_size, log.sources(journal)?);
    Ok(overlay.with_log_on(journal.external_device().cloned()))
}

/// Replays a log to the device and empties it.
pub(crate) fn replay(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    journal: Journal,
    mut log: Log,
) -> Result<()> {
    let io = |error: std::io::Error| Error::io(format_args!("replaying the journal: {error}"));
    let fast = log.fast_commits.take();
    let sources: BTreeMap<u64, Source> = log.sources(&journal)?.into_iter().collect();
    let log_device: &dyn BlockDevice = journal.external_device().map_or(device, |log| &**log);
    let block_size = journal.format.block_size as usize;
    copy(device, log_device, block_size, &sources).map_err(io)?;
    device.flush().map_err(io)?;
    let errno = journal.superblock.errno();
    match fast {
        None => empty(&journal, &log)?,
        Some(fast) => write_fast(device, superblock, journal, &log, fast)?,
    }
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

/// Makes what fast commits change the next transaction of the log, all of which is at its place
/// already, then puts it to its places and empties the log.
fn write_fast(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    mut journal: Journal,
    log: &Log,
    fast: FastReplay,
) -> Result<()> {
    journal.superblock.set_sequence(log.next_sequence);
    journal.superblock.set_errno(0);
    let block_size = u64::from(journal.format.block_size);
    // A crash before the transaction is durable must leave them as they are.
    let features = LogFeatures {
        keeps_fast_commits: true,
        ..LogFeatures::of(superblock)
    };
    let mut writer = JournalWriter::new(journal, features)
        .ok_or_else(|| Error::corrupt("fast commits in a journal of version 1"))?;
    let changes: Vec<Change> = fast.changes.into_iter().collect();
    if writer.commit(device, &changes, &[], CommitThreads::ONE)? == Outcome::TooLarge {
        return Err(Error::io(
            "fast commits change more blocks than the journal holds; run e2fsck -f",
        ));
    }
    for (block, data) in &changes {
        device
            .write_at(block * block_size, data)
            .map_err(|error| Error::io(format_args!("replaying the journal: {error}")))?;
    }
    writer.checkpoint(device)
}

/// Copies the blocks to their places, adjacent ones together.
fn copy(
    device: &dyn BlockDevice,
    log: &dyn BlockDevice,
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
        source.read(log, 0, &mut run[start..])?;
    }
    if !run.is_empty() {
        device.write_at(run_start * block_size as u64, &run)?;
    }
    Ok(())
}

/// Marks the log empty. The next transaction's number is past all that the log holds, so that none
/// of them can be taken for new.
fn empty(journal: &Journal, log: &Log) -> Result<()> {
    let mut superblock = journal.superblock.clone();
    superblock.set_sequence(log.next_sequence.wrapping_add(1));
    superblock.set_start(0);
    superblock.set_errno(0);
    // As the kernel leaves it: the area of fast commits is only marked while there may be some.
    superblock.set_incompat(superblock.incompat() - JournalIncompat::FAST_COMMIT);
    superblock.update_checksum();
    journal.write_superblock(&superblock)?;
    match journal.external_device() {
        Some(device) => device
            .flush()
            .map_err(|error| Error::io(format_args!("emptying the journal: {error}"))),
        None => Ok(()),
    }
}
