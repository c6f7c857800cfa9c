//! What there is for each inode number, in memory that comes with the numbers that are used and
//! goes when nothing of them is in memory any more.
//!
//! # Data model
//! A number's [`InodeSlot`] has the cell of its inode, and counts the names that inodes of this
//! number lost. An inode that is evicted while it is referred to leaves its references in the place
//! of its cell, marked KEPT. Slots lie in leaves of [`SLOTS`], found over two levels of pointers.
//!
//! A leaf without cells may be *packed*: it goes, and what stays are the references, two bytes for
//! a number, or nothing where there are none. The next thread that needs a slot of it makes the
//! leaf anew.
//!
//! # Invariants
//! 1. Slots are made, and cells put into them, inside the gate; leaves are packed by a thread that
//!    has closed it. So a leaf that has no cell then gets none before it is out of reach.
//! 2. A leaf is destroyed when all guards have ended that could have found it.
//! 3. A number's count of lost names never comes back to what it was: a new leaf begins with more
//!    than any that was packed had.
//! 4. References of a number whose leaf is there are in its slot, those of others are in `packed`.
//!    They move under the lock of `packed`.
//!
//! # Locking
//! To find a slot takes no lock and writes nothing: three loads. `ns.inode_slots` guards `packed`
//! and the making of leaves; nothing is taken under it.

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use finefs_locks::Mutex;
use finefs_locks::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::base::classes;
use crate::base::number_map::NumberMap;
use crate::base::once_box::{OnceBox, boxed_array};
use crate::base::retire::retire;
#[cfg(not(feature = "shuttle"))]
use crate::base::types::INODES_END;
use crate::base::types::Ino;
use crate::inode::Inode;

/// Tag of a slot's word that is no address of a cell but the references of an inode that was
/// evicted, above the tag.
const KEPT: usize = 1;
const KEPT_AT: u32 = align_of::<Inode>().trailing_zeros();

/// The word that keeps so many references.
pub(super) fn kept<'g>(references: u64) -> Shared<'g, Inode> {
    match usize::try_from(references << KEPT_AT) {
        Ok(0) | Err(_) => Shared::null(),
        Ok(word) => Shared::from(std::ptr::without_provenance(word)).with_tag(KEPT),
    }
}

/// The references that a word keeps; `None` for a cell, and for none.
pub(super) fn references_in(word: Shared<'_, Inode>) -> Option<u64> {
    (word.tag() == KEPT).then(|| (word.as_raw().addr() >> KEPT_AT) as u64)
}

/// The cell that a word names.
pub(super) fn cell_in(word: Shared<'_, Inode>) -> Option<&Inode> {
    match word.tag() {
        // SAFETY: a cell is destroyed only after its slot stopped naming it and every guard that
        // could have loaded it has ended.
        0 => unsafe { word.as_ref() },
        _ => None,
    }
}

/// What there is for a number.
#[derive(Default)]
pub(crate) struct InodeSlot {
    /// The cell, or what [`kept`] makes.
    pub(super) cell: Atomic<Inode>,
    /// A sequence counter (as `d_seq` of a dentry): twice the names that were taken away, and one
    /// more while one is being taken. Changed under the inode's lock.
    pub(super) name_seq: AtomicU64,
}

impl InodeSlot {
    /// How often inodes of this number lost a name; `None` while that happens.
    #[inline]
    pub fn name_seq(&self) -> Option<u64> {
        let name_seq = self.name_seq.load(Ordering::Acquire);
        name_seq.is_multiple_of(2).then_some(name_seq)
    }

    /// The cell, if there is one; it may be gone or not loaded.
    #[inline]
    pub fn cell<'g>(&self, guard: &'g Guard) -> Option<&'g Inode> {
        cell_in(self.cell.load(Ordering::Acquire, guard))
    }
}

