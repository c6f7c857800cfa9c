//! The inodes, one after the other: what they have in blocks that must be left is copied to free
//! ones, their maps and attributes say so, and those of groups that go get new numbers.
//!
//! All is read from the file system as it is, on the device below the shadow, and written to the
//! shadow. A copy goes to blocks that are free in both, so the old file system stays whole.

use std::collections::HashMap;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::checksum::InodeSeed;
use finefs_ext_disk::extent::{
    DEPTH_MAX, Extent, ExtentNode, Index, LEN_MAX, LEN_MAX_UNWRITTEN, capacity,
};
use finefs_ext_disk::features::{Compat, Incompat};
use finefs_ext_disk::indirect::DOUBLE;
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_ext_disk::{Ino, LogicalBlock, PhysBlock, xattr};

use super::layout::Layout;
use super::numbers::Numbers;
use super::shape::Shape;
use crate::finding::Findings;
use crate::pass::Check;
use crate::walk::has_blocks;

const NO_ROOM: &str = "what must move has no room";
/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;
/// Extents in an inode itself.
const ROOT_ENTRIES: usize = 4;
const XATTR_BLOCK_HEADER: usize = 32;
const XATTR_INODE_HEADER: usize = 4;
const XATTR_ENTRY: usize = 16;

/// What is moved, and where to.
pub(super) struct Mover<'a> {
    pub check: &'a Check,
    pub shape: &'a Shape,
    pub layout: &'a mut Layout,
    pub numbers: &'a Numbers,
    /// Where it is written; `None` where it is only tried.
    pub view: Option<&'a Arc<dyn BlockDevice>>,
    /// Attribute blocks that were dealt with, and where they are now.
    attribute_blocks: HashMap<u64, u64>,
    pub moved_blocks: u64,
}

