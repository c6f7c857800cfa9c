//! Entries of directories.

use finefs_namespace::{DirectoryChange, Error, Ino, Result, Settled};
use finefs_reiser_disk::stat::StatData;
use finefs_reiser_disk::{ObjectKey, key, xattr};

use super::Commit;
use crate::load::inode;
use crate::state::ROOT;
use crate::tree::edit::names::Directory;

impl Commit<'_> {
    fn directory(&self, object: ObjectKey, stat: &StatData) -> Result<Directory> {
        let hash = self.mounted.hash.ok_or(Error::ReadOnly)?;
        Ok(Directory {
            object,
            hash,
            pads: stat.is_new,
        })
    }

    /// The first item of a new directory.
    pub(super) fn make_directory(
        &mut self,
        object: ObjectKey,
        parent: Option<Ino>,
        stat: &mut StatData,
    ) -> Result<()> {
        let parent = self.object(parent.unwrap_or(ROOT))?;
        let directory = self.directory(object, stat)?;
        let bytes = self.edit(|editor| editor.make_directory(&directory, parent))?;
        stat.size = u64::from(bytes);
        stat.sectors = sectors(stat);
        Ok(())
    }

    /// Changes the entries of a directory, and its size.
    pub(super) fn change_names(
        &mut self,
        object: ObjectKey,
        stat: &mut StatData,
        mut change: DirectoryChange,
    ) -> Result<()> {
        // Of one hash there is room for a new name where another one goes.
        change.entries.sort_by_key(|(_, to)| to.is_some());
        let directory = self.directory(object, stat)?;
        if let Some(parent) = change.parent.filter(|_| object != key::ROOT) {
            let parent = self.object(parent)?;
            self.edit(|editor| editor.replace_entry(&directory, b"..", parent))?;
        }
        for (name, to) in change.entries {
            if object == key::ROOT && *name == *xattr::PRIVATE_ROOT {
                return Err(Error::corrupt(
                    "a name of the root that hides all attributes",
                ));
            }
            let there = self.edit(|editor| editor.find_entry(&directory, &name))?;
            let to = match to {
                Some((ino, _)) => Some(self.object(ino)?),
                None => None,
            };
            match (there, to) {
                (None, None) => {}
                (Some(there), Some(to)) if there.object == to => {}
                (Some(_), Some(to)) => {
                    self.edit(|editor| editor.replace_entry(&directory, &name, to))?;
                }
                (None, Some(to)) => {
                    let more = self.edit(|editor| editor.add_entry(&directory, &name, to))?;
                    stat.size += u64::from(more);
                }
                (Some(_), None) => {
                    let less = self.edit(|editor| editor.remove_entry(&directory, &name))?;
                    stat.size = stat.size.saturating_sub(u64::from(less));
                }
            }
            self.make_room()?;
        }
        stat.sectors = sectors(stat);
        Ok(())
    }

    /// Changes of a directory of which nothing else changed.
    pub(super) fn names_alone(&mut self, ino: Ino, change: DirectoryChange) -> Result<()> {
        let object = self.object(ino)?;
        let before = self.edit(|editor| editor.stat(object))?;
        let mut stat = before;
        self.change_names(object, &mut stat, change)?;
        if stat != before {
            self.edit(|editor| editor.write_stat(object, &stat))?;
        }
        let block_size = self.mounted.tree.buffers.block_size_bytes();
        self.settled.push(Settled {
            ino,
            sectors: inode::sectors(&stat, block_size),
            directory_bytes: Some(stat.size),
        });
        Ok(())
    }
}

fn sectors(stat: &StatData) -> u32 {
    stat.size.div_ceil(512) as u32
}
