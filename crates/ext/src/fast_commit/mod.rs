//! Fast commits, which the kernel leaves in the journal when it was stopped: replayed in memory.
//!
//! A fast commit says what became of inodes and names, not which blocks changed. So it is carried
//! out like a batch of the namespace, by a file system of its own that is mounted on a [`Shadow`]
//! of the device; the blocks that this writes are the replay. A mount that reads shows them from
//! memory, one that writes makes them one transaction of the log, so that all of them count or
//! none (see `recover`).
//!
//! # References
//! Linux `Documentation/filesystems/ext4/journal.rst`, "Fast Commits"; `fs/ext4/fast_commit.c`.
//! Differences: what the kernel would leave to e2fsck (targets of short links, link counts of
//! directories) is right here.

mod plan;
mod raw;
mod shadow;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{BufferCache, CLEAN_LIMIT_BYTES, Overlay};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use finefs_namespace::{Error, Result};

use crate::ExtOptions;
use crate::assemble::{Parts, assemble};
use crate::error::at;
use crate::group::GroupTable;
use crate::journal::FastCommits;
use crate::load::quota;
use crate::state::ExtState;
use plan::Plan;
use shadow::Shadow;

/// The blocks that fast commits change on top of what `overlay` shows of `device`.
pub(crate) fn replayed(
    device: &Arc<dyn BlockDevice>,
    overlay: Overlay,
    block_size: u32,
    commits: &FastCommits,
) -> Result<BTreeMap<u64, Arc<[u8]>>> {
    let shadow = Arc::new(Shadow::new(device.clone(), overlay, block_size));
    let state = mounted(shadow.clone())?;
    let mut plan = Plan::new(&state);
    plan.claim(&commits.records)?;
    for (tag, value) in &commits.records {
        plan.take(*tag, value)?;
    }
    plan.carry_out()?;
    state.buffers.write_out()?;
    Ok(shadow.changes())
}

/// A file system on the shadow, which nobody else sees.
fn mounted(shadow: Arc<Shadow>) -> Result<ExtState> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    shadow
        .read_at(SUPERBLOCK_OFFSET, &mut bytes)
        .map_err(|error| Error::io(format_args!("reading the superblock: {error}")))?;
    let wrong = |error| at("superblock", error);
    let superblock = Superblock::parse(&bytes).map_err(wrong)?;
    superblock.verify_checksum().map_err(wrong)?;
    let geometry = Geometry::new(&superblock).map_err(wrong)?;
    let device: Arc<dyn BlockDevice> = shadow;
    let buffers = BufferCache::with(
        device.clone(),
        geometry.block_size,
        Overlay::default(),
        CLEAN_LIMIT_BYTES,
    );
    let groups = GroupTable::load(&superblock, &geometry, &buffers)?;
    if let Some(damage) = groups.damage() {
        return Err(Error::corrupt(damage));
    }
    let parts = Parts {
        device,
        superblock,
        geometry,
        buffers,
        groups,
        journal: None,
        is_read_only: false,
    };
    let options = ExtOptions {
        data_cache_bytes: 0,
        ..ExtOptions::default()
    };
    let state = assemble(parts, &options);
    let quotas = quota::load(&state, &[])?;
    if !quotas.ledgers().is_empty() {
        let _ = state.quotas.set(quotas);
    }
    Ok(state)
}
