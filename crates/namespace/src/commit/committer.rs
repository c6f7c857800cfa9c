//! The state of committing: what waits, when the next commit is due, and what one commit leaves to
//! the next.

use std::sync::{Arc, OnceLock};

use finefs_locks::primitive::atomic::{AtomicBool, Ordering};
use finefs_locks::{Mutex, PerCpuCounter};

use crate::base::classes;
use crate::base::error::Result;
use crate::base::store::Store;
use crate::base::types::Ino;
use crate::commit::gathering::Gathering;
use crate::commit::oplog::{FreedSpace, Spares};
use crate::commit::wakeup::Wakeup;

/// Records after which a commit is asked for, where the store asks for no less.
pub(crate) const RECORDS_SOFT: usize = 1 << 18;
/// Records after which the log is taken in, at most.
const TAKEN_IN_MAX: usize = 1 << 10;
/// The part of what the store wants in a batch that is taken in at once, at most: before it is
/// taken in each record counts as a block, so a part is full when less is left than this.
const TAKEN_IN_PART: usize = 16;
/// Writers wait for a commit when the log holds so many times what a commit is asked for at, or end
/// its generation where it is transaction.
const HARD_FACTOR: usize = 2;

/// The state of committing.
pub(crate) struct Committer {
    pub(super) lock: Mutex<State>,
    /// Where the store's batches are limited in blocks.
    pub gathering: Option<Gathering>,
    pub(super) wakeup: Arc<Wakeup>,
    is_closed: AtomicBool,
    /// What the end came to. Who ends it a second time waits here for the first.
    pub end: OnceLock<Result<()>>,
    is_overfull: AtomicBool,
    /// The thread was woken for the length of the current generation.
    is_asked: AtomicBool,
    /// Records after which the thread is woken, and after which writers wait.
    records_soft: usize,
    pub(super) records_hard: usize,
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
    /// Where nothing is transaction.
    pub spares: Spares,
}

impl Committer {
    /// For batches as the store wants them.
    pub fn new(store: &dyn Store) -> Committer {
        let wanted = store.geometry().batch_records.unwrap_or(u64::MAX);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let gathering = store.batch_cost().map(|_| Gathering::new());
        let records_soft = match gathering {
            None => wanted.clamp(1, RECORDS_SOFT),
            Some(_) => (wanted / TAKEN_IN_PART).clamp(1, TAKEN_IN_MAX),
        };
        Committer {
            lock: Mutex::new(&classes::COMMIT, State::default()),
            gathering,
            wakeup: Arc::new(Wakeup::new()),
            is_closed: AtomicBool::new(false),
            end: OnceLock::new(),
            is_overfull: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            records_soft,
            records_hard: HARD_FACTOR * records_soft,
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

    /// Writers outrun the commits.
    pub fn is_overfull(&self) -> bool {
        self.is_overfull.load(Ordering::Relaxed)
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Takes note of about how many records the log holds.
    pub fn note_length(&self, records: usize) {
        if records >= self.records_soft && !self.is_asked.swap(true, Ordering::Relaxed) {
            match &self.gathering {
                Some(gathering) => gathering.wakeup().wake(),
                None => self.wakeup.wake(),
            }
        }
        if records > self.records_hard {
            self.is_overfull.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the log has grown long since it was last taken out. A note of the length that came
    /// late is taken back where it has not.
    pub fn is_log_long(&self) -> bool {
        let is_long = self.is_asked.load(Ordering::Relaxed);
        if !is_long {
            self.is_overfull.store(false, Ordering::Relaxed);
        }
        is_long
    }

    /// The log gets another generation: what was noted of this one's length is over.
    pub fn note_swap(&self) {
        self.is_overfull.store(false, Ordering::Relaxed);
        self.is_asked.store(false, Ordering::Relaxed);
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.wakeup.end();
        if let Some(gathering) = &self.gathering {
            gathering.wakeup().end();
        }
    }
}
