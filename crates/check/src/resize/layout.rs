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

use super::room::{Room, Units};
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
    pub units: Units,
    /// Blocks that everything else must leave.
    cleared: Claims,
    end: u64,
}

impl Layout {
    pub fn new(check: &Check, shape: &Shape) -> Result<Layout, String> {
        let (old, geo) = (&check.fs.geo, &shape.geo);
        let first = u64::from(geo.first_data_block);
        let units = Units {
            bits: check.cluster_bits,
        };
        let room = Room::new(first, geo.blocks_count, units)?;
        room.take_all(&check.claims);
        // Block 0 is no block of any group where blocks have 1 KiB.
        let mut layout = Layout {
            places: vec![Places::default(); geo.groups_count as usize],
            room,
            has_moves: geo.blocks_count < old.blocks_count,
            units,
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
            metadata: Claims::new(units.end(geo.blocks_count))?,
            layout,
        };
        placer.keep()?;
        placer.add()?;
        Ok(placer.layout)
    }

    /// Whether what lies in a block must leave it. Data has a cluster for itself, and must leave
    /// all of it.
    pub fn must_move(&self, block: u64) -> bool {
        block >= self.end || self.is_any_cleared(block, 1)
    }

    /// True where any of the clusters of these blocks is wanted.
    fn is_any_cleared(&self, start: u64, count: u64) -> bool {
        let (first, units) = self.units.of(start, count);
        let bits = self.units.bits;
        self.cleared.count(first << bits, units << bits) > 0
    }

    /// The same of a whole run; and of its start alone, with how long that is so.
    pub fn split(&self, start: u64, count: u64) -> (u64, bool) {
        if start.saturating_add(count) <= self.end && !self.is_any_cleared(start, count) {
            return (count, false);
        }
        let moves = self.must_move(start);
        let same = (1..count).find(|more| self.must_move(start + more) != moves);
        (same.unwrap_or(count), moves)
    }

    /// Superblock copies and descriptors of a group.
    fn clear_base(&mut self, check: &Check, geo: &Geometry, number: u32) {
        let base = u64::from(geo.group_base_blocks(GroupNo(number)));
        if base == 0 {
            return;
        }
        // Block 0 may lie before the superblock.
        let first = match number {
            0 => geo.super_block().0,
            _ => geo.group_first_block(GroupNo(number)).0,
        };
        let old = &check.fs.geo;
        let had = match number < old.groups_count {
            true => u64::from(old.group_base_blocks(GroupNo(number))).min(base),
            false => 0,
        };
        let (grown, units) = self.units.of(first + had, base - had);
        self.has_moves |= check.claims.count(grown, units) > 0;
        self.cleared.claim(first, base);
        self.room.take(first, base);
    }
}

struct Placer<'a> {
    check: &'a Check,
    geo: &'a Geometry,
    is_flex: bool,
    /// Clusters of bitmaps and tables, old and new.
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
            self.claim(group.block_bitmap, 1);
            self.claim(group.inode_bitmap, 1);
            self.claim(group.inode_table, table);
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

    fn claim(&self, block: u64, count: u64) {
        let (start, units) = self.layout.units.of(block, count);
        self.metadata.claim(start, units);
    }

    fn kept(&mut self, number: usize, block: u64, count: u64) -> Result<u64, String> {
        // Metadata shares clusters with other metadata.
        let layout = &self.layout;
        if block + count <= layout.end && layout.cleared.count(block, count) == 0 {
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
        self.claim(place, count);
        Ok(place)
    }

    /// Blocks in a row with nothing but data in them, which must leave.
    fn make_room(&mut self, blocks: Range<u64>, count: u64) -> Option<u64> {
        let units = self.layout.units;
        let is_usable = |unit: u64| {
            !self.layout.is_any_cleared(unit << units.bits, 1) && !self.metadata.is_claimed(unit)
        };
        let count = units.end(count);
        let first = units.end(blocks.start);
        let mut start = first;
        for unit in first..blocks.end >> units.bits {
            if !is_usable(unit) {
                start = unit + 1;
            } else if unit + 1 - start == count {
                self.layout
                    .cleared
                    .claim(start << units.bits, count << units.bits);
                self.layout.has_moves = true;
                return Some(start << units.bits);
            }
        }
        None
    }
}
