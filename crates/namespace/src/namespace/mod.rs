//! The namespace itself: its parts, how an operation begins, and how objects come into memory.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_epoch::Guard;
use finefs_locks::primitive::atomic::Ordering;
use finefs_locks::{BigReadGuard, BigReader, LimitedCounter, Mutex, ShardedList, SplitCounts};

use crate::classes;
use crate::commit::Committer;
use crate::data::SECTOR_BYTES;
use crate::error::{Error, Result};
use crate::extent_map::ExtentMap;
use crate::file_lock::WaitsFor;
use crate::freeze::Freeze;
use crate::health::Health;
use crate::inode::{Core, Inode, Keeping};
use crate::inode_table::InodeTable;
use crate::name_table::NameTable;
use crate::oplog::{OperationLog, Record};
use crate::path_cache::PathCache;
use crate::scheme::{Call, LockingScheme, OuterGuard, Scheme};
use crate::store::{Fate, Geometry, Plan, Store};
use crate::types::{Attributes, Ino, StatFs, Timestamp};
use crate::write_errors::WriteErrors;

/// When reading a file updates its access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AtimePolicy {
    /// When it is not later than the modification or change, or older than a day.
    #[default]
    Relatime,
    /// Never.
    Noatime,
    /// Always.
    Strict,
}

/// How a namespace behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Longest time between a change and its commit.
    pub commit_interval: Duration,
    /// When reads update the access time.
    pub atime: AtimePolicy,
    /// Reads of directories update it too (else `nodiratime` of mount(8)).
    pub notes_directories: bool,
    /// What is made gets its directory's group (`grpid` of ext4's mounts); else as the directory's
    /// set-group-ID bit says.
    pub has_bsd_groups: bool,
    /// Refuse all changes.
    pub is_read_only: bool,
    /// Inodes in memory above which clean ones that nobody refers to are evicted.
    pub inode_cache_max: u64,
    /// Changes wait while the file system is frozen. Else they fail with [`Error::Frozen`] before
    /// anything has happened, and the caller tries again after [`Namespace::wait_for_thaw`].
    pub waits_for_thaw: bool,
    /// Locks on files, and requests for them, beyond which there is an error (ENOLCK).
    pub file_locks_max: u64,
    /// POSIX ACLs count. Else they are neither shown nor enforced nor set (`noacl` of ext4's mounts).
    pub has_acls: bool,
    /// Locks beside the fine ones, to compare with.
    pub locking: LockingScheme,
    /// What the commit thread calls when nothing was committed for [`Options::commit_interval`] and nothing waits
    /// to be, once until something is: the time to give memory back. Never called over a store that takes no batches.
    pub when_quiet: Option<fn()>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            commit_interval: Duration::from_secs(5),
            atime: AtimePolicy::Relatime,
            notes_directories: true,
            has_bsd_groups: false,
            is_read_only: false,
            inode_cache_max: 200_000,
            waits_for_thaw: true,
            file_locks_max: 1 << 20,
            has_acls: true,
            locking: LockingScheme::Fine,
            when_quiet: None,
        }
    }
}

/// A concurrent file system tree over a store. See the crate's documentation.
pub struct Namespace {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) geometry: Geometry,
    pub(crate) options: Options,
    pub(crate) scheme: Scheme,
    pub(crate) inodes: InodeTable,
    /// Where paths have led.
    pub(crate) paths: PathCache,
    pub(crate) log: OperationLog,
    /// The store takes batches, so operations log what they do.
    pub(crate) keeps_log: bool,
    pub(crate) gate: BigReader,
    pub(crate) topology: Mutex<()>,
    pub(crate) committer: Committer,
    pub(crate) health: Health,
    pub(crate) freeze: Freeze,
    /// Of all files.
    pub(crate) write_errors: WriteErrors,
    pub(crate) open_files: ShardedList<Ino>,
    /// References on inodes that CPUs use by turns.
    pub(crate) split_counts: SplitCounts,
    pub(crate) waits_for: WaitsFor,
    /// Locks on files that there may still be.
    pub(crate) file_lock_credit: LimitedCounter,
}

/// An operation under way: its epoch, and its place in the gate.
pub(crate) struct Operation<'n> {
    pub guard: Guard,
    _outer: OuterGuard<'n>,
    _gate: BigReadGuard<'n>,
}

/// How often an operation that finds no space is tried before it fails. It takes that many only where others
/// log and commit all the time, and take what each commit frees first.
const SPACE_ATTEMPTS: u32 = 10;

