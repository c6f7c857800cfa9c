//! One round of a repair: putting right what findings say, in the order that their fixes need.

use std::collections::BTreeSet;
use std::sync::Arc;

use finefs_block::BlockDevice;

use super::fix::Fix;
use super::lost::{self, Attached};
use super::{groups, index};
use crate::finding::{Problem, Report};
use crate::pass::Check;

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
            | Problem::GroupChecksum
            | Problem::GroupFlags => {
                let whole = finding.problem == Problem::GroupFlags;
                finding
                    .object
                    .group
                    .map(|group| groups.insert((group, whole)));
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
    for (group, whole) in groups {
        groups::rewrite(&fix, group, whole)?;
    }
    groups::totals(&fix)?;
    is_all &= lost::make(&fix, report, &waiting)?;
    let mut errors = report.findings.iter().filter(|f| f.is_error()).peekable();
    if errors.peek().is_some() && errors.all(|finding| finding.problem == Problem::QuotaUsage) {
        is_all &= fix.quotas()?;
    }
    Ok(is_all)
}
