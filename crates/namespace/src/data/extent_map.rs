//! The data mapping of one file: from blocks of the file to blocks of the store, concurrent.
//!
//! # Shape
//! The file is cut into segments of [`SEGMENT_BLOCKS`] blocks. A segment holds its extents as one
//! immutable sorted slice behind a pointer; a change makes a new slice under the segment's lock and
//! publishes it with one store. The first segment lies in the map itself (most files have no
//! other), the rest in a sparse array. So lookups take no lock, and changes in different segments
//! share nothing.
//!
//! # Invariants
//! 1. The extents of a segment are sorted, do not overlap, and do not leave the segment.
//! 2. A thread that changes a range holds the file's range lock on it for writing; the segment's
//!    lock only keeps neighbours in one segment apart.

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use finefs_locks::RawLock;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

use crate::base::classes;
use crate::base::radix::SparseArray;
use crate::base::retire::retire;
use crate::base::store::{BlockRun, Extent, ExtentState};
use crate::base::types::{BlockNo, LogicalBlock};

/// Blocks of a segment.
pub(crate) const SEGMENT_BLOCKS: u64 = 1024;

/// Most files have one extent or two: those lie beside their count.
type Extents = SmallVec<[Extent; 2]>;

struct Segment {
    extents: Atomic<Extents>,
    lock: RawLock,
}

impl Default for Segment {
    fn default() -> Segment {
        Segment {
            extents: Atomic::null(),
            lock: RawLock::new(),
        }
    }
}

/// What lies at a block of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Mapped; the extent starts at the block asked for.
    Mapped(Extent),
    /// Nothing for at least this many blocks.
    Hole(u64),
}

/// The mapping of one file. See the module's head.
pub(crate) struct ExtentMap {
    first: Segment,
    rest: Segments,
}

type Segments = SparseArray<Segment, 32, 32, 64>;

impl ExtentMap {
    pub fn new() -> ExtentMap {
        ExtentMap {
            first: Segment::default(),
            rest: SparseArray::new(),
        }
    }

    /// The end of the blocks that a map can hold: 2^32 of them, as ext4 allows.
    pub const END: LogicalBlock = LogicalBlock(Segments::capacity() * SEGMENT_BLOCKS);

    fn segment(&self, index: u64) -> Option<&Segment> {
        if index == 0 {
            Some(&self.first)
        } else {
            self.rest.get(index)
        }
    }

    fn segment_or_make(&self, index: u64) -> Option<&Segment> {
        if index == 0 {
            Some(&self.first)
        } else {
            self.rest.get_or_make(index)
        }
    }

    /// Bytes on the heap.
    pub fn bytes(&self, guard: &Guard) -> usize {
        let mut bytes = self.rest.bytes() + self.first.bytes(guard);
        self.rest.for_each_from(1, |_, segment| {
            bytes += segment.bytes(guard);
            true
        });
        bytes
    }

    /// True when nothing is mapped and nothing was beyond the first segment.
    pub fn is_empty(&self, guard: &Guard) -> bool {
        self.first.read(guard).is_empty() && self.rest.is_empty()
    }

    /// What lies at `block`, up to the end of its segment.
    pub fn find(&self, block: LogicalBlock, guard: &Guard) -> Found {
        let index = segment_of(block);
        let to_end = SEGMENT_BLOCKS - block.0 % SEGMENT_BLOCKS;
        let Some(segment) = self.segment(index) else {
            return Found::Hole(to_end);
        };
        let extents = segment.read(guard);
        let after = extents.partition_point(|extent| extent.end() <= block);
        match extents.get(after) {
            Some(extent) if extent.logical <= block => {
                Found::Mapped(extent.part(block, LogicalBlock::MAX))
            }
            Some(extent) => Found::Hole(extent.logical - block),
            None => Found::Hole(to_end),
        }
    }

    /// The first block at or after `block` that is mapped. What it takes grows with what is mapped,
    /// not with the hole: a file may have any size.
    pub fn next_mapped(&self, block: LogicalBlock, guard: &Guard) -> Option<LogicalBlock> {
        let index = segment_of(block);
        let in_segment = |segment: &Segment| {
            let extents = segment.read(guard);
            let after = extents.partition_point(|extent| extent.end() <= block);
            extents.get(after).map(|extent| extent.logical.max(block))
        };
        let mut found = match index {
            0 => in_segment(&self.first),
            _ => None,
        };
        if found.is_none() {
            self.rest.for_each_from(index.max(1), |_, segment| {
                found = in_segment(segment);
                found.is_none()
            });
        }
        found
    }

