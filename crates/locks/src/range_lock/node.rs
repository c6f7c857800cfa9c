//! [`Node`]: one request in the queue of a lock; and the pool that nodes come from.
//!
//! # Data model
//! Nodes live for ever: [`POOL_NODES`] of them in static memory, and more, allocated in blocks,
//! once more ranges than that were contended in the process at one time. So a request allocates
//! nothing, a guard can be moved while its node stays, and a stale reference is never dangling. A
//! thread keeps a few free nodes at hand; the rest are on a list under a mutex.
//!
//! All fields but `granted` are guarded by the mutex of the lock in whose queue the
//! node is; they are atomics, always accessed relaxed, so that the compiler need not be told so.
//! Under loom and shuttle every request has a new node, since those objects belong to one
//! execution.

use std::ops::Range;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::cell::{Cell, READER, WRITER};
use super::spread::CellSet;
use crate::primitive::atomic::{AtomicBool, Ordering};
use crate::primitive::{const_unless_loom, thread};

/// Shared or exclusive; as a number, what a holder is in its cell's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Access {
    Read = READER,
    Write = WRITER,
}

/// True when the ranges have an offset in common. An empty range overlaps nothing.
#[inline]
pub(super) fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start.max(b.start) < a.end.min(b.end)
}

/// A reference to a node, or none.
#[derive(Debug)]
pub(super) struct Link(AtomicPtr<Node>);

