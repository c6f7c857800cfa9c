//! AES-256-XTS of units of whole blocks (IEEE 1619-2007).
//!
//! The blocks of a unit are independent of each other but for their tweaks, so that many go through
//! the processor at once. The crate xts-mode encrypts block by block.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, InvalidLength, KeyInit};
use aes::{Aes256, Block};

use super::unit::{Iv, UnitCipher, block_of};

/// So many blocks are encrypted at a time: those of the smallest unit, and more than the processor
/// does at once.
const BATCH_BLOCKS: usize = 32;

/// See the module's head.
pub(super) struct Xts {
    data: Aes256,
    tweak: Aes256,
}

impl Xts {
    /// Of a key of 64 bytes: that of the data, and that of the tweaks.
    pub fn new(key: &[u8]) -> Result<Xts, InvalidLength> {
        let (data, tweak) = key.split_at(key.len() / 2);
        Ok(Xts {
            data: Aes256::new_from_slice(data)?,
            tweak: Aes256::new_from_slice(tweak)?,
        })
    }

    fn unit(&self, unit: &mut [u8], iv: &Iv, cipher: impl Fn(&Aes256, &mut [Block])) {
        let mut first = block_of(iv);
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

impl UnitCipher for Xts {
    fn encrypt(&self, unit: &mut [u8], iv: &Iv) {
        self.unit(unit, iv, |aes, blocks| aes.encrypt_blocks(blocks));
    }

    fn decrypt(&self, unit: &mut [u8], iv: &Iv) {
        self.unit(unit, iv, |aes, blocks| aes.decrypt_blocks(blocks));
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

#[cfg(test)]
mod tests {
    use super::super::tests::bytes;
    use super::*;

    /// IEEE 1619-2007, vector 10.
    #[test]
    fn units_are_those_of_the_standard() {
        let first = "2718281828459045235360287471352662497757247093699959574966967627";
        let second = "3141592653589793238462643383279502884197169399375105820974944592";
        let key = [bytes::<32>(first), bytes(second)].concat();
        let cipher = Xts::new(&key).expect("a key");
        let mut iv = Iv::default();
        iv[0] = 0xff;
        let plain: Vec<u8> = (0..512).map(|at| at as u8).collect();
        let mut unit = plain.clone();
        cipher.encrypt(&mut unit, &iv);
        assert_eq!(unit[..16], bytes::<16>("1c3b3a102f770386e4836c99e370cf9b"));
        cipher.decrypt(&mut unit, &iv);
        assert_eq!(unit, plain);
    }
}
