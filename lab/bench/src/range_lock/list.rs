//! Rival: a lock-free list of the held ranges, sorted by start, after Kogan, Dice, Issa, "Scalable
//! range locks for scalable address spaces and beyond" (EuroSys 2020): the reader/writer form with
//! the fast path for an empty list. Written from the paper's description.
//!
//! A request inserts its node by compare-and-swap where its start belongs; on a node that conflicts
//! it waits until that is marked as deleted. Readers pass readers. Then a reader looks at what
//! follows and waits for writers that overlap; a writer looks from the head for readers that
//! overlap and came before it in the list, and if there is one deletes its node and tries again.
//! Who leaves marks its node; who passes a marked node unlinks it. An empty list is taken by a
//! tagged head, without that all.
//!
//! Here nodes come from the allocator and go by epochs; the paper has pools of them for each
//! thread.

use super::candidate::Candidate;
use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned, Shared};
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

/// In `next`: the node is deleted. In `head`: its node was taken by the fast path.
const TAG: usize = 1;

struct Node {
    range: Range<u64>,
    is_write: bool,
    next: Atomic<Node>,
}

enum Order {
    Before,
    Conflict,
    After,
}

impl Node {
    /// Where `self` belongs, seen from `new`.
    fn order(&self, new: &Node) -> Order {
        let are_readers = !self.is_write && !new.is_write;
        if self.range.start >= new.range.end || (are_readers && self.range.start >= new.range.start)
        {
            Order::After
        } else if self.range.end <= new.range.start || are_readers {
            Order::Before
        } else {
            Order::Conflict
        }
    }

    fn is_deleted(&self, guard: &Guard) -> bool {
        self.next.load(Acquire, guard).tag() == TAG
    }

    fn wait_until_deleted(&self, guard: &Guard) {
        for round in 0_u32.. {
            if self.is_deleted(guard) {
                return;
            }
            if round < 64 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// See the module's head.
#[derive(Default)]
pub struct List {
    head: Atomic<Node>,
}

/// A node of the list that its owner has not deleted yet.
#[derive(Clone, Copy)]
struct Held(*const Node);

impl List {
    /// The node behind a pointer, unless that is null.
    fn get<'g>(shared: Shared<'g, Node>) -> Option<&'g Node> {
        // SAFETY: reached while pinned: from the head or from a node's `next`, so that it is
        // destroyed, if at all, by a call of `defer_destroy` that came after the pinning.
        unsafe { shared.with_tag(0).as_ref() }
    }

    /// Takes a deleted node out of the list; true when this call did.
    fn unlink<'g>(
        place: &Atomic<Node>,
        node: Shared<'g, Node>,
        next: Shared<'g, Node>,
        guard: &'g Guard,
    ) -> bool {
        let is_out = place
            .compare_exchange(node.with_tag(0), next.with_tag(0), SeqCst, Relaxed, guard)
            .is_ok();
        if is_out {
            // SAFETY: it was the only way to the node, and only one exchange takes it out.
            unsafe { guard.defer_destroy(node) };
        }
        is_out
    }

    fn acquire(&self, range: Range<u64>, is_write: bool) -> Held {
        let guard = &epoch::pin();
        loop {
            let node = Owned::new(Node {
                range: range.clone(),
                is_write,
                next: Atomic::null(),
            })
            .into_shared(guard);
            let head = self.head.load(Relaxed, guard);
            if head.is_null()
                && self
                    .head
                    .compare_exchange(head, node.with_tag(TAG), SeqCst, Relaxed, guard)
                    .is_ok()
            {
                return Held(node.as_raw());
            }
            let Some(own) = List::get(node) else {
                continue;
            };
            while !self.insert(node, own, guard) {}
            if !is_write {
                List::validate_reader(own, guard);
                return Held(node.as_raw());
            }
            if self.validate_writer(node, own, guard) {
                return Held(node.as_raw());
            }
            own.next.fetch_or(TAG, SeqCst, guard);
        }
    }

