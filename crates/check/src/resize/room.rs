//! Where things may be put: blocks that are free in the file system as it is, and free in the one
//! as it shall be. What is written there harms neither. With bigalloc these are whole clusters.

use crate::tables::Claims;

/// Clusters: what is claimed and taken as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    /// The shift from blocks to clusters; 0 without bigalloc.
    pub bits: u32,
}

impl Units {
    /// Blocks of a cluster.
    pub fn blocks(self) -> u64 {
        1 << self.bits
    }

    /// The first cluster and the number of those that have any of so many blocks.
    pub fn of(self, start: u64, count: u64) -> (u64, u64) {
        let first = start >> self.bits;
        (first, self.end(start + count) - first)
    }

    /// The number of clusters before a block, those with a part of it included.
    pub fn end(self, block: u64) -> u64 {
        block.div_ceil(self.blocks())
    }
}

/// See the module's head. All in clusters.
pub(super) struct Room {
    taken: Claims,
    units: Units,
    first: u64,
    end: u64,
    /// Where the search for single runs goes on.
    cursor: u64,
}

impl Room {
    /// Blocks from `first` up to `end` are there; all are free.
    pub fn new(first: u64, end: u64, units: Units) -> Result<Room, String> {
        let (first, end) = (first >> units.bits, end >> units.bits);
        Ok(Room {
            taken: Claims::new(end)?,
            units,
            first,
            end,
            cursor: first,
        })
    }

    /// Takes blocks, whether they are free or not.
    pub fn take(&self, start: u64, count: u64) {
        let (start, count) = self.units.of(start, count);
        self.take_units(start, count);
    }

    fn take_units(&self, start: u64, count: u64) {
        let end = start.saturating_add(count).min(self.end);
        if start < end {
            self.taken.claim(start, end - start);
        }
    }

    /// Takes what `claims` has.
    pub fn take_all(&self, claims: &Claims) {
        let mut at = self.first;
        while at < self.end {
            let bits = (64 - at % 64).min(self.end - at);
            let word = claims.word(at, bits);
            if word == u64::MAX >> (64 - bits) {
                self.taken.claim(at, bits);
            } else {
                for bit in (0..bits).filter(|bit| word >> bit & 1 != 0) {
                    self.taken.claim(at + bit, 1);
                }
            }
            at += bits;
        }
    }

    #[cfg(test)]
    pub fn free(&self) -> u64 {
        let all = self.end - self.first;
        all - self.taken.count(self.first, all)
    }

    /// The first block in `from..end` that is free, or that is not.
    fn next(&self, from: u64, end: u64, is_free: bool) -> Option<u64> {
        let end = end.min(self.end);
        let mut at = from.max(self.first);
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            let word = self.taken.word(at, bits);
            let wanted = if is_free { !word } else { word };
            let wanted = wanted & (u64::MAX >> (64 - bits));
            if wanted != 0 {
                return Some(at + u64::from(wanted.trailing_zeros()));
            }
            at += bits;
        }
        None
    }

    /// The first `count` free blocks in a row in `from..end`.
    pub fn find(&self, from: u64, end: u64, count: u64) -> Option<u64> {
        let end = (end >> self.units.bits).min(self.end);
        let count = self.units.end(count);
        let mut at = self.units.end(from);
        loop {
            let start = self.next(at, end, true)?;
            let stop = start.checked_add(count).filter(|stop| *stop <= end)?;
            match self.next(start, stop, false) {
                None => return Some(start << self.units.bits),
                Some(taken) => at = taken,
            }
        }
    }

    /// Takes the next free run, at most `most` blocks of it, or clusters for so many; gives its
    /// start and length.
    pub fn take_run(&mut self, most: u64) -> Option<(u64, u64)> {
        let most = self.units.end(most);
        let start = self
            .next(self.cursor, self.end, true)
            .or_else(|| self.next(self.first, self.cursor, true))?;
        let stop = start.saturating_add(most).min(self.end);
        let stop = self.next(start, stop, false).unwrap_or(stop);
        self.take_units(start, stop - start);
        self.cursor = stop;
        let bits = self.units.bits;
        Some((start << bits, (stop - start) << bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_and_taken() {
        let mut room = Room::new(1, 300, Units { bits: 0 }).unwrap();
        room.take(1, 9);
        room.take(100, 64);
        assert_eq!(room.free(), 299 - 73);
        assert_eq!(room.find(0, 300, 90), Some(10));
        assert_eq!(room.find(0, 300, 91), Some(164));
        assert_eq!(room.find(0, 300, 137), None);
        assert_eq!(room.take_run(1000), Some((10, 90)));
        assert_eq!(room.take_run(36), Some((164, 36)));
        assert_eq!(room.take_run(1000), Some((200, 100)));
        assert_eq!(room.take_run(1), None);
        let other = Room::new(0, 300, Units { bits: 0 }).unwrap();
        other.take_all(&room.taken);
        assert_eq!(other.free(), 1);
    }

    #[test]
    fn clusters_are_taken_whole() {
        let mut room = Room::new(0, 67, Units { bits: 2 }).unwrap();
        room.take(5, 1);
        room.take(15, 2);
        assert_eq!(room.free(), 13);
        assert_eq!(room.find(1, 64, 4), Some(8));
        assert_eq!(room.find(0, 64, 9), Some(20));
        assert_eq!(room.take_run(1), Some((0, 4)));
        assert_eq!(room.take_run(9), Some((8, 4)));
        assert_eq!(room.take_run(9), Some((20, 12)));
    }
}