impl<'a> Mover<'a> {
    pub fn new(
        check: &'a Check,
        shape: &'a Shape,
        layout: &'a mut Layout,
        numbers: &'a Numbers,
        view: Option<&'a Arc<dyn BlockDevice>>,
    ) -> Mover<'a> {
        Mover {
            check,
            shape,
            layout,
            numbers,
            view,
            attribute_blocks: HashMap::new(),
            moved_blocks: 0,
        }
    }

    /// Copies the inode tables that have a new place.
    pub fn tables(&mut self) -> Result<(), String> {
        let count = u64::from(self.check.fs.geo.inode_table_blocks);
        for (number, group) in self.check.fs.groups.iter().enumerate() {
            let Some(places) = self.layout.places.get(number) else {
                return Ok(());
            };
            let to = places.inode_table;
            if to != group.inode_table {
                self.copy(group.inode_table, to, count)?;
            }
        }
        Ok(())
    }

    /// All inodes in use.
    pub fn inodes(&mut self) -> Result<(), String> {
        let fs = &self.check.fs;
        for number in 1..=fs.geo.inodes_count {
            // The resize inode is made anew.
            if self.check.is_used(number) && number != Ino::RESIZE.0 {
                self.inode(number)
                    .map_err(|reason| format!("inode {number}: {reason}"))?;
            }
        }
        Ok(())
    }

    /// Takes what the file system's own blocks will need: the resize inode's, and that of multiple
    /// mount protection.
    pub fn own_blocks(&mut self) -> Result<(), String> {
        let fs = &self.check.fs;
        let resize = fs.inode(Ino::RESIZE.0, &mut Findings::default());
        let double = resize.map_or(0, |inode| inode.block_words()[DOUBLE as usize]);
        for (is_there, block) in [
            (fs.has(Compat::RESIZE_INODE), u64::from(double)),
            (fs.needs(Incompat::MMP), fs.sb.mmp_block()),
        ] {
            if is_there && block != 0 {
                self.place_of(block)?;
            }
        }
        Ok(())
    }

    fn inode(&mut self, number: u32) -> Result<(), String> {
        let fs = &self.check.fs;
        let told = &mut Findings::default();
        let old = fs.inode(number, told).ok_or("cannot be read")?;
        let own = self.numbers.of(number);
        let mut inode = old.clone();
        let seed = inode.seed(&fs.rules, Ino(own));
        if number == Ino::BAD_BLOCKS.0 {
            if inode.block_words().iter().any(|word| *word != 0) {
                return Err("there is a list of bad blocks; resize2fs moves around them".to_owned());
            }
            return Ok(());
        }
        self.attributes(&mut inode)?;
        if has_blocks(fs, &inode) {
            if inode.flags().contains(InodeFlags::EXTENTS) {
                self.extents(&mut inode, seed, own != number)?;
            } else {
                self.pointers(&mut inode)?;
            }
        }
        let is_same = inode.as_bytes() == old.as_bytes() && own == number;
        if is_same || self.view.is_none() {
            return Ok(());
        }
        inode.update_checksum(&fs.rules, Ino(own));
        let at = self.inode_place(own).ok_or("has no place")?;
        self.write(at, inode.as_bytes())
    }

    /// Where an inode of the new file system lies, in bytes.
    pub fn inode_place(&self, number: u32) -> Option<u64> {
        let geo = &self.shape.geo;
        let place = geo.locate_inode(Ino(number))?;
        let table = self.layout.places.get(place.group.0 as usize)?.inode_table;
        let block = table + u64::from(place.table_block);
        Some(block * u64::from(geo.block_size) + u64::from(place.offset))
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), String> {
        match self.view {
            Some(view) => view.write_at(at, bytes).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    fn read_block(&self, block: u64) -> Result<Vec<u8>, String> {
        let mut bytes = self.check.fs.block_buffer();
        let mut told = Findings::default();
        match self.check.fs.read_block(block, &mut bytes, &mut told) {
            true => Ok(bytes),
            false => Err(told
                .list
                .pop()
                .map_or("reading failed".to_owned(), |f| f.to_string())),
        }
    }

    fn write_block(&self, block: u64, bytes: &[u8]) -> Result<(), String> {
        self.write(block * u64::from(self.shape.geo.block_size), bytes)
    }

    /// Copies blocks as they are.
    fn copy(&mut self, from: u64, to: u64, count: u64) -> Result<(), String> {
        self.moved_blocks += count;
        if self.view.is_none() {
            return Ok(());
        }
        let block_bytes = u64::from(self.shape.geo.block_size);
        let total = count * block_bytes;
        let mut buffer = vec![0; COPY_BYTES.min(total as usize)];
        let mut done = 0;
        while done < total {
            let part = (total - done).min(buffer.len() as u64) as usize;
            let part = &mut buffer[..part];
            let source = &self.check.fs.source;
            source
                .read_at(from * block_bytes + done, part)
                .map_err(|error| error.to_string())?;
            self.write(to * block_bytes + done, part)?;
            done += part.len() as u64;
        }
        Ok(())
    }

    /// A block for one that must be left, or for a node more.
    fn take(&mut self) -> Result<u64, String> {
        self.layout
            .room
            .take_run(1)
            .map(|(start, _)| start)
            .ok_or_else(|| NO_ROOM.to_owned())
    }

    /// Where a block of metadata is to be written.
    pub fn place_of(&mut self, block: u64) -> Result<u64, String> {
        if !self.layout.must_move(block) {
            return Ok(block);
        }
        self.moved_blocks += 1;
        self.take()
    }

    // Extents

    fn extents(
        &mut self,
        inode: &mut Inode<Vec<u8>>,
        seed: Option<InodeSeed>,
        is_renumbered: bool,
    ) -> Result<(), String> {
        let mut tree = Tree::default();
        self.gather(inode.block_area(), &mut tree, DEPTH_MAX)?;
        let layout = &*self.layout;
        let moves = tree.nodes.iter().any(|node| layout.must_move(*node))
            || tree.extents.iter().any(|extent| {
                let count = u64::from(extent.len);
                layout.split(extent.physical.0, count) != (count, false)
            });
        if !moves {
            return match seed {
                Some(seed) if is_renumbered => self.seal(&tree.nodes, seed),
                _ => Ok(()),
            };
        }
        let mut extents = Vec::with_capacity(tree.extents.len());
        let mut clusters = HashMap::new();
        for extent in &tree.extents {
            self.extent(extent, &mut clusters, &mut extents)?;
        }
        let before = tree.nodes.len() as u64;
        tree.nodes.retain(|node| !self.layout.must_move(*node));
        let after = self.plant(inode, seed, &extents, tree.nodes)?;
        if after != before {
            let rules = &self.check.fs.rules;
            let per_block = u64::from(self.shape.geo.block_size / 512) << self.check.cluster_bits;
            let count = inode.blocks_512(rules) + after * per_block - before * per_block;
            inode
                .set_blocks_512(rules, count)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn gather(&self, bytes: &[u8], tree: &mut Tree, budget: u16) -> Result<(), String> {
        let node = ExtentNode::new(bytes).map_err(|error| error.to_string())?;
        tree.extents.extend(node.extents());
        for index in node.indexes() {
            let budget = budget.checked_sub(1).ok_or("its extent tree is too deep")?;
            tree.nodes.push(index.block.0);
            self.gather(&self.read_block(index.block.0)?, tree, budget)?;
        }
        Ok(())
    }

    /// New checksums for nodes that stay where they are.
    fn seal(&self, nodes: &[u64], seed: InodeSeed) -> Result<(), String> {
        for block in nodes {
            let bytes = self.read_block(*block)?;
            let mut node = ExtentNode::new(bytes).map_err(|error| error.to_string())?;
            node.update_checksum(seed);
            self.write_block(*block, node.as_bytes())?;
        }
        Ok(())
    }

    /// An extent in the pieces that it will have. `clusters`: where those of the file are that
    /// were moved.
    fn extent(
        &mut self,
        extent: &Extent,
        clusters: &mut HashMap<u64, u64>,
        to: &mut Vec<Extent>,
    ) -> Result<(), String> {
        let mut done = 0;
        while done < extent.len {
            let from = extent.physical.0 + u64::from(done);
            let left = u64::from(extent.len - done);
            let (count, moves) = self.layout.split(from, left);
            let (physical, count) = match moves {
                false => (from, count),
                true => self.take_clusters(from, count, clusters)?,
            };
            if moves && extent.is_unwritten {
                self.moved_blocks += count;
            } else if moves {
                self.copy(from, physical, count)?;
            }
            join(
                to,
                Extent {
                    logical: extent.logical + u64::from(done),
                    len: count as u32,
                    physical: PhysBlock(physical),
                    is_unwritten: extent.is_unwritten,
                },
            );
            done += count as u32;
        }
        Ok(())
    }

    /// A place for blocks of a file, or the first of them, at the same places in their clusters;
    /// and for how many. Extents that share a cluster go on doing so.
    fn take_clusters(
        &mut self,
        from: u64,
        count: u64,
        clusters: &mut HashMap<u64, u64>,
    ) -> Result<(u64, u64), String> {
        let units = self.layout.units;
        let (first, within) = (from >> units.bits, from % units.blocks());
        if let Some(place) = clusters.get(&first) {
            return Ok((place + within, count.min(units.blocks() - within)));
        }
        let run = self.layout.room.take_run(within + count);
        let (start, length) = run.ok_or(NO_ROOM)?;
        if units.bits > 0 {
            let taken = 0..length >> units.bits;
            clusters.extend(taken.map(|unit| (first + unit, start + (unit << units.bits))));
        }
        Ok((start + within, count.min(length - within)))
    }

    /// Builds a tree of full nodes, in the blocks that are left of the old one and new ones; gives
    /// the number of its blocks.
    fn plant(
        &mut self,
        inode: &mut Inode<Vec<u8>>,
        seed: Option<InodeSeed>,
        extents: &[Extent],
        blocks: Vec<u64>,
    ) -> Result<u64, String> {
        let text = |error: finefs_ext_disk::DiskError| error.to_string();
        let size = self.shape.geo.block_size as usize;
        let room = usize::from(capacity(size));
        let mut blocks = blocks.into_iter();
        let (mut depth, mut used) = (0, 0);
        let mut level: Vec<Index> = Vec::new();
        let mut is_done = extents.len() <= ROOT_ENTRIES;
        while !is_done {
            let parts: Vec<(LogicalBlock, Vec<u8>)> = match depth {
                0 => {
                    let parts = extents.chunks(room);
                    let parts =
                        parts.map(|part| leaf(part, vec![0; size]).map(|b| (part[0].logical, b)));
                    parts.collect::<Result<_, _>>().map_err(text)?
                }
                _ => {
                    let parts = level.chunks(room);
                    let parts = parts.map(|part| {
                        branch(part, depth, vec![0; size]).map(|b| (part[0].logical, b))
                    });
                    parts.collect::<Result<_, _>>().map_err(text)?
                }
            };
            level.clear();
            for (logical, bytes) in parts {
                let block = match blocks.next() {
                    Some(block) => block,
                    None => self.take()?,
                };
                used += 1;
                let mut node = ExtentNode::new(bytes).map_err(text)?;
                if let Some(seed) = seed {
                    node.update_checksum(seed);
                }
                self.write_block(block, node.as_bytes())?;
                level.push(Index {
                    logical,
                    block: PhysBlock(block),
                });
            }
            depth += 1;
            is_done = level.len() <= ROOT_ENTRIES;
        }
        let area = inode.block_area().to_vec();
        let area = match depth {
            0 => leaf(extents, area),
            _ => branch(&level, depth, area),
        };
        inode.block_area_mut().copy_from_slice(&area.map_err(text)?);
        Ok(used)
    }

    // Pointers

    fn pointers(&mut self, inode: &mut Inode<Vec<u8>>) -> Result<(), String> {
        for (index, block) in inode.block_words().into_iter().enumerate() {
            let level = (index as u32).saturating_sub(11);
            let place = self.pointer(block, level)?;
            inode.set_block_word(index, place);
        }
        Ok(())
    }

    /// A block and, where it is an indirect one, all that it points at; gives its place.
    fn pointer(&mut self, block: u32, level: u32) -> Result<u32, String> {
        let old = u64::from(block);
        if block == 0 || level == 0 && !self.layout.must_move(old) {
            return Ok(block);
        }
        if self.check.cluster_bits > 0 {
            return Err("has a block map, and clusters of it would have to move".to_owned());
        }
        let place = self.place_of(old)?;
        let narrow = u32::try_from(place).map_err(|_| NO_ROOM.to_owned())?;
        if level == 0 {
            self.moved_blocks -= 1;
            self.copy(old, place, 1)?;
            return Ok(narrow);
        }
        let mut bytes = self.read_block(old)?;
        let mut is_changed = place != old;
        for word in bytes.as_chunks_mut::<4>().0 {
            let below = u32::from_le_bytes(*word);
            let to = self.pointer(below, level - 1)?;
            is_changed |= to != below;
            *word = to.to_le_bytes();
        }
        if is_changed {
            self.write_block(place, &bytes)?;
        }
        Ok(narrow)
    }

    // Attributes

    fn attributes(&mut self, inode: &mut Inode<Vec<u8>>) -> Result<(), String> {
        let fs = &self.check.fs;
        let has_values = fs.needs(Incompat::EA_INODE) && !self.numbers.is_empty();
        if has_values && let Some(area) = inode.xattr_bytes_mut() {
            let is_used = area.first_chunk() == Some(&xattr::MAGIC.to_le_bytes());
            if is_used {
                self.numbers.values(area, XATTR_INODE_HEADER);
            }
        }
        let block = inode.file_acl(&fs.rules).0;
        if block == 0 || !has_values && !self.layout.must_move(block) {
            return Ok(());
        }
        let place = match self.attribute_blocks.get(&block) {
            Some(place) => *place,
            None => self.attribute_block(block, has_values)?,
        };
        inode
            .set_file_acl(&fs.rules, PhysBlock(place))
            .map_err(|error| error.to_string())
    }

    fn attribute_block(&mut self, block: u64, has_values: bool) -> Result<u64, String> {
        let place = self.place_of(block)?;
        self.attribute_blocks.insert(block, place);
        let mut bytes = self.read_block(block)?;
        let is_changed = has_values && self.numbers.values(&mut bytes, XATTR_BLOCK_HEADER);
        if is_changed || place != block {
            if let Some(seed) = self.check.fs.rules.seed {
                xattr::update_block_checksum(seed, PhysBlock(place), &mut bytes);
            }
            self.write_block(place, &bytes)?;
        }
        Ok(place)
    }
}

impl Numbers {
    /// Changes the numbers of inodes that hold values, in a list of attributes; true where there
    /// was one.
    fn values(&self, bytes: &mut [u8], entries_at: usize) -> bool {
        let mut is_changed = false;
        let mut at = entries_at;
        while let Some(head) = bytes.get_mut(at..at + XATTR_ENTRY)
            && head[..4] != [0; 4]
        {
            let length = XATTR_ENTRY + usize::from(head[0]);
            let old = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
            let new = self.of(old);
            if new != old {
                head[4..8].copy_from_slice(&new.to_le_bytes());
                is_changed = true;
            }
            at += length.next_multiple_of(4);
        }
        is_changed
    }
}

/// What an extent tree consists of.
#[derive(Default)]
struct Tree {
    extents: Vec<Extent>,
    nodes: Vec<u64>,
}

/// Takes an extent, as a part of the one before where it continues it.
fn join(extents: &mut Vec<Extent>, next: Extent) {
    if let Some(last) = extents.last_mut() {
        let most = match next.is_unwritten {
            true => LEN_MAX_UNWRITTEN,
            false => LEN_MAX,
        };
        let continues = last.logical_end() == next.logical
            && last.physical.0 + u64::from(last.len) == next.physical.0
            && last.is_unwritten == next.is_unwritten
            && last.len + next.len <= most;
        if continues {
            last.len += next.len;
            return;
        }
    }
    extents.push(next);
}

fn leaf(extents: &[Extent], bytes: Vec<u8>) -> finefs_ext_disk::Result<Vec<u8>> {
    let mut node = ExtentNode::init(bytes, 0)?;
    for (at, extent) in (0..).zip(extents) {
        node.insert_extent(at, *extent)?;
    }
    Ok(node.as_bytes().to_vec())
}

fn branch(level: &[Index], depth: u16, bytes: Vec<u8>) -> finefs_ext_disk::Result<Vec<u8>> {
    let mut node = ExtentNode::init(bytes, depth)?;
    for (at, index) in (0..).zip(level) {
        node.insert_index(at, *index)?;
    }
    Ok(node.as_bytes().to_vec())
}
