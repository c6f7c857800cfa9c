//! Quota files (vfsv1): what users, groups or projects have, and may have.
//!
//! A quota file is blocks of 1 KiB. The first holds a header and [`QuotaInfo`]; the second is the
//! root of a tree of references, one byte of an id for each of its four levels, whose leaves are
//! blocks of entries. Blocks with room for entries form a list, free blocks another.
//!
//! Reference: Linux `fs/quota/quota_v2.c`, `fs/quota/quota_tree.c`, `include/linux/dqblk_v2.h`.

use std::collections::BTreeSet;

use crate::bytes::{Field, le32, put_le16, put_le32};

/// Bytes of a block of a quota file.
pub const BLOCK_SIZE: usize = 1024;
/// Levels of the tree.
pub const DEPTH: u32 = 4;
/// The root's block.
pub const ROOT: u32 = 1;
/// References of a block of the tree.
pub const REFERENCES: usize = BLOCK_SIZE / 4;
/// Bytes of an entry.
pub const ENTRY_SIZE: usize = 72;
/// Bytes of the head of a block of entries.
pub const HEAD_SIZE: usize = 16;
/// Entries of a block.
pub const ENTRIES: usize = (BLOCK_SIZE - HEAD_SIZE) / ENTRY_SIZE;
/// Limits of space are in units of so many bytes.
pub const SPACE_UNIT: u64 = 1024;

const VERSION: u32 = 1;

/// Whose quota it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuotaKind {
    /// Of owners.
    User,
    /// Of groups.
    Group,
    /// Of projects.
    Project,
}

impl QuotaKind {
    /// All kinds.
    pub const ALL: [QuotaKind; 3] = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];

    /// What a file of the kind begins with.
    pub fn magic(self) -> u32 {
        match self {
            QuotaKind::User => 0xd9c0_1f11,
            QuotaKind::Group => 0xd9c0_1927,
            QuotaKind::Project => 0xd9c0_3f14,
        }
    }
}

/// What the first block of a quota file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaInfo {
    /// Seconds that space may stay above its soft limit.
    pub space_grace: u32,
    /// The same for inodes.
    pub inode_grace: u32,
    /// Flags; none matters here.
    pub flags: u32,
    /// Blocks of the file.
    pub blocks: u32,
    /// The first free block; 0 for none.
    pub free_block: u32,
    /// The first block with room for entries; 0 for none.
    pub free_entry: u32,
}

impl QuotaInfo {
    /// Reads it; `None` if it is no quota file of this kind and version.
    pub fn parse(block: &[u8], kind: QuotaKind) -> Option<QuotaInfo> {
        let is_known = block.len() >= BLOCK_SIZE
            && le32(block, 0) == kind.magic()
            && le32(block, 4) == VERSION;
        is_known.then(|| QuotaInfo {
            space_grace: le32(block, 8),
            inode_grace: le32(block, 12),
            flags: le32(block, 16),
            blocks: le32(block, 20),
            free_block: le32(block, 24),
            free_entry: le32(block, 28),
        })
    }

    /// Writes it, with the header.
    pub fn write(&self, block: &mut [u8], kind: QuotaKind) {
        let words = [
            kind.magic(),
            VERSION,
            self.space_grace,
            self.inode_grace,
            self.flags,
            self.blocks,
            self.free_block,
            self.free_entry,
        ];
        for (index, word) in words.into_iter().enumerate() {
            put_le32(block, index * 4, word);
        }
    }
}

/// What an id has and may have. A limit of 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaEntry {
    /// Whose.
    pub id: u32,
    /// Inodes it may have.
    pub inodes_hard: u64,
    /// Inodes it may have for long.
    pub inodes_soft: u64,
    /// Inodes it has.
    pub inodes: u64,
    /// Space it may have, in units of [`SPACE_UNIT`].
    pub space_hard: u64,
    /// Space it may have for long, in units of [`SPACE_UNIT`].
    pub space_soft: u64,
    /// Bytes it has.
    pub space_bytes: u64,
    /// Until when space may be above its soft limit, in seconds since 1970; 0 when it is not.
    pub space_until: u64,
    /// The same for inodes.
    pub inodes_until: u64,
}

