//! What every cipher does: it encrypts units under IVs.

use aes::Block;

/// The longest IV; modes with shorter ones use its first bytes.
pub(super) type Iv = [u8; 32];

/// The IV of the modes that take one block.
pub(super) fn block_of(iv: &Iv) -> Block {
    let (first, _) = Block::slice_as_chunks(iv);
    first[0]
}

/// What encrypts units, each of at least one block ([`NAME_MIN`]), and all as long as they were.
///
/// [`NAME_MIN`]: finefs_ext_disk::fscrypt::NAME_MIN
pub(super) trait UnitCipher: Send + Sync {
    fn encrypt(&self, unit: &mut [u8], iv: &Iv);
    fn decrypt(&self, unit: &mut [u8], iv: &Iv);
}
