//! The superblock, in its three versions.
//!
//! Formats 3.5 and 3.6 have their own magic words. A third one, of reiserfsprogs' `-j` and `-s`,
//! stands for either with a journal that has another size or lies on another device ("JR"); a field
//! then tells the format. The newer format has more fields (UUID, label), which are zeros before.

use crate::bytes::{array, le16, le32};
use crate::error::{Corrupt, Result, need};
use crate::hash::NameHash;
use crate::key::KeyVersion;

/// Where the superblock lies, in bytes; the first 64 KiB are left to boot loaders.
pub const SUPERBLOCK_OFFSET: u64 = 64 << 10;

/// Where it lay before format 3.5.10, in bytes.
pub const OLD_SUPERBLOCK_OFFSET: u64 = 8 << 10;

/// Where one is looked for.
pub const SUPERBLOCK_OFFSETS: [u64; 2] = [SUPERBLOCK_OFFSET, OLD_SUPERBLOCK_OFFSET];

/// Its size in bytes.
pub const SUPERBLOCK_SIZE: usize = 204;

/// The levels that a tree has at most, leaves included.
pub const LEVELS_MAX: u16 = 5;

const MAGIC_3_5: &[u8; 8] = b"ReIsErFs";
const MAGIC_3_6: &[u8; 9] = b"ReIsEr2Fs";
const MAGIC_JR: &[u8; 9] = b"ReIsEr3Fs";

/// The state of a file system that was unmounted, and of one that is mounted.
const CLEAN: u16 = 1;
const NOT_CLEAN: u16 = 2;

/// The size of what format 3.5 has.
const OLD_SIZE: usize = 76;

/// Flag: the attributes in stat data are good (they were cleared once).
const ATTRIBUTES_CLEARED: u32 = 1;

/// A superblock, in bytes of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    bytes: [u8; SUPERBLOCK_SIZE],
    version: KeyVersion,
    has_own_journal_size: bool,
}

/// Where the journal lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPlace {
    /// First block of the log, on the journal's device.
    pub start: u32,
    /// Blocks of the log; the header is the block behind them.
    pub blocks: u32,
    /// It lies on another device.
    pub is_external: bool,
    /// The blocks of the file system that are kept for a journal: first one and number.
    pub reserved: (u32, u32),
}

impl JournalPlace {
    /// True for a block that no item and no file may have.
    pub fn reserves(&self, block: u32) -> bool {
        let (start, blocks) = self.reserved;
        block.checked_sub(start).is_some_and(|at| at < blocks)
    }
}

/// True when these bytes of a superblock's place begin a superblock of any version.
pub fn is_superblock(bytes: &[u8]) -> bool {
    version_of(bytes).is_some()
}

/// The format, and whether it is the one with a journal of its own size.
fn version_of(bytes: &[u8]) -> Option<(KeyVersion, bool)> {
    let magic: [u8; 10] = array(bytes, 52);
    if magic.starts_with(MAGIC_3_6) {
        return Some((KeyVersion::V3_6, false));
    }
    if magic.starts_with(MAGIC_JR) {
        let version = match le16(bytes, 72) {
            0 => KeyVersion::V3_5,
            _ => KeyVersion::V3_6,
        };
        return Some((version, true));
    }
    let is_old = magic.starts_with(MAGIC_3_5);
    is_old.then_some((KeyVersion::V3_5, false))
}

impl Superblock {
    /// Takes the bytes of a superblock's place; they must have its magic word.
    pub fn parse(bytes: &[u8]) -> Result<Superblock> {
        need("superblock", SUPERBLOCK_SIZE, bytes.len())?;
        let Some((version, has_own_journal_size)) = version_of(bytes) else {
            return Err(Corrupt::SuperblockMagic(array(bytes, 52)).into());
        };
        Ok(Superblock {
            bytes: array(bytes, 0),
            version,
            has_own_journal_size,
        })
    }