/// Numbers of a leaf: few, so that there are leaves without cells where a file system is used here
/// and there. Leaves of a chunk. Chunks.
#[cfg(not(feature = "shuttle"))]
const SLOTS: usize = 128;
#[cfg(not(feature = "shuttle"))]
const CHUNK: usize = 8192;
#[cfg(not(feature = "shuttle"))]
const CHUNKS: usize = (INODES_END / (SLOTS * CHUNK) as u64) as usize;
/// Each inode that leaves memory takes its leaf along.
#[cfg(feature = "shuttle")]
const SLOTS: usize = 1;
#[cfg(feature = "shuttle")]
const CHUNK: usize = 64;
#[cfg(feature = "shuttle")]
const CHUNKS: usize = 16;
const LEAVES: u64 = (CHUNK * CHUNKS) as u64;

/// Leaves share no cache line.
#[repr(align(128))]
struct Leaf([InodeSlot; SLOTS]);

impl Leaf {
    /// A new one of which names were lost so often.
    fn new(name_seq: u64, references: impl Fn(usize) -> u64) -> Leaf {
        Leaf(std::array::from_fn(|low| InodeSlot {
            cell: Atomic::from(kept(references(low))),
            name_seq: AtomicU64::new(name_seq),
        }))
    }

    /// References of all numbers; `None` where there is a cell, or too many to be packed.
    fn packed(&self, guard: &Guard) -> Option<Packed> {
        let mut packed = Packed {
            references: [0; SLOTS],
        };
        for (slot, references) in self.0.iter().zip(&mut packed.references) {
            let word = slot.cell.load(Ordering::Acquire, guard);
            if !word.is_null() {
                *references = u16::try_from(references_in(word)?).ok()?;
            }
        }
        Some(packed)
    }

    fn has_cells(&self, guard: &Guard) -> bool {
        self.0.iter().any(|slot| slot.cell(guard).is_some())
    }
}

/// References of the numbers of a leaf that was packed.
struct Packed {
    references: [u16; SLOTS],
}

impl Packed {
    fn is_empty(&self) -> bool {
        self.references.iter().all(|references| *references == 0)
    }
}

type Chunk = [Atomic<Leaf>; CHUNK];
type Chunks = [OnceBox<Chunk>; CHUNKS];

/// See the module's head.
pub(super) struct Slots {
    chunks: OnceBox<Chunks>,
    leaves: AtomicUsize,
    /// By the leaf's index.
    packed: Mutex<NumberMap<u64, Box<Packed>>>,
    /// What counts of lost names begin with.
    first_name_seq: AtomicU64,
}

/// Where a number's slot is.
fn split(ino: Ino) -> (u64, usize) {
    (ino.0 / SLOTS as u64, ino.0 as usize % SLOTS)
}

/// Where the pointer to a leaf is.
fn split_index(index: u64) -> (usize, usize) {
    (
        (index / CHUNK as u64) as usize,
        (index % CHUNK as u64) as usize,
    )
}

impl Slots {
    pub fn new() -> Slots {
        Slots {
            chunks: OnceBox::new(),
            leaves: AtomicUsize::new(0),
            packed: Mutex::new(&classes::INODE_SLOTS, NumberMap::default()),
            first_name_seq: AtomicU64::new(0),
        }
    }

    /// The place of a leaf, where there is one.
    #[inline]
    fn place(&self, index: u64) -> Option<&Atomic<Leaf>> {
        let (chunk, at) = split_index(index);
        Some(&self.chunks.get()?.get(chunk)?.get()?[at])
    }

