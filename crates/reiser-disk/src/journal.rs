//! The journal: a ring of transactions, and a header behind it.
//!
//! ```text
//! description block | copies of blocks | commit block        (a transaction)
//! ```
//! The description block lists the first places that the copies belong to, the commit block the
//! rest. A transaction counts when both have the same number and length.

use crate::bytes::{array, le32};
use crate::error::{Result, need};

const MAGIC: &[u8; 8] = b"ReIsErLB";
/// Bytes of the end of a description block, where its magic word lies.
const MAGIC_FROM_END: usize = 12;

/// The journal's header: what need not be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// The last transaction whose blocks are all in their places; 0 where nothing is known.
    pub flushed: u32,
    /// Where in the log the next one begins.
    pub next_start: u32,
    /// The mount that wrote it.
    pub mount_id: u32,
}

impl JournalHeader {
    /// Puts it into the header's block; what else is there stays.
    pub fn write_to(&self, block: &mut [u8]) {
        put(block, 0, self.flushed);
        put(block, 4, self.next_start);
        put(block, 8, self.mount_id);
    }

    /// Reads the header's block.
    pub fn parse(block: &[u8]) -> Result<JournalHeader> {
        need("journal header", 12, block.len())?;
        Ok(JournalHeader {
            flushed: le32(block, 0),
            next_start: le32(block, 4),
            mount_id: le32(block, 8),
        })
    }
}

/// A description block.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    block: &'a [u8],
}

impl<'a> Description<'a> {
    /// Reads a block of the log; `None` if it is no description block.
    pub fn parse(block: &'a [u8]) -> Option<Description<'a>> {
        let at = block.len().checked_sub(MAGIC_FROM_END)?;
        let is_it = array::<8>(block, at) == *MAGIC && le32(block, 4) > 0;
        is_it.then_some(Description { block })
    }

    /// The transaction's number.
    pub fn transaction(&self) -> u32 {
        le32(self.block, 0)
    }

    /// How many blocks it changes.
    pub fn length(&self) -> u32 {
        le32(self.block, 4)
    }

    /// The mount that wrote it.
    pub fn mount_id(&self) -> u32 {
        le32(self.block, 8)
    }

    /// How many places a description block of this size lists.
    pub fn places_max(block_size: usize) -> usize {
        block_size.saturating_sub(24) / 4
    }

    /// The places of all copies, in order, those in the commit block too; `None` where the commit
    /// block is another transaction's, or there are more than both have room for.
    pub fn places(&self, commit: &[u8]) -> Option<Vec<u32>> {
        let length = self.length() as usize;
        if le32(commit, 0) != self.transaction() || le32(commit, 4) != self.length() {
            return None;
        }
        let here = Description::places_max(self.block.len());
        if length.saturating_sub(here) > here {
            return None;
        }
        let place = |number: usize| match number.checked_sub(here) {
            None => le32(self.block, 12 + number * 4),
            Some(number) => le32(commit, 8 + number * 4),
        };
        Some((0..length).map(place).collect())
    }
}

/// The description block and the commit block of a transaction that changes these blocks.
/// `None` where they are more than both have room for, or there is none.
pub fn frame(
    block_size: usize,
    transaction: u32,
    mount_id: u32,
    places: &[u32],
) -> Option<(Vec<u8>, Vec<u8>)> {
    let here = Description::places_max(block_size);
    if places.is_empty() || places.len() > 2 * here {
        return None;
    }
    let (mut description, mut commit) = (vec![0; block_size], vec![0; block_size]);
    for block in [&mut description, &mut commit] {
        put(block, 0, transaction);
        put(block, 4, places.len() as u32);
    }
    put(&mut description, 8, mount_id);
    for (number, place) in places.iter().enumerate() {
        match number.checked_sub(here) {
            None => put(&mut description, 12 + number * 4, *place),
            Some(number) => put(&mut commit, 8 + number * 4, *place),
        }
    }
    let at = block_size - MAGIC_FROM_END;
    description[at..at + MAGIC.len()].copy_from_slice(MAGIC);
    Some((description, commit))
}

/// The number that a journal on another device and the superblock of its file system have in
/// common, as the header's block says.
pub fn magic(header: &[u8]) -> u32 {
    le32(header, 28)
}

/// Changed blocks that a transaction has at most, as the header's block says; 0 where it does not.
pub fn transaction_max(header: &[u8]) -> u32 {
    le32(header, 24)
}

fn put(block: &mut [u8], at: usize, value: u32) {
    if let Some(place) = block.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(length: u32) -> (Vec<u8>, Vec<u8>) {
        let (mut description, mut commit) = (vec![0; 512], vec![0; 512]);
        for block in [&mut description, &mut commit] {
            block[0] = 7;
            block[4..8].copy_from_slice(&length.to_le_bytes());
        }
        description[8] = 3;
        description[12] = 9;
        description[12 + 121 * 4] = 10;
        commit[8] = 11;
        description[500..508].copy_from_slice(MAGIC);
        (description, commit)
    }

    #[test]
    fn a_transaction() {
        let (description, commit) = blocks(123);
        let parsed = Description::parse(&description).expect("it has its magic");
        assert_eq!((parsed.transaction(), parsed.mount_id()), (7, 3));
        let places = parsed.places(&commit).expect("both agree");
        assert_eq!(places.len(), 123);
        assert_eq!((places[0], places[121], places[122]), (9, 10, 11));
    }

    #[test]
    fn what_is_framed_is_read() {
        for length in [1, 122, 123, 244] {
            let places: Vec<u32> = (100..100 + length).collect();
            let (description, commit) = frame(512, 9, 4, &places).expect("there is room");
            let parsed = Description::parse(&description).expect("it has its magic");
            assert_eq!((parsed.transaction(), parsed.mount_id()), (9, 4));
            assert_eq!(parsed.places(&commit), Some(places));
        }
        assert!(frame(512, 9, 4, &[1; 245]).is_none() && frame(512, 9, 4, &[]).is_none());
        let header = JournalHeader {
            flushed: 3,
            next_start: 8,
            mount_id: 2,
        };
        let mut block = [7; 16];
        header.write_to(&mut block);
        assert_eq!(JournalHeader::parse(&block), Ok(header));
        assert_eq!(block[12..], [7; 4]);
    }

    #[test]
    fn transactions_that_do_not_count() {
        let (mut description, mut commit) = blocks(5);
        commit[0] = 8;
        let parsed = Description::parse(&description).expect("it has its magic");
        assert_eq!(parsed.places(&commit), None);
        let (large, commit) = blocks(1000);
        assert_eq!(
            Description::parse(&large).expect("magic").places(&commit),
            None
        );
        description[500] = 0;
        assert!(Description::parse(&description).is_none());
        assert!(Description::parse(&blocks(0).0).is_none());
    }
}
