//! A doubly linked list with a lock in each node: no lock of the whole list. From the description
//! of Zijlstra's "lock_list" (linux-kernel, 2007).
//!
//! # Rules
//! 1. A node's lock guards its link to the next node, and the next node's link back to it.
//! 2. Locks are taken in the direction of the list, so threads never wait in a circle. Adding at
//!    the head takes the head's. Removing takes the predecessor's and the node's own.
//! 3. The link back may be read without a lock, as a hint: who has then locked the node that it
//!    names looks again whether that is still the predecessor.
//!
//! Nodes lie in an array and are named by the files' numbers: the kernel's lie in the files.

use super::FileList;
use spin::mutex::{SpinMutex, SpinMutexGuard};
use std::sync::atomic::{AtomicU32, Ordering};

const HEAD: u32 = 0;
const END: u32 = u32::MAX;

type Link = SpinMutex<u32, spin::Yield>;

#[repr(align(64))]
struct Node {
    next: Link,
    previous: AtomicU32,
}

pub(super) struct LockedList {
    nodes: Vec<Node>,
}

impl LockedList {
    /// An empty list for files of numbers below `files`.
    pub(super) fn new(files: usize) -> LockedList {
        let node = || Node {
            next: Link::new(END),
            previous: AtomicU32::new(END),
        };
        LockedList {
            nodes: (0..=files).map(|_| node()).collect(),
        }
    }

    fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// Links `after` back to `before`, whose lock the caller holds.
    fn link_back(&self, after: u32, before: u32) {
        if after != END {
            self.node(after).previous.store(before, Ordering::Release);
        }
    }

    /// Locks the predecessor of a node that is on the list.
    fn lock_previous(&self, node: u32) -> (u32, SpinMutexGuard<'_, u32>) {
        loop {
            let previous = self.node(node).previous.load(Ordering::Acquire);
            let link = self.node(previous).next.lock();
            if *link == node {
                return (previous, link);
            }
        }
    }
}

impl FileList for LockedList {
    type Entry = usize;

    fn add(&self, file: usize) -> usize {
        let node = file as u32 + 1;
        let mut first = self.node(HEAD).next.lock();
        // Nobody else knows the node.
        *self.node(node).next.lock() = *first;
        self.node(node).previous.store(HEAD, Ordering::Release);
        self.link_back(*first, node);
        *first = node;
        file
    }

    fn remove(&self, file: usize) -> usize {
        let node = file as u32 + 1;
        let (previous, mut link) = self.lock_previous(node);
        let mut next = self.node(node).next.lock();
        *link = *next;
        self.link_back(*next, previous);
        // Whoever follows an old link back to here must not take this for the predecessor.
        *next = END;
        file
    }

    fn len(&self) -> usize {
        let mut count = 0;
        let mut link = self.node(HEAD).next.lock();
        while *link != END {
            count += 1;
            // The next lock before this one is let go of.
            link = self.node(*link).next.lock();
        }
        count
    }
}
