//! Keys and ciphers: from a master key to a file's key, and what is done with it.
//!
//! | Module | What |
//! |---|---|
//! | `key` | master keys, keys of files, IVs |
//! | `mode` | the modes of policies |
//! | `unit` | what a cipher does with units and IVs |
//! | `xts`, `cbc` | AES-256-XTS; AES with CTS, and with CBC and ESSIV, by kept crates |
//! | `adiantum`, `hctr2` | the modes that make one block of a unit, of the crates' primitives |

mod adiantum;
mod cbc;
mod hctr2;
mod key;
mod mode;
mod unit;
mod xts;

use std::hash::Hasher;

use finefs_ext_disk::casefold;
use finefs_ext_disk::dirhash::DirHash;
use finefs_ext_disk::fscrypt::{NAME_MIN, Policy};
pub(crate) use key::FileIdentity;
use key::IvBase;
pub use key::MasterKey;
use mode::Modes;
use siphasher::sip::SipHasher24;
use unit::{Iv, UnitCipher};
use zeroize::Zeroizing;

use super::Why;

/// What encrypts the content of a file.
pub(crate) struct ContentCipher {
    cipher: Box<dyn UnitCipher>,
    base: IvBase,
    unit_bytes: usize,
}

impl ContentCipher {
    /// Of a file whose blocks have so many bytes.
    pub fn new(
        key: &MasterKey,
        file: &FileIdentity<'_>,
        block_bytes: usize,
    ) -> Result<ContentCipher, Why> {
        let (modes, scheme) = Modes::of(file.policy)?;
        let unit_bytes = match file.policy.log2_unit_bytes {
            0 => block_bytes,
            log2 => 1_usize.checked_shl(u32::from(log2)).unwrap_or(0),
        };
        if !(512..=block_bytes).contains(&unit_bytes) {
            return Err(Why::Unknown("data unit size"));
        }
        let (cipher, base) = key.cipher(modes.contents, scheme, file)?;
        Ok(ContentCipher {
            cipher,
            base,
            unit_bytes,
        })
    }

    /// Encrypts whole blocks from the file's byte `at` on.
    pub fn encrypt(&self, at: u64, blocks: &mut [u8]) {
        for (index, unit) in self.units(at, blocks) {
            self.cipher.encrypt(unit, &self.base.iv(index));
        }
    }

    /// Decrypts them.
    pub fn decrypt(&self, at: u64, blocks: &mut [u8]) {
        for (index, unit) in self.units(at, blocks) {
            self.cipher.decrypt(unit, &self.base.iv(index));
        }
    }

    fn units<'b>(
        &self,
        at: u64,
        blocks: &'b mut [u8],
    ) -> impl Iterator<Item = (u64, &'b mut [u8])> {
        let first = at / self.unit_bytes as u64;
        (first..).zip(blocks.chunks_exact_mut(self.unit_bytes))
    }
}

/// What encrypts the names of a directory, or the target of a link.
pub(crate) struct NameCipher {
    cipher: Box<dyn UnitCipher>,
    iv: Iv,
    policy: Policy,
    hash_key: Zeroizing<[u8; 16]>,
}

impl NameCipher {
    pub fn new(key: &MasterKey, file: &FileIdentity<'_>) -> Result<NameCipher, Why> {
        let (modes, scheme) = Modes::of(file.policy)?;
        let (cipher, base) = key.cipher(modes.names, scheme, file)?;
        Ok(NameCipher {
            cipher,
            iv: base.iv(0),
            policy: *file.policy,
            hash_key: key.directory_hash_key(file.nonce),
        })
    }

    /// The hash of a name in a directory that folds case too: SipHash of its folded form (Linux
    /// `fscrypt_fname_siphash`).
    pub fn hash(&self, name: &[u8]) -> DirHash {
        let folded = casefold::fold(name);
        let mut hasher = SipHasher24::new_with_key(&self.hash_key);
        hasher.write(folded.as_deref().unwrap_or(name));
        DirHash::of_siphash(hasher.finish())
    }

