//! The mapping of an inode: which blocks of the file lie where.
//!
//! # Invariants
//! The result is in ascending order, does not overlap, holds only blocks that a file may own, and
//! its lengths sum up to no more than the file system has blocks. No node is visited twice, so
//! loops end.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/ifork.rst`.

use std::collections::HashSet;
use std::ops::Range;

use finefs_buffers::{BufferCache, BufferRead};
use finefs_ext_disk as disk;
use finefs_ext_disk::checksum::InodeSeed;
use finefs_ext_disk::extent::ExtentNode;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::inode::{Inode, InodeFlags, InodeRules};
use finefs_ext_disk::{LogicalBlock, PhysBlock, indirect};
use finefs_namespace::{BlockNo, Error, Extent, ExtentState, Ino, Result};

use crate::error::at;
use crate::group::GroupTable;
use crate::state::{ExtState, disk_ino};

/// The mapping of an inode, with the number of blocks that hold the map itself.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    /// In ascending order, without overlaps.
    pub extents: Vec<Extent>,
    /// Blocks of tree nodes or of pointers.
    pub map_blocks: Vec<u64>,
}

/// Loads the mapping of an inode that has one (not an inline file, not a fast symlink).
pub(crate) fn load<B: AsRef<[u8]>>(
    state: &ExtState,
    ino: Ino,
    inode: &Inode<B>,
) -> Result<Mapping> {
    let groups = Some(&state.groups);
    load_with(
        &state.buffers,
        &state.geometry,
        groups,
        &state.inode_rules,
        ino,
        inode,
    )
}

/// [`load`] before there is a state. With `groups`, blocks of the file system's own are refused.
pub(crate) fn load_with<B: AsRef<[u8]>>(
    buffers: &BufferCache,
    geometry: &Geometry,
    groups: Option<&GroupTable>,
    rules: &InodeRules,
    ino: Ino,
    inode: &Inode<B>,
) -> Result<Mapping> {
    let mut walk = Walk {
        buffers,
        geometry,
        groups,
        ino,
        seed: inode.seed(rules, disk_ino(ino)?),
        seen: HashSet::new(),
        mapped_blocks: 0,
        mapping: Mapping::default(),
    };
    if inode.flags().contains(InodeFlags::EXTENTS) {
        walk.extent_node(inode.block_area(), None, LogicalBlock::ALL)?;
    } else {
        walk.block_map(inode.block_words())?;
    }
    Ok(walk.mapping)
}

/// Where one block of a file lies; `None` for a hole.
pub(crate) fn block_of<B: AsRef<[u8]>>(
    state: &ExtState,
    ino: Ino,
    inode: &Inode<B>,
    logical: LogicalBlock,
) -> Result<Option<u64>> {
    let corrupt = |what: &str| Error::corrupt(format_args!("inode {ino}: {what}"));
    let can_own = |block: u64| state.groups.can_own(&state.geometry, block, 1);
    let read = |block: u64| match can_own(block) {
        true => state.buffers.read(block),
        false => Err(corrupt("a block of its map cannot belong to a file")),
    };
    let found = match inode.flags().contains(InodeFlags::EXTENTS) {
        true => {
            let seed = inode.seed(&state.inode_rules, disk_ino(ino)?);
            extent_of(inode.block_area(), logical, (ino, seed), &read)?
        }
        false => pointer_of(
            &inode.block_words(),
            logical,
            state.geometry.block_size,
            &read,
        )?,
    };
    match found.is_none_or(can_own) {
        true => Ok(found),
        false => Err(corrupt("one of its blocks cannot belong to a file")),
    }
}

/// The block by an extent tree.
fn extent_of(
    root: &[u8],
    logical: LogicalBlock,
    (ino, seed): (Ino, Option<InodeSeed>),
    read: &dyn Fn(u64) -> Result<BufferRead>,
) -> Result<Option<u64>> {
    let wrong = |error| at(format_args!("inode {ino}: extent tree"), error);
    let mut bytes: Option<BufferRead> = None;
    let mut above: Option<u16> = None;
    loop {
        let node = ExtentNode::new(bytes.as_deref().unwrap_or(root)).map_err(wrong)?;
        if let Some(above) = above {
            if node.depth() + 1 != above {
                let depth = node.depth();
                return Err(Error::corrupt(format_args!(
                    "inode {ino}: extent tree: depth {depth}"
                )));
            }
            if let Some(seed) = seed {
                node.verify_checksum(seed).map_err(wrong)?;
            }
        }
        if node.is_leaf() {
            let extent = node.find(logical).filter(|extent| !extent.is_unwritten);
            return Ok(extent.map(|extent| extent.physical.0 + (logical - extent.logical)));
        }
        let Some(index) = node.search(logical).and_then(|at| node.index(at)) else {
            return Ok(None);
        };
        above = Some(node.depth());
        bytes = Some(read(index.block.0)?);
    }
}

/// The block by a block map.
fn pointer_of(
    words: &[u32; 15],
    logical: LogicalBlock,
    block_size: u32,
    read: &dyn Fn(u64) -> Result<BufferRead>,
) -> Result<Option<u64>> {
    let Some(path) = indirect::path(block_size, logical) else {
        return Ok(None);
    };
    let mut block = None;
    for step in path.steps() {
        let below = match block {
            None => u64::from(words[*step as usize]),
            Some(block) => indirect::pointer(&read(block)?, *step).0,
        };
        if below == 0 {
            return Ok(None);
        }
        block = Some(below);
    }
    Ok(block)
}