    /// Checks what the fields say against each other.
    pub fn validate(&self) -> Result<()> {
        let block_size = le16(&self.bytes, 44);
        if !block_size.is_power_of_two() || !(512..=32768).contains(&block_size) {
            return Err(Corrupt::BlockSize(block_size).into());
        }
        let blocks = self.block_count();
        if u64::from(blocks) <= OLD_SUPERBLOCK_OFFSET / u64::from(block_size) {
            return Err(Corrupt::BlockCount(blocks).into());
        }
        if self.free_blocks() > blocks {
            return Err(Corrupt::FreeBlockCount(self.free_blocks()).into());
        }
        let levels = self.levels();
        if !(1..=LEVELS_MAX).contains(&levels) {
            return Err(Corrupt::TreeHeight(le16(&self.bytes, 68)).into());
        }
        let root = self.root_block();
        if root == 0 || root >= blocks {
            return Err(Corrupt::RootBlock(root).into());
        }
        let journal = self.journal();
        let end = u64::from(journal.start) + u64::from(journal.blocks) + 1;
        let is_sound = journal.blocks > 2
            && (journal.is_external || end <= u64::from(blocks) && journal.start > 2);
        if !is_sound {
            let JournalPlace { start, blocks, .. } = journal;
            return Err(Corrupt::JournalPlace { start, blocks }.into());
        }
        Ok(())
    }

    /// The format of what is new.
    pub fn version(&self) -> KeyVersion {
        self.version
    }

    /// The journal has another size than the usual one, or lies on another device.
    pub fn has_own_journal_size(&self) -> bool {
        self.has_own_journal_size
    }

    /// Number of blocks.
    pub fn block_count(&self) -> u32 {
        le32(&self.bytes, 0)
    }

    /// Number of free blocks.
    pub fn free_blocks(&self) -> u32 {
        le32(&self.bytes, 4)
    }

    /// The root of the tree.
    pub fn root_block(&self) -> u32 {
        le32(&self.bytes, 8)
    }

    /// Where the journal lies.
    pub fn journal(&self) -> JournalPlace {
        let (start, blocks) = (le32(&self.bytes, 12), le32(&self.bytes, 20));
        // Where mkreiserfs was given a file, there is no number of a device.
        let usual_start = self.first_bitmap() + 1;
        let is_external =
            self.has_own_journal_size && (self.journal_device() != 0 || start != usual_start);
        let kept = u32::from(le16(&self.bytes, 74));
        let reserved = match (is_external, self.has_own_journal_size) {
            // Where a usual journal would be.
            (true, _) => (usual_start, kept),
            (false, true) => (start, kept.max(blocks.saturating_add(1))),
            (false, false) => (start, blocks.saturating_add(1)),
        };
        JournalPlace {
            start,
            blocks,
            is_external,
            reserved,
        }
    }

    /// The usual place of the first bitmap: behind the superblock.
    fn first_bitmap(&self) -> u32 {
        let block_size = u64::from(le16(&self.bytes, 44)).max(1);
        (SUPERBLOCK_OFFSET / block_size) as u32 + 1
    }

    /// Blocks that a transaction changes at most.
    pub fn transaction_max(&self) -> u32 {
        le32(&self.bytes, 24)
    }

    /// The device number of the journal's device; 0 for the file system's own.
    pub fn journal_device(&self) -> u32 {
        le32(&self.bytes, 16)
    }

    /// A number that was drawn when the file system was made, and that a journal on another device
    /// has too.
    pub fn journal_magic(&self) -> u32 {
        le32(&self.bytes, 28)
    }

    /// Size of a block in bytes.
    pub fn block_size(&self) -> u32 {
        u32::from(le16(&self.bytes, 44))
    }

    /// It was unmounted, so that the journal holds nothing that is not in its place.
    pub fn is_clean(&self) -> bool {
        le16(&self.bytes, 50) == CLEAN
    }

    /// What reiserfsck has found or left: 0 for nothing.
    pub fn check_state(&self) -> u16 {
        le16(&self.bytes, 62)
    }

    /// How the entries of directories are sorted; `None` where the superblock does not say.
    pub fn hash(&self) -> Option<NameHash> {
        NameHash::from_code(le32(&self.bytes, 64))
    }

    /// The levels of the tree, the leaves' included: the root's level.
    pub fn levels(&self) -> u16 {
        le16(&self.bytes, 68).saturating_sub(1)
    }

    /// The file attributes (chattr) in stat data are good.
    pub fn has_attributes(&self) -> bool {
        self.version == KeyVersion::V3_6 && le32(&self.bytes, 80) & ATTRIBUTES_CLEARED != 0
    }

