//! What an inode record says beyond what a batch does: the fields of the inode, but for what
//! depends on where its blocks and names lie. Of an inode that holds its data a record has the
//! attributes, too: these are as the batch has put them.

use finefs_ext_disk as disk;
use finefs_ext_disk::inode::{FileKind, INODE_SIZE_MIN, Inode, InodeFlags, block_area_copy};
use finefs_namespace::{Ino, Result};

use crate::error::at;
use crate::state::ExtState;

/// Flags that say how blocks and names are kept.
const KEPT: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::INDEX)
    .union(InodeFlags::HUGE_FILE)
    .union(InodeFlags::INLINE_DATA);

/// Copies a record over an inode that the batch has put into its final state.
pub(super) fn copy(state: &ExtState, ino: u32, record: &[u8]) -> Result<()> {
    let location = state.inode_location(Ino(u64::from(ino)))?;
    let mut buffer = state.buffers.modify(location.block)?;
    let range = location.offset_bytes..location.offset_bytes + location.size_bytes;
    let wrong = |error| at(format_args!("inode {ino}"), error);
    let rules = &state.inode_rules;
    let mut inode = Inode::new(buffer.get_mut(range).unwrap_or_default()).map_err(wrong)?;
    let area = block_area_copy(&inode);
    let (links, flags) = (inode.links_count(), inode.flags());
    let (sectors, size, acl) = (
        inode.blocks_512(rules),
        inode.size(rules),
        inode.file_acl(rules),
    );
    let extra = Inode::new(record).map_err(wrong)?.extra_isize();
    let fields = INODE_SIZE_MIN + usize::from(extra);
    let length = fields.min(record.len()).min(location.size_bytes);
    inode.copy_from(&record[..length]);
    inode.set_flags((inode.flags() - KEPT) | (flags & KEPT));
    inode.set_links_count(links);
    inode.set_dtime(0);
    inode.block_area_mut().copy_from_slice(&area);
    inode.set_blocks_512(rules, sectors).map_err(wrong)?;
    inode.set_file_acl(rules, acl).map_err(wrong)?;
    if inode.kind() == Some(FileKind::Directory) {
        inode.set_size(rules, size).map_err(wrong)?;
    }
    inode.update_checksum(rules, disk::Ino(ino));
    Ok(())
}
