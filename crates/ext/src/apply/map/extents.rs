//! Extent trees.
//!
//! Every change walks from the root to the leaves that its range touches, edits a leaf's extents as
//! a list, and writes the list back: into the same block, into several when it has grown too long,
//! or nowhere when it is empty. What became of a child comes back to its parent as a list of
//! indexes that replaces the child's one, and so on up. A root that overflows pushes its entries
//! into new nodes below it; a root with a single child small enough takes that child's entries in.
//!
//! An index's first logical block always equals that of the node below (e2fsck insists).
//!
//! # Clusters
//! With `bigalloc` what is mapped anew and what is unmapped are whole clusters. A cluster of
//! several runs counts with the one that has its first block. The kernel leaves holes in clusters;
//! these are loaded as unwritten blocks ([`crate::load::clusters`]), and mapped here when they are
//! converted. A cluster that is unmapped goes with the first of its extents.

use std::ops::Range;

use finefs_ext_disk::extent::{
    self, DEPTH_MAX, Extent, ExtentNode, Index, LEN_MAX, LEN_MAX_UNWRITTEN,
};
use finefs_ext_disk::{LogicalBlock, PhysBlock};
use finefs_namespace::{Error, ExtentState, Result};

use super::{Run, free_data};
use crate::apply::inode::InodeEdit;
use crate::apply::space::Space;

/// The entries of a node.
enum Entries {
    Leaf(Vec<Extent>),
    Inner(Vec<Index>),
}

impl Entries {
    fn len(&self) -> usize {
        match self {
            Entries::Leaf(extents) => extents.len(),
            Entries::Inner(indexes) => indexes.len(),
        }
    }

    fn first(&self) -> Option<LogicalBlock> {
        match self {
            Entries::Leaf(extents) => extents.first().map(|extent| extent.logical),
            Entries::Inner(indexes) => indexes.first().map(|index| index.logical),
        }
    }

    fn split_off(&mut self, at: usize) -> Entries {
        match self {
            Entries::Leaf(extents) => Entries::Leaf(extents.split_off(at)),
            Entries::Inner(indexes) => Entries::Inner(indexes.split_off(at)),
        }
    }

    /// Cuts into pieces of at most `capacity`: full ones when the growth was at the end, else equal
    /// ones.
    fn pieces(mut self, capacity: usize, grew_at_end: bool) -> Vec<Entries> {
        let count = self.len().div_ceil(capacity).max(1);
        let size = if grew_at_end {
            capacity
        } else {
            self.len().div_ceil(count)
        };
        let mut pieces = Vec::with_capacity(count);
        while self.len() > size {
            let rest = self.split_off(size);
            pieces.push(std::mem::replace(&mut self, rest));
        }
        pieces.push(self);
        pieces
    }
}

/// What is done to the leaves.
enum Op {
    Map(Extent),
    Convert(Range<LogicalBlock>, ExtentState),
    Unmap(Range<LogicalBlock>),
}

impl Op {
    fn range(&self) -> Range<LogicalBlock> {
        match self {
            Op::Map(extent) => extent.logical..extent.logical_end(),
            Op::Convert(range, _) | Op::Unmap(range) => range.clone(),
        }
    }
}

/// What an edit of a node's entries came to.
#[derive(Default)]
struct Edited {
    has_changed: bool,
    grew_at_end: bool,
}

/// Maps a run.
pub(crate) fn map(space: &mut Space<'_>, inode: &mut InodeEdit, run: Run) -> Result<()> {
    let longest = u64::from(if run.is_unwritten {
        LEN_MAX_UNWRITTEN
    } else {
        LEN_MAX
    });
    let mut done = 0;
    while done < run.length {
        let length = longest.min(run.length - done);
        let piece = Extent {
            logical: run.logical + done,
            len: length as u32,
            physical: PhysBlock(run.physical + done),
            is_unwritten: run.is_unwritten,
        };
        Tree::of(space, inode).edit(&Op::Map(piece))?;
        inode.blocks_delta += space.blocks_taken(piece.physical.0, length);
        done += length;
    }
    Ok(())
}

