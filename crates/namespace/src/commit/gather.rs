//! From the log to transactions, for a store that commits in one step of limited size.
//!
//! As in jbd2, what is logged now is *running*, what was swapped out of the log is *locked*, and
//! what a commit has taken is *committing*. A journal is only so long, and counts in blocks. How
//! many blocks records come to is known when they are coalesced: much of what is created is removed
//! again, and many changes fall into the same block. So where the log grows long its generation is
//! locked, and folded into the open *transaction*, until that is as large as the store takes at
//! once. Then the transaction is full and waits for its commit, and the next one begins.
//!
//! # Who does it
//! A thread of its own, so that it goes on while a commit runs and no operation waits for either.
//! Writers help only where they outrun a thread: one whose log is much too long locks its
//! generation, which takes no time; one that finds more than `LOCKED_FACTOR` such generations folds
//! the oldest; and one that finds `TRANSACTIONS_MAX` transactions waiting commits the oldest. So
//! the heap does not grow without bound.
//!
//! # Invariants
//! 1. The log is swapped only under `ns.generations`, and its generation put at the end of the
//!    queue before that is released.
//! 2. Generations leave the queue, the oldest first, only under `ns.transactions`, and are folded
//!    before that is released. So transactions are in the order of their generations.
//! 3. Transactions are taken away, the oldest first, only under `ns.commit`.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_epoch::Guard;
use finefs_locks::primitive::atomic::Ordering;

use crate::base::error::{Error, Result};
use crate::commit::coalesce::Transaction;
use crate::commit::committer::RECORDS_SOFT;
use crate::commit::gathering::{Gathering, Locked};
use crate::commit::oplog::{Generation, Spares};
use crate::commit::volume::Volume;
use crate::commit::wakeup::Wake;

/// The thread looks whether the namespace is still there.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Starts the thread, which ends with the volume's owner.
pub(super) fn start_thread<N>(owner: &Arc<N>) -> Result<()>
where
    N: Deref<Target = Volume> + Send + Sync + 'static,
{
    let Some(gathering) = &owner.committer.gathering else {
        return Ok(());
    };
    let weak: Weak<N> = Arc::downgrade(owner);
    let wakeup = Arc::clone(&gathering.wakeup);
    let run = move || {
        loop {
            let wake = wakeup.wait(LOOK_INTERVAL);
            let Some(owner) = weak.upgrade() else {
                return;
            };
            match (wake, &owner.committer.gathering) {
                (Wake::Woken, Some(gathering)) => owner.gather(gathering),
                (Wake::TimedOut, _) => {}
                _ => return,
            }
        }
    };
    std::thread::Builder::new()
        .name("finefs-gather".into())
        .spawn(run)
        .map_err(|error| Error::io(format_args!("cannot start a thread: {error}")))?;
    Ok(())
}

impl Volume {
    /// Locks the generation of a log that has grown long.
    pub(crate) fn lock_long_generation(&self, gathering: &Gathering) {
        let mut locked = gathering.locked.lock();
        // Somebody else did it, where it is not.
        if self.committer.is_log_long() {
            self.lock_generation(gathering, &mut locked);
        }
    }

    fn lock_generation(&self, gathering: &Gathering, locked: &mut Locked) {
        let generation = self.log.swap(&mut locked.spares);
        self.committer.note_swap();
        gathering
            .locked_bytes
            .fetch_add(generation.bytes(), Ordering::Relaxed);
        locked.generations.push_back(generation);
    }

    /// Folds what is locked, and a log that has grown long.
    fn gather(&self, gathering: &Gathering) {
        self.lock_long_generation(gathering);
        while self.health.failure().is_none() && self.fold_one(gathering) {
            self.lock_long_generation(gathering);
        }
    }

    /// Folds the oldest locked generation into the open transaction; false when there is none.
    pub(crate) fn fold_one(&self, gathering: &Gathering) -> bool {
        let mut transactions = gathering.transactions.lock();
        let guard = &crossbeam_epoch::pin();
        let Some(generation) = self.next_locked(gathering) else {
            return false;
        };
        let has_room = self.has_room(&mut transactions.open, generation.length(), guard);
        if !has_room {
            let full = std::mem::take(&mut transactions.open);
            transactions.full.push_back(full);
            gathering.note_waiting(&transactions);
        }
        self.take_in(gathering, &mut transactions.open, generation, guard);
        drop(transactions);
        if !has_room {
            self.committer.wake();
        }
        true
    }

    /// The oldest transaction that is full. Under `ns.commit`.
    pub(crate) fn take_full_transaction(&self, gathering: &Gathering) -> Option<Transaction> {
        let mut transactions = gathering.transactions.lock();
        let oldest = transactions.full.pop_front();
        gathering.note_waiting(&transactions);
        oldest
    }

    /// What a commit that `wanted` is to be durable after has to take next: all that is locked, and
    /// the log where `wanted` is not, or as much of it as the store can take at once. Under
    /// `ns.commit`, whose spares are for stores whose batches are not limited.
    pub(crate) fn take_transaction(
        &self,
        wanted: u64,
        spares: &mut Spares,
        guard: &Guard,
    ) -> Transaction {
        let Some(gathering) = &self.committer.gathering else {
            let mut generation = self.log.swap(spares);
            self.committer.note_swap();
            let mut all = Transaction::default();
            for run in all.take_in(&mut generation, None, &self.inodes, guard) {
                self.store.forget_data(*run);
            }
            spares.put(generation.parts);
            return all;
        };
        let mut transactions = gathering.transactions.lock();
        if let Some(full) = transactions.full.pop_front() {
            gathering.note_waiting(&transactions);
            return full;
        }
        let mut locked = gathering.locked.lock();
        let newest = locked.generations.back();
        if newest.map_or(transactions.open.number, |newest| newest.number) < wanted {
            self.lock_generation(gathering, &mut locked);
        }
        drop(locked);
        while let Some(length) = gathering.next_length()
            && self.has_room(&mut transactions.open, length, guard)
            && let Some(generation) = self.next_locked(gathering)
        {
            self.take_in(gathering, &mut transactions.open, generation, guard);
        }
        if gathering.next_length().is_some() {
            // What is left is for the thread, if for no further round of this commit.
            gathering.wakeup().wake();
        }
        std::mem::take(&mut transactions.open)
    }

    /// Takes the oldest locked generation out of the queue. Under `ns.transactions`.
    fn next_locked(&self, gathering: &Gathering) -> Option<Generation> {
        let mut locked = gathering.locked.lock();
        let oldest = locked.generations.pop_front()?;
        gathering
            .locked_bytes
            .fetch_sub(oldest.bytes(), Ordering::Relaxed);
        Some(oldest)
    }

    fn take_in(
        &self,
        gathering: &Gathering,
        transaction: &mut Transaction,
        mut generation: Generation,
        guard: &Guard,
    ) {
        let cost = self.store.batch_cost();
        for run in transaction.take_in(&mut generation, cost, &self.inodes, guard) {
            self.store.forget_data(*run);
        }
        gathering.locked.lock().spares.put(generation.parts);
    }

    /// Whether so many records can be committed together with the transaction.
    fn has_room(&self, transaction: &mut Transaction, more: usize, guard: &Guard) -> bool {
        if transaction.is_empty() {
            return true;
        }
        if transaction.records + more > RECORDS_SOFT {
            return false;
        }
        let cost = self.store.batch_cost();
        cost.is_none_or(|cost| transaction.takes_more(more as u64, cost, &self.inodes, guard))
    }
}