    /// The first block behind all that are mapped before `block`, which may be far.
    pub fn mapped_end(&self, block: LogicalBlock, guard: &Guard) -> LogicalBlock {
        let in_segment = |index: u64| {
            let extents = self.segment(index)?.read(guard);
            let after = extents.partition_point(|extent| extent.logical < block);
            let last = after.checked_sub(1).map(|last| &extents[last])?;
            Some(last.end().min(block))
        };
        let mut segments = (0..=segment_of(block)).rev();
        segments.find_map(in_segment).unwrap_or_default()
    }

    /// The store block just after what is mapped at or before `block`: a goal for allocation.
    pub fn goal(&self, block: LogicalBlock, guard: &Guard) -> Option<BlockNo> {
        let index = segment_of(block);
        for index in [Some(index), index.checked_sub(1)].into_iter().flatten() {
            let Some(segment) = self.segment(index) else {
                continue;
            };
            let extents = segment.read(guard);
            let after = extents.partition_point(|extent| extent.logical <= block);
            if let Some(extent) = after.checked_sub(1).map(|last| &extents[last]) {
                return Some(extent.place_of(block));
            }
        }
        None
    }

    /// Maps a range that was a hole. False when it is beyond what a map can hold.
    pub fn insert(&self, extent: Extent, guard: &Guard) -> bool {
        self.for_segments(extent.logical, extent.end(), true, |segment, from, to| {
            segment.change(guard, |extents| {
                let piece = extent.part(from, to);
                let at = extents.partition_point(|other| other.logical < piece.logical);
                debug_assert!(at == 0 || extents[at - 1].end() <= piece.logical);
                debug_assert!(
                    extents
                        .get(at)
                        .is_none_or(|next| piece.end() <= next.logical)
                );
                extents.insert(at, piece);
                merge_around(extents, at);
            });
        })
    }

    /// Gives the mapped blocks of a range this state.
    pub fn convert(&self, from: LogicalBlock, to: LogicalBlock, state: ExtentState, guard: &Guard) {
        self.for_segments(from, to, false, |segment, from, to| {
            segment.change(guard, |extents| {
                for piece in cut(extents, from, to) {
                    let at = extents.partition_point(|other| other.logical < piece.logical);
                    extents.insert(at, Extent { state, ..piece });
                    merge_around(extents, at);
                }
            });
        });
    }

    /// Unmaps a range; gives the number of blocks that were mapped there.
    pub fn remove(&self, from: LogicalBlock, to: LogicalBlock, guard: &Guard) -> u64 {
        let mut blocks = 0;
        self.for_segments(from, to, false, |segment, from, to| {
            if segment.read(guard).is_empty() {
                return;
            }
            segment.change(guard, |extents| {
                blocks += cut(extents, from, to)
                    .iter()
                    .map(|piece| piece.length)
                    .sum::<u64>();
            });
        });
        blocks
    }

    /// Unmaps everything; gives each run of blocks to `take`.
    pub fn clear(&self, guard: &Guard, mut take: impl FnMut(BlockRun)) {
        self.for_segments(LogicalBlock(0), Self::END, false, |segment, _, _| {
            for extent in segment.clear(guard) {
                take(BlockRun {
                    start: extent.physical,
                    length: extent.length,
                });
            }
        });
    }

    /// The runs of blocks that are mapped in a range.
    pub fn runs(&self, from: LogicalBlock, to: LogicalBlock, guard: &Guard) -> Vec<BlockRun> {
        let run = |extent: Extent| BlockRun {
            start: extent.physical,
            length: extent.length,
        };
        self.parts(from, to, guard).into_iter().map(run).collect()
    }

    /// The parts of extents that lie in a range.
    pub fn parts(&self, from: LogicalBlock, to: LogicalBlock, guard: &Guard) -> Vec<Extent> {
        let mut parts = Vec::new();
        self.for_segments(from, to, false, |segment, from, to| {
            let extents = segment.read(guard).iter();
            parts.extend(
                extents
                    .filter(|extent| extent.logical < to && extent.end() > from)
                    .map(|extent| extent.part(from, to)),
            );
        });
        parts
    }

