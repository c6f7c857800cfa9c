//! Items by key.
//!
//! A search goes from the root down: at each level the child whose keys can hold the one that is
//! looked for. The level of every node is checked, so that a search has as many steps as the tree
//! has levels. Leaves do not know their neighbours: a walk remembers the smallest key behind the
//! leaf that it is in, as the nodes above tell it, and searches for that one next. It is greater
//! each time, so that a walk ends also where the tree is damaged.

use std::ops::ControlFlow;

use finefs_buffers::{BufferCache, BufferRead};
use finefs_namespace::{Error, Result};
use finefs_reiser_disk::bitmap::Bitmaps;
use finefs_reiser_disk::node::{Internal, ItemHead, LEAF_LEVEL, Leaf};
use finefs_reiser_disk::superblock::JournalPlace;
use finefs_reiser_disk::{DiskError, Key};

use crate::error::at;

/// The tree of a mounted file system.
pub(crate) struct Tree {
    pub buffers: BufferCache,
    pub root: u32,
    pub levels: u16,
    pub block_count: u32,
    pub bitmaps: Bitmaps,
    pub journal: JournalPlace,
}

/// What is called for each item: its head, its bytes, where it is.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&ItemHead, &[u8], Place) -> Result<ControlFlow<()>>;

/// Where an item lies, for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub block: u32,
    pub item: u16,
}

impl Place {
    /// A codec's error as one about this item.
    pub fn damaged(self, error: &DiskError) -> Error {
        at(self, error)
    }

    /// An error about this item.
    pub fn corrupt(self, what: impl std::fmt::Display) -> Error {
        Error::corrupt(format_args!("{self}: {what}"))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "block {}, item {}", self.block, self.item)
    }
}

/// A leaf that a search has come to.
struct Found {
    block: u32,
    leaf: Leaf<BufferRead>,
    /// The smallest key that can be behind the leaf; `None` in the last one.
    behind: Option<Key>,
}

impl Tree {
    /// True for a block that data or a node can lie in.
    pub fn may_hold(&self, block: u32) -> bool {
        block < self.block_count && !self.bitmaps.holds(block) && !self.journal.reserves(block)
    }

    /// The leaf that a key is in, if it is in the tree.
    fn leaf_of(&self, key: &Key) -> Result<Found> {
        let mut block = self.root;
        let mut behind = None;
        for level in (LEAF_LEVEL + 1..=self.levels).rev() {
            let node = Internal::new(self.node(block)?, level);
            let node = node.map_err(|error| at(format_args!("block {block}"), &error))?;
            let child = node.child_of(key);
            if child < node.len() {
                behind = Some(node.key(child));
            }
            let parent = block;
            block = node.child(child);
            if !self.may_hold(block) {
                return Err(Error::corrupt(format_args!(
                    "block {parent}: child {child} is block {block}"
                )));
            }
        }
        let leaf = Leaf::new(self.node(block)?);
        let leaf = leaf.map_err(|error| at(format_args!("block {block}"), &error))?;
        Ok(Found {
            block,
            leaf,
            behind,
        })
    }

    fn node(&self, block: u32) -> Result<BufferRead> {
        self.buffers.read(u64::from(block))
    }

    /// Visits items in the order of the tree, from the first one on that has this key or a greater
    /// one, until told to stop.
    pub fn visit(&self, from: &Key, visit: Visit<'_>) -> Result<()> {
        let found = self.leaf_of(from)?;
        let first = found.leaf.position(from);
        self.walk(found, first, visit)
    }

    /// As [`Tree::visit`], from the item on that begins at or before this key: the one that a place
    /// in an object is in.
    pub fn visit_around(&self, key: &Key, visit: Visit<'_>) -> Result<()> {
        let found = self.leaf_of(key)?;
        let at = found.leaf.position(key);
        let begins_there = found.leaf.head(at).is_ok_and(|head| {
            at < found.leaf.len() && head.key.object == key.object && head.key.offset == key.offset
        });
        // The smallest key of a leaf is the one that the node above has for it.
        let first = if begins_there {
            at
        } else {
            at.saturating_sub(1)
        };
        self.walk(found, first, visit)
    }

    fn walk(&self, mut found: Found, mut first: u16, visit: Visit<'_>) -> Result<()> {
        loop {
            let block = found.block;
            for item in first..found.leaf.len() {
                let place = Place { block, item };
                let head = found.leaf.head(item);
                let head = head.map_err(|error| place.damaged(&error))?;
                if found.behind.is_some_and(|behind| head.key >= behind) {
                    return Err(place.corrupt(format_args!("key {} belongs elsewhere", head.key)));
                }
                if visit(&head, found.leaf.body(&head), place)?.is_break() {
                    return Ok(());
                }
            }
            // Greater than the last one: that is how the search chose its way.
            let Some(from) = found.behind else {
                return Ok(());
            };
            found = self.leaf_of(&from)?;
            first = found.leaf.position(&from);
        }
    }
}
