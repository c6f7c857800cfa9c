//! The store: glue between the trait of the namespace and the modules of this crate.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::casefold;
use finefs_ext_disk::features::{Incompat, RoCompat};
use finefs_ext_disk::indirect;
use finefs_ext_disk::inode::InodeFlags;
use finefs_ext_disk::superblock::Superblock;
use finefs_namespace::{
    Batch, BatchCost, BlockNo, BlockRun, Captured, Charge, Committed, DirectoryImage, Error,
    Extent, FileKind, Folding, Geometry, Goal, Identity, Ino, InodeImage, Plan, Result, StatFs,
    Store, write_padded,
};
use smallvec::{SmallVec, smallvec};

use crate::apply::ImageCost;
use crate::damage;
use crate::error::{MountError, detail};
use crate::journal::writer::JournalWriter;
use crate::load::{directory, inode, map, quota, symlink, verity, xattr};
use crate::mmp::Mmp;
use crate::mount::{self, Mounted};
use crate::on_error::OnError;
use crate::quota::{QuotaReport, QuotaUsage, Quotas};
use crate::state::ExtState;
use crate::{ExtOptions, apply, trim};

/// What the kernel's ext4 asks of direct I/O on a loop device or a disk with sectors of this size.
const DIRECT_ALIGNMENT_BYTES: u32 = 512;

/// A longer write goes to the device at once: it is one request there, and would fill the memory of
/// many.
const CACHED_BYTES_MAX: usize = 64 << 10;

/// An ext2, ext3 or ext4 image as a store.
pub struct ExtStore {
    state: ExtState,
    geometry: Geometry,
    /// Where there is a journal, which is only so long.
    cost: Option<ImageCost>,
    notes: Vec<String>,
    /// Keeps other hosts away.
    mmp: Option<Mmp>,
    /// The image was cleanly unmounted, or needed no more than a replay, when it was mounted.
    was_valid: bool,
}

impl std::fmt::Debug for ExtStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExtStore")
            .field("device", &self.state.device.describe())
            .finish()
    }
}

