//! Orphans: the list that starts in the superblock, and the orphan file.

use std::collections::HashSet;

use finefs_ext_disk::features::{Compat, RoCompat};
use finefs_ext_disk::inode::Inode;
use finefs_ext_disk::orphan_file::OrphanBlock;
use finefs_ext_disk::{Ino, PhysBlock};

use super::Check;
use super::directories::Runs;
use crate::finding::{Findings, Object, Problem};
use crate::fs::short;
use crate::walk;

/// The longest list that is followed; a longer one is told as such.
const LIST_MAX: usize = 1 << 20;

/// Looks at both.
pub(super) fn check(check: &Check, found: &mut Findings) {
    list(check, found);
    let fs = &check.fs;
    if !fs.has(Compat::ORPHAN_FILE) {
        return;
    }
    let ino = fs.sb.orphan_file_inum();
    if !fs.has(Compat::HAS_JOURNAL) {
        let what = "an orphan file, without a journal";
        found.add(Problem::OrphanFile, Object::inode(ino), what);
    }
    match fs.inode(ino, found) {
        Some(inode) if !inode.is_blank() => file(check, ino, &inode, found),
        _ => found.add(
            Problem::OrphanFile,
            Object::inode(ino),
            "there is no such inode",
        ),
    }
}

fn list(check: &Check, found: &mut Findings) {
    let fs = &check.fs;
    let mut next = fs.sb.last_orphan();
    let mut seen = HashSet::new();
    while next != 0 {
        let is_possible = next >= fs.geo.first_ino.0 && next <= fs.geo.inodes_count;
        if !is_possible || !seen.insert(next) || seen.len() > LIST_MAX {
            let what = "the list of orphans leads to it, where it cannot go on";
            found.add(Problem::OrphanList, Object::inode(next), what);
            break;
        }
        next = fs.inode(next, found).map_or(0, |inode| inode.dtime());
    }
    if !seen.is_empty() {
        let what = match seen.len() {
            1 => "1 orphan waits to be removed by a mount".to_owned(),
            count => format!("{count} orphans wait to be removed by a mount"),
        };
        found.add(Problem::Orphans, Object::whole(), what);
    }
}

fn file(check: &Check, ino: u32, inode: &Inode<Vec<u8>>, found: &mut Findings) {
    let fs = &check.fs;
    let size = inode.size(&fs.rules);
    let block_size = u64::from(fs.geo.block_size);
    let mut runs = Runs::default();
    let walked = walk::walk(fs, ino, inode, &mut runs, &mut Findings::default());
    let object = Object::inode(ino);
    let has_gaps = walked.has_holes || walked.end < size / block_size;
    if !size.is_multiple_of(block_size) || has_gaps {
        let what = "the orphan file has holes or a size that is no number of blocks";
        found.add(Problem::OrphanFile, object.clone(), what);
    }
    let seed = inode.seed(&fs.rules, Ino(ino));
    let mut bytes = fs.block_buffer();
    let mut orphans = 0;
    let blocks = runs.0.iter().flat_map(|(_, at, length)| *at..at + length);
    for block in blocks {
        if !fs.read_block(block, &mut bytes, found) {
            continue;
        }
        let checked = OrphanBlock::new(&bytes[..]).and_then(|view| {
            if let Some(seed) = seed {
                view.verify_checksum(seed, PhysBlock(block))?;
            }
            Ok(view.orphans().count())
        });
        match checked {
            Ok(count) => orphans += count,
            Err(error) => {
                let what = format!("orphan file: {}", short(&error));
                found.add(Problem::OrphanFile, object.clone().block(block), what);
            }
        }
    }
    if orphans > 0 {
        let what = match fs.has_ro(RoCompat::ORPHAN_PRESENT) {
            true => format!("orphan file: {orphans} orphans wait to be removed by a mount"),
            false => format!("orphan file: {orphans} orphans, without orphan_present"),
        };
        found.add(Problem::OrphansPending, object, what);
    }
}
