//! A bitmap of one group in memory: a set bit is in use.
//!
//! Bits at and after the length are never free, so no search runs past the group's end.

/// A bitmap with its number of free bits.
#[derive(Clone, Debug)]
pub struct Bits {
    words: Box<[u64]>,
    length: u32,
    free: u32,
    /// No word before this one has a free bit: where a search begins that takes the first.
    first_open: u32,
}

/// The words of a range of bits, each with those of its bits that are in the range.
fn masks(start: u32, end: u32) -> impl Iterator<Item = (usize, u64)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let shift = at % 64;
        let take = (64 - shift).min(end.saturating_sub(at));
        let index = (at / 64) as usize;
        at += take;
        (take > 0).then(|| (index, (!0u64 >> (64 - take)) << shift))
    })
}

impl Bits {
    /// From the bytes of an on-disk bitmap; bits at and after `length` and those that `bytes` does
    /// not reach count as used.
    pub fn from_bytes(bytes: &[u8], length: u32) -> Bits {
        let mut words = vec![!0u64; length.div_ceil(64) as usize].into_boxed_slice();
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut raw = [0xff; 8];
            raw[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(raw);
        }
        if !length.is_multiple_of(64)
            && let Some(last) = words.last_mut()
        {
            *last |= !0 << (length % 64);
        }
        let free = words.iter().map(|word| word.count_zeros()).sum();
        let mut bits = Bits {
            words,
            length,
            free,
            first_open: 0,
        };
        bits.pass_full_words();
        bits
    }

    /// A bitmap of `length` free bits.
    pub fn all_free(length: u32) -> Bits {
        Bits::from_bytes(&vec![0; length.div_ceil(8) as usize], length)
    }

    /// The bytes of an on-disk bitmap; what lies behind the length is set, as it must be there.
    pub fn write_to(&self, bytes: &mut [u8]) {
        bytes.fill(0xff);
        for (chunk, word) in bytes.chunks_mut(8).zip(&self.words) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }

    fn pass_full_words(&mut self) {
        while self.words.get(self.first_open as usize) == Some(&!0) {
            self.first_open += 1;
        }
    }

    /// Where a range ends that may reach past the length.
    fn end_of(&self, start: u32, count: u32) -> u32 {
        start.saturating_add(count).min(self.length)
    }

    /// True when no bit of the range is free.
    pub fn all_used(&self, start: u32, count: u32) -> bool {
        masks(start, self.end_of(start, count)).all(|(index, mask)| !self.words[index] & mask == 0)
    }

    /// True when no bit at or after `start` is in use.
    pub fn all_free_from(&self, start: u32) -> bool {
        let count = self.length.saturating_sub(start);
        self.run_at(start, count) == count
    }

    /// Number of free bits.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Marks a range used; tells how many of its bits were free before.
    pub fn set_range(&mut self, start: u32, count: u32) -> u32 {
        let mut changed = 0;
        for (index, mask) in masks(start, self.end_of(start, count)) {
            let word = &mut self.words[index];
            changed += (!*word & mask).count_ones();
            *word |= mask;
        }
        self.free -= changed;
        self.pass_full_words();
        changed
    }

    /// Marks a range free; tells how many of its bits were in use before.
    pub fn clear_range(&mut self, start: u32, count: u32) -> u32 {
        let mut changed = 0;
        for (index, mask) in masks(start, self.end_of(start, count)) {
            let word = &mut self.words[index];
            changed += (*word & mask).count_ones();
            *word &= !mask;
        }
        self.free += changed;
        self.first_open = self.first_open.min(start / 64);
        changed
    }

    /// The first free bit at or after `from`.
    pub fn next_free(&self, from: u32) -> Option<u32> {
        let from = from.max(self.first_open.saturating_mul(64));
        let mut index = (from / 64) as usize;
        let mut word = !*self.words.get(index)? & (!0 << (from % 64));
        while word == 0 {
            index += 1;
            word = !*self.words.get(index)?;
        }
        Some(index as u32 * 64 + word.trailing_zeros())
    }

    /// Length of the free run that starts at `start`, at most `max`. It looks no further than that.
    pub fn run_at(&self, start: u32, max: u32) -> u32 {
        let end = start.saturating_add(max).min(self.length);
        let mut at = start;
        while at < end {
            let used = self.words[(at / 64) as usize] >> (at % 64);
            if used != 0 {
                return (at + used.trailing_zeros()).min(end) - start;
            }
            at = (at / 64 + 1) * 64;
        }
        end.saturating_sub(start)
    }

    /// The first chunk of `count` free bits, aligned to as many, at or after `from`, or else before
    /// it.
    pub fn find_chunk(&self, from: u32, count: u32) -> Option<u32> {
        let first = from.checked_next_multiple_of(count)?;
        let find = |mut at: u32, end: u32| {
            while at < end && at + count <= self.length {
                let free = self.run_at(at, count);
                if free == count {
                    return Some(at);
                }
                at = (at + free + 1).next_multiple_of(count);
            }
            None
        };
        find(first, self.length).or_else(|| find(0, first))
    }

