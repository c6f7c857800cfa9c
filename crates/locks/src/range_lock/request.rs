//! Requests that the fast path does not serve: what each of them tries, one after the other.
//!
//! 1. The home cell, looked at before it is written to; or the cell of a group, where the lock is
//!    spread: this is the fast path of spread locks.
//! 2. Whatever cell the request may take or join, the home cell too.
//! 3. Looking a few times (`spin`).
//! 4. The queue.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::cell::{self, Cell, Taken};
use super::node::{self, Access, Node};
use super::queue::Wakes;
use super::seat::Seat;
use super::slow::Slow;
use super::spread::Placement;
use super::wait::{self, Wait};
use super::{RangeLock, kind};
use crate::prefetch_to_write;
use crate::primitive::atomic::Ordering;
use crate::wait::MeteredLock;

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

/// False for a writer's empty range at the end of all offsets, which a cell cannot tell from none.
#[inline(always)]
pub(super) fn is_for_cells(range: &Range<u64>, access: Access) -> bool {
    access == Access::Read || range.start != cell::UNPUBLISHED
}

impl RangeLock {
    #[track_caller]
    pub(super) fn request(
        &self,
        range: &Range<u64>,
        access: Access,
        patience: Patience,
    ) -> Option<&Cell> {
        if self.home.take(range, access) {
            return Some(&self.home);
        }
        self.request_slowly(range, access, patience)
    }

    /// The home cell is taken or closed, or requests have to look first: the short way to the home
    /// cell, or to the cells of a group, then all others.
    #[inline(always)]
    #[track_caller]
    pub(super) fn lock_indirectly(&self, range: &Range<u64>, access: Access) -> &Cell {
        // Acquire: what is seen here was open before.
        let spread = self.spread.load(Ordering::Acquire);
        let cell = match spread {
            0 => Some(&self.home),
            _ => Placement::decode(spread).likely_cell(range, access),
        };
        if let Some(cell) = cell
            && is_for_cells(range, access)
        {
            prefetch_to_write(cell);
            let ours = || self.is_spread_as(spread);
            if cell.take_if(cell::hindrances(), range, access, ours) {
                return cell;
            }
        }
        self.lock_slowly(range.start, range.end, access)
    }