impl ExtStore {
    /// Mounts the image on `device`. What keeps it from being written leaves a note and makes the
    /// store read-only; what keeps it from being read is the error.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        options: &ExtOptions,
    ) -> std::result::Result<ExtStore, MountError> {
        let Mounted {
            state,
            notes,
            was_valid,
            mmp,
        } = mount::mount(device, options)?;
        let journal_blocks = state.journal.lock().as_ref().map(JournalWriter::capacity);
        let geometry = geometry(&state, journal_blocks);
        let cost = journal_blocks
            .map(|blocks| ImageCost::new(&state.geometry, geometry.has_unwritten, blocks));
        Ok(ExtStore {
            state,
            geometry,
            cost,
            notes,
            mmp,
            was_valid,
        })
    }

    /// What the user should know about this mount, one line each.
    pub fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// What is done about damage: as the options say, or the superblock.
    pub fn on_error(&self) -> OnError {
        self.state.on_error
    }

    /// What users, groups and projects have and may have, where the image keeps account of that.
    ///
    /// # Errors
    /// A quota file that is damaged.
    pub fn quotas(&self) -> Result<Vec<QuotaReport>> {
        match self.state.quotas.get() {
            Some(quotas) => Ok(quotas.report()),
            None => quota::load(&self.state, &[]).map(|quotas| Quotas::report(&quotas)),
        }
    }

    /// Makes the quota files say that ids have so many bytes and inodes, and others nothing.
    /// Nothing else may be under way.
    pub(crate) fn set_quota_usage(&self, usage: &[QuotaUsage]) -> Result<()> {
        self.may_write()?;
        apply::set_quota_usage(&self.state, usage)
    }

    /// Where a range of data lies on the device, if all of it lies in the file system.
    fn data_offset(&self, block: BlockNo, offset_bytes: u64, length: usize) -> Result<u64> {
        let size_bytes = self.state.geometry.size_bytes();
        let start = block
            .0
            .checked_mul(u64::from(self.state.geometry.block_size))
            .and_then(|start| start.checked_add(offset_bytes));
        match start {
            Some(start)
                if start
                    .checked_add(length as u64)
                    .is_some_and(|end| end <= size_bytes) =>
            {
                Ok(start)
            }
            _ => Err(Error::corrupt(format_args!(
                "block {}: past the end",
                block.0
            ))),
        }
    }

    /// The parts of a range of data on the device that lie in one block each: the block, where in
    /// it the part begins, and which of the bytes it is.
    fn blocks_of(
        &self,
        start: u64,
        length: usize,
    ) -> impl Iterator<Item = (u64, usize, Range<usize>)> + use<> {
        let block_bytes = u64::from(self.state.geometry.block_size);
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = start + done as u64;
            let within = at % block_bytes;
            let range = done..length.min(done + (block_bytes - within) as usize);
            done = range.end;
            (!range.is_empty()).then_some((at / block_bytes, within as usize, range))
        })
    }

    /// Writes to blocks of which those that are not in the cache go to the device at once.
    fn write_through(&self, start: u64, data: &[u8]) -> Result<()> {
        let mut unwritten = 0;
        for (number, within, range) in self.blocks_of(start, data.len()) {
            let part = &data[range.clone()];
            if self.state.data.change_or_drop(number, within, part) {
                self.write_device(start, data, unwritten..range.start)?;
                unwritten = range.end;
            }
        }
        self.write_device(start, data, unwritten..data.len())
    }

    fn write_device(&self, start: u64, data: &[u8], range: Range<usize>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let (place, part) = (start + range.start as u64, &data[range]);
        let block = BlockNo(place / u64::from(self.state.geometry.block_size));
        self.state
            .device
            .write_at(place, part)
            .map_err(io_error("writing", block))?;
        self.count_written(part.len() as u64);
        Ok(())
    }

    /// Writes to the cache, and what it has no room for to the device. Where the blocks are blank,
    /// what is left of them becomes zeros.
    fn write_cached(&self, start: u64, data: &[u8], is_blank: bool) -> Result<()> {
        let cache = &self.state.data;
        let mut is_reserved = false;
        for (number, within, range) in self.blocks_of(start, data.len()) {
            let part = &data[range.clone()];
            if !is_blank && cache.change(number, within, part) {
                continue;
            }
            if !is_reserved {
                self.reserve_around(start, data.len())?;
                is_reserved = true;
            }
            let is_cached = match is_blank {
                true => cache.put_blank(number, within, part),
                false => self.put_over(number, within, part),
            };
            if is_cached {
                continue;
            }
            match is_blank {
                true => self.write_padded_through(number, within, part)?,
                false => self.write_device(start, data, range)?,
            }
        }
        Ok(())
    }

    /// Takes storage for the blocks of a range: nothing is cached that could not be written for
    /// lack of it, as far as storage can be promised.
    fn reserve_around(&self, start: u64, length: usize) -> Result<()> {
        let block_bytes = u64::from(self.state.geometry.block_size);
        let first = start / block_bytes;
        let end = (start + length as u64).next_multiple_of(block_bytes);
        self.state
            .device
            .reserve_around_at(first * block_bytes, end - first * block_bytes)
            .map_err(io_error("taking storage for", BlockNo(first)))
    }

    /// Brings a block into the cache and changes it there: what `data` leaves of it is read before.
    /// False when it cannot come in.
    fn put_over(&self, block: u64, within: usize, data: &[u8]) -> bool {
        let block_bytes = self.state.geometry.block_size as usize;
        if data.len() == block_bytes {
            return self.state.data.put_over(block, within, data, &[]);
        }
        let mut before: SmallVec<[u8; 4096]> = smallvec![0; block_bytes];
        let place = block * block_bytes as u64;
        // What cannot be read can perhaps be written.
        let is_read = self.state.device.read_at(place, &mut before).is_ok();
        is_read && self.state.data.put_over(block, within, data, &before)
    }

    /// Writes a blank block at once.
    fn write_padded_through(&self, block: u64, within: usize, data: &[u8]) -> Result<()> {
        let block_bytes = self.state.geometry.block_size as usize;
        let mut padded: SmallVec<[u8; 4096]> = smallvec![0; block_bytes];
        padded[within..within + data.len()].copy_from_slice(data);
        self.write_device(block * block_bytes as u64, &padded, 0..block_bytes)
    }

    /// The block group of an inode.
    fn group_of(&self, ino: Ino) -> u32 {
        let number = u32::try_from(ino.0).unwrap_or(0);
        let place = self
            .state
            .geometry
            .locate_inode(finefs_ext_disk::Ino(number));
        place.map_or(0, |place| place.group.0)
    }

    fn may_write(&self) -> Result<()> {
        if self.state.is_read_only {
            return Err(Error::ReadOnly);
        }
        match &self.mmp {
            Some(mmp) if mmp.is_lost() => Err(Error::io("another host has mounted it (MMP)")),
            _ => Ok(()),
        }
    }

    /// Refuses an allocation once a bitmap was found damaged, where the file system is to stop
    /// then. (Where it is to go on, it goes on without that group.)
    fn stop_on_damage(&self) -> Result<()> {
        match self.state.allocator.damage() {
            Some(damage) if self.state.on_error != OnError::Continue => Err(damage.clone()),
            _ => Ok(()),
        }
    }

    fn count_written(&self, length_bytes: u64) {
        let blocks = length_bytes.div_ceil(u64::from(self.state.geometry.block_size));
        self.state.blocks_written.add(blocks as i64);
    }
}

