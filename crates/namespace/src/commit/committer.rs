//! The state of committing: what waits, when the next commit is due, and what one commit leaves to
//! the next.

use std::sync::{Arc, OnceLock};

use finefs_locks::primitive::atomic::{AtomicU8, Ordering};
use finefs_locks::{Condvar, Mutex, cpu};

use crate::base::classes;
use crate::base::error::Result;
use crate::base::store::Geometry;
use crate::base::types::Ino;
use crate::commit::eviction::Eviction;
use crate::commit::flushes::Flushes;
use crate::commit::folding::Folding;
use crate::commit::oplog::FreedSpace;
use crate::commit::wakeup::Wakeup;

/// The namespace ends: no operation begins any more.
const CLOSED: u8 = 1;
/// There is too much in memory: operations help to give some back before they begin.
const HELP: u8 = 2;
/// The log is far too long: operations fold it before they begin.
const FOLD: u8 = 4;

impl State {
    /// No commit is made.
    pub fn rests(&self) -> bool {
        self.is_frozen || self.is_over
    }
}

/// The state of committing.
pub(crate) struct Committer {
    pub(super) lock: Mutex<State>,
    pub(super) sync_turn: SyncTurn,
    pub folding: Folding,
    pub flushes: Flushes,
    pub(super) wakeup: Arc<Wakeup>,
    pub(super) eviction: Eviction,
    /// What operations have to know before they begin: the constants below, or 0.
    notice: AtomicU8,
    /// What the end came to. Who ends it a second time waits here for the first.
    pub end: OnceLock<Result<()>>,
}

/// What one commit leaves to the next.
#[derive(Default)]
pub(super) struct State {
    /// Inodes that a postponed commit frees.
    pub freed: Vec<Ino>,
    /// Space that it frees.
    pub freed_space: FreedSpace,
    /// The store is as after a clean end, and stays so.
    pub is_frozen: bool,
    /// The store is closed: there is nothing left to commit, and nothing to do it with.
    pub is_over: bool,
}

/// Of the threads that sync, one commits for all that wait. The others look at what is durable when
/// its turn ends, and need not take the lock of commits to leave.
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
    /// For batches as the store wants them, and as they fit into so much memory.
    pub fn new(geometry: &Geometry, cache_bytes: u64) -> Committer {
        Committer {
            lock: Mutex::new(&classes::COMMIT, State::default()),
            sync_turn: SyncTurn::new(),
            folding: Folding::new(geometry.batch_records, cpu::count(), cache_bytes),
            flushes: Flushes::new(),
            wakeup: Arc::new(Wakeup::new()),
            eviction: Eviction::new(),
            notice: AtomicU8::new(0),
            end: OnceLock::new(),
        }
    }

    /// Wakes the commit thread.
    pub fn wake(&self) {
        self.wakeup.wake();
    }

    /// The namespace ends: no operation begins any more.
    pub fn close(&self) {
        self.notice.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub fn is_closed(&self) -> bool {
        self.notice.load(Ordering::Acquire) & CLOSED != 0
    }

    /// True when operations cannot just begin.
    #[inline]
    pub fn has_notice(&self) -> bool {
        self.notice.load(Ordering::Acquire) != 0
    }

    /// Asks operations to help with eviction, or no longer.
    pub fn want_help(&self, is_wanted: bool) {
        self.want(HELP, is_wanted);
    }

    /// Whether operations are asked to help with eviction.
    pub fn wants_help(&self) -> bool {
        self.notice.load(Ordering::Relaxed) & HELP != 0
    }

    /// Takes note of about what the records of a shard of the log weigh.
    pub fn note_length(&self, shard: usize, weight: usize) {
        if self.folding.note_length(shard, weight) {
            self.want(FOLD, true);
        }
    }

    /// Whether operations are asked to fold the log; from now on they no longer are.
    pub(super) fn take_wants_fold(&self) -> bool {
        let has_asked = self.notice.load(Ordering::Relaxed) & FOLD != 0;
        self.want(FOLD, false);
        has_asked
    }

    fn want(&self, what: u8, is_wanted: bool) {
        let has_asked = self.notice.load(Ordering::Relaxed) & what != 0;
        match (is_wanted, has_asked) {
            (true, false) => drop(self.notice.fetch_or(what, Ordering::Relaxed)),
            (false, true) => drop(self.notice.fetch_and(!what, Ordering::Relaxed)),
            _ => {}
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.wakeup.end();
        self.folding.wakeup.end();
        self.eviction.wakeup.end();
    }
}
