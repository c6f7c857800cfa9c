//! Directory blocks: a chain of entries that fills the block.
//!
//! An entry is 8 bytes (inode, length of the entry, length of the name, file type) and the name,
//! on a multiple of 4. Entry lengths add up to the block's size; an entry may be longer than its
//! name needs, and one with inode 0 is free space. With `metadata_csum` the last 12 bytes of a
//! block look like a free entry and hold its checksum; the chain of other entries ends before.
//! In encrypted directories that fold case, the hash of the name's plain form follows the name
//! ([`DirRules::has_hashes`]): it is made with a key.
//!
//! [`DirBlock`] is a view of one block. Its iterator checks every entry before it gives it out
//! and ends at the first that is damaged. Inode numbers are checked by the caller, who knows the
//! range.
//!
//! Reference: Linux `Documentation/filesystems/ext4/directory.rst`.

use crate::bytes::{clip, le16, le32, put_bytes, put_le16, put_le32, zero};
use crate::checksum::{InodeSeed, crc32c};
use crate::dirhash::DirHash;
use crate::error::{Checksummed, Corrupt, DiskError, Result, check_sum, need};
use crate::features::Incompat;
use crate::inode::{FileKind, InodeFlags};
use crate::superblock::Superblock;
use crate::units::Ino;

/// The longest name.
pub const NAME_MAX: usize = 255;
/// Bytes of the checksum tail.
pub const TAIL_SIZE: usize = 12;

/// An entry takes at most so many bytes beside its name.
pub const ENTRY_OVERHEAD_MAX: usize = HEADER_SIZE + 3;
/// What the hash behind a name takes (Linux `struct ext4_dir_entry_hash`).
pub const HASH_SIZE: usize = 8;

const HEADER_SIZE: usize = 8;
/// An entry with a name of one byte: no entry is shorter.
const ENTRY_MIN: usize = 12;
/// `det_reserved_ft`.
const TAIL_TYPE: u8 = 0xDE;

/// The bytes that an entry with a name of this length needs.
pub fn entry_size(name_len: usize) -> usize {
    (HEADER_SIZE + name_len).next_multiple_of(4)
}

/// Decodes `rec_len`: blocks of 64 KiB need 17 bits, two of which are at the bottom.
pub fn decode_rec_len(raw: u16, block_size: usize) -> usize {
    let raw = usize::from(raw);
    if block_size < 65_536 {
        raw
    } else if raw == 0xffff || raw == 0 {
        block_size
    } else {
        (raw & 0xfffc) | (raw & 3) << 16
    }
}

/// Encodes `rec_len`, a multiple of 4 up to the block size.
pub fn encode_rec_len(len: usize, block_size: usize) -> u16 {
    match u16::try_from(len) {
        Ok(raw) => raw,
        Err(_) if len == block_size && block_size == 65_536 => 0xffff,
        Err(_) => (len & 0xfffc | len >> 16 & 3) as u16,
    }
}

/// The file type of an entry. It is a hint; the inode's mode rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryType(pub u8);

impl EntryType {
    /// Not stored: the file system has no `filetype`, or nobody set it.
    pub const UNKNOWN: EntryType = EntryType(0);

    /// The kind, if the type names one.
    pub fn kind(self) -> Option<FileKind> {
        // The upper bits are reserved for flags.
        Some(match self.0 & 0xf {
            1 => FileKind::Regular,
            2 => FileKind::Directory,
            3 => FileKind::CharDevice,
            4 => FileKind::BlockDevice,
            5 => FileKind::Fifo,
            6 => FileKind::Socket,
            7 => FileKind::Symlink,
            _ => return None,
        })
    }
}

impl From<FileKind> for EntryType {
    fn from(kind: FileKind) -> EntryType {
        EntryType(match kind {
            FileKind::Regular => 1,
            FileKind::Directory => 2,
            FileKind::CharDevice => 3,
            FileKind::BlockDevice => 4,
            FileKind::Fifo => 5,
            FileKind::Socket => 6,
            FileKind::Symlink => 7,
        })
    }
}

/// What the features say about directory blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirRules {
    /// Entries hold the file type (`filetype`).
    pub has_filetype: bool,
    /// Blocks end in a checksum (`metadata_csum`).
    pub has_tail: bool,
    /// Names are encrypted: any bytes.
    pub has_any_names: bool,
    /// A hash follows each name but `.` and `..`: those of encrypted directories that fold case.
    pub has_hashes: bool,
}

