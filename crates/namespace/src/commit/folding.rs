//! From the log to transactions: each shard of the log is folded as it grows, by whoever has time.
//!
//! As in jbd2, what is logged now is *running*, what was cut off the log is *locked*, and what a
//! commit has taken is *committing*. The log keeps no history: every window of a shard's records is
//! folded into one delta for each object ([`Folded`]), and what cancels out within the shard is
//! gone for good. So the running generation stays as small as what it changes, and is cut off when
//! somebody syncs, when the interval ends, or when that comes to as many blocks as the store takes
//! at once.
//!
//! # Who folds
//! The thread that finds its shard's window long, before its next operation: the records are in its
//! caches, and what cancels out is freed by the thread that made it. Where a CPU is idle, that is
//! where fewer shards are in use than there are, a thread of its own does it instead; also where
//! nobody else does, since all that comes are reads, whose access times are logged. Where that
//! thread does not come by, reads fold too: an operation of any kind does before it begins.
//!
//! # Who commits
//! The commit thread. Where writers outrun it, so that [`LOCKED_MAX`] generations wait, they commit
//! the oldest themselves. So the heap does not grow without bound.
//!
//! # Invariants
//! 1. Records leave a shard of the log only under its `ns.fold`, into the deltas of their
//!    generation; or by a cut, under the global side of the log. So a shard's deltas of a
//!    generation and what was cut off are all that it logged in it, in order.
//! 2. A cut is at the end of the queue before `ns.generations` is released, and leaves it, the
//!    oldest first, under `ns.commit`.
//! 3. What cancels out is given back under `ns.fold`, too: whoever finds no space, commits and
//!    tries again has it. To forget data may wait for a write of it that is under way.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_epoch::Guard;
use crossbeam_utils::CachePadded;
use finefs_locks::primitive::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use finefs_locks::{Mutex, cpu};

use crate::base::classes;
use crate::base::error::Result;
use crate::commit::folded::{Cancelled, Context, Folded};
use crate::commit::oplog::{Cut, Logged};
use crate::commit::volume::Volume;
use crate::commit::wakeup::{self, Wakeup};

/// So many generations may wait for their commit; a sync has to wait for all of them.
const LOCKED_MAX: usize = 3;

/// A shard's records are folded when they have this weight ([`Logged::weight`]), at most.
const WINDOW_MAX: usize = 1 << 10;

/// The unfolded records of all shards, their weight counted in blocks, are at most one part in so
/// many of what the store wants in a batch.
const WINDOWS_PART: usize = 8;

/// Objects in a generation, and bytes beside them, at most.
const OBJECTS_MAX: usize = 1 << 18;
const HEAP_BYTES_MAX: usize = 64 << 20;

/// An object that waits for its commit takes about so many bytes, its inode included, and several
/// generations wait.
const OBJECT_BYTES: u64 = 2048;
/// The bytes beside them are at most one part in so many of the memory that there is.
const HEAP_PART: u64 = 8;

/// A cut must leave more than one part in so many unused where adding up anew could help.
const WORTH_ADDING_UP_PART: u64 = 8;

/// A shard is in use when a window of it became full so short a time ago.
const IN_USE: Duration = Duration::from_millis(20);

/// How long a shard's window is: short enough.
const SHORT: u8 = 0;
/// To be folded.
const LONG: u8 = 1;
/// To be folded now, by whoever finds it so.
const TOO_LONG: u8 = 2;

/// A window so many times as long as it may be keeps all operations from beginning.
const FAR_TOO_LONG_TIMES: usize = 4;

/// See the module's head.
pub(crate) struct Folding {
    shards: Box<[CachePadded<Shard>]>,
    locked: Mutex<VecDeque<Cut>>,
    /// As many generations wait as may.
    is_behind: AtomicBool,
    /// Wakes the thread.
    pub(super) wakeup: Arc<Wakeup>,
    window: usize,
    /// What a generation has at most.
    objects_max: usize,
    heap_bytes_max: usize,
    started: Instant,
}

/// What is folded of a shard of the log.
struct Shard {
    /// One of the constants above.
    length: AtomicU8,
    /// The thread was woken for it.
    is_asked: AtomicBool,
    /// When a window became full last, in milliseconds from the start.
    full_at_ms: AtomicU64,
    /// Of the running generation: the weight of records that are not folded, about; blocks and
    /// objects that the folded ones come to.
    unfolded: AtomicUsize,
    blocks: AtomicU64,
    objects: AtomicUsize,
    heap_bytes: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By generation, the oldest first.
    folded: VecDeque<Folded>,
    /// Room that was used before.
    spare: Logged,
    spares: Vec<Folded>,
}

