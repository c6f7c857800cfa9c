//! Sharing items out anew: a leaf that has too much, or too little, and the nodes above it.
//!
//! A leaf that overflows shares with a neighbour that has room, or with both, else it is split into
//! two or three. One that is less than half full becomes one with a neighbour, if both fit. Then
//! the parent's children change, and the same question is asked of it. Neighbours are children of
//! one parent.
//!
//! All of this is planned first: which node has what, with numbers in place of blocks that are
//! still to be allocated. A plan that could be made is carried out without fail.

use std::ops::Range;

use finefs_namespace::{Error, Result};
use finefs_reiser_disk::edit::{self as disk, Child};
use finefs_reiser_disk::key::{KEY_SIZE, RawKey};
use finefs_reiser_disk::node::LEAF_LEVEL;
use finefs_reiser_disk::superblock::LEVELS_MAX;

use super::pack::{Fill, pack};
use super::piece::{self, Piece};
use super::{Editor, TreeBlocks, in_block, pieces_of};
use crate::tree::search::{self, Path, Root, Step};

/// The numbers of the children on both sides of a child.
pub(super) fn neighbours(child: usize, children: usize) -> [Option<usize>; 2] {
    let right = child + 1;
    [child.checked_sub(1), (right < children).then_some(right)]
}

/// True for a node that nothing need be put to.
pub(super) fn is_full_enough(used: usize, capacity: usize) -> bool {
    used >= capacity / 2
}

/// True when so much should be in one node: it leaves some room, so that it need not soon be split.
pub(super) fn is_one(used: usize, capacity: usize) -> bool {
    used <= capacity - capacity / 8
}

/// True when so much can be shared by so many nodes, and leaves some room.
fn is_shared(used: usize, nodes: usize, capacity: usize) -> bool {
    used <= nodes * (capacity - capacity / 16)
}

/// Where a node goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    /// Into this block, where a node is.
    Old(u32),
    /// Into one that is still to be allocated, by number.
    New(usize),
}

/// A child of a node, as planned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kid {
    key: RawKey,
    slot: Slot,
    used: u16,
}

impl From<Child> for Kid {
    fn from(child: Child) -> Kid {
        Kid {
            key: child.key,
            slot: Slot::Old(child.block),
            used: child.used,
        }
    }
}

enum Content {
    Leaf(Vec<Piece>),
    /// Of this level.
    Internal(u16, Vec<Kid>),
}

#[derive(Default)]
struct Plan {
    nodes: Vec<(Slot, Content)>,
    freed: Vec<u32>,
    new: usize,
}

impl Plan {
    fn allocate(&mut self) -> Slot {
        self.new += 1;
        Slot::New(self.new - 1)
    }

    fn leaf(&mut self, slot: Slot, pieces: Vec<Piece>) -> Kid {
        let used: usize = pieces.iter().map(Piece::space).sum();
        let first = pieces
            .first()
            .map_or([0; KEY_SIZE], |piece| piece.key.to_bytes(piece.version));
        self.nodes.push((slot, Content::Leaf(pieces)));
        Kid {
            key: first,
            slot,
            used: used as u16,
        }
    }

    fn internal(&mut self, slot: Slot, level: u16, kids: Vec<Kid>) -> Kid {
        let kid = Kid {
            key: kids.first().map_or([0; KEY_SIZE], |kid| kid.key),
            slot,
            used: disk::used_by_children(kids.len()) as u16,
        };
        self.nodes.push((slot, Content::Internal(level, kids)));
        kid
    }
}

/// Which children of a node become which others.
struct Exchange {
    range: Range<usize>,
    kids: Vec<Kid>,
}

/// A node that is about to get other children.
struct Place<'a> {
    path: &'a Path,
    /// Its place in the path: 0 for the root.
    depth: usize,
    level: u16,
    /// The new children come last.
    is_at_end: bool,
}

