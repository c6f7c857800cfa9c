//! What a range lock's mutex guards: the queue, who owns which cells, and when the lock spreads.
//!
//! # Modes
//! - *Home*: requests take the lock's own cell. It is closed while the queue has entries.
//! - *Spread*: requests take the cells of a group, of which each is closed while entries of the queue
//!   lie on it. The home cell is closed.
//! - *Draining*: all cells are closed and all requests go to the queue, until that is empty; then home.
//!
//! home -> spread: `spread`, when `Policy` has seen enough requests that met in the home cell without
//! conflict. spread -> draining: `drain`, when one thread alone is left, when too many requests have to
//! go to the queue all the same, or by `settle`. draining -> home: `rest`, when the last entry leaves.
//! draining -> spread: `resume`, when that takes long and requests meet without conflict meanwhile.
//!
//! # Invariants
//! 1. A holder that is not in an open cell is in the queue, and so is every waiter.
//! 2. A request on its way to the queue first closes its cells (`enter`), which brings their holders into
//!    the queue. So it finds there all with whom it could conflict; and nobody who comes later and
//!    could conflict with it takes a cell before it has left.
//! 3. What `enter` brings in conflicts with no waiter: a waiter's cells were closed already.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::RangeLock;
use super::cell::Cell;
use super::node::{self, Access, Node, overlaps};
use super::queue::{Queue, Wakes};
#[cfg(not(any(loom, feature = "shuttle")))]
use super::spread::put_group;
use super::spread::{Placement, Rule, take_group};
use crate::primitive::atomic::Ordering;

/// Meetings without conflict in the home cell after which a lock spreads.
#[cfg(not(any(loom, feature = "shuttle")))]
const MEETINGS_TO_SPREAD: u32 = 16;
#[cfg(any(loom, feature = "shuttle"))]
const MEETINGS_TO_SPREAD: u32 = 1;
/// Meetings that are needed after many failures.
const MEETINGS_MAX: u32 = 1 << 16;

/// Samples in a row by one thread after which it is taken to be alone.
#[cfg(not(any(loom, feature = "shuttle")))]
const SAMPLES_ALONE: u32 = 64;
#[cfg(any(loom, feature = "shuttle"))]
const SAMPLES_ALONE: u32 = 2;
/// The strain between two samples that ends a session: a request in the queue is 1, and 1 for every
/// second cell that it closes.
#[cfg(not(any(loom, feature = "shuttle")))]
const STRAIN_MAX: u32 = 128;
#[cfg(any(loom, feature = "shuttle"))]
const STRAIN_MAX: u32 = 3;

/// How many meetings two samples by different threads stand for.
const SAMPLE_WEIGHT: u32 = 4;

#[derive(Clone, Copy, Debug)]
enum Mode {
    Home,
    Spread(Placement),
    Draining(Placement),
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Slow {
    pub(super) queue: Queue,
    mode: Mode,
    sessions: u64,
    /// In models a lock keeps its group, as if no other had wanted one since: the objects of a group
    /// belong to one execution.
    #[cfg(any(loom, feature = "shuttle"))]
    kept_group: Option<u32>,
    policy: Policy,
}

/// When to spread. Guesses: they decide about speed only.
#[derive(Debug)]
struct Policy {
    meetings: u32,
    meetings_to_spread: u32,
    has_seen_write: bool,
    has_seen_overlap: bool,
    /// Binary logarithms of the least distance of two ranges that met, and of the longest range.
    distance_log: u32,
    length_log: u32,
    /// Added to the segments' size since requests touched several segments.
    widening: u32,
    strain: u32,
    wide: u32,
    /// Who made the last sample, and with what request.
    last_sampler: usize,
    last_range: Range<u64>,
    last_access: Access,
    samples_alone: u32,
}

impl Policy {
    const fn new() -> Policy {
        Policy {
            meetings: 0,
            meetings_to_spread: MEETINGS_TO_SPREAD,
            has_seen_write: false,
            has_seen_overlap: false,
            distance_log: u64::BITS - 1,
            length_log: 0,
            widening: 0,
            strain: 0,
            wide: 0,
            last_sampler: 0,
            last_range: 0..0,
            last_access: Access::Read,
            samples_alone: 0,
        }
    }

    /// Two requests of different threads have met without conflict in home mode.
    fn note_meeting(
        &mut self,
        (range, access): (&Range<u64>, Access),
        (other, other_access): (&Range<u64>, Access),
        weight: u32,
    ) {
        self.meetings += weight;
        self.has_seen_write |= access == Access::Write || other_access == Access::Write;
        self.has_seen_overlap |= overlaps(range, other);
        let distance = other.start.abs_diff(range.start);
        if let Some(log) = distance.checked_ilog2() {
            self.distance_log = self.distance_log.min(log);
        }
        let last = range.end.saturating_sub(range.start).saturating_sub(1);
        self.length_log = self.length_log.max(u64::BITS - last.leading_zeros());
    }

