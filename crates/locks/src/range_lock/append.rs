//! The append mode: all from the end of file on, wherever that is when the lock is granted.
//!
//! An append locks from the end of file, which is known only when all who can move it are out of
//! the way. A waiting append therefore asks for all from the lowest place where the end of file can
//! be until its grant: the end of file at its arrival or, if lower, the start of any earlier
//! exclusive range that reaches to the end, since who cuts off the file at x must hold
//! `x..u64::MAX` or more. Later requests that could move the end of file conflict with that range
//! and wait. So at the grant the end of file is stable; the append reads it and gives back what
//! lies below.

use std::ops::Range;

use finefs_lockmeter::Kind;

use super::node::{self, Access, Node};
use super::request::{Patience, is_for_cells};
use super::seat::Seat;
use super::slow::Slow;
use super::spread::CellSet;
use super::wait::Wait;
use super::{RangeGuard, RangeLock};
use crate::order::{self, OrderKey};
use crate::wait::MeteredLock;

impl RangeLock {
    #[track_caller]
    pub(super) fn append_with_key(
        &self,
        end_of_file: impl Fn() -> u64,
        key: Option<OrderKey>,
    ) -> RangeGuard<'_> {
        let held = order::acquire(self.class, key, self.address());
        let mut wait = Wait::new(self.metered(Kind::Writer));
        if self.home.take_unpublished() {
            // Should `end_of_file` panic, this releases.
            let unpublished = Unpublished { lock: self };
            let range = end_of_file()..u64::MAX;
            if is_for_cells(&range, Access::Write) {
                std::mem::forget(unpublished);
                self.home.publish_write(&range);
                let cell = self.seated(Seat::Home, Access::Write, wait.granted());
                return RangeGuard::new(self, range, Access::Write, cell, held);
            }
        }
        let (range, node) = self.append_queued(&end_of_file, &mut wait);
        let seat = Seat::Elsewhere(&node.cell);
        let cell = self.seated(seat, Access::Write, wait.granted());
        let mut guard = RangeGuard::new(self, range, Access::Write, cell, held);
        // Stable since the grant.
        guard.shrink(end_of_file()..u64::MAX);
        guard
    }

    #[cold]
    #[track_caller]
    fn append_queued(
        &self,
        end_of_file: &impl Fn() -> u64,
        wait: &mut Wait<'_>,
    ) -> (Range<u64>, &'static Node) {
        let node = node::take();
        let range;
        {
            let mut entered = Entered {
                lock: self,
                slow: self.slow.lock(),
                cells: 0,
                node: Some(node),
            };
            entered.cells = entered.slow.enter(self, &(0..u64::MAX), Access::Write);
            // Only now: all who hold a range are in the queue. Who has not yet lowered the end of
            // file is counted in the minimum.
            let start = end_of_file().min(entered.slow.queue.write_to_end_min());
            range = start..u64::MAX;
            let blockers = entered.slow.queue.blockers(&range, Access::Write);
            node.prepare(&range, Access::Write);
            node.set_cells(entered.cells);
            entered.node = None;
            self.push(&mut entered.slow, node, blockers);
            if blockers == 0 {
                return (range, node);
            }
        }
        wait.begin();
        self.wait(node, Patience::Endless);
        (range, node)
    }
}

/// A fast holder on its way to publish its range. Dropped when it has none to publish.
struct Unpublished<'a> {
    lock: &'a RangeLock,
}

impl Drop for Unpublished<'_> {
    fn drop(&mut self) {
        self.lock.release(&self.lock.home, Access::Write);
    }
}

/// A request that has closed its cells. Takes that back where it has kept its node: after a panic.
struct Entered<'a> {
    lock: &'a RangeLock,
    slow: crate::primitive::MutexGuard<'a, Slow>,
    cells: CellSet,
    node: Option<&'static Node>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(node) = self.node {
            self.slow.exit(self.cells);
            self.slow.rest(self.lock);
            node::put(node);
        }
    }
}