    /// Calls `visit` for each segment that the range touches, with the part of the range in it.
    /// Segments that do not exist are made or passed over.
    fn for_segments(
        &self,
        from: LogicalBlock,
        to: LogicalBlock,
        make: bool,
        mut visit: impl FnMut(&Segment, LogicalBlock, LogicalBlock),
    ) -> bool {
        let to = if make { to } else { to.min(Self::END) };
        if from >= to {
            return true;
        }
        if to > Self::END {
            return false;
        }
        let bounds = |index: u64| {
            (
                from.max(LogicalBlock(index * SEGMENT_BLOCKS)),
                to.min(LogicalBlock((index + 1) * SEGMENT_BLOCKS)),
            )
        };
        let (first, last) = (segment_of(from), (to.0 - 1) / SEGMENT_BLOCKS);
        if make {
            for index in first..=last {
                let Some(segment) = self.segment_or_make(index) else {
                    return false;
                };
                let (from, to) = bounds(index);
                visit(segment, from, to);
            }
            return true;
        }
        if first == 0 {
            let (from, to) = bounds(0);
            visit(&self.first, from, to);
        }
        self.rest.for_each_from(first.max(1), |index, segment| {
            if index > last {
                return false;
            }
            let (from, to) = bounds(index);
            visit(segment, from, to);
            true
        });
        true
    }
}

impl Segment {
    /// Bytes on the heap.
    fn bytes(&self, guard: &Guard) -> usize {
        let extents = self.read(guard).len();
        let spilled = extents.saturating_sub(Extents::new().inline_size());
        match extents {
            0 => 0,
            _ => size_of::<Extents>() + 16 + spilled * size_of::<Extent>(),
        }
    }

    fn read<'g>(&self, guard: &'g Guard) -> &'g [Extent] {
        // SAFETY: a slice is destroyed only after it was replaced and all guards of then ended.
        match unsafe { self.extents.load(Ordering::Acquire, guard).as_ref() } {
            Some(extents) => extents,
            None => &[],
        }
    }

    fn change(&self, guard: &Guard, change: impl FnOnce(&mut Extents)) {
        let _lock = self.lock.lock(&classes::SEGMENT, (0, 0));
        let mut new = Owned::new(Extents::from_slice(self.read(guard)));
        change(&mut new);
        let old = self.extents.swap(new, Ordering::AcqRel, guard);
        if !old.is_null() {
            // SAFETY: the segment no longer names it.
            unsafe { retire(old, guard) };
        }
    }

    /// Leaves the segment empty; gives what was in it.
    fn clear<'g>(&self, guard: &'g Guard) -> &'g [Extent] {
        let _lock = self.lock.lock(&classes::SEGMENT, (0, 0));
        let old = self.extents.swap(Shared::null(), Ordering::AcqRel, guard);
        // SAFETY: as in `read`.
        let Some(extents) = (unsafe { old.as_ref() }) else {
            return &[];
        };
        // SAFETY: the segment no longer names it.
        unsafe { retire(old, guard) };
        extents
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: exclusive access.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        let extents = self.extents.load(Ordering::Relaxed, guard);
        if !extents.is_null() {
            // SAFETY: the segment owns its slice.
            drop(unsafe { extents.into_owned() });
        }
    }
}

fn segment_of(block: LogicalBlock) -> u64 {
    block.0 / SEGMENT_BLOCKS
}

/// Takes the range out of sorted extents; gives what was there.
fn cut(extents: &mut Extents, from: LogicalBlock, to: LogicalBlock) -> Extents {
    let first = extents.partition_point(|extent| extent.end() <= from);
    let last = extents.partition_point(|extent| extent.logical < to);
    if first >= last {
        return Extents::new();
    }
    let mut kept = Extents::new();
    let mut removed = Extents::new();
    for extent in &extents[first..last] {
        if extent.logical < from {
            kept.push(extent.part(LogicalBlock(0), from));
        }
        removed.push(extent.part(from, to));
        if extent.end() > to {
            kept.push(extent.part(to, LogicalBlock::MAX));
        }
    }
    extents.drain(first..last);
    extents.insert_many(first, kept);
    removed
}

