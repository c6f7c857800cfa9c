//! The index of a directory: a shallow tree that maps hash ranges to leaf blocks.
//!
//! To a reader that knows nothing of it, the index hides in plain entries. The root is the
//! directory's block 0: `.` and a `..` whose length spans the block, with the index inside it. An
//! inner node is one free entry that spans its block. Both then hold an array of 8-byte entries
//! (hash, block); the first entry's hash slot holds limit and count instead, since its hash is
//! implied. With `metadata_csum` the last 8 bytes hold a checksum and the limit is one less. In
//! directories whose entries have hashes, nodes are limited to one entry less again: the kernel
//! counts a hash for the free entry.
//!
//! The entry for hash `h` is the last whose hash is not above `h`. An entry's hash with the lowest
//! bit set says that names of that hash (bit cleared) also lie in the block before it.
//!
//! Reference: Linux `Documentation/filesystems/ext4/directory.rst`, "Hash Tree Directories".

use crate::bytes::{Field, clip, le16, le32, put_bytes, put_le16, put_le32, zero};
use crate::checksum::{InodeSeed, crc32c};
use crate::dirent::{DirRules, EntryType, HASH_SIZE, decode_rec_len, encode_rec_len};
use crate::dirhash;
use crate::error::{Checksummed, Corrupt, DiskError, Incompatible, Result, check_sum, need};
use crate::inode::FileKind;
use crate::units::{Ino, LogicalBlock};

const ENTRY_SIZE: usize = 8;
const TAIL_SIZE: usize = 8;
const ROOT_INFO: usize = 24;
const ROOT_ENTRIES: usize = 32;
const NODE_ENTRIES: usize = 8;
const INFO_LENGTH: u8 = 8;
/// The upper bits of a block number are reserved.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// The most levels between root and leaves, without `large_dir`.
pub const LEVELS_MAX: u8 = 1;
/// The same with `large_dir`.
pub const LEVELS_MAX_LARGE: u8 = 2;

/// An entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DxEntry {
    /// The lowest hash in the block below, 0 for the first; the lowest bit marks a continuation.
    pub hash: u32,
    /// The block of the directory file.
    pub block: LogicalBlock,
}

impl DxEntry {
    /// Whether names of this hash also lie in the block before.
    pub fn continues(&self) -> bool {
        self.hash & 1 != 0
    }
}

/// Where in the tree a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DxPlace {
    /// Block 0 of the directory.
    Root,
    /// Any other index block.
    Node,
    /// The same where entries have hashes ([`DirRules::has_hashes`]).
    HashedNode,
}

impl DxPlace {
    fn entries_at(self) -> usize {
        match self {
            DxPlace::Root => ROOT_ENTRIES,
            DxPlace::Node | DxPlace::HashedNode => NODE_ENTRIES,
        }
    }

    /// That of an index block below the root.
    pub fn below_root(rules: DirRules) -> DxPlace {
        match rules.has_hashes {
            true => DxPlace::HashedNode,
            false => DxPlace::Node,
        }
    }

    /// Entries that fit in a block.
    pub fn limit(self, block_size: usize, has_tail: bool) -> u16 {
        let tail = if has_tail { TAIL_SIZE } else { 0 };
        let hash = match self {
            DxPlace::HashedNode => HASH_SIZE,
            DxPlace::Root | DxPlace::Node => 0,
        };
        let room = block_size.saturating_sub(self.entries_at() + hash + tail);
        (room / ENTRY_SIZE).min(usize::from(u16::MAX)) as u16
    }
}

/// A view of an index block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DxBlock<B> {
    bytes: B,
    place: DxPlace,
    has_tail: bool,
}

impl<B: AsRef<[u8]>> DxBlock<B> {
    /// Makes a view of a whole block, after checking the frame, the root's information, limit and
    /// count. `has_tail` goes with `metadata_csum`.
    pub fn new(bytes: B, place: DxPlace, has_tail: bool) -> Result<DxBlock<B>> {
        let dx = DxBlock::sized(bytes, place, has_tail)?;
        dx.check_frame()?;
        let expected = place.limit(dx.bytes.as_ref().len(), has_tail);
        if dx.limit() != expected {
            return Err(Corrupt::DxLimit {
                found: dx.limit(),
                expected,
            }
            .into());
        }
        if dx.count() == 0 || dx.count() > expected {
            return Err(Corrupt::DxCount(dx.count()).into());
        }
        Ok(dx)
    }

