//! Spreading: a contended lock borrows a group of cells, on a cache line each, so that threads with
//! different ranges write nothing in common.
//!
//! # Data model
//! Groups lie in static memory. While a lock owns one, its `spread` word says which, and how long
//! the segments are; 0 says none. The file is cut into segments of `1 << shift` bytes, which have
//! the cells in turn. A request within one segment takes that cell. One that touches several goes
//! to the queue, and lies on all of their cells.
//!
//! # Invariants
//! 1. Of two requests that conflict, one lies on the cell that the other may take or lies on: their
//!    `footprint`s meet, and the cell from `cell_of` is in the footprint. (Overlapping ranges have
//!    a segment in common.)
//! 2. Cells of a group that no lock owns are closed, without holders, users and imported entries.

use std::ops::Range;

use crossbeam_utils::CachePadded;

use super::cell::Cell;

/// Cells of a group.
#[cfg(not(any(loom, feature = "shuttle")))]
pub(super) const CELLS: usize = 128;
/// Fewer, so that they are shared, and so that closing all is not all that the models do.
#[cfg(any(loom, feature = "shuttle"))]
pub(super) const CELLS: usize = 2;

/// Cells of a group, a bit for each.
pub(super) type CellSet = u128;

const ALL_CELLS: CellSet = CellSet::MAX >> (128 - CELLS);

/// What a contended lock borrows.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) cells: [CachePadded<Cell>; CELLS],
}

/// A group, and how requests are placed on its cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    word: u64,
    group: &'static Group,
}

// A `spread` word from the lowest bit: the shift, IS_SPREAD, the group.
const SHIFT_MAX: u32 = 63;
const IS_SPREAD: u64 = 1 << 6;
/// Here, where a group's number is its distance in memory.
const GROUP_AT: u32 = 14;

impl Placement {
    pub(super) fn new(shift: u32, group: u32) -> Placement {
        let shift = u64::from(shift.min(SHIFT_MAX));
        Placement::decode(u64::from(group) << GROUP_AT | IS_SPREAD | shift)
    }

    /// From a lock's `spread` word.
    #[inline(always)]
    pub(super) fn decode(word: u64) -> Placement {
        Placement {
            word,
            group: groups::get((word >> GROUP_AT) as u32),
        }
    }

    /// For a lock's `spread` word.
    pub(super) fn encode(self) -> u64 {
        self.word
    }

    #[inline(always)]
    fn segment(self, offset: u64) -> u64 {
        // Modulo 64: the lowest bits, which are the shift.
        offset.wrapping_shr(self.word as u32)
    }

    /// The cell of the range's segment, if it lies in one.
    #[inline(always)]
    pub(super) fn cell_of(self, range: &Range<u64>) -> Option<&'static Cell> {
        let segment = self.segment(range.start);
        let is_within = segment == self.segment(range.end.wrapping_sub(1));
        is_within.then(|| &*self.group.cells[segment as usize % CELLS])
    }

    /// The cells on which a queued request lies, as a set of bits.
    pub(super) fn footprint(self, range: &Range<u64>) -> CellSet {
        if range.is_empty() {
            return 0;
        }
        let (first, last) = (self.segment(range.start), self.segment(range.end - 1));
        if last - first >= CELLS as u64 {
            return ALL_CELLS;
        }
        (first..=last).fold(0, |cells, segment| cells | 1 << (segment as usize % CELLS))
    }

    /// The cells of a set, most of which have one or two.
    pub(super) fn cells(self, set: CellSet) -> impl Iterator<Item = &'static Cell> {
        let mut left = set & ALL_CELLS;
        std::iter::from_fn(move || {
            let cell = self.group.cells.get(left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(&**cell)
        })
    }

    /// All cells.
    pub(super) fn all_cells(self) -> impl Iterator<Item = &'static Cell> {
        self.group.cells.iter().map(|cell| &**cell)
    }

    pub(super) fn group_index(self) -> u32 {
        (self.word >> GROUP_AT) as u32
    }
}

#[cfg(not(any(loom, feature = "shuttle")))]
pub(super) use groups::put as put_group;
pub(super) use groups::take as take_group;

