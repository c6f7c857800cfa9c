//! Tables that hold a part of their directory's names only.
//!
//! A directory of so many names that they would take a good part of the memory that there is, over
//! a store that finds names one by one, has a *partial* table: a name that is not in it may be in
//! the store. A lookup that does not find a name has it learned
//! ([`Namespace::learn`](crate::namespace::Namespace)): from then on until the operation ends, what
//! the table says of the name is true, since names leave a partial table only while no operation
//! runs. So each operation looks for a name before it locks the name's bucket. A name that is found
//! costs no more than in a whole table.
//!
//! # What is in a partial table
//! Each name that was changed and whose change is not on the store, as it is now: a name that was
//! removed stays as an *absent* node. Beside them names that were learned.
//!
//! # From a whole table to a partial one, and back
//! A whole table of which names were removed without a trace cannot become partial at once: the
//! store may have them still. So it first keeps what is removed from then on
//! ([`NameTable::begin_leaving`]), and becomes partial when all that was logged before is on the
//! store. A partial table all whose names were learned is whole ([`NameTable::become_whole`]).
//!
//! # Invariants
//! 1. `coverage` changes while no operation runs, but for what makes a table whole.
//! 2. In a table that is not whole a node's stamp is that of the generation of its last change, or
//!    a later one; of what was changed before it began to leave, and of what was learned, it is
//!    [`ChangedIn::STORED`].
//! 3. The holder of a bucket of a table that is whole learns nothing into it.

use crossbeam_epoch::Guard;
use finefs_locks::primitive::atomic::Ordering;

use super::chain::{DEAD, Node};
use super::changed_in::ChangedIn;
use super::{BUCKETS_MIN, HashedName, LockedBucket, NameTable, Special, Table};
use crate::base::types::{FileKind, Ino};

/// In `coverage`: there may be names that are not here.
const PARTIAL: u64 = 1;
/// In `coverage`: what is removed stays as absent.
const KEEPS_ABSENT: u64 = 2;
/// In `coverage`: there may be absent names.
const HAS_ABSENT: u64 = 4;
/// Where in `coverage` the generation stands since which what is removed stays.
const GENERATION_AT: u32 = 3;

/// Which names of its directory a table has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coverage {
    /// All.
    Whole,
    /// All, and what was removed after a generation.
    Leaving(u64),
    /// Some.
    Partial,
}

/// What a table knows of a name.
pub(crate) enum Known<'g> {
    /// It is there.
    Named(&'g Node),
    /// It is not there.
    Absent,
    /// The store tells.
    Unknown,
}

impl NameTable {
    /// A table without names, of a directory whose names are on the store. Before anybody shares
    /// it.
    pub fn partial(self) -> NameTable {
        self.become_partial();
        self
    }

    /// 0 for a whole one.
    #[inline]
    fn coverage_word(&self) -> u64 {
        let special = self.special.get();
        special.map_or(0, |special| special.coverage.load(Ordering::Acquire))
    }

    fn set_coverage(&self, coverage: u64) {
        let special = self.special.get_or_make(Special::default);
        special.coverage.store(coverage, Ordering::Release);
    }

    /// Which names it has.
    pub fn coverage(&self) -> Coverage {
        let coverage = self.coverage_word();
        match coverage & (PARTIAL | KEEPS_ABSENT) {
            0 => Coverage::Whole,
            KEEPS_ABSENT => Coverage::Leaving(coverage >> GENERATION_AT),
            _ => Coverage::Partial,
        }
    }

    /// True where names that are not here may be on the store.
    #[inline]
    pub fn is_partial(&self) -> bool {
        self.coverage_word() & PARTIAL != 0
    }

    pub(super) fn keeps_absent(&self) -> bool {
        self.coverage_word() & KEEPS_ABSENT != 0
    }

    /// Keeps what is removed from now on; until now the log is in this generation. While no
    /// operation runs.
    pub fn begin_leaving(&self, generation: u64) {
        let coverage = KEEPS_ABSENT | HAS_ABSENT | generation << GENERATION_AT;
        self.set_coverage(coverage);
    }

    /// Names may be left to the store from now on, which has all changes of before it kept what is
    /// removed. While no operation runs.
    pub fn become_partial(&self) {
        let coverage = PARTIAL | KEEPS_ABSENT | HAS_ABSENT;
        self.set_coverage(coverage);
    }

    /// All names that the store has were found to be known.
    pub fn become_whole(&self) {
        self.set_coverage(HAS_ABSENT);
    }

    /// What is known of a name. Takes no lock.
    pub fn known<'g>(&self, name: HashedName<'_>, guard: &'g Guard) -> Known<'g> {
        let is_partial = self.is_partial();
        match self.find_any(name, guard) {
            Some(node) if node.is_absent() => Known::Absent,
            Some(node) => Known::Named(node),
            None if is_partial => Known::Unknown,
            None => Known::Absent,
        }
    }

