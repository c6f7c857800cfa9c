//! References on an inode, counted so that CPUs which use one inode do not pass its line around.
//!
//! # Data model
//! [`References`] is two words of the inode.
//! - `life`: the count, with the bits UNLINKED, GONE, EVICTED and IDLE.
//! - `sharing`: how often references were taken on another CPU than the time before, with that CPU;
//!   or, with SPLIT, the [`SplitCount`] in which each CPU counts for itself.
//!
//! # Protocol
//! An inode on which the CPUs take references by turns is *split* (`InodeTable::split_references`):
//! `life` gets BIAS on top of its count, and from then on a reference is taken or given back by
//! adding to this CPU's part. A thread that finds the part closed, or full, counts in `life`, which
//! is right at any time: the references are what is in `life`, without BIAS, and in the parts. Each
//! of these may be negative, their sum is not.
//!
//! It ends when somebody wants to know whether there is a reference ([`References::join`]): the
//! parts are closed one after the other and summed, and the sum goes into `life` while BIAS leaves
//! it, in one step. Until then BIAS keeps everybody from finding `life` without references; from
//! then on `life` is exact. So an inode is joined before its last name goes, which is the moment
//! from which the last reference matters; before inodes are evicted; at the end of the mount; and
//! when another inode needs the room, of which there is for
//! [`SPLIT_COUNTS_MAX`](finefs_locks::SPLIT_COUNTS_MAX) inodes of a file system.
//!
//! # Eviction
//! An inode that has a name leaves memory whether it is referred to or not: the slot of the inode
//! table keeps the count ([`References::evict`]), and a load of the inode begins with it. IDLE is
//! the clock's bit: the hand sets it, and the next use of the inode takes it away.
//!
//! # Invariants
//! 1. GONE is set under the inode's lock: from zero references, or with EVICTED; and stays. Of a
//!    cell that was never loaded, which has no lock, it is set with EVICTED.
//! 2. An inode becomes split, and stops being so, under its lock, and is not split while UNLINKED
//!    or GONE is set. So a thread that adds to a part of it has a reference.
//! 3. While a count is open one inode has it in `sharing`, and BIAS in `life`; or the thread that
//!    opened it is about to put it there or to close it.
//!
//! # Locking
//! Taking and giving back take no lock. To split takes the inode's lock, and is done by operations
//! that hold no lock of its level or above: open and lookup.
//!
//! References: Linux `lib/percpu-refcount.c`, whose PERCPU_COUNT_BIAS this is; Clements et al.,
//! "RadixVM" (2013), Refcache.

use finefs_locks::primitive::atomic::{AtomicU64, Ordering};
use finefs_locks::{MutexGuard, SplitCount, SplitCounts, cpu};

use crate::inode::Guarded;

/// Set in `life` when the inode is freed or evicted: it takes no reference any more.
const GONE: u64 = 1 << 63;
/// Set in `life` when the last name went; the last reference then frees the inode.
const UNLINKED: u64 = 1 << 62;
/// Set in `life`, with GONE, when a clean inode was put out of memory: load it again.
const EVICTED: u64 = 1 << 61;
/// Set in `life` when the hand of the clock has passed, and nobody has used the inode since.
const IDLE: u64 = 1 << 60;
const REFERENCES: u64 = IDLE - 1;
/// In `life` while the count is split: more than all references together.
const BIAS: u64 = 1 << 59;

/// Set in `sharing` when the rest of it is a [`SplitCount`]. Else its lower half is the CPU that
/// took a reference last, plus 1, and its upper half counts how often that was another one than
/// before.
const SPLIT: u64 = 1 << 63;
const CPU_BITS: u32 = 32;

/// Turns after which a count is split: enough that a file which is used now and then is not.
const TURNS: u64 = if cfg!(any(test, feature = "shuttle")) {
    2
} else {
    64
};

/// See the module's head.
pub(crate) struct References {
    life: AtomicU64,
    sharing: AtomicU64,
}

