//! Mutations of the tree.
//!
//! | Module | Thing |
//! |---|---|
//! | (here) | changing the items of a leaf |
//! | [`object`] | stat data; all items of an object |
//! | [`names`] | entries of directories |
//! | [`file`] | block numbers and tails of files |
//! | `balance` | splitting, filling and merging nodes |
//! | `pack` | how items are shared out to leaves |
//! | `piece` | items in memory: cutting and joining |
//!
//! # Data model
//! Every mutation replaces some items of one leaf by others ([`Editor::splice`]). Where the leaf
//! has room, and enough stays in it, that is done in place; else `balance` shares its items out
//! anew.
//!
//! # Invariants
//! 1. The key that divides two children is the smallest one below the second; a pointer tells how
//!    many bytes its child uses. No leaf is empty, no internal node has fewer than two children.
//! 2. Items that are to be one are one, if they are in one leaf ([`piece::Piece::joins`]).
//! 3. A mutation reads all blocks that it touches, allocates what it needs, and then changes them:
//!    an error leaves the tree as it was.
//!
//! # References
//! Linux 6.1 `fs/reiserfs/{fix_node,do_balan,lbalance,ibalance,item_ops}.c` for what a tree may
//! look like; `fsck/check_tree.c` of reiserfsprogs for what is demanded of it. How nodes are filled
//! is simpler here: within one parent only.

mod balance;
pub(crate) mod file;
pub(crate) mod names;
pub(crate) mod object;
mod pack;
mod piece;

use std::ops::Range;

use finefs_namespace::{Error, Result};
use finefs_reiser_disk::edit as disk;
use finefs_reiser_disk::node::{ItemHead, Leaf};
use finefs_reiser_disk::{DiskError, Key};

pub(crate) use finefs_reiser_disk::edit::NewItem;

use super::search::{self, Found, Nodes, Place, Root, Step, Visit};
use crate::error::at;
use piece::Piece;

/// Blocks that mutations change.
pub(crate) trait TreeBlocks: Nodes {
    /// The size of a block.
    fn block_size_bytes(&self) -> usize;

    /// A block to change in place. Once it was given, it is given again without fail.
    fn edit(&mut self, block: u32) -> Result<&mut [u8]>;

    /// A block that was just allocated: zeros.
    fn make(&mut self, block: u32) -> &mut [u8];

    /// Takes a free block for a node, if possible near another one.
    fn allocate(&mut self, near: u32) -> Result<u32>;

    /// A node is gone, or a block that was just allocated is not needed.
    fn free(&mut self, block: u32);
}

/// Runs of blocks of files that nothing names any more: first one and number.
pub(crate) type Freed = Vec<(u32, u32)>;

/// The most blocks that one mutation allocates in a tree of so many levels.
pub(crate) fn blocks_needed_max(levels: u16) -> u32 {
    // Two leaves, a node of each level above, a new root.
    u32::from(levels) + 2
}

/// The most blocks that one mutation changes, frees or allocates.
pub(crate) fn blocks_changed_max(levels: u16) -> u32 {
    // Of each level the node, its neighbours on both sides, and what is new.
    3 * u32::from(levels) + blocks_needed_max(levels)
}

/// An item, in memory.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub head: ItemHead,
    pub body: Vec<u8>,
    pub place: Place,
}

/// Changes a tree. See the module's head.
pub(crate) struct Editor<'a, B> {
    pub blocks: &'a mut B,
    /// Where the tree begins now.
    pub root: Root,
}

