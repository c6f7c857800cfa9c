//! Extended attributes: a list of entries that grows up, and their values that grow down.
//!
//! They lie in two places of an inode: behind its fields ([`XattrRegion::in_inode`]) and in one
//! block of their own, which equal inodes may share ([`XattrRegion::block`]). An entry holds a
//! name without its prefix (an index stands for that), and where the value lies: an offset from
//! the first entry in an inode, from the block's start in a block. A value may also be the data of
//! another inode (`ea_inode`); it is recognised here, and its data is the caller's to read. The
//! entries of a block are sorted by (index, name length, name).
//!
//! Every entry has a hash of its name and value, and a block a hash over those, from which the
//! kernel finds blocks to share. The name's part was once computed from signed characters on most
//! machines; today it is unsigned, and readers take both.
//!
//! A region is checked as a whole when it is made, so its entries come without further errors.
//!
//! Reference: Linux `Documentation/filesystems/ext4/attributes.rst`.

use crate::bytes::{Field, clip, get_array, le16, le32, put_bytes, put_le16, put_le32, zero};
use crate::checksum::{FsSeed, crc32c};
use crate::error::{Checksummed, Corrupt, DiskError, Result, check_sum, need};
use crate::units::{Ino, PhysBlock};

/// The magic of both places.
pub const MAGIC: u32 = 0xEA02_0000;
/// The longest name, prefix not counted.
pub const NAME_MAX: usize = 255;

const ENTRY_SIZE: usize = 16;
const END_MARK_SIZE: usize = 4;
const INODE_HEADER: usize = 4;
const BLOCK_HEADER: usize = 32;
const CHECKSUM_OFFSET: usize = 0x10;
const OFFSET_MAX: usize = u16::MAX as usize;

/// Stands for the prefix of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameIndex(pub u8);

impl NameIndex {
    /// `user.`
    pub const USER: NameIndex = NameIndex(1);
    /// `system.posix_acl_access`, the whole name.
    pub const POSIX_ACL_ACCESS: NameIndex = NameIndex(2);
    /// `system.posix_acl_default`, the whole name.
    pub const POSIX_ACL_DEFAULT: NameIndex = NameIndex(3);
    /// `trusted.`
    pub const TRUSTED: NameIndex = NameIndex(4);
    /// `security.`
    pub const SECURITY: NameIndex = NameIndex(6);
    /// `system.`
    pub const SYSTEM: NameIndex = NameIndex(7);
    /// `system.richacl`, the whole name.
    pub const RICHACL: NameIndex = NameIndex(8);
    /// Encryption context (not shown to users).
    pub const ENCRYPTION: NameIndex = NameIndex(9);
    /// `gnu.`, of the Hurd.
    pub const HURD: NameIndex = NameIndex(10);

    /// What it stands for; `None` when it is not shown to users or unknown.
    pub fn prefix(self) -> Option<&'static str> {
        PREFIXES
            .iter()
            .find(|(index, _)| *index == self)
            .map(|(_, prefix)| *prefix)
    }

    /// The full name of an attribute; `None` when it is not shown to users.
    pub fn join(self, name: &[u8]) -> Option<Vec<u8>> {
        let mut full = self.prefix()?.as_bytes().to_vec();
        full.extend_from_slice(name);
        Some(full)
    }

    /// Splits a full name into index and rest; `None` when no prefix matches, the rest is empty
    /// behind a prefix that wants one, or too long.
    pub fn split(full: &[u8]) -> Option<(NameIndex, &[u8])> {
        let whole = PREFIXES
            .iter()
            .find(|(_, p)| !p.ends_with('.') && p.as_bytes() == full);
        if let Some((index, _)) = whole {
            return Some((*index, &[]));
        }
        PREFIXES
            .iter()
            .filter(|(_, p)| p.ends_with('.'))
            .find_map(|(index, prefix)| {
                let rest = full.strip_prefix(prefix.as_bytes())?;
                (1..=NAME_MAX)
                    .contains(&rest.len())
                    .then_some((*index, rest))
            })
    }
}