    /// A request in home mode, of which `queue` does not have the node yet. True when it is time to
    /// spread.
    fn met_at_home(
        &mut self,
        queue: &Queue,
        blockers: u32,
        range: &Range<u64>,
        access: Access,
    ) -> bool {
        if blockers > 0 {
            self.has_seen_write |= access == Access::Write;
            self.meetings = self.meetings.saturating_sub(1);
            return false;
        }
        for entry in queue.iter() {
            self.note_meeting((range, access), (&entry.range(), entry.access()), 1);
        }
        self.meetings >= self.meetings_to_spread
    }

    /// The rule for the next session; the search for one begins anew.
    fn rule(&mut self) -> Rule {
        let shift = self.distance_log.max(self.length_log + self.widening);
        let rule = if self.has_seen_overlap && !self.has_seen_write {
            Rule::Readers
        } else {
            Rule::Segments { shift }
        };
        self.meetings = 0;
        self.has_seen_write = false;
        self.has_seen_overlap = false;
        self.distance_log = u64::BITS - 1;
        self.length_log = 0;
        self.strain = 0;
        self.wide = 0;
        self.samples_alone = 0;
        rule
    }

    fn back_off(&mut self) {
        self.meetings = 0;
        self.meetings_to_spread = (self.meetings_to_spread * 2).min(MEETINGS_MAX);
    }

    /// A request in a session had to go to the queue. True when the session should end.
    fn strained(&mut self, cells: u64) -> bool {
        self.strain += 1 + cells.count_ones() / 2;
        self.wide += u32::from(cells.count_ones() == 2);
        if self.strain < STRAIN_MAX {
            return false;
        }
        self.widening = match self.wide * 2 > self.strain / 2 {
            true => (self.widening + 2).min(8),
            false => 0,
        };
        self.back_off();
        true
    }

    /// A sample, in a session or not. True when the mode should change: to home when the sampling
    /// thread is alone; away from it when samples come from several threads whose requests do not conflict.
    /// They seldom find each other in the home cell then, but its line goes to and fro.
    fn sampled(
        &mut self,
        is_home: bool,
        sampler: usize,
        range: &Range<u64>,
        access: Access,
    ) -> bool {
        self.strain = 0;
        self.wide = 0;
        let last = (self.last_range.clone(), self.last_access);
        self.last_range = range.clone();
        self.last_access = access;
        if self.last_sampler == sampler {
            self.samples_alone = self.samples_alone.saturating_add(1);
            let is_alone = self.samples_alone >= SAMPLES_ALONE;
            if is_alone {
                self.meetings = 0;
                self.meetings_to_spread = (self.meetings_to_spread / 2).max(MEETINGS_TO_SPREAD);
            }
            return is_alone && !is_home;
        }
        self.last_sampler = sampler;
        self.samples_alone = 0;
        let is_shared = access == Access::Read && last.1 == Access::Read;
        if !is_shared && overlaps(&last.0, range) {
            self.meetings = 0;
            return false;
        }
        if is_home {
            self.note_meeting((range, access), (&last.0, last.1), SAMPLE_WEIGHT);
        }
        is_home && self.meetings >= self.meetings_to_spread
    }
}

impl Slow {
    pub(super) const fn new() -> Slow {
        Slow {
            queue: Queue::new(),
            mode: Mode::Home,
            sessions: 0,
            #[cfg(any(loom, feature = "shuttle"))]
            kept_group: None,
            policy: Policy::new(),
        }
    }

    /// Closes the cells of a request, so that all with whom it could conflict are in the queue. Returns
    /// the cells on which it now lies: they stay closed until `exit`.
    pub(super) fn enter(&mut self, lock: &RangeLock, range: &Range<u64>, access: Access) -> u64 {
        match self.mode {
            Mode::Home => {
                self.close(&lock.home);
                0
            }
            Mode::Spread(placement) => {
                let cells = placement.footprint(range, access);
                for cell in placement.cells(cells) {
                    self.close(cell);
                    cell.users.fetch_add(1, Relaxed);
                }
                cells
            }
            Mode::Draining(_) => 0,
        }
    }

    /// Takes back `enter`. To be followed by `rest`.
    pub(super) fn exit(&mut self, cells: u64) {
        let (Mode::Spread(placement) | Mode::Draining(placement)) = self.mode else {
            return;
        };
        for cell in placement.cells(cells) {
            cell.users.fetch_sub(1, Relaxed);
            self.open_if_unused(cell);
        }
    }