impl DirRules {
    /// The rules of a file system.
    pub fn of(sb: &Superblock) -> DirRules {
        DirRules {
            has_filetype: sb.incompat().contains(Incompat::FILETYPE),
            has_tail: sb.has_metadata_csum(),
            has_any_names: false,
            has_hashes: false,
        }
    }

    /// The same for a directory whose names are encrypted.
    pub fn encrypted(self, folds_case: bool) -> DirRules {
        DirRules {
            has_any_names: true,
            has_hashes: folds_case,
            ..self
        }
    }

    /// The same for a directory with these flags.
    pub fn with_flags(self, flags: InodeFlags) -> DirRules {
        match flags.contains(InodeFlags::ENCRYPT) {
            true => self.encrypted(flags.contains(InodeFlags::CASEFOLD)),
            false => self,
        }
    }

    /// The bytes that an entry with a name of this length needs.
    pub fn entry_size(&self, name_len: usize) -> usize {
        entry_size(name_len) + if self.has_hashes { HASH_SIZE } else { 0 }
    }
}

/// One entry, as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// Byte offset in the block.
    pub offset: u32,
    /// Bytes to the next entry.
    pub rec_len: u32,
    /// The inode; 0 when the entry is free.
    pub ino: Ino,
    /// The file type, [`EntryType::UNKNOWN`] without `filetype`.
    pub entry_type: EntryType,
    /// The name.
    pub name: &'a [u8],
    /// The hash that follows the name, where one does.
    pub hash: Option<DirHash>,
}

impl DirEntry<'_> {
    /// Whether the entry names something.
    pub fn is_used(&self) -> bool {
        self.ino.0 != 0
    }

    /// Whether it is `.` or `..`.
    pub fn is_dot(&self) -> bool {
        self.name == b"." || self.name == b".."
    }

    /// Bytes at the end that another entry could take.
    pub fn slack(&self) -> usize {
        let own = if self.is_used() { self.size() } else { 0 };
        (self.rec_len as usize).saturating_sub(own)
    }

    /// What its name and hash need.
    fn size(&self) -> usize {
        let hash = if self.hash.is_some() { HASH_SIZE } else { 0 };
        entry_size(self.name.len()) + hash
    }
}

/// What becomes of an entry: see [`DirBlock::change_each`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// It stays.
    Keep,
    /// It names another inode.
    Target(Ino, EntryType),
    /// It goes, as with [`DirBlock::remove`].
    Remove,
}

/// Where a block has room for entries: see [`DirBlock::room`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    gaps: Vec<Gap>,
    largest: u32,
}

/// An entry that is longer than it needs to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    offset: u32,
    /// The bytes that it needs; none when it is free.
    own: u32,
    rec_len: u32,
}

impl Gap {
    fn size(&self) -> u32 {
        self.rec_len - self.own
    }
}

impl Room {
    /// Counts what an entry leaves; entries come in their order.
    pub fn add(&mut self, entry: &DirEntry<'_>) {
        let slack = entry.slack();
        if slack >= ENTRY_MIN {
            self.gaps.push(Gap {
                offset: entry.offset,
                own: entry.rec_len - slack as u32,
                rec_len: entry.rec_len,
            });
            self.largest = self.largest.max(slack as u32);
        }
    }

    /// The largest entry, in bytes, that can be inserted; 0 when none can.
    pub fn largest(&self) -> usize {
        self.largest as usize
    }

    /// Takes the first gap for an entry of `needed` bytes, which has what is left of it.
    fn take(&mut self, needed: usize) -> Option<Gap> {
        let at = self
            .gaps
            .iter()
            .position(|gap| gap.size() as usize >= needed)?;
        let taken = self.gaps[at];
        let left = Gap {
            offset: taken.offset + taken.own,
            own: needed as u32,
            rec_len: taken.size(),
        };
        match left.size() as usize >= ENTRY_MIN {
            true => self.gaps[at] = left,
            false => drop(self.gaps.remove(at)),
        }
        self.largest = self.gaps.iter().map(Gap::size).max().unwrap_or(0);
        Some(taken)
    }
}

/// A view of one directory block (a leaf; index blocks are in `htree`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirBlock<B> {
    bytes: B,
    rules: DirRules,
}

