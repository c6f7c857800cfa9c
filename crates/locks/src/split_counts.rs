//! [`SplitCounts`]: a few counts that all CPUs change at once, each split into a part for every
//! CPU.
//!
//! # Purpose
//! References on an object that everybody uses: one word that counts them goes from CPU to CPU with
//! every one that is taken or given back. Such a count is split: each CPU changes its own part.
//! When its exact value is wanted the parts are closed and summed, and the count is a word of its
//! owner again.
//!
//! # Data model
//! There is room for [`SPLIT_COUNTS_MAX`] counts; a part is a word. The parts of one CPU lie
//! together, so no line of them is written by two CPUs, but by a thread that is moved in between.
//!
//! A part is a generation and a signed count. The generation says which of the counts that lay
//! there one after the other it is; 0 says that the part is closed. Both are changed by one
//! compare-and-swap: so what is added to a count that was closed meanwhile is refused, and never
//! gets into the next one. A place whose generations are used up stays empty.
//!
//! # Invariants
//! 1. The sum that closing gives holds everything that was added by an [`SplitCounts::add`] that
//!    gave true, once.
//! 2. After a part is closed nothing is added to it under the same [`SplitCount`].
//!
//! A part alone may be negative: what one CPU adds another may take away.
//!
//! # Locking
//! Adding takes no lock. The mutex over the places is a leaf.
//!
//! References: McKenney, "Is Parallel Programming Hard", 5.2 (split counters); Linux
//! `lib/percpu-refcount.c`.

use crossbeam_utils::CachePadded;

use crate::cpu;
use crate::primitive::Mutex;
use crate::primitive::atomic::{AtomicU64, Ordering};

/// How many counts of one [`SplitCounts`] are split at one time.
///
/// ```
/// use finefs_locks::{SPLIT_COUNTS_MAX, SplitCounts};
/// let counts = SplitCounts::new();
/// let open = (0..).map_while(|owner| counts.open(owner)).count();
/// assert_eq!(open, SPLIT_COUNTS_MAX);
/// ```
#[cfg(not(any(loom, feature = "shuttle")))]
pub const SPLIT_COUNTS_MAX: usize = 128;
/// Few enough that the models run out of them.
#[cfg(any(loom, feature = "shuttle"))]
pub const SPLIT_COUNTS_MAX: usize = 2;

/// What a part may hold either way: far from where it would overflow.
const PART_MAX: i32 = 1 << 30;
const CLOSED: u64 = 0;
const GENERATION_BITS: u32 = 32;

/// Counts that are split over the CPUs.
///
/// ```
/// use finefs_locks::SplitCounts;
/// let counts = SplitCounts::new();
/// let count = counts.open(7).expect("there is room");
/// assert!(counts.add(count, 2) && counts.add(count, -1));
/// assert_eq!(counts.close(count), 1);
/// assert!(!counts.add(count, 1), "it is closed");
/// ```
#[derive(Debug)]
pub struct SplitCounts {
    parts: Box<[CachePadded<[AtomicU64; SPLIT_COUNTS_MAX]>]>,
    places: Mutex<Places>,
}

/// Names a count while it is split, and nothing afterwards.
///
/// ```
/// # use finefs_locks::{SplitCount, SplitCounts};
/// # let counts = SplitCounts::new();
/// let old: SplitCount = counts.open(7).unwrap();
/// counts.close(old);
/// let new = counts.open(8).unwrap();
/// assert_ne!(old, new);
/// assert!(!counts.add(old, 1) && counts.add(new, 1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitCount {
    place: u16,
    /// Not 0.
    generation: u32,
}

impl SplitCount {
    /// As a number that is not 0 and below 2^48, to be kept in a word.
    #[inline]
    pub fn to_bits(self) -> u64 {
        u64::from(self.place) << GENERATION_BITS | u64::from(self.generation)
    }

    /// From what `to_bits` gave; further bits do not matter.
    #[inline]
    pub fn from_bits(bits: u64) -> SplitCount {
        SplitCount {
            place: (bits >> GENERATION_BITS) as u16,
            generation: bits as u32,
        }
    }
}

#[derive(Debug)]
struct Places {
    free: Vec<u16>,
    all: [Place; SPLIT_COUNTS_MAX],
    /// Where `next_owner` looks first.
    hand: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// The last one that was given.
    generation: u32,
    owner: Option<u64>,
}

fn part(generation: u32, count: i32) -> u64 {
    u64::from(generation) << GENERATION_BITS | u64::from(count as u32)
}

fn generation_of(part: u64) -> u32 {
    (part >> GENERATION_BITS) as u32
}

fn count_of(part: u64) -> i32 {
    part as u32 as i32
}

impl SplitCounts {
    /// None is split.
    pub fn new() -> SplitCounts {
        let closed = || CachePadded::new(std::array::from_fn(|_| AtomicU64::new(CLOSED)));
        let unused = Place {
            generation: 0,
            owner: None,
        };
        SplitCounts {
            parts: (0..cpu::count()).map(|_| closed()).collect(),
            places: Mutex::new(Places {
                free: (0..SPLIT_COUNTS_MAX as u16).rev().collect(),
                all: [unused; SPLIT_COUNTS_MAX],
                hand: 0,
            }),
        }
    }

