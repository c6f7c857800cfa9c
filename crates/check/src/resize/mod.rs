//! Grows and shrinks file systems that nobody uses, as resize2fs does.
//!
//! | Module | Thing |
//! |---|---|
//! | `shape` | the numbers: groups, inodes, descriptor blocks |
//! | `layout` | where bitmaps and inode tables lie, and what must leave |
//! | `room` | blocks that are free in the old file system and in the new one |
//! | `numbers` | new numbers for the inodes of groups that go |
//! | `moving` | the inodes: their blocks, maps and attributes |
//! | `names` | directories after inodes got new numbers |
//! | `metadata` | descriptors, superblock, resize inode |
//! | `minimum` | how small it may become |
//!
//! # How
//! The image is checked. Then data that must move is copied to free blocks, straight to the device;
//! what changes in blocks that are in use goes to a shadow in memory. The shadow is checked, its
//! bitmaps and counts are put right by what the check found in use, and it is checked again. Only
//! then the old bytes go to the undo file, and after that the new ones to the image, as a repair
//! writes them.
//!
//! # Invariants
//! 1. Until the undo file is durable, nothing was written but to blocks that are free in the old
//!    file system, or that lie behind it.
//! 2. Nothing is written to the image unless the check of the shadow finds nothing.
//! 3. What was moved is left where it was: the undo file needs none of it.
//! 4. The device is cut off last, and grown first.

mod layout;
mod metadata;
mod minimum;
mod moving;
mod names;
mod numbers;
mod room;
mod shape;

use std::path::PathBuf;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::IfChecked;
use finefs_ext_disk::features::{Compat, RoCompat};
use finefs_ext_disk::geometry::Geometry;
use finefs_ext_disk::superblock::State;
use serde::Serialize;

use crate::finding::{Problem, Report};
use crate::fs::{external_is_replayed, replay_first};
use crate::pass::{self, Check};
use crate::repair::{Undo, commit, is_good, round, shadow::Shadow};
use crate::{Options, mmp};
use layout::Layout;
use metadata::Writer;
use moving::Mover;
use names::Names;
use numbers::Numbers;
use shape::{Shape, reshape};

/// The most rounds in which bitmaps and counts are put right: a report has an end.
const ROUNDS: usize = 64;
/// The unit of sizes that nobody gave.
const PAGE_BYTES: u64 = 4096;

/// What size an image is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// That of its device.
    Device,
    /// So many bytes.
    Bytes(u64),
    /// As small as what is in it allows, and something more.
    Minimum(Slack),
}

/// Room beyond the minimum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slack {
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the minimum.
    Percent(u64),
}

/// Where old bytes are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UndoFile {
    /// The file, which must not exist.
    pub path: PathBuf,
    /// It is kept, with what a shrunken image is cut off, so that [`crate::repair::undo`] takes the
    /// whole of it back. If not, it is there for an interruption, and removed at the end.
    pub is_kept: bool,
}

/// What was done. The names are those of the command's JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resized {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks before.
    pub old_blocks: u64,
    /// Blocks now.
    pub blocks: u64,
    /// Groups now.
    pub groups: u32,
    /// Inodes now.
    pub inodes: u32,
    /// Blocks that were moved.
    pub moved_blocks: u64,
    /// Inodes that have a new number.
    pub moved_inodes: u64,
    /// Pages of 4 KiB that changed.
    pub pages_changed: usize,
}

/// The smallest size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Minimum {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of the file system as it is.
    pub blocks: u64,
    /// Blocks that it needs at least.
    pub minimum_blocks: u64,
}

/// Tells what is done now.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// How small an image may become. Nothing is written.
///
/// # Errors
/// As [`resize`], as far as it is about the image as it is.
pub fn minimum(device: &Arc<dyn BlockDevice>, options: &Options) -> Result<Minimum, String> {
    let check = checked(device, options)?;
    Ok(Minimum {
        block_size: check.fs.geo.block_size,
        blocks: check.fs.geo.blocks_count,
        minimum_blocks: minimum::blocks(&check)?,
    })
}

