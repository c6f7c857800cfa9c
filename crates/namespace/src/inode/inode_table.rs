//! The table of inodes in memory, by number.
//!
//! Finding an inode takes no lock and writes nothing: four loads. Cells are reclaimed by epochs, so
//! a reference to one is good for as long as its epoch guard.
//!
//! Of an inode that is evicted while it is referred to the references stay, in its slot or in two
//! bytes: that is all that the kernel's caches cost. See [`slots`](super::slots).
//!
//! By the count of names in a number's [`InodeSlot`] it can be told, without a look at the
//! directory, that what was named is named still.

use crossbeam_epoch::{Guard, Owned, Shared};
use finefs_locks::SplitCounts;
use finefs_locks::primitive::atomic::{AtomicU64, Ordering};

use super::slots::{InodeSlot, Slots, cell_in, kept, references_in};
use crate::base::retire::retire;
use crate::base::types::Ino;
use crate::inode::Inode;

/// A name of an inode is being taken away; until this is dropped.
pub(crate) struct Unnaming<'t>(Option<&'t AtomicU64>);

impl Drop for Unnaming<'_> {
    fn drop(&mut self) {
        // Release: a thread that sees the number sees that the name is gone.
        if let Some(name_seq) = self.0 {
            name_seq.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// All inodes that are in memory.
pub(crate) struct InodeTable {
    slots: Slots,
    /// References on inodes that CPUs use by turns.
    pub split_counts: SplitCounts,
}

impl InodeTable {
    pub fn new() -> InodeTable {
        InodeTable {
            slots: Slots::new(),
            split_counts: SplitCounts::new(),
        }
    }

    /// What there is for a number, if that is in memory.
    #[inline]
    pub fn slot<'g>(&self, ino: Ino, guard: &'g Guard) -> Option<&'g InodeSlot> {
        self.slots.get(ino, guard)
    }

    /// The cell of `ino`, if there is one; it may be gone or not loaded.
    #[inline]
    pub fn get<'g>(&self, ino: Ino, guard: &'g Guard) -> Option<&'g Inode> {
        self.slot(ino, guard)?.cell(guard)
    }

    /// To be held while a name of the inode is taken away, from before that can be seen until it
    /// is; by the holder of the inode's lock.
    pub fn begin_unnaming<'g>(&self, inode: &Inode, guard: &'g Guard) -> Unnaming<'g> {
        let name_seq = self.slot(inode.ino, guard).map(|slot| &slot.name_seq);
        if let Some(name_seq) = name_seq {
            name_seq.fetch_add(1, Ordering::AcqRel);
        }
        Unnaming(name_seq)
    }

    /// The cell of `ino`, an unloaded one put there, and told of, where there is none; inside the
    /// gate. `None` for a number that no store gives.
    pub fn get_or_insert<'g>(
        &self,
        ino: Ino,
        guard: &'g Guard,
        note_new: impl FnOnce(),
    ) -> Option<&'g Inode> {
        if let Some(found) = self.get(ino, guard) {
            return Some(found);
        }
        let slot = &self.slots.get_or_make(ino, guard)?.cell;
        loop {
            let now = slot.load(Ordering::Acquire, guard);
            if let Some(found) = cell_in(now) {
                return Some(found);
            }
            let fresh = Owned::new(Inode::unloaded(ino, references_in(now).unwrap_or(0)));
            let put = slot.compare_exchange(now, fresh, Ordering::AcqRel, Ordering::Acquire, guard);
            if let Ok(installed) = put {
                note_new();
                return cell_in(installed);
            }
        }
    }

    /// Puts a created inode in its slot, inside the gate; also gives what was there: the cell of an
    /// earlier inode of that number which is gone, or one whose number was asked for in vain.
    /// `None` when the number is out of range.
    pub fn insert<'g>(
        &self,
        inode: Owned<Inode>,
        guard: &'g Guard,
    ) -> Option<(&'g Inode, Option<&'g Inode>)> {
        let slot = &self.slots.get_or_make(inode.ino, guard)?.cell;
        let fresh = inode.into_shared(guard);
        let old = slot.swap(fresh, Ordering::AcqRel, guard);
        if let Some(earlier) = cell_in(old) {
            debug_assert!(earlier.is_gone() || earlier.loaded().is_none());
            if !earlier.is_gone() {
                // Before the new inode can be found on the store: a thread that loads this cell
                // then looks again.
                earlier.references.evict_unloaded();
            }
            // SAFETY: the slot no longer names it, so no later guard can reach it.
            unsafe { retire(old, guard) };
        }
        Some((cell_in(fresh)?, cell_in(old)))
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
        let Some(InodeSlot { cell: slot, .. }) = self.slot(ino, guard) else {
            return self.slots.release_packed(ino, count, guard);
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

    /// Bytes that it takes beside the cells.
    pub fn bytes(&self) -> usize {
        self.slots.bytes()
    }

    /// Where there may be slots, but no cells, from number `from` on: at most so many leaves of
    /// them, and the number to go on at.
    pub fn without_cells(&self, from: Ino, most: usize, guard: &Guard) -> (Vec<Ino>, Option<Ino>) {
        self.slots.without_cells(from, most, guard)
    }

    /// Gives back the memory of such leaves, but for references; by a thread that has closed the
    /// gate.
    pub fn pack(&self, leaves: &[Ino], guard: &Guard) {
        self.slots.pack(leaves, guard);
    }

    fn replace(&self, inode: &Inode, references: u64, guard: &Guard) {
        debug_assert!(inode.is_gone());
        let Some(InodeSlot { cell: slot, .. }) = self.slot(inode.ino, guard) else {
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
            .for_each_from(first, guard, |slot| slot.cell(guard).is_none_or(&mut visit));
    }
}
