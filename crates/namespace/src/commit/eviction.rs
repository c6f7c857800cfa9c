//! Eviction: what can be loaded again leaves memory while there is more than the mount may have.
//!
//! # What leaves
//! A whole inode, with its names, mapping and attributes, if all of it is on the store (no commit
//! and no sync is due), nobody has locks on the file and nobody is still to be told of an error of
//! writing. That somebody refers to it keeps no inode in memory: files are open by number, and so
//! is what the kernel has cached. The references stay behind, in the inode table; whoever uses the
//! inode next loads it and begins with them. So there is no need to ask the kernel to forget.
//!
//! # When
//! [`Memory`](crate::base::memory::Memory) tells when to look at the sum. Above the limit a thread
//! sweeps, beside the operations. An eighth above it, operations help before they begin.
//! Without that thread (`Namespace::without_thread`) operations and commits do it alone.
//!
//! Second chance: a hand goes round the inode table. It marks what it passes as idle, and takes
//! what is so since the last time. To use an inode takes the mark away, by the same look at its
//! state that tells whether it is gone.
//!
//! The inode table gives back what it takes for inodes that are not in memory, once that is a good
//! part of the limit.
//!
//! Directories of many names are given back name by name, also while they are in use, where the
//! store finds names one by one: see [`partial`](crate::names::name_table). Where it does not, to
//! load one again takes long, so it goes only if nobody used it from one sweep to the next: beyond
//! the limit stay the names of such a directory that is in use.
//!
//! When all that is left waits for a commit, there is one, and no sweep before that has ended,
//! unless much more was loaded by then.
//!
//! # Invariant
//! An inode is evicted only while the gate is closed. No operation runs then, so none is left with
//! a cell that is no longer in the table: those hold no references on what they pass through.
//! Candidates are sought without the gate; it is closed for a few hundred at a time.
//!
//! # Locking
//! One sweep at a time, under `ns.eviction`, which nobody takes inside an operation.

use std::ops::Deref;
use std::sync::Arc;

use crossbeam_epoch::Guard;
use finefs_locks::Mutex;
use finefs_locks::primitive::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::base::classes;
use crate::base::error::Result;
use crate::base::file_flags::FileFlags;
use crate::base::retire;
use crate::base::types::Ino;
use crate::commit::volume::Volume;
use crate::commit::wakeup::{self, Wakeup};
use crate::inode::{Core, FileBody, INODE_BYTES, Inode};
use crate::names::name_table::Coverage;

/// Inodes that are evicted while the gate is closed once: some hundred microseconds.
const EVICTED_AT_ONCE: usize = 512;

/// Buckets of a large directory that names are taken out of while the gate is closed once.
const SHED_AT_ONCE: usize = 1024;

/// Leaves of the inode table that are packed while the gate is closed once.
const PACKED_AT_ONCE: usize = 256;

/// Inodes that the hand passes under one guard: what others retire meanwhile has to wait.
const PASSED_AT_ONCE: usize = 8192;

/// Times that the hand goes round before it gives up: one marks, the next takes.
const ROUNDS_MAX: u32 = 2;

/// A sweep that gives back less than one part in so many is not worth another one before something
/// was committed.
const WORTH_PART: i64 = 32;

/// After a sweep that gave up, so many bytes more are worth another one.
const GROWTH_MIN: i64 = 64 << 10;

/// The generation that was durable when a sweep gave up, where none has.
const NEVER: u64 = u64::MAX;

/// See the module's head.
pub(crate) struct Eviction {
    hand: Mutex<Ino>,
    /// Wakes the thread.
    pub(super) wakeup: Arc<Wakeup>,
    has_thread: AtomicBool,
    /// The thread was woken, and has not begun.
    is_asked: AtomicBool,
    /// The newest durable generation when all that was left waited for a commit, or stays.
    gave_up_at: AtomicU64,
    /// How many bytes that were.
    gave_up_with: AtomicI64,
}

impl Eviction {
    /// Nothing was swept.
    pub fn new() -> Eviction {
        Eviction {
            hand: Mutex::new(&classes::EVICTION, Ino(0)),
            wakeup: Arc::new(Wakeup::new()),
            has_thread: AtomicBool::new(false),
            is_asked: AtomicBool::new(false),
            gave_up_at: AtomicU64::new(NEVER),
            gave_up_with: AtomicI64::new(0),
        }
    }
}

/// Starts the thread that sweeps, which ends with the volume's owner.
pub(crate) fn start_thread<N>(owner: &Arc<N>) -> Result<()>
where
    N: Deref<Target = Volume> + Send + Sync + 'static,
{
    let eviction = &owner.committer.eviction;
    wakeup::start_thread("finefs-evict", owner, &eviction.wakeup, |owner| {
        owner.sweep()
    })?;
    eviction.has_thread.store(true, Ordering::Relaxed);
    Ok(())
}

