//! The superblock of an image: found, checked, and what it says about reading and writing.

use finefs_block::BlockDevice;
use finefs_buffers::Overlay;
use finefs_ext_disk::casefold::ENCODING_UTF8_12_1;
use finefs_ext_disk::error::{Corrupt, DiskError};
use finefs_ext_disk::features::Incompat;
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

use crate::error::{Backup, MountErrorKind, disk_detail};
use crate::features::Gate;
use crate::journal::external;

/// A superblock that was found good, and what it says.
pub(crate) struct Found {
    pub superblock: Superblock,
    pub geometry: Geometry,
    pub gate: Gate,
    /// A count that cannot be: the image can be read, but not written.
    pub counters: Option<String>,
}

/// Reads and checks the superblock at its place.
pub(crate) fn read_superblock(
    device: &dyn BlockDevice,
    overlay: &Overlay,
) -> std::result::Result<Found, MountErrorKind> {
    let superblock = parse_superblock(device, overlay)?;
    let gate = Gate::of(
        superblock.compat(),
        superblock.incompat(),
        superblock.ro_compat(),
    );
    let damaged = |error: DiskError| match error {
        DiskError::Incompatible(what) => MountErrorKind::Incompatible(what.to_string()),
        error => MountErrorKind::Superblock {
            what: disk_detail(&error),
            backup: find_backup(device, Some(&superblock)),
        },
    };
    if let Some(what) = external::what_journal(device) {
        return Err(MountErrorKind::JournalDevice(what));
    }
    superblock.verify_checksum().map_err(damaged)?;
    let encoding = superblock.encoding();
    if superblock.incompat().contains(Incompat::CASEFOLD) && encoding != ENCODING_UTF8_12_1 {
        let what = format!("encoding {encoding} of names (casefold)");
        return Err(MountErrorKind::Incompatible(what));
    }
    if !gate.refused.is_empty() {
        let noun = if gate.refused.len() == 1 {
            "feature"
        } else {
            "features"
        };
        return Err(MountErrorKind::Incompatible(format!(
            "{noun} {}",
            gate.refused.join(" ")
        )));
    }
    let mut counters = None;
    let geometry = match superblock.validate() {
        Err(error) if is_about_counters(&error) => {
            counters = Some(error.to_string());
            let mut recounted = superblock.clone();
            recounted.set_free_blocks_count(0);
            recounted.set_reserved_blocks_count(0);
            recounted.set_free_inodes_count(0);
            Geometry::new(&recounted).map_err(damaged)?
        }
        outcome => outcome.map_err(damaged)?,
    };
    if geometry.size_bytes() > device.len_bytes() {
        return Err(MountErrorKind::Truncated {
            file_system_bytes: geometry.size_bytes(),
            device_bytes: device.len_bytes(),
        });
    }
    Ok(Found {
        superblock,
        geometry,
        gate,
        counters,
    })
}

/// True when only a count in the superblock is wrong, which reading does not need.
fn is_about_counters(error: &DiskError) -> bool {
    matches!(
        error,
        DiskError::Corrupt(
            Corrupt::FreeBlockCount(_)
                | Corrupt::FreeInodeCount(_)
                | Corrupt::ReservedBlockCount(_)
        )
    )
}

/// True when the device has the magic number of ext2/3/4 in its place.
pub fn is_ext(device: &dyn BlockDevice) -> bool {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).is_ok() && Superblock::parse(&bytes).is_ok()
}

/// How long the file system on a device is, where the device is shorter.
pub fn length_of_truncated(device: &dyn BlockDevice) -> Option<u64> {
    match read_superblock(device, &Overlay::default()) {
        Err(MountErrorKind::Truncated {
            file_system_bytes, ..
        }) => Some(file_system_bytes),
        _ => None,
    }
}

/// Reads what must be a superblock.
pub(crate) fn parse_superblock(
    device: &dyn BlockDevice,
    overlay: &Overlay,
) -> std::result::Result<Superblock, MountErrorKind> {
    let device_bytes = device.len_bytes();
    if device_bytes == 0 {
        return Err(MountErrorKind::Empty);
    }
    if device_bytes < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Err(MountErrorKind::TooSmall { device_bytes });
    }
    let mut bytes = [0; SUPERBLOCK_SIZE];
    overlay
        .read_at(device, SUPERBLOCK_OFFSET, &mut bytes)
        .map_err(|error| MountErrorKind::Io(format!("reading the superblock: {error}")))?;
    Superblock::parse(&bytes).map_err(|_| MountErrorKind::NotExt {
        backup: find_backup(device, None),
    })
}

/// Where there is no superblock: the command that restores it from a backup, if there is one.
pub fn backup_command(device: &dyn BlockDevice) -> Option<String> {
    let backup = find_backup(device, None)?;
    Some(backup.command(&device.describe()))
}

/// Looks for a backup superblock where the usual layouts have the first one. It is only told to
/// the user: using it is a repair.
fn find_backup(device: &dyn BlockDevice, primary: Option<&Superblock>) -> Option<Backup> {
    let usual = [1024_u32, 2048, 4096].map(|size| (u64::from(size) * 8, size));
    let told = primary.and_then(|superblock| {
        let block_size = superblock.block_size()?;
        Some((u64::from(superblock.blocks_per_group()), block_size))
    });
    told.into_iter()
        .chain(usual)
        .find_map(|(blocks_per_group, block_size_bytes)| {
            let block = blocks_per_group + u64::from(block_size_bytes == 1024);
            let offset_bytes = block.checked_mul(u64::from(block_size_bytes))?;
            let mut bytes = [0; SUPERBLOCK_SIZE];
            if offset_bytes == 0 || device.read_at(offset_bytes, &mut bytes).is_err() {
                return None;
            }
            let backup = Superblock::parse(&bytes).ok()?;
            backup.verify_checksum().ok()?;
            let is_good =
                backup.validate().is_ok() && backup.block_size() == Some(block_size_bytes);
            is_good.then_some(Backup {
                block,
                block_size_bytes,
            })
        })
}