impl State {
    /// The deltas of this generation, which is no older than any.
    fn of_generation(&mut self, generation: u64) -> &mut Folded {
        if self
            .folded
            .back()
            .is_none_or(|last| last.generation != generation)
        {
            let mut fresh = self.spares.pop().unwrap_or_default();
            fresh.generation = generation;
            self.folded.push_back(fresh);
        }
        self.folded.back_mut().expect("one was put there")
    }
}

impl Folding {
    /// For batches of about so many records, a log of so many shards, and so much memory.
    pub fn new(batch_records: Option<u64>, shards: usize, cache_bytes: u64) -> Folding {
        let wanted = batch_records.and_then(|records| usize::try_from(records).ok());
        let window = wanted.map_or(WINDOW_MAX, |wanted| wanted / WINDOWS_PART / shards);
        let share = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Folding {
            objects_max: share(cache_bytes / OBJECT_BYTES).clamp(WINDOW_MAX, OBJECTS_MAX),
            heap_bytes_max: share(cache_bytes / HEAP_PART).clamp(1 << 20, HEAP_BYTES_MAX),
            shards: (0..shards)
                .map(|_| CachePadded::new(Shard::new()))
                .collect(),
            locked: Mutex::new(&classes::GENERATIONS, VecDeque::new()),
            is_behind: AtomicBool::new(false),
            wakeup: Arc::new(Wakeup::new()),
            window: window.clamp(1, WINDOW_MAX),
            started: Instant::now(),
        }
    }

    /// When a shard has grown by how much it is to tell its weight.
    pub fn told_every(&self) -> usize {
        self.window.min(64)
    }

    /// Takes note of about what the records of a shard of the log weigh; tells whether that is far
    /// too much.
    pub(super) fn note_length(&self, shard: usize, weight: usize) -> bool {
        let shard = &self.shards[shard];
        shard.unfolded.store(weight, Ordering::Relaxed);
        if weight >= self.window {
            let length = if weight >= 2 * self.window {
                TOO_LONG
            } else {
                LONG
            };
            shard.length.store(length, Ordering::Relaxed);
            // Operations that only read log access times, and fold nothing.
            let is_asked = &shard.is_asked;
            if length == TOO_LONG
                && !is_asked.load(Ordering::Relaxed)
                && !is_asked.swap(true, Ordering::Relaxed)
            {
                self.wakeup.wake();
            }
        }
        weight >= FAR_TOO_LONG_TIMES * self.window
    }

    /// The shard of this CPU, if it is to be folded before the thread goes on.
    #[inline]
    fn long_shard(&self) -> Option<usize> {
        let index = cpu::current() % self.shards.len();
        let shard = &self.shards[index];
        match shard.length.load(Ordering::Relaxed) {
            SHORT => None,
            LONG if shard.is_asked.load(Ordering::Relaxed) => None,
            LONG if self.has_idle_cpu(shard) => {
                if !shard.is_asked.swap(true, Ordering::Relaxed) {
                    self.wakeup.wake();
                }
                None
            }
            _ => Some(index),
        }
    }

    /// Whether some shard is not in use; this one is.
    fn has_idle_cpu(&self, shard: &Shard) -> bool {
        let now_ms = self.started.elapsed().as_millis() as u64;
        shard.full_at_ms.store(now_ms, Ordering::Relaxed);
        let is_idle = |shard: &CachePadded<Shard>| {
            let full_at_ms = shard.full_at_ms.load(Ordering::Relaxed);
            full_at_ms == 0 || now_ms - full_at_ms.min(now_ms) > IN_USE.as_millis() as u64
        };
        self.shards.iter().any(is_idle)
    }

    /// As many generations wait as may.
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    /// The oldest generation that was cut off. Under `ns.commit`.
    pub fn take_oldest(&self) -> Option<Cut> {
        let mut locked = self.locked.lock();
        let oldest = locked.pop_front();
        self.note_waiting(&locked);
        oldest
    }

    fn note_waiting(&self, locked: &VecDeque<Cut>) {
        self.is_behind
            .store(locked.len() >= LOCKED_MAX, Ordering::Relaxed);
    }

    /// Gives memory back that was kept for what comes.
    pub fn trim(&self) {
        for shard in &self.shards {
            let mut state = shard.state.lock();
            let spares = std::mem::take(&mut state.spares);
            let spare = std::mem::take(&mut state.spare);
            drop(state);
            drop((spares, spare));
        }
    }
}

