//! [`Combiner`]: work that one thread at a time does, for the others as well.
//!
//! # Purpose
//! Work that excludes itself anyway, as writing to one file does in the kernel: threads that did it
//! side by side would only wait for each other. Here a thread that finds another at work leaves its
//! item in a queue and goes on; who is at work takes it along.
//!
//! # Protocol
//! - One thread at a time has the *role*. Who hands in an item while nobody has it takes it, and
//!   works on what is in the queue, in order, without the mutex. It gives the role up when the
//!   queue is empty, in the same step in which it sees that: so an item that was handed in is
//!   worked on without anybody coming again.
//! - Who finds the role taken and the queue full waits. So as to keep nobody at work for the others
//!   for ever, who has the role gives it up as soon as somebody waits and its own item is done; one
//!   of those that wait takes it. And the queue counts as full when who has the role has worked on
//!   [`SERVED_PER_PLACE`] items for each place in the queue after its own: others may hand in just
//!   as fast as it works, so that none of them ever waits for room. So who hands in works at most
//!   on the queue that it found, its own item, those, and the queue that is left.
//! - Whoever gives up the role, or makes room, wakes one that waits; that one takes the role or the
//!   room, and in the latter case who has the role wakes the next.
//! - Work that panics gives up the role; what is in the queue is for who hands in the next item.
//!
//! # Locking
//! One mutex of the class that is given, and a leaf: nothing is called with it held. To hand in is
//! to wait for work that others do: what the work locks must not be held.
//!
//! # References
//! Hendler, Incze, Shavit, Tzafrir: Flat Combining and the Synchronization-Parallelism Tradeoff
//! (SPAA 2010); there who hands in waits for the outcome.

use std::collections::VecDeque;

use finefs_lockmeter::LockClass;

use crate::mutex::{Condvar, Mutex};

/// So many items for others, for each place in the queue, are enough for one thread. Fewer would
/// have the role change hands more often, each time with a thread that sleeps; it should cost
/// little beside what the items between take.
const SERVED_PER_PLACE: usize = 2;

/// Work that one thread at a time does, for the others as well.
///
/// ```
/// use finefs_locks::{Combiner, LockClass};
/// static LETTERS: LockClass = LockClass::new("example.letters", 10);
/// let letters = Combiner::new(&LETTERS, 4);
/// let mut sent = Vec::new();
/// letters.hand_in("one", |letter| sent.push(letter));
/// letters.hand_in("two", |letter| sent.push(letter));
/// assert_eq!(sent, ["one", "two"]);
/// ```
#[derive(Debug)]
pub struct Combiner<T> {
    state: Mutex<State<T>>,
    /// There is room in the queue, or nobody has the role.
    changed: Condvar,
    queued_max: usize,
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    /// Somebody has the role.
    is_taken: bool,
    /// Items that who has the role has worked on after its own.
    served: usize,
    waiting: usize,
}

/// The role, for the case that the work panics.
struct Role<'a, T>(&'a Combiner<T>);

impl<T> Drop for Role<'_, T> {
    fn drop(&mut self) {
        self.0.state.lock().is_taken = false;
        self.0.changed.notify_one();
    }
}

impl<T> Combiner<T> {
    /// Nothing to do. At most `queued_max` items, at least one, wait for who is at work.
    ///
    /// ```
    /// # use finefs_locks::{Combiner, LockClass};
    /// static CLASS: LockClass = LockClass::new("example", 10);
    /// let combiner: Combiner<u32> = Combiner::new(&CLASS, 4);
    /// ```
    pub fn new(class: &'static LockClass, queued_max: usize) -> Combiner<T> {
        let state = State {
            queue: VecDeque::new(),
            is_taken: false,
            served: 0,
            waiting: 0,
        };
        Combiner {
            state: Mutex::new(class, state),
            changed: Condvar::new(),
            queued_max: queued_max.max(1),
        }
    }

