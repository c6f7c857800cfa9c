//! A small number for each thread, for arrays in which every thread writes its own line only.
//!
//! # Rules
//! - A thread that has a slot is the only one that has it, from its first call of [`current`] until
//!   it ends. So it may change what lies in the slot by plain loads and stores.
//! - There are [`COUNT`] slots. Threads that find none left have none.
//! - A thread that leaves something in a slot that it must change again later says so by [`enter`]
//!   and [`leave`]: the slot of a thread that ends in between is not given to another.

/// The number of slots.
#[cfg(not(any(loom, feature = "shuttle")))]
pub(crate) const COUNT: usize = 64;
/// Few enough that the models have threads with and without.
#[cfg(any(loom, feature = "shuttle"))]
pub(crate) const COUNT: usize = 2;

#[cfg(not(any(loom, feature = "shuttle")))]
pub(crate) use native::{current, enter, leave};

/// The thread's slot, if it has one.
#[cfg(loom)]
pub(crate) fn current() -> Option<usize> {
    number(&format!("{:?}", loom::thread::current().id()))
}

/// The thread's slot, if it has one.
#[cfg(all(feature = "shuttle", not(loom)))]
pub(crate) fn current() -> Option<usize> {
    number(&format!("{:?}", shuttle::thread::current().id()))
}

/// Models' threads are numbered from 0 (the first) on; the first two after it get slots.
#[cfg(any(loom, feature = "shuttle"))]
fn number(id: &str) -> Option<usize> {
    let digits: String = id.chars().filter(char::is_ascii_digit).collect();
    let slot = digits.parse::<usize>().ok()?.checked_sub(1)?;
    (slot < COUNT).then_some(slot)
}

/// Something is left in the slot. Slots of models are not given again.
#[cfg(any(loom, feature = "shuttle"))]
pub(crate) fn enter() {}

/// It is gone.
#[cfg(any(loom, feature = "shuttle"))]
pub(crate) fn leave() {}

#[cfg(not(any(loom, feature = "shuttle")))]
mod native {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::COUNT;

    const UNKNOWN: usize = usize::MAX;
    const NONE: usize = usize::MAX - 1;

    /// A bit for each slot that is taken.
    static TAKEN: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        static SLOT: Cell<usize> = const { Cell::new(UNKNOWN) };
        static LEFT_INSIDE: Cell<usize> = const { Cell::new(0) };
        /// Its drop gives the slot back.
        static OWNER: Owner = const { Owner };
    }

    struct Owner;

    impl Drop for Owner {
        fn drop(&mut self) {
            let slot = SLOT.replace(NONE);
            if slot < COUNT && LEFT_INSIDE.get() == 0 {
                // Release: the next owner sees what this one wrote.
                TAKEN.fetch_and(!(1 << slot), Ordering::Release);
            }
        }
    }

    /// The thread's slot, if it has one.
    #[inline]
    pub(crate) fn current() -> Option<usize> {
        let slot = SLOT.get();
        if slot < COUNT {
            return Some(slot);
        }
        if slot == UNKNOWN { take() } else { None }
    }

    #[cold]
    fn take() -> Option<usize> {
        SLOT.set(NONE);
        // A thread whose OWNER is gone already gets none.
        OWNER.try_with(|_| ()).ok()?;
        let taken = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, |taken| {
            let free = taken.trailing_ones();
            (free < u64::BITS).then(|| taken | 1 << free)
        });
        let slot = taken.ok()?.trailing_ones() as usize;
        SLOT.set(slot);
        Some(slot)
    }

    /// Something is left in the slot.
    #[inline]
    pub(crate) fn enter() {
        LEFT_INSIDE.set(LEFT_INSIDE.get() + 1);
    }

    /// It is gone.
    #[inline]
    pub(crate) fn leave() {
        LEFT_INSIDE.set(LEFT_INSIDE.get() - 1);
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// One test, since it uses all slots.
        #[test]
        fn slots_are_given_to_one_thread_at_a_time() {
            a_slot_is_given_again_but_for_one_with_something_inside();
            threads_at_one_time_have_different_slots();
        }

        fn a_slot_is_given_again_but_for_one_with_something_inside() {
            let in_thread = |f: fn() -> Option<usize>| std::thread::spawn(f).join().unwrap();
            let inside = in_thread(|| {
                enter();
                current()
            });
            let mut seen = Vec::new();
            for _ in 0..200 {
                let slot = in_thread(current);
                assert!(slot.is_some() && slot != inside);
                seen.push(slot);
            }
            assert!(seen.contains(&seen[199]), "slots come back");
        }

        fn threads_at_one_time_have_different_slots() {
            let barrier = std::sync::Barrier::new(COUNT + 8);
            let slots: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..COUNT + 8)
                    .map(|_| {
                        scope.spawn(|| {
                            let slot = current();
                            barrier.wait();
                            slot
                        })
                    })
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .collect()
            });
            let mut own: Vec<usize> = slots.iter().copied().flatten().collect();
            let count = own.len();
            own.sort_unstable();
            own.dedup();
            assert_eq!(own.len(), count);
            assert!(slots.contains(&None), "more threads than slots");
        }
    }
}
