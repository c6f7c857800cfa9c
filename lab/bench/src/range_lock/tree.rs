//! Rival: one mutex over an interval tree of all requests, held and waiting; after the range locks
//! proposed for Linux (Kara 2013, Bueso 2017) and used in Lustre.
//!
//! A request counts the earlier ones that it conflicts with, goes into the tree and waits until
//! that count is 0. Who leaves takes itself out of the tree and off the counts of the later
//! requests that it conflicts with. The tree is a treap by start, each node knowing the greatest
//! end below it.

use super::candidate::{Candidate, Flag};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

const NONE: u32 = u32::MAX;

struct Node {
    range: Range<u64>,
    is_write: bool,
    /// Order of arrival; with the start, the key.
    number: u64,
    blockers: u32,
    waiter: Option<Arc<Flag>>,
    priority: u64,
    end_max: u64,
    left: u32,
    right: u32,
}

#[derive(Default)]
struct Inner {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: Option<u32>,
    last: u64,
}

/// See the module's head.
#[derive(Default)]
pub struct Tree(Mutex<Inner>);

impl Inner {
    fn node(&mut self, index: u32) -> &mut Node {
        &mut self.nodes[index as usize]
    }

    fn end_max(&self, index: u32) -> u64 {
        match index {
            NONE => 0,
            _ => self.nodes[index as usize].end_max,
        }
    }

    fn update(&mut self, index: u32) {
        let node = &self.nodes[index as usize];
        let below = self.end_max(node.left).max(self.end_max(node.right));
        let node = self.node(index);
        node.end_max = node.range.end.max(below);
    }

    fn key(&self, index: u32) -> (u64, u64) {
        let node = &self.nodes[index as usize];
        (node.range.start, node.number)
    }

    /// Into those below `key` and the others.
    fn split(&mut self, root: u32, key: (u64, u64)) -> (u32, u32) {
        if root == NONE {
            return (NONE, NONE);
        }
        if self.key(root) < key {
            let (low, high) = self.split(self.nodes[root as usize].right, key);
            self.node(root).right = low;
            self.update(root);
            (root, high)
        } else {
            let (low, high) = self.split(self.nodes[root as usize].left, key);
            self.node(root).left = high;
            self.update(root);
            (low, root)
        }
    }

    fn join(&mut self, low: u32, high: u32) -> u32 {
        if low == NONE {
            return high;
        }
        if high == NONE {
            return low;
        }
        if self.nodes[low as usize].priority > self.nodes[high as usize].priority {
            let right = self.join(self.nodes[low as usize].right, high);
            self.node(low).right = right;
            self.update(low);
            low
        } else {
            let left = self.join(low, self.nodes[high as usize].left);
            self.node(high).left = left;
            self.update(high);
            high
        }
    }

    /// Calls `f` for every node that conflicts.
    fn for_conflicts(
        &mut self,
        root: u32,
        range: &Range<u64>,
        is_write: bool,
        f: &mut impl FnMut(&mut Node),
    ) {
        if root == NONE || self.end_max(root) <= range.start {
            return;
        }
        let (left, right) = {
            let node = self.node(root);
            (node.left, node.right)
        };
        self.for_conflicts(left, range, is_write, f);
        let node = self.node(root);
        if node.range.start >= range.end {
            return;
        }
        if node.range.end > range.start && (node.is_write || is_write) {
            f(node);
        }
        self.for_conflicts(right, range, is_write, f);
    }

    fn insert(&mut self, range: Range<u64>, is_write: bool) -> (u32, Option<Arc<Flag>>) {
        let root = self.root.unwrap_or(NONE);
        let mut blockers = 0;
        self.for_conflicts(root, &range, is_write, &mut |_| blockers += 1);
        self.last += 1;
        let number = self.last;
        let waiter = (blockers > 0).then(|| Arc::new(Flag::new()));
        let node = Node {
            end_max: range.end,
            range,
            is_write,
            number,
            blockers,
            waiter: waiter.clone(),
            priority: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 17,
            left: NONE,
            right: NONE,
        };
        let index = match self.free.pop() {
            Some(index) => {
                *self.node(index) = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        let (low, high) = self.split(root, self.key(index));
        let low = self.join(low, index);
        self.root = Some(self.join(low, high));
        (index, waiter)
    }

    /// Takes a node out; those who now wait for nobody are put into `granted`.
    fn remove(&mut self, index: u32, granted: &mut Vec<Arc<Flag>>) {
        let root = self.root.unwrap_or(NONE);
        let (start, number) = self.key(index);
        let (low, rest) = self.split(root, (start, number));
        let (_, high) = self.split(rest, (start, number + 1));
        let root = self.join(low, high);
        self.root = Some(root);
        let node = self.node(index);
        let (range, is_write) = (node.range.clone(), node.is_write);
        node.waiter = None;
        self.free.push(index);
        self.for_conflicts(root, &range, is_write, &mut |other| {
            if other.number > number {
                other.blockers -= 1;
                if other.blockers == 0 {
                    granted.extend(other.waiter.take());
                }
            }
        });
    }
}

impl Candidate for Tree {
    fn hold<R>(&self, range: Range<u64>, is_write: bool, body: impl FnOnce() -> R) -> R {
        let (index, waiter) = self.0.lock().insert(range, is_write);
        if let Some(waiter) = waiter {
            waiter.wait();
        }
        let result = body();
        let mut granted = Vec::new();
        self.0.lock().remove(index, &mut granted);
        for waiter in granted {
            waiter.set();
        }
        result
    }
}
