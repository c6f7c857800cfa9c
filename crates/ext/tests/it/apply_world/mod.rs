//! A stand-in for the namespace: keeps a model of a file system, turns operations into batches as
//! the namespace does, commits them to a real image, and compares model and image.

// Each test uses a part of this.
#![allow(dead_code)]

pub mod driver;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use finefs_block::{Access, BlockDevice, FileDevice};
use finefs_ext::{ExtOptions, ExtStore};
use finefs_namespace::{
    Attributes, Batch, BlockNo, BlockRun, CommitThreads, DirectoryChange, Error, Extent,
    ExtentState, FileKind, Goal, Ino, InodeChange, LinkState, LogicalBlock, MapChange, Plan,
    Result, Settled, Store, Times, Timestamp,
};

/// The size of a usual run, or of a full one (`FINEFS_FULL`).
pub fn sized<T>(usual: T, full: T) -> T {
    match std::env::var_os("FINEFS_FULL") {
        Some(_) => full,
        None => usual,
    }
}

/// Makes an image; `arguments` go to mke2fs.
pub fn make_image(directory: &Path, arguments: &str, size: &str) -> PathBuf {
    let path = directory.join("image");
    let _ = std::fs::remove_file(&path);
    format(&path, arguments, size);
    path
}

/// Makes a file system in a file.
pub fn format(path: &Path, arguments: &str, size: &str) {
    let output = Command::new("mke2fs")
        .args(["-q", "-F"])
        .args(arguments.split_whitespace())
        .arg(path)
        .arg(size)
        .output()
        .expect("mke2fs runs");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mke2fs {arguments}: {message}");
}

/// Insists that e2fsck finds nothing to say about an image.
pub fn assert_clean(path: &Path) {
    let output = Command::new("e2fsck")
        .args(["-f", "-n"])
        .arg(path)
        .output()
        .expect("e2fsck runs");
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "e2fsck -fn {}:\n{report}",
        path.display()
    );
}

