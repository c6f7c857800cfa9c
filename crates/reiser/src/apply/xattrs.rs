//! Extended attributes: files in a directory for each object that has some, below a hidden
//! directory of the root, which a mount that writes makes where it is missing.
//!
//! An attribute that changes gets a new file. Small values lie in the tree, as the kernel packs
//! tails, others in blocks of their own, which are written before the batch is durable.
//!
//! # References
//! `fs/reiserfs/xattr.c` of Linux.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use finefs_ext_disk::acl;
use finefs_namespace::{BlockNo, BlockRun, Error, LogicalBlock, Result, XattrChange};
use finefs_reiser_disk::directory::DirectoryItem;
use finefs_reiser_disk::stat::{FileKind, StatData};
use finefs_reiser_disk::{ItemKind, Key, ObjectKey, indirect, key, xattr};

use super::Commit;
use crate::load::inode;
use crate::load::xattr::ACLS;
use crate::tree::edit::names::{Directory, FoundEntry};
use crate::tree::edit::object::FileKey;

/// Permission bits of what nobody sees.
const PERMISSIONS: u16 = 0o700;

impl Commit<'_> {
    /// Applies changes of an object's attributes.
    pub(super) fn change_xattrs(
        &mut self,
        object: ObjectKey,
        stat: &StatData,
        changes: &[XattrChange],
    ) -> Result<()> {
        for (name, value) in changes {
            match value {
                Some(value) => self.set_xattr(object, stat, name, value)?,
                None => self.remove_xattr(object, stat, name)?,
            }
            self.make_room()?;
        }
        Ok(())
    }

    /// Removes all attributes of an object that is gone.
    pub(super) fn remove_xattrs(&mut self, object: ObjectKey, stat: &StatData) -> Result<()> {
        let Some((root, own)) = self.own_directory(object, stat)? else {
            return Ok(());
        };
        for (_, file) in self.private_entries(own.object)? {
            self.remove_private(own.object, file)?;
            self.make_room()?;
        }
        self.remove_own_directory(root, own)
    }

    fn private(object: ObjectKey, hash: finefs_reiser_disk::hash::NameHash) -> Directory {
        Directory {
            object,
            hash,
            pads: true,
        }
    }

    fn hash(&self) -> Result<finefs_reiser_disk::hash::NameHash> {
        self.mounted.hash.ok_or(Error::ReadOnly)
    }

    /// The directory of all attributes, and what names that of an object in it, where they are
    /// there.
    fn own_directory(
        &mut self,
        object: ObjectKey,
        stat: &StatData,
    ) -> Result<Option<(ObjectKey, FoundEntry)>> {
        let Some(root) = self.mounted.xattrs.filter(|_| stat.is_new) else {
            return Ok(None);
        };
        if self.mounted.xattr_directories.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let own = self.find_private(root, own_name(object, stat).as_bytes())?;
        Ok(own.map(|own| (root, own)))
    }

    fn find_private(&mut self, directory: ObjectKey, name: &[u8]) -> Result<Option<FoundEntry>> {
        let directory = Self::private(directory, self.hash()?);
        self.edit(|editor| editor.find_entry(&directory, name))
    }

    /// The names of a hidden directory, as the batch has it now, whatever their hashes.
    fn private_entries(&mut self, directory: ObjectKey) -> Result<Vec<(Vec<u8>, FoundEntry)>> {
        let mut entries = Vec::new();
        let from = Key::from(directory, 1);
        self.edit(|editor| {
            editor.visit(&from, &mut |head, body, place| {
                if head.key.object != directory || head.key.kind != ItemKind::Directory {
                    return Ok(ControlFlow::Break(()));
                }
                let item = DirectoryItem::new(body, head.count);
                for entry in item.map_err(|error| place.damaged(&error))?.entries() {
                    let entry = entry.map_err(|error| place.damaged(&error))?;
                    if !entry.is_dot() {
                        let found = FoundEntry {
                            object: entry.object,
                            offset: entry.offset,
                        };
                        entries.push((entry.name.to_vec(), found));
                    }
                }
                Ok(ControlFlow::Continue(()))
            })
        })?;
        Ok(entries)
    }

    fn set_xattr(
        &mut self,
        object: ObjectKey,
        stat: &StatData,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let Some(root) = self.mounted.xattrs.filter(|_| stat.is_new) else {
            return Err(Error::corrupt("there is no place for extended attributes"));
        };
        let own_name = own_name(object, stat);
        let own = match self.find_private(root, own_name.as_bytes())? {
            Some(own) => own.object,
            None => {
                self.mounted
                    .xattr_directories
                    .fetch_add(1, Ordering::AcqRel);
                self.make_private(root, own_name.as_bytes(), FileKind::Directory)?
            }
        };
        if let Some(file) = self.find_private(own, name)? {
            self.remove_private(own, file)?;
        }
        let disk;
        let value = match ACLS.contains(&name) {
            true => {
                disk = acl::user_to_disk(value)
                    .map_err(|error| Error::corrupt(format_args!("an ACL to set: {error}")))?;
                &disk[..]
            }
            false => value,
        };
        let file = self.make_private(own, name, FileKind::Regular)?;
        self.fill(file, &xattr::content(value))
    }

    fn remove_xattr(&mut self, object: ObjectKey, stat: &StatData, name: &[u8]) -> Result<()> {
        let Some((root, own)) = self.own_directory(object, stat)? else {
            return Ok(());
        };
        // Also one that lies where names of another hash do.
        let entries = self.private_entries(own.object)?.into_iter();
        let (gone, kept): (Vec<_>, Vec<_>) = entries.partition(|(there, _)| there == name);
        for (_, file) in gone {
            self.remove_private(own.object, file)?;
        }
        match kept.is_empty() {
            true => self.remove_own_directory(root, own),
            false => Ok(()),
        }
    }

    fn remove_own_directory(&mut self, root: ObjectKey, own: FoundEntry) -> Result<()> {
        self.remove_private(root, own)?;
        self.change_stat(root, |stat| {
            stat.link_count = stat.link_count.saturating_sub(1).max(2)
        })?;
        self.mounted
            .xattr_directories
            .fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Makes a file or directory in a hidden directory, or a hidden directory in the root.
    pub(crate) fn make_private(
        &mut self,
        directory: ObjectKey,
        name: &[u8],
        kind: FileKind,
    ) -> Result<ObjectKey> {
        let object_id = self.writing.numbers.take().ok_or(Error::NoSpace)?;
        let object = ObjectKey {
            dir_id: directory.object_id,
            object_id,
        };
        if !self.writer.numbers.take(object_id) {
            return Err(Error::corrupt(format_args!(
                "object {object_id}: is in use already"
            )));
        }
        self.mounted.objects.note(object);
        let now = finefs_namespace::Timestamp::now().seconds().max(0) as u32;
        let is_directory = kind == FileKind::Directory;
        let mut stat = StatData {
            kind,
            permissions: PERMISSIONS,
            link_count: if is_directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            size: 0,
            accessed: now,
            modified: now,
            changed: now,
            sectors: 0,
            device: (0, 0),
            generation: Some(self.writing.numbers.generation()),
            attributes: 0,
            is_new: true,
            first_direct: None,
        };
        self.edit(|editor| editor.insert_stat(object, &stat))?;
        let hash = self.hash()?;
        if is_directory {
            let made = Self::private(object, hash);
            let bytes = self.edit(|editor| editor.make_directory(&made, directory))?;
            stat.size = u64::from(bytes);
            stat.sectors = stat.size.div_ceil(512) as u32;
            self.edit(|editor| editor.write_stat(object, &stat))?;
        }
        let parent = self.edit(|editor| editor.stat(directory))?;
        let into = Directory {
            pads: parent.is_new,
            ..Self::private(directory, hash)
        };
        let more = self.edit(|editor| editor.add_entry(&into, name, object))?;
        self.change_stat(directory, |stat| {
            stat.size += u64::from(more);
            stat.sectors = stat.size.div_ceil(512) as u32;
            stat.link_count += u32::from(is_directory);
        })?;
        Ok(object)
    }

    fn remove_private(&mut self, directory: ObjectKey, entry: FoundEntry) -> Result<()> {
        let from = Self::private(directory, self.hash()?);
        let less = self.edit(|editor| editor.remove_entry_at(&from, entry.offset))?;
        self.change_stat(directory, |stat| {
            stat.size = stat.size.saturating_sub(u64::from(less));
            stat.sectors = stat.size.div_ceil(512) as u32;
        })?;
        self.remove_all(entry.object)
    }

    fn change_stat(&mut self, object: ObjectKey, change: impl FnOnce(&mut StatData)) -> Result<()> {
        let mut stat = self.edit(|editor| editor.stat(object))?;
        change(&mut stat);
        self.edit(|editor| editor.write_stat(object, &stat))
    }

    /// Gives a new file its content.
    fn fill(&mut self, object: ObjectKey, content: &[u8]) -> Result<()> {
        let mut stat = self.edit(|editor| editor.stat(object))?;
        let file = FileKey::of(object, &stat);
        let block_size = self.mounted.tree.buffers.block_size_bytes();
        stat.size = content.len() as u64;
        if content.len() < block_size && indirect::packs_tail(stat.size, block_size) {
            self.edit(|editor| editor.put_tail(&file, 0, content))?;
            stat.sectors = self.sectors_of(1);
        } else {
            let mut near = self.root.block;
            for (logical, part) in (0..).map(LogicalBlock).zip(content.chunks(block_size)) {
                let block = self.staged.space().take(near)?;
                let start = BlockNo(u64::from(block));
                self.use_blocks(BlockRun { start, length: 1 })?;
                // If there is no storage for it, the commit is postponed and not given up.
                self.mounted.data.write_blank_unreserved(start, part)?;
                let mut freed = Vec::new();
                self.edit(|editor| editor.map(&file, logical, (block, 1), 1, &mut freed))?;
                stat.sectors += self.sectors_of(1);
                near = block + 1;
            }
        }
        self.edit(|editor| editor.write_stat(object, &stat))
    }

    /// Makes the hidden directories that are missing, durably; gives that of all attributes.
    /// Nothing else is under way.
    pub(crate) fn make_xattr_root(mut self, private: Option<ObjectKey>) -> Result<ObjectKey> {
        let before = (self.writer.superblock.clone(), self.writer.numbers.clone());
        let made = match private {
            Some(private) => Ok(private),
            None => self.make_private(key::ROOT, xattr::PRIVATE_ROOT, FileKind::Directory),
        };
        let made = made.and_then(|private| {
            self.make_private(private, xattr::XATTRS_ROOT, FileKind::Directory)
        });
        match made.and_then(|made| self.group(true).map(|()| made)) {
            Ok(made) => {
                self.release();
                Ok(made)
            }
            Err(error) => Err(self.failed(error, before)),
        }
    }
}

/// The name of an object's directory.
fn own_name(object: ObjectKey, stat: &StatData) -> String {
    xattr::directory_name(object.object_id, inode::generation(object, stat))
}