impl Shard {
    fn new() -> Shard {
        Shard {
            length: AtomicU8::new(SHORT),
            is_asked: AtomicBool::new(false),
            full_at_ms: AtomicU64::new(0),
            unfolded: AtomicUsize::new(0),
            blocks: AtomicU64::new(0),
            objects: AtomicUsize::new(0),
            heap_bytes: AtomicUsize::new(0),
            state: Mutex::new(&classes::FOLD, State::default()),
        }
    }

    /// Whether the thread has to fold it. It may have been asked for just when another had folded
    /// it: whoever finds it long next must ask again.
    fn is_still_long(&self) -> bool {
        let is_long = self.length.load(Ordering::Relaxed) != SHORT;
        if !is_long {
            self.is_asked.store(false, Ordering::Relaxed);
        }
        is_long
    }

    /// No record waits to be folded.
    fn note_folded(&self) {
        self.unfolded.store(0, Ordering::Relaxed);
        self.length.store(SHORT, Ordering::Relaxed);
        self.is_asked.store(false, Ordering::Relaxed);
    }

    fn note_size(&self, blocks: u64, objects: usize, heap_bytes: usize) {
        self.blocks.store(blocks, Ordering::Relaxed);
        self.objects.store(objects, Ordering::Relaxed);
        self.heap_bytes.store(heap_bytes, Ordering::Relaxed);
    }
}

/// Starts the thread, which ends with the volume's owner.
pub(super) fn start_thread<N>(owner: &Arc<N>) -> Result<()>
where
    N: Deref<Target = Volume> + Send + Sync + 'static,
{
    let wakeup = &owner.committer.folding.wakeup;
    wakeup::start_thread("finefs-fold", owner, wakeup, |owner| {
        owner.fold_long_shards()
    })
}

impl Volume {
    /// Folds this CPU's shard of the log if it has grown long, unless somebody else will.
    #[inline]
    pub(super) fn fold_if_long(&self) {
        if let Some(shard) = self.committer.folding.long_shard() {
            self.fold_shard(shard);
        }
    }

    pub(super) fn fold_long_shards(&self) {
        let shards = self.committer.folding.shards.iter().zip(0..);
        for (shard, index) in shards {
            if shard.is_still_long() {
                self.fold_shard(index);
            }
        }
    }

    #[cold]
    fn fold_shard(&self, shard: usize) {
        self.fold(shard, false);
        if !self.is_generation_full(1) {
            return;
        }
        self.fold_exactly();
        if self.is_generation_full(WORTH_ADDING_UP_PART) {
            self.cut_generation(WORTH_ADDING_UP_PART);
        }
    }

    /// Folds all shards and adds up what they come to: nearer to what it is, as nothing is unfolded
    /// then.
    ///
    /// Never inlined: counts of instructions go by its name (`finefs-bench sequential`).
    #[inline(never)]
    fn fold_exactly(&self) {
        for shard in 0..self.committer.folding.shards.len() {
            self.fold(shard, true);
        }
    }

    /// Folds what a shard has logged; the blocks that all of it comes to are added up where
    /// `is_exact`.
    fn fold(&self, index: usize, is_exact: bool) {
        // The end of the namespace waits for it.
        let _gate = self.gate.read();
        if self.committer.is_closed() {
            return;
        }
        let guard = &crossbeam_epoch::pin();
        let context = self.fold_context(guard);
        let shard = &self.committer.folding.shards[index];
        let mut state = shard.state.lock();
        let spare = std::mem::take(&mut state.spare);
        let (generation, mut logged) = self.log.take(index, spare);
        shard.note_folded();
        let folded = state.of_generation(generation);
        let mut cancelled = Cancelled::default();
        folded.take_in(&mut logged, &context, &mut cancelled);
        let blocks = folded.blocks_max(&context, is_exact);
        shard.note_size(blocks, folded.objects(), folded.heap_bytes);
        state.spare = logged;
        // Still under the lock, which a commit takes: so whoever finds no space, commits and tries
        // again has what cancelled out before.
        self.give_back(cancelled, guard);
    }

    fn fold_context<'a>(&'a self, guard: &'a Guard) -> Context<'a> {
        Context {
            inodes: &self.inodes,
            cost: self.store.batch_cost(),
            guard,
        }
    }

