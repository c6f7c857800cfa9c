//! Inodes: a view of the raw bytes, 128 up to a block.
//!
//! The first 128 bytes are ext2's inode. A larger inode goes on with `i_extra_isize` bytes of
//! further fields (at least 2, for that count itself, when it was ever set), and the rest may
//! hold extended attributes. A further field exists only where both the inode's size and
//! `i_extra_isize` reach it; its setter does nothing otherwise.
//!
//! Fields whose meaning depends on features take them as [`InodeRules`].
//!
//! Reference: Linux `Documentation/filesystems/ext4/inodes.rst`.

use crate::bytes::{Field, clip, get_array, put_bytes};
use crate::checksum::{FsSeed, InodeSeed, crc32c};
use crate::device::DeviceNo;
use crate::error::{Checksummed, Corrupt, DiskError, Result, check_sum, need};
use crate::features::{Incompat, RoCompat};
use crate::superblock::Superblock;
use crate::time::Timestamp;
use crate::units::{Ino, PhysBlock};
use bitflags::bitflags;
use core::ops::Range;

/// Bytes of the fields that every inode has.
pub const INODE_SIZE_MIN: usize = 128;
/// Bytes of `i_block`.
pub const BLOCK_AREA_SIZE: usize = 60;
/// Where `i_block` starts.
pub const BLOCK_AREA_OFFSET: usize = 0x28;
/// Links of a directory that has too many to count (`dir_nlink`).
pub const LINKS_UNCOUNTED: u16 = 1;
/// The most links an inode can have.
pub const LINKS_MAX: u16 = 65_000;

const CHECKSUM_LO: usize = 0x7C;
const CHECKSUM_HI: usize = 0x82;
const CTIME_EXTRA: usize = 0x84;
const MTIME_EXTRA: usize = 0x88;
const ATIME_EXTRA: usize = 0x8C;
const CRTIME: usize = 0x90;
const CRTIME_EXTRA: usize = 0x94;
const VERSION_HI: usize = 0x98;
const PROJID: usize = 0x9C;

bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// Secure deletion (not implemented anywhere).
        const SECRM = 0x1;
        /// Undelete (not implemented anywhere).
        const UNRM = 0x2;
        /// Compressed.
        const COMPR = 0x4;
        /// Writes are synchronous.
        const SYNC = 0x8;
        /// May not be changed.
        const IMMUTABLE = 0x10;
        /// May only be appended to.
        const APPEND = 0x20;
        /// dump(8) skips it.
        const NODUMP = 0x40;
        /// The access time is not kept.
        const NOATIME = 0x80;
        /// Compression: dirty.
        const DIRTY = 0x100;
        /// Compression: compressed clusters.
        const COMPRBLK = 0x200;
        /// Compression: not to be compressed.
        const NOCOMPR = 0x400;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// The directory is indexed.
        const INDEX = 0x1000;
        /// AFS.
        const IMAGIC = 0x2000;
        /// Data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Not to be merged at the tail.
        const NOTAIL = 0x8000;
        /// Changes of the directory are synchronous.
        const DIRSYNC = 0x1_0000;
        /// Top of a directory hierarchy, for the allocator.
        const TOPDIR = 0x2_0000;
        /// The block count is in file system blocks.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// Verity.
        const VERITY = 0x10_0000;
        /// Holds the value of an extended attribute.
        const EA_INODE = 0x20_0000;
        /// Blocks beyond the end of file (obsolete).
        const EOFBLOCKS = 0x40_0000;
        /// Snapshot.
        const SNAPFILE = 0x100_0000;
        /// Direct access.
        const DAX = 0x200_0000;
        /// Snapshot is being deleted.
        const SNAPFILE_DELETED = 0x400_0000;
        /// Snapshot was shrunk.
        const SNAPFILE_SHRUNK = 0x800_0000;
        /// Data lies in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// Children inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Names fold case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

/// The type bits of `i_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Named pipe.
    Fifo,
    /// Character device.
    CharDevice,
    /// Directory.
    Directory,
    /// Block device.
    BlockDevice,
    /// Regular file.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
}

impl FileKind {
    /// From the type bits of a mode; `None` when they name no type.
    pub fn from_mode(mode: u16) -> Option<FileKind> {
        Some(match mode >> 12 {
            0x1 => FileKind::Fifo,
            0x2 => FileKind::CharDevice,
            0x4 => FileKind::Directory,
            0x6 => FileKind::BlockDevice,
            0x8 => FileKind::Regular,
            0xA => FileKind::Symlink,
            0xC => FileKind::Socket,
            _ => return None,
        })
    }

