//! Extended attributes: in the inode, in a block of their own, and large values in inodes.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/attributes.rst`.

use std::collections::HashSet;

use finefs_buffers::BufferRead;
use finefs_ext_disk::acl;
use finefs_ext_disk::inode::Inode;
use finefs_ext_disk::xattr::{NameIndex, Xattr, XattrRegion, XattrValue, verify_block_checksum};
use finefs_namespace::{Error, Ino, Result};

use super::content::Owner;
use super::{checked, content};
use crate::error::at;
use crate::state::{ExtState, InodeBytes};

/// Loads all attributes that users can see: full names and values.
pub(crate) fn load(state: &ExtState, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let (inode, _) = checked::inode(state, ino)?;
    let mut attributes = Vec::new();
    let place = || format!("inode {ino}: attributes");
    let region = XattrRegion::in_inode(inode.xattr_bytes().unwrap_or_default())
        .map_err(|error| at(place(), error))?;
    for attribute in region.iter().flat_map(XattrRegion::entries) {
        attributes.extend(convert(state, Owner::of(ino, &inode), &attribute)?);
    }
    in_block(state, ino, &inode, &mut attributes)?;
    // The one in the inode counts where a name is in both places.
    let mut seen = HashSet::new();
    let is_first: Vec<bool> = attributes
        .iter()
        .map(|(name, _)| seen.insert(name.clone()))
        .collect();
    let mut is_first = is_first.into_iter();
    attributes.retain(|_| is_first.next().unwrap_or(true));
    Ok(attributes)
}

fn in_block(
    state: &ExtState,
    ino: Ino,
    inode: &Inode<InodeBytes>,
    attributes: &mut Vec<(Vec<u8>, Vec<u8>)>,
) -> Result<()> {
    let Some(bytes) = block_of(state, ino, inode)? else {
        return Ok(());
    };
    let place = format_args!("inode {ino}: attribute block");
    let region = XattrRegion::block(&bytes).map_err(|error| at(place, error))?;
    for attribute in region.entries() {
        attributes.extend(convert(state, Owner::of(ino, inode), &attribute)?);
    }
    Ok(())
}

/// The block of attributes that an inode has, its checksum compared; `None` where it has none.
pub(super) fn block_of<B: AsRef<[u8]>>(
    state: &ExtState,
    ino: Ino,
    inode: &Inode<B>,
) -> Result<Option<BufferRead>> {
    let block = inode.file_acl(&state.inode_rules);
    if block.0 == 0 {
        return Ok(None);
    }
    let place = || format!("inode {ino}: attribute block {block}");
    if !state.groups.can_own(&state.geometry, block.0, 1) {
        return Err(Error::corrupt(format_args!("{}: cannot be one", place())));
    }
    let bytes = state.buffers.read(block.0)?;
    if let Some(seed) = state.inode_rules.seed {
        verify_block_checksum(seed, block, &bytes).map_err(|error| at(place(), error))?;
    }
    Ok(Some(bytes))
}

/// Name and value as users see them; `None` for what they do not see.
fn convert(
    state: &ExtState,
    owner: Owner,
    attribute: &Xattr<'_>,
) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    if attribute.index == NameIndex::SYSTEM && attribute.name == b"data" {
        // The rest of inline data.
        return Ok(None);
    }
    let Some(name) = attribute.index.join(attribute.name) else {
        return Ok(None);
    };
    let mut value = match attribute.value {
        XattrValue::Bytes(bytes) => bytes.to_vec(),
        XattrValue::Inode {
            ino: value_ino,
            size,
            ..
        } => content::inode_value(state, owner, value_ino, size)?,
    };
    if matches!(
        attribute.index,
        NameIndex::POSIX_ACL_ACCESS | NameIndex::POSIX_ACL_DEFAULT
    ) {
        let place = format_args!("inode {}: ACL", owner.ino);
        value = acl::disk_to_user(&value).map_err(|error| at(place, error))?;
    }
    Ok(Some((name, value)))
}