impl Volume {
    /// Counts bytes that came.
    #[inline]
    pub(crate) fn note_memory(&self, bytes: i64) {
        if self.memory.add(bytes) {
            self.look_at_memory();
        }
    }

    /// Counts anew what an inode takes.
    pub(crate) fn recount(&self, core: &Core) {
        let bytes = core.bytes(&crossbeam_epoch::pin());
        self.note_memory(core.count(bytes));
    }

    /// An inode leaves memory: tells how many bytes it had.
    pub(crate) fn discount(&self, inode: &Inode) -> i64 {
        let bytes = inode.loaded().map_or(INODE_BYTES, Core::discount);
        self.memory.add(-bytes);
        bytes
    }

    #[cold]
    fn look_at_memory(&self) {
        let eviction = &self.committer.eviction;
        if self.memory.surplus() == 0 || self.would_give_up() {
            return;
        }
        if self.memory.is_exceeded() {
            self.committer.want_help(true);
        }
        if eviction.has_thread.load(Ordering::Relaxed)
            && !eviction.is_asked.swap(true, Ordering::Relaxed)
        {
            eviction.wakeup.wake();
        }
    }

    /// True where a sweep gave up, and there is neither a commit since nor much more in memory: of
    /// what is only read there may never be a commit.
    fn would_give_up(&self) -> bool {
        let eviction = &self.committer.eviction;
        let more = (self.memory.part() as i64).max(GROWTH_MIN);
        let with = eviction.gave_up_with.load(Ordering::Relaxed);
        eviction.gave_up_at.load(Ordering::Relaxed) == self.log.committed()
            && self.memory.bytes() < with.saturating_add(more)
    }

    /// Gives memory back until there is room, or nothing is left that could go. Outside of any
    /// operation.
    pub(crate) fn sweep(&self) {
        let eviction = &self.committer.eviction;
        eviction.is_asked.store(false, Ordering::Relaxed);
        if !self.store.can_reload() {
            return self.committer.want_help(false);
        }
        let mut hand = eviction.hand.lock();
        self.memory.set_fixed(self.inodes.bytes());
        // Whoever waited for the lock finds that it is done.
        let has_ended = self.memory.surplus() == 0 || {
            let evicted = self.turn_hand(&mut hand);
            self.pack_inode_table();
            self.memory.surplus() == 0 || evicted > self.memory.bytes() / WORTH_PART
        };
        let committed = match has_ended {
            true => NEVER,
            false => self.log.committed(),
        };
        let with = self.memory.bytes();
        eviction.gave_up_with.store(with, Ordering::Relaxed);
        eviction.gave_up_at.store(committed, Ordering::Relaxed);
        self.committer.want_help(false);
        drop(hand);
        retire::settle();
        if !has_ended {
            self.commit_for_memory();
        }
    }

    /// What waited for a commit can go now.
    pub(super) fn sweep_after_commit(&self) {
        if self.memory.surplus() == 0 {
            return;
        }
        match self.committer.eviction.has_thread.load(Ordering::Relaxed) {
            true => self.look_at_memory(),
            false => self.sweep(),
        }
    }

    /// Has a commit made of all that waits for one, so that it can leave memory.
    fn commit_for_memory(&self) {
        let has_thread = self.committer.eviction.has_thread.load(Ordering::Relaxed);
        // Images that are built come out the same only if nothing is committed by itself.
        if has_thread && self.options.fixed_time.is_none() && self.log.has_uncommitted() {
            self.cut_for_sync();
            self.committer.wake();
        }
    }

    /// Evicts until there is room; tells how many bytes.
    fn turn_hand(&self, hand: &mut Ino) -> i64 {
        self.inodes.join_all_references(&crossbeam_epoch::pin());
        let (mut rounds, mut evicted) = (0, 0);
        while rounds < ROUNDS_MAX && !self.committer.is_closed() {
            let guard = &crossbeam_epoch::pin();
            let mut candidates: Vec<&Inode> = Vec::new();
            let mut large: Vec<&Inode> = Vec::new();
            let (mut passed, mut last) = (0, None);
            self.inodes.for_each_from(*hand, guard, |inode| {
                (passed, last) = (passed + 1, Some(inode.ino));
                let is_large = self.is_large(inode, guard);
                if is_large {
                    large.push(inode);
                }
                // What is large and was marked in this very sweep was hardly given a chance.
                let may_go = !is_large || rounds == 0;
                if may_go && self.is_evictable(inode) && inode.references.were_idle() {
                    candidates.push(inode);
                }
                candidates.len() < EVICTED_AT_ONCE && passed < PASSED_AT_ONCE
            });
            let is_end = candidates.len() < EVICTED_AT_ONCE && passed < PASSED_AT_ONCE;
            *hand = match last {
                Some(last) if !is_end => Ino(last.0 + 1),
                _ => Ino(0),
            };
            rounds += u32::from(is_end);
            if !candidates.is_empty() {
                evicted += self.evict_these(&candidates, guard);
            }
            for directory in large {
                evicted += self.shed(directory, guard);
            }
            if self.memory.has_room() {
                break;
            }
        }
        evicted
    }

