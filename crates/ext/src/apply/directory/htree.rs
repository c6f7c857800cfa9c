//! Indexed directories.
//!
//! A path from the root to a leaf is a list of [`Frame`]s, each with the entries of its index block. A
//! leaf that overflows is split by hash, and the new leaf gets an entry in the lowest index block; one
//! that is full is split in turn, up to the root, which can push its entries down into a new level.
//!
//! Names whose hashes are equal may run on into the next leaf; the entry of that leaf then has the lowest
//! bit of its hash set.

use std::ops::Range;

use finefs_ext_disk::dirent::{DirBlock, EntryType, entry_size};
use finefs_ext_disk::dirhash::DirHasher;
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::htree::{
    DxBlock, DxEntry, DxPlace, DxRootInfo, LEVELS_MAX, LEVELS_MAX_LARGE,
};
use finefs_ext_disk::{Ino as DiskIno, LogicalBlock};
use finefs_namespace::Result;

use super::{Directory, NameChange, Target};

/// Splits of leaves for one name; each at least halves what the name collides with.
const SPLITS_MAX: u32 = 16;

/// An index block on the way to a leaf.
#[derive(Clone)]
struct Frame {
    logical: u32,
    place: DxPlace,
    entries: Vec<DxEntry>,
    /// The entry that the way follows.
    at: usize,
}

/// The way to a leaf.
struct Path {
    frames: Vec<Frame>,
    hasher: DirHasher,
}

impl Path {
    fn leaf(&self) -> u32 {
        self.frames.last().map_or(0, |frame| frame.entries[frame.at].block.0)
    }

    /// The entry after the leaf's, wherever it is.
    fn next(&self) -> Option<DxEntry> {
        self.frames.iter().rev().find_map(|frame| frame.entries.get(frame.at + 1)).copied()
    }

    /// The hashes that lead to the leaf.
    fn hashes(&self) -> Range<u64> {
        let low = self.frames.iter().rev().find(|frame| frame.at > 0);
        let low = low.map_or(0, |frame| u64::from(frame.entries[frame.at].hash));
        low..self.next().map_or(1 << 32, |next| u64::from(next.hash))
    }
}

/// An entry on its way from one leaf to another.
struct Moving {
    hash: u32,
    name: Vec<u8>,
    ino: DiskIno,
    entry_type: EntryType,
}

impl Moving {
    fn size(&self) -> usize {
        entry_size(self.name.len())
    }
}

/// The index cannot take another leaf.
struct IndexIsFull;

