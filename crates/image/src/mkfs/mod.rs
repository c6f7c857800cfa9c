//! Makes empty file systems: ext2, ext3 and ext4, with the features, sizes and places that mke2fs
//! gives them.
//!
//! | Module | Thing |
//! |---|---|
//! | `options` | what may be asked for |
//! | `features` | the feature words: defaults, edits by name, conflicts |
//! | `profile` | the values of mke2fs.conf(5) |
//! | `shape` | the numbers: groups, inodes, reserved blocks |
//! | `identity` | UUID, hash seed, time; from a seed or not |
//! | `space` | which blocks are taken |
//! | `tables` | where bitmaps and inode tables lie |
//! | `maps` | files allocated in one go |
//! | `build` | the plan: directories, journal and the other inodes |
//! | `journal_device` | journals on a device of their own |
//! | `bad_blocks`, `quota` | the inodes of bad blocks and of quotas |
//! | `groups` | descriptors, bitmaps, inode tables, copies |
//! | `pieces` | what is written where |
//! | `undo` | the undo file |
//! | `signature` | what is there already |
//! | `place` | files and devices to make it on |
//! | `stopping`, `error` | a request to stop; why a file system was not made |
//!
//! # How it works
//! A file system is planned in memory first, as a list of blocks with contents ([`plan`]); nothing
//! is written if anything does not fit. Inode tables, the journal's log and free blocks are not in
//! the list: they are zeros where they must be, which a new file is anyway. On a device that held
//! something, its storage is given back first; where that does not make zeros, inode tables stay
//! as they are if descriptors can say so (`lazy_itable_init`), and are overwritten if not.
//!
//! # Differences from mke2fs
//! - The lifetime count of writes starts at 0, and the block of multiple mount protection names no
//!   host: both would differ from run to run.
//! - The hash of directories is the signed one on every machine.
//! - Where one group would have 8 inodes it has 16, so that lost+found has one.
//! - In a new file, group descriptors say that inode tables are zeros (`ITABLE_ZEROED`), as they
//!   are: no kernel writes them again. mke2fs says so only of a file that was there before.
//! - With inline_data, lost+found is a block longer; with bigalloc and blocks of 1 KiB, quota files
//!   are one extent, not two.
//! - Bad blocks under superblocks and descriptors are refused.
//! - A file is not synced to the disk (a device is).
//!
//! # References
//! mke2fs(8), mke2fs.conf(5), ext4(5); Linux `Documentation/filesystems/ext4/`.

mod bad_blocks;
mod build;
mod error;
mod features;
mod groups;
mod identity;
mod journal_device;
mod maps;
mod options;
mod pieces;
mod place;
mod profile;
mod quota;
mod shape;
mod signature;
mod space;
mod stopping;
mod tables;
mod undo;

use build::Build;
pub(crate) use build::NO_JOURNAL;
pub use error::{MkfsError, Result};
pub use features::FeatureSet;
use finefs_block::BlockDevice;
use finefs_ext_disk::features::Compat;
pub use finefs_ext_disk::quota::QuotaKind;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use groups::TableState;
pub(crate) use identity::identify;
pub use identity::{format_uuid, parse_uuid};
pub(crate) use journal_device::is_wanted as is_journal_wanted;
pub use options::{Defaults, FsType, OnError, Options};
pub(crate) use place::whole_pages;
pub use place::{Place, found_at, make_at, make_at_until, plan_at};
use serde::Serialize;
pub use signature::signature;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use stopping::Stop;

/// mke2fs zeroes so much at both ends of a device: what other file systems and RAIDs are known by.
const START_BYTES: u64 = 4096;
const END_BYTES: u64 = 64 << 10;

/// What was made, or would be. The names are those of the command's JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Made {
    /// Where.
    pub image: String,
    /// ext2, ext3 or ext4.
    pub fs_type: &'static str,
    /// Bytes of the file system.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a cluster, the unit of allocation: a block without `bigalloc`.
    pub cluster_size: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Those that are free.
    pub free_blocks: u64,
    /// Those that only the privileged user may take.
    pub reserved_blocks: u64,
    /// Number of inodes.
    pub inodes: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Number of groups.
    pub groups: u32,
    /// Blocks of the journal; 0 for none.
    pub journal_blocks: u64,
    /// The UUID.
    pub uuid: String,
    /// The seed of directory hashes, as a UUID.
    pub hash_seed: String,
    /// The label.
    pub label: String,
    /// Names of the features.
    pub features: Vec<String>,
    /// First blocks of the groups with copies of the superblock.
    pub backup_superblocks: Vec<u64>,
    /// When it was made, in seconds since 1970.
    pub time: i64,
    /// Bytes written.
    pub written_bytes: u64,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// What would be made on a place of `size_bytes`, without making it.
///
/// # Errors
/// Options that do not go together, and sizes that are too small.
pub fn plan(size_bytes: u64, options: &Options) -> Result<Made> {
    let mut build = Build::new(options, size_bytes, &Stop::default())?;
    build.finish(TableState { is_zeroed: true })?;
    Ok(made(&build, options))
}

/// Makes a file system on all of `device`. `is_blank`: it reads as zeros everywhere, as a new file
/// does.
///
/// # Errors
/// Those of [`plan`], before anything is written, and those of the device.
pub fn make(device: &dyn BlockDevice, is_blank: bool, options: &Options) -> Result<Made> {
    let build = Build::new(options, device.len_bytes(), &Stop::default())?;
    write(device, 0, build, is_blank, options)
}

