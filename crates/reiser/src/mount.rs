//! From a device to a mounted file system.
//!
//! 1. The superblock: whether there is one, whether the image is whole.
//! 2. The journal: what a replay would give is shown in place of what the device holds.
//! 3. The superblock again, as the replay leaves it; the root directory.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{BufferCache, CLEAN_LIMIT_BYTES, Overlay};
use finefs_namespace::Error;
use finefs_reiser_disk::bitmap::Bitmaps;
use finefs_reiser_disk::key;
use finefs_reiser_disk::stat::FileKind;
use finefs_reiser_disk::superblock::{self, SUPERBLOCK_OFFSETS, SUPERBLOCK_SIZE, Superblock};

use crate::error::{MountError, MountErrorKind, detail, detail_of};
use crate::journal;
use crate::load::{inode, xattr};
use crate::objects::Objects;
use crate::state::Mounted;
use crate::tree::{Root, Tree};

/// Where the superblock is, in bytes, if there is one.
pub(crate) fn superblock_offset(device: &dyn BlockDevice) -> Option<u64> {
    SUPERBLOCK_OFFSETS.into_iter().find(|&offset| {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(offset, &mut bytes).is_ok() && superblock::is_superblock(&bytes)
    })
}

/// True when there is a superblock of reiserfs.
pub fn is_reiserfs(device: &dyn BlockDevice) -> bool {
    superblock_offset(device).is_some()
}

/// Reads the superblock and checks it.
pub(crate) fn read_superblock(
    device: &dyn BlockDevice,
    overlay: &Overlay,
    offset: u64,
) -> std::result::Result<Superblock, MountErrorKind> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    overlay
        .read_at(device, offset, &mut bytes)
        .map_err(|error| MountErrorKind::Io(format!("reading the superblock: {error}")))?;
    let damaged = |error| MountErrorKind::Superblock(detail_of(&error));
    let superblock = Superblock::parse(&bytes).map_err(damaged)?;
    superblock.validate().map_err(damaged)?;
    let file_system_bytes =
        u64::from(superblock.block_count()) * u64::from(superblock.block_size());
    if file_system_bytes > device.len_bytes() {
        return Err(MountErrorKind::Truncated {
            file_system_bytes,
            device_bytes: device.len_bytes(),
        });
    }
    Ok(superblock)
}

/// Mounts. See the module's head.
pub(crate) fn mount(device: Arc<dyn BlockDevice>) -> std::result::Result<Mounted, MountError> {
    let name = device.describe();
    open(device).map_err(|kind| MountError { device: name, kind })
}

fn open(device: Arc<dyn BlockDevice>) -> std::result::Result<Mounted, MountErrorKind> {
    let offset = superblock_offset(&*device).ok_or(MountErrorKind::NotReiserfs)?;
    let before = read_superblock(&*device, &Overlay::default(), offset)?;
    let mut notes = vec!["mounted read-only: reiserfs is read, not written".to_owned()];
    let overlay = match before.journal().is_external {
        false => {
            let replay = journal::replay(&*device, &before)?;
            match replay.transactions {
                0 => {}
                1 => notes.push("1 transaction of the journal is shown as replayed".to_owned()),
                n => notes.push(format!(
                    "{n} transactions of the journal are shown as replayed"
                )),
            }
            replay.overlay
        }
        true if before.is_clean() => {
            notes.push("the journal lies on another device; the file system is clean".to_owned());
            Overlay::default()
        }
        true => return Err(MountErrorKind::ExternalJournal),
    };
    let superblock = read_superblock(&*device, &overlay, offset)?;
    if superblock.check_state() != 0 {
        notes.push("reiserfsck has found errors in it; run reiserfsck".to_owned());
    }
    let (block_count, block_size) = (superblock.block_count(), superblock.block_size());
    let root = Root {
        block: superblock.root_block(),
        levels: superblock.levels(),
    };
    let tree = Tree::new(
        BufferCache::with(device.clone(), block_size, overlay, CLEAN_LIMIT_BYTES),
        root,
        Bitmaps::new(block_count, block_size, offset),
        superblock.journal(),
    );
    let mut mounted = Mounted {
        hash: superblock.hash(),
        has_attributes: superblock.has_attributes(),
        device,
        superblock,
        tree,
        objects: Objects::new(),
        xattrs: None,
        notes,
    };
    check_root(&mounted)?;
    match xattr::root(&mounted) {
        Ok(xattrs) => mounted.xattrs = xattrs,
        Err(error) => mounted.notes.push(format!(
            "extended attributes cannot be read ({}); run reiserfsck",
            detail(&error)
        )),
    }
    Ok(mounted)
}

fn check_root(mounted: &Mounted) -> std::result::Result<(), MountErrorKind> {
    let wrong = match inode::stat(mounted, key::ROOT) {
        Ok(stat) if stat.kind == FileKind::Directory => return Ok(()),
        Ok(_) => "the root is no directory".to_owned(),
        Err(Error::Io(what)) => return Err(MountErrorKind::Io(what.into_owned())),
        Err(Error::Stale) => "there is no root directory".to_owned(),
        Err(error) => detail(&error),
    };
    Err(MountErrorKind::Damaged(wrong))
}
