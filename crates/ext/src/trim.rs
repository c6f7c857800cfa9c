//! Giving back the storage below free blocks (FITRIM, fstrim(8); the mount option `discard`).
//!
//! Blocks that are given back are allocated meanwhile, so that nobody writes to them. They were
//! free before, so no commit that is durable names them, and no replay of the journal writes them.
//! Not more than a part of a long run is away at a time, so that others find space meanwhile.
//! A group that was trimmed as a whole is passed over until blocks are freed in it.

use std::ops::Range;

use finefs_namespace::{BlockRun, Error, Result};

use crate::state::ExtState;

/// So much is given back at a time, which nobody can use meanwhile.
const PART_BYTES: u64 = 8 << 20;

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
    let part_max = PART_BYTES / u64::from(state.geometry.block_size);
    // Where the run ends of which a part was given back.
    let mut run_end = at;
    loop {
        let (end, min) = match at < run_end {
            true => (run_end, 1),
            false => (within.end, run_min),
        };
        let Some((run, end)) = (state.allocator).take_free_run(state, at..end, min, part_max)
        else {
            if at >= run_end {
                break;
            }
            // Others have taken the rest meanwhile.
            at = run_end;
            continue;
        };
        (at, run_end) = (run.start.0 + run.length, end.max(run_end));
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