/// Gives the blocks of a range this state.
pub(crate) fn convert(
    space: &mut Space<'_>,
    inode: &mut InodeEdit,
    range: Range<LogicalBlock>,
    to: ExtentState,
) -> Result<()> {
    if space.cluster_blocks() > 1 && to == ExtentState::Written {
        for gap in gaps(space, inode, range.clone())? {
            Tree::of(space, inode).edit(&Op::Map(gap))?;
        }
    }
    Tree::of(space, inode).edit(&Op::Convert(range, to))
}

/// What is not mapped of a range of clusters of which something is.
fn gaps(space: &Space<'_>, inode: &InodeEdit, range: Range<LogicalBlock>) -> Result<Vec<Extent>> {
    let geometry = &space.state.geometry;
    let around = geometry.cluster_start(range.start)..geometry.cluster_end(range.end);
    let runs = runs_in(space, inode, &around)?;
    let mut gaps = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let next = runs.partition_point(|run| run.end() <= at);
        if let Some(run) = runs.get(next)
            && run.logical <= at
        {
            at = run.end();
            continue;
        }
        let cluster = geometry.cluster_start(at)..geometry.cluster_end(at + 1);
        let before = next.checked_sub(1).map(|before| &runs[before]);
        let mut neighbours = before.into_iter().chain(runs.get(next));
        let is_near = |run: &&Run| run.end() > cluster.start && run.logical < cluster.end;
        let near = neighbours.find(is_near).ok_or_else(|| {
            inode.damaged(format_args!("nothing is mapped around logical block {at}"))
        })?;
        let hole_end = runs.get(next).map_or(range.end, |run| run.logical);
        let end = range.end.min(cluster.end).min(hole_end);
        let physical = (near.physical + at.0).wrapping_sub(near.logical.0);
        if !space.state.groups.can_own(geometry, physical, end - at) {
            return Err(inode.damaged(format_args!("a cluster with block {physical}")));
        }
        gaps.push(Extent {
            logical: at,
            len: (end - at) as u32,
            physical: PhysBlock(physical),
            is_unwritten: false,
        });
        at = end;
    }
    Ok(gaps)
}

/// Frees the blocks of a range.
pub(crate) fn unmap(
    space: &mut Space<'_>,
    inode: &mut InodeEdit,
    range: Range<LogicalBlock>,
) -> Result<()> {
    Tree::of(space, inode).edit(&Op::Unmap(range))
}

/// All runs.
pub(crate) fn runs(space: &Space<'_>, inode: &InodeEdit) -> Result<Vec<Run>> {
    runs_in(space, inode, &LogicalBlock::ALL)
}

/// Those of the nodes that have a part of a range.
fn runs_in(space: &Space<'_>, inode: &InodeEdit, wanted: &Range<LogicalBlock>) -> Result<Vec<Run>> {
    let root = ExtentNode::new(inode.disk.block_area()).map_err(|error| inode.damaged(error))?;
    root.validate(LogicalBlock::ALL)
        .map_err(|error| inode.damaged(error))?;
    let mut runs: Vec<Run> = Vec::new();
    collect(space, inode, &root, LogicalBlock::ALL, wanted, &mut runs)?;
    Ok(runs)
}

fn collect<B: AsRef<[u8]>>(
    space: &Space<'_>,
    inode: &InodeEdit,
    node: &ExtentNode<B>,
    range: Range<LogicalBlock>,
    wanted: &Range<LogicalBlock>,
    runs: &mut Vec<Run>,
) -> Result<()> {
    for extent in node.extents() {
        runs.push(Run {
            logical: extent.logical,
            physical: extent.physical.0,
            length: u64::from(extent.len),
            is_unwritten: extent.is_unwritten,
        });
    }
    for (i, index) in (0..).zip(node.indexes()) {
        let below = node.child_range(i, range.clone());
        if below.end <= wanted.start || below.start >= wanted.end {
            continue;
        }
        let block = read_node(space, inode, index.block.0, node.depth() - 1, below.clone())?;
        let child = ExtentNode::new(&block[..]).map_err(|error| inode.damaged(error))?;
        collect(space, inode, &child, below, wanted, runs)?;
    }
    Ok(())
}