impl QuotaEntry {
    /// Reads an entry; `None` for a free one.
    pub fn parse(bytes: &[u8]) -> Option<QuotaEntry> {
        if bytes.len() < ENTRY_SIZE || bytes[..ENTRY_SIZE].iter().all(|byte| *byte == 0) {
            return None;
        }
        let word = |index: usize| u64::get_le(bytes, 8 + index * 8);
        let mut entry = QuotaEntry {
            id: le32(bytes, 0),
            inodes_hard: word(0),
            inodes_soft: word(1),
            inodes: word(2),
            space_hard: word(3),
            space_soft: word(4),
            space_bytes: word(5),
            space_until: word(6),
            inodes_until: word(7),
        };
        // An entry of id 0 that holds nothing else must not look free.
        let blank = QuotaEntry {
            inodes_until: 1,
            ..QuotaEntry::default()
        };
        if entry == blank {
            entry.inodes_until = 0;
        }
        Some(entry)
    }

    /// Writes it.
    pub fn write(&self, bytes: &mut [u8]) {
        let mut entry = *self;
        if entry == QuotaEntry::default() {
            entry.inodes_until = 1;
        }
        put_le32(bytes, 0, entry.id);
        put_le32(bytes, 4, 0);
        let words = [
            entry.inodes_hard,
            entry.inodes_soft,
            entry.inodes,
            entry.space_hard,
            entry.space_soft,
            entry.space_bytes,
            entry.space_until,
            entry.inodes_until,
        ];
        for (index, word) in words.into_iter().enumerate() {
            u64::put_le(bytes, 8 + index * 8, word);
        }
    }

    /// True when anything limits it.
    pub fn is_limited(&self) -> bool {
        [
            self.inodes_hard,
            self.inodes_soft,
            self.space_hard,
            self.space_soft,
        ]
        .iter()
        .any(|limit| *limit != 0)
    }
}

/// Where an id's reference lies in a block of the tree at `level`, in bytes.
pub fn reference_offset(id: u32, level: u32) -> usize {
    (id >> (8 * (DEPTH - 1 - level)) & 0xff) as usize * 4
}

/// Where an entry lies in a block of entries, in bytes.
pub fn entry_offset(index: usize) -> usize {
    HEAD_SIZE + index * ENTRY_SIZE
}

/// The head of a block of entries, or of a free block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHead {
    /// The next block of the list that it is in; 0 for none.
    pub next: u32,
    /// The one before.
    pub previous: u32,
    /// Entries that are used.
    pub entries: u16,
}

impl BlockHead {
    /// Reads it.
    pub fn parse(block: &[u8]) -> BlockHead {
        BlockHead {
            next: le32(block, 0),
            previous: le32(block, 4),
            entries: crate::bytes::le16(block, 8),
        }
    }

    /// Writes it.
    pub fn write(&self, block: &mut [u8]) {
        put_le32(block, 0, self.next);
        put_le32(block, 4, self.previous);
        put_le16(block, 8, self.entries);
    }
}

/// Why a quota file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeError<E> {
    /// A block could not be read.
    Read(E),
    /// The tree refers to a block that it cannot refer to.
    Block(u32),
    /// An id has two entries.
    Twice(u32),
}

/// An entry, and where it lies: block and byte offset.
pub type PlacedEntry = (QuotaEntry, (u32, usize));

/// All entries of a quota file of so many blocks, which `read` reads.
pub fn entries<E>(
    blocks: u32,
    read: impl FnMut(u32) -> Result<Vec<u8>, E>,
) -> Result<Vec<PlacedEntry>, TreeError<E>> {
    let mut walk = TreeWalk {
        blocks,
        read,
        seen: BTreeSet::from([0, ROOT]),
        ids: BTreeSet::new(),
        entries: Vec::new(),
    };
    walk.node(ROOT, 0)?;
    Ok(walk.entries)
}

