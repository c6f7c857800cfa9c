//! Extended attributes, which are files of a hidden directory:
//! `/.reiserfs_priv/xattrs/OBJECT.GENERATION/NAME`. Such a file begins with a magic number and a
//! hash of the value, then the value follows.

use crate::bytes::le32;
use crate::error::{Corrupt, Result, need};

/// The hidden directory in the root.
pub const PRIVATE_ROOT: &[u8] = b".reiserfs_priv";

/// The directory in it that has a directory for each object with attributes.
pub const XATTRS_ROOT: &[u8] = b"xattrs";

/// Bytes before the value.
pub const HEADER_SIZE: usize = 8;

const MAGIC: u32 = 0x5246_5841;

/// The name of an object's directory.
pub fn directory_name(object_id: u32, generation: u32) -> String {
    format!("{object_id:X}.{generation:X}")
}

/// The value in the content of an attribute's file.
pub fn value(content: &[u8]) -> Result<&[u8]> {
    need("attribute", HEADER_SIZE, content.len())?;
    if le32(content, 0) != MAGIC {
        return Err(Corrupt::XattrMagic(le32(content, 0)).into());
    }
    let value = &content[HEADER_SIZE..];
    let (stored, computed) = (le32(content, 4), sum(value));
    // The kernel's checksum of 32 bits depends on the machine; folded to 16 it does not.
    match folded(stored) == folded(computed) {
        true => Ok(value),
        false => Err(Corrupt::XattrHash { stored, computed }.into()),
    }
}

/// The content of an attribute's file.
pub fn content(value: &[u8]) -> Vec<u8> {
    let mut content = Vec::with_capacity(HEADER_SIZE + value.len());
    content.extend(MAGIC.to_le_bytes());
    content.extend(sum_of_words(value).to_le_bytes());
    content.extend(value);
    content
}

/// The checksum as x86 makes it, and compares it whole: 32-bit words, with the carry brought round.
fn sum_of_words(value: &[u8]) -> u32 {
    let words = value.chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(word)
    });
    words.fold(0_u32, |sum, word| match sum.overflowing_add(word) {
        (sum, false) => sum,
        (sum, true) => sum + 1,
    })
}

/// The Internet checksum of RFC 1071, not folded.
fn sum(value: &[u8]) -> u32 {
    let words = value.chunks(2).map(|pair| {
        u32::from(u16::from_le_bytes([
            pair[0],
            pair.get(1).copied().unwrap_or(0),
        ]))
    });
    // Attributes have 64 KiB at most, so that this does not wrap; longer ones fold on the way.
    words.fold(0_u32, |sum, word| match sum.overflowing_add(word) {
        (sum, false) => sum,
        (sum, true) => sum + 1,
    })
}

fn folded(sum: u32) -> u32 {
    let once = (sum & 0xffff) + (sum >> 16);
    let twice = (once & 0xffff) + (once >> 16);
    // Both are zero.
    if twice == 0xffff { 0 } else { twice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let mut content = b"AXFR\0\0\0\0value".to_vec();
        let hash = u32::from(b'v')
            + u32::from(b'l')
            + u32::from(b'e')
            + 256 * (u32::from(b'a') + u32::from(b'u'));
        content[4..8].copy_from_slice(&hash.to_le_bytes());
        assert_eq!(value(&content), Ok(&b"value"[..]));
        // Other machines fold halves of it.
        let other = (hash & 0xffff) + 0xffff;
        content[4..8].copy_from_slice(&other.to_le_bytes());
        assert_eq!(value(&content), Ok(&b"value"[..]));
        content[9] ^= 1;
        assert!(matches!(
            value(&content),
            Err(crate::DiskError::Corrupt(Corrupt::XattrHash { .. }))
        ));
        content[0] = 0;
        assert!(value(&content).is_err() && value(b"AXFR").is_err());
    }

    #[test]
    fn what_is_made_is_read() {
        for value_bytes in [&b""[..], b"a", b"odd", b"even", &[0xff; 5000]] {
            assert_eq!(value(&content(value_bytes)), Ok(value_bytes));
        }
    }

    #[test]
    fn names() {
        assert_eq!(directory_name(0xc0_ffee, 31), "C0FFEE.1F");
    }
}