/// What came of taking a reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Referred {
    /// The inode is gone: there is none.
    Gone,
    /// It is held.
    Held,
    /// The same, and its count should be split.
    HeldByTurns,
}

impl References {
    /// Of an inode of which `count` were given out.
    pub fn new(count: u64) -> References {
        References {
            life: AtomicU64::new(count),
            sharing: AtomicU64::new(u64::from(this_cpu())),
        }
    }

    /// Takes a reference.
    #[inline]
    pub fn refer(&self, counts: &SplitCounts) -> Referred {
        let sharing = self.sharing.load(Ordering::Acquire);
        if sharing & SPLIT != 0 && counts.add(SplitCount::from_bits(sharing), 1) {
            return Referred::Held;
        }
        if self.life.fetch_add(1, Ordering::AcqRel) & GONE != 0 {
            self.life.fetch_sub(1, Ordering::AcqRel);
            return Referred::Gone;
        }
        if sharing as u32 == this_cpu() {
            return Referred::Held;
        }
        self.note_turn(sharing)
    }

    /// This reference was taken on another CPU than the one before.
    #[cold]
    fn note_turn(&self, sharing: u64) -> Referred {
        if sharing & SPLIT != 0 {
            return Referred::Held;
        }
        let turns = (sharing >> CPU_BITS) + 1;
        let noted = (turns % TURNS) << CPU_BITS | u64::from(this_cpu());
        // Another thread that writes it has noted as much, or has split the count.
        let _ = self
            .sharing
            .compare_exchange(sharing, noted, Ordering::Relaxed, Ordering::Relaxed);
        match turns == TURNS {
            true => Referred::HeldByTurns,
            false => Referred::Held,
        }
    }

    /// Gives `count` references back; true when none is left and the last name is gone, so that
    /// the inode is to be freed.
    #[must_use]
    #[inline]
    pub fn release(&self, counts: &SplitCounts, count: u64) -> bool {
        let sharing = self.sharing.load(Ordering::Acquire);
        if sharing & SPLIT != 0
            && let Ok(amount) = i32::try_from(count)
            && counts.add(SplitCount::from_bits(sharing), -amount)
        {
            // The inode has a name: see invariant 2.
            return false;
        }
        let before = self.life.fetch_sub(count, Ordering::AcqRel);
        debug_assert!(
            before & REFERENCES >= count,
            "more references given back than taken"
        );
        before & (UNLINKED | REFERENCES) == UNLINKED | count
    }

    /// Splits the count; false when it is not to be: the inode has no name any more, or its count
    /// is split.
    pub fn split(&self, count: SplitCount, _evidence: &MutexGuard<'_, Guarded>) -> bool {
        let is_over = self.life.load(Ordering::Acquire) & (UNLINKED | GONE) != 0;
        if is_over || self.sharing.load(Ordering::Acquire) & SPLIT != 0 {
            return false;
        }
        // First, so that no reference counted in a part is missed in `life`.
        self.life.fetch_add(BIAS, Ordering::AcqRel);
        self.sharing
            .store(SPLIT | count.to_bits(), Ordering::Release);
        true
    }

    /// Makes `life` exact, if the count is split.
    pub fn join(&self, counts: &SplitCounts, _evidence: &MutexGuard<'_, Guarded>) {
        let sharing = self.sharing.load(Ordering::Acquire);
        if sharing & SPLIT == 0 {
            return;
        }
        self.sharing.store(u64::from(this_cpu()), Ordering::Release);
        let sum = counts.close(SplitCount::from_bits(sharing));
        let change = (sum as u64).wrapping_sub(BIAS);
        let before = self.life.fetch_add(change, Ordering::AcqRel);
        debug_assert!(
            (before & REFERENCES) as i64 + sum >= BIAS as i64,
            "more references given back than taken"
        );
    }

