//! Spreading: a lock under contention borrows a group of cells, on a cache line each, so that
//! threads with different ranges, or readers, write nothing in common.
//!
//! # Data model
//! Groups lie in static memory. A lock owns a group for one *session*. Its `spread` word says
//! which, and by which rule requests are placed on cells; 0 says none.
//! - [`Rule::Segments`]: the file is cut into segments of `1 << shift` bytes, which have the cells
//!   in turn. A request within one segment takes that cell. One that touches several goes to the
//!   queue, and lies on all of their cells.
//! - [`Rule::Readers`]: a reader takes the cell of its thread, whatever its range. A writer goes to
//!   the queue and lies on all cells.
//!
//! # Invariants
//! 1. Of two requests that conflict, one lies on the cell that the other may take or lies on: their
//!    `footprint`s, or the cell from `places`, meet. (Overlapping ranges have a segment in common.)
//! 2. Cells of a group that no lock owns are closed, without holders, users and imported entries.

use std::ops::Range;

use crossbeam_utils::CachePadded;

use super::cell::Cell;
use super::node::Access;
use crate::cpu;
#[cfg(not(any(loom, feature = "shuttle")))]
use crate::thread_slot;

/// Cells of a group.
#[cfg(not(any(loom, feature = "shuttle")))]
pub(super) const CELLS: usize = 128;
/// Fewer, so that they are shared, and so that closing all is not all that the models do.
#[cfg(any(loom, feature = "shuttle"))]
pub(super) const CELLS: usize = 2;

/// Cells of a group, a bit for each.
pub(super) type CellSet = u128;

const ALL_CELLS: CellSet = CellSet::MAX >> (128 - CELLS);

/// How many cells a reader tries, its thread's first.
const READER_PROBES: usize = 4;

/// What a lock under contention borrows.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) cells: [CachePadded<Cell>; CELLS],
}

/// How requests are placed on cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// By segments of `1 << shift` bytes.
    Segments { shift: u32 },
    /// By the reader's thread. Should writers come, segments of `1 << shift` bytes would suit.
    Readers { shift: u32 },
}

/// A session: a rule and a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    word: u64,
    group: &'static Group,
}

// A `spread` word from the lowest bit: the shift, the rule, the group.
const SHIFT: u64 = 63;
const READERS_FLAG: u64 = 1 << 6;
const SEGMENTS_FLAG: u64 = 1 << 7;
/// Here, where a group's number is its distance in memory.
const GROUP_AT: u32 = 14;

impl Placement {
    pub(super) fn new(rule: Rule, group: u32) -> Placement {
        let (flag, shift) = match rule {
            Rule::Segments { shift } => (SEGMENTS_FLAG, shift),
            Rule::Readers { shift } => (READERS_FLAG, shift),
        };
        let rule = flag | u64::from(shift).min(SHIFT);
        Placement::decode(u64::from(group) << GROUP_AT | rule)
    }

    /// The same group, in segments of another length.
    pub(super) fn with_shift(self, shift: u32) -> Placement {
        Placement::new(Rule::Segments { shift }, self.group_index())
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

    /// True when a `spread` word tells of a session by segments.
    #[inline(always)]
    pub(super) fn is_by_segments(word: u64) -> bool {
        word & SEGMENTS_FLAG != 0
    }

    #[inline]
    pub(super) fn is_for_readers(self) -> bool {
        self.word & READERS_FLAG != 0
    }

    #[inline(always)]
    fn segment(self, offset: u64) -> u64 {
        // Modulo 64: the lowest bits, which are `SHIFT`.
        offset.wrapping_shr(self.word as u32)
    }

    pub(super) fn rule(self) -> Rule {
        let shift = (self.word & SHIFT) as u32;
        match self.is_for_readers() {
            true => Rule::Readers { shift },
            false => Rule::Segments { shift },
        }
    }

    /// True when two ranges touch the same segment.
    pub(super) fn is_in_common_segment(self, a: &Range<u64>, b: &Range<u64>) -> bool {
        let segments = |range: &Range<u64>| {
            self.segment(range.start)..=self.segment(range.end.saturating_sub(1))
        };
        let (a, b) = (segments(a), segments(b));
        a.start() <= b.end() && b.start() <= a.end()
    }

    /// The cell of a segment. No hash: its steps would stand between one atomic instruction and the
    /// next.
    #[inline(always)]
    fn index(segment: u64) -> usize {
        segment as usize % CELLS
    }

    /// The cell of the range's segment, if it lies in one.
    #[inline(always)]
    pub(super) fn cell_of(self, range: &Range<u64>) -> Option<&'static Cell> {
        let segment = self.segment(range.start);
        let is_within = segment == self.segment(range.end.wrapping_sub(1));
        is_within.then(|| &*self.group.cells[Self::index(segment)])
    }

