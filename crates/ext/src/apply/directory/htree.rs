//! Indexed directories.
//!
//! A path from the root to a leaf is a list of [`Frame`]s, each with the entries of its index
//! block. All changes of a leaf are made at once. When it overflows, its entries are spread over it
//! and new leaves by hash. A new leaf gets an entry in the lowest index block; one that is full is
//! split in turn, up to the root, which can push its entries down into a new level.
//!
//! Names whose hashes are equal may run on into the next leaf; the entry of that leaf then has the
//! lowest bit of its hash set.

use std::collections::HashSet;
use std::ops::Range;

use finefs_ext_disk::dirent::{DirBlock, DirRules};
use finefs_ext_disk::dirhash::{DirHash, DirHasher, VERSION_SIPHASH};
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::htree::{DxBlock, DxEntry, DxPlace, DxRootInfo, LEVELS_MAX, LEVELS_MAX_LARGE};
use finefs_ext_disk::inode::InodeFlags;
use finefs_ext_disk::{Ino as DiskIno, LogicalBlock};
use finefs_namespace::{FileKind, Ino, NumberMap, Result};

use super::encrypted::NameHasher;
use super::{Directory, FIRST, NameChange, NewEntry, Target};

/// Leaves that are filled at a time: fewer than half an index block has room for.
const LEAVES_MAX: usize = 16;

/// More entries of a leaf are not changed one by one, each of which takes a search from the leaf's
/// beginning.
const EDITED_IN_PLACE_MAX: usize = 4;

/// An index block on the way to a leaf.
#[derive(Clone)]
struct Frame {
    logical: LogicalBlock,
    place: DxPlace,
    entries: Vec<DxEntry>,
    /// The entry that the way follows.
    at: usize,
}

/// The way to a leaf.
struct Path {
    frames: Vec<Frame>,
    hasher: NameHasher,
}

impl Path {
    fn leaf(&self) -> LogicalBlock {
        self.frames
            .last()
            .map_or(FIRST, |frame| frame.entries[frame.at].block)
    }

    /// The entry after the leaf's, wherever it is.
    fn next(&self) -> Option<DxEntry> {
        self.frames
            .iter()
            .rev()
            .find_map(|frame| frame.entries.get(frame.at + 1))
            .copied()
    }

    /// The hashes that lead to the leaf.
    fn hashes(&self) -> Range<u64> {
        let low = self.frames.iter().rev().find(|frame| frame.at > 0);
        let low = low.map_or(0, |frame| u64::from(frame.entries[frame.at].hash));
        low..self.next().map_or(1 << 32, |next| u64::from(next.hash))
    }
}

/// A change with the hash of its name.
struct Hashed {
    hash: DirHash,
    name: Box<[u8]>,
    value: Option<(Ino, FileKind)>,
    target: Option<Target>,
}

/// How a group of changes of one leaf went.
enum Outcome {
    Done,
    /// The index cannot take the leaves that are needed; nothing was inserted.
    IndexIsFull,
}

impl Directory<'_, '_> {
    /// Applies changes in the order of hash, those of one leaf at a time.
    pub(super) fn apply_indexed(&mut self, changes: Vec<NameChange>) -> Result<()> {
        let (hasher, rules) = (self.hasher()?, self.format.rules);
        let mut hashed = Vec::with_capacity(changes.len());
        for (name, value) in changes {
            let target = value.map(|(ino, kind)| Target::of(ino, kind)).transpose()?;
            hashed.push(Hashed {
                hash: self.hash(&hasher, &name)?,
                name,
                value,
                target,
            });
        }
        hashed.sort_by_key(|change| change.hash.major);
        let mut rest = &hashed[..];
        while let Some(first) = rest.first() {
            let way = self.walk(first.hash.major)?;
            let end = way.hashes().end;
            let mut room = LEAVES_MAX * self.leaf_capacity();
            let count = rest
                .iter()
                .take_while(|change| {
                    let fits = room > 0 && u64::from(change.hash.major) < end;
                    room = room.saturating_sub(rules.entry_size(change.name.len()));
                    fits
                })
                .count();
            let (group, later) = rest.split_at(count.max(1));
            match self.apply_to_leaf(way, group)? {
                Outcome::Done => rest = later,
                Outcome::IndexIsFull => {
                    log::warn!(
                        "inode {}: the directory's index is full and dropped",
                        self.inode.ino
                    );
                    self.drop_index()?;
                    let done = hashed.len() - rest.len();
                    let rest = hashed
                        .drain(done..)
                        .map(|change| (change.name, change.value));
                    return self.apply_linear(rest.collect()).map(|_| ());
                }
            }
        }
        Ok(())
    }