impl Directory<'_, '_> {
    /// Applies changes in the order of hash.
    pub(super) fn apply_indexed(&mut self, changes: Vec<NameChange>) -> Result<()> {
        let hasher = self.hasher()?;
        let mut changes: Vec<(u32, NameChange)> =
            changes.into_iter().map(|change| (hasher.hash(&change.0).major, change)).collect();
        changes.sort_by_key(|(hash, _)| *hash);
        let mut path: Option<Path> = None;
        let mut changes = changes.into_iter();
        while let Some((hash, change)) = changes.next() {
            let target = change.1.map(|(ino, kind)| Target::of(ino, kind)).transpose()?;
            let is_near = path.as_ref().is_some_and(|path| path.hashes().contains(&u64::from(hash)));
            let way = match path.take().filter(|_| is_near) {
                Some(path) => path,
                None => self.walk(hash)?,
            };
            if self.change_existing(&way, hash, &change.0, target)? || target.is_none() {
                path = Some(way);
                continue;
            }
            let Some(target) = target else { continue };
            match self.insert_indexed(way, hash, &change.0, target)? {
                Ok(way) => path = Some(way),
                Err(IndexIsFull) => {
                    log::warn!("inode {}: the directory's index is full and dropped", self.inode.ino);
                    self.drop_index()?;
                    let rest = std::iter::once(change).chain(changes.map(|(_, change)| change));
                    self.apply_linear(rest.collect())?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn hasher(&self) -> Result<DirHasher> {
        let (_, bytes) = self.read_index(0)?;
        let root = DxBlock::new(&bytes[..], DxPlace::Root, self.format.rules.has_tail)
            .map_err(|error| self.inode.damaged(error))?;
        DirHasher::new(root.hash_version(), &self.format.superblock)
            .map_err(|error| self.inode.damaged(error))
    }

    /// Reads and checks an index block: a copy, to edit.
    pub(super) fn read_index(&self, logical: u32) -> Result<(DxPlace, Vec<u8>)> {
        let place = if logical == 0 { DxPlace::Root } else { DxPlace::Node };
        let bytes = self.state().buffers.read(self.place(logical)?)?;
        let damaged = |error| self.inode.damaged(format_args!("directory index {logical}: {error}"));
        let block =
            DxBlock::new(&bytes[..], place, self.format.rules.has_tail).map_err(damaged)?;
        block.validate().map_err(damaged)?;
        if let Some(seed) = self.inode.seed {
            block.verify_checksum(seed).map_err(damaged)?;
        }
        Ok((place, bytes.to_vec()))
    }

    /// Writes an index block, with its checksum.
    pub(super) fn write_index(&self, logical: u32, block: &mut DxBlock<&mut [u8]>) -> Result<()> {
        if let Some(seed) = self.inode.seed {
            block.update_checksum(seed);
        }
        let mut buffer = self.state().buffers.zeroed(self.place(logical)?);
        buffer.copy_from_slice(block.as_bytes());
        Ok(())
    }

    /// The way to the leaf of a hash.
    fn walk(&self, hash: u32) -> Result<Path> {
        let has_tail = self.format.rules.has_tail;
        let (mut place, mut bytes) = self.read_index(0)?;
        let mut logical = 0;
        let mut frames: Vec<Frame> = Vec::with_capacity(2);
        let mut levels = 0;
        let mut hasher = None;
        loop {
            let block = DxBlock::new(&bytes[..], place, has_tail)
                .map_err(|error| self.inode.damaged(error))?;
            if place == DxPlace::Root {
                levels = block.levels();
                let made = DirHasher::new(block.hash_version(), &self.format.superblock);
                hasher = Some(made.map_err(|error| self.inode.damaged(error))?);
            }
            let at = usize::from(block.search(hash));
            let entries: Vec<DxEntry> = block.entries().collect();
            let below = entries[at].block.0;
            frames.push(Frame { logical, place, entries, at });
            // The root and nodes on the way are no leaves, and no way leads in a circle.
            if below == 0 || frames.iter().any(|frame| frame.logical == below) {
                return Err(self.inode.damaged(format_args!("directory index leads to block {below}")));
            }
            if frames.len() > usize::from(levels) {
                break;
            }
            logical = below;
            (place, bytes) = self.read_index(below)?;
        }
        let Some(hasher) = hasher else { return Err(self.inode.damaged("directory index")) };
        Ok(Path { frames, hasher })
    }

    /// Changes or removes the entry of a name, if there is one.
    fn change_existing(
        &mut self,
        way: &Path,
        hash: u32,
        name: &[u8],
        target: Option<Target>,
    ) -> Result<bool> {
        if self.change_in_leaf(way.leaf(), name, target)? {
            return Ok(true);
        }
        // Names of this very hash may run on into the leaves that follow.
        let mut onward: Option<Path> = None;
        loop {
            let here = onward.as_ref().unwrap_or(way);
            if here.next().is_none_or(|next| !next.continues() || next.hash & !1 != hash) {
                return Ok(false);
            }
            let next = self.advance(here)?;
            if self.change_in_leaf(next.leaf(), name, target)? {
                return Ok(true);
            }
            onward = Some(next);
        }
    }

    /// The way to the leaf after that of `way`, which has one.
    fn advance(&self, way: &Path) -> Result<Path> {
        let mut frames = way.frames.clone();
        let depth = frames.len();
        while frames.last().is_some_and(|frame| frame.at + 1 >= frame.entries.len()) {
            frames.pop();
        }
        match frames.last_mut() {
            Some(frame) => frame.at += 1,
            None => return Err(self.inode.damaged("directory index ends")),
        }
        while frames.len() < depth {
            let logical = frames.last().map_or(0, |frame| frame.entries[frame.at].block.0);
            let (place, bytes) = self.read_index(logical)?;
            let block = DxBlock::new(&bytes[..], place, self.format.rules.has_tail)
                .map_err(|error| self.inode.damaged(error))?;
            frames.push(Frame { logical, place, entries: block.entries().collect(), at: 0 });
        }
        Ok(Path { frames, hasher: way.hasher })
    }

    fn change_in_leaf(&mut self, leaf: u32, name: &[u8], target: Option<Target>) -> Result<bool> {
        let mut block = self.open(leaf)?;
        let found = block.find(name).map(|entry| entry.map(|entry| entry.offset));
        let done = match found {
            Ok(None) => return Ok(false),
            Ok(Some(offset)) => match target {
                Some(target) => block.set_target(offset, target.ino, target.entry_type),
                None => block.remove(offset),
            },
            Err(error) => Err(error),
        };
        done.map_err(|error| self.inode.damaged(format_args!("directory block {leaf}: {error}")))?;
        Ok(true)
    }

    /// Inserts a name that is not there; gives the way to where it is now.
    fn insert_indexed(
        &mut self,
        mut way: Path,
        hash: u32,
        name: &[u8],
        target: Target,
    ) -> Result<std::result::Result<Path, IndexIsFull>> {
        for _ in 0..SPLITS_MAX {
            let leaf = way.leaf();
            match self.open(leaf)?.insert(name, target.ino, target.entry_type) {
                Ok(_) => return Ok(Ok(way)),
                Err(finefs_ext_disk::DiskError::NoRoom(_)) => {}
                Err(error) => return Err(self.inode.damaged(error)),
            }
            if !self.can_grow(&way) {
                return Ok(Err(IndexIsFull));
            }
            self.split_leaf(way)?;
            way = self.walk(hash)?;
        }
        // Only names that all collide could need more splits.
        Ok(Err(IndexIsFull))
    }

    fn limit(&self, place: DxPlace) -> usize {
        usize::from(place.limit(self.block_size(), self.format.rules.has_tail))
    }

    fn levels_max(&self) -> usize {
        let is_large = self.format.superblock.incompat().contains(Incompat::LARGEDIR);
        usize::from(if is_large { LEVELS_MAX_LARGE } else { LEVELS_MAX })
    }

    /// True when the index can take another leaf on this way.
    fn can_grow(&self, way: &Path) -> bool {
        way.frames.len() <= self.levels_max()
            || way.frames.iter().any(|frame| frame.entries.len() < self.limit(frame.place))
    }

    /// Splits the leaf of a way in two.
    fn split_leaf(&mut self, way: Path) -> Result<()> {
        let leaf = way.leaf();
        let mut entries = Vec::new();
        {
            let block = self.open(leaf)?;
            let mut outcome = Ok(());
            for entry in block.entries() {
                match entry {
                    Ok(entry) if entry.is_used() => entries.push(Moving {
                        hash: way.hasher.hash(entry.name).major,
                        name: entry.name.to_vec(),
                        ino: entry.ino,
                        entry_type: entry.entry_type,
                    }),
                    Ok(_) => {}
                    Err(error) => outcome = Err(error),
                }
            }
            outcome.map_err(|error| self.inode.damaged(error))?;
        }
        if entries.len() < 2 {
            return Err(self.inode.damaged(format_args!("directory block {leaf} cannot be split")));
        }
        entries.sort_by_key(|entry| entry.hash);
        let at = self.split_point(&entries);
        let upper = entries.split_off(at);
        let split = upper[0].hash;
        let continues = entries.last().is_some_and(|last| last.hash == split);
        let (new, _) = self.append()?;
        let entry = DxEntry { hash: split | u32::from(continues), block: LogicalBlock(new) };
        self.add_to_index(way, entry)?;
        self.fill_leaf(new, &upper)?;
        self.fill_leaf(leaf, &entries)
    }

    /// Where to cut: in the middle by size.
    fn split_point(&self, entries: &[Moving]) -> usize {
        let half = self.block_size() / 2;
        let mut size = 0;
        for (i, entry) in entries.iter().enumerate().rev() {
            // More than half of this entry would lie beyond the middle.
            if size + entry.size() / 2 > half {
                return (i + 1).min(entries.len() - 1);
            }
            size += entry.size();
        }
        entries.len() / 2
    }

    fn fill_leaf(&mut self, leaf: u32, entries: &[Moving]) -> Result<()> {
        let mut block = self.open_new(leaf)?;
        let outcome = entries.iter().try_for_each(|entry| {
            block.insert(&entry.name, entry.ino, entry.entry_type).map(|_| ())
        });
        outcome.map_err(|error| self.inode.damaged(error))
    }

    /// Puts an entry behind the one that a way follows in its lowest index block. There is room
    /// somewhere on the way ([`Directory::can_grow`]).
    fn add_to_index(&mut self, mut way: Path, entry: DxEntry) -> Result<()> {
        let mut entry = entry;
        // The lowest level first; a full one is split and its new half goes one level up.
        for level in (0..way.frames.len()).rev() {
            let limit = self.limit(way.frames[level].place);
            let frame = &mut way.frames[level];
            frame.entries.insert(frame.at + 1, entry);
            if frame.entries.len() <= limit {
                return self.store_frame(level, &way.frames);
            }
            if level == 0 {
                break;
            }
            let upper = frame.entries.split_off(frame.entries.len() / 2);
            let hash = upper[0].hash;
            self.store_frame(level, &way.frames)?;
            let new = self.new_node(&upper)?;
            entry = DxEntry { hash, block: LogicalBlock(new) };
        }
        self.deepen_root(&mut way)
    }

    /// Pushes the entries of an overfull root into two new nodes.
    fn deepen_root(&mut self, way: &mut Path) -> Result<()> {
        let root = &mut way.frames[0];
        let upper = root.entries.split_off(root.entries.len() / 2);
        let lower = std::mem::take(&mut root.entries);
        let hash = upper[0].hash;
        let below = [self.new_node(&lower)?, self.new_node(&upper)?];
        let levels = way.frames.len() as u8;
        way.frames[0].entries = vec![
            DxEntry { hash: 0, block: LogicalBlock(below[0]) },
            DxEntry { hash, block: LogicalBlock(below[1]) },
        ];
        let (place, mut bytes) = self.read_index(0)?;
        let mut root = DxBlock::new(&mut bytes[..], place, self.format.rules.has_tail)
            .map_err(|error| self.inode.damaged(error))?;
        root.set_levels(levels);
        root.set_entries(&way.frames[0].entries).map_err(|error| self.inode.damaged(error))?;
        self.write_index(0, &mut root)
    }

    fn new_node(&mut self, entries: &[DxEntry]) -> Result<u32> {
        let (logical, _) = self.append()?;
        let mut bytes = vec![0; self.block_size()];
        let has_tail = self.format.rules.has_tail;
        let first = entries.first().map_or(LogicalBlock(0), |entry| entry.block);
        let mut node = DxBlock::init_node(&mut bytes[..], has_tail, first)
            .map_err(|error| self.inode.damaged(error))?;
        node.set_entries(entries).map_err(|error| self.inode.damaged(error))?;
        self.write_index(logical, &mut node)?;
        Ok(logical)
    }

    fn store_frame(&self, level: usize, frames: &[Frame]) -> Result<()> {
        let frame = &frames[level];
        let (place, mut bytes) = self.read_index(frame.logical)?;
        let mut block = DxBlock::new(&mut bytes[..], place, self.format.rules.has_tail)
            .map_err(|error| self.inode.damaged(error))?;
        block.set_entries(&frame.entries).map_err(|error| self.inode.damaged(error))?;
        self.write_index(frame.logical, &mut block)
    }

    /// Makes a directory of one block an indexed one: its entries move to block 1.
    pub(super) fn build_index(&mut self) -> Result<()> {
        let Some(hash_version) = self.format.new_index else {
            return Err(self.inode.damaged("no index is wanted"));
        };
        self.close();
        let mut moving = Vec::new();
        let (own, parent) = {
            let bytes = self.read_leaf(0)?;
            let damaged = |error| self.inode.damaged(format_args!("directory block 0: {error}"));
            let block = DirBlock::new(&bytes[..], self.format.rules).map_err(damaged)?;
            for entry in block.entries() {
                let entry = entry.map_err(damaged)?;
                if entry.is_used() && !entry.is_dot() {
                    moving.push(Moving {
                        hash: 0,
                        name: entry.name.to_vec(),
                        ino: entry.ino,
                        entry_type: entry.entry_type,
                    });
                }
            }
            block.dots().map_err(damaged)?
        };
        let (leaf, _) = self.append()?;
        self.fill_leaf(leaf, &moving)?;
        self.close();
        let info = DxRootInfo {
            own,
            parent,
            has_filetype: self.format.rules.has_filetype,
            hash_version,
            levels: 0,
        };
        let mut bytes = vec![0; self.block_size()];
        let has_tail = self.format.rules.has_tail;
        let mut root = DxBlock::init_root(&mut bytes[..], has_tail, info, LogicalBlock(leaf))
            .map_err(|error| self.inode.damaged(error))?;
        self.write_index(0, &mut root)?;
        self.set_indexed(true);
        Ok(())
    }

    /// Makes an indexed directory a plain one: index blocks become empty leaves.
    pub(super) fn drop_index(&mut self) -> Result<()> {
        self.close();
        let has_tail = self.format.rules.has_tail;
        let (_, bytes) = self.read_index(0)?;
        let root = DxBlock::new(&bytes[..], DxPlace::Root, has_tail)
            .map_err(|error| self.inode.damaged(error))?;
        let parent = root.parent();
        let mut nodes: Vec<u32> = Vec::new();
        let mut level: Vec<u32> = vec![0];
        for _ in 0..root.levels() {
            let mut below = Vec::new();
            for logical in level {
                let (place, bytes) = self.read_index(logical)?;
                let block = DxBlock::new(&bytes[..], place, has_tail)
                    .map_err(|error| self.inode.damaged(error))?;
                below.extend(block.entries().map(|entry| entry.block.0));
            }
            nodes.extend(&below);
            level = below;
        }
        for logical in nodes {
            self.open_new(logical)?;
        }
        self.close();
        let own = DiskIno(self.inode.ino);
        let mut buffer = self.state().buffers.zeroed(self.place(0)?);
        let block = DirBlock::init_dots(&mut buffer[..], self.format.rules, own, parent);
        let mut block = block.map_err(|error| self.inode.damaged(error))?;
        if let Some(seed) = self.inode.seed {
            block.update_checksum(seed);
        }
        drop(buffer);
        self.set_indexed(false);
        Ok(())
    }
}
