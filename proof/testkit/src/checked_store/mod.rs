//! A store that checks the contract of stores from below.
//!
//! # Purpose
//! [`CheckedStore`] keeps data and allocates in a [`MemoryStore`], and replays every batch into a
//! plain model of what is committed. After each commit that model must be a file system: a commit
//! is a causally closed prefix of what happened, so whatever ran meanwhile, the committed state has
//! no dangling name and no wrong count. It panics with the reason otherwise.
//!
//! Since it knows the committed state, it can also load objects from it:
//! [`CheckedStore::reloading`] makes a store that persists (while it lives), so eviction, reloading
//! and reopening can be tested without an image.
//!
//! # What it checks
//! 1. Batches: inodes ascend and are distinct; what is created was allocated and is new, what
//!    changes exists, what is unused was allocated and never came to be.
//! 2. Mappings: new extents lie in holes, on blocks that were allocated and belong to nobody;
//!    conversions cover only mapped blocks; no written block lies beyond the end of file.
//! 3. Names: each names an inode that is there, of that kind. A file has as many links as names, a
//!    directory one name, the parent that holds it, and two links and one for each subdirectory.
//!    All directories hang on the root. An inode without names is marked an orphan, and is empty
//!    when it is a directory.
//! 4. At rest ([`CheckedStore::assert_at_rest`]): nothing allocated that is not in use, nothing
//!    reserved.
//!
//! | Module | Thing |
//! |---|---|
//! | `committed` | the model of what is committed: batches applied, and checked (1 to 3) |
//! | `cost` | how much a batch changes, where that is limited |
//!
//! # Locking
//! One plain mutex, never held over a call that could wait: so it may run under shuttle.

mod committed;
mod cost;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use finefs_locks::primitive::atomic::{AtomicU64, Ordering};
use finefs_namespace::{
    Batch, BatchCost, BlockNo, BlockRun, Captured, Charge, Committed, DirectoryImage, EntryImage,
    Error, Extent, FileKind, Geometry, Goal, Ino, InodeImage, LinkState, MemoryStore, PlacedName,
    Plan, Result, Settled, StatFs, Store, Times,
};

use self::committed::{Inode, State};

/// Longer symbolic links take a block, as in ext4.
const SYMLINK_INLINE_MAX: u32 = 59;

/// See the module's head.
pub struct CheckedStore {
    inner: MemoryStore,
    geometry: Geometry,
    /// Where batches are limited in blocks.
    cost: Option<cost::PlainCost>,
    reloads: bool,
    takes_batches: bool,
    /// How many commits there were when it was closed.
    commits_at_close: AtomicU64,
    /// Entries are loaded with the kinds of what they name.
    has_kinds: bool,
    /// Counted half way through each read and write, and before and after names are looked for:
    /// under shuttle another thread may run there.
    transfers: AtomicU64,
    before_loads: OnceLock<BeforeLoads>,
    before_behind: OnceLock<BeforeBehind>,
    before_commits: OnceLock<BeforeCommits>,
    state: Mutex<State>,
}

/// Called with the number of each inode before it is loaded.
type BeforeLoads = Box<dyn Fn(Ino) + Send + Sync>;

/// Called with each run of blocks before it is written behind.
type BeforeBehind = Box<dyn Fn(BlockRun) + Send + Sync>;

/// What is called before commits.
type BeforeCommits = Box<dyn Fn() + Send + Sync>;

fn runs_of(blocks: impl Iterator<Item = u64>) -> Vec<BlockRun> {
    blocks
        .map(|block| BlockRun {
            start: BlockNo(block),
            length: 1,
        })
        .collect()
}

fn blocks_of(runs: &[BlockRun]) -> impl Iterator<Item = u64> {
    runs.iter()
        .flat_map(|run| run.start.0..run.start.0 + run.length)
}
impl CheckedStore {
    /// A store of this size that takes batches, and from which nothing is loaded again.
    pub fn new(size_bytes: u64) -> CheckedStore {
        CheckedStore::over(size_bytes, false)
    }

    /// A store of this size that persists nothing and takes no batches, as the memory store is.
    pub fn without_batches(size_bytes: u64) -> CheckedStore {
        CheckedStore {
            takes_batches: false,
            ..CheckedStore::over(size_bytes, false)
        }
    }

