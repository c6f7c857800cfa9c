//! Loading: turning items into what the namespace keeps in memory.
//!
//! | Module | Loads |
//! |---|---|
//! | [`inode`] | attributes |
//! | [`directory`] | the entries of a directory |
//! | [`map`] | where the blocks of a file are |
//! | [`content`] | targets of links and values of attributes |
//! | [`tail`] | the bytes of files that are in the tree |
//! | [`xattr`] | extended attributes, which are files |
//!
//! # Invariants
//! 1. Nothing is allocated for a size that no item stands behind.
//! 2. An error names block and item, or the object. It concerns that object only.

pub(crate) mod content;
pub(crate) mod directory;
pub(crate) mod inode;
pub(crate) mod map;
pub(crate) mod tail;
pub(crate) mod xattr;

use std::ops::ControlFlow;

use finefs_namespace::Result;
use finefs_reiser_disk::{Key, ObjectKey};

use crate::tree::{Tree, Visit};

/// Visits the items of an object that begin at an offset or behind it.
fn items_of(tree: &Tree, object: ObjectKey, offset: u64, visit: Visit<'_>) -> Result<()> {
    tree.visit(
        &Key::from(object, offset),
        &mut |head, body, place| match head.key.object == object {
            true => visit(head, body, place),
            false => Ok(ControlFlow::Break(())),
        },
    )
}

/// The same, from the item on that the offset is in.
fn items_around(tree: &Tree, object: ObjectKey, offset: u64, visit: Visit<'_>) -> Result<()> {
    tree.visit_around(
        &Key::from(object, offset),
        &mut |head, body, place| match head.key.object.cmp(&object) {
            std::cmp::Ordering::Less => Ok(ControlFlow::Continue(())),
            std::cmp::Ordering::Equal => visit(head, body, place),
            std::cmp::Ordering::Greater => Ok(ControlFlow::Break(())),
        },
    )
}
