//! Numbers and features of the superblock that may be changed at any time, as tune2fs changes them:
//! nothing else on the image depends on them.
//!
//! The primary superblock is written last: until then nothing has changed for who reads the image.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::{IfChecked, replay};
use finefs_ext_disk::checksum::FsSeed;
use finefs_ext_disk::features::{Compat, FeatureWord, Incompat, RoCompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

use crate::fs::{no_superblock, replay_first};
use crate::mmp;

/// What is to be changed.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The label; at most 16 bytes.
    pub label: Option<Vec<u8>>,
    /// The UUID.
    pub uuid: Option<[u8; 16]>,
    /// Blocks kept for the privileged user.
    pub reserved_blocks: Option<u64>,
    /// The same as a part of all blocks, in percent; at most 50.
    pub reserved_percent: Option<f64>,
    /// Who may use them.
    pub reserved_uid: Option<u16>,
    /// Which group may use them.
    pub reserved_gid: Option<u16>,
    /// Mounts between checks; 0 or less for any number.
    pub max_mount_count: Option<i16>,
    /// Seconds between checks; 0 for no limit.
    pub check_interval_seconds: Option<u32>,
    /// What the kernel does about an error: 1 goes on, 2 mounts read-only, 3 panics.
    pub errors: Option<u16>,
    /// Features to set, or with `^` before the name to clear.
    pub features: Vec<String>,
}

/// Features that only allow something from now on.
const SET_COMPAT: Compat = Compat::EXT_ATTR.union(Compat::STABLE_INODES);
const SET_INCOMPAT: Incompat = Incompat::EXTENTS
    .union(Incompat::CSUM_SEED)
    .union(Incompat::LARGEDIR)
    .union(Incompat::EA_INODE)
    .union(Incompat::ENCRYPT)
    .union(Incompat::CASEFOLD);
const SET_RO: RoCompat = RoCompat::LARGE_FILE
    .union(RoCompat::HUGE_FILE)
    .union(RoCompat::DIR_NLINK)
    .union(RoCompat::VERITY);

/// How files may be encrypted, as mke2fs and tune2fs note it: AES-256-XTS, names by AES-256-CTS.
const ENCRYPT_ALGORITHMS: [u8; 4] = [1, 4, 0, 0];

/// The encoding of names that may be folded: UTF-8 of Unicode 12.1.
const ENCODING: u16 = 1;

/// Changes an image; gives the superblock as it is then.
pub fn tune(device: &Arc<dyn BlockDevice>, changes: &Changes) -> Result<Superblock, String> {
    let name = device.describe();
    let text = |error: std::io::Error| format!("{name}: {error}");
    let named = |reason: String| format!("{name}: {reason}");
    // What cannot be is refused before it waits for other hosts, which may change what was read.
    let (mut primary, mut geometry) = plan(device, changes).map_err(named)?;
    let held = mmp::hold(device, IfChecked::Refused).map_err(named)?;
    if held.is_some() {
        (primary, geometry) = plan(device, changes).map_err(named)?;
    } else if primary.incompat().contains(Incompat::MMP) {
        let what = "nothing keeps other hosts away: its MMP block cannot be; run finefs check";
        return Err(named(what.to_owned()));
    }
    for group in geometry.backup_groups() {
        let at = geometry.group_first_block(group).0 * u64::from(geometry.block_size);
        // A backup that is none is a check's matter.
        let Some(mut backup) = read(device, at).map_err(text)? else {
            continue;
        };
        if apply(&mut backup, changes).is_ok() {
            device.write_at(at, backup.as_bytes()).map_err(text)?;
        }
    }
    device.flush().map_err(text)?;
    device
        .write_at(SUPERBLOCK_OFFSET, primary.as_bytes())
        .map_err(text)?;
    device.flush().map_err(text)?;
    Ok(primary)
}

fn read(device: &Arc<dyn BlockDevice>, at: u64) -> std::io::Result<Option<Superblock>> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(at, &mut bytes)?;
    Ok(Superblock::parse(&bytes).ok())
}

/// The superblock as it is to be, and where its copies are.
fn plan(
    device: &Arc<dyn BlockDevice>,
    changes: &Changes,
) -> Result<(Superblock, Geometry), String> {
    let primary = read(device, SUPERBLOCK_OFFSET).map_err(|error| error.to_string())?;
    let mut primary = primary.ok_or_else(|| no_superblock(&**device))?;
    if let Some(what) = replay::what_journal(&**device) {
        return Err(what);
    }
    let geometry = primary
        .validate()
        .map_err(|error| format!("superblock: {error}; run finefs check"))?;
    if primary.incompat().contains(Incompat::NEEDS_RECOVERY) {
        return Err(replay_first(&primary));
    }
    apply(&mut primary, changes)?;
    Ok((primary, geometry))
}

