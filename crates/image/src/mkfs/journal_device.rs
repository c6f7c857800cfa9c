//! Journals that have a device, or an image, of their own: one is made (`-O journal_dev`), and a
//! file system that is made gets one (`-J device=`).

use super::Made;
use super::error::{MkfsError, Result};
use super::features::FeatureSet;
use super::identity::{Identity, format_uuid};
use super::options::Options;
use super::profile::Profile;
use finefs_block::{Access, BlockDevice, FileDevice, PartitionDevice};
use finefs_ext_disk::features::{Incompat, RoCompat};
use finefs_ext_disk::jbd2::JournalSuperblock;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use rustix::fs::{major, minor};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The smallest journal that the kernel takes.
const BLOCKS_MIN: u64 = 1024;
const NAME: &str = "journal_dev";

/// True where no file system is to be made but the journal of one.
pub(crate) fn is_wanted(options: &Options) -> bool {
    let last = options.features.iter().rev();
    let mut words = last.filter(|word| word.trim_start_matches(['^', '-', '+']) == NAME);
    words
        .next()
        .is_some_and(|word| !word.starts_with(['^', '-']))
}

/// The block behind the superblock's.
fn superblock_block(block_size: u32) -> u64 {
    SUPERBLOCK_OFFSET / u64::from(block_size) + 1
}

/// Whether its superblock has a checksum, as that of a file system of these options.
fn has_csum(options: &Options) -> Result<bool> {
    let mut features = FeatureSet::of(options.fs_type, options.defaults);
    for word in &options.features {
        features.edit(word)?;
    }
    Ok(features.has_csum())
}

/// What would be made, and both superblocks.
fn plan(size_bytes: u64, options: &Options) -> Result<(Superblock, JournalSuperblock, Made)> {
    let profile = Profile::of(options, size_bytes)?;
    let block_size = profile.block_size;
    if options.revision == 0 {
        return Err(MkfsError::value(
            "-r",
            0,
            "has no features, and so no journal",
        ));
    }
    if !(1024..=65_536).contains(&block_size) || !block_size.is_power_of_two() {
        let reason = "give a power of two from 1024 to 65536";
        return Err(MkfsError::value("-b", block_size, reason));
    }
    let blocks = size_bytes / u64::from(block_size);
    if !(BLOCKS_MIN..=u64::from(u32::MAX)).contains(&blocks) {
        let reason = format!("{blocks} blocks of {block_size} bytes; a journal has 1024 at least");
        return Err(MkfsError::value("--size", size_bytes, reason));
    }
    let identity = Identity::of(options, blocks)?;
    let sb = superblock(options, &profile, blocks, &identity)?;
    let mut log = JournalSuperblock::blank(block_size, blocks as u32, identity.uuid);
    log.set_first(superblock_block(block_size) as u32 + 1);
    log.set_nr_users(0);
    let made = Made {
        fs_type: "jbd",
        size_bytes: blocks * u64::from(block_size),
        block_size,
        cluster_size: block_size,
        blocks,
        journal_blocks: blocks,
        uuid: format_uuid(&identity.uuid),
        hash_seed: format_uuid(&identity.hash_seed),
        label: String::from_utf8_lossy(&options.label).into_owned(),
        features: sb.feature_names(),
        time: identity.time,
        written_bytes: 2 * SUPERBLOCK_SIZE as u64,
        ..Made::default()
    };
    Ok((sb, log, made))
}

/// The superblock of a journal of so many blocks.
fn superblock(
    options: &Options,
    profile: &Profile,
    blocks: u64,
    identity: &Identity,
) -> Result<Superblock> {
    let block_size = profile.block_size;
    let mut label = [0; 16];
    let room = label.get_mut(..options.label.len());
    room.ok_or_else(|| MkfsError::value("-L", "", "has more than 16 bytes"))?
        .copy_from_slice(&options.label);
    let mut sb = Superblock::blank();
    sb.set_blocks_count(blocks);
    sb.set_first_data_block(u32::from(block_size == 1024));
    sb.set_log_block_size(block_size.ilog2() - 10);
    sb.set_log_cluster_size(block_size.ilog2() - 10);
    let per_group = (block_size * 8).min(65_528);
    sb.set_blocks_per_group(per_group);
    sb.set_clusters_per_group(per_group);
    let time = identity.time as u64;
    sb.set_write_time(time);
    sb.set_mkfs_time(time);
    sb.set_last_check(time);
    sb.set_max_mount_count(-1);
    sb.set_state(State::VALID);
    sb.set_errors(1);
    sb.set_rev_level(1);
    sb.set_first_ino_raw(11);
    sb.set_inode_size_raw(profile.inode_size as u16);
    if profile.inode_size > 128 {
        sb.set_min_extra_isize(32);
        sb.set_want_extra_isize(32);
    }
    sb.set_default_mount_opts(0xc);
    sb.set_def_hash_version(1);
    sb.set_incompat(Incompat::JOURNAL_DEV);
    sb.set_uuid(&identity.uuid);
    sb.set_volume_name_raw(&label);
    sb.set_hash_seed(identity.hash_seed_words());
    if has_csum(options)? {
        sb.set_ro_compat(RoCompat::METADATA_CSUM);
        sb.set_checksum_type(1);
    }
    sb.update_checksum();
    Ok(sb)
}

