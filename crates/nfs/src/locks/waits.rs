//! Locks that clients wait for.
//!
//! # Life of a wait
//! A LOCK that is to wait and cannot be granted is answered BLOCKED, and no thread waits: the
//! namespace says when it is granted ([`Namespace::lock_later`] through the outbox), and the client
//! is called (GRANTED). What ends a wait takes it out of the table, and only who has taken it out
//! acts on it:
//!
//! | what | then |
//! |---|---|
//! | the client says that it has the grant | the lock is its |
//! | it asks again, and has it | the lock is its; it is told so by the reply |
//! | it does not want it any more, or cannot be reached for [`KEPT`] without asking | unlocked |
//! | it cancels | taken back, or unlocked |
//! | it is gone (FREE_ALL, NSM) | its locks go with it |
//!
//! [`Namespace::lock_later`]: finefs_namespace::OwnerLocks::lock_later

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use finefs_locks::Mutex;
use finefs_namespace::{LockKind, PendingLock};

use super::hosts::File;
use crate::classes;

/// How long a grant is kept for a client that cannot be called and does not ask. Linux asks every
/// 30 seconds.
pub(super) const KEPT: Duration = Duration::from_secs(120);
/// The most waits of one owner, and of all.
const OF_OWNER_MAX: usize = 64;
const WAITS_MAX: usize = 65536;

/// What is waited for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub owner: u64,
    pub file: File,
    pub range: Range<u64>,
    pub is_exclusive: bool,
}

impl Key {
    pub(super) fn new(owner: u64, file: File, range: &Range<u64>, kind: LockKind) -> Key {
        Key {
            owner,
            file,
            range: range.clone(),
            is_exclusive: kind == LockKind::Exclusive,
        }
    }
}

/// A wait.
pub(super) struct Wait {
    /// The lock as the client named it.
    pub lock: Box<[u8]>,
    /// Set once the request stands in the queue.
    pub pending: OnceLock<PendingLock>,
    last: Mutex<Last>,
}

struct Last {
    /// By which the client knows the request.
    cookie: Vec<u8>,
    /// When it asked.
    asked: Instant,
}

impl Wait {
    /// The cookie, and how long ago the client asked.
    pub(super) fn last(&self) -> (Vec<u8>, Duration) {
        let last = self.last.lock();
        (last.cookie.clone(), last.asked.elapsed())
    }

    /// The client asks again.
    pub(super) fn ask_again(&self, cookie: &[u8]) {
        let mut last = self.last.lock();
        last.cookie = cookie.to_vec();
        last.asked = Instant::now();
    }
}

/// All waits, by owner.
pub(super) struct Waits(Mutex<Table>);

#[derive(Default)]
struct Table {
    of_owners: HashMap<u64, HashMap<Key, Arc<Wait>>>,
    /// Of all owners.
    count: usize,
}

impl Waits {
    pub(super) fn new() -> Waits {
        Waits(Mutex::new(&classes::LOCK_WAITS, Table::default()))
    }

    pub(super) fn find(&self, key: &Key) -> Option<Arc<Wait>> {
        let table = self.0.lock();
        table.of_owners.get(&key.owner)?.get(key).cloned()
    }

    /// Enters a wait; `None` when there are too many, or it is there.
    pub(super) fn enter(&self, key: &Key, lock: &[u8], cookie: &[u8]) -> Option<Arc<Wait>> {
        let table = &mut *self.0.lock();
        let of_owner = table.of_owners.get(&key.owner);
        let is_full = |of_owner: &HashMap<Key, Arc<Wait>>| {
            of_owner.contains_key(key) || of_owner.len() >= OF_OWNER_MAX
        };
        if table.count >= WAITS_MAX || of_owner.is_some_and(is_full) {
            return None;
        }
        let last = Last {
            cookie: cookie.to_vec(),
            asked: Instant::now(),
        };
        let wait = Arc::new(Wait {
            lock: lock.into(),
            pending: OnceLock::new(),
            last: Mutex::new(&classes::LOCK_WAIT, last),
        });
        let of_owner = table.of_owners.entry(key.owner).or_default();
        of_owner.insert(key.clone(), Arc::clone(&wait));
        table.count += 1;
        Some(wait)
    }

    /// Takes a wait out; true for the one who has.
    pub(super) fn take_out(&self, key: &Key, wait: &Arc<Wait>) -> bool {
        let table = &mut *self.0.lock();
        let Entry::Occupied(mut of_owner) = table.of_owners.entry(key.owner) else {
            return false;
        };
        let is_there = |there: &Arc<Wait>| Arc::ptr_eq(there, wait);
        if !of_owner.get().get(key).is_some_and(is_there) {
            return false;
        }
        of_owner.get_mut().remove(key);
        if of_owner.get().is_empty() {
            of_owner.remove();
        }
        table.count -= 1;
        true
    }

    /// The waits of an owner.
    pub(super) fn of(&self, owner: u64) -> Vec<(Key, Arc<Wait>)> {
        let table = self.0.lock();
        let of_owner = table.of_owners.get(&owner).into_iter().flatten();
        let of_owner = of_owner.map(|(key, wait)| (key.clone(), Arc::clone(wait)));
        of_owner.collect()
    }
}
