//! What no directory holds goes to `lost+found`, as `#` and its number. The directory must be there
//! and have room: mke2fs makes it with room for many.

use finefs_ext_disk::Ino;
use finefs_ext_disk::dirent::{DirBlock, EntryType};
use finefs_ext_disk::inode::{FileKind, InodeFlags};

use super::fix::Fix;

const NAME: &[u8] = b"lost+found";

/// Gives an inode an entry in `lost+found`; its count of links is another finding's matter.
pub(super) fn attach(fix: &Fix<'_>, ino: u32) -> Result<bool, String> {
    let Some(dir) = find(fix)? else {
        return Ok(false);
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

fn find(fix: &Fix<'_>) -> Result<Option<u32>, String> {
    for block in fix.blocks(Ino::ROOT.0)?.unwrap_or_default() {
        let bytes = fix.read_block(block)?;
        let Ok(view) = DirBlock::new(&bytes[..], fix.check.fs.dir_rules) else {
            continue;
        };
        if let Ok(Some(entry)) = view.find(NAME) {
            let is_dir = fix.check.inodes.kind(entry.ino.0) == 4;
            return Ok(is_dir.then_some(entry.ino.0));
        }
    }
    Ok(None)
}