    #[inline]
    fn leaf<'g>(&self, index: u64, guard: &'g Guard) -> Option<&'g Leaf> {
        let leaf = self.place(index)?.load(Ordering::Acquire, guard);
        // SAFETY: invariant 2.
        unsafe { leaf.as_ref() }
    }

    /// The slot of a number, where it is in memory.
    #[inline]
    pub fn get<'g>(&self, ino: Ino, guard: &'g Guard) -> Option<&'g InodeSlot> {
        let (index, low) = split(ino);
        Some(&self.leaf(index, guard)?.0[low])
    }

    /// The slot of a number, made where it is not in memory; inside the gate. `None` for a number
    /// that is too large.
    pub fn get_or_make<'g>(&self, ino: Ino, guard: &'g Guard) -> Option<&'g InodeSlot> {
        let (index, low) = split(ino);
        if index >= LEAVES {
            return None;
        }
        let leaf = match self.leaf(index, guard) {
            Some(leaf) => leaf,
            None => self.make(index, guard)?,
        };
        Some(&leaf.0[low])
    }

    #[cold]
    fn make<'g>(&self, index: u64, guard: &'g Guard) -> Option<&'g Leaf> {
        let (chunk, at) = split_index(index);
        let chunks = self.chunks.get_or_make_box(|| boxed_array(OnceBox::new));
        let place = &chunks[chunk].get_or_make_box(|| boxed_array(Atomic::null))[at];
        let mut packed = self.packed.lock();
        if place.load(Ordering::Acquire, guard).is_null() {
            let was = packed.remove(&index);
            let references = |low: usize| was.as_ref().map_or(0, |it| it.references[low].into());
            let leaf = Leaf::new(self.first_name_seq.load(Ordering::Relaxed), references);
            place.store(Owned::new(leaf), Ordering::Release);
            self.leaves.fetch_add(1, Ordering::Relaxed);
        }
        drop(packed);
        self.leaf(index, guard)
    }

    /// Gives back references on an inode whose slot is not in memory; false when it is.
    pub fn release_packed(&self, ino: Ino, count: u64, guard: &Guard) -> bool {
        let (index, low) = split(ino);
        let mut all = self.packed.lock();
        if self.leaf(index, guard).is_some() {
            return false;
        }
        if let Some(packed) = all.get_mut(&index) {
            let references = &mut packed.references[low];
            debug_assert!(u64::from(*references) >= count, "more than were taken");
            *references = u64::from(*references).saturating_sub(count) as u16;
            if *references == 0 && packed.is_empty() {
                all.remove(&index);
            }
        }
        true
    }

    /// Leaves without cells from the number `from` on, at most so many, as seen at a glance; and
    /// the number to go on at, if there are more.
    pub fn without_cells(&self, from: Ino, most: usize, guard: &Guard) -> (Vec<Ino>, Option<Ino>) {
        let mut found = Vec::new();
        let next = self.find_leaf(from, guard, |first, leaf| {
            if !leaf.has_cells(guard) {
                found.push(first);
            }
            found.len() < most
        });
        (found, next)
    }

    /// Packs those of these leaves that have no cell; by a thread that has closed the gate.
    pub fn pack(&self, leaves: &[Ino], guard: &Guard) {
        for first in leaves {
            let (index, _) = split(*first);
            let Some(place) = self.place(index) else {
                continue;
            };
            let mut all = self.packed.lock();
            let Some(leaf) = self.leaf(index, guard) else {
                continue;
            };
            let Some(packed) = leaf.packed(guard) else {
                continue;
            };
            if !packed.is_empty() {
                all.insert(index, Box::new(packed));
            }
            let counts = leaf.0.iter().map(|it| it.name_seq.load(Ordering::Acquire));
            let past = counts.max().unwrap_or(0).next_multiple_of(2) + 2;
            self.first_name_seq.fetch_max(past, Ordering::Relaxed);
            let leaf = place.swap(Shared::null(), Ordering::AcqRel, guard);
            drop(all);
            self.leaves.fetch_sub(1, Ordering::Relaxed);
            // SAFETY: nobody finds it any more; it was taken out once, under the lock.
            unsafe { retire(leaf, guard) };
        }
    }

    /// Bytes that it takes: leaves, what is left of those that were packed, chunks.
    pub fn bytes(&self) -> usize {
        let packed = self.packed.lock().len();
        let chunks = self.chunks.get().into_iter().flatten();
        chunks.filter(|chunk| chunk.get().is_some()).count() * size_of::<Chunk>()
            + self.leaves.load(Ordering::Relaxed) * size_of::<Leaf>()
            + packed * (size_of::<Packed>() + size_of::<(u64, Box<Packed>)>())
    }

    /// Visits the slots of every leaf from the number `first` on, in ascending order, until `visit`
    /// answers false.
    pub fn for_each_from<'g>(
        &self,
        first: Ino,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g InodeSlot) -> bool,
    ) {
        self.find_leaf(first, guard, |base, leaf| {
            let passed = first.0.saturating_sub(base.0) as usize;
            leaf.0.iter().skip(passed).all(&mut visit)
        });
    }

    /// Visits every leaf that has numbers from `from` on, with its first number, until `visit`
    /// answers false; the first number after the last that was visited, if there may be more.
    fn find_leaf<'g>(
        &self,
        from: Ino,
        guard: &'g Guard,
        mut visit: impl FnMut(Ino, &'g Leaf) -> bool,
    ) -> Option<Ino> {
        let chunks = self.chunks.get()?;
        let (first, _) = split(from);
        let (first_chunk, _) = split_index(first);
        for (chunk, leaves) in chunks.iter().enumerate().skip(first_chunk) {
            let leaves = leaves.get().into_iter().flatten();
            for (index, place) in ((chunk * CHUNK) as u64..).zip(leaves) {
                let leaf = place.load(Ordering::Acquire, guard);
                // SAFETY: invariant 2.
                let Some(leaf) = (unsafe { leaf.as_ref() }) else {
                    continue;
                };
                if index >= first && !visit(Ino(index * SLOTS as u64), leaf) {
                    return Some(Ino((index + 1) * SLOTS as u64));
                }
            }
        }
        None
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: exclusive access: nobody else can hold a leaf or a cell.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        let chunks = self.chunks.get().into_iter().flatten();
        for place in chunks.filter_map(OnceBox::get).flatten() {
            let leaf = place.swap(Shared::null(), Ordering::Relaxed, guard);
            if leaf.is_null() {
                continue;
            }
            // SAFETY: as above; each leaf is in one place.
            let leaf = unsafe { leaf.into_owned() };
            for slot in &leaf.0 {
                let cell = slot.cell.swap(Shared::null(), Ordering::Relaxed, guard);
                if cell_in(cell).is_some() {
                    // SAFETY: as above; each cell is in one slot.
                    drop(unsafe { cell.into_owned() });
                }
            }
        }
    }
}

