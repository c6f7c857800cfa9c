//! The store: glue between the trait of the namespace and the modules of this crate.

use std::ops::Range;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::alloc::BitmapSource;
use finefs_buffers::{CACHED_BYTES_MAX, DataMode};
use finefs_ext_disk::casefold;
use finefs_ext_disk::features::{Incompat, RoCompat};
use finefs_ext_disk::indirect;
use finefs_ext_disk::inode::InodeFlags;
use finefs_ext_disk::superblock::Superblock;
use finefs_namespace::{
    Allowance, Batch, BatchCost, BlockNo, BlockRun, Captured, Charge, Committed, ContentPlace,
    DirectoryImage, Error, Extent, FileKind, Folding, Geometry, Goal, Identity, Ino, InodeForm,
    InodeImage, PlacedName, Plan, QuotaAccount, QuotaChange, QuotaOwners, ReadAt, Result,
    SealParameters, StatFs, Store, VerityDigest, write_padded,
};

use crate::apply::ImageCost;
use crate::bitmaps::block_map_run_max;
use crate::crypt::FileCipher;
use crate::damage;
use crate::error::{MountError, detail};
use crate::journal::writer::JournalWriter;
use crate::load::{
    checked, clusters, directory, encryption, inode, map, names, quota, symlink, verity, xattr,
};
use crate::mmp::Mmp;
use crate::mount::{self, Mounted, Protection};
use crate::on_error::OnError;
use crate::quota::account as quota_account;
use crate::quota::{QuotaReport, QuotaUsage, Quotas};
use crate::sealed::Sealed;
use crate::state::ExtState;
use crate::{ExtOptions, apply, new_encrypted, trim};

/// What the kernel's ext4 asks of direct I/O on a loop device or a disk with sectors of this size.
const DIRECT_ALIGNMENT_BYTES: u32 = 512;