    /// The generation that the next new object gets.
    pub fn inode_generation(&self) -> u32 {
        match self.version {
            KeyVersion::V3_5 => 0,
            KeyVersion::V3_6 => le32(&self.bytes, 76),
        }
    }

    /// The UUID; zeros in format 3.5.
    pub fn uuid(&self) -> [u8; 16] {
        match self.version {
            KeyVersion::V3_5 => [0; 16],
            KeyVersion::V3_6 => array(&self.bytes, 84),
        }
    }

    /// The label, filled up with zeros.
    pub fn label(&self) -> [u8; 16] {
        match self.version {
            KeyVersion::V3_5 => [0; 16],
            KeyVersion::V3_6 => array(&self.bytes, 100),
        }
    }

    /// Mounts since the last check, and how many there may be (0: any number).
    pub fn mount_counts(&self) -> (u16, u16) {
        match self.version {
            KeyVersion::V3_5 => (0, 0),
            KeyVersion::V3_6 => (le16(&self.bytes, 116), le16(&self.bytes, 118)),
        }
    }

    /// When it was checked last, in seconds since 1970; 0 for never or unknown.
    pub fn checked(&self) -> u32 {
        match self.version {
            KeyVersion::V3_5 => 0,
            KeyVersion::V3_6 => le32(&self.bytes, 120),
        }
    }

    /// How many words the map of object numbers has, and may have.
    pub fn object_ids(&self) -> (u16, u16) {
        (le16(&self.bytes, 48), le16(&self.bytes, 46))
    }

    /// Where the map of object numbers begins, in bytes from the superblock on.
    pub fn object_ids_offset(&self) -> usize {
        match self.version {
            KeyVersion::V3_5 => OLD_SIZE,
            KeyVersion::V3_6 => SUPERBLOCK_SIZE,
        }
    }

    /// Puts the superblock to the start of bytes, as much of it as its format has.
    pub fn write_to(&self, bytes: &mut [u8]) {
        let length = self.object_ids_offset();
        if let Some(place) = bytes.get_mut(..length) {
            place.copy_from_slice(&self.bytes[..length]);
        }
    }

    /// Sets the number of free blocks.
    pub fn set_free_blocks(&mut self, blocks: u32) {
        self.put32(4, blocks);
    }

    /// Sets the root of the tree and its levels.
    pub fn set_root(&mut self, block: u32, levels: u16) {
        self.put32(8, block);
        self.put16(68, levels + 1);
    }

    /// Notes that it is unmounted, or mounted.
    pub fn set_clean(&mut self, is_clean: bool) {
        self.put16(50, if is_clean { CLEAN } else { NOT_CLEAN });
    }

    /// Notes that there are errors, or none: what reiserfsck sets.
    pub fn set_check_state(&mut self, state: u16) {
        self.put16(62, state);
    }

    /// Sets how many words the map of object numbers has.
    pub fn set_object_ids(&mut self, words: u16) {
        self.put16(48, words);
    }

    /// Sets the generation that the next new object gets, where the format has one.
    pub fn set_inode_generation(&mut self, generation: u32) {
        if self.version == KeyVersion::V3_6 {
            self.put32(76, generation);
        }
    }

    /// Counts a mount.
    pub fn count_mount(&mut self) {
        if self.version == KeyVersion::V3_6 {
            self.put16(116, self.mount_counts().0.saturating_add(1));
        }
    }

