//! What was taken out of the log and is in no commit yet, for a store that commits in one step of
//! limited size.
//!
//! A journal is only so long, and counts in blocks. How many blocks records come to is known when
//! they are coalesced: much of what is created is removed again, and many changes fall into the
//! same block. So where the log grows long its generation *ends*, and is taken in, into what was
//! gathered before, until that is as much as the store takes at once. Then it is a *part* that
//! waits for its commit, and the next one begins.
//!
//! # Who does it
//! A thread of its own, so that it goes on while a commit runs and no operation waits for either.
//! Writers help only where they outrun a thread: one whose log is much too long ends its
//! generation, which takes no time; one that finds more than `ENDED_FACTOR` such generations takes
//! the oldest in; and one that finds `PARTS_MAX` parts waiting commits the oldest. So the heap does
//! not grow without bound.
//!
//! # Invariants
//! 1. The log is swapped only under `ns.ended`, and its generation put at the end of the queue
//!    before that is released.
//! 2. Generations leave the queue, the oldest first, only under `ns.gathered`, and are taken in
//!    before that is released. So parts are in the order of their generations.
//! 3. Parts are taken away, the oldest first, only under `ns.commit`.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_epoch::Guard;
use finefs_locks::primitive::atomic::Ordering;

use crate::base::error::{Error, Result};
use crate::commit::batch_size::Sizing;
use crate::commit::coalesce::Gathered;
use crate::commit::committer::RECORDS_SOFT;
use crate::commit::gathering::{Ended, Gathering};
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
    /// Ends the generation of a log that has grown long.
    pub(crate) fn end_long_generation(&self, gathering: &Gathering) {
        let mut ended = gathering.ended.lock();
        // Somebody else did it, where it is not.
        if self.committer.is_log_long() {
            self.end_generation(gathering, &mut ended);
        }
    }

    fn end_generation(&self, gathering: &Gathering, ended: &mut Ended) {
        let generation = self.log.swap(&mut ended.spares);
        self.committer.note_swap();
        gathering
            .ended_bytes
            .fetch_add(generation.bytes(), Ordering::Relaxed);
        ended.generations.push_back(generation);
    }

    /// Takes in what has ended, and a log that has grown long.
    fn gather(&self, gathering: &Gathering) {
        self.end_long_generation(gathering);
        while self.health.failure().is_none() && self.gather_one(gathering) {
            self.end_long_generation(gathering);
        }
    }

    /// Takes in the oldest generation that has ended; false when there is none.
    pub(crate) fn gather_one(&self, gathering: &Gathering) -> bool {
        let mut parts = gathering.parts.lock();
        let guard = &crossbeam_epoch::pin();
        let Some(generation) = self.next_ended(gathering) else {
            return false;
        };
        let has_room = self.has_room(gathering, &mut parts.open, generation.length(), guard);
        if !has_room {
            let full = std::mem::take(&mut parts.open);
            parts.full.push_back(full);
            gathering.note_parts(&parts);
        }
        self.take_in(gathering, &mut parts.open, generation, guard);
        drop(parts);
        if !has_room {
            self.committer.wake();
        }
        true
    }

    /// The oldest part that is full. Under `ns.commit`.
    pub(crate) fn take_full_part(&self, gathering: &Gathering) -> Option<Gathered> {
        let mut parts = gathering.parts.lock();
        let oldest = parts.full.pop_front();
        gathering.note_parts(&parts);
        oldest
    }

    /// What a commit that `wanted` is to be durable after has to take next: all that has ended, and
    /// the log where `wanted` has not, or as much of it as the store can take at once. Under
    /// `ns.commit`, whose spares are for stores whose batches are not limited.
    pub(crate) fn take_part(&self, wanted: u64, spares: &mut Spares, guard: &Guard) -> Gathered {
        let Some(gathering) = &self.committer.gathering else {
            let mut generation = self.log.swap(spares);
            self.committer.note_swap();
            let mut all = Gathered::default();
            for run in all.take_in(&mut generation, None, &self.inodes, guard) {
                self.store.forget_data(*run);
            }
            spares.put(generation.parts);
            return all;
        };
        let mut parts = gathering.parts.lock();
        if let Some(full) = parts.full.pop_front() {
            gathering.note_parts(&parts);
            return full;
        }
        let mut ended = gathering.ended.lock();
        let newest = ended.generations.back();
        if newest.map_or(parts.open.number, |newest| newest.number) < wanted {
            self.end_generation(gathering, &mut ended);
        }
        drop(ended);
        while let Some(length) = gathering.next_length()
            && self.has_room(gathering, &mut parts.open, length, guard)
            && let Some(generation) = self.next_ended(gathering)
        {
            self.take_in(gathering, &mut parts.open, generation, guard);
        }
        if gathering.next_length().is_some() {
            // What is left is for the thread, if for no further round of this commit.
            gathering.wakeup().wake();
        }
        std::mem::take(&mut parts.open)
    }

    /// Takes the oldest generation that has ended out of the queue. Under `ns.gathered`.
    fn next_ended(&self, gathering: &Gathering) -> Option<Generation> {
        let mut ended = gathering.ended.lock();
        let oldest = ended.generations.pop_front()?;
        gathering
            .ended_bytes
            .fetch_sub(oldest.bytes(), Ordering::Relaxed);
        Some(oldest)
    }

    fn take_in(
        &self,
        gathering: &Gathering,
        gathered: &mut Gathered,
        mut generation: Generation,
        guard: &Guard,
    ) {
        let sizing = self.sizing(gathering);
        for run in gathered.take_in(&mut generation, Some(&sizing), &self.inodes, guard) {
            self.store.forget_data(*run);
        }
        gathering.ended.lock().spares.put(generation.parts);
    }

    /// Whether so many records can be committed together with what was gathered.
    fn has_room(
        &self,
        gathering: &Gathering,
        gathered: &mut Gathered,
        more: usize,
        guard: &Guard,
    ) -> bool {
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