impl Place<'_> {
    fn step(&self) -> &Step {
        &self.path.steps()[self.depth]
    }

    /// The node above.
    fn parent(&self) -> Option<&Step> {
        Some(&self.path.steps()[self.depth.checked_sub(1)?])
    }

    /// Its number among its parent's children.
    fn number(&self) -> usize {
        self.parent().map_or(0, |parent| parent.child)
    }
}

impl<B: TreeBlocks> Editor<'_, B> {
    /// Makes these the items of a leaf, and balances the tree.
    pub(super) fn balance(
        &mut self,
        path: &Path,
        leaf: u32,
        pieces: Vec<Piece>,
        is_at_end: bool,
    ) -> Result<()> {
        let mut plan = Plan::default();
        let pieces = piece::joined(pieces, self.block_size())?;
        let mut exchange = self.plan_leaves(&mut plan, path, leaf, pieces, is_at_end)?;
        for depth in (0..path.steps().len()).rev() {
            let level = self.root.levels - depth as u16;
            let place = Place {
                path,
                depth,
                level,
                is_at_end,
            };
            exchange = self.plan_internal(&mut plan, &place, exchange)?;
        }
        let root = self.plan_root(&mut plan, exchange.kids)?;
        self.carry_out(plan, leaf, root)
    }

    /// The children of an internal node that a path comes through.
    fn kids(&self, step: &Step, level: u16) -> Result<Vec<Kid>> {
        self.kids_of(step.block, level, step.first)
    }

    fn kids_of(&self, block: u32, level: u16, first: RawKey) -> Result<Vec<Kid>> {
        let node = search::internal(&*self.blocks, block, level)?;
        for number in 0..=node.len() {
            search::child(&*self.blocks, block, &node, number)?;
        }
        let children = disk::children(&node, first);
        Ok(children.into_iter().map(Kid::from).collect())
    }

    fn plan_leaves(
        &self,
        plan: &mut Plan,
        path: &Path,
        leaf: u32,
        pieces: Vec<Piece>,
        is_at_end: bool,
    ) -> Result<Exchange> {
        let used: usize = pieces.iter().map(Piece::space).sum();
        let (kids, number) = match path.steps().last() {
            Some(parent) => (self.kids(parent, LEAF_LEVEL + 1)?, parent.child),
            None => (Vec::new(), 0),
        };
        if pieces.is_empty() {
            plan.freed.push(leaf);
            return Ok(Exchange {
                range: number..number + 1,
                kids: Vec::new(),
            });
        }
        match used > self.capacity() {
            true => self.plan_overflow(plan, &kids, number, leaf, pieces, is_at_end),
            false => self.plan_underflow(plan, &kids, number, leaf, pieces),
        }
    }

    /// The items of a leaf that is a child.
    fn neighbour(&self, kids: &[Kid], number: usize) -> Result<(u32, Vec<Piece>)> {
        let Some(Slot::Old(block)) = kids.get(number).map(|kid| kid.slot) else {
            return Err(Error::corrupt(format_args!("no child {number}")));
        };
        let leaf = search::leaf(&*self.blocks, block)?;
        Ok((block, pieces_of(&leaf, block)?))
    }

    /// The items of adjacent leaves, one of which has become others.
    fn gathered(
        &self,
        kids: &[Kid],
        range: Range<usize>,
        number: usize,
        leaf: u32,
        pieces: &[Piece],
    ) -> Result<(Vec<u32>, Vec<Piece>)> {
        let (mut blocks, mut all) = (Vec::new(), Vec::new());
        for child in range {
            if child == number {
                blocks.push(leaf);
                all.extend_from_slice(pieces);
            } else {
                let (block, items) = self.neighbour(kids, child)?;
                blocks.push(block);
                all.extend(items);
            }
        }
        Ok((blocks, piece::joined(all, self.block_size())?))
    }

    fn plan_overflow(
        &self,
        plan: &mut Plan,
        kids: &[Kid],
        number: usize,
        leaf: u32,
        pieces: Vec<Piece>,
        is_at_end: bool,
    ) -> Result<Exchange> {
        let (capacity, block_size) = (self.capacity(), self.block_size());
        let used: usize = pieces.iter().map(Piece::space).sum();
        let last = kids.len().max(1) - 1;
        let (left, right) = (number.saturating_sub(1), (number + 1).min(last));
        let fill = if is_at_end { Fill::InOrder } else { Fill::Even };
        let shares = [left..number + 1, number..right + 1, left..right + 1];
        for range in shares.into_iter().filter(|range| range.len() > 1) {
            // What comes in at the end would only fill up the leaf before.
            if is_at_end && range.start < number {
                continue;
            }
            let others = range.clone().filter(|&child| child != number);
            let others = others.map(|child| usize::from(kids[child].used));
            if !is_shared(used + others.sum::<usize>(), range.len(), capacity) {
                continue;
            }
            let (blocks, all) = self.gathered(kids, range.clone(), number, leaf, &pieces)?;
            if let Some(leaves) = pack(&all, range.len(), fill, capacity, block_size)? {
                return Ok(place_leaves(plan, range, &blocks, leaves));
            }
        }
        for count in [2, 3] {
            if let Some(leaves) = pack(&pieces, count, fill, capacity, block_size)? {
                return Ok(place_leaves(plan, number..number + 1, &[leaf], leaves));
            }
        }
        Err(Error::corrupt(format_args!(
            "block {leaf}: items that no leaves have room for"
        )))
    }

    fn plan_underflow(
        &self,
        plan: &mut Plan,
        kids: &[Kid],
        number: usize,
        leaf: u32,
        pieces: Vec<Piece>,
    ) -> Result<Exchange> {
        let (capacity, block_size) = (self.capacity(), self.block_size());
        let used: usize = pieces.iter().map(Piece::space).sum();
        for other in neighbours(number, kids.len()).into_iter().flatten() {
            if !is_one(used + usize::from(kids[other].used), capacity) {
                continue;
            }
            let range = number.min(other)..number.max(other) + 1;
            let (blocks, all) = self.gathered(kids, range.clone(), number, leaf, &pieces)?;
            if let Some(leaves) = pack(&all, 1, Fill::InOrder, capacity, block_size)? {
                return Ok(place_leaves(plan, range, &blocks, leaves));
            }
        }
        Ok(place_leaves(
            plan,
            number..number + 1,
            &[leaf],
            vec![pieces],
        ))
    }

    fn plan_internal(
        &self,
        plan: &mut Plan,
        place: &Place<'_>,
        exchange: Exchange,
    ) -> Result<Exchange> {
        let step = place.step();
        let mut kids = self.kids(step, place.level)?;
        let before = kids.clone();
        let is_at_end = place.is_at_end && exchange.range.end == kids.len();
        kids.splice(exchange.range, exchange.kids);
        let max = disk::children_max(self.block_size());
        let number = place.number();
        if kids.is_empty() {
            // Only where it had one child, as no node of ours has.
            plan.freed.push(step.block);
            return Ok(Exchange {
                range: number..number + 1,
                kids,
            });
        }
        if place.depth == 0 && kids.len() == 1 {
            // The only child becomes the root.
            plan.freed.push(step.block);
            return Ok(Exchange { range: 0..1, kids });
        }
        if kids.len() > max {
            return self.plan_split(plan, place, kids, is_at_end);
        }
        let is_small = kids.len() < max / 2 && kids.len() < before.len();
        if is_small && let Some(exchange) = self.plan_merge(plan, place, &kids)? {
            return Ok(exchange);
        }
        let slot = Slot::Old(step.block);
        let first = kids.first().map_or(step.first, |kid| kid.key);
        // The first key stands in a node above.
        let is_same = kids.len() == before.len()
            && kids
                .iter()
                .zip(&before)
                .enumerate()
                .all(|(number, (new, old))| {
                    (new.slot, new.used) == (old.slot, old.used)
                        && (number == 0 || new.key == old.key)
                });
        let kid = match is_same {
            true => Kid {
                key: first,
                slot,
                used: disk::used_by_children(kids.len()) as u16,
            },
            false => plan.internal(slot, place.level, kids),
        };
        Ok(Exchange {
            range: number..number + 1,
            kids: vec![kid],
        })
    }

    /// The children of a neighbour of an internal node: its block, and them.
    fn cousins(&self, place: &Place<'_>, parent: &[Kid], number: usize) -> Result<(u32, Vec<Kid>)> {
        let Some(kid) = parent.get(number) else {
            return Err(Error::corrupt(format_args!("no child {number}")));
        };
        let Slot::Old(block) = kid.slot else {
            return Err(Error::corrupt(format_args!("no child {number}")));
        };
        Ok((block, self.kids_of(block, place.level, kid.key)?))
    }

    /// The node's siblings, by its parent; nothing for the root.
    fn siblings(&self, place: &Place<'_>) -> Result<Vec<Kid>> {
        match place.parent() {
            Some(parent) => self.kids(parent, place.level + 1),
            None => Ok(Vec::new()),
        }
    }

    fn plan_split(
        &self,
        plan: &mut Plan,
        place: &Place<'_>,
        kids: Vec<Kid>,
        is_at_end: bool,
    ) -> Result<Exchange> {
        let max = disk::children_max(self.block_size());
        let number = place.number();
        let block = place.step().block;
        let siblings = self.siblings(place)?;
        let neighbours = neighbours(number, siblings.len());
        for other in neighbours.into_iter().flatten().filter(|_| !is_at_end) {
            let count = children_of(&siblings[other]);
            if !is_shared(kids.len() + count, 2, max) {
                continue;
            }
            let (other_block, cousins) = self.cousins(place, &siblings, other)?;
            if cousins.len() + kids.len() > 2 * max {
                continue;
            }
            let (first, second) = match other < number {
                true => ((other_block, cousins), (block, kids)),
                false => ((block, kids), (other_block, cousins)),
            };
            let slots = [Slot::Old(first.0), Slot::Old(second.0)];
            let all = [first.1, second.1].concat();
            let half = all.len().div_ceil(2);
            let range = number.min(other)..number.max(other) + 1;
            return Ok(halves(plan, range, slots, place.level, all, half));
        }
        let first = match is_at_end {
            true => kids.len() - (max / 8).max(2),
            false => kids.len().div_ceil(2),
        };
        let slots = [Slot::Old(block), plan.allocate()];
        Ok(halves(
            plan,
            number..number + 1,
            slots,
            place.level,
            kids,
            first,
        ))
    }

    /// Puts a node with few children together with a neighbour; `None` where it can stay.
    fn plan_merge(
        &self,
        plan: &mut Plan,
        place: &Place<'_>,
        kids: &[Kid],
    ) -> Result<Option<Exchange>> {
        let max = disk::children_max(self.block_size());
        let number = place.number();
        let block = place.step().block;
        let siblings = self.siblings(place)?;
        let is_poor = kids.len() < (max / 4).max(2);
        for other in neighbours(number, siblings.len()).into_iter().flatten() {
            let total = kids.len() + children_of(&siblings[other]);
            if !is_one(total, max) && !is_poor {
                continue;
            }
            let (other_block, cousins) = self.cousins(place, &siblings, other)?;
            let (all, slots) = match other < number {
                true => ([&cousins, kids].concat(), [other_block, block]),
                false => ([kids, &cousins].concat(), [block, other_block]),
            };
            let range = number.min(other)..number.max(other) + 1;
            if is_one(all.len(), max) || all.len() < 4 {
                plan.freed.push(slots[1]);
                let kid = plan.internal(Slot::Old(slots[0]), place.level, all);
                return Ok(Some(Exchange {
                    range,
                    kids: vec![kid],
                }));
            }
            let half = all.len().div_ceil(2);
            let slots = slots.map(Slot::Old);
            return Ok(Some(halves(plan, range, slots, place.level, all, half)));
        }
        Ok(None)
    }

    /// What stands in place of the root: a child that is left alone, or a new root above several.
    fn plan_root(&self, plan: &mut Plan, kids: Vec<Kid>) -> Result<(Slot, u16)> {
        let levels = self.root.levels;
        let root = Slot::Old(self.root.block);
        match kids[..] {
            [] => Err(Error::corrupt("the last item of the tree is gone")),
            [kid] if kid.slot == root => Ok((root, levels)),
            [kid] => Ok((kid.slot, levels - 1)),
            _ if levels >= LEVELS_MAX => Err(Error::NoSpace),
            _ => {
                let slot = plan.allocate();
                plan.internal(slot, levels + 1, kids);
                Ok((slot, levels + 1))
            }
        }
    }

    fn carry_out(&mut self, plan: Plan, near: u32, root: (Slot, u16)) -> Result<()> {
        let mut new = Vec::with_capacity(plan.new);
        let mut ready = Ok(());
        for _ in 0..plan.new {
            match self.blocks.allocate(near) {
                Ok(block) => new.push(block),
                Err(error) => ready = Err(error),
            }
        }
        for (slot, _) in &plan.nodes {
            if let (Slot::Old(block), Ok(())) = (slot, &ready) {
                ready = self.blocks.edit(*block).map(|_| ());
            }
        }
        if let Err(error) = ready {
            for block in new {
                self.blocks.free(block);
            }
            return Err(error);
        }
        let block_of = |slot: Slot| match slot {
            Slot::Old(block) => block,
            Slot::New(number) => new[number],
        };
        for (slot, content) in &plan.nodes {
            let number = block_of(*slot);
            let block = match slot {
                Slot::Old(block) => self.blocks.edit(*block)?,
                Slot::New(_) => self.blocks.make(number),
            };
            let filled = match content {
                Content::Leaf(pieces) => {
                    let items: Vec<_> = pieces.iter().map(Piece::item).collect();
                    disk::fill_leaf(block, &items)
                }
                Content::Internal(level, kids) => {
                    let child = |kid: &Kid| Child {
                        key: kid.key,
                        block: block_of(kid.slot),
                        used: kid.used,
                    };
                    let children: Vec<Child> = kids.iter().map(child).collect();
                    disk::fill_internal(block, *level, &children)
                }
            };
            filled.map_err(|error| in_block(number, &error))?;
        }
        for block in plan.freed {
            self.blocks.free(block);
        }
        self.root = Root {
            block: block_of(root.0),
            levels: root.1,
        };
        Ok(())
    }
}