    /// The type bits.
    pub fn mode_bits(self) -> u16 {
        let nibble: u16 = match self {
            FileKind::Fifo => 0x1,
            FileKind::CharDevice => 0x2,
            FileKind::Directory => 0x4,
            FileKind::BlockDevice => 0x6,
            FileKind::Regular => 0x8,
            FileKind::Symlink => 0xA,
            FileKind::Socket => 0xC,
        };
        nibble << 12
    }
}

/// What the features say about the meaning of inode fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeRules {
    /// Base-2 logarithm of the block size.
    pub block_bits: u32,
    /// Block counts have 48 bits (`huge_file`).
    pub has_huge_file: bool,
    /// Directory sizes have 64 bits (`large_dir`).
    pub has_large_dir: bool,
    /// `i_file_acl` has 48 bits (`64bit`).
    pub has_64bit: bool,
    /// Where checksums start; `None` without `metadata_csum`.
    pub seed: Option<FsSeed>,
}

impl InodeRules {
    /// The rules of a file system.
    pub fn of(sb: &Superblock) -> InodeRules {
        InodeRules {
            block_bits: 10 + sb.log_block_size().min(6),
            has_huge_file: sb.ro_compat().contains(RoCompat::HUGE_FILE),
            has_large_dir: sb.incompat().contains(Incompat::LARGEDIR),
            has_64bit: sb.has_64bit(),
            seed: sb.has_metadata_csum().then(|| sb.seed()),
        }
    }
}

/// A view of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode<B> {
    bytes: B,
}

fields!(view Inode get_le put_le {
    /// Type and permissions.
    0x00 u16 mode set_mode;
    /// Number of links; see [`LINKS_UNCOUNTED`].
    0x1A u16 links_count set_links_count;
    /// Time of deletion, or, in the list of orphans, the next orphan's number.
    0x14 u32 dtime set_dtime;
    /// Low half of `i_version`.
    0x24 u32 version_lo set_version_lo;
    /// Generation, for NFS and for the checksum seed.
    0x64 u32 generation set_generation;
    /// Fragment address (obsolete, 0).
    0x70 u32 fragment_address set_fragment_address;
});

