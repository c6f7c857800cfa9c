//! What was taken out of the log and is in no commit yet, for a store that commits in one step of limited size.
//!
//! A journal is only so long, and counts in blocks. How many blocks records come to is known when they are
//! coalesced: much of what is created is removed again, and many changes fall into the same block. So where the
//! log grows long it is taken in, into what was gathered before, until that is as much as the store takes at once.
//! Then it is a *part* that waits for its commit, and the next one begins.
//!
//! # Who does it
//! A thread of its own, so that it goes on while a commit runs and no operation waits for either. Writers help only
//! where they outrun a thread: one whose log is much too long takes it in, and one that finds [`PARTS_MAX`] parts
//! waiting commits the oldest. So the heap does not grow without bound.
//!
//! # Invariants
//! 1. The log is swapped only under `ns.gathered`, and taken in before that is released. So parts are in the order of
//!    their generations.
//! 2. Parts are taken away, the oldest first, only under `ns.commit`.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_epoch::Guard;
use finefs_locks::Mutex;
use finefs_locks::primitive::atomic::{AtomicBool, Ordering};

use crate::batch_size::Sizing;
use crate::bell::{Bell, Wake};
use crate::classes;
use crate::coalesce::Gathered;
use crate::commit::RECORDS_SOFT;
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::store::BatchLimit;

/// So many parts may wait; a sync has to wait for all of them.
const PARTS_MAX: usize = 3;

/// The thread looks whether the namespace is still there.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// See the module's head.
pub(crate) struct Gathering {
    parts: Mutex<Parts>,
    limit: BatchLimit,
    bell: Arc<Bell>,
    /// As many parts wait as may.
    is_behind: AtomicBool,
}

#[derive(Default)]
struct Parts {
    /// Those that take in no more, the oldest first.
    full: VecDeque<Gathered>,
    open: Gathered,
}

impl Gathering {
    /// Nothing is gathered.
    pub fn new(limit: BatchLimit) -> Gathering {
        Gathering {
            parts: Mutex::new(&classes::GATHERED, Parts::default()),
            limit,
            bell: Arc::new(Bell::new()),
            is_behind: AtomicBool::new(false),
        }
    }

    /// What wakes the thread.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Whether a writer has to commit before it goes on.
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Relaxed)
    }

    fn note_parts(&self, parts: &Parts) {
        let is_behind = parts.full.len() >= PARTS_MAX;
        self.is_behind.store(is_behind, Ordering::Relaxed);
    }

    /// Starts the thread, which ends with the namespace.
    pub fn start(&self, namespace: &Arc<Namespace>) -> Result<()> {
        let weak: Weak<Namespace> = Arc::downgrade(namespace);
        let bell = Arc::clone(&self.bell);
        let run = move || {
            loop {
                let wake = bell.wait(LOOK_INTERVAL);
                let Some(namespace) = weak.upgrade() else {
                    return;
                };
                match (wake, &namespace.committer.gathering) {
                    (Wake::Ring, Some(gathering)) => namespace.gather(gathering),
                    (Wake::Interval, _) => {}
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
}

impl Namespace {
    /// Takes a log in that has grown long.
    pub(crate) fn gather(&self, gathering: &Gathering) {
        let guard = &crossbeam_epoch::pin();
        let mut parts = gathering.parts.lock();
        // Somebody else did it.
        if !self.committer.is_log_long() || self.health.failure().is_some() {
            return;
        }
        let has_room = self.has_room(gathering, &mut parts.open, guard);
        if !has_room {
            let full = std::mem::take(&mut parts.open);
            parts.full.push_back(full);
            gathering.note_parts(&parts);
        }
        self.take_in_log(&mut parts.open, guard);
        drop(parts);
        if !has_room {
            self.committer.ring();
        }
    }

    /// The oldest part that is full. Under `ns.commit`.
    pub(crate) fn take_full_part(&self, gathering: &Gathering) -> Option<Gathered> {
        let mut parts = gathering.parts.lock();
        let oldest = parts.full.pop_front();
        gathering.note_parts(&parts);
        oldest
    }

    /// What a commit has to take next: all that there is, the log included, or as much of it as the store can
    /// take at once. Under `ns.commit`.
    pub(crate) fn take_part(&self, guard: &Guard) -> Gathered {
        let Some(gathering) = &self.committer.gathering else {
            let mut all = Gathered::default();
            self.take_in_log(&mut all, guard);
            return all;
        };
        let mut parts = gathering.parts.lock();
        if let Some(full) = parts.full.pop_front() {
            gathering.note_parts(&parts);
            return full;
        }
        if self.has_room(gathering, &mut parts.open, guard) {
            self.take_in_log(&mut parts.open, guard);
        }
        std::mem::take(&mut parts.open)
    }

    /// Ends the log's generation and takes it in.
    fn take_in_log(&self, gathered: &mut Gathered, guard: &Guard) {
        let generation = self.log.swap();
        self.committer.note_swap();
        let limit = self.committer.gathering.as_ref();
        let sizing = limit.map(|gathering| self.sizing(gathering));
        for run in gathered.take_in(generation, sizing.as_ref(), &self.inodes, guard) {
            self.store.forget_data(*run);
        }
    }

    /// Whether what the log holds can be committed together with what was gathered.
    fn has_room(&self, gathering: &Gathering, gathered: &mut Gathered, guard: &Guard) -> bool {
        let more = self.log.pending();
        if gathered.is_empty() {
            return true;
        }
        if gathered.records + more > RECORDS_SOFT {
            return false;
        }
        gathered.takes_more(more as u64, &self.sizing(gathering), &self.inodes, guard)
    }

    fn sizing<'a>(&'a self, gathering: &'a Gathering) -> Sizing<'a> {
        Sizing {
            limit: &gathering.limit,
            geometry: &self.geometry,
        }
    }
}
