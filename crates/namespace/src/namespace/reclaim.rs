//! What is removed over a store that takes no batches ([`Store::takes_batches`]).
//!
//! Over any other store the commit gives back what was removed, once that is durable. Here nothing
//! becomes durable and there is no log, so a removal gives back at once: the next file is made of
//! memory that is still in this CPU's caches, and no thread does work for another.
//!
//! # Protocol
//! 1. The last name goes, or the mapping of the blocks. Nobody finds the inode or the blocks any
//!    more.
//! 2. Its locks are released: the file's range lock comes before them in the lock order.
//! 3. An inode without name and reference gives back its blocks, under its range lock, leaves the
//!    inode table, and only then gives back its number. A thread that still holds its cell holds an
//!    epoch guard.
//!
//! [`Store::takes_batches`]: crate::base::store::Store::takes_batches

use crossbeam_epoch::Guard;

use crate::base::store::{BlockRun, LinkState};
use crate::inode::Inode;
use crate::namespace::Namespace;

impl Namespace {
    /// Gives back an inode and its blocks if it was freed, and if no commit will. To be called
    /// without a lock, once its last name is out of the directory's table.
    #[inline]
    pub(crate) fn reclaim_if(&self, link_state: LinkState, inode: &Inode, guard: &Guard) {
        if link_state == LinkState::Freed && !self.keeps_log {
            self.reclaim(inode, guard);
        }
    }

    fn reclaim(&self, inode: &Inode, guard: &Guard) {
        debug_assert!(inode.is_gone());
        if let Ok(file) = inode.file()
            && let Some(contents) = file.used_contents()
            && let Some(extents) = contents.extents.get()
            && !extents.is_empty(guard)
        {
            // Nobody refers to the file; but an operation may be under way that found it before.
            let _range = contents.data.write_to_end(&self.scheme, 0);
            extents.clear(guard, |run| self.store.release_blocks(run));
        }
        self.inodes.remove(inode, guard);
        self.discount(inode);
        self.store.release_inode(inode.ino, inode.kind);
    }

    /// Gives back blocks that left the mapping of a file whose range lock is held, if no commit
    /// will.
    pub(crate) fn reclaim_blocks(&self, runs: &[BlockRun]) {
        if !self.keeps_log {
            for run in runs {
                self.store.release_blocks(*run);
            }
        }
    }
}
