//! [`LockSet`]: the locks that are held on one file, of one sort.
//!
//! # Data model
//! Each lock is in two indexes: by owner and start, to split and merge what an owner has, and by
//! range, to find what conflicts.
//!
//! # Invariants
//! 1. Locks of one owner do not overlap, and two of one kind do not touch.
//! 2. An exclusive lock overlaps no lock of another owner.
//! 3. Both indexes hold the same locks.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use smallvec::SmallVec;

use super::interval_tree::IntervalTree;
use super::{Held, LockKind, Owner};

/// Owners, in ascending order, none twice.
pub(super) type Owners = SmallVec<[Owner; 2]>;

/// See the module's head.
pub(crate) struct LockSet {
    by_owner: BTreeMap<(Owner, u64), (u64, LockKind)>,
    by_range: IntervalTree,
}

/// What a change did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Change {
    /// Somebody else may be able to have what he could not have before.
    pub is_weaker: bool,
    /// Locks that there are more.
    pub added: i64,
}

/// The locks that a change of one range can add, at most: a lock in the middle of another.
pub(super) const ADDED_MAX: u64 = 2;

impl LockSet {
    pub(super) const fn new() -> LockSet {
        LockSet {
            by_owner: BTreeMap::new(),
            by_range: IntervalTree::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    pub(super) fn len(&self) -> u64 {
        self.by_owner.len() as u64
    }

    /// The first lock, by start, that keeps `owner` from having `range`.
    pub(crate) fn conflict(
        &self,
        owner: Owner,
        kind: LockKind,
        range: &Range<u64>,
    ) -> Option<Held> {
        let mut found = None;
        self.by_range
            .visit(range, kind == LockKind::Shared, |held| {
                if held.owner == owner {
                    return ControlFlow::Continue(());
                }
                found = Some(held.clone());
                ControlFlow::Break(())
            });
        found
    }

    /// All that keep `owner` from having `range`.
    pub(super) fn blockers(&self, owner: Owner, kind: LockKind, range: &Range<u64>) -> Owners {
        let mut owners = Owners::new();
        self.by_range
            .visit(range, kind == LockKind::Shared, |held| {
                if held.owner != owner {
                    owners.push(held.owner);
                }
                ControlFlow::Continue(())
            });
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// True when `owner` has all of `range` as `kind`, in one piece.
    pub(super) fn has(&self, owner: Owner, kind: LockKind, range: &Range<u64>) -> bool {
        let before = self
            .by_owner
            .range((owner, 0)..=(owner, range.start))
            .next_back();
        before.is_some_and(|(_, (end, has_kind))| *end >= range.end && *has_kind == kind)
    }

    /// True when `owner` has any part of `range`.
    pub(crate) fn has_any(&self, owner: Owner, range: &Range<u64>) -> bool {
        let last = self
            .by_owner
            .range((owner, 0)..(owner, range.end))
            .next_back();
        last.is_some_and(|(_, (end, _))| *end > range.start)
    }

    /// True when unlocking `range` leaves one lock more: it lies inside one.
    pub(crate) fn is_inside(&self, owner: Owner, range: &Range<u64>) -> bool {
        let before = self
            .by_owner
            .range((owner, 0)..(owner, range.start))
            .next_back();
        before.is_some_and(|(_, (end, _))| *end > range.end)
    }

    /// Makes `range` the owner's, as `kind`, whatever he had there; `None` unlocks it. Nobody else
    /// may have a conflicting lock. Splits and merges as POSIX.1-2024, fcntl(), F_SETLK, has it.
    pub(super) fn set(
        &mut self,
        owner: Owner,
        kind: Option<LockKind>,
        range: &Range<u64>,
    ) -> Change {
        let before = self.by_owner.len() as i64;
        let mut is_weaker = false;
        let mut merged = range.clone();
        // From the last on: those that end before the range do not matter.
        let near: SmallVec<[Held; 4]> = self
            .by_owner
            .range((owner, 0)..=(owner, range.end))
            .rev()
            .take_while(|(_, (end, _))| *end >= range.start)
            .map(|(&(owner, start), &(end, kind))| Held {
                owner,
                kind,
                range: start..end,
            })
            .collect();
        for held in near {
            let old = held.range.clone();
            if Some(held.kind) == kind {
                merged = merged.start.min(old.start)..merged.end.max(old.end);
                self.remove(&held);
            } else if old.start < range.end && range.start < old.end {
                is_weaker |= held.kind == LockKind::Exclusive || kind.is_none();
                self.remove(&held);
                for rest in [old.start..range.start, range.end..old.end] {
                    if rest.start < rest.end {
                        self.insert(Held {
                            range: rest,
                            ..held.clone()
                        });
                    }
                }
            }
        }
        if let Some(kind) = kind {
            self.insert(Held {
                owner,
                kind,
                range: merged,
            });
        }
        Change {
            is_weaker,
            added: self.by_owner.len() as i64 - before,
        }
    }

    /// Drops all that `owner` has.
    pub(super) fn clear(&mut self, owner: Owner) -> Change {
        self.set(owner, None, &(0..u64::MAX))
    }

    fn insert(&mut self, held: Held) {
        self.by_owner
            .insert((held.owner, held.range.start), (held.range.end, held.kind));
        self.by_range.insert(held);
    }

    fn remove(&mut self, held: &Held) {
        self.by_owner.remove(&(held.owner, held.range.start));
        self.by_range.remove(held.range.start, held.owner);
    }

    /// Checks the invariants; gives all locks.
    #[cfg(test)]
    pub(super) fn check(&self) -> Vec<Held> {
        let mut all = Vec::new();
        self.by_range.visit(&(0..u64::MAX), false, |held| {
            all.push(held.clone());
            ControlFlow::Continue(())
        });
        assert_eq!(self.by_range.check(), self.by_owner.len(), "invariant 3");
        for held in &all {
            let key = (held.owner, held.range.start);
            assert_eq!(self.by_owner.get(&key), Some(&(held.range.end, held.kind)));
            for other in all.iter().filter(|other| *other != held) {
                let touch =
                    held.range.start <= other.range.end && other.range.start <= held.range.end;
                let overlap =
                    held.range.start < other.range.end && other.range.start < held.range.end;
                if held.owner == other.owner {
                    assert!(!overlap, "invariant 1");
                    assert!(!touch || held.kind != other.kind, "invariant 1");
                } else {
                    let is_shared = [held.kind, other.kind] == [LockKind::Shared; 2];
                    assert!(!overlap || is_shared, "invariant 2");
                }
            }
        }
        all
    }
}