fn io_error(what: &'static str, block: BlockNo) -> impl Fn(io::Error) -> Error {
    move |error| match finefs_block::is_full(&error) {
        true => Error::NoSpace,
        false => Error::io(format_args!("{what} block {}: {error}", block.0)),
    }
}

/// The facts that the namespace wants to know.
fn geometry(state: &ExtState, journal_blocks: Option<u64>) -> Geometry {
    let superblock = state.superblock.lock();
    let (incompat, ro_compat) = (superblock.incompat(), superblock.ro_compat());
    let block_size = state.geometry.block_size;
    let has_extents = incompat.contains(Incompat::EXTENTS);
    // Without huge_file the space used must fit 32 bits of 512-byte units.
    let sectors_max = match ro_compat.contains(RoCompat::HUGE_FILE) {
        true => (1 << 48) - 1,
        false => u64::from(u32::MAX),
    };
    let block_bytes = u64::from(block_size);
    let mapped_max = indirect::dense_blocks_max(block_size, sectors_max / (block_bytes / 512));
    let block_mapped_size_max_bytes = mapped_max * block_bytes;
    // Logical blocks have 32 bits; the last number stays free.
    let extents_max = u64::from(u32::MAX).min(sectors_max / (block_bytes / 512)) * block_bytes;
    let file_size_max_bytes = match has_extents {
        true => extents_max,
        false => block_mapped_size_max_bytes,
    };
    Geometry {
        root: mount::ROOT,
        block_size_bytes: block_size,
        file_size_max_bytes,
        block_mapped_size_max_bytes,
        direct_alignment_bytes: DIRECT_ALIGNMENT_BYTES,
        link_max: u32::from(finefs_ext_disk::inode::LINKS_MAX),
        directory_link_max: (!ro_compat.contains(RoCompat::DIR_NLINK))
            .then_some(u32::from(finefs_ext_disk::inode::LINKS_MAX)),
        directory_links_counted_max: u32::from(finefs_ext_disk::inode::LINKS_MAX),
        name_max: finefs_ext_disk::dirent::NAME_MAX as u32,
        symlink_max: (block_size - 1).min(libc::PATH_MAX as u32 - 1),
        symlink_inline_max: finefs_ext_disk::inode::BLOCK_AREA_SIZE as u32 - 1,
        folding: folding(&superblock),
        inline_max_bytes: apply::inline_max_bytes(&superblock, state.geometry.inode_size),
        has_fine_times: state.geometry.inode_size > 128,
        has_unwritten: has_extents,
        // A record changes few blocks, and many change the same; at most twice as many come.
        batch_records: journal_blocks.map(|blocks| (blocks * 2 / 3).max(1)),
        is_read_only: state.is_read_only,
        stops_on_damage: state.on_error != OnError::Continue,
        identity: identity(&superblock),
    }
}

