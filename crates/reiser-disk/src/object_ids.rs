//! The map of object numbers that are in use, which lies behind the superblock in its block.
//!
//! It is a list of numbers: the first one in use, the first one behind those, the next one in use,
//! and so on. There is room for only so many; where there would be more, the smallest gaps count as
//! in use, as the kernel leaves them.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bytes::le32;
use crate::error::{Corrupt, Result};

/// Numbers that no object can have: those behind the last one.
const END: u32 = u32::MAX;

/// The numbers that are in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectIds {
    /// Ranges in use, none of which touch: from the first number to the one behind the last.
    ranges: BTreeMap<u32, u32>,
}

impl ObjectIds {
    /// Reads so many words.
    pub fn parse(bytes: &[u8], words: u16) -> Result<ObjectIds> {
        let words: Vec<u32> = (0..usize::from(words))
            .map(|number| le32(bytes, 4 * number))
            .collect();
        let is_sound = words.len() >= 2
            && words.len().is_multiple_of(2)
            && 4 * words.len() <= bytes.len()
            && words[0] == 1
            && words.is_sorted_by(|a, b| a < b);
        if !is_sound {
            return Err(Corrupt::ObjectIds(words.len() as u16).into());
        }
        let pairs = words.as_chunks::<2>().0.iter();
        let ranges = pairs.map(|[start, end]| (*start, *end)).collect();
        Ok(ObjectIds { ranges })
    }

    /// The words, of which there are at most so many.
    pub fn words(&self, words_max: u16) -> Vec<u32> {
        let ranges_max = usize::from(words_max / 2).max(1);
        let surplus = self.ranges.len().saturating_sub(ranges_max);
        // The gaps between the ranges, each with where it ends.
        let starts = self.ranges.keys().skip(1);
        let mut gaps: Vec<(u32, u32)> = (self.ranges.values().zip(starts))
            .map(|(end, next)| (next - end, *next))
            .collect();
        // Of gaps of one length the first ones go.
        if surplus > 0 {
            gaps.select_nth_unstable(surplus - 1);
            gaps.drain(..surplus);
            gaps.sort_unstable_by_key(|(_, next)| *next);
        }
        let first = self.ranges.keys().next();
        let last = self.ranges.values().next_back();
        let between = (gaps.into_iter()).flat_map(|(length, next)| [next - length, next]);
        (first.copied().into_iter())
            .chain(between)
            .chain(last.copied())
            .collect()
    }

    /// True for a number in use.
    pub fn contains(&self, id: u32) -> bool {
        self.range_of(id).is_some()
    }

    fn range_of(&self, id: u32) -> Option<Range<u32>> {
        let (start, end) = self.ranges.range(..=id).next_back()?;
        (id < *end).then_some(*start..*end)
    }

    /// Takes the lowest number that is free.
    pub fn take_lowest(&mut self) -> Option<u32> {
        let (_, end) = self.ranges.first_key_value()?;
        let id = *end;
        (id < END && self.take(id)).then_some(id)
    }

    /// Takes a number; false where it is in use.
    pub fn take(&mut self, id: u32) -> bool {
        if id == END || self.contains(id) {
            return false;
        }
        let end = self.ranges.remove(&(id + 1)).unwrap_or(id + 1);
        match self.ranges.range_mut(..id).next_back() {
            Some((_, before)) if *before == id => *before = end,
            _ => drop(self.ranges.insert(id, end)),
        }
        true
    }

    /// Gives a number back; false where it is free, or never is.
    pub fn release(&mut self, id: u32) -> bool {
        let Some(range) = self.range_of(id).filter(|_| id > 1) else {
            return false;
        };
        self.ranges.remove(&range.start);
        if range.start < id {
            self.ranges.insert(range.start, id);
        }
        if id + 1 < range.end {
            self.ranges.insert(id + 1, range.end);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(words: &[u32]) -> ObjectIds {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        ObjectIds::parse(&bytes, words.len() as u16).expect("sound")
    }

    #[test]
    fn numbers_are_taken_and_given_back() {
        let mut ids = ids(&[1, 5, 7, 9]);
        assert!(ids.contains(4) && !ids.contains(5) && ids.contains(8) && !ids.contains(9));
        assert_eq!(ids.take_lowest(), Some(5));
        assert_eq!(ids.words(10), [1, 6, 7, 9]);
        assert_eq!(ids.take_lowest(), Some(6));
        assert_eq!(ids.words(10), [1, 9]);
        assert!(ids.release(3) && !ids.release(3) && !ids.release(1));
        assert_eq!(ids.words(10), [1, 3, 4, 9]);
        assert!(ids.take(20) && !ids.take(20) && ids.take(21) && ids.take(19));
        assert_eq!(ids.words(10), [1, 3, 4, 9, 19, 22]);
        assert!(ids.release(21) && ids.release(19) && ids.release(20));
        assert_eq!(ids.words(10), [1, 3, 4, 9]);
        assert!(ids.take(3));
        assert_eq!(ids.words(10), [1, 9]);
    }

    #[test]
    fn where_there_is_no_room_the_smallest_gap_counts_as_used() {
        let ids = ids(&[1, 5, 7, 9, 20, 30]);
        assert_eq!(ids.words(4), [1, 9, 20, 30]);
        assert_eq!(ids.words(2), [1, 30]);
    }

    /// What [`ObjectIds::words`] is to give, one gap after the other.
    fn merged(ids: &ObjectIds, words_max: u16) -> Vec<u32> {
        let mut words = ids.words(u16::MAX);
        while words.len() > usize::from(words_max / 2).max(1) * 2 {
            let gaps = (1..words.len() - 1).step_by(2);
            let smallest = gaps.min_by_key(|at| words[at + 1] - words[*at]);
            let at = smallest.expect("there is one");
            words.drain(at..at + 2);
        }
        words
    }

    #[test]
    fn the_smallest_gaps_are_merged_and_of_equal_ones_the_first() {
        let mut random = 1_u64;
        let mut below = |end: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % end
        };
        for _ in 0..2000 {
            let mut words = vec![1];
            for _ in 0..2 * below(12) + 1 {
                words.push(words[words.len() - 1] + 1 + below(4) as u32);
            }
            let ids = ids(&words);
            for words_max in 0..26 {
                assert_eq!(ids.words(words_max), merged(&ids, words_max), "{words:?}");
            }
        }
    }

    /// To merge one gap after the other would take minutes.
    #[test]
    fn very_many_gaps_are_merged() {
        let ranges: BTreeMap<u32, u32> = (0..1_000_000)
            .map(|number| (1 + 10 * number, 2 + 10 * number + u32::from(number == 77)))
            .collect();
        let words = ObjectIds { ranges }.words(974);
        assert_eq!(words.len(), 974);
        // The gap behind number 77 is the smallest one; of the others the last ones are left.
        assert_eq!(words[..4], [1, 9_995_132, 9_995_141, 9_995_142]);
        assert_eq!(words[973], 9_999_992);
    }

    #[test]
    fn damage() {
        for words in [&[2, 5][..], &[1, 5, 5, 7], &[1], &[1, 5, 9], &[]] {
            let bytes: Vec<u8> = words
                .iter()
                .flat_map(|word: &u32| word.to_le_bytes())
                .collect();
            assert!(
                ObjectIds::parse(&bytes, words.len() as u16).is_err(),
                "{words:?}"
            );
        }
        assert!(ObjectIds::parse(&[1, 0, 0, 0], 2).is_err());
    }
}