impl Namespace {
    /// A namespace over `store`; starts its commit thread, where there is something to commit.
    pub fn new(store: Arc<dyn Store>, options: Options) -> Result<Arc<Namespace>> {
        let namespace = Arc::new(Namespace::without_thread(store, options)?);
        if namespace.keeps_log {
            Committer::start(&namespace)?;
        }
        Ok(namespace)
    }

    /// A namespace that commits only when asked to (`sync`, fsync, lack of space): for tests and
    /// tools that run to an end.
    pub fn without_thread(store: Arc<dyn Store>, mut options: Options) -> Result<Namespace> {
        let geometry = store.geometry().clone();
        options.is_read_only |= geometry.is_read_only;
        let namespace = Namespace {
            waits_for: WaitsFor::new(),
            file_lock_credit: LimitedCounter::new(options.file_locks_max),
            // What a store cannot load again it keeps in memory.
            scheme: Scheme::new(options.locking, store.can_reload()),
            keeps_log: store.takes_batches(),
            store,
            options,
            inodes: InodeTable::new(),
            paths: PathCache::new(),
            log: OperationLog::new(),
            gate: BigReader::new(&classes::GATE),
            topology: Mutex::new(&classes::TOPOLOGY, ()),
            committer: Committer::new(&geometry),
            health: Health::default(),
            freeze: Freeze::new(),
            write_errors: WriteErrors::new(),
            open_files: ShardedList::new(&classes::FILES),
            split_counts: SplitCounts::new(),
            geometry,
        };
        // The root stays in memory: it is where every walk starts.
        namespace.reference(namespace.root())?;
        Ok(namespace)
    }

