//! Repairs what can be repaired without deciding about anybody's data.
//!
//! # How
//! All is done on a [`shadow`], whose writes stay in memory: the journal is replayed, orphans are
//! removed by a mount, then each finding that says how is put right, and the image is checked
//! again, until nothing is wrong. Only then the old bytes go to the undo file, which is made
//! durable, and then the new ones to the image.
//!
//! # Invariants
//! 1. Where anything is wrong that takes a decision ([`Remedy::E2fsck`]), nothing at all is
//!    changed: counts and bitmaps follow from maps that cannot be trusted then. What was asked for
//!    by name ([`Options::also`]) is decided first, alone, and then all is looked at again.
//! 2. Nothing is written to the image unless the check of the shadow finds nothing.
//! 3. The image is written after the undo file is durable, its superblock last. That says then that
//!    the image is clean and has no errors, as after e2fsck.
//! 4. While the image is changed, its MMP block, if it has one, keeps other hosts away. That block
//!    is not in the undo file.

mod decide;
mod e2undo;
mod fix;
mod groups;
mod index;
mod lost;
pub(crate) mod round;
pub(crate) mod shadow;
mod undo;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::{IfChecked, replay};
use finefs_ext_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, State, Superblock};

use crate::finding::{Finding, Problem, Remedy, Report};
use crate::fs::external_is_replayed;
use crate::{Options, mmp, pass};
pub use decide::NAMED;
use shadow::{Change, Shadow, without_mmp_block};
pub(crate) use undo::Undo;
pub use undo::{default_path, undo};

/// What becomes of an image that was changed since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangedSince {
    /// An error says so, and nothing is written.
    Refused,
    /// What the file holds is put back all the same.
    PutBack {
        /// The device is the part of a disk that the file system is in: it starts with it, wherever
        /// the file says that it does.
        is_part: bool,
    },
}

/// The most rounds: what one puts right can only show what another must.
const ROUNDS: usize = 12;

/// What became of a repair.
#[derive(Debug)]
pub enum Outcome {
    /// There was nothing to do.
    Clean(Report),
    /// Nothing was changed: some of it is not safe to put right.
    Refused(Report),
    /// It is done, or would be.
    Done {
        /// What was wrong.
        fixed: Vec<Finding>,
        /// The image as it is now.
        report: Report,
        /// Pages of 4 KiB that changed.
        pages: usize,
        /// Where their old contents are.
        undo: Option<PathBuf>,
    },
}

/// Repairs. With `undo` the old contents are in that file, which must not exist; without it
/// nothing is written.
pub fn repair(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    undo: Option<&Path>,
) -> Result<Outcome, String> {
    // The undo file could not put back what the replay takes out of the other device.
    external_is_replayed(device)?;
    let Some(undo) = undo else {
        return attempt(device, options, None);
    };
    let held = mmp::hold(device, IfChecked::Refused)?;
    let outcome = attempt(device, options, Some(undo))?;
    let Some(damage) = held.as_ref().and_then(mmp::damage) else {
        return Ok(outcome);
    };
    Ok(match outcome {
        Outcome::Clean(report) => Outcome::Done {
            fixed: vec![damage],
            report,
            pages: 0,
            undo: None,
        },
        Outcome::Done {
            mut fixed,
            report,
            pages,
            undo,
        } => {
            fixed.insert(0, damage);
            Outcome::Done {
                fixed,
                report,
                pages,
                undo,
            }
        }
        refused => refused,
    })
}

/// Repairs an image that nobody else writes, or does nothing but say what would be done.
fn attempt(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    undo: Option<&Path>,
) -> Result<Outcome, String> {
    let first = pass::run(device, options)?.report;
    if is_good(&first) && !first.findings.iter().any(is_mark) {
        return Ok(Outcome::Clean(first));
    }
    if first.findings.iter().any(|it| is_fatal(it, options)) {
        return Ok(Outcome::Refused(first));
    }
    let shadow = Arc::new(Shadow::new(device));
    let view: Arc<dyn BlockDevice> = Arc::clone(&shadow) as Arc<dyn BlockDevice>;
    settle(&view, &first)?;
    let rounds = ROUNDS + decide::rounds(&first, &options.also);
    let mut fixed = round::believed(&first);
    for _ in 0..rounds {
        let checked = pass::run(&view, options)?;
        let report = checked.report;
        for finding in round::believed(&report) {
            if finding.is_error() && !fixed.contains(&finding) {
                fixed.push(finding);
            }
        }
        if is_good(&report) {
            return finish(device, &shadow, fixed, report, undo);
        }
        if let Some(check) = &checked.check
            && round::open_groups(&view, check, &report)?
        {
            continue;
        }
        let is_left = |it: &Finding| is_fatal(it, options) || it.problem == Problem::InodeSize;
        let named = decide::is_wanted(&report, &options.also);
        let may = named || !report.findings.iter().any(is_left);
        let Some(check) = checked.check.filter(|_| may) else {
            return Ok(Outcome::Refused(report));
        };
        if named {
            match decide::decide(&view, &check, &report, &options.also)? {
                true => continue,
                false => return Ok(Outcome::Refused(report)),
            }
        }
        if !round::put_right(&view, &check, &report)? {
            return Ok(Outcome::Refused(report));
        }
    }
    Ok(Outcome::Refused(pass::run(&view, options)?.report))
}

