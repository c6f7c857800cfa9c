//! How files are encrypted, by the contexts that they have.

use std::sync::Arc;

use finefs_ext_disk::fscrypt::{self, Context};
use finefs_ext_disk::inode::{FileKind, Inode, InodeFlags};
use finefs_ext_disk::xattr::{NameIndex, XattrRegion, XattrValue};
use finefs_namespace::{Error, Ino, Result};

use super::{checked, xattr};
use crate::crypt::{FileCipher, Keyring, KnownFile, Presence, Protection};
use crate::error::at;
use crate::state::{ExtState, disk_ino};

/// Whether a file can be read, where the image has keys. Without any nothing is encrypted that
/// anybody could read.
pub(crate) fn protection(state: &ExtState, ino: Ino) -> Result<Protection> {
    match &state.keyring {
        Some(keyring) => known(state, keyring, ino).map(|file| file.protection),
        None => Ok(Protection::Locked),
    }
}

/// What encrypts the content of a file, if anything does.
pub(crate) fn of_content(state: &ExtState, ino: Ino) -> Result<Option<Arc<FileCipher>>> {
    let Some(keyring) = &state.keyring else {
        return Ok(None);
    };
    match known(state, keyring, ino)?.protection {
        Protection::Plain => Ok(None),
        Protection::Locked => Err(Error::NoKey),
        Protection::Open(cipher) => Ok(Some(cipher)),
    }
}

/// What is known of a file.
pub(crate) fn known(state: &ExtState, keyring: &Keyring, ino: Ino) -> Result<KnownFile> {
    match keyring.known(ino) {
        Some(file) => Ok(file),
        None => {
            let (inode, _) = checked::inode(state, ino)?;
            known_by(state, keyring, ino, &inode)
        }
    }
}

/// The same by who has the inode.
pub(crate) fn known_by<B: AsRef<[u8]>>(
    state: &ExtState,
    keyring: &Keyring,
    ino: Ino,
    inode: &Inode<B>,
) -> Result<KnownFile> {
    if let Some(file) = keyring.known(ino) {
        return Ok(file);
    }
    let file = match inode.flags().contains(InodeFlags::ENCRYPT) {
        true => {
            let context = context(state, ino, inode)?;
            let is_regular = inode.kind() == Some(FileKind::Regular);
            KnownFile {
                protection: keyring.protection(&context, disk_ino(ino)?.0, is_regular),
                context: Some(context),
                presence: Presence::OnImage,
            }
        }
        false => KnownFile::plain(Presence::OnImage),
    };
    keyring.note(ino, file.clone());
    Ok(file)
}

/// The context of a file; `None` of one that is not encrypted.
pub(crate) fn context_of<B: AsRef<[u8]>>(
    state: &ExtState,
    ino: Ino,
    inode: &Inode<B>,
) -> Result<Option<Context>> {
    let is_encrypted = inode.flags().contains(InodeFlags::ENCRYPT);
    is_encrypted.then(|| context(state, ino, inode)).transpose()
}

/// Reads the context of an encrypted file.
fn context<B: AsRef<[u8]>>(state: &ExtState, ino: Ino, inode: &Inode<B>) -> Result<Context> {
    let place = || format!("inode {ino}: encryption context");
    let parsed = |region: &XattrRegion<'_>| {
        let found = region.find(NameIndex::ENCRYPTION, fscrypt::XATTR_NAME)?;
        match found.value {
            XattrValue::Bytes(bytes) => Some(Context::parse(bytes)),
            XattrValue::Inode { .. } => None,
        }
    };
    let area = inode.xattr_bytes().unwrap_or_default();
    let region = XattrRegion::in_inode(area).map_err(|error| at(place(), error))?;
    let in_inode = region.as_ref().and_then(parsed);
    let found = match (in_inode, xattr::block_of(state, ino, inode)?) {
        (Some(context), _) => Some(context),
        (None, Some(bytes)) => {
            let region = XattrRegion::block(&bytes).map_err(|error| at(place(), error))?;
            parsed(&region)
        }
        (None, None) => None,
    };
    let context = found.ok_or_else(|| Error::corrupt(format_args!("{}: is missing", place())))?;
    context.map_err(|error| at(place(), error))
}
