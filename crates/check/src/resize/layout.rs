//! Where the bitmaps and inode tables of all groups lie in the file system as it shall be, and
//! which blocks everything else must leave for them.
//!
//! What a group has stays where it is, unless it lies behind the new end or where a copy of the
//! descriptors comes to lie. A new group's metadata lies at the start of its flex group, all block
//! bitmaps first, then inode bitmaps, then tables; without `flex_bg` in the group itself. Where no
//! free blocks in a row are left for a table, data makes room.

use std::ops::Range;

use finefs_ext_disk::GroupNo;
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::geometry::Geometry;

use super::room::Room;
use super::shape::Shape;
use crate::pass::Check;
use crate::tables::Claims;

/// The places of one group's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
}

/// See the module's head.
pub(super) struct Layout {
    pub places: Vec<Places>,
    pub room: Room,
    /// Something that is there must move.
    pub has_moves: bool,
    /// Blocks that everything else must leave.
    cleared: Claims,
    end: u64,
}

impl Layout {
    pub fn new(check: &Check, shape: &Shape) -> Result<Layout, String> {
        let (old, geo) = (&check.fs.geo, &shape.geo);
        let first = u64::from(geo.first_data_block);
        let room = Room::new(first, geo.blocks_count)?;
        room.take_all(&check.claims);
        // Block 0 is no block of any group where blocks have 1 KiB.
        let mut layout = Layout {
            places: vec![Places::default(); geo.groups_count as usize],
            room,
            has_moves: geo.blocks_count < old.blocks_count,
            cleared: Claims::new(old.blocks_count.max(geo.blocks_count))?,
            end: geo.blocks_count,
        };
        for number in 0..geo.groups_count {
            layout.clear_base(check, geo, number);
        }
        let mut placer = Placer {
            check,
            geo,
            is_flex: shape.sb.incompat().contains(Incompat::FLEX_BG),
            metadata: Claims::new(geo.blocks_count)?,
            layout,
        };
        placer.keep()?;
        placer.add()?;
        Ok(placer.layout)
    }

    /// Whether what lies in a block must leave it.
    pub fn must_move(&self, block: u64) -> bool {
        block >= self.end || self.cleared.is_claimed(block)
    }

    /// The same of a whole run; and of its start alone, with how long that is so.
    pub fn split(&self, start: u64, count: u64) -> (u64, bool) {
        if start.saturating_add(count) <= self.end && self.cleared.count(start, count) == 0 {
            return (count, false);
        }
        let moves = self.must_move(start);
        let same = (1..count).find(|more| self.must_move(start + more) != moves);
        (same.unwrap_or(count), moves)
    }

    /// Superblock copies and descriptors of a group.
    fn clear_base(&mut self, check: &Check, geo: &Geometry, number: u32) {
        let first = geo.group_first_block(GroupNo(number)).0;
        let base = u64::from(geo.group_base_blocks(GroupNo(number)));
        if base == 0 {
            return;
        }
        let old = &check.fs.geo;
        let had = match number < old.groups_count {
            true => u64::from(old.group_base_blocks(GroupNo(number))).min(base),
            false => 0,
        };
        self.has_moves |= check.claims.count(first + had, base - had) > 0;
        self.cleared.claim(first, base);
        self.room.take(first, base);
    }
}

struct Placer<'a> {
    check: &'a Check,
    geo: &'a Geometry,
    is_flex: bool,
    /// Bitmaps and tables, old and new.
    metadata: Claims,
    layout: Layout,
}

impl Placer<'_> {
    fn table_blocks(&self) -> u64 {
        u64::from(self.geo.inode_table_blocks)
    }

    fn group(&self, number: u32) -> Range<u64> {
        let first = self.geo.group_first_block(GroupNo(number)).0;
        first..first + u64::from(self.geo.group_blocks(GroupNo(number)))
    }

    /// Keeps what old groups have, or finds another place for it.
    fn keep(&mut self) -> Result<(), String> {
        let check = self.check;
        let table = self.table_blocks();
        let staying = check.fs.groups.iter().take(self.layout.places.len());
        for group in staying.clone() {
            self.metadata.claim(group.block_bitmap, 1);
            self.metadata.claim(group.inode_bitmap, 1);
            self.metadata.claim(group.inode_table, table);
        }
        for (number, group) in staying.enumerate() {
            let places = Places {
                block_bitmap: self.kept(number, group.block_bitmap, 1)?,
                inode_bitmap: self.kept(number, group.inode_bitmap, 1)?,
                inode_table: self.kept(number, group.inode_table, table)?,
            };
            self.layout.places[number] = places;
        }
        Ok(())
    }

    fn kept(&mut self, number: usize, block: u64, count: u64) -> Result<u64, String> {
        if self.layout.split(block, count) == (count, false) {
            return Ok(block);
        }
        self.layout.has_moves = true;
        self.place(number as u32, self.group(number as u32).start, count)
    }

    /// Finds places for new groups, a flex group at a time.
    fn add(&mut self) -> Result<(), String> {
        let size = match self.is_flex {
            true => self.geo.groups_per_flex,
            false => 1,
        };
        let mut number = self.check.fs.geo.groups_count;
        while number < self.geo.groups_count {
            let flex = number / size * size;
            let last = flex.saturating_add(size).min(self.geo.groups_count);
            let start = self.group(flex).start;
            for what in 0..3 {
                for group in number..last {
                    let count = if what == 2 { self.table_blocks() } else { 1 };
                    let place = self.place(group, start, count)?;
                    let places = &mut self.layout.places[group as usize];
                    match what {
                        0 => places.block_bitmap = place,
                        1 => places.inode_bitmap = place,
                        _ => places.inode_table = place,
                    }
                }
            }
            number = last;
        }
        Ok(())
    }

    /// Takes `count` blocks for a group's metadata, from `start` on where that is allowed.
    fn place(&mut self, number: u32, start: u64, count: u64) -> Result<u64, String> {
        let group = self.group(number);
        let all = match self.is_flex {
            true => u64::from(self.geo.first_data_block)..self.geo.blocks_count,
            false => group.clone(),
        };
        let room = &self.layout.room;
        let from = if self.is_flex { start } else { group.start };
        let found = room
            .find(from, all.end, count)
            .or_else(|| room.find(all.start, all.end, count));
        let place = match found {
            Some(place) => place,
            None => self
                .make_room(group, count)
                .or_else(|| self.make_room(all, count))
                .ok_or_else(|| {
                    format!("no room for {count} blocks in a row, the metadata of group {number}")
                })?,
        };
        self.layout.room.take(place, count);
        self.metadata.claim(place, count);
        Ok(place)
    }

    /// Blocks in a row with nothing but data in them, which must leave.
    fn make_room(&mut self, blocks: Range<u64>, count: u64) -> Option<u64> {
        let is_usable =
            |block: u64| !self.layout.cleared.is_claimed(block) && !self.metadata.is_claimed(block);
        let mut start = blocks.start;
        for block in blocks {
            if !is_usable(block) {
                start = block + 1;
            } else if block + 1 - start == count {
                self.layout.cleared.claim(start, count);
                self.layout.has_moves = true;
                return Some(start);
            }
        }
        None
    }
}
