//! The store: glue between the trait of the namespace and the modules of this crate.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_namespace::{
    Batch, BlockNo, BlockRun, Captured, Committed, DirectoryImage, Error, Extent, FileKind,
    Geometry, Goal, Identity, Ino, InodeImage, Plan, Result, StatFs, Store,
};
use finefs_reiser_disk::KeyVersion;
use finefs_reiser_disk::directory::NAME_MAX;

use crate::error::MountError;
use crate::load::{directory, inode, map, tail, xattr};
use crate::mount;
use crate::state::{Mounted, ROOT};

/// The most links of anything (the kernel's REISERFS_LINK_MAX).
const LINK_MAX: u32 = 64_535;

/// What the kernel asks of direct I/O on a disk with sectors of this size.
const DIRECT_ALIGNMENT_BYTES: u32 = 512;

/// A reiserfs image as a store, read-only.
pub struct ReiserStore {
    mounted: Mounted,
    geometry: Geometry,
}

impl std::fmt::Debug for ReiserStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReiserStore")
            .field("device", &self.mounted.device.describe())
            .finish()
    }
}

impl ReiserStore {
    /// Mounts the image on `device`.
    ///
    /// # Errors
    /// What keeps it from being read.
    pub fn open(device: Arc<dyn BlockDevice>) -> std::result::Result<ReiserStore, MountError> {
        let mounted = mount::mount(device)?;
        let geometry = geometry(&mounted);
        Ok(ReiserStore { mounted, geometry })
    }

    /// What the user should know about this mount, one line each.
    pub fn notes(&self) -> Vec<String> {
        self.mounted.notes.clone()
    }
}

fn geometry(mounted: &Mounted) -> Geometry {
    let superblock = &mounted.superblock;
    let block_size = superblock.block_size();
    let file_size_max_bytes = match superblock.version() {
        KeyVersion::V3_5 => i32::MAX as u64,
        KeyVersion::V3_6 => map::BLOCKS_MAX * u64::from(block_size),
    };
    Geometry {
        root: ROOT,
        block_size_bytes: block_size,
        file_size_max_bytes,
        block_mapped_size_max_bytes: file_size_max_bytes,
        direct_alignment_bytes: DIRECT_ALIGNMENT_BYTES,
        link_max: LINK_MAX,
        directory_link_max: None,
        directory_links_counted_max: LINK_MAX,
        name_max: NAME_MAX as u32,
        symlink_max: block_size,
        symlink_inline_max: 0,
        inline_max_bytes: 0,
        folding: None,
        has_fine_times: false,
        has_unwritten: false,
        batch_records: None,
        is_read_only: true,
        stops_on_damage: false,
        identity: Identity::derived(superblock.uuid(), &superblock.journal_magic().to_le_bytes()),
    }
}

impl Store for ReiserStore {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn load_inode(&self, ino: Ino) -> Result<InodeImage> {
        inode::load(&self.mounted, ino)
    }

    fn load_directory(&self, ino: Ino) -> Result<DirectoryImage> {
        directory::load(&self.mounted, ino)
    }

    fn load_extents(&self, ino: Ino) -> Result<Vec<Extent>> {
        map::load(&self.mounted, ino)
    }

    fn load_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let object = self.mounted.objects.find(&self.mounted.tree, ino)?;
        let mut target = tail::content(&self.mounted, object, libc::PATH_MAX as usize)?;
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
        xattr::load(&self.mounted, ino)
    }

    fn read(&self, block: BlockNo, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        tail::read(&self.mounted, block, offset_bytes, buffer)
    }

    fn write(&self, _: BlockNo, _: u64, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn write_zeros(&self, _: BlockRun) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn allocate_inode(&self, _: Ino, _: FileKind) -> Result<(Ino, u32)> {
        Err(Error::ReadOnly)
    }

    fn release_inode(&self, _: Ino, _: FileKind) {}

    fn allocate_blocks(&self, _: Ino, _: Option<Goal>, _: u64) -> Result<BlockRun> {
        Err(Error::ReadOnly)
    }

    fn release_blocks(&self, _: BlockRun) {}

    fn reserve(&self, _: &[Plan]) -> Result<u64> {
        Err(Error::ReadOnly)
    }

    fn unreserve(&self, _: u64) {}

    fn check_xattrs(&self, _: Ino, _: Option<u64>, _: &[(&[u8], &[u8])]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn commit(&self, _: Batch, _: &Captured<'_>) -> Result<Committed> {
        Err(Error::ReadOnly)
    }

    fn statfs(&self) -> StatFs {
        let superblock = &self.mounted.superblock;
        let free = u64::from(superblock.free_blocks());
        // As the kernel tells it: without superblock and bitmaps. There is no number of inodes.
        let overhead = u64::from(self.mounted.tree.bitmaps.count) + 1;
        StatFs {
            block_size_bytes: superblock.block_size(),
            blocks: u64::from(superblock.block_count()).saturating_sub(overhead),
            blocks_free: free,
            blocks_reserved: 0,
            blocks_available: free,
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

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
