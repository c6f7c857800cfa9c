//! Directory items: some of the entries of a directory.
//!
//! ```text
//! entry heads 0..n | names n-1 .. 0
//! ```
//! An entry's name goes on to where the one of the entry before begins, the first one's to the
//! end of the item; directories with stat data of format 3.6 fill it up with zeros to a multiple of
//! 8 bytes.
//!
//! New items are made of runs of entries, by [`concat`].

use std::ops::Range;

use crate::bytes::{le16, le32, put, put16, put32};
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
    /// The name. One of a user's directory has no slash; that of an attribute may have.
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
        if name.is_empty() || name.len() > NAME_MAX {
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

/// Entries of an item that stand one behind the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run<'a> {
    heads: &'a [u8],
    names: &'a [u8],
    /// Where the names lie in the item.
    names_at: usize,
}

impl<'a> DirectoryItem<'a> {
    /// The first entry whose offset is this or greater; [`DirectoryItem::len`] where there is none.
    pub fn position(&self, offset: u32) -> u16 {
        let (mut from, mut to) = (0, self.entries);
        while from < to {
            let middle = u16::midpoint(from, to);
            match self.offset(middle) < offset {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        from
    }

    fn location(&self, entry: u16) -> usize {
        usize::from(le16(self.body, usize::from(entry) * HEAD_SIZE + 12))
    }

    fn name_end(&self, entry: u16) -> usize {
        match entry.checked_sub(1) {
            None => self.body.len(),
            Some(before) => self.location(before),
        }
    }

    /// Bytes that an entry takes, head and name.
    pub fn space(&self, entry: u16) -> usize {
        HEAD_SIZE + self.name_end(entry).saturating_sub(self.location(entry))
    }

    /// All entries, which must fill the item.
    pub fn whole(&self) -> Result<Run<'a>> {
        let run = self.run(0..self.entries)?;
        if run.names_at != run.heads.len() {
            let (entry, location) = (self.entries - 1, run.names_at as u16);
            return Err(Corrupt::EntryPlace { entry, location }.into());
        }
        Ok(run)
    }

    /// Some of the entries. Their names must lie one behind the other.
    pub fn run(&self, entries: Range<u16>) -> Result<Run<'a>> {
        let heads = usize::from(self.entries) * HEAD_SIZE;
        for entry in entries.clone() {
            let (start, end) = (self.location(entry), self.name_end(entry));
            if entry >= self.entries || start < heads || start >= end || end > self.body.len() {
                let location = start as u16;
                return Err(Corrupt::EntryPlace { entry, location }.into());
            }
        }
        let (first, last) = (usize::from(entries.start), usize::from(entries.end));
        let names_at = self.name_end(entries.end);
        let names = names_at..self.name_end(entries.start).max(names_at);
        Ok(Run {
            heads: self
                .body
                .get(first * HEAD_SIZE..last * HEAD_SIZE)
                .unwrap_or_default(),
            names: self.body.get(names).unwrap_or_default(),
            names_at,
        })
    }
}

impl Run<'_> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.heads.len() / HEAD_SIZE
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }
}

/// The body of an item that has the entries of these runs, in order.
pub fn concat(runs: &[Run<'_>]) -> Vec<u8> {
    let heads_size: usize = runs.iter().map(|run| run.heads.len()).sum();
    let names_size: usize = runs.iter().map(|run| run.names.len()).sum();
    let mut body = Vec::with_capacity(heads_size + names_size);
    let mut end = heads_size + names_size;
    for run in runs {
        let names_to = end - run.names.len();
        for head in run.heads.chunks_exact(HEAD_SIZE) {
            let location = usize::from(le16(head, 12)) - run.names_at + names_to;
            body.extend_from_slice(&head[..12]);
            body.extend_from_slice(&(location as u16).to_le_bytes());
            body.extend_from_slice(&head[14..]);
        }
        end = names_to;
    }
    for run in runs.iter().rev() {
        body.extend_from_slice(run.names);
    }
    body
}

/// The body of an item of one visible entry. `pads`: the directory fills names up.
pub fn single(offset: u32, object: ObjectKey, name: &[u8], pads: bool) -> Vec<u8> {
    let mut body = vec![0; entry_space(name.len(), pads)];
    put32(&mut body, 0, offset);
    put16(&mut body, 12, HEAD_SIZE as u16);
    put16(&mut body, 14, VISIBLE);
    put(&mut body, HEAD_SIZE, name);
    set_object(&mut body, 0, object);
    body
}

/// Bytes that an entry with a name of this length takes.
pub fn entry_space(length: usize, pads: bool) -> usize {
    HEAD_SIZE
        + if pads {
            length.next_multiple_of(8)
        } else {
            length
        }
}

/// Makes an entry name another object.
pub fn set_object(body: &mut [u8], entry: u16, object: ObjectKey) {
    let at = usize::from(entry) * HEAD_SIZE;
    put32(body, at + 4, object.dir_id);
    put32(body, at + 8, object.object_id);
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
    fn items_of_runs() {
        let names: [&[u8]; 4] = [b".", b"..", b"a name", b"12345678"];
        let body = item(&names);
        let whole = DirectoryItem::new(&body, 4).expect("it has room");
        let run = |range| whole.run(range).expect("it is sound");
        assert_eq!(concat(&[whole.whole().expect("it is sound")]), body);
        assert_eq!(concat(&[run(0..4)]), body);
        assert_eq!(concat(&[run(0..1), run(1..1), run(1..4)]), body);
        assert_eq!(concat(&[run(0..2)]), item(&names[..2]));
        let object = |object_id| ObjectKey {
            dir_id: 1,
            object_id,
        };
        let alone = single(3, object(102), b"a name", true);
        let alone = DirectoryItem::new(&alone, 1).expect("it has room");
        assert_eq!(alone.entry(0), whole.entry(2));
        let again = concat(&[run(0..2), alone.run(0..1).expect("sound"), run(3..4)]);
        assert_eq!(again, body);
        let spaces: Vec<usize> = (0..4).map(|entry| whole.space(entry)).collect();
        assert_eq!((spaces, whole.position(3)), (vec![24; 4], 2));
        assert_eq!((whole.position(9), entry_space(9, false)), (4, 25));
        let mut changed = body.clone();
        set_object(&mut changed, 1, object(7));
        let changed = DirectoryItem::new(&changed, 4).expect("it has room");
        assert_eq!(changed.entry(1).expect("sound").object, object(7));
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
            assert!(at > 12 || item.whole().is_err());
        }
        let long = [b'a'; NAME_MAX + 1];
        for name in [&[0; 8][..], &long] {
            let body = item(&[name]);
            let item = DirectoryItem::new(&body, 1).expect("it has room");
            assert_eq!(item.entry(0), Err(Corrupt::EntryName(0).into()));
        }
    }
}
