//! Objects that nobody can find any more, destroyed by the thread that took them out.
//!
//! `crossbeam_epoch` tells when: once every guard has ended that could have found the object. Left
//! to it, an object is destroyed by whichever thread comes by, and its memory goes to that thread's
//! part of the heap: two threads that create and remove then exchange all their memory, and with it
//! cache lines and the allocator's locks. Here only the news that a bag of objects may go passes
//! through the epochs.
//!
//! # Invariants
//! 1. An object is in one bag. A bag is sealed under a guard that follows each object's removal,
//!    and is destroyed after the flag that was deferred under that guard has gone up.
//! 2. No borrow of the thread's bags is held while an object is destroyed or the epochs are
//!    flushed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_epoch::{Guard, Owned, Shared};

/// Objects of a bag: as many as the epochs' own bags hold.
const BAG: usize = 64;

/// What takes so many bytes is large.
const LARGE_BYTES: usize = 128 << 10;

/// An object to destroy.
struct Garbage {
    object: *mut (),
    destroy: unsafe fn(*mut ()),
}

// SAFETY: `retire` takes only objects that may be destroyed on any thread.
unsafe impl Send for Garbage {}

impl Drop for Garbage {
    fn drop(&mut self) {
        // SAFETY: by invariant 1 nobody refers to the object any more, and it is destroyed once;
        // `destroy` is of its type.
        unsafe { (self.destroy)(self.object) }
    }
}

type Bag = Vec<Garbage>;

#[derive(Default)]
struct Retired {
    open: Bag,
    /// The oldest first, each with the flag that says that it may go.
    sealed: VecDeque<(Arc<AtomicBool>, Bag)>,
}

impl Drop for Retired {
    /// The thread ends: the epochs take over.
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.open);
        left.extend(self.sealed.drain(..).flat_map(|(_, bag)| bag));
        if !left.is_empty() {
            crossbeam_epoch::pin().defer(move || drop(left));
        }
    }
}

thread_local! {
    static RETIRED: RefCell<Retired> = RefCell::default();
}

/// Destroys an object once every guard of now has ended.
///
/// # Safety
/// As for [`Guard::defer_destroy`]: the object can be found no more and is retired once.
pub(crate) unsafe fn retire<T: Send + 'static>(object: Shared<'_, T>, guard: &Guard) {
    let mut garbage = Some(Garbage {
        object: object.as_raw().cast_mut().cast(),
        destroy: destroy::<T>,
    });
    let sealed = RETIRED.try_with(|retired| retired.borrow_mut().put(garbage.take()));
    if let Some(garbage) = garbage {
        // The thread ends, and has no bags any more.
        guard.defer(move || drop(garbage));
    }
    if let Ok(Some(may_go)) = sealed {
        pass_on(may_go, guard);
    }
}

/// The same for what takes so many bytes: if they are many, its bag does not wait for others.
///
/// # Safety
/// As for [`retire`].
pub(crate) unsafe fn retire_sized<T: Send + 'static>(
    object: Shared<'_, T>,
    bytes: usize,
    guard: &Guard,
) {
    // SAFETY: passed on.
    unsafe { retire(object, guard) };
    if bytes >= LARGE_BYTES {
        seal(guard);
    }
}

/// Seals the open bag, if there is anything in it.
fn seal(guard: &Guard) {
    let sealed = RETIRED.try_with(|retired| {
        let mut retired = retired.borrow_mut();
        (!retired.open.is_empty()).then(|| retired.seal())
    });
    if let Ok(Some(may_go)) = sealed {
        pass_on(may_go, guard);
    }
}

/// The news that a sealed bag may go passes through the epochs; those that may go now do.
fn pass_on(may_go: Arc<AtomicBool>, guard: &Guard) {
    guard.defer(move || may_go.store(true, Ordering::Release));
    guard.flush();
    while let Some(bag) = RETIRED.with_borrow_mut(Retired::take) {
        drop(bag);
    }
}

/// So many steps of the epochs in a row may free nothing before [`settle`] gives up: the first two
/// never do.
const FRUITLESS_STEPS_MAX: usize = 4;

