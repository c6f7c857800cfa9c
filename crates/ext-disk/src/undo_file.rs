//! Undo files of e2fsprogs: what lay in a file system where something has been written since.
//!
//! The file is cut up into blocks of its own size. The first has the header; another one a copy of
//! the superblock as it is after the writes, its magic number inverted; the others are key blocks,
//! each followed by the data that its keys name, every key's from a new block on.
//!
//! Reference: e2fsprogs' `misc/e2undo.c`, by which e2undo(8) puts the data back.

use crate::bytes::{get_array, put_bytes};
use crate::checksum::crc32c;
use crate::superblock::SUPERBLOCK_SIZE;

/// How the file begins.
pub const MAGIC: &[u8; 8] = b"E2UNDO02";
/// Bytes of the header.
pub const HEADER_BYTES: usize = 512;
/// So many blocks are one key's at most.
pub const KEY_BLOCKS_MAX: u32 = 512;

const KEY_BLOCK_MAGIC: u32 = 0xCADE_CADE;
const KEY_BYTES: usize = 16;
const HAS_OFFSET: u32 = 1;
const FINISHED: u32 = 1;
const HEADER_CRC_AT: usize = HEADER_BYTES - 4;
/// Sizes of blocks that e2undo takes.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 1024..=1 << 20;
/// Where a superblock has its magic number.
const SUPERBLOCK_MAGIC_AT: usize = 0x38;

/// The first bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Keys in all.
    pub keys: u64,
    /// The block of the copy of the superblock.
    pub superblock: u64,
    /// The first key block.
    pub first_key_block: u64,
    /// Bytes of a block of the file.
    pub block_size: u32,
    /// Bytes of that by which keys count.
    pub fs_block_size: u32,
    /// The checksum of the superblock.
    pub superblock_crc: u32,
    /// Everything is there.
    pub is_finished: bool,
    /// Where on the device the file system starts, if it is not the device's start.
    pub fs_offset_bytes: Option<u64>,
}

impl Header {
    /// As the file has it.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let state = if self.is_finished { FINISHED } else { 0 };
        let compat = self.fs_offset_bytes.map_or(0, |_| HAS_OFFSET);
        put_bytes(&mut bytes, 0, MAGIC);
        put_bytes(&mut bytes, 8, &self.keys.to_le_bytes());
        put_bytes(&mut bytes, 16, &self.superblock.to_le_bytes());
        put_bytes(&mut bytes, 24, &self.first_key_block.to_le_bytes());
        put_bytes(&mut bytes, 32, &self.block_size.to_le_bytes());
        put_bytes(&mut bytes, 36, &self.fs_block_size.to_le_bytes());
        put_bytes(&mut bytes, 40, &self.superblock_crc.to_le_bytes());
        put_bytes(&mut bytes, 44, &state.to_le_bytes());
        put_bytes(&mut bytes, 48, &compat.to_le_bytes());
        let offset = self.fs_offset_bytes.unwrap_or(0);
        put_bytes(&mut bytes, 64, &offset.to_le_bytes());
        let crc = crc32c(!0, &bytes[..HEADER_CRC_AT]);
        put_bytes(&mut bytes, HEADER_CRC_AT, &crc.to_le_bytes());
        bytes
    }

    /// `None` for what is no such header, is damaged, or has features that are not known.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let word = |at| u32::from_le_bytes(get_array(bytes, at));
        let long = |at| u64::from_le_bytes(get_array(bytes, at));
        let header = Header {
            keys: long(8),
            superblock: long(16),
            first_key_block: long(24),
            block_size: word(32),
            fs_block_size: word(36),
            superblock_crc: word(40),
            is_finished: word(44) & FINISHED != 0,
            fs_offset_bytes: (word(48) & HAS_OFFSET != 0).then(|| long(64)),
        };
        let is_whole = bytes.starts_with(MAGIC)
            && word(HEADER_CRC_AT) == crc32c(!0, &bytes[..HEADER_CRC_AT])
            && (word(52), word(56)) == (0, 0)
            && BLOCK_BYTES.contains(&header.block_size)
            && header.fs_block_size > 0;
        is_whole.then_some(header)
    }

    /// Keys in one key block.
    pub fn keys_per_block(&self) -> usize {
        (self.block_size as usize / KEY_BYTES).saturating_sub(1)
    }
}

/// Where data belongs that follows a key block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The block of the file system, counted by the header's size.
    pub fs_block: u64,
    /// The checksum of the data.
    pub crc: u32,
    /// Its bytes.
    pub length_bytes: u32,
}

/// A key block of `block_size` bytes; `keys` are no more than there is room for.
pub fn key_block(keys: &[Key], block_size: u32) -> Vec<u8> {
    let mut bytes = vec![0; block_size as usize];
    put_bytes(&mut bytes, 0, &KEY_BLOCK_MAGIC.to_le_bytes());
    for (index, key) in keys.iter().enumerate() {
        let at = (index + 1) * KEY_BYTES;
        put_bytes(&mut bytes, at, &key.fs_block.to_le_bytes());
        put_bytes(&mut bytes, at + 8, &key.crc.to_le_bytes());
        put_bytes(&mut bytes, at + 12, &key.length_bytes.to_le_bytes());
    }
    let crc = crc32c(!0, &bytes);
    put_bytes(&mut bytes, 4, &crc.to_le_bytes());
    bytes
}

/// The first `count` keys of a key block; `None` where it is none, or damaged.
pub fn parse_key_block(bytes: &[u8], count: usize) -> Option<Vec<Key>> {
    let word = |at| u32::from_le_bytes(get_array(bytes, at));
    let mut blank = bytes.to_vec();
    put_bytes(&mut blank, 4, &[0; 4]);
    let is_whole = bytes.len() >= (count + 1) * KEY_BYTES
        && word(0) == KEY_BLOCK_MAGIC
        && word(4) == crc32c(!0, &blank);
    let key = |index: usize| {
        let at = (index + 1) * KEY_BYTES;
        Key {
            fs_block: u64::from_le_bytes(get_array(bytes, at)),
            crc: word(at + 8),
            length_bytes: word(at + 12),
        }
    };
    is_whole.then(|| (0..count).map(key).collect())
}

/// A superblock as the undo file has it, and the other way round.
pub fn invert_magic(superblock: &[u8; SUPERBLOCK_SIZE]) -> [u8; SUPERBLOCK_SIZE] {
    let mut bytes = *superblock;
    for byte in &mut bytes[SUPERBLOCK_MAGIC_AT..SUPERBLOCK_MAGIC_AT + 2] {
        *byte = !*byte;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_not() {
        let header = Header {
            keys: 3,
            superblock: 1,
            first_key_block: 2,
            block_size: 4096,
            fs_block_size: 1024,
            superblock_crc: 7,
            is_finished: true,
            fs_offset_bytes: Some(1 << 20),
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::parse(&bytes), Some(header));
        assert_eq!(header.keys_per_block(), 255);
        for at in 0..HEADER_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Header::parse(&damaged), None, "{at}");
        }
        let key = |fs_block| Key {
            fs_block,
            crc: 5,
            length_bytes: 4096,
        };
        let keys = [key(9), key(1 << 40)];
        let block = key_block(&keys, 1024);
        assert_eq!(parse_key_block(&block, 2).as_deref(), Some(&keys[..]));
        assert_eq!(parse_key_block(&block, 64), None);
        assert_eq!(parse_key_block(&block[..1023], 2), None);
    }
}
