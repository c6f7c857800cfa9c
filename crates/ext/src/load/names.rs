//! Names of large directories, found one by one by way of the index.
//!
//! # What is checked
//! That the directory has a block everywhere up to its size; then the blocks on the way to a name:
//! those that a change of the name will need too. The index as a whole, and whether a name is there
//! twice, are not, as they are where a directory is loaded.
//!
//! # Locking
//! `ext.directories` (57), shared, over I/O: a commit that changes a directory has it exclusively,
//! from the first block that it changes to the inode.

use std::collections::HashSet;

use finefs_buffers::BufferRead;
use finefs_ext_disk::LogicalBlock;
use finefs_ext_disk::checksum::InodeSeed;
use finefs_ext_disk::dirent::{DirBlock, DirEntry};
use finefs_ext_disk::dirhash::DirHasher;
use finefs_ext_disk::error::DiskError;
use finefs_ext_disk::features::Compat;
use finefs_ext_disk::htree::{DxBlock, DxEntry, DxPlace, LEVELS_MAX_LARGE};
use finefs_ext_disk::inode::{Inode, InodeFlags};
use finefs_namespace::{EntryImage, Error, ExtentState, FileKind, Ino, PlacedName, Result};

use super::checked::{self, convert_kind};
use super::map;
use crate::error::at;
use crate::state::{ExtState, InodeBytes, disk_ino};

/// A directory of so many bytes for each name has those names or more, about.
const BYTES_A_NAME: u64 = 32;

/// The root of the index.
const ROOT: LogicalBlock = LogicalBlock(0);

/// Whether names of a directory can be found one by one, and there are about so many: its parent.
pub(crate) fn open(state: &ExtState, ino: Ino, names_min: u64) -> Result<Option<Ino>> {
    let _shared = state.directories.shared(ino);
    let names = Names::of(state, ino)?;
    let flags = names.inode.flags();
    let special = InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT | InodeFlags::CASEFOLD;
    let size_bytes = names.inode.size(&state.inode_rules);
    let has_feature = (state.superblock.lock().compat()).contains(Compat::DIR_INDEX);
    if !has_feature
        || !names.is_indexed()
        || flags.intersects(special)
        || map::is_out_of_reach(state, flags)
        || !size_bytes.is_multiple_of(u64::from(state.geometry.block_size))
        || size_bytes / BYTES_A_NAME <= names_min
    {
        return Ok(None);
    }
    // What is wrong with it is told by the load of the whole.
    let (Ok(root), Ok(_)) = (names.node(ROOT), names.hasher()) else {
        return Ok(None);
    };
    if !names.has_all_blocks()? {
        return Ok(None);
    }
    let parent = names.block_of(&root)?.parent();
    let is_possible = parent.0 > 0 && parent.0 <= state.geometry.inodes_count;
    Ok(is_possible.then_some(Ino(u64::from(parent.0))))
}

/// What a name names.
pub(crate) fn find(
    state: &ExtState,
    ino: Ino,
    name: &[u8],
) -> Result<Option<(Ino, Option<FileKind>)>> {
    let _shared = state.directories.shared(ino);
    let names = Names::of(state, ino)?;
    match names.is_indexed() {
        true => names.find(name),
        false => names.find_without_index(name),
    }
}

/// Names from a place on, which is the hash of a name, and where to go on.
pub(crate) fn from(
    state: &ExtState,
    ino: Ino,
    place: u64,
    into: &mut Vec<PlacedName>,
) -> Result<Option<u64>> {
    let _shared = state.directories.shared(ino);
    let names = Names::of(state, ino)?;
    let hasher = names.hasher()?;
    let Ok(hash) = u32::try_from(place) else {
        return Ok(None);
    };
    if !names.is_indexed() {
        for logical in (0..names.blocks).map(LogicalBlock) {
            names.take(&names.leaf(logical)?, &hasher, hash, into)?;
        }
        return Ok(None);
    }
    let mut way = names.walk(hash)?;
    let mut seen = HashSet::new();
    loop {
        let leaf = names.leaf(names.below(&way)?)?;
        names.take(&leaf, &hasher, hash, into)?;
        match names.next(&way)? {
            None => return Ok(None),
            // Names of one hash run on.
            Some(next) if next.continues() => names.run_on(&mut way, &mut seen)?,
            Some(next) if next.hash > hash => return Ok(Some(u64::from(next.hash))),
            Some(_) => return Err(names.corrupt("the hashes of its index descend")),
        }
    }
}

/// An index block on the way to a leaf, and the entry that the way follows.
struct Frame {
    node: Node,
    at: u16,
}