#[cfg(all(test, not(any(loom, feature = "shuttle"))))]
mod tests {
    use super::*;

    /// Puts an inode that is not loaded in its slot.
    fn put(slots: &Slots, ino: u64) {
        let guard = &crossbeam_epoch::pin();
        let slot = slots.get_or_make(Ino(ino), guard).unwrap();
        let cell = Owned::new(Inode::unloaded(Ino(ino), 0));
        slot.cell.store(cell, Ordering::Release);
    }

    /// Takes it out and leaves references.
    fn evict(slots: &Slots, ino: u64, references: u64) {
        let guard = &crossbeam_epoch::pin();
        let slot = slots.get(Ino(ino), guard).unwrap();
        let cell = slot.cell.swap(kept(references), Ordering::AcqRel, guard);
        assert!(cell_in(cell).is_some());
        // SAFETY: the slot no longer names it.
        unsafe { retire(cell, guard) };
    }

    fn references_of(slots: &Slots, ino: u64) -> Option<u64> {
        let guard = &crossbeam_epoch::pin();
        let slot = slots.get(Ino(ino), guard)?;
        references_in(slot.cell.load(Ordering::Acquire, guard))
    }

    fn pack_all(slots: &Slots) {
        let guard = &crossbeam_epoch::pin();
        let (mut leaves, mut next) = slots.without_cells(Ino(0), 2, guard);
        while let Some(from) = next {
            let more = slots.without_cells(from, 2, guard);
            leaves.extend(more.0);
            next = more.1;
        }
        slots.pack(&leaves, guard);
    }

    const FAR: u64 = SLOTS as u64 * (CHUNK as u64 + 3) + 5;