    /// Sets the label; false where it is too long, or the format has none.
    pub fn set_label(&mut self, label: &[u8]) -> bool {
        let is_there = self.version == KeyVersion::V3_6;
        let place = self.bytes.get_mut(100..116).filter(|_| is_there);
        let Some(place) = place.filter(|place| label.len() <= place.len()) else {
            return false;
        };
        place.fill(0);
        place[..label.len()].copy_from_slice(label);
        true
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// As mkreiserfs makes it: 4096-byte blocks, 16384 of them.
    pub(crate) fn sample(magic: &[u8]) -> [u8; SUPERBLOCK_SIZE] {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        for (at, value) in [
            (0, 16384_u32),
            (4, 8173),
            (8, 8211),
            (12, 18),
            (20, 8192),
            (24, 1024),
            (64, 3),
            (80, 1),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        for (at, value) in [(44, 4096_u16), (50, 1), (68, 2), (72, 2)] {
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        bytes[52..52 + magic.len()].copy_from_slice(magic);
        bytes[84..100].fill(0xab);
        bytes[100..104].copy_from_slice(b"data");
        bytes
    }

    #[test]
    fn a_usual_one() {
        let superblock = Superblock::parse(&sample(MAGIC_3_6)).expect("it has its magic");
        assert_eq!(superblock.validate(), Ok(()));
        assert_eq!(superblock.version(), KeyVersion::V3_6);
        assert_eq!((superblock.root_block(), superblock.levels()), (8211, 1));
        assert_eq!(superblock.hash(), Some(NameHash::R5));
        assert!(superblock.is_clean() && superblock.has_attributes());
        assert_eq!(&superblock.label()[..5], b"data\0");
        let journal = superblock.journal();
        assert_eq!((journal.start, journal.blocks), (18, 8192));
        assert!(!journal.is_external && journal.reserves(18) && journal.reserves(18 + 8192));
        assert!(!journal.reserves(17) && !journal.reserves(18 + 8193));
    }

    #[test]
    fn versions() {
        let old = Superblock::parse(&sample(MAGIC_3_5)).expect("it has its magic");
        assert_eq!(old.version(), KeyVersion::V3_5);
        assert_eq!((old.uuid(), old.has_attributes()), ([0; 16], false));
        let mut bytes = sample(MAGIC_JR);
        let own = Superblock::parse(&bytes).expect("it has its magic");
        assert!(own.has_own_journal_size() && !own.journal().is_external);
        bytes[16] = 7;
        let external = Superblock::parse(&bytes).expect("it has its magic");
        assert!(external.journal().is_external);
        (bytes[12], bytes[16]) = (0, 0);
        let in_a_file = Superblock::parse(&bytes).expect("it has its magic");
        assert!(in_a_file.journal().is_external);
        assert!(Superblock::parse(&sample(b"ReIsEr4")).is_err());
    }

    #[test]
    fn what_is_set_is_read() {
        let mut superblock = Superblock::parse(&sample(MAGIC_3_6)).expect("it has its magic");
        superblock.set_free_blocks(77);
        superblock.set_root(99, 3);
        superblock.set_clean(false);
        superblock.set_check_state(1);
        superblock.set_object_ids(6);
        superblock.set_inode_generation(5);
        superblock.count_mount();
        assert!(superblock.set_label(b"name") && !superblock.set_label(&[b'x'; 17]));
        let mut bytes = [7; SUPERBLOCK_SIZE + 1];
        superblock.write_to(&mut bytes);
        assert_eq!(bytes[SUPERBLOCK_SIZE], 7);
        let read = Superblock::parse(&bytes).expect("it has its magic");
        assert_eq!(read, superblock);
        assert_eq!(
            (read.free_blocks(), read.root_block(), read.levels()),
            (77, 99, 3)
        );
        assert_eq!((read.is_clean(), read.check_state()), (false, 1));
        assert_eq!((read.object_ids().0, read.inode_generation()), (6, 5));
        assert_eq!(
            (&read.label()[..5], read.mount_counts().0),
            (&b"name\0"[..], 1)
        );
        let mut old = Superblock::parse(&sample(MAGIC_3_5)).expect("it has its magic");
        old.set_inode_generation(5);
        assert!(!old.set_label(b"name"));
        let mut bytes = [7; SUPERBLOCK_SIZE];
        old.write_to(&mut bytes);
        assert!(bytes[OLD_SIZE..].iter().all(|&byte| byte == 7));
    }

    #[test]
    fn contradictions() {
        for (at, value) in [
            (0, 0_u32),
            (4, 99_999),
            (8, 16384),
            (8, 0),
            (12, 16384),
            (44, 3),
            (68, 8),
            (68, 0),
        ] {
            let mut bytes = sample(MAGIC_3_6);
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let superblock = Superblock::parse(&bytes).expect("it has its magic");
            assert!(superblock.validate().is_err(), "{value} at {at}");
        }
    }
}