    /// The first free run of at least `wanted` bits at or after `from`, or, where there is none,
    /// the longest one after `from`.
    pub fn find_run(&self, from: u32, wanted: u32) -> Option<(u32, u32)> {
        let mut best: Option<(u32, u32)> = None;
        let mut at = from;
        while let Some(start) = self.next_free(at) {
            let length = self.run_at(start, wanted);
            if length >= wanted {
                return Some((start, wanted));
            }
            if best.is_none_or(|(_, longest)| length > longest) {
                best = Some((start, length));
            }
            at = start + length;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(length: u32, used: &[u32]) -> Bits {
        let mut bytes = vec![0u8; length.div_ceil(8) as usize];
        for &bit in used {
            bytes[(bit / 8) as usize] |= 1 << (bit % 8);
        }
        Bits::from_bytes(&bytes, length)
    }

    #[test]
    fn the_end_is_used() {
        let bits = bits(70, &[]);
        assert_eq!(bits.free(), 70);
        assert_eq!(bits.run_at(60, 100), 10);
        assert_eq!(bits.next_free(70), None);
        assert_eq!([70, u32::MAX].map(|at| bits.run_at(at, 1)), [0, 0]);
    }

    #[test]
    fn missing_bytes_are_used() {
        assert_eq!(Bits::from_bytes(&[0], 100).free(), 8);
    }

    #[test]
    fn ranges_count_what_changes() {
        let mut bits = bits(256, &[3, 100]);
        assert_eq!(bits.set_range(0, 130), 128);
        assert_eq!(bits.free(), 126);
        assert_eq!(bits.clear_range(64, 128), 66);
        assert_eq!(bits.free(), 192);
        assert_eq!(bits.run_at(64, 1000), 192);
        assert_eq!(bits.set_range(250, 100), 6);
    }

    /// Words that are full are passed over, and looked at again when a bit of theirs comes free.
    #[test]
    fn the_first_free_bit_follows_what_is_taken_and_given_back() {
        let mut bits = bits(300, &[]);
        for at in 0..300 {
            assert_eq!(bits.next_free(0), Some(at));
            assert!(!bits.all_used(at, 1) && bits.all_used(0, at));
            bits.set_range(at, 1);
        }
        assert_eq!((bits.next_free(0), bits.all_used(0, 1000)), (None, true));
        for (given_back, first) in [(299, 299), (64, 64), (130, 64), (63, 63), (0, 0)] {
            bits.clear_range(given_back, 1);
            assert_eq!(bits.next_free(0), Some(first));
        }
        assert_eq!(bits.next_free(1), Some(63));
        bits.set_range(0, 64);
        assert_eq!(bits.next_free(0), Some(64));
    }

    #[test]
    fn the_rest_is_free_or_not() {
        let bits = bits(200, &[10, 128]);
        for (start, is_free) in [
            (0, false),
            (128, false),
            (129, true),
            (200, true),
            (300, true),
        ] {
            assert_eq!(bits.all_free_from(start), is_free, "from {start}");
        }
    }

    #[test]
    fn runs() {
        let bits = bits(200, &[10, 20, 64, 128]);
        assert_eq!(bits.find_run(0, 10), Some((0, 10)));
        assert_eq!(bits.find_run(1, 20), Some((21, 20)));
        assert_eq!(bits.find_run(11, 63), Some((65, 63)));
        assert_eq!(bits.find_run(0, 72), Some((129, 71)));
        assert_eq!(bits.find_run(130, 1000), Some((130, 70)));
        assert_eq!(bits.find_run(200, 1), None);
    }

    #[test]
    fn chunks_are_aligned_and_all_free() {
        let bits = bits(200, &[10, 20, 64, 128]);
        assert_eq!(bits.find_chunk(0, 16), Some(32));
        assert_eq!(bits.find_chunk(33, 16), Some(48));
        assert_eq!(bits.find_chunk(49, 32), Some(96));
        // What is left at the end is no chunk; before `from` there is one.
        assert_eq!(bits.find_chunk(161, 32), Some(32));
        assert_eq!(bits.find_chunk(100, 64), None);
    }

    #[test]
    fn agrees_with_a_plain_scan() {
        let mut seed = 7u64;
        let used: Vec<u32> = (0..333)
            .filter(|_| {
                seed = seed
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                seed >> 62 == 0
            })
            .collect();
        let bits = bits(333, &used);
        for from in 0..340 {
            let plain = (from..333).find(|i| !used.contains(i));
            assert_eq!(bits.next_free(from), plain);
            let run = (from..333).take_while(|i| !used.contains(i)).count() as u32;
            assert_eq!(bits.run_at(from, u32::MAX), run);
            assert_eq!(bits.run_at(from, 2), run.min(2));
        }
    }
}
