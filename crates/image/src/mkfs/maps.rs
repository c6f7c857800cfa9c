//! Files that are allocated in one go: their blocks and what maps them.

use super::error::{MkfsError, Result};
use super::space::Space;
use finefs_ext_disk::checksum::InodeSeed;
use finefs_ext_disk::extent::{Extent, ExtentNode, Index, LEN_MAX};
use finefs_ext_disk::indirect;
use finefs_ext_disk::inode::BLOCK_AREA_SIZE;
use finefs_ext_disk::units::{LogicalBlock, PhysBlock};
use std::collections::BTreeMap;
use std::ops::Range;

/// Extents in an inode.
const EXTENTS_IN_INODE: usize = 4;

/// A file's blocks and map.
#[derive(Clone, Debug, Default)]
pub(super) struct FileMap {
    /// Runs of its data, in order.
    pub data: Vec<Range<u64>>,
    /// Blocks of the map outside of the inode, with their contents.
    pub nodes: BTreeMap<u64, Vec<u8>>,
    /// `i_block`.
    pub area: Vec<u8>,
}

impl FileMap {
    /// Blocks that data and map take, in whole clusters.
    pub fn blocks(&self, cluster_blocks: u64) -> u64 {
        let data = self.data.iter().map(|run| run.end - run.start).sum::<u64>();
        data.next_multiple_of(cluster_blocks) + self.nodes.len() as u64 * cluster_blocks
    }

    /// All blocks of the data, in order.
    pub fn data_blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.data.iter().cloned().flatten()
    }

    /// All runs that were taken, those of the map too.
    pub fn all_runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let nodes = self.nodes.keys().map(|block| *block..*block + 1);
        self.data.iter().cloned().chain(nodes)
    }
}

/// What is to be allocated.
pub(super) struct Wanted {
    /// Blocks of data.
    pub blocks: u64,
    /// Where to begin to look.
    pub goal: u64,
    /// By extents; else by a block map.
    pub has_extents: bool,
    pub block_size: u32,
    /// The seed of extent nodes, with `metadata_csum`.
    pub seed: Option<InodeSeed>,
    /// What it is for, for messages.
    pub what: &'static str,
}

/// Allocates a file.
pub(super) fn allocate(space: &mut Space, wanted: &Wanted) -> Result<FileMap> {
    match wanted.has_extents {
        true => by_extents(space, wanted),
        false => block_map(space, wanted, None),
    }
}

fn by_extents(space: &mut Space, wanted: &Wanted) -> Result<FileMap> {
    let mut map = FileMap::default();
    let mut node_place = None;
    let (mut left, mut goal) = (wanted.blocks, wanted.goal);
    while left > 0 {
        let run = space
            .take_run(goal, left.min(LEN_MAX.into()))
            .ok_or(MkfsError::NoRoom(wanted.what))?;
        left -= run.end - run.start;
        goal = run.end;
        map.data.push(run);
        if map.data.len() > EXTENTS_IN_INODE && node_place.is_none() {
            // Before the data, if there is room.
            let goal = map.data.first().map_or(0, |first| first.start - 1);
            let place = space.take_run(goal, 1);
            node_place = Some(place.ok_or(MkfsError::NoRoom(wanted.what))?.start);
        }
    }
    let mut extents = Vec::new();
    let mut logical = LogicalBlock(0);
    for run in &map.data {
        let len = (run.end - run.start) as u32;
        extents.push(Extent {
            logical,
            len,
            physical: PhysBlock(run.start),
            is_unwritten: false,
        });
        logical += run.end - run.start;
    }
    map.area = match node_place {
        None => leaf(vec![0; BLOCK_AREA_SIZE], &extents, wanted)?
            .as_bytes()
            .to_vec(),
        Some(place) => {
            let block = vec![0; wanted.block_size as usize];
            let mut node = leaf(block, &extents, wanted)?;
            if let Some(seed) = wanted.seed {
                node.update_checksum(seed);
            }
            map.nodes.insert(place, node.as_bytes().to_vec());
            let mut root = ExtentNode::init(vec![0; BLOCK_AREA_SIZE], 1)?;
            let index = Index {
                logical: LogicalBlock(0),
                block: PhysBlock(place),
            };
            root.insert_index(0, index)?;
            root.as_bytes().to_vec()
        }
    };
    Ok(map)
}

fn leaf(bytes: Vec<u8>, extents: &[Extent], wanted: &Wanted) -> Result<ExtentNode<Vec<u8>>> {
    let mut node = ExtentNode::init(bytes, 0)?;
    for (at, extent) in extents.iter().enumerate() {
        if node.is_full() {
            // Hundreds of runs: only a file system that is nearly full when it is made.
            return Err(MkfsError::NoRoom(wanted.what));
        }
        node.insert_extent(at as u16, *extent)?;
    }
    Ok(node)
}

