//! Where bitmaps and inode tables lie.
//!
//! Without `flex_bg` each group holds its own, behind the copies of superblock and descriptors;
//! with a RAID stride they move by it from group to group, so that not one disk has all bitmaps.
//! With `flex_bg` the block bitmaps of a flex group lie together at its start, then its inode
//! bitmaps, then its inode tables. `packed_meta_blocks` puts those of all groups at the start of
//! the file system.
//!
//! A group whose bitmap block has nothing in it but copies of superblock and descriptors need not
//! be written, where descriptors have checksums: [`Tables::is_touched`] tells the others apart.

use super::error::{MkfsError, Result};
use super::shape::{Shape, group_range};
use super::space::Space;
use super::stopping::Stop;
use finefs_ext_disk::units::GroupNo;

/// The places of one group's metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupPlaces {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
}

/// The places of all groups' metadata.
pub(super) struct Tables {
    pub places: Vec<GroupPlaces>,
    /// Groups that hold more than copies of superblock and descriptors.
    pub is_touched: Vec<bool>,
}

/// What the places depend on.
pub(super) struct Layout<'a> {
    /// The stride of a RAID in blocks.
    pub stride: u16,
    /// All lies at the start.
    pub is_packed: bool,
    /// Blocks that nothing is to lie on.
    pub bad_blocks: &'a [u64],
    /// Ends it early.
    pub stop: &'a Stop,
}

/// Takes what lies at fixed places, then places the rest.
pub(super) fn place(shape: &Shape, layout: &Layout<'_>, space: &mut Space) -> Result<Tables> {
    let groups = shape.geo.groups_count;
    for group in 0..groups {
        layout.stop.check()?;
        let count = u64::from(shape.geo.group_base_blocks(GroupNo(group)));
        let first = shape.geo.group_first_block(GroupNo(group)).0;
        // With clusters of blocks of 1 KiB the boot block is part of group 0.
        let boot = match group {
            0 => shape.geo.super_block().0 - first,
            _ => 0,
        };
        if count > 0 {
            space.take(first, boot + count);
        }
    }
    let mut is_touched = vec![false; groups as usize];
    for block in layout.bad_blocks {
        if !space.is_free(*block, 1) {
            let reason = "lies where superblock or descriptors must be; the device is no use";
            return Err(MkfsError::value("-l", block, reason));
        }
        space.take(*block, 1);
        touch(&shape.geo, &mut is_touched, *block..*block + 1);
    }
    let mut placer = Placer {
        shape,
        space,
        tables: Tables {
            places: vec![GroupPlaces::default(); groups as usize],
            is_touched,
        },
    };
    if layout.is_packed {
        placer.pack(layout.stop)?;
    } else if shape.geo.groups_per_flex > 1 {
        for group in 0..groups {
            layout.stop.check()?;
            placer.flex(group)?;
        }
    } else {
        for group in 0..groups {
            layout.stop.check()?;
            placer.single(group, layout.stride)?;
        }
    }
    Ok(placer.tables)
}

struct Placer<'a> {
    shape: &'a Shape,
    space: &'a mut Space,
    tables: Tables,
}

fn no_room() -> MkfsError {
    MkfsError::NoRoom("bitmaps and inode tables")
}