    /// Goes home if nothing keeps the lock away.
    pub(super) fn rest(&mut self, lock: &RangeLock) {
        if !self.queue.is_empty() {
            return;
        }
        match self.mode {
            Mode::Spread(_) => return,
            Mode::Home => {}
            Mode::Draining(placement) => {
                // Before the group can have another owner.
                lock.spread.store(0, Ordering::Release);
                self.put_group(placement);
                self.mode = Mode::Home;
            }
        }
        if lock.home.is_closed() {
            lock.home.open();
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

    fn open_if_unused(&self, cell: &Cell) {
        let is_unused = cell.users.load(Relaxed) == 0 && cell.imported.get().is_none();
        if is_unused && matches!(self.mode, Mode::Spread(_)) {
            cell.open();
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
        if !std::ptr::eq(cell, &raw const lock.home) {
            self.open_if_unused(cell);
        }
        self.remove(lock, node, wakes);
    }

    /// Removes an entry and lets go of its cells and its node.
    pub(super) fn remove(&mut self, lock: &RangeLock, node: &'static Node, wakes: &mut Wakes) {
        let cells = node.cells.load(Relaxed);
        self.queue.remove(node, wakes);
        node::put(node);
        self.exit(cells);
        self.rest(lock);
    }

    /// A request has come to the queue, of which the queue does not have the node yet. `blockers` says how
    /// many it waits for, `cells` is what `enter` gave. True when `change_mode` should be called.
    pub(super) fn note_request(
        &mut self,
        blockers: u32,
        range: &Range<u64>,
        access: Access,
        cells: u64,
    ) -> bool {
        let policy = &mut self.policy;
        match self.mode {
            // Draining, too, may last: a holder can be off its CPU.
            Mode::Home | Mode::Draining(_) => {
                policy.met_at_home(&self.queue, blockers, range, access)
            }
            // Those that conflict would wait at home too.
            Mode::Spread(_) => blockers == 0 && policy.strained(cells),
        }
    }

    /// Spreads, or begins to drain. The queue has all entries, and `rest` has still to be called.
    pub(super) fn change_mode(&mut self, lock: &RangeLock) {
        match self.mode {
            Mode::Home => {
                let rule = self.policy.rule();
                self.spread(lock, rule);
            }
            Mode::Spread(_) => self.drain(),
            Mode::Draining(placement) => self.resume(placement),
        }
    }

    /// draining -> spread: the session goes on.
    fn resume(&mut self, placement: Placement) {
        self.mode = Mode::Spread(placement);
        self.policy.rule();
        for entry in self.queue.iter() {
            // Those that came before the draining have their cells.
            if entry.cells.load(Relaxed) == 0 {
                cover(placement, entry);
            }
        }
        for cell in placement.all_cells() {
            self.open_if_unused(cell);
        }
    }

    /// home -> spread. The home cell is closed.
    fn spread(&mut self, lock: &RangeLock, rule: Rule) {
        debug_assert!(lock.home.is_closed());
        let Some(group) = self.take_group() else {
            self.policy.back_off();
            return;
        };
        self.sessions += 1;
        let placement = Placement::new(rule, group, self.sessions);
        self.mode = Mode::Spread(placement);
        for entry in self.queue.iter() {
            cover(placement, entry);
        }
        for cell in placement.all_cells() {
            self.open_if_unused(cell);
        }
        // Release: whoever sees this sees the cells open.
        lock.spread.store(placement.encode(), Ordering::Release);
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

    /// spread -> draining.
    pub(super) fn drain(&mut self) {
        if let Mode::Spread(placement) = self.mode {
            placement.all_cells().for_each(|cell| self.close(cell));
            self.mode = Mode::Draining(placement);
        }
    }

    /// One taking of many. To be followed by `rest`.
    pub(super) fn sample(
        &mut self,
        lock: &RangeLock,
        sampler: usize,
        range: &Range<u64>,
        access: Access,
    ) {
        let is_home = match self.mode {
            Mode::Home => true,
            Mode::Spread(_) => false,
            Mode::Draining(_) => return,
        };
        if self.policy.sampled(is_home, sampler, range, access) {
            if is_home {
                self.close(&lock.home);
            }
            self.change_mode(lock);
        }
    }

    /// The lock goes: whatever its cells hold was leaked.
    pub(super) fn abandon(&mut self) {
        if let Mode::Spread(placement) | Mode::Draining(placement) = self.mode {
            placement.all_cells().for_each(Cell::reset);
            self.put_group(placement);
            self.mode = Mode::Home;
        }
    }
}

/// Lays an entry on the cells of its footprint, which are closed.
fn cover(placement: Placement, entry: &Node) {
    let cells = placement.footprint(&entry.range(), entry.access());
    entry.cells.store(cells, Relaxed);
    for cell in placement.cells(cells) {
        cell.users.fetch_add(1, Relaxed);
    }
}
