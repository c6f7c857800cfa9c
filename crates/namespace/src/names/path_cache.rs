//! What a path leads to, remembered, so that what is on the way need not be looked up again.
//!
//! # What is remembered
//! The way from a directory along names to an inode, by a *signature* of 128 bits: the SipHash of
//! the path's bytes with keys that nobody sees, combined with the number of the directory where it
//! starts. Two ways of one signature are as likely as a key that was guessed, so the bytes
//! themselves are not kept. Of the inode there is its number, and how many names inodes of that
//! number had lost (`inode_table`). A way that has `..` in it, or leads over or to a symbolic link,
//! is not remembered, and callers whose search permission must be looked at do not ask.
//!
//! # Why it holds
//! 1. The last name of the way still names the inode, as long as inodes of that number lose none.
//!    The count is odd while one does; it was read before the name was last seen to be there.
//! 2. Then the names before it go by a rename of a directory only, since none of the directories on
//!    the way is empty. Such renames are counted, and the count, read before the way was walked,
//!    goes into the signature. While one is under way nothing is found, and nothing remembered that
//!    is found later on.
//!
//! # Slots
//! A way has one of two slots, which share a cache line. They are read and written without a lock,
//! word by word. Two of the four words are the signature combined with the other two, in such a way
//! that what several have written is found by nobody. Of two ways, be it one path before and after
//! a rename, both words of the signatures differ, and as far as numbers by chance do: so both words
//! are the way's that is asked for. Of two ends of one way each first word goes with its own count
//! of lost names, and then each second one with its own place. When most slots of a table are used
//! there is a larger one, and what was in the smaller is forgotten.
//!
//! Reference: Tsai, Zhan, Reddy, Jiao, Zhang, Porter, "How to Get More Value From Your File System
//! Directory Cache" (SOSP 2015).

use crossbeam_utils::CachePadded;
use finefs_locks::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use siphasher::sip128::SipHasher13;

use crate::base::once_box::OnceBox;
use crate::base::types::INODES_END;
use crate::base::types::Ino;
use crate::names::name_table::new_keys;

/// Slots of each table, as a power of two: 8 KiB to 32 MiB.
const TABLES: [u32; 6] = [8, 11, 14, 16, 18, 20];

/// A table has no more, but for the first.
const SLOTS_PER_INODE: u64 = 4;

/// A rename under way; those that have ended are counted from `MOVED` on.
const MOVING: u64 = 1;
const MOVED: u64 = 1 << 16;

/// See the module's head.
pub(crate) struct PathCache {
    keys: [u64; 2],
    /// Renames of directories: how many have ended, how many are under way.
    moves: CachePadded<AtomicU64>,
    /// Which of the tables is used.
    current: CachePadded<AtomicUsize>,
    tables: [OnceBox<Table>; TABLES.len()],
    /// The first bits of where inodes are in memory.
    region: AtomicUsize,
}

/// What a way is found by, as of a moment at which no directory was being renamed: its signature.
#[derive(Clone, Copy)]
pub(crate) struct Way([u64; 2]);

/// What is at the end of a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct End {
    pub ino: Ino,
    /// The sequence counter of the names of inodes of this number: see `InodeSlot`.
    pub name_seq: u64,
}

/// A directory is being renamed; until this is dropped.
pub(crate) struct Moving<'c>(&'c AtomicU64);

struct Table {
    lines: Box<[Line]>,
    /// Slots that were ever written.
    used: CachePadded<AtomicUsize>,
}

/// A cache line.
#[repr(align(64))]
struct Line([Slot; 2]);
const LINE: usize = size_of::<Line>();
/// What stat and lookups need of an inode comes first in it.
const LINES_ASKED_FOR: usize = 3;

/// The signature, combined with what follows; the end's *place*, which is its number and above it
/// where its inode was in memory, and is 0 in a slot that was never written; and the end's count
/// of lost names.
struct Slot([AtomicU64; 4]);

/// The number in a place.
const INO: u64 = INODES_END - 1;
/// An address in a place lacks its last bits, which are 0, and the first ones, which are those of
/// others.
const ADDRESS_AT: u32 = 32;
const ADDRESS_UNIT: usize = 16;
/// All of an address where addresses have 32 bits.
const WITHIN_REGION: usize = (((ADDRESS_UNIT as u64) << 32) - 1) as usize;

impl PathCache {
    /// One that knows nothing.
    pub fn new() -> PathCache {
        PathCache {
            keys: new_keys(),
            moves: CachePadded::new(AtomicU64::new(0)),
            current: CachePadded::new(AtomicUsize::new(0)),
            tables: std::array::from_fn(|_| OnceBox::new()),
            region: AtomicUsize::new(0),
        }
    }