/// An index block.
struct Node {
    bytes: BufferRead,
    place: DxPlace,
    logical: LogicalBlock,
}

/// A directory whose names are looked for.
struct Names<'a> {
    state: &'a ExtState,
    ino: Ino,
    inode: Inode<InodeBytes>,
    seed: Option<InodeSeed>,
    blocks: u64,
}

impl Names<'_> {
    fn of(state: &ExtState, ino: Ino) -> Result<Names<'_>> {
        let (inode, kind) = checked::inode(state, ino)?;
        if kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let size_bytes = inode.size(&state.inode_rules);
        Ok(Names {
            state,
            ino,
            seed: inode.seed(&state.inode_rules, disk_ino(ino)?),
            blocks: size_bytes / u64::from(state.geometry.block_size),
            inode,
        })
    }

    /// Whether its size is what is mapped, without holes: changes rely on it.
    fn has_all_blocks(&self) -> Result<bool> {
        let mapping = match map::load(self.state, self.ino, &self.inode) {
            Err(error @ Error::Io(_)) => return Err(error),
            Err(_) => return Ok(false),
            Ok(mapping) => mapping,
        };
        let mut next = 0;
        for extent in &mapping.extents {
            if extent.logical.0 != next || extent.state != ExtentState::Written {
                return Ok(false);
            }
            next = extent.end().0;
        }
        Ok(next == self.blocks)
    }

    fn is_indexed(&self) -> bool {
        self.inode.flags().contains(InodeFlags::INDEX)
    }

    fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        Error::corrupt(format_args!("inode {}: directory: {what}", self.ino))
    }

    fn at(&self, logical: LogicalBlock, error: DiskError) -> Error {
        at(
            format_args!("inode {}: directory block {logical}", self.ino),
            error,
        )
    }

    fn bytes(&self, logical: LogicalBlock) -> Result<BufferRead> {
        let block = match logical.0 < self.blocks {
            true => map::block_of(self.state, self.ino, &self.inode, logical)?,
            false => None,
        };
        let block = block.ok_or_else(|| self.corrupt(format_args!("block {logical} is a hole")))?;
        self.state.buffers.read(block)
    }

    /// Reads and checks an index block.
    fn node(&self, logical: LogicalBlock) -> Result<Node> {
        let place = match logical {
            ROOT => DxPlace::Root,
            _ => DxPlace::Node,
        };
        let bytes = self.bytes(logical)?;
        let node = Node {
            bytes,
            place,
            logical,
        };
        let block = self.block_of(&node)?;
        block.validate().map_err(|error| self.at(logical, error))?;
        if let Some(seed) = self.seed {
            let verified = block.verify_checksum(seed);
            verified.map_err(|error| self.at(logical, error))?;
        }
        Ok(node)
    }

    fn block_of<'n>(&self, node: &'n Node) -> Result<DxBlock<&'n [u8]>> {
        DxBlock::new(&node.bytes[..], node.place, self.state.dir_rules.has_tail)
            .map_err(|error| self.at(node.logical, error))
    }

    fn hasher(&self) -> Result<DirHasher> {
        let version = match self.is_indexed() {
            true => Some(self.block_of(&self.node(ROOT)?)?.hash_version()),
            false => None,
        };
        let superblock = self.state.superblock.lock();
        let version = version.unwrap_or_else(|| superblock.def_hash_version());
        DirHasher::new(version, &superblock).map_err(|error| self.at(ROOT, error))
    }

    fn entry(&self, frame: &Frame, at: u16) -> Result<Option<DxEntry>> {
        Ok(self.block_of(&frame.node)?.entry(at))
    }

    /// The block that a way leads to.
    fn below(&self, way: &[Frame]) -> Result<LogicalBlock> {
        let below = match way.last() {
            Some(last) => self.entry(last, last.at)?,
            None => None,
        };
        match below.map(|entry| entry.block) {
            // The root and index blocks on the way are no leaves.
            Some(below) if way.iter().all(|frame| frame.node.logical != below) => Ok(below),
            _ => Err(self.corrupt("its index leads nowhere")),
        }
    }

    /// The way to the leaf of a hash.
    fn walk(&self, hash: u32) -> Result<Vec<Frame>> {
        let root = self.node(ROOT)?;
        let levels = self.block_of(&root)?.levels();
        if levels > LEVELS_MAX_LARGE {
            return Err(self.corrupt(format_args!("{levels} levels")));
        }
        let mut way = Vec::with_capacity(usize::from(levels) + 1);
        let mut node = root;
        loop {
            let at = self.block_of(&node)?.search(hash);
            way.push(Frame { node, at });
            if way.len() > usize::from(levels) {
                return Ok(way);
            }
            node = self.node(self.below(&way)?)?;
        }
    }

    /// The entry after that of a way's leaf, wherever it is.
    fn next(&self, way: &[Frame]) -> Result<Option<DxEntry>> {
        for frame in way.iter().rev() {
            if let Some(next) = self.entry(frame, frame.at + 1)? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// Goes on to the next leaf, which there is.
    fn advance(&self, way: &mut Vec<Frame>) -> Result<()> {
        let depth = way.len();
        while let Some(last) = way.pop() {
            let at = last.at + 1;
            if self.entry(&last, at)?.is_some() {
                way.push(Frame { at, ..last });
                break;
            }
        }
        while way.len() < depth {
            let node = self.node(self.below(way)?)?;
            way.push(Frame { node, at: 0 });
        }
        Ok(())
    }

    /// Goes on to the next leaf, into which names run on. `seen` are the leaves before it: a
    /// damaged index may lead to one leaf again and again.
    fn run_on(&self, way: &mut Vec<Frame>, seen: &mut HashSet<LogicalBlock>) -> Result<()> {
        seen.insert(self.below(way)?);
        self.advance(way)?;
        let leaf = self.below(way)?;
        match seen.contains(&leaf) {
            true => Err(self.corrupt(format_args!("its index leads to block {leaf} twice"))),
            false => Ok(()),
        }
    }

    /// Reads and checks a block of entries.
    fn leaf(&self, logical: LogicalBlock) -> Result<BufferRead> {
        let bytes = self.bytes(logical)?;
        let rules = self.state.dir_rules;
        let block = DirBlock::new(&bytes[..], rules).map_err(|error| self.at(logical, error))?;
        if let (Some(seed), true) = (self.seed, rules.has_tail) {
            let verified = block.verify_checksum(seed);
            verified.map_err(|error| self.at(logical, error))?;
        }
        Ok(bytes)
    }

    fn find_in(&self, leaf: &[u8], name: &[u8]) -> Result<Option<(Ino, Option<FileKind>)>> {
        let damaged = |error| at(format_args!("inode {}: directory", self.ino), error);
        let block = DirBlock::new(leaf, self.state.dir_rules).map_err(damaged)?;
        let found = block.find(name).map_err(damaged)?;
        found.map(|entry| self.named(&entry)).transpose()
    }

    /// What an entry names.
    fn named(&self, entry: &DirEntry<'_>) -> Result<(Ino, Option<FileKind>)> {
        match entry.ino.0 <= self.state.geometry.inodes_count {
            true => {
                let kind = entry.entry_type.kind().map(convert_kind);
                Ok((Ino(u64::from(entry.ino.0)), kind))
            }
            false => Err(self.corrupt(format_args!("an entry names inode {}", entry.ino))),
        }
    }

    fn find(&self, name: &[u8]) -> Result<Option<(Ino, Option<FileKind>)>> {
        let hash = self.hasher()?.hash(name).major;
        let mut way = self.walk(hash)?;
        let mut seen = HashSet::new();
        loop {
            let leaf = self.leaf(self.below(&way)?)?;
            if let Some(found) = self.find_in(&leaf, name)? {
                return Ok(Some(found));
            }
            match self.next(&way)? {
                Some(next) if next.continues() && next.hash & !1 == hash => {
                    self.run_on(&mut way, &mut seen)?;
                }
                _ => return Ok(None),
            }
        }
    }

    fn find_without_index(&self, name: &[u8]) -> Result<Option<(Ino, Option<FileKind>)>> {
        for logical in (0..self.blocks).map(LogicalBlock) {
            if let Some(found) = self.find_in(&self.leaf(logical)?, name)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Takes in the names of a block from a hash on.
    fn take(
        &self,
        leaf: &[u8],
        hasher: &DirHasher,
        from: u32,
        into: &mut Vec<PlacedName>,
    ) -> Result<()> {
        let damaged = |error| at(format_args!("inode {}: directory", self.ino), error);
        let block = DirBlock::new(leaf, self.state.dir_rules).map_err(damaged)?;
        for entry in block.entries() {
            let entry = entry.map_err(damaged)?;
            if !entry.is_used() || entry.is_dot() {
                continue;
            }
            let hash = hasher.hash(entry.name).major;
            if hash < from {
                continue;
            }
            let (ino, kind) = self.named(&entry)?;
            into.push(PlacedName {
                place: u64::from(hash),
                entry: EntryImage {
                    name: entry.name.to_vec(),
                    ino,
                    kind,
                },
            });
        }
        Ok(())
    }
}
