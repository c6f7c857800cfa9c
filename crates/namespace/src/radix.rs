//! A sparse array that only grows: fixed height, filled in on first use, read without a lock.
//!
//! Elements live in leaves of LEAF each, found over two levels of 2^TOP and 2^MIDDLE pointers. A leaf or a middle node
//! is installed by one compare-and-swap and never moves or goes before the array does, so a
//! reference to an element lives as long as the array. Elements of different leaves share no
//! cache line, and a leaf starts with one: 64 bytes' worth of elements whose first index is a multiple of
//! as many lie in a line of their own.

use crate::once_box::OnceBox;

#[repr(align(128))]
struct Leaf<T, const LEAF: usize>([T; LEAF]);

/// Pointers to leaves or middle nodes. Everybody reads where they lie, so what else is in that line must not be
/// written. (The pointers themselves fill lines of their own but for the first and the last.)
#[repr(align(64))]
struct Pointers<P>(Box<[OnceBox<P>]>);

type Middle<T, const LEAF: usize> = Pointers<Leaf<T, LEAF>>;

/// A sparse array of `2^(TOP + MIDDLE) * LEAF` elements at most.
pub struct SparseArray<T, const TOP: u32, const MIDDLE: u32, const LEAF: usize> {
    top: OnceBox<Pointers<Middle<T, LEAF>>>,
}

fn no_pointers<P>(bits: u32) -> Pointers<P> {
    let slots = 0..1_usize << bits;
    Pointers(slots.map(|_| OnceBox::new()).collect())
}

impl<T: Default, const TOP: u32, const MIDDLE: u32, const LEAF: usize>
    SparseArray<T, TOP, MIDDLE, LEAF>
{
    /// An empty array; allocates nothing.
    pub fn new() -> Self {
        SparseArray {
            top: OnceBox::new(),
        }
    }

    /// True when no element was ever made.
    pub fn is_empty(&self) -> bool {
        self.top.get().is_none()
    }

    /// Number of elements that can be addressed.
    pub const fn capacity() -> u64 {
        (LEAF as u64) << (TOP + MIDDLE)
    }

    fn split(index: u64) -> (usize, usize, usize) {
        let leaf = index / LEAF as u64;
        let low = leaf & ((1 << MIDDLE) - 1);
        (
            (leaf >> MIDDLE) as usize,
            low as usize,
            (index % LEAF as u64) as usize,
        )
    }

    /// The element at `index`, where its leaf exists.
    pub fn get(&self, index: u64) -> Option<&T> {
        if index >= Self::capacity() {
            return None;
        }
        let (top, middle, low) = Self::split(index);
        let middles = self.top.get()?;
        let leaves = middles.0[top].get()?;
        Some(&leaves.0[middle].get()?.0[low])
    }

    /// The element at `index`, its leaf made where it does not exist; `None` beyond the capacity.
    pub fn get_or_make(&self, index: u64) -> Option<&T> {
        if index >= Self::capacity() {
            return None;
        }
        let (top, middle, low) = Self::split(index);
        let middles = self.top.get_or_make(|| no_pointers(TOP));
        let leaves = middles.0[top].get_or_make(|| no_pointers(MIDDLE));
        let make_leaf = || Leaf(std::array::from_fn(|_| T::default()));
        let leaf = leaves.0[middle].get_or_make(make_leaf);
        Some(&leaf.0[low])
    }

    /// Visits every element of every leaf that exists, from `first` on, in ascending order, until
    /// `visit` answers false.
    pub fn for_each_from(&self, first: u64, mut visit: impl FnMut(u64, &T) -> bool) {
        let Some(middles) = self.top.get() else {
            return;
        };
        let (top_first, ..) = Self::split(first.min(Self::capacity() - 1));
        for (top, middle_slot) in middles.0.iter().enumerate().skip(top_first) {
            let Some(leaves) = middle_slot.get() else {
                continue;
            };
            for (middle, leaf_slot) in leaves.0.iter().enumerate() {
                let Some(leaf) = leaf_slot.get() else {
                    continue;
                };
                let base = (((top as u64) << MIDDLE) | middle as u64) * LEAF as u64;
                for (low, element) in leaf.0.iter().enumerate() {
                    let index = base + low as u64;
                    if index >= first && !visit(index, element) {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    type Sparse = SparseArray<AtomicU64, 5, 6, 64>;

    #[test]
    fn elements_stay_where_they_are() {
        let array = Sparse::new();
        assert!(array.get(7).is_none());
        for index in [0, 7, 63, 64, 1 << 16, Sparse::capacity() - 1] {
            array
                .get_or_make(index)
                .unwrap()
                .store(index + 1, Ordering::Relaxed);
        }
        assert!(array.get_or_make(Sparse::capacity()).is_none());
        assert_eq!(array.get(7).unwrap().load(Ordering::Relaxed), 8);
        let mut seen = Vec::new();
        array.for_each_from(7, |index, element| {
            if element.load(Ordering::Relaxed) != 0 {
                seen.push(index);
            }
            true
        });
        assert_eq!(seen, [7, 63, 64, 1 << 16, Sparse::capacity() - 1]);
    }
}
