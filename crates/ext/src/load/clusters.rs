//! Mappings in whole clusters (`bigalloc`).
//!
//! The namespace allocates, maps and frees whole clusters. The kernel maps of a cluster only the
//! blocks that were written; what is written later gets its place in the same cluster. Until then
//! they read as zeros and are nobody else's, as unwritten blocks are. So they are loaded as such;
//! `apply::map` maps them when they are converted. In a damaged image the rest of a cluster may be
//! the file system's own; such a mapping is refused.
//!
//! # References
//! Linux `fs/ext4/extents.c`, `get_implied_cluster_alloc`.

use finefs_ext_disk::geometry::Geometry;
use finefs_namespace::{BlockNo, Error, Extent, ExtentState, Ino, LogicalBlock, Result};

use crate::state::ExtState;

/// A mapping in ascending order, with the rest of each cluster that it has a part of.
pub(crate) fn whole(state: &ExtState, ino: Ino, extents: Vec<Extent>) -> Result<Vec<Extent>> {
    let geometry = &state.geometry;
    if geometry.cluster_ratio == 1 {
        return Ok(extents);
    }
    let damaged = |extent: &Extent| {
        Error::corrupt(format_args!(
            "inode {ino}: logical block {} lies at {}, which is another place in its cluster",
            extent.logical, extent.physical.0
        ))
    };
    let mut filled: Vec<Extent> = Vec::with_capacity(2 * extents.len());
    for extent in extents {
        let start = extent.logical.cluster_start(geometry.cluster_ratio.into());
        let within = extent.logical - start;
        if extent.physical.0 - geometry.cluster_start(extent.physical.0) != within {
            return Err(damaged(&extent));
        }
        let mut from = start;
        if let Some(last) = filled.last().copied() {
            if last.end() > start {
                // The same cluster goes on.
                if last.place_of(extent.logical) != extent.physical {
                    return Err(damaged(&extent));
                }
                from = last.end();
            } else {
                close(geometry, &mut filled);
            }
        }
        fill(&mut filled, &extent, from..extent.logical);
        push(&mut filled, extent);
    }
    close(geometry, &mut filled);
    // The last cluster of an image that is only read may be cut off.
    let within = |run: &Extent| {
        let rest = geometry.blocks_count.saturating_sub(run.physical.0);
        run.length.min(rest.max(1))
    };
    let is_foreign = |run: &&Extent| !state.groups.can_own(geometry, run.physical.0, within(run));
    match filled.iter().find(is_foreign) {
        None => Ok(filled),
        Some(run) => Err(Error::corrupt(format_args!(
            "inode {ino}: a cluster within blocks {} to {} cannot belong to a file as a whole",
            run.physical.0,
            run.physical.0 + run.length - 1
        ))),
    }
}

/// Fills the last cluster up to its end.
fn close(geometry: &Geometry, filled: &mut Vec<Extent>) {
    if let Some(last) = filled.last().copied() {
        let end = last.end().cluster_end(geometry.cluster_ratio.into());
        fill(filled, &last, last.end()..end);
    }
}

/// Adds unwritten blocks that lie as those of an extent do.
fn fill(filled: &mut Vec<Extent>, like: &Extent, range: std::ops::Range<LogicalBlock>) {
    if !range.is_empty() {
        let unwritten = Extent {
            logical: range.start,
            physical: BlockNo(like.physical.0 + range.start.0 - like.logical.0),
            length: range.end - range.start,
            state: ExtentState::Unwritten,
        };
        push(filled, unwritten);
    }
}

/// Adds an extent, joined with the one before where that goes on.
fn push(filled: &mut Vec<Extent>, extent: Extent) {
    match filled.last_mut() {
        Some(last)
            if last.end() == extent.logical
                && last.physical.0 + last.length == extent.physical.0
                && last.state == extent.state =>
        {
            last.length += extent.length;
        }
        _ => filled.push(extent),
    }
}
