//! Requests that do not find the home cell open and empty: what each of them tries, one after the
//! other.
//!
//! 1. The cell where the request belongs: the home cell or, where the lock is spread, that of its
//!    segment. Readers may join others.
//! 2. Looking a few times (`spin`).
//! 3. The queue.
//!
//! # Appending
//! An append locks from the end of file, which is known only when all that can move it are out of
//! the way. A waiting append therefore asks for all from the lowest place where the end of file can
//! be until its grant: the end of file at its arrival or, if lower, the start of any earlier
//! exclusive range that reaches to the end, since a truncation to x must hold `x..u64::MAX` or
//! more. Later requests that could move the end of file conflict with that range and wait. So at
//! the grant the end of file is stable; the append reads it and gives back what lies below.

use std::ops::Range;
use std::time::{Duration, Instant};

use finefs_lockmeter::Kind;

use super::cell::Cell;
use super::node::{self, Access, Node};
use super::queue::Wakes;
use super::slow::Slow;
use super::spread::Placement;
use super::wait::{self, Wait};
use super::{RangeGuard, RangeLock, kind};
use crate::order;
use crate::prefetch_to_write;
use crate::primitive::atomic::Ordering;
use crate::wait::{Holding, MeteredLock};

/// How long a request may wait.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    Endless,
    Until(Instant),
    None,
}

impl Patience {
    pub(super) fn at_most(timeout: Duration) -> Patience {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => Patience::Until(deadline),
            None => Patience::Endless,
        }
    }
}

impl RangeLock {
    /// Gives the cell of the holding and, if the meter wants to know, its time.
    #[inline]
    #[track_caller]
    pub(super) fn request(
        &self,
        range: &Range<u64>,
        access: Access,
        patience: Patience,
    ) -> Option<(&Cell, Holding)> {
        if self.home.take(range, access) {
            return Some((&self.home, self.metered(kind(access)).taken()));
        }
        self.request_elsewhere(range, access, patience)
    }

    #[inline(never)]
    #[track_caller]
    fn request_elsewhere(
        &self,
        range: &Range<u64>,
        access: Access,
        patience: Patience,
    ) -> Option<(&Cell, Holding)> {
        if let Some(cell) = self.try_cell(range, access) {
            return Some((cell, self.metered(kind(access)).taken()));
        }
        let mut wait = Wait::new(self.metered(kind(access)));
        let spun = match patience {
            Patience::None => None,
            _ => self.spin(range, access, &mut wait),
        };
        let cell = match spun {
            Some(cell) => cell,
            None => {
                &self
                    .request_queued(range, access, patience, &mut wait)?
                    .cell
            }
        };
        Some((cell, wait.granted()))
    }

    /// Takes the cell where the request belongs, or joins readers there.
    #[inline]
    fn try_cell(&self, range: &Range<u64>, access: Access) -> Option<&Cell> {
        // Acquire: what is seen here was open before.
        let spread = self.spread.load(Ordering::Acquire);
        let cell = self.cell_for(spread, range)?;
        // Else the line of a cell that another CPU had comes twice: to be read, then to be written.
        prefetch_to_write(cell);
        // Asked after the cell's word was read: then the lock owned the cell when it had that word.
        let ours = || self.spread.load(Ordering::Relaxed) == spread;
        cell.take_or_join(range, access, ours).then_some(cell)
    }

    #[inline]
    fn cell_for(&self, spread: u64, range: &Range<u64>) -> Option<&Cell> {
        match spread {
            0 => Some(&self.home),
            _ => Placement::decode(spread).cell_of(range),
        }
    }

    /// Looks a few times whether the holder of the cell has left, before the request arrives in the
    /// queue. At home one that does not conflict is no reason to wait: the queue counts how often
    /// such meet.
    ///
    /// Models leave this out: it adds schedules, no behaviours.
    #[cfg(not(any(loom, feature = "shuttle")))]
    #[cold]
    #[track_caller]
    fn spin(&self, range: &Range<u64>, access: Access, wait: &mut Wait<'_>) -> Option<&Cell> {
        for round in 0..SPIN_ROUNDS {
            let spread = self.spread.load(Ordering::Acquire);
            let cell = self.cell_for(spread, range)?;
            if !cell.is_worth_a_look(range, access, spread != 0) {
                return None;
            }
            if round < RELAX_ROUNDS {
                (0..LOOK << round).for_each(|_| std::hint::spin_loop());
            } else {
                wait.begin();
                std::thread::yield_now();
            }
            if let Some(cell) = self.try_cell(range, access) {
                return Some(cell);
            }
        }
        None
    }

