//! Inodes: the raw bytes at hand while a batch changes one, and the table that they come from and
//! go to.

use std::fmt;

use finefs_buffers::BufferWrite;
use finefs_ext_disk::checksum::InodeSeed;
use finefs_ext_disk::device::DeviceNo;
use finefs_ext_disk::inode::{
    FileKind as DiskKind, Inode, InodeFlags, InodeRules, LINKS_MAX, LINKS_UNCOUNTED,
};
use finefs_ext_disk::time::Timestamp as DiskTime;
use finefs_ext_disk::{GroupNo, Ino as DiskIno};
use finefs_namespace::{Attributes, Error, FileFlags, FileKind, Result, Times, Timestamp};

use super::space::Space;
use crate::error::at;
use crate::state::ExtState;

/// Flags that belong to the user of a file; the others are the format's own.
const USER_FLAGS: InodeFlags = InodeFlags::from_bits_retain(FileFlags::SETTABLE.bits());

/// Those of regular files: they can be sealed.
const USER_FILE_FLAGS: InodeFlags = USER_FLAGS.union(InodeFlags::VERITY);

/// Those of directories: they can be made to fold case.
const USER_DIRECTORY_FLAGS: InodeFlags = USER_FLAGS.union(InodeFlags::CASEFOLD);

/// Bytes of further fields of new inodes where the superblock does not want more: all that Linux
/// knows.
const EXTRA_ISIZE: u16 = 32;

/// An inode while a batch changes it.
pub(crate) struct InodeEdit {
    pub(crate) ino: u32,
    pub(crate) disk: Inode<Vec<u8>>,
    /// The seed of the checksums of its blocks; `None` without `metadata_csum`.
    pub(crate) seed: Option<InodeSeed>,
    /// Blocks gained or lost.
    pub(crate) blocks_delta: i64,
}

impl InodeEdit {
    /// An error about this inode.
    pub(crate) fn damaged(&self, what: impl fmt::Display) -> Error {
        Error::corrupt(format_args!("inode {}: {what}", self.ino))
    }

    /// True when its blocks may be in the buffer cache.
    pub(crate) fn holds_metadata(&self) -> bool {
        self.disk.kind() != Some(DiskKind::Regular)
            || self.disk.flags().contains(InodeFlags::EA_INODE)
    }

