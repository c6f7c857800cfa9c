//! The block map of ext2 and ext3: 12 direct blocks in the inode, then a single, a double and a
//! triple indirect block. An indirect block is an array of 32-bit block numbers, 0 for a hole.

use crate::bytes::{le32, put_le32};
use crate::units::{LogicalBlock, PhysBlock};

/// Direct blocks in `i_block`.
pub const DIRECT: u32 = 12;
/// Word of `i_block` that points at the single indirect block; double and triple follow.
pub const SINGLE: u32 = 12;
/// Word of `i_block` that points at the double indirect block.
pub const DOUBLE: u32 = 13;
/// Word of `i_block` that points at the triple indirect block.
pub const TRIPLE: u32 = 14;

/// The way from `i_block` to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    steps: [u32; 4],
    len: u8,
    /// How many blocks further the same last pointer block reaches, this one included.
    pub run: u32,
}

impl Path {
    /// The word of `i_block`, then the index in each indirect block on the way.
    pub fn steps(&self) -> &[u32] {
        self.steps.get(..usize::from(self.len)).unwrap_or(&[])
    }

    /// Indirect blocks on the way: 0 to 3.
    pub fn depth(&self) -> usize {
        usize::from(self.len).saturating_sub(1)
    }
}

/// Pointers in a block.
pub fn pointers_per_block(block_size: u32) -> u32 {
    block_size / 4
}

/// Blocks that `i_block` can map with this block size: the first number beyond the map. Logical
/// blocks have 32 bits, which limits maps with large blocks.
pub fn blocks_max(block_size: u32) -> u64 {
    let p = u64::from(pointers_per_block(block_size));
    (u64::from(DIRECT) + p + p * p + p * p * p).min(1 << 32)
}

/// The largest file without holes, in blocks: what `i_block` can map, and no more than `used_max`
/// blocks, the indirect ones counted (Linux `ext4_max_bitmap_size`).
pub fn dense_blocks_max(block_size: u32, used_max: u64) -> u64 {
    let p = u64::from(pointers_per_block(block_size));
    let indirect_of_all = 1 + (1 + p) + (1 + p + p * p);
    let most = blocks_max(block_size);
    if most + indirect_of_all <= used_max {
        return most;
    }
    let beyond_direct = used_max.saturating_sub(u64::from(DIRECT) + p);
    let indirect = if beyond_direct < p * p {
        1 + 1 + beyond_direct.div_ceil(p)
    } else {
        let in_triple = beyond_direct - p * p;
        1 + (1 + p) + 1 + in_triple.div_ceil(p) + in_triple.div_ceil(p * p)
    };
    used_max.saturating_sub(indirect)
}

/// The blocks that a tree of indirect blocks maps, by depth (1 to 3; 0 is a block itself).
pub fn blocks_of_depth(block_size: u32, depth: u32) -> u64 {
    u64::from(pointers_per_block(block_size)).saturating_pow(depth)
}

/// The first logical block that word `word` of `i_block` leads to.
pub fn first_of_word(block_size: u32, word: u32) -> LogicalBlock {
    let below: u64 = (1..=word.saturating_sub(DIRECT).min(3))
        .map(|d| blocks_of_depth(block_size, d))
        .sum();
    LogicalBlock::from(word.min(DIRECT)) + below
}

/// The way to a logical block; `None` when it lies beyond the map.
pub fn path(block_size: u32, block: LogicalBlock) -> Option<Path> {
    let p = u64::from(pointers_per_block(block_size)).max(1);
    let mut rest = block.0;
    if rest < u64::from(DIRECT) {
        let word = rest as u32;
        return Some(Path {
            steps: [word, 0, 0, 0],
            len: 1,
            run: DIRECT - word,
        });
    }
    if block >= LogicalBlock::ALL.end {
        return None;
    }
    rest -= u64::from(DIRECT);
    let run = (p - rest % p) as u32;
    for (word, depth) in (SINGLE..).zip(1u8..=3) {
        let reach = p.pow(depth.into());
        if rest >= reach {
            rest -= reach;
            continue;
        }
        let mut steps = [word, 0, 0, 0];
        for step in steps.iter_mut().take(usize::from(depth) + 1).skip(1).rev() {
            *step = (rest % p) as u32;
            rest /= p;
        }
        return Some(Path {
            steps,
            len: depth + 1,
            run,
        });
    }
    None
}

