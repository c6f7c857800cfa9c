//! Keys and ciphers by kept crates: from a master key to a file's key, and what is done with it.

use std::fmt;
use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, InnerIvInit, KeyInit};
use aes::{Aes256, Block};
use cts::{CbcCs3, Decrypt, Encrypt};
use finefs_ext_disk::casefold;
use finefs_ext_disk::dirhash::DirHash;
use finefs_ext_disk::fscrypt::{MODE_AES_256_CTS, MODE_AES_256_XTS, Policy, Scheme};
use hkdf::Hkdf;
use sha2::{Digest, Sha512};
use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

use super::{KEY_BYTES, Why};

/// What a key is derived for (Linux `HKDF_CONTEXT_*`).
#[derive(Clone, Copy)]
enum Purpose {
    Identifier = 1,
    File = 2,
    InoLblk64 = 4,
    DirectoryHash = 5,
    InoLblk32 = 6,
    InodeHash = 7,
}

/// AES-256 is as strong as so many bytes of master key.
const STRENGTH_BYTES: usize = 32;
const NAMES_KEY_BYTES: usize = 32;
const CONTENTS_KEY_BYTES: usize = 64;

/// The key of policies of version 2 (fscrypt), which is wiped when nobody holds it any more.
#[derive(Clone)]
pub struct MasterKey {
    identifier: [u8; 16],
    raw: Arc<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", super::hex(&self.identifier))
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
    pub(super) fn nonce(&self, uuid: &[u8; 16], numbers: &[u64]) -> [u8; 16] {
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

    /// A file's key for a mode, and what its IVs begin with.
    fn file_key(&self, mode: u8, file: &FileIdentity<'_>, key: &mut [u8]) -> IvBase {
        let scheme = match file.policy.scheme() {
            None | Some(Scheme::PerFile) => {
                self.derive(Purpose::File, &[file.nonce], key);
                return IvBase::Zero;
            }
            Some(scheme) => scheme,
        };
        let (purpose, base) = match scheme {
            Scheme::InoLblk64 => (Purpose::InoLblk64, IvBase::Ino(file.ino)),
            _ => (Purpose::InoLblk32, IvBase::Hash(self.hash_of(file.ino))),
        };
        self.derive(purpose, &[&[mode], file.uuid], key);
        base
    }

    fn hash_of(&self, ino: u32) -> u32 {
        let mut key = [0; 16];
        self.derive(Purpose::InodeHash, &[], &mut key);
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write_u64(u64::from(ino));
        hasher.finish() as u32
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

/// What numbers of blocks are joined with, to make an IV.
#[derive(Clone, Copy)]
enum IvBase {
    Zero,
    Ino(u32),
    Hash(u32),
}

impl IvBase {
    fn iv(self, index: u64) -> Block {
        let low = match self {
            IvBase::Zero => index,
            IvBase::Ino(ino) => index | u64::from(ino) << 32,
            IvBase::Hash(hash) => u64::from((index as u32).wrapping_add(hash)),
        };
        u128::from(low).to_le_bytes().into()
    }
}

/// So many blocks are encrypted at a time: those of the smallest unit, and more than the processor
/// does at once.
const BATCH_BLOCKS: usize = 32;

/// AES-256-XTS of units of whole blocks (IEEE 1619-2007). The blocks of a unit are independent of
/// each other but for their tweaks, so that many go through the processor at once.
struct Xts {
    data: Aes256,
    tweak: Aes256,
}

impl Xts {
    fn unit(&self, unit: &mut [u8], iv: Block, cipher: impl Fn(&Aes256, &mut [Block])) {
        let mut first = iv;
        self.tweak.encrypt_block(&mut first);
        let mut next = u128::from_le_bytes(first.into());
        let (blocks, _) = Block::slice_as_chunks_mut(unit);
        for batch in blocks.chunks_mut(BATCH_BLOCKS) {
            let mut tweaks = [0; BATCH_BLOCKS];
            for tweak in &mut tweaks {
                *tweak = next;
                next = doubled(next);
            }
            mask(batch, &tweaks);
            cipher(&self.data, batch);
            mask(batch, &tweaks);
        }
    }
}

/// Times two in the field of 2^128 elements.
fn doubled(element: u128) -> u128 {
    let carried = (element.cast_signed() >> 127).cast_unsigned() & 0x87;
    element << 1 ^ carried
}

fn mask(blocks: &mut [Block], tweaks: &[u128; BATCH_BLOCKS]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        let masked = u128::from_le_bytes((*block).into()) ^ tweak;
        *block = masked.to_le_bytes().into();
    }
}

/// What encrypts the content of a file.
pub(crate) struct ContentCipher {
    xts: Xts,
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
        check(key, file.policy)?;
        let unit_bytes = match file.policy.log2_unit_bytes {
            0 => block_bytes,
            log2 => 1_usize.checked_shl(u32::from(log2)).unwrap_or(0),
        };
        if !(512..=block_bytes).contains(&unit_bytes) {
            return Err(Why::Unknown("data unit size"));
        }
        let mut bytes = Zeroizing::new([0; CONTENTS_KEY_BYTES]);
        let base = key.file_key(MODE_AES_256_XTS, file, &mut bytes[..]);
        let (first, second) = bytes.split_at(CONTENTS_KEY_BYTES / 2);
        let cipher = |half| Aes256::new_from_slice(half).map_err(|_| Why::ShortKey);
        Ok(ContentCipher {
            xts: Xts {
                data: cipher(first)?,
                tweak: cipher(second)?,
            },
            base,
            unit_bytes,
        })
    }

    /// Encrypts whole blocks from the file's byte `at` on.
    pub fn encrypt(&self, at: u64, blocks: &mut [u8]) {
        for (index, unit) in self.units(at, blocks) {
            let iv = self.base.iv(index);
            self.xts
                .unit(unit, iv, |aes, blocks| aes.encrypt_blocks(blocks));
        }
    }

    /// Decrypts them.
    pub fn decrypt(&self, at: u64, blocks: &mut [u8]) {
        for (index, unit) in self.units(at, blocks) {
            let iv = self.base.iv(index);
            self.xts
                .unit(unit, iv, |aes, blocks| aes.decrypt_blocks(blocks));
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
    aes: Aes256,
    iv: Block,
    policy: Policy,
    hash_key: Zeroizing<[u8; 16]>,
}

impl NameCipher {
    pub fn new(key: &MasterKey, file: &FileIdentity<'_>) -> Result<NameCipher, Why> {
        check(key, file.policy)?;
        let mut bytes = Zeroizing::new([0; NAMES_KEY_BYTES]);
        let base = key.file_key(MODE_AES_256_CTS, file, &mut bytes[..]);
        let mut hash_key = Zeroizing::new([0; 16]);
        key.derive(Purpose::DirectoryHash, &[file.nonce], &mut hash_key[..]);
        Ok(NameCipher {
            aes: Aes256::new_from_slice(&bytes[..]).map_err(|_| Why::ShortKey)?,
            iv: base.iv(0),
            policy: *file.policy,
            hash_key,
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
        match <&mut Block>::try_from(&mut stored[..]) {
            // The crate would steal from what is not there; Linux's cts() is CBC then.
            Ok(block) => {
                xor(block, &self.iv);
                self.aes.encrypt_block(block);
            }
            Err(_) => {
                let cipher = CbcCs3::inner_iv_init(&self.aes, &self.iv);
                cipher.encrypt(&mut stored).ok()?;
            }
        }
        Some(stored)
    }

    /// The name that is stored; `None` for what is none.
    pub fn decrypt(&self, stored: &[u8]) -> Option<Vec<u8>> {
        let mut name = stored.to_vec();
        match <&mut Block>::try_from(&mut name[..]) {
            Ok(block) => {
                self.aes.decrypt_block(block);
                xor(block, &self.iv);
            }
            Err(_) => {
                let cipher = CbcCs3::inner_iv_init(&self.aes, &self.iv);
                cipher.decrypt(&mut name).ok()?;
            }
        }
        let length = name.iter().position(|byte| *byte == 0);
        name.truncate(length.unwrap_or(name.len()));
        (!name.is_empty()).then_some(name)
    }
}

fn xor(block: &mut Block, with: &Block) {
    for (byte, other) in block.iter_mut().zip(with) {
        *byte ^= other;
    }
}

/// Whether a policy is one that is known, and the key is long enough for it.
fn check(key: &MasterKey, policy: &Policy) -> Result<(), Why> {
    if (policy.contents_mode, policy.names_mode) != (MODE_AES_256_XTS, MODE_AES_256_CTS) {
        return Err(Why::Modes(policy.contents_mode, policy.names_mode));
    }
    if policy.scheme().is_none() {
        return Err(Why::Unknown("flags"));
    }
    match key.raw.len() < STRENGTH_BYTES {
        true => Err(Why::ShortKey),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        let byte = |at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("hex");
        std::array::from_fn(byte)
    }

    fn identity<'a>(policy: &'a Policy, nonce: &'a [u8; 16]) -> FileIdentity<'a> {
        FileIdentity {
            policy,
            nonce,
            ino: 12,
            uuid: &[3; 16],
        }
    }

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

    /// IEEE 1619-2007, vector 10.
    #[test]
    fn contents_are_xts() {
        let first = "2718281828459045235360287471352662497757247093699959574966967627";
        let second = "3141592653589793238462643383279502884197169399375105820974944592";
        let cipher = |key| Aes256::new(&bytes::<32>(key).into());
        let cipher = ContentCipher {
            xts: Xts {
                data: cipher(first),
                tweak: cipher(second),
            },
            base: IvBase::Zero,
            unit_bytes: 512,
        };
        let plain: Vec<u8> = (0..1024).map(|at| at as u8).collect();
        let mut unit = plain.clone();
        cipher.encrypt(0xff * 512, &mut unit);
        assert_eq!(unit[..16], bytes::<16>("1c3b3a102f770386e4836c99e370cf9b"));
        cipher.decrypt(0xff * 512, &mut unit);
        assert_eq!(unit, plain);
        // The number of the inode lies above that of the block.
        assert_eq!(IvBase::Ino(2).iv(3)[..8], [3, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(IvBase::Hash(u32::MAX).iv(3)[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
    }

    /// One block is that of FIPS 197, C.3; the kernel is asked about longer ones.
    #[test]
    fn names_are_cts() {
        let policy = Policy::new([0; 16], 4).expect("a padding");
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        let cipher = NameCipher {
            aes: Aes256::new(&key.into()),
            iv: IvBase::Zero.iv(0),
            policy,
            hash_key: Zeroizing::new([0; 16]),
        };
        let plain = bytes::<16>("00112233445566778899aabbccddeeff").map(|byte| byte | 1);
        let mut expected = bytes::<16>("8ea2b7ca516745bfeafc49904b496089").into();
        cipher.aes.decrypt_block(&mut expected);
        assert_eq!(
            expected[..],
            bytes::<16>("00112233445566778899aabbccddeeff")
        );
        let stored = cipher.encrypt(&plain, 255).expect("it fits");
        let mut block = Block::from(plain);
        cipher.aes.encrypt_block(&mut block);
        assert_eq!(stored, block[..]);
        for length in 1..=255 {
            let name = vec![b'n'; length];
            let stored = cipher.encrypt(&name, 255).expect("it fits");
            assert_eq!(stored.len(), length.max(16).next_multiple_of(4).min(255));
            assert_eq!(cipher.decrypt(&stored), Some(name));
        }
        assert_eq!(cipher.encrypt(&[b'n'; 256], 255), None);
        assert_eq!(cipher.decrypt(&[1; 15]), None);
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
        let policy = Policy::new([0; 16], 4).expect("a padding");
        let long = MasterKey::new(&[1; 64]).expect("a key");
        let short = MasterKey::new(&[1; 16]).expect("a key");
        let make = |key: &MasterKey, policy: &Policy| {
            ContentCipher::new(key, &identity(policy, &[5; 16]), 4096).err()
        };
        assert_eq!(make(&long, &policy), None);
        assert_eq!(make(&short, &policy), Some(Why::ShortKey));
        let names_mode = 10;
        let hctr2 = Policy {
            names_mode,
            ..policy
        };
        assert_eq!(make(&long, &hctr2), Some(Why::Modes(1, 10)));
        let direct = Policy { flags: 4, ..policy };
        assert_eq!(make(&long, &direct), Some(Why::Unknown("flags")));
        let log2_unit_bytes = 13;
        let large = Policy {
            log2_unit_bytes,
            ..policy
        };
        assert_eq!(make(&long, &large), Some(Why::Unknown("data unit size")));
    }

    /// Files differ by their nonces, and by their numbers where they share a key.
    #[test]
    fn no_two_files_are_encrypted_alike() {
        let key = MasterKey::new(&[1; 64]).expect("a key");
        let mut seen = std::collections::HashSet::new();
        for flags in [0, 0x08, 0x10] {
            let policy = Policy::new([0; 16], 4).expect("a padding");
            let policy = Policy { flags, ..policy };
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
                assert!(seen.insert(block));
            }
        }
    }
}
