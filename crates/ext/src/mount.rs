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

use std::fmt::Display;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_buffers::{BufferCache, Overlay};
use finefs_ext_disk::features::{Compat, Incompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::indirect;
use finefs_ext_disk::inode::FileKind as DiskKind;
use finefs_ext_disk::quota::QuotaKind;
use finefs_ext_disk::superblock::{State, Superblock};
use finefs_namespace::{Error, Ino, Result};

use crate::assemble::{Parts, assemble};
use crate::damage;
use crate::error::{MountError, MountErrorKind, detail};
use crate::found::{Found, read_superblock};
use crate::group::GroupTable;
use crate::journal::writer::{JournalWriter, LogFeatures};
use crate::journal::{Journal, Log, external};
use crate::load::{checked, quota};
use crate::mmp::Mmp;
use crate::recover::{self, Finding};
use crate::state::ExtState;
use crate::{ExtOptions, QUOTA_REPAIR, orphans};

/// The root directory.
pub(crate) const ROOT: Ino = Ino(2);

/// What a mount gives: the state, and what the user should know.
pub(crate) struct Mounted {
    pub state: ExtState,
    pub notes: Vec<String>,
    /// The image was cleanly closed before, or needed no more than a replay.
    pub was_valid: bool,
    /// What keeps other hosts away, where the image has that.
    pub mmp: Option<Mmp>,
}

/// Who keeps other hosts away while an image is mounted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protection {
    /// The mount, where the image has multiple mount protection.
    Own,
    /// The caller ([`crate::MmpCheck`]), or nobody has to: it writes nothing to the image.
    Callers,
}

/// Mounts. See the module's head.
pub(crate) fn mount(
    device: Arc<dyn BlockDevice>,
    options: &ExtOptions,
    protection: Protection,
) -> std::result::Result<Mounted, MountError> {
    let name = device.describe();
    open(device, options, protection).map_err(|kind| MountError { device: name, kind })
}

fn open(
    device: Arc<dyn BlockDevice>,
    options: &ExtOptions,
    protection: Protection,
) -> std::result::Result<Mounted, MountErrorKind> {
    let mut outlook = Outlook {
        is_read_only: options.is_read_only || options.skips_recovery,
        notes: Vec::new(),
    };
    let mut found = read_superblock(&*device, &Overlay::default())?;
    check_journal_device(&*device, options)?;
    if let Some(reason) = why_read_only(&*device, &found, options)? {
        outlook.make_read_only(reason);
    }
    // Before anything is written, and before anything is read that another host may change.
    let mmp = match outlook.is_read_only || protection == Protection::Callers {
        true => None,
        false => protect(&device, &mut found)?,
    };
    let overlay = recovered(&device, &found, options, &mut outlook)?;
    let Found {
        superblock,
        geometry,
        ..
    } = read_superblock(&*device, &overlay)?;
    let buffers = BufferCache::with(
        device.clone(),
        geometry.block_size,
        overlay,
        usize::try_from(options.buffer_bytes).unwrap_or(usize::MAX),
    );
    let mut groups = GroupTable::load(&superblock, &geometry, &buffers)
        .map_err(|error| damaged("group descriptors", &error))?;
    if let Some(damage) = groups.damage() {
        outlook.make_read_only(format_args!("{damage}; run e2fsck -f"));
    }
    note_state(&superblock, &mut outlook.notes);
    let was_valid = superblock.state().contains(State::VALID);
    let on_image = (&superblock, &geometry);
    let journal = begin_journal(
        &device,
        options,
        &buffers,
        &mut groups,
        on_image,
        &mut outlook,
    );
    note_unused(&superblock, options, &mut outlook.notes);
    let mut state = assemble(
        Parts {
            device,
            superblock,
            geometry,
            buffers,
            groups,
            journal,
            is_read_only: outlook.is_read_only,
        },
        options,
    );
    check_root(&state)?;
    prepare_changes(&mut state, options, &mut outlook)?;
    Ok(Mounted {
        state,
        notes: outlook.notes,
        was_valid,
        mmp,
    })
}

/// How the image can be mounted, and what there is to say about it.
struct Outlook {
    is_read_only: bool,
    notes: Vec<String>,
}

impl Outlook {
    /// Says why, unless it was read-only before.
    fn make_read_only(&mut self, reason: impl Display) {
        if !self.is_read_only {
            self.notes.push(format!("mounted read-only: {reason}"));
        }
        self.is_read_only = true;
    }
}