impl<B: AsRef<[u8]>> DirBlock<B> {
    /// Makes a view of a whole block.
    pub fn new(bytes: B, rules: DirRules) -> Result<DirBlock<B>> {
        let len = bytes.as_ref().len();
        need("directory block", 2 * ENTRY_MIN + TAIL_SIZE, len)?;
        if !len.is_multiple_of(4) || len > 65_536 {
            return Err(DiskError::BufferSize {
                what: "directory block",
                need: 65_536,
                got: len,
            });
        }
        Ok(DirBlock { bytes, rules })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Whether the block ends in a checksum tail (which must be there with `metadata_csum`).
    pub fn has_tail(&self) -> bool {
        let b = self.bytes.as_ref();
        let at = b.len() - TAIL_SIZE;
        le32(b, at) == 0
            && decode_rec_len(le16(b, at + 4), b.len()) == TAIL_SIZE
            && clip(b, at + 6..at + 8) == [0, TAIL_TYPE]
    }

    /// Where the chain of entries ends.
    fn limit(&self) -> usize {
        self.bytes.as_ref().len() - if self.rules.has_tail { TAIL_SIZE } else { 0 }
    }

    /// The entries, free ones included, the tail excluded. Ends after the first error.
    pub fn entries(&self) -> Entries<'_> {
        Entries {
            bytes: self.bytes.as_ref(),
            rules: self.rules,
            limit: self.limit(),
            next: 0,
        }
    }

    /// Checks all entries, and that a tail is there where there must be one.
    pub fn validate(&self) -> Result<()> {
        if self.rules.has_tail && !self.has_tail() {
            return Err(Corrupt::DirTail.into());
        }
        self.entries().try_for_each(|entry| entry.map(|_| ()))
    }

