//! What comes to be in encrypted directories: it has the directory's policy, and a nonce of its
//! own.

use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::fscrypt::{Context, Policy, TARGET_HEADER_SIZE};
use finefs_namespace::{Error, FileFlags, FileKind, Ino, Result};

use crate::apply;
use crate::crypt::{Keyring, KnownFile, Presence, Protection};
use crate::load::encryption;
use crate::state::{ExtState, disk_ino};

/// Names of new encrypted directories are padded to this: as little as can be told of them.
const PADDING_BYTES: usize = 32;

/// An inode of fewer bytes has no room for a context.
const INODE_BYTES_MIN: u16 = 256;

/// Gets ready that an inode comes to be in a directory, or that one number has nothing any more.
pub(crate) fn begin(
    state: &ExtState,
    keyring: &Keyring,
    dir: Ino,
    (ino, generation): (Ino, u32),
    kind: FileKind,
) -> Result<()> {
    let has_context = FileFlags::ENCRYPTED.inherited_by(kind) == FileFlags::ENCRYPTED;
    let dir = match has_context {
        true => encryption::known(state, keyring, dir)?,
        false => KnownFile::plain(Presence::New),
    };
    let (Protection::Open(_), Some(Context::Current { policy, .. })) =
        (&dir.protection, &dir.context)
    else {
        keyring.note(ino, KnownFile::plain(Presence::New));
        return Ok(());
    };
    let nonce = match state.bulk_load {
        Some(_) => keyring.repeatable_nonce(ino, generation),
        None => random_nonce()?,
    };
    note_new(keyring, ino, kind, (*policy, nonce))
}

/// See [`Store::begin_encryption`](finefs_namespace::Store::begin_encryption).
pub(crate) fn begin_directory(state: &ExtState, dir: Ino, xattrs: &[(&[u8], &[u8])]) -> Result<()> {
    let Some(keyring) = &state.keyring else {
        let may_be_encrypted = (state.superblock.lock().incompat()).contains(Incompat::ENCRYPT);
        return Err(match may_be_encrypted {
            true => Error::NoKey,
            false => Error::NotSupported,
        });
    };
    if state.geometry.inode_size < INODE_BYTES_MIN {
        return Err(Error::NotSupported);
    }
    let policy = keyring.new_policy(PADDING_BYTES).ok_or(Error::Invalid)?;
    let nonce = match state.bulk_load {
        Some(_) => keyring.repeatable_nonce(dir, 0),
        None => random_nonce()?,
    };
    let before = keyring.known(dir);
    note_new(keyring, dir, FileKind::Directory, (policy, nonce))?;
    let is_open = || match encryption::protection(state, dir)? {
        Protection::Open(_) => apply::check_xattrs(state, dir, None, xattrs).map(|_| ()),
        Protection::Plain | Protection::Locked => Err(Error::NoKey),
    };
    is_open().inspect_err(|_| {
        keyring.forget(dir);
        // It may not be on the image yet.
        before.into_iter().for_each(|file| keyring.note(dir, file));
    })
}

fn note_new(
    keyring: &Keyring,
    ino: Ino,
    kind: FileKind,
    (policy, nonce): (Policy, [u8; 16]),
) -> Result<()> {
    let context = Context::Current { policy, nonce };
    let is_regular = kind == FileKind::Regular;
    let file = KnownFile {
        protection: keyring.protection(&context, disk_ino(ino)?.0, is_regular),
        context: Some(context),
        presence: Presence::New,
    };
    keyring.note(ino, file);
    Ok(())
}

fn random_nonce() -> Result<[u8; 16]> {
    let mut nonce = [0; 16];
    let filled = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(length) if length == nonce.len() => Ok(nonce),
        _ => Err(Error::io("the system gives no random bytes")),
    }
}

/// See [`Store::check_encrypted`](finefs_namespace::Store::check_encrypted).
pub(crate) fn check(state: &ExtState, dir: Ino) -> Result<()> {
    match encryption::protection(state, dir)? {
        Protection::Open(_) if state.geometry.inode_size < INODE_BYTES_MIN => {
            Err(Error::NotSupported)
        }
        Protection::Open(_) => Ok(()),
        Protection::Plain | Protection::Locked => Err(Error::NoKey),
    }
}

/// See [`Store::may_name_encrypted`](finefs_namespace::Store::may_name_encrypted).
pub(crate) fn may_name(state: &ExtState, dir: Ino, ino: Ino) -> Result<bool> {
    let keyring = state.keyring.as_ref().ok_or(Error::NoKey)?;
    let dir = encryption::known(state, keyring, dir)?.context;
    let named = encryption::known(state, keyring, ino)?.context;
    Ok(dir.zip(named).is_some_and(|(a, b)| a.has_policy_of(&b)))
}

/// See [`Store::encrypted_target_bytes`](finefs_namespace::Store::encrypted_target_bytes).
pub(crate) fn target_bytes(state: &ExtState, dir: Ino, length_bytes: u32) -> Result<u32> {
    let keyring = state.keyring.as_ref().ok_or(Error::NoKey)?;
    let Some(Context::Current { policy, .. }) = encryption::known(state, keyring, dir)?.context
    else {
        return Err(Error::NoKey);
    };
    let stored = policy.stored_length(length_bytes as usize, keyring.target_max());
    let stored = stored.ok_or(Error::NameTooLong)?;
    Ok((TARGET_HEADER_SIZE + stored) as u32)
}
