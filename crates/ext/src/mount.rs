//! From a device to a mounted file system.
//!
//! # Steps
//! 1. [`read_superblock`]: what it is, whether it can be read, whether the image is whole.
//! 2. The journal (`recover`): replayed, or shown as replayed, or left.
//! 3. The superblock again, as the replay left it; the group descriptors; the root directory.
//! 4. Where it may be written: marks that it is in use, and cleans up orphans.
//!
//! What stands in the way of writing makes the mount read-only and leaves a note; what stands in
//! the way of reading is a [`MountError`]. Nothing is written before step 2, and by a read-only
//! mount nothing at all.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{BufferCache, CLEAN_LIMIT_BYTES, Overlay};
use finefs_ext_disk::casefold::ENCODING_UTF8_12_1;
use finefs_ext_disk::dirent::DirRules;
use finefs_ext_disk::error::{Corrupt, DiskError};
use finefs_ext_disk::features::{Compat, Incompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::inode::{FileKind as DiskKind, InodeRules};
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};
use finefs_locks::PerCpuCounter;
use finefs_namespace::{Error, Ino, Result};

use crate::alloc::{Allocator, Layout};
use crate::damage;
use crate::data_cache::{DataCache, default_bytes};
use crate::error::{Backup, MountError, MountErrorKind, detail, disk_detail};
use crate::features::Gate;
use crate::group::GroupTable;
use crate::journal::writer::{JournalWriter, LogFeatures};
use crate::journal::{Journal, Log};
use crate::load::inode;
use crate::on_error::OnError;
use crate::recover::{self, Finding};
use crate::state::{ExtState, JOURNAL, POSTPONED, Postponed, RESERVED_INODES, SUPERBLOCK};
use crate::sync::Mutex;
use crate::{ExtOptions, orphans};

/// The root directory.
pub(crate) const ROOT: Ino = Ino(2);

/// The most blocks that one allocation gives: one extent.
const RUN_MAX_BLOCKS: u64 = 32_767;

/// A superblock that was found good, and what it says.
pub(crate) struct Found {
    pub superblock: Superblock,
    pub geometry: Geometry,
    pub gate: Gate,
    /// A count that cannot be: the image can be read, but not written.
    pub counters: Option<String>,
}