    /// Gives back what cancelled out: no commit names it.
    fn give_back(&self, cancelled: Cancelled, guard: &Guard) {
        for (ino, _) in &cancelled.inodes {
            if let Some(inode) = self.inodes.get(*ino, guard) {
                self.inodes.remove(inode, guard);
                self.discount(inode);
            }
        }
        for run in &cancelled.blocks {
            self.store.release_blocks(*run);
        }
        for (ino, kind) in &cancelled.inodes {
            self.store.release_inode(*ino, *kind);
        }
        if cancelled.reserved_blocks != 0 {
            self.store.unreserve(cancelled.reserved_blocks);
        }
        self.log.note_freed(cancelled.freed);
    }

    /// Whether the running generation is as large as the store takes at once, but for one part in
    /// `part`.
    fn is_generation_full(&self, part: u64) -> bool {
        let folding = &self.committer.folding;
        let shards = &folding.shards;
        let sum = |of: fn(&Shard) -> usize| -> usize { shards.iter().map(|shard| of(shard)).sum() };
        if sum(|shard| shard.objects.load(Ordering::Relaxed)) > folding.objects_max
            || sum(|shard| shard.heap_bytes.load(Ordering::Relaxed)) > folding.heap_bytes_max
        {
            return true;
        }
        let Some(cost) = self.store.batch_cost() else {
            return false;
        };
        let blocks = sum(|shard| shard.blocks.load(Ordering::Relaxed) as usize)
            + sum(|shard| shard.unfolded.load(Ordering::Relaxed));
        let most = cost.blocks_max();
        let spared = if part > 1 { most / part } else { 0 };
        blocks as u64 + cost.of_charges() > most - spared
    }

    /// Cuts the running generation off and wakes the commit thread, unless somebody else did. Never
    /// inlined: see above.
    #[inline(never)]
    fn cut_generation(&self, part: u64) {
        let mut locked = self.committer.folding.locked.lock();
        if self.is_generation_full(part) {
            self.cut(&mut locked);
            drop(locked);
            self.committer.wake();
        }
    }

    /// Cuts the running generation off the log, for a sync.
    pub(super) fn cut_for_sync(&self) {
        let mut locked = self.committer.folding.locked.lock();
        self.cut(&mut locked);
    }

    fn cut(&self, locked: &mut VecDeque<Cut>) {
        let folding = &self.committer.folding;
        locked.push_back(self.log.cut());
        for shard in &folding.shards {
            // A fold under way may still tell the size of what was cut off; the next one will not.
            shard.note_size(0, 0, 0);
            shard.note_folded();
        }
        folding.note_waiting(locked);
    }

    /// All that a generation comes to, which was cut off: a part for each shard that has any. Under
    /// `ns.commit`.
    pub(super) fn collect(&self, cut: Cut) -> Vec<Folded> {
        let guard = &crossbeam_epoch::pin();
        let context = self.fold_context(guard);
        let mut parts = Vec::new();
        let mut cancelled = Cancelled::default();
        let shards = self.committer.folding.shards.iter().zip(cut.rest);
        for (index, (shard, mut rest)) in shards.enumerate() {
            let mut state = shard.state.lock();
            let is_older = |folded: &&mut Folded| folded.generation == cut.number;
            let mut part = match state.folded.front_mut().filter(is_older) {
                Some(_) => state.folded.pop_front().unwrap_or_default(),
                None => state.spares.pop().unwrap_or_default(),
            };
            part.take_in(&mut rest, &context, &mut cancelled);
            if state.spare.records.capacity() == 0 {
                state.spare = rest;
            }
            part.shard = index;
            match part.is_empty() {
                true => state.spares.push(part),
                false => parts.push(part),
            }
        }
        self.give_back(cancelled, guard);
        parts
    }

    /// Keeps the memory of parts that were merged.
    pub(super) fn keep_parts(&self, parts: Vec<Folded>) {
        for mut part in parts {
            let shard = part.shard;
            part.clear();
            let mut state = self.committer.folding.shards[shard].state.lock();
            if state.spares.len() < SPARES_MAX {
                state.spares.push(part);
            }
        }
    }
}

/// So many emptied parts are kept for a shard: one fills while another is committed.
const SPARES_MAX: usize = 2;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    /// Else nobody would wake the thread for it again before it is much too long.
    #[test]
    fn a_shard_that_another_folded_first_can_be_asked_for_again() {
        let shard = Shard::new();
        shard.is_asked.store(true, Ordering::Relaxed);
        shard.length.store(LONG, Ordering::Relaxed);
        assert!(shard.is_still_long());
        assert!(shard.is_asked.load(Ordering::Relaxed));
        shard.length.store(SHORT, Ordering::Relaxed);
        assert!(!shard.is_still_long());
        assert!(!shard.is_asked.load(Ordering::Relaxed));
    }
}