/// Joins the extent at `at` with neighbours that continue it.
fn merge_around(extents: &mut Extents, at: usize) {
    for left in [at, at.wrapping_sub(1)] {
        let (Some(a), Some(b)) = (extents.get(left), extents.get(left.wrapping_add(1))) else {
            continue;
        };
        if a.end() == b.logical && a.physical.0 + a.length == b.physical.0 && a.state == b.state {
            extents[left].length += extents[left + 1].length;
            extents.remove(left + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_epoch::pin;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Fill(LogicalBlock, u64, bool),
        Convert(LogicalBlock, u64),
        Remove(LogicalBlock, u64),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = ((0..4 * SEGMENT_BLOCKS).prop_map(LogicalBlock), 1..1500u64);
        prop_oneof![
            (range.clone(), any::<bool>()).prop_map(|((at, n), w)| Step::Fill(at, n, w)),
            range.clone().prop_map(|(at, n)| Step::Convert(at, n)),
            range.prop_map(|(at, n)| Step::Remove(at, n)),
            Just(Step::Clear),
        ]
    }

    type Model = BTreeMap<LogicalBlock, (u64, bool)>;

    fn compare(map: &ExtentMap, model: &Model, guard: &Guard) {
        let mut block = LogicalBlock(0);
        while block < LogicalBlock(6 * SEGMENT_BLOCKS) {
            // Extents of the model are single blocks.
            let next = model.range(block..).next().map(|(at, _)| *at);
            assert_eq!(map.next_mapped(block, guard), next);
            match map.find(block, guard) {
                Found::Hole(length) => {
                    assert!(length > 0);
                    assert_eq!(model.range(block..block + length).next(), None);
                    block += length;
                }
                Found::Mapped(extent) => {
                    assert_eq!(extent.logical, block);
                    for offset in 0..extent.length {
                        let written = extent.state == ExtentState::Written;
                        let expected = (extent.physical.0 + offset, written);
                        assert_eq!(model.get(&(block + offset)), Some(&expected));
                    }
                    block = extent.end();
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_map_equals_a_map_of_blocks(steps in proptest::collection::vec(step(), 1..40)) {
            let guard = &pin();
            let map = ExtentMap::new();
            let mut model = Model::new();
            let mut next_physical = 10;
            for step in steps {
                match step {
                    Step::Fill(at, length, is_written) => {
                        let mut block = at;
                        while block < at + length {
                            match map.find(block, guard) {
                                Found::Mapped(extent) => block = extent.end(),
                                Found::Hole(hole) => {
                                    let length = hole.min(at + length - block);
                                    let state = if is_written { ExtentState::Written } else { ExtentState::Unwritten };
                                    let physical = BlockNo(next_physical);
                                    assert!(map.insert(Extent { logical: block, physical, length, state }, guard));
                                    for offset in 0..length {
                                        model.insert(block + offset, (next_physical + offset, is_written));
                                    }
                                    next_physical += length + u64::from(block.0 % 2 == 0);
                                    block += length;
                                }
                            }
                        }
                    }
                    Step::Convert(at, length) => {
                        map.convert(at, at + length, ExtentState::Written, guard);
                        model.range_mut(at..at + length).for_each(|(_, value)| value.1 = true);
                    }
                    Step::Clear => {
                        let mut freed = Vec::new();
                        map.clear(guard, |run| freed.extend(run.start.0..run.start.0 + run.length));
                        let gone: Vec<u64> = model.values().map(|(physical, _)| *physical).collect();
                        assert_eq!(freed, gone);
                        model.clear();
                    }
                    Step::Remove(at, length) => {
                        let runs = map.runs(at, at + length, guard);
                        let freed = map.remove(at, at + length, guard);
                        assert_eq!(runs.iter().map(|run| run.length).sum::<u64>(), freed);
                        let gone = model.range(at..at + length).map(|(block, _)| *block);
                        let gone: Vec<LogicalBlock> = gone.collect();
                        assert_eq!(freed, gone.len() as u64);
                        gone.iter().for_each(|block| { model.remove(block); });
                    }
                }
                compare(&map, &model, guard);
            }
        }
    }
}
