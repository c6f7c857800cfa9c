//! What no directory holds goes to `lost+found`, as `#` and its number. The directory must have
//! room: mke2fs makes it with room for many. Where the directory is missing, it is made once all
//! else is right, and found by the next round.

use finefs_ext::replay;
use finefs_ext_disk::Ino;
use finefs_ext_disk::dirent::{DirBlock, EntryType};
use finefs_ext_disk::inode::{FileKind, InodeFlags};

use super::fix::Fix;
use crate::finding::{Problem, Report};

const NAME: &[u8] = b"lost+found";

/// What there is of the name.
pub(super) enum Found {
    Directory(u32),
    /// Something else has the name.
    Other,
    Nothing,
}

/// Gives an inode an entry in `lost+found`; its count of links is another finding's matter. True
/// also where that directory is still to be made.
pub(super) fn attach(fix: &Fix<'_>, ino: u32) -> Result<bool, String> {
    let dir = match find(fix)? {
        Found::Directory(dir) => dir,
        Found::Other => return Ok(false),
        Found::Nothing => return Ok(true),
    };
    let Some((_, inode)) = fix.read_inode(dir)? else {
        return Ok(false);
    };
    let kind = FileKind::from_mode(u16::from(fix.check.inodes.kind(ino)) << 12);
    let is_plain = !inode
        .flags()
        .intersects(InodeFlags::INDEX | InodeFlags::ENCRYPT);
    let (Some(kind), true, true) = (kind, dir != ino, is_plain) else {
        return Ok(false);
    };
    let name = format!("#{ino}");
    for block in fix.blocks(dir)?.unwrap_or_default() {
        let is_in = fix.directory(dir, block, |view| {
            if view.find(name.as_bytes()).ok()?.is_some() {
                return None;
            }
            let inserted = view.insert(name.as_bytes(), Ino(ino), EntryType::from(kind));
            inserted.ok().map(|_| ())
        })?;
        if is_in {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes the directory, if something waits for it and nothing else is wrong any more. False where
/// that cannot be.
pub(super) fn make(fix: &Fix<'_>, report: &Report) -> Result<bool, String> {
    let mut errors = report.findings.iter().filter(|it| it.is_error());
    // Links and quotas are counted again when all is attached.
    let is_about_names = errors.all(|it| {
        matches!(
            it.problem,
            Problem::Disconnected | Problem::Unattached | Problem::LinkCount | Problem::QuotaUsage
        )
    });
    let waits =
        |it: &crate::Finding| matches!(it.problem, Problem::Disconnected | Problem::Unattached);
    if !is_about_names || !report.findings.iter().any(waits) {
        return Ok(true);
    }
    match find(fix)? {
        Found::Nothing => replay::make_directory(fix.view, NAME),
        _ => Ok(true),
    }
}

fn find(fix: &Fix<'_>) -> Result<Found, String> {
    // With its names in the inode it is not read here.
    let Some(blocks) = fix.blocks(Ino::ROOT.0)? else {
        return Ok(Found::Other);
    };
    for block in blocks {
        let bytes = fix.read_block(block)?;
        let Ok(view) = DirBlock::new(&bytes[..], fix.check.fs.dir_rules) else {
            continue;
        };
        if let Ok(Some(entry)) = view.find(NAME) {
            let is_dir = fix.check.inodes.kind(entry.ino.0) == 4;
            return Ok(match is_dir {
                true => Found::Directory(entry.ino.0),
                false => Found::Other,
            });
        }
    }
    Ok(Found::Nothing)
}