/// Resizes. `None`: it has that size already.
///
/// # Errors
/// One line: an image that is not clean, a feature that is not handled, a size that cannot be. The
/// file system is then as it was, unless the line names the undo file.
pub fn resize(
    device: &Arc<dyn BlockDevice>,
    target: Target,
    options: &Options,
    undo: &UndoFile,
    progress: Progress<'_>,
) -> Result<Option<Resized>, String> {
    // Before the check: what it finds after an interruption is not for repair.
    if undo.path.exists() {
        return Err(format!(
            "{} is there already: if a resize that was interrupted has left it, finefs undo takes \
             back what that did; if not, move it away",
            undo.path.display()
        ));
    }
    // Held until the end: blocks that are free are written before all is ready.
    let _held = mmp::hold(device, IfChecked::Refused)?;
    progress("checking");
    let check = checked(device, options)?;
    let wanted = wanted_blocks(device, target, &check, progress)?;
    let old = check.fs.geo.clone();
    if wanted == old.blocks_count {
        return Ok(None);
    }
    let shape = match reshape(&check.fs.sb, &old, wanted) {
        Err(reason) if wanted < old.blocks_count => {
            return Err(too_few(&check, wanted, &reason));
        }
        shape => shape?,
    };
    // A last group that is too short is left out, also where the image has one.
    let grows = wanted > old.blocks_count;
    if shape.geo.blocks_count == old.blocks_count
        || grows && shape.geo.blocks_count < old.blocks_count
    {
        return Ok(None);
    }
    let shrinks = shape.geo.blocks_count < old.blocks_count;
    if shrinks {
        can_shrink(&check, &shape)?;
    }
    let before = device.len_bytes();
    let size = shape.geo.size_bytes();
    if size > before {
        device
            .set_len_bytes(size)
            .map_err(|error| cannot_grow(device, size, error))?;
    }
    let outcome = work(device, &check, &shape, options, undo, before, progress);
    if outcome.is_err() && !undo.path.exists() && device.len_bytes() > before {
        // Best effort: zeros behind the file system are no harm.
        let _ = device.set_len_bytes(before);
    }
    let resized = outcome?;
    // Without what is cut off it could not be taken back any more.
    if !undo.is_kept {
        let _ = std::fs::remove_file(&undo.path);
    }
    if shrinks && ends_with(device, &old)? {
        cut(device, size)?;
    }
    Ok(Some(resized))
}

/// Whether nothing but zeros lies behind a file system.
fn ends_with(device: &Arc<dyn BlockDevice>, geo: &Geometry) -> Result<bool, String> {
    let text = |error: std::io::Error| error.to_string();
    let (mut at, end) = (geo.size_bytes(), device.len_bytes());
    let mut buffer = vec![0; 64 << 10];
    while at < end {
        let extent = device.extent_at(at, end - at).map_err(text)?;
        if extent.is_zero {
            at += extent.length_bytes;
            continue;
        }
        let part = &mut buffer[..(end - at).min(64 << 10) as usize];
        device.read_at(at, part).map_err(text)?;
        if part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += part.len() as u64;
    }
    Ok(true)
}

fn cannot_grow(device: &Arc<dyn BlockDevice>, size: u64, error: std::io::Error) -> String {
    let has = device.len_bytes();
    match error.kind() {
        std::io::ErrorKind::Unsupported => format!(
            "{size} bytes are wanted, the device has {has} and cannot be made larger here; give \
             at most that"
        ),
        _ => format!("cannot be made {size} bytes long: {error}"),
    }
}

/// Cuts a file off behind its file system; what cannot be cut is left.
fn cut(device: &Arc<dyn BlockDevice>, size: u64) -> Result<(), String> {
    match device.set_len_bytes(size) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => Ok(()),
        Err(error) => Err(format!(
            "is resized, but cannot be cut off at {size} bytes: {error}"
        )),
    }
}