    /// The way along `path` from a directory on; `None` while a directory is being renamed.
    #[inline]
    pub fn way(&self, start: Ino, path: &[u8]) -> Option<Way> {
        // Acquire: the walk that follows sees all that the renames did which it counts.
        let moves = self.moves.load(Ordering::Acquire);
        if !moves.is_multiple_of(MOVED) {
            return None;
        }
        // In the keys, since they must change both words beyond recognition.
        let hasher = SipHasher13::new_with_keys(self.keys[0] ^ start.0, self.keys[1] ^ moves);
        let (one, other) = hasher.hash(path).as_u64();
        Some(Way([one, other]))
    }

    /// Where a way led when it was last walked; see the module's head for what tells whether it
    /// still does. Asks for the inode's memory, which is on its way then while that is looked at.
    #[inline]
    pub fn find(&self, way: Way) -> Option<End> {
        let table = self.tables[self.current.load(Ordering::Relaxed)].get()?;
        let (end, address) = table.line(way).0.iter().find_map(|slot| slot.read(way))?;
        let first = self.region.load(Ordering::Relaxed) | address;
        for line in 0..LINES_ASKED_FOR {
            let line = std::ptr::without_provenance::<u8>(first + line * LINE);
            finefs_locks::prefetch_to_read(line);
        }
        Some(end)
    }

