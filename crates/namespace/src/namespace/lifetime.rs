//! References on inodes, and the end of an inode without names.

use crossbeam_epoch::Guard;

use crate::base::error::Result;
use crate::base::store::LinkState;
use crate::base::types::{Attributes, Ino};
use crate::commit::oplog::Record;
use crate::inode::Inode;
use crate::namespace::Namespace;
use crate::schemes::Call;

impl Namespace {
    /// Takes a reference on an inode by number; give it back with [`Namespace::forget`].
    pub fn reference(&self, ino: Ino) -> Result<Attributes> {
        let operation = self.begin(Call::Lookup)?;
        loop {
            let inode = self.inode(ino, &operation.guard)?;
            if self.inodes.refer(inode, &operation.guard) {
                return Ok(self.shown(inode, &operation.guard));
            }
        }
    }

    /// Gives back `count` references. The last one of an inode without names frees it.
    pub fn forget(&self, ino: Ino, count: u64) {
        let _gate = self.gate.read();
        let _outer = self.scheme.enter(Call::OpenClose);
        self.release(ino, count);
    }

    /// As [`Namespace::forget`], inside the gate.
    pub(crate) fn release(&self, ino: Ino, count: u64) {
        // The end of the namespace has dropped all references; see `shut_down`.
        if self.committer.is_closed() {
            return;
        }
        let guard = &crossbeam_epoch::pin();
        let inode = loop {
            if let Some(inode) = self.inodes.get(ino, guard) {
                break inode;
            }
            if self.inodes.release_kept(ino, count, guard) {
                return;
            }
        };
        if inode.loaded().is_none() {
            // It comes back, or did not, and what it left behind is in its cell.
            if inode.references.any() && inode.references.release(&self.inodes.split_counts, count)
            {
                // It came back meanwhile, and its last name went.
                self.free_unlinked(inode, guard);
            }
            return;
        }
        if inode.references.release(&self.inodes.split_counts, count) {
            self.free_unlinked(inode, guard);
        } else if !inode.references.any()
            && let Some(contents) = inode.file().ok().and_then(|file| file.used_contents())
        {
            // Few range locks can be spread at a time.
            contents.data.settle();
        }
    }

    /// Frees an inode that has neither names nor references any more.
    pub(crate) fn free_unlinked(&self, inode: &Inode, guard: &Guard) {
        let _outer = self.scheme.enter(Call::FreeInode);
        let lock = inode.lock();
        if !inode.references.end_unlinked(&lock) {
            return;
        }
        let record = || Record::linked(inode, 0, LinkState::Freed);
        self.log_group(|| [record()], 0, &[inode.untimed()]);
        drop(lock);
        self.reclaim_if(LinkState::Freed, inode, guard);
    }
}