/// What [`make_at`] would make.
pub(super) fn plan_at(size_bytes: u64, options: &Options) -> Result<Made> {
    Ok(plan(size_bytes, options)?.2)
}

/// Makes a journal in a file or on a device.
pub(super) fn make_at(
    path: &Path,
    offset_bytes: u64,
    size_bytes: u64,
    options: &Options,
) -> Result<Made> {
    let failed = |error: io::Error| MkfsError::Io {
        place: path.display().to_string(),
        action: "written",
        error,
    };
    let (sb, log, made) = plan(size_bytes, options)?;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(failed)?;
    let end = offset_bytes + size_bytes;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_file() && metadata.len() < end {
        file.set_len(end).map_err(failed)?;
    }
    drop(file);
    let device = Arc::new(FileDevice::open(path, Access::ReadWrite)?);
    let part = PartitionDevice::new(device, offset_bytes, Some(size_bytes)).map_err(failed)?;
    // Nothing of before is taken for a journal or a file system.
    let start = (superblock_block(made.block_size) + 1) * u64::from(made.block_size);
    part.write_zeros_at(0, start).map_err(failed)?;
    let place_of_log = superblock_block(made.block_size) * u64::from(made.block_size);
    part.write_at(place_of_log, log.as_bytes())
        .map_err(failed)?;
    part.write_at(SUPERBLOCK_OFFSET, sb.as_bytes())
        .map_err(failed)?;
    part.flush().map_err(failed)?;
    Ok(Made {
        image: path.display().to_string(),
        ..made
    })
}

/// A journal that a file system is to get.
pub(super) struct JournalDevice {
    path: PathBuf,
    pub uuid: [u8; 16],
    /// The device's number; 0 for a file.
    pub number: u32,
    pub block_size: u32,
    log: JournalSuperblock,
}

/// Looks at the journal in a file or on a device, which must be nobody's yet.
pub(super) fn look_at(path: &Path) -> Result<JournalDevice> {
    let refused = |reason: &str| MkfsError::value("-J device", path.display(), reason);
    let failed = |error: io::Error| MkfsError::Io {
        place: path.display().to_string(),
        action: "read",
        error,
    };
    let device = FileDevice::open(path, Access::Inspect)?;
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device
        .read_at(SUPERBLOCK_OFFSET, &mut bytes)
        .map_err(failed)?;
    let sb = Superblock::parse(&bytes).ok();
    let sb = sb.filter(|sb| sb.incompat().contains(Incompat::JOURNAL_DEV));
    let sb =
        sb.ok_or_else(|| refused("is no journal; make one with finefs mkfs -O journal_dev"))?;
    let block_size = sb.block_size().ok_or_else(|| refused("is damaged"))?;
    let place = superblock_block(block_size) * u64::from(block_size);
    device.read_at(place, &mut bytes).map_err(failed)?;
    let log = JournalSuperblock::parse(&bytes).map_err(|_| refused("is damaged"))?;
    if log.nr_users() != 0 {
        return Err(refused(
            "is the journal of a file system; make it anew for another",
        ));
    }
    let metadata = std::fs::metadata(path).map_err(failed)?;
    let (major_number, minor_number) = (major(metadata.rdev()), minor(metadata.rdev()));
    Ok(JournalDevice {
        path: path.to_owned(),
        uuid: sb.uuid(),
        number: match metadata.file_type().is_block_device() {
            // As the kernel's new_encode_dev.
            true => minor_number & 0xff | major_number << 8 | (minor_number & !0xff) << 12,
            false => 0,
        },
        block_size,
        log,
    })
}

impl JournalDevice {
    /// Notes in the journal whose it is.
    pub fn give(&self, file_system: &[u8; 16]) -> Result<()> {
        let failed = |error: io::Error| MkfsError::Io {
            place: self.path.display().to_string(),
            action: "written",
            error,
        };
        let mut log = self.log.clone();
        log.set_user(0, file_system);
        log.set_nr_users(1);
        log.update_checksum();
        let device = FileDevice::open(&self.path, Access::ReadWrite)?;
        let place = superblock_block(self.block_size) * u64::from(self.block_size);
        device.write_at(place, log.as_bytes()).map_err(failed)?;
        device.flush().map_err(failed)
    }
}
