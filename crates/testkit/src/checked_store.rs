//! A store that checks the contract of stores from below.
//!
//! # Purpose
//! [`CheckedStore`] keeps data and allocates in a [`MemoryStore`], and replays every batch into a plain
//! model of what is committed. After each commit that model must be a file system: a commit is a
//! causally closed prefix of what happened, so whatever ran meanwhile, the committed state has no
//! dangling name and no wrong count. It panics with the reason otherwise.
//!
//! Since it knows the committed state, it can also load objects from it: [`CheckedStore::reloading`]
//! makes a store that persists (while it lives), so eviction, reloading and reopening can be tested
//! without an image.
//!
//! # What it checks
//! 1. Batches: inodes ascend and are distinct; what is created was allocated and is new, what changes
//!    exists, what is unused was allocated and never came to be.
//! 2. Mappings: new extents lie in holes, on blocks that were allocated and belong to nobody;
//!    conversions cover only mapped blocks; no written block lies beyond the end of file.
//! 3. Names: each names an inode that is there, of that kind. A file has as many links as names, a
//!    directory one name, the parent that holds it, and two links and one for each subdirectory. All
//!    directories hang on the root. An inode without names is marked an orphan, and is empty when it
//!    is a directory.
//! 4. At rest ([`CheckedStore::assert_at_rest`]): nothing allocated that is not in use, nothing reserved.
//!
//! # Locking
//! One plain mutex, never held over a call that could wait: so it may run under shuttle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use finefs_locks::primitive::atomic::{AtomicU64, Ordering};
use finefs_namespace::{
    Attributes, Batch, BatchLimit, BlockNo, BlockRun, Committed, DirectoryImage, EntryImage, Error,
    Extent, ExtentState, Fate, FileKind, Geometry, Ino, InodeChange, InodeImage, MapChange,
    MemoryStore, Plan, Result, StatFs, Store, Times,
};

/// EXT4_EXTENTS_FL of `linux/fs.h`.
const EXTENTS_FLAG: u32 = 0x80000;

/// Where batches are limited in blocks.
const INODES_PER_BLOCK: u64 = 4;

/// See the module's head.
pub struct CheckedStore {
    inner: MemoryStore,
    geometry: Geometry,
    reloads: bool,
    takes_batches: bool,
    /// Counted half way through each read and write: under shuttle another thread may run there.
    transfers: AtomicU64,
    state: Mutex<State>,
}

/// A committed inode.
#[derive(Clone, Debug)]
struct Inode {
    attributes: Attributes,
    fate: Fate,
    /// From block of the file to block of the store.
    blocks: BTreeMap<u64, (u64, ExtentState)>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    target: Vec<u8>,
    parent: Ino,
    entries: BTreeMap<Vec<u8>, (Ino, FileKind)>,
}

struct State {
    root: Ino,
    block_bytes: u64,
    inodes: BTreeMap<Ino, Inode>,
    /// Numbers that the allocator gave out and that are not free again.
    allocated_inodes: BTreeSet<Ino>,
    /// Blocks that the allocator gave out and that are not free again.
    allocated_blocks: BTreeSet<u64>,
    reserved_blocks: u64,
    generation: u32,
    commits: u64,
    inode_blocks_max: usize,
}

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

    /// The same, which wants batches as a small journal does: the log is taken in every few records, and
    /// committed when that comes to so many blocks.
    pub fn with_batches_of(mut self, blocks: u64) -> CheckedStore {
        self.geometry.batch_records = Some(8);
        self.geometry.batch_limit = Some(BatchLimit {
            blocks,
            inodes_per_block: INODES_PER_BLOCK,
            space_blocks: 4,
        });
        self
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
            fate: Fate::Linked,
            blocks: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            target: Vec::new(),
            parent: root,
            entries: BTreeMap::new(),
        };
        let state = State {
            root,
            block_bytes: u64::from(inner.geometry().block_size_bytes),
            inodes: BTreeMap::from([(root, inode)]),
            allocated_inodes: BTreeSet::from([root]),
            allocated_blocks: BTreeSet::new(),
            reserved_blocks: 0,
            generation: 0,
            commits: 0,
            inode_blocks_max: 0,
        };
        CheckedStore {
            geometry: inner.geometry().clone(),
            inner,
            reloads,
            takes_batches: true,
            transfers: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of commits so far.
    pub fn commits(&self) -> u64 {
        self.state().commits
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

    /// Of a store without batches: checks that these inodes and so many blocks are allocated and no other.
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
            assert_eq!(inode.fate, Fate::Linked, "inode {ino} was left an orphan");
        }
    }
}