fn wanted_blocks(
    device: &Arc<dyn BlockDevice>,
    target: Target,
    check: &Check,
    progress: Progress<'_>,
) -> Result<u64, String> {
    let block_bytes = u64::from(check.fs.geo.block_size);
    Ok(match target {
        Target::Bytes(bytes) => bytes / block_bytes,
        Target::Device => {
            let unit = (PAGE_BYTES / block_bytes).max(1);
            let blocks = device.len_bytes() / block_bytes;
            // Less than a page more is no reason to change anything.
            match blocks - blocks % unit < check.fs.geo.blocks_count {
                true => check.fs.geo.blocks_count,
                false => blocks - blocks % unit,
            }
        }
        Target::Minimum(slack) => {
            progress("looking for the smallest size");
            let least = minimum::blocks(check)?;
            let more = match slack {
                Slack::Bytes(bytes) => bytes.div_ceil(block_bytes),
                Slack::Percent(percent) => {
                    let more = u128::from(least) * u128::from(percent);
                    u64::try_from(more.div_ceil(100)).unwrap_or(u64::MAX)
                }
            };
            // With slack it would grow: it is small enough.
            least.saturating_add(more).min(check.fs.geo.blocks_count)
        }
    })
}

/// Checks an image, and whether it is one that can be resized.
fn checked(device: &Arc<dyn BlockDevice>, options: &Options) -> Result<Check, String> {
    external_is_replayed(device)?;
    let checked = pass::run(device, options)?;
    let report = checked.report;
    let check = checked
        .check
        .ok_or("its superblock is damaged; run e2fsck")?;
    let sb = &check.fs.sb;
    if sb.ro_compat().contains(RoCompat::SHARED_BLOCKS) {
        return Err("feature shared_blocks says that it must not change".to_owned());
    }
    if check.fs.is_replayed || has(&report, Problem::JournalDirty) {
        return Err(replay_first(sb));
    }
    if sb.state().contains(State::ERROR) {
        return Err("errors were noted in it; run finefs repair first".to_owned());
    }
    if !sb.state().contains(State::VALID) {
        return Err("was not unmounted cleanly; run finefs repair first".to_owned());
    }
    if !is_good(&report) {
        let first = report.findings.iter().find(|finding| finding.is_error());
        let first = first.or(report.findings.first());
        let what = first.map_or(String::new(), ToString::to_string);
        if report.is_unread() {
            return Err(format!(
                "not all of it can be read ({what}); see to the storage first"
            ));
        }
        let tool = match report.is_repairable() {
            true => "finefs repair",
            false => "e2fsck -f",
        };
        return Err(format!("is not clean ({what}); run {tool} first"));
    }
    Ok(check)
}

fn has(report: &Report, problem: Problem) -> bool {
    report
        .findings
        .iter()
        .any(|finding| finding.problem == problem)
}

fn can_shrink(check: &Check, shape: &Shape) -> Result<(), String> {
    if check.fs.has(Compat::STABLE_INODES) {
        let what =
            "feature stable_inodes says that its inodes keep their numbers: it can grow only";
        return Err(what.to_owned());
    }
    minimum::try_shape(check, shape)
        .map_err(|reason| too_few(check, shape.geo.blocks_count, &reason))
}

/// Says how many blocks it needs.
fn too_few(check: &Check, blocks: u64, reason: &str) -> String {
    let least = match minimum::blocks(check) {
        Ok(least) => least,
        Err(reason) => return reason,
    };
    let bytes = least * u64::from(check.fs.geo.block_size);
    format!("{blocks} blocks are too few ({reason}); it needs {least}, which are {bytes} bytes")
}

/// All of it but the ends of the device.
fn work(
    device: &Arc<dyn BlockDevice>,
    check: &Check,
    shape: &Shape,
    options: &Options,
    undo: &UndoFile,
    before: u64,
    progress: Progress<'_>,
) -> Result<Resized, String> {
    let shadow = Arc::new(Shadow::over_free_blocks(device, check));
    let view: Arc<dyn BlockDevice> = Arc::clone(&shadow) as Arc<dyn BlockDevice>;
    let numbers = Numbers::new(check, shape)?;
    let mut layout = Layout::new(check, shape)?;
    let zeros_from = match device.len_bytes() > before {
        true => before,
        false => u64::MAX,
    };
    progress("moving what must move");
    let moved_blocks = rebuild(check, shape, &mut layout, &numbers, &view, zeros_from)?;
    progress("counting what is free");
    settle(&view, shape, options)?;
    progress("writing");
    device.flush().map_err(|error| error.to_string())?;
    let changes = shadow.changes().map_err(|error| error.to_string())?;
    let pages_changed = changes.len();
    let shrinks = shape.geo.blocks_count < check.fs.geo.blocks_count;
    let cut_off = match undo.is_kept && shrinks {
        true => used_behind(check, shape),
        false => Vec::new(),
    };
    let kept = Undo {
        path: &undo.path,
        old_bytes: before,
        new_bytes: match undo.is_kept && shrinks {
            true => shape.geo.size_bytes(),
            false => device.len_bytes(),
        },
        cut_off: &cut_off,
    };
    commit(device, &kept, changes)?;
    Ok(Resized {
        block_size: shape.geo.block_size,
        old_blocks: check.fs.geo.blocks_count,
        blocks: shape.geo.blocks_count,
        groups: shape.geo.groups_count,
        inodes: shape.geo.inodes_count,
        moved_blocks,
        moved_inodes: numbers.len() as u64,
        pages_changed,
    })
}

