//! The namespace itself: its parts, how an operation begins and logs, and how objects come into
//! memory and leave it.
//!
//! | module | about |
//! |---|---|
//! | (here) | the parts; the gate; space that is reserved, the log group |
//! | `loading` | inodes, names, mappings and attributes are loaded when first used |
//! | `late_releases` | who finds no space waits for references that come back late |
//! | `lifetime` | references on inodes; the end of an inode without names |
//! | `reclaim` | what is removed over a store that takes no batches |
//!
//! # Invariants
//! 1. Whatever looks at inodes holds an [`Operation`]: it has entered the gate and pinned an epoch.
//! 2. A log group is appended by [`Namespace::log_group`] only, with blocks that were reserved for
//!    it. Times are set there and by [`Namespace::log_times`] only, before the append.
//!
//! # May use
//! Everything below.

mod late_releases;
mod lifetime;
mod loading;
mod reclaim;

use std::ops::Deref;
use std::sync::Arc;

use crossbeam_epoch::Guard;
use finefs_locks::primitive::atomic::AtomicBool;
use finefs_locks::{BigReadGuard, LimitedCounter, Mutex, ShardedList};

use crate::base::classes;
use crate::base::error::{Error, Result};
use crate::base::store::{Geometry, Plan, Store};
use crate::base::types::{Ino, SECTOR_BYTES, StatFs, Timestamp};
use crate::commit::eviction;
use crate::commit::oplog::Record;
use crate::commit::options::Options;
use crate::commit::run::start_threads;
use crate::commit::volume::Volume;
use crate::data::write_errors::WriteErrors;
use crate::file_lock::WaitsFor;
use crate::inode::{Core, InodeConfig, Stamped};
use crate::names::path_cache::PathCache;
use crate::namespace::late_releases::LateReleases;
use crate::schemes::{Call, OuterGuard};

/// A concurrent file system tree over a store. See the crate's documentation.
pub struct Namespace {
    volume: Volume,
    /// Where paths have led.
    pub(crate) paths: PathCache,
    pub(crate) topology: Mutex<()>,
    /// Of all files.
    pub(crate) write_errors: WriteErrors,
    pub(crate) open_files: ShardedList<Ino>,
    pub(crate) waits_for: WaitsFor,
    /// Locks on files that there may still be.
    pub(crate) file_lock_credit: LimitedCounter,
    /// Changes of any directory are durable when they return.
    pub(crate) has_synchronous_directories: AtomicBool,
    late_releases: LateReleases,
}

/// What operations share with commits is the volume's.
#[doc(hidden)]
impl Deref for Namespace {
    type Target = Volume;
    #[inline]
    fn deref(&self) -> &Volume {
        &self.volume
    }
}

/// An operation under way: its epoch, and its place in the gate.
pub(crate) struct Operation<'n> {
    pub guard: Guard,
    _outer: OuterGuard<'n>,
    _gate: BigReadGuard<'n>,
}

/// How often an operation that finds no space is tried before it fails. It takes that many only
/// where others log and commit all the time, and take what each commit frees first.
const SPACE_ATTEMPTS: u32 = 10;

impl Namespace {
    /// A namespace over `store`; starts its commit thread, where there is something to commit.
    pub fn new(store: Arc<dyn Store>, options: Options) -> Result<Arc<Namespace>> {
        let namespace = Arc::new(Namespace::without_thread(store, options)?);
        if namespace.keeps_log {
            start_threads(&namespace)?;
        }
        if namespace.store.can_reload() {
            eviction::start_thread(&namespace)?;
        }
        Ok(namespace)
    }

    /// A namespace that commits only when asked to (`sync`, fsync, lack of space): for tests and
    /// tools that run to an end.
    pub fn without_thread(store: Arc<dyn Store>, options: Options) -> Result<Namespace> {
        let namespace = Namespace {
            waits_for: WaitsFor::new(),
            file_lock_credit: LimitedCounter::new(options.file_locks_max),
            has_synchronous_directories: AtomicBool::new(options.has_synchronous_directories),
            volume: Volume::new(store, options),
            paths: PathCache::new(),
            topology: Mutex::new(&classes::TOPOLOGY, ()),
            write_errors: WriteErrors::new(),
            open_files: ShardedList::new(&classes::FILES),
            late_releases: LateReleases::new(),
        };
        // The root stays in memory: it is where every walk starts.
        namespace.reference(namespace.root())?;
        Ok(namespace)
    }

