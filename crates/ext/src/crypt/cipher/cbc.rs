//! The modes that chain AES blocks: CBC with ciphertext stealing for names, and plain CBC with
//! encrypted IVs (ESSIV) for contents.
//!
//! Linux's `cts(cbc(aes))` is CS3, but for one block, which is CBC. `essiv(cbc(aes),sha256)`
//! encrypts the number of the unit by the hash of the key; CS1 is CBC where blocks are whole.
//!
//! References: NIST SP 800-38A and its addendum; Linux `crypto/cts.c`, `crypto/essiv.c`.

use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockSizeUser, InnerIvInit, InvalidLength, KeyInit,
};
use aes::{Aes128, Aes256, Block};
use cts::{CbcCs1, CbcCs3, Decrypt, Encrypt};
use sha2::{Digest, Sha256};

use super::unit::{Iv, UnitCipher, block_of};

/// CBC with ciphertext stealing.
pub(super) struct Cts<Aes> {
    aes: Aes,
}

impl<Aes: KeyInit> Cts<Aes> {
    /// Of a key of the length that this AES has.
    pub fn new(key: &[u8]) -> Result<Cts<Aes>, InvalidLength> {
        let aes = Aes::new_from_slice(key)?;
        Ok(Cts { aes })
    }
}

impl<Aes> UnitCipher for Cts<Aes>
where
    Aes: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + Send + Sync,
{
    fn encrypt(&self, unit: &mut [u8], iv: &Iv) {
        let iv = block_of(iv);
        let done = match unit.len() == iv.len() {
            true => CbcCs1::inner_iv_init(&self.aes, &iv).encrypt(unit),
            false => CbcCs3::inner_iv_init(&self.aes, &iv).encrypt(unit),
        };
        debug_assert!(done.is_ok(), "a unit has at least one block");
    }

    fn decrypt(&self, unit: &mut [u8], iv: &Iv) {
        let iv = block_of(iv);
        let done = match unit.len() == iv.len() {
            true => CbcCs1::inner_iv_init(&self.aes, &iv).decrypt(unit),
            false => CbcCs3::inner_iv_init(&self.aes, &iv).decrypt(unit),
        };
        debug_assert!(done.is_ok(), "a unit has at least one block");
    }
}

/// AES-128-CBC whose IVs are encrypted.
pub(super) struct CbcEssiv {
    data: Aes128,
    ivs: Aes256,
}

impl CbcEssiv {
    /// Of a key of 16 bytes.
    pub fn new(key: &[u8]) -> Result<CbcEssiv, InvalidLength> {
        Ok(CbcEssiv {
            data: Aes128::new_from_slice(key)?,
            ivs: Aes256::new(&Sha256::digest(key)),
        })
    }

    fn cbc(&self, iv: &Iv) -> CbcCs1<&Aes128> {
        let mut iv: Block = block_of(iv);
        self.ivs.encrypt_block(&mut iv);
        CbcCs1::inner_iv_init(&self.data, &iv)
    }
}

impl UnitCipher for CbcEssiv {
    fn encrypt(&self, unit: &mut [u8], iv: &Iv) {
        let done = self.cbc(iv).encrypt(unit);
        debug_assert!(done.is_ok(), "a unit has at least one block");
    }

    fn decrypt(&self, unit: &mut [u8], iv: &Iv) {
        let done = self.cbc(iv).decrypt(unit);
        debug_assert!(done.is_ok(), "a unit has at least one block");
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::bytes;
    use super::*;

    /// One block is that of FIPS 197, C.3; the kernel is asked about longer ones.
    #[test]
    fn one_block_is_chained_to_nothing() {
        let key: [u8; 32] = std::array::from_fn(|at| at as u8);
        let cipher = Cts::<Aes256>::new(&key).expect("a key");
        let plain = bytes::<16>("00112233445566778899aabbccddeeff");
        let mut unit = plain;
        cipher.encrypt(&mut unit, &Iv::default());
        assert_eq!(unit, bytes::<16>("8ea2b7ca516745bfeafc49904b496089"));
        cipher.decrypt(&mut unit, &Iv::default());
        assert_eq!(unit, plain);
    }

    /// NIST SP 800-38A, F.2.1, with the IV that the ESSIV is encrypted to.
    #[test]
    fn whole_blocks_are_cbc() {
        let key = bytes::<16>("2b7e151628aed2a6abf7158809cf4f3c");
        let cipher = CbcEssiv::new(&key).expect("a key");
        let mut first: Block = bytes::<16>("000102030405060708090a0b0c0d0e0f").into();
        cipher.ivs.decrypt_block(&mut first);
        let mut iv = Iv::default();
        iv[..16].copy_from_slice(&first);
        let plain = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51";
        let stored = "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2";
        let mut unit = bytes::<32>(plain);
        cipher.encrypt(&mut unit, &iv);
        assert_eq!(unit, bytes::<32>(stored));
        cipher.decrypt(&mut unit, &iv);
        assert_eq!(unit, bytes::<32>(plain));
    }
}
