//! The descriptor of a sealed file (`verity`), and the root of the tree of hashes over its data.
//!
//! Behind the end of such a file, from the next multiple of 64 KiB on, lies the tree of hashes, and
//! behind that the descriptor, whose length are the last four bytes of the last block. The tree is
//! not needed to verify a whole file: its root follows from the data.
//!
//! Reference: Linux `Documentation/filesystems/fsverity.rst`, `ext4/verity.rst`.

mod seal;

use core::ops::Range;

use sha2::{Digest, Sha256, Sha512};

use crate::bytes::{Field, clip, get_array, le32};
use crate::error::{Incompatible, Result, need};

pub use seal::{PLACE_BYTES, Seal};

/// The least length of a descriptor; a signature may follow.
pub const DESCRIPTOR_SIZE: usize = 256;
/// The longest (Linux `FS_VERITY_MAX_DESCRIPTOR_SIZE`).
pub const DESCRIPTOR_SIZE_MAX: usize = 16384;

const SALT_MAX: usize = 32;
const HASH_MAX: usize = 64;

/// The length of the signature.
const SIGNATURE_SIZE: Range<usize> = 4..8;

/// The hash functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Sha256,
    Sha512,
}

impl Algorithm {
    fn of_number(number: u8) -> Option<Algorithm> {
        match number {
            1 => Some(Algorithm::Sha256),
            2 => Some(Algorithm::Sha512),
            _ => None,
        }
    }

    fn number(self) -> u8 {
        match self {
            Algorithm::Sha256 => 1,
            Algorithm::Sha512 => 2,
        }
    }

    fn hash_bytes(self) -> usize {
        match self {
            Algorithm::Sha256 => 32,
            Algorithm::Sha512 => 64,
        }
    }

    /// A salt as it goes before each block: padded to the block of the hash function.
    fn padded(self, salt: &[u8]) -> Vec<u8> {
        let mut salt = salt.to_vec();
        if !salt.is_empty() {
            salt.resize(2 * self.hash_bytes(), 0);
        }
        salt
    }
}

/// What a descriptor says.
#[derive(Clone, Debug)]
pub struct Descriptor {
    algorithm: Algorithm,
    block_bytes: usize,
    /// The length of the file that was sealed.
    pub data_bytes: u64,
    root: Vec<u8>,
    /// Padded to the block of the hash function: it goes before each block that is hashed.
    salt: Vec<u8>,
}

impl Descriptor {
    /// Reads a descriptor.
    pub fn parse(bytes: &[u8]) -> Result<Descriptor> {
        need("verity descriptor", DESCRIPTOR_SIZE, bytes.len())?;
        let [version, algorithm, block_bits, salt_bytes] = get_array(bytes, 0);
        let known = Algorithm::of_number(algorithm);
        let algorithm = known.ok_or(Incompatible::Verity(algorithm))?;
        let salt_bytes = usize::from(salt_bytes);
        if version != 1 || !(10..=16).contains(&block_bits) || salt_bytes > SALT_MAX {
            return Err(Incompatible::Verity(version).into());
        }
        let salt = clip(bytes, 16 + HASH_MAX..16 + HASH_MAX + salt_bytes);
        Ok(Descriptor {
            algorithm,
            block_bytes: 1 << block_bits,
            data_bytes: u64::get_le(bytes, 8),
            root: clip(bytes, 16..16 + algorithm.hash_bytes()).to_vec(),
            salt: algorithm.padded(salt),
        })
    }

    /// The length of a descriptor that ends in these last four bytes of a file's blocks.
    pub fn length(last_bytes: &[u8]) -> usize {
        le32(last_bytes, 0) as usize
    }

    /// The number of the hash function, as fs-verity has it.
    pub fn algorithm_number(&self) -> u16 {
        self.algorithm.number().into()
    }

