//! The hash of names in indexed directories.
//!
//! Three functions, each in two variants that take the bytes of a name as signed or as unsigned
//! characters: a mistake of the first implementation, which differed between machines, so the
//! superblock now says which one a file system uses (`s_flags`). A fourth, siphash, serves
//! encrypted directories with folded case: it is made with a key ([`DirHash::of_siphash`]).
//!
//! The major hash orders the directory; its lowest bit is kept clear, because the index uses it
//! to mark that a run of equal hashes continues from the block before.
//!
//! Reference: Linux `Documentation/filesystems/ext4/directory.rst`, "Hash Tree Directories".

use crate::casefold;
use crate::error::{Incompatible, Result};
use crate::superblock::{SuperFlags, Superblock};

/// The hash function, signedness apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// The first one.
    Legacy,
    /// Half of MD4: the default.
    HalfMd4,
    /// The Tiny Encryption Algorithm.
    Tea,
}

/// A hash function of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirHasher {
    kind: HashKind,
    is_unsigned: bool,
    seed: [u32; 4],
    /// Names are hashed whatever their case.
    folds: bool,
}

/// What a name hashes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirHash {
    /// Orders the directory; even.
    pub major: u32,
    /// Tells names of the same major hash apart (readdir positions).
    pub minor: u32,
}

impl DirHash {
    /// The hash as it is used of the words that a function gives.
    fn new(major: u32, minor: u32) -> DirHash {
        let major = major & !1;
        DirHash {
            major: if major == END { END - 2 } else { major },
            minor,
        }
    }

    /// That of a name whose SipHash-2-4 this is.
    pub fn of_siphash(hash: u64) -> DirHash {
        DirHash::new((hash >> 32) as u32, hash as u32)
    }
}

/// Hash versions as stored in an index root.
pub const VERSION_LEGACY: u8 = 0;
/// Half MD4, signed.
pub const VERSION_HALF_MD4: u8 = 1;
/// TEA, signed.
pub const VERSION_TEA: u8 = 2;
/// From here on the three are unsigned.
const VERSION_UNSIGNED: u8 = 3;
/// Siphash.
pub const VERSION_SIPHASH: u8 = 6;

const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
/// The major hash that means the end of a directory.
const END: u32 = 0x7fff_ffff << 1;

impl DirHasher {
    /// The hash function of an index root's `hash_version`, with the signedness and seed of the
    /// superblock.
    pub fn new(version: u8, sb: &Superblock) -> Result<DirHasher> {
        let is_unsigned = sb.flags().contains(SuperFlags::UNSIGNED_HASH);
        DirHasher::from_parts(version, is_unsigned, sb.hash_seed())
    }

    /// The same from its parts. `is_unsigned` counts for versions 0 to 2; 3 to 5 are unsigned.
    pub fn from_parts(version: u8, is_unsigned: bool, seed: [u32; 4]) -> Result<DirHasher> {
        let kind = match version % VERSION_UNSIGNED {
            _ if version >= VERSION_SIPHASH => return Err(Incompatible::DirHash(version).into()),
            VERSION_LEGACY => HashKind::Legacy,
            VERSION_HALF_MD4 => HashKind::HalfMd4,
            _ => HashKind::Tea,
        };
        let seed = if seed == [0; 4] { DEFAULT_SEED } else { seed };
        Ok(DirHasher {
            kind,
            is_unsigned: is_unsigned || version >= VERSION_UNSIGNED,
            seed,
            folds: false,
        })
    }

    /// The same for a directory that folds case, or does not.
    pub fn folding(self, folds: bool) -> DirHasher {
        DirHasher { folds, ..self }
    }

    /// The hash of a name.
    pub fn hash(&self, name: &[u8]) -> DirHash {
        match self.folds.then(|| casefold::fold(name)).flatten() {
            Some(folded) => self.hash_bytes(&folded),
            None => self.hash_bytes(name),
        }
    }

    fn hash_bytes(&self, name: &[u8]) -> DirHash {
        let (major, minor) = match self.kind {
            HashKind::Legacy => (self.legacy(name), 0),
            HashKind::HalfMd4 => {
                let mut state = self.seed;
                for rest in pieces(name, 32) {
                    half_md4(&mut state, &self.words::<8>(rest));
                }
                (state[1], state[2])
            }
            HashKind::Tea => {
                let mut state = self.seed;
                for rest in pieces(name, 16) {
                    tea(&mut state, &self.words::<4>(rest));
                }
                (state[0], state[1])
            }
        };
        DirHash::new(major, minor)
    }

    /// A character as the variant widens it.
    fn widen(&self, byte: u8) -> u32 {
        if self.is_unsigned {
            u32::from(byte)
        } else {
            i32::from(byte.cast_signed()).cast_unsigned()
        }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut hash, mut before) = (0x12a3_fe2du32, 0x37ab_e8f9u32);
        for byte in name {
            let mixed = self.widen(*byte).wrapping_mul(7_152_373);
            let mut next = before.wrapping_add(hash ^ mixed);
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            (before, hash) = (hash, next);
        }
        hash << 1
    }

    /// The first `4 * N` characters of `rest` as words, padded with the length of all of `rest`.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        let len = rest.len() as u32;
        let pad = (len | len << 8) & 0xffff;
        let pad = pad | pad << 16;
        let mut words = [pad; N];
        for (word, chars) in words.iter_mut().zip(rest.chunks(4)) {
            *word = chars
                .iter()
                .fold(pad, |word, c| self.widen(*c).wrapping_add(word << 8));
        }
        words
    }
}

/// What is left of `name` at each multiple of `step`.
fn pieces(name: &[u8], step: usize) -> impl Iterator<Item = &[u8]> {
    (0..name.len())
        .step_by(step)
        .filter_map(move |at| name.get(at..))
}

/// One round step of MD4: `a` takes `f` and `input` and is rotated.
fn step(a: u32, f: u32, input: u32, shift: u32) -> u32 {
    a.wrapping_add(f).wrapping_add(input).rotate_left(shift)
}

/// Three rounds of eight steps over `state`.
fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    let rounds: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (
            |x, y, z| z ^ (x & (y ^ z)),
            0,
            [0, 1, 2, 3, 4, 5, 6, 7],
            [3, 7, 11, 19],
        ),
        (
            |x, y, z| (x & y).wrapping_add((x ^ y) & z),
            0x5a82_7999,
            [1, 3, 5, 7, 0, 2, 4, 6],
            [3, 5, 9, 13],
        ),
        (
            |x, y, z| x ^ y ^ z,
            0x6ed9_eba1,
            [3, 7, 2, 6, 1, 5, 0, 4],
            [3, 9, 11, 15],
        ),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, order, shifts) in rounds {
        for (i, from) in order.into_iter().enumerate() {
            let f = mix(b, c, d);
            let word = input.get(from).copied().unwrap_or(0).wrapping_add(constant);
            let new = step(a, f, word, shifts[i % 4]);
            // The four words take turns.
            (a, b, c, d) = (d, new, b, c);
        }
    }
    for (word, add) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(add);
    }
}

/// Sixteen rounds of TEA with `key`, added to the first half of `state`.
fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let [mut y, mut z, ..] = *state;
    let mut sum = 0u32;
    let mix = |v: u32, left: u32, right: u32, sum: u32| {
        (v << 4).wrapping_add(left) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(right)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        y = y.wrapping_add(mix(z, key[0], key[1], sum));
        z = z.wrapping_add(mix(y, key[2], key[3], sum));
    }
    state[0] = state[0].wrapping_add(y);
    state[1] = state[1].wrapping_add(z);
}