impl State {
    /// Applies a batch; gives the blocks that left a mapping.
    fn apply(&mut self, batch: &Batch, times: &dyn Fn(Ino) -> Option<Times>) -> Vec<u64> {
        let ascending = batch
            .inodes
            .windows(2)
            .all(|pair| pair[0].ino < pair[1].ino);
        assert!(ascending, "inodes of a batch must ascend");
        for (ino, _) in &batch.unused_inodes {
            assert!(
                self.allocated_inodes.remove(ino) && !self.inodes.contains_key(ino),
                "unused inode {ino} was not allocated or is in use"
            );
        }
        let owned: BTreeSet<u64> = self
            .inodes
            .values()
            .flat_map(|inode| inode.blocks.values().map(|(block, _)| *block))
            .collect();
        for block in blocks_of(&batch.unused_blocks) {
            assert!(
                self.allocated_blocks.remove(&block) && !owned.contains(&block),
                "unused block {block} was not allocated or is in use"
            );
        }
        let mut owned = owned;
        let mut unmapped = Vec::new();
        for change in &batch.inodes {
            self.apply_inode(change, times(change.ino), &mut owned, &mut unmapped);
        }
        let mut seen = BTreeSet::new();
        for change in &batch.directories {
            assert!(seen.insert(change.dir), "directory {} twice", change.dir);
            assert!(
                batch.inodes.iter().any(|inode| inode.ino == change.dir),
                "directory {} has no inode change",
                change.dir
            );
            let dir = self
                .inodes
                .get_mut(&change.dir)
                .unwrap_or_else(|| panic!("entries change in {}, which is not there", change.dir));
            assert_eq!(dir.attributes.kind, FileKind::Directory);
            if let Some(parent) = change.parent {
                dir.parent = parent;
            }
            for (name, names) in &change.entries {
                match names {
                    Some(target) => dir.entries.insert(name.to_vec(), *target),
                    None => dir.entries.remove(&**name),
                };
            }
        }
        for change in &batch.inodes {
            if change.fate == Fate::Freed {
                self.inodes.remove(&change.ino);
                self.allocated_inodes.remove(&change.ino);
            }
        }
        for block in &unmapped {
            assert!(
                self.allocated_blocks.remove(block),
                "block {block} was freed twice"
            );
        }
        self.reserved_blocks = self
            .reserved_blocks
            .checked_sub(batch.reserved_blocks)
            .expect("a batch carries no more than was reserved");
        self.commits += 1;
        let blocks = batch.inodes.iter();
        let blocks: BTreeSet<u64> = blocks
            .map(|change| (change.ino.0 - 1) / INODES_PER_BLOCK)
            .collect();
        self.inode_blocks_max = self.inode_blocks_max.max(blocks.len());
        unmapped
    }

