//! Stat data, and all items of an object.

use finefs_namespace::{Error, Result};
use finefs_reiser_disk::edit::{self as disk, NewItem};
use finefs_reiser_disk::stat::{FileKind, StatData};
use finefs_reiser_disk::{ItemKind, Key, KeyVersion, ObjectKey, indirect};

use super::piece::NO_COUNT;
use super::{Editor, Freed, TreeBlocks};
use crate::tree::search::Found;

/// The version of what belongs to stat data of this form.
pub(super) fn version(is_new: bool) -> KeyVersion {
    match is_new {
        true => KeyVersion::V3_6,
        false => KeyVersion::V3_5,
    }
}

impl<B: TreeBlocks> Editor<'_, B> {
    /// The stat data of an object; `Error::Stale` where there is none.
    pub fn stat(&self, object: ObjectKey) -> Result<StatData> {
        let key = Key::from(object, 0);
        let item = self.item(&key)?.ok_or(Error::Stale)?;
        StatData::parse(&item.body).map_err(|error| item.place.damaged(&error))
    }

    /// Gives a new object its stat data.
    pub fn insert_stat(&mut self, object: ObjectKey, stat: &StatData) -> Result<()> {
        self.insert(&NewItem {
            key: Key::from(object, 0),
            version: version(stat.is_new),
            count: NO_COUNT,
            body: &stat.to_bytes(),
        })
    }

    /// Gives an object other stat data, in the form that it has.
    pub fn write_stat(&mut self, object: ObjectKey, stat: &StatData) -> Result<()> {
        self.replace(&Key::from(object, 0), &stat.to_bytes())
    }

    /// The last item of an object, if it has any.
    pub(super) fn last_item(&self, object: ObjectKey) -> Result<Option<(Found<B::Read>, u16)>> {
        let behind = Key {
            object,
            offset: u64::MAX,
            kind: ItemKind::Unknown(u32::MAX),
        };
        let Some((found, item)) = self.find_last(&behind)? else {
            return Ok(None);
        };
        let is_of_it = found.head(item)?.key.object == object;
        Ok(is_of_it.then_some((found, item)))
    }

    /// Removes an object from its end on, its stat data last, in at most so many mutations; true
    /// when nothing is left. Its blocks are told.
    pub fn remove_object(
        &mut self,
        object: ObjectKey,
        mutations_max: u32,
        freed: &mut Freed,
    ) -> Result<bool> {
        for _ in 0..mutations_max {
            let Some((found, last)) = self.last_item(object)? else {
                return Ok(true);
            };
            let mut first = last;
            let mut blocks = Freed::new();
            for item in (0..=last).rev() {
                let head = found.head(item)?;
                if head.key.object != object {
                    break;
                }
                first = item;
                if head.key.kind == ItemKind::Indirect {
                    let damaged = |error| found.place(item).damaged(&error);
                    let pointers = indirect::pointers(found.leaf.body(&head)).map_err(damaged)?;
                    note(&mut blocks, pointers);
                }
            }
            self.splice(found, first..last + 1, &[])?;
            freed.append(&mut blocks);
        }
        Ok(self.last_item(object)?.is_none())
    }
}

/// Notes the blocks of pointers, adjacent ones together.
pub(super) fn note(freed: &mut Freed, pointers: impl Iterator<Item = u32>) {
    for block in pointers.filter(|block| *block != 0) {
        match freed.last_mut() {
            Some((first, count)) if first.wrapping_add(*count) == block => *count += 1,
            _ => freed.push((block, 1)),
        }
    }
}

/// What tells the items of a file's content: whose they are, and in which form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FileKey {
    pub object: ObjectKey,
    /// The version of the items' keys.
    pub version: KeyVersion,
    /// Direct items are filled up with zeros to a multiple of 8 bytes.
    pub pads: bool,
}

impl FileKey {
    /// Of an object with this stat data. Targets of symbolic links have old keys always.
    pub fn of(object: ObjectKey, stat: &StatData) -> FileKey {
        FileKey {
            object,
            version: version(stat.is_new && stat.kind != FileKind::Symlink),
            pads: stat.is_new,
        }
    }
}

/// The most pointers that one mutation adds.
pub(super) fn pointers_max(block_size: usize) -> usize {
    (disk::capacity(block_size) - finefs_reiser_disk::node::ITEM_HEAD_SIZE) / indirect::POINTER_SIZE
}
