//! What no directory holds goes to `lost+found`, as `#` and its number, wherever the directory has
//! room. What finds none waits until all else is right. Then a mount of the shadow makes the
//! directory, or makes it larger, and the next round goes on. A file of that name loses it and is
//! among the lost then, as e2fsck has it.
//!
//! The directory becomes larger by names of an empty file, which the mount makes: it knows how an
//! index grows. Each name is then given to the inode that waits for it, and the file is freed.

use finefs_ext::replay;
use finefs_ext_disk::Ino;
use finefs_ext_disk::dirent::{DirBlock, EntryType};
use finefs_ext_disk::inline_dir::{self, InlineEntry};
use finefs_ext_disk::inode::{FileKind, InodeFlags};

use super::fix::Fix;
use crate::finding::{Problem, Report};
use crate::pass::inline_bytes;

const NAME: &[u8] = b"lost+found";

/// Names that one file is given: it may have 65,000 links.
const NAMES_MAX: usize = 50_000;

/// What there is of the name.
enum Found {
    Directory(u32),
    /// Something else has the name, in this block of the root.
    Other(u64),
    Nothing,
    /// Something else has the name, in the inode of the root, where it is not changed here.
    Unknown,
}

/// What became of an inode that no directory holds.
pub(super) enum Attached {
    Done,
    /// [`make`] has to come first.
    Waits,
    Cannot,
}

/// Gives an inode an entry in `lost+found`; its count of links is another finding's matter.
pub(super) fn attach(fix: &Fix<'_>, ino: u32) -> Result<Attached, String> {
    let dir = match find(fix)? {
        Found::Directory(dir) => dir,
        Found::Other(_) | Found::Nothing => return Ok(Attached::Waits),
        Found::Unknown => return Ok(Attached::Cannot),
    };
    let Some((_, inode)) = fix.read_inode(dir)? else {
        return Ok(Attached::Cannot);
    };
    let Some(kind) = kind(fix, ino) else {
        return Ok(Attached::Cannot);
    };
    if dir == ino || inode.flags().contains(InodeFlags::ENCRYPT) {
        return Ok(Attached::Cannot);
    }
    // A mount knows in which leaf of an index a name belongs.
    if inode.flags().contains(InodeFlags::INDEX) {
        return Ok(Attached::Waits);
    }
    let name = name_of(ino);
    let blocks = fix.blocks(dir)?.unwrap_or_default();
    for block in &blocks {
        if entry_in(fix, *block, &name)?.is_some() {
            return Ok(Attached::Cannot);
        }
    }
    for block in blocks {
        let is_in = fix.directory(dir, block, |view| {
            view.insert(&name, Ino(ino), kind).ok().map(|_| ())
        })?;
        if is_in {
            return Ok(Attached::Done);
        }
    }
    Ok(Attached::Waits)
}

/// Makes the directory, or makes it larger, if something waits for it and nothing else is wrong any
/// more. False where that cannot be.
pub(super) fn make(fix: &Fix<'_>, report: &Report, waiting: &[u32]) -> Result<bool, String> {
    let mut errors = report.findings.iter().filter(|it| it.is_error());
    // Links and quotas are counted again when all is attached.
    let is_about_names = errors.all(|it| {
        matches!(
            it.problem,
            Problem::Disconnected | Problem::Unattached | Problem::LinkCount | Problem::QuotaUsage
        )
    });
    if !is_about_names || waiting.is_empty() {
        return Ok(true);
    }
    match find(fix)? {
        Found::Nothing => replay::make_directory(fix.view, NAME),
        Found::Other(block) => fix.directory(Ino::ROOT.0, block, |view| {
            let at = view.find(NAME).ok()??.offset;
            view.remove(at).ok()
        }),
        Found::Directory(dir) => enlarge(fix, dir, waiting),
        Found::Unknown => Ok(false),
    }
}

/// Gives entries to those that wait, in a directory that has no room for them.
fn enlarge(fix: &Fix<'_>, dir: u32, waiting: &[u32]) -> Result<bool, String> {
    let mut names: Vec<Vec<u8>> = waiting.iter().map(|ino| name_of(*ino)).collect();
    names.truncate(NAMES_MAX);
    if fix.blocks(dir)?.is_none() {
        // It has its names in its inode: more than that takes bring it a block.
        let count = usize::from(fix.check.fs.geo.inode_size) / 255 + 1;
        names.extend((0..count).map(|number| format!("{number:255}").into_bytes()));
    }
    let Some(file) = replay::make_names(fix.view, NAME, &names)? else {
        return Ok(false);
    };
    let Some(blocks) = fix.blocks(dir)? else {
        return Ok(false);
    };
    for block in blocks {
        fix.directory(dir, block, |view| {
            let entries = view.entries().map_while(Result::ok);
            let own: Vec<(u32, Option<u32>)> = entries
                .filter(|entry| entry.ino.0 == file)
                .map(|entry| (entry.offset, number_of(entry.name)))
                .collect();
            for (at, ino) in &own {
                match ino.and_then(|ino| Some((ino, kind(fix, ino)?))) {
                    Some((ino, kind)) => view.set_target(*at, Ino(ino), kind).ok()?,
                    None => view.remove(*at).ok()?,
                }
            }
            (!own.is_empty()).then_some(())
        })?;
    }
    let now = fix.check.fs.sb.write_time().max(1) as u32;
    fix.inode(file, |inode| {
        inode.set_links_count(0);
        inode.set_dtime(now);
    })
}

fn kind(fix: &Fix<'_>, ino: u32) -> Option<EntryType> {
    let kind = FileKind::from_mode(u16::from(fix.check.inodes.kind(ino)) << 12);
    kind.map(EntryType::from)
}

fn name_of(ino: u32) -> Vec<u8> {
    format!("#{ino}").into_bytes()
}

fn number_of(name: &[u8]) -> Option<u32> {
    let digits = name.strip_prefix(b"#")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The inode that a name in a leaf of a directory stands for.
fn entry_in(fix: &Fix<'_>, block: u64, name: &[u8]) -> Result<Option<u32>, String> {
    let bytes = fix.read_block(block)?;
    let view = DirBlock::new(&bytes[..], fix.check.fs.dir_rules).ok();
    let entry = view.as_ref().and_then(|view| view.find(name).ok()?);
    Ok(entry.map(|entry| entry.ino.0))
}

/// The names of the root, where they are in its inode.
fn inline(fix: &Fix<'_>) -> Result<Option<Vec<InlineEntry>>, String> {
    let Some((_, inode)) = fix.read_inode(Ino::ROOT.0)? else {
        return Ok(None);
    };
    let parsed = inline_dir::parse(inode.block_area(), &inline_bytes(&inode));
    Ok(parsed.ok().map(|(_, names)| names))
}

fn find(fix: &Fix<'_>) -> Result<Found, String> {
    let is_dir = |ino: u32| fix.check.inodes.kind(ino) == 4;
    let Some(blocks) = fix.blocks(Ino::ROOT.0)? else {
        return Ok(match inline(fix)? {
            Some(names) => match names.iter().find(|it| it.name == NAME) {
                Some(entry) if is_dir(entry.ino.0) => Found::Directory(entry.ino.0),
                Some(_) => Found::Unknown,
                None => Found::Nothing,
            },
            None => Found::Unknown,
        });
    };
    for block in blocks {
        if let Some(ino) = entry_in(fix, block, NAME)? {
            return Ok(match is_dir(ino) {
                true => Found::Directory(ino),
                false => Found::Other(block),
            });
        }
    }
    Ok(Found::Nothing)
}
