//! A journal that has a device of its own. That begins with a superblock of the format, which says
//! `journal_dev` and has a UUID that the file system's superblock names; the journal's superblock
//! is in the block behind it, and the log's blocks are numbered as the device's are.
//!
//! Reference: Linux `Documentation/filesystems/ext4/journal.rst`, "External Journal".

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::features::{Compat, Incompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::jbd2::JournalSuperblock;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use finefs_namespace::{BlockNo, Error, Extent, ExtentState, LogicalBlock, Result};

use super::{Journal, at_journal};
use crate::uuid::shown as uuid;

/// Whether the file system says that its journal lies on another device.
pub fn is_external(superblock: &Superblock) -> bool {
    superblock.compat().contains(Compat::HAS_JOURNAL) && superblock.journal_inum() == 0
}

/// Whether the file system on `image` says that its journal lies on another device.
pub fn has_external_journal(image: &dyn BlockDevice) -> bool {
    read(image).is_some_and(|superblock| is_external(&superblock))
}

/// Whether `journal` says that it is that of the file system on `image`.
pub fn is_journal_of(journal: &dyn BlockDevice, image: &dyn BlockDevice) -> bool {
    match (read(journal), read(image)) {
        (Some(journal), Some(image)) => {
            journal.incompat().contains(Incompat::JOURNAL_DEV)
                && journal.uuid() == image.journal_uuid()
        }
        _ => false,
    }
}

fn read(device: &dyn BlockDevice) -> Option<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    Superblock::parse(&bytes).ok()
}

/// The superblock of the log on an external journal, which begins with `owner`; why not, where it
/// cannot be read.
pub(crate) fn log_of(
    device: &dyn BlockDevice,
    owner: &Superblock,
) -> std::result::Result<JournalSuperblock, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("journal superblock: {why}");
    let block_bytes = owner
        .block_size()
        .ok_or_else(|| wrong(&"no place for it"))?;
    let block = SUPERBLOCK_OFFSET / u64::from(block_bytes) + 1;
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let read = device.read_at(block * u64::from(block_bytes), &mut bytes);
    read.map_err(|error| wrong(&error))?;
    JournalSuperblock::parse(&bytes).map_err(|error| wrong(&error))
}

/// The UUIDs of the file systems that use a journal.
pub(crate) fn users_of(log: &JournalSuperblock) -> Vec<[u8; 16]> {
    (0..log.nr_users() as usize)
        .map_while(|at| log.user(at))
        .collect()
}

/// What a device is, in words, where that is an external journal, and what to give instead.
pub fn what_journal(device: &dyn BlockDevice) -> Option<String> {
    let owner = read(device).filter(|it| it.incompat().contains(Incompat::JOURNAL_DEV))?;
    let users = log_of(device, &owner)
        .map(|log| users_of(&log))
        .unwrap_or_default();
    let users: Vec<String> = users.iter().map(uuid).collect();
    let of = match &users[..] {
        [] => return Some("is an external journal that no file system uses yet".to_owned()),
        [user] => format!("file system {user}"),
        users => format!("file systems {}", users.join(", ")),
    };
    Some(format!(
        "is the external journal of the {of}; give the image of that"
    ))
}

/// Opens the journal on `device`, which must be that of the file system.
pub(super) fn open(
    device: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    geometry: &Geometry,
) -> Result<Journal> {
    let name = device.describe();
    let wrong = |what: &str| Error::corrupt(format_args!("{name}: {what}"));
    let read = |offset: u64, bytes: &mut [u8]| {
        let read = device.read_at(offset, bytes);
        read.map_err(|error| Error::io(format_args!("reading {name}: {error}")))
    };
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if device.len_bytes() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Err(wrong("too small for an external journal"));
    }
    read(SUPERBLOCK_OFFSET, &mut bytes)?;
    let owner = Superblock::parse(&bytes)
        .ok()
        .filter(|found| found.incompat().contains(Incompat::JOURNAL_DEV))
        .ok_or_else(|| wrong("is no external journal"))?;
    owner
        .verify_checksum()
        .map_err(|error| at_journal(&name, error))?;
    if owner.uuid() != superblock.journal_uuid() {
        return Err(wrong("is the external journal of another file system"));
    }
    let block_bytes = u64::from(geometry.block_size);
    if owner.block_size() != Some(geometry.block_size) {
        return Err(wrong("has blocks of another size than the file system"));
    }
    let blocks = owner.blocks_count().min(device.len_bytes() / block_bytes);
    let superblock_block = (SUPERBLOCK_OFFSET / block_bytes) as u32 + 1;
    read(u64::from(superblock_block) * block_bytes, &mut bytes)?;
    let place = format!("{name}: journal superblock");
    let found = JournalSuperblock::parse(&bytes).map_err(|error| at_journal(&place, error))?;
    let format = found
        .validate(geometry.block_size, blocks)
        .map_err(|error| at_journal(&place, error))?;
    if found.nr_users() > 1 {
        return Err(wrong("is shared by several file systems"));
    }
    if found.first() <= superblock_block {
        return Err(wrong("its log begins before its superblock"));
    }
    Ok(Journal {
        device: device.clone(),
        is_external: true,
        superblock_block,
        superblock: found,
        format,
        extents: vec![Extent {
            logical: LogicalBlock(0),
            physical: BlockNo(0),
            length: blocks,
            state: ExtentState::Written,
        }],
        fs_blocks: geometry.blocks_count,
    })
}
