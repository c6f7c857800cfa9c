//! Master keys, and what follows from them: the key of a file, and what its IVs are made of.
//!
//! References: Linux `fs/crypto/hkdf.c`, `fs/crypto/keysetup.c`; `fscrypt_generate_iv()`.

use std::fmt;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use finefs_ext_disk::fscrypt::{Policy, Scheme};
use hkdf::Hkdf;
use sha2::{Digest, Sha512};
use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

use super::mode::{KEY_BYTES_MAX, Mode};
use super::unit::{Iv, UnitCipher};
use crate::crypt::{KEY_BYTES, Why, hex};

/// What a key is derived for (Linux `HKDF_CONTEXT_*`).
#[derive(Clone, Copy)]
enum Purpose {
    Identifier = 1,
    File = 2,
    Direct = 3,
    InoLblk64 = 4,
    DirectoryHash = 5,
    InoLblk32 = 6,
    InodeHash = 7,
}

/// The key of policies of version 2 (fscrypt), which is wiped when nobody holds it any more.
#[derive(Clone)]
pub struct MasterKey {
    identifier: [u8; 16],
    raw: Arc<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", hex(&self.identifier))
    }
}

impl MasterKey {
    /// The key that these bytes are; `None` unless they are 16 to 64.
    pub fn new(raw: &[u8]) -> Option<MasterKey> {
        if !KEY_BYTES.contains(&raw.len()) {
            return None;
        }
        let mut key = MasterKey {
            identifier: [0; 16],
            raw: Arc::new(Zeroizing::new(raw.to_vec())),
        };
        let mut identifier = [0; 16];
        key.derive(Purpose::Identifier, &[], &mut identifier);
        key.identifier = identifier;
        Some(key)
    }