    fn apply_inode(
        &mut self,
        change: &InodeChange,
        times: Option<Times>,
        owned: &mut BTreeSet<u64>,
        unmapped: &mut Vec<u64>,
    ) {
        let ino = change.ino;
        let mut inode = if change.is_created {
            assert!(
                self.allocated_inodes.contains(&ino) && !self.inodes.contains_key(&ino),
                "created inode {ino} was not allocated or exists"
            );
            Inode {
                attributes: change.attributes,
                fate: change.fate,
                blocks: BTreeMap::new(),
                xattrs: BTreeMap::new(),
                target: change.symlink.as_deref().unwrap_or_default().to_vec(),
                parent: Ino(0),
                entries: BTreeMap::new(),
            }
        } else {
            self.inodes
                .remove(&ino)
                .unwrap_or_else(|| panic!("inode {ino} changes and does not exist"))
        };
        assert_eq!(inode.attributes.kind, change.attributes.kind, "inode {ino}");
        for map in &change.map {
            self.apply_map(ino, &mut inode, map, owned, unmapped);
        }
        for (name, value) in &change.xattrs {
            match value {
                Some(value) => inode.xattrs.insert(name.to_vec(), value.to_vec()),
                None => inode.xattrs.remove(&**name),
            };
        }
        let links_before = match change.is_created {
            true => 2,
            false => inode.attributes.link_count,
        };
        inode.attributes = change.attributes;
        inode.attributes.times = times.unwrap_or(change.attributes.times);
        inode.attributes.sectors = inode.blocks.len() as u64 * self.block_bytes / 512;
        inode.fate = change.fate;
        if change.attributes.kind == FileKind::Directory {
            assert!(change.map.is_empty(), "directory {ino} has a mapping");
            let links = i64::from(links_before) + change.link_delta;
            assert!(links >= 0, "directory {ino} has {links} links");
            inode.attributes.link_count = links as u32;
        } else {
            assert_eq!(change.link_delta, 0, "inode {ino} is no directory");
        }
        if change.fate == Fate::Freed {
            assert!(inode.entries.is_empty() || change.attributes.kind == FileKind::Directory);
            unmapped.extend(inode.blocks.values().map(|(block, _)| *block));
            inode.blocks.clear();
        }
        self.inodes.insert(ino, inode);
    }

    fn apply_map(
        &self,
        ino: Ino,
        inode: &mut Inode,
        change: &MapChange,
        owned: &mut BTreeSet<u64>,
        unmapped: &mut Vec<u64>,
    ) {
        match *change {
            MapChange::Map(extent) => {
                for offset in 0..extent.length {
                    let block = extent.physical.0 + offset;
                    assert!(
                        self.allocated_blocks.contains(&block) && owned.insert(block),
                        "inode {ino} maps block {block}, which is not its own"
                    );
                    let place = (block, extent.state);
                    let before = inode.blocks.insert(extent.logical + offset, place);
                    assert_eq!(before, None, "inode {ino} maps over a mapping");
                }
            }
            MapChange::Convert { logical, length } => {
                for at in logical..logical + length {
                    let place = inode.blocks.get_mut(&at);
                    let place = place.unwrap_or_else(|| panic!("inode {ino} converts a hole"));
                    place.1 = ExtentState::Written;
                }
            }
            MapChange::Unmap { logical, length } => {
                let gone: Vec<u64> = inode
                    .blocks
                    .range(logical..logical.saturating_add(length))
                    .map(|(at, _)| *at)
                    .collect();
                for at in gone {
                    unmapped.extend(inode.blocks.remove(&at).map(|(block, _)| block));
                }
            }
        }
    }

