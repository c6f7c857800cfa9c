//! What a range lock's mutex guards: the queue, who owns which cells, and the lock's mode.
//!
//! # Modes
//! - *Home*: requests take the lock's own cell. It is closed while the queue has entries.
//! - *Spread*: requests take the cells of a group, of which each is closed while entries of the
//!   queue lie on it. The home cell is closed.
//! - *Draining*: all cells are closed and all requests go to the queue, until that is empty; then
//!   home.
//!
//! - home -> spread: `spread`, when `Policy` has seen enough requests that met in the home cell
//!   without conflict.
//! - spread -> spread: `respread`, with segments of another length, when too many requests have to
//!   go to the queue all the same: shorter ones when they share segments with others; longer ones
//!   when they touch two, or only share cells. Also, by turns longer ones and shorter ones again,
//!   when requests collide too often. And from cells of readers to segments, when writers come.
//! - spread -> draining: `drain`, when that is so for other reasons, or by `settle`.
//! - spread -> draining, and at once back (`resume`) unless nobody else holds a range:
//!   `leave_alone`, when one thread alone seems to be left.
//! - draining -> home: `rest`, when the last entry leaves.
//! - draining -> spread: `resume`, when that takes long and requests meet without conflict
//!   meanwhile.
//!
//! A holder may be off its CPU for as long as a time slice, or asleep over its device. Its cell is
//! closed all the while, and all requests for its segment go to the queue, as do all of a lock that
//! is draining. So no transition waits for a holder while the others have work to do.
//!
//! # Invariants
//! 1. A holder that is not in an open cell is in the queue, and so is every waiter.
//! 2. A request on its way to the queue first closes its cells (`enter`), which brings their
//!    holders into the queue. So it finds there all with whom it could conflict; and nobody who
//!    comes later and could conflict with it takes a cell before it has left.
//! 3. What `enter` brings in conflicts with no waiter: a waiter's cells were closed already.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::RangeLock;
use super::cell::Cell;
use super::node::{self, Access, Node};
use super::policy::{MEETINGS_TO_RESUME, ONE_SEGMENT, Policy, Relief};
use super::queue::{Queue, Wakes};
#[cfg(not(any(loom, feature = "shuttle")))]
use super::spread::put_group;
use super::spread::{CellSet, Placement, Rule, take_group};
use crate::primitive::atomic::Ordering;

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
    /// In models a lock keeps its group, as if no other had wanted one since: the objects of a
    /// group belong to one execution.
    #[cfg(any(loom, feature = "shuttle"))]
    kept_group: Option<u32>,
    policy: Policy,
}

impl Slow {
    pub(super) const fn new() -> Slow {
        Slow {
            queue: Queue::new(),
            mode: Mode::Home,
            #[cfg(any(loom, feature = "shuttle"))]
            kept_group: None,
            policy: Policy::new(),
        }
    }

