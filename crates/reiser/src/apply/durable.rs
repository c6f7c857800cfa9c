//! The end of a group: what was staged is published, and becomes durable through the journal.

use std::ops::Range;

use finefs_block::BlockDevice;
use finefs_namespace::{Error, Result};
use finefs_reiser_disk::superblock::Superblock;

use super::Commit;
use crate::error::at;
use crate::journal::writer::{Change, JournalWriter, Outcome};
use crate::space::{Space, settle_nodes};
use crate::state::{Mounted, Writer};
use crate::tree::staged::Staged;

/// What the superblock says while a batch is half durable: reiserfsck finds errors.
const HAS_ERRORS: u16 = 1;

impl Commit<'_> {
    /// Ends a group: all that was changed since the last one is durable when this returns, the last
    /// one or one of several. `Error::NoSpace`: there is no storage for it below the device, and it
    /// was published.
    pub(super) fn group(&mut self, is_last: bool) -> Result<()> {
        let mounted = self.mounted;
        let (more, gone) = settle_nodes(&mut self.staged, &mounted.tree)?;
        self.used += more;
        self.freed.extend(gone.into_iter().map(super::run_of));
        if !is_last && !self.is_split {
            log::warn!(
                "{}: a commit larger than the journal is written in parts",
                mounted.device.describe()
            );
        }
        self.is_split |= !is_last;
        self.put_superblock(if is_last { 0 } else { HAS_ERRORS })?;
        let changed = self.staged.changed();
        mounted
            .tree
            .publish(&changed, self.staged.freed(), self.root);
        drop(changed);
        let reserved = std::mem::take(&mut self.staged.space().reserved);
        let space = Space::new(mounted, self.writing, reserved);
        self.staged = Staged::new(&mounted.tree, space);
        self.keeps_data = write(mounted, &mut self.writer.journal)?;
        Ok(())
    }

    /// Puts the superblock as it is now into its block, with the map of numbers behind it.
    fn put_superblock(&mut self, check_state: u16) -> Result<()> {
        let superblock = &mut self.writer.superblock;
        let free = i64::from(superblock.free_blocks()) - std::mem::take(&mut self.used);
        let free = u32::try_from(free)
            .map_err(|_| Error::corrupt("the superblock's number of free blocks is wrong"))?;
        superblock.set_free_blocks(free);
        superblock.set_root(self.root.block, self.root.levels);
        superblock.set_inode_generation(self.writing.numbers.generation());
        superblock.set_check_state(check_state);
        let words = self.writer.numbers.words(superblock.object_ids().1);
        superblock.set_object_ids(words.len() as u16);
        let superblock = superblock.clone();
        let at = self.mounted.superblock_at;
        let block = self.staged.edit(self.mounted.superblock_block())?;
        superblock.write_to(block.get_mut(at..).unwrap_or_default());
        let map = at + superblock.object_ids_offset();
        for (place, word) in block[map..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        Ok(())
    }
}

/// Makes all dirty buffers durable, and the data that they refer to anew; tells whether other data
/// is dirty still. `Error::NoSpace` when there is no storage for the buffers below the device: none
/// of them was written then.
fn write(mounted: &Mounted, journal: &mut JournalWriter) -> Result<bool> {
    let keeps_data = mounted.data.write_ordered()?;
    let changes = mounted.tree.buffers.dirty();
    reserve(journal.device(), &journal.places(changes.len()))?;
    reserve(&*mounted.device, &places(mounted, &changes))?;
    match journal.commit(&changes)? {
        Outcome::Durable => mounted.tree.buffers.write_these(&changes)?,
        Outcome::TooLarge => without_journal(mounted, journal, changes)?,
    }
    Ok(keeps_data)
}

/// Writes more dirty buffers than the journal can hold: those of a batch, and of the ones before it
/// for which there was no storage. Until all of them are in their places the superblock on the
/// device says that there are errors, so that after a crash reiserfsck looks at all of it.
fn without_journal(
    mounted: &Mounted,
    journal: &mut JournalWriter,
    changes: Vec<Change>,
) -> Result<()> {
    log::warn!(
        "{}: a commit of {} blocks is larger than the journal: written without it",
        mounted.device.describe(),
        changes.len()
    );
    journal.checkpoint()?;
    note_errors(mounted)?;
    journal.flush()?;
    let superblock = u64::from(mounted.superblock_block());
    let (last, others): (Vec<Change>, Vec<Change>) = changes
        .into_iter()
        .partition(|(block, _)| *block == superblock);
    mounted.tree.buffers.write_these(&others)?;
    journal.flush()?;
    mounted.tree.buffers.write_these(&last)?;
    journal.flush()
}

/// Makes the superblock on the device, as it is there, say that there are errors.
fn note_errors(mounted: &Mounted) -> Result<()> {
    let mut block = vec![0; mounted.tree.buffers.block_size_bytes()];
    let offset = u64::from(mounted.superblock_block()) * block.len() as u64;
    let failed = |error| Error::io(format_args!("marking the superblock: {error}"));
    let read = mounted.device.read_at(offset, &mut block);
    read.map_err(failed)?;
    let place = block.get_mut(mounted.superblock_at..).unwrap_or_default();
    let mut superblock = Superblock::parse(place).map_err(|error| at("superblock", &error))?;
    superblock.set_check_state(HAS_ERRORS);
    superblock.write_to(place);
    mounted.device.write_at(offset, &block).map_err(failed)
}

/// The dirty buffers' places, adjacent ones together.
fn places(mounted: &Mounted, changes: &[Change]) -> Vec<Range<u64>> {
    let block_bytes = mounted.tree.buffers.block_size_bytes() as u64;
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (block, _) in changes {
        let start = block * block_bytes;
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end += block_bytes,
            _ => ranges.push(start..start + block_bytes),
        }
    }
    ranges
}

/// Takes storage for parts of a device.
fn reserve(device: &dyn BlockDevice, ranges: &[Range<u64>]) -> Result<()> {
    for range in ranges {
        let taken = device.reserve_at(range.start, range.end - range.start);
        taken.map_err(|error| match finefs_block::is_full(&error) {
            true => Error::NoSpace,
            false => Error::io(format_args!("taking storage: {error}")),
        })?;
    }
    Ok(())
}

/// Notes that the file system is mounted, durably.
pub(crate) fn mark_mounted(mounted: &Mounted, writer: &mut Writer) -> Result<()> {
    mark(mounted, writer, |superblock| superblock.set_clean(false))
}

/// Notes that it is not, and empties the log. After a commit; nothing else is under way.
pub(crate) fn mark_clean(mounted: &Mounted, writer: &mut Writer) -> Result<()> {
    mark(mounted, writer, |superblock| superblock.set_clean(true))?;
    writer.journal.checkpoint()
}

/// Changes the superblock, durably.
fn mark(
    mounted: &Mounted,
    writer: &mut Writer,
    change: impl FnOnce(&mut Superblock),
) -> Result<()> {
    change(&mut writer.superblock);
    let mut block = mounted
        .tree
        .buffers
        .modify(u64::from(mounted.superblock_block()))?;
    let place = block.get_mut(mounted.superblock_at..).unwrap_or_default();
    writer.superblock.write_to(place);
    drop(block);
    write(mounted, &mut writer.journal).map(|_| ())
}