    /// Splits a count, which is 0, for `owner`; `None` when there is no room.
    pub fn open(&self, owner: u64) -> Option<SplitCount> {
        let mut places = self.places.lock();
        let number = places.free.pop()?;
        let place = &mut places.all[usize::from(number)];
        place.generation += 1;
        place.owner = Some(owner);
        for parts in &self.parts {
            // Release: a thread that finds the part open finds it closed at the generation before,
            // if at all.
            parts[usize::from(number)].store(part(place.generation, 0), Ordering::Release);
        }
        Some(SplitCount {
            place: number,
            generation: place.generation,
        })
    }

    /// Adds to this CPU's part. False, and nothing is added, when the count was closed, or when the
    /// part would grow too large.
    ///
    /// Acquire and release, as adding to one atomic word would be.
    #[inline]
    pub fn add(&self, count: SplitCount, amount: i32) -> bool {
        let cpu = cpu::current_of(self.parts.len());
        let word = &self.parts[cpu][usize::from(count.place) % SPLIT_COUNTS_MAX];
        let mut before = word.load(Ordering::Relaxed);
        loop {
            if generation_of(before) != count.generation {
                return false;
            }
            let Some(sum) = count_of(before).checked_add(amount) else {
                return false;
            };
            if !(-PART_MAX..=PART_MAX).contains(&sum) {
                return false;
            }
            let after = part(count.generation, sum);
            match word.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => before = now,
            }
        }
    }

    /// Closes a count and gives its sum. To be called once, by the keeper of the count.
    ///
    /// While it runs some parts are closed and some are not: a thread that is refused meanwhile
    /// must find another place to count.
    pub fn close(&self, count: SplitCount) -> i64 {
        let number = usize::from(count.place);
        let close = |parts: &CachePadded<[AtomicU64; SPLIT_COUNTS_MAX]>| {
            // Acquire: what was done before something was added happened before the sum is known.
            let word = parts[number].swap(CLOSED, Ordering::AcqRel);
            assert_eq!(generation_of(word), count.generation, "closed once");
            i64::from(count_of(word))
        };
        let sum = self.parts.iter().map(close).sum();
        let mut places = self.places.lock();
        places.all[number].owner = None;
        if count.generation != u32::MAX {
            places.free.push(count.place);
        }
        sum
    }

    /// The owner of a count that is split, another one at each call: for a thread that needs room.
    /// It may be closed by now.
    pub fn next_owner(&self) -> Option<u64> {
        let mut places = self.places.lock();
        for _ in 0..SPLIT_COUNTS_MAX {
            let hand = places.hand;
            places.hand = (hand + 1) % SPLIT_COUNTS_MAX;
            if let owner @ Some(_) = places.all[hand].owner {
                return owner;
            }
        }
        None
    }

    /// The owners of all counts that are split. Each may be closed by now.
    pub fn owners(&self) -> Vec<u64> {
        let places = self.places.lock();
        places.all.iter().filter_map(|place| place.owner).collect()
    }
}

impl Default for SplitCounts {
    fn default() -> SplitCounts {
        SplitCounts::new()
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many() {
        let counts = SplitCounts::new();
        let open: Vec<_> = (0..SPLIT_COUNTS_MAX as u64)
            .map(|owner| counts.open(owner).unwrap())
            .collect();
        assert_eq!(counts.open(0), None);
        let owners: Vec<_> = (0..SPLIT_COUNTS_MAX).map(|_| counts.next_owner()).collect();
        assert!((0..SPLIT_COUNTS_MAX as u64).all(|owner| owners.contains(&Some(owner))));
        counts.close(open[5]);
        assert!(!counts.owners().contains(&5));
        let again = counts.open(1000).unwrap();
        // The same place, but not the same count.
        assert!(!counts.add(open[5], 1) && counts.add(again, 1));
        assert_eq!(counts.close(again), 1);
    }

    #[test]
    fn a_part_does_not_overflow() {
        let counts = SplitCounts::new();
        let count = counts.open(0).unwrap();
        assert!(!counts.add(count, i32::MAX) && !counts.add(count, i32::MIN));
        assert!(counts.add(count, PART_MAX));
        assert!(counts.add(count, -PART_MAX));
        assert_eq!(counts.close(count), 0);
    }

    #[test]
    fn a_place_whose_generations_are_used_up_stays_empty() {
        let counts = SplitCounts::new();
        let before = counts.places.lock().free.len();
        let place = usize::from(*counts.places.lock().free.last().unwrap());
        counts.places.lock().all[place].generation = u32::MAX - 1;
        let last = counts.open(0).unwrap();
        assert!(counts.add(last, 1));
        assert_eq!(counts.close(last), 1);
        assert_eq!(counts.places.lock().free.len(), before - 1);
    }

    #[test]
    fn bits_give_the_same_count() {
        let count = SplitCount {
            place: 127,
            generation: u32::MAX,
        };
        assert!(count.to_bits() < 1 << 48);
        assert_eq!(SplitCount::from_bits(count.to_bits() | 1 << 63), count);
    }

    #[test]
    fn threads_lose_nothing() {
        let counts = SplitCounts::new();
        let count = counts.open(0).unwrap();
        let own = std::sync::atomic::AtomicI64::new(0);
        let sum = std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50_000 {
                        if !counts.add(count, 1) {
                            own.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            counts.close(count)
        });
        assert_eq!(sum + own.load(Ordering::Relaxed), 4 * 50_000);
    }
}