pub fn open(path: &Path) -> ExtStore {
    // A child that another test is about to start holds our lock until it executes.
    for _ in 0..100 {
        match FileDevice::open(path, Access::ReadWrite) {
            Ok(device) => return open_on(Arc::new(device)),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    }
    panic!("{}: cannot be opened", path.display());
}

pub fn open_on(device: Arc<dyn BlockDevice>) -> ExtStore {
    let store = ExtStore::open(device, &ExtOptions::default()).expect("image mounts");
    assert!(
        !store.geometry().is_read_only,
        "mounted read-only: {:?}",
        store.notes()
    );
    store
}

/// An object of the model.
#[derive(Clone, Debug)]
pub struct Node {
    pub attributes: Attributes,
    /// Names of a directory.
    pub entries: BTreeMap<Vec<u8>, (Ino, FileKind)>,
    pub parent: Ino,
    /// Block by block: where it lies, whether it is written.
    pub map: BTreeMap<u64, (u64, ExtentState)>,
    pub target: Option<Vec<u8>>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Used though it has no name.
    pub is_open: bool,
}

/// What a batch will say of an inode.
#[derive(Default)]
struct Pending {
    is_created: bool,
    link_delta: i64,
    map: Vec<MapChange>,
    xattrs: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    parent: Option<Ino>,
    entries: BTreeMap<Vec<u8>, Option<(Ino, FileKind)>>,
    has_entries: bool,
    is_freed: bool,
    /// Blocks that were allocated for it in this window.
    allocated: Vec<BlockRun>,
}

pub struct World {
    pub store: Arc<ExtStore>,
    /// Long values of extended attributes find room.
    pub has_value_inodes: bool,
    /// The image was damaged on purpose.
    pub is_damaged: bool,
    pub nodes: BTreeMap<Ino, Node>,
    pending: BTreeMap<Ino, Pending>,
    unused_inodes: Vec<(Ino, FileKind)>,
    unused_blocks: Vec<BlockRun>,
    reserved: u64,
    clock: u64,
    pub root: Ino,
    /// Attributes of what was freed since the last commit.
    freed: BTreeMap<Ino, Attributes>,
}

impl World {
    pub fn new(store: ExtStore) -> World {
        let root = store.geometry().root;
        let mut world = World::resume(store, BTreeMap::new());
        world.load(root, root);
        world
    }

    /// A world whose model is known.
    pub fn resume(store: ExtStore, nodes: BTreeMap<Ino, Node>) -> World {
        let root = store.geometry().root;
        World {
            store: Arc::new(store),
            has_value_inodes: false,
            is_damaged: false,
            nodes,
            pending: BTreeMap::new(),
            unused_inodes: Vec::new(),
            unused_blocks: Vec::new(),
            reserved: 0,
            clock: 1_600_000_000,
            root,
            freed: BTreeMap::new(),
        }
    }

    /// Takes over what the image holds (only directories and empty files occur in new images).
    fn load(&mut self, ino: Ino, parent: Ino) {
        let attributes = self.store.load_inode(ino).unwrap().attributes;
        let mut node = Node {
            attributes,
            entries: BTreeMap::new(),
            parent,
            map: BTreeMap::new(),
            target: None,
            xattrs: BTreeMap::new(),
            is_open: false,
        };
        if attributes.kind == FileKind::Directory {
            for entry in self.store.load_directory(ino).unwrap().entries {
                self.load(entry.ino, ino);
                let kind = self.nodes[&entry.ino].attributes.kind;
                node.entries.insert(entry.name, (entry.ino, kind));
            }
        }
        self.nodes.insert(ino, node);
    }

    fn now(&mut self) -> Timestamp {
        self.clock += 1;
        Timestamp::new(
            self.clock as i64,
            (self.clock * 7919 % 1_000_000_000) as u32,
        )
    }

    fn reserve(&mut self, plans: &[Plan]) -> Result<()> {
        self.reserved += self.store.reserve(plans)?;
        Ok(())
    }

    fn touch(&mut self, ino: Ino) -> &mut Pending {
        self.pending.entry(ino).or_default()
    }

    fn node(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("model has the inode")
    }

    fn set_entry(&mut self, dir: Ino, name: &[u8], value: Option<(Ino, FileKind)>) {
        let now = self.now();
        let node = self.node(dir);
        match value {
            Some(value) => node.entries.insert(name.to_vec(), value),
            None => node.entries.remove(name),
        };
        node.attributes.times.modified = now;
        node.attributes.times.changed = now;
        let pending = self.touch(dir);
        pending.has_entries = true;
        pending.entries.insert(name.to_vec(), value);
    }

    /// Makes an object. `size`: of a symbolic link's target.
    pub fn create(
        &mut self,
        dir: Ino,
        name: &[u8],
        kind: FileKind,
        target: Option<&[u8]>,
    ) -> Result<Ino> {
        let (ino, generation) = self.store.allocate_inode(dir, kind)?;
        let entries_about = self.nodes[&dir].entries.len() as u64;
        let mut plans = vec![Plan::AddEntry { entries_about }];
        if kind == FileKind::Directory {
            plans.push(Plan::NewDirectory);
        }
        if let Some(target) = target {
            plans.push(Plan::NewSymlink {
                length_bytes: target.len() as u32,
            });
        }
        if let Err(error) = self.reserve(&plans) {
            self.store.release_inode(ino, kind);
            return Err(error);
        }
        let now = self.now();
        let times = Times {
            accessed: now,
            modified: now,
            changed: now,
            created: now,
        };
        let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharDevice);
        let attributes = Attributes {
            ino,
            generation,
            kind,
            permissions: (ino.0 * 73) as u32 & 0o7777,
            link_count: if kind == FileKind::Directory { 2 } else { 1 },
            uid: (ino.0 * 100_003) as u32,
            gid: (ino.0 * 70_001) as u32,
            device: if is_device {
                ((ino.0 % 300) << 8) | (ino.0 % 200)
            } else {
                0
            },
            size_bytes: target.map_or(0, |target| target.len() as u64),
            sectors: 0,
            times,
            flags: finefs_namespace::FileFlags::empty(),
            project: 0,
            is_settled: true,
        };
        let node = Node {
            attributes,
            entries: BTreeMap::new(),
            parent: dir,
            map: BTreeMap::new(),
            target: target.map(<[u8]>::to_vec),
            xattrs: BTreeMap::new(),
            is_open: false,
        };
        if self.nodes.contains_key(&ino) {
            assert!(self.is_damaged, "inode {ino} was in use");
            return Err(Error::corrupt("inode was in use"));
        }
        self.nodes.insert(ino, node);
        let pending = self.touch(ino);
        pending.is_created = true;
        if kind == FileKind::Directory {
            pending.parent = Some(dir);
            pending.has_entries = true;
            self.touch(dir).link_delta += 1;
            self.node(dir).attributes.link_count += 1;
        }
        self.set_entry(dir, name, Some((ino, kind)));
        Ok(ino)
    }

    pub fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<()> {
        self.reserve(&[Plan::AddEntry {
            entries_about: self.nodes[&dir].entries.len() as u64,
        }])?;
        let now = self.now();
        let node = self.node(ino);
        node.attributes.link_count += 1;
        node.attributes.times.changed = now;
        let kind = node.attributes.kind;
        self.touch(ino);
        self.set_entry(dir, name, Some((ino, kind)));
        Ok(())
    }

    /// Removes a name; an object that loses its last one stays while `is_open`.
    pub fn unlink(&mut self, dir: Ino, name: &[u8], is_open: bool) {
        let (ino, kind) = self.nodes[&dir].entries[name];
        if kind == FileKind::Directory {
            assert!(
                self.nodes[&ino].entries.is_empty(),
                "rmdir of a full directory"
            );
            self.touch(dir).link_delta -= 1;
            // 1 says that links are not counted (dir_nlink).
            let links = &mut self.node(dir).attributes.link_count;
            *links = if *links == 1 { 1 } else { *links - 1 };
            self.node(ino).attributes.link_count = 0;
        } else {
            self.node(ino).attributes.link_count -= 1;
        }
        self.set_entry(dir, name, None);
        let now = self.now();
        let node = self.node(ino);
        node.attributes.times.changed = now;
        self.touch(ino);
        if self.nodes[&ino].attributes.link_count == 0 {
            self.node(ino).is_open = is_open;
            if !is_open {
                self.free(ino);
            }
        }
    }

    /// The last use of an object without a name ends.
    pub fn close_orphan(&mut self, ino: Ino) {
        assert!(self.nodes[&ino].is_open);
        self.touch(ino);
        self.free(ino);
    }

    fn free(&mut self, ino: Ino) {
        let node = self.nodes.remove(&ino).unwrap();
        let pending = self.pending.get_mut(&ino).unwrap();
        pending.is_freed = true;
        if pending.is_created {
            let pending = self.pending.remove(&ino).unwrap();
            self.unused_inodes.push((ino, node.attributes.kind));
            self.unused_blocks.extend(pending.allocated);
        } else {
            // The batch still tells the attributes.
            self.freed.insert(ino, node.attributes);
        }
    }

    pub fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> Result<()> {
        let entries_about = self.nodes[&to.0].entries.len() as u64;
        self.reserve(&[Plan::AddEntry { entries_about }])?;
        let (ino, kind) = self.nodes[&from.0].entries[from.1];
        if self.nodes[&to.0].entries.contains_key(to.1) {
            self.unlink(to.0, to.1, false);
        }
        self.set_entry(from.0, from.1, None);
        self.set_entry(to.0, to.1, Some((ino, kind)));
        if kind == FileKind::Directory && from.0 != to.0 {
            self.touch(from.0).link_delta -= 1;
            self.touch(to.0).link_delta += 1;
            self.node(from.0).attributes.link_count -= 1;
            self.node(to.0).attributes.link_count += 1;
            self.node(ino).parent = to.0;
            let pending = self.touch(ino);
            pending.parent = Some(to.0);
            pending.has_entries = true;
        }
        let now = self.now();
        self.node(ino).attributes.times.changed = now;
        self.touch(ino);
        Ok(())
    }

    fn block_size(&self) -> u64 {
        u64::from(self.store.geometry().block_size_bytes)
    }

    /// Gives blocks to the holes of a range of blocks; written ones hold [`pattern`].
    pub fn fill(&mut self, ino: Ino, logical: u64, length: u64, state: ExtentState) -> Result<()> {
        let mut at = logical;
        while at < logical + length {
            if let Some((_, old)) = self.nodes[&ino].map.get(&at).copied() {
                if old == ExtentState::Unwritten && state == ExtentState::Written {
                    self.convert(ino, at, 1)?;
                }
                at += 1;
                continue;
            }
            let end = self.nodes[&ino]
                .map
                .range(at..)
                .next()
                .map_or(u64::MAX, |(next, _)| *next);
            let wanted = (logical + length).min(end) - at;
            self.reserve(&[Plan::Mapping {
                extents: 1,
                hole: 0,
                is_old_form: false,
            }])?;
            let goal = self.nodes[&ino]
                .map
                .range(..at)
                .next_back()
                .map(|(_, (last, _))| Goal {
                    block: BlockNo(last + 1),
                    logical: LogicalBlock(at),
                });
            let run = self.store.allocate_blocks(ino, goal, wanted)?;
            assert!(run.length >= 1 && run.length <= wanted);
            for i in 0..run.length {
                let (block, logical) = (run.start.0 + i, at + i);
                if state == ExtentState::Written {
                    self.store
                        .write(BlockNo(block), 0, &pattern(ino, logical, self.block_size()))
                        .unwrap();
                }
                self.node(ino).map.insert(logical, (block, state));
            }
            let extent = Extent {
                logical: LogicalBlock(at),
                physical: run.start,
                length: run.length,
                state,
            };
            let pending = self.touch(ino);
            pending.map.push(MapChange::Map(extent));
            pending.allocated.push(run);
            at += run.length;
            let size = at * self.block_size();
            if state == ExtentState::Written {
                let attributes = &mut self.node(ino).attributes;
                attributes.size_bytes = attributes.size_bytes.max(size - 17);
            }
        }
        let now = self.now();
        let node = self.node(ino);
        node.attributes.times.modified = now;
        self.touch(ino);
        Ok(())
    }

    /// Writes to unwritten blocks.
    pub fn convert(&mut self, ino: Ino, logical: u64, length: u64) -> Result<()> {
        self.reserve(&[Plan::Mapping {
            extents: 2,
            hole: 0,
            is_old_form: false,
        }])?;
        let block_size = self.block_size();
        let blocks: Vec<(u64, u64)> = self.nodes[&ino]
            .map
            .range(logical..logical + length)
            .map(|(logical, (block, _))| (*logical, *block))
            .collect();
        for (logical, block) in blocks {
            self.store
                .write(BlockNo(block), 0, &pattern(ino, logical, block_size))
                .unwrap();
            self.node(ino)
                .map
                .insert(logical, (block, ExtentState::Written));
            let size = (logical + 1) * block_size;
            let node = self.node(ino);
            node.attributes.size_bytes = node.attributes.size_bytes.max(size);
        }
        self.touch(ino).map.push(MapChange::Convert {
            logical: LogicalBlock(logical),
            length,
            to: ExtentState::Written,
        });
        Ok(())
    }

    /// Frees the blocks of a range; `u64::MAX - logical` for "to the end".
    pub fn unmap(&mut self, ino: Ino, logical: u64, length: u64) -> Result<()> {
        self.reserve(&[Plan::Mapping {
            extents: 1,
            hole: 0,
            is_old_form: false,
        }])?;
        self.node(ino)
            .map
            .retain(|at, _| *at < logical || *at >= logical.saturating_add(length));
        let logical = LogicalBlock(logical);
        self.touch(ino)
            .map
            .push(MapChange::Unmap { logical, length });
        Ok(())
    }

    pub fn truncate(&mut self, ino: Ino, blocks: u64) -> Result<()> {
        self.unmap(ino, blocks, u64::MAX - blocks)?;
        let size = blocks * self.block_size();
        self.node(ino).attributes.size_bytes = size;
        Ok(())
    }

    pub fn set_xattr(&mut self, ino: Ino, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let mut all = self.nodes[&ino].xattrs.clone();
        match value {
            Some(value) => all.insert(name.to_vec(), value.to_vec()),
            None => all.remove(name),
        };
        let is_directory = self.nodes[&ino].attributes.kind == FileKind::Directory;
        let inline_max = self.store.geometry().inline_max_bytes;
        let inline = (is_directory && inline_max > 0).then_some(u64::from(inline_max));
        let view: Vec<(&[u8], &[u8])> = all.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        self.store.check_xattrs(ino, inline, &view)?;
        let length_bytes = value.map_or(0, <[u8]>::len) as u32;
        self.reserve(&[Plan::LargeXattr { length_bytes }])?;
        self.node(ino).xattrs = all;
        self.touch(ino)
            .xattrs
            .insert(name.to_vec(), value.map(<[u8]>::to_vec));
        Ok(())
    }

    pub fn chmod(&mut self, ino: Ino, permissions: u32) {
        let now = self.now();
        let attributes = &mut self.node(ino).attributes;
        attributes.permissions = permissions & 0o7777;
        attributes.uid ^= 0x1234_5678;
        attributes.times.changed = now;
        attributes.times.accessed = now;
        self.touch(ino);
    }

    /// Hands all that happened since the last commit to the store.
    pub fn commit(&mut self) -> Result<()> {
        let batch = self.batch();
        self.commit_batch(batch)
    }

    /// Hands over what [`World::batch`] gave.
    pub fn commit_batch(&mut self, batch: Batch) -> Result<()> {
        let committed = self.store.commit(batch, &|_| None)?;
        for Settled { ino, sectors, .. } in committed.settled {
            if let Some(node) = self.nodes.get_mut(&ino) {
                node.attributes.sectors = sectors;
            }
        }
        Ok(())
    }

    pub fn batch(&mut self) -> Batch {
        let mut batch = Batch {
            unused_inodes: std::mem::take(&mut self.unused_inodes),
            unused_blocks: std::mem::take(&mut self.unused_blocks),
            reserved_blocks: std::mem::take(&mut self.reserved),
            // By one thread or by three.
            threads: match self.nodes.len() % 2 {
                0 => CommitThreads::ONE,
                _ => CommitThreads::Always(const { NonZeroUsize::new(3).unwrap() }),
            },
            ..Batch::default()
        };
        let freed = std::mem::take(&mut self.freed);
        for (ino, pending) in std::mem::take(&mut self.pending) {
            let node = self.nodes.get(&ino).filter(|_| !pending.is_freed);
            let attributes = match node {
                Some(node) => node.attributes,
                None => freed[&ino],
            };
            let link_state = match node {
                None => LinkState::Freed,
                Some(node) if node.is_open => LinkState::Orphan,
                Some(_) => LinkState::Linked,
            };
            if pending.has_entries && link_state == LinkState::Linked {
                batch.directories.push(DirectoryChange {
                    dir: ino,
                    parent: pending.parent,
                    entries: pending
                        .entries
                        .into_iter()
                        .map(|(n, v)| (n.into(), v))
                        .collect(),
                });
            }
            let target = node.and_then(|node| node.target.clone());
            batch.inodes.push(Box::new(InodeChange {
                ino,
                is_created: pending.is_created,
                link_state,
                attributes,
                link_delta: pending.link_delta,
                symlink: target.filter(|_| pending.is_created).map(Into::into),
                map: pending.map,
                inline: None,
                xattrs: pending
                    .xattrs
                    .into_iter()
                    .map(|(n, v)| (n.into(), v.map(Into::into)))
                    .collect(),
            }));
        }
        batch
    }

    /// Closes the store, lets e2fsck look, mounts again and compares everything.
    pub fn check(self, path: &Path) -> World {
        let orphans: BTreeSet<Ino> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.is_open)
            .map(|(ino, _)| *ino)
            .collect();
        self.store.close().unwrap();
        let World {
            nodes,
            clock,
            store,
            ..
        } = self;
        drop(store);
        if !orphans.is_empty() {
            // A mount frees them.
            open(path).close().unwrap();
        }
        assert_clean(path);
        let nodes = nodes
            .into_iter()
            .filter(|(ino, _)| !orphans.contains(ino))
            .collect();
        let mut world = World::resume(open(path), nodes);
        world.clock = clock;
        world.compare();
        for ino in orphans {
            assert_eq!(
                world.store.load_inode(ino).unwrap_err(),
                Error::Stale,
                "orphan {ino}"
            );
        }
        world
    }

    fn compare(&self) {
        let geometry = self.store.geometry().clone();
        for (ino, node) in &self.nodes {
            let found = self
                .store
                .load_inode(*ino)
                .unwrap_or_else(|error| panic!("{ino}: {error}"));
            let mut expected = node.attributes;
            let mut got = found.attributes;
            if node.attributes.kind == FileKind::Directory {
                expected.size_bytes = got.size_bytes;
                if expected.link_count > 65_000 {
                    expected.link_count = 1;
                }
                let mut entries = self.store.load_directory(*ino).unwrap();
                assert_eq!(entries.parent, node.parent, "parent of {ino}");
                entries.entries.sort_by(|a, b| a.name.cmp(&b.name));
                let names: Vec<_> = entries
                    .entries
                    .iter()
                    .map(|e| (&e.name[..], e.ino))
                    .collect();
                let expected: Vec<_> = node
                    .entries
                    .iter()
                    .map(|(n, (i, _))| (&n[..], *i))
                    .collect();
                assert!(
                    names == expected,
                    "entries of {ino}: {} found, {} expected",
                    names.len(),
                    expected.len()
                );
                for entry in &entries.entries {
                    if let Some(kind) = entry.kind {
                        assert_eq!(kind, node.entries[&entry.name].1);
                    }
                }
            }
            if !geometry.has_fine_times {
                for times in [&mut expected.times, &mut got.times] {
                    times.created = Timestamp::default();
                    for time in [&mut times.accessed, &mut times.modified, &mut times.changed] {
                        *time = Timestamp::new(time.seconds(), 0);
                    }
                }
            }
            expected.flags = got.flags;
            if expected.sectors == 0 {
                expected.sectors = got.sectors;
            }
            assert_eq!(got, expected, "attributes of {ino}");
            if node.attributes.kind == FileKind::Regular {
                self.compare_data(*ino, node);
            }
            if let Some(target) = &node.target {
                assert_eq!(
                    &self.store.load_symlink(*ino).unwrap(),
                    target,
                    "target of {ino}"
                );
            }
            let xattrs: BTreeMap<_, _> =
                self.store.load_xattrs(*ino).unwrap().into_iter().collect();
            assert_eq!(xattrs, node.xattrs, "xattrs of {ino}");
        }
    }

    fn compare_data(&self, ino: Ino, node: &Node) {
        let mut found = BTreeMap::new();
        let mut end = LogicalBlock(0);
        for extent in self.store.load_extents(ino).unwrap() {
            assert!(extent.logical >= end, "extents of {ino} overlap");
            end = extent.end();
            for i in 0..extent.length {
                found.insert(extent.logical.0 + i, (extent.physical.0 + i, extent.state));
            }
        }
        assert!(
            found == node.map,
            "mapping of {ino}: {} blocks, expected {}",
            found.len(),
            node.map.len()
        );
        let block_size = self.block_size();
        let mut buffer = vec![0; block_size as usize];
        for (logical, (block, state)) in &node.map {
            if *state == ExtentState::Written {
                self.store.read(BlockNo(*block), 0, &mut buffer).unwrap();
                assert!(
                    buffer == pattern(ino, *logical, block_size),
                    "block {logical} of {ino}"
                );
            }
        }
    }
}

/// What a block of a file holds.
pub fn pattern(ino: Ino, logical: u64, block_size: u64) -> Vec<u8> {
    let seed =
        ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ logical.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (0..block_size / 8)
        .flat_map(|i| seed.wrapping_add(i).to_le_bytes())
        .collect()
}
