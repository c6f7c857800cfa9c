//! Directory items: some of the entries of a directory.
//!
//! ```text
//! entry heads 0..n | names n-1 .. 0
//! ```
//! An entry's name goes on to where the one of the entry before begins, the first one's to the
//! end of the item; in format 3.6 it may be filled up with zeros.

use crate::bytes::{le16, le32};
use crate::error::{Corrupt, Result};
use crate::key::ObjectKey;

/// The offset of the entry `.`, and of the first directory item.
pub const DOT_OFFSET: u32 = 1;

/// The offset of the entry `..`.
pub const DOT_DOT_OFFSET: u32 = 2;

/// Longest name in bytes.
pub const NAME_MAX: usize = 255;

const HEAD_SIZE: usize = 16;
const VISIBLE: u16 = 1 << 2;
/// A copy of the stat data stands before the name: never used.
const WITH_STAT_DATA: u16 = 1;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its place in the directory: hash and number, or that of a dot.
    pub offset: u32,
    /// What it names.
    pub object: ObjectKey,
    /// The name.
    pub name: &'a [u8],
    /// False for a name that was removed while its object was in use.
    pub is_visible: bool,
}

impl Entry<'_> {
    /// True for `.` and `..`.
    pub fn is_dot(&self) -> bool {
        self.offset == DOT_OFFSET || self.offset == DOT_DOT_OFFSET
    }
}

/// A directory item.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryItem<'a> {
    body: &'a [u8],
    entries: u16,
}

impl<'a> DirectoryItem<'a> {
    /// Takes the body of an item of so many entries.
    pub fn new(body: &'a [u8], entries: u16) -> Result<DirectoryItem<'a>> {
        if entries == 0 || usize::from(entries) * HEAD_SIZE > body.len() {
            return Err(Corrupt::EntryCount(entries).into());
        }
        Ok(DirectoryItem { body, entries })
    }

    /// The number of entries.
    pub fn len(&self) -> u16 {
        self.entries
    }

    /// False: an item has an entry at least.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The offset of an entry.
    pub fn offset(&self, entry: u16) -> u32 {
        le32(self.body, usize::from(entry) * HEAD_SIZE)
    }

    /// An entry by number.
    pub fn entry(&self, entry: u16) -> Result<Entry<'a>> {
        let at = usize::from(entry) * HEAD_SIZE;
        let location = le16(self.body, at + 12);
        let state = le16(self.body, at + 14);
        let end = match entry.checked_sub(1) {
            None => self.body.len(),
            Some(before) => usize::from(le16(self.body, usize::from(before) * HEAD_SIZE + 12)),
        };
        let start = usize::from(location);
        let heads = usize::from(self.entries) * HEAD_SIZE;
        let bytes = self.body.get(start..end).filter(|_| start >= heads);
        let Some(bytes) = bytes.filter(|_| state & WITH_STAT_DATA == 0) else {
            return Err(Corrupt::EntryPlace { entry, location }.into());
        };
        let name = match bytes.iter().position(|&byte| byte == 0) {
            Some(length) => &bytes[..length],
            None => bytes,
        };
        let is_good = !name.is_empty() && name.len() <= NAME_MAX && !name.contains(&b'/');
        if !is_good {
            return Err(Corrupt::EntryName(entry).into());
        }
        let object = ObjectKey {
            dir_id: le32(self.body, at + 4),
            object_id: le32(self.body, at + 8),
        };
        Ok(Entry {
            offset: self.offset(entry),
            object,
            name,
            is_visible: state & VISIBLE != 0,
        })
    }

    /// All entries in order.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry<'a>>> + use<'a> {
        let item = *self;
        (0..self.entries).map(move |entry| item.entry(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An item with these entries, names filled up to multiples of 8 bytes.
    fn item(names: &[&[u8]]) -> Vec<u8> {
        let mut lengths: Vec<usize> = names
            .iter()
            .map(|name| name.len().next_multiple_of(8))
            .collect();
        lengths.reverse();
        let mut body = vec![0; names.len() * HEAD_SIZE + lengths.iter().sum::<usize>()];
        let mut end = body.len();
        for (number, name) in names.iter().enumerate() {
            end -= name.len().next_multiple_of(8);
            body[end..end + name.len()].copy_from_slice(name);
            let head = &mut body[number * HEAD_SIZE..][..HEAD_SIZE];
            head[0] = number as u8 + 1;
            head[4] = 1;
            head[8] = 100 + number as u8;
            head[12..14].copy_from_slice(&(end as u16).to_le_bytes());
            head[14] = VISIBLE as u8;
        }
        body
    }

    #[test]
    fn entries() {
        let body = item(&[b".", b"..", b"a name", b"12345678"]);
        let item = DirectoryItem::new(&body, 4).expect("it has room");
        let entries: Vec<Entry<'_>> = item.entries().map(|entry| entry.expect("good")).collect();
        let names: Vec<&[u8]> = entries.iter().map(|entry| entry.name).collect();
        assert_eq!(names, [&b"."[..], b"..", b"a name", b"12345678"]);
        assert!(entries[1].is_dot() && !entries[2].is_dot() && entries[2].is_visible);
        assert_eq!(
            entries[3].object,
            ObjectKey {
                dir_id: 1,
                object_id: 103
            }
        );
    }

    #[test]
    fn damage() {
        let body = item(&[b".", b".."]);
        assert!(DirectoryItem::new(&body, 0).is_err());
        assert!(DirectoryItem::new(&body, 9).is_err());
        for (at, value) in [(12, 200), (12, 3), (28, 0), (14, 1)] {
            let mut bad = body.clone();
            bad[at] = value;
            let item = DirectoryItem::new(&bad, 2).expect("it has room");
            assert!(
                item.entries().any(|entry| entry.is_err()),
                "{value} at {at}"
            );
        }
        let slash = item(&[b"a/b"]);
        let item = DirectoryItem::new(&slash, 1).expect("it has room");
        assert_eq!(item.entry(0), Err(Corrupt::EntryName(0).into()));
    }
}
