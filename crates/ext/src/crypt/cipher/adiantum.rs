//! Adiantum: a unit of any length from one block on is encrypted as if it was one block.
//!
//! The last block is encrypted by AES, after a hash of the tweak and of all that comes before was
//! added; what comes before (the bulk) is encrypted by a stream (XChaCha12) that follows from the
//! last block; then a hash of the bulk, as it is now, is taken off the last block. The hash is
//! Poly1305 of the tweak, plus Poly1305 of what NH makes of the bulk. The tweak is the IV, which
//! always has 32 bytes here.
//!
//! We compose it of kept crates (`aes`, `chacha20`, `poly1305`): the crate adiantum hashes no more
//! than 4096 bytes, and leaves out the rest in silence.
//!
//! References: Crowley, Biggers: "Adiantum: length-preserving encryption for entry-level
//! processors" (IACR ePrint 2018/720), section 6.4 on the hash; Linux `crypto/adiantum.c`,
//! `crypto/nhpoly1305.c`.

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, InvalidLength, KeyInit};
use aes::{Aes256, Block};
use chacha20::XChaCha12;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use poly1305::Poly1305;
use poly1305::universal_hash::UniversalHash;
use zeroize::Zeroizing;

use super::unit::{Iv, UnitCipher};

const KEY_BYTES: usize = 32;
const POLY_KEY_BYTES: usize = 16;
/// NH hashes so many bytes by one key.
const NH_MESSAGE_BYTES: usize = 1024;
/// Each pass of NH uses the key from the next unit on, to make another eight bytes.
const NH_PASSES: usize = 4;
/// What NH takes at a time, of the message and of the key.
type NhUnit = [u32; 4];
const NH_KEY_UNITS: usize = NH_MESSAGE_BYTES / size_of::<NhUnit>() + NH_PASSES - 1;
/// The keys that follow from the key of the stream: of AES, of both Poly1305, of NH.
const DERIVED_BYTES: usize = KEY_BYTES + 2 * POLY_KEY_BYTES + NH_KEY_UNITS * size_of::<NhUnit>();

/// See the module's head.
pub(super) struct Adiantum {
    stream_key: Zeroizing<[u8; KEY_BYTES]>,
    aes: Aes256,
    /// Of the tweak, and how long the bulk is.
    header_hash: Poly1305,
    /// Of the hashes of NH.
    bulk_hash: Poly1305,
    nh_key: Zeroizing<[NhUnit; NH_KEY_UNITS]>,
}

impl Adiantum {
    /// Of a key of 32 bytes.
    pub fn new(key: &[u8]) -> Result<Adiantum, InvalidLength> {
        let mut stream_key = Zeroizing::new([0; KEY_BYTES]);
        if key.len() != stream_key.len() {
            return Err(InvalidLength);
        }
        stream_key.copy_from_slice(key);
        let mut derived = Zeroizing::new([0; DERIVED_BYTES]);
        let mut nonce = [0; 24];
        nonce[0] = 1;
        XChaCha12::new((&*stream_key).into(), &nonce.into()).apply_keystream(&mut derived[..]);
        let (aes, rest) = derived.split_at(KEY_BYTES);
        let (header, rest) = rest.split_at(POLY_KEY_BYTES);
        let (bulk, nh) = rest.split_at(POLY_KEY_BYTES);
        let mut nh_key = Zeroizing::new([NhUnit::default(); NH_KEY_UNITS]);
        for (key, bytes) in nh_key.iter_mut().zip(nh.as_chunks().0) {
            *key = nh_unit(bytes);
        }
        Ok(Adiantum {
            aes: Aes256::new_from_slice(aes)?,
            header_hash: poly1305(header),
            bulk_hash: poly1305(bulk),
            stream_key,
            nh_key,
        })
    }

    fn unit(&self, unit: &mut [u8], iv: &Iv, direction: Direction) {
        let Some((bulk, last)) = unit.split_last_chunk_mut() else {
            debug_assert!(false, "a unit has at least one block");
            return;
        };
        let header = self.header(bulk.len(), iv);
        let hashed = header.wrapping_add(self.bulk(bulk));
        let sum = u128::from_le_bytes(*last).wrapping_add(hashed);
        let mut middle = Block::from(sum.to_le_bytes());
        match direction {
            Direction::Encrypt => {
                self.aes.encrypt_block(&mut middle);
                self.stream(bulk, &middle);
            }
            Direction::Decrypt => {
                self.stream(bulk, &middle);
                self.aes.decrypt_block(&mut middle);
            }
        }
        let hashed = header.wrapping_add(self.bulk(bulk));
        let difference = u128::from_le_bytes(middle.into()).wrapping_sub(hashed);
        *last = difference.to_le_bytes();
    }

    /// Encrypts or decrypts by the stream that follows from the encrypted last block.
    fn stream(&self, bulk: &mut [u8], middle: &Block) {
        let mut nonce = [0; 24];
        nonce[..middle.len()].copy_from_slice(middle);
        nonce[middle.len()] = 1;
        XChaCha12::new((&*self.stream_key).into(), &nonce.into()).apply_keystream(bulk);
    }

