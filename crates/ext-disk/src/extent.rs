//! Extent trees: nodes of 12-byte entries behind a 12-byte header.
//!
//! The root lies in `i_block` (4 entries, no checksum); other nodes fill blocks and end in a
//! checksum behind the last possible entry. A node of depth 0 holds extents, others hold indexes
//! that point at nodes one less deep. Entries ascend by logical block and do not overlap.
//!
//! [`ExtentNode`] is a view of one node. [`ExtentNode::new`] checks the header, so the accessors
//! stay inside; [`ExtentNode::validate`] checks the entries.
//!
//! Reference: Linux `Documentation/filesystems/ext4/ifork.rst`, "Extent Tree".

use crate::bytes::{Field, clip, le16, le32, put_le16, put_le32, zero};
use crate::checksum::{InodeSeed, crc32c};
use crate::error::{Checksummed, Corrupt, DiskError, Result, check_sum, need};
use crate::units::{LogicalBlock, PhysBlock};
use core::ops::Range;

/// `eh_magic`.
pub const MAGIC: u16 = 0xF30A;
/// The deepest tree there can be.
pub const DEPTH_MAX: u16 = 5;
/// The most blocks of a written extent.
pub const LEN_MAX: u32 = 32_768;
/// The most blocks of an unwritten extent.
pub const LEN_MAX_UNWRITTEN: u32 = 32_767;

const HEADER_SIZE: usize = 12;
const ENTRY_SIZE: usize = 12;
const PHYS_BITS: u32 = 48;

/// A run of blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block in the file.
    pub logical: LogicalBlock,
    /// Number of blocks, 1 to 32768.
    pub len: u32,
    /// First block on the device.
    pub physical: PhysBlock,
    /// Allocated but reads as zeroes.
    pub is_unwritten: bool,
}

impl Extent {
    /// The first logical block behind the extent.
    pub fn logical_end(&self) -> LogicalBlock {
        self.logical + u64::from(self.len)
    }

    /// Whether a logical block lies in it.
    pub fn contains(&self, block: LogicalBlock) -> bool {
        (self.logical..self.logical_end()).contains(&block)
    }

    fn decode(b: &[u8], at: usize) -> Extent {
        let raw = u32::from(le16(b, at + 4));
        let is_unwritten = raw > LEN_MAX;
        Extent {
            logical: le32(b, at).into(),
            len: if is_unwritten { raw - LEN_MAX } else { raw },
            physical: PhysBlock(u64::from(le16(b, at + 6)) << 32 | u64::from(le32(b, at + 8))),
            is_unwritten,
        }
    }

    fn encode(&self, b: &mut [u8], at: usize) -> Result<()> {
        let max = if self.is_unwritten {
            LEN_MAX_UNWRITTEN
        } else {
            LEN_MAX
        };
        if self.len == 0 || self.len > max || self.logical_end() > LogicalBlock::ALL.end {
            return Err(DiskError::Unrepresentable {
                what: "ee_len",
                value: self.len.into(),
            });
        }
        check_physical(self.physical)?;
        let raw = self.len + if self.is_unwritten { LEN_MAX } else { 0 };
        put_le32(b, at, self.logical.0 as u32);
        put_le16(b, at + 4, raw as u16);
        put_le16(b, at + 6, (self.physical.0 >> 32) as u16);
        put_le32(b, at + 8, self.physical.0 as u32);
        Ok(())
    }
}

/// A pointer to a node one less deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// The first logical block that the node below maps.
    pub logical: LogicalBlock,
    /// The node's block.
    pub block: PhysBlock,
}

impl Index {
    fn decode(b: &[u8], at: usize) -> Index {
        Index {
            logical: le32(b, at).into(),
            block: PhysBlock(u64::from(le16(b, at + 8)) << 32 | u64::from(le32(b, at + 4))),
        }
    }

