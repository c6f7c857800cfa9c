//! Entries of directories.
//!
//! An entry's place is the hash of its name and, in the low 7 bits, a number that tells names of
//! one hash apart: the lowest that is free. `.` and `..` have the places 1 and 2. Items of
//! directories have keys of the old version in both formats; their key's offset is the place of
//! their first entry.

use std::ops::ControlFlow;

use finefs_namespace::{Error, Result};
use finefs_reiser_disk::directory::{
    self as disk, DOT_DOT_OFFSET, DOT_OFFSET, DirectoryItem, entry_space,
};
use finefs_reiser_disk::hash::{GENERATION_MAX, NameHash};
use finefs_reiser_disk::{DiskError, ItemKind, Key, KeyVersion, ObjectKey};

use super::{Editor, NewItem, TreeBlocks};
use crate::tree::search::{Found, Place};

/// A directory, and how its entries are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Directory {
    pub object: ObjectKey,
    pub hash: NameHash,
    /// Names are filled up to multiples of 8 bytes: where its stat data is of the new form.
    pub pads: bool,
}

/// An entry that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoundEntry {
    pub object: ObjectKey,
    /// Its place in the directory.
    pub offset: u32,
}

/// The entries of one hash.
struct SameHash {
    found: Option<FoundEntry>,
    /// Which numbers they have, a bit each.
    numbers: u128,
}

impl Directory {
    fn key(&self, offset: u32) -> Key {
        Key {
            object: self.object,
            offset: u64::from(offset),
            kind: ItemKind::Directory,
        }
    }

    /// Where names of this one's hash begin, and the last place that they can have.
    fn places(&self, name: &[u8]) -> (u32, u32) {
        match self.hash.entry_offset(name) {
            dot @ (DOT_OFFSET | DOT_DOT_OFFSET) => (dot, dot),
            first => (first, first | GENERATION_MAX),
        }
    }
}

fn parsed(found_at: Place, body: &[u8], entries: u16) -> Result<DirectoryItem<'_>> {
    DirectoryItem::new(body, entries).map_err(|error| found_at.damaged(&error))
}

