//! The table of inodes in memory, by number.
//!
//! Finding an inode takes no lock and writes nothing: four loads. Cells are reclaimed by epochs, so
//! a reference to one is good for as long as its epoch guard.

use crossbeam_epoch::{Atomic, Guard, Owned, Shared};
use std::sync::atomic::Ordering;

use crate::inode::Inode;
use crate::radix::SparseArray;
use crate::retire::retire;
use crate::types::Ino;

/// Inode numbers are below this, as ext4's are.
pub(crate) const INODES_END: u64 = 1 << 32;

/// All inodes that are in memory.
pub(crate) struct InodeTable {
    slots: SparseArray<Atomic<Inode>, 512, 128, 1024>,
}

impl InodeTable {
    pub fn new() -> InodeTable {
        InodeTable {
            slots: SparseArray::new(),
        }
    }

    /// The cell of `ino`, if there is one; it may be gone or not loaded.
    pub fn get<'g>(&self, ino: Ino, guard: &'g Guard) -> Option<&'g Inode> {
        let cell = self.slots.get(ino.0)?.load(Ordering::Acquire, guard);
        // SAFETY: a cell is destroyed only after its slot stopped naming it and every guard that
        // could have loaded it has ended.
        unsafe { cell.as_ref() }
    }

    /// The cell of `ino`, an unloaded one put there where there is none. `None` for a number
    /// that no store gives.
    pub fn get_or_insert<'g>(&self, ino: Ino, guard: &'g Guard) -> Option<&'g Inode> {
        if let Some(found) = self.get(ino, guard) {
            return Some(found);
        }
        let slot = self.slots.get_or_make(ino.0)?;
        let fresh = Owned::new(Inode::unloaded(ino));
        let cell = match slot.compare_exchange(
            Shared::null(),
            fresh,
            Ordering::AcqRel,
            Ordering::Acquire,
            guard,
        ) {
            Ok(installed) => installed,
            Err(lost) => lost.current,
        };
        // SAFETY: as in `get`.
        unsafe { cell.as_ref() }
    }

    /// Puts a created inode in its slot, over the cell of an earlier inode of that number which is
    /// gone. False when the number is out of range.
    pub fn insert<'g>(&self, inode: Owned<Inode>, guard: &'g Guard) -> Option<&'g Inode> {
        let slot = self.slots.get_or_make(inode.ino.0)?;
        let fresh = inode.into_shared(guard);
        let old = slot.swap(fresh, Ordering::AcqRel, guard);
        // SAFETY: `old` was loaded under this guard.
        if let Some(earlier) = unsafe { old.as_ref() } {
            debug_assert!(earlier.is_gone() || earlier.loaded().is_none());
            // SAFETY: the slot no longer names it, so no later guard can reach it.
            unsafe { retire(old, guard) };
        }
        // SAFETY: as in `get`.
        unsafe { fresh.as_ref() }
    }

    /// Takes a cell that is gone out of the table.
    pub fn remove(&self, inode: &Inode, guard: &Guard) {
        debug_assert!(inode.is_gone());
        let Some(slot) = self.slots.get(inode.ino.0) else {
            return;
        };
        let expected = Shared::from(std::ptr::from_ref(inode));
        if slot
            .compare_exchange(
                expected,
                Shared::null(),
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
        self.slots.for_each_from(first.0, |_, slot| {
            // SAFETY: as in `get`.
            match unsafe { slot.load(Ordering::Acquire, guard).as_ref() } {
                Some(inode) => visit(inode),
                None => true,
            }
        });
    }
}

impl Drop for InodeTable {
    fn drop(&mut self) {
        // SAFETY: exclusive access: nobody else can hold a cell.
        let guard = unsafe { crossbeam_epoch::unprotected() };
        self.slots.for_each_from(0, |_, slot| {
            let cell = slot.swap(Shared::null(), Ordering::Relaxed, guard);
            if !cell.is_null() {
                // SAFETY: as above; each cell is in one slot.
                drop(unsafe { cell.into_owned() });
            }
            true
        });
    }
}
