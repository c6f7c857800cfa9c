//! Save-links: objects that are in use and have no name, which the next mount frees.
//!
//! A save-link is an item whose key has the highest directory number and the object's own, and
//! whose four bytes are the object's directory number. The kernel has a second kind, for files
//! that are being cut; this store cuts a file in one step, and makes none of them, but carries out
//! those that it finds.
//!
//! # References
//! `add_save_link` and `finish_unfinished` in `fs/reiserfs/super.c` of Linux.

use std::ops::ControlFlow;

use finefs_namespace::{Error, LinkState, Result};
use finefs_reiser_disk::stat::FileKind;
use finefs_reiser_disk::{ItemKind, Key, KeyVersion, ObjectKey};

use super::Commit;
use crate::state::Mounted;
use crate::tree::edit::NewItem;
use crate::tree::edit::object::FileKey;

/// The directory number in keys of save-links.
const SAVED: u32 = u32::MAX;

/// What stands in the head of a direct item.
const NO_COUNT: u16 = u16::MAX;

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    Remove,
    Cut,
}

/// A save-link that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SaveLink {
    key: Key,
    object: ObjectKey,
    wanted: Wanted,
}

fn key_of(object: ObjectKey, block_size: usize) -> Key {
    Key {
        object: ObjectKey {
            dir_id: SAVED,
            object_id: object.object_id,
        },
        offset: 1 + block_size as u64,
        kind: ItemKind::Direct,
    }
}

/// All save-links of an image.
pub(crate) fn find(mounted: &Mounted) -> Result<Vec<SaveLink>> {
    let first = ObjectKey {
        dir_id: SAVED,
        object_id: 0,
    };
    let mut links = Vec::new();
    mounted
        .tree
        .visit(&Key::from(first, 0), &mut |head, body, place| {
            let Ok(dir_id) = <[u8; 4]>::try_from(body) else {
                return Err(place.corrupt("not a save-link"));
            };
            links.push(SaveLink {
                key: head.key,
                object: ObjectKey {
                    dir_id: u32::from_le_bytes(dir_id),
                    object_id: head.key.object.object_id,
                },
                wanted: match head.key.kind {
                    ItemKind::Direct => Wanted::Remove,
                    ItemKind::Indirect => Wanted::Cut,
                    _ => return Err(place.corrupt("not a save-link")),
                },
            });
            Ok(ControlFlow::Continue(()))
        })?;
    Ok(links)
}

impl Commit<'_> {
    /// Sees to it that an object has a save-link, or none.
    pub(super) fn keep_link(&mut self, object: ObjectKey, state: LinkState) -> Result<()> {
        let is_orphan = state == LinkState::Orphan;
        let number = object.object_id;
        if self.writer.orphans.contains(&number) == is_orphan {
            return Ok(());
        }
        let key = key_of(object, self.mounted.tree.buffers.block_size_bytes());
        if !is_orphan {
            self.edit(|editor| editor.remove(&key))?;
            self.writer.orphans.remove(&number);
            return Ok(());
        }
        self.edit(|editor| {
            editor.insert(&NewItem {
                key,
                version: KeyVersion::V3_5,
                count: NO_COUNT,
                body: &object.dir_id.to_le_bytes(),
            })
        })?;
        self.writer.orphans.insert(number);
        Ok(())
    }

    /// Carries out what save-links say, and removes them. Nothing else is under way.
    pub(crate) fn carry_out(mut self, links: &[SaveLink]) -> Result<()> {
        let before = (self.writer.superblock.clone(), self.writer.numbers.clone());
        let carried = links.iter().try_for_each(|link| {
            self.carry_out_one(link)?;
            self.make_room()
        });
        match carried.and_then(|()| self.group(true)) {
            Ok(()) => {
                self.release();
                Ok(())
            }
            Err(error) => Err(self.failed(error, before)),
        }
    }

    fn carry_out_one(&mut self, link: &SaveLink) -> Result<()> {
        let object = link.object;
        match self.edit(|editor| editor.stat(object)) {
            Ok(stat) if link.wanted == Wanted::Cut && stat.kind == FileKind::Regular => {
                let mut changed = stat;
                self.cut(&FileKey::of(object, &stat), &mut changed)?;
                self.edit(|editor| editor.write_stat(object, &changed))?;
            }
            Ok(stat) if link.wanted == Wanted::Remove && stat.link_count == 0 => {
                self.remove_xattrs(object, &stat)?;
                self.remove_all(object)?;
            }
            // The object is there, and the link says nothing about it.
            Ok(_) => {}
            // All but the link was removed.
            Err(Error::Stale) if link.wanted == Wanted::Remove => self.free_number(object),
            Err(Error::Stale) => {}
            Err(error) => return Err(error),
        }
        self.edit(|editor| editor.remove(&link.key))
    }
}
