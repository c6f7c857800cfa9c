//! Targets of symbolic links: in the inode (up to 59 bytes), inline, or in a block.

use finefs_ext_disk::fscrypt;
use finefs_ext_disk::inode::InodeFlags;
use finefs_ext_disk::nokey;
use finefs_namespace::{Error, FileKind, Ino, LogicalBlock, Result};

use super::{checked, content, encryption, map};
use crate::crypt::{FileCipher, Protection};
use crate::state::ExtState;

/// Loads the target of a symbolic link.
pub(crate) fn load(state: &ExtState, ino: Ino) -> Result<Vec<u8>> {
    let (inode, kind) = checked::inode(state, ino)?;
    if kind != FileKind::Symlink {
        return Err(Error::Invalid);
    }
    let flags = inode.flags();
    let rules = &state.inode_rules;
    let size_bytes = inode.size(rules);
    let corrupt =
        |what: &dyn std::fmt::Display| Error::corrupt(format_args!("inode {ino}: symlink: {what}"));
    if size_bytes == 0 || size_bytes > u64::from(state.geometry.block_size) {
        return Err(corrupt(&format_args!("length {size_bytes}")));
    }
    let target = if let Some(target) = inode.fast_symlink_target(rules) {
        target.to_vec()
    } else if flags.contains(InodeFlags::INLINE_DATA) {
        content::inline(state, ino, &inode, size_bytes)?
    } else {
        let mapping = map::load(state, ino, &inode)?;
        let block = content::block_at(&mapping.extents, LogicalBlock(0))
            .ok_or_else(|| corrupt(&"no block holds the target"))?;
        state.buffers.read(block)?[..size_bytes as usize].to_vec()
    };
    if flags.contains(InodeFlags::ENCRYPT) {
        let target = match encryption::protection(state, ino)? {
            Protection::Open(cipher) => opened(&cipher, &target),
            _ => nokey::shown_target(&target),
        };
        return target.ok_or_else(|| corrupt(&"the encrypted target is damaged"));
    }
    match target.contains(&0) {
        true => Err(corrupt(&"the target holds a NUL")),
        false => Ok(target),
    }
}

/// The target that is stored like this: its length, and the encrypted text.
fn opened(cipher: &FileCipher, stored: &[u8]) -> Option<Vec<u8>> {
    let (length, text) = stored.split_first_chunk::<{ fscrypt::TARGET_HEADER_SIZE }>()?;
    let text = text.get(..usize::from(u16::from_le_bytes(*length)))?;
    cipher.names()?.decrypt(text)
}