/// A pointer of an indirect block; 0 is a hole.
pub fn pointer(block: &[u8], index: u32) -> PhysBlock {
    PhysBlock(le32(block, (index as usize).saturating_mul(4)).into())
}

/// Sets a pointer of an indirect block; false when the number needs more than 32 bits.
pub fn set_pointer(block: &mut [u8], index: u32, to: PhysBlock) -> bool {
    let Ok(raw) = u32::try_from(to.0) else {
        return false;
    };
    put_le32(block, (index as usize).saturating_mul(4), raw);
    true
}

/// Whether pointers of 32 bits reach all blocks of a file system of so many.
pub fn reaches(blocks_count: u64) -> bool {
    blocks_count <= 1 << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(size: u32, block: u64) -> Vec<u32> {
        path(size, LogicalBlock(block))
            .map(|p| p.steps().to_vec())
            .unwrap_or_default()
    }

    #[test]
    fn borders() {
        // 1 KiB blocks: 256 pointers each.
        let (p, p2, p3) = (256, 256 * 256, 256 * 256 * 256);
        assert_eq!(steps(1024, 0), [0]);
        assert_eq!(steps(1024, 11), [11]);
        assert_eq!(steps(1024, 12), [12, 0]);
        assert_eq!(steps(1024, 11 + p), [12, 255]);
        assert_eq!(steps(1024, 12 + p), [13, 0, 0]);
        assert_eq!(steps(1024, 11 + p + p2), [13, 255, 255]);
        assert_eq!(steps(1024, 12 + p + p2), [14, 0, 0, 0]);
        assert_eq!(steps(1024, 11 + p + p2 + p3), [14, 255, 255, 255]);
        assert_eq!(path(1024, LogicalBlock(12 + p + p2 + p3)), None);
        assert_eq!(blocks_max(1024), 12 + p + p2 + p3);
        assert_eq!(blocks_max(65536), 1 << 32);
        // What the kernel's ext4 takes on ext2 and ext3, in 512-byte sectors of 32 bits.
        let dense = |block: u32| {
            let used_max = u64::from(u32::MAX) / (u64::from(block) / 512);
            dense_blocks_max(block, used_max) * u64::from(block)
        };
        assert_eq!(
            (dense(1024), dense(4096)),
            (17_247_252_480, 2_196_873_666_560)
        );
        assert_eq!(path(65536, LogicalBlock::ALL.end), None);
        assert!(path(65536, LogicalBlock(u32::MAX.into())).is_some());
    }

    #[test]
    fn path_leads_back() {
        for size in [1024u32, 2048, 4096] {
            let p = u64::from(size / 4);
            for block in (0..2_000_000).step_by(777) {
                let block = LogicalBlock(block);
                let path = path(size, block).expect("small");
                let s = path.steps();
                let inside = s[1..].iter().fold(0u64, |n, i| n * p + u64::from(*i));
                assert_eq!(first_of_word(size, s[0]) + inside, block);
                let next = block + u64::from(path.run);
                let last = super::path(size, LogicalBlock(next.0 - 1)).expect("run");
                assert_eq!(last.steps()[..path.depth()], s[..path.depth()]);
                let next = super::path(size, next).expect("next");
                assert_ne!(next.steps()[..next.depth()], s[..path.depth()]);
            }
        }
    }

    #[test]
    fn pointers() {
        let mut block = [0; 16];
        assert!(set_pointer(&mut block, 3, PhysBlock(7)));
        assert!(!set_pointer(&mut block, 3, PhysBlock(1 << 32)));
        assert_eq!(pointer(&block, 3), PhysBlock(7));
        assert_eq!(pointer(&block, 4), PhysBlock(0));
    }
}
