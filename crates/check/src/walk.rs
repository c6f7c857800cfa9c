//! The blocks of an inode: its extent tree or its pointers, followed as far as they can be.
//!
//! A fault is told and what it concerns is passed over, so that one bad extent does not hide the
//! rest. What is visited is bounded by the blocks that the file system has.

use finefs_ext_disk::extent::{DEPTH_MAX, Extent, ExtentNode, capacity};
use finefs_ext_disk::inode::{FileKind, Inode, InodeFlags};
use finefs_ext_disk::{Ino, LogicalBlock};

use crate::finding::{Findings, Object, Problem};
use crate::fs::{Fs, is_checksum, short};

/// What is done with the blocks.
pub(crate) trait Sink {
    /// Blocks of data.
    fn data(&mut self, logical: LogicalBlock, physical: u64, length: u64);
    /// A block of the map; whether what it points at shall be visited.
    fn node(&mut self, block: u64) -> bool;
}

/// What a walk came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walked {
    /// Blocks of data and of the map.
    pub blocks: u64,
    /// Blocks up to the last one that is mapped.
    pub end: u64,
    /// Blocks up to the last one that is mapped and written.
    pub written_end: u64,
    /// A directory's blocks do not follow one another.
    pub has_holes: bool,
    /// There is something wrong with the map.
    pub is_damaged: bool,
}

/// Whether an inode's `i_block` leads to blocks at all.
pub(crate) fn has_blocks(fs: &Fs, inode: &Inode<Vec<u8>>) -> bool {
    let is_inline = inode.flags().contains(InodeFlags::INLINE_DATA);
    match inode.kind() {
        Some(FileKind::Regular | FileKind::Directory) => !is_inline,
        Some(FileKind::Symlink) => {
            let size = inode.size(&fs.rules);
            !is_inline && !(1..60).contains(&size)
        }
        _ => false,
    }
}

/// Walks the blocks of an inode that has some.
pub(crate) fn walk(
    fs: &Fs,
    ino: u32,
    inode: &Inode<Vec<u8>>,
    sink: &mut impl Sink,
    found: &mut Findings,
) -> Walked {
    let mut walk = Walk {
        fs,
        ino,
        inode,
        is_dir: inode.kind() == Some(FileKind::Directory),
        // The list of bad blocks has no type.
        is_file: inode.kind() == Some(FileKind::Regular) || ino == Ino::BAD_BLOCKS.0,
        eof: LogicalBlock(inode.size(&fs.rules).div_ceil(u64::from(fs.geo.block_size))),
        next: LogicalBlock(0),
        budget: fs.geo.blocks_count.saturating_mul(2).max(1024),
        walked: Walked::default(),
        sink,
        found,
    };
    if inode.flags().contains(InodeFlags::EXTENTS) {
        walk.root();
    } else {
        walk.pointers();
    }
    walk.walked
}

struct Walk<'a, S> {
    fs: &'a Fs,
    ino: u32,
    inode: &'a Inode<Vec<u8>>,
    is_dir: bool,
    is_file: bool,
    /// Behind the last block that the size comes to.
    eof: LogicalBlock,
    /// Behind what was mapped so far.
    next: LogicalBlock,
    /// Blocks that may still be visited.
    budget: u64,
    walked: Walked,
    sink: &'a mut S,
    found: &'a mut Findings,
}

