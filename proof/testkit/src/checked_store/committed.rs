//! What is committed, as a plain model, to which batches are applied and which must be a file
//! system.

use std::collections::{BTreeMap, BTreeSet};

use finefs_namespace::{
    Attributes, Batch, Error, ExtentState, FileKind, Ino, InodeChange, LinkState, LogicalBlock,
    MapChange, Times,
};

use super::cost::INODES_PER_BLOCK;
use super::{SYMLINK_INLINE_MAX, blocks_of};

/// A directory grows by a block for so many names.
const NAMES_PER_BLOCK: u64 = 256;

/// A mapping of more pieces has a block of its own.
const PIECES_IN_INODE: usize = 4;

/// A committed inode.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) attributes: Attributes,
    pub(super) link_state: LinkState,
    /// From block of the file to block of the store.
    pub(super) blocks: BTreeMap<LogicalBlock, (u64, ExtentState)>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) target: Vec<u8>,
    pub(super) parent: Ino,
    pub(super) entries: BTreeMap<Vec<u8>, (Ino, FileKind)>,
}

pub(super) struct State {
    pub(super) root: Ino,
    pub(super) block_bytes: u64,
    /// Inodes that cannot be loaded.
    pub(super) unreadable: BTreeMap<Ino, Error>,
    /// Directories that must not be changed.
    pub(super) unchangeable: BTreeMap<Ino, Error>,
    /// What reservations fail with.
    pub(super) no_reservation: Option<Error>,
    /// What charges fail with.
    pub(super) no_charge: Option<Error>,
    pub(super) inodes: BTreeMap<Ino, Inode>,
    /// Numbers that the allocator gave out and that are not free again.
    pub(super) allocated_inodes: BTreeSet<Ino>,
    /// Blocks that the allocator gave out and that are not free again.
    pub(super) allocated_blocks: BTreeSet<u64>,
    pub(super) reserved_blocks: u64,
    pub(super) generation: u32,
    pub(super) commits: u64,
    pub(super) inode_blocks_max: usize,
}

impl State {
    /// Applies a batch; gives the blocks that left a mapping.
    pub(super) fn apply(
        &mut self,
        batch: &Batch,
        times: &dyn Fn(Ino) -> Option<Times>,
    ) -> Vec<u64> {
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
        let mut added = 0;
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
                added += u64::from(names.is_some() && !dir.entries.contains_key(&**name));
                match names {
                    Some(target) => dir.entries.insert(name.to_vec(), *target),
                    None => dir.entries.remove(&**name),
                };
            }
        }
        for change in &batch.inodes {
            self.settle(change.ino);
            if change.link_state == LinkState::Freed {
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
        // Each operation that adds a name reserves a block for it at least.
        assert!(
            batch.reserved_blocks >= added,
            "{added} names are added with {} blocks reserved",
            batch.reserved_blocks
        );
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
                link_state: change.link_state,
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
        inode.link_state = change.link_state;
        if change.attributes.kind == FileKind::Directory {
            assert!(change.map.is_empty(), "directory {ino} has a mapping");
            let links = i64::from(links_before) + change.link_delta;
            assert!(links >= 0, "directory {ino} has {links} links");
            inode.attributes.link_count = links as u32;
        } else {
            assert_eq!(change.link_delta, 0, "inode {ino} is no directory");
        }
        if change.link_state == LinkState::Freed {
            assert!(inode.entries.is_empty() || change.attributes.kind == FileKind::Directory);
            unmapped.extend(inode.blocks.values().map(|(block, _)| *block));
            inode.blocks.clear();
        }
        self.inodes.insert(ino, inode);
    }

    /// Counts what an inode takes: a directory grows by a block for every few names, a mapping of
    /// many pieces has a block of its own, and so have a long symbolic link and extended
    /// attributes.
    fn settle(&mut self, ino: Ino) {
        let block_bytes = self.block_bytes;
        let Some(inode) = self.inodes.get_mut(&ino) else {
            return;
        };
        let mut blocks = inode.blocks.len() as u64;
        match inode.attributes.kind {
            FileKind::Directory => {
                blocks = 1 + inode.entries.len() as u64 / NAMES_PER_BLOCK;
                inode.attributes.size_bytes = blocks * block_bytes;
            }
            FileKind::Symlink => {
                blocks = u64::from(inode.target.len() > SYMLINK_INLINE_MAX as usize);
            }
            _ => {}
        }
        let goes_on = |(at, (block, _)): (&LogicalBlock, &(u64, ExtentState))| {
            let before = inode.blocks.range(..at).next_back();
            before.is_some_and(|(place, (before, _))| *place + 1 == *at && before + 1 == *block)
        };
        let pieces = inode.blocks.iter().filter(|place| !goes_on(*place)).count();
        blocks += u64::from(pieces > PIECES_IN_INODE);
        blocks += u64::from(!inode.xattrs.is_empty());
        inode.attributes.sectors = blocks * block_bytes / 512;
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
            MapChange::Convert {
                logical,
                length,
                to,
            } => {
                for at in (0..length).map(|step| logical + step) {
                    let place = inode.blocks.get_mut(&at);
                    let place = place.unwrap_or_else(|| panic!("inode {ino} converts a hole"));
                    place.1 = to;
                }
            }
            MapChange::Unmap { logical, length } => {
                let gone: Vec<LogicalBlock> = inode
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
    pub(super) fn check(&self) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut subdirectories: BTreeMap<Ino, u32> = BTreeMap::new();
        for (ino, inode) in &self.inodes {
            for (name, (child, kind)) in &inode.entries {
                let text = String::from_utf8_lossy(name);
                let named = self.inodes.get(child).unwrap_or_else(|| {
                    panic!("directory {ino}: {text:?} names {child}, which is not there")
                });
                assert_eq!(named.attributes.kind, *kind, "directory {ino}: {text:?}");
                assert_ne!(named.link_state, LinkState::Freed);
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
                assert_eq!(
                    (names, inode.link_state),
                    (0, LinkState::Linked),
                    "the root"
                );
            } else if inode.link_state == LinkState::Orphan {
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
            let end = LogicalBlock::not_before(inode.attributes.size_bytes, self.block_bytes);
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
