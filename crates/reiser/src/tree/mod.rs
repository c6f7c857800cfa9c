//! The S+tree: items by key.
//!
//! | Module | Thing |
//! |---|---|
//! | `search` | searches and walks |
//! | [`edit`] | mutations |
//! | [`staged`] | blocks that a batch of mutations changes, out of the readers' sight |
//!
//! # Readers and the writer
//! A mutation moves items between nodes, and a reader must see none of its middle. So a batch
//! changes private copies of the blocks ([`staged::Staged`]), and [`Tree::publish`] makes them the
//! tree's, all at once and without I/O. A reader that a publication falls into reads again
//! ([`Tree::consistent`]); if that happens to it several times, it keeps publications away.
//!
//! # Locking
//! `reiser.publish` (78): shared by a reader that was disturbed too often, over its I/O; exclusive
//! while a batch is published, which takes `buffers.shard` below it.
#![allow(dead_code, reason = "the store does not write yet")]

pub(crate) mod edit;
mod search;
pub(crate) mod staged;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use finefs_buffers::{BufferCache, BufferRead};
use finefs_locks::{LockClass, RwLock, SeqLock};
use finefs_namespace::Result;
use finefs_reiser_disk::Key;
use finefs_reiser_disk::bitmap::Bitmaps;
use finefs_reiser_disk::superblock::JournalPlace;

pub(crate) use search::{Nodes, Place, Root, Visit};

/// Publications of batches, against readers that they disturbed.
pub static PUBLISH: LockClass = LockClass::new("reiser.publish", 78).held_over_io();

/// A reader that was disturbed this often keeps publications away.
const DISTURBED_MAX: u32 = 3;

/// The tree of a mounted file system.
pub(crate) struct Tree {
    pub buffers: BufferCache,
    /// The root's block, and its level in the upper half.
    root: AtomicU64,
    pub block_count: u32,
    pub bitmaps: Bitmaps,
    pub journal: JournalPlace,
    publications: SeqLock,
    publish: RwLock<()>,
}

impl Nodes for Tree {
    type Read = BufferRead;

    fn read(&self, block: u32) -> Result<BufferRead> {
        self.buffers.read(u64::from(block))
    }

    fn may_hold(&self, block: u32) -> bool {
        Tree::may_hold(self, block)
    }
}

fn packed(root: Root) -> u64 {
    u64::from(root.block) | u64::from(root.levels) << 32
}

impl Tree {
    /// A tree in these buffers.
    pub fn new(buffers: BufferCache, root: Root, bitmaps: Bitmaps, journal: JournalPlace) -> Tree {
        Tree {
            buffers,
            root: AtomicU64::new(packed(root)),
            block_count: bitmaps.block_count,
            bitmaps,
            journal,
            publications: SeqLock::new(),
            publish: RwLock::new(&PUBLISH, ()),
        }
    }

    /// Where the tree begins.
    pub fn root(&self) -> Root {
        let root = self.root.load(Ordering::Relaxed);
        Root {
            block: root as u32,
            levels: (root >> 32) as u16,
        }
    }

    /// True for a block that data or a node can lie in.
    pub fn may_hold(&self, block: u32) -> bool {
        block < self.block_count && !self.bitmaps.holds(block) && !self.journal.reserves(block)
    }

    /// Visits items in the order of the tree, from the first one on that has this key or a greater
    /// one, until told to stop.
    pub fn visit(&self, from: &Key, visit: Visit<'_>) -> Result<()> {
        search::visit(self, self.root(), from, visit)
    }

    /// As [`Tree::visit`], from the item on that begins at or before this key: the one that a place
    /// in an object is in.
    pub fn visit_around(&self, key: &Key, visit: Visit<'_>) -> Result<()> {
        search::visit_around(self, self.root(), key, visit)
    }

    /// What `load` gives of a tree that nobody changes meanwhile: where a batch was published in
    /// its midst, it is called again. Not to be nested.
    pub fn consistent<T>(&self, mut load: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..DISTURBED_MAX {
            if let Some(loaded) = self.publications.try_read(&mut load) {
                return loaded;
            }
        }
        let _none = self.publish.read();
        load()
    }

    /// Makes a batch's blocks those that readers see, as dirty buffers, and its root the tree's. No
    /// buffer is kept of the blocks that it freed.
    pub fn publish(&self, changed: &[(u32, Arc<[u8]>)], freed: &[u32], root: Root) {
        let alone = self.publish.write();
        self.publications.write(&alone, || {
            for block in freed {
                self.buffers.forget(u64::from(*block));
            }
            for (block, data) in changed {
                self.buffers.put(u64::from(*block), data.clone());
            }
            self.root.store(packed(root), Ordering::Relaxed);
        });
    }
}