    /// What fs-verity knows the file by: the hash of the descriptor (these are its bytes) without
    /// its signature.
    pub fn file_digest(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = clip(bytes, 0..DESCRIPTOR_SIZE).to_vec();
        bytes[SIGNATURE_SIZE].fill(0);
        match self.algorithm {
            Algorithm::Sha256 => digest::<Sha256>(&[], &bytes),
            Algorithm::Sha512 => digest::<Sha512>(&[], &bytes),
        }
    }

    /// How long the tree of hashes is.
    pub fn tree_bytes(&self) -> u64 {
        let block_bytes = self.block_bytes as u64;
        let per_block = block_bytes / self.algorithm.hash_bytes() as u64;
        let (mut level, mut blocks) = (self.data_bytes.div_ceil(block_bytes), 0);
        while level > 1 {
            level = level.div_ceil(per_block);
            blocks += level;
        }
        // It is shorter than the data.
        blocks * block_bytes
    }

    /// To take in the data of the file, in order.
    pub fn verifier(&self) -> Verifier<'_> {
        Verifier {
            descriptor: self,
            pending: Vec::with_capacity(self.block_bytes),
            levels: Vec::new(),
            taken_bytes: 0,
        }
    }

    fn hash(&self, block: &[u8]) -> Vec<u8> {
        match self.algorithm {
            Algorithm::Sha256 => digest::<Sha256>(&self.salt, block),
            Algorithm::Sha512 => digest::<Sha512>(&self.salt, block),
        }
    }
}

/// The digest by which fs-verity knows a file, as `fsverity digest` prints it: SHA-256, blocks of
/// 4096 bytes, no salt. `read` gives the data, and nothing at its end.
///
/// # Errors
/// Those of `read`.
pub fn file_digest<E>(
    mut read: impl FnMut(&mut [u8]) -> core::result::Result<usize, E>,
) -> core::result::Result<[u8; 32], E> {
    const BLOCK_BITS: u8 = 12;
    let mut descriptor = Descriptor {
        algorithm: Algorithm::Sha256,
        block_bytes: 1 << BLOCK_BITS,
        data_bytes: 0,
        root: vec![0; 32],
        salt: Vec::new(),
    };
    let mut verifier = descriptor.verifier();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match read(&mut buffer)? {
            0 => break,
            count => verifier.take_in(clip(&buffer, 0..count)),
        }
    }
    verifier.end();
    let (root, data_bytes) = (verifier.root(), verifier.taken_bytes);
    (descriptor.root, descriptor.data_bytes) = (root, data_bytes);
    let mut bytes = vec![1, 1, BLOCK_BITS, 0, 0, 0, 0, 0];
    bytes.extend(descriptor.data_bytes.to_le_bytes());
    bytes.extend(&descriptor.root);
    bytes.resize(DESCRIPTOR_SIZE, 0);
    Ok(Sha256::digest(&bytes).into())
}

fn digest<D: Digest>(salt: &[u8], block: &[u8]) -> Vec<u8> {
    let mut hasher = D::new();
    hasher.update(salt);
    hasher.update(block);
    hasher.finalize().to_vec()
}

/// Computes the root of the tree over the data of a file.
pub struct Verifier<'d> {
    descriptor: &'d Descriptor,
    /// Data of a block that is not complete yet.
    pending: Vec<u8>,
    /// Hashes of each level that fill no block yet, the lowest first.
    levels: Vec<Vec<u8>>,
    taken_bytes: u64,
}

