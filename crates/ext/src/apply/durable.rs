//! The end of a commit: file data and changed buffers become durable.
//!
//! Ordered data goes first, so that nothing durable refers to a block that has not what its file
//! says ([`finefs_buffers::DataMode`]). Then the buffers: with a journal they go into it as one
//! transaction, and then to their places; see [`crate::journal::writer`]. Without one they go to
//! their places at once, in an order that lets e2fsck keep every name that was durable before:
//! first blocks that nothing durable refers to, then inodes, then what refers to both. (So where a
//! directory's entries move to new blocks, they are there before they vanish from the old one;
//! e2fsck takes those that are in both out of one.)

use finefs_ext_disk::superblock::State;
use finefs_namespace::{BlockRun, CommitThreads, Error, Result};

use crate::journal::writer::{Change, JournalWriter, Outcome};
use crate::state::ExtState;

use super::space::Space;

/// Makes all dirty buffers durable, which `space` says some things about, and the data that they
/// refer to anew; tells whether other data is dirty still. `Error::NoSpace` when there is no
/// storage for the buffers below the device: none of them was written then.
pub(crate) fn write(state: &ExtState, space: &Space<'_>, threads: CommitThreads) -> Result<bool> {
    let keeps_data = state.data.write_ordered()?;
    let Some(mut writer) = state.take_journal()? else {
        reserve(state, &[], &state.buffers.dirty())?;
        return in_order(state, space).map(|()| keeps_data);
    };
    let freed: u64 = space.freed().iter().map(|run| run.length).sum();
    let changes = state.buffers.dirty();
    let outcome = writer
        .places(changes.len(), freed as usize)
        .and_then(|log| reserve(state, &log, &changes))
        .and_then(|()| with_journal(state, &mut writer, changes, space.freed(), threads));
    *state.journal.lock() = Some(writer);
    outcome.map(|()| keeps_data)
}

/// As [`write`] where there are no buffers to write.
pub(crate) fn sync_ordered_data(state: &ExtState) -> Result<bool> {
    let keeps_data = state.data.write_ordered()?;
    state.data.flush()?;
    Ok(keeps_data)
}

/// Takes storage for the dirty buffers' places and the log's.
fn reserve(state: &ExtState, log: &[std::ops::Range<u64>], changes: &[Change]) -> Result<()> {
    let block_bytes = u64::from(state.geometry.block_size);
    let mut ranges: Vec<std::ops::Range<u64>> = log.to_vec();
    for (block, _) in changes {
        let start = block * block_bytes;
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end += block_bytes,
            _ => ranges.push(start..start + block_bytes),
        }
    }
    for range in ranges {
        let length = range.end - range.start;
        if let Err(error) = state.device.reserve_at(range.start, length) {
            return Err(match finefs_block::is_full(&error) {
                true => Error::NoSpace,
                false => Error::io(format_args!("taking storage: {error}")),
            });
        }
    }
    Ok(())
}

fn with_journal(
    state: &ExtState,
    writer: &mut JournalWriter,
    changes: Vec<Change>,
    freed: &[BlockRun],
    threads: CommitThreads,
) -> Result<()> {
    match writer.commit(&*state.device, &changes, freed, threads)? {
        Outcome::Durable => state.buffers.write_these(&changes),
        Outcome::TooLarge => without_journal(state, writer, changes.len()),
    }
}

fn in_order(state: &ExtState, space: &Space<'_>) -> Result<()> {
    state
        .buffers
        .write_out_where(|block| space.fresh().contains(&block))?;
    // File data too must be there before an inode refers to it.
    state.data.flush()?;
    let tables = state.groups.inode_tables();
    let length = u64::from(state.geometry.inode_table_blocks);
    state.buffers.write_out_where(|block| {
        let before = tables.range(..=block).next_back();
        before.is_some_and(|start| block - start < length)
    })?;
    state.data.flush()?;
    state.buffers.write_out()?;
    state.data.flush()
}

/// A batch that the journal cannot hold: the namespace commits long before that, so it takes very
/// many changed blocks in few operations. While it is written the image is marked as not clean, so
/// that after a crash e2fsck looks at all of it.
fn without_journal(state: &ExtState, writer: &mut JournalWriter, blocks: usize) -> Result<()> {
    log::warn!(
        "{}: a commit of {blocks} blocks is larger than the journal: written without it",
        state.device.describe()
    );
    writer.checkpoint(&*state.device)?;
    let was = state.superblock.lock().state();
    mark(state, was - State::VALID)?;
    // Its block is among the changed ones, with the old mark.
    state.put_superblock()?;
    state.buffers.write_out()?;
    state.data.flush()?;
    mark(state, was)
}

/// Writes the superblock with another state, durably.
fn mark(state: &ExtState, value: State) -> Result<()> {
    let bytes = {
        let mut superblock = state.superblock.lock();
        superblock.set_state(value);
        superblock.update_checksum();
        *superblock.as_bytes()
    };
    state
        .device
        .write_at(finefs_ext_disk::superblock::SUPERBLOCK_OFFSET, &bytes)
        .map_err(|error| Error::io(format_args!("writing the superblock: {error}")))?;
    state.data.flush()
}