    #[cfg(any(loom, feature = "shuttle"))]
    fn spin(&self, _: &Range<u64>, _: Access, _: &mut Wait<'_>) -> Option<&Cell> {
        None
    }

    #[cold]
    #[track_caller]
    fn request_queued(
        &self,
        range: &Range<u64>,
        access: Access,
        patience: Patience,
        wait: &mut Wait<'_>,
    ) -> Option<&'static Node> {
        let node = self.enqueue(&mut self.slow.lock(), range, access, patience)?;
        if node.is_granted() {
            return Some(node);
        }
        wait.begin();
        if wait_for(node, patience) {
            return Some(node);
        }
        let mut wakes = Wakes::default();
        let mut slow = self.slow.lock();
        // A grant that came together with the end of the time counts.
        if node.is_granted() {
            return Some(node);
        }
        slow.remove(self, node, &mut wakes);
        drop(slow);
        None
    }

    /// Adds an entry; not if it would have to wait and has no patience.
    fn enqueue(
        &self,
        slow: &mut Slow,
        range: &Range<u64>,
        access: Access,
        patience: Patience,
    ) -> Option<&'static Node> {
        let cells = slow.enter(self, range);
        let blockers = slow.queue.blockers(range, access);
        if blockers > 0 && matches!(patience, Patience::None) {
            slow.exit(self, cells);
            return None;
        }
        let node = node::take();
        node.prepare(range, access);
        node.set_cells(cells);
        if blockers > 0 {
            node.announce_waiter();
            slow.queue.push(node, blockers);
        } else {
            slow.push_granted(self, node);
        }
        Some(node)
    }

    #[track_caller]
    pub(super) fn lock_append(&self, end_of_file: impl Fn() -> u64) -> RangeGuard<'_> {
        let held = order::acquire(self.class, None, self.address());
        let range = end_of_file()..u64::MAX;
        if self.home.take(&range, Access::Write) {
            let holding = self.metered(Kind::Writer).taken();
            let start = range.start;
            let mut guard = RangeGuard::new(self, range, Access::Write, &self.home, held, holding);
            let now = end_of_file();
            if now >= start {
                guard.shrink(now..u64::MAX);
                return guard;
            }
            // It was lower before the range was held.
            drop(guard);
            let held = order::acquire(self.class, None, self.address());
            return self.append_queued(end_of_file, held);
        }
        self.append_queued(end_of_file, held)
    }

    #[cold]
    #[track_caller]
    fn append_queued(&self, end_of_file: impl Fn() -> u64, held: order::Held) -> RangeGuard<'_> {
        let mut wait = Wait::new(self.metered(Kind::Writer));
        let mut slow = self.slow.lock();
        slow.close_all(self);
        // Only now: all holders of ranges are in the queue. One that has not yet lowered the end of
        // file is counted in the minimum. Should this panic, the next request opens the cells.
        let range = end_of_file().min(slow.queue.write_to_end_min())..u64::MAX;
        let Some(node) = self.enqueue(&mut slow, &range, Access::Write, Patience::Endless) else {
            unreachable!("endless patience");
        };
        slow.open_unused(self);
        drop(slow);
        if !node.is_granted() {
            wait.begin();
            wait_for(node, Patience::Endless);
        }
        let holding = wait.granted();
        let mut guard = RangeGuard::new(self, range, Access::Write, &node.cell, held, holding);
        // Stable since the grant.
        guard.shrink(end_of_file()..u64::MAX);
        guard
    }
}

/// Waits until the entry is granted; false when the time ran out.
fn wait_for(node: &'static Node, patience: Patience) -> bool {
    wait::park_until(
        || node.is_granted(),
        match patience {
            Patience::Until(deadline) => Some(deadline),
            Patience::Endless | Patience::None => None,
        },
    )
}

/// Short looks, then some that give the CPU away, before a request arrives in the queue.
#[cfg(not(any(loom, feature = "shuttle")))]
const RELAX_ROUNDS: u32 = 4;
#[cfg(not(any(loom, feature = "shuttle")))]
const SPIN_ROUNDS: u32 = 10;
/// How long the first look takes; each further short one twice that.
#[cfg(not(any(loom, feature = "shuttle")))]
const LOOK: u32 = 4;
