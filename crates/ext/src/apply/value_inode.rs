//! Values of extended attributes that lie in inodes of their own (ea_inode).
//!
//! Such an inode counts the entries that name it, of inodes and of attribute blocks, in its fields
//! of other use: the count in the time of change and the version, the value's hash in the access
//! time. With the last entry it goes. The kernel lets equal values share an inode; here each value
//! that is set gets one of its own, and what is shared already is counted down. On quotas it counts
//! for those who own the entries, not for the owner that it has ([`super::quota`]).
//!
//! The number of the inode and the blocks for the value were reserved by the operation that set it
//! ([`super::reservation`]).
//!
//! # References
//! Linux `Documentation/filesystems/ext4/attributes.rst`, `fs/ext4/xattr.c`.

use std::collections::BTreeMap;

use finefs_ext_disk::checksum::crc32c;
use finefs_ext_disk::inode::{FileKind, InodeFlags};
use finefs_ext_disk::xattr;
use finefs_ext_disk::{Ino as DiskIno, LogicalBlock, PhysBlock};
use finefs_namespace::Result;

use super::inode::{InodeEdit, InodeTable};
use super::map::{self, Run};
use super::space::Space;

/// A value in an inode, as an entry names it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) ino: DiskIno,
    pub(crate) size: u32,
    pub(crate) entry_hash: u32,
}

/// Values that are longer lie in inodes of their own (Linux `EXT4_XATTR_MIN_LARGE_EA_SIZE`).
pub(crate) fn inline_value_max(block_size: usize) -> usize {
    const SHORTEST_ENTRY: usize = 20;
    const HEADER: usize = 32;
    const END_MARK: usize = 4;
    block_size - SHORTEST_ENTRY - HEADER - END_MARK
}

/// Writes a value into a new inode, which one entry will name.
pub(crate) fn create(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    owner: &InodeEdit,
    name: &[u8],
    value: &[u8],
) -> Result<Stored> {
    let (number, generation) = space.allocate_inode()?;
    let indices = space.extend_table(number)?;
    table.prepare(number, indices)?;
    space.use_inode(number, false)?;
    let mut inode = table.create(number, generation);
    inode.disk.set_mode(FileKind::Regular.mode_bits() | 0o600);
    inode.disk.set_uid(owner.disk.uid());
    inode.disk.set_gid(owner.disk.gid());
    inode.disk.set_links_count(1);
    inode.disk.set_mtime(owner.disk.ctime());
    inode.disk.set_crtime(owner.disk.ctime());
    inode.disk.set_flags(InodeFlags::EA_INODE);
    if space.state.groups.has_extents() {
        let flags = InodeFlags::EA_INODE | InodeFlags::EXTENTS;
        inode.disk.set_flags(flags);
        map::extents::init_root(inode.disk.block_area_mut())?;
    }
    let hash = crc32c(space.state.fs_seed.0, value);
    inode.disk.set_value_hash(hash);
    inode.disk.set_value_references(1);
    let outcome = fill(space, &mut inode, value);
    let size = inode.disk.set_size(&table.rules, value.len() as u64);
    let settled = inode.settle_blocks(&table.rules);
    table.store(&mut inode)?;
    outcome.and(settled)?;
    size.map_err(|error| inode.damaged(error))?;
    Ok(Stored {
        ino: DiskIno(number),
        size: value.len() as u32,
        entry_hash: xattr::entry_hash_of_inode(name, hash),
    })
}

/// Writes the value into blocks of metadata: it is as old or as new as the entry that names it.
fn fill(space: &mut Space<'_>, inode: &mut InodeEdit, value: &[u8]) -> Result<()> {
    let block_bytes = space.state.buffers.block_size_bytes();
    let mut before = None;
    for (logical, piece) in (0..).map(LogicalBlock).zip(value.chunks(block_bytes)) {
        let goal = before.map_or(inode.goal(space), |before| before + 1);
        let physical = space.allocate_for(logical, before, goal)?;
        before = Some(physical);
        space.state.buffers.zeroed(physical)[..piece.len()].copy_from_slice(piece);
        let run = Run {
            logical,
            physical,
            length: 1,
            is_unwritten: false,
        };
        map::map(space, inode, run)?;
    }
    Ok(())
}

/// How many entries more or fewer name each inode.
#[derive(Default)]
pub(crate) struct Changes {
    by_ino: BTreeMap<u32, i64>,
}

impl Changes {
    pub(crate) fn add(&mut self, ino: DiskIno, entries: i64) {
        *self.by_ino.entry(ino.0).or_default() += entries;
    }

    /// Counts, and frees what no entry names any more. What cannot be freed leaks.
    pub(crate) fn apply(self, space: &mut Space<'_>, table: &mut InodeTable<'_>, now: u64) {
        for (ino, entries) in self.by_ino.into_iter().filter(|(_, entries)| *entries != 0) {
            let outcome = count(space, table, ino, entries, now);
            space.note_leak(outcome);
        }
    }
}

fn count(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    ino: u32,
    entries: i64,
    now: u64,
) -> Result<()> {
    let mut inode = table.load(ino)?;
    if !inode.disk.flags().contains(InodeFlags::EA_INODE) {
        return Err(inode.damaged("holds no attribute's value, but an entry says so"));
    }
    let before = inode.disk.value_references();
    let after = before.checked_add_signed(entries);
    let after = after.ok_or_else(|| inode.damaged("more entries than it counts name it"))?;
    inode.disk.set_value_references(after);
    if after > 0 {
        return table.store(&mut inode);
    }
    let unmapped = map::check(space.state, &inode)
        .and_then(|()| map::unmap(space, &mut inode, LogicalBlock::ALL));
    space.note_leak(unmapped);
    inode.disk.block_area_mut().fill(0);
    inode.blocks_delta = 0;
    let emptied = inode
        .disk
        .set_size(&table.rules, 0)
        .and_then(|()| inode.disk.set_blocks_512(&table.rules, 0))
        .and_then(|()| inode.disk.set_file_acl(&table.rules, PhysBlock(0)));
    emptied.map_err(|error| inode.damaged(error))?;
    inode.disk.set_links_count(0);
    inode.disk.set_dtime((now as u32).max(1));
    space.free_inode(ino, false);
    table.store(&mut inode)
}
