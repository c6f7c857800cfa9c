//! References on the inodes of a table: which are counted in parts, one for each CPU. See
//! [`References`].
//!
//! [`References`]: crate::inode::references::References

use crossbeam_epoch::Guard;

use crate::base::types::Ino;
use crate::inode::Inode;
use crate::inode::inode_table::InodeTable;
use crate::inode::references::Referred;

impl InodeTable {
    /// Takes a reference on an inode, with no lock held; false when it is gone.
    #[inline]
    pub fn refer(&self, inode: &Inode, guard: &Guard) -> bool {
        match inode.references.refer(&self.split_counts) {
            Referred::Gone => return false,
            Referred::Held => {}
            Referred::HeldByTurns => self.split_references(inode, guard),
        }
        true
    }

    /// Splits the references of an inode that CPUs use by turns; where there is no room, in the
    /// place of another.
    #[cold]
    pub(super) fn split_references(&self, inode: &Inode, guard: &Guard) {
        let open = || self.split_counts.open(inode.ino.0);
        let make_room = || {
            let owner = self.split_counts.next_owner();
            owner
                .into_iter()
                .for_each(|ino| self.join_references(ino, guard));
            open()
        };
        let Some(count) = open().or_else(make_room) else {
            return;
        };
        let lock = inode.lock();
        if !inode.references.split(count, &lock) {
            let sum = self.split_counts.close(count);
            debug_assert_eq!(sum, 0, "nobody knew it");
        }
    }

    /// At the end of the mount: true when the inode is to be freed.
    pub fn drop_references(&self, inode: &Inode) -> bool {
        let lock = inode.lock();
        inode.references.drop_all(&self.split_counts, &lock)
    }

    fn join_references(&self, ino: u64, guard: &Guard) {
        let inode = self.get(Ino(ino), guard);
        // One that is being split has nothing to join yet.
        if let Some(inode) = inode.filter(|inode| inode.loaded().is_some()) {
            inode.references.join(&self.split_counts, &inode.lock());
        }
    }

    /// Makes all counts exact, before those are sought that nobody refers to.
    pub fn join_all_references(&self, guard: &Guard) {
        let owners = self.split_counts.owners();
        owners
            .into_iter()
            .for_each(|ino| self.join_references(ino, guard));
    }
}
