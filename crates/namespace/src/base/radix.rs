//! A sparse array that only grows: fixed height, filled in on first use, read without a lock.
//!
//! Elements live in leaves of LEAF each, found over two levels of TOP and MIDDLE pointers. A leaf
//! or a middle node is installed by one compare-and-swap and never moves or goes before the array
//! does, so a reference to an element lives as long as the array. Elements of different leaves
//! share no cache line, and a leaf starts with one: 64 bytes' worth of elements whose first index
//! is a multiple of as many lie in a line of their own.

use crate::base::once_box::{OnceBox, boxed_array};

#[repr(align(128))]
struct Leaf<T, const LEAF: usize>([T; LEAF]);

/// Pointers in a line of their own, since everybody reads them.
#[repr(align(64))]
struct Line<P>([OnceBox<P>; PER_LINE]);

const PER_LINE: usize = 8;

/// Pointers to leaves or middle nodes.
type Pointers<P, const LINES: usize> = [Line<P>; LINES];

fn no_pointers<P, const LINES: usize>() -> Box<Pointers<P, LINES>> {
    boxed_array(|| Line(std::array::from_fn(|_| OnceBox::new())))
}

#[inline]
fn at<P, const LINES: usize>(pointers: &Pointers<P, LINES>, index: usize) -> Option<&OnceBox<P>> {
    Some(&pointers.get(index / PER_LINE)?.0[index % PER_LINE])
}

type Middle<T, const MIDDLE: usize, const LEAF: usize> = Pointers<Leaf<T, LEAF>, MIDDLE>;

/// A sparse array over nodes of TOP and MIDDLE lines of pointers, and leaves of LEAF elements.
pub struct SparseArray<T, const TOP: usize, const MIDDLE: usize, const LEAF: usize> {
    top: OnceBox<Pointers<Middle<T, MIDDLE, LEAF>, TOP>>,
}

impl<T: Default, const TOP: usize, const MIDDLE: usize, const LEAF: usize>
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

    /// Leaves of a middle node.
    const LEAVES: u64 = (MIDDLE * PER_LINE) as u64;

    /// Number of elements that can be addressed.
    pub const fn capacity() -> u64 {
        (TOP * PER_LINE) as u64 * Self::LEAVES * LEAF as u64
    }

    #[inline]
    fn split(index: u64) -> (usize, usize, usize) {
        let (leaf, low) = (index / LEAF as u64, index % LEAF as u64);
        let (top, middle) = (leaf / Self::LEAVES, leaf % Self::LEAVES);
        (top as usize, middle as usize, low as usize)
    }

    /// The element at `index`, where its leaf exists.
    #[inline]
    pub fn get(&self, index: u64) -> Option<&T> {
        let (top, middle, low) = Self::split(index);
        let middles = self.top.get()?;
        // Too large an index gives too large a number here.
        let leaves = at(middles, top)?.get()?;
        Some(&at(leaves, middle)?.get()?.0[low])
    }

    /// The element at `index`, its leaf made where it does not exist; `None` beyond the capacity.
    pub fn get_or_make(&self, index: u64) -> Option<&T> {
        if index >= Self::capacity() {
            return None;
        }
        let (top, middle, low) = Self::split(index);
        let middles = self.top.get_or_make_box(no_pointers);
        let leaves = at(middles, top)?.get_or_make_box(no_pointers);
        let make_leaf = || Leaf(std::array::from_fn(|_| T::default()));
        let leaf = at(leaves, middle)?.get_or_make(make_leaf);
        Some(&leaf.0[low])
    }

    /// Bytes that the leaves take, which are nearly all of it.
    pub fn bytes(&self) -> usize {
        let Some(middles) = self.top.get() else {
            return 0;
        };
        let middles = middles.iter().flat_map(|line| &line.0);
        let leaves = middles.filter_map(OnceBox::get).flat_map(|middle| {
            let slots = middle.iter().flat_map(|line| &line.0);
            slots.filter_map(OnceBox::get)
        });
        leaves.count() * size_of::<Leaf<T, LEAF>>()
    }

    /// Visits every element of every leaf that exists, from `first` on, in ascending order, until
    /// `visit` answers false.
    pub fn for_each_from(&self, first: u64, mut visit: impl FnMut(u64, &T) -> bool) {
        let Some(middles) = self.top.get() else {
            return;
        };
        let (top_first, ..) = Self::split(first.min(Self::capacity() - 1));
        let slots = middles.iter().flat_map(|line| &line.0);
        for (top, middle_slot) in slots.enumerate().skip(top_first) {
            let Some(leaves) = middle_slot.get() else {
                continue;
            };
            let slots = leaves.iter().flat_map(|line| &line.0);
            for (middle, leaf_slot) in slots.enumerate() {
                let Some(leaf) = leaf_slot.get() else {
                    continue;
                };
                let base = (top as u64 * Self::LEAVES + middle as u64) * LEAF as u64;
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

    type Sparse = SparseArray<AtomicU64, 4, 8, 64>;

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
        for index in [Sparse::capacity(), u64::MAX] {
            assert!(array.get_or_make(index).is_none());
            assert!(array.get(index).is_none());
        }
        assert_eq!(array.get(7).unwrap().load(Ordering::Relaxed), 8);
        assert_eq!(array.bytes(), 4 * 64 * 8);
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
