//! Pass 5: what the bitmaps and counts say, against what the other passes found.

use finefs_ext_disk::features::RoCompat;
use finefs_ext_disk::group::{GroupChecksum, GroupDesc, GroupFlags};
use finefs_ext_disk::{GroupNo, bitmap};

use super::Check;
use crate::finding::{Findings, Object, Problem};
use crate::fs::short;

/// What the groups come to.
#[derive(Default, Clone, Copy)]
pub(super) struct Totals {
    /// In blocks.
    pub free_blocks: u64,
    pub free_inodes: u64,
}

/// What a thread finds in its groups.
#[derive(Default)]
struct GroupScan {
    found: Findings,
    free_clusters: u64,
    free_inodes: u64,
}

/// Runs the pass.
pub(super) fn check(check: &Check, found: &mut Findings) -> Totals {
    let groups = check.fs.groups.len();
    let metadata = metadata(check);
    let states = check.share(groups, GroupScan::default, |scan, number| {
        let number = number as u32;
        blocks(check, number, &metadata, scan);
        inodes(check, number, scan);
    });
    let mut totals = Totals::default();
    for state in states {
        found.append(state.found);
        totals.free_blocks += state.free_clusters * u64::from(check.fs.geo.cluster_ratio);
        totals.free_inodes += state.free_inodes;
    }
    let sb = &check.fs.sb;
    if sb.free_blocks_count() != totals.free_blocks {
        let (said, free) = (sb.free_blocks_count(), totals.free_blocks);
        let what = format!("superblock: {said} free blocks, there are {free}");
        found.add(Problem::FreeCount, Object::whole(), what);
    }
    if u64::from(sb.free_inodes_count()) != totals.free_inodes {
        let (said, free) = (sb.free_inodes_count(), totals.free_inodes);
        let what = format!("superblock: {said} free inodes, there are {free}");
        found.add(Problem::FreeCount, Object::whole(), what);
    }
    totals
}

/// The places of the file system's own blocks, in order.
fn metadata(check: &Check) -> Vec<(u64, u64)> {
    let geo = &check.fs.geo;
    let mut list = Vec::new();
    for (number, group) in (0..).map(GroupNo).zip(&check.fs.groups) {
        let base = geo.group_base_blocks(number).min(geo.group_blocks(number));
        list.push((geo.group_first_block(number).0, u64::from(base)));
        let table = u64::from(geo.inode_table_blocks);
        let places = [
            (group.inode_table, table),
            (group.block_bitmap, 1),
            (group.inode_bitmap, 1),
        ];
        list.extend(places.into_iter().filter(|(at, _)| *at != 0));
    }
    list.retain(|(_, length)| *length > 0);
    list.sort_unstable();
    list
}

/// Clusters of the range that metadata takes.
fn metadata_clusters(check: &Check, list: &[(u64, u64)], first: u64, end: u64) -> u64 {
    let bits = check.cluster_bits;
    let from = list.partition_point(|(at, _)| *at < first);
    // One that begins before may reach in.
    let from = from.saturating_sub(1);
    let (mut clusters, mut next) = (0, first >> bits);
    for (at, length) in list[from..].iter().take_while(|(at, _)| *at < end) {
        let start = (at.max(&first) >> bits).max(next);
        let stop = ((at + length).min(end) + (1 << bits) - 1) >> bits;
        if stop > start {
            clusters += stop - start;
            next = stop;
        }
    }
    clusters
}

fn read(check: &Check, block: u64, scan: &mut GroupScan) -> Option<Vec<u8>> {
    let mut bytes = check.fs.block_buffer();
    let is_read = block != 0 && check.fs.read_block(block, &mut bytes, &mut scan.found);
    is_read.then_some(bytes)
}

/// The descriptor of a group, as bytes.
fn descriptor(check: &Check, number: u32) -> Option<GroupDesc<Vec<u8>>> {
    let geo = &check.fs.geo;
    let (index, offset) = geo.desc_position(GroupNo(number));
    let at = geo.desc_block(index).0 * u64::from(geo.block_size) + u64::from(offset);
    let mut bytes = vec![0; usize::from(geo.desc_size)];
    check.fs.source.read_at(at, &mut bytes).ok()?;
    GroupDesc::new(bytes).ok()
}

fn blocks(check: &Check, number: u32, metadata: &[(u64, u64)], scan: &mut GroupScan) {
    let (fs, geo) = (&check.fs, &check.fs.geo);
    let group = &fs.groups[number as usize];
    let object = Object::group(number);
    let first = geo.group_first_block(GroupNo(number)).0;
    let clusters = u64::from(geo.group_clusters(GroupNo(number)));
    let base = first >> check.cluster_bits;
    let claimed = check.claims.count(base, clusters);
    let is_uninit = fs.checksums.is_present() && group.flags.contains(GroupFlags::BLOCK_UNINIT);
    let free = if is_uninit {
        let end = first + u64::from(geo.group_blocks(GroupNo(number)));
        let own = metadata_clusters(check, metadata, first, end);
        if own != claimed {
            let what = "blocks are in use, but the block bitmap is marked as not initialised";
            scan.found.add(Problem::BlockBitmap, object.clone(), what);
        }
        clusters - own.min(clusters)
    } else {
        let Some(bytes) = read(check, group.block_bitmap, scan) else {
            return;
        };
        differences(check, number, base, clusters, &bytes, scan);
        if geo.clusters_per_group as usize / 8 <= bytes.len() {
            padding(
                &bytes,
                clusters as usize,
                Problem::BlockBitmap,
                &object,
                scan,
            );
        }
        checksum(check, number, &bytes, true, scan);
        bitmap::count_zeros(&bytes, clusters as usize) as u64
    };
    scan.free_clusters += free;
    if free != u64::from(group.free_blocks) {
        let what = format!("{} free blocks, there are {free}", group.free_blocks);
        scan.found.add(Problem::GroupCount, object, what);
    }
}

