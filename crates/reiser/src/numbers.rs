//! The numbers that objects get, live: what is handed out here and is not committed yet is free on
//! the device; what a commit frees is handed out when it is durable.
//!
//! The lowest free numbers come first, as in the kernel, so that the map of numbers stays short.
//! Each CPU takes some at a time: what is made on it in a row then lies in a row in the tree.
//!
//! # Locking
//! `reiser.number_stash` (76), one for each CPU, then `reiser.numbers` (77). Never over I/O.

use std::sync::atomic::{AtomicU32, Ordering};

use finefs_locks::{LockClass, Mutex, cpu};
use finefs_reiser_disk::object_ids::ObjectIds;

/// Numbers that a CPU has taken.
pub static NUMBER_STASH: LockClass = LockClass::new("reiser.number_stash", 76);

/// The numbers that nobody has taken.
pub static NUMBERS: LockClass = LockClass::new("reiser.numbers", 77);

/// So many a CPU takes at a time.
const STASHED: usize = 32;

/// See the module's head.
pub(crate) struct Numbers {
    used: Mutex<ObjectIds>,
    stashes: Box<[Mutex<Vec<u32>>]>,
    /// What the next object gets; grows as numbers come back, so that no object has both of an
    /// earlier one.
    generation: AtomicU32,
}

impl Numbers {
    /// With these in use, as the superblock says.
    pub fn new(used: ObjectIds, generation: u32) -> Numbers {
        Numbers {
            used: Mutex::new(&NUMBERS, used),
            stashes: (0..cpu::count())
                .map(|_| Mutex::new(&NUMBER_STASH, Vec::new()))
                .collect(),
            generation: AtomicU32::new(generation),
        }
    }

    /// The generation that an object gets now.
    pub fn generation(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    /// Takes a number.
    pub fn take(&self) -> Option<u32> {
        let mut stash = self.stashes[cpu::current() % self.stashes.len()].lock();
        if stash.is_empty() {
            let mut used = self.used.lock();
            let taken = std::iter::from_fn(|| used.take_lowest()).take(STASHED);
            stash.extend(taken);
            stash.reverse();
        }
        stash.pop().or_else(|| {
            drop(stash);
            self.stashes.iter().find_map(|stash| stash.lock().pop())
        })
    }

    /// A number is free again.
    pub fn give(&self, number: u32) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        if !self.used.lock().release(number) {
            log::error!("object {number} given back: it was free");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_with_another_generation() {
        let words: Vec<u8> = [1_u32, 3]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let numbers = Numbers::new(ObjectIds::parse(&words, 2).expect("sound"), 7);
        let first = (numbers.take(), numbers.generation());
        assert_eq!(first, (Some(3), 7));
        let mut taken: Vec<u32> = std::iter::from_fn(|| numbers.take()).take(100).collect();
        numbers.give(3);
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), 100);
        let again = std::iter::from_fn(|| numbers.take()).take(STASHED + 1);
        assert!(again.into_iter().any(|number| number == 3));
        assert_eq!(numbers.generation(), 8);
    }
}
