//! Records of the fast commit area: little-endian tag, length and value, one after the other.
//!
//! Reference: Linux `Documentation/filesystems/ext4/journal.rst`, "Fast commits".

use crate::bytes::{clip, le16, le32, put_le16};
use crate::error::{Corrupt, Result};
use crate::units::LogicalBlock;

/// Bytes of tag and length.
pub const HEADER_SIZE: usize = 4;
const TAIL_VALUE_SIZE: usize = 8;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FcTag {
    /// Adds an extent to an inode.
    AddRange,
    /// Removes logical blocks from an inode.
    DelRange,
    /// Creates a directory entry for a new file.
    Creat,
    /// Adds a link.
    Link,
    /// Removes a link.
    Unlink,
    /// An inode as it is on disk.
    Inode,
    /// Nothing; fills the block.
    Pad,
    /// Ends a fast commit; holds the checksum.
    Tail,
    /// Starts the area's contents.
    Head,
    /// None of these.
    Unknown(u16),
}

const TAGS: [(FcTag, u16, &str); 9] = [
    (FcTag::AddRange, 1, "add_range"),
    (FcTag::DelRange, 2, "del_range"),
    (FcTag::Creat, 3, "creat"),
    (FcTag::Link, 4, "link"),
    (FcTag::Unlink, 5, "unlink"),
    (FcTag::Inode, 6, "inode"),
    (FcTag::Pad, 7, "pad"),
    (FcTag::Tail, 8, "tail"),
    (FcTag::Head, 9, "head"),
];

impl FcTag {
    /// From the number on disk.
    pub fn from_raw(raw: u16) -> FcTag {
        TAGS.iter()
            .find(|(_, n, _)| *n == raw)
            .map_or(FcTag::Unknown(raw), |(tag, _, _)| *tag)
    }

    /// The number on disk.
    pub fn raw(self) -> u16 {
        match self {
            FcTag::Unknown(raw) => raw,
            known => TAGS
                .iter()
                .find(|(tag, _, _)| *tag == known)
                .map_or(0, |(_, n, _)| *n),
        }
    }

    /// A name for people.
    pub fn name(self) -> &'static str {
        TAGS.iter()
            .find(|(tag, _, _)| *tag == self)
            .map_or("unknown", |(_, _, name)| *name)
    }
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FcRecord<'a> {
    /// Byte offset in the block.
    pub offset: usize,
    /// What it says.
    pub tag: FcTag,
    /// Its value.
    pub value: &'a [u8],
}

/// The records of a block of the area. Ends after a tail, which is the last of its block, or an
/// error.
pub fn records(block: &[u8]) -> impl Iterator<Item = Result<FcRecord<'_>>> + '_ {
    let mut next = Some(0);
    core::iter::from_fn(move || {
        let offset: usize = next.filter(|at| at + HEADER_SIZE <= block.len())?;
        let tag = FcTag::from_raw(le16(block, offset));
        let start = offset + HEADER_SIZE;
        let stored_len = usize::from(le16(block, offset + 2));
        // A tail's length counts the rest of the block, by a whole block too much when there is
        // no rest.
        let is_tail = tag == FcTag::Tail && stored_len >= TAIL_VALUE_SIZE;
        let len = if is_tail { TAIL_VALUE_SIZE } else { stored_len };
        if start + len > block.len() {
            next = None;
            return Some(Err(Corrupt::FastCommitTag(offset as u32).into()));
        }
        next = (!is_tail).then_some(start + len);
        Some(Ok(FcRecord {
            offset,
            tag,
            value: clip(block, start..start + len),
        }))
    })
}

/// Writes tag and length; nothing happens when they do not fit.
pub fn write_header(block: &mut [u8], offset: usize, tag: FcTag, len: u16) {
    if offset.saturating_add(HEADER_SIZE) <= block.len() {
        put_le16(block, offset, tag.raw());
        put_le16(block, offset + 2, len);
    }
}

/// The value of a head record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FcHead {
    /// Features; none is defined.
    pub features: u32,
    /// The transaction that the fast commits build on.
    pub transaction: u32,
}

