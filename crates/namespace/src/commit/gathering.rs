//! What was taken out of the log and is in no commit yet: locked generations, and transactions
//! that wait.

use std::collections::VecDeque;
use std::sync::Arc;

use finefs_locks::Mutex;
use finefs_locks::primitive::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::base::classes;
use crate::commit::coalesce::Transaction;
use crate::commit::oplog::{Generation, Record, Spares};
use crate::commit::wakeup::Wakeup;

/// So many transactions may wait; a sync has to wait for all of them, and for the locked
/// generations.
const TRANSACTIONS_MAX: usize = 3;

/// Locked generations may take so many times the memory of the records of one that a writer
/// locks.
const LOCKED_FACTOR: usize = 96;

/// See the head of `gather`.
pub(crate) struct Gathering {
    pub(super) locked: Mutex<Locked>,
    /// What `locked` takes in memory: written under its lock.
    pub locked_bytes: AtomicUsize,
    pub(super) transactions: Mutex<Transactions>,
    pub wakeup: Arc<Wakeup>,
    /// As many transactions wait as may.
    is_behind: AtomicBool,
}

#[derive(Default)]
pub(super) struct Locked {
    /// The oldest first.
    pub generations: VecDeque<Generation>,
    pub spares: Spares,
}

#[derive(Default)]
pub(super) struct Transactions {
    /// Those that take in no more, the oldest first.
    pub full: VecDeque<Transaction>,
    pub open: Transaction,
}

impl Gathering {
    /// Nothing waits.
    pub fn new() -> Gathering {
        Gathering {
            locked: Mutex::new(&classes::GENERATIONS, Locked::default()),
            locked_bytes: AtomicUsize::new(0),
            transactions: Mutex::new(&classes::TRANSACTIONS, Transactions::default()),
            wakeup: Arc::new(Wakeup::new()),
            is_behind: AtomicBool::new(false),
        }
    }

    /// What wakes the thread.
    pub fn wakeup(&self) -> &Wakeup {
        &self.wakeup
    }

    /// Whether a writer has to take a generation in before it goes on, where one that it locks
    /// has so many records.
    pub fn has_too_much(&self, records_hard: usize) -> bool {
        let most = LOCKED_FACTOR * records_hard * size_of::<Record>();
        self.locked_bytes.load(Ordering::Relaxed) > most
    }

    /// Whether a writer has to commit before it goes on.
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// How many records the oldest locked generation has.
    pub fn next_length(&self) -> Option<usize> {
        let locked = self.locked.lock();
        locked.generations.front().map(Generation::length)
    }

    /// Takes note of how many transactions wait.
    pub(super) fn note_waiting(&self, transactions: &Transactions) {
        let is_behind = transactions.full.len() >= TRANSACTIONS_MAX;
        self.is_behind.store(is_behind, Ordering::Relaxed);
    }
}
