//! Directories that lie in their inode (`inline_data`).
//!
//! `i_block` begins with the number of the parent directory, in place of `.` and `..`; a chain of
//! entries fills the rest of it. When it is full, a second chain fills the attribute "system.data".
//! No entry runs from one into the other. The size of the directory is that of both places.
//!
//! Reference: Linux `Documentation/filesystems/ext4/inlinedata.rst`.

use crate::bytes::{Field, clip, le16, le32, put_bytes, put_le16, put_le32};
use crate::dirent::{EntryType, entry_size};
use crate::error::{Corrupt, Result};
use crate::inode::BLOCK_AREA_SIZE;
use crate::units::Ino;

/// Bytes for entries in `i_block`.
pub const FIRST_CHAIN: usize = BLOCK_AREA_SIZE - PARENT_SIZE;

const PARENT_SIZE: usize = 4;
const HEADER_SIZE: usize = 8;
/// A free entry needs so many bytes.
const ENTRY_MIN: usize = 12;

/// An entry of an inline directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode that it names.
    pub ino: Ino,
    /// Its kind, as the entry notes it.
    pub entry_type: EntryType,
}

/// The entries of a directory: of `i_block` and of the value of "system.data" (empty where there is
/// none). With them the parent.
pub fn parse(block_area: &[u8], value: &[u8]) -> Result<(Ino, Vec<InlineEntry>)> {
    let mut entries = Vec::new();
    let first = block_area.get(PARENT_SIZE..).unwrap_or_default();
    for chain in [first, value] {
        parse_chain(chain, &mut entries)?;
    }
    Ok((Ino(le32(block_area, 0)), entries))
}

fn parse_chain(chain: &[u8], entries: &mut Vec<InlineEntry>) -> Result<()> {
    let mut at = 0;
    while at < chain.len() {
        let length = usize::from(le16(chain, at + 4));
        let name_length = usize::from(u8::get_le(chain, at + 6));
        let is_sound = length >= ENTRY_MIN
            && length.is_multiple_of(4)
            && entry_size(name_length) <= length
            && at + length <= chain.len();
        if !is_sound {
            return Err(Corrupt::DirOffset(at as u32).into());
        }
        let ino = Ino(le32(chain, at));
        let name = clip(chain, at + HEADER_SIZE..at + HEADER_SIZE + name_length);
        if ino.0 != 0 {
            if name.is_empty() || name.contains(&0) || name.contains(&b'/') {
                return Err(Corrupt::DirName { offset: at as u32 }.into());
            }
            entries.push(InlineEntry {
                name: name.to_vec(),
                ino,
                entry_type: EntryType(u8::get_le(chain, at + 7)),
            });
        }
        at += length;
    }
    Ok(())
}

/// Puts entries into `i_block` and, where that is too small, into a value of up to `value_max`
/// bytes, which is then given as long as that; a value that was there (`value_min` bytes) stays.
/// `None` where they do not fit.
pub fn build(
    parent: Ino,
    entries: &[InlineEntry],
    (value_min, value_max): (usize, usize),
) -> Option<([u8; BLOCK_AREA_SIZE], Vec<u8>)> {
    let value_max = value_max & !3;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let (mut first_room, mut second_room) = (FIRST_CHAIN, value_max);
    for entry in entries {
        let size = entry_size(entry.name.len());
        if size <= first_room {
            first_room -= size;
            first.push(entry);
        } else if size <= second_room {
            second_room -= size;
            second.push(entry);
        } else {
            return None;
        }
    }
    let mut value = match second.is_empty() && value_min == 0 {
        true => Vec::new(),
        false => vec![0; value_max],
    };
    if !value.is_empty() && value.len() < ENTRY_MIN {
        return None;
    }
    let mut area = [0; BLOCK_AREA_SIZE];
    put_le32(&mut area, 0, parent.0);
    put_chain(area.get_mut(PARENT_SIZE..)?, &first);
    put_chain(&mut value, &second);
    Some((area, value))
}

/// Fills a chain: the last entry takes what is left.
fn put_chain(chain: &mut [u8], entries: &[&InlineEntry]) {
    let end = chain.len();
    if entries.is_empty() && end > 0 {
        put_le16(chain, 4, end as u16);
    }
    let mut at = 0;
    for (index, entry) in entries.iter().enumerate() {
        let length = match index + 1 == entries.len() {
            true => end - at,
            false => entry_size(entry.name.len()),
        };
        put_le32(chain, at, entry.ino.0);
        put_le16(chain, at + 4, length as u16);
        put_bytes(chain, at + 6, &[entry.name.len() as u8, entry.entry_type.0]);
        put_bytes(chain, at + HEADER_SIZE, &entry.name);
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, ino: u32) -> InlineEntry {
        InlineEntry {
            name: name.as_bytes().to_vec(),
            ino: Ino(ino),
            entry_type: EntryType(1),
        }
    }

    #[test]
    fn what_is_built_reads_back() {
        for count in 0..8 {
            let entries: Vec<_> = (0..count)
                .map(|i| entry(&format!("name{i}"), i + 11))
                .collect();
            let (area, value) = build(Ino(2), &entries, (0, 68)).expect("fits");
            assert_eq!(value.len(), if count > 3 { 68 } else { 0 }, "{count}");
            let (parent, mut read) = parse(&area, &value).expect("sound");
            read.sort_by_key(|entry| entry.ino.0);
            assert_eq!((parent, read), (Ino(2), entries));
        }
        let many: Vec<_> = (0..9).map(|i| entry(&format!("name{i}"), i + 11)).collect();
        assert_eq!(build(Ino(2), &many, (0, 68)), None);
        // A value that is there stays.
        let (_, value) = build(Ino(2), &[], (68, 68)).expect("fits");
        assert_eq!(value.len(), 68);
    }

    #[test]
    fn damage_is_named() {
        let (area, value) = build(Ino(2), &[entry("a", 12)], (68, 68)).expect("fits");
        for (at, with) in [(8, 0), (8, 2), (8, 60), (10, 50), (12, b'/'), (12, 0)] {
            let mut area = area;
            area[at] = with;
            assert!(parse(&area, &value).is_err(), "{at} {with}");
        }
        assert!(parse(&area, &value[..8]).is_err());
    }
}