const PREFIXES: [(NameIndex, &str); 8] = [
    (NameIndex::USER, "user."),
    (NameIndex::POSIX_ACL_ACCESS, "system.posix_acl_access"),
    (NameIndex::POSIX_ACL_DEFAULT, "system.posix_acl_default"),
    (NameIndex::TRUSTED, "trusted."),
    (NameIndex::SECURITY, "security."),
    (NameIndex::SYSTEM, "system."),
    (NameIndex::RICHACL, "system.richacl"),
    (NameIndex::HURD, "gnu."),
];

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrValue<'a> {
    /// Here.
    Bytes(&'a [u8]),
    /// In the data of another inode.
    Inode {
        /// The inode.
        ino: Ino,
        /// Bytes of the value.
        size: u32,
        /// The entry's hash, which covers the value's; kept when the entry is moved.
        entry_hash: u32,
    },
}

/// One attribute, as found or as to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// Stands for the prefix.
    pub index: NameIndex,
    /// The name behind the prefix.
    pub name: &'a [u8],
    /// The value.
    pub value: XattrValue<'a>,
}

impl Xattr<'_> {
    fn entry_size(&self) -> usize {
        (ENTRY_SIZE + self.name.len()).next_multiple_of(4)
    }

    fn value_size(&self) -> usize {
        match self.value {
            XattrValue::Bytes(bytes) => bytes.len().next_multiple_of(4),
            XattrValue::Inode { .. } => 0,
        }
    }

    fn sort_key(&self) -> (NameIndex, usize, &[u8]) {
        (self.index, self.name.len(), self.name)
    }
}

/// A checked region of attributes.
#[derive(Clone, Copy, Debug)]
pub struct XattrRegion<'a> {
    bytes: &'a [u8],
    /// Where the first entry is.
    entries_at: usize,
    /// Where value offsets count from.
    values_from: usize,
    /// Behind the end mark of the list.
    list_end: usize,
}

impl<'a> XattrRegion<'a> {
    /// The attributes in an inode: what [`crate::inode::Inode::xattr_bytes`] gives. `None` when
    /// the area was never used.
    pub fn in_inode(area: &'a [u8]) -> Result<Option<XattrRegion<'a>>> {
        if area.len() < INODE_HEADER + END_MARK_SIZE || le32(area, 0) != MAGIC {
            return Ok(None);
        }
        XattrRegion::checked(area, INODE_HEADER, INODE_HEADER).map(Some)
    }

    /// The attributes in a block, whose header is checked too.
    pub fn block(block: &'a [u8]) -> Result<XattrRegion<'a>> {
        need("xattr block", BLOCK_HEADER + END_MARK_SIZE, block.len())?;
        if le32(block, 0) != MAGIC {
            return Err(Corrupt::XattrMagic(le32(block, 0)).into());
        }
        if le32(block, 8) != 1 {
            return Err(Corrupt::XattrBlocks(le32(block, 8)).into());
        }
        XattrRegion::checked(block, BLOCK_HEADER, 0)
    }

    fn checked(bytes: &'a [u8], entries_at: usize, values_from: usize) -> Result<XattrRegion<'a>> {
        let mut at = entries_at;
        loop {
            if at + END_MARK_SIZE > bytes.len() {
                return Err(Corrupt::XattrEntry(at as u32).into());
            }
            if le32(bytes, at) == 0 {
                break;
            }
            let name_len = usize::from(u8::get_le(bytes, at));
            let name = clip(bytes, at + ENTRY_SIZE..at + ENTRY_SIZE + name_len);
            if name.len() != name_len || name.contains(&0) {
                return Err(Corrupt::XattrEntry(at as u32).into());
            }
            at = (at + ENTRY_SIZE + name_len).next_multiple_of(4);
        }
        let list_end = at + END_MARK_SIZE;
        let region = XattrRegion {
            bytes,
            entries_at,
            values_from,
            list_end,
        };
        for raw in region.raw_entries() {
            let start = values_from + usize::from(le16(bytes, raw + 2));
            let size = le32(bytes, raw + 8);
            let end = start.saturating_add(size as usize);
            let is_here = le32(bytes, raw + 4) == 0 && size > 0;
            if is_here && (start < list_end || end > bytes.len()) {
                let offset = u32::from(le16(bytes, raw + 2));
                return Err(Corrupt::XattrValue { offset, size }.into());
            }
        }
        Ok(region)
    }

    fn raw_entries(&self) -> impl Iterator<Item = usize> + use<'a> {
        let (bytes, end) = (self.bytes, self.list_end - END_MARK_SIZE);
        let mut at = self.entries_at;
        core::iter::from_fn(move || {
            let this = (at < end).then_some(at)?;
            let name_len = usize::from(u8::get_le(bytes, this));
            at = (this + ENTRY_SIZE + name_len).next_multiple_of(4);
            Some(this)
        })
    }

    fn decode(&self, at: usize) -> Xattr<'a> {
        let [name_len, index] = get_array(self.bytes, at);
        let name = clip(
            self.bytes,
            at + ENTRY_SIZE..at + ENTRY_SIZE + usize::from(name_len),
        );
        let (ino, size) = (Ino(le32(self.bytes, at + 4)), le32(self.bytes, at + 8));
        let value = if ino.0 != 0 {
            XattrValue::Inode {
                ino,
                size,
                entry_hash: le32(self.bytes, at + 12),
            }
        } else {
            let start = self.values_from + usize::from(le16(self.bytes, at + 2));
            XattrValue::Bytes(clip(self.bytes, start..start.saturating_add(size as usize)))
        };
        Xattr {
            index: NameIndex(index),
            name,
            value,
        }
    }

    /// The attributes, as they are stored.
    pub fn entries(&self) -> impl Iterator<Item = Xattr<'a>> + use<'a> {
        let region = *self;
        self.raw_entries().map(move |at| region.decode(at))
    }

    /// The attribute of this name.
    pub fn find(&self, index: NameIndex, name: &[u8]) -> Option<Xattr<'a>> {
        self.entries().find(|x| x.index == index && x.name == name)
    }