    /// Numbers instead of a range: so they stay in registers.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn lock_slowly(&self, start: u64, end: u64, access: Access) -> &Cell {
        let range = start..end;
        self.note_collision(&range);
        match self.request_slowly(&range, access, Patience::Endless) {
            Some(cell) => cell,
            None => unreachable!("endless patience"),
        }
    }

    /// In a session by segments the cell could not be had at once; or a sample is due, which takes
    /// that into account.
    fn note_collision(&self, range: &Range<u64>) {
        let spread = self.spread.load(Ordering::Relaxed);
        if Placement::is_by_segments(spread)
            && !cell::is_metering()
            && Placement::decode(spread).cell_of(range).is_some()
        {
            self.collisions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True when the session has not changed. Asked after a cell's word was read: then that was the
    /// word of a cell of this session.
    #[inline]
    fn is_spread_as(&self, spread: u64) -> bool {
        self.spread.load(Ordering::Relaxed) == spread
    }

    #[track_caller]
    fn request_slowly(
        &self,
        range: &Range<u64>,
        access: Access,
        patience: Patience,
    ) -> Option<&Cell> {
        let mut wait = Wait::new(self.metered(kind(access)));
        let seat = match self.try_cells(range, access) {
            Some(seat) => seat,
            None => self.request_contended(range, access, patience, &mut wait)?,
        };
        Some(self.seated(seat, access, wait.granted()))
    }

    /// Neither the home cell nor one of a group could be had at once.
    #[cold]
    #[track_caller]
    fn request_contended<'a>(
        &'a self,
        range: &Range<u64>,
        access: Access,
        patience: Patience,
        wait: &mut Wait<'a>,
    ) -> Option<Seat> {
        if !matches!(patience, Patience::None)
            && is_for_cells(range, access)
            && let Some(seat) = self.spin(range, access, wait)
        {
            return Some(seat);
        }
        let node = self.request_queued(range, access, patience, wait)?;
        Some(Seat::Elsewhere(&node.cell))
    }

    /// Takes the home cell, or that of the group where the request may go. Readers may join others.
    #[inline]
    fn try_cells(&self, range: &Range<u64>, access: Access) -> Option<Seat> {
        if !is_for_cells(range, access) {
            return None;
        }
        // Acquire: what is seen here was open before.
        let spread = self.spread.load(Ordering::Acquire);
        if spread == 0 {
            let taken = self.home.take_or_join(range, access, || true)?;
            if taken == Taken::Sample {
                self.sample(range, access);
            }
            return Some(Seat::Home);
        }
        let placement = Placement::decode(spread);
        let try_cell = |cell: &'static Cell| {
            let taken = cell.take_or_join(range, access, || self.is_spread_as(spread))?;
            if taken == Taken::Sample {
                self.sample(range, access);
            }
            Some(Seat::Elsewhere(cell))
        };
        if placement.is_for_readers() {
            return match access {
                Access::Read => placement.cells_here().find_map(try_cell),
                Access::Write => None,
            };
        }
        placement.cell_of(range).and_then(try_cell)
    }

    #[cold]
    fn sample(&self, range: &Range<u64>, access: Access) {
        let mut slow = self.slow.lock();
        slow.sample(self, sampler(), range, access);
        slow.rest(self);
    }

    /// Looks a few times whether a conflicting holder has left, before the request arrives in the
    /// queue. Where others have arrived and wait, gives them time to be served, or a queue that
    /// once formed would never end: each who leaves would find it and arrive again.
    ///
    /// Models leave this out: it adds schedules, no behaviours.
    #[cfg(not(any(loom, feature = "shuttle")))]
    #[track_caller]
    fn spin(&self, range: &Range<u64>, access: Access, wait: &mut Wait<'_>) -> Option<Seat> {
        use super::cell::Hindrance;
        let mut has_asked = false;
        for round in 0..SPIN_ROUNDS {
            let mut is_spread = true;
            let cell = match self.spread.load(Ordering::Acquire) {
                0 => {
                    is_spread = false;
                    &self.home
                }
                spread => {
                    let placement = Placement::decode(spread);
                    match (placement.is_for_readers(), access) {
                        (true, Access::Read) => placement.cells_here().next()?,
                        (true, Access::Write) => return None,
                        (false, _) => placement.cell_of(range)?,
                    }
                }
            };
            match cell.hindrance(range, access) {
                // Two segments on one cell, perhaps: by now it may be free.
                Hindrance::Needless if is_spread && round < NEEDLESS_ROUNDS => {}
                Hindrance::Needless => return self.try_cells(range, access),
                Hindrance::Closed if self.pressure.load(Ordering::Relaxed) == 0 => return None,
                // The queue alone knows whether there is anything to give way to. At home there
                // mostly is.
                Hindrance::Closed if is_spread && !has_asked => {
                    has_asked = true;
                    if let Some(node) = self.request_queued(range, access, Patience::None, wait) {
                        return Some(Seat::Elsewhere(&node.cell));
                    }
                }
                Hindrance::None => {
                    if let Some(seat) = self.try_cells(range, access) {
                        return Some(seat);
                    }
                    // Somebody was quicker.
                }
                Hindrance::Closed | Hindrance::Conflict => {}
            }
            if round < RELAX_ROUNDS {
                let first = if is_spread { LOOK } else { HOME_LOOK };
                (0..first << round).for_each(|_| std::hint::spin_loop());
            } else {
                wait.begin();
                std::thread::yield_now();
            }
            if let Some(seat) = self.try_cells(range, access) {
                return Some(seat);
            }
        }
        None
    }

    #[cfg(any(loom, feature = "shuttle"))]
    fn spin(&self, _: &Range<u64>, _: Access, _: &mut Wait<'_>) -> Option<Seat> {
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
        let node = node::take();
        node.prepare(range, access);
        {
            let mut slow = self.slow.lock();
            let cells = slow.enter(self, range, access);
            node.set_cells(cells);
            let blockers = slow.queue.blockers(range, access);
            if blockers > 0 && matches!(patience, Patience::None) {
                slow.exit(cells);
                slow.rest(self);
                node::put(node);
                return None;
            }
            self.push(&mut slow, node, blockers);
            if blockers == 0 {
                return Some(node);
            }
        }
        wait.begin();
        if self.wait(node, patience) {
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

    /// Adds an entry that has been through `enter`.
    pub(super) fn push(&self, slow: &mut Slow, node: &'static Node, blockers: u32) {
        if blockers > 0 {
            node.announce_waiter();
            self.pressure.store(PRESSURE, Ordering::Relaxed);
        } else {
            let pressure = self.pressure.load(Ordering::Relaxed);
            self.pressure
                .store(pressure.saturating_sub(1), Ordering::Relaxed);
        }
        let (range, access) = (node.range(), node.access());
        let cells = node.cells();
        let is_time = slow.note_request(blockers, sampler(), (&range, access), cells);
        slow.queue.push(node, blockers);
        if is_time {
            slow.change_mode(self);
        }
        slow.rest(self);
    }

    /// Waits until the entry is granted; false when the time ran out.
    pub(super) fn wait(&self, node: &'static Node, patience: Patience) -> bool {
        wait::park_until(
            || node.is_granted(),
            match patience {
                Patience::Until(deadline) => Some(deadline),
                Patience::Endless | Patience::None => None,
            },
        )
    }
}

/// After one request that had to wait, so many that did not make the lock calm again.
const PRESSURE: u32 = 4;

/// Short looks, then longer ones that give the CPU away, before a request arrives in the queue.
#[cfg(not(any(loom, feature = "shuttle")))]
const NEEDLESS_ROUNDS: u32 = 2;
#[cfg(not(any(loom, feature = "shuttle")))]
const RELAX_ROUNDS: u32 = 4;
#[cfg(not(any(loom, feature = "shuttle")))]
const SPIN_ROUNDS: u32 = 10;
/// How long the first look takes; each further one twice that. At home it takes the line from
/// whoever uses the lock over and over; a segment's holder is soon gone.
#[cfg(not(any(loom, feature = "shuttle")))]
const LOOK: u32 = 4;
#[cfg(not(any(loom, feature = "shuttle")))]
const HOME_LOOK: u32 = 32;

/// Tells threads apart, as `Slow::sample` and `Slow::note_request` need it.
#[cfg(not(any(loom, feature = "shuttle")))]
fn sampler() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// In models a thread may look like several.
#[cfg(any(loom, feature = "shuttle"))]
fn sampler() -> usize {
    crate::cpu::current()
}