macro_rules! times {
    ($( $(#[$doc:meta])* $off:literal, $extra:ident, $get:ident $set:ident; )*) => {
        impl<B: AsRef<[u8]>> Inode<B> { $(
            $(#[$doc])*
            pub fn $get(&self) -> Timestamp {
                Timestamp::decode(u32::get_le(self.bytes.as_ref(), $off), self.extra_u32($extra))
            }
        )* }
        impl<B: AsRef<[u8]> + AsMut<[u8]>> Inode<B> { $(
            #[doc = concat!("Sets [`Self::", stringify!($get), "`], clamped to what the inode can hold.")]
            pub fn $set(&mut self, time: Timestamp) {
                let has_extra = self.has_extra($extra, 4);
                let (seconds, extra) = time.encode(has_extra);
                u32::put_le(self.bytes.as_mut(), $off, seconds);
                self.set_extra_u32($extra, extra);
            }
        )* }
    };
}

times! {
    /// Last access.
    0x08, ATIME_EXTRA, atime set_atime;
    /// Last change of the inode.
    0x0C, CTIME_EXTRA, ctime set_ctime;
    /// Last change of the data.
    0x10, MTIME_EXTRA, mtime set_mtime;
}

impl<B: AsRef<[u8]>> Inode<B> {
    /// Makes a view; `bytes` is exactly one inode.
    pub fn new(bytes: B) -> Result<Inode<B>> {
        need("inode", INODE_SIZE_MIN, bytes.as_ref().len())?;
        Ok(Inode { bytes })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// What was given to [`Inode::new`].
    pub fn into_inner(self) -> B {
        self.bytes
    }

    /// Whether every byte is zero.
    pub fn is_blank(&self) -> bool {
        self.bytes.as_ref().iter().all(|b| *b == 0)
    }

    /// The file type; `None` when the mode names none.
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode())
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        let b = self.bytes.as_ref();
        u32::from(u16::get_le(b, 0x02)) | u32::from(u16::get_le(b, 0x78)) << 16
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        let b = self.bytes.as_ref();
        u32::from(u16::get_le(b, 0x18)) | u32::from(u16::get_le(b, 0x7A)) << 16
    }

    /// Size in bytes. The high half counts for regular files, and with `large_dir` for
    /// directories.
    pub fn size(&self, rules: &InodeRules) -> u64 {
        let b = self.bytes.as_ref();
        let low = u64::from(u32::get_le(b, 0x04));
        if self.has_size_high(rules) {
            low | u64::from(u32::get_le(b, 0x6C)) << 32
        } else {
            low
        }
    }

    fn has_size_high(&self, rules: &InodeRules) -> bool {
        match self.kind() {
            Some(FileKind::Regular) => true,
            Some(FileKind::Directory) => rules.has_large_dir,
            _ => false,
        }
    }

    /// The hash of the value that the inode holds of an extended attribute: in place of the access
    /// time.
    pub fn value_hash(&self) -> u32 {
        u32::get_le(self.bytes.as_ref(), 0x08)
    }

    /// How many entries name the value that the inode holds: in place of the time of change and the
    /// version.
    pub fn value_references(&self) -> u64 {
        u64::from(u32::get_le(self.bytes.as_ref(), 0x0C)) << 32 | u64::from(self.version_lo())
    }

    /// `i_flags`.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(u32::get_le(self.bytes.as_ref(), 0x20))
    }

    /// Space used, in units of 512 bytes, by data, maps and the attribute block.
    pub fn blocks_512(&self, rules: &InodeRules) -> u64 {
        let b = self.bytes.as_ref();
        let low = u64::from(u32::get_le(b, 0x1C));
        if !rules.has_huge_file {
            return low;
        }
        let count = low | u64::from(u16::get_le(b, 0x74)) << 32;
        if self.flags().contains(InodeFlags::HUGE_FILE) {
            count << rules.block_bits.saturating_sub(9).min(15)
        } else {
            count
        }
    }

    /// The attribute block; 0 for none.
    pub fn file_acl(&self, rules: &InodeRules) -> PhysBlock {
        let b = self.bytes.as_ref();
        let low = u64::from(u32::get_le(b, 0x68));
        let high = if rules.has_64bit {
            u64::from(u16::get_le(b, 0x76))
        } else {
            0
        };
        PhysBlock(low | high << 32)
    }

    /// The 60 bytes of `i_block`: block numbers, an extent root, a short symlink or inline data.
    pub fn block_area(&self) -> &[u8] {
        clip(
            self.bytes.as_ref(),
            BLOCK_AREA_OFFSET..BLOCK_AREA_OFFSET + BLOCK_AREA_SIZE,
        )
    }

    /// `i_block` as words, for the block map of ext2.
    pub fn block_words(&self) -> [u32; 15] {
        core::array::from_fn(|i| u32::get_le(self.bytes.as_ref(), BLOCK_AREA_OFFSET + 4 * i))
    }

    /// The device number of a device node.
    pub fn device(&self) -> DeviceNo {
        let b = self.bytes.as_ref();
        let words = (
            u32::get_le(b, BLOCK_AREA_OFFSET),
            u32::get_le(b, BLOCK_AREA_OFFSET + 4),
        );
        DeviceNo::decode(words.0, words.1)
    }

    /// Whether the target of a symbolic link lies in `i_block`: it does when it fits there with a
    /// NUL after it. (The kernel once asked for the absence of blocks instead; for links that any
    /// known implementation wrote the answers agree.)
    pub fn is_fast_symlink(&self, rules: &InodeRules) -> bool {
        let size = self.size(rules);
        self.kind() == Some(FileKind::Symlink)
            && (1..BLOCK_AREA_SIZE as u64).contains(&size)
            && !self
                .flags()
                .intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
    }

    /// The target of a fast symlink; `None` when it is not one.
    pub fn fast_symlink_target(&self, rules: &InodeRules) -> Option<&[u8]> {
        if !self.is_fast_symlink(rules) {
            return None;
        }
        self.block_area()
            .get(..usize::try_from(self.size(rules)).ok()?)
    }

    /// `i_extra_isize`: bytes of fields after the first 128. 0 in small inodes.
    pub fn extra_isize(&self) -> u16 {
        if self.bytes.as_ref().len() > INODE_SIZE_MIN {
            u16::get_le(self.bytes.as_ref(), 0x80)
        } else {
            0
        }
    }

    /// Whether the `len` bytes at `offset` exist as a field.
    fn has_extra(&self, offset: usize, len: usize) -> bool {
        let end = (INODE_SIZE_MIN + usize::from(self.extra_isize())).min(self.bytes.as_ref().len());
        offset + len <= end
    }

    fn extra_u32(&self, offset: usize) -> Option<u32> {
        self.has_extra(offset, 4)
            .then(|| u32::get_le(self.bytes.as_ref(), offset))
    }

    /// Time of creation; `None` where the inode has no room for it.
    pub fn crtime(&self) -> Option<Timestamp> {
        let seconds = self.extra_u32(CRTIME)?;
        Some(Timestamp::decode(seconds, self.extra_u32(CRTIME_EXTRA)))
    }

    /// `i_version`, whose high half may be missing.
    pub fn version(&self) -> u64 {
        u64::from(self.version_lo()) | u64::from(self.extra_u32(VERSION_HI).unwrap_or(0)) << 32
    }

    /// The project; `None` where the inode has no room for it.
    pub fn project(&self) -> Option<u32> {
        self.extra_u32(PROJID)
    }

    /// The bytes that may hold extended attributes, magic included; `None` when there is no room
    /// for an area. It may be there without its magic: then there are no attributes.
    pub fn xattr_area(&self) -> Option<Range<usize>> {
        let len = self.bytes.as_ref().len();
        let start = INODE_SIZE_MIN + usize::from(self.extra_isize());
        // The magic and the end mark of the list.
        (len > INODE_SIZE_MIN && self.extra_isize() != 0 && start + 8 <= len).then_some(start..len)
    }

    /// [`Inode::xattr_area`]'s bytes.
    pub fn xattr_bytes(&self) -> Option<&[u8]> {
        self.bytes.as_ref().get(self.xattr_area()?)
    }

    /// Checks what an inode in use says by itself: type, extra size.
    pub fn validate(&self) -> Result<FileKind> {
        let extra = self.extra_isize();
        let room = self.bytes.as_ref().len() - INODE_SIZE_MIN;
        if !extra.is_multiple_of(4) || usize::from(extra) > room {
            return Err(Corrupt::ExtraIsize(extra).into());
        }
        self.kind()
            .ok_or(DiskError::Corrupt(Corrupt::Mode(self.mode())))
    }

    /// The seed of this inode's checksums; `None` without `metadata_csum`.
    pub fn seed(&self, rules: &InodeRules, ino: Ino) -> Option<InodeSeed> {
        rules.seed.map(|seed| seed.inode(ino, self.generation()))
    }

    /// The checksum that the present contents should have, before it is cut to the room there is.
    pub fn compute_checksum(&self, seed: InodeSeed) -> u32 {
        let b = self.bytes.as_ref();
        let crc = crc32c(crc32c(seed.0, clip(b, 0..CHECKSUM_LO)), &[0, 0]);
        let crc = crc32c(crc, clip(b, CHECKSUM_LO + 2..INODE_SIZE_MIN));
        if !self.has_extra(CHECKSUM_HI, 2) {
            return crc32c(crc, clip(b, INODE_SIZE_MIN..b.len()));
        }
        let crc = crc32c(crc32c(crc, clip(b, INODE_SIZE_MIN..CHECKSUM_HI)), &[0, 0]);
        crc32c(crc, clip(b, CHECKSUM_HI + 2..b.len()))
    }

    /// Compares the checksum, where there is one.
    pub fn verify_checksum(&self, rules: &InodeRules, ino: Ino) -> Result<()> {
        let Some(seed) = self.seed(rules, ino) else {
            return Ok(());
        };
        let b = self.bytes.as_ref();
        let low = u32::from(u16::get_le(b, CHECKSUM_LO));
        let computed = self.compute_checksum(seed);
        if self.has_extra(CHECKSUM_HI, 2) {
            let high = u32::from(u16::get_le(b, CHECKSUM_HI));
            check_sum(Checksummed::Inode, low | high << 16, computed)
        } else {
            check_sum(Checksummed::Inode, low, computed & 0xffff)
        }
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Inode<B> {
    /// The bytes, to edit.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.as_mut()
    }

    /// Zeroes the inode and sets `i_extra_isize`, cut to the room there is.
    pub fn init(&mut self, extra_isize: u16) {
        let b = self.bytes.as_mut();
        b.fill(0);
        if let Some(room) = b.len().checked_sub(INODE_SIZE_MIN).filter(|room| *room > 0) {
            let extra = usize::from(extra_isize).min(room) & !3;
            u16::put_le(b, 0x80, extra as u16);
        }
    }

    /// Sets the owner.
    pub fn set_uid(&mut self, uid: u32) {
        u16::put_le(self.bytes.as_mut(), 0x02, uid as u16);
        u16::put_le(self.bytes.as_mut(), 0x78, (uid >> 16) as u16);
    }

    /// Sets the group.
    pub fn set_gid(&mut self, gid: u32) {
        u16::put_le(self.bytes.as_mut(), 0x18, gid as u16);
        u16::put_le(self.bytes.as_mut(), 0x7A, (gid >> 16) as u16);
    }

    /// Sets the size. The mode must be set before it.
    pub fn set_size(&mut self, rules: &InodeRules, size: u64) -> Result<()> {
        let has_high = self.has_size_high(rules);
        if !has_high && size > u64::from(u32::MAX) {
            return Err(DiskError::Unrepresentable {
                what: "i_size",
                value: size,
            });
        }
        u32::put_le(self.bytes.as_mut(), 0x04, size as u32);
        if has_high {
            u32::put_le(self.bytes.as_mut(), 0x6C, (size >> 32) as u32);
        }
        Ok(())
    }

    /// Sets the hash of the value that the inode holds.
    pub fn set_value_hash(&mut self, hash: u32) {
        u32::put_le(self.bytes.as_mut(), 0x08, hash);
    }

    /// Sets how many entries name the value that the inode holds.
    pub fn set_value_references(&mut self, references: u64) {
        u32::put_le(self.bytes.as_mut(), 0x0C, (references >> 32) as u32);
        self.set_version_lo(references as u32);
    }

    /// Sets `i_flags`.
    pub fn set_flags(&mut self, flags: InodeFlags) {
        u32::put_le(self.bytes.as_mut(), 0x20, flags.bits());
    }

    /// Sets the space used, in units of 512 bytes, and the flag that says in which unit it is
    /// stored.
    pub fn set_blocks_512(&mut self, rules: &InodeRules, count: u64) -> Result<()> {
        let too_large = DiskError::Unrepresentable {
            what: "i_blocks",
            value: count,
        };
        let shift = rules.block_bits.saturating_sub(9).min(15);
        let flags = self.flags();
        let (stored, flags) = if count <= u64::from(u32::MAX) {
            (count, flags - InodeFlags::HUGE_FILE)
        } else if !rules.has_huge_file {
            return Err(too_large);
        } else if count < 1 << 48 {
            (count, flags - InodeFlags::HUGE_FILE)
        } else if count >> shift < 1 << 48 {
            (count >> shift, flags | InodeFlags::HUGE_FILE)
        } else {
            return Err(too_large);
        };
        self.set_flags(flags);
        let b = self.bytes.as_mut();
        u32::put_le(b, 0x1C, stored as u32);
        if rules.has_huge_file {
            u16::put_le(b, 0x74, (stored >> 32) as u16);
        }
        Ok(())
    }

    /// Sets the attribute block; 0 for none.
    pub fn set_file_acl(&mut self, rules: &InodeRules, block: PhysBlock) -> Result<()> {
        let bits = if rules.has_64bit { 48 } else { 32 };
        if block.0 >> bits != 0 {
            return Err(DiskError::Unrepresentable {
                what: "i_file_acl",
                value: block.0,
            });
        }
        u32::put_le(self.bytes.as_mut(), 0x68, block.0 as u32);
        if rules.has_64bit {
            u16::put_le(self.bytes.as_mut(), 0x76, (block.0 >> 32) as u16);
        }
        Ok(())
    }

    /// `i_block`, to edit.
    pub fn block_area_mut(&mut self) -> &mut [u8] {
        let range = BLOCK_AREA_OFFSET..BLOCK_AREA_OFFSET + BLOCK_AREA_SIZE;
        self.bytes.as_mut().get_mut(range).unwrap_or_default()
    }

    /// Sets one word of `i_block`; nothing happens from word 15 on.
    pub fn set_block_word(&mut self, index: usize, value: u32) {
        if index < 15 {
            u32::put_le(self.bytes.as_mut(), BLOCK_AREA_OFFSET + 4 * index, value);
        }
    }

    /// Sets the device number of a device node.
    pub fn set_device(&mut self, device: DeviceNo) -> Result<()> {
        let value = (u64::from(device.major) << 32) | u64::from(device.minor);
        let (first, second) = device.encode().ok_or(DiskError::Unrepresentable {
            what: "i_block (device)",
            value,
        })?;
        self.block_area_mut().fill(0);
        self.set_block_word(0, first);
        self.set_block_word(1, second);
        Ok(())
    }

    /// Stores a symlink target of at most 59 bytes in `i_block`; the size is the caller's to set.
    pub fn set_fast_symlink_target(&mut self, target: &[u8]) -> Result<()> {
        if target.len() >= BLOCK_AREA_SIZE {
            return Err(DiskError::NoRoom("i_block"));
        }
        let area = self.block_area_mut();
        area.fill(0);
        put_bytes(area, 0, target);
        Ok(())
    }

    /// Sets `i_extra_isize`. What lies behind it (attributes) is the caller's to move.
    pub fn set_extra_isize(&mut self, extra: u16) -> Result<()> {
        let room = self.bytes.as_ref().len() - INODE_SIZE_MIN;
        if !extra.is_multiple_of(4) || usize::from(extra) > room {
            return Err(DiskError::Unrepresentable {
                what: "i_extra_isize",
                value: extra.into(),
            });
        }
        if room > 0 {
            u16::put_le(self.bytes.as_mut(), 0x80, extra);
        }
        Ok(())
    }

    /// Lets the fields after the first 128 bytes reach further; those that come are zero. What lay
    /// there (attributes) is the caller's to put back.
    pub fn widen(&mut self, extra: u16) -> Result<()> {
        let start = INODE_SIZE_MIN + usize::from(self.extra_isize());
        self.set_extra_isize(extra)?;
        let end = INODE_SIZE_MIN + usize::from(extra);
        if let Some(fields) = self.bytes.as_mut().get_mut(start..end) {
            fields.fill(0);
        }
        Ok(())
    }

    fn set_extra_u32(&mut self, offset: usize, value: u32) {
        if self.has_extra(offset, 4) {
            u32::put_le(self.bytes.as_mut(), offset, value);
        }
    }

    /// Sets the time of creation, where there is room for it.
    pub fn set_crtime(&mut self, time: Timestamp) {
        let (seconds, extra) = time.encode(self.has_extra(CRTIME_EXTRA, 4));
        self.set_extra_u32(CRTIME, seconds);
        self.set_extra_u32(CRTIME_EXTRA, extra);
    }

    /// Sets `i_version`, cut to the room there is.
    pub fn set_version(&mut self, version: u64) {
        self.set_version_lo(version as u32);
        self.set_extra_u32(VERSION_HI, (version >> 32) as u32);
    }

    /// Sets the project; false where the inode has no room for it.
    pub fn set_project(&mut self, project: u32) -> bool {
        self.set_extra_u32(PROJID, project);
        self.has_extra(PROJID, 4)
    }

    /// [`Inode::xattr_area`]'s bytes, to edit.
    pub fn xattr_bytes_mut(&mut self) -> Option<&mut [u8]> {
        let area = self.xattr_area()?;
        self.bytes.as_mut().get_mut(area)
    }

    /// Sets the checksum, where there is one. Call it last.
    pub fn update_checksum(&mut self, rules: &InodeRules, ino: Ino) {
        let Some(seed) = self.seed(rules, ino) else {
            return;
        };
        let crc = self.compute_checksum(seed);
        let has_high = self.has_extra(CHECKSUM_HI, 2);
        let b = self.bytes.as_mut();
        u16::put_le(b, CHECKSUM_LO, crc as u16);
        if has_high {
            u16::put_le(b, CHECKSUM_HI, (crc >> 16) as u16);
        }
    }

    /// Copies another inode of the same size over this one.
    pub fn copy_from(&mut self, bytes: &[u8]) {
        put_bytes(self.bytes.as_mut(), 0, bytes);
    }
}

impl Inode<Vec<u8>> {
    /// An owned blank inode of `size` bytes (at least 128).
    pub fn blank(size: u16, extra_isize: u16) -> Inode<Vec<u8>> {
        let mut inode = Inode {
            bytes: vec![0; usize::from(size).max(INODE_SIZE_MIN)],
        };
        inode.init(extra_isize);
        inode
    }
}

/// The root node of a block map or extent tree, copied out of an inode.
pub fn block_area_copy<B: AsRef<[u8]>>(inode: &Inode<B>) -> [u8; BLOCK_AREA_SIZE] {
    get_array(inode.as_bytes(), BLOCK_AREA_OFFSET)
}

#[cfg(test)]
mod tests;
