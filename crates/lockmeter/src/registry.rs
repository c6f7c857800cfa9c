//! All classes and all threads' counters.
//!
//! # Data model
//! - `classes`: the registered classes; a class's slot is its index. At most [`CLASS_MAX`]; what is
//!   registered beyond shares the last slot, so that a count is never lost, only less finely named.
//! - Each thread owns a [`ThreadRecord`]: per slot and kind a [`Counters`], made at the first
//!   count, and what the thread is waiting for. Only the thread itself writes it.
//! - When a thread ends, its counts are added to `retired`.
//!
//! # Locking
//! One mutex, taken when a class or a thread is registered, when a thread ends, by snapshots and by
//! lists of waiters; never while counting. Nothing is called with it held.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::class::LockClass;
use crate::counters::Counters;
use crate::events::Queue;
use crate::snapshot::{ClassCounts, Counts, Snapshot};
use crate::waiters::{WaitRecord, queues};
use crate::{Kind, thread_id};

/// Most classes that are counted apart.
pub(crate) const CLASS_MAX: usize = 96;

struct Registry {
    classes: Vec<&'static LockClass>,
    threads: Vec<Arc<ThreadRecord>>,
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

/// All that is known of one thread. Written by it alone.
pub(crate) struct ThreadRecord {
    /// By class and kind. Not in a box of their own: one look less at each count.
    slots: [[OnceLock<Box<Counters>>; 2]; CLASS_MAX],
    pub(crate) waiting: WaitRecord,
    pub(crate) name: String,
    pub(crate) id: i32,
}

impl ThreadRecord {
    #[inline]
    pub(crate) fn of(&self, class: &'static LockClass, kind: Kind) -> &Counters {
        self.slots[class.slot()][kind as usize].get_or_init(|| Box::new(Counters::new()))
    }

    fn counts(&self, slot: usize, kind: usize) -> Counts {
        let counters = self.slots[slot][kind].get();
        counters.map_or_else(Counts::default, |counters| counters.counts())
    }
}

thread_local! {
    /// The calling thread's own, while its registration lives: found by one look, where that is
    /// found by two and a question.
    static RECORD: Cell<*const ThreadRecord> = const { Cell::new(ptr::null()) };
}

/// The thread's counters of `class` and `kind` as `f` wants them, if there are any yet.
#[inline(always)]
pub(crate) fn with_known<R>(
    class: &'static LockClass,
    kind: Kind,
    f: impl FnOnce(&Counters) -> R,
) -> Option<R> {
    // SAFETY: null, or what `Registration::new` put there: the record is the thread's own
    // registration's, which takes the pointer away before it goes. `f` cannot end the thread's
    // registration, and the reference does not leave this function.
    let record = unsafe { RECORD.get().as_ref() }?;
    let counters = record.slots.get(class.known_slot())?[kind as usize].get()?;
    Some(f(counters))
}

/// Owns a thread's registration; its end moves the counts to `retired`.
pub(crate) struct Registration(pub(crate) Arc<ThreadRecord>);

impl Registration {
    pub(crate) fn new() -> Registration {
        let thread = std::thread::current();
        let record = Arc::new(ThreadRecord {
            slots: [const { [const { OnceLock::new() }; 2] }; CLASS_MAX],
            waiting: WaitRecord::new(),
            name: thread.name().unwrap_or("unnamed").to_owned(),
            id: thread_id(),
        });
        registry().threads.push(Arc::clone(&record));
        RECORD.set(Arc::as_ptr(&record));
        Registration(record)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        RECORD.set(ptr::null());
        let mut registry = registry();
        registry
            .threads
            .retain(|thread| !Arc::ptr_eq(thread, &self.0));
        registry.retired.resize_with(CLASS_MAX, Default::default);
        for (slot, retired) in registry.retired.iter_mut().enumerate() {
            for (kind, total) in retired.iter_mut().enumerate() {
                if let Some(counters) = self.0.slots[slot][kind].get() {
                    total.merge(&counters.counts());
                }
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
            let mut kinds = registry.retired.get(slot).cloned().unwrap_or_default();
            for thread in &registry.threads {
                for (kind, total) in kinds.iter_mut().enumerate() {
                    total.merge(&thread.counts(slot, kind));
                }
            }
            let [writer, reader] = kinds;
            ClassCounts {
                name: class.name().into(),
                level: class.level(),
                writer,
                reader,
            }
        })
        .collect();
    Snapshot {
        hold_sampling: crate::hold_sampling(),
        classes,
    }
}

/// Which threads are waiting for what.
pub(crate) fn waiting() -> Vec<Queue> {
    // Not formatted under the mutex: the threads' records live as long as they are wanted.
    let threads = registry().threads.clone();
    queues(&threads)
}
