//! The store: glue between the trait of the namespace and the modules of this crate.

use std::collections::HashMap;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{CACHED_BYTES_MAX, DataMode};
use finefs_namespace::{
    Batch, BatchCost, BlockNo, BlockRun, Captured, Charge, Committed, ContentPlace, DirectoryImage,
    Error, Extent, FileKind, Geometry, Goal, ID_MAX, Identity, Ino, InodeForm, InodeImage,
    NameClasses, Plan, Result, StatFs, Store, write_padded,
};
use finefs_reiser_disk::directory::NAME_MAX;
use finefs_reiser_disk::hash::{GENERATION_MAX, NameHash};
use finefs_reiser_disk::{KeyVersion, ObjectKey, indirect};

use crate::ReiserOptions;
use crate::apply::cost::{self, ImageCost};
use crate::error::MountError;
use crate::load::{content, directory, inode, map, tail, xattr};
use crate::state::{LINK_MAX, Mounted, ROOT, Writer};
use crate::{apply, mount};

/// What the kernel asks of direct I/O on a disk with sectors of this size.
const DIRECT_ALIGNMENT_BYTES: u32 = 512;

/// What objects of format 3.5 can have, also where they lie beside newer ones. The largest file is
/// the kernel's MAX_NON_LFS. Attributes are found by generations, which they do not have.
const OLD_FORM: InodeForm = InodeForm {
    size_max_bytes: i32::MAX as u64,
    owner_max: u16::MAX as u32,
    run_max_blocks: u64::MAX,
    has_xattrs: false,
    has_flags: false,
};

/// A reiserfs image as a store.
pub struct ReiserStore {
    mounted: Mounted,
    geometry: Geometry,
    cost: Option<ImageCost>,
}

impl std::fmt::Debug for ReiserStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReiserStore")
            .field("device", &self.mounted.device.describe())
            .finish()
    }
}

impl ReiserStore {
    /// Mounts the image on `device`. What keeps it from being written leaves a note, the first one,
    /// and makes the store read-only.
    ///
    /// # Errors
    /// What keeps it from being read.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        options: &ReiserOptions,
    ) -> std::result::Result<ReiserStore, MountError> {
        let mounted = mount::mount(device, options)?;
        let capacity = mounted.writing.as_ref().map(|writing| writing.capacity);
        let geometry = geometry(&mounted, capacity);
        let (block_size, bitmaps) = (geometry.block_size_bytes, mounted.tree.bitmaps.count);
        Ok(ReiserStore {
            cost: capacity.map(|capacity| ImageCost::new(block_size, bitmaps, capacity)),
            mounted,
            geometry,
        })
    }

    /// What the user should know about this mount, one line each.
    pub fn notes(&self) -> Vec<String> {
        self.mounted.notes.clone()
    }

    /// Changes what the superblock says of the mount.
    fn mark(&self, mark: impl Fn(&Mounted, &mut Writer) -> Result<()>) -> Result<()> {
        let writing = self.mounted.writing()?;
        let mut writer = writing.take_writer()?;
        let outcome = mark(&self.mounted, &mut writer);
        writing.put_writer(writer);
        outcome
    }

    /// An error where a number that was free in the map has an object, as far as that is known. It
    /// stays taken then.
    fn check_unused(&self, object_id: u32) -> Result<()> {
        let mounted = &self.mounted;
        let Ok(object) = mounted.objects.find(Ino(u64::from(object_id))) else {
            return Ok(());
        };
        let stat = mounted.tree.consistent(|| inode::stat(mounted, object));
        match stat {
            Err(Error::Stale) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::corrupt(format_args!(
                "object {object_id} is there, and its number is free in the map"
            ))),
        }
    }

    /// What a load of an inode gives of a tree that no commit changes meanwhile.
    fn load<T>(&self, ino: Ino, load: impl Fn(&Mounted) -> Result<T>) -> Result<T> {
        self.mounted.objects.look(&self.mounted.tree, ino)?;
        self.mounted.tree.consistent(|| load(&self.mounted))
    }
}

/// Names of one hash, as many as there are numbers to tell them apart.
const fn classes(class_of: fn(&[u8]) -> u32) -> NameClasses {
    NameClasses {
        class_of,
        names_max: GENERATION_MAX + 1,
        hidden_in_root: finefs_reiser_disk::xattr::PRIVATE_ROOT,
    }
}