/// Writes what was planned. An undo file says that the device starts at `fs_offset_bytes`.
fn write(
    device: &dyn BlockDevice,
    fs_offset_bytes: u64,
    mut build: Build,
    is_blank: bool,
    options: &Options,
) -> Result<Made> {
    let failed = |error: io::Error| MkfsError::Io {
        place: device.describe(),
        action: "written",
        error,
    };
    let bad = match (options.writes_patterns, options.checks_blocks) {
        (true, _) => bad_blocks::unwritable(device, &build.shape.geo).map_err(failed)?,
        (_, true) => bad_blocks::unreadable(device, &build.shape.geo).map_err(failed)?,
        _ => Vec::new(),
    };
    if !bad.is_empty() {
        let cannot = match options.writes_patterns {
            true => "do not keep what is written",
            false => "cannot be read",
        };
        let note = format!("{} blocks {cannot}, and are left out", bad.len());
        let options = &Options {
            bad_blocks: [&options.bad_blocks[..], &bad].concat(),
            ..options.clone()
        };
        build = Build::new(options, device.len_bytes(), &build.stop.clone())?;
        build.notes.push(note);
    }
    let size_bytes = build.shape.geo.size_bytes();
    let mut is_blank = (is_blank || options.is_prezeroed) && !options.writes_patterns;
    // What was given back could not be put back.
    if !is_blank && options.discards && options.undo.is_none() {
        is_blank = device.discard_at(0, size_bytes).map_err(failed)?;
    }
    let has_flags = build.shape.features.has_group_csum();
    let is_lazy = !is_blank && options.is_itable_lazy && has_flags;
    let state = TableState {
        // Where no descriptor has a checksum, mke2fs says so only of what is blank.
        is_zeroed: !is_lazy && (is_blank || has_flags),
    };
    build.finish(state)?;
    let zeroed = match is_blank {
        true => Vec::new(),
        false => zeroed(&build, is_lazy, options),
    };
    if let Some(path) = &options.undo {
        undo::keep(device, fs_offset_bytes, &build, &zeroed, path)?;
    }
    for run in zeroed {
        let length = run.end - run.start;
        device.write_zeros_at(run.start, length).map_err(failed)?;
    }
    let written = build.pieces.write(device, is_blank).map_err(failed)?;
    device.flush().map_err(failed)?;
    let super_block = build.shape.sb.as_bytes();
    device
        .write_at(SUPERBLOCK_OFFSET, super_block)
        .map_err(failed)?;
    device.flush().map_err(failed)?;
    if let Some(journal) = &build.external_journal {
        journal.give(&build.identity.uuid)?;
    }
    Ok(Made {
        image: device.describe(),
        written_bytes: written + SUPERBLOCK_SIZE as u64,
        ..made(&build, options)
    })
}

/// What must not stay of what was there before, where nothing else is written over it.
fn zeroed(build: &Build, is_lazy: bool, options: &Options) -> Vec<Range<u64>> {
    let geo = &build.shape.geo;
    let size_bytes = geo.size_bytes();
    let block_size = u64::from(geo.block_size);
    let end_start = size_bytes - END_BYTES.min(size_bytes);
    let mut runs = vec![0..START_BYTES.min(size_bytes), end_start..size_bytes];
    let table_bytes = u64::from(geo.inode_table_blocks) * block_size;
    if !is_lazy {
        let starts = build.tables.places.iter();
        let starts = starts.map(|places| places.inode_table * block_size);
        runs.extend(starts.map(|start| start..start + table_bytes));
    }
    if !options.is_journal_lazy {
        let blocks = build.journal_data.iter();
        runs.extend(blocks.map(|run| run.start * block_size..run.end * block_size));
    }
    runs
}

fn made(build: &Build, options: &Options) -> Made {
    let (geo, sb) = (&build.shape.geo, &build.shape.sb);
    let backups = geo.backup_groups();
    Made {
        image: String::new(),
        fs_type: match options.fs_type {
            FsType::Ext2 if sb.compat().contains(Compat::HAS_JOURNAL) => "ext3",
            FsType::Ext2 => "ext2",
            FsType::Ext3 => "ext3",
            FsType::Ext4 => "ext4",
        },
        size_bytes: geo.size_bytes(),
        block_size: geo.block_size,
        cluster_size: geo.block_size * geo.cluster_ratio,
        blocks: geo.blocks_count,
        free_blocks: sb.free_blocks_count(),
        reserved_blocks: sb.reserved_blocks_count(),
        inodes: geo.inodes_count,
        inode_size: geo.inode_size,
        groups: geo.groups_count,
        journal_blocks: build.journal_blocks,
        uuid: format_uuid(&sb.uuid()),
        hash_seed: format_uuid(&build.identity.hash_seed),
        label: String::from_utf8_lossy(&options.label).into_owned(),
        features: sb.feature_names(),
        backup_superblocks: backups.map(|g| geo.group_first_block(g).0).collect(),
        time: build.identity.time,
        written_bytes: build.pieces.len_bytes() + SUPERBLOCK_SIZE as u64,
        notes: build.notes.clone(),
    }
}

/// A file system in memory: for tests, and for those who have no file.
///
/// # Errors
/// As [`make`].
pub fn make_in_memory(
    size_bytes: u64,
    options: &Options,
) -> Result<(Arc<finefs_block::MemoryDevice>, Made)> {
    let device = Arc::new(finefs_block::MemoryDevice::new(size_bytes));
    let made = make(&*device, true, options)?;
    Ok((device, made))
}
