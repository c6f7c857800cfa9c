//! The index of a directory: that its tree reaches every block once, at one depth, and that the
//! hashes of names lie where the tree says.

use finefs_ext_disk::LogicalBlock;
use finefs_ext_disk::checksum::{InodeSeed, crc32c};
use finefs_ext_disk::dirent::{DirRules, decode_rec_len};
use finefs_ext_disk::dirhash::{DirHasher, VERSION_SIPHASH, VERSION_TEA};
use finefs_ext_disk::error::{Checksummed, Corrupt, DiskError};
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::htree::{DxPlace, LEVELS_MAX, LEVELS_MAX_LARGE};
use finefs_ext_disk::superblock::Superblock;

use crate::fs::Fs;

const ROOT_ENTRIES: usize = 32;
const NODE_ENTRIES: usize = 8;
const ROOT_INFO: usize = 24;
const TAIL: usize = 8;
const ENTRY: usize = 8;
const BLOCK_MASK: u32 = 0x0fff_ffff;
/// The highest hash that a name can have.
const HASH_MAX: u32 = 0xffff_fffe;
/// Before the root was seen.
const VERSION_UNKNOWN: u8 = u8::MAX;

/// What a block of an indexed directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockKind {
    Leaf,
    Root,
    Node,
}

/// What is known of a block.
#[derive(Clone, Copy)]
struct Block {
    kind: BlockKind,
    is_seen: bool,
    is_referenced: bool,
    is_twice: bool,
    is_first: bool,
    is_last: bool,
    parent: u32,
    previous: u32,
    /// Of the names in it, or of the entries of a node.
    min: u32,
    max: u32,
    /// What the node above says.
    node_min: u32,
    node_max: u32,
}

const UNKNOWN: Block = Block {
    kind: BlockKind::Leaf,
    is_seen: false,
    is_referenced: false,
    is_twice: false,
    is_first: false,
    is_last: false,
    parent: 0,
    previous: 0,
    min: 0,
    max: 0,
    node_min: 0,
    node_max: 0,
};

/// The index of one directory.
pub(super) struct Index {
    blocks: Vec<Block>,
    rules: DirRules,
    version: u8,
    folds: bool,
    depth: u32,
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    let word = bytes.get(at..at + 2).and_then(|b| b.try_into().ok());
    word.map_or(0, u16::from_le_bytes)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    word.map_or(0, u32::from_le_bytes)
}

/// Where the entries of what looks like an index block are.
fn entries_at(block: &[u8]) -> Option<usize> {
    let length = decode_rec_len(le16(block, 4), block.len());
    let at = if length == block.len() && le16(block, 6) == 0 {
        NODE_ENTRIES
    } else if length == 12
        && decode_rec_len(le16(block, 16), block.len()) == block.len() - 12
        && le32(block, ROOT_INFO) == 0
        && block.get(ROOT_INFO + 5) == Some(&8)
    {
        ROOT_ENTRIES
    } else {
        return None;
    };
    let most = (block.len() - at) / ENTRY;
    let fits = usize::from(le16(block, at)) <= most && usize::from(le16(block, at + 2)) <= most;
    fits.then_some(at)
}

/// Whether a block is an index block by its shape.
pub(crate) fn looks_like_index(block: &[u8]) -> bool {
    entries_at(block).is_some()
}

/// Compares the checksum behind an index block's entries.
pub(super) fn verify_checksum(block: &[u8], seed: InodeSeed) -> Result<(), DiskError> {
    let Some(at) = entries_at(block) else {
        return Err(Corrupt::DxHeader.into());
    };
    let (limit, count) = (
        usize::from(le16(block, at)),
        usize::from(le16(block, at + 2)),
    );
    let tail = at + limit * ENTRY;
    if tail + TAIL > block.len() {
        return Err(Corrupt::DxHeader.into());
    }
    let crc = crc32c(seed.0, &block[..at + count * ENTRY]);
    let computed = crc32c(crc32c(crc, &block[tail..tail + 4]), &[0; 4]);
    let stored = le32(block, tail + 4);
    match stored == computed {
        true => Ok(()),
        false => Err(Corrupt::Checksum {
            what: Checksummed::DirIndex,
            stored,
            computed,
        }
        .into()),
    }
}