    #[test]
    fn slots_are_made_and_visited_in_order() {
        let slots = Slots::new();
        let guard = &crossbeam_epoch::pin();
        assert!(slots.get(Ino(7), guard).is_none());
        for ino in [7, 8, 400, FAR, INODES_END - 1] {
            put(&slots, ino);
        }
        for ino in [INODES_END, u64::MAX] {
            assert!(slots.get_or_make(Ino(ino), guard).is_none());
            assert!(slots.get(Ino(ino), guard).is_none());
        }
        let from = |first, most: usize| {
            let mut seen = Vec::new();
            slots.for_each_from(Ino(first), guard, |slot| {
                seen.extend(slot.cell(guard).map(|cell| cell.ino.0));
                seen.len() < most
            });
            seen
        };
        assert_eq!(from(0, 9), [7, 8, 400, FAR, INODES_END - 1]);
        assert_eq!(from(8, 9), [8, 400, FAR, INODES_END - 1]);
        assert_eq!(from(8, 2), [8, 400]);
        assert_eq!(from(FAR + 1, 9), [INODES_END - 1]);
        let chunks = 3 * size_of::<Chunk>();
        assert_eq!(slots.bytes(), chunks + 4 * size_of::<Leaf>());
    }

    #[test]
    fn a_leaf_without_cells_goes_and_leaves_the_references() {
        let slots = Slots::new();
        for ino in [1, 2, 300, FAR, FAR + SLOTS as u64] {
            put(&slots, ino);
        }
        evict(&slots, 1, 3);
        evict(&slots, 300, 0);
        evict(&slots, FAR, 7);
        evict(&slots, FAR + SLOTS as u64, 1 << 16);
        pack_all(&slots);
        assert_eq!(references_of(&slots, 1), Some(3), "beside a cell");
        assert_eq!(references_of(&slots, 300), None);
        assert_eq!(references_of(&slots, FAR), None);
        let many = references_of(&slots, FAR + SLOTS as u64);
        assert_eq!(many, Some(1 << 16), "too many to be packed");
        assert_eq!(slots.packed.lock().len(), 1);
        let guard = &crossbeam_epoch::pin();
        // Of a number that has none, and of one that has some.
        assert!(slots.release_packed(Ino(300), 0, guard));
        assert!(slots.release_packed(Ino(FAR), 2, guard));
        assert!(!slots.release_packed(Ino(1), 1, guard), "it is in its slot");
        slots.get_or_make(Ino(FAR + 1), guard).unwrap();
        assert_eq!(references_of(&slots, FAR), Some(5));
        assert!(slots.packed.lock().is_empty());
    }

    #[test]
    fn when_the_last_references_go_nothing_is_left() {
        let slots = Slots::new();
        for ino in [5, 6] {
            put(&slots, ino);
            evict(&slots, ino, 2);
        }
        pack_all(&slots);
        let guard = &crossbeam_epoch::pin();
        let packed = || slots.packed.lock().len();
        assert_eq!(packed(), 1);
        assert!(slots.release_packed(Ino(5), 2, guard));
        assert!(slots.release_packed(Ino(6), 1, guard));
        assert_eq!(packed(), 1);
        assert!(slots.release_packed(Ino(6), 1, guard));
        assert_eq!(packed(), 0);
        assert_eq!(slots.bytes(), size_of::<Chunk>());
    }

    #[test]
    fn a_count_of_lost_names_does_not_come_back() {
        let slots = Slots::new();
        let guard = &crossbeam_epoch::pin();
        put(&slots, 9);
        let before = slots.get(Ino(9), guard).unwrap();
        before.name_seq.store(6, Ordering::Release);
        evict(&slots, 9, 0);
        pack_all(&slots);
        let after = slots.get_or_make(Ino(9), guard).unwrap();
        assert_eq!(after.name_seq(), Some(8));
        assert_eq!(
            before.name_seq(),
            Some(6),
            "it is there for who has a guard"
        );
        let other = slots.get_or_make(Ino(FAR), guard).unwrap();
        assert_eq!(other.name_seq(), Some(8));
    }
}
