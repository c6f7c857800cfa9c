//! Eviction: clean inodes that nobody refers to leave memory while there are too many.

use crossbeam_epoch::Guard;

use crate::base::types::Ino;
use crate::commit::committer::State;
use crate::commit::volume::Volume;
use crate::inode::{Core, FileBody, Inode};

/// Inodes that are evicted while the gate is closed once: some ten microseconds.
const EVICTED_AT_ONCE: usize = 256;

impl Volume {
    /// Puts clean inodes that nobody refers to out of memory while there are too many.
    ///
    /// Nothing is evicted while an operation runs: those hold no references on the directories that
    /// they pass through. Candidates are sought beside the operations, and a few at a time are
    /// looked at again, and evicted, while the gate is closed.
    pub(super) fn evict(&self, state: &mut State) {
        let surplus = self.committer.inodes_loaded.exact()
            - self.options.inode_cache_max.min(i64::MAX as u64) as i64;
        if surplus <= 0 || !self.store.can_reload() {
            return;
        }
        self.inodes.join_all_references(&crossbeam_epoch::pin());
        let mut wanted = surplus as usize;
        while wanted > 0 {
            let guard = &crossbeam_epoch::pin();
            let most = wanted.min(EVICTED_AT_ONCE);
            let mut candidates: Vec<&Inode> = Vec::new();
            self.inodes.for_each_from(state.evict_from, guard, |inode| {
                if self.is_evictable(inode) {
                    candidates.push(inode);
                }
                candidates.len() < most
            });
            let is_end = candidates.len() < most;
            state.evict_from = match candidates.last() {
                Some(last) if !is_end => Ino(last.ino.0 + 1),
                _ => Ino(0),
            };
            wanted -= candidates.len();
            self.evict_these(&candidates, guard);
            if is_end {
                return;
            }
        }
    }

    fn is_evictable(&self, inode: &Inode) -> bool {
        inode.loaded().is_some_and(|core| {
            !inode.references.any() && !self.log.is_dirty(core) && !self.is_unsynced(core)
        })
    }

    /// True when data was overwritten that no commit has written out. A sync must find that.
    fn is_unsynced(&self, core: &Core) -> bool {
        let contents = core.file().ok().and_then(FileBody::used_contents);
        contents.is_some_and(|contents| contents.unsynced.generation() > self.log.committed())
    }

    fn evict_these(&self, candidates: &[&Inode], guard: &Guard) {
        let _gate = self.gate.write();
        for inode in candidates.iter().filter(|inode| self.is_evictable(inode)) {
            let lock = inode.lock();
            if inode.references.evict(&lock) {
                self.inodes.remove(inode, guard);
                self.committer.inodes_loaded.add(-1);
            }
        }
    }
}