    /// Closes the cells of a request, so that all with whom it could conflict are in the queue.
    /// Returns the cells on which it now lies: they stay closed until `exit`.
    pub(super) fn enter(
        &mut self,
        lock: &RangeLock,
        range: &Range<u64>,
        access: Access,
    ) -> CellSet {
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
    pub(super) fn exit(&mut self, cells: CellSet) {
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
                debug_assert!(
                    placement.all_cells().all(is_unused),
                    "invariant 2 of groups"
                );
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
        if is_unused(cell) && matches!(self.mode, Mode::Spread(_)) {
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
        let cells = node.cells();
        self.queue.remove(node, wakes);
        node::put(node);
        self.exit(cells);
        self.rest(lock);
    }

    /// A request has come to the queue, of which the queue does not have the node yet. `blockers`
    /// says how many it waits for, `cells` is what `enter` gave. True when `change_mode` should be
    /// called.
    pub(super) fn note_request(
        &mut self,
        blockers: u32,
        requester: usize,
        (range, access): (&Range<u64>, Access),
        cells: CellSet,
    ) -> bool {
        let policy = &mut self.policy;
        policy.saw(requester);
        match self.mode {
            Mode::Home => {
                let enough = policy.meetings_to_spread;
                policy.met(&self.queue, blockers, (range, access), enough)
            }
            Mode::Draining(_) => {
                policy.met(&self.queue, blockers, (range, access), MEETINGS_TO_RESUME)
            }
            // Those that conflict would wait at home too. But writers are a strain for a session of
            // readers, all of whose cells they close.
            Mode::Spread(placement) => {
                (blockers == 0 || placement.is_for_readers())
                    && policy.strained(&self.queue, placement, range, cells)
            }
        }
    }

    /// Spreads, goes on otherwise, or begins to drain. The queue has all entries, and `rest` has
    /// still to be called.
    pub(super) fn change_mode(&mut self, lock: &RangeLock) {
        match self.mode {
            Mode::Home => match self.policy.rule() {
                Some(rule) => self.spread(lock, rule),
                None => self.policy.back_off(),
            },
            Mode::Spread(placement) => match self.policy.relief(placement) {
                Relief::Segments(shift) => self.respread(lock, placement, shift),
                Relief::None => {}
                Relief::End => {
                    self.policy.back_off();
                    self.drain();
                }
            },
            Mode::Draining(placement) => self.resume(lock, placement),
        }
    }

    /// draining -> spread: the session goes on; but not as one of readers if writers have come.
    fn resume(&mut self, lock: &RangeLock, placement: Placement) {
        let rule = self.policy.rule();
        if placement.is_for_readers() && !matches!(rule, Some(Rule::Readers { .. })) {
            let shift = match rule {
                Some(Rule::Segments { shift }) => shift,
                Some(Rule::Readers { .. }) | None => ONE_SEGMENT,
            };
            return self.respread(lock, placement, shift);
        }
        self.mode = Mode::Spread(placement);
        for entry in self.queue.iter() {
            // Those that came before the draining have their cells.
            if entry.cells() == 0 {
                cover(placement, entry);
            }
        }
        for cell in placement.all_cells() {
            self.open_if_unused(cell);
        }
    }

    /// spread -> spread, with segments of another length.
    fn respread(&mut self, lock: &RangeLock, old: Placement, shift: u32) {
        old.all_cells().for_each(|cell| self.close(cell));
        for entry in self.queue.iter() {
            for cell in old.cells(entry.cells()) {
                cell.users.fetch_sub(1, Relaxed);
            }
        }
        let placement = old.with_shift(shift);
        self.mode = Mode::Spread(placement);
        let _ = self.policy.rule();
        for entry in self.queue.iter() {
            cover(placement, entry);
        }
        // Before the cells open: who still goes by the old placement must not find that it lasts.
        lock.spread.store(placement.encode(), Ordering::Release);
        for cell in placement.all_cells() {
            self.open_if_unused(cell);
        }
    }

    /// One thread alone seems to be left, and holds a range. If it is, the lock drains, and goes
    /// home when the thread lets go.
    fn leave_alone(&mut self, lock: &RangeLock) {
        self.drain();
        if let Mode::Draining(placement) = self.mode
            && self.queue.iter().nth(1).is_some()
        {
            self.resume(lock, placement);
        }
    }

    /// home -> spread. The home cell is closed.
    fn spread(&mut self, lock: &RangeLock, rule: Rule) {
        debug_assert!(lock.home.is_closed());
        let Some(group) = self.take_group() else {
            self.policy.back_off();
            return;
        };
        let placement = Placement::new(rule, group);
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
            Mode::Spread(placement) => {
                self.part(lock, placement);
                false
            }
            Mode::Draining(_) => return,
        };
        if self.policy.sampled(is_home, sampler, range, access) {
            if is_home {
                self.close(&lock.home);
                self.change_mode(lock);
            } else {
                self.leave_alone(lock);
            }
        }
    }

    /// Changes which segments share cells, if requests collided too often.
    fn part(&mut self, lock: &RangeLock, placement: Placement) {
        // One that is counted in between is lost.
        let collisions = lock.collisions.load(Ordering::Relaxed);
        lock.collisions.store(0, Ordering::Relaxed);
        if let Rule::Segments { shift } = placement.rule()
            && let Some(shift) = self.policy.collided(collisions, shift)
        {
            self.respread(lock, placement, shift);
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

/// True when no entry keeps a cell closed.
fn is_unused(cell: &Cell) -> bool {
    cell.users.load(Relaxed) == 0 && cell.imported.get().is_none()
}

/// Lays an entry on the cells of its footprint, which are closed.
fn cover(placement: Placement, entry: &Node) {
    let cells = placement.footprint(&entry.range(), entry.access());
    entry.set_cells(cells);
    for cell in placement.cells(cells) {
        cell.users.fetch_add(1, Relaxed);
    }
}

#[cfg(not(any(loom, feature = "shuttle")))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockClass;

    static CLASS: LockClass = LockClass::new("test.range_lock.slow", 10);
    const BLOCK: u64 = 4096;

    fn block(number: u64) -> Range<u64> {
        number * BLOCK..(number + 1) * BLOCK
    }

    fn shift(lock: &RangeLock) -> Option<u32> {
        match lock.slow.lock().mode {
            Mode::Spread(placement) => match placement.rule() {
                Rule::Segments { shift } => Some(shift),
                Rule::Readers { .. } => None,
            },
            Mode::Home | Mode::Draining(_) => None,
        }
    }

    /// A lock that is spread in segments of 256 blocks.
    fn spread() -> RangeLock {
        let lock = RangeLock::new(&CLASS);
        while lock.is_fast() {
            let pair = (lock.try_write(block(0)), lock.try_write(block(256)));
            assert!(pair.0.is_some() && pair.1.is_some());
        }
        assert_eq!(shift(&lock), Some(20));
        lock
    }

    /// Requests for other parts of a segment do not go to the queue for as long as one is held.
    #[test]
    fn a_holder_does_not_keep_his_segment() {
        let lock = spread();
        let held = lock.try_write(block(0)).unwrap();
        for round in 0..10_000 {
            drop(lock.try_write(block(128 + round % 128)).unwrap());
        }
        assert!(shift(&lock).unwrap() < 20);
        assert!(lock.try_write(block(0)).is_none(), "held all the same");
        let other = lock.try_write(block(200)).unwrap();
        let in_queue = lock.slow.lock().queue.iter().count();
        assert_eq!(in_queue, 1, "the first holder only");
        drop((held, other));
        assert!(lock.settle());
    }

    fn placement(lock: &RangeLock) -> Placement {
        match lock.slow.lock().mode {
            Mode::Spread(placement) => placement,
            mode => panic!("{mode:?}"),
        }
    }

    /// Requests that keep finding their cell taken for another segment, though they seldom go to
    /// the queue.
    #[test]
    fn segments_that_collide_part() {
        let lock = spread();
        let cell = |number: u64| placement(&lock).footprint(&block(number), Access::Write);
        let is_stranger = |number: &u64| cell(*number) == cell(0);
        let stranger = (1..200)
            .map(|segment| segment * 256)
            .find(is_stranger)
            .unwrap();
        for _ in 0..1000 {
            let held = lock.write(block(0));
            std::thread::scope(|scope| {
                scope.spawn(|| drop(lock.write(block(stranger))));
            });
            drop(held);
            // Makes samples.
            for _ in 0..50 {
                drop(lock.write(block(256)));
            }
            if !is_stranger(&stranger) {
                return;
            }
        }
        panic!("they still share a cell");
    }

    /// A lock that is only read sends no reader to the queue, whatever he reads, until writers
    /// come.
    #[test]
    fn readers_keep_out_of_the_queue() {
        let lock = RangeLock::new(&CLASS);
        while lock.is_fast() {
            let pair = (lock.try_read(block(0)), lock.try_read(block(256)));
            assert!(pair.0.is_some() && pair.1.is_some());
        }
        assert!(placement(&lock).is_for_readers());
        let held = (
            lock.try_read(block(0)),
            lock.try_read(0..1 << 40),
            lock.try_read(block(300)),
        );
        assert!(held.0.is_some() && held.1.is_some() && held.2.is_some());
        assert!(lock.slow.lock().queue.is_empty());
        assert!(lock.try_write(block(7)).is_none());
        drop(held);
        for _ in 0..STRAIN_OF_WRITERS {
            drop(lock.try_write(block(7)).unwrap());
        }
        assert_eq!(shift(&lock), Some(20));
    }

    /// Draining does not bring a session of readers back that writers have ended, though readers
    /// keep the queue from getting empty.
    #[test]
    fn writers_end_a_session_of_readers_of_one_range() {
        let lock = RangeLock::new(&CLASS);
        while lock.is_fast() {
            let pair = (lock.try_read(block(0)), lock.try_read(0..1));
            assert!(pair.0.is_some() && pair.1.is_some());
        }
        assert!(placement(&lock).is_for_readers());
        let mut held = Vec::new();
        for _ in 0..STRAIN_OF_WRITERS {
            drop(lock.try_write(block(1)).unwrap());
            // One after the other, so that there is always one.
            held.push(lock.try_read(block(0)).unwrap());
            held.drain(..held.len().saturating_sub(1));
        }
        for _ in 0..MEETINGS_TO_RESUME + 1 {
            held.push(lock.try_read(block(0)).unwrap());
            held.drain(..held.len() - 1);
        }
        let is_for_readers = match lock.slow.lock().mode {
            Mode::Spread(placement) | Mode::Draining(placement) => placement.is_for_readers(),
            Mode::Home => false,
        };
        assert!(!is_for_readers);
    }

    /// More writers than a session of readers bears between two samples.
    const STRAIN_OF_WRITERS: u32 = 8;

    /// Segments that are so short that many share the cells of holders become longer.
    #[test]
    fn holders_do_not_keep_all_cells() {
        let lock = spread();
        let held: Vec<_> = (0..48)
            .map(|i| lock.try_write(block(256 * i * 65)).unwrap())
            .collect();
        for round in 0..10_000 {
            drop(
                lock.try_write(block(256 * (round % 1000 * 65 + 1)))
                    .unwrap(),
            );
            if shift(&lock).unwrap() > 20 {
                break;
            }
        }
        assert!(shift(&lock).unwrap() > 20);
        drop(held);
        assert!(lock.settle());
    }

    /// A lock that one thread uses stays spread while a range is held in it: at home all would go
    /// to the queue.
    #[test]
    fn one_thread_alone_does_not_end_a_session_of_others() {
        let lock = spread();
        let held = lock.try_write(block(0)).unwrap();
        for round in 0..300_000 {
            drop(lock.try_write(block(256 * (1 + round % 20))).unwrap());
            assert!(shift(&lock).is_some());
        }
        drop(held);
        for round in 0..1_000_000 {
            drop(lock.try_write(block(256 * (1 + round % 20))).unwrap());
            if lock.is_fast() {
                return;
            }
        }
        panic!("does not go home");
    }
}
