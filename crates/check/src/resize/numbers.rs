//! New numbers for the inodes of groups that go: the lowest that are free.

use finefs_ext_disk::GroupNo;

use super::shape::Shape;
use crate::pass::Check;

/// Old and new numbers, by old ones.
#[derive(Default)]
pub(super) struct Numbers {
    pairs: Vec<(u32, u32)>,
}

impl Numbers {
    /// Decides; an error where there are too few.
    pub fn new(check: &Check, shape: &Shape) -> Result<Numbers, String> {
        let end = shape.geo.inodes_count;
        let mut next = check.fs.geo.first_ino.0;
        let mut pairs = Vec::new();
        for old in end.saturating_add(1)..=check.fs.geo.inodes_count {
            if !check.is_used(old) {
                continue;
            }
            while next <= end && check.is_used(next) {
                next += 1;
            }
            if next > end {
                return Err("more inodes are in use than it would have".to_owned());
            }
            pairs.push((old, next));
            next += 1;
        }
        Ok(Numbers { pairs })
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// The number that an inode has then.
    pub fn of(&self, old: u32) -> u32 {
        match self.pairs.binary_search_by_key(&old, |pair| pair.0) {
            Ok(at) => self.pairs[at].1,
            Err(_) => old,
        }
    }

    /// The highest index in each group that gets inodes.
    pub fn filled(&self, shape: &Shape) -> Vec<(GroupNo, u32)> {
        let mut filled: Vec<(GroupNo, u32)> = Vec::new();
        for place in self
            .pairs
            .iter()
            .filter_map(|(_, new)| shape.geo.locate_inode(finefs_ext_disk::Ino(*new)))
        {
            match filled.last_mut() {
                Some((group, index)) if *group == place.group => *index = place.index,
                _ => filled.push((place.group, place.index)),
            }
        }
        filled
    }
}