/// Reads and checks a node.
fn read_node(
    space: &Space<'_>,
    inode: &InodeEdit,
    block: u64,
    depth: u16,
    range: Range<LogicalBlock>,
) -> Result<finefs_buffers::BufferRead> {
    let state = space.state;
    if !state.groups.can_own(&state.geometry, block, 1) {
        return Err(inode.damaged(format_args!("extent node in block {block}")));
    }
    let bytes = state.buffers.read(block)?;
    let check = || {
        let node = ExtentNode::new(&bytes[..])?;
        if let Some(seed) = inode.seed {
            node.verify_checksum(seed)?;
        }
        node.validate(range)?;
        Ok(node.depth())
    };
    match check() {
        Ok(found) if found == depth => Ok(bytes),
        Ok(found) => Err(inode.damaged(format_args!("extent node {block} has depth {found}"))),
        Err(error) => {
            let error: finefs_ext_disk::DiskError = error;
            Err(inode.damaged(format_args!("extent node {block}: {error}")))
        }
    }
}

struct Tree<'s, 'a> {
    space: &'s mut Space<'a>,
    inode: &'s mut InodeEdit,
    /// Clusters before this logical block were freed.
    freed_to: LogicalBlock,
}

impl<'s, 'a> Tree<'s, 'a> {
    fn of(space: &'s mut Space<'a>, inode: &'s mut InodeEdit) -> Tree<'s, 'a> {
        Tree {
            space,
            inode,
            freed_to: LogicalBlock(0),
        }
    }

    /// Applies an operation to the whole tree.
    fn edit(&mut self, op: &Op) -> Result<()> {
        let (mut entries, depth) = {
            let root = ExtentNode::new(self.inode.disk.block_area())
                .map_err(|error| self.inode.damaged(error))?;
            root.validate(LogicalBlock::ALL)
                .map_err(|error| self.inode.damaged(error))?;
            (entries_of(&root), root.depth())
        };
        let (edited, outcome) = self.edit_entries(&mut entries, depth, LogicalBlock::ALL, op);
        if edited.has_changed {
            let stored = self.store_root(entries, depth, edited.grew_at_end);
            return outcome.and(stored);
        }
        outcome
    }

    /// Applies an operation to the entries of a node. An error can come with a change.
    fn edit_entries(
        &mut self,
        entries: &mut Entries,
        depth: u16,
        own: Range<LogicalBlock>,
        op: &Op,
    ) -> (Edited, Result<()>) {
        match entries {
            Entries::Leaf(extents) => match self.edit_leaf(extents, own, op) {
                Ok(edited) => (edited, Ok(())),
                Err(error) => (Edited::default(), Err(error)),
            },
            Entries::Inner(indexes) => self.edit_children(indexes, depth, own, op),
        }
    }

    fn edit_children(
        &mut self,
        indexes: &mut Vec<Index>,
        depth: u16,
        own: Range<LogicalBlock>,
        op: &Op,
    ) -> (Edited, Result<()>) {
        let range = op.range();
        // The child that covers the start; what lies before all goes into the first.
        let at_or_before = indexes.partition_point(|index| index.logical <= range.start);
        let mut at = at_or_before.saturating_sub(1);
        let mut edited = Edited::default();
        while at < indexes.len() {
            let start = indexes[at].logical;
            let is_only_one = matches!(op, Op::Map(_));
            if start >= range.end && !is_only_one {
                break;
            }
            let end = indexes.get(at + 1).map_or(own.end, |next| next.logical);
            let is_last = at + 1 == indexes.len();
            let (below, outcome) = self.edit_node(indexes[at], depth - 1, start..end, op);
            if let Some((replacement, grew_at_end)) = below {
                edited.has_changed = true;
                edited.grew_at_end = grew_at_end && is_last;
                let count = replacement.len();
                indexes.splice(at..=at, replacement);
                at += count;
            } else {
                at += 1;
            }
            if outcome.is_err() || is_only_one {
                return (edited, outcome);
            }
        }
        (edited, Ok(()))
    }