/// Destroys what this thread has retired and may go by now. For a thread that has retired much
/// under one guard and will perhaps retire nothing for long: nothing of it could go before that
/// guard ended.
pub(crate) fn settle() {
    seal(&crossbeam_epoch::pin());
    let mut fruitless = 0;
    while fruitless < FRUITLESS_STEPS_MAX && RETIRED.with_borrow(Retired::has_sealed) {
        crossbeam_epoch::pin().flush();
        fruitless += 1;
        while let Some(bag) = RETIRED.with_borrow_mut(Retired::take) {
            drop(bag);
            fruitless = 0;
        }
    }
}

impl Retired {
    fn has_sealed(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// Puts an object into the open bag; when that is full seals it, and gives its flag.
    fn put(&mut self, garbage: Option<Garbage>) -> Option<Arc<AtomicBool>> {
        self.open.extend(garbage);
        (self.open.len() >= BAG).then(|| self.seal())
    }

    fn seal(&mut self) -> Arc<AtomicBool> {
        let bag = std::mem::replace(&mut self.open, Vec::with_capacity(BAG));
        let may_go = Arc::new(AtomicBool::new(false));
        self.sealed.push_back((Arc::clone(&may_go), bag));
        may_go
    }

    /// The oldest bag, if it may go.
    fn take(&mut self) -> Option<Bag> {
        let (may_go, _) = self.sealed.front()?;
        if !may_go.load(Ordering::Acquire) {
            return None;
        }
        self.sealed.pop_front().map(|(_, bag)| bag)
    }
}

/// # Safety
/// The object is a `T` that crossbeam allocated and nobody refers to.
unsafe fn destroy<T>(object: *mut ()) {
    // SAFETY: passed on.
    drop(unsafe { Owned::<T>::from_raw(object.cast()) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_epoch::Atomic;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    /// Counts its end.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn retire_one(ended: &Arc<AtomicUsize>, guard: &Guard) {
        let slot = Atomic::new(Counted(Arc::clone(ended)));
        let object = slot.swap(Shared::null(), Ordering::AcqRel, guard);
        // SAFETY: the slot no longer names it.
        unsafe { retire(object, guard) };
    }

    #[test]
    fn nothing_goes_before_the_guards_have_ended() {
        let ended = Arc::new(AtomicUsize::new(0));
        let reader = crossbeam_epoch::pin();
        for _ in 0..10 * BAG {
            retire_one(&ended, &crossbeam_epoch::pin());
        }
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(reader);
        // Other tests of the process hold guards for a while.
        while ended.load(Ordering::Relaxed) < 10 * BAG {
            retire_one(&Arc::default(), &crossbeam_epoch::pin());
        }
        assert_eq!(ended.load(Ordering::Relaxed), 10 * BAG);
    }

    /// As after a commit that freed many inodes, when nothing comes after it.
    #[test]
    fn what_was_retired_under_one_guard_goes_when_it_has_ended() {
        let ended = Arc::new(AtomicUsize::new(0));
        let guard = crossbeam_epoch::pin();
        for _ in 0..100 * BAG {
            retire_one(&ended, &guard);
        }
        settle();
        assert_eq!(ended.load(Ordering::Relaxed), 0);
        drop(guard);
        // Other tests of the process hold guards for a while. Not so often that the epochs go on by
        // mere pinning.
        for _ in 0..6000 {
            settle();
            if ended.load(Ordering::Relaxed) == 100 * BAG {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} have gone", ended.load(Ordering::Relaxed));
    }

    #[test]
    fn what_a_thread_leaves_goes_too() {
        let ended = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            (0..BAG + 7).for_each(|_| retire_one(&theirs, &crossbeam_epoch::pin()));
        });
        thread.join().unwrap();
        while ended.load(Ordering::Relaxed) < BAG + 7 {
            crossbeam_epoch::pin().flush();
        }
        assert_eq!(ended.load(Ordering::Relaxed), BAG + 7);
    }
}