/// What a mount gives: the state, and what the user should know.
pub(crate) struct Mounted {
    pub state: ExtState,
    pub notes: Vec<String>,
    /// The image was cleanly closed before, or needed no more than a replay.
    pub was_valid: bool,
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
    superblock.verify_checksum().map_err(damaged)?;
    if superblock.incompat().contains(Incompat::JOURNAL_DEV) {
        return Err(MountErrorKind::JournalDevice);
    }
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

/// Mounts. See the module's head.
pub(crate) fn mount(
    device: Arc<dyn BlockDevice>,
    options: &ExtOptions,
) -> std::result::Result<Mounted, MountError> {
    let name = device.describe();
    open(device, options).map_err(|kind| MountError { device: name, kind })
}

fn open(
    device: Arc<dyn BlockDevice>,
    options: &ExtOptions,
) -> std::result::Result<Mounted, MountErrorKind> {
    let mut notes = Vec::new();
    let mut is_read_only = options.is_read_only;
    let mut found = read_superblock(&*device, &Overlay::default())?;
    if let Some(reason) = why_read_only(&*device, &found)? {
        if !is_read_only {
            notes.push(format!("mounted read-only: {reason}"));
        }
        is_read_only = true;
    }
    let (overlay, reason) = settle_journal(&device, &found, is_read_only, &mut notes)?;
    if let Some(reason) = reason {
        notes.push(match is_read_only {
            true => reason,
            false => format!("mounted read-only: {reason}; run e2fsck"),
        });
        is_read_only = true;
    }
    found = read_superblock(&*device, &overlay)?;
    let Found {
        superblock,
        geometry,
        ..
    } = found;
    let buffers = BufferCache::with(
        device.clone(),
        geometry.block_size,
        overlay,
        CLEAN_LIMIT_BYTES,
    );
    let mut groups = GroupTable::load(&superblock, &geometry, &buffers)
        .map_err(|error| damaged("group descriptors", &error))?;
    if let Some(damage) = groups.damage() {
        if !is_read_only {
            notes.push(format!("mounted read-only: {damage}; run e2fsck -f"));
        }
        is_read_only = true;
    }
    note_state(&superblock, &mut notes);
    let was_valid = superblock.state().contains(State::VALID);
    let mut journal = None;
    let has_journal = superblock.compat().contains(Compat::HAS_JOURNAL);
    if !is_read_only && has_journal {
        match journal_writer(&device, &buffers, &mut groups, &superblock, &geometry) {
            Ok(writer) => journal = Some(writer).filter(|_| options.bulk_load.is_none()),
            Err(reason) => {
                notes.push(format!("mounted read-only: {reason}"));
                is_read_only = true;
            }
        }
    }
    let layout = layout(&superblock, &geometry);
    let counts = groups.counts(&geometry, &buffers);
    let allocator = match options.bulk_load {
        None => Allocator::new(layout, &counts),
        Some(_) => Allocator::repeatable(layout, &counts, seed_of(&superblock)),
    };
    let on_error = options.on_error.unwrap_or_else(|| OnError::of(&superblock));
    // What is only read does not come in, and no more than there is.
    let data_cache_bytes = match is_read_only {
        true => 0,
        false => options
            .data_cache_bytes
            .unwrap_or_else(default_bytes)
            .min(geometry.size_bytes()),
    };
    let mut state = ExtState {
        seed: superblock.has_metadata_csum().then(|| superblock.seed()),
        inode_rules: InodeRules::of(&superblock),
        dir_rules: DirRules::of(&superblock),
        overhead_blocks: overhead_blocks(&superblock, &geometry),
        fs_seed: superblock.seed(),
        has_value_inodes: superblock.incompat().contains(Incompat::EA_INODE),
        reserved_inodes: Mutex::new(&RESERVED_INODES, Vec::new()),
        superblock: Mutex::new(&SUPERBLOCK, superblock),
        data: DataCache::new(device.clone(), geometry.block_size, data_cache_bytes),
        device,
        geometry,
        buffers,
        groups,
        allocator,
        is_journaled: journal.is_some(),
        journal: Mutex::new(&JOURNAL, journal),
        postponed: Mutex::new(&POSTPONED, Postponed::default()),
        on_error,
        is_read_only,
        discards: options.discards,
        bulk_load: options.bulk_load,
        blocks_written: PerCpuCounter::new(0),
    };
    check_root(&state)?;
    if !state.is_read_only
        && let Err(error) = orphans::check_file(&state)
    {
        notes.push(format!(
            "mounted read-only: {}; run e2fsck -f",
            detail(&error)
        ));
        *state.journal.lock() = None;
        state.is_read_only = true;
    }
    if !state.is_read_only {
        mark_in_use(&state, options).map_err(|error| MountErrorKind::Io(detail(&error)))?;
        let cleaned = orphans::clean_up(&state);
        notes.extend(cleaned.map_err(|error| damaged("cleaning up orphans", &error))?);
    }
    Ok(Mounted {
        state,
        notes,
        was_valid,
    })
}

/// The root directory must be one.
fn check_root(state: &ExtState) -> std::result::Result<(), MountErrorKind> {
    let root = state
        .read_inode(ROOT)
        .map_err(|error| damaged("root directory", &error))?;
    let wrong = match root.kind() {
        Some(DiskKind::Directory) if root.links_count() > 0 => {
            let checked = inode::checked(state, ROOT);
            return checked
                .map(|_| ())
                .map_err(|error| damaged("root directory", &error));
        }
        Some(DiskKind::Directory) => "has no links",
        Some(_) => "is not a directory",
        None => "is not in use",
    };
    Err(MountErrorKind::Damaged(format!(
        "the root directory (inode {ROOT}) {wrong}"
    )))
}

fn damaged(what: &str, error: &Error) -> MountErrorKind {
    match error {
        Error::Io(detail) => MountErrorKind::Io(format!("{what}: {detail}")),
        error => MountErrorKind::Damaged(format!("{what}: {}", detail(error))),
    }
}

/// Why the image cannot be written, judged by the device and the superblock alone.
fn why_read_only(
    device: &dyn BlockDevice,
    found: &Found,
) -> std::result::Result<Option<String>, MountErrorKind> {
    let superblock = &found.superblock;
    if superblock.compat().contains(Compat::HAS_JOURNAL) && superblock.journal_inum() == 0 {
        let needs_recovery = superblock.incompat().contains(Incompat::NEEDS_RECOVERY);
        if needs_recovery {
            return Err(MountErrorKind::ExternalJournal { needs_recovery });
        }
        return Ok(Some(
            "the journal lies on another device (external journal)".to_owned(),
        ));
    }
    if !found.gate.read_only.is_empty() {
        return Ok(Some(format!(
            "not writable yet: {}",
            found.gate.read_only.join(", ")
        )));
    }
    if let Some(counters) = &found.counters {
        return Ok(Some(format!("superblock {counters}; run e2fsck -f")));
    }
    Ok(device
        .is_read_only()
        .then(|| "the device is read-only".to_owned()))
}

/// Replays the journal or shows it as replayed. Gives a reason when nothing may be written.
fn settle_journal(
    device: &Arc<dyn BlockDevice>,
    found: &Found,
    is_read_only: bool,
    notes: &mut Vec<String>,
) -> std::result::Result<(Overlay, Option<String>), MountErrorKind> {
    match recover::inspect(device, &found.superblock, &found.geometry) {
        Finding::Nothing => Ok((Overlay::default(), None)),
        Finding::ReadOnly(reason, overlay) => Ok((overlay, Some(reason))),
        Finding::Replay(journal, log) if is_read_only => {
            let overlay = recover::overlay(&journal, &log)
                .map_err(|error| MountErrorKind::Journal(detail(&error)))?;
            if log.transactions > 0 {
                notes.push(format!(
                    "the journal holds {}: shown as replayed, not written",
                    transactions(&log)
                ));
            }
            Ok((overlay, None))
        }
        Finding::Replay(journal, log) => {
            // What it leaves must be a file system: else nothing is written, and the message is
            // that of a read-only mount.
            let overlay = recover::overlay(&journal, &log)
                .map_err(|error| MountErrorKind::Journal(detail(&error)))?;
            read_superblock(&**device, &overlay)?;
            recover::replay(&**device, &found.geometry, &journal, &log)
                .map_err(|error| MountErrorKind::Io(detail(&error)))?;
            if log.transactions > 0 {
                notes.push(format!("replayed {} of the journal", transactions(&log)));
            }
            Ok((Overlay::default(), None))
        }
    }
}

fn transactions(log: &Log) -> String {
    match log.transactions {
        1 => "1 transaction".to_owned(),
        count => format!("{count} transactions"),
    }
}

/// What writes the journal of an image whose journal was settled.
fn journal_writer(
    device: &Arc<dyn BlockDevice>,
    buffers: &BufferCache,
    groups: &mut GroupTable,
    superblock: &Superblock,
    geometry: &Geometry,
) -> std::result::Result<JournalWriter, String> {
    let journal = Journal::open(device, buffers, superblock, geometry).and_then(|journal| {
        journal.check_writable(groups, geometry)?;
        Ok(journal)
    });
    let journal = journal.map_err(|error| format!("{}; run e2fsck -f", detail(&error)))?;
    groups.protect(journal.runs());
    let features = LogFeatures {
        has_checksums: superblock.has_metadata_csum(),
        has_64bit: superblock.incompat().contains(Incompat::BIT64),
    };
    JournalWriter::new(journal, features)
        .ok_or_else(|| "not writable yet: a journal of version 1".to_owned())
}

/// Tells what the superblock says about the last use.
fn note_state(superblock: &Superblock, notes: &mut Vec<String>) {
    if superblock.state().contains(State::ERROR) {
        notes.push("the file system is marked as damaged; run e2fsck".to_owned());
    } else if !superblock.state().contains(State::VALID) {
        notes.push("the file system was not unmounted cleanly; run e2fsck".to_owned());
    }
}

fn layout(superblock: &Superblock, geometry: &Geometry) -> Layout {
    Layout {
        first_data_block: u64::from(geometry.first_data_block),
        blocks: geometry.blocks_count,
        blocks_per_group: geometry.blocks_per_group,
        inodes_per_group: geometry.inodes_per_group,
        inodes_per_block: geometry.block_size / u32::from(geometry.inode_size),
        groups_per_flex: geometry.groups_per_flex,
        reserved_for_root: superblock.reserved_blocks_count(),
        run_max: RUN_MAX_BLOCKS,
    }
}

/// Half of the UUID.
fn seed_of(superblock: &Superblock) -> u64 {
    let uuid = u128::from_le_bytes(superblock.uuid());
    uuid as u64
}

/// The blocks that no file can ever have: those of the file system itself, and the journal.
fn overhead_blocks(superblock: &Superblock, geometry: &Geometry) -> u64 {
    let each = 2 + u64::from(geometry.inode_table_blocks);
    let groups = (0..geometry.groups_count)
        .map(|group| each + u64::from(geometry.group_base_blocks(finefs_ext_disk::GroupNo(group))));
    let has_journal =
        superblock.compat().contains(Compat::HAS_JOURNAL) && superblock.journal_inum() != 0;
    let journal_bytes = match superblock.jnl_blocks() {
        [.., high, low] if has_journal => u64::from(high) << 32 | u64::from(low),
        _ => 0,
    };
    let journal = journal_bytes >> geometry.block_bits;
    (u64::from(geometry.first_data_block) + groups.sum::<u64>() + journal)
        .min(geometry.blocks_count)
}

/// Notes in the superblock that the image is in use: its journal has to be replayed before anything
/// else, or, without one, it is not clean until it is cleanly unmounted.
fn mark_in_use(state: &ExtState, options: &ExtOptions) -> Result<()> {
    {
        let mut superblock = state.superblock.lock();
        superblock.set_write_time(state.now_seconds());
        if state.bulk_load.is_none() {
            let mounts = superblock.mount_count().saturating_add(1);
            superblock.set_mount_count(mounts);
            superblock.set_mount_time(state.now_seconds());
        }
        if let Some(place) = &options.mount_point {
            let mut raw = [0; 64];
            let length = place.len().min(raw.len());
            raw[..length].copy_from_slice(&place[..length]);
            superblock.set_last_mounted_raw(&raw);
        }
    }
    mark_thawed(state)
}

/// Notes in the superblock that the image is in use.
pub(crate) fn mark_thawed(state: &ExtState) -> Result<()> {
    let has_journal = state.journal.lock().is_some();
    {
        let mut superblock = state.superblock.lock();
        if has_journal {
            let features = superblock.incompat() | Incompat::NEEDS_RECOVERY;
            superblock.set_incompat(features);
        } else {
            let state = superblock.state() - State::VALID;
            superblock.set_state(state);
        }
    }
    state.put_superblock()?;
    state.buffers.write_out()?;
    state
        .device
        .flush()
        .map_err(|error| Error::io(format_args!("marking the image: {error}")))
}

/// Empties the journal, and marks a cleanly closed image, if it was clean when it was mounted.
pub(crate) fn mark_closed(state: &ExtState, was_valid: bool) -> Result<()> {
    let written = state.blocks_written.exact().max(0) as u64 + state.data.blocks_written();
    let written_kib = written * u64::from(state.geometry.block_size / 1024);
    {
        let mut superblock = state.superblock.lock();
        let kib_written = superblock.kbytes_written().saturating_add(written_kib);
        superblock.set_kbytes_written(kib_written);
    }
    mark_frozen(state, was_valid)
}

/// Brings the image into the state of a clean end: an empty journal, or the mark of a clean image
/// where it was clean when it was mounted.
pub(crate) fn mark_frozen(state: &ExtState, was_valid: bool) -> Result<()> {
    let mut journal = state.take_journal()?;
    let outcome = mark_clean(state, journal.as_mut(), was_valid);
    *state.journal.lock() = journal;
    outcome
}

fn mark_clean(
    state: &ExtState,
    journal: Option<&mut JournalWriter>,
    was_valid: bool,
) -> Result<()> {
    // What was found since the last commit.
    if let Some(found) = state.allocator.take_damage() {
        damage::put(&mut state.superblock.lock(), found);
    }
    let (free_blocks, free_inodes) = state.groups.totals();
    {
        let mut superblock = state.superblock.lock();
        superblock.set_free_blocks_count(free_blocks);
        superblock.set_free_inodes_count(free_inodes as u32);
        superblock.set_write_time(state.now_seconds());
        let features = superblock.incompat() - Incompat::NEEDS_RECOVERY;
        superblock.set_incompat(features);
        let state = superblock.state();
        superblock.set_state(if was_valid {
            state | State::VALID
        } else {
            state
        });
    }
    let io = |error: std::io::Error| Error::io(format_args!("closing the image: {error}"));
    // Everything else first: the mark must not be there before what it stands for.
    state.buffers.write_out()?;
    match journal {
        Some(journal) => journal.checkpoint(&*state.device)?,
        None => state.device.flush().map_err(io)?,
    }
    state.put_superblock()?;
    state.buffers.write_out()?;
    state.device.flush().map_err(io)
}
