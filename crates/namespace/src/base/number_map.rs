//! Hash tables whose keys nobody chooses so that they collide: numbers of the file system's own,
//! inodes and blocks.
//!
//! They are looked at several times for each change that is committed, which the hash function of
//! std, made to withstand such keys, takes a good part of.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A table with numbers for keys.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// A set of numbers.
pub type NumberSet<K> = HashSet<K, BuildHasherDefault<NumberHasher>>;

/// Hashes one number; the golden ratio spreads strides of powers of two, as groups of blocks have
/// them. Takes bytes too, for tables that are too small to be worth an attack.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = self.0.rotate_left(5) ^ number;
        let product = u128::from(mixed) * 0x9e37_79b9_7f4a_7c15;
        // The low half hangs on low bits of the number in its low bits, which a table takes its
        // place from.
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::types::Ino;

    #[test]
    fn strides_are_spread_over_a_table() {
        for stride in [1, 16, 8192, 32_768, 1 << 20, 1 << 32] {
            let place = |index: u64| {
                let mut hasher = NumberHasher::default();
                hasher.write_u64(index * stride);
                hasher.finish() % 1024
            };
            let places: HashSet<u64> = (0..1024).map(place).collect();
            // Of places drawn by lot, 647 would differ.
            assert!(places.len() > 400, "{} for {stride}", places.len());
        }
    }

    #[test]
    fn names_are_keys() {
        let names: Vec<String> = (0..10_000)
            .map(|number| format!("file-0-{number}"))
            .collect();
        let table: NumberMap<&[u8], usize> =
            names.iter().map(|name| name.as_bytes()).zip(0..).collect();
        assert_eq!(table.len(), names.len());
        assert_eq!(table[&b"file-0-9999"[..]], 9999);
        let place = |name: &String| {
            let mut hasher = NumberHasher::default();
            hasher.write(name.as_bytes());
            hasher.finish() % 4096
        };
        let places: HashSet<u64> = names[..4096].iter().map(place).collect();
        assert!(places.len() > 2000, "{}", places.len());
    }

    #[test]
    fn inodes_are_keys() {
        let inodes: NumberSet<Ino> = (1..=1000).map(Ino).collect();
        assert!(inodes.contains(&Ino(1000)) && !inodes.contains(&Ino(0)));
        let blocks: NumberMap<u32, u8> = [(7, 1), (8, 2)].into_iter().collect();
        assert_eq!(blocks[&8], 2);
    }
}
