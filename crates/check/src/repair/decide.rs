//! What a repair decides about somebody's data, where it was asked to by the name of the problem.
//!
//! An entry that cannot be, or is there twice, is removed; what it named goes to lost+found if it
//! has no other name. A size becomes what the blocks say. A file whose map is damaged is emptied,
//! and so are files that claim the blocks of others, one after the other, until each block is
//! claimed once: first that which shares most, of equal ones that with the highest number. One
//! wrong map so costs one file. Directories and the file system's own files are left to e2fsck.
//!
//! Nothing else is put right in the same round: counts and bitmaps follow from maps, and are looked
//! at again afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;

use finefs_block::BlockDevice;
use finefs_ext_disk::Ino;
use finefs_ext_disk::dirent::EntryType;
use finefs_ext_disk::extent::ExtentNode;
use finefs_ext_disk::inode::{FileKind, InodeFlags};

use super::fix::Fix;
use crate::finding::{Finding, Problem, Report};
use crate::pass::Check;

/// The problems that can be asked for.
pub const NAMED: [Problem; 6] = [
    Problem::Entry,
    Problem::DuplicateName,
    Problem::InodeSize,
    Problem::Extent,
    Problem::BlockPointer,
    Problem::SharedBlocks,
];

/// Each round is a check of the whole image.
const ROUNDS_MAX: usize = 100;

/// Whether one of these was found.
pub(super) fn is_wanted(report: &Report, also: &[Problem]) -> bool {
    report.findings.iter().any(|it| also.contains(&it.problem))
}

/// How many rounds it may take: one for each file that shares blocks.
pub(super) fn rounds(report: &Report, also: &[Problem]) -> usize {
    let shares = |it: &&Finding| it.problem == Problem::SharedBlocks && also.contains(&it.problem);
    report
        .findings
        .iter()
        .filter(shares)
        .count()
        .min(ROUNDS_MAX)
}

/// Does it; false where nothing was changed.
pub(super) fn decide(
    view: &Arc<dyn BlockDevice>,
    check: &Check,
    report: &Report,
    also: &[Problem],
) -> Result<bool, String> {
    let fix = Fix { view, check };
    let wanted = |it: &&Finding| also.contains(&it.problem);
    let mut emptied = BTreeSet::new();
    let mut sharing = BTreeSet::new();
    let mut has_changed = false;
    for finding in report.findings.iter().filter(wanted) {
        let Some(ino) = finding.object.inode else {
            continue;
        };
        has_changed |= match finding.problem {
            Problem::Entry | Problem::DuplicateName => fix.remove_entry(ino, finding)?,
            Problem::InodeSize => fix.resize_file(ino, finding.value)?,
            Problem::SharedBlocks => {
                sharing.insert((finding.value, ino));
                false
            }
            _ => {
                emptied.insert(ino);
                false
            }
        };
    }
    for ino in emptied {
        has_changed |= fix.empty(ino)?;
    }
    // Who is left may share nothing any more.
    while !has_changed && let Some((_, ino)) = sharing.pop_last() {
        has_changed = fix.empty(ino)?;
    }
    Ok(has_changed)
}

impl Fix<'_> {
    fn remove_entry(&self, ino: u32, finding: &Finding) -> Result<bool, String> {
        let Some(block) = finding.object.block else {
            return Ok(false);
        };
        let name = finding.object.entry.clone().unwrap_or_default();
        if name == "." || name == ".." {
            return Ok(false);
        }
        self.directory(ino, block, |view| {
            let entries = view.entries().map_while(Result::ok);
            let is_it = |shown: &[u8]| shown.escape_ascii().to_string() == name;
            // Of two the second.
            let entry = entries.filter(|entry| entry.is_used() && is_it(entry.name));
            let at = entry.last()?.offset;
            view.set_target(at, Ino(0), EntryType(0)).ok()
        })
    }

    fn resize_file(&self, ino: u32, size: u64) -> Result<bool, String> {
        let rules = &self.check.fs.rules;
        let mut fits = false;
        let is_there = self.inode(ino, |inode| {
            fits = inode.set_size(rules, size).is_ok();
        })?;
        Ok(is_there && fits)
    }

    /// A file without blocks; what it had goes back with the bitmaps.
    fn empty(&self, ino: u32) -> Result<bool, String> {
        let fs = &self.check.fs;
        let is_file = match self.read_inode(ino)? {
            Some((_, inode)) => inode.kind() == Some(FileKind::Regular),
            None => false,
        };
        if !is_file || fs.is_reserved(ino) {
            return Ok(false);
        }
        let mut is_empty = false;
        self.inode(ino, |inode| {
            is_empty = match inode.flags().contains(InodeFlags::EXTENTS) {
                true => ExtentNode::init(inode.block_area_mut(), 0).is_ok(),
                false => {
                    inode.block_area_mut().fill(0);
                    true
                }
            };
            is_empty &= inode.set_size(&fs.rules, 0).is_ok();
        })?;
        Ok(is_empty)
    }
}