    /// Applies an operation to a node in a block. Gives what replaces its index when that changes.
    #[allow(clippy::type_complexity)]
    fn edit_node(
        &mut self,
        index: Index,
        depth: u16,
        range: Range<LogicalBlock>,
        op: &Op,
    ) -> (Option<(Vec<Index>, bool)>, Result<()>) {
        let block = index.block.0;
        let read = read_node(self.space, self.inode, block, depth, range.clone());
        let mut entries = match read.and_then(|bytes| {
            let node = ExtentNode::new(&bytes[..]).map_err(|error| self.inode.damaged(error))?;
            Ok(entries_of(&node))
        }) {
            Ok(entries) => entries,
            Err(error) => return (None, Err(error)),
        };
        let (edited, outcome) = self.edit_entries(&mut entries, depth, range, op);
        if !edited.has_changed {
            return (None, outcome);
        }
        if entries.len() == 0 {
            self.free_node(block);
            return (Some((Vec::new(), false)), outcome);
        }
        match self.store(entries, depth, Some(block), edited.grew_at_end) {
            Ok(indexes) => {
                let is_same = indexes.len() == 1 && indexes[0].logical == index.logical;
                ((!is_same).then_some((indexes, edited.grew_at_end)), outcome)
            }
            Err(error) => (None, outcome.and(Err(error))),
        }
    }

    /// Writes entries into a block and as many more as they need.
    fn store(
        &mut self,
        entries: Entries,
        depth: u16,
        block: Option<u64>,
        grew_at_end: bool,
    ) -> Result<Vec<Index>> {
        let capacity = usize::from(extent::capacity(
            self.space.state.buffers.block_size_bytes(),
        ));
        let pieces = entries.pieces(capacity, grew_at_end);
        // All blocks first: then nothing can fail half-way.
        let mut blocks: Vec<u64> = block.into_iter().collect();
        while blocks.len() < pieces.len() {
            let goal = match blocks.last() {
                Some(block) => block + 1,
                None => self.inode.goal(self.space),
            };
            let block = self.space.allocate(goal)?;
            self.inode.blocks_delta += self.space.cluster_blocks();
            blocks.push(block);
        }
        let mut indexes = Vec::with_capacity(pieces.len());
        for (piece, block) in pieces.iter().zip(blocks) {
            let mut buffer = self.space.state.buffers.zeroed(block);
            fill(&mut buffer, depth, piece).map_err(|error| self.inode.damaged(error))?;
            if let Some(seed) = self.inode.seed {
                let mut node =
                    ExtentNode::new(&mut buffer[..]).map_err(|error| self.inode.damaged(error))?;
                node.update_checksum(seed);
            }
            if let Some(logical) = piece.first() {
                indexes.push(Index {
                    logical,
                    block: PhysBlock(block),
                });
            }
        }
        Ok(indexes)
    }

    /// Writes the root's entries, pushing them down while they are too many and pulling a lone
    /// child's up.
    fn store_root(
        &mut self,
        mut entries: Entries,
        mut depth: u16,
        grew_at_end: bool,
    ) -> Result<()> {
        let capacity = usize::from(extent::capacity(finefs_ext_disk::inode::BLOCK_AREA_SIZE));
        while entries.len() > capacity {
            if depth == DEPTH_MAX {
                return Err(self.inode.damaged("extent tree is too deep"));
            }
            entries = Entries::Inner(self.store(entries, depth, None, grew_at_end)?);
            depth += 1;
        }
        let mut emptied = Vec::new();
        while let Entries::Inner(indexes) = &entries {
            let &[only] = &indexes[..] else { break };
            let range = only.logical..LogicalBlock::ALL.end;
            let below = read_node(self.space, self.inode, only.block.0, depth - 1, range)?;
            let node = ExtentNode::new(&below[..]).map_err(|error| self.inode.damaged(error))?;
            if usize::from(node.entries()) > capacity {
                break;
            }
            entries = entries_of(&node);
            depth -= 1;
            emptied.push(only.block.0);
        }
        if entries.len() == 0 {
            depth = 0;
            entries = Entries::Leaf(Vec::new());
        }
        let area = self.inode.disk.block_area_mut();
        let filled = fill(area, depth, &entries);
        filled.map_err(|error| self.inode.damaged(error))?;
        emptied.into_iter().for_each(|block| self.free_node(block));
        Ok(())
    }

    fn free_node(&mut self, block: u64) {
        self.space.free_metadata(block);
        self.inode.blocks_delta -= self.space.cluster_blocks();
    }

