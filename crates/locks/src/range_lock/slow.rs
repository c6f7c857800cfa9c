//! What a range lock's mutex guards: the queue, and whether the lock is spread.
//!
//! # States
//! - *Home*: requests take the lock's own cell. It is closed while the queue has entries.
//! - *Spread*: requests take the cells of a group, of which each is closed while entries of the
//!   queue lie on it. The home cell is closed.
//!
//! - home -> spread: `spread`, when MEETINGS requests have found a disjoint range held in the home
//!   cell. What was met says how long the segments are.
//! - spread -> home: `settle`, when nobody holds a range, and `abandon`, when the lock is dropped.
//!
//! # Invariants
//! 1. A holder that is not in an open cell is in the queue, and so is every waiter.
//! 2. A request on its way to the queue first closes its cells (`enter`), which brings their
//!    holders into the queue. So it finds there all that it could conflict with; and no later
//!    request that could conflict with it takes a cell before it has left.
//! 3. What `enter` brings in conflicts with no waiter: a waiter's cells were closed already.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::RangeLock;
use super::cell::Cell;
use super::node::{self, Node, overlaps};
use super::queue::{Queue, Wakes};
#[cfg(not(any(loom, feature = "shuttle")))]
use super::spread::put_group;
use super::spread::{CELLS, CellSet, Placement, take_group};
use crate::primitive::atomic::Ordering;

/// Requests that met a disjoint range in the home cell before a lock spreads.
#[cfg(not(any(loom, feature = "shuttle")))]
const MEETINGS: u32 = 16;
#[cfg(any(loom, feature = "shuttle"))]
const MEETINGS: u32 = 1;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Slow {
    pub(super) queue: Queue,
    /// Where the lock is spread to.
    placement: Option<Placement>,
    /// In models a lock keeps its group, as if no other had wanted one since: the objects of a
    /// group belong to one execution.
    #[cfg(any(loom, feature = "shuttle"))]
    kept_group: Option<u32>,
    met: Met,
}

/// What the disjoint ranges were like that met at home.
#[derive(Debug)]
struct Met {
    count: u32,
    length_max: u64,
    distance_max: u64,
}

impl Met {
    const NOTHING: Met = Met {
        count: 0,
        length_max: 1,
        distance_max: 1,
    };

    fn note(&mut self, range: &Range<u64>, held: &Range<u64>) {
        self.count += 1;
        self.length_max = self.length_max.max(range.end - range.start);
        self.distance_max = self.distance_max.max(range.start.abs_diff(held.start));
    }

    /// Segments of `1 << shift` bytes hold any of the ranges, if aligned, and are so long that
    /// ranges as far apart as these have cells of their own.
    fn shift(&self) -> u32 {
        let length_log = u64::BITS - (self.length_max - 1).leading_zeros();
        length_log.max((self.distance_max.ilog2() + 1).saturating_sub(CELLS.ilog2()))
    }
}

impl Slow {
    pub(super) const fn new() -> Slow {
        Slow {
            queue: Queue::new(),
            placement: None,
            #[cfg(any(loom, feature = "shuttle"))]
            kept_group: None,
            met: Met::NOTHING,
        }
    }

    /// Closes the cells of a request, so that all that it could conflict with are in the queue.
    /// Returns the cells on which it now lies: they stay closed until `exit`.
    pub(super) fn enter(&mut self, lock: &RangeLock, range: &Range<u64>) -> CellSet {
        let Some(placement) = self.placement else {
            self.close(&lock.home);
            return 0;
        };
        let cells = placement.footprint(range);
        for cell in placement.cells(cells) {
            self.close(cell);
            cell.users.fetch_add(1, Relaxed);
        }
        cells
    }

    /// Takes back `enter`, for a request that is not in the queue any more.
    pub(super) fn exit(&mut self, lock: &RangeLock, cells: CellSet) {
        match self.placement {
            Some(placement) => {
                for cell in placement.cells(cells) {
                    cell.users.fetch_sub(1, Relaxed);
                    open_if_unused(cell);
                }
            }
            None if self.queue.is_empty() && lock.home.is_closed() => lock.home.open(),
            None => {}
        }
    }

    /// Brings all holders into the queue. To be followed by `open_unused`.
    pub(super) fn close_all(&mut self, lock: &RangeLock) {
        match self.placement {
            Some(placement) => placement.all_cells().for_each(|cell| self.close(cell)),
            None => self.close(&lock.home),
        }
    }

    /// Opens the cells on which no entry lies.
    pub(super) fn open_unused(&mut self, lock: &RangeLock) {
        match self.placement {
            Some(placement) => placement.all_cells().for_each(open_if_unused),
            None => self.exit(lock, 0),
        }
    }

    /// Brings the holders of a cell into the queue.
    pub(super) fn close(&mut self, cell: &Cell) {
        if cell.is_closed() {
            return;
        }
        if let Some(holding) = cell.close() {
            let node = node::take();
            node.prepare(&holding.range, holding.access);
            node.count.store(holding.count, Relaxed);
            // Invariant 3.
            self.queue.push(node, 0);
            cell.imported.set(Some(node));
        }
    }