    /// Remembers where a way leads, and the `address` of the inode there. There are about `inodes`
    /// in memory.
    pub fn insert(&self, way: Way, end: End, address: usize, inodes: impl FnOnce() -> u64) {
        let region = address & !WITHIN_REGION;
        if self.region.load(Ordering::Relaxed) != region {
            self.region.store(region, Ordering::Relaxed);
        }
        let current = self.current.load(Ordering::Relaxed);
        let table = self.tables[current].get_or_make(|| Table::new(TABLES[current]));
        table.insert(way, end, address);
        let next = TABLES.get(current + 1).filter(|_| table.is_full());
        if next.is_some_and(|slots_log2| 1 << slots_log2 <= SLOTS_PER_INODE * inodes()) {
            // A failure says that another thread did it.
            let _ = self.current.compare_exchange(
                current,
                current + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// To be held while a directory gets another place, from before anybody can see it until all
    /// can.
    pub fn begin_move(&self) -> Moving<'_> {
        self.moves.fetch_add(MOVING, Ordering::AcqRel);
        Moving(&self.moves)
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(MOVED - MOVING, Ordering::AcqRel);
    }
}

impl Table {
    fn new(slots_log2: u32) -> Table {
        let empty = || Slot(std::array::from_fn(|_| AtomicU64::new(0)));
        Table {
            lines: (0..1_usize << (slots_log2 - 1))
                .map(|_| Line([empty(), empty()]))
                .collect(),
            used: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.lines.len() * 2 / 4 * 3
    }

    #[inline]
    fn line(&self, way: Way) -> &Line {
        &self.lines[way.0[0] as usize & (self.lines.len() - 1)]
    }

    fn insert(&self, way: Way, end: End, address: usize) {
        let slots = &self.line(way).0;
        // One that the way has already is the one that is found.
        let slot = (slots.iter().find(|slot| slot.read(way).is_some()))
            .or_else(|| slots.iter().find(|slot| slot.is_empty()))
            .unwrap_or(&slots[(way.0[1] >> 63) as usize]);
        if slot.is_empty() {
            self.used.fetch_add(1, Ordering::Relaxed);
        }
        slot.write(way, end, address);
    }
}

/// What tells a place with its count of lost names from all others: small numbers could make up for
/// each other.
#[inline]
fn bound(place: u64, name_seq: u64) -> u64 {
    place ^ name_seq.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl Slot {
    fn is_empty(&self) -> bool {
        self.0[2].load(Ordering::Relaxed) == 0
    }

    /// The end, and where its inode was, within its region.
    #[inline]
    fn read(&self, way: Way) -> Option<(End, usize)> {
        // Acquire: a thread that looks afterwards whether it still holds sees what was seen when it
        // was written, or later.
        let word = |at: usize| self.0[at].load(Ordering::Acquire);
        let (place, name_seq) = (word(2), word(3));
        let signature = [word(0) ^ name_seq, word(1) ^ bound(place, name_seq)];
        let end = || End {
            ino: Ino(place & INO),
            name_seq,
        };
        let address = || (place >> ADDRESS_AT) as usize * ADDRESS_UNIT;
        (signature == way.0).then(|| (end(), address()))
    }

    fn write(&self, way: Way, end: End, address: usize) {
        let address = (address / ADDRESS_UNIT) as u64;
        let place = address << ADDRESS_AT | end.ino.0;
        let [one, other] = way.0;
        let words = [
            one ^ end.name_seq,
            other ^ bound(place, end.name_seq),
            place,
            end.name_seq,
        ];
        for (word, value) in self.0.iter().zip(words) {
            word.store(value, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Ino = Ino(2);
    /// Of some inode.
    const ADDRESS: usize = 0x7000;

    fn end(ino: u64, name_seq: u64) -> End {
        End {
            ino: Ino(ino),
            name_seq,
        }
    }

    fn insert(cache: &PathCache, path: &str, to: End, inodes: u64) {
        let way = cache.way(START, path.as_bytes()).unwrap();
        cache.insert(way, to, ADDRESS, || inodes);
    }

    fn find(cache: &PathCache, path: &str) -> Option<End> {
        cache.find(cache.way(START, path.as_bytes())?)
    }

    #[test]
    fn only_the_way_that_was_remembered_is_found() {
        let cache = PathCache::new();
        assert_eq!(find(&cache, "a/b"), None);
        insert(&cache, "a/b", end(7, 4), 1);
        assert_eq!(find(&cache, "a/b"), Some(end(7, 4)));
        assert_eq!(find(&cache, "a/c"), None);
        let elsewhere = cache.way(Ino(3), b"a/b").unwrap();
        assert_eq!(cache.find(elsewhere), None);
        insert(&cache, "a/b", end(9, 0), 1);
        assert_eq!(find(&cache, "a/b"), Some(end(9, 0)));
    }

    #[test]
    fn a_move_forgets_all_and_what_is_walked_meanwhile() {
        let cache = PathCache::new();
        insert(&cache, "a/b", end(7, 0), 1);
        let before = cache.way(START, b"a/c").unwrap();
        let moves = [cache.begin_move(), cache.begin_move()];
        for moving in moves {
            assert!(cache.way(START, b"a/b").is_none());
            drop(moving);
        }
        cache.insert(before, end(8, 0), ADDRESS, || 1);
        assert_eq!(find(&cache, "a/b"), None);
        assert_eq!(find(&cache, "a/c"), None);
    }

    /// Two threads write one slot, and a third reads words of both.
    #[test]
    fn no_mixture_is_found() {
        let cache = PathCache::new();
        let way = |path: &[u8]| cache.way(START, path).unwrap();
        let before = way(b"a");
        drop(cache.begin_move());
        let elsewhere = cache.way(Ino(START.0 ^ 7 ^ 9), b"a").unwrap();
        let ways = [way(b"a"), way(b"b"), before, elsewhere];
        let written = [
            (ways[0], end(7, 2), 0x7000),
            (ways[0], end(9, 4), 0x9000),
            (ways[1], end(7, 4), 0x7000),
            (ways[2], end(8, 2), 0x8000),
            (ways[3], end(9, 2), 0x7000),
            // Of one number, and in one place, as others.
            (ways[1], end(9 ^ 2 ^ 4, 0), 0x9000),
        ];
        let slots = written.map(|(way, end, address)| {
            let slot = Slot(std::array::from_fn(|_| AtomicU64::new(0)));
            slot.write(way, end, address);
            slot.0.map(AtomicU64::into_inner)
        });
        const COUNT: usize = 6;
        for choice in 0..COUNT.pow(4) {
            let of: [usize; 4] = std::array::from_fn(|at| choice / COUNT.pow(at as u32) % COUNT);
            let word = |at: usize| AtomicU64::new(slots[of[at]][at]);
            let mixed = Slot(std::array::from_fn(word));
            for way in ways {
                let Some((found, _)) = mixed.read(way) else {
                    continue;
                };
                let is_written =
                    (written.iter()).any(|(of, end, _)| of.0 == way.0 && *end == found);
                assert!(is_written, "{found:?} of {of:?}");
            }
        }
    }

    /// As openat(2) asks for it in each directory of a tree.
    #[test]
    fn one_name_in_many_directories_is_found_in_all() {
        let cache = PathCache::new();
        let way = |dir: u64| cache.way(Ino(dir), b"Makefile").unwrap();
        for dir in 1..=50 {
            cache.insert(way(dir), end(100 + dir, 0), ADDRESS, || 1);
        }
        let found = |dir: &u64| cache.find(way(*dir)) == Some(end(100 + dir, 0));
        assert!((1..=50).filter(found).count() > 40);
    }

    #[test]
    fn it_grows_with_the_inodes_and_no_further() {
        let cache = PathCache::new();
        let table = || cache.current.load(Ordering::Relaxed);
        for (inodes, last) in [(511, 0), (512, 1), (4095, 1), (4096, 2), (1 << 40, 2)] {
            for number in 0..4000 {
                insert(&cache, &number.to_string(), end(number + 1, 0), inodes);
            }
            assert_eq!(table(), last);
        }
        let found = |number: &u64| find(&cache, &number.to_string()) == Some(end(number + 1, 0));
        assert!((0..4000).filter(found).count() > 3000);
    }
}
