//! Orphans: inodes that were in the middle of being removed or truncated when the image was last
//! used. A mount that writes finishes the job.
//!
//! They are found in a list that starts in the superblock and goes on in `i_dtime`, and, with the
//! feature `orphan_file`, in the blocks of a file. One without links is freed, one with links loses
//! what lies behind its size. This is done by a batch like any other; but for the rest of the last
//! block, which is zeroed before it.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/orphan.rst`; `fs/ext4/orphan.c`.

use std::collections::BTreeSet;

use finefs_buffers::DataMode;
use finefs_ext_disk as disk;
use finefs_ext_disk::features::{Compat, RoCompat};
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::orphan_file::OrphanBlock;
use finefs_ext_disk::superblock::State;
use finefs_namespace::{
    Batch, BlockNo, Error, ExtentState, FileKind, Ino, InodeChange, LinkState, LogicalBlock,
    MapChange, Result,
};

use crate::apply;
use crate::error::{at, detail};
use crate::load::{checked, inode, map};
use crate::state::{ExtState, InodeBytes, disk_ino};

/// Frees or truncates all orphans. Gives notes for the user; damage is one, and no reason to fail.
/// A commit that fails is: what it changed in memory must not be written by another.
pub(crate) fn clean_up(state: &ExtState) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    if state.superblock.lock().state().contains(State::ERROR) {
        // As in the kernel: on a damaged image this may do more harm than good. The list is
        // forgotten, since new orphans would hang on to it.
        let mut superblock = state.superblock.lock();
        if superblock.last_orphan() != 0 {
            superblock.set_last_orphan(0);
            notes.push("orphans are left for e2fsck".to_owned());
        }
        return Ok(notes);
    }
    let mut found = BTreeSet::new();
    let sought =
        list(state, &mut found, &mut notes).and_then(|()| from_file(state, &mut found, &mut notes));
    if let Err(error) = sought {
        notes.push(format!("orphans were left as they are: {}", detail(&error)));
        return Ok(notes);
    }
    let mut batch = Batch::default();
    for &number in &found {
        let ino = Ino(u64::from(number));
        match change(state, ino) {
            Ok(change) => batch.inodes.push(Box::new(change)),
            Err(error) => notes.push(format!("orphan {ino}: {}; run e2fsck", detail(&error))),
        }
    }
    match batch.inodes.len() {
        0 => {}
        1 => notes.push("cleaned up one orphan".to_owned()),
        count => notes.push(format!("cleaned up {count} orphans")),
    }
    if !batch.inodes.is_empty() {
        // It also takes them off the list and out of the file.
        apply::commit(state, batch, &|_| None)?;
    }
    if let Err(error) = apply::check_orphan_list(state) {
        // One that is left on it cannot be read, and new ones would hang on to it.
        notes.push(format!(
            "the list of orphans is given up: {}; run e2fsck",
            detail(&error)
        ));
        state.superblock.lock().set_last_orphan(0);
    }
    Ok(notes)
}

/// What keeps new orphans from being noted in the orphan file, if there is to be one: it is
/// damaged.
pub(crate) fn check_file(state: &ExtState) -> Result<()> {
    let (has_file, number) = {
        let superblock = state.superblock.lock();
        let has_file = superblock.compat().contains(Compat::ORPHAN_FILE);
        (has_file, superblock.orphan_file_inum())
    };
    if !has_file {
        return Ok(());
    }
    let ino = Ino(u64::from(number));
    let place = || format!("orphan file (inode {ino})");
    let inode = match sound_inode(state, ino) {
        Ok(inode) if inode.is_blank() => Err(Error::Stale),
        outcome => outcome,
    };
    let inode = match inode {
        Err(Error::Stale) => {
            let what = "there is no such inode";
            return Err(Error::corrupt(format_args!("{}: {what}", place())));
        }
        outcome => outcome?,
    };
    inode.validate().map_err(|error| at(place(), error))?;
    for_blocks(state, ino, &inode, |_, _| {})
}

/// Calls `each` with every block of the orphan file, which must be sound.
fn for_blocks(
    state: &ExtState,
    ino: Ino,
    inode: &Inode<InodeBytes>,
    mut each: impl FnMut(u64, &OrphanBlock<&[u8]>),
) -> Result<()> {
    let seed = inode.seed(&state.inode_rules, disk_ino(ino)?);
    for extent in map::load(state, ino, inode)?.extents {
        for block in extent.physical.0..extent.physical.0 + extent.length {
            let bytes = state.buffers.read(block)?;
            let place = || format!("orphan file, block {block}");
            let view = OrphanBlock::new(&bytes[..]).map_err(|error| at(place(), error))?;
            if let Some(seed) = seed {
                view.verify_checksum(seed, disk::PhysBlock(block))
                    .map_err(|error| at(place(), error))?;
            }
            each(block, &view);
        }
    }
    Ok(())
}