impl Index {
    /// Of a directory of so many blocks.
    pub fn new(blocks: u64, rules: DirRules) -> Index {
        Index {
            blocks: vec![UNKNOWN; usize::try_from(blocks).unwrap_or(0)],
            rules,
            version: VERSION_UNKNOWN,
            folds: false,
            depth: 0,
        }
    }

    /// The same of one that folds case, or does not.
    pub fn folding(self, folds: bool) -> Index {
        Index { folds, ..self }
    }

    /// Takes a block in, and says what it is.
    pub fn block(
        &mut self,
        logical: LogicalBlock,
        fs: &Fs,
        block: &[u8],
        mut wrong: impl FnMut(String),
    ) -> BlockKind {
        let at = logical.0 as usize;
        let tail = if fs.dir_rules.has_tail { TAIL } else { 0 };
        let limit = |entries: usize| (block.len() - entries - tail) / ENTRY;
        let place = DxPlace::below_root(self.rules);
        let node_limit = usize::from(place.limit(block.len(), self.rules.has_tail));
        let is_node = le32(block, 0) == 0
            && decode_rec_len(le16(block, 4), block.len()) == block.len()
            && block[6] == 0
            && usize::from(le16(block, NODE_ENTRIES)) == node_limit;
        let kind = match (at, is_node) {
            (0, _) => BlockKind::Root,
            (_, true) => BlockKind::Node,
            (_, false) => BlockKind::Leaf,
        };
        let Some(own) = self.blocks.get_mut(at) else {
            return BlockKind::Leaf;
        };
        own.kind = kind;
        own.is_seen = true;
        own.min = u32::MAX;
        own.max = 0;
        match kind {
            BlockKind::Leaf => {}
            BlockKind::Root => {
                own.is_first = true;
                own.is_last = true;
                own.is_referenced = true;
                self.root(fs, block, &mut wrong);
                let info = usize::from(block[ROOT_INFO + 5]).max(8) & !3;
                let entries = (ROOT_INFO + info).min(block.len() - tail - ENTRY);
                self.node(at, block, entries, limit(entries), &mut wrong);
            }
            BlockKind::Node => {
                self.node(at, block, NODE_ENTRIES, node_limit, &mut wrong);
            }
        }
        kind
    }

    fn root(&mut self, fs: &Fs, block: &[u8], wrong: &mut impl FnMut(String)) {
        self.version = block[ROOT_INFO + 4];
        self.depth = u32::from(block[ROOT_INFO + 6]) + 1;
        let is_large = fs.needs(Incompat::LARGEDIR);
        let most = if is_large {
            LEVELS_MAX_LARGE
        } else {
            LEVELS_MAX
        };
        if le32(block, ROOT_INFO) != 0 || block[ROOT_INFO + 5] < 8 {
            wrong("index: its root is damaged".to_owned());
        }
        if self.version > VERSION_TEA && !self.has_siphash() {
            wrong(format!("index: unknown hash {}", self.version));
        }
        if block[ROOT_INFO + 7] & 1 != 0 {
            wrong("index: unknown flags".to_owned());
        }
        if block[ROOT_INFO + 6] > most {
            wrong(format!("index: {} levels", block[ROOT_INFO + 6]));
        }
    }

