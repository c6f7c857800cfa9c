//! What seals a file: the tree of hashes over its data, and the descriptor.
//!
//! The tree lies level by level, the root's block first. See the module above for where.

use super::{Algorithm, DESCRIPTOR_SIZE, DESCRIPTOR_SIZE_MAX, Descriptor, HASH_MAX, SALT_MAX};
use crate::error::{Incompatible, Result};

/// The tree begins at a multiple of this.
pub const PLACE_BYTES: u64 = 65536;
/// The length of the descriptor, at the end of the last block.
const LENGTH_SIZE: usize = 4;

/// How a file is to be sealed.
#[derive(Clone, Debug)]
pub struct Seal {
    descriptor: Descriptor,
    block_bits: u8,
    /// As it was given.
    salt: Vec<u8>,
    signature: Vec<u8>,
}

impl Seal {
    /// A file of `data_bytes`, by the numbers of fs-verity.
    ///
    /// # Errors
    /// Of what is not known: another hash function, other blocks, too long a salt or signature.
    pub fn new(
        data_bytes: u64,
        algorithm: u16,
        block_bytes: u32,
        salt: &[u8],
        signature: &[u8],
    ) -> Result<Seal> {
        let known = u8::try_from(algorithm).ok().and_then(Algorithm::of_number);
        let algorithm = known.ok_or(Incompatible::Verity(algorithm as u8))?;
        let fits = block_bytes.is_power_of_two()
            && (1 << 10..=1 << 16).contains(&block_bytes)
            && salt.len() <= SALT_MAX
            && signature.len() <= DESCRIPTOR_SIZE_MAX - DESCRIPTOR_SIZE;
        if !fits {
            return Err(Incompatible::Verity(0).into());
        }
        Ok(Seal {
            descriptor: Descriptor {
                algorithm,
                block_bytes: block_bytes as usize,
                data_bytes,
                root: vec![0; algorithm.hash_bytes()],
                salt: algorithm.padded(salt),
            },
            block_bits: block_bytes.trailing_zeros() as u8,
            salt: salt.to_vec(),
            signature: signature.to_vec(),
        })
    }

    /// How long the tree of hashes will be.
    pub fn tree_bytes(&self) -> u64 {
        self.descriptor.tree_bytes()
    }

    /// Where in the file it lies, and what lies there: whole clusters of blocks of the file system,
    /// the descriptor in the last ones. `read` reads the data from a place on.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn build<E>(
        mut self,
        (block_bytes, cluster_bytes): (usize, usize),
        mut read: impl FnMut(u64, &mut [u8]) -> core::result::Result<(), E>,
    ) -> core::result::Result<(u64, Vec<u8>), E> {
        let hashed = self.descriptor.block_bytes;
        let mut level = Vec::new();
        let mut block = vec![0; hashed];
        let mut at = 0;
        while at < self.descriptor.data_bytes {
            let length = (hashed as u64).min(self.descriptor.data_bytes - at) as usize;
            let (data, behind) = block.split_at_mut(length);
            read(at, data)?;
            behind.fill(0);
            level.extend(self.descriptor.hash(&block));
            at += length as u64;
        }
        let mut bytes = Vec::new();
        // The root follows from the only block of the top, or from the only block of the data.
        while level.len() > self.descriptor.root.len() {
            level.resize(level.len().next_multiple_of(hashed), 0);
            let above = level
                .chunks(hashed)
                .map(|block| self.descriptor.hash(block));
            let above = above.flatten().collect();
            bytes.splice(0..0, core::mem::replace(&mut level, above));
        }
        if !level.is_empty() {
            self.descriptor.root = level;
        }
        let descriptor = self.descriptor();
        let length = (descriptor.len() + LENGTH_SIZE).next_multiple_of(block_bytes);
        let tree = bytes.len().next_multiple_of(block_bytes);
        let end = (tree + length).next_multiple_of(cluster_bytes);
        bytes.resize(end - length, 0);
        bytes.extend(&descriptor);
        bytes.resize(end - LENGTH_SIZE, 0);
        bytes.extend((descriptor.len() as u32).to_le_bytes());
        let place = self.descriptor.data_bytes.next_multiple_of(PLACE_BYTES);
        Ok((place, bytes))
    }

    /// `struct fsverity_descriptor`, then the signature.
    fn descriptor(&self) -> Vec<u8> {
        let Descriptor {
            algorithm,
            data_bytes,
            root,
            ..
        } = &self.descriptor;
        let salt_bytes = self.salt.len() as u8;
        let mut bytes = vec![1, algorithm.number(), self.block_bits, salt_bytes];
        bytes.extend((self.signature.len() as u32).to_le_bytes());
        bytes.extend(data_bytes.to_le_bytes());
        bytes.extend(root);
        bytes.resize(16 + HASH_MAX, 0);
        bytes.extend(&self.salt);
        bytes.resize(DESCRIPTOR_SIZE, 0);
        bytes.extend(&self.signature);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes what was built apart again: the data is genuine, and another is not.
    #[test]
    fn what_is_sealed_is_genuine() {
        for (length, algorithm, block_bytes) in [
            (0, 1, 4096),
            (1, 1, 1024),
            (4096, 2, 4096),
            (4097, 1, 4096),
            (300_000, 2, 1024),
            (140_000, 1, 1024),
        ] {
            let mut data: Vec<u8> = (0..length).map(|i| (i * 7 + i / 300) as u8).collect();
            let seal = Seal::new(length as u64, algorithm, block_bytes, b"salt", b"sig").unwrap();
            let read = |at: u64, bytes: &mut [u8]| {
                bytes.copy_from_slice(&data[at as usize..][..bytes.len()]);
                Ok::<(), ()>(())
            };
            let tree = seal.tree_bytes().next_multiple_of(4096);
            let (place, bytes) = seal.build((4096, 16384), read).unwrap();
            assert_eq!(bytes.len() as u64, (tree + 4096).next_multiple_of(16384));
            assert!(place >= length as u64 && place.is_multiple_of(PLACE_BYTES));
            assert!(bytes.len().is_multiple_of(16384));
            let end = bytes.len() - LENGTH_SIZE;
            let size = Descriptor::length(&bytes[end..]);
            assert_eq!(size, DESCRIPTOR_SIZE + 3);
            let start = (end - size) / 4096 * 4096;
            let descriptor = Descriptor::parse(&bytes[start..start + size]).unwrap();
            assert_eq!(descriptor.algorithm_number(), algorithm);
            let is_genuine = |data: &[u8]| {
                let mut verifier = descriptor.verifier();
                verifier.take_in(data);
                verifier.is_genuine()
            };
            assert!(is_genuine(&data), "{length}");
            if let Some(last) = data.last_mut() {
                *last ^= 1;
                assert!(!is_genuine(&data), "{length}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(Seal::new(1, 3, 4096, &[], &[]).is_err());
        assert!(Seal::new(1, 1, 512, &[], &[]).is_err());
        assert!(Seal::new(1, 1, 5000, &[], &[]).is_err());
        assert!(Seal::new(1, 1, 4096, &[0; 33], &[]).is_err());
        assert!(Seal::new(1, 1, 4096, &[], &[0; DESCRIPTOR_SIZE_MAX]).is_err());
    }
}