    /// Has `item` worked on, by this thread or by the one that is at work, which may be later. All
    /// that hand in items give the same `work`, which may be called for items of others.
    ///
    /// ```
    /// # use finefs_locks::{Combiner, LockClass};
    /// # static CLASS: LockClass = LockClass::new("example", 10);
    /// # let combiner = Combiner::new(&CLASS, 4);
    /// let mut sum = 0;
    /// combiner.hand_in(7, |item| sum += item);
    /// assert_eq!(sum, 7);
    /// ```
    pub fn hand_in(&self, item: T, mut work: impl FnMut(T)) {
        let mut state = self.state.lock();
        let served_max = self.queued_max.saturating_mul(SERVED_PER_PLACE);
        while state.is_taken && (state.queue.len() >= self.queued_max || state.served >= served_max)
        {
            state.waiting += 1;
            self.changed.wait(&mut state);
            state.waiting -= 1;
        }
        state.queue.push_back(item);
        if state.is_taken {
            return;
        }
        state.is_taken = true;
        state.served = 0;
        let role = Role(self);
        // This thread's own item is the last of these.
        let mut owed = state.queue.len();
        while owed > 0 || state.waiting == 0 {
            let Some(item) = state.queue.pop_front() else {
                break;
            };
            if owed == 0 {
                state.served += 1;
            }
            owed = owed.saturating_sub(1);
            if state.waiting > 0 {
                self.changed.notify_one();
            }
            drop(state);
            work(item);
            state = self.state.lock();
        }
        state.is_taken = false;
        if state.waiting > 0 {
            self.changed.notify_one();
        }
        drop(state);
        std::mem::forget(role);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    static CLASS: LockClass = LockClass::new("test.combiner", 10);

    fn until_one_waits(combiner: &Combiner<&str>) {
        while combiner.state.lock().waiting == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_waits_takes_over_when_the_own_item_is_done() {
        let combiner = Combiner::new(&CLASS, 1);
        let (mut own, mut theirs) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let theirs = &mut theirs;
            let mut other = Some(|| {
                combiner.hand_in("queued", |_| unreachable!("it is at work itself"));
                combiner.hand_in("waiting", |item| theirs.push(item));
            });
            combiner.hand_in("own", |item| {
                own.push(item);
                if let Some(other) = other.take() {
                    scope.spawn(other);
                    until_one_waits(&combiner);
                }
            });
        });
        assert_eq!((own, theirs), (vec!["own"], vec!["queued", "waiting"]));
    }

    /// Where the one at work still has its own item before it.
    #[test]
    fn who_waits_is_told_of_room() {
        let combiner = Combiner::new(&CLASS, 1);
        combiner.state.lock().queue.push_back("left over");
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            combiner.hand_in("own", |item| match item {
                "left over" => {
                    let (combiner, tell) = (&combiner, tell.clone());
                    scope.spawn(move || {
                        combiner.hand_in("waiting", |_| ());
                        tell.send(()).unwrap();
                    });
                    until_one_waits(combiner);
                }
                "own" => told.recv_timeout(Duration::from_secs(20)).unwrap(),
                _ => {}
            });
        });
    }

    /// Others hand in one item for each that it works on: none of them waits for room, and there is
    /// always one more.
    #[test]
    fn nobody_works_for_the_others_for_ever() {
        let combiner = &Combiner::new(&CLASS, 1);
        let taken_over = &AtomicUsize::new(0);
        let mut worked = 0;
        std::thread::scope(|scope| {
            combiner.hand_in("own", |_| {
                worked += 1;
                assert!(worked < 100, "it has no end");
                scope.spawn(move || {
                    combiner.hand_in("theirs", |_| {
                        taken_over.fetch_add(1, Ordering::Relaxed);
                    });
                });
                let is_there = |state: &State<&str>| !state.queue.is_empty() || state.waiting > 0;
                while !is_there(&combiner.state.lock()) {
                    std::thread::yield_now();
                }
            });
        });
        assert_eq!(worked, 1 + SERVED_PER_PLACE);
        assert_eq!(taken_over.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn work_that_panics_gives_up_the_role() {
        let combiner = Combiner::new(&CLASS, 1);
        let fails = || combiner.hand_in(1, |_| panic!("for the test"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(fails)).is_err());
        let mut done = Vec::new();
        combiner.hand_in(2, |item| done.push(item));
        assert_eq!(done, [2]);
    }
}