/// How names are compared in directories that fold case.
fn folding(superblock: &Superblock) -> Option<Folding> {
    let has_folding = superblock.incompat().contains(Incompat::CASEFOLD);
    has_folding.then(|| Folding {
        fold: casefold::fold,
        is_strict: superblock.encoding_flags() & casefold::FLAG_STRICT != 0,
    })
}

/// The UUID, and what the image's owner alone can know.
fn identity(superblock: &Superblock) -> Identity {
    let seed: Vec<u8> = superblock
        .hash_seed()
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    Identity::derived(superblock.uuid(), &seed)
}

impl Store for ExtStore {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeImage> {
        damage::noted(&self.state, inode::load(&self.state, ino))
    }

    fn load_directory(&self, ino: Ino) -> Result<DirectoryImage> {
        let image = damage::noted(&self.state, directory::load(&self.state, ino))?;
        if let Some(damage) = &image.damage {
            let _ = damage::noted::<()>(&self.state, Err(damage.clone()));
        }
        Ok(image)
    }

    fn load_extents(&self, ino: Ino) -> Result<Vec<Extent>> {
        let (inode, kind) = inode::checked(&self.state, ino)?;
        match kind {
            FileKind::Regular => {
                let mapping = damage::noted(&self.state, map::load(&self.state, ino, &inode));
                let extents = mapping?.extents;
                if inode.flags().contains(InodeFlags::VERITY) {
                    verity::verify(&self.state, ino, &inode, &extents)?;
                }
                Ok(extents)
            }
            _ => Err(Error::Invalid),
        }
    }

