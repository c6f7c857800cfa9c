//! Block numbers and tails of files.
//!
//! The indirect items of a file tell the blocks of its beginning, without a gap; behind them may
//! follow direct items, which are its tail. What is behind all items up to the file's size is a
//! hole.

use std::ops::ControlFlow;

use finefs_namespace::{Error, LogicalBlock, Result};
use finefs_reiser_disk::edit::NewItem;
use finefs_reiser_disk::indirect::{POINTER_SIZE, direct_max, pointers, set_pointer};
use finefs_reiser_disk::node::ItemHead;
use finefs_reiser_disk::{ItemKind, Key, KeyVersion, ObjectKey};

use super::object::{FileKey, note, pointers_max};
use super::piece::NO_COUNT;
use super::{Editor, Freed, TreeBlocks};
use crate::tree::search::Found;

/// The bytes of a file that are in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// Where in the file they begin.
    pub offset: u64,
    /// They, and the zeros that fill them up.
    pub bytes: Vec<u8>,
}

/// Blocks to map: adjacent ones, or holes.
#[derive(Clone, Copy)]
struct Run {
    /// The first one; 0 for holes.
    first: u32,
    count: u64,
}

impl Run {
    fn pointer(&self, number: u64) -> u32 {
        match self.first {
            0 => 0,
            first => first.wrapping_add(number as u32),
        }
    }

    fn without(&self, count: u64) -> Run {
        Run {
            first: self.pointer(count),
            count: self.count - count,
        }
    }
}