impl Placer<'_> {
    fn table_blocks(&self) -> u64 {
        self.shape.geo.inode_table_blocks.into()
    }

    /// Takes blocks that may lie in any group.
    fn take(&mut self, start: u64, count: u64) {
        self.space.take(start, count);
        touch(
            &self.shape.geo,
            &mut self.tables.is_touched,
            start..start + count,
        );
    }

    fn pack(&mut self, stop: &Stop) -> Result<()> {
        let mut at = 0;
        for what in 0..3 {
            for group in 0..self.tables.places.len() {
                stop.check()?;
                let count = if what == 2 { self.table_blocks() } else { 1 };
                let end = self.shape.geo.blocks_count;
                let place = self.space.find(at.max(1), end, count).ok_or_else(no_room)?;
                self.take(place, count);
                at = place + count;
                let places = &mut self.tables.places[group];
                match what {
                    0 => places.block_bitmap = place,
                    1 => places.inode_bitmap = place,
                    _ => places.inode_table = place,
                }
            }
        }
        Ok(())
    }

    fn single(&mut self, group: u32, stride: u16) -> Result<()> {
        let blocks = group_range(&self.shape.geo, group);
        let last = blocks.end - 1;
        let mut start = blocks.start;
        if stride > 0 {
            let free =
                self.space.find(blocks.start, last, 1).ok_or_else(no_room)? + self.table_blocks();
            start = match last.checked_sub(free) {
                Some(room) => free + u64::from(stride) * u64::from(group) % (room + 1),
                None => blocks.start,
            };
            if start >= last {
                start = blocks.start;
            }
        }
        let block_bitmap = self.one_of(start, &blocks)?;
        let inode_bitmap = self.one_of(start, &blocks)?;
        let count = self.table_blocks();
        let inode_table = self
            .space
            .find(blocks.start, last, count)
            .ok_or_else(no_room)?;
        self.space.take(inode_table, count);
        self.tables.places[group as usize] = GroupPlaces {
            block_bitmap,
            inode_bitmap,
            inode_table,
        };
        Ok(())
    }

    /// Takes one block of a group, from `start` on if there is one.
    fn one_of(&mut self, start: u64, blocks: &std::ops::Range<u64>) -> Result<u64> {
        let last = blocks.end - 1;
        let place = self
            .space
            .find(start, last, 1)
            .or_else(|| self.space.find(blocks.start, last, 1))
            .ok_or_else(no_room)?;
        self.space.take(place, 1);
        Ok(place)
    }

    fn flex(&mut self, group: u32) -> Result<()> {
        let geo = &self.shape.geo;
        let own = group % geo.groups_per_flex;
        // The last flex group may be shorter. (mke2fs leaves the whole distance for a single one.)
        let size = match geo.groups_count - (group - own) {
            1 => geo.groups_per_flex,
            left => geo.groups_per_flex.min(left),
        };
        let before = (own > 0).then(|| self.tables.places[group as usize - 1]);
        let block_bitmap = self.flex_place(group, before.map_or(0, |p| p.block_bitmap + 1), 1)?;
        let goal = before.map_or(block_bitmap + u64::from(size), |p| p.inode_bitmap + 1);
        let inode_bitmap = self.flex_place(group, goal, 1)?;
        let count = self.table_blocks();
        let goal = before.map_or(inode_bitmap + u64::from(size), |p| p.inode_table + count);
        let inode_table = self.flex_place(group, goal, count)?;
        self.tables.places[group as usize] = GroupPlaces {
            block_bitmap,
            inode_bitmap,
            inode_table,
        };
        Ok(())
    }

    /// Takes `count` blocks at `goal` or, where they are not free, the first of the flex group
    /// that are.
    fn flex_place(&mut self, group: u32, goal: u64, count: u64) -> Result<u64> {
        let geo = &self.shape.geo;
        let size = geo.groups_per_flex;
        let first_group = group / size * size;
        let last_group = (first_group + (size - 1)).min(geo.groups_count - 1);
        let first = group_range(geo, first_group).start;
        let last = group_range(geo, last_group).end - 1;
        let place = if goal > 0 && self.space.is_free(goal, count) {
            goal
        } else {
            let own = group_range(geo, group).start;
            self.space
                .find(first, last, count)
                .or_else(|| self.space.find(own, last, count))
                .ok_or_else(no_room)?
        };
        self.take(place, count);
        Ok(place)
    }
}

/// Notes the groups that `blocks` lie in.
pub(super) fn touch(
    geo: &finefs_ext_disk::geometry::Geometry,
    is_touched: &mut [bool],
    blocks: std::ops::Range<u64>,
) {
    let first_data_block = u64::from(geo.first_data_block);
    let group_of = |block: u64| (block - first_data_block) / u64::from(geo.blocks_per_group);
    let groups = group_of(blocks.start)..=group_of(blocks.end - 1);
    for group in groups {
        if let Some(flag) = is_touched.get_mut(group as usize) {
            *flag = true;
        }
    }
}
