//! [`IntervalTree`]: held ranges, by where they lie.
//!
//! # Data model
//! A treap (Seidel and Aragon, "Randomized search trees", 1996) in the order of (start, owner).
//! Every node knows the greatest end below it, of all locks and of the exclusive ones, so that a
//! search for what lies across a range goes only where something does: O(log n + found).
//!
//! # Invariants
//! 1. In-order, the keys ascend; no key is there twice.
//! 2. A node's priority is not below its children's.
//! 3. `max_end` and `max_exclusive_end` are those of the node's subtree, itself included.

use std::ops::{ControlFlow, Range};

use super::{Held, LockKind, Owner};

type Link = Option<Box<Node>>;

struct Node {
    held: Held,
    priority: u64,
    max_end: u64,
    max_exclusive_end: u64,
    left: Link,
    right: Link,
}

/// See the module's head.
pub(super) struct IntervalTree {
    root: Link,
    /// Of the xorshift generator of priorities.
    random: u64,
}

impl Node {
    fn new(held: Held, priority: u64) -> Box<Node> {
        let mut node = Box::new(Node {
            held,
            priority,
            max_end: 0,
            max_exclusive_end: 0,
            left: None,
            right: None,
        });
        node.update();
        node
    }

    fn key(&self) -> (u64, Owner) {
        (self.held.range.start, self.held.owner)
    }

    /// Restores invariant 3, which the children keep.
    fn update(&mut self) {
        let end = self.held.range.end;
        self.max_end = end;
        self.max_exclusive_end = match self.held.kind {
            LockKind::Exclusive => end,
            LockKind::Shared => 0,
        };
        for child in [&self.left, &self.right].into_iter().flatten() {
            self.max_end = self.max_end.max(child.max_end);
            self.max_exclusive_end = self.max_exclusive_end.max(child.max_exclusive_end);
        }
    }
}

/// Parts a tree into the keys that are `below` and the others.
fn split(link: Link, below: &impl Fn((u64, Owner)) -> bool) -> (Link, Link) {
    let Some(mut node) = link else {
        return (None, None);
    };
    if below(node.key()) {
        let (middle, right) = split(node.right.take(), below);
        node.right = middle;
        node.update();
        (Some(node), right)
    } else {
        let (left, middle) = split(node.left.take(), below);
        node.left = middle;
        node.update();
        (left, Some(node))
    }
}

/// Joins two trees, all keys of the first below those of the second.
fn join(left: Link, right: Link) -> Link {
    match (left, right) {
        (None, only) | (only, None) => only,
        (Some(mut a), Some(mut b)) => {
            if a.priority >= b.priority {
                a.right = join(a.right.take(), Some(b));
                a.update();
                Some(a)
            } else {
                b.left = join(Some(a), b.left.take());
                b.update();
                Some(b)
            }
        }
    }
}

fn visit(
    link: &Link,
    range: &Range<u64>,
    is_exclusive_only: bool,
    f: &mut impl FnMut(&Held) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some(node) = link else {
        return ControlFlow::Continue(());
    };
    let reach = match is_exclusive_only {
        true => node.max_exclusive_end,
        false => node.max_end,
    };
    if reach <= range.start {
        return ControlFlow::Continue(());
    }
    visit(&node.left, range, is_exclusive_only, f)?;
    let held = &node.held;
    if held.range.start >= range.end {
        return ControlFlow::Continue(());
    }
    if held.range.end > range.start && (!is_exclusive_only || held.kind == LockKind::Exclusive) {
        f(held)?;
    }
    visit(&node.right, range, is_exclusive_only, f)
}

impl IntervalTree {
    pub(super) const fn new() -> IntervalTree {
        IntervalTree {
            root: None,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Adds a lock; its owner has none that starts there.
    pub(super) fn insert(&mut self, held: Held) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let key = (held.range.start, held.owner);
        let (left, right) = split(self.root.take(), &|other| other < key);
        let node = Node::new(held, self.random);
        self.root = join(join(left, Some(node)), right);
    }

    /// Removes the lock of `owner` that starts at `start`.
    pub(super) fn remove(&mut self, start: u64, owner: Owner) {
        let key = (start, owner);
        let (left, rest) = split(self.root.take(), &|other| other < key);
        let (found, right) = split(rest, &|other| other <= key);
        debug_assert!(found.is_some(), "a lock that is removed is there");
        self.root = join(left, right);
    }

    /// Calls `f` with the locks across `range`, in the order of their starts, until it breaks.
    pub(super) fn visit(
        &self,
        range: &Range<u64>,
        is_exclusive_only: bool,
        mut f: impl FnMut(&Held) -> ControlFlow<()>,
    ) {
        let _ = visit(&self.root, range, is_exclusive_only, &mut f);
    }

    #[cfg(test)]
    pub(super) fn check(&self) -> usize {
        fn go(link: &Link, keys: &mut Vec<(u64, Owner)>) -> (u64, u64) {
            let Some(node) = link else { return (0, 0) };
            for child in [&node.left, &node.right].into_iter().flatten() {
                assert!(child.priority <= node.priority, "invariant 2");
            }
            let left = go(&node.left, keys);
            keys.push(node.key());
            let right = go(&node.right, keys);
            let end = node.held.range.end;
            let exclusive = if node.held.kind == LockKind::Exclusive {
                end
            } else {
                0
            };
            let reach = (
                end.max(left.0).max(right.0),
                exclusive.max(left.1).max(right.1),
            );
            assert_eq!(reach, (node.max_end, node.max_exclusive_end), "invariant 3");
            reach
        }
        let mut keys = Vec::new();
        go(&self.root, &mut keys);
        assert!(keys.is_sorted_by(|a, b| a < b), "invariant 1");
        keys.len()
    }
}