    /// Facts about the store.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
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
    /// again only after the next commit: who finds no space meanwhile waits for that.
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
        self.as_stored(Timestamp::now())
    }

    /// A time cut to what the store can hold: inodes of 128 bytes have whole seconds up to 2038.
    pub(crate) fn as_stored(&self, time: Timestamp) -> Timestamp {
        if self.geometry.has_fine_times {
            time.without_nanoseconds_at_the_ends()
        } else {
            Timestamp::new(time.seconds().min(i64::from(i32::MAX)), 0)
        }
    }

    /// Begins an operation that changes nothing.
    pub(crate) fn begin(&self, call: Call) -> Result<Operation<'_>> {
        let gate = self.gate.read();
        if self.committer.is_closed() {
            return Err(Namespace::shut_down_error());
        }
        let outer = self.scheme.enter(call);
        Ok(Operation {
            guard: crossbeam_epoch::pin(),
            _outer: outer,
            _gate: gate,
        })
    }

    /// What everybody is told who comes after the shut-down.
    pub(crate) fn shut_down_error() -> Error {
        Error::Io("the file system was shut down".into())
    }

    /// Begins an operation that may change something.
    pub(crate) fn begin_change(&self, call: Call) -> Result<Operation<'_>> {
        if self.options.is_read_only {
            return Err(Error::ReadOnly);
        }
        loop {
            self.committer.wait_for_room(self)?;
            let operation = self.begin(call)?;
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
    /// may be taken by others first: so it goes on as long as commits come, within reason.
    pub(crate) fn with_space<T>(&self, operation: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 0..SPACE_ATTEMPTS {
            let before = self.log.committed();
            match operation() {
                Err(Error::NoSpace) if self.log.has_uncommitted() => self.commit()?,
                Err(Error::NoSpace) if self.log.committed() != before => {}
                Err(Error::NoSpace) => return self.note_load(Err(self.store.why_no_space())),
                result => return result,
            }
        }
        operation()
    }

    /// How inodes are kept.
    pub(crate) fn keeping(&self) -> Keeping {
        Keeping {
            scheme: self.scheme.kind(),
            keeps_log: self.keeps_log,
            has_acls: self.options.has_acls,
        }
    }

    /// The inode of a number; loaded if need be.
    #[inline]
    pub(crate) fn inode<'g>(&self, ino: Ino, guard: &'g Guard) -> Result<&'g Inode> {
        match self.inodes.get(ino, guard) {
            Some(cell) if cell.is_usable() => Ok(cell),
            _ => self.inode_slowly(ino, guard),
        }
    }

    /// The cell is not there, not loaded, or gone.
    #[cold]
    fn inode_slowly<'g>(&self, ino: Ino, guard: &'g Guard) -> Result<&'g Inode> {
        loop {
            let cell = if self.store.can_reload() || ino == self.root() {
                self.inodes.get_or_insert(ino, guard)
            } else {
                self.inodes.get(ino, guard)
            }
            .ok_or(Error::Stale)?;
            cell.load(&self.scheme, || {
                let image = self.note_load(self.store.load_inode(ino))?;
                self.committer.inodes_loaded.add(1);
                Ok(if self.geometry.has_unwritten {
                    Core::from_image_with_extents(image, self.keeping())
                } else {
                    Core::from_image(image, self.keeping())
                })
            })?;
            if !cell.is_gone() {
                // A cell that was put where a freed inode's had been may be loaded as the next inode of that number,
                // whose own cell has taken its place before its creation could be loaded.
                if (self.inodes.get(ino, guard)).is_some_and(|now| std::ptr::eq(now, cell)) {
                    return Ok(cell);
                }
                continue;
            }
            if !cell.is_evicted() {
                return Err(Error::Stale);
            }
            // Whoever evicted it takes the cell out of the table next.
            finefs_locks::primitive::thread::yield_now();
        }
    }

    /// The names of a directory; loaded if need be.
    pub(crate) fn table<'g>(&self, inode: &'g Inode) -> Result<&'g NameTable> {
        let directory = inode.directory()?;
        self.scheme.load(&directory.table, || {
            if let Some(error) = &inode.unreadable {
                return Err(error.as_ref().clone());
            }
            let image = self.note_load(self.store.load_directory(inode.ino))?;
            directory.parent.store(image.parent.0, Ordering::Release);
            if let Some(damage) = image.damage {
                self.note_damage(&damage);
                inode.note_names_damage(damage);
            }
            Ok(NameTable::load(
                image
                    .entries
                    .into_iter()
                    .map(|e| (e.name, e.ino, e.kind))
                    .collect(),
            ))
        })
    }

    /// The mapping of a regular file; loaded if need be.
    pub(crate) fn extents<'g>(&self, inode: &'g Inode, guard: &Guard) -> Result<&'g ExtentMap> {
        let file = inode.file()?;
        self.scheme.load(&file.contents().extents, || {
            if let Some(error) = &inode.unreadable {
                return Err(error.as_ref().clone());
            }
            let map = ExtentMap::new();
            for extent in self.note_load(self.store.load_extents(inode.ino))? {
                if !map.insert(extent, guard) {
                    return Err(Error::corrupt(format_args!(
                        "inode {}: blocks beyond the largest file",
                        inode.ino
                    )));
                }
            }
            Ok(map)
        })
    }

    /// Takes a reference on an inode by number; give it back with [`Namespace::forget`].
    pub fn reference(&self, ino: Ino) -> Result<Attributes> {
        let operation = self.begin(Call::Lookup)?;
        loop {
            let inode = self.inode(ino, &operation.guard)?;
            if self.refer(inode, &operation.guard) {
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
        let Some(inode) = self.inodes.get(ino, guard) else {
            return;
        };
        if inode.loaded().is_some() && inode.references.release(&self.split_counts, count) {
            self.free_unlinked(inode, guard);
        }
    }

    /// Frees an inode that has neither names nor references any more.
    pub(crate) fn free_unlinked(&self, inode: &Inode, guard: &Guard) {
        let _outer = self.scheme.enter(Call::FreeInode);
        let lock = inode.lock();
        if !inode.references.end_unlinked(&lock) {
            return;
        }
        let record = || Record::Linked {
            ino: inode.ino,
            sequence: inode.next_sequence(),
            link_count: 0,
            fate: Fate::Freed,
        };
        self.log_group(|| [record()], 0, &[inode]);
        drop(lock);
        self.reclaim_if(Fate::Freed, inode, guard);
    }

    /// Appends a group to the log, if there is one, and lets the commit thread know when it grows long.
    #[inline]
    pub(crate) fn log_group<G: IntoIterator<Item = Record>>(
        &self,
        group: impl FnOnce() -> G,
        reserved_blocks: u64,
        touched: &[&Core],
    ) {
        if !self.keeps_log {
            return;
        }
        let length = self.log.append(group(), reserved_blocks, touched);
        if let Some(length) = length {
            self.committer.note_length(length);
        }
    }

    /// Notes that only times or mapped data of an inode changed.
    pub(crate) fn log_touch(&self, core: &Core) {
        if self.keeps_log
            && let Some(length) = self.log.touch(core)
        {
            self.committer.note_length(length);
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