    /// How many inodes share the block. Only for blocks.
    pub fn refcount(&self) -> u32 {
        le32(self.bytes, 4)
    }

    /// The block's hash; 0 when it may not be shared. Only for blocks.
    pub fn block_hash(&self) -> u32 {
        le32(self.bytes, 0xC)
    }

    /// Checks order and hashes, as e2fsck does; a mount need not.
    pub fn verify_hashes(&self) -> Result<()> {
        let is_block = self.entries_at == BLOCK_HEADER;
        let mut last: Option<Xattr<'a>> = None;
        for at in self.raw_entries() {
            let entry = self.decode(at);
            if is_block && last.is_some_and(|l| l.sort_key() >= entry.sort_key()) {
                return Err(Corrupt::XattrOrder(at as u32).into());
            }
            last = Some(entry);
            let stored = le32(self.bytes, at + 12);
            let XattrValue::Bytes(value) = entry.value else {
                continue;
            };
            let is_exempt = !is_block && stored == 0;
            let computed = entry_hash(entry.name, value);
            if stored != computed && stored != entry_hash_signed(entry.name, value) && !is_exempt {
                return Err(Corrupt::XattrHash { stored, computed }.into());
            }
        }
        // libext2fs does not compute the block's hash: its blocks are never shared.
        let (stored, computed) = (self.block_hash(), self.compute_block_hash());
        if is_block && stored != 0 && stored != computed {
            return Err(Corrupt::XattrHash { stored, computed }.into());
        }
        Ok(())
    }

    fn compute_block_hash(&self) -> u32 {
        block_hash(self.raw_entries().map(|at| le32(self.bytes, at + 12)))
    }
}

fn hash_name(name: &[u8], widen: impl Fn(u8) -> u32) -> u32 {
    name.iter()
        .fold(0u32, |hash, c| hash.rotate_left(5) ^ widen(*c))
}

