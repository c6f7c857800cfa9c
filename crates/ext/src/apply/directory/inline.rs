//! Directories that lie in their inode.
//!
//! They are written as a whole. One that outgrows its inode goes to a block and does not come back,
//! as in the kernel; the operation that added the name has reserved that block.

use finefs_ext_disk::Ino as DiskIno;
use finefs_ext_disk::inline_dir::{self, InlineEntry};
use finefs_ext_disk::inode::BLOCK_AREA_SIZE;
use finefs_ext_disk::xattr::{NameIndex, XattrRegion, XattrValue};
use finefs_namespace::Result;

use super::{DirFormat, NameChange, NewEntry, Target};
use crate::apply::inline;
use crate::apply::inode::{InodeEdit, InodeTable};
use crate::apply::space::Space;
use crate::apply::xattrs::{self, InlineValue};

/// The directory as it lies in the inode.
struct Content {
    parent: DiskIno,
    entries: Vec<InlineEntry>,
    /// The length of the attribute's value.
    value_bytes: usize,
}

/// What became of the changes of an inline directory.
pub(super) enum Outcome {
    /// They are made.
    Done,
    /// There is no room for them: the directory as it was has to go to a block first.
    NoRoom(Moving),
}

/// A directory on its way from the inode to a block.
pub(super) struct Moving {
    parent: DiskIno,
    entries: Vec<InlineEntry>,
}

impl Moving {
    /// One as it lies in its inode.
    pub(super) fn of(inode: &InodeEdit) -> Result<Moving> {
        let content = load(inode)?;
        Ok(Moving {
            parent: content.parent,
            entries: content.entries,
        })
    }

    pub(super) fn parent(&self) -> DiskIno {
        self.parent
    }

    /// The entries, to be written.
    pub(super) fn entries(&self) -> Vec<NewEntry<'_>> {
        let entry = |entry: &'_ InlineEntry| Target {
            ino: entry.ino,
            entry_type: entry.entry_type,
        };
        let entries = self.entries.iter().map(|from| NewEntry {
            name: &from.name,
            hash: None,
            target: entry(from),
        });
        entries.collect()
    }
}

fn load(inode: &InodeEdit) -> Result<Content> {
    let area = inode.disk.xattr_bytes().unwrap_or_default();
    let region = XattrRegion::in_inode(area).map_err(|error| inode.damaged(error))?;
    let found = region.and_then(|region| region.find(NameIndex::SYSTEM, b"data"));
    let value = match found.map(|found| found.value) {
        Some(XattrValue::Bytes(value)) => value,
        Some(XattrValue::Inode { .. }) => return Err(inode.damaged("inline data elsewhere")),
        None => &[],
    };
    let (parent, entries) = inline_dir::parse(inode.disk.block_area(), value)
        .map_err(|error| inode.damaged(format_args!("inline directory: {error}")))?;
    Ok(Content {
        parent,
        entries,
        value_bytes: value.len(),
    })
}

/// Writes a directory into its inode; false where it does not fit.
fn store(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
    format: &DirFormat,
    content: &Content,
) -> Result<bool> {
    let Some(room) = xattrs::inline_room(inode)? else {
        return Ok(false);
    };
    let bounds = (content.value_bytes, room.max(content.value_bytes));
    let Some((area, value)) = inline_dir::build(content.parent, &content.entries, bounds) else {
        return Ok(false);
    };
    inode.disk.block_area_mut().copy_from_slice(&area);
    xattrs::apply(space, table, inode, &[], InlineValue::Set(&value))?;
    let size = BLOCK_AREA_SIZE + value.len();
    let set = inode.disk.set_size(&format.inode_rules, size as u64);
    set.map_err(|error| inode.damaged(error))?;
    Ok(true)
}

/// Makes a new directory in its inode; false where it has to have a block.
pub(super) fn create(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
    format: &DirFormat,
    parent: u32,
) -> Result<bool> {
    if !format.has_inline_data || xattrs::inline_room(inode)?.is_none() {
        return Ok(false);
    }
    inline::enter(inode);
    let content = Content {
        parent: DiskIno(parent),
        entries: Vec::new(),
        value_bytes: 0,
    };
    store(space, table, inode, format, &content)
}

/// Applies changes.
pub(super) fn change(
    space: &mut Space<'_>,
    table: &mut InodeTable<'_>,
    inode: &mut InodeEdit,
    format: &DirFormat,
    parent: Option<DiskIno>,
    changes: &[NameChange],
) -> Result<Outcome> {
    let mut content = load(inode)?;
    content.parent = parent.unwrap_or(content.parent);
    let before = content.entries.clone();
    for (name, value) in changes {
        let found = content
            .entries
            .iter()
            .position(|entry| entry.name == **name);
        let target = value.map(|(ino, kind)| Target::of(ino, kind)).transpose()?;
        match (found, target) {
            (Some(at), None) => {
                content.entries.remove(at);
            }
            (Some(at), Some(target)) => {
                let entry = &mut content.entries[at];
                (entry.ino, entry.entry_type) = (target.ino, format.entry_type(target));
            }
            (None, Some(target)) => content.entries.push(InlineEntry {
                name: name.to_vec(),
                ino: target.ino,
                entry_type: format.entry_type(target),
            }),
            (None, None) => {}
        }
    }
    if store(space, table, inode, format, &content)? {
        return Ok(Outcome::Done);
    }
    Ok(Outcome::NoRoom(Moving {
        parent: content.parent,
        entries: before,
    }))
}