    /// True when somebody refers to the inode, or its count is split.
    pub fn any(&self) -> bool {
        self.life.load(Ordering::Acquire) & REFERENCES != 0
    }

    /// True when the inode was freed or evicted, or is to be told that it is used.
    #[inline]
    pub fn want_attention(&self) -> bool {
        self.life.load(Ordering::Acquire) & (GONE | IDLE) != 0
    }

    /// The inode is used.
    pub fn note_use(&self) {
        if self.life.load(Ordering::Relaxed) & IDLE != 0 {
            self.life.fetch_and(!IDLE, Ordering::AcqRel);
        }
    }

    /// True when nobody has used the inode since this was asked last.
    pub fn were_idle(&self) -> bool {
        self.is_idle() || self.life.fetch_or(IDLE, Ordering::AcqRel) & IDLE != 0
    }

    /// True when nobody has used the inode since [`References::were_idle`] was asked.
    pub fn is_idle(&self) -> bool {
        self.life.load(Ordering::Acquire) & IDLE != 0
    }

    /// True when the inode has a name, and its count is not split.
    pub fn may_be_kept_apart(&self) -> bool {
        let life = self.life.load(Ordering::Acquire);
        life & (UNLINKED | GONE) == 0 && life & REFERENCES < BIAS / 2
    }

    /// True when the inode was freed or evicted.
    pub fn are_gone(&self) -> bool {
        self.life.load(Ordering::Acquire) & GONE != 0
    }

    /// True when the inode is only out of memory.
    pub fn are_evicted(&self) -> bool {
        self.life.load(Ordering::Acquire) & EVICTED != 0
    }

    /// The last name goes: true when nobody refers to the inode, which is then gone; else the
    /// last reference will end it.
    pub fn unlink(&self, counts: &SplitCounts, evidence: &MutexGuard<'_, Guarded>) -> bool {
        self.join(counts, evidence);
        let before = self
            .life
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |life| {
                let is_free = life & REFERENCES == 0;
                Some(life | UNLINKED | if is_free { GONE } else { 0 })
            })
            .unwrap_or_else(|life| life);
        before & REFERENCES == 0
    }

    /// A name comes back to an inode that had none (O_TMPFILE).
    pub fn relink(&self, _evidence: &MutexGuard<'_, Guarded>) {
        self.life.fetch_and(!UNLINKED, Ordering::AcqRel);
    }

    /// Ends an unlinked inode that nobody refers to; true for the one caller that does it.
    pub fn end_unlinked(&self, _evidence: &MutexGuard<'_, Guarded>) -> bool {
        let end = |life: u64| (life & !IDLE == UNLINKED).then_some(UNLINKED | GONE);
        self.life
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, end)
            .is_ok()
    }

    /// Forgets all references, as the end of the mount does; true when the inode is to be freed.
    pub fn drop_all(&self, counts: &SplitCounts, evidence: &MutexGuard<'_, Guarded>) -> bool {
        self.join(counts, evidence);
        let before = self.life.fetch_and(!REFERENCES, Ordering::AcqRel);
        before & (UNLINKED | GONE) == UNLINKED
    }

    /// Puts a clean inode out of memory, unless it has no name or its count is split: gives the
    /// references that there are, which the caller keeps. While no operation runs.
    pub fn evict(&self, _evidence: &MutexGuard<'_, Guarded>) -> Option<u64> {
        if !self.may_be_kept_apart() {
            return None;
        }
        Some(self.evict_unloaded())
    }

    /// Puts a cell out of memory that was never loaded, so that nobody can have its lock: gives the
    /// references that there are.
    pub fn evict_unloaded(&self) -> u64 {
        self.life.fetch_or(GONE | EVICTED, Ordering::AcqRel) & REFERENCES
    }
}

/// This CPU as it stands in `sharing`.
#[inline]
fn this_cpu() -> u32 {
    cpu::current() as u32 + 1
}

#[cfg(test)]
mod tests;