    fn encode(&self, b: &mut [u8], at: usize) -> Result<()> {
        check_physical(self.block)?;
        let Ok(logical) = u32::try_from(self.logical.0) else {
            return Err(DiskError::Unrepresentable {
                what: "ei_block",
                value: self.logical.0,
            });
        };
        put_le32(b, at, logical);
        put_le32(b, at + 4, self.block.0 as u32);
        put_le16(b, at + 8, (self.block.0 >> 32) as u16);
        put_le16(b, at + 10, 0);
        Ok(())
    }
}

fn check_physical(block: PhysBlock) -> Result<()> {
    if block.0 >> PHYS_BITS != 0 {
        return Err(DiskError::Unrepresentable {
            what: "extent's block",
            value: block.0,
        });
    }
    Ok(())
}

/// How many entries fit in a node of `bytes` bytes: 4 in `i_block`, else what the block gives.
pub fn capacity(bytes: usize) -> u16 {
    (bytes.saturating_sub(HEADER_SIZE) / ENTRY_SIZE).min(usize::from(u16::MAX)) as u16
}

/// A view of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtentNode<B> {
    bytes: B,
}

fields!(view ExtentNode get_le put_le {
    /// `eh_magic`.
    0x00 u16 magic set_magic;
    /// `eh_generation`, unused by the kernel.
    0x08 u32 generation set_generation;
});

impl<B: AsRef<[u8]>> ExtentNode<B> {
    /// Makes a view of `i_block` or a whole block, after checking the header.
    pub fn new(bytes: B) -> Result<ExtentNode<B>> {
        let len = bytes.as_ref().len();
        need("extent node", HEADER_SIZE + ENTRY_SIZE, len)?;
        let node = ExtentNode { bytes };
        if node.magic() != MAGIC {
            return Err(Corrupt::ExtentMagic(node.magic()).into());
        }
        if node.depth() > DEPTH_MAX {
            return Err(Corrupt::ExtentDepth(node.depth()).into());
        }
        let (entries, max) = (node.entries(), node.max());
        if max == 0 || max > capacity(len) {
            return Err(Corrupt::ExtentMax(max).into());
        }
        if entries > max || (entries == 0 && node.depth() > 0) {
            return Err(Corrupt::ExtentEntries { entries, max }.into());
        }
        Ok(node)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Entries in use.
    pub fn entries(&self) -> u16 {
        le16(self.bytes.as_ref(), 2)
    }

    /// Entries that fit.
    pub fn max(&self) -> u16 {
        le16(self.bytes.as_ref(), 4)
    }

    /// 0 for a leaf.
    pub fn depth(&self) -> u16 {
        le16(self.bytes.as_ref(), 6)
    }

    /// Whether it holds extents.
    pub fn is_leaf(&self) -> bool {
        self.depth() == 0
    }

    /// Whether no entry more fits.
    pub fn is_full(&self) -> bool {
        self.entries() >= self.max()
    }

    fn at(index: u16) -> usize {
        HEADER_SIZE + usize::from(index) * ENTRY_SIZE
    }

    /// The extent at `index`; `None` beyond the entries and in nodes that are not leaves.
    pub fn extent(&self, index: u16) -> Option<Extent> {
        (self.is_leaf() && index < self.entries())
            .then(|| Extent::decode(self.bytes.as_ref(), Self::at(index)))
    }

    /// The index at `index`; `None` beyond the entries and in leaves.
    pub fn index(&self, index: u16) -> Option<Index> {
        (!self.is_leaf() && index < self.entries())
            .then(|| Index::decode(self.bytes.as_ref(), Self::at(index)))
    }

    /// All extents of a leaf; nothing for other nodes.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + '_ {
        (0..self.entries()).filter_map(|i| self.extent(i))
    }

