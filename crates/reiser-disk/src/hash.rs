//! The hashes of names, by which the entries of a directory are sorted.
//!
//! Bytes count as signed numbers, as in the kernel: all three hash bytes above 127 as negative.

/// A hash function, as the superblock names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameHash {
    /// `-h tea`: a keyed hash by the Tiny Encryption Algorithm.
    Tea,
    /// `-h rupasov`, in the kernel also "yura".
    Rupasov,
    /// `-h r5`, what mkfs chooses by default.
    R5,
}

/// The bits of an entry's offset that the hash gives; the others number names of one hash.
pub const HASH_MASK: u32 = 0x7fff_ff80;

/// The most names of one hash in a directory, less one.
pub const GENERATION_MAX: u32 = 127;

impl NameHash {
    /// From the superblock's field; `None` for "unset" (formats before 3.5.19) and unknown codes.
    pub fn from_code(code: u32) -> Option<NameHash> {
        match code {
            1 => Some(NameHash::Tea),
            2 => Some(NameHash::Rupasov),
            3 => Some(NameHash::R5),
            _ => None,
        }
    }

    /// As mkreiserfs and debugreiserfs call it.
    pub fn name(self) -> &'static str {
        match self {
            NameHash::Tea => "tea",
            NameHash::Rupasov => "rupasov",
            NameHash::R5 => "r5",
        }
    }

    /// The hash of a name, all 32 bits.
    pub fn hash(self, name: &[u8]) -> u32 {
        match self {
            NameHash::Tea => tea(name),
            NameHash::Rupasov => rupasov(name),
            NameHash::R5 => r5(name),
        }
    }

    /// Where the entries of a name begin: the offset of the first one with its hash. `.` and `..`
    /// have offsets of their own.
    pub fn entry_offset(self, name: &[u8]) -> u32 {
        match name {
            b"." => crate::directory::DOT_OFFSET,
            b".." => crate::directory::DOT_DOT_OFFSET,
            name => match self.hash(name) & HASH_MASK {
                // 0 is the offset of stat data, and low ones are those of the dots.
                0 => GENERATION_MAX + 1,
                offset => offset,
            },
        }
    }
}

fn signed(byte: u8) -> u32 {
    i32::from(byte.cast_signed()).cast_unsigned()
}

fn r5(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, &byte| {
        let byte = byte.cast_signed();
        let high = i32::from(byte).wrapping_shl(4).cast_unsigned();
        let low = i32::from(byte >> 4).cast_unsigned();
        hash.wrapping_add(high).wrapping_add(low).wrapping_mul(11)
    })
}

fn rupasov(name: &[u8]) -> u32 {
    // The digits of a decimal number, where the name were one.
    let digits = name.iter().fold(0_u32, |hash, &byte| {
        hash.wrapping_mul(10)
            .wrapping_add(signed(byte).wrapping_sub(u32::from(b'0')))
    });
    // Then, as if names had 256 characters, the positions from 40 on that are left.
    let rest: u32 = (name.len().max(40) as u32..256).sum();
    digits.wrapping_add(rest) << 7
}

fn tea(name: &[u8]) -> u32 {
    let mut hash = [0x9464_a485_u32, 0x542e_1a94];
    let length = name.len() as u32;
    let pad = (length | length << 8) | (length | length << 8) << 16;
    let (blocks, rest) = name.as_chunks::<16>();
    for block in blocks {
        let (words, _) = block.as_chunks::<4>();
        let mut message = [0; 4];
        for (word, bytes) in message.iter_mut().zip(words) {
            *word = tea_word(bytes);
        }
        tea_rounds(&mut hash, message, 6);
    }
    // The rest: whole words, then the remaining bytes shifted into a padded word, then padding. The
    // length that pads is that of the rest of the name at the start, the whole name's.
    let (words, tail) = rest.as_chunks::<4>();
    let mut message = [pad; 4];
    for (word, bytes) in message.iter_mut().zip(words) {
        *word = tea_word(bytes);
    }
    if let Some(word) = message.get_mut(words.len()) {
        for &byte in tail {
            *word = *word << 8 | signed(byte);
        }
    }
    tea_rounds(&mut hash, message, 10);
    hash[0] ^ hash[1]
}

fn tea_word(bytes: &[u8; 4]) -> u32 {
    // Negative bytes set all bits above theirs.
    signed(bytes[0]) | signed(bytes[1]) << 8 | signed(bytes[2]) << 16 | signed(bytes[3]) << 24
}

fn tea_rounds(hash: &mut [u32; 2], [a, b, c, d]: [u32; 4], rounds: u32) {
    let [mut left, mut right] = *hash;
    let mut sum = 0_u32;
    for _ in 0..rounds {
        sum = sum.wrapping_add(0x9e37_79b9);
        left = left.wrapping_add(
            (right << 4).wrapping_add(a) ^ right.wrapping_add(sum) ^ (right >> 5).wrapping_add(b),
        );
        right = right.wrapping_add(
            (left << 4).wrapping_add(c) ^ left.wrapping_add(sum) ^ (left >> 5).wrapping_add(d),
        );
    }
    hash[0] = hash[0].wrapping_add(left);
    hash[1] = hash[1].wrapping_add(right);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes() {
        assert_eq!(NameHash::from_code(0), None);
        for (code, name) in [(1, "tea"), (2, "rupasov"), (3, "r5")] {
            assert_eq!(NameHash::from_code(code).map(NameHash::name), Some(name));
        }
    }

    #[test]
    fn r5_by_hand() {
        // 'a' is 97: 97 * 16 + 6 = 1558, times 11.
        assert_eq!(NameHash::R5.hash(b"a"), 1558 * 11);
        assert_eq!(NameHash::R5.entry_offset(b"a"), 17138 & HASH_MASK);
        assert_eq!(NameHash::R5.hash(b""), 0);
        // -1 << 4 and -1 >> 4.
        assert_eq!(NameHash::R5.hash(&[0xff]), (-17_i32 * 11).cast_unsigned());
    }

    #[test]
    fn rupasov_by_hand() {
        let rest: u32 = (40..256).sum();
        assert_eq!(NameHash::Rupasov.hash(b"12"), (12 + rest) << 7);
    }

    #[test]
    fn dots_stand_first() {
        for hash in [NameHash::Tea, NameHash::Rupasov, NameHash::R5] {
            assert_eq!(hash.entry_offset(b"."), 1);
            assert_eq!(hash.entry_offset(b".."), 2);
            assert!(hash.entry_offset(b"x") >= 128);
        }
    }
}
