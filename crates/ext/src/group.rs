//! The block groups: where their bitmaps and inode tables lie, and their descriptors.
//!
//! # Data model
//! Places do not change while mounted, so they are plain values here. What does change (free
//! counts, flags, checksums) lives in the descriptor blocks in the buffer cache and nowhere else;
//! only a commit writes it. The totals that the superblock shows are kept here, counted from the
//! descriptors at mount, as the kernel does.
//!
//! # Invariants
//! 1. `zones` holds every block that a file can never own: superblocks, descriptors, bitmaps and
//!    inode tables, and the journal where that is written; in ascending order, not overlapping, not
//!    adjacent. A file that claims one of them is damaged.
//! 2. A damaged descriptor's group is used for nothing but reading.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use finefs_buffers::alloc::GroupCounts;
use finefs_buffers::alloc::bits::Bits;
use finefs_buffers::{BufferCache, BufferRead};
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::group::{GroupChecksum, GroupDesc};
use finefs_ext_disk::superblock::Superblock;
use finefs_ext_disk::{GroupNo, PhysBlock};
use finefs_namespace::{BlockRun, Error, Result};

use crate::error::at;

/// Where a group's metadata lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupPlace {
    /// The block bitmap's block.
    pub(crate) block_bitmap: u64,
    /// The inode bitmap's block.
    pub(crate) inode_bitmap: u64,
    /// The inode table's first block.
    pub(crate) inode_table: u64,
    /// The descriptor's checksum or its values are wrong.
    pub(crate) is_damaged: bool,
}

/// See the module's head.
pub struct GroupTable {
    places: Box<[GroupPlace]>,
    checksum: GroupChecksum,
    zones: Box<[Range<u64>]>,
    damage: Option<String>,
    has_extents: bool,
    cluster_bits: u32,
    /// In clusters, as descriptors count.
    free_blocks: AtomicU64,
    free_inodes: AtomicU64,
}

/// A descriptor as the buffer cache holds it.
pub(crate) type DescRead = GroupDesc<Vec<u8>>;

impl GroupTable {
    /// Reads all descriptors. A damaged one does not fail: see [`GroupTable::damage`].
    pub(crate) fn load(
        superblock: &Superblock,
        geometry: &Geometry,
        buffers: &BufferCache,
    ) -> Result<GroupTable> {
        let checksum = GroupChecksum::of(superblock);
        let mut places = Vec::new();
        let mut damage = None;
        let (mut free_blocks, mut free_inodes) = (0, 0);
        let mut block: Option<(u32, BufferRead)> = None;
        for group in (0..geometry.groups_count).map(GroupNo) {
            let (index, _) = geometry.desc_position(group);
            if block.as_ref().is_none_or(|(held, _)| *held != index) {
                block = Some((index, buffers.read(geometry.desc_block(index).0)?));
            }
            let Some((_, bytes)) = &block else { continue };
            let desc = view(geometry, group, bytes)?;
            let sound = desc
                .verify_checksum(&checksum, group)
                .and_then(|()| desc.validate(geometry, group));
            if let Err(error) = &sound {
                damage.get_or_insert_with(|| format!("descriptor of group {group}: {error}"));
            }
            places.push(GroupPlace {
                block_bitmap: desc.block_bitmap().0,
                inode_bitmap: desc.inode_bitmap().0,
                inode_table: desc.inode_table().0,
                is_damaged: sound.is_err(),
            });
            if sound.is_ok() {
                free_blocks += u64::from(desc.free_blocks());
                free_inodes += u64::from(desc.free_inodes());
            }
        }
        let (zones, overlap) = zones(geometry, &places);
        if let Some(block) = overlap {
            damage.get_or_insert_with(|| {
                format!("bitmaps, inode tables or descriptors overlap at block {block}")
            });
        }
        Ok(GroupTable {
            places: places.into(),
            checksum,
            zones,
            damage,
            has_extents: superblock.incompat().contains(Incompat::EXTENTS),
            cluster_bits: geometry.cluster_bits(),
            free_blocks: AtomicU64::new(free_blocks),
            free_inodes: AtomicU64::new(free_inodes),
        })
    }

    /// Takes blocks in that no file can own beside those of the groups (the kernel's
    /// ext4_protect_reserved_inode).
    pub(crate) fn protect(&mut self, runs: impl Iterator<Item = BlockRun>) {
        let mut all = self.zones.to_vec();
        all.extend(runs.map(|run| run.start.0..run.start.0.saturating_add(run.length)));
        self.zones = merged(all).0;
    }

    /// What is wrong with the first damaged descriptor. Who mounts decides what to do about it.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// New files are mapped by extents.
    pub(crate) fn has_extents(&self) -> bool {
        self.has_extents
    }

    /// Where a group's metadata lies.
    pub(crate) fn place(&self, group: u32) -> Option<&GroupPlace> {
        self.places.get(group as usize)
    }

    /// The first blocks of all inode tables.
    pub(crate) fn inode_tables(&self) -> BTreeSet<u64> {
        self.places.iter().map(|place| place.inode_table).collect()
    }

    /// How descriptors and bitmaps are protected.
    pub(crate) fn checksum(&self) -> &GroupChecksum {
        &self.checksum
    }

    /// Free blocks and inodes as of the last commit.
    pub(crate) fn totals(&self) -> (u64, u64) {
        (
            self.free_blocks.load(Ordering::Relaxed) << self.cluster_bits,
            self.free_inodes.load(Ordering::Relaxed),
        )
    }

