//! How small a file system may become: counted first, then tried without writing.

use finefs_ext_disk::GroupNo;

use super::layout::Layout;
use super::moving::Mover;
use super::numbers::Numbers;
use super::room::Units;
use super::shape::{Shape, reshape};
use crate::pass::Check;

/// Blocks that are added where a size was counted, but turns out to be too small.
const STEP_MIN: u64 = 16;

/// The smallest number of blocks.
pub(super) fn blocks(check: &Check) -> Result<u64, String> {
    let geo = &check.fs.geo;
    let inodes = (1..=geo.inodes_count)
        .filter(|ino| *ino < geo.first_ino.0 || check.is_used(*ino))
        .count() as u64;
    let per_group = u64::from(geo.blocks_per_group);
    let first = u64::from(geo.first_data_block);
    let least_groups = inodes.div_ceil(u64::from(geo.inodes_per_group)).max(1);
    let end_of = |groups: u64| (first + groups * per_group).min(geo.blocks_count);
    let all = u64::from(geo.groups_count);
    let enough = |blocks: u64| counts(check, blocks);
    let mut groups = least_groups;
    while groups < all && !enough(end_of(groups)) {
        groups += 1;
    }
    let (mut low, mut high) = (end_of(groups - 1), end_of(groups));
    let cluster = u64::from(geo.cluster_ratio);
    // `low` is too small, `high` is not.
    while high - low > cluster {
        let middle = geo.cluster_end(low + (high - low) / 2);
        if middle == high {
            break;
        }
        match enough(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    let (mut found, mut step) = (high, STEP_MIN.next_multiple_of(cluster));
    while found < geo.blocks_count {
        let shape = reshape(&check.fs.sb, geo, found);
        if let Ok(shape) = shape
            && shape.geo.blocks_count == found
            && try_shape(check, &shape).is_ok()
        {
            return Ok(found);
        }
        found = (found + step).min(geo.blocks_count);
        step *= 2;
    }
    Ok(geo.blocks_count)
}

/// Whether there are as many free blocks as must be left.
fn counts(check: &Check, blocks: u64) -> bool {
    let old = &check.fs.geo;
    let Ok(shape) = reshape(&check.fs.sb, old, blocks) else {
        return false;
    };
    let geo = &shape.geo;
    if geo.blocks_count != blocks {
        return false;
    }
    let first = u64::from(geo.first_data_block);
    let units = Units {
        bits: check.cluster_bits,
    };
    let claimed = |at: u64, count: u64| {
        let (start, units) = units.of(at, count);
        check.claims.count(start, units)
    };
    let mut free = units.of(first, blocks - first).1 - claimed(first, blocks - first);
    // What is cut off, without what is made anew or goes.
    let mut leaving = claimed(blocks, old.blocks_count - blocks);
    let table = u64::from(geo.inode_table_blocks);
    for (number, group) in (0..).zip(&check.fs.groups) {
        let start = old.group_first_block(GroupNo(number)).0;
        let base = u64::from(old.group_base_blocks(GroupNo(number)));
        let own = [
            (start, base),
            (group.block_bitmap, 1),
            (group.inode_bitmap, 1),
            (group.inode_table, table),
        ];
        for (at, count) in own {
            let behind = (at + count).saturating_sub(at.max(blocks)).min(count);
            leaving = leaving.saturating_sub(units.end(behind));
        }
        if number >= geo.groups_count {
            continue;
        }
        for (at, count) in &own[1..] {
            if at + count > blocks {
                free = free.saturating_sub(units.end(*count));
            }
        }
        let new_base = u64::from(geo.group_base_blocks(GroupNo(number)));
        free = free.saturating_sub(units.end(new_base.saturating_sub(base)));
    }
    free >= leaving
}

/// Does everything but write; the reason where it does not work out.
pub(super) fn try_shape(check: &Check, shape: &Shape) -> Result<(), String> {
    let numbers = Numbers::new(check, shape)?;
    let mut layout = Layout::new(check, shape)?;
    let mut mover = Mover::new(check, shape, &mut layout, &numbers, None);
    mover.inodes()?;
    mover.own_blocks()
}