impl FcHead {
    /// Reads it; `None` when it is too short.
    pub fn parse(value: &[u8]) -> Option<FcHead> {
        let is_whole = value.len() >= 8;
        is_whole.then(|| FcHead {
            features: le32(value, 0),
            transaction: le32(value, 4),
        })
    }
}

/// The value of a tail record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FcTail {
    /// The transaction that the fast commit builds on.
    pub transaction: u32,
    /// crc32c, unseeded, of all records since the tail before, up to this field.
    pub checksum: u32,
}

impl FcTail {
    /// Reads it; `None` when it is too short.
    pub fn parse(value: &[u8]) -> Option<FcTail> {
        let is_whole = value.len() >= 8;
        is_whole.then(|| FcTail {
            transaction: le32(value, 0),
            checksum: le32(value, 4),
        })
    }
}

/// The value of a record that adds or removes a range of an inode's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FcRange {
    /// The inode.
    pub ino: u32,
    /// First block within the file.
    pub logical: LogicalBlock,
    /// Number of blocks.
    pub length: u32,
    /// First block on the device, and whether it reads as zeros; `None` where a range is removed.
    pub physical: Option<(u64, bool)>,
}

impl FcRange {
    /// Reads the value of an [`FcTag::AddRange`]; `None` when it is too short.
    pub fn parse_added(value: &[u8]) -> Option<FcRange> {
        if value.len() < 16 {
            return None;
        }
        let stored_len = u32::from(le16(value, 8));
        let is_unwritten = stored_len > UNWRITTEN_LEN;
        let physical = u64::from(le16(value, 10)) << 32 | u64::from(le32(value, 12));
        Some(FcRange {
            ino: le32(value, 0),
            logical: le32(value, 4).into(),
            length: stored_len - if is_unwritten { UNWRITTEN_LEN } else { 0 },
            physical: Some((physical, is_unwritten)),
        })
    }

    /// Reads the value of an [`FcTag::DelRange`]; `None` when it is too short.
    pub fn parse_removed(value: &[u8]) -> Option<FcRange> {
        (value.len() >= 12).then(|| FcRange {
            ino: le32(value, 0),
            logical: le32(value, 4).into(),
            length: le32(value, 8),
            physical: None,
        })
    }
}

/// Lengths of extents above this are of unwritten ones.
const UNWRITTEN_LEN: u32 = 0x8000;

/// The value of a record about a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FcEntry<'a> {
    /// The directory.
    pub parent: u32,
    /// What the name names.
    pub ino: u32,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> FcEntry<'a> {
    /// Reads it; `None` when there is no name, or one that cannot be.
    pub fn parse(value: &'a [u8]) -> Option<FcEntry<'a>> {
        let name = value.get(8..)?;
        let is_name = !name.is_empty() && name.len() <= 255 && !name.contains(&b'/');
        is_name.then(|| FcEntry {
            parent: le32(value, 0),
            ino: le32(value, 4),
            name,
        })
    }
}

/// The value of an inode record: its number, and its bytes up to the extended attributes.
pub fn parse_inode(value: &[u8]) -> Option<(u32, &[u8])> {
    let bytes = value.get(4..)?;
    (bytes.len() >= crate::inode::INODE_SIZE_MIN).then(|| (le32(value, 0), bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let added = [7, 0, 0, 0, 1, 0, 0, 0, 3, 0x80, 1, 0, 9, 0, 0, 0];
        let range = FcRange::parse_added(&added).expect("it is whole");
        assert_eq!(
            (range.ino, range.logical, range.length),
            (7, LogicalBlock(1), 3)
        );
        assert_eq!(range.physical, Some((1 << 32 | 9, true)));
        assert_eq!(FcRange::parse_added(&added[..15]), None);
        assert_eq!(FcRange::parse_removed(&added[..11]), None);
        let entry = FcEntry::parse(b"\x02\0\0\0\x0c\0\0\0name").expect("it has a name");
        assert_eq!((entry.parent, entry.ino, entry.name), (2, 12, &b"name"[..]));
        assert_eq!(FcEntry::parse(b"\x02\0\0\0\x0c\0\0\0"), None);
        assert_eq!(FcEntry::parse(b"\x02\0\0\0\x0c\0\0\0a/b"), None);
        assert_eq!(parse_inode(&[0; 100]), None);
    }
}
