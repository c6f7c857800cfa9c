//! The entries of a directory.
//!
//! # What damage does
//! A node or item that cannot be read makes the directory unreadable: nobody may take a part of it
//! for the whole. A single entry that can only be nonsense (an illegal name, a name that was there
//! before) is left out with a warning, as its neighbours are not in doubt. A name that lies where
//! names of another hash do is listed, so that its object can be read; to change it would find
//! nothing by the hash. In all of these cases the directory is damaged, and not changed.

use std::collections::HashSet;
use std::ops::ControlFlow;

use finefs_namespace::{DirectoryImage, EntryImage, Error, Ino, Result};
use finefs_reiser_disk::directory::{DOT_DOT_OFFSET, DOT_OFFSET, DirectoryItem, Entry};
use finefs_reiser_disk::hash::{HASH_MASK, NameHash};
use finefs_reiser_disk::stat::FileKind;
use finefs_reiser_disk::{ItemKind, ObjectKey, key, xattr};

use super::{inode, items_around};
use crate::state::{Mounted, ROOT};

/// Loads all entries of a directory.
pub(crate) fn load(mounted: &Mounted, ino: Ino) -> Result<DirectoryImage> {
    let object = mounted.objects.find(ino)?;
    if inode::stat(mounted, object)?.kind != FileKind::Directory {
        return Err(Error::NotADirectory);
    }
    let mut names = HashSet::new();
    let mut parent = None;
    let mut entries: Vec<EntryImage> = Vec::new();
    let mut damage = None;
    let mut take = |found: Found<'_>| match found {
        Ok(entry) if entry.offset == DOT_DOT_OFFSET => parent = Some(entry.object),
        Ok(entry) if entry.is_dot() || is_hidden(object, &entry) => {}
        // It would count among the names of its hash.
        Ok(entry) if !entry.is_visible => damage = Some(left_out(ino, "an invisible name")),
        Ok(entry) if entry.object.object_id == 0 => {
            damage = Some(left_out(ino, "an entry that names object 0"));
        }
        Ok(entry) if entry.name == b"." || entry.name == b".." => {
            damage = Some(left_out(ino, "a dot among the names"));
        }
        Ok(entry) if entry.name.contains(&b'/') => {
            damage = Some(left_out(ino, "a name with a slash"));
        }
        Ok(entry) if !names.insert(entry.name.to_vec()) => {
            damage = Some(left_out(ino, "a name that was there before"));
        }
        Ok(entry) => {
            if mounted.hash.is_some_and(|hash| is_misfiled(&entry, hash)) {
                damage = Some(misfiled(ino, entry.name));
            }
            mounted.objects.note_read(entry.object);
            entries.push(EntryImage {
                name: entry.name.to_vec(),
                ino: Ino(u64::from(entry.object.object_id)),
                kind: None,
            });
        }
        Err(error) => damage = Some(left_out(ino, &crate::error::detail(&error))),
    };
    visit(mounted, object, DOT_OFFSET, &mut |entry| {
        take(entry);
        ControlFlow::Continue(())
    })?;
    let parent = match (object == key::ROOT, parent) {
        (true, _) => ROOT,
        (false, Some(parent)) => {
            mounted.objects.note_read(parent);
            Ino(u64::from(parent.object_id))
        }
        (false, None) => {
            return Err(Error::corrupt(format_args!(
                "inode {ino}: directory without .."
            )));
        }
    };
    Ok(DirectoryImage {
        parent,
        entries,
        damage,
    })
}

/// True for a name that lies where names of another hash do.
fn is_misfiled(entry: &Entry<'_>, hash: NameHash) -> bool {
    entry.offset & HASH_MASK != hash.entry_offset(entry.name)
}

fn misfiled(ino: Ino, name: &[u8]) -> Error {
    let name = name.escape_ascii();
    log::warn!("inode {ino}: directory: name {name} does not lie where its hash says");
    Error::corrupt(format_args!(
        "inode {ino}: directory: name {name} does not lie where its hash says"
    ))
}

fn left_out(ino: Ino, what: &str) -> Error {
    log::warn!("inode {ino}: directory: {what}: left out");
    Error::corrupt(format_args!("inode {ino}: directory: {what}"))
}

/// The directory of extended attributes shows in no listing.
fn is_hidden(directory: ObjectKey, entry: &Entry<'_>) -> bool {
    directory == key::ROOT && entry.name == xattr::PRIVATE_ROOT
}

/// An entry, or what is wrong with it.
type Found<'a> = Result<Entry<'a>>;

/// Visits the entries of a directory from an offset on, in order.
fn visit(
    mounted: &Mounted,
    object: ObjectKey,
    from: u32,
    visit: &mut dyn FnMut(Found<'_>) -> ControlFlow<()>,
) -> Result<()> {
    items_around(
        &mounted.tree,
        object,
        u64::from(from),
        &mut |head, body, place| {
            match head.key.kind {
                ItemKind::Directory => {}
                ItemKind::StatData => return Ok(ControlFlow::Continue(())),
                _ => return Err(place.corrupt("not a directory item")),
            }
            let item =
                DirectoryItem::new(body, head.count).map_err(|error| place.damaged(&error))?;
            let mut before = None;
            for entry in item.entries() {
                let offset = entry.as_ref().map_or(0, |entry| entry.offset);
                if offset != 0 && before.is_some_and(|before| before >= offset) {
                    return Err(place.corrupt("entries out of order"));
                }
                before = Some(offset);
                if entry.is_ok() && offset < from {
                    continue;
                }
                if visit(entry.map_err(|error| place.damaged(&error))).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        },
    )
}

/// What a name of a directory names.
pub(crate) fn find(
    mounted: &Mounted,
    directory: ObjectKey,
    name: &[u8],
    hash: Option<NameHash>,
) -> Result<Option<ObjectKey>> {
    let offset = hash.map(|hash| hash.entry_offset(name));
    let mut found = None;
    visit(
        mounted,
        directory,
        offset.unwrap_or(DOT_OFFSET),
        &mut |entry| match entry {
            Ok(entry) if entry.is_visible && entry.name == name => {
                found = Some(entry.object);
                ControlFlow::Break(())
            }
            // Behind all names of this hash.
            Ok(entry) if offset.is_some_and(|offset| entry.offset & HASH_MASK > offset) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        },
    )?;
    Ok(found)
}

/// The names of a directory, dots left out.
pub(crate) fn names(mounted: &Mounted, directory: ObjectKey) -> Result<Vec<(Vec<u8>, ObjectKey)>> {
    let mut names = Vec::new();
    let mut damage = None;
    visit(mounted, directory, DOT_OFFSET, &mut |entry| {
        match entry {
            Ok(entry) if entry.is_visible && !entry.is_dot() => {
                names.push((entry.name.to_vec(), entry.object));
            }
            Ok(_) => {}
            Err(error) => damage = Some(error),
        }
        ControlFlow::Continue(())
    })?;
    match damage {
        None => Ok(names),
        Some(error) => Err(error),
    }
}
