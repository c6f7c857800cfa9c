//! One object: its stat data, its content, and what becomes of it.

use std::ops::Range;

use finefs_namespace::{
    Attributes, BlockRun, Captured, DirectoryChange, Error, Extent, FileKind, InodeChange,
    LinkState, LogicalBlock, MapChange, Result, Settled, Times, Timestamp,
};
use finefs_reiser_disk::stat::{self, StatData};
use finefs_reiser_disk::{KeyVersion, ObjectKey};

use super::{Commit, MUTATIONS};
use crate::load::inode;
use crate::state::LINK_MAX;
use crate::tree::edit::Freed;
use crate::tree::edit::object::FileKey;

/// What stands for an owner that old stat data has no room for (the kernel's overflowuid).
const NOBODY: u32 = 65_534;

impl Commit<'_> {
    /// Applies all that a batch changes of an object that lives on.
    pub(super) fn change_object(
        &mut self,
        change: &InodeChange,
        names: Option<DirectoryChange>,
        captured: &Captured<'_>,
    ) -> Result<()> {
        let object = self.object(change.ino)?;
        let times = captured(change.ino).unwrap_or(change.attributes.times);
        let before = match change.is_created {
            true => self.create(object, change, &times)?,
            false => self
                .edit(|editor| editor.stat(object))
                .map_err(|error| match error {
                    Error::Stale => {
                        Error::corrupt(format_args!("inode {}: has no stat data", change.ino))
                    }
                    error => error,
                })?,
        };
        let mut stat = before;
        set_attributes(
            self.mounted.has_attributes,
            &mut stat,
            &change.attributes,
            &times,
        );
        match stat.kind {
            stat::FileKind::Directory => {
                add_links(&mut stat, change.link_delta);
                if change.is_created {
                    let parent = names.as_ref().and_then(|names| names.parent);
                    self.make_directory(object, parent, &mut stat)?;
                }
                if let Some(names) = names {
                    self.change_names(object, &mut stat, names)?;
                }
            }
            stat::FileKind::Symlink => {
                if let Some(target) = change.symlink.as_deref().filter(|_| change.is_created) {
                    self.put_target(object, &mut stat, target)?;
                }
            }
            stat::FileKind::Regular => {
                stat.size = change.attributes.size_bytes;
                self.change_map(object, &mut stat, &change.map)?;
                let is_unmap = |change: &MapChange| matches!(change, MapChange::Unmap { .. });
                if stat.size < before.size || change.map.iter().any(is_unmap) {
                    // Holes have pointers too, also those that are not unmapped.
                    self.cut(&FileKey::of(object, &stat), &mut stat)?;
                }
            }
            _ => {}
        }
        self.change_xattrs(object, &stat, &change.xattrs)?;
        self.keep_link(object, change.link_state)?;
        if change.link_state == LinkState::Orphan {
            stat.link_count = 0;
        }
        if stat != before {
            self.edit(|editor| editor.write_stat(object, &stat))?;
        }
        self.note_settled(change, &stat);
        Ok(())
    }

    /// What the object takes now.
    fn note_settled(&mut self, change: &InodeChange, stat: &StatData) {
        let block_size = self.mounted.tree.buffers.block_size_bytes();
        self.settled.push(Settled {
            ino: change.ino,
            sectors: inode::sectors(stat, block_size),
            directory_bytes: (stat.kind == stat::FileKind::Directory).then_some(stat.size),
        });
    }

    /// Stat data for a new object.
    fn create(
        &mut self,
        object: ObjectKey,
        change: &InodeChange,
        times: &Times,
    ) -> Result<StatData> {
        if !self.writer.numbers.take(object.object_id) {
            return Err(Error::corrupt(format_args!(
                "object {}: is in use already",
                object.object_id
            )));
        }
        let attributes = &change.attributes;
        let is_new = self.mounted.superblock.version() == KeyVersion::V3_6;
        let kind = disk_kind(attributes.kind);
        let is_device = attributes.kind.is_device();
        let mut stat = StatData {
            kind,
            permissions: 0,
            link_count: if attributes.kind == FileKind::Directory {
                2
            } else {
                1
            },
            uid: 0,
            gid: 0,
            size: 0,
            accessed: 0,
            modified: 0,
            changed: 0,
            sectors: 0,
            device: match is_device {
                true => (
                    libc::major(attributes.device),
                    libc::minor(attributes.device),
                ),
                false => (0, 0),
            },
            generation: (is_new && !is_device).then_some(attributes.generation),
            attributes: 0,
            is_new,
            first_direct: None,
        };
        set_attributes(self.mounted.has_attributes, &mut stat, attributes, times);
        self.edit(|editor| editor.insert_stat(object, &stat))?;
        Ok(stat)
    }

    /// The target of a new symbolic link.
    fn put_target(&mut self, object: ObjectKey, stat: &mut StatData, target: &[u8]) -> Result<()> {
        // As old kernels read it, the length of the item is that of the target.
        let padded = match stat.is_new {
            true => target.len().next_multiple_of(8),
            false => target.len(),
        };
        let mut bytes = target.to_vec();
        bytes.resize(padded, 0);
        let file = FileKey::of(object, stat);
        self.edit(|editor| editor.put_tail(&file, 0, &bytes))?;
        stat.size = target.len() as u64;
        stat.sectors = padded.div_ceil(512) as u32;
        stat.first_direct = Some(1);
        Ok(())
    }

    /// Changes of a file's mapping, in order.
    fn change_map(
        &mut self,
        object: ObjectKey,
        stat: &mut StatData,
        changes: &[MapChange],
    ) -> Result<()> {
        let file = FileKey::of(object, stat);
        for change in changes {
            match *change {
                MapChange::Map(extent) => self.map(&file, stat, extent)?,
                MapChange::Unmap { logical, length } => {
                    self.unmap(&file, stat, logical, length)?;
                }
                MapChange::Convert { .. } => {
                    return Err(Error::corrupt("an extent that is not written"));
                }
            }
            self.make_room()?;
        }
        Ok(())
    }

    fn map(&mut self, file: &FileKey, stat: &mut StatData, extent: Extent) -> Result<()> {
        // A hole before it may be of any size, and so may a run be.
        while !self.edit(|editor| editor.extend(file, extent.logical, MUTATIONS))? {
            self.make_room()?;
        }
        let (mut logical, mut run) = (
            extent.logical,
            BlockRun {
                start: extent.physical,
                length: extent.length,
            },
        );
        loop {
            let (first, count) = super::disk_run(run)?;
            let blocks = (first, u64::from(count));
            let mut freed = Freed::new();
            let mapped =
                self.edit(|editor| editor.map(file, logical, blocks, MUTATIONS, &mut freed))?;
            if mapped == 0 || !freed.is_empty() {
                return Err(Error::corrupt(format_args!(
                    "object {}: block {logical} cannot be mapped, or is already",
                    file.object.object_id
                )));
            }
            self.use_blocks(BlockRun {
                length: mapped,
                ..run
            })?;
            stat.sectors = stat.sectors.saturating_add(self.sectors_of(mapped));
            logical += mapped;
            run.start.0 += mapped;
            run.length -= mapped;
            if run.length == 0 {
                return Ok(());
            }
            self.make_room()?;
        }
    }

    fn unmap(
        &mut self,
        file: &FileKey,
        stat: &mut StatData,
        logical: LogicalBlock,
        length: u64,
    ) -> Result<()> {
        let block_size = self.mounted.tree.buffers.block_size_bytes() as u64;
        let end = logical.saturating_add(length);
        if let Some(tail) = self.edit(|editor| editor.tail(file))? {
            let first = LogicalBlock::of_byte(tail.offset, block_size);
            let tail_end = tail.offset + tail.bytes.len() as u64;
            let tail_end = LogicalBlock::not_before(tail_end, block_size);
            if logical <= first && tail_end <= end {
                self.edit(|editor| editor.remove_tail(file))?;
                stat.sectors = stat.sectors.saturating_sub(self.sectors_of(1));
                stat.first_direct = None;
            } else if first < end && logical < tail_end {
                return Err(Error::corrupt(format_args!(
                    "object {}: a part of a tail is unmapped",
                    file.object.object_id
                )));
            }
        }
        if end.0 >= crate::load::map::BLOCKS_MAX {
            return self.cut_to(file, stat, logical.offset_bytes(block_size));
        }
        self.punch(file, stat, logical..end)
    }

    /// Makes holes of blocks of a file; there may be any number of them.
    fn punch(
        &mut self,
        file: &FileKey,
        stat: &mut StatData,
        mut blocks: Range<LogicalBlock>,
    ) -> Result<()> {
        loop {
            let holes = (0, blocks.end - blocks.start);
            let mut freed = Freed::new();
            let made =
                self.edit(|editor| editor.map(file, blocks.start, holes, MUTATIONS, &mut freed))?;
            self.free_content(stat, freed)?;
            blocks.start += made;
            if made == 0 || blocks.start >= blocks.end {
                return Ok(());
            }
            self.make_room()?;
        }
    }

    /// Frees blocks of a file.
    fn free_content(&mut self, stat: &mut StatData, freed: Freed) -> Result<()> {
        let blocks: u64 = freed.iter().map(|(_, count)| u64::from(*count)).sum();
        stat.sectors = stat.sectors.saturating_sub(self.sectors_of(blocks));
        self.free_blocks(freed)
    }

    /// Cuts what a file has behind its size.
    pub(super) fn cut(&mut self, file: &FileKey, stat: &mut StatData) -> Result<()> {
        self.cut_to(file, stat, stat.size)
    }

    fn cut_to(&mut self, file: &FileKey, stat: &mut StatData, size_bytes: u64) -> Result<()> {
        loop {
            let mut freed = Freed::new();
            let is_done =
                self.edit(|editor| editor.truncate(file, size_bytes, MUTATIONS, &mut freed))?;
            self.free_content(stat, freed)?;
            if is_done {
                return Ok(());
            }
            self.make_room()?;
        }
    }

    pub(super) fn sectors_of(&self, blocks: u64) -> u32 {
        let block_size = self.mounted.tree.buffers.block_size_bytes() as u64;
        (blocks * (block_size / 512)) as u32
    }

    /// Removes an object and all that it has.
    pub(super) fn free_object(&mut self, change: &InodeChange) -> Result<()> {
        let object = self.object(change.ino)?;
        if change.is_created {
            // It is in no batch but this one.
            return Err(Error::corrupt(format_args!(
                "inode {}: made and freed",
                change.ino
            )));
        }
        let mut stat = self.edit(|editor| editor.stat(object))?;
        if change.attributes.kind == FileKind::Regular {
            self.change_map(object, &mut stat, &change.map)?;
        }
        self.remove_xattrs(object, &stat)?;
        self.keep_link(object, LinkState::Freed)?;
        self.remove_all(object)
    }

    /// Removes all items of an object, and frees its number.
    pub(super) fn remove_all(&mut self, object: ObjectKey) -> Result<()> {
        loop {
            let mut freed = Freed::new();
            let is_gone =
                self.edit(|editor| editor.remove_object(object, MUTATIONS, &mut freed))?;
            self.free_blocks(freed)?;
            if is_gone {
                break;
            }
            self.make_room()?;
        }
        self.free_number(object);
        Ok(())
    }

    pub(super) fn free_number(&mut self, object: ObjectKey) {
        if !self.writer.numbers.release(object.object_id) {
            log::error!("object {}: its number was free", object.object_id);
        }
        self.freed_numbers.push(object.object_id);
    }
}