    /// Frees the clusters that an extent has blocks of, but for those of the extent before.
    fn free_extent(&mut self, extent: &Extent) {
        let geometry = &self.space.state.geometry;
        let start = geometry.cluster_start(extent.logical).max(self.freed_to);
        let end = geometry.cluster_end(extent.logical_end());
        if start < end {
            let physical = (extent.physical.0 + start.0).wrapping_sub(extent.logical.0);
            self.freed_to = end;
            free_data(self.space, self.inode, physical, end - start);
        }
    }

    /// Applies an operation to the extents of a leaf.
    fn edit_leaf(
        &mut self,
        extents: &mut Vec<Extent>,
        own: Range<LogicalBlock>,
        op: &Op,
    ) -> Result<Edited> {
        match op {
            Op::Map(new) => {
                let at = extents.partition_point(|extent| extent.logical < new.logical);
                let before = at.checked_sub(1).map(|i| extents[i].logical_end());
                let after = extents.get(at).map_or(own.end, |next| next.logical);
                if before > Some(new.logical) || new.logical_end() > after {
                    return Err(self
                        .inode
                        .damaged(format_args!("{new:?} is mapped already")));
                }
                let grew_at_end = at == extents.len();
                extents.insert(at, *new);
                merge_around(extents, at..at + 1);
                Ok(Edited {
                    has_changed: true,
                    grew_at_end,
                })
            }
            Op::Convert(range, to) => {
                let is_unwritten = *to == ExtentState::Unwritten;
                let (mut touched, first) = cut(extents, range);
                if is_unwritten {
                    touched += cut_to_length(extents, first..first + touched);
                }
                let mut has_changed = false;
                for extent in &mut extents[first..first + touched] {
                    let before = std::mem::replace(&mut extent.is_unwritten, is_unwritten);
                    has_changed |= before != is_unwritten;
                }
                merge_around(extents, first..first + touched);
                Ok(Edited {
                    has_changed,
                    grew_at_end: false,
                })
            }
            Op::Unmap(range) => {
                let (touched, first) = cut(extents, range);
                for extent in extents.drain(first..first + touched) {
                    self.free_extent(&extent);
                }
                Ok(Edited {
                    has_changed: touched > 0,
                    grew_at_end: false,
                })
            }
        }
    }
}

fn entries_of<B: AsRef<[u8]>>(node: &ExtentNode<B>) -> Entries {
    if node.is_leaf() {
        Entries::Leaf(node.extents().collect())
    } else {
        Entries::Inner(node.indexes().collect())
    }
}

fn fill(bytes: &mut [u8], depth: u16, entries: &Entries) -> finefs_ext_disk::Result<()> {
    let mut node = ExtentNode::init(bytes, depth)?;
    match entries {
        Entries::Leaf(extents) => (0..)
            .zip(extents)
            .try_for_each(|(i, extent)| node.insert_extent(i, *extent)),
        Entries::Inner(indexes) => (0..)
            .zip(indexes)
            .try_for_each(|(i, index)| node.insert_index(i, *index)),
    }
}

/// Cuts extents at the ends of a range. Gives how many lie inside it then, and the first of them.
fn cut(extents: &mut Vec<Extent>, range: &Range<LogicalBlock>) -> (usize, usize) {
    for edge in [range.start, range.end] {
        let at = extents.partition_point(|extent| extent.logical_end() <= edge);
        if let Some(extent) = extents.get_mut(at)
            && extent.logical < edge
        {
            let keep = edge - extent.logical;
            let rest = Extent {
                logical: edge,
                len: extent.len - keep as u32,
                physical: PhysBlock(extent.physical.0 + keep),
                is_unwritten: extent.is_unwritten,
            };
            extent.len = keep as u32;
            extents.insert(at + 1, rest);
        }
    }
    let first = extents.partition_point(|extent| extent.logical_end() <= range.start);
    let end = extents.partition_point(|extent| extent.logical < range.end);
    (end - first.min(end), first)
}

/// Cuts those of these extents that are longer than an unwritten one can be. Gives how many more
/// there are then.
fn cut_to_length(extents: &mut Vec<Extent>, indices: Range<usize>) -> usize {
    let mut more = 0;
    for at in indices.rev() {
        let extent = extents[at];
        if extent.len > LEN_MAX_UNWRITTEN {
            let place = extent.logical + u64::from(LEN_MAX_UNWRITTEN);
            cut(extents, &(place..place));
            more += 1;
        }
    }
    more
}

