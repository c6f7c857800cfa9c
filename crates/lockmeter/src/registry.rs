//! All classes and all threads' counters.
//!
//! # Data model
//! - `CLASSES`: the registered classes; a class's slot is its index. At most [`CLASS_MAX`]; what is
//!   registered beyond shares the last slot, so that a count is never lost, only less finely named.
//! - Each thread owns a [`ThreadCounters`]: one [`Counters`] per slot and kind. Only the thread
//!   itself writes it, by plain load and store of atomics, so that counting shares no cache line with
//!   other writers; a snapshot reads it at any time.
//! - When a thread ends, its counts are added to `retired`.
//!
//! # Locking
//! One mutex, taken when a class or a thread is registered, when a thread ends, and by snapshots;
//! never while counting. Nothing is called with it held.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::class::LockClass;
use crate::{ClassCounts, Counts, Kind, Snapshot};

/// Most classes that are counted apart.
pub(crate) const CLASS_MAX: usize = 96;

struct Registry {
    classes: Vec<&'static LockClass>,
    threads: Vec<Arc<ThreadCounters>>,
    retired: Vec<[Counts; 2]>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    classes: Vec::new(),
    threads: Vec::new(),
    retired: Vec::new(),
});

fn registry() -> MutexGuard<'static, Registry> {
    // The data is only counters: a panic elsewhere leaves nothing half done that matters.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives `class` a slot, once.
pub(crate) fn register(class: &'static LockClass, slot_plus_one: &AtomicU16) -> usize {
    let mut registry = registry();
    let known = slot_plus_one.load(Ordering::Relaxed);
    if known != 0 {
        return usize::from(known) - 1;
    }
    let slot = registry.classes.len().min(CLASS_MAX - 1);
    if registry.classes.len() < CLASS_MAX {
        registry.classes.push(class);
    }
    slot_plus_one.store(slot as u16 + 1, Ordering::Relaxed);
    slot
}

/// The counters of one class and kind in one thread. Written by that thread only.
#[derive(Default)]
pub(crate) struct Counters {
    acquisitions: AtomicU64,
    contended: AtomicU64,
    wait_ns_total: AtomicU64,
    wait_ns_max: AtomicU64,
}

impl Counters {
    fn bump(counter: &AtomicU64, by: u64) {
        // One writer: no read-modify-write is needed.
        counter.store(
            counter.load(Ordering::Relaxed).wrapping_add(by),
            Ordering::Relaxed,
        );
    }

    pub(crate) fn count_acquired(&self) {
        Self::bump(&self.acquisitions, 1);
    }

    pub(crate) fn count_contended(&self, wait_ns: u64) {
        Self::bump(&self.contended, 1);
        Self::bump(&self.wait_ns_total, wait_ns);
        if wait_ns > self.wait_ns_max.load(Ordering::Relaxed) {
            self.wait_ns_max.store(wait_ns, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            acquisitions: self.acquisitions.load(Ordering::Relaxed),
            contended: self.contended.load(Ordering::Relaxed),
            wait_ns_total: self.wait_ns_total.load(Ordering::Relaxed),
            wait_ns_max: self.wait_ns_max.load(Ordering::Relaxed),
        }
    }
}

/// All counters of one thread.
pub(crate) struct ThreadCounters {
    slots: Box<[[Counters; 2]]>,
}

impl ThreadCounters {
    pub(crate) fn of(&self, slot: usize, kind: Kind) -> &Counters {
        &self.slots[slot][kind as usize]
    }
}

/// Owns a thread's registration; its end moves the counts to `retired`.
pub(crate) struct Registration(pub(crate) Arc<ThreadCounters>);

impl Registration {
    pub(crate) fn new() -> Registration {
        let slots = (0..CLASS_MAX).map(|_| Default::default()).collect();
        let counters = Arc::new(ThreadCounters { slots });
        registry().threads.push(Arc::clone(&counters));
        Registration(counters)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut registry = registry();
        registry
            .threads
            .retain(|thread| !Arc::ptr_eq(thread, &self.0));
        registry.retired.resize(CLASS_MAX, [Counts::default(); 2]);
        for (retired, ended) in registry.retired.iter_mut().zip(&self.0.slots) {
            for (total, counters) in retired.iter_mut().zip(ended) {
                total.add(&counters.counts());
            }
        }
    }
}

/// Sums all threads' counters.
pub(crate) fn snapshot() -> Snapshot {
    let registry = registry();
    let classes = registry
        .classes
        .iter()
        .enumerate()
        .map(|(slot, class)| {
            let mut kinds = registry.retired.get(slot).copied().unwrap_or_default();
            for thread in &registry.threads {
                for (total, counters) in kinds.iter_mut().zip(&thread.slots[slot]) {
                    total.add(&counters.counts());
                }
            }
            let [writer, reader] = kinds;
            ClassCounts {
                name: class.name(),
                level: class.level(),
                writer,
                reader,
            }
        })
        .collect();
    Snapshot { classes }
}
