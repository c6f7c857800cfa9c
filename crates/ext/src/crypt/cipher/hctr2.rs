//! AES-256-HCTR2: a unit of any length from one block on is encrypted as if it was one block.
//!
//! The first block is encrypted by AES, masked before and after by a hash (POLYVAL) of the tweak
//! and of all that comes behind; what comes behind is encrypted by a stream (XCTR, AES of counters)
//! that follows from the first block. The tweak is the IV, which always has 32 bytes here.
//!
//! We compose it of kept crates (`aes`, `polyval`): the crate hctr2 is of an older generation than
//! they are, hctr2-rs wipes no keys and has eight other modes.
//!
//! References: Crowley, Huckleberry, Biggers: "Length-preserving encryption with HCTR2" (IACR
//! ePrint 2021/1441); Linux `crypto/hctr2.c`, `crypto/xctr.c`.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, InvalidLength, KeyInit};
use aes::{Aes256, Block};
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;
use zeroize::Zeroizing;

use super::unit::{Iv, UnitCipher};

/// So many blocks of the stream are made at a time: those of the longest names.
const BATCH_BLOCKS: usize = 16;

/// See the module's head.
pub(super) struct Hctr2 {
    aes: Aes256,
    /// With its key, before its first block.
    hash: Polyval,
    /// What the seeds of streams are masked with; the paper's L.
    mask: Zeroizing<u128>,
}

impl Hctr2 {
    /// Of a key of 32 bytes.
    pub fn new(key: &[u8]) -> Result<Hctr2, InvalidLength> {
        let aes = Aes256::new_from_slice(key)?;
        let hash_key = Zeroizing::new(encrypted(&aes, 0).to_le_bytes());
        Ok(Hctr2 {
            hash: Polyval::new((&*hash_key).into()),
            mask: Zeroizing::new(encrypted(&aes, 1)),
            aes,
        })
    }

    fn unit(&self, unit: &mut [u8], iv: &Iv, block: impl Fn(&Aes256, u128) -> u128) {
        let Some((first, rest)) = unit.split_first_chunk_mut() else {
            debug_assert!(false, "a unit has at least one block");
            return;
        };
        let hash = self.after_tweak(rest.len(), iv);
        let before = u128::from_le_bytes(*first) ^ with_rest(hash.clone(), rest);
        let after = block(&self.aes, before);
        self.xctr(rest, before ^ after ^ *self.mask);
        *first = (after ^ with_rest(hash, rest)).to_le_bytes();
    }

    /// The hash of the tweak, and of whether whole blocks follow.
    fn after_tweak(&self, rest_bytes: usize, iv: &Iv) -> Polyval {
        let is_whole = rest_bytes.is_multiple_of(size_of::<Block>());
        let tweak_bits = iv.len() as u128 * 8;
        let kind = tweak_bits * 2 + if is_whole { 2 } else { 3 };
        let mut hash = self.hash.clone();
        hash.update(&[kind.to_le_bytes().into()]);
        hash.update_padded(iv);
        hash
    }

    /// Encrypts or decrypts by the stream of a seed.
    fn xctr(&self, bytes: &mut [u8], seed: u128) {
        let mut counters = 1_u128..;
        for batch in bytes.chunks_mut(BATCH_BLOCKS * size_of::<Block>()) {
            let mut stream = [Block::default(); BATCH_BLOCKS];
            for (block, counter) in stream.iter_mut().zip(&mut counters) {
                *block = (seed ^ counter).to_le_bytes().into();
            }
            let blocks = batch.len().div_ceil(size_of::<Block>());
            self.aes.encrypt_blocks(&mut stream[..blocks]);
            for (byte, mask) in batch.iter_mut().zip(stream.iter().flatten()) {
                *byte ^= mask;
            }
        }
    }
}

impl UnitCipher for Hctr2 {
    fn encrypt(&self, unit: &mut [u8], iv: &Iv) {
        self.unit(unit, iv, encrypted);
    }

    fn decrypt(&self, unit: &mut [u8], iv: &Iv) {
        self.unit(unit, iv, decrypted);
    }
}

/// Ends a hash with what comes behind the first block: a one marks the end of what is no block.
fn with_rest(mut hash: Polyval, rest: &[u8]) -> u128 {
    let (blocks, end) = Block::slice_as_chunks(rest);
    hash.update(blocks);
    if !end.is_empty() {
        let mut last = Block::default();
        last[..end.len()].copy_from_slice(end);
        last[end.len()] = 1;
        hash.update(&[last]);
    }
    u128::from_le_bytes(hash.finalize().into())
}

fn encrypted(aes: &Aes256, block: u128) -> u128 {
    let mut block = Block::from(block.to_le_bytes());
    aes.encrypt_block(&mut block);
    u128::from_le_bytes(block.into())
}

fn decrypted(aes: &Aes256, block: u128) -> u128 {
    let mut block = Block::from(block.to_le_bytes());
    aes.decrypt_block(&mut block);
    u128::from_le_bytes(block.into())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Vector, assert_vector};
    use super::*;

    /// Of google/hctr2, `HCTR2_AES256.json`: one block, one and a part, whole blocks.
    const VECTORS: [Vector; 4] = [
        Vector {
            key: "9eebb2493c1cf5f46a99c2c4dfb1f4dd752057ea2c4fcdb2a53d7b491eabfd0f",
            iv: "df63d4abd249f3d8338137607dfa7308d8496d80e82f6254eb0ea9395b457f8a",
            plain: "67c9f23084418e43fbf3b33e79367fe8",
            stored: "2738784716d971352e7edd7e433cb840",
        },
        Vector {
            key: "93fa7ee20e67c439e7ca4795689d5e5a7c2619abc6ca6a4c45a69642ae6cffe7",
            iv: "ea8247953b22a13a6aca244c507e23cd0e50e541b66529d8302300d254a7d656",
            plain: "db1f1fecad836e5d19a5f63bb4935a576f",
            stored: "f1466e9db301f06bc2ac5788486d407268",
        },
        Vector {
            key: "362b5797f85dcd995f1a5a441d920f27cc16d72b856399d3ba96a1dbd26068da",
            iv: "ef5869b12c5e9a4724c1b169e112938f433d6d00db5ed8d9129afed9ff2daac4",
            plain: "5ea8681985981223260accdb0a04b9df4db3487bb0e3c819435a4606942df2",
            stored: "dbfdc803d0ecc1febd6437b88243624e7e54a3e224a727e8a4d5b36cb226b4",
        },
        Vector {
            key: "0365036e4de6e84e8bbe22194831eed9a09121be6289de78d9b036a33cce43d5",
            iv: "a9c34be70ffc6dbf5627211cfcd604105f43e23035296c1090f1bf61ed0f8a91",
            plain: "07aa0226b498115e3341215151632c7200ab32a71cc83c9c250e8b9adf85ed2d\
                    f4f2bc55ca926d22fd223b424c0b74ec",
            stored: "7bb1436dd8726cf6676a00c4f1f0f5a4fc6091ab460b15fcd7c12815a1fcf768\
                     8ecc276200645672a617d73f67801058",
        },
    ];

    #[test]
    fn vectors_are_those_of_the_paper() {
        for vector in &VECTORS {
            assert_vector(&|key| Hctr2::new(key).expect("a key"), vector);
        }
        assert!(Hctr2::new(&[0; 16]).is_err());
    }
}