    /// True for a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.disk.kind() == Some(DiskKind::Directory)
    }

    /// True when its content or its names lie in the inode itself.
    pub(crate) fn holds_inline_data(&self) -> bool {
        self.disk.flags().contains(InodeFlags::INLINE_DATA)
    }

    /// Where its metadata blocks had best lie: in the inode's group.
    pub(crate) fn goal(&self, space: &Space<'_>) -> u64 {
        let geometry = &space.state.geometry;
        let group = geometry
            .locate_inode(DiskIno(self.ino))
            .map_or(GroupNo(0), |place| place.group);
        geometry.group_first_block(group).0
    }

    /// Puts the block count right.
    pub(crate) fn settle_blocks(&mut self, rules: &InodeRules) -> Result<()> {
        let per_block = 1i64 << (rules.block_bits - 9);
        let delta = std::mem::take(&mut self.blocks_delta).saturating_mul(per_block);
        let count = self.disk.blocks_512(rules).saturating_add_signed(delta);
        self.disk
            .set_blocks_512(rules, count)
            .map_err(|error| self.damaged(error))
    }

    /// Writes the attributes that the namespace keeps. The mode must be set before. Links of
    /// directories and sizes of all but regular files are not touched.
    pub(crate) fn set_attributes(
        &mut self,
        rules: &InodeRules,
        attributes: &Attributes,
        times: &Times,
    ) -> Result<()> {
        let kind = attributes.kind;
        self.disk
            .set_mode((kind.mode_bits() | attributes.permissions & 0o7777) as u16);
        self.disk.set_uid(attributes.uid);
        self.disk.set_gid(attributes.gid);
        let of_user = match kind {
            FileKind::Directory => USER_DIRECTORY_FLAGS,
            FileKind::Regular => USER_FILE_FLAGS,
            _ => USER_FLAGS,
        };
        let user = InodeFlags::from_bits_retain(attributes.flags.bits()) & of_user;
        self.disk.set_flags((self.disk.flags() - of_user) | user);
        self.disk.set_atime(disk_time(times.accessed));
        self.disk.set_mtime(disk_time(times.modified));
        self.disk.set_ctime(disk_time(times.changed));
        self.disk.set_crtime(disk_time(times.created));
        if kind != FileKind::Directory {
            self.disk
                .set_links_count(attributes.link_count.min(u32::from(LINKS_MAX)) as u16);
        }
        if kind == FileKind::Regular {
            let set = self.disk.set_size(rules, attributes.size_bytes);
            set.map_err(|error| self.damaged(error))?;
        }
        Ok(())
    }

    /// Sets the device number of a new device node.
    pub(crate) fn set_device(&mut self, device: u64) -> Result<()> {
        // The layout of Linux's 64-bit dev_t.
        let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
        let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
        let device = DeviceNo {
            major: major as u32,
            minor: minor as u32,
        };
        self.disk
            .set_device(device)
            .map_err(|error| self.damaged(error))
    }

    /// Adds to the links of a directory, which stop being counted when they are too many.
    pub(crate) fn add_links(&mut self, delta: i64, stops_counting: bool) {
        let now = i64::from(self.disk.links_count());
        if now == i64::from(LINKS_UNCOUNTED) && stops_counting {
            return;
        }
        let links = match now.saturating_add(delta) {
            links if links > i64::from(LINKS_MAX) && stops_counting => i64::from(LINKS_UNCOUNTED),
            links => links.clamp(0, i64::from(LINKS_MAX)),
        };
        self.disk.set_links_count(links as u16);
    }
}

/// A time in the format's form.
pub(crate) fn disk_time(time: Timestamp) -> DiskTime {
    DiskTime {
        sec: time.seconds(),
        nsec: time.nanoseconds(),
    }
}

/// A kind in the format's form.
pub(crate) fn disk_kind(kind: FileKind) -> DiskKind {
    match kind {
        FileKind::Regular => DiskKind::Regular,
        FileKind::Directory => DiskKind::Directory,
        FileKind::Symlink => DiskKind::Symlink,
        FileKind::BlockDevice => DiskKind::BlockDevice,
        FileKind::CharDevice => DiskKind::CharDevice,
        FileKind::Fifo => DiskKind::Fifo,
        FileKind::Socket => DiskKind::Socket,
    }
}

/// The inode table, as one thread of a commit has it. Holds on to the block written last: inodes
/// come in order of number, so each block is copied once.
pub(crate) struct InodeTable<'a> {
    state: &'a ExtState,
    pub(crate) rules: InodeRules,
    /// Bytes of further fields of new inodes.
    pub(crate) extra_isize: u16,
    current: Option<(u64, BufferWrite<'a>)>,
}

/// Where an inode lies in the buffer cache.
struct Slot {
    block: u64,
    offset: usize,
}

