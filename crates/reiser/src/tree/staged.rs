//! Blocks that a batch of mutations changes, out of the readers' sight.
//!
//! A batch changes private copies: of nodes, and of the other blocks that its transaction has
//! (bitmaps, the superblock). What it changed is what the journal gets, and what
//! [`Tree::publish`] makes the tree's. A batch that fails is dropped, and has changed nothing.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use finefs_buffers::BufferRead;
use finefs_namespace::{NumberMap, Result};

use super::edit::TreeBlocks;
use super::{Nodes, Tree};

/// Where nodes find room. Blocks of data are not its business.
pub(crate) trait NodeSpace {
    /// Takes a free block, if possible near another one. `Error::NoSpace` if there is none.
    fn allocate_node(&mut self, near: u32) -> Result<u32>;

    /// A node is gone; the tree may still name it on the device until the batch is durable.
    fn free_node(&mut self, block: u32);
}

/// See the module's head.
pub(crate) struct Staged<'a, S> {
    tree: &'a Tree,
    space: S,
    blocks: NumberMap<u32, Arc<[u8]>>,
    freed: Vec<u32>,
}

impl<'a, S: NodeSpace> Staged<'a, S> {
    /// A batch that has changed nothing.
    pub fn new(tree: &'a Tree, space: S) -> Staged<'a, S> {
        Staged {
            tree,
            space,
            blocks: NumberMap::default(),
            freed: Vec::new(),
        }
    }

    /// A block to change, also one that is no node.
    pub fn edit(&mut self, block: u32) -> Result<&mut [u8]> {
        let data = match self.blocks.entry(block) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let read = self.tree.buffers.read(u64::from(block))?;
                entry.insert(Arc::from(&read[..]))
            }
        };
        // Copies where somebody still reads it.
        Ok(Arc::make_mut(data))
    }

    /// The space.
    pub fn space(&mut self) -> &mut S {
        &mut self.space
    }

    /// The space, when nothing of the batch is wanted any more.
    pub fn into_space(self) -> S {
        self.space
    }

    /// How many blocks changed.
    pub fn changed_count(&self) -> usize {
        self.blocks.len()
    }

    /// What changed, in ascending order.
    pub fn changed(&self) -> Vec<(u32, Arc<[u8]>)> {
        let mut changed: Vec<(u32, Arc<[u8]>)> = self
            .blocks
            .iter()
            .map(|(block, data)| (*block, data.clone()))
            .collect();
        changed.sort_unstable_by_key(|(block, _)| *block);
        changed
    }

    /// The nodes that are gone.
    pub fn freed(&self) -> &[u32] {
        &self.freed
    }
}

impl<S: NodeSpace> Nodes for Staged<'_, S> {
    type Read = BufferRead;

    fn read(&self, block: u32) -> Result<BufferRead> {
        match self.blocks.get(&block) {
            Some(data) => Ok(BufferRead::from(data.clone())),
            None => self.tree.buffers.read(u64::from(block)),
        }
    }

    fn may_hold(&self, block: u32) -> bool {
        self.tree.may_hold(block)
    }
}

impl<S: NodeSpace> TreeBlocks for Staged<'_, S> {
    fn block_size_bytes(&self) -> usize {
        self.tree.buffers.block_size_bytes()
    }

    fn edit(&mut self, block: u32) -> Result<&mut [u8]> {
        Staged::edit(self, block)
    }

    fn make(&mut self, block: u32) -> &mut [u8] {
        self.freed.retain(|freed| *freed != block);
        let zeros = Arc::from(vec![0; self.tree.buffers.block_size_bytes()]);
        let data = match self.blocks.entry(block) {
            Entry::Occupied(mut entry) => {
                entry.insert(zeros);
                entry.into_mut()
            }
            Entry::Vacant(entry) => entry.insert(zeros),
        };
        Arc::make_mut(data)
    }

    fn allocate(&mut self, near: u32) -> Result<u32> {
        self.space.allocate_node(near)
    }

    fn free(&mut self, block: u32) {
        self.blocks.remove(&block);
        self.freed.push(block);
        self.space.free_node(block);
    }
}