    /// Applies changes of one leaf; all their hashes lead there.
    fn apply_to_leaf(&mut self, way: Path, group: &[Hashed]) -> Result<Outcome> {
        let leaf = way.leaf();
        let mut pending: NumberMap<&[u8], &Hashed> = group
            .iter()
            .map(|change| (&change.name[..], change))
            .collect();
        let bytes = self.read_leaf(leaf)?;
        let damaged = |error| {
            self.inode
                .damaged(format_args!("directory block {leaf}: {error}"))
        };
        let block = DirBlock::new(&bytes[..], self.format.rules).map_err(damaged)?;
        let mut entries: Vec<NewEntry<'_>> = Vec::with_capacity(64 + group.len());
        let mut found: Vec<(u32, Option<Target>)> = Vec::new();
        for entry in block.entries() {
            let entry = entry.map_err(damaged)?;
            if !entry.is_used() {
                continue;
            }
            let mut target = Some(Target {
                ino: entry.ino,
                entry_type: entry.entry_type,
            });
            if let Some(change) = pending.remove(entry.name) {
                target = change.target;
                found.push((entry.offset, target));
            }
            entries.extend(target.map(|target| NewEntry {
                name: entry.name,
                hash: entry.hash,
                target,
            }));
        }
        let mut inserts = 0;
        for change in group
            .iter()
            .filter(|change| pending.contains_key(&change.name[..]))
        {
            if self.change_in_continuation(&way, change)? {
                continue;
            }
            if let Some(target) = change.target {
                entries.push(NewEntry {
                    name: &change.name,
                    hash: Some(change.hash),
                    target,
                });
                inserts += 1;
            }
        }
        if inserts == 0 && found.len() <= EDITED_IN_PLACE_MAX {
            self.edit_in_place(leaf, &found)?;
            return Ok(Outcome::Done);
        }
        let size: usize = (entries.iter())
            .map(|entry| self.format.rules.entry_size(entry.name.len()))
            .sum();
        if size <= self.leaf_capacity() {
            self.write_leaf(leaf, &entries)?;
            return Ok(Outcome::Done);
        }
        self.spread(way, entries, size)
    }