    fn node(
        &mut self,
        at: usize,
        block: &[u8],
        entries: usize,
        limit: usize,
        wrong: &mut impl FnMut(String),
    ) {
        let (said, count) = (le16(block, entries), usize::from(le16(block, entries + 2)));
        if usize::from(said) != limit {
            wrong(format!("index: block {at} has limit {said}, not {limit}"));
        }
        if count > limit {
            wrong(format!("index: block {at} has {count} entries"));
        }
        let count = count.min(limit);
        let raw = |index: usize| le32(block, entries + index * ENTRY);
        let hash = |index: usize| if index == 0 { 0 } else { raw(index) & !1 };
        let target = |index: usize| le32(block, entries + index * ENTRY + 4) & BLOCK_MASK;
        let (mut min, mut max) = (u32::MAX, 0);
        for index in 0..count {
            let to = target(index);
            if to as usize >= self.blocks.len() {
                wrong(format!(
                    "index: block {at} leads to block {to}, which is none"
                ));
                continue;
            }
            if index > 0 && hash(index) < hash(index - 1) {
                wrong(format!("index: block {at} is out of order"));
            }
            min = min.min(hash(index));
            max = max.max(hash(index));
            let below = &mut self.blocks[to as usize];
            if below.is_referenced {
                below.is_twice = true;
            } else {
                below.is_referenced = true;
                below.parent = at as u32;
            }
            below.previous = if index > 0 { target(index - 1) } else { 0 };
            below.node_min = hash(index);
            below.is_first |= index == 0;
            if index + 1 < count {
                below.node_max = hash(index + 1);
            } else {
                below.node_max = HASH_MAX;
                below.is_last = true;
            }
        }
        let own = &mut self.blocks[at];
        (own.min, own.max) = (min, max);
    }

    /// Notes the lowest and highest hash of the names in a leaf.
    pub fn leaf(&mut self, logical: LogicalBlock, low: u32, high: u32) {
        if let Some(own) = self.blocks.get_mut(logical.0 as usize) {
            (own.min, own.max) = (low, high);
        }
    }

    fn has_siphash(&self) -> bool {
        self.version == VERSION_SIPHASH && self.rules.has_hashes
    }

    /// The hash of a name, which follows it where it is made with a key; `None` where it cannot be
    /// computed.
    pub fn hash(&self, sb: &Superblock, name: &[u8], stored: Option<&[u8]>) -> Option<u32> {
        if self.has_siphash() {
            return stored.map(|stored| le32(stored, 0));
        }
        let hasher = DirHasher::new(self.version, sb).ok()?;
        Some(hasher.folding(self.folds).hash(name).major)
    }

    /// Checks the tree as a whole, once all blocks were seen.
    pub fn finish(mut self, mut wrong: impl FnMut(String)) {
        self.hand_up(BlockKind::Leaf);
        self.hand_up(BlockKind::Node);
        let can_hash = self.version <= VERSION_TEA || self.has_siphash();
        for (at, own) in self.blocks.iter().enumerate() {
            if !own.is_seen {
                continue;
            }
            if can_hash && !own.is_first && own.min < own.node_min {
                wrong(format!("index: names in block {at} belong before it"));
            }
            if own.kind == BlockKind::Leaf && self.depth_of(own) != self.depth {
                wrong(format!("index: block {at} lies at another depth"));
            }
            if can_hash && at > 0 && own.max > own.node_max {
                wrong(format!("index: names in block {at} belong behind it"));
            }
            if !own.is_referenced {
                wrong(format!("index: block {at} is not reached"));
            } else if own.is_twice {
                wrong(format!("index: block {at} is reached twice"));
            }
        }
    }

    /// The first and last block below a node say what lies in it.
    fn hand_up(&mut self, kind: BlockKind) {
        for at in 0..self.blocks.len() {
            let own = self.blocks[at];
            if own.kind != kind {
                continue;
            }
            let parent = own.parent as usize;
            if own.is_first {
                self.blocks[parent].min = own.min;
                let previous = self.blocks[parent].previous as usize;
                if previous > 0 && previous < self.blocks.len() {
                    self.blocks[previous].node_max = own.min;
                }
            }
            if own.is_last {
                self.blocks[parent].max = own.max;
            }
        }
    }

    fn depth_of(&self, block: &Block) -> u32 {
        const MOST: u32 = 8;
        let (mut depth, mut at) = (0, *block);
        while at.kind != BlockKind::Root && depth < MOST {
            at = self.blocks[at.parent as usize];
            depth += 1;
        }
        depth
    }
}