/// Keeps other hosts away, where the image has multiple mount protection, and reads the superblock
/// again then.
fn protect(
    device: &Arc<dyn BlockDevice>,
    found: &mut Found,
) -> std::result::Result<Option<Mmp>, MountErrorKind> {
    if !found.superblock.incompat().contains(Incompat::MMP) {
        return Ok(None);
    }
    let mmp = Mmp::acquire(device, &found.superblock, found.geometry.block_size)?;
    *found = read_superblock(&**device, &Overlay::default())?;
    Ok(Some(mmp))
}

/// The journal that was named must be this image's.
fn check_journal_device(
    device: &dyn BlockDevice,
    options: &ExtOptions,
) -> std::result::Result<(), MountErrorKind> {
    match &options.journal {
        Some(journal) if !external::is_journal_of(&**journal, device) => {
            Err(MountErrorKind::ForeignJournal(journal.describe()))
        }
        _ => Ok(()),
    }
}

/// The journal, replayed or looked at: what is to be seen instead of the device's blocks.
fn recovered(
    device: &Arc<dyn BlockDevice>,
    found: &Found,
    options: &ExtOptions,
    outlook: &mut Outlook,
) -> std::result::Result<Overlay, MountErrorKind> {
    let is_read_only = outlook.is_read_only;
    let (overlay, reason) = match options.skips_recovery {
        true => (Overlay::default(), unrecovered(found)),
        false => settle_journal(device, found, is_read_only, options, &mut outlook.notes)?,
    };
    match reason {
        Some(reason) if is_read_only => outlook.notes.push(reason),
        Some(reason) => outlook.make_read_only(format_args!("{reason}; run e2fsck")),
        None => {}
    }
    Ok(overlay)
}

/// The writer of the journal, where changes go through one.
fn begin_journal(
    device: &Arc<dyn BlockDevice>,
    options: &ExtOptions,
    buffers: &BufferCache,
    groups: &mut GroupTable,
    (superblock, geometry): (&Superblock, &Geometry),
    outlook: &mut Outlook,
) -> Option<JournalWriter> {
    if outlook.is_read_only || !superblock.compat().contains(Compat::HAS_JOURNAL) {
        return None;
    }
    let external = options.journal.as_ref();
    match journal_writer(device, external, buffers, groups, superblock, geometry) {
        Ok(writer) => Some(writer).filter(|_| options.bulk_load.is_none()),
        Err(reason) => {
            outlook.make_read_only(reason);
            None
        }
    }
}

/// Tells of options that have no effect on this image.
fn note_unused(superblock: &Superblock, options: &ExtOptions, notes: &mut Vec<String>) {
    if !options.keys.is_empty() && !superblock.incompat().contains(Incompat::ENCRYPT) {
        notes.push("the keys are not used: it has no encrypted files (encrypt)".to_owned());
    }
    for kind in quota::missing(superblock, &options.limits) {
        let whose = match kind {
            QuotaKind::User => "users",
            QuotaKind::Group => "groups",
            QuotaKind::Project => "projects",
        };
        notes.push(format!(
            "limits of {whose} do not count: it keeps no account of them (tune2fs -Q)"
        ));
    }
}

/// Looks at what changes need; then the image is marked as in use, and orphans go.
fn prepare_changes(
    state: &mut ExtState,
    options: &ExtOptions,
    outlook: &mut Outlook,
) -> std::result::Result<(), MountErrorKind> {
    if state.is_read_only {
        return Ok(());
    }
    let ready = orphans::check_file(state)
        .map_err(|error| (error, "run e2fsck -f"))
        .and_then(|()| start_quotas(state, options).map_err(|error| (error, QUOTA_REPAIR)));
    if let Err((error, advice)) = ready {
        outlook.make_read_only(format_args!("{}; {advice}", detail(&error)));
        *state.journal.lock() = None;
        state.is_read_only = true;
        return Ok(());
    }
    mark_in_use(state, options).map_err(|error| MountErrorKind::Io(detail(&error)))?;
    let cleaned = orphans::clean_up(state);
    let notes = cleaned.map_err(|error| damaged("cleaning up orphans", &error))?;
    outlook.notes.extend(notes);
    Ok(())
}

/// Keeps account of what owners have, where the image does.
fn start_quotas(state: &ExtState, options: &ExtOptions) -> Result<()> {
    let quotas = quota::load(state, &options.limits)?;
    if !quotas.ledgers().is_empty() {
        let _ = state.quotas.set(quotas);
    }
    Ok(())
}