    /// The key that a file holds, in binary, as `fscryptctl add_key` takes it.
    ///
    /// # Errors
    /// Those of reading it, and `InvalidData` unless it has 16 to 64 bytes.
    pub fn from_file(path: &Path) -> io::Result<MasterKey> {
        let most = *KEY_BYTES.end() as u64 + 1;
        let mut raw = Zeroizing::new(Vec::with_capacity(most as usize));
        File::open(path)?.take(most).read_to_end(&mut raw)?;
        MasterKey::new(&raw).ok_or_else(|| {
            let what = "is no key: it has 16 to 64 bytes, in binary";
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }

    /// What policies name it by.
    pub fn identifier(&self) -> [u8; 16] {
        self.identifier
    }

    /// A nonce that follows from the file system and these numbers.
    pub(in crate::crypt) fn nonce(&self, uuid: &[u8; 16], numbers: &[u64]) -> [u8; 16] {
        let mut hash = Sha512::new_with_prefix(uuid);
        for number in numbers {
            hash.update(number.to_le_bytes());
        }
        let hash = hash.finalize();
        std::array::from_fn(|at| hash[at])
    }

    /// HKDF-SHA512 without salt.
    fn derive(&self, purpose: Purpose, what: &[&[u8]], key: &mut [u8]) {
        let hkdf = Hkdf::<Sha512>::new(None, &self.raw);
        let purpose = [purpose as u8];
        let info = [&[b"fscrypt\0".as_slice(), &purpose], what].concat();
        let derived = hkdf.expand_multi_info(&info, key);
        debug_assert!(derived.is_ok(), "no key is longer than 255 hashes");
    }

    /// What encrypts a file by a mode, and what its IVs begin with.
    pub(super) fn cipher(
        &self,
        mode: Mode,
        scheme: Scheme,
        file: &FileIdentity<'_>,
    ) -> Result<(Box<dyn UnitCipher>, IvBase), Why> {
        let strength_bytes = mode.strength_bytes();
        let mut bytes = Zeroizing::new([0; KEY_BYTES_MAX]);
        let key = &mut bytes[..mode.key_bytes()];
        if self.raw.len() < strength_bytes {
            return Err(Why::ShortKey(strength_bytes));
        }
        let base = self.file_key(mode, scheme, file, key);
        let cipher = mode.cipher(key);
        let cipher = cipher.map_err(|_| Why::ShortKey(strength_bytes))?;
        Ok((cipher, base))
    }

    fn file_key(
        &self,
        mode: Mode,
        scheme: Scheme,
        file: &FileIdentity<'_>,
        key: &mut [u8],
    ) -> IvBase {
        let mode = [mode.number()];
        match scheme {
            Scheme::PerFile => {
                self.derive(Purpose::File, &[file.nonce], key);
                IvBase::Zero
            }
            Scheme::Direct => {
                self.derive(Purpose::Direct, &[&mode], key);
                IvBase::Nonce(*file.nonce)
            }
            Scheme::InoLblk64 => {
                self.derive(Purpose::InoLblk64, &[&mode, file.uuid], key);
                IvBase::Ino(file.ino)
            }
            Scheme::InoLblk32 => {
                self.derive(Purpose::InoLblk32, &[&mode, file.uuid], key);
                IvBase::Hash(self.hash_of(file.ino))
            }
        }
    }

    fn hash_of(&self, ino: u32) -> u32 {
        let mut key = [0; 16];
        self.derive(Purpose::InodeHash, &[], &mut key);
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write_u64(u64::from(ino));
        hasher.finish() as u32
    }

    /// The key of the hashes of a directory's names.
    pub(super) fn directory_hash_key(&self, nonce: &[u8; 16]) -> Zeroizing<[u8; 16]> {
        let mut key = Zeroizing::new([0; 16]);
        self.derive(Purpose::DirectoryHash, &[nonce], &mut key[..]);
        key
    }
}

/// What a file's keys follow from, beside the master key.
pub(crate) struct FileIdentity<'a> {
    pub policy: &'a Policy,
    pub nonce: &'a [u8; 16],
    pub ino: u32,
    /// Of the file system.
    pub uuid: &'a [u8; 16],
}

/// What numbers of units are joined with, to make an IV.
#[derive(Clone, Copy)]
pub(super) enum IvBase {
    Zero,
    Ino(u32),
    Hash(u32),
    Nonce([u8; 16]),
}

impl IvBase {
    pub fn iv(self, index: u64) -> Iv {
        let mut iv = Iv::default();
        let low = match self {
            IvBase::Zero => index,
            IvBase::Ino(ino) => index | u64::from(ino) << 32,
            IvBase::Hash(hash) => u64::from((index as u32).wrapping_add(hash)),
            IvBase::Nonce(nonce) => {
                iv[8..24].copy_from_slice(&nonce);
                index
            }
        };
        iv[..8].copy_from_slice(&low.to_le_bytes());
        iv
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::bytes;
    use super::*;

    /// The key and identifier of xfstests (`common/encrypt`).
    #[test]
    fn identifiers_are_the_kernels() {
        let raw: Vec<u8> = (1..=64).collect();
        let key = MasterKey::new(&raw).expect("a key");
        let expected = bytes::<16>("69b2f6edeee720cce0577937eb8a6751");
        assert_eq!(key.identifier(), expected);
        let shown = "MasterKey(69b2f6edeee720cce0577937eb8a6751)";
        assert_eq!(format!("{key:?}"), shown);
        assert!(MasterKey::new(&[1; 15]).is_none() && MasterKey::new(&[1; 65]).is_none());
    }

    /// The number of the inode lies above that of the unit, the nonce behind it.
    #[test]
    fn ivs_hold_numbers_and_nonces() {
        let ivs = [
            (IvBase::Zero, "0300000000000000"),
            (IvBase::Ino(2), "0300000002000000"),
            (IvBase::Hash(u32::MAX), "0200000000000000"),
        ];
        for (base, low) in ivs {
            let iv = base.iv(3);
            assert_eq!((&iv[..8], &iv[8..]), (&bytes::<8>(low)[..], &[0; 24][..]));
        }
        let iv = IvBase::Nonce([7; 16]).iv(3);
        assert_eq!(iv[..8], bytes::<8>("0300000000000000"));
        assert_eq!((&iv[8..24], &iv[24..]), (&[7; 16][..], &[0; 8][..]));
    }
}