impl Link {
    pub(super) const fn none() -> Link {
        Link(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(super) fn get(&self) -> Option<&'static Node> {
        // SAFETY: only `set` stores here, and only from `&'static Node`.
        unsafe { self.0.load(Relaxed).as_ref() }
    }

    pub(super) fn set(&self, node: Option<&'static Node>) {
        let pointer = node.map_or(std::ptr::null_mut(), |node| {
            std::ptr::from_ref(node).cast_mut()
        });
        self.0.store(pointer, Relaxed);
    }
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Node {
    /// What the guard of a request that came by the queue holds.
    pub(super) cell: Cell,
    pub(super) previous: Link,
    pub(super) next: Link,
    start: AtomicU64,
    end: AtomicU64,
    is_write: AtomicU8,
    /// The number of entries before this that conflict with it.
    pub(super) blockers: AtomicU32,
    /// How many holders share the entry: readers that a cell's closing found.
    pub(super) count: AtomicU32,
    /// The cells on which the entry lies, the lower half first.
    cells: [AtomicU64; 2],
    /// Set when `blockers` becomes 0: the waiter looks here without the mutex.
    granted: AtomicBool,
    /// The waiting thread. Only locked under the lock's mutex.
    waiter: StdMutex<Option<thread::Thread>>,
}

impl Node {
    const_unless_loom! {
        /// A node in nobody's use.
        pub const fn new() -> Node {
            Node {
                cell: Cell::closed(),
                previous: Link::none(),
                next: Link::none(),
                start: AtomicU64::new(0),
                end: AtomicU64::new(0),
                is_write: AtomicU8::new(0),
                blockers: AtomicU32::new(0),
                count: AtomicU32::new(0),
                cells: [AtomicU64::new(0), AtomicU64::new(0)],
                granted: AtomicBool::new(false),
                waiter: StdMutex::new(None),
            }
        }
    }

    /// Makes the node an entry of one holder, on no cells.
    pub(super) fn prepare(&'static self, range: &Range<u64>, access: Access) {
        self.cell.represent(self, access);
        self.set_holding(range, access);
        self.blockers.store(0, Relaxed);
        self.count.store(1, Relaxed);
        self.set_cells(0);
        self.granted.store(false, Ordering::Relaxed);
    }

    pub(super) fn set_holding(&self, range: &Range<u64>, access: Access) {
        self.start.store(range.start, Relaxed);
        self.end.store(range.end, Relaxed);
        self.is_write
            .store(u8::from(access == Access::Write), Relaxed);
    }

    /// The cells on which the entry lies.
    pub(super) fn cells(&self) -> CellSet {
        let [low, high] = &self.cells;
        CellSet::from(high.load(Relaxed)) << 64 | CellSet::from(low.load(Relaxed))
    }

    pub(super) fn set_cells(&self, cells: CellSet) {
        let [low, high] = &self.cells;
        low.store(cells as u64, Relaxed);
        high.store((cells >> 64) as u64, Relaxed);
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.start.load(Relaxed)..self.end.load(Relaxed)
    }

    pub(super) fn access(&self) -> Access {
        match self.is_write.load(Relaxed) {
            0 => Access::Read,
            _ => Access::Write,
        }
    }

    pub(super) fn conflicts_with(&self, range: &Range<u64>, access: Access) -> bool {
        let is_shared = self.access() == Access::Read && access == Access::Read;
        !is_shared && overlaps(&self.range(), range)
    }

    pub(super) fn is_granted(&self) -> bool {
        self.granted.load(Ordering::Acquire)
    }

    /// The calling thread is going to wait for the grant.
    pub(super) fn announce_waiter(&self) {
        *self.waiter() = Some(thread::current());
    }

    /// Grants, and gives the thread to wake. From here on the node is its holder's: the mutex of
    /// the lock must still be held when this is called, and the node is not touched again for this.
    pub(super) fn grant(&self) -> Option<thread::Thread> {
        let waiter = self.waiter().take();
        self.granted.store(true, Ordering::Release);
        waiter
    }

    /// Nobody waits any more.
    pub(super) fn forget_waiter(&self) {
        *self.waiter() = None;
    }

    fn waiter(&self) -> std::sync::MutexGuard<'_, Option<thread::Thread>> {
        self.waiter
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(any(loom, feature = "shuttle"))]
mod pool {
    use super::Node;

    pub(in super::super) fn take() -> &'static Node {
        Box::leak(Box::new(Node::new()))
    }

    pub(in super::super) fn put(_: &'static Node) {}
}

#[cfg(not(any(loom, feature = "shuttle")))]
mod pool {
    use std::cell::RefCell;

    use super::Node;
    use crate::primitive::Mutex;

    /// Nodes in static memory.
    const POOL_NODES: usize = 1024;
    /// Nodes in a block that is allocated when there are no more.
    const BLOCK_NODES: usize = 256;
    /// Free nodes that a thread keeps.
    const AT_HAND: usize = 4;

    static NODES: [Node; POOL_NODES] = [const { Node::new() }; POOL_NODES];

    struct Free {
        /// How many of `NODES` were ever taken.
        used: usize,
        /// A list through `next`.
        first: Option<&'static Node>,
    }

    static FREE: Mutex<Free> = Mutex::new(Free {
        used: 0,
        first: None,
    });

    struct AtHand {
        nodes: [Option<&'static Node>; AT_HAND],
        count: usize,
    }

    impl Drop for AtHand {
        fn drop(&mut self) {
            for node in self.nodes.iter().flatten() {
                put_shared(node);
            }
        }
    }

    thread_local! {
        static AT_HAND_NODES: RefCell<AtHand> = const {
            RefCell::new(AtHand { nodes: [None; AT_HAND], count: 0 })
        };
    }

    /// A node for a request.
    pub(in super::super) fn take() -> &'static Node {
        let at_hand = AT_HAND_NODES.try_with(|at_hand| {
            let mut at_hand = at_hand.borrow_mut();
            at_hand.count = at_hand.count.checked_sub(1)?;
            let count = at_hand.count;
            at_hand.nodes[count].take()
        });
        // A thread that is ending has none at hand.
        at_hand.ok().flatten().unwrap_or_else(take_shared)
    }

    /// Gives a node back.
    pub(in super::super) fn put(node: &'static Node) {
        let kept = AT_HAND_NODES.try_with(|at_hand| {
            let mut at_hand = at_hand.borrow_mut();
            let count = at_hand.count;
            let Some(place) = at_hand.nodes.get_mut(count) else {
                return false;
            };
            *place = Some(node);
            at_hand.count += 1;
            true
        });
        if kept != Ok(true) {
            put_shared(node);
        }
    }

    #[cold]
    fn take_shared() -> &'static Node {
        let mut free = FREE.lock();
        if let Some(node) = free.first {
            free.first = node.next.get();
            node.next.set(None);
            return node;
        }
        if let Some(node) = NODES.get(free.used) {
            free.used += 1;
            return node;
        }
        let block: Box<[Node]> = (0..BLOCK_NODES).map(|_| Node::new()).collect();
        let block: &'static [Node] = Box::leak(block);
        for node in &block[1..] {
            node.next.set(free.first);
            free.first = Some(node);
        }
        &block[0]
    }

    #[cold]
    fn put_shared(node: &'static Node) {
        let mut free = FREE.lock();
        node.next.set(free.first);
        free.first = Some(node);
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::range_lock::spread::CellSet;

        #[test]
        fn an_entry_knows_all_its_cells() {
            let node = Node::new();
            for cells in [CellSet::MAX, 1, 1 << 63, 1 << 64, 1 << 127, 5 << 62, 0] {
                node.set_cells(cells);
                assert_eq!(node.cells(), cells);
            }
        }

        /// Beyond the static nodes, and back: no node is given out twice at a time.
        #[test]
        fn nodes_are_given_out_once() {
            for _ in 0..2 {
                let mut taken: Vec<&'static Node> = (0..POOL_NODES + 10).map(|_| take()).collect();
                let count = taken.len();
                taken.sort_by_key(|node| std::ptr::from_ref(*node));
                taken.dedup_by_key(|node| std::ptr::from_ref(*node));
                assert_eq!(taken.len(), count);
                taken.into_iter().for_each(put);
            }
            // The second round found the nodes of the first.
            let mut free = 0;
            let mut next = FREE.lock().first;
            while let Some(node) = next {
                free += 1;
                next = node.next.get();
            }
            assert!(free <= POOL_NODES + 2 * BLOCK_NODES, "{free}");
        }
    }
}

pub(super) use pool::{put, take};