    /// A store of this size from which objects can be loaded again.
    pub fn reloading(size_bytes: u64) -> CheckedStore {
        CheckedStore::over(size_bytes, true)
    }

    /// Has `call` called with the number of each inode before it is loaded. Once.
    pub fn call_before_loads(&self, call: impl Fn(Ino) + Send + Sync + 'static) {
        let is_first = self.before_loads.set(Box::new(call)).is_ok();
        assert!(is_first, "something is called before loads already");
    }

    /// Has `call` called before each batch is applied, by the thread that commits. Once.
    pub fn call_before_commits(&self, call: impl Fn() + Send + Sync + 'static) {
        let is_first = self.before_commits.set(Box::new(call)).is_ok();
        assert!(is_first, "something is called before commits already");
    }

    /// Has `call` called with each run of blocks before it is written behind. Once.
    pub fn call_before_writing_behind(&self, call: impl Fn(BlockRun) + Send + Sync + 'static) {
        let is_first = self.before_behind.set(Box::new(call)).is_ok();
        assert!(is_first, "something is called before that already");
    }

    /// From now on loading this inode fails.
    pub fn make_unreadable(&self, ino: Ino, error: Error) {
        self.state().unreadable.insert(ino, error);
    }

    /// From now on this directory is loaded as one that must not be changed.
    pub fn make_unchangeable(&self, ino: Ino, error: Error) {
        self.state().unchangeable.insert(ino, error);
    }

    /// From now on every charge on a quota fails with this.
    pub fn refuse_charges(&self, error: Error) {
        self.state().no_charge = Some(error);
    }

    /// From now on every reservation fails with this.
    pub fn refuse_reservations(&self, error: Error) {
        self.state().no_reservation = Some(error);
    }

    /// The same, which wants batches as a small journal does: the log is taken in every few
    /// records, and committed when that comes to so many blocks.
    pub fn with_batches_of(mut self, blocks: u64) -> CheckedStore {
        self.geometry.batch_records = Some(8);
        self.cost = Some(cost::PlainCost {
            blocks_max: blocks,
            map_changes_max: AtomicU64::new(0),
        });
        self
    }

    /// As a journal that holds about so many records: without, the log is taken in after very few.
    pub fn with_records_of(mut self, records: u64) -> CheckedStore {
        self.geometry.batch_records = Some(records);
        self
    }

    /// As an image whose entries do not note the kind of what they name.
    pub fn without_kinds(self) -> CheckedStore {
        CheckedStore {
            has_kinds: false,
            ..self
        }
    }

    /// The most changes of its mapping that a part of the log held of a file: of a store whose
    /// batches are limited in blocks.
    pub fn map_changes_max(&self) -> u64 {
        let cost = self.cost.as_ref();
        cost.map_or(0, |cost| cost.map_changes_max.load(Ordering::Relaxed))
    }

    /// The most blocks of inodes that a commit changed.
    pub fn inode_blocks_max(&self) -> usize {
        self.state().inode_blocks_max
    }