impl<'a> InodeTable<'a> {
    pub(crate) fn new(state: &'a ExtState) -> InodeTable<'a> {
        let (rules, wanted) = {
            let superblock = state.superblock.lock();
            (InodeRules::of(&superblock), superblock.want_extra_isize())
        };
        let extra_isize = extra_isize(state.geometry.inode_size, wanted);
        InodeTable {
            state,
            rules,
            extra_isize,
            current: None,
        }
    }

    fn slot(&self, ino: u32) -> Result<Slot> {
        let place = self.state.geometry.locate_inode(DiskIno(ino));
        let group = place.and_then(|place| self.state.groups.place(place.group.0));
        match (place, group) {
            (Some(place), Some(group)) if !group.is_damaged => Ok(Slot {
                block: group.inode_table + u64::from(place.table_block),
                offset: place.offset as usize,
            }),
            _ => Err(Error::corrupt(format_args!("inode {ino}: no such place"))),
        }
    }

    /// A new, blank inode.
    pub(crate) fn create(&self, ino: u32, generation: u32) -> InodeEdit {
        let mut disk = Inode::blank(self.state.geometry.inode_size, self.extra_isize);
        disk.set_generation(generation);
        self.edit(ino, disk)
    }

    fn edit(&self, ino: u32, disk: Inode<Vec<u8>>) -> InodeEdit {
        let seed = disk.seed(&self.rules, DiskIno(ino));
        InodeEdit {
            ino,
            disk,
            seed,
            blocks_delta: 0,
        }
    }

    /// An inode that is in use.
    pub(crate) fn load(&self, ino: u32) -> Result<InodeEdit> {
        let slot = self.slot(ino)?;
        let size = usize::from(self.state.geometry.inode_size);
        let copy = |block: &[u8]| {
            block
                .get(slot.offset..slot.offset + size)
                .unwrap_or_default()
                .to_vec()
        };
        let bytes = match &self.current {
            Some((block, buffer)) if *block == slot.block => copy(buffer),
            _ => copy(&self.state.buffers.read(slot.block)?),
        };
        let place = |error| at(format_args!("inode {ino}"), error);
        let disk = Inode::new(bytes).map_err(place)?;
        disk.verify_checksum(&self.rules, DiskIno(ino))
            .map_err(place)?;
        disk.validate().map_err(place)?;
        Ok(self.edit(ino, disk))
    }

    /// Writes an inode, with its checksum.
    pub(crate) fn store(&mut self, inode: &mut InodeEdit) -> Result<()> {
        inode.disk.update_checksum(&self.rules, DiskIno(inode.ino));
        let slot = self.slot(inode.ino)?;
        let buffer = self.block(slot.block)?;
        let bytes = inode.disk.as_bytes();
        if let Some(place) = buffer.get_mut(slot.offset..slot.offset + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn block(&mut self, block: u64) -> Result<&mut BufferWrite<'a>> {
        if self
            .current
            .as_ref()
            .is_none_or(|(current, _)| *current != block)
        {
            self.current = None;
            let buffer = self.state.buffers.modify(block)?;
            return Ok(&mut self.current.insert((block, buffer)).1);
        }
        match &mut self.current {
            Some((_, buffer)) => Ok(buffer),
            None => Err(Error::corrupt("no inode table block")),
        }
    }

    /// Prepares a part of the table of `ino`'s group that comes into use: what lies at these
    /// indices may be garbage.
    pub(crate) fn prepare(&mut self, ino: u32, indices: std::ops::Range<u32>) -> Result<()> {
        let Some(place) = self.state.geometry.locate_inode(DiskIno(ino)) else {
            return Ok(());
        };
        let size = usize::from(self.state.geometry.inode_size);
        let per_block = self.state.geometry.block_size / u32::from(self.state.geometry.inode_size);
        let first = ino - place.index;
        let mut index = indices.start;
        while index < indices.end {
            let slot = self.slot(first + index)?;
            if index.is_multiple_of(per_block) {
                // Nothing of this block was in use.
                self.current = None;
                self.current = Some((slot.block, self.state.buffers.zeroed(slot.block)));
                index += per_block;
                continue;
            }
            if let Some(place) = self
                .block(slot.block)?
                .get_mut(slot.offset..slot.offset + size)
            {
                place.fill(0);
            }
            index += 1;
        }
        Ok(())
    }

    /// Lets go of the block written last.
    pub(crate) fn close(&mut self) {
        self.current = None;
    }
}

/// Bytes of further fields of new inodes.
pub(crate) fn extra_isize(inode_size: u16, wanted: u16) -> u16 {
    let room = inode_size.saturating_sub(finefs_ext_disk::inode::INODE_SIZE_MIN as u16);
    wanted.max(EXTRA_ISIZE).min(room) & !3
}
