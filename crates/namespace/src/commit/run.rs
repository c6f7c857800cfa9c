//! Running a commit: a transaction goes to the store, and what it freed comes back. See
//! [`crate::commit`].

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crossbeam_epoch::Guard;

use crate::base::error::{Error, Result};
use crate::base::parallel;
use crate::base::retire;
use crate::base::store::Committed;
use crate::base::types::Ino;
use crate::commit::committer::State;
use crate::commit::folding;
use crate::commit::merge::{Merged, merge};
use crate::commit::oplog::{Cut, OperationLog};
use crate::commit::volume::Volume;
use crate::commit::wakeup::Wake;
use crate::inode::Inode;

/// So many items a thread of a commit takes at a time.
const PIECE_ITEMS: usize = 512;

/// What the commit thread knows of the interval before.
struct Quiet {
    /// The newest durable generation then.
    committed: u64,
    was_quiet: bool,
}

impl Quiet {
    /// True when nothing was logged in this interval, and something in the one before.
    fn is_since_last(&mut self, log: &OperationLog) -> bool {
        let is_quiet = log.committed() == self.committed && !log.has_uncommitted();
        let was_quiet = std::mem::replace(&mut self.was_quiet, is_quiet);
        is_quiet && !was_quiet
    }
}

/// Starts the commit thread and the one that folds; they end with the volume's owner.
pub(crate) fn start_threads<N>(owner: &Arc<N>) -> Result<()>
where
    N: Deref<Target = Volume> + Send + Sync + 'static,
{
    folding::start_thread(owner)?;
    let weak: Weak<N> = Arc::downgrade(owner);
    let wakeup = Arc::clone(&owner.committer.wakeup);
    let interval = owner.options.commit_interval;
    std::thread::Builder::new()
        .name("finefs-commit".into())
        .spawn(move || {
            let mut due = Instant::now() + interval;
            let mut quiet = Quiet {
                committed: 0,
                was_quiet: true,
            };
            loop {
                let wake = wakeup.wait(due.saturating_duration_since(Instant::now()));
                let Some(owner) = weak.upgrade() else {
                    return;
                };
                // A failure was logged when it came; syncs report it.
                let _ = match wake {
                    Wake::Ended => return,
                    // Where memory is short what was overwritten has to go out, too, so that its
                    // inodes can.
                    Wake::Woken if owner.memory.surplus() != 0 => owner.commit(),
                    Wake::Woken => owner.commit_locked(),
                    Wake::TimedOut => {
                        let is_quiet = quiet.is_since_last(&owner.log);
                        let outcome = owner.commit();
                        quiet.committed = owner.log.committed();
                        if is_quiet {
                            owner.committer.folding.trim();
                            retire::settle();
                            if let Some(when_quiet) = owner.options.when_quiet {
                                when_quiet();
                            }
                        }
                        due = Instant::now() + interval;
                        outcome
                    }
                };
            }
        })
        .map_err(|error| Error::io(format_args!("cannot start the commit thread: {error}")))?;
    Ok(())
}

impl Volume {
    /// Makes everything durable that was done before, all data too.
    pub(crate) fn commit(&self) -> Result<()> {
        // What is noted with an earlier generation the store has.
        let ended = self.log.current().saturating_sub(1);
        self.write_back()?;
        // Its cut comes after this, and its flush after that.
        self.commit_log()?;
        self.log.set_data_committed(ended);
        Ok(())
    }

    /// Commits everything that is in the log now.
    pub(crate) fn commit_log(&self) -> Result<()> {
        self.commit_generation(self.log.current())
    }

    /// Lets data go to the device that was written over other data. Other threads can go on
    /// meanwhile.
    fn write_back(&self) -> Result<()> {
        self.check_process()?;
        if let Some(error) = self.health.failure() {
            return Err(error.clone());
        }
        self.store
            .write_back()
            .or_else(|error| self.note_failed_sync(error))
    }

    /// Makes durable what was on the device when this flush was the next.
    pub(crate) fn flush(&self, number: u64) -> Result<()> {
        let flushes = &self.committer.flushes;
        if flushes.is_done(number) {
            return Ok(());
        }
        if let Some(error) = self.health.failure() {
            return Err(error.clone());
        }
        let own = flushes.begin();
        // Nobody knows what is on a device that failed to flush.
        self.store
            .flush()
            .or_else(|error| self.note_failed_sync(error))?;
        flushes.end(own);
        Ok(())
    }

    /// Returns when the given generation is durable.
    pub(crate) fn commit_generation(&self, wanted: u64) -> Result<()> {
        self.check_process()?;
        let turn = &self.committer.sync_turn;
        let is_done = || self.health.failure().is_some() || self.log.committed() >= wanted;
        let Some(taken) = turn.take_unless(is_done) else {
            return self
                .health
                .failure()
                .map_or(Ok(()), |error| Err(error.clone()));
        };
        let mut state = self.committer.lock.lock();
        if let Some(error) = self.health.failure() {
            return Err(error.clone());
        }
        // All that anybody did was committed before the store was frozen or closed.
        if self.log.committed() >= wanted || state.rests() {
            return Ok(());
        }
        loop {
            let Some(cut) = self.committer.folding.take_oldest() else {
                self.cut_for_sync();
                continue;
            };
            let number = cut.number;
            let outcome = self.commit_transaction(&mut state, cut);
            match outcome {
                // What the store has no storage for it keeps, and the next commit of it makes that
                // durable too.
                Ok(()) | Err(Error::NoSpace) if number < wanted => {}
                Ok(()) => break,
                Err(_) => return outcome,
            }
        }
        drop((state, taken));
        self.sweep_after_commit();
        Ok(())
    }