    /// Has `tell` called when the namespace stops taking changes because of damage or of a failure
    /// of the device; at most once for each of them, by the thread that found it, which holds
    /// locks: it must not call the namespace, but may have the store write the error down. Only the
    /// first listener is taken.
    pub fn on_stop(&self, tell: impl Fn(&Error, &dyn Store) + Send + Sync + 'static) {
        self.health.listen(Box::new(tell));
    }

    /// Facts about the store.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes of what was loaded or made and can be given back, about: what
    /// [`Options::cache_bytes`] bounds.
    pub fn cached_bytes(&self) -> u64 {
        self.memory.bytes().max(0) as u64
    }

    /// Bytes of the table that finds inodes by their numbers, which `cached_bytes` has not in it.
    pub fn inode_table_bytes(&self) -> usize {
        self.inodes.bytes()
    }

    /// True when every change is refused.
    pub fn is_read_only(&self) -> bool {
        self.options.is_read_only
    }

    /// True when POSIX ACLs count; see [`Options::has_acls`].
    pub fn has_acls(&self) -> bool {
        self.options.has_acls
    }

    /// The root directory's number.
    pub fn root(&self) -> Ino {
        self.geometry.root
    }

    /// Free and used space. What was removed counts as free at once, though the store gives it out
    /// again only after the next commit: an operation that finds no space meanwhile waits for that.
    pub fn statfs(&self) -> StatFs {
        let _outer = self.scheme.enter(Call::StatFs);
        let stored = self.store.statfs();
        let freeing = self.log.freeing();
        let block_sectors = u64::from(stored.block_size_bytes) / SECTOR_BYTES;
        let more = freeing.blocks + freeing.sectors / block_sectors.max(1);
        let blocks_free = (stored.blocks_free + more).min(stored.blocks);
        StatFs {
            blocks_free,
            blocks_available: blocks_free.saturating_sub(stored.blocks_reserved),
            inodes_free: (stored.inodes_free + freeing.inodes).min(stored.inodes),
            ..stored
        }
    }

    /// The time, as the store can hold it.
    pub(crate) fn now(&self) -> Timestamp {
        self.as_stored(self.options.fixed_time.unwrap_or_else(Timestamp::now))
    }

    /// A time cut to what the store can hold: inodes of 128 bytes have whole seconds up to 2038,
    /// reiserfs has them from 1970 to 2106.
    pub(crate) fn as_stored(&self, time: Timestamp) -> Timestamp {
        if self.geometry.has_fine_times {
            time.without_nanoseconds_at_the_ends()
        } else if self.geometry.has_unsigned_times {
            Timestamp::new(time.seconds().clamp(0, i64::from(u32::MAX)), 0)
        } else {
            Timestamp::new(time.seconds().min(i64::from(i32::MAX)), 0)
        }
    }