    /// A holder has left a closed cell: one that was taken, or its node's.
    pub(super) fn leave_cell(&mut self, lock: &RangeLock, cell: &Cell, wakes: &mut Wakes) {
        let Some(node) = cell.imported.get() else {
            debug_assert!(false, "closing brought the holder into the queue");
            return;
        };
        if node.count.fetch_sub(1, Relaxed) > 1 {
            return;
        }
        cell.imported.set(None);
        if self.placement.is_some() && !std::ptr::eq(cell, &raw const lock.home) {
            open_if_unused(cell);
        }
        self.remove(lock, node, wakes);
    }

    /// Removes an entry and lets go of its cells and its node.
    pub(super) fn remove(&mut self, lock: &RangeLock, node: &'static Node, wakes: &mut Wakes) {
        let cells = node.cells();
        self.queue.remove(node, wakes);
        node::put(node);
        self.exit(lock, cells);
    }

    /// Adds a request that has been through `enter` and waits for nobody: at home, it may have met
    /// disjoint ranges, and spread the lock.
    pub(super) fn push_granted(&mut self, lock: &RangeLock, node: &'static Node) {
        let range = node.range();
        if self.placement.is_none() && !range.is_empty() {
            let held = self.queue.iter().map(|entry| entry.range());
            // One to the end would make a single segment of it all.
            let is_met = |held: &Range<u64>| held.end.max(range.end) != u64::MAX;
            if let Some(held) = { held }.find(|held| is_met(held) && !overlaps(held, &range)) {
                self.met.note(&range, &held);
            }
        }
        self.queue.push(node, 0);
        if self.met.count >= MEETINGS {
            self.spread(lock);
        }
    }

    /// home -> spread. The home cell is closed.
    fn spread(&mut self, lock: &RangeLock) {
        debug_assert!(lock.home.is_closed());
        let shift = std::mem::replace(&mut self.met, Met::NOTHING).shift();
        let Some(group) = self.take_group() else {
            return;
        };
        let placement = Placement::new(shift, group);
        self.placement = Some(placement);
        for entry in self.queue.iter() {
            cover(placement, entry);
        }
        placement.all_cells().for_each(open_if_unused);
        // Release: a thread that sees this sees the cells open.
        lock.spread.store(placement.encode(), Ordering::Release);
    }

    /// spread -> home, if nobody holds a range.
    pub(super) fn settle(&mut self, lock: &RangeLock) {
        let Some(placement) = self.placement else {
            return;
        };
        self.close_all(lock);
        if !self.queue.is_empty() {
            self.open_unused(lock);
            return;
        }
        // Before the group can have another owner.
        lock.spread.store(0, Ordering::Release);
        self.put_group(placement);
        self.placement = None;
        lock.home.open();
    }

    /// The lock goes: whatever its cells hold was leaked.
    pub(super) fn abandon(&mut self) {
        if let Some(placement) = self.placement.take() {
            placement.all_cells().for_each(Cell::reset);
            self.put_group(placement);
        }
    }

    #[cfg(not(any(loom, feature = "shuttle")))]
    fn take_group(&mut self) -> Option<u32> {
        take_group()
    }

    #[cfg(not(any(loom, feature = "shuttle")))]
    fn put_group(&mut self, placement: Placement) {
        put_group(placement.group_index());
    }

    #[cfg(any(loom, feature = "shuttle"))]
    fn take_group(&mut self) -> Option<u32> {
        self.kept_group.take().or_else(take_group)
    }

    #[cfg(any(loom, feature = "shuttle"))]
    fn put_group(&mut self, placement: Placement) {
        self.kept_group = Some(placement.group_index());
    }
}

/// Opens a closed cell of a spread lock if no entry keeps it closed.
fn open_if_unused(cell: &Cell) {
    if cell.users.load(Relaxed) == 0 && cell.imported.get().is_none() && cell.is_closed() {
        cell.open();
    }
}

/// Lays an entry on the cells of its footprint, which are closed.
fn cover(placement: Placement, entry: &Node) {
    let cells = placement.footprint(&entry.range());
    entry.set_cells(cells);
    for cell in placement.cells(cells) {
        cell.users.fetch_add(1, Relaxed);
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    fn shift(met: &[(Range<u64>, u64)]) -> u32 {
        let mut all = Met::NOTHING;
        for (range, held) in met {
            all.note(range, &(*held..held + 1));
        }
        all.shift()
    }

    #[test]
    fn segments_hold_what_met_and_keep_it_apart() {
        assert_eq!(shift(&[(0..4096, 4096)]), 12);
        assert_eq!(shift(&[(0..4097, 8192)]), 13);
        // Half a file of 64 MiB lies on half the cells.
        assert_eq!(shift(&[(0..4096, 32 << 20), (0..4096, 4096)]), 19);
        assert_eq!(shift(&[(0..1, 1)]), 0);
        assert_eq!(shift(&[(0..1, u64::MAX - 1)]), 57);
    }
}