#[cfg(not(any(loom, feature = "shuttle")))]
mod groups {
    use super::{CELLS, CachePadded, Cell, Group};
    use crate::primitive::Mutex;

    /// How many locks can be spread at a time.
    const GROUPS: usize = 256;

    static ALL: [Group; GROUPS] = [const {
        Group {
            cells: [const { CachePadded::new(Cell::closed()) }; CELLS],
        }
    }; GROUPS];

    /// A bit for each group that a lock owns.
    static TAKEN: Mutex<[u64; GROUPS / 64]> = Mutex::new([0; GROUPS / 64]);

    #[inline(always)]
    pub(in super::super) fn get(index: u32) -> &'static Group {
        &ALL[index as usize % GROUPS]
    }

    /// A group that nobody owns, if there is one.
    pub(in super::super) fn take() -> Option<u32> {
        let mut taken = TAKEN.lock();
        let (word, bits) = (0..)
            .zip(taken.iter_mut())
            .find(|(_, bits)| **bits != u64::MAX)?;
        let bit = bits.trailing_ones();
        *bits |= 1 << bit;
        Some(word * 64 + bit)
    }

    pub(in super::super) fn put(index: u32) {
        TAKEN.lock()[index as usize / 64] &= !(1 << (index % 64));
    }
}

/// The objects of a model belong to one execution: every lock that spreads has a new group.
#[cfg(any(loom, feature = "shuttle"))]
mod groups {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::{CELLS, CachePadded, Cell, Group};

    static ALL: Mutex<Vec<&'static Group>> = Mutex::new(Vec::new());
    /// Old ones are forgotten when there are so many.
    const GROUPS: usize = 8192;

    fn all() -> MutexGuard<'static, Vec<&'static Group>> {
        ALL.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in super::super) fn get(index: u32) -> &'static Group {
        all()[index as usize]
    }

    pub(in super::super) fn take() -> Option<u32> {
        let cells: [CachePadded<Cell>; CELLS] =
            std::array::from_fn(|_| CachePadded::new(Cell::closed()));
        let group: &'static Group = Box::leak(Box::new(Group { cells }));
        static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let index = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % GROUPS;
        let mut all = all();
        if index < all.len() {
            all[index] = group;
        } else {
            all.resize(index + 1, group);
        }
        Some(index as u32)
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index_of(placement: Placement, cell: &Cell) -> u32 {
        let same = |other: &CachePadded<Cell>| std::ptr::eq(&raw const **other, cell);
        placement.group.cells.iter().position(same).unwrap() as u32
    }

    proptest! {
        /// Invariant 1.
        #[test]
        fn conflicting_requests_meet_on_a_cell(
            start in 0..10_000_u64,
            length in 1..500_u64,
            offset in 0..500_u64,
            other_length in 1..500_u64,
            shift in 0..12_u32,
            is_to_end: bool,
        ) {
            let one = start..start + length;
            let other_start = start + offset % length;
            let other = other_start..if is_to_end { u64::MAX } else { other_start + other_length };
            let placement = Placement::new(shift, 0);
            let (ours, theirs) = (placement.footprint(&one), placement.footprint(&other));
            prop_assert_ne!(ours & theirs, 0);
            if let Some(cell) = placement.cell_of(&one) {
                prop_assert_eq!(ours, 1 << index_of(placement, cell));
            }
            if let Some(cell) = placement.cell_of(&other) {
                prop_assert_ne!(theirs & 1 << index_of(placement, cell), 0);
            }
        }
    }

    #[test]
    fn neighbours_lie_on_different_cells() {
        let cells = |first: u64| {
            Placement::new(12, 0).footprint(&(first << 12..(first + CELLS as u64) << 12))
        };
        assert!((0..200).all(|first| cells(first) == ALL_CELLS));
    }

    #[test]
    fn groups_run_out_and_come_back() {
        let taken: Vec<u32> = std::iter::from_fn(take_group).collect();
        assert!(taken.len() > 10);
        assert_eq!(take_group(), None);
        taken.into_iter().for_each(groups::put);
        assert!(take_group().map(groups::put).is_some());
    }
}