    /// True for a directory whose names take a good part of the memory that there is.
    fn is_large(&self, inode: &Inode, guard: &Guard) -> bool {
        let names = inode.loaded().and_then(Core::names);
        names.is_some_and(|names| names.bytes(guard) as u64 > self.memory.part())
    }

    /// Leaves names of a large directory to the store, or begins to get ready for that; tells how
    /// many bytes they were.
    fn shed(&self, inode: &Inode, guard: &Guard) -> i64 {
        let committed = self.log.committed();
        let Some(names) = inode.names() else { return 0 };
        match names.coverage() {
            Coverage::Whole => {
                let parent = self.store.open_large_directory(inode.ino, 0);
                let finds_names = matches!(parent, Ok(Some(_)));
                let _gate = self.gate.write();
                let special = FileFlags::CASEFOLD.union(FileFlags::ENCRYPTED);
                if finds_names && !inode.flags().intersects(special) && !inode.is_gone() {
                    names.begin_leaving(self.log.current());
                }
                return 0;
            }
            Coverage::Leaving(since) if since > committed => return 0,
            Coverage::Leaving(_) => {
                let _gate = self.gate.write();
                names.become_partial();
            }
            Coverage::Partial => {}
        }
        let mut at = Some(0);
        while let Some(first) = at {
            let _gate = self.gate.write();
            at = match inode.is_gone() {
                true => return 0,
                false => names.shed(first, SHED_AT_ONCE, committed, guard),
            };
        }
        let _gate = self.gate.write();
        if inode.is_gone() {
            return 0;
        }
        names.shrink(guard);
        let change = inode.count(inode.bytes(guard));
        self.memory.add(change);
        -change
    }

    /// Gives back what the inode table takes for inodes that are not in memory.
    fn pack_inode_table(&self) {
        if (self.inodes.bytes() as u64) < self.memory.part() {
            return;
        }
        let mut from = Some(Ino(0));
        while let Some(first) = from {
            let guard = &crossbeam_epoch::pin();
            let (leaves, next) = self.inodes.without_cells(first, PACKED_AT_ONCE, guard);
            from = next;
            if leaves.is_empty() {
                continue;
            }
            let _gate = self.gate.write();
            if self.committer.is_closed() {
                return;
            }
            self.inodes.pack(&leaves, guard);
        }
        self.memory.set_fixed(self.inodes.bytes());
    }

    /// True for what is on the store as it is in memory, or was not even loaded: its number was
    /// asked for in vain.
    fn is_evictable(&self, inode: &Inode) -> bool {
        inode.references.may_be_kept_apart()
            && inode.ino != self.geometry.root
            && inode.loaded().is_none_or(|core| {
                !self.log.is_dirty(core) && !self.is_unsynced(core) && !core.has_file_locks()
            })
    }

    /// True when data was overwritten that is not durable, which a sync must find; or when writing
    /// failed, which is told by count.
    fn is_unsynced(&self, core: &Core) -> bool {
        let Ok(file) = core.file() else { return false };
        let contents = FileBody::used_contents(file);
        file.write_errors.were_recorded()
            || contents.is_some_and(|it| {
                let is_done = |flush| self.committer.flushes.is_done(flush);
                it.unsynced.is_pending(self.log.data_committed(), is_done)
            })
    }

    fn evict_these(&self, candidates: &[&Inode], guard: &Guard) -> i64 {
        let _gate = self.gate.write();
        let mut evicted = 0;
        for inode in candidates {
            // It may have been used since.
            if !inode.references.is_idle() || !self.is_evictable(inode) {
                continue;
            }
            let references = match inode.loaded() {
                Some(core) => inode.references.evict(&core.lock()),
                None => Some(inode.references.evict_unloaded()),
            };
            if let Some(references) = references {
                self.inodes.keep_references(inode, references, guard);
                evicted += self.discount(inode);
            }
        }
        evicted
    }
}