    /// Begins an operation that changes nothing.
    pub(crate) fn begin(&self, call: Call) -> Result<Operation<'_>> {
        let mut gate = self.gate.read();
        if self.committer.has_notice() {
            gate = self.heed_notice(gate)?;
        }
        let outer = self.scheme.enter(call);
        Ok(Operation {
            guard: crossbeam_epoch::pin(),
            _outer: outer,
            _gate: gate,
        })
    }

    /// What an operation does before it begins, where it cannot just begin.
    #[cold]
    fn heed_notice<'n>(&'n self, gate: BigReadGuard<'n>) -> Result<BigReadGuard<'n>> {
        drop(gate);
        if !self.committer.is_closed() {
            self.keep_up_with_reads();
            if self.committer.wants_help() {
                self.sweep();
            }
        }
        let gate = self.gate.read();
        match self.committer.is_closed() {
            true => Err(Namespace::shut_down_error()),
            false => Ok(gate),
        }
    }

    /// The error of every operation after the shut-down.
    pub(crate) fn shut_down_error() -> Error {
        Error::Io("the file system was shut down".into())
    }

    /// Begins an operation that may change something.
    pub(crate) fn begin_change(&self, call: Call) -> Result<Operation<'_>> {
        if self.options.is_read_only {
            return Err(Error::ReadOnly);
        }
        loop {
            self.wait_for_room()?;
            let operation = self.begin(call)?;
            if self.freeze.refuses() {
                return Err(Error::ReadOnly);
            }
            if !self.freeze.is_frozen() {
                return Ok(operation);
            }
            drop(operation);
            if !self.options.waits_for_thaw {
                return Err(Error::Frozen);
            }
            self.freeze.wait();
        }
    }

    /// Runs an operation; when it fails for lack of space, commits, which frees what was removed,
    /// and runs it again. A commit that somebody else has under way counts too, and what it frees
    /// may be taken by others first: so it goes on as long as commits come, within reason. At last
    /// it waits once for what may be given back late ([`Namespace::expect_late_releases`]).
    pub(crate) fn with_space<T>(&self, operation: impl Fn() -> Result<T>) -> Result<T> {
        let mut has_waited = false;
        for _ in 0..SPACE_ATTEMPTS {
            let before = self.log.committed();
            match operation() {
                Err(Error::NoSpace | Error::QuotaExceeded) if self.log.has_uncommitted() => {
                    self.commit_log()?;
                }
                Err(Error::NoSpace | Error::QuotaExceeded) if self.log.committed() != before => {}
                Err(Error::NoSpace | Error::QuotaExceeded)
                    if !has_waited && self.wait_for_releases() =>
                {
                    has_waited = true;
                }
                Err(Error::NoSpace) => return self.note_load(Err(self.store.why_no_space())),
                result => return result,
            }
        }
        operation()
    }

    /// What all inodes have in common.
    pub(crate) fn inode_config(&self) -> InodeConfig {
        InodeConfig {
            scheme: self.scheme.kind(),
            keeps_log: self.keeps_log,
            has_acls: self.options.has_acls,
            fold: self.geometry.folding.map(|folding| folding.fold),
            has_inline_data: self.geometry.inline_max_bytes > 0,
            name_classes: self.geometry.name_classes,
            identity: self.geometry.identity,
        }
    }

    /// Sets the times of what is touched, appends a group to the log, if there is one, and lets the
    /// commit thread know when it grows long.
    #[inline]
    pub(crate) fn log_group<G: IntoIterator<Item = Record>>(
        &self,
        group: impl FnOnce() -> G,
        reserved_blocks: u64,
        touched: &[Stamped<'_>],
    ) {
        for stamped in touched {
            stamped.set();
        }
        if !self.keeps_log {
            return;
        }
        let cores = touched.iter().map(|stamped| stamped.core());
        let told = self.log.append(group(), reserved_blocks, cores);
        if let Some((shard, weight)) = told {
            self.committer.note_length(shard, weight);
        }
    }

    /// Sets times, and notes that if they were others.
    pub(crate) fn log_times(&self, stamped: Stamped<'_>) {
        if stamped.set() {
            self.log_touch(stamped.core());
        }
    }

    /// Notes that only times or mapped data of an inode changed.
    pub(crate) fn log_touch(&self, core: &Core) {
        if self.keeps_log
            && let Some((shard, weight)) = self.log.touch(core)
        {
            self.committer.note_length(shard, weight);
        }
    }

    /// Reserves what applying the plans can need.
    pub(crate) fn reserve(&self, plans: &[Plan]) -> Result<Reservation<'_>> {
        Ok(Reservation {
            store: &*self.store,
            blocks: self.note_load(self.store.reserve(plans))?,
        })
    }
}

/// Reserved blocks, given back on drop unless a log group took them over.
pub(crate) struct Reservation<'n> {
    store: &'n dyn Store,
    blocks: u64,
}

impl Reservation<'_> {
    /// Hands the blocks over to a log group.
    pub fn take(mut self) -> u64 {
        std::mem::take(&mut self.blocks)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.blocks != 0 {
            self.store.unreserve(self.blocks);
        }
    }
}