    fn over(size_bytes: u64, reloads: bool) -> CheckedStore {
        let inner = MemoryStore::new(size_bytes, 0o755, 0, 0).expect("a size of 16 blocks or more");
        let root = inner.geometry().root;
        let attributes = inner.load_inode(root).expect("the root").attributes;
        let inode = Inode {
            attributes,
            link_state: LinkState::Linked,
            blocks: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            target: Vec::new(),
            parent: root,
            entries: BTreeMap::new(),
        };
        let state = State {
            root,
            block_bytes: u64::from(inner.geometry().block_size_bytes),
            unreadable: BTreeMap::new(),
            unchangeable: BTreeMap::new(),
            no_reservation: None,
            no_charge: None,
            inodes: BTreeMap::from([(root, inode)]),
            allocated_inodes: BTreeSet::from([root]),
            allocated_blocks: BTreeSet::new(),
            reserved_blocks: 0,
            generation: 0,
            commits: 0,
            inode_blocks_max: 0,
        };
        CheckedStore {
            geometry: Geometry {
                symlink_inline_max: SYMLINK_INLINE_MAX,
                ..inner.geometry().clone()
            },
            cost: None,
            inner,
            reloads,
            takes_batches: true,
            commits_at_close: AtomicU64::new(0),
            has_kinds: true,
            transfers: AtomicU64::new(0),
            before_loads: OnceLock::new(),
            before_behind: OnceLock::new(),
            before_commits: OnceLock::new(),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under shuttle: another thread may run here. Not while the state is held.
    fn let_others_run(&self) {
        self.transfers.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of commits so far.
    pub fn commits(&self) -> u64 {
        self.state().commits
    }

    /// Those that ended since it was closed.
    pub fn commits_since_close(&self) -> u64 {
        self.commits() - self.commits_at_close.load(Ordering::SeqCst)
    }

    /// The blocks that are reserved.
    pub fn reserved_blocks(&self) -> u64 {
        self.state().reserved_blocks
    }

    /// The number of inodes that are committed.
    pub fn inode_count(&self) -> usize {
        self.state().inodes.len()
    }

    /// The committed entries of a directory.
    pub fn committed_names(&self, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
        let state = self.state();
        let entries = state.inodes.get(&dir).map(|inode| &inode.entries);
        let entries = entries.into_iter().flatten();
        entries
            .map(|(name, (ino, _))| (name.clone(), *ino))
            .collect()
    }

    /// Checks that nothing is allocated or reserved beyond what is committed: call it when
    /// nothing runs and everything was committed.
    ///
    /// # Panics
    /// When something leaked.
    pub fn assert_at_rest(&self) {
        let state = self.state();
        let committed: BTreeSet<Ino> = state.inodes.keys().copied().collect();
        assert_eq!(state.allocated_inodes, committed, "inode numbers leaked");
        let mapped: BTreeSet<u64> = state
            .inodes
            .values()
            .flat_map(|inode| inode.blocks.values().map(|(block, _)| *block))
            .collect();
        assert_eq!(state.allocated_blocks, mapped, "blocks leaked");
        assert_eq!(state.reserved_blocks, 0, "reserved blocks leaked");
    }

    /// Of a store without batches: checks that these inodes and so many blocks are allocated and no
    /// other.
    ///
    /// # Panics
    /// When something leaked or was given back too early.
    pub fn assert_holds(&self, inodes: &BTreeSet<Ino>, blocks: u64) {
        let state = self.state();
        assert_eq!(state.allocated_inodes, *inodes, "inode numbers");
        assert_eq!(state.allocated_blocks.len() as u64, blocks, "blocks");
        assert_eq!(state.reserved_blocks, 0, "reserved blocks leaked");
    }

    /// Checks that no inode without names is left: after a shut-down.
    ///
    /// # Panics
    /// When there is one.
    pub fn assert_no_orphans(&self) {
        for (ino, inode) in &self.state().inodes {
            assert_eq!(
                inode.link_state,
                LinkState::Linked,
                "inode {ino} was left an orphan"
            );
        }
    }
}
impl Store for CheckedStore {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn batch_cost(&self) -> Option<&dyn BatchCost> {
        self.cost.as_ref().map(|cost| cost as &dyn BatchCost)
    }

    /// As if larger mappings took a block.
    fn mapping_fits_inode(&self, _size_bytes: u64, blocks: u64, _is_block_mapped: bool) -> bool {
        blocks <= 4
    }

    fn can_reload(&self) -> bool {
        self.reloads
    }

    fn takes_batches(&self) -> bool {
        self.takes_batches
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeImage> {
        if let Some(call) = self.before_loads.get() {
            call(ino);
        }
        let state = self.state();
        if let Some(error) = state.unreadable.get(&ino) {
            return Err(error.clone());
        }
        let inode = state.inodes.get(&ino).ok_or(Error::Stale)?;
        Ok(InodeImage {
            attributes: inode.attributes,
            inline: None,
            unreadable: None,
            is_old_form: false,
            may_have_acls: !inode.xattrs.is_empty(),
        })
    }

    fn load_directory(&self, ino: Ino) -> Result<DirectoryImage> {
        let state = self.state();
        let inode = state.inodes.get(&ino).ok_or(Error::Stale)?;
        let entries = inode.entries.iter().map(|(name, (ino, kind))| EntryImage {
            name: name.clone(),
            ino: *ino,
            kind: self.has_kinds.then_some(*kind),
        });
        Ok(DirectoryImage {
            parent: inode.parent,
            entries: entries.collect(),
            damage: state.unchangeable.get(&ino).cloned(),
        })
    }

    /// Each directory that is sound can be read in parts.
    fn open_large_directory(&self, ino: Ino, names_min: u64) -> Result<Option<Ino>> {
        let state = self.state();
        let inode = state.inodes.get(&ino).ok_or(Error::Stale)?;
        let is_large = self.reloads
            && inode.entries.len() as u64 > names_min
            && !state.unchangeable.contains_key(&ino);
        Ok(is_large.then_some(inode.parent))
    }

    fn find_name(&self, dir: Ino, name: &[u8]) -> Result<Option<(Ino, Option<FileKind>)>> {
        self.let_others_run();
        let found = {
            let state = self.state();
            let inode = state.inodes.get(&dir).ok_or(Error::Stale)?;
            inode.entries.get(name).copied()
        };
        self.let_others_run();
        Ok(found.map(|(ino, kind)| (ino, self.has_kinds.then_some(kind))))
    }

    /// By length and first letters, a place at a time.
    fn names_from(&self, dir: Ino, place: u64, names: &mut Vec<PlacedName>) -> Result<Option<u64>> {
        let place_of = |name: &[u8]| {
            let number = |byte: Option<&u8>| byte.map_or(0, |byte| u64::from(*byte));
            ((name.len() as u64) << 16) | number(name.last()) << 8 | number(name.first())
        };
        self.let_others_run();
        let here = {
            let state = self.state();
            let inode = state.inodes.get(&dir).ok_or(Error::Stale)?;
            let places = inode.entries.keys().map(|name| place_of(name));
            let Some(here) = places.filter(|at| *at >= place).min() else {
                return Ok(None);
            };
            let there = inode.entries.iter();
            names.extend(there.filter(|(name, _)| place_of(name) == here).map(
                |(name, (ino, kind))| PlacedName {
                    place: here,
                    entry: EntryImage {
                        name: name.clone(),
                        ino: *ino,
                        kind: self.has_kinds.then_some(*kind),
                    },
                },
            ));
            here
        };
        self.let_others_run();
        Ok(Some(here + 1))
    }

    fn load_extents(&self, ino: Ino) -> Result<Vec<Extent>> {
        let state = self.state();
        let inode = state.inodes.get(&ino).ok_or(Error::Stale)?;
        let extents = inode.blocks.iter().map(|(at, (block, state))| Extent {
            logical: *at,
            physical: BlockNo(*block),
            length: 1,
            state: *state,
        });
        Ok(extents.collect())
    }

    fn load_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let state = self.state();
        let inode = state.inodes.get(&ino).ok_or(Error::Stale)?;
        Ok(inode.target.clone())
    }

    fn load_xattrs(&self, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let state = self.state();
        let inode = state.inodes.get(&ino).ok_or(Error::Stale)?;
        let xattrs = inode.xattrs.iter();
        Ok(xattrs
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect())
    }

    fn read(&self, block: BlockNo, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let half = buffer.len() / 2;
        let (first, second) = buffer.split_at_mut(half);
        self.inner.read(block, offset_bytes, first)?;
        self.let_others_run();
        self.inner.read(block, offset_bytes + half as u64, second)
    }

    fn write(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let (first, second) = data.split_at(data.len() / 2);
        self.inner.write(block, offset_bytes, first)?;
        self.let_others_run();
        self.inner
            .write(block, offset_bytes + first.len() as u64, second)
    }

    fn write_zeros(&self, run: BlockRun) -> Result<()> {
        self.inner.write_zeros(run)
    }

    fn allocate_inode(&self, parent: Ino, kind: FileKind) -> Result<(Ino, u32)> {
        let (ino, _) = self.inner.allocate_inode(parent, kind)?;
        let mut state = self.state();
        assert!(
            state.allocated_inodes.insert(ino),
            "inode {ino} given twice"
        );
        state.generation += 1;
        Ok((ino, state.generation))
    }

    fn release_inode(&self, ino: Ino, kind: FileKind) {
        {
            let mut state = self.state();
            let was_given = state.allocated_inodes.remove(&ino);
            assert!(was_given && !state.inodes.contains_key(&ino));
        }
        self.inner.release_inode(ino, kind);
    }

    fn allocate_blocks(&self, ino: Ino, goal: Option<Goal>, count: u64) -> Result<BlockRun> {
        let run = self.inner.allocate_blocks(ino, goal, count)?;
        let mut state = self.state();
        for block in blocks_of(&[run]) {
            assert!(
                state.allocated_blocks.insert(block),
                "block {block} given twice"
            );
        }
        Ok(run)
    }

    fn release_blocks(&self, run: BlockRun) {
        {
            let mut state = self.state();
            for block in blocks_of(&[run]) {
                assert!(
                    state.allocated_blocks.remove(&block),
                    "block {block} given back twice"
                );
            }
        }
        self.inner.release_blocks(run);
    }

    fn write_behind(&self, run: BlockRun) {
        // Whose blocks they are by now nobody knows: others may come first here.
        self.let_others_run();
        if let Some(call) = self.before_behind.get() {
            call(run);
        }
        self.inner.write_behind(run);
    }

    fn reserve(&self, plans: &[Plan]) -> Result<u64> {
        if let Some(error) = &self.state().no_reservation {
            return Err(error.clone());
        }
        if !self.takes_batches {
            return Ok(0);
        }
        let blocks = plans.len() as u64;
        self.state().reserved_blocks += blocks;
        Ok(blocks)
    }

    fn charge(&self, _charge: &Charge, _generation: &dyn Fn() -> u64) -> Result<()> {
        match &self.state().no_charge {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn unreserve(&self, blocks: u64) {
        let mut state = self.state();
        let left = state.reserved_blocks.checked_sub(blocks);
        state.reserved_blocks = left.expect("only what was reserved is given back");
    }

    fn check_xattrs(
        &self,
        _ino: Ino,
        _inline_bytes: Option<u64>,
        _xattrs: &[(&[u8], &[u8])],
    ) -> Result<Charge> {
        Ok(Charge::default())
    }

    fn commit(&self, batch: Batch, captured: &Captured<'_>) -> Result<Committed> {
        if !self.takes_batches {
            assert!(batch.is_empty(), "a batch for a store that takes none");
            return Ok(Committed::default());
        }
        if let Some(call) = self.before_commits.get() {
            call();
        }
        // Before the lock is taken: asking for times is a scheduling point.
        let times: BTreeMap<Ino, Option<Times>> = batch
            .inodes
            .iter()
            .map(|change| (change.ino, captured(change.ino)))
            .collect();
        let mut committed = Committed::default();
        let unmapped = {
            let mut state = self.state();
            let unmapped = state.apply(&batch, &|ino| times[&ino]);
            state.check();
            for change in &batch.inodes {
                if let Some(inode) = state.inodes.get(&change.ino) {
                    let attributes = &inode.attributes;
                    let is_directory = attributes.kind == FileKind::Directory;
                    committed.settled.push(Settled {
                        ino: change.ino,
                        sectors: attributes.sectors,
                        directory_bytes: is_directory.then_some(attributes.size_bytes),
                    });
                }
            }
            unmapped
        };
        for run in runs_of(unmapped.into_iter())
            .iter()
            .chain(&batch.unused_blocks)
        {
            self.inner.release_blocks(*run);
        }
        let freed = batch.inodes.iter();
        let freed = freed.filter(|change| change.link_state == LinkState::Freed);
        let freed = freed.map(|change| (change.ino, change.attributes.kind));
        for (ino, kind) in freed.chain(batch.unused_inodes) {
            self.inner.release_inode(ino, kind);
        }
        Ok(committed)
    }

    fn statfs(&self) -> StatFs {
        self.inner.statfs()
    }

    fn close(&self) -> Result<()> {
        self.commits_at_close
            .store(self.commits(), Ordering::SeqCst);
        Ok(())
    }
}
