//! The bytes of small things: inline data, values in inodes of their own; and looking blocks up.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/inlinedata.rst`, `attributes.rst` (EA inodes).

use finefs_ext_disk as disk;
use finefs_ext_disk::checksum::crc32c;
use finefs_ext_disk::inode::{BLOCK_AREA_SIZE, Inode, InodeFlags};
use finefs_ext_disk::xattr::{NameIndex, XattrRegion, XattrValue};
use finefs_namespace::{Error, Extent, ExtentState, Ino, LogicalBlock, Result};

use super::map;
use crate::error::at;
use crate::state::{ExtState, disk_ino};

/// The longest value of an attribute that the kernel gives out (XATTR_SIZE_MAX).
const VALUE_MAX_BYTES: u64 = 64 << 10;

/// The block that holds a logical block's data; `None` for holes and unwritten blocks.
pub(crate) fn block_at(extents: &[Extent], logical: LogicalBlock) -> Option<u64> {
    let after = extents.partition_point(|extent| extent.logical <= logical);
    let extent = extents.get(after.checked_sub(1)?)?;
    let is_held = logical < extent.end() && extent.state == ExtentState::Written;
    is_held.then(|| extent.place_of(logical).0)
}

/// The first `size_bytes` of what lies inline: in `i_block`, then in the attribute "system.data".
pub(crate) fn inline<B: AsRef<[u8]>>(
    state: &ExtState,
    ino: Ino,
    inode: &Inode<B>,
    size_bytes: u64,
) -> Result<Vec<u8>> {
    let mut bytes = inode.block_area().to_vec();
    if size_bytes > BLOCK_AREA_SIZE as u64 {
        let area = inode.xattr_bytes().unwrap_or_default();
        let region = XattrRegion::in_inode(area)
            .map_err(|error| at(format_args!("inode {ino}: inline data"), error))?;
        let rest = region.and_then(|region| region.find(NameIndex::SYSTEM, b"data"));
        match rest.map(|rest| rest.value) {
            Some(XattrValue::Bytes(value)) => bytes.extend_from_slice(value),
            Some(XattrValue::Inode {
                ino: value_ino,
                size,
                ..
            }) => {
                bytes.extend(inode_value(state, Owner::of(ino, inode), value_ino, size)?);
            }
            None => {}
        }
    }
    if size_bytes > bytes.len() as u64 {
        return Err(Error::corrupt(format_args!(
            "inode {ino}: inline data: size {size_bytes}, but {} bytes are there",
            bytes.len()
        )));
    }
    bytes.truncate(size_bytes as usize);
    Ok(bytes)
}

/// How many bytes there are for inline data: `i_block` and the attribute "system.data".
pub(crate) fn inline_bytes<B: AsRef<[u8]>>(inode: &Inode<B>) -> u64 {
    let area = inode.xattr_bytes().unwrap_or_default();
    let region = XattrRegion::in_inode(area).ok().flatten();
    let rest = region.and_then(|region| region.find(NameIndex::SYSTEM, b"data"));
    let rest_bytes = match rest.map(|rest| rest.value) {
        Some(XattrValue::Bytes(value)) => value.len() as u64,
        Some(XattrValue::Inode { size, .. }) => u64::from(size),
        None => 0,
    };
    BLOCK_AREA_SIZE as u64 + rest_bytes
}

/// Whose attribute it is.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub ino: Ino,
    pub generation: u32,
}

impl Owner {
    pub(crate) fn of<B: AsRef<[u8]>>(ino: Ino, inode: &Inode<B>) -> Owner {
        Owner {
            ino,
            generation: inode.generation(),
        }
    }
}

/// The value of an attribute that lies in an inode of its own.
pub(crate) fn inode_value(
    state: &ExtState,
    owner: Owner,
    value_ino: disk::Ino,
    size: u32,
) -> Result<Vec<u8>> {
    let ino = Ino(u64::from(value_ino.0));
    let corrupt =
        |what: &str| Error::corrupt(format_args!("inode {ino}: attribute's value: {what}"));
    let size_bytes = u64::from(size);
    if size_bytes > VALUE_MAX_BYTES {
        return Err(corrupt("too long"));
    }
    let inode = state
        .read_inode(ino)
        .map_err(|_| corrupt("no such inode"))?;
    inode
        .verify_checksum(&state.inode_rules, disk_ino(ino)?)
        .map_err(|error| at(format_args!("inode {ino}"), error))?;
    if !inode.flags().contains(InodeFlags::EA_INODE) || inode.size(&state.inode_rules) != size_bytes
    {
        return Err(corrupt("the inode holds something else"));
    }
    let mapping = map::load(state, ino, &inode)?;
    let block_size = state.buffers.block_size_bytes();
    let mut bytes = Vec::with_capacity(size as usize);
    while bytes.len() < size as usize {
        let logical = LogicalBlock::of_byte(bytes.len() as u64, block_size as u64);
        let block = block_at(&mapping.extents, logical).ok_or_else(|| corrupt("a hole"))?;
        let left = size as usize - bytes.len();
        bytes.extend_from_slice(&state.buffers.read(block)?[..left.min(block_size)]);
    }
    let is_of_owner = || {
        // Lustre's have no hash, but name their owner.
        let named = inode.mtime().sec as u32;
        u64::from(named) == owner.ino.0 && inode.generation() == owner.generation
    };
    if inode.value_hash() != crc32c(state.fs_seed.0, &bytes) && !is_of_owner() {
        return Err(corrupt("its hash is wrong"));
    }
    Ok(bytes)
}