/// Writes what is in the shadow, where a check finds nothing, if there is to be an undo file.
fn finish(
    device: &Arc<dyn BlockDevice>,
    shadow: &Arc<Shadow>,
    fixed: Vec<Finding>,
    mut report: Report,
    undo: Option<&Path>,
) -> Result<Outcome, String> {
    let view: Arc<dyn BlockDevice> = Arc::clone(shadow) as Arc<dyn BlockDevice>;
    mark_sound(&view)?;
    report.findings.retain(|finding| !is_mark(finding));
    let changes = shadow.changes().map_err(|error| error.to_string())?;
    let pages = changes.len();
    if let Some(path) = undo {
        let length = device.len_bytes();
        let undo = Undo {
            path,
            old_bytes: length,
            new_bytes: length,
            cut_off: &[],
        };
        commit(device, &undo, changes)?;
    }
    Ok(Outcome::Done {
        fixed,
        report,
        pages,
        undo: undo.map(Path::to_owned),
    })
}

/// Whether it is what the superblock says of the whole image: it is taken away when all is right.
fn is_mark(finding: &Finding) -> bool {
    matches!(finding.problem, Problem::ErrorsNoted | Problem::NotClean)
}

/// Marks an image in which nothing is wrong as e2fsck does: clean, and without errors.
fn mark_sound(view: &Arc<dyn BlockDevice>) -> Result<(), String> {
    change_superblock(view, |sb| {
        sb.set_state(State::VALID);
        sb.set_error_count(0);
        sb.set_first_error_time(0);
        sb.set_first_error_errcode(0);
        sb.set_first_error_func_raw(&[0; 32]);
        sb.set_first_error_ino(0);
        sb.set_first_error_line(0);
        sb.set_first_error_block(0);
        sb.set_last_error_time(0);
        sb.set_last_error_errcode(0);
        sb.set_last_error_func_raw(&[0; 32]);
        sb.set_last_error_ino(0);
        sb.set_last_error_line(0);
        sb.set_last_error_block(0);
    })
}

/// Whether nothing is left to do. What is only remarkable may be left, but for a journal or orphans
/// that wait.
pub(crate) fn is_good(report: &Report) -> bool {
    let waits = [Problem::JournalDirty, Problem::Orphans, Problem::FreeCount];
    report.clean && !report.findings.iter().any(|f| waits.contains(&f.problem))
}

/// What neither a replay, nor the removal of orphans, nor what was asked for puts right.
fn is_fatal(finding: &Finding, options: &Options) -> bool {
    finding.problem.remedy() == Remedy::E2fsck
        && finding.problem != Problem::InodeSize
        && !options.also.contains(&finding.problem)
}

/// Replays the journal and lets a mount remove the orphans.
fn settle(view: &Arc<dyn BlockDevice>, report: &Report) -> Result<(), String> {
    let has = |problem| report.findings.iter().any(|f| f.problem == problem);
    if has(Problem::JournalDirty) {
        let sb = superblock(view)?;
        let geometry = sb.validate().map_err(|error| error.to_string())?;
        replay::replay(view, &sb, &geometry)?;
    }
    if has(Problem::Orphans) || has(Problem::OrphansPending) {
        // A mount does not touch those of an image that is marked as damaged.
        change_superblock(view, |sb| sb.set_state(sb.state() - State::ERROR))?;
        replay::remove_orphans(view)?;
    }
    Ok(())
}

fn change_superblock(
    view: &Arc<dyn BlockDevice>,
    change: impl FnOnce(&mut Superblock),
) -> Result<(), String> {
    let mut sb = superblock(view)?;
    change(&mut sb);
    sb.update_checksum();
    view.write_at(SUPERBLOCK_OFFSET, sb.as_bytes())
        .map_err(|error| error.to_string())
}

pub(crate) fn superblock(view: &Arc<dyn BlockDevice>) -> Result<Superblock, String> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    view.read_at(SUPERBLOCK_OFFSET, &mut bytes)
        .map_err(|error| error.to_string())?;
    Superblock::parse(&bytes).map_err(|error| error.to_string())
}

/// Writes the undo file, then the image. The superblock says that there are errors until all else
/// is in its place: an image on which this was interrupted is not taken for a sound one.
pub(crate) fn commit(
    device: &Arc<dyn BlockDevice>,
    undo: &Undo<'_>,
    changes: Vec<Change>,
) -> Result<(), String> {
    mmp::still_held(device)?;
    let changes = without_mmp_block(changes);
    let path = undo.path.display();
    undo.write(&**device, &changes)
        .map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => format!(
                "{path} is there already: move it away, or name another by --undo; nothing was \
                 changed"
            ),
            _ => format!("{path}: {error}; nothing was changed"),
        })?;
    let wrong = |error: std::io::Error| {
        format!(
            "{}: {error}; finefs undo {path} puts back what was there",
            device.describe()
        )
    };
    let holds_superblock = |change: &&Change| change.offset_bytes <= SUPERBLOCK_OFFSET;
    let (last, rest): (Vec<_>, Vec<_>) = changes.iter().partition(holds_superblock);
    if !last.is_empty() {
        let sb = undo::marked_as_damaged(superblock(device)?);
        device
            .write_at(SUPERBLOCK_OFFSET, sb.as_bytes())
            .map_err(wrong)?;
        device.flush().map_err(wrong)?;
    }
    for change in rest {
        device
            .write_at(change.offset_bytes, &change.new)
            .map_err(wrong)?;
    }
    device.flush().map_err(wrong)?;
    for change in last {
        device
            .write_at(change.offset_bytes, &change.new)
            .map_err(wrong)?;
    }
    device.flush().map_err(wrong)
}
