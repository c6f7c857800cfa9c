//! Blocks of the orphan file: inode numbers, 0 for free slots, and a tail of magic and checksum.

use crate::bytes::{clip, le32, put_le32};
use crate::checksum::{InodeSeed, crc32c};
use crate::error::{Checksummed, Corrupt, Result, check_sum, need};
use crate::units::{Ino, PhysBlock};

/// `ob_magic`.
pub const MAGIC: u32 = 0x0b10_ca04;
const TAIL_SIZE: usize = 8;

/// A view of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanBlock<B> {
    bytes: B,
}

impl<B: AsRef<[u8]>> OrphanBlock<B> {
    /// Makes a view of a whole block, after checking the magic.
    pub fn new(bytes: B) -> Result<OrphanBlock<B>> {
        need("orphan file block", 1024, bytes.as_ref().len())?;
        let block = OrphanBlock { bytes };
        let magic = le32(block.bytes.as_ref(), block.tail());
        if magic != MAGIC {
            return Err(Corrupt::OrphanMagic(magic).into());
        }
        Ok(block)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    fn tail(&self) -> usize {
        self.bytes.as_ref().len() - TAIL_SIZE
    }

    /// Slots in the block.
    pub fn slots(&self) -> usize {
        self.tail() / 4
    }

    /// The inode in a slot; 0 when it is free or beyond the block.
    pub fn slot(&self, index: usize) -> Ino {
        Ino(if index < self.slots() {
            le32(self.bytes.as_ref(), index * 4)
        } else {
            0
        })
    }

    /// The orphans with their slots.
    pub fn orphans(&self) -> impl Iterator<Item = (usize, Ino)> + '_ {
        (0..self.slots())
            .map(|i| (i, self.slot(i)))
            .filter(|(_, ino)| ino.0 != 0)
    }

    /// The checksum that the tail should hold; `at` is where the block lies on the device.
    pub fn compute_checksum(&self, seed: InodeSeed, at: PhysBlock) -> u32 {
        let crc = crc32c(seed.0, &at.0.to_le_bytes());
        crc32c(crc, clip(self.bytes.as_ref(), 0..self.slots() * 4))
    }

    /// Compares the checksum. Only with `metadata_csum`.
    pub fn verify_checksum(&self, seed: InodeSeed, at: PhysBlock) -> Result<()> {
        let stored = le32(self.bytes.as_ref(), self.tail() + 4);
        check_sum(
            Checksummed::OrphanFile,
            stored,
            self.compute_checksum(seed, at),
        )
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> OrphanBlock<B> {
    /// Makes an empty block.
    pub fn init(mut bytes: B) -> Result<OrphanBlock<B>> {
        need("orphan file block", 1024, bytes.as_ref().len())?;
        bytes.as_mut().fill(0);
        let mut block = OrphanBlock { bytes };
        let tail = block.tail();
        put_le32(block.bytes.as_mut(), tail, MAGIC);
        Ok(block)
    }

    /// Fills or frees (0) a slot; nothing happens beyond the block.
    pub fn set_slot(&mut self, index: usize, ino: Ino) {
        if index < self.slots() {
            put_le32(self.bytes.as_mut(), index * 4, ino.0);
        }
    }

    /// Sets the checksum. Only with `metadata_csum`; call it last.
    pub fn update_checksum(&mut self, seed: InodeSeed, at: PhysBlock) {
        let (crc, tail) = (self.compute_checksum(seed, at), self.tail());
        put_le32(self.bytes.as_mut(), tail + 4, crc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let seed = InodeSeed(77);
        let mut b = OrphanBlock::init(vec![1u8; 1024]).expect("size");
        assert_eq!((b.slots(), b.orphans().count()), (254, 0));
        b.set_slot(253, Ino(12));
        b.set_slot(254, Ino(13));
        b.update_checksum(seed, PhysBlock(9));
        let read = OrphanBlock::new(b.as_bytes()).expect("magic");
        assert_eq!(read.orphans().collect::<Vec<_>>(), [(253, Ino(12))]);
        assert_eq!(read.verify_checksum(seed, PhysBlock(9)), Ok(()));
        assert!(read.verify_checksum(seed, PhysBlock(8)).is_err());
        assert!(OrphanBlock::new([0u8; 1024]).is_err());
        assert!(OrphanBlock::new([0u8; 8]).is_err());
    }
}
