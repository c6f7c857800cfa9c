//! The queue of a range lock: all requests of the slow path, granted and waiting, in the order of
//! their arrival.
//!
//! # Invariants
//! 1. `blockers` of an entry is the number of entries before it that conflict with it.
//! 2. An entry is granted if and only if its `blockers` is 0. Once granted it stays granted:
//!    `blockers` of a granted entry never rises, since entries change only to conflict with less,
//!    and are added only at the end or, holding already, beside one that conflicts with the same.
//!
//! So conflicting requests are granted in the order of their arrival, and an entry is granted, and
//! its thread woken, exactly when the last one in its way leaves.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::node::{Access, Node};
use crate::primitive::thread::Thread;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Queue {
    first: Option<&'static Node>,
    last: Option<&'static Node>,
}

/// Threads to be woken: when this is dropped, which should be after the mutex was released.
#[derive(Default)]
pub(super) struct Wakes {
    threads: [Option<Thread>; 8],
    count: usize,
}

impl Wakes {
    fn add(&mut self, thread: Thread) {
        match self.threads.get_mut(self.count) {
            Some(place) => {
                *place = Some(thread);
                self.count += 1;
            }
            // Under the mutex, then.
            None => thread.unpark(),
        }
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        // Loom would not let a waiter see its grant before the wake-up.
        #[cfg(loom)]
        if self.count > 0 {
            crate::primitive::thread::yield_now();
        }
        for thread in self.threads[..self.count]
            .iter_mut()
            .filter_map(Option::take)
        {
            thread.unpark();
        }
    }
}

