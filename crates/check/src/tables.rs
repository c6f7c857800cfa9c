//! What the passes remember. All threads write here, by atomic operations alone; orderings are
//! relaxed, because a pass ends (its threads are joined) before another reads what it wrote.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use zerocopy::FromZeros;

fn zeroed<T: FromZeros>(count: usize, what: &str) -> Result<Vec<T>, String> {
    T::new_vec_zeroed(count).map_err(|_| format!("not enough memory for {count} {what}"))
}

/// A bit for each block (cluster), set when something claims it.
pub(crate) struct Claims {
    words: Vec<AtomicU64>,
}

impl Claims {
    pub fn new(blocks: u64) -> Result<Claims, String> {
        let words = zeroed((blocks / 64 + 1) as usize, "words of block bits")?;
        Ok(Claims { words })
    }

    /// The same claims, in a table of their own.
    pub fn copy(&self) -> Claims {
        let words = self.words.iter().map(|word| word.load(Relaxed).into());
        Claims {
            words: words.collect(),
        }
    }

    /// Claims `count` from `start` on; how many of them had been claimed before.
    pub fn claim(&self, start: u64, count: u64) -> u64 {
        let mut before = 0;
        self.each_word(start, count, |word, mask| {
            before += u64::from((word.fetch_or(mask, Relaxed) & mask).count_ones());
        });
        before
    }

    pub fn is_claimed(&self, block: u64) -> bool {
        let word = self.words.get((block / 64) as usize);
        word.is_some_and(|word| word.load(Relaxed) >> (block % 64) & 1 != 0)
    }

    pub fn count(&self, start: u64, count: u64) -> u64 {
        let mut set = 0;
        self.each_word(start, count, |word, mask| {
            set += u64::from((word.load(Relaxed) & mask).count_ones());
        });
        set
    }

    /// Up to 64 bits from `start` on.
    pub fn word(&self, start: u64, bits: u64) -> u64 {
        let at = |index: u64| {
            let word = self.words.get(index as usize);
            word.map_or(0, |word| word.load(Relaxed))
        };
        let (index, shift) = (start / 64, start % 64);
        let mut word = at(index) >> shift;
        if shift > 0 {
            word |= at(index + 1) << (64 - shift);
        }
        word & (u64::MAX >> (64 - bits.clamp(1, 64)))
    }

    fn each_word(&self, start: u64, count: u64, mut each: impl FnMut(&AtomicU64, u64)) {
        let (mut at, end) = (start, start.saturating_add(count));
        while at < end {
            let Some(word) = self.words.get((at / 64) as usize) else {
                return;
            };
            let bits = (64 - at % 64).min(end - at);
            let mask = (u64::MAX >> (64 - bits)) << (at % 64);
            each(word, mask);
            at += bits;
        }
    }
}

/// What is known of an inode.
pub(crate) mod state {
    /// It is in use.
    pub const USED: u8 = 1;
    /// It was marked as having fields that cannot be.
    pub const BAD: u8 = 2;
    /// It holds the value of an extended attribute.
    pub const EA: u8 = 4;
    /// It has an index.
    pub const INDEXED: u8 = 8;
    /// An extended attribute refers to it.
    pub const EA_REFERENCED: u8 = 0x10;
    /// It is encrypted.
    pub const ENCRYPTED: u8 = 0x20;
}

/// 8 bytes for each inode, in memory once they are touched.
pub(crate) struct Inodes {
    state: Vec<AtomicU8>,
    /// The type: `i_mode >> 12`.
    kind: Vec<AtomicU8>,
    links: Vec<AtomicU16>,
    counted: Vec<AtomicU32>,
}

impl Inodes {
    pub fn new(count: u32) -> Result<Inodes, String> {
        let count = count as usize + 1;
        Ok(Inodes {
            state: zeroed(count, "inodes")?,
            kind: zeroed(count, "inodes")?,
            links: zeroed(count, "inodes")?,
            counted: zeroed(count, "inodes")?,
        })
    }

    pub fn put(&self, ino: u32, state: u8, kind: u8, links: u16) {
        let at = ino as usize;
        if at < self.state.len() {
            self.state[at].fetch_or(state, Relaxed);
            self.kind[at].store(kind, Relaxed);
            self.links[at].store(links, Relaxed);
        }
    }

    pub fn mark(&self, ino: u32, state: u8) {
        if let Some(word) = self.state.get(ino as usize) {
            word.fetch_or(state, Relaxed);
        }
    }

    pub fn is(&self, ino: u32, state: u8) -> bool {
        let word = self.state.get(ino as usize);
        word.is_some_and(|word| word.load(Relaxed) & state != 0)
    }

    pub fn kind(&self, ino: u32) -> u8 {
        self.kind.get(ino as usize).map_or(0, |k| k.load(Relaxed))
    }

    pub fn links(&self, ino: u32) -> u16 {
        self.links.get(ino as usize).map_or(0, |l| l.load(Relaxed))
    }

    pub fn counted(&self, ino: u32) -> u32 {
        self.counted
            .get(ino as usize)
            .map_or(0, |c| c.load(Relaxed))
    }

    pub fn count(&self, ino: u32) {
        if let Some(counted) = self.counted.get(ino as usize) {
            counted.fetch_add(1, Relaxed);
        }
    }
}

/// A directory.
pub(crate) struct Dir {
    pub ino: u32,
    /// Whom `..` names; 0 for nobody.
    pub dotdot: AtomicU32,
    /// The directory with its entry; 0 for none.
    pub parent: AtomicU32,
}

/// All directories, by number.
pub(crate) struct Dirs {
    pub list: Vec<Dir>,
}

impl Dirs {
    pub fn new(mut numbers: Vec<u32>) -> Dirs {
        numbers.sort_unstable();
        let list = numbers.into_iter().map(|ino| Dir {
            ino,
            dotdot: AtomicU32::new(0),
            parent: AtomicU32::new(0),
        });
        Dirs {
            list: list.collect(),
        }
    }

    pub fn get(&self, ino: u32) -> Option<&Dir> {
        let at = self.list.binary_search_by_key(&ino, |dir| dir.ino).ok()?;
        self.list.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_counted_across_words() {
        let claims = Claims::new(300).unwrap();
        assert_eq!(claims.claim(60, 140), 0);
        assert_eq!(claims.claim(199, 2), 1);
        assert_eq!(claims.claim(0, 300), 141);
        assert_eq!(claims.count(64, 64), 64);
        assert!(claims.is_claimed(299) && !claims.is_claimed(300));
        assert_eq!(claims.claim(10_000, 5), 0);
    }
}