/// The root directory must be one.
fn check_root(state: &ExtState) -> std::result::Result<(), MountErrorKind> {
    let root = state
        .read_inode(ROOT)
        .map_err(|error| damaged("root directory", &error))?;
    let wrong = match root.kind() {
        Some(DiskKind::Directory) if root.links_count() > 0 => {
            let checked = checked::inode(state, ROOT);
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

/// Why an image cannot be written whose features each can.
pub(crate) fn unwritable(found: &Found) -> Option<&'static str> {
    let has_extents = found.superblock.incompat().contains(Incompat::EXTENTS);
    if !has_extents && !indirect::reaches(found.geometry.blocks_count) {
        return Some("without extents files do not reach all of its blocks");
    }
    let clusters = u64::from(found.geometry.cluster_ratio);
    let is_cut_off = !found.geometry.blocks_count.is_multiple_of(clusters);
    is_cut_off.then_some("its last cluster is cut off")
}

/// Why the image cannot be written, judged by the device and the superblock alone.
fn why_read_only(
    device: &dyn BlockDevice,
    found: &Found,
    options: &ExtOptions,
) -> std::result::Result<Option<String>, MountErrorKind> {
    let (superblock, journal) = (&found.superblock, options.journal.as_ref());
    let is_external = superblock.compat().contains(Compat::HAS_JOURNAL)
        && superblock.journal_inum() == 0
        && journal.is_none();
    if is_external {
        let needs_recovery = superblock.incompat().contains(Incompat::NEEDS_RECOVERY);
        if needs_recovery && !options.skips_recovery {
            return Err(MountErrorKind::ExternalJournal { needs_recovery });
        }
        return Ok(Some(
            "the journal lies on another device (external journal); give it (mount -o \
             journal_path=FILE, other commands --journal FILE)"
                .to_owned(),
        ));
    }
    if !found.gate.read_only.is_empty() {
        return Ok(Some(format!(
            "not writable yet: {}",
            found.gate.read_only.join(", ")
        )));
    }
    if let Some(reason) = unwritable(found) {
        return Ok(Some(reason.to_owned()));
    }
    if let Some(counters) = &found.counters {
        return Ok(Some(format!("superblock {counters}; run e2fsck -f")));
    }
    if journal.is_some_and(|journal| journal.is_read_only()) {
        return Ok(Some("the journal's device is read-only".to_owned()));
    }
    Ok(device
        .is_read_only()
        .then(|| "the device is read-only".to_owned()))
}

/// What is to be known of an image whose journal is left alone.
fn unrecovered(found: &Found) -> Option<String> {
    let needs_recovery = (found.superblock.incompat()).contains(Incompat::NEEDS_RECOVERY);
    needs_recovery.then(|| "the journal is not replayed: what it alone holds is missing".to_owned())
}

/// Replays the journal or shows it as replayed. Gives a reason when nothing may be written.
fn settle_journal(
    device: &Arc<dyn BlockDevice>,
    found: &Found,
    is_read_only: bool,
    options: &ExtOptions,
    notes: &mut Vec<String>,
) -> std::result::Result<(Overlay, Option<String>), MountErrorKind> {
    match recover::inspect(
        device,
        options.journal.as_ref(),
        &found.superblock,
        &found.geometry,
    ) {
        Finding::Nothing => Ok((Overlay::default(), None)),
        Finding::ReadOnly(reason, overlay) => Ok((overlay, Some(reason))),
        Finding::Replay(journal, log) if is_read_only => {
            let overlay = recover::overlay(&journal, &log)
                .map_err(|error| MountErrorKind::Journal(detail(&error)))?;
            if let Some(held) = held(&log) {
                notes.push(format!(
                    "the journal holds {held}: shown as replayed, not written"
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
            let held = held(&log);
            recover::replay(&**device, &found.superblock, journal, log)
                .map_err(|error| MountErrorKind::Io(detail(&error)))?;
            if let Some(held) = held {
                notes.push(format!("replayed {held} of the journal"));
            }
            Ok((Overlay::default(), None))
        }
    }
}

/// What a log holds, in words; `None` for nothing.
fn held(log: &Log) -> Option<String> {
    let counted = |count: u32, what: &str| match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        count => Some(format!("{count} {what}s")),
    };
    let fast = log.fast_commits.as_ref().map_or(0, |fast| fast.count);
    let parts = [
        counted(log.transactions, "transaction"),
        counted(fast, "fast commit"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// What writes the journal of an image whose journal was settled.
fn journal_writer(
    device: &Arc<dyn BlockDevice>,
    external: Option<&Arc<dyn BlockDevice>>,
    buffers: &BufferCache,
    groups: &mut GroupTable,
    superblock: &Superblock,
    geometry: &Geometry,
) -> std::result::Result<JournalWriter, String> {
    let journal =
        Journal::open(device, external, buffers, superblock, geometry).and_then(|journal| {
            journal.check_writable(groups, geometry)?;
            Ok(journal)
        });
    let journal = journal.map_err(|error| format!("{}; run e2fsck -f", detail(&error)))?;
    groups.protect(journal.runs());
    JournalWriter::new(journal, LogFeatures::of(superblock))
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
    let written = state.data.blocks_written();
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
