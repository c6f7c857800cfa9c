//! Items in memory, on their way from leaves to leaves.
//!
//! An item can be cut between its units: a directory item between entries (but `.` and `..` stay
//! together), an indirect one between pointers, a direct one at multiples of 8 bytes. Stat data is
//! never cut. Parts of one object that come to stand side by side in a leaf become one item again,
//! as the kernel has them, where each follows the one before; the first item of an object's
//! content, and the first direct one behind its pointers, never join what stands before.

use std::ops::Range;

use finefs_namespace::{Error, Result};
use finefs_reiser_disk::directory::{self, DOT_OFFSET, DirectoryItem};
use finefs_reiser_disk::edit::NewItem;
use finefs_reiser_disk::indirect::POINTER_SIZE;
use finefs_reiser_disk::node::{ITEM_HEAD_SIZE, ItemHead};
use finefs_reiser_disk::{DiskError, ItemKind, Key, KeyVersion};

use crate::tree::Place;

/// Direct items are cut at multiples of this.
const DIRECT_UNIT: usize = 8;

/// The count of an item whose kind has none.
pub(super) const NO_COUNT: u16 = u16::MAX;

/// An item, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub key: Key,
    pub version: KeyVersion,
    pub count: u16,
    pub body: Vec<u8>,
}

impl Piece {
    /// An item of a leaf.
    pub fn of(head: &ItemHead, body: &[u8], place: Place) -> Result<Piece> {
        let piece = Piece {
            key: head.key,
            version: head.version,
            count: head.count,
            body: body.to_vec(),
        };
        piece.check().map_err(|error| place.damaged(&error))?;
        Ok(piece)
    }

    /// That it can be cut and joined: the entries of a directory fill their item.
    fn check(&self) -> finefs_reiser_disk::Result<()> {
        if self.key.kind == ItemKind::Directory {
            DirectoryItem::new(&self.body, self.count)?.whole()?;
        }
        Ok(())
    }

    /// The item as it goes into a leaf.
    pub fn item(&self) -> NewItem<'_> {
        NewItem {
            key: self.key,
            version: self.version,
            count: self.count,
            body: &self.body,
        }
    }

    /// Bytes that it takes of a leaf.
    pub fn space(&self) -> usize {
        ITEM_HEAD_SIZE + self.body.len()
    }

    /// How many units it has: entries, or bytes.
    pub fn units(&self) -> usize {
        match self.key.kind {
            ItemKind::Directory => usize::from(self.count),
            _ => self.body.len(),
        }
    }

    /// How many bytes these units take.
    pub fn size(&self, units: Range<usize>) -> usize {
        match (self.key.kind, DirectoryItem::new(&self.body, self.count)) {
            (ItemKind::Directory, Ok(item)) => {
                units.map(|unit| item.space(unit as u16)).sum::<usize>()
            }
            _ => units.len(),
        }
    }

    /// The end of the most units from this one on that take no more than so many bytes.
    pub fn fit(&self, from: usize, room: usize) -> usize {
        let unit = match self.key.kind {
            ItemKind::Directory => return self.fit_entries(from, room),
            ItemKind::Indirect => POINTER_SIZE,
            ItemKind::Direct => DIRECT_UNIT,
            ItemKind::StatData | ItemKind::Unknown(_) => self.body.len().max(1),
        };
        match self.body.len() - from <= room {
            true => self.body.len(),
            false => from + room / unit * unit,
        }
    }

    fn fit_entries(&self, from: usize, mut room: usize) -> usize {
        let mut to = from;
        while to < self.units() {
            let size = self.size(to..to + 1);
            if size > room {
                break;
            }
            room -= size;
            to += 1;
        }
        let has_dots = self.key.offset == u64::from(DOT_OFFSET);
        if has_dots && from == 0 && to == 1 && self.units() > 1 {
            return 0;
        }
        to
    }

    /// Some of its units, as an item.
    pub fn part(&self, units: Range<usize>, block_size: usize) -> Result<Piece> {
        if units == (0..self.units()) {
            return Ok(self.clone());
        }
        let is_last = units.end == self.units();
        let mut part = Piece {
            count: self.count,
            body: Vec::new(),
            ..*self
        };
        if self.key.kind == ItemKind::Directory {
            let damaged = |error: DiskError| Error::corrupt(format_args!("{}: {error}", self.key));
            let item = DirectoryItem::new(&self.body, self.count).map_err(damaged)?;
            let run = item.run(units.start as u16..units.end as u16);
            part.count = units.len() as u16;
            part.body = directory::concat(&[run.map_err(damaged)?]);
            part.key.offset = u64::from(item.offset(units.start as u16));
            return Ok(part);
        }
        part.key.offset += match self.key.kind {
            ItemKind::Indirect => (units.start / POINTER_SIZE * block_size) as u64,
            _ => units.start as u64,
        };
        // Of an indirect item it is about the last block.
        if self.key.kind == ItemKind::Indirect && !is_last {
            part.count = 0;
        }
        part.body = self.body[units].to_vec();
        Ok(part)
    }

    /// True when the next item is to be one with this one, if both are in one leaf.
    pub fn joins(&self, next: &Piece, block_size: usize) -> bool {
        let is_of_one = self.key.object == next.key.object
            && self.key.kind == next.key.kind
            && self.version == next.version;
        let length = self.body.len() as u64;
        let block_size = block_size as u64;
        is_of_one
            && match self.key.kind {
                ItemKind::Directory => true,
                ItemKind::Indirect => {
                    let blocks = length / POINTER_SIZE as u64;
                    next.key.offset == self.key.offset + blocks * block_size
                }
                ItemKind::Direct => {
                    let begins_block = next.key.offset.wrapping_sub(1).is_multiple_of(block_size);
                    next.key.offset == self.key.offset + length && !begins_block
                }
                ItemKind::StatData | ItemKind::Unknown(_) => false,
            }
    }

    /// Takes the next item in, which [`Piece::joins`] this one.
    pub fn join(&mut self, next: &Piece) -> Result<()> {
        if self.key.kind == ItemKind::Directory {
            let damaged = |error: DiskError| Error::corrupt(format_args!("{}: {error}", self.key));
            let here = DirectoryItem::new(&self.body, self.count).map_err(damaged)?;
            let there = DirectoryItem::new(&next.body, next.count).map_err(damaged)?;
            let (here, there) = (here.whole(), there.whole());
            self.body = directory::concat(&[here.map_err(damaged)?, there.map_err(damaged)?]);
            self.count += next.count;
        } else {
            self.body.extend_from_slice(&next.body);
            self.count = next.count;
        }
        Ok(())
    }
}

/// Joins the items that are to be one.
pub(super) fn joined(pieces: Vec<Piece>, block_size: usize) -> Result<Vec<Piece>> {
    let mut joined: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if last.joins(&piece, block_size) => last.join(&piece)?,
            _ => joined.push(piece),
        }
    }
    Ok(joined)
}
