//! The checksums of ext4 and jbd2, and the seeds that they start from.
//!
//! ext4's crc32c is the plain shift register: it starts from a seed (`!0` where there is none) and
//! is not inverted at the end, so that a checksum can be the seed of the next. `uninit_bg` without
//! `metadata_csum` uses crc16 (polynomial 0x8005, reflected), also from `!0`.

use crate::units::Ino;

/// What each byte does to the low end of the register of crc16, which shifts to the right.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u16, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0xa001 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// What each byte does to the high end of the register of crc32_be, which shifts to the left.
const CRC32_BE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u32) << 24, 0);
        while bit < 8 {
            crc = (crc << 1) ^ if crc >> 31 == 1 { 0x04c1_1db7 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Continues the shift register `crc` over `data`.
#[inline]
pub fn crc32c(crc: u32, data: &[u8]) -> u32 {
    // The library inverts on the way in and out; ext4 does neither.
    !crc32c::crc32c_append(!crc, data)
}

/// The crc16 of the concatenation of `parts`, from `!0`.
pub fn crc16(parts: &[&[u8]]) -> u16 {
    let bytes = parts.iter().copied().flatten();
    bytes.fold(!0, |crc: u16, byte| {
        (crc >> 8) ^ CRC16[usize::from(crc as u8 ^ byte)]
    })
}

/// The big-endian crc32 of the concatenation of `parts`, from `!0`, as jbd2's first checksum
/// scheme (`journal_checksum`) computes it over a transaction's blocks.
pub fn crc32_be(parts: impl IntoIterator<Item: AsRef<[u8]>>) -> u32 {
    parts.into_iter().fold(!0, |crc, part| {
        let bytes = part.as_ref().iter();
        bytes.fold(crc, |crc: u32, byte| {
            (crc << 8) ^ CRC32_BE[usize::from((crc >> 24) as u8 ^ byte)]
        })
    })
}

/// The seed of all metadata checksums of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsSeed(pub u32);

impl FsSeed {
    /// The seed that a UUID gives (file systems without `metadata_csum_seed`; journals always).
    pub fn from_uuid(uuid: &[u8; 16]) -> FsSeed {
        FsSeed(crc32c(!0, uuid))
    }

    /// The seed of the structures that belong to an inode.
    pub fn inode(self, ino: Ino, generation: u32) -> InodeSeed {
        let crc = crc32c(self.0, &ino.0.to_le_bytes());
        InodeSeed(crc32c(crc, &generation.to_le_bytes()))
    }
}

/// The seed of an inode's own checksum and of its directory, index and extent blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeSeed(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // The check values of the catalogue of parametrised CRC algorithms.
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc16(&[b"1234", b"56789"]), 0x4b37);
        assert_eq!(crc32_be([&b"12345"[..], b"6789"]), 0x0376_e6e7);
    }

    #[test]
    fn crc32c_continues() {
        assert_eq!(
            crc32c(crc32c(!0, b"1234"), b"56789"),
            crc32c(!0, b"123456789")
        );
        assert_eq!(crc32c(5, b""), 5);
    }
}
