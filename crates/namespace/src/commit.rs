//! Commits: when the log goes to the store, and what follows from success and failure.
//!
//! One commit runs at a time, under `ns.commit`, which nobody takes inside an operation. A caller
//! that waited for the lock finds that the commit before may have served it too: so concurrent
//! fsyncs share one. Operations go on while a commit runs; only the swap of the log excludes them.
//!
//! # When
//! Every `commit_interval`, on fsync and sync, when space is short, and when there is as much to commit as the
//! store wants in a batch (or [`RECORDS_SOFT`] records). How much that is, `gather` finds out where the store's
//! batches are limited; other stores get a commit each time the log grows long. The commit thread does that; where
//! it is outrun writers do it before they go on, so that the heap does not grow without bound.
//!
//! # What is given back
//! The store gives the numbers and blocks of freed inodes out again when a commit is durable. The
//! last name of an inode is logged as gone before it goes, and a commit may come in between. The
//! number is free only after the name is gone, all the same:
//! 1. A name goes under the lock of its inode, which is held from the append until the name's node
//!    is marked OUT (`unlink`, `rmdir`, `try_rename`). So when the record is appended that frees
//!    the inode, its other names are gone: it is the record of the last name, or the last
//!    reference's, which comes after that under the same lock.
//! 2. [`Gathered::take_in`] takes that lock for a moment when it meets the record, before the
//!    number is handed on. So the last name is gone, too. It cannot deadlock: whoever holds the
//!    lock of an inode waits for no commit.
//! 3. A lookup that found the name before it went, and looks the number up after it came free,
//!    meets the mark OUT (`lookup`).
//!
//! In memory freed inodes go when no operation can have found them. A commit frees many under one guard, so they can only go
//! when that has ended. The next commit that frees others sees to it, or the commit thread when nothing has changed for a while.
//!
//! # Failure
//! When the store fails to commit, what was logged is lost to it: the namespace then refuses every
//! change (EROFS) and every sync reports the error; reads go on. A store that has only no storage at the
//! moment keeps what it was given, and the commit is tried again. See `health`.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use crossbeam_epoch::Guard;
use finefs_locks::primitive::atomic::{AtomicBool, Ordering};
use finefs_locks::{Mutex, PerCpuCounter};

use crate::bell::{Bell, Wake};
use crate::classes;
use crate::coalesce::{Coalesced, Gathered};
use crate::error::{Error, Result};
use crate::gather::Gathering;
use crate::inode::Inode;
use crate::namespace::Namespace;
use crate::oplog::{FreedSpace, OperationLog, Spares};
use crate::retire;
use crate::scheme::Call;
use crate::store::{Committed, Geometry};
use crate::types::Ino;
use crate::write_errors::WriteErrors;

/// Records after which a commit is asked for, where the store asks for no less.
pub(crate) const RECORDS_SOFT: usize = 1 << 18;
/// Records after which the log is taken in, at most.
const TAKEN_IN_MAX: usize = 1 << 10;
/// The part of what the store wants in a batch that is taken in at once, at most: before it is taken in each record
/// counts as a block, so a part is full when less is left than this.
const TAKEN_IN_PART: usize = 16;
/// Writers wait for a commit when the log holds so many times what a commit is asked for at, or end its generation
/// where it is gathered.
const HARD_FACTOR: usize = 2;

/// Inodes that are evicted while the gate is closed once: some ten microseconds.
const EVICTED_AT_ONCE: usize = 256;

/// The state of committing.
pub(crate) struct Committer {
    lock: Mutex<State>,
    /// Where the store's batches are limited in blocks.
    pub gathering: Option<Gathering>,
    bell: Arc<Bell>,
    is_closed: AtomicBool,
    /// What the end came to. Who ends it a second time waits here for the first.
    end: OnceLock<Result<()>>,
    is_overfull: AtomicBool,
    /// The bell was rung for the length of the current generation.
    is_asked: AtomicBool,
    /// Records after which the bell is rung, and after which writers wait.
    records_soft: usize,
    records_hard: usize,
    /// Inodes in memory, about.
    pub inodes_loaded: PerCpuCounter,
}

