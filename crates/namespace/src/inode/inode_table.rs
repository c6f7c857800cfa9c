//! The table of inodes in memory, by number.
//!
//! Finding an inode takes no lock and writes nothing: four loads. Cells are reclaimed by epochs, so
//! a reference to one is good for as long as its epoch guard.
//!
//! An inode that is evicted while it is referred to leaves its references in the place of its cell,
//! marked KEPT: 16 bytes for a number are all that the kernel's caches cost.
//!
//! Beside the cell, a number's [`InodeSlot`] counts the names that inodes of this number lost,
//! whether in memory or not: by that it can be told, without a look at the directory, that what was
//! named is named still.

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use finefs_locks::SplitCounts;
use finefs_locks::primitive::atomic::{AtomicU64, Ordering};

use crate::base::radix::SparseArray;
use crate::base::retire::retire;
use crate::base::types::Ino;
use crate::inode::Inode;

/// Tag of a slot's word that is no address of a cell but the references of an inode that was
/// evicted, above the tag.
const KEPT: usize = 1;
const KEPT_AT: u32 = align_of::<Inode>().trailing_zeros();

/// The word that keeps so many references.
fn kept<'g>(references: u64) -> Shared<'g, Inode> {
    match usize::try_from(references << KEPT_AT) {
        Ok(0) | Err(_) => Shared::null(),
        Ok(word) => Shared::from(std::ptr::without_provenance(word)).with_tag(KEPT),
    }
}

/// The references that a word keeps; `None` for a cell, and for none.
fn references_in(word: Shared<'_, Inode>) -> Option<u64> {
    (word.tag() == KEPT).then(|| (word.as_raw().addr() >> KEPT_AT) as u64)
}

/// The cell that a word names.
fn cell_in(word: Shared<'_, Inode>) -> Option<&Inode> {
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
    cell: Atomic<Inode>,
    /// A sequence counter (as `d_seq` of a dentry): twice the names that were taken away, and one
    /// more while one is being taken. Changed under the inode's lock.
    name_seq: AtomicU64,
}

/// A name of an inode is being taken away; until this is dropped.
pub(crate) struct Unnaming<'t>(Option<&'t AtomicU64>);

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

impl Drop for Unnaming<'_> {
    fn drop(&mut self) {
        // Release: who sees the number sees that the name is gone.
        if let Some(name_seq) = self.0 {
            name_seq.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// All inodes that are in memory.
pub(crate) struct InodeTable {
    slots: SparseArray<InodeSlot, 512, 256, 512>,
    /// References on inodes that CPUs use by turns.
    pub split_counts: SplitCounts,
}

impl InodeTable {
    pub fn new() -> InodeTable {
        InodeTable {
            slots: SparseArray::new(),
            split_counts: SplitCounts::new(),
        }
    }

    /// What there is for a number, if there was ever anything.
    #[inline]
    pub fn slot(&self, ino: Ino) -> Option<&InodeSlot> {
        self.slots.get(ino.0)
    }

    /// The cell of `ino`, if there is one; it may be gone or not loaded.
    #[inline]
    pub fn get<'g>(&self, ino: Ino, guard: &'g Guard) -> Option<&'g Inode> {
        self.slot(ino)?.cell(guard)
    }

    /// To be held while a name of the inode is taken away, from before that can be seen until it
    /// is; by who holds the inode's lock.
    pub fn begin_unnaming(&self, inode: &Inode) -> Unnaming<'_> {
        let name_seq = self.slot(inode.ino).map(|slot| &slot.name_seq);
        if let Some(name_seq) = name_seq {
            name_seq.fetch_add(1, Ordering::AcqRel);
        }
        Unnaming(name_seq)
    }

    /// The cell of `ino`, an unloaded one put there where there is none. `None` for a number
    /// that no store gives.
    pub fn get_or_insert<'g>(&self, ino: Ino, guard: &'g Guard) -> Option<&'g Inode> {
        if let Some(found) = self.get(ino, guard) {
            return Some(found);
        }
        let slot = &self.slots.get_or_make(ino.0)?.cell;
        loop {
            let now = slot.load(Ordering::Acquire, guard);
            if let Some(found) = cell_in(now) {
                return Some(found);
            }
            let fresh = Owned::new(Inode::unloaded(ino, references_in(now).unwrap_or(0)));
            let put = slot.compare_exchange(now, fresh, Ordering::AcqRel, Ordering::Acquire, guard);
            if let Ok(installed) = put {
                return cell_in(installed);
            }
        }
    }

    /// Puts a created inode in its slot, over the cell of an earlier inode of that number which is
    /// gone. False when the number is out of range.
    pub fn insert<'g>(&self, inode: Owned<Inode>, guard: &'g Guard) -> Option<&'g Inode> {
        let slot = &self.slots.get_or_make(inode.ino.0)?.cell;
        let fresh = inode.into_shared(guard);
        let old = slot.swap(fresh, Ordering::AcqRel, guard);
        if let Some(earlier) = cell_in(old) {
            debug_assert!(earlier.is_gone() || earlier.loaded().is_none());
            // SAFETY: the slot no longer names it, so no later guard can reach it.
            unsafe { retire(old, guard) };
        }
        cell_in(fresh)
    }

    /// Takes a cell that is gone out of the table.
    pub fn remove(&self, inode: &Inode, guard: &Guard) {
        self.replace(inode, 0, guard);
    }

    /// Takes a cell that was evicted out of the table, and keeps its references.
    pub fn keep_references(&self, inode: &Inode, references: u64, guard: &Guard) {
        self.replace(inode, references, guard);
    }

    /// Gives back references on an inode that is not in memory; false when it is.
    pub fn release_kept(&self, ino: Ino, count: u64, guard: &Guard) -> bool {
        let Some(InodeSlot { cell: slot, .. }) = self.slot(ino) else {
            return true;
        };
        let less = |word| {
            let left = references_in(word).map(|references| {
                debug_assert!(references >= count, "more given back than taken");
                references.saturating_sub(count)
            });
            left.map(kept)
        };
        let before = slot.fetch_update(Ordering::AcqRel, Ordering::Acquire, guard, less);
        before.map_or_else(|now| now.is_null(), |_| true)
    }

    /// Bytes that the slots take, whose number only grows.
    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    fn replace(&self, inode: &Inode, references: u64, guard: &Guard) {
        debug_assert!(inode.is_gone());
        let Some(InodeSlot { cell: slot, .. }) = self.slot(inode.ino) else {
            return;
        };
        let expected = Shared::from(std::ptr::from_ref(inode));
        if slot
            .compare_exchange(
                expected,
                kept(references),
                Ordering::AcqRel,
                Ordering::Acquire,
                guard,
            )
            .is_ok()
        {
            // SAFETY: the slot no longer names it, and the exchange happened once.
            unsafe { retire(expected, guard) };
        }
    }

    /// Visits every cell from number `first` on until `visit` answers false.
    pub fn for_each_from<'g>(
        &self,
        first: Ino,
        guard: &'g Guard,
        mut visit: impl FnMut(&'g Inode) -> bool,
    ) {
        self.slots
            .for_each_from(first.0, |_, slot| slot.cell(guard).is_none_or(&mut visit));
    }
}

impl Drop for InodeTable {
    fn drop(&mut self) {
        // SAFETY: exclusive access: nobody else can hold a cell.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        self.slots.for_each_from(0, |_, slot| {
            let cell = slot.cell.swap(Shared::null(), Ordering::Relaxed, guard);
            if cell_in(cell).is_some() {
                // SAFETY: as above; each cell is in one slot.
                drop(unsafe { cell.into_owned() });
            }
            true
        });
    }
}