    /// The head as a normal node.
    fn first<'g>(&self, guard: &'g Guard) -> Shared<'g, Node> {
        let head = self.head.load(Acquire, guard);
        if head.tag() == TAG {
            let _ = self
                .head
                .compare_exchange(head, head.with_tag(0), SeqCst, Relaxed, guard);
            return self.first(guard);
        }
        head
    }

    /// One walk; false when it has to begin anew.
    fn insert<'g>(&self, node: Shared<'g, Node>, own: &'g Node, guard: &'g Guard) -> bool {
        let mut place = &self.head;
        let mut current = self.first(guard);
        loop {
            if current.tag() == TAG {
                // The node of `place` was deleted, or the head was taken by the fast path.
                return false;
            }
            let Some(there) = List::get(current) else {
                break;
            };
            let next = there.next.load(Acquire, guard);
            if next.tag() == TAG {
                if !List::unlink(place, current, next, guard) {
                    return false;
                }
                current = next.with_tag(0);
                continue;
            }
            match there.order(own) {
                Order::Before => {
                    place = &there.next;
                    current = next;
                }
                Order::Conflict => there.wait_until_deleted(guard),
                Order::After => break,
            }
        }
        own.next.store(current, Relaxed);
        place
            .compare_exchange(current, node, SeqCst, Relaxed, guard)
            .is_ok()
    }

    /// Waits for writers that follow and overlap.
    fn validate_reader(own: &Node, guard: &Guard) {
        let mut current = own.next.load(SeqCst, guard).with_tag(0);
        while let Some(there) = List::get(current) {
            if there.range.start >= own.range.end {
                return;
            }
            if there.is_write {
                there.wait_until_deleted(guard);
            }
            current = there.next.load(SeqCst, guard).with_tag(0);
        }
    }

    /// False when a reader that overlaps came before.
    fn validate_writer<'g>(&self, node: Shared<'g, Node>, own: &Node, guard: &'g Guard) -> bool {
        'walk: loop {
            let mut place = &self.head;
            let mut current = self.first(guard);
            loop {
                if current.tag() == TAG {
                    continue 'walk;
                }
                if current == node {
                    return true;
                }
                let Some(there) = List::get(current) else {
                    continue 'walk;
                };
                let next = there.next.load(SeqCst, guard);
                if next.tag() == TAG {
                    if !List::unlink(place, current, next, guard) {
                        continue 'walk;
                    }
                    current = next.with_tag(0);
                    continue;
                }
                if there.range.end > own.range.start {
                    return false;
                }
                place = &there.next;
                current = next;
            }
        }
    }

    fn release(&self, held: Held) {
        let guard = &epoch::pin();
        let node = Shared::from(held.0);
        let fast = node.with_tag(TAG);
        if self.head.load(Relaxed, guard) == fast
            && self
                .head
                .compare_exchange(fast, Shared::null(), SeqCst, Relaxed, guard)
                .is_ok()
        {
            // SAFETY: the tagged head was the only way to the node.
            unsafe { guard.defer_destroy(node) };
            return;
        }
        // SAFETY: nobody unlinks the node before it is marked.
        unsafe { node.deref() }.next.fetch_or(TAG, SeqCst, guard);
    }
}

impl Candidate for List {
    fn hold<R>(&self, range: Range<u64>, is_write: bool, body: impl FnOnce() -> R) -> R {
        let held = self.acquire(range, is_write);
        let result = body();
        self.release(held);
        result
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: nobody else has the list.
        let guard = unsafe { epoch::unprotected() };
        let mut current = self.head.load(Relaxed, guard).with_tag(0);
        while !current.is_null() {
            // SAFETY: nodes of the list are alive, and each is met once.
            let node = unsafe { current.into_owned() };
            current = node.next.load(Relaxed, guard).with_tag(0);
        }
    }
}