impl<B: TreeBlocks> Editor<'_, B> {
    /// Makes blocks of a file, from `logical` on, those of the device from `first` on, or holes
    /// where that is 0. At most so many mutations, beside those that give a hole before `logical`
    /// its pointers ([`Editor::extend`]). Tells how many blocks that was; 0 when all of them are
    /// holes behind the last pointer, which get none. The blocks that were there are told. Direct
    /// items in the way are damage: the tail must be taken out before.
    pub fn map(
        &mut self,
        file: &FileKey,
        logical: LogicalBlock,
        (first, count): (u32, u64),
        mutations_max: u32,
        freed: &mut Freed,
    ) -> Result<u64> {
        let mut run = Run { first, count };
        let mut done = 0;
        for _ in 0..mutations_max {
            if run.count == 0 {
                break;
            }
            let mapped = self.map_some(file, logical + done, run, freed)?;
            if mapped == 0 {
                break;
            }
            done += mapped;
            run = run.without(mapped);
        }
        Ok(done)
    }

    /// Maps the first blocks of a run, and says how many; 0 when what is left are holes behind the
    /// last pointer.
    fn map_some(
        &mut self,
        file: &FileKey,
        logical: LogicalBlock,
        run: Run,
        freed: &mut Freed,
    ) -> Result<u64> {
        let block_size = self.block_size() as u64;
        let offset = logical.offset_bytes(block_size);
        let key = content_key(file.object, offset, ItemKind::Indirect)?;
        let before = self.find_last(&key)?;
        let Some((found, item)) = before else {
            return Err(no_object(file));
        };
        let head = found.head(item)?;
        let end = self.pointers_end(file, &found, item, &head)?;
        if logical >= end {
            if run.first == 0 {
                return Ok(0);
            }
            // The key of a direct item behind the last pointer is greater than that of this place.
            if let Some(behind) = self.direct_at(file.object, end)? {
                return Err(behind);
            }
            drop(found);
            self.extend(file, logical, u32::MAX)?;
            let count = run.count.min(pointers_max(self.block_size()) as u64);
            let mut added = vec![0; count as usize * POINTER_SIZE];
            for number in 0..count {
                set_pointer(&mut added, number as usize, run.pointer(number));
            }
            self.append_pointers(file, logical, &added)?;
            return Ok(count);
        }
        let start = LogicalBlock::of_byte(head.key.offset - 1, block_size);
        let place = found.place(item);
        let at = (logical - start) as usize;
        let count = run.count.min(end - logical);
        let body = found.leaf.body(&head);
        let old = pointers(body).map_err(|error| place.damaged(&error))?;
        let mut blocks = Freed::new();
        note(&mut blocks, old.skip(at).take(count as usize));
        if run.first == 0 && blocks.is_empty() {
            // They are holes.
            return Ok(count);
        }
        self.write_in_place(found, item, &mut |body| {
            for number in 0..count {
                set_pointer(body, at + number as usize, run.pointer(number));
            }
        })?;
        freed.append(&mut blocks);
        Ok(count)
    }

    /// The first block behind an item of a file, which must be stat data or pointers.
    fn pointers_end(
        &self,
        file: &FileKey,
        found: &Found<B::Read>,
        item: u16,
        head: &ItemHead,
    ) -> Result<LogicalBlock> {
        let block_size = self.block_size() as u64;
        if head.key.object != file.object {
            return Err(no_object(file));
        }
        let place = found.place(item);
        match head.key.kind {
            ItemKind::StatData => Ok(LogicalBlock(0)),
            ItemKind::Indirect => {
                let start = head.key.offset.wrapping_sub(1);
                let length = usize::from(head.length);
                if !start.is_multiple_of(block_size) || !length.is_multiple_of(POINTER_SIZE) {
                    return Err(place.corrupt(format_args!("indirect item {}", head.key)));
                }
                Ok(LogicalBlock::of_byte(start, block_size) + (length / POINTER_SIZE) as u64)
            }
            _ => Err(place.corrupt(format_args!("item {}, not pointers", head.key))),
        }
    }

    /// The error about a direct item that begins at a block; `None` where there is none.
    fn direct_at(&self, object: ObjectKey, block: LogicalBlock) -> Result<Option<Error>> {
        let offset = block.offset_bytes(self.block_size() as u64);
        let key = content_key(object, offset, ItemKind::Direct)?;
        let there = self.find_exact(&key)?;
        Ok(there.map(|(found, item)| {
            found
                .place(item)
                .corrupt(format_args!("tail {key} where blocks are to be"))
        }))
    }

    /// Adds pointers of holes up to a block, unless there are as many. At most so many mutations;
    /// true when that was enough.
    pub fn extend(&mut self, file: &FileKey, to: LogicalBlock, mutations_max: u32) -> Result<bool> {
        for _ in 0..mutations_max {
            let end = self.mapped_end(file)?;
            if end >= to {
                return Ok(true);
            }
            let holes = (to - end).min(pointers_max(self.block_size()) as u64);
            self.append_pointers(file, end, &vec![0; holes as usize * POINTER_SIZE])?;
        }
        Ok(self.mapped_end(file)? >= to)
    }

    /// The first block behind the last pointer.
    fn mapped_end(&self, file: &FileKey) -> Result<LogicalBlock> {
        let Some((found, item)) = self.last_item(file.object)? else {
            return Err(no_object(file));
        };
        let head = found.head(item)?;
        self.pointers_end(file, &found, item, &head)
    }

    fn append_pointers(&mut self, file: &FileKey, end: LogicalBlock, added: &[u8]) -> Result<()> {
        let block_size = self.block_size() as u64;
        let offset = end.offset_bytes(block_size);
        let key = content_key(file.object, offset, ItemKind::Indirect)?;
        let length = (added.len() / POINTER_SIZE) as u64 * block_size;
        if file.version == KeyVersion::V3_5 && offset + length > u64::from(u32::MAX) {
            return Err(Error::FileTooLarge);
        }
        // It becomes one with the item before, if that is in the same leaf.
        self.insert(&NewItem {
            key,
            version: file.version,
            count: 0,
            body: added,
        })
    }

    /// Cuts what is behind a size: whole blocks, and bytes of a tail. At most so many mutations,
    /// from the end on; true when all of it is gone. Its blocks are told.
    pub fn truncate(
        &mut self,
        file: &FileKey,
        size_bytes: u64,
        mutations_max: u32,
        freed: &mut Freed,
    ) -> Result<bool> {
        for _ in 0..mutations_max {
            if !self.cut_last(file, size_bytes, freed)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Cuts the last item; false when nothing of it is behind the size.
    fn cut_last(&mut self, file: &FileKey, size_bytes: u64, freed: &mut Freed) -> Result<bool> {
        let Some((found, item)) = self.last_item(file.object)? else {
            return Err(no_object(file));
        };
        let head = found.head(item)?;
        let place = found.place(item);
        let block_size = self.block_size() as u64;
        let start = head.key.offset.saturating_sub(1);
        let length = u64::from(head.length);
        let mut blocks = Freed::new();
        let body = found.leaf.body(&head);
        let (keep, zeros_from) = match head.key.kind {
            ItemKind::StatData => return Ok(false),
            ItemKind::Direct => {
                let keep = size_bytes.saturating_sub(start);
                let padded = if file.pads {
                    keep.next_multiple_of(8)
                } else {
                    keep
                };
                (padded.min(length), keep)
            }
            ItemKind::Indirect => {
                let end = size_bytes.div_ceil(block_size);
                let pointers_left = end.saturating_sub(start / block_size);
                let keep = pointers_left
                    .saturating_mul(POINTER_SIZE as u64)
                    .min(length);
                let old = pointers(body).map_err(|error| place.damaged(&error))?;
                note(&mut blocks, old.skip(keep as usize / POINTER_SIZE));
                (keep, length)
            }
            _ => return Err(place.corrupt(format_args!("item {} of a file", head.key))),
        };
        if keep == length {
            let padding = body.get(zeros_from as usize..).unwrap_or_default();
            if padding.iter().any(|byte| *byte != 0) {
                self.write_in_place(found, item, &mut |body| {
                    body[zeros_from as usize..].fill(0);
                })?;
            }
            return Ok(false);
        }
        let mut body = body[..keep as usize].to_vec();
        if let Some(padding) = body.get_mut(zeros_from as usize..) {
            padding.fill(0);
        }
        let new = NewItem {
            key: head.key,
            version: head.version,
            count: if head.key.kind == ItemKind::Direct {
                head.count
            } else {
                0
            },
            body: &body,
        };
        let new = if keep == 0 { &[][..] } else { &[new] };
        self.splice(found, item..item + 1, new)?;
        freed.append(&mut blocks);
        Ok(true)
    }

    /// The bytes at the end of a file that are in direct items: all that stand behind its pointers.
    pub fn tail(&self, file: &FileKey) -> Result<Option<Tail>> {
        let Some((found, item)) = self.last_item(file.object)? else {
            return Err(no_object(file));
        };
        let last = found.head(item)?.key;
        if last.kind != ItemKind::Direct {
            return Ok(None);
        }
        let block_size = self.block_size() as u64;
        let start = last.offset.saturating_sub(1) / block_size * block_size;
        let mut tail = Tail {
            offset: start,
            bytes: Vec::new(),
        };
        let from = content_key(file.object, start, ItemKind::Direct)?;
        self.visit(&from, &mut |head, body, place| {
            if head.key.object != file.object {
                return Ok(ControlFlow::Break(()));
            }
            if head.key.offset != tail.offset + tail.bytes.len() as u64 + 1 {
                return Err(place.corrupt(format_args!("tail {} behind a gap", head.key)));
            }
            tail.bytes.extend_from_slice(body);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Some(tail))
    }

    /// Makes these the last bytes of a file, in direct items, from the beginning of a block on. The
    /// target of a symbolic link is such bytes too. Pointers behind `offset` must be cut before; a
    /// hole before it gets pointers.
    pub fn put_tail(&mut self, file: &FileKey, offset: u64, bytes: &[u8]) -> Result<()> {
        let block_size = self.block_size() as u64;
        if !offset.is_multiple_of(block_size) || bytes.len() > direct_max(self.block_size()) {
            return Err(Error::Invalid);
        }
        let mut body = bytes.to_vec();
        if file.pads {
            body.resize(bytes.len().next_multiple_of(8), 0);
        }
        let key = content_key(file.object, offset, ItemKind::Direct)?;
        let new = NewItem {
            key,
            version: file.version,
            count: NO_COUNT,
            body: &body,
        };
        loop {
            let Some((found, item)) = self.last_item(file.object)? else {
                return Err(no_object(file));
            };
            let head = found.head(item)?;
            if head.key == key && !body.is_empty() {
                return self.splice(found, item..item + 1, &[new]);
            }
            if head.key.kind == ItemKind::Direct {
                self.splice(found, item..item + 1, &[])?;
                continue;
            }
            let end = self.pointers_end(file, &found, item, &head)?;
            if end > LogicalBlock::of_byte(offset, block_size) {
                return Err(found
                    .place(item)
                    .corrupt(format_args!("blocks where tail {key} is to be")));
            }
            if body.is_empty() {
                return Ok(());
            }
            drop(found);
            self.extend(file, LogicalBlock::of_byte(offset, block_size), u32::MAX)?;
            return self.insert(&new);
        }
    }

    /// Removes the direct items of a file.
    pub fn remove_tail(&mut self, file: &FileKey) -> Result<()> {
        loop {
            let Some((found, item)) = self.last_item(file.object)? else {
                return Err(no_object(file));
            };
            if found.head(item)?.key.kind != ItemKind::Direct {
                return Ok(());
            }
            self.splice(found, item..item + 1, &[])?;
        }
    }
}

/// The key of an item that begins at a byte of a file.
fn content_key(object: ObjectKey, offset: u64, kind: ItemKind) -> Result<Key> {
    const OFFSET_MAX: u64 = (1 << 60) - 2;
    match offset > OFFSET_MAX {
        true => Err(Error::FileTooLarge),
        false => Ok(Key {
            object,
            offset: offset + 1,
            kind,
        }),
    }
}

fn no_object(file: &FileKey) -> Error {
    Error::corrupt(format_args!(
        "object {}: no stat data",
        file.object.object_id
    ))
}