/// The parts of what is cut off that are in use, in bytes: start and length.
fn used_behind(check: &Check, shape: &Shape) -> Vec<(u64, u64)> {
    let block_bytes = u64::from(shape.geo.block_size);
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for block in shape.geo.blocks_count..check.fs.geo.blocks_count {
        if !check.claims.is_claimed(block >> check.cluster_bits) {
            continue;
        }
        let start = block * block_bytes;
        match runs.last_mut() {
            Some((at, length)) if *at + *length == start => *length += block_bytes,
            _ => runs.push((start, block_bytes)),
        }
    }
    runs
}

/// Writes the new file system to the view, but for what is free; gives the number of blocks moved.
fn rebuild(
    check: &Check,
    shape: &Shape,
    layout: &mut Layout,
    numbers: &Numbers,
    view: &Arc<dyn BlockDevice>,
    zeros_from: u64,
) -> Result<u64, String> {
    let mut mover = Mover::new(check, shape, layout, numbers, Some(view));
    let is_moving = mover.layout.has_moves || !numbers.is_empty();
    if is_moving {
        mover.tables()?;
    }
    let mut writer = Writer {
        mover: &mut mover,
        view,
        zeros_from,
    };
    writer.clear_inodes()?;
    if is_moving {
        writer.mover.inodes()?;
    }
    if !numbers.is_empty() {
        let names = Names {
            check,
            view,
            numbers,
        };
        for dir in &check.dirs.list {
            let place = writer.mover.inode_place(numbers.of(dir.ino));
            names
                .directory(dir.ino, place.ok_or("an inode has no place")?)
                .map_err(|reason| format!("directory {}: {reason}", dir.ino))?;
        }
    }
    writer.descriptors()?;
    writer.resize_inode()?;
    if is_moving {
        writer.orphan_file()?;
    }
    writer.superblock()?;
    Ok(mover.moved_blocks)
}

/// Puts bitmaps and counts right, by what a check finds in use, until it finds nothing.
fn settle(view: &Arc<dyn BlockDevice>, shape: &Shape, options: &Options) -> Result<(), String> {
    const EXPECTED: [Problem; 7] = [
        Problem::BlockBitmap,
        Problem::InodeBitmap,
        Problem::BitmapChecksum,
        Problem::GroupCount,
        Problem::FreeCount,
        Problem::Backup,
        // A map may have a block more or less than it had.
        Problem::QuotaUsage,
    ];
    for _ in 0..ROUNDS {
        metadata::backups(view, &shape.geo)?;
        let checked = pass::run(view, options)?;
        let report = checked.report;
        if is_good(&report) && !has(&report, Problem::Backup) {
            return Ok(());
        }
        let strange = report
            .findings
            .iter()
            .find(|finding| finding.is_error() && !EXPECTED.contains(&finding.problem));
        let Some(check) = checked.check.filter(|_| strange.is_none()) else {
            let what = strange.map_or(String::new(), ToString::to_string);
            return Err(format!(
                "nothing was changed, since it would not be sound after that: {what}; this is a \
                 mistake in finefs, please report it"
            ));
        };
        round::put_right(view, &check, &report)?;
    }
    Err("nothing was changed: bitmaps and counts do not settle".to_owned())
}