    /// The node of a name that is known to be absent, in its bucket.
    pub(super) fn absent<'g>(
        &self,
        held: &LockedBucket<'_>,
        name: HashedName<'_>,
        guard: &'g Guard,
    ) -> Option<&'g Node> {
        let may_be = self.coverage_word() & HAS_ABSENT != 0;
        let head = held.bucket.head(guard);
        may_be.then(|| held.bucket.find(head, name, guard))?
    }

    /// Puts a name that the store has into its bucket, which the caller holds, unless something is
    /// known of it by now. True when the table wants to grow.
    #[must_use]
    pub fn learn(
        &self,
        held: &LockedBucket<'_>,
        name: HashedName<'_>,
        (ino, kind): (Ino, Option<FileKind>),
        guard: &Guard,
    ) -> bool {
        let head = held.bucket.head(guard);
        if !self.is_partial() || held.bucket.find(head, name, guard).is_some() {
            return false;
        }
        held.bucket
            .insert(name, ino, kind, ChangedIn::STORED, guard);
        self.is_long(held.bucket, guard)
    }

    /// Leaves names to the store that it has, of so many buckets from one on; gives the bucket to
    /// go on with. `committed` is the newest generation that the store has. While no operation
    /// runs.
    pub fn shed(&self, first: usize, count: usize, committed: u64, guard: &Guard) -> Option<usize> {
        let table = self.current(guard);
        let end = (first + count).min(table.count());
        if !self.is_partial() || table.bucket(0).head(guard).tag() & DEAD != 0 {
            return None;
        }
        for index in first..end {
            let stays = |stamp: ChangedIn| !stamp.is_stored(committed);
            table.bucket(index).retain(stays, guard);
        }
        (end < table.count()).then_some(end)
    }

    /// Gives buckets back that the names which are left do not need. While no operation runs.
    pub fn shrink(&self, guard: &Guard) {
        let _resize = self.resize.lock();
        let old = self.current(guard);
        let names: usize = old.buckets().map(|bucket| bucket.length() as usize).sum();
        let count = (names / 2).next_power_of_two().max(BUCKETS_MIN);
        if count >= old.count() || old.bucket(0).head(guard).tag() & DEAD != 0 {
            return;
        }
        let new = Table::new(count);
        for (index, bucket) in old.buckets().enumerate() {
            let to = new.bucket(index * count / old.count());
            let version = bucket.version.load(Ordering::Relaxed);
            to.version.fetch_max(version, Ordering::Relaxed);
            bucket.leave_to(to, guard);
        }
        self.replace_table(old, new, guard);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crossbeam_epoch::pin;

    /// What is not stored stays, removed names too; the rest can be learned again.
    #[test]
    fn names_are_left_to_the_store_and_learned_again() {
        const COUNT: u64 = 1000;
        let dir = Ino(2);
        let guard = &pin();
        let table = NameTable::new([1, 2]);
        let name_of = |number: u64| format!("name {number}");
        let change = |number: u64, generation: Option<u64>| {
            let text = name_of(number);
            let name = table.hashed(text.as_bytes());
            let held = table.lock(dir, name, guard).unwrap();
            held.note_generation(|| generation.unwrap());
            match held.find(name, guard) {
                Some(node) => held.remove(node, guard),
                None => {
                    _ = table.insert(&held, name, Ino(number + 10), FileKind::Regular, guard);
                }
            }
            drop(held);
            table.grow(dir, guard);
        };
        (0..COUNT).for_each(|number| change(number, None));
        table.begin_leaving(5);
        assert_eq!(table.coverage(), Coverage::Leaving(5));
        // Removed, and removed and made again, in a generation that is not stored.
        change(1, Some(6));
        (0..2).for_each(|_| change(2, Some(6)));
        table.become_partial();
        let buckets = table.current(guard).count();
        let mut at = Some(0);
        while let Some(first) = at {
            at = table.shed(first, 7, 5, guard);
        }
        table.shrink(guard);
        assert!(table.current(guard).count() < buckets);
        let known = |number: u64| {
            let text = name_of(number);
            match table.known(table.hashed(text.as_bytes()), guard) {
                Known::Named(node) => node.ino.0,
                Known::Absent => 0,
                Known::Unknown => u64::MAX,
            }
        };
        assert_eq!([0, 1, 2, 3].map(known), [u64::MAX, 0, 12, u64::MAX]);
        // What is known is not learned: what the store said may be older.
        for number in 0..4 {
            let text = name_of(number);
            let name = table.hashed(text.as_bytes());
            let held = table.lock(dir, name, guard).unwrap();
            _ = table.learn(&held, name, (Ino(99), None), guard);
        }
        assert_eq!([0, 1, 2, 3].map(known), [99, 0, 12, 99]);
        table.shed(0, usize::MAX / 2, 6, guard);
        assert_eq!([0, 1, 2, 3].map(known), [u64::MAX; 4]);
        assert!(table.seems_empty(guard));
    }
}