fn geometry(mounted: &Mounted, capacity: Option<usize>) -> Geometry {
    let superblock = &mounted.superblock;
    let block_size = superblock.block_size();
    let new_form = match superblock.version() {
        KeyVersion::V3_5 => OLD_FORM,
        KeyVersion::V3_6 => InodeForm {
            size_max_bytes: map::BLOCKS_MAX * u64::from(block_size),
            owner_max: ID_MAX,
            run_max_blocks: u64::MAX,
            has_xattrs: mounted.xattrs.is_some(),
            has_flags: mounted.has_attributes,
        },
    };
    let target_max = indirect::direct_max(block_size as usize) / 8 * 8;
    Geometry {
        root: ROOT,
        block_size_bytes: block_size,
        cluster_blocks: 1,
        new_form,
        old_form: OLD_FORM,
        direct_alignment_bytes: DIRECT_ALIGNMENT_BYTES,
        link_max: LINK_MAX,
        directory_link_max: None,
        directory_links_counted_max: LINK_MAX,
        name_max: NAME_MAX as u32,
        symlink_max: (target_max as u32).min(libc::PATH_MAX as u32 - 1),
        symlink_inline_max: target_max as u32,
        inline_max_bytes: 0,
        folding: None,
        name_classes: mounted.hash.map(|hash| match hash {
            NameHash::Tea => const { &classes(|name| NameHash::Tea.entry_offset(name)) },
            NameHash::Rupasov => const { &classes(|name| NameHash::Rupasov.entry_offset(name)) },
            NameHash::R5 => const { &classes(|name| NameHash::R5.entry_offset(name)) },
        }),
        has_fine_times: false,
        has_birth_times: false,
        has_unsigned_times: true,
        has_unwritten: false,
        has_packed_blocks: true,
        maps_holes: true,
        // A record changes few blocks, and many change the same; at most twice as many come.
        batch_records: capacity.map(|blocks| (blocks as u64 / 2).max(1)),
        is_read_only: mounted.writing.is_none(),
        stops_on_damage: true,
        identity: Identity::derived(superblock.uuid(), &superblock.journal_magic().to_le_bytes()),
    }
}

impl Store for ReiserStore {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeImage> {
        self.load(ino, |mounted| inode::load(mounted, ino))
    }

    fn load_directory(&self, ino: Ino) -> Result<DirectoryImage> {
        self.load(ino, |mounted| directory::load(mounted, ino))
    }

    fn load_extents(&self, ino: Ino) -> Result<Vec<Extent>> {
        self.load(ino, |mounted| map::load(mounted, ino))
    }

