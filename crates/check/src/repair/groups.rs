//! Bitmaps, counts and descriptors, from what the passes found in use.

use finefs_ext_disk::group::{GroupDesc, GroupFlags};
use finefs_ext_disk::superblock::SUPERBLOCK_OFFSET;
use finefs_ext_disk::{GroupNo, bitmap};

use super::fix::Fix;
use super::superblock;

const DIRECTORY: u8 = 4;

/// Has the next check look at every inode of a group: its descriptor does not say truly which ones
/// were ever in use. Bitmaps and counts follow from that check.
pub(super) fn open(fix: &Fix<'_>, number: u32) -> Result<(), String> {
    let number = GroupNo(number);
    let (at, mut desc) = descriptor(fix, number)?;
    desc.set_itable_unused(0);
    desc.set_flags(desc.flags() - GroupFlags::BLOCK_UNINIT - GroupFlags::INODE_UNINIT);
    desc.update_checksum(&fix.check.fs.checksums, number);
    fix.write(at, desc.as_bytes())
}

/// Writes a group's bitmaps and its descriptor.
pub(super) fn rewrite(fix: &Fix<'_>, number: u32) -> Result<(), String> {
    let (check, geo) = (fix.check, &fix.check.fs.geo);
    let checksums = &check.fs.checksums;
    let group = check.fs.groups[number as usize];
    let number = GroupNo(number);
    let (at, mut desc) = descriptor(fix, number)?;

    let clusters = u64::from(geo.group_clusters(number));
    let first = geo.group_first_block(number).0 >> check.cluster_bits;
    let mut blocks = vec![0xff; geo.block_size as usize];
    for index in 0..clusters {
        if !check.claims.is_claimed(first + index) {
            bitmap::clear(&mut blocks, index as usize);
        }
    }
    let mut inodes = vec![0xff; geo.block_size as usize];
    let (mut free, mut dirs, mut last) = (0, 0, 0);
    for index in 0..geo.inodes_per_group {
        let ino = geo.inode_at(number, index).0;
        if check.is_used(ino) || ino < geo.first_ino.0 {
            last = index + 1;
            dirs += u32::from(check.inodes.kind(ino) == DIRECTORY);
        } else {
            bitmap::clear(&mut inodes, index as usize);
            free += 1;
        }
    }
    fix.write_block(group.block_bitmap, &blocks)?;
    fix.write_block(group.inode_bitmap, &inodes)?;
    let free_clusters = clusters - check.claims.count(first, clusters);
    desc.set_free_blocks(free_clusters as u32);
    desc.set_free_inodes(free);
    desc.set_used_dirs(dirs);
    let mut flags = desc.flags() - GroupFlags::BLOCK_UNINIT;
    let was_uninit = flags.contains(GroupFlags::INODE_UNINIT);
    let unused = match (checksums.is_present(), was_uninit) {
        (false, _) => 0,
        (_, true) => geo.inodes_per_group - last,
        _ => group.unused_inodes.min(geo.inodes_per_group - last),
    };
    if last > 0 || unused != geo.inodes_per_group {
        flags -= GroupFlags::INODE_UNINIT;
    }
    desc.set_itable_unused(unused);
    desc.set_flags(flags);
    let wrong = |error: finefs_ext_disk::DiskError| error.to_string();
    desc.update_block_bitmap(checksums, geo, &blocks)
        .map_err(wrong)?;
    desc.update_inode_bitmap(checksums, geo, &inodes)
        .map_err(wrong)?;
    desc.update_checksum(checksums, number);
    fix.write(at, desc.as_bytes())
}

fn descriptor(fix: &Fix<'_>, number: GroupNo) -> Result<(u64, GroupDesc<Vec<u8>>), String> {
    let geo = &fix.check.fs.geo;
    let (index, offset) = geo.desc_position(number);
    let at = geo.desc_block(index).0 * u64::from(geo.block_size) + u64::from(offset);
    let mut bytes = vec![0; usize::from(geo.desc_size)];
    fix.view
        .read_at(at, &mut bytes)
        .map_err(|error| error.to_string())?;
    let desc = GroupDesc::new(bytes).map_err(|error| error.to_string())?;
    Ok((at, desc))
}

/// Sums the groups' counts up in the superblock.
pub(super) fn totals(fix: &Fix<'_>) -> Result<(), String> {
    let geo = &fix.check.fs.geo;
    let (mut blocks, mut inodes) = (0, 0);
    for number in 0..geo.groups_count {
        let (_, desc) = descriptor(fix, GroupNo(number))?;
        blocks += u64::from(desc.free_blocks()) * u64::from(geo.cluster_ratio);
        inodes += desc.free_inodes();
    }
    let mut sb = superblock(fix.view)?;
    sb.set_free_blocks_count(blocks);
    sb.set_free_inodes_count(inodes);
    sb.update_checksum();
    fix.write(SUPERBLOCK_OFFSET, sb.as_bytes())
}