    /// Adds clusters and inodes to the totals; for the commit.
    pub(crate) fn add_to_totals(&self, clusters: i64, inodes: i64) {
        for (total, more) in [(&self.free_blocks, clusters), (&self.free_inodes, inodes)] {
            let before = total.load(Ordering::Relaxed);
            total.store(before.saturating_add_signed(more), Ordering::Relaxed);
        }
    }

    /// True when a file may own all blocks of the run: they exist, and none belongs to the file
    /// system itself.
    pub(crate) fn can_own(&self, geometry: &Geometry, start: u64, count: u64) -> bool {
        geometry.contains_run(PhysBlock(start), count)
            && zones_in(&self.zones, start..start + count).next().is_none()
    }

    /// A copy of a group's descriptor.
    pub(crate) fn desc(
        &self,
        geometry: &Geometry,
        buffers: &BufferCache,
        group: u32,
    ) -> Result<DescRead> {
        let place = self.place(group);
        if place.is_none_or(|place| place.is_damaged) {
            return Err(Error::corrupt(format_args!("descriptor of group {group}")));
        }
        let group = GroupNo(group);
        let (index, _) = geometry.desc_position(group);
        let bytes = buffers.read(geometry.desc_block(index).0)?;
        let bytes = view(geometry, group, &bytes)?.as_bytes().to_vec();
        GroupDesc::new(bytes).map_err(|error| at(format_args!("group {group}"), error))
    }

    /// What the allocator starts from.
    pub(crate) fn counts(&self, geometry: &Geometry, buffers: &BufferCache) -> Vec<GroupCounts> {
        (0..geometry.groups_count)
            .map(|group| match self.desc(geometry, buffers, group) {
                Ok(desc) => GroupCounts {
                    free_blocks: desc.free_blocks(),
                    free_inodes: desc.free_inodes(),
                    directories: desc.used_dirs(),
                },
                Err(_) => GroupCounts {
                    free_blocks: 0,
                    free_inodes: 0,
                    directories: 0,
                },
            })
            .collect()
    }

    /// The bitmap of a group of which no block but the file system's own is in use.
    pub(crate) fn initial_block_bits(&self, geometry: &Geometry, group: u32) -> Bits {
        let mut bits = Bits::all_free(geometry.group_clusters(GroupNo(group)));
        self.for_zones_of(geometry, group, |start, count| {
            bits.set_range(start, count);
        });
        bits
    }

    /// Calls `each` with the parts of a group (first cluster, length) that the file system owns, if
    /// only in part.
    pub(crate) fn for_zones_of(
        &self,
        geometry: &Geometry,
        group: u32,
        mut each: impl FnMut(u32, u32),
    ) {
        let start = geometry.group_first_block(GroupNo(group)).0;
        let end = start + u64::from(geometry.group_blocks(GroupNo(group)));
        for zone in zones_in(&self.zones, start..end) {
            let bits = geometry.cluster_bits();
            let from = (zone.start.max(start) - start) >> bits;
            let to = geometry.cluster_end(zone.end.min(end) - start) >> bits;
            each(from as u32, (to - from) as u32);
        }
    }
}

fn view<'b>(geometry: &Geometry, group: GroupNo, block: &'b [u8]) -> Result<GroupDesc<&'b [u8]>> {
    let (_, offset) = geometry.desc_position(group);
    let offset = offset as usize;
    let bytes = block
        .get(offset..offset + usize::from(geometry.desc_size))
        .unwrap_or_default();
    GroupDesc::new(bytes).map_err(|error| at(format_args!("group {group}"), error))
}

/// All blocks that belong to the file system itself, and the first of them that two structures
/// claim.
fn zones(geometry: &Geometry, places: &[GroupPlace]) -> (Box<[Range<u64>]>, Option<u64>) {
    let mut all = Vec::new();
    let mut add = |start: u64, count: u64| all.push(start..start.saturating_add(count));
    add(0, u64::from(geometry.first_data_block));
    for (number, place) in (0..).zip(places) {
        let group = GroupNo(number);
        add(
            geometry.group_first_block(group).0,
            u64::from(geometry.group_base_blocks(group)),
        );
        if !place.is_damaged {
            add(place.block_bitmap, 1);
            add(place.inode_bitmap, 1);
            add(place.inode_table, u64::from(geometry.inode_table_blocks));
        }
    }
    merged(all)
}

/// Ranges in ascending order, joined where they touch, and the first block that is in two of them.
fn merged(mut all: Vec<Range<u64>>) -> (Box<[Range<u64>]>, Option<u64>) {
    all.retain(|zone| !zone.is_empty());
    all.sort_unstable_by_key(|zone| zone.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    let mut overlap = None;
    for zone in all {
        match merged.last_mut() {
            Some(last) if zone.start <= last.end => {
                if zone.start < last.end {
                    overlap.get_or_insert(zone.start);
                }
                last.end = last.end.max(zone.end);
            }
            _ => merged.push(zone),
        }
    }
    (merged.into(), overlap)
}

/// The zones that overlap `range`.
fn zones_in(zones: &[Range<u64>], range: Range<u64>) -> impl Iterator<Item = &Range<u64>> {
    let first = zones.partition_point(|zone| zone.end <= range.start);
    zones[first..]
        .iter()
        .take_while(move |zone| zone.start < range.end)
}