    fn header(&self, bulk_bytes: usize, iv: &Iv) -> u128 {
        let bulk_bits = bulk_bytes as u128 * 8;
        let mut hash = self.header_hash.clone();
        hash.update(&[bulk_bits.to_le_bytes().into()]);
        hash.update_padded(iv);
        u128::from_le_bytes(hash.finalize().into())
    }

    fn bulk(&self, bulk: &[u8]) -> u128 {
        let mut hash = self.bulk_hash.clone();
        for message in bulk.chunks(NH_MESSAGE_BYTES) {
            hash.update_padded(
                nh(&self.nh_key, message)
                    .map(u64::to_le_bytes)
                    .as_flattened(),
            );
        }
        u128::from_le_bytes(hash.finalize().into())
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

impl UnitCipher for Adiantum {
    fn encrypt(&self, unit: &mut [u8], iv: &Iv) {
        self.unit(unit, iv, Direction::Encrypt);
    }

    fn decrypt(&self, unit: &mut [u8], iv: &Iv) {
        self.unit(unit, iv, Direction::Decrypt);
    }
}

/// The polynomial of Poly1305 alone: nothing is added at its end.
fn poly1305(key: &[u8]) -> Poly1305 {
    let mut whole = Zeroizing::new([0; 2 * POLY_KEY_BYTES]);
    whole[..POLY_KEY_BYTES].copy_from_slice(key);
    Poly1305::new((&*whole).into())
}

/// NH of at most [`NH_MESSAGE_BYTES`]; what is no whole unit is padded by zeros.
fn nh(key: &[NhUnit; NH_KEY_UNITS], message: &[u8]) -> [u64; NH_PASSES] {
    let (units, end) = message.as_chunks();
    let mut padded = [0; size_of::<NhUnit>()];
    padded[..end.len()].copy_from_slice(end);
    let last = (!end.is_empty()).then_some(&padded);
    let mut sums = [0_u64; NH_PASSES];
    for (bytes, keys) in units.iter().chain(last).zip(key.windows(NH_PASSES)) {
        let unit = nh_unit(bytes);
        for (sum, key) in sums.iter_mut().zip(keys) {
            let word = |at: usize| u64::from(unit[at].wrapping_add(key[at]));
            let products = (word(0) * word(2)).wrapping_add(word(1) * word(3));
            *sum = sum.wrapping_add(products);
        }
    }
    sums
}

fn nh_unit(bytes: &[u8; size_of::<NhUnit>()]) -> NhUnit {
    let mut unit = NhUnit::default();
    for (word, bytes) in unit.iter_mut().zip(bytes.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Vector, assert_vector};
    use super::*;

    /// Of google/adiantum, `Adiantum_XChaCha12_32_AES256.json`: a block alone, a bulk that is no
    /// whole unit, and a longer one.
    const VECTORS: [Vector; 3] = [
        Vector {
            key: "9eebb2493c1cf5f46a99c2c4dfb1f4dd752057ea2c4fcdb2a53d7b491eabfd0f",
            iv: "df63d4abd249f3d8338137607dfa7308d8496d80e82f6254eb0ea9395b457f8a",
            plain: "67c9f23084418e43fbf3b33e79367fe8",
            stored: "6d32861867860f3f967c9d280d53ec9f",
        },
        Vector {
            key: "362b5797f85dcd995f1a5a441d920f27cc16d72b856399d3ba96a1dbd26068da",
            iv: "ef5869b12c5e9a4724c1b169e112938f433d6d00db5ed8d9129afed9ff2daac4",
            plain: "5ea8681985981223260accdb0a04b9df4db3487bb0e3c819435a4606942df2",
            stored: "c7c6f1738fc4ff4a39be78be8d28c8894663e70c7d87e84ec9187bbe186050",
        },
        Vector {
            key: "a52824341a3cd8f705918fee851f357f803dfc9b94f6fc9e190900a904314f11",
            iv: "a1ba4995ff346db8cd875d5efdea85db8a7b5eb25d57dd62aca98c41429475b7",
            plain: "69b4e88c37e86782f1ec5d04e5149113dff2871b69811d71709e9c3bde497011\
                    a0a3db0d544f6669d7db80a7709268ce81042cc6abaee56015e96fefaa8fa7a7\
                    638ff2f077f1a8eae1b71f9eab9e4b3f07875b6fcda8afb9fa700b52b8a8a79e\
                    075fa60eb39b791379c33e8d1c2c68c8511d3c7b7d79772a5665c5542328b003",
            stored: "9e16abed4ba7425ac6fb4e76ffbe03a00fe3adbae4982b0e2148a0b865482748\
                     845454b29a947be64b29e9cf0591801a3af34196851d9f74515663fa7c288549\
                     f72ff9f21846f53380a33cceb25793f5aebda9f57b30c49366e0307716e4a031\
                     ba70bc6813f5b09ac1fc7efe55805c4874a6aaa3acdcc2f58dde34867860758d",
        },
    ];

    #[test]
    fn vectors_are_those_of_the_paper() {
        for vector in &VECTORS {
            assert_vector(&|key| Adiantum::new(key).expect("a key"), vector);
        }
        assert!(Adiantum::new(&[0; 16]).is_err());
    }
}
