//! The threads that are waiting now: for what, since when, in the order of arrival.
//!
//! # Protocol
//! Each thread has a [`WaitRecord`], written by it alone under a sequence number: odd while it
//! changes, so that a reader that meets a change takes the record for empty. What is read is data
//! for people; the locks do not depend on it.

use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use crate::Kind;
use crate::class::LockClass;
use crate::clock::now_ns;
use crate::events::{Queue, Waiter};
use crate::registry::ThreadRecord;

/// The waiters, by lock, longest queue first. A report, not a consistent state: threads come and go
/// while it is made.
///
/// ```
/// for queue in finefs_lockmeter::waiting().iter().filter(|queue| queue.waiters.len() > 2) {
///     println!("{queue}");
/// }
/// ```
pub fn waiting() -> Vec<Queue> {
    crate::registry::waiting()
}

/// What a thread waits for. A lock of 0: nothing.
pub(crate) struct WaitRecord {
    sequence: AtomicU32,
    lock: AtomicUsize,
    class: AtomicPtr<LockClass>,
    location: AtomicPtr<Location<'static>>,
    since_ns: AtomicU64,
    kind: AtomicU32,
}

/// One consistent reading.
pub(crate) struct Wait {
    pub(crate) lock: usize,
    pub(crate) class: &'static LockClass,
    pub(crate) location: &'static Location<'static>,
    pub(crate) since_ns: u64,
    pub(crate) kind: Kind,
}

impl WaitRecord {
    pub(crate) fn new() -> WaitRecord {
        WaitRecord {
            sequence: AtomicU32::new(0),
            lock: AtomicUsize::new(0),
            class: AtomicPtr::new(ptr::null_mut()),
            location: AtomicPtr::new(ptr::null_mut()),
            since_ns: AtomicU64::new(0),
            kind: AtomicU32::new(0),
        }
    }

    pub(crate) fn set(&self, wait: &Wait) {
        self.change(|| {
            self.class
                .store(ptr::from_ref(wait.class).cast_mut(), Ordering::Relaxed);
            self.location
                .store(ptr::from_ref(wait.location).cast_mut(), Ordering::Relaxed);
            self.since_ns.store(wait.since_ns, Ordering::Relaxed);
            self.kind.store(wait.kind as u32, Ordering::Relaxed);
            self.lock.store(wait.lock, Ordering::Relaxed);
        });
    }

    pub(crate) fn clear(&self) {
        self.change(|| self.lock.store(0, Ordering::Relaxed));
    }

    fn change(&self, fields: impl FnOnce()) {
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence
            .store(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        fields();
        self.sequence
            .store(before.wrapping_add(2), Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<Wait> {
        let before = self.sequence.load(Ordering::Acquire);
        let lock = self.lock.load(Ordering::Relaxed);
        let class = self.class.load(Ordering::Relaxed);
        let location = self.location.load(Ordering::Relaxed);
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        let kind = self.kind.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let after = self.sequence.load(Ordering::Relaxed);
        if before != after || !before.is_multiple_of(2) || lock == 0 {
            return None;
        }
        Some(Wait {
            lock,
            // SAFETY: `set` alone stores here, and only addresses of `'static` values that are
            // never written; a lock that is not 0 says that it has.
            class: unsafe { class.as_ref() }?,
            // SAFETY: as above.
            location: unsafe { location.as_ref() }?,
            since_ns,
            kind: if kind == Kind::Reader as u32 {
                Kind::Reader
            } else {
                Kind::Writer
            },
        })
    }
}

pub(crate) fn queues(threads: &[Arc<ThreadRecord>]) -> Vec<Queue> {
    let now = now_ns();
    let mut waits: Vec<(Wait, &ThreadRecord)> = threads
        .iter()
        .filter_map(|thread| Some((thread.waiting.get()?, &**thread)))
        .collect();
    waits.sort_by_key(|(wait, _)| (wait.lock, ptr::from_ref(wait.class).addr(), wait.since_ns));
    let mut queues: Vec<Queue> = waits
        .chunk_by(|(a, _), (b, _)| a.lock == b.lock && ptr::eq(a.class, b.class))
        .map(|queue| Queue {
            class: queue[0].0.class.name().to_owned(),
            lock: queue[0].0.lock,
            waiters: queue
                .iter()
                .map(|(wait, thread)| Waiter {
                    thread: thread.name.clone(),
                    thread_id: thread.id,
                    kind: wait.kind,
                    waited_ns: now.saturating_sub(wait.since_ns),
                    location: wait.location.to_string(),
                })
                .collect(),
        })
        .collect();
    queues.sort_by_key(|queue| std::cmp::Reverse(queue.waiters.len()));
    queues
}
