//! What was taken out of the log and is in no commit yet: generations that have ended, and parts
//! that wait.

use std::collections::VecDeque;
use std::sync::Arc;

use finefs_locks::Mutex;
use finefs_locks::primitive::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::base::classes;
use crate::base::store::BatchLimit;
use crate::commit::coalesce::Gathered;
use crate::commit::oplog::{Generation, Record, Spares};
use crate::commit::wakeup::Wakeup;

/// So many parts may wait; a sync has to wait for all of them, and for the generations that have
/// ended.
const PARTS_MAX: usize = 3;

/// Generations that have ended may take so many times the memory of the records of one that a
/// writer ends.
const ENDED_FACTOR: usize = 96;

/// See the head of `gather`.
pub(crate) struct Gathering {
    pub(super) ended: Mutex<Ended>,
    /// What `ended` takes in memory: written under its lock.
    pub ended_bytes: AtomicUsize,
    pub(super) parts: Mutex<Parts>,
    pub limit: BatchLimit,
    pub wakeup: Arc<Wakeup>,
    /// As many parts wait as may.
    is_behind: AtomicBool,
}

#[derive(Default)]
pub(super) struct Ended {
    /// The oldest first.
    pub generations: VecDeque<Generation>,
    pub spares: Spares,
}

#[derive(Default)]
pub(super) struct Parts {
    /// Those that take in no more, the oldest first.
    pub full: VecDeque<Gathered>,
    pub open: Gathered,
}

impl Gathering {
    /// Nothing is gathered.
    pub fn new(limit: BatchLimit) -> Gathering {
        Gathering {
            ended: Mutex::new(&classes::ENDED, Ended::default()),
            ended_bytes: AtomicUsize::new(0),
            parts: Mutex::new(&classes::GATHERED, Parts::default()),
            limit,
            wakeup: Arc::new(Wakeup::new()),
            is_behind: AtomicBool::new(false),
        }
    }

    /// What wakes the thread.
    pub fn wakeup(&self) -> &Wakeup {
        &self.wakeup
    }

    /// Whether a writer has to take a generation in before it goes on, where one that it ends has
    /// so many records.
    pub fn has_too_much(&self, records_hard: usize) -> bool {
        let most = ENDED_FACTOR * records_hard * size_of::<Record>();
        self.ended_bytes.load(Ordering::Relaxed) > most
    }

    /// Whether a writer has to commit before it goes on.
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// How many records the oldest generation has that has ended.
    pub fn next_length(&self) -> Option<usize> {
        let ended = self.ended.lock();
        ended.generations.front().map(Generation::length)
    }

    /// Takes note of how many parts wait.
    pub(super) fn note_parts(&self, parts: &Parts) {
        let is_behind = parts.full.len() >= PARTS_MAX;
        self.is_behind.store(is_behind, Ordering::Relaxed);
    }
}