    fn sized(bytes: B, place: DxPlace, has_tail: bool) -> Result<DxBlock<B>> {
        let len = bytes.as_ref().len();
        need("directory index", 1024, len)?;
        if len > 65_536 {
            return Err(DiskError::BufferSize {
                what: "directory index",
                need: 65_536,
                got: len,
            });
        }
        Ok(DxBlock {
            bytes,
            place,
            has_tail,
        })
    }

    fn check_frame(&self) -> Result<()> {
        let b = self.bytes.as_ref();
        match self.place {
            DxPlace::Node | DxPlace::HashedNode => {
                let is_fake = le32(b, 0) == 0 && decode_rec_len(le16(b, 4), b.len()) == b.len();
                if !is_fake || clip(b, 6..7) != [0] {
                    return Err(Corrupt::DxHeader.into());
                }
            }
            DxPlace::Root => {
                let is_dot = le16(b, 4) == 12 && clip(b, 6..7) == [1] && clip(b, 8..9) == *b".";
                let is_dotdot = decode_rec_len(le16(b, 16), b.len()) == b.len() - 12
                    && clip(b, 18..19) == [2]
                    && clip(b, 20..22) == *b"..";
                if !is_dot || !is_dotdot {
                    return Err(Corrupt::DirDots.into());
                }
                if self.info_length() != INFO_LENGTH {
                    return Err(Corrupt::DxInfoLength(self.info_length()).into());
                }
                if self.levels() > LEVELS_MAX_LARGE {
                    return Err(Corrupt::DxDepth(self.levels()).into());
                }
                if self.hash_version() > dirhash::VERSION_SIPHASH {
                    return Err(Incompatible::DirHash(self.hash_version()).into());
                }
            }
        }
        Ok(())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// The root's `hash_version`.
    pub fn hash_version(&self) -> u8 {
        u8::get_le(self.bytes.as_ref(), ROOT_INFO + 4)
    }

    fn info_length(&self) -> u8 {
        u8::get_le(self.bytes.as_ref(), ROOT_INFO + 5)
    }

    /// The root's number of index levels below it: 0 when its entries point at leaves.
    pub fn levels(&self) -> u8 {
        u8::get_le(self.bytes.as_ref(), ROOT_INFO + 6)
    }

    /// The parent directory, as the root's `..` says.
    pub fn parent(&self) -> Ino {
        Ino(le32(self.bytes.as_ref(), 12))
    }

    /// Entries that fit.
    pub fn limit(&self) -> u16 {
        le16(self.bytes.as_ref(), self.place.entries_at())
    }

    /// Entries in use, the first included.
    pub fn count(&self) -> u16 {
        le16(self.bytes.as_ref(), self.place.entries_at() + 2)
    }

    /// Whether no entry more fits.
    pub fn is_full(&self) -> bool {
        self.count() >= self.limit()
    }

    fn at(&self, index: u16) -> usize {
        self.place.entries_at() + usize::from(index) * ENTRY_SIZE
    }

    /// The entry at `index`; `None` beyond the count.
    pub fn entry(&self, index: u16) -> Option<DxEntry> {
        if index >= self.count() {
            return None;
        }
        let (b, at) = (self.bytes.as_ref(), self.at(index));
        let hash = if index == 0 { 0 } else { le32(b, at) };
        Some(DxEntry {
            hash,
            block: (le32(b, at + 4) & BLOCK_MASK).into(),
        })
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = DxEntry> + '_ {
        (0..self.count()).filter_map(|i| self.entry(i))
    }

    /// The entry that leads to `hash`: the last that does not exceed it.
    pub fn search(&self, hash: u32) -> u16 {
        // Entry 0 covers everything below entry 1.
        let (mut low, mut high) = (1, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if le32(self.bytes.as_ref(), self.at(middle)) <= hash {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }

    /// Checks that hashes ascend.
    pub fn validate(&self) -> Result<()> {
        let mut before = 0;
        for (i, entry) in (0u16..).zip(self.entries()) {
            if entry.hash < before {
                return Err(Corrupt::DxOrder(i).into());
            }
            before = entry.hash;
        }
        Ok(())
    }

    /// The checksum that the tail should hold.
    pub fn compute_checksum(&self, seed: InodeSeed) -> u32 {
        let b = self.bytes.as_ref();
        let tail = self.at(self.limit());
        let crc = crc32c(seed.0, clip(b, 0..self.at(self.count())));
        // The tail's reserved word counts, its checksum counts as zero.
        crc32c(crc32c(crc, clip(b, tail..tail + 4)), &[0; 4])
    }

    /// Compares the checksum, where there is one.
    pub fn verify_checksum(&self, seed: InodeSeed) -> Result<()> {
        if !self.has_tail {
            return Ok(());
        }
        let stored = le32(self.bytes.as_ref(), self.at(self.limit()) + 4);
        check_sum(Checksummed::DirIndex, stored, self.compute_checksum(seed))
    }
}

/// What a new index root says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DxRootInfo {
    /// The directory.
    pub own: Ino,
    /// Its parent.
    pub parent: Ino,
    /// Whether entries hold file types.
    pub has_filetype: bool,
    /// `hash_version`: 0 to 2; the superblock's flags choose the signedness.
    pub hash_version: u8,
    /// Levels of index blocks below the root.
    pub levels: u8,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> DxBlock<B> {
    /// Makes a root whose only entry leads to `first`.
    pub fn init_root(
        bytes: B,
        has_tail: bool,
        info: DxRootInfo,
        first: LogicalBlock,
    ) -> Result<DxBlock<B>> {
        let mut dx = DxBlock::sized(bytes, DxPlace::Root, has_tail)?;
        let kind = if info.has_filetype {
            EntryType::from(FileKind::Directory)
        } else {
            EntryType::UNKNOWN
        };
        let b = dx.bytes.as_mut();
        let len = b.len();
        b.fill(0);
        put_le32(b, 0, info.own.0);
        put_le16(b, 4, 12);
        put_bytes(b, 6, &[1, kind.0, b'.']);
        put_le32(b, 12, info.parent.0);
        put_le16(b, 16, encode_rec_len(len - 12, len));
        put_bytes(b, 18, &[2, kind.0, b'.', b'.']);
        put_bytes(
            b,
            ROOT_INFO + 4,
            &[info.hash_version, INFO_LENGTH, info.levels, 0],
        );
        dx.init_entries(first);
        Ok(dx)
    }

    /// Makes an inner node, at a place below the root, whose only entry leads to `first`.
    pub fn init_node(
        bytes: B,
        place: DxPlace,
        has_tail: bool,
        first: LogicalBlock,
    ) -> Result<DxBlock<B>> {
        let mut dx = DxBlock::sized(bytes, place, has_tail)?;
        let b = dx.bytes.as_mut();
        let len = b.len();
        b.fill(0);
        put_le16(b, 4, encode_rec_len(len, len));
        dx.init_entries(first);
        Ok(dx)
    }

    fn init_entries(&mut self, first: LogicalBlock) {
        let at = self.place.entries_at();
        let limit = self.place.limit(self.bytes.as_ref().len(), self.has_tail);
        let b = self.bytes.as_mut();
        put_le16(b, at, limit);
        put_le16(b, at + 2, 1);
        put_le32(b, at + 4, first.0 as u32 & BLOCK_MASK);
    }

    /// The bytes, to edit.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut()
    }

    /// Sets the root's number of index levels below it.
    pub fn set_levels(&mut self, levels: u8) {
        u8::put_le(self.bytes.as_mut(), ROOT_INFO + 6, levels);
    }

    /// Sets the root's `..`.
    pub fn set_parent(&mut self, parent: Ino) {
        put_le32(self.bytes.as_mut(), 12, parent.0);
    }

    fn set_count(&mut self, count: u16) {
        let at = self.place.entries_at() + 2;
        put_le16(self.bytes.as_mut(), at, count);
    }

    /// Inserts an entry before `index`, which is at least 1. Order is the caller's care.
    pub fn insert(&mut self, index: u16, entry: DxEntry) -> Result<()> {
        let count = self.count();
        if self.is_full() {
            return Err(DiskError::NoRoom("directory index"));
        }
        if index == 0 || index > count {
            let what = "directory index";
            return Err(DiskError::Unrepresentable {
                what,
                value: index.into(),
            });
        }
        let (from, end) = (self.at(index), self.at(count));
        let b = self.bytes.as_mut();
        if end + ENTRY_SIZE <= b.len() {
            b.copy_within(from..end, from + ENTRY_SIZE);
        }
        put_le32(b, from, entry.hash);
        put_le32(b, from + 4, entry.block.0 as u32 & BLOCK_MASK);
        self.set_count(count + 1);
        Ok(())
    }

    /// Sets the block that the entry at `index` leads to; nothing happens beyond the count.
    pub fn set_block(&mut self, index: u16, block: LogicalBlock) {
        if index < self.count() {
            let at = self.at(index) + 4;
            put_le32(self.bytes.as_mut(), at, block.0 as u32 & BLOCK_MASK);
        }
    }

    /// Replaces all entries, of which there must be at least one; the first one's hash is not
    /// stored.
    pub fn set_entries(&mut self, entries: &[DxEntry]) -> Result<()> {
        let count = u16::try_from(entries.len())
            .ok()
            .filter(|c| *c <= self.limit());
        let count = count.ok_or(DiskError::NoRoom("directory index"))?;
        if count == 0 {
            return Err(DiskError::Unrepresentable {
                what: "directory index",
                value: 0,
            });
        }
        let (from, end) = (self.at(1), self.at(self.limit()));
        zero(self.bytes.as_mut(), from..end);
        self.set_count(count);
        for (i, entry) in (0u16..).zip(entries) {
            let at = self.at(i);
            if i > 0 {
                put_le32(self.bytes.as_mut(), at, entry.hash);
            }
            put_le32(
                self.bytes.as_mut(),
                at + 4,
                entry.block.0 as u32 & BLOCK_MASK,
            );
        }
        Ok(())
    }

    /// Sets the checksum, where there is one. Call it last.
    pub fn update_checksum(&mut self, seed: InodeSeed) {
        if self.has_tail {
            let at = self.at(self.limit());
            put_le32(self.bytes.as_mut(), at, 0);
            let crc = self.compute_checksum(seed);
            put_le32(self.bytes.as_mut(), at + 4, crc);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: DxRootInfo = DxRootInfo {
        own: Ino(12),
        parent: Ino(2),
        has_filetype: true,
        hash_version: 1,
        levels: 0,
    };

    fn entry(hash: u32, block: u32) -> DxEntry {
        DxEntry {
            hash,
            block: block.into(),
        }
    }

    #[test]
    fn limits() {
        assert_eq!(DxPlace::Root.limit(4096, true), 507);
        assert_eq!(DxPlace::Node.limit(4096, true), 510);
        assert_eq!(DxPlace::HashedNode.limit(4096, true), 509);
        assert_eq!(DxPlace::HashedNode.limit(1024, false), 126);
        assert_eq!(DxPlace::Root.limit(1024, false), 124);
        assert_eq!(DxPlace::Node.limit(1024, false), 127);
    }

    #[test]
    fn root_reads_back_as_index_and_as_entries() {
        let mut root =
            DxBlock::init_root(vec![7; 1024], true, INFO, LogicalBlock(1)).expect("size");
        for (i, hash) in [(1, 100), (2, 300), (2, 201)] {
            assert_eq!(root.insert(i, entry(hash, hash)), Ok(()));
        }
        assert!(root.insert(0, entry(1, 1)).is_err() && root.insert(5, entry(1, 1)).is_err());
        root.update_checksum(InodeSeed(4));
        let read = DxBlock::new(root.as_bytes(), DxPlace::Root, true).expect("sound");
        assert_eq!(read.verify_checksum(InodeSeed(4)), Ok(()));
        assert!(read.verify_checksum(InodeSeed(5)).is_err());
        assert_eq!(
            (read.levels(), read.hash_version(), read.parent()),
            (0, 1, Ino(2))
        );
        let hashes: Vec<u32> = read.entries().map(|e| e.hash).collect();
        assert_eq!((hashes, read.validate()), (vec![0, 100, 201, 300], Ok(())));
        for (hash, index) in [(0, 0), (99, 0), (100, 1), (200, 1), (202, 2), (u32::MAX, 3)] {
            assert_eq!(read.search(hash), index, "{hash}");
        }
        assert!(read.entry(2).is_some_and(|e| e.continues()) && read.entry(4).is_none());
        let rules = crate::dirent::DirRules {
            has_filetype: true,
            has_tail: false,
            has_any_names: false,
            has_hashes: false,
        };
        let plain = crate::dirent::DirBlock::new(root.as_bytes(), rules).expect("size");
        assert_eq!(
            (plain.dots(), plain.validate()),
            (Ok((Ino(12), Ino(2))), Ok(()))
        );
    }

    #[test]
    fn node_fills_up() {
        let mut node =
            DxBlock::init_node(vec![7; 1024], DxPlace::Node, false, LogicalBlock(1)).expect("size");
        while !node.is_full() {
            let i = node.count();
            assert_eq!(node.insert(i, entry(u32::from(i) * 2, i.into())), Ok(()));
        }
        assert_eq!(
            node.insert(1, entry(1, 1)),
            Err(DiskError::NoRoom("directory index"))
        );
        assert_eq!(node.count(), 127);
        let read = DxBlock::new(node.as_bytes(), DxPlace::Node, false).expect("sound");
        assert_eq!(read.entry(126), Some(entry(252, 126)));
        assert_eq!(node.set_entries(&[entry(0, 5), entry(8, 6)]), Ok(()));
        assert_eq!(
            node.entries().collect::<Vec<_>>(),
            [entry(0, 5), entry(8, 6)]
        );
        assert!(node.set_entries(&[]).is_err() && node.set_entries(&[entry(0, 1); 128]).is_err());
    }

    #[test]
    fn damage_is_named() {
        let sound = DxBlock::init_root(vec![0; 1024], true, INFO, LogicalBlock(1))
            .expect("ok")
            .bytes;
        let damaged = |offset: usize, value: &[u8]| {
            let mut bytes = sound.clone();
            put_bytes(&mut bytes, offset, value);
            DxBlock::new(bytes, DxPlace::Root, true).err()
        };
        assert_eq!(damaged(8, b"x"), Some(Corrupt::DirDots.into()));
        assert_eq!(damaged(16, &[4, 0]), Some(Corrupt::DirDots.into()));
        assert_eq!(damaged(28, &[9]), Some(Incompatible::DirHash(9).into()));
        assert_eq!(damaged(29, &[9]), Some(Corrupt::DxInfoLength(9).into()));
        assert_eq!(damaged(30, &[3]), Some(Corrupt::DxDepth(3).into()));
        assert_eq!(
            damaged(32, &[9, 0]),
            Some(
                Corrupt::DxLimit {
                    found: 9,
                    expected: 123
                }
                .into()
            )
        );
        assert_eq!(damaged(34, &[0, 0]), Some(Corrupt::DxCount(0).into()));
        assert_eq!(damaged(34, &[124, 0]), Some(Corrupt::DxCount(124).into()));
        assert!(DxBlock::new(&sound, DxPlace::Node, true).is_err());
        let mut bad = DxBlock::new(sound.clone(), DxPlace::Root, true).expect("sound");
        assert_eq!(
            bad.set_entries(&[entry(0, 1), entry(9, 2), entry(3, 3)]),
            Ok(())
        );
        assert_eq!(bad.validate(), Err(Corrupt::DxOrder(2).into()));
    }
}