impl Verifier<'_> {
    /// Takes in the next bytes.
    pub fn take_in(&mut self, mut data: &[u8]) {
        self.taken_bytes += data.len() as u64;
        while !data.is_empty() {
            let room = self.descriptor.block_bytes - self.pending.len();
            let (now, later) = data.split_at(room.min(data.len()));
            self.pending.extend_from_slice(now);
            data = later;
            if self.pending.len() == self.descriptor.block_bytes {
                self.end_data_block();
            }
        }
    }

    fn end_data_block(&mut self) {
        let mut block = core::mem::take(&mut self.pending);
        block.resize(self.descriptor.block_bytes, 0);
        let hash = self.descriptor.hash(&block);
        self.push(0, hash);
        block.clear();
        self.pending = block;
    }

    /// Adds a hash to a level; a block that it fills is hashed into the level above.
    fn push(&mut self, level: usize, hash: Vec<u8>) {
        if level == self.levels.len() {
            self.levels.push(Vec::new());
        }
        let Some(hashes) = self.levels.get_mut(level) else {
            return;
        };
        hashes.extend_from_slice(&hash);
        if hashes.len() == self.descriptor.block_bytes {
            let block = core::mem::take(hashes);
            let above = self.descriptor.hash(&block);
            self.push(level + 1, above);
        }
    }

    /// True when the data that was taken in are those that were sealed.
    pub fn is_genuine(mut self) -> bool {
        if self.taken_bytes != self.descriptor.data_bytes {
            return false;
        }
        self.end();
        self.root() == self.descriptor.root
    }

    /// There is no more data.
    fn end(&mut self) {
        if !self.pending.is_empty() {
            self.end_data_block();
        }
    }

    /// The hash of the block at the top; of a file without data all zeros.
    fn root(&mut self) -> Vec<u8> {
        if self.levels.is_empty() {
            return vec![0; self.descriptor.root.len()];
        }
        let mut level = 0;
        loop {
            let mut hashes = core::mem::take(&mut self.levels[level]);
            let is_top = level + 1 == self.levels.len();
            if is_top && hashes.len() == self.descriptor.root.len() {
                // The only block below it is the top.
                return hashes;
            }
            if !hashes.is_empty() {
                hashes.resize(self.descriptor.block_bytes, 0);
                let hash = self.descriptor.hash(&hashes);
                self.push(level + 1, hash);
            }
            level += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(data: &[u8], algorithm: u8, salt: &[u8]) -> Descriptor {
        let mut bytes = vec![0; DESCRIPTOR_SIZE];
        bytes[..4].copy_from_slice(&[1, algorithm, 10, salt.len() as u8]);
        bytes[8..16].copy_from_slice(&(data.len() as u64).to_le_bytes());
        bytes[80..80 + salt.len()].copy_from_slice(salt);
        Descriptor::parse(&bytes).expect("sound")
    }

    /// The root by the definition: level by level.
    fn root_of(of: &Descriptor, data: &[u8]) -> Vec<u8> {
        let mut level = data.to_vec();
        loop {
            let blocks = level.chunks(of.block_bytes).map(|block| {
                let mut block = block.to_vec();
                block.resize(of.block_bytes, 0);
                of.hash(&block)
            });
            let hashes: Vec<Vec<u8>> = blocks.collect();
            match &hashes[..] {
                [] => return vec![0; of.root.len()],
                [only] => return only.clone(),
                _ => level = hashes.concat(),
            }
        }
    }

    #[test]
    fn roots_are_those_of_the_definition() {
        for length in [
            0,
            1,
            1024,
            1025,
            32 << 10,
            33 << 10,
            (1 << 20) + 7,
            (1 << 20) + 1024,
        ] {
            let data: Vec<u8> = (0..length).map(|i| (i * 7 + i / 1000) as u8).collect();
            for (algorithm, salt) in [(1, &b""[..]), (1, b"salt"), (2, b"other salt")] {
                let mut of = descriptor(&data, algorithm, salt);
                of.root = root_of(&of, &data);
                let is_genuine = |data: &[u8]| {
                    let mut verifier = of.verifier();
                    data.chunks(3000).for_each(|piece| verifier.take_in(piece));
                    verifier.is_genuine()
                };
                assert!(is_genuine(&data), "{length} {algorithm}");
                if let Some(last) = data.len().checked_sub(1) {
                    let mut changed = data.clone();
                    changed[last] ^= 1;
                    assert!(!is_genuine(&changed), "{length} {algorithm}");
                    assert!(!is_genuine(&data[..last]), "{length} {algorithm}");
                }
            }
        }
    }
}