/// What one commit leaves to the next.
#[derive(Default)]
struct State {
    /// Where the search for inodes to evict goes on.
    evict_from: Ino,
    /// Inodes that a postponed commit frees.
    freed: Vec<Ino>,
    /// Space that it frees.
    freed_space: FreedSpace,
    /// The store is as after a clean end, and stays so.
    is_frozen: bool,
    /// Where nothing is gathered.
    spares: Spares,
}

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

impl Committer {
    /// For batches as the store wants them.
    pub fn new(geometry: &Geometry) -> Committer {
        let wanted = geometry.batch_records.unwrap_or(u64::MAX);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let gathering = geometry.batch_limit.map(Gathering::new);
        let records_soft = match gathering {
            None => wanted.clamp(1, RECORDS_SOFT),
            Some(_) => (wanted / TAKEN_IN_PART).clamp(1, TAKEN_IN_MAX),
        };
        Committer {
            lock: Mutex::new(&classes::COMMIT, State::default()),
            gathering,
            bell: Arc::new(Bell::new()),
            is_closed: AtomicBool::new(false),
            end: OnceLock::new(),
            is_overfull: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            records_soft,
            records_hard: HARD_FACTOR * records_soft,
            inodes_loaded: PerCpuCounter::new(0),
        }
    }

