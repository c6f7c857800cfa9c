//! Checks the index of a directory that may be written: writing finds its leaf through it, and so
//! does the kernel.
//!
//! # References
//! Linux `Documentation/filesystems/ext4/directory.rst`, "Hash Tree Directories".

use std::collections::HashSet;

use finefs_ext_disk::checksum::InodeSeed;
use finefs_ext_disk::dirent::DirRules;
use finefs_ext_disk::dirhash::{DirHasher, VERSION_SIPHASH};
use finefs_ext_disk::error::DiskError;
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::htree::{DxBlock, DxPlace, LEVELS_MAX, LEVELS_MAX_LARGE};
use finefs_ext_disk::inode::InodeFlags;
use finefs_namespace::{Error, Extent, Ino, LogicalBlock, NumberMap, Result};

use super::content;
use crate::error::at;
use crate::state::ExtState;

const ROOT: LogicalBlock = LogicalBlock(0);

/// The hashes that lead to each leaf: a name anywhere else cannot be found by way of the index.
pub(crate) struct Leaves {
    hasher: Option<DirHasher>,
    /// By the leaf's block: the first and the last hash.
    ranges: NumberMap<LogicalBlock, (u32, u32)>,
}

impl Leaves {
    /// What hashes the names as they are stored; `None` where that takes a key.
    pub(crate) fn hasher(&self) -> Option<&DirHasher> {
        self.hasher.as_ref()
    }

    /// True when the index leads to this block for names of this hash.
    pub(crate) fn may_hold(&self, logical: LogicalBlock, hash: u32) -> bool {
        self.ranges
            .get(&logical)
            .is_some_and(|(first, last)| (*first..=*last).contains(&hash))
    }
}

/// Checks that every block of the directory but the index's own is a leaf of the index exactly
/// once, and that hashes ascend over the whole tree. Gives the leaves.
pub(crate) fn check(
    state: &ExtState,
    ino: Ino,
    (seed, flags): (Option<InodeSeed>, InodeFlags),
    extents: &[Extent],
    end: LogicalBlock,
) -> Result<Leaves> {
    let superblock = state.superblock.lock().clone();
    let mut check = Check {
        state,
        ino,
        seed,
        rules: state.dir_rules.with_flags(flags),
        extents,
        end,
        seen: HashSet::from([ROOT]),
        last_hash: 0,
        leaves: Vec::new(),
    };
    let root_bytes = check.bytes(ROOT)?;
    let has_tail = state.dir_rules.has_tail;
    let root = DxBlock::new(&root_bytes[..], DxPlace::Root, has_tail)
        .map_err(|error| check.at(ROOT, error))?;
    let hasher = match root.hash_version() {
        VERSION_SIPHASH if check.rules.has_hashes => None,
        version if check.rules.has_hashes => {
            return Err(check.corrupt(format_args!("hash {version}, which takes no key")));
        }
        version => {
            let hasher = DirHasher::new(version, &superblock);
            let hasher = hasher.map_err(|error| check.at(ROOT, error))?;
            Some(hasher.folding(flags.contains(InodeFlags::CASEFOLD)))
        }
    };
    let levels_max = if superblock.incompat().contains(Incompat::LARGEDIR) {
        LEVELS_MAX_LARGE
    } else {
        LEVELS_MAX
    };
    if root.levels() > levels_max {
        return Err(check.corrupt(format_args!("{} levels", root.levels())));
    }
    check.node(ROOT, &root, root.levels(), 0)?;
    let reached = check.seen.len() as u64;
    if reached != end.0 {
        return Err(check.corrupt(format_args!(
            "{} of {end} blocks are not reached",
            end.0.saturating_sub(reached)
        )));
    }
    // Names of a hash whose lowest bit is set run on from the leaf before.
    let nexts = check.leaves.iter().skip(1).map(|(hash, _)| *hash);
    let lasts = nexts.map(|next| next.saturating_sub(1)).chain([u32::MAX]);
    let ranges = check.leaves.iter().zip(lasts);
    let ranges = ranges.map(|((hash, leaf), last)| (*leaf, (hash & !1, last)));
    Ok(Leaves {
        hasher,
        ranges: ranges.collect(),
    })
}

struct Check<'a> {
    state: &'a ExtState,
    ino: Ino,
    seed: Option<InodeSeed>,
    rules: DirRules,
    extents: &'a [Extent],
    end: LogicalBlock,
    seen: HashSet<LogicalBlock>,
    last_hash: u32,
    /// The hash of the way to each leaf, and the leaf.
    leaves: Vec<(u32, LogicalBlock)>,
}

impl Check<'_> {
    fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        Error::corrupt(format_args!("inode {}: directory index: {what}", self.ino))
    }

    fn at(&self, logical: LogicalBlock, error: DiskError) -> Error {
        at(
            format_args!("inode {}: directory index block {logical}", self.ino),
            error,
        )
    }

    fn bytes(&self, logical: LogicalBlock) -> Result<finefs_buffers::BufferRead> {
        match content::block_at(self.extents, logical) {
            Some(block) => self.state.buffers.read(block),
            None => Err(self.corrupt(format_args!("block {logical} is a hole"))),
        }
    }

    /// Checks an index block that has `levels` levels of index blocks below it, and to which hashes
    /// from `hash` on lead.
    fn node(
        &mut self,
        logical: LogicalBlock,
        node: &DxBlock<&[u8]>,
        levels: u8,
        hash: u32,
    ) -> Result<()> {
        if let Some(seed) = self.seed {
            node.verify_checksum(seed)
                .map_err(|error| self.at(logical, error))?;
        }
        for (position, entry) in node.entries().enumerate() {
            let below = LogicalBlock(entry.block.0);
            if below >= self.end || !self.seen.insert(below) {
                return Err(self.corrupt(format_args!("block {logical} points at block {below}")));
            }
            // The first entry's hash is that of the entry above.
            let hash = if position == 0 { hash } else { entry.hash };
            if hash < self.last_hash {
                return Err(self.corrupt(format_args!("block {logical}: hashes descend")));
            }
            self.last_hash = hash;
            if levels == 0 {
                self.leaves.push((hash, below));
                continue;
            }
            let bytes = self.bytes(below)?;
            let place = DxPlace::below_root(self.rules);
            let child = DxBlock::new(&bytes[..], place, self.rules.has_tail)
                .map_err(|error| self.at(below, error))?;
            self.node(below, &child, levels - 1, hash)?;
        }
        Ok(())
    }
}
