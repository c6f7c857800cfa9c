//! Indirect items: block numbers of a file, 0 for a hole; and which files end with direct items
//! instead.

use crate::bytes::{le32, put32};
use crate::error::{Corrupt, Result};
use crate::node::{ITEM_HEAD_SIZE, NODE_HEAD_SIZE};
use crate::stat;

/// Bytes of a block number.
pub const POINTER_SIZE: usize = 4;

/// The block numbers of an item's body, in order.
pub fn pointers(body: &[u8]) -> Result<impl Iterator<Item = u32> + '_> {
    if body.is_empty() || !body.len().is_multiple_of(POINTER_SIZE) {
        return Err(Corrupt::IndirectLength(body.len()).into());
    }
    Ok(body.chunks_exact(POINTER_SIZE).map(|chunk| le32(chunk, 0)))
}

/// Sets one block number.
pub fn set_pointer(body: &mut [u8], number: usize, block: u32) {
    put32(body, number * POINTER_SIZE, block);
}

/// The longest direct item: a leaf has room for it beside the stat data and an indirect item.
pub fn direct_max(block_size: usize) -> usize {
    block_size.saturating_sub(NODE_HEAD_SIZE + 2 * ITEM_HEAD_SIZE + stat::NEW_SIZE + POINTER_SIZE)
}

/// True when the kernel would keep the last bytes of a file of this size in direct items: of a
/// small file, and the longer the file is the fewer they must be.
pub fn packs_tail(size_bytes: u64, block_size: usize) -> bool {
    let block = block_size as u64;
    let max = direct_max(block_size) as u64;
    let tail = size_bytes % block;
    let limit = match size_bytes / block {
        0 => max + 1,
        1 => max * 3 / 4,
        2 => max / 2,
        3 => max / 4,
        _ => 0,
    };
    tail > 0 && tail < limit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let found: Vec<u32> = pointers(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0])
            .expect("whole")
            .collect();
        assert_eq!(found, [1, 0, 256]);
        assert!(pointers(&[1, 0]).is_err() && pointers(&[]).is_err());
    }

    #[test]
    fn tails() {
        assert_eq!(direct_max(4096), 3976);
        for (size, packs) in [
            (0, false),
            (1, true),
            (3976, true),
            (3977, false),
            (4096, false),
            (4096 + 2981, true),
            (4096 + 2982, false),
            (8192 + 1987, true),
            (8192 + 1988, false),
            (12288 + 993, true),
            (12288 + 994, false),
            (16384 + 1, false),
        ] {
            assert_eq!(packs_tail(size, 4096), packs, "{size}");
        }
    }
}
