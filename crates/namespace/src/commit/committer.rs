//! The state of committing: what waits, when the next commit is due, and what one commit leaves to
//! the next.

use std::sync::{Arc, OnceLock};

use finefs_locks::primitive::atomic::{AtomicBool, Ordering};
use finefs_locks::{Condvar, Mutex, PerCpuCounter, cpu};

use crate::base::classes;
use crate::base::error::Result;
use crate::base::store::Geometry;
use crate::base::types::Ino;
use crate::commit::folding::Folding;
use crate::commit::oplog::FreedSpace;
use crate::commit::wakeup::Wakeup;

/// The state of committing.
pub(crate) struct Committer {
    pub(super) lock: Mutex<State>,
    pub(super) sync_turn: SyncTurn,
    pub folding: Folding,
    pub(super) wakeup: Arc<Wakeup>,
    is_closed: AtomicBool,
    /// What the end came to. Who ends it a second time waits here for the first.
    pub end: OnceLock<Result<()>>,
    /// Inodes in memory, about.
    pub inodes_loaded: PerCpuCounter,
}

/// What one commit leaves to the next.
#[derive(Default)]
pub(super) struct State {
    /// Where the search for inodes to evict goes on.
    pub evict_from: Ino,
    /// Inodes that a postponed commit frees.
    pub freed: Vec<Ino>,
    /// Space that it frees.
    pub freed_space: FreedSpace,
    /// The store is as after a clean end, and stays so.
    pub is_frozen: bool,
}

/// One of those who sync commits for all that wait; they look what is durable when it is through,
/// and need no lock to leave.
pub(super) struct SyncTurn {
    is_taken: Mutex<bool>,
    is_over: Condvar,
}

/// The turn, until it is dropped.
pub(super) struct Taken<'t>(&'t SyncTurn);

impl SyncTurn {
    fn new() -> SyncTurn {
        SyncTurn {
            is_taken: Mutex::new(&classes::SYNC_TURN, false),
            is_over: Condvar::new(),
        }
    }

    /// Waits for the turn; `None` where what is wanted is done by then.
    pub fn take_unless(&self, is_done: impl Fn() -> bool) -> Option<Taken<'_>> {
        let mut is_taken = self.is_taken.lock();
        loop {
            if is_done() {
                return None;
            }
            if !*is_taken {
                *is_taken = true;
                return Some(Taken(self));
            }
            self.is_over.wait(&mut is_taken);
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.is_taken.lock() = false;
        self.0.is_over.notify_all();
    }
}

impl Committer {
    /// For batches as the store wants them.
    pub fn new(geometry: &Geometry) -> Committer {
        Committer {
            lock: Mutex::new(&classes::COMMIT, State::default()),
            sync_turn: SyncTurn::new(),
            folding: Folding::new(geometry.batch_records, cpu::count()),
            wakeup: Arc::new(Wakeup::new()),
            is_closed: AtomicBool::new(false),
            end: OnceLock::new(),
            inodes_loaded: PerCpuCounter::new(0),
        }
    }

    /// Wakes the commit thread.
    pub fn wake(&self) {
        self.wakeup.wake();
    }

    /// The namespace ends: no operation begins any more.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.wakeup.end();
        self.folding.wakeup.end();
    }
}