    /// All indexes of a node that is not a leaf.
    pub fn indexes(&self) -> impl Iterator<Item = Index> + '_ {
        (0..self.entries()).filter_map(|i| self.index(i))
    }

    fn logical_at(&self, index: u16) -> LogicalBlock {
        le32(self.bytes.as_ref(), Self::at(index)).into()
    }

    /// The last entry that starts at or before `block`: the extent that may contain it or the
    /// index to follow. `None` when all start behind it.
    pub fn search(&self, block: LogicalBlock) -> Option<u16> {
        let (mut low, mut high) = (0, self.entries());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.logical_at(middle) <= block {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// The extent of a leaf that contains `block`.
    pub fn find(&self, block: LogicalBlock) -> Option<Extent> {
        self.extent(self.search(block)?)
            .filter(|e| e.contains(block))
    }

    /// Checks the entries: order, overlap, lengths, and that they lie in `range`, which is what
    /// the parent's index and its successor give ([`LogicalBlock::ALL`] for a root).
    pub fn validate(&self, range: Range<LogicalBlock>) -> Result<()> {
        let mut from = range.start;
        for i in 0..self.entries() {
            let start = self.logical_at(i);
            let end = match self.extent(i) {
                Some(e) if e.len == 0 || e.physical.0 == 0 => {
                    return Err(Corrupt::ExtentRange(start).into());
                }
                Some(e) if e.logical_end() > LogicalBlock::ALL.end => {
                    return Err(Corrupt::ExtentRange(start).into());
                }
                Some(e) => e.logical_end(),
                None => start + 1,
            };
            if start < from || end > range.end {
                return Err(Corrupt::ExtentOrder(start).into());
            }
            from = end;
        }
        Ok(())
    }

    /// The range of logical blocks that the node below entry `index` may map, inside `range`,
    /// which is this node's own.
    pub fn child_range(&self, index: u16, range: Range<LogicalBlock>) -> Range<LogicalBlock> {
        let next = index.saturating_add(1);
        let end = if next < self.entries() {
            self.logical_at(next)
        } else {
            range.end
        };
        self.logical_at(index)..end
    }

    /// Where the checksum lies; `None` in `i_block` and other nodes too small for one.
    fn checksum_offset(&self) -> Option<usize> {
        let at = HEADER_SIZE + usize::from(self.max()) * ENTRY_SIZE;
        (at + 4 <= self.bytes.as_ref().len()).then_some(at)
    }

    /// Compares the checksum behind the entries of a node in a block.
    pub fn verify_checksum(&self, seed: InodeSeed) -> Result<()> {
        let at = self
            .checksum_offset()
            .ok_or(Corrupt::ExtentMax(self.max()))?;
        let b = self.bytes.as_ref();
        check_sum(
            Checksummed::Extents,
            le32(b, at),
            crc32c(seed.0, clip(b, 0..at)),
        )
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> ExtentNode<B> {
    /// Makes an empty node of the given depth, with all the capacity there is. A node of depth
    /// above 0 must get an entry before anyone reads it.
    pub fn init(mut bytes: B, depth: u16) -> Result<ExtentNode<B>> {
        let len = bytes.as_ref().len();
        need("extent node", HEADER_SIZE + ENTRY_SIZE, len)?;
        if depth > DEPTH_MAX {
            return Err(DiskError::Unrepresentable {
                what: "eh_depth",
                value: depth.into(),
            });
        }
        bytes.as_mut().fill(0);
        let mut node = ExtentNode { bytes };
        node.set_magic(MAGIC);
        put_le16(node.bytes.as_mut(), 4, capacity(len));
        put_le16(node.bytes.as_mut(), 6, depth);
        Ok(node)
    }

    /// The bytes, to edit.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut()
    }

    fn set_entries(&mut self, entries: u16) {
        put_le16(self.bytes.as_mut(), 2, entries);
    }

    /// Opens a gap at `index` and counts it.
    fn open(&mut self, index: u16) -> Result<usize> {
        let entries = self.entries();
        if self.is_full() {
            return Err(DiskError::NoRoom("extent node"));
        }
        if index > entries {
            let what = "extent node";
            return Err(DiskError::Unrepresentable {
                what,
                value: index.into(),
            });
        }
        let (from, end) = (Self::at(index), Self::at(entries));
        let b = self.bytes.as_mut();
        if end + ENTRY_SIZE <= b.len() {
            b.copy_within(from..end, from + ENTRY_SIZE);
        }
        self.set_entries(entries + 1);
        Ok(from)
    }

    /// Inserts an extent before entry `index` of a leaf. Order is the caller's care.
    pub fn insert_extent(&mut self, index: u16, extent: Extent) -> Result<()> {
        self.expect_depth(self.is_leaf())?;
        // Encode first: a value that does not fit must not leave a gap.
        let mut raw = [0; ENTRY_SIZE];
        extent.encode(&mut raw, 0)?;
        let at = self.open(index)?;
        crate::bytes::put_bytes(self.bytes.as_mut(), at, &raw);
        Ok(())
    }

    /// Inserts an index before entry `index` of a node that is not a leaf.
    pub fn insert_index(&mut self, index: u16, entry: Index) -> Result<()> {
        self.expect_depth(!self.is_leaf())?;
        let mut raw = [0; ENTRY_SIZE];
        entry.encode(&mut raw, 0)?;
        let at = self.open(index)?;
        crate::bytes::put_bytes(self.bytes.as_mut(), at, &raw);
        Ok(())
    }

    /// Replaces the extent at `index`.
    pub fn set_extent(&mut self, index: u16, extent: Extent) -> Result<()> {
        self.expect_depth(self.is_leaf() && index < self.entries())?;
        extent.encode(self.bytes.as_mut(), Self::at(index))
    }

    /// Replaces the index at `index`.
    pub fn set_index(&mut self, index: u16, entry: Index) -> Result<()> {
        self.expect_depth(!self.is_leaf() && index < self.entries())?;
        entry.encode(self.bytes.as_mut(), Self::at(index))
    }

    fn expect_depth(&self, is_right: bool) -> Result<()> {
        let value = self.depth().into();
        if is_right {
            Ok(())
        } else {
            Err(DiskError::Unrepresentable {
                what: "extent node",
                value,
            })
        }
    }

    /// Removes the entry at `index`; nothing happens beyond the entries.
    pub fn remove(&mut self, index: u16) {
        let entries = self.entries();
        if index >= entries {
            return;
        }
        let (from, end) = (Self::at(index), Self::at(entries));
        let b = self.bytes.as_mut();
        if end <= b.len() {
            b.copy_within(from + ENTRY_SIZE..end, from);
            zero(b, end - ENTRY_SIZE..end);
        }
        self.set_entries(entries - 1);
    }

    /// Keeps the first `entries` entries.
    pub fn truncate(&mut self, entries: u16) {
        let old = self.entries();
        if entries < old {
            zero(self.bytes.as_mut(), Self::at(entries)..Self::at(old));
            self.set_entries(entries);
        }
    }

    /// Sets the checksum of a node in a block. Call it last; not for `i_block`.
    pub fn update_checksum(&mut self, seed: InodeSeed) {
        if let Some(at) = self.checksum_offset() {
            let crc = crc32c(seed.0, clip(self.bytes.as_ref(), 0..at));
            u32::put_le(self.bytes.as_mut(), at, crc);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(logical: u64, len: u32) -> Extent {
        let physical = PhysBlock(0x1234_0000_0000 + logical);
        Extent {
            logical: LogicalBlock(logical),
            len,
            physical,
            is_unwritten: false,
        }
    }

    #[test]
    fn edit_and_search() {
        let mut node = ExtentNode::init([0xffu8; 60], 0).expect("root");
        assert_eq!((node.entries(), node.max(), node.depth()), (0, 4, 0));
        assert_eq!(node.search(LogicalBlock(5)), None);
        for e in [extent(10, 5), extent(0, 2), extent(40, LEN_MAX)] {
            let at = node.search(e.logical).map_or(0, |i| i + 1);
            assert_eq!(node.insert_extent(at, e), Ok(()));
        }
        assert_eq!(
            node.extents().map(|e| e.logical.0).collect::<Vec<_>>(),
            [0, 10, 40]
        );
        assert_eq!(node.validate(LogicalBlock::ALL), Ok(()));
        assert_eq!(node.find(LogicalBlock(14)), Some(extent(10, 5)));
        assert_eq!(node.find(LogicalBlock(15)), None);
        let unwritten = Extent {
            is_unwritten: true,
            ..extent(20, LEN_MAX_UNWRITTEN)
        };
        assert_eq!(node.insert_extent(2, unwritten), Ok(()));
        assert_eq!(node.extent(2), Some(unwritten));
        assert_eq!(
            node.validate(LogicalBlock::ALL),
            Err(Corrupt::ExtentOrder(LogicalBlock(40)).into())
        );
        assert_eq!(
            node.insert_extent(4, extent(90_000, 1)),
            Err(DiskError::NoRoom("extent node"))
        );
        node.remove(2);
        node.remove(9);
        node.truncate(2);
        assert_eq!(
            node.extents().collect::<Vec<_>>(),
            [extent(0, 2), extent(10, 5)]
        );
        assert!(node.as_bytes()[36..].iter().all(|b| *b == 0));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut leaf = ExtentNode::init(vec![0; 1024], 0).expect("leaf");
        for bad in [
            extent(0, 0),
            extent(0, LEN_MAX + 1),
            Extent {
                is_unwritten: true,
                ..extent(0, LEN_MAX)
            },
            Extent {
                physical: PhysBlock(1 << 48),
                ..extent(0, 1)
            },
            extent(u64::from(u32::MAX), 2),
        ] {
            assert!(leaf.insert_extent(0, bad).is_err());
        }
        let index = |logical| Index {
            logical: LogicalBlock(logical),
            block: PhysBlock(9),
        };
        assert!(leaf.insert_index(0, index(0)).is_err());
        let mut node = ExtentNode::init(vec![0; 1024], 1).expect("node");
        assert!(node.insert_index(0, index(1 << 32)).is_err());
        assert!(leaf.insert_extent(1, extent(0, 1)).is_err());
        assert_eq!(leaf.entries(), 0);
        assert!(ExtentNode::init([0u8; 60], 6).is_err());
    }

    #[test]
    fn headers_are_checked() {
        let sound = ExtentNode::init([0u8; 60], 0).expect("root").bytes;
        let damaged = |offset: usize, value: u16| {
            let mut bytes = sound;
            put_le16(&mut bytes, offset, value);
            ExtentNode::new(bytes).err()
        };
        assert_eq!(damaged(0, 7), Some(Corrupt::ExtentMagic(7).into()));
        assert_eq!(
            damaged(2, 5),
            Some(Corrupt::ExtentEntries { entries: 5, max: 4 }.into())
        );
        assert_eq!(damaged(4, 5), Some(Corrupt::ExtentMax(5).into()));
        assert_eq!(damaged(4, 0), Some(Corrupt::ExtentMax(0).into()));
        assert_eq!(damaged(6, 6), Some(Corrupt::ExtentDepth(6).into()));
        assert_eq!(
            damaged(6, 1),
            Some(Corrupt::ExtentEntries { entries: 0, max: 4 }.into())
        );
        assert!(ExtentNode::new([0u8; 20]).is_err());
    }

    #[test]
    fn indexes_and_ranges() {
        let mut node = ExtentNode::init(vec![0; 1024], 1).expect("node");
        for (i, logical) in [(0, 0), (1, 100), (2, 200)] {
            let entry = Index {
                logical: LogicalBlock(logical),
                block: PhysBlock(0xabcd_0000_0007),
            };
            assert_eq!(node.insert_index(i, entry), Ok(()));
            assert_eq!(node.index(i), Some(entry));
        }
        assert_eq!(node.search(LogicalBlock(199)), Some(1));
        let (start, end) = (LogicalBlock(200), LogicalBlock::ALL.end);
        assert_eq!(
            node.child_range(1, LogicalBlock::ALL),
            LogicalBlock(100)..start
        );
        assert_eq!(node.child_range(2, LogicalBlock::ALL), start..end);
        assert_eq!(node.validate(LogicalBlock::ALL), Ok(()));
        let short = LogicalBlock(0)..LogicalBlock(150);
        assert_eq!(
            node.validate(short),
            Err(Corrupt::ExtentOrder(start).into())
        );
        node.update_checksum(InodeSeed(3));
        assert_eq!(node.verify_checksum(InodeSeed(3)), Ok(()));
        node.remove(0);
        assert!(node.verify_checksum(InodeSeed(3)).is_err());
    }
}
