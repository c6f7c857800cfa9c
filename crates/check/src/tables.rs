//! What the passes remember. All threads write here, by atomic operations alone; orderings are
//! relaxed, because a pass ends (its threads are joined) before another reads what it wrote.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

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

/// Two bytes for each inode, and eight more, which are in memory only where they are touched: for
/// those that have many links.
pub(crate) struct Inodes {
    /// The state, then the type (`i_mode >> 12`), links and counted names, as far as they go.
    words: Vec<AtomicU16>,
    /// How many links more.
    links: Vec<AtomicU16>,
    /// How many counted names more.
    counted: Vec<AtomicU32>,
}

/// Where the parts of an inode's word begin.
const KIND: u32 = 6;
const LINKS: u32 = 10;
const COUNTED: u32 = 13;
const STATE_MASK: u16 = (1 << KIND) - 1;
const KIND_MASK: u16 = 0xf;
/// The most links and names that a word takes.
const FEW: u16 = 7;

impl Inodes {
    pub fn new(count: u32) -> Result<Inodes, String> {
        let count = count as usize + 1;
        Ok(Inodes {
            words: zeroed(count, "inodes")?,
            links: zeroed(count, "inodes")?,
            counted: zeroed(count, "inodes")?,
        })
    }

    pub fn put(&self, ino: u32, state: u8, kind: u8, links: u16) {
        let Some(word) = self.words.get(ino as usize) else {
            return;
        };
        let few = links.min(FEW);
        let own = (u16::from(kind) & KIND_MASK) << KIND | few << LINKS;
        let others = !(KIND_MASK << KIND | FEW << LINKS);
        update(word, |old| {
            Some(old & others | own | u16::from(state) & STATE_MASK)
        });
        // Most have none: their page stays untouched.
        if links > few || self.links(ino) > few {
            self.links[ino as usize].store(links - few, Relaxed);
        }
    }

    pub fn mark(&self, ino: u32, state: u8) {
        if let Some(word) = self.words.get(ino as usize) {
            word.fetch_or(u16::from(state) & STATE_MASK, Relaxed);
        }
    }

    pub fn is(&self, ino: u32, state: u8) -> bool {
        self.word(ino) & STATE_MASK & u16::from(state) != 0
    }

    pub fn kind(&self, ino: u32) -> u8 {
        (self.word(ino) >> KIND & KIND_MASK) as u8
    }

    pub fn links(&self, ino: u32) -> u16 {
        match self.word(ino) >> LINKS & FEW {
            FEW => FEW + self.links[ino as usize].load(Relaxed),
            few => few,
        }
    }

    pub fn counted(&self, ino: u32) -> u32 {
        match self.word(ino) >> COUNTED {
            FEW => u32::from(FEW) + self.counted[ino as usize].load(Relaxed),
            few => few.into(),
        }
    }

    pub fn count(&self, ino: u32) {
        let Some(word) = self.words.get(ino as usize) else {
            return;
        };
        let is_few = update(word, |old| {
            (old >> COUNTED < FEW).then(|| old + (1 << COUNTED))
        });
        if !is_few {
            self.counted[ino as usize].fetch_add(1, Relaxed);
        }
    }

    /// Zero for an inode that there is not.
    fn word(&self, ino: u32) -> u16 {
        let word = self.words.get(ino as usize);
        word.map_or(0, |word| word.load(Relaxed))
    }
}

/// Changes a word, unless there is nothing to change.
fn update(word: &AtomicU16, change: impl Fn(u16) -> Option<u16>) -> bool {
    word.fetch_update(Relaxed, Relaxed, change).is_ok()
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

    #[test]
    fn what_is_known_of_an_inode_is_kept_apart() {
        let inodes = Inodes::new(9).unwrap();
        for links in [0, 1, 6, 7, 8, u16::MAX, 7, 2] {
            inodes.put(9, state::USED | state::ENCRYPTED, 0xf, links);
            assert_eq!(inodes.links(9), links);
        }
        inodes.put(8, state::USED, 4, 2);
        inodes.mark(8, state::INDEXED);
        // Past what a word takes, by several threads at once.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        inodes.count(8);
                        inodes.mark(8, state::EA);
                    }
                });
            }
        });
        inodes.count(9);
        assert_eq!((inodes.counted(8), inodes.counted(9)), (4000, 1));
        assert_eq!((inodes.kind(8), inodes.links(8)), (4, 2));
        assert_eq!((inodes.kind(9), inodes.links(9)), (15, 2));
        assert!(inodes.is(8, state::EA) && inodes.is(8, state::INDEXED));
        assert!(!inodes.is(8, state::BAD | state::ENCRYPTED));
        assert!(inodes.is(9, state::ENCRYPTED) && !inodes.is(9, state::EA));
        // There are no such inodes.
        inodes.put(10, state::USED, 8, 9);
        inodes.count(10);
        assert_eq!(
            (inodes.links(10), inodes.counted(10), inodes.kind(10)),
            (0, 0, 0)
        );
    }
}