impl<B: TreeBlocks> Editor<'_, B> {
    /// Makes the first item of a directory; gives the directory's size.
    pub fn make_directory(&mut self, directory: &Directory, parent: ObjectKey) -> Result<u32> {
        let dot = disk::single(DOT_OFFSET, directory.object, b".", directory.pads);
        let dots = disk::single(DOT_DOT_OFFSET, parent, b"..", directory.pads);
        let place = Place { block: 0, item: 0 };
        let runs = [
            parsed(place, &dot, 1)?.whole(),
            parsed(place, &dots, 1)?.whole(),
        ];
        let [dot, dots] = runs.map(|run| run.map_err(|error| place.damaged(&error)));
        let body = disk::concat(&[dot?, dots?]);
        self.insert(&NewItem {
            key: directory.key(DOT_OFFSET),
            version: KeyVersion::V3_5,
            count: 2,
            body: &body,
        })?;
        Ok(body.len() as u32)
    }

    /// What a name names.
    pub fn find_entry(&self, directory: &Directory, name: &[u8]) -> Result<Option<FoundEntry>> {
        Ok(self.same_hash(directory, name)?.found)
    }

    fn same_hash(&self, directory: &Directory, name: &[u8]) -> Result<SameHash> {
        let (first, last) = directory.places(name);
        let mut same = SameHash {
            found: None,
            numbers: 0,
        };
        self.visit_around(&directory.key(first), &mut |head, body, place| {
            if head.key.object < directory.object {
                return Ok(ControlFlow::Continue(()));
            }
            if head.key.object > directory.object || head.key.offset > u64::from(last) {
                return Ok(ControlFlow::Break(()));
            }
            if head.key.kind != ItemKind::Directory {
                return Ok(ControlFlow::Continue(()));
            }
            let item = parsed(place, body, head.count)?;
            for number in item.position(first)..item.len() {
                let offset = item.offset(number);
                if offset > last {
                    return Ok(ControlFlow::Break(()));
                }
                same.numbers |= 1 << (offset & GENERATION_MAX);
                let entry = item.entry(number).map_err(|error| place.damaged(&error))?;
                if entry.name == name {
                    let object = entry.object;
                    same.found = Some(FoundEntry { object, offset });
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(same)
    }

    /// The item that an entry's place is in, and which entry there has the place or comes next.
    fn locate(&self, directory: &Directory, offset: u32) -> Result<(Found<B::Read>, u16, u16)> {
        let key = directory.key(offset);
        let place = self.find_last(&key)?;
        let Some((found, item)) = place else {
            return Err(no_item(&key));
        };
        let head = found.head(item)?;
        if head.key.object != directory.object || head.key.kind != ItemKind::Directory {
            return Err(no_item(&key));
        }
        let body = parsed(found.place(item), found.leaf.body(&head), head.count)?;
        let entry = body.position(offset);
        Ok((found, item, entry))
    }

    /// Adds a name; gives the bytes by which the directory grows. A name that is there is damage;
    /// where 128 names of its hash are, `Error::Busy`, as of the kernel.
    pub fn add_entry(
        &mut self,
        directory: &Directory,
        name: &[u8],
        object: ObjectKey,
    ) -> Result<u32> {
        let same = self.same_hash(directory, name)?;
        if same.found.is_some() {
            return Err(Error::corrupt(format_args!(
                "directory {}: name {} exists",
                directory.object.object_id,
                name.escape_ascii()
            )));
        }
        let (first, last) = directory.places(name);
        let number = same.numbers.trailing_ones();
        let offset = match first == last {
            true => first,
            false if number > GENERATION_MAX => return Err(Error::Busy),
            false => first | number,
        };
        let (found, item, entry) = self.locate(directory, offset)?;
        let head = found.head(item)?;
        let place = found.place(item);
        let damaged = |error: DiskError| place.damaged(&error);
        let old = parsed(place, found.leaf.body(&head), head.count)?;
        let alone = disk::single(offset, object, name, directory.pads);
        let body = disk::concat(&[
            old.run(0..entry).map_err(damaged)?,
            parsed(place, &alone, 1)?.whole().map_err(damaged)?,
            old.run(entry..old.len()).map_err(damaged)?,
        ]);
        let mut key = head.key;
        key.offset = key.offset.min(u64::from(offset));
        let new = NewItem {
            key,
            version: head.version,
            count: head.count + 1,
            body: &body,
        };
        self.splice(found, item..item + 1, &[new])?;
        Ok(entry_space(name.len(), directory.pads) as u32)
    }

    /// Removes a name; gives the bytes by which the directory shrinks. A name that is not there is
    /// damage.
    pub fn remove_entry(&mut self, directory: &Directory, name: &[u8]) -> Result<u32> {
        let there = self.find_name(directory, name)?;
        self.remove_entry_at(directory, there.offset)
    }

    /// [`Editor::remove_entry`] of the entry at a place, whatever its name.
    pub fn remove_entry_at(&mut self, directory: &Directory, offset: u32) -> Result<u32> {
        let (found, item, entry) = self.locate(directory, offset)?;
        let head = found.head(item)?;
        let place = found.place(item);
        let damaged = |error: DiskError| place.damaged(&error);
        let old = parsed(place, found.leaf.body(&head), head.count)?;
        if entry == old.len() || old.offset(entry) != offset {
            return Err(no_item(&directory.key(offset)));
        }
        let space = old.space(entry) as u32;
        if old.len() == 1 {
            self.splice(found, item..item + 1, &[])?;
            return Ok(space);
        }
        let body = disk::concat(&[
            old.run(0..entry).map_err(damaged)?,
            old.run(entry + 1..old.len()).map_err(damaged)?,
        ]);
        let mut key = head.key;
        if entry == 0 {
            key.offset = u64::from(old.offset(1));
        }
        let new = NewItem {
            key,
            version: head.version,
            count: head.count - 1,
            body: &body,
        };
        self.splice(found, item..item + 1, &[new])?;
        Ok(space)
    }

    /// Makes a name, which can be `..`, name another object.
    pub fn replace_entry(
        &mut self,
        directory: &Directory,
        name: &[u8],
        object: ObjectKey,
    ) -> Result<()> {
        let there = self.find_name(directory, name)?;
        let (found, item, entry) = self.locate(directory, there.offset)?;
        self.write_in_place(found, item, &mut |body| {
            disk::set_object(body, entry, object);
        })
    }

    /// The entry of a name that must be there.
    fn find_name(&self, directory: &Directory, name: &[u8]) -> Result<FoundEntry> {
        self.find_entry(directory, name)?.ok_or_else(|| {
            Error::corrupt(format_args!(
                "directory {}: no name {}",
                directory.object.object_id,
                name.escape_ascii()
            ))
        })
    }
}

fn no_item(key: &Key) -> Error {
    Error::corrupt(format_args!("no item of directory entry {key}"))
}
