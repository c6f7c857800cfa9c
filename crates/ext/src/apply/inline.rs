//! Content of a file in its inode: in `i_block`, and the rest in the attribute "system.data".
//!
//! # References
//! Linux `fs/ext4/inline.c`, `Documentation/filesystems/ext4/inlinedata.rst`.

use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::inode::{BLOCK_AREA_SIZE, INODE_SIZE_MIN, InodeFlags};
use finefs_ext_disk::superblock::Superblock;
use finefs_ext_disk::xattr;
use finefs_namespace::{InlineChange, Result};

use super::inode::{InodeEdit, extra_isize};
use super::map;
use super::xattrs::InlineValue;

/// Applies what a batch says of a content in the inode, but for the attribute: what becomes of that
/// is given back, to be changed together with the others.
pub(crate) fn apply<'c>(
    inode: &mut InodeEdit,
    change: Option<&'c InlineChange>,
    has_extents: bool,
) -> Result<InlineValue<'c>> {
    match change {
        None => Ok(InlineValue::Unchanged),
        Some(InlineChange::Content(content)) => {
            let (first, rest) = content.split_at(content.len().min(BLOCK_AREA_SIZE));
            enter(inode);
            inode.disk.block_area_mut()[..first.len()].copy_from_slice(first);
            Ok(InlineValue::Set(rest))
        }
        Some(InlineChange::Moved) if !inode.holds_inline_data() => Ok(InlineValue::Unchanged),
        Some(InlineChange::Moved) => {
            leave(inode, has_extents)?;
            Ok(InlineValue::Removed)
        }
    }
}

/// Contents up to this length may lie in new inodes; 0 where none do.
pub(crate) fn max_bytes(superblock: &Superblock, inode_size: u16) -> u32 {
    if !superblock.incompat().contains(Incompat::INLINE_DATA) {
        return 0;
    }
    let extra = extra_isize(inode_size, superblock.want_extra_isize());
    let area = usize::from(inode_size).saturating_sub(INODE_SIZE_MIN + usize::from(extra));
    xattr::inline_value_max(area, &[]).map_or(0, |value| (BLOCK_AREA_SIZE + value) as u32)
}

/// Makes an inode without blocks one that holds its data; `i_block` is zeroed.
pub(crate) fn enter(inode: &mut InodeEdit) {
    let flags = (inode.disk.flags() - InodeFlags::EXTENTS) | InodeFlags::INLINE_DATA;
    inode.disk.set_flags(flags);
    inode.disk.block_area_mut().fill(0);
}

/// Makes an inode that holds its data one with an empty map.
pub(crate) fn leave(inode: &mut InodeEdit, has_extents: bool) -> Result<()> {
    inode
        .disk
        .set_flags(inode.disk.flags() - InodeFlags::INLINE_DATA);
    inode.disk.block_area_mut().fill(0);
    if has_extents {
        inode
            .disk
            .set_flags(inode.disk.flags() | InodeFlags::EXTENTS);
        map::extents::init_root(inode.disk.block_area_mut())?;
    }
    Ok(())
}