/// How many children a child has, by what it uses.
fn children_of(kid: &Kid) -> usize {
    let one = disk::used_by_children(2) - disk::used_by_children(1);
    (usize::from(kid.used) + KEY_SIZE) / one
}

/// Puts leaves into the blocks that there are, and new ones; blocks that are left over are freed.
fn place_leaves(
    plan: &mut Plan,
    range: Range<usize>,
    blocks: &[u32],
    leaves: Vec<Vec<Piece>>,
) -> Exchange {
    let mut free = blocks.iter();
    let mut kids = Vec::with_capacity(leaves.len());
    for pieces in leaves {
        let slot = match free.next() {
            Some(block) => Slot::Old(*block),
            None => plan.allocate(),
        };
        kids.push(plan.leaf(slot, pieces));
    }
    plan.freed.extend(free);
    Exchange { range, kids }
}

/// Two nodes of these children, so many of them in the first one.
fn halves(
    plan: &mut Plan,
    range: Range<usize>,
    slots: [Slot; 2],
    level: u16,
    mut all: Vec<Kid>,
    first: usize,
) -> Exchange {
    let rest = all.split_off(first.min(all.len()));
    let kids = vec![
        plan.internal(slots[0], level, all),
        plan.internal(slots[1], level, rest),
    ];
    Exchange { range, kids }
}