/// The same blocks in another order: the block of the file that `order` has first gets the first
/// place, those behind come as they are. `None` where the map is not all in the inode.
pub(super) fn reordered(
    map: &FileMap,
    order: &[usize],
    has_extents: bool,
) -> Result<Option<FileMap>> {
    let places: Vec<u64> = map.data_blocks().collect();
    if !map.nodes.is_empty() || places.len() < order.len() {
        return Ok(None);
    }
    let mut moved = places.clone();
    for (index, block) in order.iter().enumerate() {
        moved[*block] = places[index];
    }
    let mut data: Vec<Range<u64>> = Vec::new();
    for place in &moved {
        match data.last_mut() {
            Some(last) if last.end == *place => last.end += 1,
            _ => data.push(*place..*place + 1),
        }
    }
    let mut area = vec![0; BLOCK_AREA_SIZE];
    match has_extents {
        true if data.len() > EXTENTS_IN_INODE => return Ok(None),
        true => {
            let mut node = ExtentNode::init(area, 0)?;
            let mut logical = LogicalBlock(0);
            for (at, run) in data.iter().enumerate() {
                let len = (run.end - run.start) as u32;
                let extent = Extent {
                    logical,
                    len,
                    physical: PhysBlock(run.start),
                    is_unwritten: false,
                };
                node.insert_extent(at as u16, extent)?;
                logical += run.end - run.start;
            }
            area = node.as_bytes().to_vec();
        }
        false => {
            for (block, place) in moved.iter().enumerate() {
                indirect::set_pointer(&mut area, block as u32, PhysBlock(*place));
            }
        }
    }
    Ok(Some(FileMap {
        data,
        area,
        ..FileMap::default()
    }))
}

/// Maps blocks by pointers: those that are `given` and taken already, or else the next free ones.
pub(super) fn block_map(
    space: &mut Space,
    wanted: &Wanted,
    given: Option<&[u64]>,
) -> Result<FileMap> {
    let mut map = FileMap {
        area: vec![0; BLOCK_AREA_SIZE],
        ..FileMap::default()
    };
    let mut goal = wanted.goal;
    let mut take = |space: &mut Space| {
        let run = space
            .take_run(goal, 1)
            .ok_or(MkfsError::NoRoom(wanted.what))?;
        goal = run.end;
        Ok::<u64, MkfsError>(run.start)
    };
    for logical in (0..wanted.blocks).map(LogicalBlock) {
        let path =
            indirect::path(wanted.block_size, logical).ok_or(MkfsError::NoRoom(wanted.what))?;
        // The block that holds the pointer; none: the inode.
        let mut holder: Option<u64> = None;
        for (depth, step) in path.steps().iter().enumerate() {
            let is_data = depth == path.depth();
            let known = match holder {
                None => indirect::pointer(&map.area, *step),
                Some(block) => indirect::pointer(&map.nodes[&block], *step),
            };
            let place = match known {
                PhysBlock(0) => {
                    let place = match given.filter(|_| is_data) {
                        Some(given) => given[logical.0 as usize],
                        None => take(space)?,
                    };
                    let holder = match holder {
                        None => &mut map.area,
                        Some(block) => map.nodes.entry(block).or_default(),
                    };
                    indirect::set_pointer(holder, *step, PhysBlock(place));
                    if !is_data {
                        let empty = vec![0; wanted.block_size as usize];
                        map.nodes.insert(place, empty);
                    }
                    place
                }
                PhysBlock(place) => place,
            };
            if is_data {
                match map.data.last_mut() {
                    Some(last) if last.end == place => last.end += 1,
                    _ => map.data.push(place..place + 1),
                }
            }
            holder = Some(place);
        }
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(blocks: u64, has_extents: bool) -> Wanted {
        Wanted {
            blocks,
            goal: 10,
            has_extents,
            block_size: 1024,
            seed: None,
            what: "a test",
        }
    }

    #[test]
    fn a_block_map_lies_among_its_data() {
        let mut space = Space::new(1..10_000);
        let map = allocate(&mut space, &wanted(600, false)).unwrap();
        assert_eq!(map.data_blocks().count(), 600);
        // One single, one double, two below it.
        assert_eq!(
            map.nodes.keys().copied().collect::<Vec<_>>(),
            [22, 279, 280, 537]
        );
        assert_eq!(space.count(1..10_000), map.blocks(1));
    }

    #[test]
    fn many_runs_get_a_node() {
        let mut space = Space::new(1..10_000);
        for at in 2..8 {
            space.take(at * 100, 1);
        }
        let map = allocate(&mut space, &wanted(700, true)).unwrap();
        assert_eq!(map.nodes.len(), 1);
        assert_eq!(map.data.len(), 7);
        assert_eq!(map.data_blocks().count(), 700);
        assert!(allocate(&mut space, &wanted(10_000, true)).is_err());
    }
}
