//! How an input changes a good image.
//!
//! The first byte chooses the image, the second how: bit 0, whether checksums are mended; the rest,
//! how many changes follow (up to 31). A change is a head of four bytes (which of the blocks, at
//! what offset, what to do) and its operands. What is left of the input is for the target.

use crate::layout::Layout;
use crate::seed::Seed;

/// What an input describes: an image, and what is left of the input.
pub struct Patched<'d> {
    /// The image.
    pub bytes: Vec<u8>,
    /// The rest of the input.
    pub rest: &'d [u8],
    /// The image is one of the seeds as it is.
    pub is_good: bool,
}

/// Takes bytes from the front of an input; zeros behind its end.
struct Input<'d>(&'d [u8]);

impl<'d> Input<'d> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn take(&mut self, length: usize) -> &'d [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Changes one of `seeds` as `data` says, in the blocks that `blocks` picks.
pub fn apply<'d>(
    data: &'d [u8],
    seeds: &[&Seed],
    blocks: impl Fn(&Layout) -> &[u64],
) -> Option<Patched<'d>> {
    let mut input = Input(data);
    let seed = seeds.get(usize::from(input.byte()) % seeds.len().max(1))?;
    let how = input.byte();
    let mut bytes = seed.bytes.clone();
    let places = blocks(&seed.layout);
    let count = how >> 1 & 31;
    for _ in 0..count {
        change(&mut input, &mut bytes, places, seed.layout.block_size());
    }
    if how & 1 != 0 && count > 0 {
        seed.layout.mend(&mut bytes);
    }
    Some(Patched {
        is_good: bytes == seed.bytes,
        bytes,
        rest: input.0,
    })
}

fn place(input: &mut Input<'_>, places: &[u64], block_size: usize) -> usize {
    let block = places[usize::from(input.byte()) % places.len()] as usize;
    let offset = usize::from(u16::from_le_bytes([input.byte(), input.byte()])) % block_size;
    block * block_size + offset
}

/// One change.
fn change(input: &mut Input<'_>, bytes: &mut [u8], places: &[u64], block_size: usize) {
    let start = place(input, places, block_size);
    let left = block_size - start % block_size;
    let action = input.byte();
    let length = (1 + usize::from(action >> 3)).min(left);
    match action & 7 {
        // Bytes of the input.
        0..=2 => {
            let new = input.take(length);
            bytes[start..start + new.len()].copy_from_slice(new);
        }
        // One bit.
        3 => bytes[start] ^= 1 << (action >> 3 & 7),
        // A number a little larger or smaller.
        4 => {
            let number = bytes[start..start + left.min(4)].first_chunk_mut::<4>();
            if let Some(number) = number {
                let delta = i32::from(input.byte().cast_signed());
                *number = u32::from_le_bytes(*number)
                    .wrapping_add_signed(delta)
                    .to_le_bytes();
            }
        }
        // Nothing, or all.
        5 => {
            let fill = if input.byte() & 1 == 0 { 0 } else { 0xff };
            let end = start + (length * 8).min(left);
            bytes[start..end].fill(fill);
        }
        // What is elsewhere.
        _ => {
            let from = place(input, places, block_size);
            let length = (length * 8).min(left).min(block_size - from % block_size);
            bytes.copy_within(from..from + length, start);
        }
    }
}
