//! The queue of a range lock: all requests, granted and waiting, in the order of their arrival.
//!
//! # Invariants
//! 1. `blockers` of an entry is the number of entries before it that conflict with it.
//! 2. An entry is granted if and only if its `blockers` is 0. Once granted it stays granted: `blockers`
//!    never rises, since entries are added only at the end and change only to conflict with less.
//!
//! So conflicting requests are granted in the order of their arrival, and an entry is granted exactly
//! when the last one in its way leaves.

use std::ops::Range;

use crate::primitive::{Arc, Condvar};

/// Names an entry of one queue.
pub(super) type EntryId = u64;

/// The entry of a holder that came by the fast path.
pub(super) const FAST_ENTRY: EntryId = 0;

/// Shared or exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Read,
    Write,
}

#[derive(Debug)]
struct Entry {
    id: EntryId,
    range: Range<u64>,
    access: Access,
    blockers: u32,
    /// Notified when `blockers` becomes 0. Set for entries that had to wait.
    granted: Option<Arc<Condvar>>,
}

impl Entry {
    fn conflicts_with(&self, range: &Range<u64>, access: Access) -> bool {
        let is_shared = self.access == Access::Read && access == Access::Read;
        !is_shared && overlaps(&self.range, range)
    }
}

/// True when the ranges have an offset in common. An empty range overlaps nothing.
pub(super) fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: Vec<Entry>,
    last_id: EntryId,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of entries that a new request would have to wait for.
    pub(super) fn blockers(&self, range: &Range<u64>, access: Access) -> u32 {
        self.entries
            .iter()
            .filter(|entry| entry.conflicts_with(range, access))
            .count() as u32
    }

    /// Adds a request at the end. It is granted at once if it has no blockers.
    pub(super) fn push(&mut self, range: Range<u64>, access: Access) -> EntryId {
        let blockers = self.blockers(&range, access);
        self.last_id += 1;
        let id = self.last_id;
        self.entries.push(Entry {
            id,
            range,
            access,
            blockers,
            granted: None,
        });
        id
    }

    /// Adds the holder that came by the fast path, as the first entry.
    pub(super) fn push_fast(&mut self, range: Range<u64>, access: Access) {
        debug_assert!(self.entries.is_empty(), "a fast holder is alone");
        self.entries.push(Entry {
            id: FAST_ENTRY,
            range,
            access,
            blockers: 0,
            granted: None,
        });
    }

    pub(super) fn is_granted(&self, id: EntryId) -> bool {
        self.entries[self.position(id)].blockers == 0
    }

    /// Sets whom to notify when the entry is granted.
    pub(super) fn notify_when_granted(&mut self, id: EntryId, condvar: Arc<Condvar>) {
        let position = self.position(id);
        self.entries[position].granted = Some(condvar);
    }

    /// The least offset from which the entries may yet cut off or append to the file: the start of
    /// the first exclusive range that reaches to the end.
    pub(super) fn write_to_end_min(&self) -> u64 {
        let to_end = |entry: &&Entry| entry.access == Access::Write && entry.range.end == u64::MAX;
        self.entries
            .iter()
            .filter(to_end)
            .map(|entry| entry.range.start)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Removes an entry, granted or not, and grants those that waited for nothing else.
    pub(super) fn remove(&mut self, id: EntryId) {
        let position = self.position(id);
        let removed = self.entries.remove(position);
        for later in &mut self.entries[position..] {
            if later.conflicts_with(&removed.range, removed.access) {
                later.unblock();
            }
        }
    }

    /// Changes a granted entry to a part of its range or from exclusive to shared, and grants those that
    /// waited for nothing else.
    pub(super) fn reduce(&mut self, id: EntryId, range: Range<u64>, access: Access) {
        let position = self.position(id);
        let (before, after) = self.entries.split_at_mut(position + 1);
        let Some(entry) = before.last_mut() else {
            return;
        };
        debug_assert_eq!(entry.blockers, 0, "only who holds the range changes it");
        debug_assert!(range.is_empty() || entry.range.start <= range.start);
        debug_assert!(range.is_empty() || range.end <= entry.range.end);
        debug_assert!(access == entry.access || access == Access::Read);
        for later in after {
            if later.conflicts_with(&entry.range, entry.access)
                && !later.conflicts_with(&range, access)
            {
                later.unblock();
            }
        }
        entry.range = range;
        entry.access = access;
    }

    fn position(&self, id: EntryId) -> usize {
        let position = self.entries.iter().position(|entry| entry.id == id);
        position.expect("an entry stays until its owner removes it")
    }
}

