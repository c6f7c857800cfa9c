//! Where block bitmaps lie: the first one behind the superblock, each other one in the first block
//! of those that it is about. Before format 3.5.10 they lay together behind the superblock.

/// Which blocks hold bitmaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bitmaps {
    /// Blocks of the file system.
    pub block_count: u32,
    /// The block of the superblock.
    pub superblock: u32,
    /// Blocks that one bitmap is about.
    pub bits: u32,
    /// Number of bitmaps.
    pub count: u32,
    /// They lie one behind the other.
    pub are_together: bool,
}

impl Bitmaps {
    /// Of a file system of so many blocks whose superblock lies at this byte.
    pub fn new(block_count: u32, block_size: u32, offset_bytes: u64) -> Bitmaps {
        let bits = block_size.saturating_mul(8).max(1);
        Bitmaps {
            block_count,
            superblock: (offset_bytes / u64::from(block_size.max(1))) as u32,
            bits,
            count: block_count.div_ceil(bits),
            are_together: offset_bytes == crate::superblock::OLD_SUPERBLOCK_OFFSET,
        }
    }

    /// Where a bitmap lies.
    pub fn block(&self, number: u32) -> u32 {
        match number {
            0 => self.superblock.saturating_add(1),
            _ if self.are_together => self.superblock.saturating_add(1).saturating_add(number),
            _ => number.saturating_mul(self.bits),
        }
    }

    /// True for the blocks before the superblock, it, and the bitmaps.
    pub fn holds(&self, block: u32) -> bool {
        let first = self.block(0);
        block <= first
            || match self.are_together {
                true => block - first < self.count,
                false => block.is_multiple_of(self.bits),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let bitmaps = Bitmaps::new(100_000, 4096, 65536);
        assert_eq!(
            (bitmaps.count, bitmaps.block(0), bitmaps.block(3)),
            (4, 17, 98304)
        );
        assert!(bitmaps.holds(0) && bitmaps.holds(17) && !bitmaps.holds(18));
        assert!(bitmaps.holds(32768) && !bitmaps.holds(32769));
        let old = Bitmaps::new(100_000, 4096, 8192);
        assert_eq!((old.block(0), old.block(3)), (3, 6));
        assert!(old.holds(6) && !old.holds(7) && !old.holds(32768));
    }
}