/// All that stat data has of attributes; sizes, link counts of directories and space it keeps.
fn set_attributes(
    has_attributes: bool,
    stat: &mut StatData,
    attributes: &Attributes,
    times: &Times,
) {
    let owner = |id: u32| match stat.is_new {
        true => id,
        false => u16::try_from(id).map_or(NOBODY, u32::from),
    };
    (stat.uid, stat.gid) = (owner(attributes.uid), owner(attributes.gid));
    stat.permissions = attributes.permissions as u16 & 0o7777;
    if attributes.kind != FileKind::Directory {
        stat.link_count = attributes.link_count;
    }
    stat.accessed = seconds(times.accessed);
    stat.modified = seconds(times.modified);
    stat.changed = seconds(times.changed);
    if has_attributes && stat.is_new {
        stat.attributes = attributes.flags.bits() as u16;
    }
}

/// The format has no times before 1970.
fn seconds(time: Timestamp) -> u32 {
    u32::try_from(time.seconds().max(0)).unwrap_or(u32::MAX)
}

/// A directory of too many subdirectories has one link, from then on.
fn add_links(stat: &mut StatData, delta: i64) {
    if stat.link_count == 1 {
        return;
    }
    let links = i64::from(stat.link_count) + delta;
    stat.link_count = match links {
        links if links > i64::from(LINK_MAX) => 1,
        links => links.max(2) as u32,
    };
}

fn disk_kind(kind: FileKind) -> stat::FileKind {
    use stat::FileKind as Disk;
    match kind {
        FileKind::Fifo => Disk::Fifo,
        FileKind::CharDevice => Disk::CharDevice,
        FileKind::Directory => Disk::Directory,
        FileKind::BlockDevice => Disk::BlockDevice,
        FileKind::Regular => Disk::Regular,
        FileKind::Symlink => Disk::Symlink,
        FileKind::Socket => Disk::Socket,
    }
}