    /// Starts the commit thread, and the one that gathers where there is something to gather; they end with
    /// the namespace.
    pub fn start(namespace: &Arc<Namespace>) -> Result<()> {
        if let Some(gathering) = &namespace.committer.gathering {
            gathering.start(namespace)?;
        }
        let weak: Weak<Namespace> = Arc::downgrade(namespace);
        let bell = Arc::clone(&namespace.committer.bell);
        let interval = namespace.options.commit_interval;
        std::thread::Builder::new()
            .name("finefs-commit".into())
            .spawn(move || {
                let mut due = Instant::now() + interval;
                let mut quiet = Quiet {
                    committed: 0,
                    was_quiet: true,
                };
                loop {
                    let wake = bell.wait(due.saturating_duration_since(Instant::now()));
                    let Some(namespace) = weak.upgrade() else {
                        return;
                    };
                    // A failure was logged when it came; syncs report it.
                    let _ = match wake {
                        Wake::Over => return,
                        Wake::Ring => namespace.commit_full(),
                        Wake::Interval => {
                            let is_quiet = quiet.is_since_last(&namespace.log);
                            let outcome = namespace.commit();
                            quiet.committed = namespace.log.committed();
                            if is_quiet {
                                retire::settle();
                                if let Some(when_quiet) = namespace.options.when_quiet {
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

    /// Wakes the commit thread.
    pub fn ring(&self) {
        self.bell.ring();
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Takes note of about how many records the log holds.
    pub fn note_length(&self, records: usize) {
        if records >= self.records_soft && !self.is_asked.swap(true, Ordering::Relaxed) {
            match &self.gathering {
                Some(gathering) => gathering.bell().ring(),
                None => self.bell.ring(),
            }
        }
        if records > self.records_hard {
            self.is_overfull.store(true, Ordering::Relaxed);
        }
    }

    /// Makes a writer that outruns the commits wait for one; refuses it after a failure.
    pub fn wait_for_room(&self, namespace: &Namespace) -> Result<()> {
        namespace.health.may_change()?;
        let is_overfull = self.is_overfull.load(Ordering::Relaxed);
        match &self.gathering {
            None if is_overfull => namespace.commit()?,
            None => {}
            Some(gathering) => {
                if is_overfull {
                    namespace.end_long_generation(gathering);
                    // Somebody else may be as far while this one waits.
                    if gathering.has_too_much(self.records_hard) {
                        namespace.gather_one(gathering);
                    }
                }
                if gathering.is_behind() {
                    namespace.commit_full_part(gathering)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the log has grown long since it was last taken out. A note of the length that came late is taken
    /// back where it has not.
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
        self.bell.end();
        if let Some(gathering) = &self.gathering {
            gathering.bell().end();
        }
    }
}

impl Namespace {
    /// Commits everything that is in the log now.
    pub(crate) fn commit(&self) -> Result<()> {
        self.commit_generation(self.log.current())
    }

    /// Returns when the given generation is durable.
    pub(crate) fn commit_generation(&self, wanted: u64) -> Result<()> {
        let mut state = self.committer.lock.lock();
        if let Some(error) = self.health.failure() {
            return Err(error.clone());
        }
        // All that anybody did was committed before the store was frozen.
        if self.log.committed() >= wanted || state.is_frozen {
            return Ok(());
        }
        let guard = &crossbeam_epoch::pin();
        loop {
            let part = self.take_part(wanted, &mut state.spares, guard);
            let number = part.number;
            let outcome = self.commit_gathered(&mut state, part, guard);
            match outcome {
                // What the store has no storage for it keeps, and the next commit of it makes that durable too.
                Ok(()) | Err(Error::NoSpace) if number < wanted => {}
                Ok(()) => break,
                Err(_) => return outcome,
            }
        }
        self.evict(&mut state);
        Ok(())
    }

    /// Commits what is as much as the store wants in a batch: what is gathered and full, or else the log.
    fn commit_full(&self) -> Result<()> {
        let Some(gathering) = &self.committer.gathering else {
            return self.commit();
        };
        while self.commit_full_part(gathering)? {}
        Ok(())
    }

    /// Commits the oldest part that is full; false when there is none. Others may commit between two of them.
    fn commit_full_part(&self, gathering: &Gathering) -> Result<bool> {
        let mut state = self.committer.lock.lock();
        if let Some(error) = self.health.failure() {
            return Err(error.clone());
        }
        if state.is_frozen {
            return Ok(false);
        }
        let Some(part) = self.take_full_part(gathering) else {
            return Ok(false);
        };
        self.commit_gathered(&mut state, part, &crossbeam_epoch::pin())?;
        self.evict(&mut state);
        Ok(true)
    }

    fn commit_gathered(&self, state: &mut State, gathered: Gathered, guard: &Guard) -> Result<()> {
        let number = gathered.number;
        state.freed_space.add(gathered.freed_space);
        let Coalesced { batch, freed } = gathered.into_batch();
        state.freed.extend(freed);
        let times = |ino: Ino| {
            self.inodes
                .get(ino, guard)
                .and_then(|inode| inode.loaded())
                .map(|core| core.times())
        };
        let mut committed = Committed::default();
        let outcome = self.store.commit(batch, &times);
        self.note_commit(outcome.map(|made| committed = made))?;
        self.log.note_freed(std::mem::take(&mut state.freed_space));
        if let Some(damage) = committed.damage {
            self.note_damage(&damage);
        }
        self.settle(&committed.settled, number, guard);
        for ino in std::mem::take(&mut state.freed) {
            // Its number is free already: another inode may have it by now, and be gone too.
            let cell = self.inodes.get(ino, guard);
            if let Some(inode) =
                cell.filter(|inode| inode.is_gone() && inode.dirty_generation() <= number)
            {
                self.inodes.remove(inode, guard);
                self.committer.inodes_loaded.add(-1);
            }
        }
        self.log.set_committed(number);
        Ok(())
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

    /// Puts clean inodes that nobody refers to out of memory while there are too many.
    ///
    /// Nothing is evicted while an operation runs: those hold no references on the directories that
    /// they pass through. Candidates are sought beside the operations, and a few at a time are
    /// looked at again, and evicted, while the gate is closed.
    fn evict(&self, state: &mut State) {
        let surplus = self.committer.inodes_loaded.exact()
            - self.options.inode_cache_max.min(i64::MAX as u64) as i64;
        if surplus <= 0 || !self.store.can_reload() {
            return;
        }
        self.join_all_references(&crossbeam_epoch::pin());
        let mut wanted = surplus as usize;
        while wanted > 0 {
            let guard = &crossbeam_epoch::pin();
            let most = wanted.min(EVICTED_AT_ONCE);
            let mut candidates: Vec<&Inode> = Vec::new();
            self.inodes.for_each_from(state.evict_from, guard, |inode| {
                if self.is_evictable(inode) {
                    candidates.push(inode);
                }
                candidates.len() < most
            });
            let is_end = candidates.len() < most;
            state.evict_from = match candidates.last() {
                Some(last) if !is_end => Ino(last.ino.0 + 1),
                _ => Ino(0),
            };
            wanted -= candidates.len();
            self.evict_these(&candidates, guard);
            if is_end {
                return;
            }
        }
    }

    fn is_evictable(&self, inode: &Inode) -> bool {
        inode
            .loaded()
            .is_some_and(|core| !inode.references.any() && !self.log.is_dirty(core))
    }

    fn evict_these(&self, candidates: &[&Inode], guard: &crossbeam_epoch::Guard) {
        let _gate = self.gate.write();
        for inode in candidates.iter().filter(|inode| self.is_evictable(inode)) {
            let lock = inode.lock();
            if inode.references.evict(&lock) {
                self.inodes.remove(inode, guard);
                self.committer.inodes_loaded.add(-1);
            }
        }
    }

    /// Makes everything that was done before durable. EIO, once, when data of some file could not be
    /// written and no sync has told that yet.
    pub fn sync(&self) -> Result<()> {
        if self.options.is_read_only {
            return Ok(());
        }
        self.commit()?;
        match self.write_errors.take_unseen() {
            true => Err(lost_data()),
            false => Ok(()),
        }
    }

    /// Makes an inode's data and attributes durable (fsync, and fdatasync, which here differs in
    /// nothing: one commit writes both). Costs nothing when nothing changed. EIO, once, when data of the
    /// file could not be written and no sync of it has told that yet; [`OpenFile::sync`] tells it to
    /// everybody who has the file open.
    ///
    /// [`OpenFile::sync`]: crate::OpenFile::sync
    pub fn sync_file(&self, ino: Ino, _data_only: bool) -> Result<()> {
        let (dirty, is_lossy) = {
            let operation = self.begin(Call::SyncFile)?;
            let inode = self.inode(ino, &operation.guard)?;
            let errors = inode.file().ok().map(|file| &file.write_errors);
            (
                inode.dirty_generation(),
                errors.is_some_and(WriteErrors::take_unseen),
            )
        };
        self.sync_generation(dirty)?;
        if is_lossy { Err(lost_data()) } else { Ok(()) }
    }

    /// Returns when an inode whose newest change is of generation `dirty` is durable. Where there is no log,
    /// none is ever dirty.
    pub(crate) fn sync_generation(&self, dirty: u64) -> Result<()> {
        if dirty <= self.log.committed() {
            return match self.health.failure() {
                Some(error) if dirty != 0 => Err(error.clone()),
                _ => Ok(()),
            };
        }
        self.commit_generation(dirty)
    }

    /// Ends the namespace: what has neither name nor user is freed, everything is committed and
    /// the store is closed. Later operations fail with EIO. May be called again, by any thread:
    /// each call returns when that is done, with what it came to.
    pub fn shut_down(&self) -> Result<()> {
        self.committer.end.get_or_init(|| self.end()).clone()
    }

    fn end(&self) -> Result<()> {
        {
            let _gate = self.gate.write();
            self.committer.is_closed.store(true, Ordering::Release);
        }
        self.end_file_locks(&Namespace::shut_down_error());
        match self.thaw() {
            // Not frozen.
            Ok(()) | Err(Error::Invalid) => {}
            Err(error) => return Err(error),
        }
        if self.options.is_read_only {
            return self.store.close();
        }
        let guard = &crossbeam_epoch::pin();
        self.inodes.for_each_from(Ino(0), guard, |inode| {
            if inode.loaded().is_some() && self.drop_references(inode) {
                self.free_unlinked(inode, guard);
            }
            true
        });
        self.commit()?;
        self.store.close()
    }
}

/// What a sync says when data could not be written earlier.
pub(crate) fn lost_data() -> Error {
    Error::io("data could not be written earlier")
}