    /// A name as it is stored, padded, of which `max` bytes can be; `None` where it does not fit.
    pub fn encrypt(&self, name: &[u8], max: usize) -> Option<Vec<u8>> {
        let mut stored = name.to_vec();
        stored.resize(self.policy.stored_length(name.len(), max)?, 0);
        self.cipher.encrypt(&mut stored, &self.iv);
        Some(stored)
    }

    /// The name that is stored; `None` for what is none.
    pub fn decrypt(&self, stored: &[u8]) -> Option<Vec<u8>> {
        if stored.len() < NAME_MIN {
            return None;
        }
        let mut name = stored.to_vec();
        self.cipher.decrypt(&mut name, &self.iv);
        let length = name.iter().position(|byte| *byte == 0);
        name.truncate(length.unwrap_or(name.len()));
        (!name.is_empty()).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finefs_ext_disk::fscrypt::Encryption;

    pub(super) fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        let bytes = unhex(hex);
        bytes.try_into().expect("as many bytes")
    }

    fn unhex(hex: &str) -> Vec<u8> {
        let (digits, _) = hex.as_bytes().as_chunks::<2>();
        let byte = |digits: &[u8; 2]| {
            let digits = str::from_utf8(digits).expect("ASCII");
            u8::from_str_radix(digits, 16).expect("hex")
        };
        digits.iter().map(byte).collect()
    }

    /// What somebody else has encrypted, in hexadecimal.
    pub(super) struct Vector {
        pub key: &'static str,
        pub iv: &'static str,
        pub plain: &'static str,
        pub stored: &'static str,
    }

    pub(super) fn assert_vector<C: UnitCipher>(make: &dyn Fn(&[u8]) -> C, vector: &Vector) {
        let cipher = make(&unhex(vector.key));
        let iv = bytes(vector.iv);
        let (plain, stored) = (unhex(vector.plain), unhex(vector.stored));
        let mut unit = plain.clone();
        cipher.encrypt(&mut unit, &iv);
        assert_eq!(unit, stored);
        cipher.decrypt(&mut unit, &iv);
        assert_eq!(unit, plain);
    }

    fn policy(modes: (u8, u8), flags: u8) -> Policy {
        let policy = Policy::new([0; 16], 4).expect("a padding");
        Policy {
            contents_mode: modes.0,
            names_mode: modes.1,
            flags,
            ..policy
        }
    }

    fn identity<'a>(policy: &'a Policy, nonce: &'a [u8; 16]) -> FileIdentity<'a> {
        FileIdentity {
            policy,
            nonce,
            ino: 12,
            uuid: &[3; 16],
        }
    }

    #[test]
    fn names_come_back() {
        let key = MasterKey::new(&[1; 64]).expect("a key");
        for modes in Encryption::ALL.map(Encryption::modes) {
            let policy = policy(modes, 0);
            let cipher = NameCipher::new(&key, &identity(&policy, &[5; 16])).expect("known");
            for length in 1..=255 {
                let name = vec![b'n'; length];
                let stored = cipher.encrypt(&name, 255).expect("it fits");
                assert_eq!(stored.len(), length.max(16).next_multiple_of(4).min(255));
                assert_eq!(cipher.decrypt(&stored), Some(name));
            }
            assert_eq!(cipher.encrypt(&[b'n'; 256], 255), None);
            assert_eq!(cipher.decrypt(&[1; 15]), None);
        }
    }

    #[test]
    fn contents_come_back() {
        let key = MasterKey::new(&[1; 64]).expect("a key");
        for modes in Encryption::ALL.map(Encryption::modes) {
            for (log2_unit_bytes, block_bytes) in [(0, 1024), (9, 4096), (0, 65_536)] {
                let policy = Policy {
                    log2_unit_bytes,
                    ..policy(modes, 0)
                };
                let file = identity(&policy, &[5; 16]);
                let cipher = ContentCipher::new(&key, &file, block_bytes).expect("known");
                let plain: Vec<u8> = (0..2 * block_bytes).map(|at| (at % 251) as u8).collect();
                let mut blocks = plain.clone();
                cipher.encrypt(4 * block_bytes as u64, &mut blocks);
                // The second one is what it is when it is alone.
                let mut second = plain[block_bytes..].to_vec();
                cipher.encrypt(5 * block_bytes as u64, &mut second);
                assert!(blocks[block_bytes..] == second && blocks[..block_bytes] != second);
                cipher.decrypt(4 * block_bytes as u64, &mut blocks);
                assert!(blocks == plain);
            }
        }
    }

