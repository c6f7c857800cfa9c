//! A tree in a vector of blocks.

use std::sync::Arc;

use finefs_namespace::{Error, Result};
use finefs_reiser_disk::KeyVersion;
use finefs_reiser_disk::edit::{NewItem, fill_leaf};
use finefs_reiser_disk::key::{self, Key};
use finefs_reiser_disk::stat::FileKind;

use crate::tree::edit::TreeBlocks;
use crate::tree::{Nodes, Root};

/// The first block of the tree.
const FIRST: u32 = 10;

/// Blocks in memory.
#[derive(Clone)]
pub(super) struct Memory {
    pub block_size: usize,
    blocks: Vec<Option<Arc<[u8]>>>,
    /// So many blocks may still be allocated.
    pub left: u32,
    /// The most that were allocated since this was last reset.
    pub allocated: u32,
    /// How many blocks were changed, allocated or freed since this was last reset.
    pub changed: u32,
    /// Blocks may be freed that are free.
    pub is_damaged: bool,
}

impl Memory {
    /// A file system that has nothing but a root directory.
    pub fn new(block_size: usize) -> (Memory, Root) {
        let mut memory = Memory {
            block_size,
            blocks: vec![None; FIRST as usize + 1],
            left: u32::MAX,
            allocated: 0,
            changed: 0,
            is_damaged: false,
        };
        let mut leaf = vec![0; block_size];
        let stat = NewItem {
            key: Key::from(key::ROOT, 0),
            version: KeyVersion::V3_6,
            count: u16::MAX,
            body: &super::model::stat(true, FileKind::Directory).to_bytes(),
        };
        fill_leaf(&mut leaf, &[stat]).expect("it fits");
        memory.blocks[FIRST as usize] = Some(leaf.into());
        let root = Root {
            block: FIRST,
            levels: 1,
        };
        (memory, root)
    }

    /// The number of blocks that nodes are in.
    pub fn nodes(&self) -> usize {
        self.blocks.iter().flatten().count()
    }

    /// All bytes.
    pub fn bytes(&self) -> Vec<Option<Arc<[u8]>>> {
        self.blocks.clone()
    }

    /// Sets a byte, as damage does.
    pub fn damage(&mut self, block: u32, at: usize, value: u8) {
        self.is_damaged = true;
        let block = self.blocks[block as usize].as_mut().expect("a node");
        Arc::make_mut(block)[at] = value;
    }

    /// The blocks that nodes are in.
    pub fn used(&self) -> Vec<u32> {
        let used = (0..).zip(&self.blocks).filter(|(_, data)| data.is_some());
        used.map(|(block, _)| block).collect()
    }
}

impl Nodes for Memory {
    type Read = Arc<[u8]>;

    fn read(&self, block: u32) -> Result<Arc<[u8]>> {
        let found = self.blocks.get(block as usize).cloned().flatten();
        found.ok_or_else(|| Error::io(format_args!("block {block} is no node")))
    }

    fn may_hold(&self, block: u32) -> bool {
        block >= FIRST && (block as usize) < self.blocks.len()
    }
}

impl TreeBlocks for Memory {
    fn block_size_bytes(&self) -> usize {
        self.block_size
    }

    fn edit(&mut self, block: u32) -> Result<&mut [u8]> {
        self.changed += 1;
        let found = self.blocks.get_mut(block as usize).and_then(Option::as_mut);
        let found = found.ok_or_else(|| Error::io(format_args!("block {block} is no node")))?;
        Ok(Arc::make_mut(found))
    }

    fn make(&mut self, block: u32) -> &mut [u8] {
        let data = self.blocks[block as usize].insert(vec![0; self.block_size].into());
        Arc::make_mut(data)
    }

    fn allocate(&mut self, _near: u32) -> Result<u32> {
        self.left = self.left.checked_sub(1).ok_or(Error::NoSpace)?;
        self.allocated += 1;
        self.changed += 1;
        let free =
            (FIRST as usize..).find(|&block| self.blocks.get(block).is_none_or(Option::is_none));
        let block = free.expect("there is always one");
        if block >= self.blocks.len() {
            self.blocks.resize(block + 1, None);
        }
        // Until it is made, it is what a freed block is: bytes of before.
        self.blocks[block] = Some(vec![0xee; self.block_size].into());
        Ok(block as u32)
    }

    fn free(&mut self, block: u32) {
        self.changed += 1;
        let freed = self.blocks.get_mut(block as usize).and_then(Option::take);
        assert!(
            freed.is_some() || self.is_damaged,
            "block {block} freed twice"
        );
    }
}