/// Whether an inode of these flags is mapped by pointers that do not reach all blocks of the file
/// system, so that it must not be given more (Linux `EXT4_MAX_BLOCK_FILE_PHYS`).
pub(crate) fn is_out_of_reach(state: &ExtState, flags: InodeFlags) -> bool {
    !flags.intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
        && !indirect::reaches(state.geometry.blocks_count)
}

struct Walk<'a> {
    buffers: &'a BufferCache,
    geometry: &'a Geometry,
    groups: Option<&'a GroupTable>,
    ino: Ino,
    seed: Option<InodeSeed>,
    /// The nodes that were visited.
    seen: HashSet<u64>,
    mapped_blocks: u64,
    mapping: Mapping,
}

impl Walk<'_> {
    fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        Error::corrupt(format_args!("inode {}: {what}", self.ino))
    }

    fn can_own(&self, start: u64, count: u64) -> bool {
        match self.groups {
            Some(groups) => groups.can_own(self.geometry, start, count),
            None => self.geometry.contains_run(PhysBlock(start), count),
        }
    }

    /// Takes an extent in, joined with the one before where that goes on.
    fn push(&mut self, extent: Extent) -> Result<()> {
        if !self.can_own(extent.physical.0, extent.length) {
            return Err(self.corrupt(format_args!(
                "blocks {} to {} cannot belong to a file (mapped at logical block {})",
                extent.physical.0,
                extent.physical.0.saturating_add(extent.length - 1),
                extent.logical
            )));
        }
        self.mapped_blocks += extent.length;
        if self.mapped_blocks > self.geometry.blocks_count {
            return Err(self.corrupt("maps more blocks than the file system has"));
        }
        match self.mapping.extents.last_mut() {
            Some(last)
                if last.end() == extent.logical
                    && last.physical.0 + last.length == extent.physical.0
                    && last.state == extent.state =>
            {
                last.length += extent.length;
            }
            _ => self.mapping.extents.push(extent),
        }
        Ok(())
    }

    /// Notes a block of the map and reads it.
    fn node(&mut self, block: u64) -> Result<finefs_buffers::BufferRead> {
        if !self.can_own(block, 1) {
            return Err(self.corrupt(format_args!("map block {block} cannot belong to a file")));
        }
        if !self.seen.insert(block) {
            return Err(self.corrupt(format_args!("map block {block} is used twice")));
        }
        self.mapping.map_blocks.push(block);
        self.buffers.read(block)
    }

    /// Walks the extent tree below `bytes`, a node that must be `depth` deep (the root may say).
    fn extent_node(
        &mut self,
        bytes: &[u8],
        depth: Option<u16>,
        range: Range<LogicalBlock>,
    ) -> Result<()> {
        let place = |walk: &Walk<'_>| format!("inode {}: extent tree", walk.ino);
        let node = ExtentNode::new(bytes).map_err(|error| at(place(self), error))?;
        if depth.is_some_and(|depth| depth != node.depth()) {
            return Err(self.corrupt(format_args!("extent tree: depth {}", node.depth())));
        }
        if let (Some(seed), Some(_)) = (self.seed, depth) {
            node.verify_checksum(seed)
                .map_err(|error| at(place(self), error))?;
        }
        node.validate(range.clone())
            .map_err(|error| at(place(self), error))?;
        for extent in node.extents() {
            self.push(convert(extent))?;
        }
        for (position, index) in node.indexes().enumerate() {
            let child_range = node.child_range(position as u16, range.clone());
            let child = self.node(index.block.0)?;
            self.extent_node(&child, Some(node.depth() - 1), child_range)?;
        }
        Ok(())
    }

    /// Walks the 15 pointers of a block map.
    fn block_map(&mut self, words: [u32; 15]) -> Result<()> {
        let mut logical = LogicalBlock(0);
        for &block in &words[..12] {
            self.pointer(block, &mut logical, 0)?;
        }
        for (level, &block) in (1..).zip(&words[12..]) {
            self.pointer(block, &mut logical, level)?;
        }
        Ok(())
    }

    /// Walks what a pointer points at: data (level 0), or a block of pointers a level lower.
    /// `logical` moves on by what the pointer covers.
    fn pointer(&mut self, block: u32, logical: &mut LogicalBlock, level: u32) -> Result<()> {
        let per_block = u64::from(self.geometry.block_size / 4);
        if block == 0 {
            *logical += per_block.pow(level);
            return Ok(());
        }
        if level == 0 {
            let extent = Extent {
                logical: finefs_namespace::LogicalBlock(logical.0),
                physical: BlockNo(u64::from(block)),
                length: 1,
                state: ExtentState::Written,
            };
            *logical += 1;
            return self.push(extent);
        }
        let pointers = self.node(u64::from(block))?;
        for word in pointers.chunks_exact(4) {
            let below = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            self.pointer(below, logical, level - 1)?;
        }
        Ok(())
    }
}

fn convert(extent: disk::extent::Extent) -> Extent {
    Extent {
        logical: finefs_namespace::LogicalBlock(extent.logical.0),
        physical: BlockNo(extent.physical.0),
        length: u64::from(extent.len),
        state: if extent.is_unwritten {
            ExtentState::Unwritten
        } else {
            ExtentState::Written
        },
    }
}