    /// An entry that Linux 6.1 made in a directory that folds case.
    #[test]
    fn names_and_their_hashes_are_the_kernels() {
        let key = MasterKey::new(&[0x5a; 64]).expect("a key");
        let policy = Policy::new(key.identifier(), 32).expect("a padding");
        let nonce = bytes::<16>("3b5c2bbea4207dded15c8a5667c0286d");
        let cipher = NameCipher::new(&key, &identity(&policy, &nonce)).expect("known");
        let stored = "6089859d395c18bcdf552a0e6b3783537f84a071ab798c3f181b3f5b7b77ec92";
        let stored = bytes::<32>(stored);
        assert_eq!(cipher.encrypt(b"Inner", 255).as_deref(), Some(&stored[..]));
        let hash = DirHash {
            major: 0x9764_091a,
            minor: 0xa2f8_88eb,
        };
        for name in [b"Inner", b"INNER", b"inner"] {
            assert_eq!(cipher.hash(name), hash);
        }
        // What is not UTF-8 is hashed as it is.
        assert_ne!(cipher.hash(b"A\xff"), cipher.hash(b"a\xff"));
    }

    #[test]
    fn what_is_not_known_is_told() {
        let long = MasterKey::new(&[1; 64]).expect("a key");
        let short = MasterKey::new(&[1; 31]).expect("a key");
        let make = |key: &MasterKey, policy: &Policy| {
            let file = identity(policy, &[5; 16]);
            let names = NameCipher::new(key, &file).err();
            let contents = ContentCipher::new(key, &file, 4096).err();
            assert!(names == contents || names.is_none());
            contents
        };
        for modes in Encryption::ALL.map(Encryption::modes) {
            assert_eq!(make(&long, &policy(modes, 0)), None);
            let is_short = (modes != (5, 6)).then_some(Why::ShortKey(32));
            assert_eq!(make(&short, &policy(modes, 0)), is_short);
        }
        assert_eq!(make(&long, &policy((7, 8), 0)), Some(Why::Modes(7, 8)));
        assert_eq!(make(&long, &policy((1, 4), 4)), Some(Why::Flags(4)));
        let log2_unit_bytes = 13;
        let large = Policy {
            log2_unit_bytes,
            ..policy((1, 4), 0)
        };
        assert_eq!(make(&long, &large), Some(Why::Unknown("data unit size")));
    }

    /// Files differ by their nonces, and by their numbers where they share a key.
    #[test]
    fn no_two_files_are_encrypted_alike() {
        let key = MasterKey::new(&[1; 64]).expect("a key");
        let mut seen = std::collections::HashSet::new();
        let policies = Encryption::ALL.map(|encryption| policy(encryption.modes(), 0));
        let shared = [((1, 4), 8), ((1, 4), 16), ((1, 10), 8), ((9, 9), 4)];
        let shared = shared.map(|(modes, flags)| policy(modes, flags));
        for policy in policies.into_iter().chain(shared) {
            for (nonce, ino) in [(&[1; 16], 12), (&[2; 16], 13)] {
                let file = FileIdentity {
                    ino,
                    ..identity(&policy, nonce)
                };
                let cipher = ContentCipher::new(&key, &file, 4096).expect("known");
                let mut block = vec![0; 8192];
                cipher.encrypt(4096, &mut block);
                assert_ne!(block[..4096], block[4096..]);
                let names = NameCipher::new(&key, &file).expect("known");
                assert!(seen.insert(names.encrypt(b"name", 255).expect("it fits")));
                // Names by another mode change no content.
                let is_new = seen.insert(block);
                assert!(is_new || (policy.contents_mode, policy.names_mode) == (1, 10));
            }
        }
    }
}