/// An ext2, ext3 or ext4 image as a store.
pub struct ExtStore {
    state: ExtState,
    geometry: Geometry,
    /// But for an image that is being filled: it is to come out the same in any memory.
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
        ExtStore::open_with(device, options, Protection::Own)
    }

    /// The same, where it is said who keeps other hosts away.
    pub(crate) fn open_with(
        device: Arc<dyn BlockDevice>,
        options: &ExtOptions,
        protection: Protection,
    ) -> std::result::Result<ExtStore, MountError> {
        let Mounted {
            state,
            notes,
            was_valid,
            mmp,
        } = mount::mount(device, options, protection)?;
        let journal_blocks = state.journal.lock().as_ref().map(JournalWriter::capacity);
        let mut geometry = geometry(&state, journal_blocks);
        let buffer_bytes = options.buffer_bytes;
        let cost = options
            .bulk_load
            .is_none()
            .then(|| ImageCost::new(&state, geometry.has_unwritten, journal_blocks, buffer_bytes));
        if journal_blocks.is_none() && cost.is_some() {
            let block_bytes = u64::from(geometry.block_size_bytes);
            geometry.batch_records = Some(apply::blocks_in_memory(block_bytes, buffer_bytes));
        }
        Ok(ExtStore {
            state,
            geometry,
            cost,
            notes,
            mmp,
            was_valid,
        })
    }

    /// What it knows.
    pub(crate) fn state(&self) -> &ExtState {
        &self.state
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

    /// The block group of an inode.
    fn group_of(&self, ino: Ino) -> u32 {
        let number = u32::try_from(ino.0).unwrap_or(0);
        let place = self
            .state
            .geometry
            .locate_inode(finefs_ext_disk::Ino(number));
        place.map_or(0, |place| place.group.0)
    }

    /// What encrypts the content of a file; `None` where nothing does.
    #[inline]
    fn content_cipher(&self, ino: Ino) -> Result<Option<Arc<FileCipher>>> {
        match self.state.keyring {
            None => Ok(None),
            Some(_) => encryption::of_content(&self.state, ino),
        }
    }

    /// The content of an encrypted file at a block.
    fn sealed<'a>(
        &'a self,
        cipher: &'a FileCipher,
        place: ContentPlace,
        block: BlockNo,
    ) -> Result<Sealed<'a>> {
        let cipher = cipher.content().ok_or(Error::Invalid)?;
        Ok(Sealed::new(&self.state, cipher, place, block))
    }

    fn may_write(&self) -> Result<()> {
        if self.state.is_read_only {
            return Err(Error::ReadOnly);
        }
        self.may_write_out()
    }

    /// Whether what waits in memory may go to the device. Where nothing can be written nothing
    /// waits.
    fn may_write_out(&self) -> Result<()> {
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
    let mapped_max_bytes = match indirect::reaches(state.geometry.blocks_count) {
        true => mapped_max * block_bytes,
        // A block for them may lie where they cannot point: they are emptied and removed only.
        false => 0,
    };
    let old_form = InodeForm {
        run_max_blocks: block_map_run_max(block_size),
        ..InodeForm::of_size(mapped_max_bytes)
    };
    // Logical blocks have 32 bits; the last number stays free.
    let cluster_blocks = u64::from(state.geometry.cluster_ratio);
    let blocks_max = u64::from(u32::MAX).min(sectors_max / (block_bytes / 512));
    let extents_max = blocks_max / cluster_blocks * cluster_blocks * block_bytes;
    let new_form = match has_extents {
        true => InodeForm::of_size(extents_max),
        false => old_form,
    };
    Geometry {
        root: mount::ROOT,
        block_size_bytes: block_size,
        cluster_blocks,
        new_form,
        old_form,
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
        has_birth_times: state.geometry.inode_size > 128,
        has_unsigned_times: false,
        name_classes: None,
        has_unwritten: has_extents,
        has_packed_blocks: false,
        maps_holes: false,
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

    fn open_large_directory(&self, ino: Ino, names_min: u64) -> Result<Option<Ino>> {
        names::open(&self.state, ino, names_min)
    }

    fn find_name(&self, dir: Ino, name: &[u8]) -> Result<Option<(Ino, Option<FileKind>)>> {
        damage::noted(&self.state, names::find(&self.state, dir, name))
    }

    fn names_from(&self, dir: Ino, place: u64, found: &mut Vec<PlacedName>) -> Result<Option<u64>> {
        let next = names::from(&self.state, dir, place, found);
        damage::noted(&self.state, next)
    }

    fn load_extents(&self, ino: Ino) -> Result<Vec<Extent>> {
        let (inode, kind) = checked::inode(&self.state, ino)?;
        match kind {
            FileKind::Regular => {
                if self.geometry.cluster_blocks > 1 && !inode.flags().contains(InodeFlags::EXTENTS)
                {
                    let what = format_args!("inode {ino}: is mapped by blocks, not in clusters");
                    return damage::noted(&self.state, Err(Error::corrupt(what)));
                }
                let mapping = damage::noted(&self.state, map::load(&self.state, ino, &inode));
                let extents = mapping?.extents;
                if inode.flags().contains(InodeFlags::VERITY) {
                    verity::verify(&self.state, ino, &inode, &extents)?;
                }
                damage::noted(&self.state, clusters::whole(&self.state, ino, extents))
            }
            _ => Err(Error::Invalid),
        }
    }

    fn verity_digest(&self, ino: Ino, end_bytes: u64, read: &ReadAt<'_>) -> Result<VerityDigest> {
        verity::digest(&self.state, ino, end_bytes, read)
    }

    fn load_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        damage::noted(&self.state, symlink::load(&self.state, ino))
    }

    fn load_xattrs(&self, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        damage::noted(&self.state, xattr::load(&self.state, ino))
    }

    fn read(&self, block: BlockNo, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let overlay = self.state.buffers.overlay();
        self.state.data.read(overlay, block, offset_bytes, buffer)
    }

    fn write(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.may_write()?;
        let cached = &self.state.data;
        cached.write(block, offset_bytes, data, DataMode::Ordered)
    }

    fn write_blank(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.may_write()?;
        if data.len() > CACHED_BYTES_MAX {
            return write_padded(self, block, offset_bytes, data);
        }
        self.state.data.write_blank(block, offset_bytes, data)
    }

    fn read_content(
        &self,
        place: ContentPlace,
        block: BlockNo,
        offset_bytes: u64,
        buffer: &mut [u8],
    ) -> Result<()> {
        match self.content_cipher(place.ino)? {
            None => self.read(block, offset_bytes, buffer),
            Some(cipher) => self
                .sealed(&cipher, place, block)?
                .read(offset_bytes, buffer),
        }
    }

    fn write_content(
        &self,
        place: ContentPlace,
        block: BlockNo,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        let Some(cipher) = self.content_cipher(place.ino)? else {
            return self.write(block, offset_bytes, data);
        };
        self.may_write()?;
        let sealed = self.sealed(&cipher, place, block)?;
        sealed.write(offset_bytes, data, false)
    }

    fn overwrite_content(
        &self,
        place: ContentPlace,
        block: BlockNo,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        if self.content_cipher(place.ino)?.is_some() {
            return self.write_content(place, block, offset_bytes, data);
        }
        self.may_write()?;
        let cached = &self.state.data;
        cached.write(block, offset_bytes, data, DataMode::Writeback)
    }

    fn write_blank_content(
        &self,
        place: ContentPlace,
        block: BlockNo,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        let Some(cipher) = self.content_cipher(place.ino)? else {
            return self.write_blank(block, offset_bytes, data);
        };
        self.may_write()?;
        let sealed = self.sealed(&cipher, place, block)?;
        sealed.write(offset_bytes, data, true)
    }

    fn write_zero_content(&self, place: ContentPlace, run: BlockRun) -> Result<()> {
        let Some(cipher) = self.content_cipher(place.ino)? else {
            return self.write_zeros(run);
        };
        self.may_write()?;
        self.sealed(&cipher, place, run.start)?.write_zeros(run)
    }

    fn write_behind(&self, run: BlockRun) {
        if self.may_write_out().is_ok() {
            self.state.data.cache().write_behind(run);
        }
    }

    fn write_data(&self, runs: &[BlockRun]) -> Result<()> {
        self.may_write_out()?;
        self.state.data.write_runs(runs)
    }

    fn write_back(&self) -> Result<()> {
        self.may_write_out()?;
        self.state.data.write_back()
    }

    fn flush(&self) -> Result<()> {
        match self.state.is_read_only {
            true => Ok(()),
            false => self.state.data.flush(),
        }
    }

    fn write_zeros(&self, run: BlockRun) -> Result<()> {
        self.may_write()?;
        self.state.data.write_zeros(run)
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
        if let Some(keyring) = &self.state.keyring {
            new_encrypted::begin(&self.state, keyring, parent, (ino, generation), kind)
                .inspect_err(|_| self.release_inode(ino, kind))?;
        }
        Ok((ino, generation))
    }

    fn check_encrypted(&self, dir: Ino) -> Result<()> {
        new_encrypted::check(&self.state, dir)
    }

    fn begin_encryption(&self, dir: Ino, xattrs: &[(&[u8], &[u8])]) -> Result<()> {
        self.may_write()?;
        new_encrypted::begin_directory(&self.state, dir, xattrs)
    }

    fn may_name_encrypted(&self, dir: Ino, ino: Ino) -> Result<bool> {
        new_encrypted::may_name(&self.state, dir, ino)
    }

    fn encrypted_target_bytes(&self, dir: Ino, length_bytes: u32) -> Result<u32> {
        new_encrypted::target_bytes(&self.state, dir, length_bytes)
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
        self.state.data.cache().forget(run.start.0, run.length);
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
            Some(quotas) => {
                quotas.charge(charge, generation, self.state.now_seconds())?;
                let space = (&self.state.allocator, &self.state as &dyn BitmapSource);
                let roomy = quotas.make_room(space, charge, generation);
                roomy.inspect_err(|_| quotas.uncharge(charge))
            }
            None => Ok(()),
        }
    }

    fn set_quota(
        &self,
        owners: QuotaOwners,
        change: &QuotaChange,
        generation: &dyn Fn() -> u64,
    ) -> Result<()> {
        self.may_write()?;
        let quotas = self.state.quotas.get().ok_or(Error::NotSupported)?;
        let space = (&self.state.allocator, &self.state as &dyn BitmapSource);
        let now = self.state.now_seconds();
        quotas.set(space, (owners, change), generation, now)
    }

    fn allowance(&self, owners: QuotaOwners, id: u32) -> Allowance {
        let quotas = self.state.quotas.get();
        quotas.map_or_else(Allowance::default, |quotas| quotas.allowance(owners, id))
    }

    fn seal(
        &self,
        size_bytes: u64,
        parameters: &SealParameters<'_>,
        read: &ReadAt<'_>,
    ) -> Result<(u64, Vec<u8>)> {
        verity::seal(&self.state, size_bytes, parameters, read)
    }

    fn quota(&self, owners: QuotaOwners, id: u32) -> Result<QuotaAccount> {
        quota_account(&self.quotas()?, owners, id).ok_or(Error::NotSupported)
    }

    fn uncharge(&self, charge: &Charge) {
        if let Some(quotas) = self.state.quotas.get() {
            quotas.uncharge(charge);
        }
    }

    fn has_projects(&self) -> bool {
        self.state.has_projects
    }

    fn has_room_for_project(&self, ino: Ino) -> Result<bool> {
        apply::has_room_for_project(&self.state, ino)
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
    ) -> Result<Charge> {
        apply::check_xattrs(&self.state, ino, inline_bytes, xattrs)
    }

    fn quota_inodes(&self, ino: Ino) -> Result<u64> {
        apply::quota_inodes(&self.state, ino)
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
        let (total_blocks, for_root, has_extents) = {
            let superblock = state.superblock.lock();
            (
                superblock.blocks_count(),
                superblock.reserved_blocks_count(),
                superblock.incompat().contains(Incompat::EXTENTS),
            )
        };
        let (free, inodes_free) = match state.is_read_only {
            true => state.groups.totals(),
            false => state.allocator.free_counts(),
        };
        // What the kernel keeps back too (`s_resv_clusters`), but without extents, where finefs
        // does only while it writes.
        let reserved = match has_extents || !state.is_read_only {
            true => for_root + state.allocator.pool_blocks(),
            false => for_root,
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
        if let Some(mmp) = &self.mmp {
            mmp.resume()?;
        }
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

    fn write_error(&self, error: &Error) {
        damage::write_stop(&self.state, error);
    }

    fn describe(&self) -> String {
        self.state.device.describe()
    }

    fn checker(&self) -> &'static str {
        crate::CHECKER
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
mod tests;