impl Entry {
    fn unblock(&mut self) {
        self.blockers -= 1;
        if self.blockers == 0
            && let Some(condvar) = &self.granted
        {
            condvar.notify_one();
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_ranges_overlap_nothing() {
        assert!(!overlaps(&(5..5), &(0..10)));
        assert!(!overlaps(&(0..10), &(5..5)));
        assert!(overlaps(&(0..10), &(9..20)));
        assert!(!overlaps(&(0..10), &(10..20)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(Range<u64>, Access),
        Remove(usize),
        Reduce(usize, Range<u64>),
        Downgrade(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let range = || (0..12_u64, 0..6_u64).prop_map(|(start, length)| start..start + length);
        let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
        prop_oneof![
            4 => (range(), access).prop_map(|(range, access)| Step::Push(range, access)),
            3 => any::<usize>().prop_map(Step::Remove),
            1 => (any::<usize>(), range()).prop_map(|(which, range)| Step::Reduce(which, range)),
            1 => any::<usize>().prop_map(Step::Downgrade),
        ]
    }

    /// The rule itself: granted is who conflicts with nobody before.
    fn granted_by_rule(entries: &[(EntryId, Range<u64>, Access)]) -> Vec<EntryId> {
        let has_common = |a: &Range<u64>, b: &Range<u64>| a.clone().any(|at| b.contains(&at));
        let conflict =
            |(_, range, access): &(EntryId, Range<u64>, Access),
             (_, other, other_access): &(EntryId, Range<u64>, Access)| {
                (*access == Access::Write || *other_access == Access::Write)
                    && has_common(range, other)
            };
        (0..entries.len())
            .filter(|&i| {
                !entries[..i]
                    .iter()
                    .any(|before| conflict(before, &entries[i]))
            })
            .map(|i| entries[i].0)
            .collect()
    }

    fn any_granted(
        model: &mut [(EntryId, Range<u64>, Access)],
        which: usize,
    ) -> &mut (EntryId, Range<u64>, Access) {
        let granted = granted_by_rule(model);
        let id = granted[which % granted.len()];
        model
            .iter_mut()
            .find(|entry| entry.0 == id)
            .expect("granted entries are entries")
    }

    proptest! {
        #[test]
        fn grants_follow_the_rule(steps in prop::collection::vec(any_step(), 1..50)) {
            let mut queue = Queue::default();
            let mut model: Vec<(EntryId, Range<u64>, Access)> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(range, access) => {
                        let id = queue.push(range.clone(), access);
                        model.push((id, range, access));
                    }
                    Step::Remove(which) if !model.is_empty() => {
                        let (id, ..) = model.remove(which % model.len());
                        queue.remove(id);
                    }
                    Step::Reduce(which, to) if !model.is_empty() => {
                        let (id, range, access) = any_granted(&mut model, which);
                        let start = to.start.clamp(range.start, range.end);
                        *range = start..to.end.clamp(start, range.end);
                        queue.reduce(*id, range.clone(), *access);
                    }
                    Step::Downgrade(which) if !model.is_empty() => {
                        let (id, range, access) = any_granted(&mut model, which);
                        *access = Access::Read;
                        queue.reduce(*id, range.clone(), *access);
                    }
                    Step::Remove(_) | Step::Reduce(..) | Step::Downgrade(_) => {}
                }
                let granted = |(id, ..): &&(EntryId, Range<u64>, Access)| queue.is_granted(*id);
                let granted: Vec<_> = model.iter().filter(granted).map(|entry| entry.0).collect();
                prop_assert_eq!(granted, granted_by_rule(&model));
            }
        }
    }

    #[test]
    fn a_request_does_not_pass_one_that_it_conflicts_with() {
        let mut queue = Queue::default();
        let reader = queue.push(0..10, Access::Read);
        let writer = queue.push(0..10, Access::Write);
        let late_reader = queue.push(5..6, Access::Read);
        let aside = queue.push(10..20, Access::Write);
        let grants = |queue: &Queue| {
            [reader, writer, late_reader].map(|id| {
                queue
                    .entries
                    .iter()
                    .any(|entry| entry.id == id && entry.blockers == 0)
            })
        };
        assert_eq!(grants(&queue), [true, false, false]);
        assert!(queue.is_granted(aside));
        queue.remove(reader);
        assert_eq!(grants(&queue), [false, true, false]);
        queue.reduce(writer, 0..5, Access::Write);
        assert_eq!(grants(&queue), [false, true, true]);
    }
}