/// Compares the block bitmap with what was claimed.
fn differences(
    check: &Check,
    number: u32,
    base: u64,
    clusters: u64,
    bytes: &[u8],
    scan: &mut GroupScan,
) {
    if check.fs.has_ro(RoCompat::SHARED_BLOCKS) {
        return;
    }
    let (mut free, mut lost) = (Vec::new(), Vec::new());
    for word in 0..clusters.div_ceil(64) {
        let bits = (clusters - word * 64).min(64);
        let used = check.claims.word(base + word * 64, bits);
        let at = (word * 8) as usize;
        let mut raw = [0; 8];
        let part = &bytes[at.min(bytes.len())..(at + 8).min(bytes.len())];
        raw[..part.len()].copy_from_slice(part);
        let marked = u64::from_le_bytes(raw) & (u64::MAX >> (64 - bits));
        for (difference, list) in [(used & !marked, &mut free), (marked & !used, &mut lost)] {
            let mut rest = difference;
            while rest != 0 {
                let cluster = base + word * 64 + u64::from(rest.trailing_zeros());
                list.push(cluster << check.cluster_bits);
                rest &= rest - 1;
            }
        }
    }
    for (list, what) in [
        (free, "in use, but marked as free"),
        (lost, "not in use, but marked so"),
    ] {
        if let Some(first) = list.first() {
            let object = Object::group(number).block(*first);
            let what = format!("block bitmap: {} blocks {what}", list.len());
            scan.found.add(Problem::BlockBitmap, object, what);
        }
    }
}

/// Bits that stand for nothing are set.
fn padding(bytes: &[u8], from: usize, problem: Problem, object: &Object, scan: &mut GroupScan) {
    if bitmap::find_zero(bytes, from, bytes.len() * 8).is_some() {
        let what = "bitmap: bits behind its end are not set";
        scan.found.add(problem, object.clone(), what);
    }
}

fn checksum(check: &Check, number: u32, bytes: &[u8], is_blocks: bool, scan: &mut GroupScan) {
    let fs = &check.fs;
    if !matches!(fs.checksums, GroupChecksum::Crc32c(_)) {
        return;
    }
    let Some(desc) = descriptor(check, number) else {
        return;
    };
    let verified = match is_blocks {
        true => desc.verify_block_bitmap(&fs.checksums, &fs.geo, bytes),
        false => desc.verify_inode_bitmap(&fs.checksums, &fs.geo, bytes),
    };
    if let Err(error) = verified {
        let name = if is_blocks { "block" } else { "inode" };
        let what = format!("{name} bitmap: {}", short(&error));
        let object = Object::group(number);
        scan.found.add(Problem::BitmapChecksum, object, what);
    }
}

fn inodes(check: &Check, number: u32, scan: &mut GroupScan) {
    let (fs, geo) = (&check.fs, &check.fs.geo);
    let group = &fs.groups[number as usize];
    let object = Object::group(number);
    let per_group = geo.inodes_per_group;
    let is_uninit = fs.checksums.is_present() && group.flags.contains(GroupFlags::INODE_UNINIT);
    let bytes = match is_uninit {
        true => vec![0; geo.block_size as usize],
        false => match read(check, group.inode_bitmap, scan) {
            Some(bytes) => bytes,
            None => return,
        },
    };
    let (mut free, mut dirs) = (0, 0);
    let mut first = None;
    let mut differences = 0;
    for index in 0..per_group {
        let ino = geo.inode_at(GroupNo(number), index).0;
        let (used, marked) = (check.is_used(ino), bitmap::test(&bytes, index as usize));
        // Those below the first are reserved, whatever their inodes say.
        let used = used || ino < geo.first_ino.0;
        if used != marked {
            first.get_or_insert(ino);
            differences += 1;
        }
        if marked {
            dirs += u32::from(check.inodes.kind(ino) == 4 && check.is_used(ino));
        } else {
            free += 1;
        }
    }
    if let Some(first) = first {
        let what = format!("inode bitmap: {differences} inodes are marked wrongly");
        let object = Object {
            inode: Some(first),
            ..object.clone()
        };
        scan.found.add(Problem::InodeBitmap, object, what);
    }
    if !is_uninit {
        padding(
            &bytes,
            per_group as usize,
            Problem::InodeBitmap,
            &object,
            scan,
        );
        checksum(check, number, &bytes, false, scan);
    }
    scan.free_inodes += u64::from(free);
    for (what, said, counted) in [
        ("free inodes", group.free_inodes, free),
        ("directories", group.used_dirs, dirs),
    ] {
        if said != counted {
            let what = format!("{said} {what}, there are {counted}");
            scan.found.add(Problem::GroupCount, object.clone(), what);
        }
    }
}