/// Follows the list from the superblock. A list that is damaged is given up after its good part, as
/// the kernel does.
fn list(state: &ExtState, found: &mut BTreeSet<u32>, notes: &mut Vec<String>) -> Result<()> {
    let mut next = state.superblock.lock().last_orphan();
    while next != 0 {
        let ino = Ino(u64::from(next));
        let is_possible = next >= state.geometry.first_ino.0 && next <= state.geometry.inodes_count;
        let link = match is_possible && !found.contains(&next) {
            true => sound_inode(state, ino).map(|inode| inode.dtime()),
            false => Err(Error::corrupt("it cannot be one")),
        };
        match link {
            Ok(link) => {
                found.insert(next);
                next = link;
            }
            Err(error) => {
                notes.push(format!(
                    "list of orphans, inode {ino}: {}; run e2fsck",
                    detail(&error)
                ));
                state.superblock.lock().set_last_orphan(0);
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Reads the orphan file.
fn from_file(state: &ExtState, found: &mut BTreeSet<u32>, notes: &mut Vec<String>) -> Result<()> {
    let (has_file, number) = {
        let superblock = state.superblock.lock();
        let has_file = superblock.compat().contains(Compat::ORPHAN_FILE)
            && superblock.ro_compat().contains(RoCompat::ORPHAN_PRESENT);
        (has_file, superblock.orphan_file_inum())
    };
    if !has_file {
        return Ok(());
    }
    let ino = Ino(u64::from(number));
    let inode = sound_inode(state, ino)?;
    let mut is_empty = true;
    for_blocks(state, ino, &inode, |block, view| {
        for (_, orphan) in view.orphans() {
            is_empty = false;
            if orphan >= state.geometry.first_ino && orphan.0 <= state.geometry.inodes_count {
                found.insert(orphan.0);
            } else {
                notes.push(format!(
                    "orphan file, block {block}: inode {orphan} cannot be; run e2fsck"
                ));
            }
        }
    })?;
    if is_empty {
        // The kernel sets the mark while an image is mounted, whether it is true or not.
        let mut superblock = state.superblock.lock();
        let features = superblock.ro_compat() - RoCompat::ORPHAN_PRESENT;
        superblock.set_ro_compat(features);
    }
    Ok(())
}

/// An inode whose checksum is right.
fn sound_inode(state: &ExtState, ino: Ino) -> Result<Inode<InodeBytes>> {
    let inode = state.read_inode(ino)?;
    inode
        .verify_checksum(&state.inode_rules, disk_ino(ino)?)
        .map_err(|error| at(format_args!("inode {ino}"), error))?;
    Ok(inode)
}

/// Zeroes what lies behind the end of a file in its last block: it would show when the file grows.
/// What is encrypted stays, as in the kernel without the key.
fn zero_tail(state: &ExtState, ino: Ino, inode: &Inode<InodeBytes>, size_bytes: u64) -> Result<()> {
    let block_size = u64::from(state.geometry.block_size);
    let within = size_bytes % block_size;
    if within == 0 || inode.flags().contains(InodeFlags::ENCRYPT) {
        return Ok(());
    }
    let last = disk::LogicalBlock(size_bytes / block_size);
    let Some(block) = map::block_of(state, ino, inode, last)? else {
        return Ok(());
    };
    let zeros = vec![0; (block_size - within) as usize];
    let data = &state.data;
    data.write(BlockNo(block), within, &zeros, DataMode::Ordered)
}

/// What is left to be done for an orphan.
fn change(state: &ExtState, ino: Ino) -> Result<InodeChange> {
    let inode = sound_inode(state, ino)?;
    let place = || format!("inode {ino}");
    let kind = checked::convert_kind(inode.validate().map_err(|error| at(place(), error))?);
    let attributes = inode::attributes(state, ino, &inode, kind)?;
    let mut change = InodeChange {
        ino,
        is_created: false,
        link_state: LinkState::Freed,
        attributes,
        link_delta: 0,
        symlink: None,
        map: Vec::new(),
        xattrs: Vec::new(),
        inline: None,
    };
    if attributes.link_count > 0 {
        if kind != FileKind::Regular {
            return Err(Error::corrupt(format_args!(
                "{}: not a file, but has links",
                place()
            )));
        }
        let geometry = &state.geometry;
        let logical = LogicalBlock::not_before(attributes.size_bytes, geometry.block_size.into());
        change.link_state = LinkState::Linked;
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            // What lies behind the size is in the inode and goes with the next change.
            return Ok(change);
        }
        zero_tail(state, ino, &inode, attributes.size_bytes)?;
        let freed = logical.cluster_end(geometry.cluster_ratio.into());
        if freed > logical {
            change.map.push(MapChange::Convert {
                logical,
                length: freed - logical,
                to: ExtentState::Unwritten,
            });
        }
        change.map.push(MapChange::Unmap {
            logical: freed,
            length: LogicalBlock::MAX - freed,
        });
    }
    Ok(change)
}
