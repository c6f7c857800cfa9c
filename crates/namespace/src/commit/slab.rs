//! Values at places that stay: they lie in chunks, so none is moved where more come, and memory is
//! taken piece by piece.

use std::ops::{Index, IndexMut};

/// Values of a chunk.
const CHUNK: usize = 256;

/// See the module's head. What was taken out leaves its place to the next value.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<T>>,
    /// So many places have been in use.
    length: usize,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            chunks: Vec::new(),
            length: 0,
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// How many places are in use.
    pub fn used(&self) -> usize {
        self.length - self.free.len()
    }

    /// Puts a value at a place that is free, or at a new one.
    pub fn put(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self[place] = value;
            return place;
        }
        let place = self.length;
        if place / CHUNK == self.chunks.len() {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks[place / CHUNK].push(value);
        self.length += 1;
        place as u32
    }

    /// Frees a place; what lies there stays until the next value comes.
    pub fn free(&mut self, place: u32) {
        self.free.push(place);
    }

    /// Empties it, and keeps its memory.
    pub fn clear(&mut self) {
        self.chunks.iter_mut().for_each(Vec::clear);
        self.length = 0;
        self.free.clear();
    }

    /// What lies at each place that has been in use, in their order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flatten()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, place: u32) -> &T {
        &self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn places_stay_and_are_used_again() {
        let mut slab = Slab::default();
        for round in 0..2 {
            let many = 3 * CHUNK as u32 + 7;
            for value in 0..many {
                assert_eq!(slab.put(value), value, "round {round}");
            }
            slab.free(300);
            slab.free(5);
            assert_eq!(slab.used(), many as usize - 2);
            assert_eq!((slab.put(1000), slab.put(1001)), (5, 300));
            assert_eq!(slab.put(many), many);
            assert_eq!(
                (slab[5], slab[300], slab[4], slab[many]),
                (1000, 1001, 4, many)
            );
            assert_eq!(slab.iter_mut().count(), many as usize + 1);
            slab.clear();
            assert_eq!((slab.used(), slab.iter_mut().count()), (0, 0));
        }
    }
}