fn hash_value(hash: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(hash, |hash, chunk| {
        let mut word = [0; 4];
        put_bytes(&mut word, 0, chunk);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// An entry's hash, as it is written today.
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash_value(hash_name(name, u32::from), value)
}

/// An entry's hash with the name's characters taken as signed, as it was written once.
pub fn entry_hash_signed(name: &[u8], value: &[u8]) -> u32 {
    let signed = |c: u8| i32::from(c.cast_signed()).cast_unsigned();
    hash_value(hash_name(name, signed), value)
}

/// The hash of an entry whose value lies in an inode; `value_hash` is that inode's, the crc32c of
/// the value from the file system's seed.
pub fn entry_hash_of_inode(name: &[u8], value_hash: u32) -> u32 {
    entry_hash(name, &value_hash.to_le_bytes())
}

/// A block's hash from its entries'. An entry without hash makes it 0: never to be shared.
pub fn block_hash(entries: impl Iterator<Item = u32>) -> u32 {
    let mut hash = 0u32;
    for entry in entries {
        if entry == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ entry;
    }
    hash
}

/// The checksum of an attribute block that lies at `at`.
pub fn block_checksum(seed: FsSeed, at: PhysBlock, block: &[u8]) -> u32 {
    let crc = crc32c(seed.0, &at.0.to_le_bytes());
    let crc = crc32c(crc32c(crc, clip(block, 0..CHECKSUM_OFFSET)), &[0; 4]);
    crc32c(crc, clip(block, CHECKSUM_OFFSET + 4..block.len()))
}

/// Compares an attribute block's checksum. Only with `metadata_csum`.
pub fn verify_block_checksum(seed: FsSeed, at: PhysBlock, block: &[u8]) -> Result<()> {
    let stored = le32(block, CHECKSUM_OFFSET);
    check_sum(
        Checksummed::XattrBlock,
        stored,
        block_checksum(seed, at, block),
    )
}

/// Sets an attribute block's checksum. Only with `metadata_csum`; call it last.
pub fn update_block_checksum(seed: FsSeed, at: PhysBlock, block: &mut [u8]) {
    let crc = block_checksum(seed, at, block);
    put_le32(block, CHECKSUM_OFFSET, crc);
}

/// Sets how many inodes share an attribute block.
pub fn set_refcount(block: &mut [u8], refcount: u32) {
    put_le32(block, 4, refcount);
}

/// The bytes that these attributes need, end mark included, header not.
fn size_of(attributes: &[Xattr<'_>]) -> usize {
    attributes
        .iter()
        .map(|x| x.entry_size() + x.value_size())
        .sum::<usize>()
        + END_MARK_SIZE
}

/// Whether the attributes fit in an inode's area of `area_len` bytes.
pub fn fits_in_inode(area_len: usize, attributes: &[Xattr<'_>]) -> bool {
    INODE_HEADER + size_of(attributes) <= area_len & !3
}

/// How long the value of inline data (the attribute "system.data") can be in an inode's area of
/// `area_len` bytes beside these attributes; `None` where not even an empty one fits.
pub fn inline_value_max(area_len: usize, others: &[Xattr<'_>]) -> Option<usize> {
    let empty = Xattr {
        index: NameIndex::SYSTEM,
        name: b"data",
        value: XattrValue::Bytes(&[]),
    };
    let used = INODE_HEADER + size_of(others) + empty.entry_size();
    (area_len & !3).checked_sub(used)
}

/// Whether the attributes fit in a block.
pub fn fits_in_block(block_size: usize, attributes: &[Xattr<'_>]) -> bool {
    BLOCK_HEADER + size_of(attributes) <= block_size & !3
}

/// Fills an inode's area with these attributes, in any order; with none it is zeroed. Nothing is
/// changed when they do not fit.
pub fn build_in_inode(area: &mut [u8], attributes: &[Xattr<'_>]) -> Result<()> {
    if attributes.is_empty() {
        area.fill(0);
        return Ok(());
    }
    if !fits_in_inode(area.len(), attributes) {
        return Err(DiskError::NoRoom("inode's xattr area"));
    }
    check_names(attributes)?;
    area.fill(0);
    put_le32(area, 0, MAGIC);
    put_list(area, INODE_HEADER, INODE_HEADER, attributes);
    Ok(())
}

/// Fills a block with these attributes, in any order, shared by one inode. The checksum is the
/// caller's to set. Nothing is changed when they do not fit.
pub fn build_block(block: &mut [u8], attributes: &[Xattr<'_>]) -> Result<()> {
    if block.len() > OFFSET_MAX + 1 || !fits_in_block(block.len(), attributes) {
        return Err(DiskError::NoRoom("xattr block"));
    }
    check_names(attributes)?;
    block.fill(0);
    put_le32(block, 0, MAGIC);
    put_le32(block, 4, 1);
    put_le32(block, 8, 1);
    let hash = put_list(block, BLOCK_HEADER, 0, attributes);
    put_le32(block, 0xC, hash);
    Ok(())
}

fn check_names(attributes: &[Xattr<'_>]) -> Result<()> {
    for x in attributes {
        let is_end_mark = x.name.is_empty() && x.index.0 == 0;
        if x.name.len() > NAME_MAX || x.name.contains(&0) || is_end_mark {
            let value = x.name.len() as u64;
            return Err(DiskError::Unrepresentable {
                what: "xattr name",
                value,
            });
        }
    }
    Ok(())
}

/// Writes entries up from `entries_at` and values down from the end; the block hash.
fn put_list(b: &mut [u8], entries_at: usize, values_from: usize, attributes: &[Xattr<'_>]) -> u32 {
    let mut sorted: Vec<&Xattr<'_>> = attributes.iter().collect();
    sorted.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    let (mut at, mut values) = (entries_at, b.len() & !3);
    let mut hashes = Vec::with_capacity(sorted.len());
    for x in sorted {
        put_bytes(b, at, &[x.name.len() as u8, x.index.0]);
        let hash = match x.value {
            XattrValue::Inode {
                ino,
                size,
                entry_hash,
            } => {
                put_le32(b, at + 4, ino.0);
                put_le32(b, at + 8, size);
                entry_hash
            }
            XattrValue::Bytes(value) => {
                if !value.is_empty() {
                    values -= x.value_size();
                    put_le16(b, at + 2, (values - values_from) as u16);
                    put_bytes(b, values, value);
                }
                put_le32(b, at + 8, value.len() as u32);
                entry_hash(x.name, value)
            }
        };
        put_le32(b, at + 12, hash);
        put_bytes(b, at + ENTRY_SIZE, x.name);
        at += x.entry_size();
        hashes.push(hash);
    }
    zero(b, at..at + END_MARK_SIZE);
    block_hash(hashes.into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here<'a>(index: NameIndex, name: &'a [u8], value: &'a [u8]) -> Xattr<'a> {
        Xattr {
            index,
            name,
            value: XattrValue::Bytes(value),
        }
    }

    #[test]
    fn names() {
        for (full, index, rest) in [
            (&b"user.a"[..], NameIndex::USER, &b"a"[..]),
            (b"system.posix_acl_access", NameIndex::POSIX_ACL_ACCESS, b""),
            (
                b"system.posix_acl_default",
                NameIndex::POSIX_ACL_DEFAULT,
                b"",
            ),
            (b"system.data", NameIndex::SYSTEM, b"data"),
            (b"system.richacl", NameIndex::RICHACL, b""),
            (b"trusted.x.y", NameIndex::TRUSTED, b"x.y"),
            (b"security.selinux", NameIndex::SECURITY, b"selinux"),
        ] {
            assert_eq!(NameIndex::split(full), Some((index, rest)));
            assert_eq!(index.join(rest).as_deref(), Some(full));
        }
        for bad in [&b"user."[..], b"", b"user", b"other.x"] {
            assert_eq!(NameIndex::split(bad), None);
        }
        assert_eq!(
            NameIndex::split(&[b"user.", &[b'x'; 256][..]].concat()),
            None
        );
        assert_eq!(NameIndex::ENCRYPTION.join(b"c"), None);
    }

    fn samples() -> Vec<Xattr<'static>> {
        vec![
            here(NameIndex::SECURITY, b"selinux", b"context\0"),
            here(NameIndex::USER, b"longer", b""),
            here(NameIndex::USER, b"b\xc3\xa9", b"12345"),
            here(NameIndex::POSIX_ACL_ACCESS, b"", b"1234"),
            Xattr {
                index: NameIndex::USER,
                name: b"big",
                value: XattrValue::Inode {
                    ino: Ino(99),
                    size: 70_000,
                    entry_hash: 0xabc,
                },
            },
        ]
    }

    fn sorted() -> Vec<Xattr<'static>> {
        let mut all = samples();
        all.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        all
    }

    #[test]
    fn block_round_trip() {
        let mut block = vec![0xee; 1024];
        build_block(&mut block, &samples()).expect("fits");
        let region = XattrRegion::block(&block).expect("sound");
        assert_eq!(region.entries().collect::<Vec<_>>(), sorted());
        assert_eq!((region.refcount(), region.verify_hashes()), (1, Ok(())));
        assert_ne!(region.block_hash(), 0);
        assert!(region.find(NameIndex::USER, b"longer").is_some());
        assert!(region.find(NameIndex::TRUSTED, b"longer").is_none());
        set_refcount(&mut block, 3);
        update_block_checksum(FsSeed(1), PhysBlock(77), &mut block);
        assert_eq!(
            verify_block_checksum(FsSeed(1), PhysBlock(77), &block),
            Ok(())
        );
        assert!(verify_block_checksum(FsSeed(1), PhysBlock(78), &block).is_err());
        block[1023] ^= 1;
        assert!(verify_block_checksum(FsSeed(1), PhysBlock(77), &block).is_err());
    }

    #[test]
    fn inode_round_trip_at_the_exact_size() {
        let needed = INODE_HEADER + size_of(&samples());
        assert!(!fits_in_inode(needed - 1, &samples()) && fits_in_inode(needed, &samples()));
        let mut area = vec![0xee; needed];
        build_in_inode(&mut area, &samples()).expect("fits");
        let region = XattrRegion::in_inode(&area).expect("sound").expect("there");
        assert_eq!(region.entries().collect::<Vec<_>>(), sorted());
        let mut small = vec![0xee; needed - 4];
        assert!(build_in_inode(&mut small, &samples()).is_err());
        assert!(small.iter().all(|b| *b == 0xee));
        build_in_inode(&mut area, &[]).expect("fits");
        assert!(XattrRegion::in_inode(&area).expect("sound").is_none());
    }

    #[test]
    fn damage_is_named() {
        let mut sound = vec![0; 1024];
        build_block(&mut sound, &[here(NameIndex::USER, b"name", b"value")]).expect("fits");
        let damaged = |offset: usize, value: &[u8]| {
            let mut block = sound.clone();
            put_bytes(&mut block, offset, value);
            XattrRegion::block(&block)
                .and_then(|r| r.verify_hashes())
                .err()
        };
        assert_eq!(
            damaged(0, &[1]),
            Some(Corrupt::XattrMagic(0xEA02_0001).into())
        );
        assert_eq!(damaged(8, &[2]), Some(Corrupt::XattrBlocks(2).into()));
        let value = |offset, size| Some(Corrupt::XattrValue { offset, size }.into());
        assert_eq!(damaged(34, &[0, 0]), value(0, 5));
        assert_eq!(damaged(34, &[54, 0]), value(54, 5));
        assert_eq!(damaged(40, &[9]), value(1016, 9));
        assert_eq!(damaged(40, &[0xff; 4]), value(1016, u32::MAX));
        assert_eq!(damaged(50, &[0]), Some(Corrupt::XattrEntry(32).into()));
        assert!(matches!(
            damaged(1016, b"V"),
            Some(DiskError::Corrupt(Corrupt::XattrHash { .. }))
        ));
        let endless = [&sound[..32], &[1u8; 992][..]].concat();
        assert!(XattrRegion::block(&endless).is_err());
    }

    #[test]
    fn hashes_of_names_with_high_bits_differ() {
        assert_eq!(entry_hash(b"abc", b"v"), entry_hash_signed(b"abc", b"v"));
        assert_ne!(
            entry_hash(b"\xc3\xa9", b"v"),
            entry_hash_signed(b"\xc3\xa9", b"v")
        );
    }
}