    /// The cell that a request should find empty, if it may go to one.
    #[inline(always)]
    pub(super) fn likely_cell(self, range: &Range<u64>, access: Access) -> Option<&'static Cell> {
        if Self::is_by_segments(self.word) {
            return self.cell_of(range);
        }
        match access {
            Access::Read => Some(&self.group.cells[here() % CELLS]),
            Access::Write => None,
        }
    }

    /// The cells that this thread tries as a reader.
    pub(super) fn cells_here(self) -> impl Iterator<Item = &'static Cell> {
        let first = here();
        (first..first + READER_PROBES.min(CELLS))
            .map(move |index| &*self.group.cells[index % CELLS])
    }

    /// The cells on which a queued request lies, as a set of bits.
    pub(super) fn footprint(self, range: &Range<u64>, access: Access) -> CellSet {
        if range.is_empty() {
            return 0;
        }
        if self.is_for_readers() {
            return match access {
                Access::Read => 0,
                Access::Write => ALL_CELLS,
            };
        }
        let (first, last) = (self.segment(range.start), self.segment(range.end - 1));
        if last - first >= CELLS as u64 {
            return ALL_CELLS;
        }
        (first..=last).fold(0, |cells, segment| cells | 1 << Self::index(segment))
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

/// Where a reader begins to look for a cell: different for each thread, as far as there are slots.
#[cfg(not(any(loom, feature = "shuttle")))]
#[inline(always)]
fn here() -> usize {
    thread_slot::current().unwrap_or_else(cpu::current)
}

/// In models, anywhere.
#[cfg(any(loom, feature = "shuttle"))]
fn here() -> usize {
    cpu::current()
}

#[cfg(not(any(loom, feature = "shuttle")))]
pub(super) use groups::put as put_group;
pub(super) use groups::take as take_group;

#[cfg(not(any(loom, feature = "shuttle")))]
mod groups {
    use super::{CELLS, CachePadded, Cell, Group};
    use crate::primitive::Mutex;
    use finefs_lockmeter as lockmeter;

    /// How many locks can be spread at a time.
    const GROUPS: usize = 64;

    static ALL: [Group; GROUPS] = [const {
        Group {
            cells: [const { CachePadded::new(Cell::closed()) }; CELLS],
        }
    }; GROUPS];

    /// A bit for each group that nobody owns.
    static FREE: Mutex<u64> = Mutex::new(u64::MAX);

    #[inline(always)]
    pub(in super::super) fn get(index: u32) -> &'static Group {
        &ALL[index as usize % GROUPS]
    }

    /// A group that nobody owns, if there is one. While one is owned, requests to all locks look
    /// before they write to a home cell, which those to its owner share.
    pub(in super::super) fn take() -> Option<u32> {
        let mut free = FREE.lock();
        let index = free.trailing_zeros();
        *free &= !1_u64.checked_shl(index)?;
        drop(free);
        lockmeter::begin_detour();
        Some(index)
    }

    pub(in super::super) fn put(index: u32) {
        *FREE.lock() |= 1 << index;
        lockmeter::end_detour();
    }
}

/// The objects of a model belong to one execution: every session has a new group.
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

    fn segments(shift: u32) -> Placement {
        Placement::new(Rule::Segments { shift }, 0)
    }

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
            let placement = segments(shift);
            let (ours, theirs) = (
                placement.footprint(&one, Access::Read),
                placement.footprint(&other, Access::Write),
            );
            prop_assert_ne!(ours & theirs, 0);
            if let Some(cell) = placement.cell_of(&one) {
                prop_assert_eq!(ours, 1 << index_of(placement, cell));
            }
            if let Some(cell) = placement.cell_of(&other) {
                prop_assert_ne!(theirs & 1 << index_of(placement, cell), 0);
            }
            let placement = Placement::new(Rule::Readers { shift: 12 }, 0);
            prop_assert_eq!(placement.footprint(&one, Access::Write), ALL_CELLS);
        }
    }

    #[test]
    fn neighbours_lie_on_different_cells() {
        let cells = |first: u64, placement: Placement| {
            placement.footprint(&(first << 12..(first + CELLS as u64) << 12), Access::Write)
        };
        assert!((0..200).all(|first| cells(first, segments(12)) == ALL_CELLS));
    }

    /// What shares a cell does not with segments twice as long, or half.
    #[test]
    fn other_lengths_part_what_met() {
        let met = |segment: u64, shift: u32| {
            let cell = |at: u64| segments(shift).footprint(&(at..at + 1), Access::Write);
            cell(0) == cell(segment << 12)
        };
        for segment in (0..64).map(|round| CELLS as u64 * (2 * round + 1)) {
            assert!(met(segment, 12) && !met(segment, 13), "{segment}");
        }
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
