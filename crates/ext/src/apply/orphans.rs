//! Inodes without a name that are still in use, so that the next mount can free them after a crash.
//!
//! # Data model
//! They form a list: the superblock names the first, and each one's time of deletion field names
//! the next. With `orphan_file` they stand in the blocks of a file instead, as long as that has
//! free slots; while it holds any, the superblock says so (`orphan_present`).
//!
//! Nothing is kept in memory: a batch that has to do with orphans reads what is there.

use std::collections::{HashMap, HashSet};

use finefs_ext_disk::features::{Compat, RoCompat};
use finefs_ext_disk::orphan_file::OrphanBlock;
use finefs_ext_disk::{Ino as DiskIno, PhysBlock};
use finefs_namespace::{Error, NumberSet, Result};

use super::inode::InodeTable;
use super::map;
use super::space::Space;
use crate::error::at;
use crate::state::ExtState;

/// The list on the device as it is before a batch, which may overwrite its links.
pub(crate) fn list(table: &InodeTable<'_>, state: &ExtState) -> Result<Vec<u32>> {
    let head = state.superblock.lock().last_orphan();
    walk(table, head, state.geometry.inodes_count)
}

/// Brings the notes up to date. `orphans` come or stay; `others` are the other inodes of the batch,
/// which are none (any more); `list` is what [`list`] gave before the batch.
pub(crate) fn update(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    list: &[u32],
    orphans: &[u32],
    others: &[u32],
) -> Result<()> {
    let (has_file, is_present) = {
        let superblock = space.state.superblock.lock();
        (
            superblock.compat().contains(Compat::ORPHAN_FILE),
            superblock.ro_compat().contains(RoCompat::ORPHAN_PRESENT),
        )
    };
    if orphans.is_empty() && list.is_empty() && !(has_file && is_present) {
        return Ok(());
    }
    let others: &NumberSet<u32> = &others.iter().copied().collect();
    let on_list: HashSet<u32> = list.iter().copied().collect();
    let mut new: Vec<u32> = orphans
        .iter()
        .copied()
        .filter(|ino| !on_list.contains(ino))
        .collect();
    if has_file && (is_present || !new.is_empty()) {
        new = update_file(space, table, new, others)?;
    }
    if new.is_empty() && list.is_empty() {
        return Ok(());
    }
    relink(space, table, list, new, others)
}

/// The list as it is on the device.
fn walk(table: &InodeTable<'_>, head: u32, inodes: u32) -> Result<Vec<u32>> {
    let mut list = Vec::new();
    let mut seen = HashSet::new();
    let mut next = head;
    while next != 0 {
        if next > inodes || !seen.insert(next) {
            return Err(Error::corrupt(format_args!(
                "list of orphans leads to inode {next}"
            )));
        }
        list.push(next);
        next = table.load(next)?.disk.dtime();
    }
    Ok(list)
}

/// Writes the list anew where its links change: new ones at the head.
fn relink(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    list: &[u32],
    new: Vec<u32>,
    others: &NumberSet<u32>,
) -> Result<()> {
    let old_links: HashMap<u32, u32> = links(list).collect();
    let now: Vec<u32> = new
        .into_iter()
        .chain(list.iter().copied().filter(|ino| !others.contains(ino)))
        .collect();
    for (ino, next) in links(&now) {
        if old_links.get(&ino) != Some(&next) {
            let mut inode = table.load(ino)?;
            inode.disk.set_dtime(next);
            table.store(&mut inode)?;
        }
    }
    space
        .state
        .superblock
        .lock()
        .set_last_orphan(now.first().copied().unwrap_or(0));
    Ok(())
}

fn links(list: &[u32]) -> impl Iterator<Item = (u32, u32)> + '_ {
    list.iter()
        .copied()
        .zip(list.iter().copied().skip(1).chain(std::iter::once(0)))
}

/// Updates the slots of the orphan file. Gives the orphans back that found none.
fn update_file(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    mut new: Vec<u32>,
    others: &NumberSet<u32>,
) -> Result<Vec<u32>> {
    let state = space.state;
    let number = state.superblock.lock().orphan_file_inum();
    let file = table.load(number)?;
    let mut held = HashSet::new();
    let mut edits: Vec<(u64, Vec<u8>)> = Vec::new();
    for run in map::runs(space, &file)? {
        for block in run.physical..run.physical + run.length {
            let bytes = state.buffers.read(block)?;
            let view = OrphanBlock::new(&bytes[..]).map_err(|error| file.damaged(error))?;
            if let Some(seed) = file.seed {
                view.verify_checksum(seed, PhysBlock(block))
                    .map_err(|error| file.damaged(error))?;
            }
            held.extend(view.orphans().map(|(_, ino)| ino.0));
            edits.push((block, bytes.to_vec()));
        }
    }
    new.retain(|ino| !held.contains(ino));
    held.retain(|ino| !others.contains(ino));
    // Ascending numbers into ascending slots.
    new.sort_unstable_by(|a, b| b.cmp(a));
    for (block, mut bytes) in edits {
        let place = |error| at(format_args!("orphan file, block {block}"), error);
        let mut view = OrphanBlock::new(&mut bytes[..]).map_err(place)?;
        let mut has_changed = false;
        for index in 0..view.slots() {
            let ino = view.slot(index).0;
            if ino != 0 && !others.contains(&ino) {
                continue;
            }
            let next = new.pop().unwrap_or(0);
            held.extend((next != 0).then_some(next));
            if next != ino {
                view.set_slot(index, DiskIno(next));
                has_changed = true;
            }
        }
        if has_changed {
            if let Some(seed) = file.seed {
                view.update_checksum(seed, PhysBlock(block));
            }
            state.buffers.modify(block)?.copy_from_slice(&bytes);
        }
    }
    let mut superblock = state.superblock.lock();
    let mut features = superblock.ro_compat();
    features.set(RoCompat::ORPHAN_PRESENT, !held.is_empty());
    superblock.set_ro_compat(features);
    Ok(new)
}