impl Queue {
    pub(super) const fn new() -> Queue {
        Queue {
            first: None,
            last: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The entries in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static Node> + use<> {
        after(self.first)
    }

    /// The number of entries that a new request would have to wait for.
    pub(super) fn blockers(&self, range: &Range<u64>, access: Access) -> u32 {
        self.iter()
            .filter(|entry| entry.conflicts_with(range, access))
            .count() as u32
    }

    /// Adds a request at the end; `blockers` says how many it has to wait for.
    pub(super) fn push(&mut self, node: &'static Node, blockers: u32) {
        debug_assert_eq!(blockers, self.blockers(&node.range(), node.access()));
        node.blockers.store(blockers, Relaxed);
        if blockers == 0 {
            let nobody = node.grant();
            debug_assert!(nobody.is_none());
        }
        self.link(node, self.last);
    }

    /// The least offset from which the entries may yet cut off or append to the file: the start of
    /// the first exclusive range that reaches to the end.
    pub(super) fn write_to_end_min(&self) -> u64 {
        self.iter()
            .filter(|entry| entry.access() == Access::Write && entry.range().end == u64::MAX)
            .map(|entry| entry.range().start)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Removes an entry, granted or not, and grants those that waited for nothing else.
    pub(super) fn remove(&mut self, node: &'static Node, wakes: &mut Wakes) {
        if node.blockers.load(Relaxed) > 0 {
            node.forget_waiter();
        }
        let (range, access) = (node.range(), node.access());
        for later in after(node.next.get()) {
            if later.conflicts_with(&range, access) {
                unblock(later, wakes);
            }
        }
        self.unlink(node);
    }

    /// Changes a granted entry to a part of its range or from exclusive to shared, and grants those
    /// that waited for nothing else.
    pub(super) fn reduce(
        &mut self,
        node: &'static Node,
        range: &Range<u64>,
        access: Access,
        wakes: &mut Wakes,
    ) {
        let (old_range, old_access) = (node.range(), node.access());
        debug_assert_eq!(node.blockers.load(Relaxed), 0, "only who holds changes it");
        debug_assert!(range.is_empty() || old_range.start <= range.start);
        debug_assert!(range.is_empty() || range.end <= old_range.end);
        debug_assert!(access == old_access || access == Access::Read);
        for later in after(node.next.get()) {
            if later.conflicts_with(&old_range, old_access) && !later.conflicts_with(range, access)
            {
                unblock(later, wakes);
            }
        }
        node.set_holding(range, access);
    }

    /// Gives one of several readers that share `node` an entry of its own, of a part of the range.
    pub(super) fn split(&mut self, node: &'static Node, own: &'static Node) {
        debug_assert!(node.count.load(Relaxed) > 1);
        node.count.fetch_sub(1, Relaxed);
        let nobody = own.grant();
        debug_assert!(nobody.is_none());
        // A request that conflicts with the part conflicts with the whole, and so waits already.
        for later in after(node.next.get()) {
            if later.conflicts_with(&own.range(), own.access()) {
                debug_assert!(later.blockers.load(Relaxed) > 0);
                later.blockers.fetch_add(1, Relaxed);
            }
        }
        self.link(own, Some(node));
    }

    /// Puts a node after another, or at the beginning.
    fn link(&mut self, node: &'static Node, previous: Option<&'static Node>) {
        let next = match previous {
            Some(previous) => previous.next.get(),
            None => self.first,
        };
        node.previous.set(previous);
        node.next.set(next);
        match previous {
            Some(previous) => previous.next.set(Some(node)),
            None => self.first = Some(node),
        }
        match next {
            Some(next) => next.previous.set(Some(node)),
            None => self.last = Some(node),
        }
    }

    fn unlink(&mut self, node: &'static Node) {
        let (previous, next) = (node.previous.get(), node.next.get());
        match previous {
            Some(previous) => previous.next.set(next),
            None => self.first = next,
        }
        match next {
            Some(next) => next.previous.set(previous),
            None => self.last = previous,
        }
        node.previous.set(None);
        node.next.set(None);
    }
}

fn unblock(node: &'static Node, wakes: &mut Wakes) {
    if node.blockers.fetch_sub(1, Relaxed) == 1
        && let Some(thread) = node.grant()
    {
        wakes.add(thread);
    }
}

/// This node and those after it.
fn after(node: Option<&'static Node>) -> impl Iterator<Item = &'static Node> + use<> {
    std::iter::successors(node, |node| node.next.get())
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::range_lock::node;

    #[test]
    fn empty_ranges_overlap_nothing() {
        use node::overlaps;
        assert!(!overlaps(&(5..5), &(0..10)));
        assert!(!overlaps(&(0..10), &(5..5)));
        assert!(overlaps(&(0..10), &(9..20)));
        assert!(!overlaps(&(0..10), &(10..20)));
    }

    fn push(queue: &mut Queue, range: Range<u64>, access: Access) -> &'static Node {
        let node = node::take();
        node.prepare(&range, access);
        let blockers = queue.blockers(&range, access);
        queue.push(node, blockers);
        node
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(Range<u64>, Access),
        /// Readers that the closing of a cell found.
        Import(Range<u64>, u32),
        Remove(usize),
        Reduce(usize, Range<u64>),
        Downgrade(usize),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let range = || (0..12_u64, 0..6_u64).prop_map(|(start, length)| start..start + length);
        let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
        prop_oneof![
            4 => (range(), access).prop_map(|(range, access)| Step::Push(range, access)),
            1 => (range(), 1..4_u32).prop_map(|(range, count)| Step::Import(range, count)),
            3 => any::<usize>().prop_map(Step::Remove),
            2 => (any::<usize>(), range()).prop_map(|(which, range)| Step::Reduce(which, range)),
            1 => any::<usize>().prop_map(Step::Downgrade),
        ]
    }

    /// A holder or waiter; several may share a node.
    struct Entry {
        node: &'static Node,
        range: Range<u64>,
        access: Access,
    }

    /// The rule itself: a request is granted that conflicts with none before it.
    fn is_granted_by_rule(entries: &[Entry], which: usize) -> bool {
        let has_common = |a: &Range<u64>, b: &Range<u64>| a.clone().any(|at| b.contains(&at));
        let own = &entries[which];
        !entries[..which].iter().any(|before| {
            (before.access == Access::Write || own.access == Access::Write)
                && has_common(&before.range, &own.range)
        })
    }

    fn any_granted(model: &[Entry], which: usize) -> usize {
        let granted: Vec<usize> = (0..model.len())
            .filter(|&i| is_granted_by_rule(model, i))
            .collect();
        granted[which % granted.len()]
    }

    proptest! {
        #[test]
        fn grants_follow_the_rule(steps in prop::collection::vec(any_step(), 1..50)) {
            let mut queue = Queue::new();
            let mut wakes = Wakes::default();
            let mut model: Vec<Entry> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(range, access) => {
                        let node = push(&mut queue, range.clone(), access);
                        model.push(Entry { node, range, access });
                    }
                    Step::Import(range, count) => {
                        if queue.blockers(&range, Access::Read) > 0 {
                            continue;
                        }
                        let node = push(&mut queue, range.clone(), Access::Read);
                        node.count.store(count, Relaxed);
                        for _ in 0..count {
                            let range = range.clone();
                            model.push(Entry { node, range, access: Access::Read });
                        }
                    }
                    Step::Remove(which) if !model.is_empty() => {
                        let entry = model.remove(which % model.len());
                        if entry.node.count.fetch_sub(1, Relaxed) == 1 {
                            queue.remove(entry.node, &mut wakes);
                            node::put(entry.node);
                        }
                    }
                    Step::Reduce(which, to) if !model.is_empty() => {
                        let which = any_granted(&model, which);
                        let entry = &mut model[which];
                        let start = to.start.clamp(entry.range.start, entry.range.end);
                        entry.range = start..to.end.clamp(start, entry.range.end);
                        if entry.node.count.load(Relaxed) > 1 {
                            let own = node::take();
                            own.prepare(&entry.range, entry.access);
                            queue.split(entry.node, own);
                            entry.node = own;
                        } else {
                            queue.reduce(entry.node, &entry.range, entry.access, &mut wakes);
                        }
                    }
                    Step::Downgrade(which) if !model.is_empty() => {
                        let which = any_granted(&model, which);
                        let entry = &mut model[which];
                        if entry.access == Access::Write {
                            entry.access = Access::Read;
                            queue.reduce(entry.node, &entry.range, Access::Read, &mut wakes);
                        }
                    }
                    Step::Remove(_) | Step::Reduce(..) | Step::Downgrade(_) => {}
                }
                for (which, entry) in model.iter().enumerate() {
                    prop_assert_eq!(entry.node.is_granted(), is_granted_by_rule(&model, which));
                }
            }
        }
    }

    #[test]
    fn a_request_does_not_pass_one_that_it_conflicts_with() {
        let (mut queue, mut wakes) = (Queue::new(), Wakes::default());
        let reader = push(&mut queue, 0..10, Access::Read);
        let writer = push(&mut queue, 0..10, Access::Write);
        let late_reader = push(&mut queue, 5..6, Access::Read);
        let aside = push(&mut queue, 10..20, Access::Write);
        let grants = || [reader, writer, late_reader].map(Node::is_granted);
        assert_eq!(grants(), [true, false, false]);
        assert!(aside.is_granted());
        queue.remove(reader, &mut wakes);
        assert_eq!(grants()[1..], [true, false]);
        queue.reduce(writer, &(0..5), Access::Write, &mut wakes);
        assert_eq!(grants()[1..], [true, true]);
    }
}
