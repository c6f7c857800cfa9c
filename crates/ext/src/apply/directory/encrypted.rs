//! Encrypted directories. With the key their names are encrypted, and then written as others are.
//! Where they fold case too, the hash of a name is that of its plain form, made with a key, and
//! follows it in its entry.
//!
//! Without the key names are removed, and nothing else is done. The names that go are given as they
//! are shown. All blocks are searched for them: an index leads to a name by what is stored.

use std::collections::HashSet;
use std::sync::Arc;

use finefs_ext_disk::LogicalBlock;
use finefs_ext_disk::dirent::{DirBlock, NAME_MAX, TAIL_SIZE, encode_rec_len};
use finefs_ext_disk::dirhash::{DirHash, DirHasher};
use finefs_ext_disk::nokey::{self, RawEntry};
use finefs_namespace::Result;

use super::{Directory, FIRST, NameChange};
use crate::crypt::FileCipher;
use crate::load::nokey_names::NokeyNames;

/// What hashes the names of an indexed directory as they are stored.
#[derive(Clone)]
pub(super) enum NameHasher {
    Plain(DirHasher),
    Keyed(Arc<FileCipher>),
}

impl NameHasher {
    /// `None` for what does not become a name by decryption.
    pub(super) fn hash(&self, stored: &[u8]) -> Option<DirHash> {
        match self {
            NameHasher::Plain(hasher) => Some(hasher.hash(stored)),
            NameHasher::Keyed(cipher) => {
                let names = cipher.names()?;
                Some(names.hash(&names.decrypt(stored)?))
            }
        }
    }
}

impl Directory<'_, '_> {
    /// Changes of names as they are stored.
    pub(super) fn encrypted(
        &self,
        cipher: &FileCipher,
        changes: Vec<NameChange>,
    ) -> Result<Vec<NameChange>> {
        let encrypted = changes.into_iter().map(|(name, target)| {
            let names = cipher.names();
            let stored = names.and_then(|names| names.encrypt(&name, NAME_MAX));
            let stored = stored.ok_or_else(|| self.inode.damaged("a name cannot be encrypted"))?;
            Ok((stored.into_boxed_slice(), target))
        });
        encrypted.collect()
    }

    /// Removes names.
    pub(super) fn remove_encrypted(&mut self, changes: &[NameChange]) -> Result<()> {
        if changes.iter().any(|(_, target)| target.is_some()) {
            return Err(self
                .inode
                .damaged("no key for a name of an encrypted directory"));
        }
        let mut names: HashSet<&[u8]> = changes.iter().map(|(name, _)| &**name).collect();
        let first = self.state().buffers.read(self.place(FIRST)?)?;
        let shown = NokeyNames::of(self.state(), &self.inode.disk, Some(&first));
        let shown = shown.ok_or_else(|| self.inode.damaged("no hash for encrypted names"))?;
        drop(first);
        for logical in (0..self.blocks).map(LogicalBlock) {
            if names.is_empty() {
                break;
            }
            if self.physical(logical).is_some() {
                self.remove_from(logical, &shown, &mut names)?;
            }
        }
        Ok(())
    }

    fn remove_from(
        &mut self,
        logical: LogicalBlock,
        shown: &NokeyNames,
        names: &mut HashSet<&[u8]>,
    ) -> Result<()> {
        let block = self.place(logical)?;
        let bytes = self.state().buffers.read(block)?;
        // The root of an index and its nodes look like blocks without names, and have no tail.
        let found = self.found_in(&bytes, shown, names);
        if found.is_empty() {
            return Ok(());
        }
        self.read_leaf(logical)?;
        let mut buffer = self.state().buffers.modify(block)?;
        let size = buffer.len();
        for (before, offset, rec_len) in found {
            match before {
                // The entry before it takes its space.
                Some((start, own)) => {
                    let raw = encode_rec_len(own + rec_len, size).to_le_bytes();
                    buffer[start + 4..start + 6].copy_from_slice(&raw);
                }
                None => buffer[offset..offset + 4].fill(0),
            }
        }
        if let Some(seed) = self.inode.seed {
            let mut block = DirBlock::new(&mut buffer[..], self.format.rules)
                .map_err(|error| self.inode.damaged(error))?;
            block.update_checksum(seed);
        }
        Ok(())
    }

    /// The entries of a block that go, from its end on: what is before each in the block, its place
    /// and its length.
    fn found_in(
        &self,
        bytes: &[u8],
        shown: &NokeyNames,
        names: &mut HashSet<&[u8]>,
    ) -> Vec<Removed> {
        let tail = if self.format.rules.has_tail {
            TAIL_SIZE
        } else {
            0
        };
        let Ok(entries) = nokey::entries(bytes, bytes.len() - tail) else {
            return Vec::new();
        };
        let mut kept: Vec<(usize, usize)> = Vec::new();
        let mut found = Vec::new();
        for entry in &entries {
            let goes = entry.is_name() && names.remove(&shown.shown(entry)[..]);
            let RawEntry {
                offset, rec_len, ..
            } = *entry;
            match (goes, kept.last_mut()) {
                (true, Some(before)) => {
                    found.push((Some(*before), offset, rec_len));
                    before.1 += rec_len;
                }
                (true, None) => {
                    found.push((None, offset, rec_len));
                    kept.push((offset, rec_len));
                }
                (false, _) => kept.push((offset, rec_len)),
            }
        }
        found
    }
}

type Removed = (Option<(usize, usize)>, usize, usize);
