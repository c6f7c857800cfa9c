//! Multiple mount protection for programs that do not mount: what changes a file system keeps other
//! hosts away from it, as e2fsck does; a check only says who has it.

use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext::{IfChecked, MmpCheck, MmpState, MountError, MountErrorKind};

use crate::finding::{Finding, Object, Problem, Report};

/// Waits until nobody else has the file system, and keeps others away until what this gives is
/// dropped. `None` where there is nothing that could.
pub(crate) fn hold(
    device: &Arc<dyn BlockDevice>,
    if_checked: IfChecked,
) -> Result<Option<MmpCheck>, String> {
    MmpCheck::acquire(device, if_checked).map_err(|error| match error.kind {
        MountErrorKind::InUse(who) => who,
        _ => detail(&error),
    })
}

/// What is wrong, without the name of the device, which the caller tells.
fn detail(error: &MountError) -> String {
    let text = error.to_string();
    let name = format!("{}: ", error.device);
    text.strip_prefix(&name).unwrap_or(&text).to_owned()
}

/// An error where others are no longer kept away: somebody has cleared the block.
pub(crate) fn still_held(device: &Arc<dyn BlockDevice>) -> Result<(), String> {
    match MmpState::of(device).map_err(|error| detail(&error))? {
        None | Some(MmpState::Checked(_)) => Ok(()),
        Some(_) => Err("its MMP block was cleared meanwhile; nothing was changed".to_owned()),
    }
}

/// What was wrong with the block, which was written anew.
pub(crate) fn damage(held: &MmpCheck) -> Option<Finding> {
    held.damage().map(|what| Finding {
        object: Object::whole(),
        problem: Problem::Mmp,
        what: what.to_owned(),
        value: 0,
    })
}

/// Adds who has the file system to a report: it may have changed while it was looked at.
pub(crate) fn note_use(device: &Arc<dyn BlockDevice>, report: &mut Report) {
    let state = MmpState::of(device);
    if let Ok(Some(MmpState::Checked(who) | MmpState::Mounted(who))) = state {
        report.findings.push(Finding {
            object: Object::whole(),
            problem: Problem::InUse,
            what: format!("{who}, as its MMP block says"),
            value: 0,
        });
        report.findings.sort();
    }
}