    fn load_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut target = self.load(ino, |mounted| {
            let object = mounted.objects.find(ino)?;
            content::whole(mounted, object, libc::PATH_MAX as usize)
        })?;
        // Some kernels counted the zeros that fill it up.
        if let Some(end) = target.iter().position(|&byte| byte == 0) {
            target.truncate(end);
        }
        match target.is_empty() {
            true => Err(Error::corrupt(format_args!("inode {ino}: link to nothing"))),
            false => Ok(target),
        }
    }

    fn load_xattrs(&self, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.load(ino, |mounted| xattr::load(mounted, ino))
    }

    fn read(&self, block: BlockNo, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        let mounted = &self.mounted;
        if !block.is_packed() {
            return tail::read(mounted, block, offset_bytes, buffer);
        }
        let tree = &mounted.tree;
        tree.consistent(|| tail::read(mounted, block, offset_bytes, buffer))
    }

    fn write(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.mounted.writing()?;
        let cached = &self.mounted.data;
        cached.write(block, offset_bytes, data, DataMode::Ordered)
    }

    fn write_blank(&self, block: BlockNo, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.mounted.writing()?;
        match data.len() > CACHED_BYTES_MAX {
            true => write_padded(self, block, offset_bytes, data),
            false => self.mounted.data.write_blank(block, offset_bytes, data),
        }
    }

    fn write_behind(&self, run: BlockRun) {
        self.mounted.data.cache().write_behind(run);
    }

    fn overwrite_content(
        &self,
        _place: ContentPlace,
        block: BlockNo,
        offset_bytes: u64,
        data: &[u8],
    ) -> Result<()> {
        self.mounted.writing()?;
        let cached = &self.mounted.data;
        cached.write(block, offset_bytes, data, DataMode::Writeback)
    }

    fn write_data(&self, runs: &[BlockRun]) -> Result<()> {
        self.mounted.data.write_runs(runs)
    }

    fn write_back(&self) -> Result<()> {
        self.mounted.data.write_back()
    }

    fn flush(&self) -> Result<()> {
        match self.mounted.writing {
            Some(_) => self.mounted.data.flush(),
            None => Ok(()),
        }
    }

    fn write_zeros(&self, run: BlockRun) -> Result<()> {
        self.mounted.writing()?;
        self.mounted.data.write_zeros(run)
    }

    fn allocate_inode(&self, parent: Ino, kind: FileKind) -> Result<(Ino, u32)> {
        let writing = self.mounted.writing()?;
        let dir_id = u32::try_from(parent.0).map_err(|_| Error::Stale)?;
        let object_id = writing.numbers.take().ok_or(Error::NoSpace)?;
        self.check_unused(object_id)?;
        self.mounted.objects.note(ObjectKey { dir_id, object_id });
        // Where the format has none, the directory's number stands for it.
        let has_generation =
            self.mounted.superblock.version() == KeyVersion::V3_6 && !kind.is_device();
        let generation = match has_generation {
            true => writing.numbers.generation(),
            false => dir_id,
        };
        Ok((Ino(u64::from(object_id)), generation))
    }

    fn release_inode(&self, ino: Ino, _: FileKind) {
        if let Some(writing) = &self.mounted.writing {
            apply::release_number(&self.mounted, writing, ino);
        }
    }

    fn allocate_blocks(&self, _: Ino, goal: Option<Goal>, count: u64) -> Result<BlockRun> {
        let allocator = &self.mounted.writing()?.allocator;
        let run = allocator.allocate_data(&self.mounted, 0, goal, count)?;
        match allocator.damage() {
            Some(damage) => {
                self.release_blocks(run);
                Err(damage.clone())
            }
            None => Ok(run),
        }
    }

    fn release_blocks(&self, run: BlockRun) {
        if let Some(writing) = &self.mounted.writing {
            self.mounted.data.cache().forget(run.start.0, run.length);
            writing.allocator.release_blocks(&self.mounted, run);
        }
    }

    fn reserve(&self, plans: &[Plan]) -> Result<u64> {
        cost::reserve(&self.mounted, plans)
    }

    fn unreserve(&self, blocks: u64) {
        if let Some(writing) = &self.mounted.writing {
            writing.allocator.unreserve(blocks);
        }
    }

    fn check_xattrs(&self, _: Ino, _: Option<u64>, xattrs: &[(&[u8], &[u8])]) -> Result<Charge> {
        self.mounted.writing()?;
        if xattrs.is_empty() {
            return Ok(Charge::default());
        }
        // They are names of a directory, and Linux looks them up as such (`lookup_one_len`).
        let is_name = |name: &[u8]| !name.iter().any(|byte| matches!(byte, b'/' | 0));
        if !xattrs.iter().all(|(name, _)| is_name(name)) {
            return Err(Error::AccessDenied);
        }
        if let Some(classes) = self.geometry.name_classes
            && xattrs.len() > classes.names_max as usize
        {
            let mut counts = HashMap::new();
            for (name, _) in xattrs {
                let count: &mut u32 = counts.entry((classes.class_of)(name)).or_default();
                *count += 1;
                if *count > classes.names_max {
                    return Err(Error::Busy);
                }
            }
        }
        Ok(Charge::default())
    }

    fn commit(&self, batch: Batch, captured: &Captured<'_>) -> Result<Committed> {
        apply::commit(&self.mounted, batch, captured)
    }

    fn batch_cost(&self) -> Option<&dyn BatchCost> {
        self.cost.as_ref().map(|cost| cost as &dyn BatchCost)
    }

    fn statfs(&self) -> StatFs {
        let superblock = &self.mounted.superblock;
        let (free, kept) = match &self.mounted.writing {
            Some(writing) => (
                writing.allocator.free_counts().0,
                writing.allocator.kept_back(),
            ),
            None => (u64::from(superblock.free_blocks()), 0),
        };
        // As the kernel tells it: without superblock and bitmaps. There is no number of inodes.
        let overhead = u64::from(self.mounted.tree.bitmaps.count) + 1;
        StatFs {
            block_size_bytes: superblock.block_size(),
            blocks: u64::from(superblock.block_count()).saturating_sub(overhead),
            blocks_free: free,
            blocks_reserved: kept,
            blocks_available: free.saturating_sub(kept),
            inodes: 0,
            inodes_free: 0,
            name_max: NAME_MAX as u32,
        }
    }

    fn label(&self) -> Vec<u8> {
        crate::info::until_nul(&self.mounted.superblock.label()).to_vec()
    }

    fn describe(&self) -> String {
        self.mounted.device.describe()
    }

    fn checker(&self) -> &'static str {
        crate::CHECKER
    }

    fn freeze(&self) -> Result<()> {
        self.mark(apply::mark_clean)
    }

    fn thaw(&self) -> Result<()> {
        self.mark(apply::mark_mounted)
    }

    fn close(&self) -> Result<()> {
        match self.mounted.writing.is_some() {
            true => self.mark(apply::mark_clean),
            false => Ok(()),
        }
    }
}
