//! The numbers of the file system as it shall be: groups, inodes, descriptor blocks and what is
//! reserved for them. The rules are resize2fs's, since sizes are expected to agree.

use finefs_ext_disk::GroupNo;
use finefs_ext_disk::features::{Compat, Incompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::superblock::Superblock;

/// A last group that has less than this beside its metadata is not made.
const LAST_GROUP_ROOM: u64 = 50;

/// The file system as it shall be. The counts of what is free are 0: they are not known yet.
#[derive(Clone)]
pub(super) struct Shape {
    pub sb: Superblock,
    pub geo: Geometry,
}

/// The shape with `blocks` blocks, or a few less where the last group would have no room.
pub(super) fn reshape(old: &Superblock, geo: &Geometry, blocks: u64) -> Result<Shape, String> {
    let (blocks, groups) = groups(old, geo, geo.cluster_start(blocks))?;
    if blocks > u64::from(u32::MAX) {
        let what = "block numbers would need more than 32 bits";
        if !old.has_64bit() {
            return Err(format!(
                "{what}, which takes feature 64bit; resize2fs -b sets it"
            ));
        }
        if old.compat().contains(Compat::RESIZE_INODE) {
            return Err(format!(
                "{what}, which resize_inode cannot hold; tune2fs -O ^resize_inode clears it"
            ));
        }
    }
    let inodes = u64::from(geo.inodes_per_group) * u64::from(groups);
    let inodes = u32::try_from(inodes).map_err(|_| {
        format!("{inodes} inodes would be more than there are numbers; give a smaller size")
    })?;
    let mut sb = old.clone();
    sb.set_blocks_count(blocks);
    sb.set_inodes_count(inodes);
    let share = old.reserved_blocks_count() as f64 * 100.0 / geo.blocks_count as f64;
    sb.set_reserved_blocks_count((share * blocks as f64 / 100.0) as u64);
    sb.set_free_blocks_count(0);
    sb.set_free_inodes_count(0);
    // Computed anew by whoever wants it.
    sb.set_overhead_clusters(0);
    let desc_blocks = groups.div_ceil(geo.descs_per_block);
    if old.compat().contains(Compat::RESIZE_INODE) && desc_blocks != geo.desc_blocks {
        let both = geo.reserved_gdt_blocks + geo.desc_blocks;
        let reserved = both.saturating_sub(desc_blocks).min(geo.block_size / 4);
        sb.set_reserved_gdt_blocks(reserved as u16);
    }
    if old.incompat().contains(Incompat::META_BG) && old.first_meta_bg() > desc_blocks {
        sb.set_incompat(old.incompat() - Incompat::META_BG);
        sb.set_first_meta_bg(0);
    }
    if old.compat().contains(Compat::SPARSE_SUPER2) {
        sb.set_backup_bgs(backups(old.backup_bgs(), geo.groups_count, groups));
    }
    let geo = Geometry::new(&sb).map_err(|error| error.to_string())?;
    // Superblock, descriptors, bitmaps and a group's inodes.
    let first = 3 + geo.desc_blocks + geo.reserved_gdt_blocks + geo.inode_table_blocks;
    if !sb.incompat().contains(Incompat::META_BG) && first > geo.blocks_per_group {
        return Err(format!(
            "the descriptors of {groups} groups would fill more than a group; give a smaller size, \
             or make one with larger blocks"
        ));
    }
    Ok(Shape { sb, geo })
}

/// Blocks and groups, without a last group that has no room.
fn groups(old: &Superblock, geo: &Geometry, blocks: u64) -> Result<(u64, u32), String> {
    let too_small = || "no group has room for its own metadata".to_owned();
    let per_group = u64::from(geo.blocks_per_group);
    let mut blocks_left = blocks;
    loop {
        let from_first = blocks_left
            .checked_sub(u64::from(geo.first_data_block))
            .filter(|count| *count > 0)
            .ok_or_else(too_small)?;
        let groups = u32::try_from(from_first.div_ceil(per_group))
            .map_err(|_| "it would have more than 2^32 groups".to_owned())?;
        let mut overhead = 2 + u64::from(geo.inode_table_blocks);
        let has_super = match old.compat().contains(Compat::SPARSE_SUPER2) {
            true => old.backup_bgs()[usize::from(groups != 2)] != 0,
            false => geo.group_has_super(GroupNo(groups - 1)),
        };
        if has_super {
            let table = groups.div_ceil(geo.descs_per_block) + geo.reserved_gdt_blocks;
            overhead += 1 + u64::from(table);
        }
        let rest = from_first % per_group;
        if groups == 1 && rest > 0 && rest < overhead {
            return Err(too_small());
        }
        if groups > 1 && rest > 0 && rest < overhead + LAST_GROUP_ROOM {
            blocks_left -= rest;
            continue;
        }
        return Ok((blocks_left, groups));
    }
}

/// The groups with copies, with `sparse_super2`: the second stays the last group if it was.
fn backups(old: [u32; 2], old_groups: u32, groups: u32) -> [u32; 2] {
    let [mut first, mut second] = old;
    let (last, old_last) = (groups - 1, old_groups - 1);
    if last > old_last {
        if old_groups == 1 {
            first = 1;
        }
        if old_groups < 3 && groups > 2 || second != 0 {
            second = last;
        }
    } else if last < old_last {
        if first > last {
            first = 0;
        }
        if second > last {
            second = 0;
        }
        if last > 1 && old[1] == old_last {
            second = last;
        }
    }
    [first, second]
}

#[cfg(test)]
mod tests {
    use super::backups;

    #[test]
    fn the_last_group_keeps_its_copy() {
        assert_eq!(backups([1, 5], 6, 9), [1, 8]);
        assert_eq!(backups([1, 5], 6, 3), [1, 2]);
        assert_eq!(backups([1, 5], 6, 2), [1, 0]);
        assert_eq!(backups([0, 0], 1, 4), [1, 3]);
        assert_eq!(backups([0, 0], 6, 9), [0, 0]);
    }
}
