//! A journal that lies on another device. Nothing tells of it but its header, which has a number in
//! common with the superblock of the file system.
//!
//! # References
//! `journal_init` in `fs/reiserfs/journal.c` of Linux.

use finefs_block::BlockDevice;
use finefs_reiser_disk::journal;
use finefs_reiser_disk::superblock::Superblock;

use crate::error::MountErrorKind;

/// Looks whether `device` holds the journal of the file system with this superblock.
pub(crate) fn check(device: &dyn BlockDevice, superblock: &Superblock) -> super::Result<()> {
    let wrong = |what: String| {
        let name = device.describe();
        Err(MountErrorKind::JournalDevice(format!("{name} {what}")))
    };
    let block_size = u64::from(superblock.block_size());
    let place = superblock.journal();
    let header_at = (u64::from(place.start) + u64::from(place.blocks)) * block_size;
    if device.len_bytes() < header_at + block_size {
        return wrong(format!(
            "is too small for the journal, which ends at byte {}",
            header_at + block_size
        ));
    }
    let mut header = vec![0; block_size as usize];
    let read = device.read_at(header_at, &mut header);
    read.map_err(|error| MountErrorKind::Io(format!("reading {}: {error}", device.describe())))?;
    let (here, wanted) = (journal::magic(&header), superblock.journal_magic());
    if here != wanted {
        return wrong(format!(
            "is not the journal of this file system: its header has the number {here:#x}, the \
             superblock {wanted:#x}"
        ));
    }
    Ok(())
}