/// Merges the extents of a range of indices with each other and with their neighbours.
fn merge_around(extents: &mut Vec<Extent>, indices: Range<usize>) {
    let mut at = indices.start.saturating_sub(1);
    let mut end = (indices.end + 1).min(extents.len());
    while at + 1 < end {
        let (left, right) = (extents[at], extents[at + 1]);
        let longest = if left.is_unwritten {
            LEN_MAX_UNWRITTEN
        } else {
            LEN_MAX
        };
        if left.logical_end() == right.logical
            && left.physical.0 + u64::from(left.len) == right.physical.0
            && left.is_unwritten == right.is_unwritten
            && left.len + right.len <= longest
        {
            extents[at].len += right.len;
            extents.remove(at + 1);
            end -= 1;
        } else {
            at += 1;
        }
    }
}

/// A tree that maps nothing.
pub(crate) fn init_root(area: &mut [u8]) -> Result<()> {
    ExtentNode::init(area, 0)
        .map(|_| ())
        .map_err(Error::corrupt)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u32, len: u32, physical: u64, is_unwritten: bool) -> Extent {
        Extent {
            logical: logical.into(),
            len,
            physical: PhysBlock(physical),
            is_unwritten,
        }
    }

    #[test]
    fn cut_splits_at_both_ends() {
        let cut = |extents: &mut Vec<Extent>, from, to| {
            cut(extents, &(LogicalBlock(from)..LogicalBlock(to)))
        };
        let mut extents = vec![extent(0, 10, 100, false), extent(20, 10, 200, true)];
        assert_eq!(cut(&mut extents, 5, 25), (2, 1));
        assert_eq!(
            extents,
            [
                extent(0, 5, 100, false),
                extent(5, 5, 105, false),
                extent(20, 5, 200, true),
                extent(25, 5, 205, true)
            ]
        );
        let mut extents = vec![extent(0, 10, 100, false)];
        assert_eq!(cut(&mut extents, 3, 7), (1, 1));
        assert_eq!(extents.len(), 3);
        let mut extents = vec![extent(0, 10, 100, false)];
        assert_eq!(cut(&mut extents, 10, 20).0, 0);
        assert_eq!(extents.len(), 1);
    }

    #[test]
    fn a_written_extent_may_be_longer_than_an_unwritten_one() {
        let mut extents = vec![
            extent(0, LEN_MAX, 100, false),
            extent(LEN_MAX, LEN_MAX_UNWRITTEN, 40_000, false),
        ];
        assert_eq!(cut_to_length(&mut extents, 0..2), 1);
        assert_eq!(
            extents,
            [
                extent(0, LEN_MAX_UNWRITTEN, 100, false),
                extent(LEN_MAX_UNWRITTEN, 1, 32_867, false),
                extent(LEN_MAX, LEN_MAX_UNWRITTEN, 40_000, false),
            ]
        );
    }

    #[test]
    fn merging_minds_state_and_length() {
        let mut extents = vec![
            extent(0, 5, 100, false),
            extent(5, 5, 105, false),
            extent(10, 5, 110, true),
        ];
        merge_around(&mut extents, 1..2);
        assert_eq!(
            extents,
            [extent(0, 10, 100, false), extent(10, 5, 110, true)]
        );
        let mut extents = vec![
            extent(0, LEN_MAX, 100, false),
            extent(LEN_MAX, 1, 32_868, false),
        ];
        merge_around(&mut extents, 0..2);
        assert_eq!(extents.len(), 2);
    }

    #[test]
    fn pieces_are_full_or_equal() {
        let entries = || Entries::Leaf((0..11).map(|i| extent(i * 2, 1, 5, false)).collect());
        let lens = |pieces: Vec<Entries>| pieces.iter().map(Entries::len).collect::<Vec<_>>();
        assert_eq!(lens(entries().pieces(10, true)), [10, 1]);
        assert_eq!(lens(entries().pieces(10, false)), [6, 5]);
        assert_eq!(lens(entries().pieces(4, false)), [4, 4, 3]);
        assert_eq!(lens(entries().pieces(11, false)), [11]);
    }
}
