//! Names and targets of encrypted directories and links, as they are shown without the key.
//!
//! An encrypted name can be any bytes. What stands for it is, in base64 with an alphabet for file
//! names, its hash in the directory, up to 149 bytes of it, and of a longer one a digest of the
//! rest. So two names of a directory never look alike.
//!
//! Reference: Linux `Documentation/filesystems/fscrypt.rst`, "Encoding of directory entries";
//! `fs/crypto/fname.c`.

use sha2::{Digest, Sha256};

use crate::bytes::{clip, le16, le32};
use crate::dirent::{decode_rec_len, entry_size};
use crate::dirhash::DirHash;
use crate::error::{Corrupt, Result};
use crate::units::Ino;

/// So many bytes of a name are shown.
const SHOWN_MAX: usize = 149;

const HEADER_SIZE: usize = 8;

/// What stands for an encrypted name.
pub fn shown(hash: DirHash, stored: &[u8]) -> Vec<u8> {
    let (first, rest) = stored.split_at(stored.len().min(SHOWN_MAX));
    let mut bytes = Vec::with_capacity(8 + SHOWN_MAX + 32);
    bytes.extend_from_slice(&hash.major.to_le_bytes());
    bytes.extend_from_slice(&hash.minor.to_le_bytes());
    bytes.extend_from_slice(first);
    if !rest.is_empty() {
        bytes.extend_from_slice(&Sha256::digest(rest));
    }
    base64(&bytes)
}

/// What stands for the target of an encrypted link, of which this is stored: its length and the
/// encrypted text. `None` where that is damaged.
pub fn shown_target(stored: &[u8]) -> Option<Vec<u8>> {
    let length = usize::from(le16(stored, 0));
    let text = stored.get(2..2 + length).filter(|text| !text.is_empty())?;
    Some(shown(DirHash { major: 0, minor: 0 }, text))
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk
            .iter()
            .fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        let digits = (0..=chunk.len()).map(|digit| (word >> (18 - 6 * digit)) as usize & 63);
        text.extend(digits.filter_map(|digit| ALPHABET.get(digit)));
    }
    text
}

/// An entry of an encrypted directory.
#[derive(Clone, Copy, Debug)]
pub struct RawEntry<'a> {
    /// Where it is.
    pub offset: usize,
    /// How long.
    pub rec_len: usize,
    /// What it names; 0 for free space.
    pub ino: Ino,
    /// The file type, if that is noted.
    pub entry_type: u8,
    /// The name: any bytes.
    pub name: &'a [u8],
    /// The hash that follows the name in directories that fold case too.
    pub stored_hash: DirHash,
}

impl RawEntry<'_> {
    /// True for one that names something, and is neither `.` nor `..`.
    pub fn is_name(&self) -> bool {
        self.ino.0 != 0 && !self.name.is_empty() && self.name != b"." && self.name != b".."
    }
}

/// The entries of a chain that fills `bytes` up to `limit`; lengths count as in a block of all of
/// `bytes`.
pub fn entries(bytes: &[u8], limit: usize) -> Result<Vec<RawEntry<'_>>> {
    let mut entries = Vec::new();
    let mut offset = 0;
    while offset < limit {
        let rec_len = decode_rec_len(le16(bytes, offset + 4), bytes.len());
        let name_len = usize::from(
            clip(bytes, offset + 6..offset + 7)
                .first()
                .copied()
                .unwrap_or(0),
        );
        let is_sound = rec_len >= HEADER_SIZE + 4
            && rec_len.is_multiple_of(4)
            && HEADER_SIZE + name_len <= rec_len
            && offset + rec_len <= limit;
        if !is_sound {
            return Err(Corrupt::DirOffset(offset as u32).into());
        }
        let hash_at = offset + entry_size(name_len);
        entries.push(RawEntry {
            offset,
            rec_len,
            ino: Ino(le32(bytes, offset)),
            entry_type: clip(bytes, offset + 7..offset + 8)
                .first()
                .copied()
                .unwrap_or(0),
            name: clip(bytes, offset + HEADER_SIZE..offset + HEADER_SIZE + name_len),
            stored_hash: DirHash {
                major: le32(bytes, hash_at),
                minor: le32(bytes, hash_at + 4),
            },
        });
        offset += rec_len;
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_lengths() {
        let hash = DirHash { major: 2, minor: 3 };
        assert_eq!(shown(hash, &[7; 16]).len(), 32);
        assert_eq!(shown(hash, &[7; 149]).len(), 210);
        assert_eq!(shown(hash, &[7; 150]).len(), 252);
        assert_ne!(shown(hash, &[7; 255]), shown(hash, &[7; 254]));
        assert_eq!(shown(DirHash { major: 0, minor: 0 }, &[]), b"AAAAAAAAAAA");
        assert_eq!(shown_target(&[3, 0, 1, 2]), None);
    }
}