fn apply(sb: &mut Superblock, changes: &Changes) -> Result<(), String> {
    for feature in &changes.features {
        switch(sb, feature)?;
    }
    if let Some(uuid) = &changes.uuid {
        if sb.compat().contains(Compat::STABLE_INODES) {
            return Err("stable_inodes says that its UUID never changes".to_owned());
        }
        let is_seeded = sb.incompat().contains(Incompat::CSUM_SEED);
        if sb.has_metadata_csum() && !is_seeded {
            let what = "all its checksums hang on its UUID; give --features metadata_csum_seed too";
            return Err(what.to_owned());
        }
        if sb.ro_compat().contains(RoCompat::GDT_CSUM) && !sb.has_metadata_csum() {
            return Err("the checksums of its groups hang on its UUID (uninit_bg)".to_owned());
        }
        sb.set_uuid(uuid);
    }
    if let Some(label) = &changes.label {
        let mut raw = [0; 16];
        let room = raw.get_mut(..label.len());
        room.ok_or("a label has at most 16 bytes")?
            .copy_from_slice(label);
        sb.set_volume_name_raw(&raw);
    }
    let percent = changes.reserved_percent;
    let of_percent = percent.map(|percent| (sb.blocks_count() as f64 * percent / 100.0) as u64);
    if let Some(blocks) = changes.reserved_blocks.or(of_percent) {
        if blocks > sb.blocks_count() / 2 {
            return Err(format!("{blocks} reserved blocks are more than half of it"));
        }
        sb.set_reserved_blocks_count(blocks);
    }
    if let Some(uid) = changes.reserved_uid {
        sb.set_def_resuid(uid);
    }
    if let Some(gid) = changes.reserved_gid {
        sb.set_def_resgid(gid);
    }
    if let Some(count) = changes.max_mount_count {
        sb.set_max_mount_count(if count == 0 { -1 } else { count });
    }
    if let Some(seconds) = changes.check_interval_seconds {
        sb.set_check_interval(seconds);
    }
    if let Some(errors) = changes.errors {
        sb.set_errors(errors);
    }
    sb.update_checksum();
    Ok(())
}

/// Sets or clears a feature, if nothing on the image hangs on it.
fn switch(sb: &mut Superblock, feature: &str) -> Result<(), String> {
    let (name, sets) = match feature.strip_prefix('^') {
        Some(name) => (name, false),
        None => (feature, true),
    };
    let refuse = || {
        let verb = if sets { "set" } else { "cleared" };
        Err(format!(
            "{name} cannot be {verb} on an image that is there; see tune2fs(8)"
        ))
    };
    if let Some(bit) = Compat::from_feature_name(name) {
        let may = SET_COMPAT.contains(bit) && (sets || bit == Compat::STABLE_INODES);
        if sb.compat().contains(bit) != sets && !may {
            return refuse();
        }
        let mut word = sb.compat();
        word.set(bit, sets);
        sb.set_compat(word);
    } else if let Some(bit) = Incompat::from_feature_name(name) {
        if sb.incompat().contains(bit) == sets {
            return Ok(());
        }
        let from_uuid = FsSeed::from_uuid(&sb.uuid());
        let is_seed = bit == Incompat::CSUM_SEED;
        let may = match (is_seed, sets) {
            (true, true) => sb.has_metadata_csum(),
            (true, false) => sb.seed() == from_uuid,
            (false, _) => sets && SET_INCOMPAT.contains(bit),
        };
        if !may {
            return refuse();
        }
        match bit {
            Incompat::ENCRYPT => sb.set_encrypt_algos(&ENCRYPT_ALGORITHMS),
            Incompat::CASEFOLD => sb.set_encoding(ENCODING),
            _ => {}
        }
        if is_seed {
            sb.set_checksum_seed_raw(if sets { from_uuid.0 } else { 0 });
        }
        let mut word = sb.incompat();
        word.set(bit, sets);
        sb.set_incompat(word);
    } else if let Some(bit) = RoCompat::from_feature_name(name) {
        let changes = sb.ro_compat().contains(bit) != sets;
        let may = sets && SET_RO.contains(bit);
        if changes && !may {
            return refuse();
        }
        if changes && bit == RoCompat::VERITY && !sb.incompat().contains(Incompat::EXTENTS) {
            return Err("verity needs files with extents; set extent, too".to_owned());
        }
        let mut word = sb.ro_compat();
        word.set(bit, sets);
        sb.set_ro_compat(word);
    } else {
        return Err(format!("there is no feature {name}"));
    }
    Ok(())
}
