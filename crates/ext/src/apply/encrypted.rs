//! Encrypted files: the context of a new one; what encrypts names and targets.

use std::sync::Arc;

use finefs_ext_disk::fscrypt::{self, Context};
use finefs_ext_disk::inode::InodeFlags;
use finefs_ext_disk::xattr::{self, NameIndex, Xattr, XattrValue};
use finefs_namespace::{Ino, Result};

use super::inode::{InodeEdit, InodeTable};
use super::space::Space;
use super::xattrs;
use crate::crypt::{FileCipher, Protection};
use crate::load::encryption;
use crate::state::ExtState;

/// Gives a new inode, which has no attributes yet, its context.
pub(super) fn create(state: &ExtState, inode: &mut InodeEdit) -> Result<()> {
    let ino = Ino(u64::from(inode.ino));
    let keyring = state.keyring.as_ref();
    let context = keyring.and_then(|keyring| keyring.take_new(ino));
    let bytes = context.as_ref().and_then(Context::bytes);
    let bytes = bytes.ok_or_else(|| inode.damaged("it has no encryption context"))?;
    let flags = inode.disk.flags() | InodeFlags::ENCRYPT;
    inode.disk.set_flags(flags);
    let context = Xattr {
        index: NameIndex::ENCRYPTION,
        name: fscrypt::XATTR_NAME,
        value: XattrValue::Bytes(&bytes),
    };
    let area = inode.disk.xattr_bytes_mut().unwrap_or_default();
    let built = xattr::build_in_inode(area, &[context]);
    built.map_err(|error| inode.damaged(error))
}

/// Gives a directory that is there and has no names its context; it has left its inode.
pub(super) fn begin(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
) -> Result<()> {
    let keyring = space.state.keyring.as_ref();
    let context = keyring.and_then(|keyring| keyring.take_new(Ino(u64::from(inode.ino))));
    let bytes = context.as_ref().and_then(Context::bytes);
    let bytes = bytes.ok_or_else(|| inode.damaged("it has no encryption context"))?;
    let flags = inode.disk.flags() | InodeFlags::ENCRYPT;
    inode.disk.set_flags(flags);
    xattrs::set_context(space, table, inode, &bytes)
}

/// The target of a new link as it is stored.
pub(super) fn target(state: &ExtState, inode: &InodeEdit, target: &[u8]) -> Result<Vec<u8>> {
    let cipher = cipher(state, inode)?;
    let keyring = state.keyring.as_ref();
    let stored = keyring
        .zip(cipher)
        .and_then(|(keyring, cipher)| keyring.stored_target(&cipher, target));
    stored.ok_or_else(|| inode.damaged("its target cannot be encrypted"))
}

/// What encrypts the names of a directory or the target of a link; `None` without the key.
pub(super) fn cipher(state: &ExtState, inode: &InodeEdit) -> Result<Option<Arc<FileCipher>>> {
    let Some(keyring) = &state.keyring else {
        return Ok(None);
    };
    let ino = Ino(u64::from(inode.ino));
    match encryption::known_by(state, keyring, ino, &inode.disk)?.protection {
        Protection::Open(cipher) => Ok(Some(cipher)),
        Protection::Plain | Protection::Locked => Ok(None),
    }
}
