//! Searches and walks, over any blocks that hold a tree.
//!
//! A search goes from the root down: at each level the child whose keys can hold the one that is
//! looked for. The level of every node is checked, so that a search has as many steps as the tree
//! has levels. Leaves do not know their neighbours: a walk remembers the smallest key behind the
//! leaf that it is in, as the nodes above tell it, and searches for that one next. It is greater
//! each time, so that a walk ends also where the tree is damaged.

use std::ops::ControlFlow;

use finefs_namespace::{Error, Result};
use finefs_reiser_disk::key::{KEY_SIZE, RawKey};
use finefs_reiser_disk::node::{Internal, ItemHead, LEAF_LEVEL, Leaf};
use finefs_reiser_disk::superblock::LEVELS_MAX;
use finefs_reiser_disk::{DiskError, Key};

use crate::error::at;

/// Blocks that hold a tree.
pub(crate) trait Nodes {
    /// A block as it was when it was read.
    type Read: AsRef<[u8]>;

    /// A block as it is now.
    fn read(&self, block: u32) -> Result<Self::Read>;

    /// True for a block that data or a node can lie in.
    fn may_hold(&self, block: u32) -> bool;
}

/// Where a tree begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Root {
    /// The root.
    pub block: u32,
    /// The levels, the leaves' among them: the root's level.
    pub levels: u16,
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

/// An internal node that a search came through.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Step {
    pub block: u32,
    /// The number of the child that it went on to.
    pub child: usize,
    /// The smallest key below this node; zeros in the nodes at the tree's left side, of which
    /// nothing tells it.
    pub first: RawKey,
}

/// The internal nodes that a search came through, from the root down.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    steps: [Step; LEVELS_MAX as usize],
    length: usize,
}

impl Path {
    pub fn steps(&self) -> &[Step] {
        &self.steps[..self.length]
    }

    fn push(&mut self, step: Step) {
        // The levels of a mounted tree are at most as many.
        if let Some(free) = self.steps.get_mut(self.length) {
            *free = step;
            self.length += 1;
        }
    }
}

/// A leaf that a search has come to.
pub(super) struct Found<R> {
    pub path: Path,
    pub block: u32,
    pub leaf: Leaf<R>,
    /// The smallest key that can be behind the leaf; `None` in the last one.
    pub behind: Option<Key>,
}

impl<R: AsRef<[u8]>> Found<R> {
    /// The head of an item.
    pub fn head(&self, item: u16) -> Result<ItemHead> {
        let head = self.leaf.head(item);
        head.map_err(|error| self.place(item).damaged(&error))
    }

    pub fn place(&self, item: u16) -> Place {
        Place {
            block: self.block,
            item,
        }
    }
}

/// An internal node of this level.
pub(super) fn internal<N: Nodes>(nodes: &N, block: u32, level: u16) -> Result<Internal<N::Read>> {
    let node = Internal::new(nodes.read(block)?, level);
    node.map_err(|error| at(format_args!("block {block}"), &error))
}

/// A leaf.
pub(super) fn leaf<N: Nodes>(nodes: &N, block: u32) -> Result<Leaf<N::Read>> {
    let leaf = Leaf::new(nodes.read(block)?);
    leaf.map_err(|error| at(format_args!("block {block}"), &error))
}

/// The block of a child, which must be one that can hold a node.
pub(super) fn child<N: Nodes>(
    nodes: &N,
    parent: u32,
    node: &Internal<N::Read>,
    number: usize,
) -> Result<u32> {
    let block = node.child(number);
    match nodes.may_hold(block) {
        true => Ok(block),
        false => Err(Error::corrupt(format_args!(
            "block {parent}: child {number} is block {block}"
        ))),
    }
}

/// The leaf that a key is in, if it is in the tree.
pub(super) fn leaf_of<N: Nodes>(nodes: &N, root: Root, key: &Key) -> Result<Found<N::Read>> {
    let mut block = root.block;
    let mut behind = None;
    let mut path = Path::default();
    let mut first = [0; KEY_SIZE];
    for level in (LEAF_LEVEL + 1..=root.levels).rev() {
        let node = internal(nodes, block, level)?;
        let number = node.child_of(key);
        path.push(Step {
            block,
            child: number,
            first,
        });
        if number < node.len() {
            behind = Some(node.key(number));
        }
        if let Some(before) = number.checked_sub(1) {
            first = node.raw_key(before);
        }
        block = child(nodes, block, &node, number)?;
    }
    Ok(Found {
        path,
        block,
        leaf: leaf(nodes, block)?,
        behind,
    })
}

/// Visits items in the order of the tree, from the first one on that has this key or a greater one,
/// until told to stop.
pub(super) fn visit<N: Nodes>(nodes: &N, root: Root, from: &Key, visit: Visit<'_>) -> Result<()> {
    let found = leaf_of(nodes, root, from)?;
    let first = found.leaf.position(from);
    walk(nodes, root, found, first, visit)
}

/// As [`visit`], from the item on that begins at or before this key: the one that a place in an
/// object is in.
pub(super) fn visit_around<N: Nodes>(
    nodes: &N,
    root: Root,
    key: &Key,
    visit: Visit<'_>,
) -> Result<()> {
    let found = leaf_of(nodes, root, key)?;
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
    walk(nodes, root, found, first, visit)
}

fn walk<N: Nodes>(
    nodes: &N,
    root: Root,
    mut found: Found<N::Read>,
    mut first: u16,
    visit: Visit<'_>,
) -> Result<()> {
    loop {
        for item in first..found.leaf.len() {
            let place = found.place(item);
            let head = found.head(item)?;
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
        found = leaf_of(nodes, root, &from)?;
        first = found.leaf.position(&from);
    }
}
