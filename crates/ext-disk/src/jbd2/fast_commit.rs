//! Records of the fast commit area: little-endian tag, length and value, one after the other.
//!
//! Reference: Linux `Documentation/filesystems/ext4/journal.rst`, "Fast commits".

use crate::bytes::{clip, le16, le32, put_le16};
use crate::error::{Corrupt, Result};

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