    /// Checks that the committed state is a file system.
    fn check(&self) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut subdirectories: BTreeMap<Ino, u32> = BTreeMap::new();
        for (ino, inode) in &self.inodes {
            for (name, (child, kind)) in &inode.entries {
                let text = String::from_utf8_lossy(name);
                let named = self.inodes.get(child).unwrap_or_else(|| {
                    panic!("directory {ino}: {text:?} names {child}, which is not there")
                });
                assert_eq!(named.attributes.kind, *kind, "directory {ino}: {text:?}");
                assert_ne!(named.fate, Fate::Freed);
                *names.entry(*child).or_default() += 1;
                if *kind == FileKind::Directory {
                    assert_eq!(
                        named.parent, *ino,
                        "directory {child} is in {ino}: its parent"
                    );
                    *subdirectories.entry(*ino).or_default() += 1;
                }
            }
        }
        for (ino, inode) in &self.inodes {
            let names = names.get(ino).copied().unwrap_or(0);
            let links = inode.attributes.link_count;
            let is_directory = inode.attributes.kind == FileKind::Directory;
            if *ino == self.root {
                assert_eq!((names, inode.fate), (0, Fate::Linked), "the root");
            } else if inode.fate == Fate::Orphan {
                assert_eq!(names, 0, "orphan {ino} has names");
                assert!(inode.entries.is_empty(), "orphan {ino} holds names");
                assert!(links == 0 || is_directory, "orphan {ino} has links");
                continue;
            } else if is_directory {
                assert_eq!(names, 1, "names of directory {ino}");
            } else {
                assert!(names > 0, "inode {ino} has no name and is no orphan");
                assert_eq!(links, names, "links of inode {ino}");
            }
            if is_directory {
                let expected = 2 + subdirectories.get(ino).copied().unwrap_or(0);
                assert_eq!(links, expected, "links of directory {ino}");
                self.check_reaches_root(*ino);
            }
            let end = inode.attributes.size_bytes.div_ceil(self.block_bytes);
            for (at, (_, state)) in inode.blocks.range(end..) {
                assert_eq!(
                    *state,
                    ExtentState::Unwritten,
                    "inode {ino}: block {at} is written, beyond the end of file"
                );
            }
        }
    }

    fn check_reaches_root(&self, ino: Ino) {
        let mut at = ino;
        for _ in 0..=self.inodes.len() {
            if at == self.root {
                return;
            }
            let dir = self.inodes.get(&at);
            at = dir
                .unwrap_or_else(|| panic!("directory {ino} is below {at}, which is not there"))
                .parent;
        }
        panic!("directory {ino} is in a loop");
    }
}

impl Store for CheckedStore {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn can_reload(&self) -> bool {
        self.reloads
    }

    fn takes_batches(&self) -> bool {
        self.takes_batches
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeImage> {
        let state = self.state();
        let inode = state.inodes.get(&ino).ok_or(Error::Stale)?;
        let mut attributes = inode.attributes;
        if attributes.kind == FileKind::Regular {
            // Without it the file is one that takes no unwritten extents.
            attributes.flags |= EXTENTS_FLAG;
        }
        Ok(InodeImage {
            attributes,
            inline: None,
            unreadable: None,
        })
    }

    fn load_directory(&self, ino: Ino) -> Result<DirectoryImage> {
        let state = self.state();
        let inode = state.inodes.get(&ino).ok_or(Error::Stale)?;
        let entries = inode.entries.iter().map(|(name, (ino, kind))| EntryImage {
            name: name.clone(),
            ino: *ino,
            kind: Some(*kind),
        });
        Ok(DirectoryImage {
            parent: inode.parent,
            entries: entries.collect(),
        })
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
        self.transfers.fetch_add(1, Ordering::Relaxed);
        self.inner.read(block, offset_bytes + half as u64, second)
    }

    fn write(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        let (first, second) = data.split_at(data.len() / 2);
        self.inner.write(block, offset_bytes, first)?;
        self.transfers.fetch_add(1, Ordering::Relaxed);
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

    fn allocate_blocks(&self, ino: Ino, goal: Option<BlockNo>, count: u64) -> Result<BlockRun> {
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

    fn reserve(&self, plans: &[Plan]) -> Result<u64> {
        if !self.takes_batches {
            return Ok(0);
        }
        let blocks = plans.len() as u64;
        self.state().reserved_blocks += blocks;
        Ok(blocks)
    }

    fn unreserve(&self, blocks: u64) {
        let mut state = self.state();
        let left = state.reserved_blocks.checked_sub(blocks);
        state.reserved_blocks = left.expect("only what was reserved is given back");
    }

    fn check_xattrs(&self, _ino: Ino, _xattrs: &[(&[u8], &[u8])]) -> Result<()> {
        Ok(())
    }

    fn commit(&self, batch: Batch, captured: &dyn Fn(Ino) -> Option<Times>) -> Result<Committed> {
        if !self.takes_batches {
            assert!(batch.is_empty(), "a batch for a store that takes none");
            return Ok(Committed::default());
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
                    committed
                        .sectors
                        .push((change.ino, inode.attributes.sectors));
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
        let freed = freed.filter(|change| change.fate == Fate::Freed);
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
        Ok(())
    }
}