    /// Commits what was cut off.
    fn commit_locked(&self) -> Result<()> {
        while self.commit_oldest(|| true)? {}
        Ok(())
    }

    /// Commits the oldest generation that was cut off; false when there is none, or `is_wanted`
    /// says no: it is asked under the lock, before which others may have committed. They may
    /// between two of them, too.
    fn commit_oldest(&self, is_wanted: impl Fn() -> bool) -> Result<bool> {
        self.check_process()?;
        let mut state = self.committer.lock.lock();
        if let Some(error) = self.health.failure() {
            return Err(error.clone());
        }
        if state.rests() || !is_wanted() {
            return Ok(false);
        }
        let Some(cut) = self.committer.folding.take_oldest() else {
            return Ok(false);
        };
        self.commit_transaction(&mut state, cut)?;
        drop(state);
        self.sweep_after_commit();
        Ok(true)
    }

    /// No epoch is pinned over the store's I/O: nothing that was retired could be freed meanwhile.
    ///
    /// Never inlined: counts of instructions go by its name (`finefs-bench sequential`).
    #[inline(never)]
    fn commit_transaction(&self, state: &mut State, cut: Cut) -> Result<()> {
        let number = cut.number;
        let flush = self.committer.flushes.begin();
        let mut parts = self.collect(cut);
        for part in &parts {
            state.freed_space.add(part.freed);
        }
        let Merged { mut batch, freed } =
            merge(&mut parts, &self.inodes, self.options.commit_threads);
        batch.generation = number;
        self.keep_parts(parts);
        state.freed.extend(freed);
        let times = |ino: Ino| {
            self.inodes
                .get(ino, &crossbeam_epoch::pin())
                .and_then(|inode| inode.loaded())
                .map(|core| core.times())
        };
        let mut committed = Committed::default();
        let outcome = self.store.commit(batch, &times);
        self.note_commit(outcome.map(|made| committed = made))?;
        self.committer.flushes.end(flush);
        if !committed.keeps_data {
            self.log.set_data_committed(number);
        }
        self.log.note_freed(std::mem::take(&mut state.freed_space));
        if let Some(damage) = committed.damage {
            self.note_damage(&damage);
        }
        self.settle(&committed.settled, number);
        self.forget_freed(&std::mem::take(&mut state.freed), number);
        self.log.set_committed(number);
        Ok(())
    }

    /// Inodes that are gone for good as of the commit of generation `number` leave memory.
    fn forget_freed(&self, freed: &[Ino], number: u64) {
        self.for_each_piece(freed, |freed, guard| {
            for ino in freed {
                // Its number is free already: another inode may have it by now, and be gone too.
                let cell = self.inodes.get(*ino, guard);
                let is_it = |inode: &&Inode| {
                    let core = inode.loaded();
                    inode.is_gone() && core.is_some_and(|core| core.dirty_generation() <= number)
                };
                if let Some(inode) = cell.filter(is_it) {
                    self.inodes.remove(inode, guard);
                    self.discount(inode);
                }
            }
        });
    }

    /// Lets the threads of a commit work on parts of `items`.
    pub(super) fn for_each_piece<T: Sync>(&self, items: &[T], work: impl Fn(&[T], &Guard) + Sync) {
        let threads = self.options.commit_threads.for_items(items.len());
        let pieces = items.chunks(PIECE_ITEMS).collect();
        parallel::share(threads, pieces, |pieces| {
            pieces.for_each(|piece| work(piece, &crossbeam_epoch::pin()));
        });
    }

    /// Takes note that data could not be made durable, as of a commit that failed; gives the error.
    pub(crate) fn note_failed_sync(&self, error: Error) -> Result<()> {
        let _state = self.committer.lock.lock();
        self.note_commit(Err(error))
    }

    /// The last step of a freeze.
    pub(crate) fn freeze_store(&self) -> Result<()> {
        let mut state = self.committer.lock.lock();
        if let Some(error) = self.health.failure() {
            return Err(error.clone());
        }
        self.note_commit(self.store.freeze())?;
        state.is_frozen = true;
        Ok(())
    }

    /// The first step of a thaw.
    pub(crate) fn thaw_store(&self) -> Result<()> {
        let mut state = self.committer.lock.lock();
        if !std::mem::take(&mut state.is_frozen) {
            return Ok(());
        }
        self.note_commit(self.store.thaw())
    }

    /// Closes the store, after which nothing is committed: the commit thread may still come by.
    pub(crate) fn close_store(&self) -> Result<()> {
        let mut state = self.committer.lock.lock();
        state.is_over = true;
        self.store.close()
    }

    /// What a writer has to do before it goes on: to fold what this CPU has logged, and to commit
    /// where it outruns the commits, or the last one found no storage. Refuses it after a failure.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        if self.health.is_out_of_storage() {
            self.commit_log()?;
        }
        self.health.may_change()?;
        if self.keeps_log {
            self.fold_if_long();
            self.commit_if_behind()?;
        }
        Ok(())
    }

    /// The same where any operation has to, since reads outrun those who fold: their access times
    /// are logged, too. A read does not fail where the commit does.
    pub(crate) fn keep_up_with_reads(&self) {
        if self.committer.take_wants_fold() {
            self.fold_long_shards();
            let _noted = self.commit_if_behind();
        }
    }

    /// Commits the oldest generation that waits, where as many wait as may.
    fn commit_if_behind(&self) -> Result<()> {
        let folding = &self.committer.folding;
        if folding.is_behind() {
            self.commit_oldest(|| folding.is_behind())?;
        }
        Ok(())
    }
}