    /// The entry in use with this name.
    pub fn find(&self, name: &[u8]) -> Result<Option<DirEntry<'_>>> {
        for entry in self.entries() {
            let entry = entry?;
            if entry.is_used() && entry.name == name {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Whether nothing is in use but perhaps `.` and `..`.
    pub fn is_empty(&self) -> Result<bool> {
        for entry in self.entries() {
            let entry = entry?;
            if entry.is_used() && !entry.is_dot() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The inodes of `.` and `..` of a directory's first block.
    pub fn dots(&self) -> Result<(Ino, Ino)> {
        let mut entries = self.entries();
        let mut next = |name: &[u8]| match entries.next() {
            Some(Ok(e)) if e.is_used() && e.name == name => Ok(e.ino),
            Some(Err(error)) => Err(error),
            _ => Err(Corrupt::DirDots.into()),
        };
        Ok((next(b".")?, next(b"..")?))
    }

    /// Where entries can be inserted.
    pub fn room(&self) -> Result<Room> {
        let mut room = Room::default();
        for entry in self.entries() {
            room.add(&entry?);
        }
        Ok(room)
    }

    /// All bytes not taken by entries in use.
    pub fn free_space(&self) -> Result<usize> {
        self.entries()
            .try_fold(0, |sum, entry| Ok(sum + entry?.slack()))
    }

    /// The checksum that the tail should hold.
    pub fn compute_checksum(&self, seed: InodeSeed) -> u32 {
        let b = self.bytes.as_ref();
        crc32c(seed.0, clip(b, 0..b.len() - TAIL_SIZE))
    }

    /// Compares the tail's checksum.
    pub fn verify_checksum(&self, seed: InodeSeed) -> Result<()> {
        if !self.has_tail() {
            return Err(Corrupt::DirTail.into());
        }
        let b = self.bytes.as_ref();
        let stored = le32(b, b.len() - 4);
        check_sum(Checksummed::DirBlock, stored, self.compute_checksum(seed))
    }

    fn entry_at(&self, offset: u32) -> Result<(DirEntry<'_>, Option<DirEntry<'_>>)> {
        let mut previous = None;
        for entry in self.entries() {
            let entry = entry?;
            if entry.offset == offset {
                return Ok((entry, previous));
            }
            previous = Some(entry);
        }
        Err(Corrupt::DirOffset(offset).into())
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> DirBlock<B> {
    /// Makes an empty block: one free entry and, where there must be one, a tail.
    pub fn init(bytes: B, rules: DirRules) -> Result<DirBlock<B>> {
        let mut block = DirBlock::new(bytes, rules)?;
        block.bytes.as_mut().fill(0);
        let limit = block.limit();
        block.put_rec_len(0, limit);
        block.put_tail();
        Ok(block)
    }

    /// Makes the first block of a new directory.
    pub fn init_dots(bytes: B, rules: DirRules, own: Ino, parent: Ino) -> Result<DirBlock<B>> {
        let mut block = DirBlock::init(bytes, rules)?;
        let dir = EntryType::from(FileKind::Directory);
        let limit = block.limit();
        block.put_entry(0, ENTRY_MIN, own, (b".", None), dir);
        block.put_entry(ENTRY_MIN, limit - ENTRY_MIN, parent, (b"..", None), dir);
        Ok(block)
    }

    fn put_tail(&mut self) {
        if !self.rules.has_tail {
            return;
        }
        let b = self.bytes.as_mut();
        let at = b.len() - TAIL_SIZE;
        zero(b, at..b.len());
        put_le16(b, at + 4, TAIL_SIZE as u16);
        put_bytes(b, at + 7, &[TAIL_TYPE]);
    }

    fn put_rec_len(&mut self, offset: usize, rec_len: usize) {
        let b = self.bytes.as_mut();
        let raw = encode_rec_len(rec_len, b.len());
        put_le16(b, offset + 4, raw);
    }

    fn put_entry(
        &mut self,
        at: usize,
        rec_len: usize,
        ino: Ino,
        (name, hash): (&[u8], Option<DirHash>),
        kind: EntryType,
    ) {
        self.put_rec_len(at, rec_len);
        let kind = if self.rules.has_filetype {
            kind
        } else {
            EntryType::UNKNOWN
        };
        let b = self.bytes.as_mut();
        put_le32(b, at, ino.0);
        // The name's length is at most 255, which every caller has checked.
        put_bytes(b, at + 6, &[name.len() as u8, kind.0]);
        put_bytes(b, at + HEADER_SIZE, name);
        let end = at + entry_size(name.len());
        zero(b, at + HEADER_SIZE + name.len()..end);
        if let Some(hash) = hash {
            put_le32(b, end, hash.major);
            put_le32(b, end + 4, hash.minor);
        }
    }

    /// Inserts an entry in the first place that is large enough; its offset. That the name is not
    /// there yet is the caller's care.
    pub fn insert(&mut self, name: &[u8], ino: Ino, kind: EntryType) -> Result<u32> {
        let mut room = self.room()?;
        self.insert_in(&mut room, (name, None), ino, kind)
    }

    /// The same for several, where `room` is this block's and follows each. The hash that follows
    /// a name is given where the rules ask for it.
    pub fn insert_in(
        &mut self,
        room: &mut Room,
        (name, hash): (&[u8], Option<DirHash>),
        ino: Ino,
        kind: EntryType,
    ) -> Result<u32> {
        let is_whole = hash.is_some() == self.rules.has_hashes;
        if name.is_empty() || name.len() > NAME_MAX || ino.0 == 0 || !is_whole {
            let value = name.len() as u64;
            return Err(DiskError::Unrepresentable {
                what: "directory entry",
                value,
            });
        }
        let gap = room.take(self.rules.entry_size(name.len()));
        let gap = gap.ok_or(DiskError::NoRoom("directory block"))?;
        let (offset, own, rec_len) = (gap.offset as usize, gap.own as usize, gap.rec_len as usize);
        if own > 0 {
            self.put_rec_len(offset, own);
        }
        self.put_entry(offset + own, rec_len - own, ino, (name, hash), kind);
        Ok((offset + own) as u32)
    }

    /// Removes the entry at `offset`: the one before it takes its space, or it becomes free when
    /// it is the first.
    pub fn remove(&mut self, offset: u32) -> Result<()> {
        let (entry, previous) = self.entry_at(offset)?;
        let (rec_len, size) = (entry.rec_len as usize, entry.size());
        let previous = previous.map(|p| (p.offset as usize, p.rec_len as usize));
        self.cut_out(offset as usize, rec_len, size, previous);
        Ok(())
    }

    /// Removes an entry that needs `size` bytes: the one before it, an offset and a length, takes
    /// its space.
    fn cut_out(
        &mut self,
        at: usize,
        rec_len: usize,
        size: usize,
        previous: Option<(usize, usize)>,
    ) {
        let end = at + size;
        // Nobody needs the old contents, and an image shared with others should not show them.
        let b = self.bytes.as_mut();
        zero(b, at..at + 4);
        match previous {
            None => zero(b, at + 6..end),
            Some((before, before_len)) => {
                zero(b, at + 4..end);
                self.put_rec_len(before, before_len + rec_len);
            }
        }
    }

    /// Does with each entry in use what `change` says, in one pass.
    pub fn change_each(
        &mut self,
        mut change: impl FnMut(&DirEntry<'_>) -> EntryChange,
    ) -> Result<()> {
        let (mut at, limit) = (0, self.limit());
        // The entry before that stays, and its length.
        let mut previous: Option<(usize, usize)> = None;
        while at < limit {
            let entry = self.entries().decode(at)?;
            let (rec_len, size) = (entry.rec_len as usize, entry.size());
            let wanted = match entry.is_used() {
                true => change(&entry),
                false => EntryChange::Keep,
            };
            if wanted == EntryChange::Remove {
                self.cut_out(at, rec_len, size, previous);
                let (before, before_len) = previous.unwrap_or((at, 0));
                previous = Some((before, before_len + rec_len));
            } else {
                previous = Some((at, rec_len));
            }
            if let EntryChange::Target(ino, kind) = wanted {
                self.put_target(at, ino, kind);
            }
            at += rec_len;
        }
        Ok(())
    }

    /// Points the entry at `offset` at another inode.
    pub fn set_target(&mut self, offset: u32, ino: Ino, kind: EntryType) -> Result<()> {
        self.entry_at(offset)?;
        self.put_target(offset as usize, ino, kind);
        Ok(())
    }

    fn put_target(&mut self, at: usize, ino: Ino, kind: EntryType) {
        put_le32(self.bytes.as_mut(), at, ino.0);
        if self.rules.has_filetype {
            put_bytes(self.bytes.as_mut(), at + 7, &[kind.0]);
        }
    }

    /// Sets the tail's checksum, where there is one. Call it last.
    pub fn update_checksum(&mut self, seed: InodeSeed) {
        if self.rules.has_tail {
            let crc = self.compute_checksum(seed);
            let b = self.bytes.as_mut();
            let at = b.len() - 4;
            put_le32(b, at, crc);
        }
    }
}

/// The entries of a block; see [`DirBlock::entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    rules: DirRules,
    limit: usize,
    next: usize,
}

impl<'a> Entries<'a> {
    fn decode(&self, at: usize) -> Result<DirEntry<'a>> {
        let b = self.bytes;
        let rec_len = decode_rec_len(le16(b, at + 4), b.len());
        let (offset, rec_len_u32) = (at as u32, rec_len as u32);
        let end = at + rec_len;
        // A rest that is too short for an entry could not be walked.
        let is_end_good = end == self.limit || end + ENTRY_MIN <= self.limit;
        if rec_len < ENTRY_MIN || !rec_len.is_multiple_of(4) || !is_end_good {
            return Err(Corrupt::DirRecLen {
                offset,
                rec_len: rec_len_u32,
            }
            .into());
        }
        let ino = Ino(le32(b, at));
        let [name_len, raw_type] = crate::bytes::get_array(b, at + 6);
        let name_end = at + HEADER_SIZE + usize::from(name_len);
        if (ino.0 != 0 && name_len == 0) || name_end > end {
            return Err(Corrupt::DirNameLen { offset, name_len }.into());
        }
        let name = clip(b, at + HEADER_SIZE..name_end);
        let is_text = self.rules.has_any_names || !name.iter().any(|c| *c == 0 || *c == b'/');
        if ino.0 != 0 && !is_text {
            return Err(Corrupt::DirName { offset }.into());
        }
        let has_hash = self.rules.has_hashes && ino.0 != 0 && name != b"." && name != b"..";
        let hash_at = at + entry_size(name.len());
        if has_hash && hash_at + HASH_SIZE > end {
            return Err(Corrupt::DirNameLen { offset, name_len }.into());
        }
        let entry_type = if self.rules.has_filetype {
            EntryType(raw_type)
        } else {
            EntryType::UNKNOWN
        };
        Ok(DirEntry {
            offset,
            rec_len: rec_len_u32,
            ino,
            entry_type,
            name,
            hash: has_hash.then(|| DirHash {
                major: le32(b, hash_at),
                minor: le32(b, hash_at + 4),
            }),
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<DirEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.limit {
            return None;
        }
        let entry = self.decode(self.next);
        match &entry {
            Ok(e) => self.next += e.rec_len as usize,
            Err(_) => self.next = self.limit,
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
