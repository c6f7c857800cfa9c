//! Giving back the storage below free blocks (FITRIM, fstrim(8); the mount option `discard`).
//!
//! Blocks that are given back are allocated meanwhile, so that nobody writes to them. They were
//! free before, so no commit that is durable names them, and no replay of the journal writes them.
//! A group that was trimmed as a whole is passed over until blocks are freed in it.

use std::ops::Range;

use finefs_namespace::{BlockRun, Error, Result};

use crate::state::ExtState;

/// Gives back the free runs of at least `run_min` blocks that lie in `blocks`, of the group where
/// that begins. Tells where the next group begins, and how many blocks they were; `None` beyond the
/// last group.
pub(crate) fn trim(
    state: &ExtState,
    blocks: Range<u64>,
    run_min: u64,
) -> Result<Option<(u64, u64)>> {
    let start = blocks.start.max(u64::from(state.geometry.first_data_block));
    let Some(group) = state.allocator.group_around(start) else {
        return Ok(None);
    };
    let within = start..blocks.end.min(group.end);
    if state.allocator.is_trimmed(start, run_min) {
        return Ok(Some((group.end, 0)));
    }
    let is_whole = blocks.start <= group.start && blocks.end >= group.end;
    let mut releases = state.allocator.releases_around(start);
    let (mut at, mut trimmed) = (within.start, 0);
    while let Some(run) = (state.allocator).take_free_run(state, at..within.end, run_min) {
        at = run.start.0 + run.length;
        let outcome = discard(state, run);
        state.allocator.release_blocks(state, run);
        if !outcome? {
            return Err(Error::NotSupported);
        }
        trimmed += run.length;
        releases = releases.wrapping_add(1);
    }
    if is_whole {
        state.allocator.note_trimmed(start, run_min, releases);
    }
    Ok(Some((group.end, trimmed)))
}

/// Gives back the storage below blocks that nobody else has; false where that cannot be.
pub(crate) fn discard(state: &ExtState, run: BlockRun) -> Result<bool> {
    let block_bytes = u64::from(state.geometry.block_size);
    (state.device)
        .discard_at(run.start.0 * block_bytes, run.length * block_bytes)
        .map_err(|error| Error::io(format_args!("giving back block {}: {error}", run.start.0)))
}