struct TreeWalk<R> {
    blocks: u32,
    read: R,
    seen: BTreeSet<u32>,
    ids: BTreeSet<u32>,
    entries: Vec<PlacedEntry>,
}

impl<E, R: FnMut(u32) -> Result<Vec<u8>, E>> TreeWalk<R> {
    /// Reads what is below a block of the tree.
    fn node(&mut self, number: u32, level: u32) -> Result<(), TreeError<E>> {
        let block = (self.read)(number).map_err(TreeError::Read)?;
        for reference in block.chunks_exact(4) {
            let below = le32(reference, 0);
            // Ids of one block of entries have a reference each, from whatever blocks.
            if below == 0 || level + 1 == DEPTH && self.seen.contains(&below) && below > ROOT {
                continue;
            }
            if !self.seen.insert(below) || below >= self.blocks {
                return Err(TreeError::Block(below));
            }
            match level + 1 {
                DEPTH => self.leaf(below)?,
                level => self.node(below, level)?,
            }
        }
        Ok(())
    }

    fn leaf(&mut self, number: u32) -> Result<(), TreeError<E>> {
        let block = (self.read)(number).map_err(TreeError::Read)?;
        for offset in (0..ENTRIES).map(entry_offset) {
            let entry = block.get(offset..offset + ENTRY_SIZE);
            if let Some(entry) = entry.and_then(QuotaEntry::parse) {
                if !self.ids.insert(entry.id) {
                    return Err(TreeError::Twice(entry.id));
                }
                self.entries.push((entry, (number, offset)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let mut block = vec![0; BLOCK_SIZE];
        let info = QuotaInfo {
            space_grace: 604_800,
            blocks: 7,
            free_entry: 5,
            ..QuotaInfo::default()
        };
        info.write(&mut block, QuotaKind::Group);
        assert_eq!(QuotaInfo::parse(&block, QuotaKind::Group), Some(info));
        assert_eq!(QuotaInfo::parse(&block, QuotaKind::User), None);
        let mut bytes = [0; ENTRY_SIZE];
        assert_eq!(QuotaEntry::parse(&bytes), None);
        for entry in [
            QuotaEntry::default(),
            QuotaEntry {
                id: 1000,
                space_hard: 5,
                space_bytes: 4096,
                inodes: 1,
                inodes_until: 9,
                ..QuotaEntry::default()
            },
        ] {
            entry.write(&mut bytes);
            assert_eq!(QuotaEntry::parse(&bytes), Some(entry));
        }
        assert_eq!(reference_offset(0x0102_0304, 0), 4);
        assert_eq!(reference_offset(0x0102_0304, 3), 16);
        assert_eq!(entry_offset(ENTRIES - 1) + ENTRY_SIZE, BLOCK_SIZE);
    }

    #[test]
    fn a_tree_is_read_and_what_cannot_be_is_told() {
        let mut file = vec![vec![0; BLOCK_SIZE]; 6];
        for (block, below) in [(1, 2), (2, 3), (3, 4)] {
            put_le32(&mut file[block], 0, below);
        }
        let entry = |id| QuotaEntry {
            id,
            inodes: 1,
            ..QuotaEntry::default()
        };
        for (index, id) in [(3, 7), (5, 9)] {
            put_le32(&mut file[4], id as usize * 4, 5);
            entry(id).write(&mut file[5][entry_offset(index)..]);
        }
        let read = |file: &[Vec<u8>]| {
            entries(6, |block| {
                let found = file.get(block as usize).cloned();
                found.ok_or(block)
            })
        };
        let places = [(entry(7), (5, 232)), (entry(9), (5, 376))];
        assert_eq!(read(&file), Ok(places.to_vec()));
        let mut looped = file.clone();
        put_le32(&mut looped[3], 8, 2);
        assert_eq!(read(&looped), Err(TreeError::Block(2)));
        let mut outside = file.clone();
        put_le32(&mut outside[2], 8, 6);
        assert_eq!(read(&outside), Err(TreeError::Block(6)));
        entry(7).write(&mut file[5][entry_offset(0)..]);
        assert_eq!(read(&file), Err(TreeError::Twice(7)));
    }
}