impl<S: Sink> Walk<'_, S> {
    fn wrong(&mut self, problem: Problem, block: u64, what: impl std::fmt::Display) {
        self.walked.is_damaged |= problem != Problem::ExtentChecksum;
        let object = Object::inode(self.ino);
        let object = match block {
            0 => object,
            block => object.block(block),
        };
        self.found.add(problem, object, what);
    }

    fn spend(&mut self, blocks: u64) -> bool {
        let has = self.budget >= blocks;
        if !has && self.budget > 0 {
            self.wrong(Problem::Extent, 0, "maps more blocks than there are");
        }
        self.budget = if has { self.budget - blocks } else { 0 };
        has
    }

    fn root(&mut self) {
        let area = self.inode.block_area().to_vec();
        match ExtentNode::new(&area[..]) {
            Ok(node) if is_full_size(&node, area.len()) => self.node(&node, LogicalBlock(0), None),
            Ok(_) => self.wrong(Problem::Extent, 0, "extent tree: header of its root"),
            Err(error) => {
                let is_empty = area.iter().all(|byte| *byte == 0);
                let what = match is_empty {
                    true => "extent tree without a header".to_owned(),
                    false => format!("extent tree: {}", short(&error)),
                };
                self.wrong(Problem::Extent, 0, what);
            }
        }
    }

    /// Visits a node that may map blocks from `start` on, up to `end` where that is known.
    fn node(
        &mut self,
        node: &ExtentNode<&[u8]>,
        mut start: LogicalBlock,
        end: Option<LogicalBlock>,
    ) {
        for index in 0..node.entries() {
            if self.budget == 0 {
                return;
            }
            if let Some(extent) = node.extent(index) {
                if self.extent(&extent, start, end) {
                    start = extent.logical + u64::from(extent.len - 1);
                }
            } else if let Some(entry) = node.index(index) {
                let logical = entry.logical;
                let next = node.index(index + 1).map(|next| next.logical);
                let last = next.or(end).unwrap_or(self.eof);
                let last = Some(last).filter(|last| *last > logical);
                if !self.fs.geo.contains_block(entry.block) || entry.block.0 == 0 {
                    let what = format!("extent tree: node at block {}", entry.block);
                    self.wrong(Problem::Extent, 0, what);
                } else if logical < start {
                    let what = format!("extent tree: index of block {logical} out of order");
                    self.wrong(Problem::Extent, 0, what);
                } else {
                    self.child(entry.block.0, node.depth() - 1, logical, last);
                }
            }
        }
    }

    fn child(&mut self, block: u64, depth: u16, logical: LogicalBlock, end: Option<LogicalBlock>) {
        if !self.spend(1) {
            return;
        }
        self.walked.blocks += 1;
        if !self.sink.node(block) {
            return;
        }
        let mut bytes = self.fs.block_buffer();
        if !self.fs.read_block(block, &mut bytes, self.found) {
            return;
        }
        let node = match ExtentNode::new(&bytes[..]) {
            Ok(node) if is_full_size(&node, bytes.len()) && node.depth() == depth => node,
            Ok(node) => {
                let what = format!("extent tree: header of depth {}", node.depth());
                return self.wrong(Problem::Extent, block, what);
            }
            Err(error) => {
                let what = format!("extent tree: {}", short(&error));
                return self.wrong(Problem::Extent, block, what);
            }
        };
        if let Some(seed) = self
            .inode
            .seed(&self.fs.rules, finefs_ext_disk::Ino(self.ino))
            && let Err(error) = node.verify_checksum(seed)
        {
            let problem = match is_checksum(&error) {
                true => Problem::ExtentChecksum,
                false => Problem::Extent,
            };
            self.wrong(problem, block, format!("extent tree: {}", short(&error)));
        }
        let first = match node.depth() {
            0 => node.extent(0).map(|e| e.logical),
            _ => node.index(0).map(|i| i.logical),
        };
        if first.is_some_and(|first| first != logical) {
            let what = format!("extent tree: the index says block {logical}, the node does not");
            self.wrong(Problem::Extent, block, what);
        }
        self.node(&node, first.unwrap_or(logical), end);
    }

    /// Takes an extent; false where it cannot be.
    fn extent(&mut self, extent: &Extent, start: LogicalBlock, end: Option<LogicalBlock>) -> bool {
        let geo = &self.fs.geo;
        let (logical, next) = (extent.logical, extent.logical_end());
        let is_beyond_eof = extent.is_unwritten && next > self.eof;
        let is_beyond_eof = is_beyond_eof || self.inode.flags().contains(InodeFlags::VERITY);
        let is_large = self.is_dir
            && !self.fs.rules.has_large_dir
            && next > LogicalBlock(1 << (31 - geo.block_bits.min(31)));
        let wrong = if !geo.contains_block(extent.physical) || extent.physical.0 == 0 {
            "starts outside the file system"
        } else if extent.len == 0 {
            "has no blocks"
        } else if logical < start || logical < self.next {
            "is out of order or maps blocks twice"
        } else if end.is_some_and(|end| next > end) && !is_beyond_eof {
            "reaches beyond what its node may map"
        } else if !geo.contains_run(extent.physical, u64::from(extent.len)) {
            "ends outside the file system"
        } else if is_large {
            "makes a directory too large"
        } else {
            ""
        };
        if !wrong.is_empty() {
            let what = format!(
                "extent of {} blocks from block {logical} on, at block {}, {wrong}",
                extent.len, extent.physical
            );
            self.wrong(Problem::Extent, 0, what);
            return false;
        }
        if !self.spend(u64::from(extent.len)) {
            return false;
        }
        if self.is_dir && extent.is_unwritten {
            let what = format!("block {logical} of a directory is not written");
            self.wrong(Problem::DirectoryBlocks, 0, what);
        }
        self.walked.has_holes |= logical > self.next;
        self.next = next;
        self.walked.end = next.0;
        if !extent.is_unwritten {
            self.walked.written_end = next.0;
        }
        self.walked.blocks += u64::from(extent.len);
        self.sink
            .data(logical, extent.physical.0, u64::from(extent.len));
        true
    }

    fn pointers(&mut self) {
        let mut logical = LogicalBlock(0);
        let words = self.inode.block_words();
        for (index, block) in words.into_iter().enumerate() {
            let level = (index as u32).saturating_sub(11);
            self.pointer(block, &mut logical, level);
        }
    }

    fn pointer(&mut self, block: u32, logical: &mut LogicalBlock, level: u32) {
        let per_block = u64::from(self.fs.geo.block_size / 4);
        let here = *logical;
        *logical += per_block.saturating_pow(level);
        if block == 0 || self.budget == 0 {
            return;
        }
        let block = u64::from(block);
        let bits = self.fs.geo.block_bits.min(31);
        let is_data = level == 0;
        let has_too_many = self.walked.blocks + 1 >= 1 << (41 - bits);
        let wrong = if !self
            .fs
            .geo
            .contains_block(finefs_ext_disk::PhysBlock(block))
        {
            "outside the file system"
        } else if self.is_dir && (is_data && here.0 > 1 << (31 - bits) || has_too_many) {
            "makes a directory too large"
        } else if self.is_file && has_too_many {
            "makes a file too large"
        } else if !self.is_dir && !self.is_file && is_data && here.0 > 0 {
            "makes a symbolic link too large"
        } else {
            ""
        };
        if !wrong.is_empty() {
            let what = match level {
                0 => format!("block {here} at block {block}: {wrong}"),
                _ => format!("indirect block of block {here}, at block {block}: {wrong}"),
            };
            return self.wrong(Problem::BlockPointer, 0, what);
        }
        if !self.spend(1) {
            return;
        }
        self.walked.blocks += 1;
        if is_data {
            self.walked.has_holes |= here > self.next;
            self.next = here + 1;
            self.walked.end = self.next.0;
            self.walked.written_end = self.next.0;
            return self.sink.data(here, block, 1);
        }
        if !self.sink.node(block) {
            return;
        }
        let mut bytes = self.fs.block_buffer();
        if !self.fs.read_block(block, &mut bytes, self.found) {
            return;
        }
        let mut at = here;
        for word in bytes.chunks_exact(4) {
            let below = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            self.pointer(below, &mut at, level - 1);
        }
    }
}

/// A node's capacity is what its place gives, up to two entries less.
fn is_full_size(node: &ExtentNode<&[u8]>, bytes: usize) -> bool {
    node.depth() <= DEPTH_MAX && node.max() + 2 >= capacity(bytes)
}
