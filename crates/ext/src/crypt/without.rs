//! In place of [`cipher`](super) where the crates of ciphers are left out: there are no keys.

use std::io;
use std::path::Path;

use finefs_ext_disk::dirhash::DirHash;
use finefs_ext_disk::fscrypt::Policy;

use super::Why;

/// A key of encrypted files, of which there is none in this build (the feature `fscrypt`).
#[derive(Clone, Debug)]
pub enum MasterKey {}

impl MasterKey {
    /// No bytes are a key here.
    pub fn new(_: &[u8]) -> Option<MasterKey> {
        None
    }

    /// No file holds a key here: `Unsupported`.
    pub fn from_file(_: &Path) -> io::Result<MasterKey> {
        let what = "keys are not supported by this build (feature fscrypt)";
        Err(io::Error::new(io::ErrorKind::Unsupported, what))
    }

    pub(super) fn nonce(&self, _: &[u8; 16], _: &[u64]) -> [u8; 16] {
        match *self {}
    }

    /// What policies name it by.
    pub fn identifier(&self) -> [u8; 16] {
        match *self {}
    }
}

pub(crate) struct FileIdentity<'a> {
    pub policy: &'a Policy,
    pub nonce: &'a [u8; 16],
    pub ino: u32,
    pub uuid: &'a [u8; 16],
}

pub(crate) enum ContentCipher {}

impl ContentCipher {
    pub fn new(key: &MasterKey, _: &FileIdentity<'_>, _: usize) -> Result<ContentCipher, Why> {
        match *key {}
    }

    pub fn encrypt(&self, _: u64, _: &mut [u8]) {
        match *self {}
    }

    pub fn decrypt(&self, _: u64, _: &mut [u8]) {
        match *self {}
    }
}

pub(crate) enum NameCipher {}

impl NameCipher {
    pub fn new(key: &MasterKey, _: &FileIdentity<'_>) -> Result<NameCipher, Why> {
        match *key {}
    }

    pub fn hash(&self, _: &[u8]) -> DirHash {
        match *self {}
    }

    pub fn encrypt(&self, _: &[u8], _: usize) -> Option<Vec<u8>> {
        match *self {}
    }

    pub fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        match *self {}
    }
}
