//! [`WaitsFor`]: which process waits for which, to refuse the wait that would close a cycle
//! (EDEADLK).
//!
//! # Data model
//! A process waits by its requests; each knows its blockers, the owners of all locks that keep it
//! from being granted. So the edges stand in the waiters, and are kept up to date by each thread
//! that changes the locks of the waiter's file, without the graph's lock. The graph only finds the
//! waiters of an owner. Owners of OFD locks have no outgoing edges: as in Linux their deadlocks are
//! not looked for.
//!
//! # Why a cycle is found if and only if there is one
//! 1. A cycle can be closed only by a request that begins to wait: an owner that gets a lock, and
//!    with it edges towards itself, runs; it has no edge of its own.
//! 2. Requests begin to wait one at a time, under the graph's lock, with all their blockers.
//! 3. The search sees each waiter at a moment of its own. Let it find a path from the request's
//!    blockers to its owner. None of the owners on the path runs: each waits since before the
//!    search, because beginning to wait takes the graph's lock. So none of them gave back a lock
//!    meanwhile, and the edges that the search saw one after the other were there together.
//!
//! An owner whose threads wait and run side by side can break the last step: with it, as in Linux,
//! EDEADLK may be said of a wait that another thread would have ended (fcntl(2), "the
//! deadlock-detection algorithm employed by the kernel ... can yield false positives").
//!
//! # Locking
//! One lock for the file system, like Linux's `blocked_lock_lock`. A request that is granted at
//! once, a refusal, an unlock and the grant of a waiting request do not take it; only a process
//! that must sleep takes it, before and after.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use finefs_locks::Mutex;
use smallvec::SmallVec;

use super::Owner;
use super::waiter::Waiter;
use crate::base::classes;

/// See the module's head.
pub(crate) struct WaitsFor {
    waiters: Mutex<HashMap<Owner, SmallVec<[Arc<Waiter>; 1]>>>,
}

impl WaitsFor {
    pub(crate) fn new() -> WaitsFor {
        WaitsFor {
            waiters: Mutex::new(&classes::LOCK_GRAPH, HashMap::new()),
        }
    }

    /// Enters a request that begins to wait; false, and nothing entered, when that closes a cycle.
    #[must_use]
    pub(super) fn enter(&self, waiter: &Arc<Waiter>) -> bool {
        let mut waiters = self.waiters.lock();
        let mut seen: HashSet<Owner> = HashSet::new();
        let mut to_visit = waiter.blockers();
        while let Some(owner) = to_visit.pop() {
            if owner == waiter.owner {
                return false;
            }
            if !seen.insert(owner) {
                continue;
            }
            for next in waiters.get(&owner).into_iter().flatten() {
                to_visit.extend(next.blockers());
            }
        }
        waiters
            .entry(waiter.owner)
            .or_default()
            .push(Arc::clone(waiter));
        true
    }

    /// Takes out a request that waits no more.
    pub(crate) fn leave(&self, waiter: &Arc<Waiter>) {
        let mut waiters = self.waiters.lock();
        if let Some(own) = waiters.get_mut(&waiter.owner) {
            own.retain(|other| !Arc::ptr_eq(other, waiter));
            if own.is_empty() {
                waiters.remove(&waiter.owner);
            }
        }
        // The last one to sleep takes the memory along.
        if waiters.is_empty() {
            *waiters = HashMap::new();
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.lock().is_empty()
    }
}
