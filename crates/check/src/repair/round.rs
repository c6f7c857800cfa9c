//! One round of a repair: putting right what findings say, in the order that their fixes need.

use std::collections::BTreeSet;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::Ino;

use super::fix::Fix;
use super::lost::{self, Attached};
use super::{groups, index};
use crate::finding::{Finding, Problem, Report};
use crate::pass::Check;

/// What of a report can be believed. A group whose descriptor does not say truly which inodes were
/// ever in use was not looked at as a whole: what follows from its inodes is found wrong without
/// being so, as a file is lost whose directory is one of them.
pub(crate) fn believed(report: &Report) -> Vec<Finding> {
    let is_about_groups = |it: &&Finding| it.problem == Problem::GroupFlags;
    let about_groups: Vec<Finding> = report
        .findings
        .iter()
        .filter(is_about_groups)
        .cloned()
        .collect();
    match about_groups.is_empty() {
        true => report.findings.clone(),
        false => about_groups,
    }
}

/// Has the next check look at all of such groups, as e2fsck does that starts again then; false
/// where there are none.
pub(crate) fn open_groups(
    view: &Arc<dyn BlockDevice>,
    check: &Check,
    report: &Report,
) -> Result<bool, String> {
    let fix = Fix { view, check };
    let of_named = |finding: &Finding| {
        let ino = u32::try_from(finding.value).ok()?;
        Some(check.fs.geo.locate_inode(Ino(ino))?.group.0)
    };
    let mut open = BTreeSet::new();
    for finding in &report.findings {
        if finding.problem == Problem::GroupFlags {
            open.extend(finding.object.group.or_else(|| of_named(finding)));
        }
    }
    for group in &open {
        groups::open(&fix, *group)?;
    }
    Ok(!open.is_empty())
}

/// Puts right all that can be; false where something was left.
pub(crate) fn put_right(
    view: &Arc<dyn BlockDevice>,
    check: &Check,
    report: &Report,
) -> Result<bool, String> {
    let fix = Fix { view, check };
    let mut groups = BTreeSet::new();
    let mut indexes = BTreeSet::new();
    let mut waiting = Vec::new();
    let mut is_all = true;
    for finding in &report.findings {
        let done = match finding.problem {
            Problem::BlockBitmap
            | Problem::InodeBitmap
            | Problem::BitmapChecksum
            | Problem::GroupCount
            | Problem::GroupChecksum => {
                finding.object.group.map(|group| groups.insert(group));
                true
            }
            // Once everything that is counted is right.
            Problem::QuotaUsage => true,
            Problem::Htree => {
                finding.object.inode.map(|ino| indexes.insert(ino));
                true
            }
            Problem::Disconnected | Problem::Unattached => match finding.object.inode {
                Some(ino) => match lost::attach(&fix, ino)? {
                    Attached::Done => true,
                    Attached::Waits => {
                        waiting.push(ino);
                        true
                    }
                    Attached::Cannot => false,
                },
                None => false,
            },
            _ => fix.one(finding)?,
        };
        is_all &= done || !finding.is_error();
    }
    for ino in indexes {
        is_all &= index::rebuild(&fix, ino)?;
    }
    for group in groups {
        groups::rewrite(&fix, group)?;
    }
    groups::totals(&fix)?;
    is_all &= lost::make(&fix, report, &waiting)?;
    let mut errors = report.findings.iter().filter(|f| f.is_error()).peekable();
    if errors.peek().is_some() && errors.all(|finding| finding.problem == Problem::QuotaUsage) {
        is_all &= fix.quotas()?;
    }
    Ok(is_all)
}
