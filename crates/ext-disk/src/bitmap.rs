//! Bits in byte slices, the lowest bit of a byte first, as block and inode bitmaps have them.
//!
//! All functions take bit numbers and answer for bits beyond the slice as if they were set, so a
//! search never leaves the slice and nothing is ever allocated there.

const WORD_BITS: usize = 64;

/// Whether a bit is set.
#[inline]
pub fn test(map: &[u8], bit: usize) -> bool {
    map.get(bit / 8)
        .is_none_or(|byte| byte >> (bit % 8) & 1 != 0)
}

/// Sets a bit; whether it was set before.
#[inline]
pub fn set(map: &mut [u8], bit: usize) -> bool {
    let Some(byte) = map.get_mut(bit / 8) else {
        return true;
    };
    let mask = 1 << (bit % 8);
    let was_set = *byte & mask != 0;
    *byte |= mask;
    was_set
}

/// Clears a bit; whether it was set before.
#[inline]
pub fn clear(map: &mut [u8], bit: usize) -> bool {
    let Some(byte) = map.get_mut(bit / 8) else {
        return true;
    };
    let mask = 1 << (bit % 8);
    let was_set = *byte & mask != 0;
    *byte &= !mask;
    was_set
}

/// Sets `count` bits from `from`.
pub fn set_range(map: &mut [u8], from: usize, count: usize) {
    fill(map, from, count, |byte, mask| byte | mask);
}

/// Clears `count` bits from `from`.
pub fn clear_range(map: &mut [u8], from: usize, count: usize) {
    fill(map, from, count, |byte, mask| byte & !mask);
}

fn fill(map: &mut [u8], from: usize, count: usize, apply: impl Fn(u8, u8) -> u8) {
    let end = from.saturating_add(count).min(map.len() * 8);
    let mut bit = from;
    while bit < end {
        let shift = bit % 8;
        let width = (8 - shift).min(end - bit);
        let mask = ((0xffu16 >> (8 - width)) << shift) as u8;
        if let Some(byte) = map.get_mut(bit / 8) {
            *byte = apply(*byte, mask);
        }
        bit += width;
    }
}

/// The 64 bits from bit `64 * index`; bits beyond the slice are set.
#[inline]
fn word(map: &[u8], index: usize) -> u64 {
    let rest = map.get(index * 8..).unwrap_or(&[]);
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => {
            let mut bytes = [0xff; 8];
            for (to, from) in bytes.iter_mut().zip(rest) {
                *to = *from;
            }
            u64::from_le_bytes(bytes)
        }
    }
}

/// The first set bit of `invert ^ map` in `from..end`.
fn find(map: &[u8], from: usize, end: usize, invert: u64) -> Option<usize> {
    let end = end.min(map.len() * 8);
    if from >= end {
        return None;
    }
    let mut index = from / WORD_BITS;
    let mut bits = (word(map, index) ^ invert) & (u64::MAX << (from % WORD_BITS));
    loop {
        if bits != 0 {
            let bit = index * WORD_BITS + bits.trailing_zeros() as usize;
            return (bit < end).then_some(bit);
        }
        index += 1;
        if index * WORD_BITS >= end {
            return None;
        }
        bits = word(map, index) ^ invert;
    }
}

/// The first clear bit in `from..end`.
#[inline]
pub fn find_zero(map: &[u8], from: usize, end: usize) -> Option<usize> {
    find(map, from, end, u64::MAX)
}

/// The first set bit in `from..end`.
#[inline]
pub fn find_set(map: &[u8], from: usize, end: usize) -> Option<usize> {
    find(map, from, end, 0)
}

/// The first run of `count` clear bits in `from..end`: where it starts.
pub fn find_zero_run(map: &[u8], from: usize, end: usize, count: usize) -> Option<usize> {
    let end = end.min(map.len() * 8);
    let mut at = from;
    loop {
        let start = find_zero(map, at, end)?;
        let want = start.checked_add(count).filter(|e| *e <= end)?;
        match find_set(map, start, want) {
            None => return Some(start),
            Some(taken) => at = taken + 1,
        }
    }
}

/// Clear bits among the first `bits`.
pub fn count_zeros(map: &[u8], bits: usize) -> usize {
    let bits = bits.min(map.len() * 8);
    let whole = bits / WORD_BITS;
    let zeros: usize = (0..whole)
        .map(|i| word(map, i).count_zeros() as usize)
        .sum();
    match bits % WORD_BITS {
        0 => zeros,
        rest => zeros + (word(map, whole) | u64::MAX << rest).count_zeros() as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(map: &[u8], bit: usize) -> bool {
        map[bit / 8] & (1 << (bit % 8)) != 0
    }

    proptest! {
        #[test]
        fn agrees_with_bit_by_bit(
            mut map in prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..40),
            from in 0usize..330, count in 0usize..80, end in 0usize..400,
        ) {
            let bits = map.len() * 8;
            let stop = end.min(bits);
            prop_assert_eq!(find_zero(&map, from, end), (from..stop).find(|b| !naive(&map, *b)));
            prop_assert_eq!(find_set(&map, from, end), (from..stop).find(|b| naive(&map, *b)));
            prop_assert_eq!(count_zeros(&map, end), (0..stop).filter(|b| !naive(&map, *b)).count());
            if count > 0 {
                let run = (from..stop).find(|s| {
                    s + count <= stop && (*s..s + count).all(|b| !naive(&map, b))
                });
                prop_assert_eq!(find_zero_run(&map, from, end, count), run);
            }
            let before = map.clone();
            set_range(&mut map, from, count);
            for b in 0..bits {
                prop_assert_eq!(naive(&map, b), naive(&before, b) || (from..from + count).contains(&b));
            }
            clear_range(&mut map, from, count);
            for b in 0..bits {
                prop_assert_eq!(naive(&map, b), naive(&before, b) && !(from..from + count).contains(&b));
            }
        }
    }

    #[test]
    fn outside_is_taken() {
        let mut map = [0u8; 2];
        assert!(test(&map, 16) && set(&mut map, 16) && clear(&mut map, 99));
        assert!(!set(&mut map, 9) && test(&map, 9) && clear(&mut map, 9) && !test(&map, 9));
        assert_eq!(find_zero(&map, 16, 100), None);
    }
}
