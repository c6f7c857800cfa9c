//! The volume: what operations and commits share.

use std::sync::Arc;

use finefs_locks::BigReader;

use crate::base::classes;
use crate::base::error::{Error, Result};
use crate::base::memory::Memory;
use crate::base::store::{Geometry, Store};
use crate::commit::committer::Committer;
use crate::commit::freeze::Freeze;
use crate::commit::health::Health;
use crate::commit::oplog::OperationLog;
use crate::commit::options::Options;
use crate::inode::inode_table::InodeTable;
use crate::schemes::Scheme;

/// A store, the inodes of it that are in memory, and the log of what changed in them.
///
/// Commits work on this alone. A [`Namespace`](crate::Namespace) adds what only operations need.
pub struct Volume {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) geometry: Geometry,
    pub(crate) options: Options,
    pub(crate) scheme: Scheme,
    pub(crate) inodes: InodeTable,
    /// What they take.
    pub(crate) memory: Memory,
    pub(crate) log: OperationLog,
    /// The store takes batches, so operations log what they do.
    pub(crate) keeps_log: bool,
    pub(crate) gate: BigReader,
    pub(crate) committer: Committer,
    pub(crate) health: Health,
    pub(crate) freeze: Freeze,
    /// Who opened it, and has its threads.
    process: u32,
}

impl Volume {
    /// Of a store; nothing is in memory yet.
    pub(crate) fn new(store: Arc<dyn Store>, mut options: Options) -> Volume {
        let geometry = store.geometry().clone();
        options.is_read_only |= geometry.is_read_only;
        // What cannot be loaded again is only counted.
        let cache_bytes = match store.can_reload() {
            true => options.cache_bytes,
            false => u64::MAX,
        };
        // Images that are built come out the same only if batches do.
        let batch_bytes = match options.fixed_time {
            None => cache_bytes,
            Some(_) => u64::MAX,
        };
        let committer = Committer::new(&geometry, batch_bytes);
        Volume {
            // What a store cannot load again it keeps in memory.
            scheme: Scheme::new(options.locking(), store.can_reload()),
            keeps_log: store.takes_batches(),
            log: OperationLog::new(committer.folding.told_every()),
            committer,
            store,
            options,
            inodes: InodeTable::new(),
            memory: Memory::new(cache_bytes),
            gate: BigReader::new(&classes::GATE),
            health: Health::default(),
            freeze: Freeze::new(),
            process: std::process::id(),
            geometry,
        }
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        u64::from(self.geometry.block_size_bytes)
    }

    /// EIO in a process that was forked since: it has a copy of what its parent goes on to change,
    /// and none of the threads.
    pub(crate) fn check_process(&self) -> Result<()> {
        match self.is_inherited() {
            false => Ok(()),
            true => Err(Error::Io("another process opened the file system".into())),
        }
    }

    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Takes note of how a commit ended.
    pub(crate) fn note_commit(&self, outcome: Result<()>) -> Result<()> {
        self.health.note_commit(&*self.store, outcome)
    }

    /// Passes on what a load or an allocation gave; takes note of damage.
    pub(crate) fn note_load<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.note_damage(error);
        }
        result
    }

    /// Takes note of damage; other errors are none.
    pub(crate) fn note_damage(&self, error: &Error) {
        if self.geometry.stops_on_damage && !self.options.is_read_only {
            self.health.note_damage(&*self.store, error);
        }
    }
}