impl<'a, B: TreeBlocks> Editor<'a, B> {
    /// Of the tree that begins here.
    pub fn new(blocks: &'a mut B, root: Root) -> Editor<'a, B> {
        Editor { blocks, root }
    }

    fn block_size(&self) -> usize {
        self.blocks.block_size_bytes()
    }

    fn capacity(&self) -> usize {
        disk::capacity(self.block_size())
    }

    fn find(&self, key: &Key) -> Result<Found<B::Read>> {
        search::leaf_of(&*self.blocks, self.root, key)
    }

    /// The leaf of a key and the item that has it, if there is one.
    fn find_exact(&self, key: &Key) -> Result<Option<(Found<B::Read>, u16)>> {
        let found = self.find(key)?;
        let item = found.leaf.position(key);
        let is_there = item < found.leaf.len() && found.head(item)?.key == *key;
        Ok(is_there.then_some((found, item)))
    }

    /// The last item whose key is not greater.
    fn find_last(&self, key: &Key) -> Result<Option<(Found<B::Read>, u16)>> {
        let found = self.find(key)?;
        let item = found.leaf.position(key);
        if item < found.leaf.len() && found.head(item)?.key == *key {
            return Ok(Some((found, item)));
        }
        Ok(item.checked_sub(1).map(|before| (found, before)))
    }

    /// An item.
    pub fn item(&self, key: &Key) -> Result<Option<Item>> {
        let Some((found, item)) = self.find_exact(key)? else {
            return Ok(None);
        };
        let head = found.head(item)?;
        Ok(Some(Item {
            body: found.leaf.body(&head).to_vec(),
            place: found.place(item),
            head,
        }))
    }

    /// As [`super::Tree::visit`].
    pub fn visit(&self, from: &Key, visit: Visit<'_>) -> Result<()> {
        search::visit(&*self.blocks, self.root, from, visit)
    }

    /// As [`super::Tree::visit_around`].
    pub fn visit_around(&self, key: &Key, visit: Visit<'_>) -> Result<()> {
        search::visit_around(&*self.blocks, self.root, key, visit)
    }

    /// Inserts an item. It becomes one with the items beside it where it goes on from them.
    pub fn insert(&mut self, item: &NewItem<'_>) -> Result<()> {
        let found = self.find(&item.key)?;
        let at = found.leaf.position(&item.key);
        let mut range = at..at;
        let mut piece = Piece {
            key: item.key,
            version: item.version,
            count: item.count,
            body: item.body.to_vec(),
        };
        let block_size = self.block_size();
        if at < found.leaf.len() {
            let after = found.head(at)?;
            if after.key == item.key {
                return Err(found
                    .place(at)
                    .corrupt(format_args!("key {} exists", item.key)));
            }
            let after = Piece::of(&after, found.leaf.body(&after), found.place(at))?;
            if piece.joins(&after, block_size) {
                piece.join(&after)?;
                range.end += 1;
            }
        }
        if let Some(at) = at.checked_sub(1) {
            let head = found.head(at)?;
            let mut before = Piece::of(&head, found.leaf.body(&head), found.place(at))?;
            if before.joins(&piece, block_size) {
                before.join(&piece)?;
                (piece, range.start) = (before, at);
            }
        }
        self.splice(found, range, &[piece.item()])
    }

    /// Gives an item other bytes, as many as it has. Never allocates.
    pub fn replace(&mut self, key: &Key, body: &[u8]) -> Result<()> {
        let Some((found, item)) = self.find_exact(key)? else {
            return Err(missing(key));
        };
        let head = found.head(item)?;
        if usize::from(head.length) != body.len() {
            return Err(found
                .place(item)
                .corrupt(format_args!("{} bytes", head.length)));
        }
        self.write_in_place(found, item, &mut |there| there.copy_from_slice(body))
    }

    /// Removes an item.
    pub fn remove(&mut self, key: &Key) -> Result<()> {
        let Some((found, item)) = self.find_exact(key)? else {
            return Err(missing(key));
        };
        self.splice(found, item..item + 1, &[])
    }

    /// Changes bytes of an item and nothing else.
    fn write_in_place(
        &mut self,
        found: Found<B::Read>,
        item: u16,
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Result<()> {
        let place = found.place(item);
        // Its reader is gone before the block is changed, so that it need not be copied.
        drop(found);
        let block = self.blocks.edit(place.block)?;
        change(disk::item_mut(block, item).map_err(|error| place.damaged(&error))?);
        Ok(())
    }

    /// Replaces items of a leaf by others, which may need more than the leaf has.
    fn splice(
        &mut self,
        found: Found<B::Read>,
        range: Range<u16>,
        new: &[NewItem<'_>],
    ) -> Result<()> {
        let change = Change::of(&found, &range, new)?;
        match self.stays(&found, &change)? {
            true => self.splice_in_place(found, range, new, &change),
            false => self.splice_and_balance(&found, range, new),
        }
    }

    /// True when the leaf has room for the change, and its items need not move to a neighbour.
    fn stays(&self, found: &Found<B::Read>, change: &Change) -> Result<bool> {
        let capacity = self.capacity();
        if change.used > capacity || change.items == 0 {
            return Ok(false);
        }
        let grows = change.used >= change.used_before;
        let Some(parent) = found.path.steps().last().filter(|_| !grows) else {
            return Ok(true);
        };
        if balance::is_full_enough(change.used, capacity) {
            return Ok(true);
        }
        let node = search::internal(&*self.blocks, parent.block, 2)?;
        let neighbours = balance::neighbours(parent.child, node.len() + 1);
        Ok(!neighbours.into_iter().flatten().any(|number| {
            let used = usize::from(node.child_used(number));
            balance::is_one(used + change.used, capacity)
        }))
    }

    fn splice_in_place(
        &mut self,
        found: Found<B::Read>,
        range: Range<u16>,
        new: &[NewItem<'_>],
        change: &Change,
    ) -> Result<()> {
        let (leaf, path) = (found.block, found.path);
        drop(found);
        let parent = path
            .steps()
            .last()
            .filter(|_| change.used != change.used_before);
        let divider = divider(path.steps()).filter(|_| change.first.is_some());
        // All are there before the first one changes.
        let steps = parent.iter().copied().chain(divider.iter().copied());
        for block in steps.map(|step| step.block).chain([leaf]) {
            self.blocks.edit(block)?;
        }
        let block = self.blocks.edit(leaf)?;
        disk::splice(block, range, new).map_err(|error| in_block(leaf, &error))?;
        if let Some(parent) = parent {
            let node = self.blocks.edit(parent.block)?;
            disk::set_child_used(node, parent.child, change.used as u16);
        }
        if let (Some(divider), Some(first)) = (divider, change.first) {
            let node = self.blocks.edit(divider.block)?;
            disk::set_key(node, divider.child - 1, &first);
        }
        Ok(())
    }

    fn splice_and_balance(
        &mut self,
        found: &Found<B::Read>,
        range: Range<u16>,
        new: &[NewItem<'_>],
    ) -> Result<()> {
        let is_at_end = range.end == found.leaf.len() && !new.is_empty();
        let mut pieces = pieces_of(&found.leaf, found.block)?;
        let new = new.iter().map(|item| Piece {
            key: item.key,
            version: item.version,
            count: item.count,
            body: item.body.to_vec(),
        });
        pieces.splice(usize::from(range.start)..usize::from(range.end), new);
        self.balance(&found.path, found.block, pieces, is_at_end)
    }
}

/// The node whose key divides this path's leaf from what is left of it.
fn divider(steps: &[Step]) -> Option<&Step> {
    steps.iter().rev().find(|step| step.child > 0)
}

fn pieces_of<R: AsRef<[u8]>>(leaf: &Leaf<R>, block: u32) -> Result<Vec<Piece>> {
    let piece = |item| {
        let place = Place { block, item };
        let head = leaf.head(item).map_err(|error| place.damaged(&error))?;
        Piece::of(&head, leaf.body(&head), place)
    };
    (0..leaf.len()).map(piece).collect()
}

fn in_block(block: u32, error: &DiskError) -> Error {
    at(format_args!("block {block}"), error)
}

fn missing(key: &Key) -> Error {
    Error::corrupt(format_args!("no item {key}"))
}

/// What a splice makes of its leaf.
struct Change {
    used_before: usize,
    used: usize,
    items: usize,
    /// The leaf's first key, where it changes.
    first: Option<finefs_reiser_disk::key::RawKey>,
}

impl Change {
    fn of<R: AsRef<[u8]>>(
        found: &Found<R>,
        range: &Range<u16>,
        new: &[NewItem<'_>],
    ) -> Result<Change> {
        let leaf = &found.leaf;
        let used_before = disk::used(leaf.bytes());
        let mut used = used_before;
        for item in range.clone() {
            used -= disk::space(&found.head(item)?);
        }
        used += new.iter().map(NewItem::space).sum::<usize>();
        let items = usize::from(leaf.len()) - range.len() + new.len();
        let key_at = |item: u16| -> Result<_> {
            let head = found.head(item)?;
            Ok(head.key.to_bytes(head.version))
        };
        let first = match new.first() {
            _ if range.start > 0 || items == 0 => None,
            Some(item) => Some(item.key.to_bytes(item.version)),
            None => Some(key_at(range.end)?),
        };
        let is_same = range.start == 0 && items > 0 && first == Some(key_at(0)?);
        Ok(Change {
            used_before,
            used,
            items,
            first: first.filter(|_| !is_same),
        })
    }
}
