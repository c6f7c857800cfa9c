//! What a metered holding keeps for the meter, and where.
//!
//! Few holdings are metered, so guards have no room for what the meter must be told at their end. A
//! metered holding has a [`Node`](super::node::Node): the one by which it came through the queue
//! or, if it took a cell, one that is in no queue and only *stands for* that cell, its *seat*. The
//! guard holds the node's cell, which is closed, so that the release finds its way here without
//! asking.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex as StdMutex, MutexGuard as StdMutexGuard, PoisonError};

use super::cell::Cell;
use crate::wait::Holding;

/// Where a request was placed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seat {
    /// The lock's own cell.
    Home,
    /// A group's, or that of the request's node.
    Elsewhere(&'static Cell),
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Metered {
    /// False: the mutex need not be looked at. Written by the holder only.
    is_some: AtomicBool,
    /// Locked by the holder only.
    kept: StdMutex<Kept>,
}

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) holding: Holding,
    /// What the node stands for; none when it is in the queue itself.
    pub(super) seat: Option<Seat>,
}

impl Metered {
    pub(super) const fn none() -> Metered {
        Metered {
            is_some: AtomicBool::new(false),
            kept: StdMutex::new(Kept {
                holding: Holding::none(),
                seat: None,
            }),
        }
    }

    fn lock(&self) -> StdMutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep(&self, holding: Holding, seat: Option<Seat>) {
        *self.lock() = Kept { holding, seat };
        self.is_some.store(true, Relaxed);
    }

    /// Ends the holding's time, and gives it to be counted after the release.
    pub(super) fn take(&self) -> Option<Kept> {
        if !self.is_some.load(Relaxed) {
            return None;
        }
        self.is_some.store(false, Relaxed);
        let mut kept = self.lock();
        kept.holding.stop();
        Some(Kept {
            holding: std::mem::replace(&mut kept.holding, Holding::none()),
            seat: kept.seat.take(),
        })
    }

    pub(super) fn seat(&self) -> Option<Seat> {
        self.is_some
            .load(Relaxed)
            .then(|| self.lock().seat)
            .flatten()
    }

    /// The seat that a node stands for is another one now.
    pub(super) fn move_to(&self, seat: Seat) {
        self.lock().seat = Some(seat);
    }
}