    /// Changes entries of a leaf where they are.
    fn edit_in_place(&mut self, leaf: LogicalBlock, found: &[(u32, Option<Target>)]) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let mut block = self.open(leaf)?;
        let outcome = found.iter().try_for_each(|(offset, target)| match target {
            Some(target) => block.set_target(*offset, target.ino, target.entry_type),
            None => block.remove(*offset),
        });
        self.close();
        outcome.map_err(|error| self.inode.damaged(error))
    }

    /// Spreads the entries of an overfull leaf over it and new ones.
    fn spread(&mut self, way: Path, entries: Vec<NewEntry<'_>>, size: usize) -> Result<Outcome> {
        let leaf = way.leaf();
        let mut hashed: Vec<(u32, NewEntry<'_>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let hash = match entry.hash {
                Some(hash) => hash,
                None => self.hash(&way.hasher, entry.name)?,
            };
            hashed.push((hash.major, entry));
        }
        hashed.sort_by_key(|(hash, _)| *hash);
        let parts = cut(&hashed, size, self.leaf_capacity(), self.format.rules);
        if !self.can_grow(&way, parts.len() - 1) {
            return Ok(Outcome::IndexIsFull);
        }
        let mut way = Some(way);
        let mut entries: Vec<NewEntry<'_>> = Vec::new();
        for part in parts.into_iter().rev() {
            entries.clear();
            entries.extend(hashed[part.clone()].iter().map(|(_, entry)| *entry));
            if part.start == 0 {
                self.write_leaf(leaf, &entries)?;
                break;
            }
            let hash = hashed[part.start].0;
            let continues = hashed[part.start - 1].0 == hash;
            let (new, _) = self.append()?;
            self.write_leaf(new, &entries)?;
            // The old leaf keeps its place: each new one comes right behind it.
            let way = match way.take() {
                Some(way) => way,
                None => self.walk_to_leaf(hashed[0].0, leaf)?,
            };
            let entry = DxEntry {
                hash: hash | u32::from(continues),
                block: new,
            };
            self.add_to_index(way, entry)?;
        }
        Ok(Outcome::Done)
    }

    /// The way to a leaf that a hash leads to, or one of those that its names run on into.
    fn walk_to_leaf(&self, hash: u32, leaf: LogicalBlock) -> Result<Path> {
        let mut way = self.walk(hash)?;
        let mut seen = HashSet::new();
        while way.leaf() != leaf {
            if way.next().is_none_or(|next| next.hash & !1 > hash) {
                return Err(self
                    .inode
                    .damaged(format_args!("no way to directory block {leaf}")));
            }
            way = self.run_on(&way, &mut seen)?;
        }
        Ok(way)
    }

    fn hasher(&self) -> Result<NameHasher> {
        let (_, bytes) = self.read_index(FIRST)?;
        let root = DxBlock::new(&bytes[..], DxPlace::Root, self.format.rules.has_tail)
            .map_err(|error| self.inode.damaged(error))?;
        self.hasher_of(root.hash_version())
    }

    /// What hashes its names, where that takes a key.
    pub(super) fn hasher_with_key(&self) -> Option<NameHasher> {
        self.hashing.clone().map(NameHasher::Keyed)
    }

    pub(super) fn hash(&self, hasher: &NameHasher, stored: &[u8]) -> Result<DirHash> {
        let hash = hasher.hash(stored);
        hash.ok_or_else(|| self.inode.damaged("an encrypted name is none"))
    }

    fn hasher_of(&self, version: u8) -> Result<NameHasher> {
        if let Some(hasher) = self.hasher_with_key() {
            return match version {
                VERSION_SIPHASH => Ok(hasher),
                _ => Err(self.inode.damaged(format_args!("directory hash {version}"))),
            };
        }
        let folds = self.inode.disk.flags().contains(InodeFlags::CASEFOLD);
        DirHasher::new(version, &self.format.superblock)
            .map(|hasher| NameHasher::Plain(hasher.folding(folds)))
            .map_err(|error| self.inode.damaged(error))
    }

    /// Reads and checks an index block: a copy, to edit.
    pub(super) fn read_index(&self, logical: LogicalBlock) -> Result<(DxPlace, Vec<u8>)> {
        let place = if logical == FIRST {
            DxPlace::Root
        } else {
            DxPlace::below_root(self.format.rules)
        };
        let bytes = self.state().buffers.read(self.place(logical)?)?;
        let damaged = |error| {
            self.inode
                .damaged(format_args!("directory index {logical}: {error}"))
        };
        let block = DxBlock::new(&bytes[..], place, self.format.rules.has_tail).map_err(damaged)?;
        block.validate().map_err(damaged)?;
        if let Some(seed) = self.inode.seed {
            block.verify_checksum(seed).map_err(damaged)?;
        }
        Ok((place, bytes.to_vec()))
    }

    /// Writes an index block, with its checksum.
    pub(super) fn write_index(
        &self,
        logical: LogicalBlock,
        block: &mut DxBlock<&mut [u8]>,
    ) -> Result<()> {
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
        let (mut place, mut bytes) = self.read_index(FIRST)?;
        let mut logical = FIRST;
        let mut frames: Vec<Frame> = Vec::with_capacity(2);
        let mut levels = 0;
        let mut hasher = None;
        loop {
            let block = DxBlock::new(&bytes[..], place, has_tail)
                .map_err(|error| self.inode.damaged(error))?;
            if place == DxPlace::Root {
                levels = block.levels();
                hasher = Some(self.hasher_of(block.hash_version())?);
            }
            let at = usize::from(block.search(hash));
            let entries: Vec<DxEntry> = block.entries().collect();
            let below = entries[at].block;
            frames.push(Frame {
                logical,
                place,
                entries,
                at,
            });
            // The root and nodes on the way are no leaves, and no way leads in a circle.
            if below == FIRST || frames.iter().any(|frame| frame.logical == below) {
                return Err(self
                    .inode
                    .damaged(format_args!("directory index leads to block {below}")));
            }
            if frames.len() > usize::from(levels) {
                break;
            }
            logical = below;
            (place, bytes) = self.read_index(below)?;
        }
        let Some(hasher) = hasher else {
            return Err(self.inode.damaged("directory index"));
        };
        Ok(Path { frames, hasher })
    }

    /// Changes the entry of a name in the leaves that the names of its very hash run on into;
    /// false when it is in none.
    fn change_in_continuation(&mut self, way: &Path, change: &Hashed) -> Result<bool> {
        let mut onward: Option<Path> = None;
        let mut seen = HashSet::new();
        loop {
            let here = onward.as_ref().unwrap_or(way);
            if here
                .next()
                .is_none_or(|next| !next.continues() || next.hash & !1 != change.hash.major)
            {
                return Ok(false);
            }
            let next = self.run_on(here, &mut seen)?;
            let leaf = next.leaf();
            let bytes = self.read_leaf(leaf)?;
            let found = DirBlock::new(&bytes[..], self.format.rules)
                .and_then(|block| Ok(block.find(&change.name)?.map(|entry| entry.offset)));
            if let Some(offset) = found.map_err(|error| self.inode.damaged(error))? {
                self.edit_in_place(leaf, &[(offset, change.target)])?;
                return Ok(true);
            }
            onward = Some(next);
        }
    }

    /// The way to the leaf after that of `way`, into which names run on. `seen` are the leaves
    /// before it: a damaged index may lead to one leaf again and again.
    fn run_on(&self, way: &Path, seen: &mut HashSet<LogicalBlock>) -> Result<Path> {
        seen.insert(way.leaf());
        let next = self.advance(way)?;
        match seen.contains(&next.leaf()) {
            true => Err(self.inode.damaged(format_args!(
                "directory index leads to block {} twice",
                next.leaf()
            ))),
            false => Ok(next),
        }
    }

    /// The way to the leaf after that of `way`, which has one.
    fn advance(&self, way: &Path) -> Result<Path> {
        let mut frames = way.frames.clone();
        let depth = frames.len();
        while frames
            .last()
            .is_some_and(|frame| frame.at + 1 >= frame.entries.len())
        {
            frames.pop();
        }
        match frames.last_mut() {
            Some(frame) => frame.at += 1,
            None => return Err(self.inode.damaged("directory index ends")),
        }
        while frames.len() < depth {
            let logical = frames
                .last()
                .map_or(FIRST, |frame| frame.entries[frame.at].block);
            let (place, bytes) = self.read_index(logical)?;
            let block = DxBlock::new(&bytes[..], place, self.format.rules.has_tail)
                .map_err(|error| self.inode.damaged(error))?;
            frames.push(Frame {
                logical,
                place,
                entries: block.entries().collect(),
                at: 0,
            });
        }
        Ok(Path {
            frames,
            hasher: way.hasher.clone(),
        })
    }

    fn limit(&self, place: DxPlace) -> usize {
        usize::from(place.limit(self.block_size(), self.format.rules.has_tail))
    }

    fn levels_max(&self) -> usize {
        let is_large = self
            .format
            .superblock
            .incompat()
            .contains(Incompat::LARGEDIR);
        usize::from(if is_large {
            LEVELS_MAX_LARGE
        } else {
            LEVELS_MAX
        })
    }

    /// True when the index can take `leaves` more on this way: its lowest block has room, or can be
    /// split, which makes more room than is ever asked for.
    fn can_grow(&self, way: &Path, leaves: usize) -> bool {
        let room = |frame: &Frame| {
            self.limit(frame.place) - frame.entries.len().min(self.limit(frame.place))
        };
        let [upper @ .., lowest] = &way.frames[..] else {
            return false;
        };
        room(lowest) >= leaves
            || upper.iter().any(|frame| room(frame) > 0)
            || way.frames.len() <= self.levels_max()
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
            entry = DxEntry { hash, block: new };
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
            DxEntry {
                hash: 0,
                block: below[0],
            },
            DxEntry {
                hash,
                block: below[1],
            },
        ];
        let (place, mut bytes) = self.read_index(FIRST)?;
        let mut root = DxBlock::new(&mut bytes[..], place, self.format.rules.has_tail)
            .map_err(|error| self.inode.damaged(error))?;
        root.set_levels(levels);
        root.set_entries(&way.frames[0].entries)
            .map_err(|error| self.inode.damaged(error))?;
        self.write_index(FIRST, &mut root)
    }

    fn new_node(&mut self, entries: &[DxEntry]) -> Result<LogicalBlock> {
        let (logical, _) = self.append()?;
        let mut bytes = vec![0; self.block_size()];
        let has_tail = self.format.rules.has_tail;
        let first = entries.first().map_or(FIRST, |entry| entry.block);
        let place = DxPlace::below_root(self.format.rules);
        let mut node = DxBlock::init_node(&mut bytes[..], place, has_tail, first)
            .map_err(|error| self.inode.damaged(error))?;
        node.set_entries(entries)
            .map_err(|error| self.inode.damaged(error))?;
        self.write_index(logical, &mut node)?;
        Ok(logical)
    }

    fn store_frame(&self, level: usize, frames: &[Frame]) -> Result<()> {
        let frame = &frames[level];
        let (place, mut bytes) = self.read_index(frame.logical)?;
        let mut block = DxBlock::new(&mut bytes[..], place, self.format.rules.has_tail)
            .map_err(|error| self.inode.damaged(error))?;
        block
            .set_entries(&frame.entries)
            .map_err(|error| self.inode.damaged(error))?;
        self.write_index(frame.logical, &mut block)
    }

    /// Makes a directory of one block an indexed one: its entries move to block 1.
    pub(super) fn build_index(&mut self) -> Result<()> {
        let Some(hash_version) = self.format.new_index else {
            return Err(self.inode.damaged("no index is wanted"));
        };
        self.close();
        let bytes = self.read_leaf(FIRST)?;
        let damaged = |error| {
            self.inode
                .damaged(format_args!("directory block 0: {error}"))
        };
        let block = DirBlock::new(&bytes[..], self.format.rules).map_err(damaged)?;
        let (own, parent) = block.dots().map_err(damaged)?;
        let mut entries = Vec::new();
        for entry in block.entries() {
            let entry = entry.map_err(damaged)?;
            if entry.is_used() && !entry.is_dot() {
                let target = Target {
                    ino: entry.ino,
                    entry_type: entry.entry_type,
                };
                entries.push(NewEntry {
                    name: entry.name,
                    hash: entry.hash,
                    target,
                });
            }
        }
        let (leaf, _) = self.append()?;
        self.write_leaf(leaf, &entries)?;
        let info = DxRootInfo {
            own,
            parent,
            has_filetype: self.format.rules.has_filetype,
            hash_version,
            levels: 0,
        };
        let mut bytes = vec![0; self.block_size()];
        let has_tail = self.format.rules.has_tail;
        let mut root = DxBlock::init_root(&mut bytes[..], has_tail, info, leaf)
            .map_err(|error| self.inode.damaged(error))?;
        self.write_index(FIRST, &mut root)?;
        self.set_indexed(true);
        Ok(())
    }

    /// Makes an indexed directory a plain one: index blocks become empty leaves.
    pub(super) fn drop_index(&mut self) -> Result<()> {
        self.close();
        let has_tail = self.format.rules.has_tail;
        let (_, bytes) = self.read_index(FIRST)?;
        let root = DxBlock::new(&bytes[..], DxPlace::Root, has_tail)
            .map_err(|error| self.inode.damaged(error))?;
        let parent = root.parent();
        let mut nodes: Vec<LogicalBlock> = Vec::new();
        let mut level = vec![FIRST];
        for _ in 0..root.levels() {
            let mut below = Vec::new();
            for logical in level {
                let (place, bytes) = self.read_index(logical)?;
                let block = DxBlock::new(&bytes[..], place, has_tail)
                    .map_err(|error| self.inode.damaged(error))?;
                below.extend(block.entries().map(|entry| entry.block));
                if below.len() as u64 > self.blocks {
                    return Err(self
                        .inode
                        .damaged("the index has more blocks than there are"));
                }
            }
            nodes.extend(&below);
            level = below;
        }
        for logical in nodes {
            self.open_new(logical)?;
        }
        self.close();
        let own = DiskIno(self.inode.ino);
        let mut buffer = self.state().buffers.zeroed(self.place(FIRST)?);
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

/// Cuts entries that are sorted by hash into parts that fit a leaf each, about equal, and about
/// three quarters full where they are many.
fn cut(
    entries: &[(u32, NewEntry<'_>)],
    size: usize,
    capacity: usize,
    rules: DirRules,
) -> Vec<Range<usize>> {
    let count = size.div_ceil(capacity * 3 / 4).max(2);
    let target = size.div_ceil(count);
    let mut parts = Vec::with_capacity(count + 1);
    let (mut start, mut filled) = (0, 0);
    for (i, (_, entry)) in entries.iter().enumerate() {
        let size = rules.entry_size(entry.name.len());
        if i > start && (filled >= target || filled + size > capacity) {
            parts.push(start..i);
            (start, filled) = (i, 0);
        }
        filled += size;
    }
    parts.push(start..entries.len());
    parts
}