    fn load_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        damage::noted(&self.state, symlink::load(&self.state, ino))
    }

    fn load_xattrs(&self, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        damage::noted(&self.state, xattr::load(&self.state, ino))
    }

    fn read(&self, block: BlockNo, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let start = self.data_offset(block, offset_bytes, buffer.len())?;
        let (state, mut unread) = (&self.state, 0);
        let read_device = |part: &mut [u8], from: usize| {
            let overlay = state.buffers.overlay();
            overlay.read_at(&*state.device, start + from as u64, part)
        };
        let failed = io_error("reading", block);
        for (number, within, range) in self.blocks_of(start, buffer.len()) {
            if state.data.read(number, within, &mut buffer[range.clone()]) {
                read_device(&mut buffer[unread..range.start], unread).map_err(&failed)?;
                unread = range.end;
            }
        }
        read_device(&mut buffer[unread..], unread).map_err(failed)
    }

    fn write(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.may_write()?;
        let start = self.data_offset(block, offset_bytes, data.len())?;
        match data.len() > CACHED_BYTES_MAX {
            true => self.write_through(start, data),
            false => self.write_cached(start, data, false),
        }
    }

    fn write_blank(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.may_write()?;
        if data.len() > CACHED_BYTES_MAX {
            return write_padded(self, block, offset_bytes, data);
        }
        let start = self.data_offset(block, offset_bytes, data.len())?;
        self.write_cached(start, data, true)
    }

    fn write_behind(&self, run: BlockRun) {
        self.state.data.write_behind(run);
    }

    fn sync_data(&self, runs: &[BlockRun]) -> Result<()> {
        if self.state.is_read_only {
            return Ok(());
        }
        apply::sync_data(&self.state, runs)
    }

    fn forget_data(&self, run: BlockRun) {
        self.state.data.abandon(run.start.0, run.length);
    }

    fn write_zeros(&self, run: BlockRun) -> Result<()> {
        self.may_write()?;
        let length_bytes = run
            .length
            .saturating_mul(u64::from(self.state.geometry.block_size));
        let length = usize::try_from(length_bytes).map_err(|_| Error::Invalid)?;
        let start = self.data_offset(run.start, 0, length)?;
        self.state.data.forget(run.start.0, run.length);
        self.state
            .device
            .write_zeros_at(start, length_bytes)
            .map_err(io_error("zeroing", run.start))?;
        self.count_written(length_bytes);
        Ok(())
    }

    fn allocate_inode(&self, parent: Ino, kind: FileKind) -> Result<(Ino, u32)> {
        self.may_write()?;
        let is_directory = kind == FileKind::Directory;
        let (number, generation) = self.state.allocator.allocate_inode_number(
            &self.state,
            self.group_of(parent),
            is_directory,
            is_directory && parent == mount::ROOT,
        )?;
        let ino = Ino(u64::from(number));
        self.stop_on_damage()
            .inspect_err(|_| self.release_inode(ino, kind))?;
        Ok((ino, generation))
    }

    fn release_inode(&self, ino: Ino, kind: FileKind) {
        apply::release_inode(&self.state, ino, kind);
    }

    fn allocate_blocks(&self, ino: Ino, goal: Option<Goal>, count: u64) -> Result<BlockRun> {
        self.may_write()?;
        let group = self.group_of(ino);
        let allocator = &self.state.allocator;
        let run = allocator.allocate_data(&self.state, group, goal, count)?;
        self.stop_on_damage()
            .inspect_err(|_| self.release_blocks(run))?;
        Ok(run)
    }

    fn release_blocks(&self, run: BlockRun) {
        self.state.data.forget(run.start.0, run.length);
        self.state.allocator.release_blocks(&self.state, run);
    }

    fn reserve(&self, plans: &[Plan]) -> Result<u64> {
        self.may_write()?;
        let blocks = apply::reserve(&self.state, plans)?;
        self.stop_on_damage()
            .inspect_err(|_| self.unreserve(blocks))?;
        Ok(blocks)
    }

    fn charge(&self, charge: &Charge, generation: &dyn Fn() -> u64) -> Result<()> {
        match self.state.quotas.get() {
            Some(quotas) => quotas.charge(charge, generation, self.state.now_seconds()),
            None => Ok(()),
        }
    }

    fn uncharge(&self, charge: &Charge) {
        if let Some(quotas) = self.state.quotas.get() {
            quotas.uncharge(charge);
        }
    }

    fn has_projects(&self) -> bool {
        self.state.has_projects
    }

    fn why_no_space(&self) -> Error {
        match self.state.allocator.damage() {
            Some(damage) => Error::corrupt(format_args!(
                "no space is left but in groups that are damaged ({}); run e2fsck -f",
                detail(damage)
            )),
            None => Error::NoSpace,
        }
    }

    fn unreserve(&self, blocks: u64) {
        apply::unreserve(&self.state, blocks);
    }

    fn check_xattrs(
        &self,
        ino: Ino,
        inline_bytes: Option<u64>,
        xattrs: &[(&[u8], &[u8])],
    ) -> Result<()> {
        apply::check_xattrs(&self.state, ino, inline_bytes, xattrs)
    }

    fn commit(&self, batch: Batch, captured: &Captured<'_>) -> Result<Committed> {
        self.may_write()?;
        let outcome = apply::commit(&self.state, batch, captured);
        if let Err(error) = &outcome
            && *error != Error::NoSpace
        {
            damage::write_stop(&self.state, error);
        }
        outcome
    }

    fn batch_cost(&self) -> Option<&dyn BatchCost> {
        self.cost.as_ref().map(|cost| cost as &dyn BatchCost)
    }

    fn mapping_fits_inode(&self, size_bytes: u64, blocks: u64, is_block_mapped: bool) -> bool {
        let block_bytes = u64::from(self.geometry.block_size_bytes);
        apply::mapping_fits_inode(size_bytes, blocks, block_bytes, is_block_mapped)
    }

    fn statfs(&self) -> StatFs {
        let state = &self.state;
        let (total_blocks, reserved) = {
            let superblock = state.superblock.lock();
            (
                superblock.blocks_count(),
                superblock.reserved_blocks_count(),
            )
        };
        let (free, inodes_free, reserved) = if state.is_read_only {
            let (free_clusters, inodes_free) = state.groups.totals();
            let free = free_clusters.saturating_mul(u64::from(state.geometry.cluster_ratio));
            (free, inodes_free, reserved)
        } else {
            let (free, inodes_free) = state.allocator.free_counts();
            (free, inodes_free, state.allocator.kept_back())
        };
        StatFs {
            block_size_bytes: state.geometry.block_size,
            blocks: total_blocks - state.overhead_blocks,
            blocks_free: free.min(total_blocks),
            blocks_reserved: reserved,
            blocks_available: free.saturating_sub(reserved),
            inodes: u64::from(state.geometry.inodes_count),
            inodes_free,
            name_max: finefs_ext_disk::dirent::NAME_MAX as u32,
        }
    }

    fn freeze(&self) -> Result<()> {
        self.may_write()?;
        mount::mark_frozen(&self.state, self.was_valid)?;
        self.mmp.iter().for_each(Mmp::pause);
        Ok(())
    }

    fn thaw(&self) -> Result<()> {
        self.may_write()?;
        self.mmp.iter().for_each(Mmp::resume);
        mount::mark_thawed(&self.state)
    }

    fn label(&self) -> Vec<u8> {
        let raw = self.state.superblock.lock().volume_name_raw();
        let end = raw.iter().position(|byte| *byte == 0);
        raw[..end.unwrap_or(raw.len())].to_vec()
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.may_write()?;
        let mut superblock = self.state.superblock.lock();
        let mut raw = superblock.volume_name_raw();
        raw.fill(0);
        raw.get_mut(..label.len())
            .ok_or(Error::Invalid)?
            .copy_from_slice(label);
        superblock.set_volume_name_raw(&raw);
        Ok(())
    }

    fn trim(&self, blocks: Range<u64>, run_min: u64) -> Result<Option<(u64, u64)>> {
        self.may_write()?;
        trim::trim(&self.state, blocks, run_min)
    }

    fn describe(&self) -> String {
        self.state.device.describe()
    }

    fn close(&self) -> Result<()> {
        if self.state.is_read_only {
            return Ok(());
        }
        self.may_write()?;
        mount::mark_closed(&self.state, self.was_valid)?;
        self.mmp.iter().for_each(Mmp::release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use finefs_block::{Access, FileDevice};

    use super::*;

    /// A commit that panicked keeps the journal's writer: nothing may then be written past the log.
    #[test]
    fn without_its_writer_a_journaled_image_is_not_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("image");
        let made = Command::new("mke2fs")
            .args(["-q", "-t", "ext4"])
            .arg(&image)
            .arg("16M")
            .status();
        assert!(made.expect("mke2fs runs").success());
        let device = FileDevice::open(&image, Access::ReadWrite).expect("it opens");
        let store = ExtStore::open(Arc::new(device), &ExtOptions::default()).expect("it is sound");
        let writer = store.state.take_journal().expect("it has one");
        assert!(matches!(store.close(), Err(Error::Io(_))));
        let mut superblock = store.state.superblock.lock().clone();
        assert!(superblock.incompat().contains(Incompat::NEEDS_RECOVERY));
        *store.state.journal.lock() = writer;
        store.close().expect("it closes with its writer");
        superblock = store.state.superblock.lock().clone();
        assert!(!superblock.incompat().contains(Incompat::NEEDS_RECOVERY));
    }
}
