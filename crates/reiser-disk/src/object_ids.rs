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
        let mut ranges: Vec<Range<u32>> = (self.ranges.iter())
            .map(|(start, end)| *start..*end)
            .collect();
        let ranges_max = usize::from(words_max / 2).max(1);
        while ranges.len() > ranges_max {
            let gap = |at: &usize| ranges[*at + 1].start - ranges[*at].end;
            let Some(smallest) = (0..ranges.len() - 1).min_by_key(gap) else {
                break;
            };
            let next = ranges.remove(smallest + 1);
            ranges[smallest].end = next.end;
        }
        (ranges.iter())
            .flat_map(|range| [range.start, range.end])
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
