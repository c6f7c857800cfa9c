//! What a create makes: its number, its attributes, and what it inherits.

use crossbeam_epoch::{Guard, Owned};
use smallvec::SmallVec;

use crate::access::acls::{Inherited, loses_setgid};
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::{Charge, Store};
use crate::base::types::{Attributes, Caller, FileKind, INODES_END, Ino, Times, Timestamp};
use crate::commit::oplog::Record;
use crate::inode::INODE_BYTES;
use crate::inode::{Core, Inode, Stamped};
use crate::namespace::Namespace;
use crate::operations::xattrs::CAPABILITIES;

/// Names and values of extended attributes.
pub(crate) type Labels<'a> = &'a [(&'a [u8], &'a [u8])];

/// What a create makes.
pub(crate) struct New<'a> {
    pub kind: FileKind,
    pub permissions: u32,
    pub device: u64,
    pub target: Option<&'a [u8]>,
    /// Extended attributes beside those that are inherited.
    pub labels: Labels<'a>,
    /// References that its maker holds from the start.
    pub references: u64,
}

impl<'a> New<'a> {
    /// A regular file, referenced once.
    pub fn file(permissions: u32) -> New<'a> {
        New {
            kind: FileKind::Regular,
            permissions,
            device: 0,
            target: None,
            labels: &[],
            references: 1,
        }
    }

    /// A directory. Set-id bits that are asked for do not count (Linux, `vfs_mkdir`): it has the
    /// set-group-ID bit if its parent has.
    pub fn directory(permissions: u32, references: u64) -> New<'a> {
        New {
            kind: FileKind::Directory,
            references,
            ..New::file(permissions & (0o777 | libc::S_ISVTX))
        }
    }

    /// Any kind but regular file, directory and symbolic link. Linux has 12 bits for the major and
    /// 20 for the minor number of a device; what no store can hold must not get into the log.
    pub fn node(kind: FileKind, permissions: u32, device: u64, references: u64) -> Result<New<'a>> {
        let device = match kind {
            FileKind::BlockDevice | FileKind::CharDevice if device > u64::from(u32::MAX) => {
                return Err(Error::Invalid);
            }
            FileKind::BlockDevice | FileKind::CharDevice => device,
            FileKind::Directory | FileKind::Symlink => return Err(Error::Invalid),
            _ => 0,
        };
        Ok(New {
            kind,
            device,
            references,
            ..New::file(permissions)
        })
    }

    /// Permission bits where nothing is inherited.
    pub fn masked_permissions(&self, caller: &Caller) -> u32 {
        match self.kind {
            FileKind::Symlink => self.permissions,
            _ => self.permissions & !caller.umask,
        }
    }

    /// EPERM unless the caller may make one: a device gives access to hardware, so only root makes
    /// them, but for the whiteouts of overlayfs (Linux `vfs_mknod`).
    pub(crate) fn check_maker(&self, caller: &Caller) -> Result<()> {
        let is_whiteout = self.kind == FileKind::CharDevice && self.device == 0;
        let may = caller.is_checked() || caller.uid == 0 || !self.kind.is_device() || is_whiteout;
        if may {
            Ok(())
        } else {
            Err(Error::NotPermitted)
        }
    }

    /// A symbolic link. ENOENT for an empty target, ENAMETOOLONG for one over `length_max` bytes,
    /// EINVAL for one with a NUL, which no image has.
    pub fn symlink(target: &'a [u8], length_max: u32, references: u64) -> Result<New<'a>> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() > length_max as usize {
            return Err(Error::NameTooLong);
        }
        if target.contains(&0) {
            return Err(Error::Invalid);
        }
        Ok(New {
            kind: FileKind::Symlink,
            target: Some(target),
            references,
            ..New::file(0o777)
        })
    }
}

/// An inode number from the store's allocator, given back on drop unless it was logged.
pub(crate) struct Allotted<'n> {
    store: &'n dyn Store,
    ino: Ino,
    generation: u32,
    kind: FileKind,
    pub is_used: bool,
}

impl Drop for Allotted<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.store.release_inode(self.ino, self.kind);
        }
    }
}

impl Namespace {
    /// Gives what is inherited to a new inode that is not in the table yet; ENOSPC where it does
    /// not fit.
    #[cold]
    pub(crate) fn give_inherited(&self, inode: &Inode, inherited: &Inherited) -> Result<()> {
        if inherited.has_xattrs() {
            let views: SmallVec<[_; 2]> = inherited.views().collect();
            let inline = self.inline_bytes(inode);
            self.store.check_xattrs(inode.ino, inline, &views)?;
            inode.give_acls(inherited.acls.clone(), inherited.xattrs.clone());
            if inherited.xattrs.contains_key(CAPABILITIES) {
                inode.note_capabilities(true);
            }
        }
        Ok(())
    }

    /// Logs that the first of what is touched comes to be, with what it inherits.
    pub(crate) fn log_new<const RECORDS: usize, const TOUCHED: usize>(
        &self,
        group: impl FnOnce() -> [Record; RECORDS],
        inherited: Option<&Inherited>,
        blocks: u64,
        touched: [Stamped<'_>; TOUCHED],
    ) {
        match inherited {
            None => self.log_group(group, blocks, &touched),
            Some(inherited) => {
                let all = || {
                    group()
                        .into_iter()
                        .chain(inherited.records(touched[0].core()))
                };
                self.log_group(all, blocks, &touched);
            }
        }
    }

    pub(crate) fn allot(&self, parent: Ino, kind: FileKind) -> Result<Allotted<'_>> {
        let (ino, generation) = self.note_load(self.store.allocate_inode(parent, kind))?;
        let allotted = Allotted {
            store: &*self.store,
            ino,
            generation,
            kind,
            is_used: false,
        };
        if ino.0 >= INODES_END {
            return Err(Error::NoSpace);
        }
        Ok(allotted)
    }

    pub(crate) fn insert<'g>(&self, inode: Owned<Inode>, guard: &'g Guard) -> Result<&'g Inode> {
        self.note_memory(INODE_BYTES);
        let inserted = self.inodes.insert(inode, guard);
        let (inode, earlier) = inserted.ok_or(Error::NoSpace)?;
        if let Some(earlier) = earlier {
            self.discount(earlier);
        }
        Ok(inode)
    }

    /// The attributes of a new inode, if quotas let its owner have it.
    pub(crate) fn new_attributes(
        &self,
        caller: &Caller,
        dir: &Core,
        allotted: &Allotted<'_>,
        new: &New<'_>,
        inherited: Option<&Inherited>,
    ) -> Result<Attributes> {
        let parent = dir.ownership();
        let is_bsd = self.options.has_bsd_groups;
        let inherits_group = is_bsd || parent.permissions & libc::S_ISGID != 0;
        let mut permissions = match inherited {
            Some(inherited) => inherited.permissions,
            None => new.masked_permissions(caller),
        } & 0o7777;
        let gid = if inherits_group {
            parent.gid
        } else {
            caller.gid
        };
        if new.kind == FileKind::Directory {
            // That bit is how else a directory would get its parent's group.
            permissions |= if is_bsd {
                0
            } else {
                parent.permissions & libc::S_ISGID
            };
        } else if loses_setgid(caller, new.permissions, parent, is_bsd) {
            permissions &= !libc::S_ISGID;
        }
        let now = self.now();
        let size_bytes = match new.kind {
            FileKind::Symlink => new.target.map_or(0, |target| target.len() as u64),
            FileKind::Directory => u64::from(self.geometry.block_size_bytes),
            _ => 0,
        };
        let sectors = self.sectors_of_new(new.kind, self.target_bytes(dir, new.target)?);
        let project = parent.inherited_project();
        if caller.uid.max(gid) > self.geometry.new_form.owner_max {
            return Err(Error::Invalid);
        }
        self.charge_new(caller, (gid, project), sectors)?;
        Ok(Attributes {
            ino: allotted.ino,
            generation: allotted.generation,
            kind: new.kind,
            permissions,
            link_count: if new.kind == FileKind::Directory {
                2
            } else {
                1
            },
            uid: caller.uid,
            gid,
            device: new.device,
            size_bytes,
            sectors,
            times: Times {
                accessed: now,
                modified: now,
                changed: now,
                created: self.birth(now),
            },
            flags: parent.flags.inherited_by(new.kind) | self.flags_of_new(new.kind),
            project,
            is_settled: inherited.is_none_or(|inherited| !inherited.has_xattrs()),
        })
    }

    /// What an inode that is made now shows as its time of birth.
    fn birth(&self, now: Timestamp) -> Timestamp {
        match self.geometry.has_birth_times {
            true => now,
            false => Timestamp::new(0, 0),
        }
    }

    /// EDQUOT unless the caller may have an inode of this group and project.
    fn charge_new(&self, caller: &Caller, (gid, project): (u32, u32), sectors: u64) -> Result<()> {
        self.charge(&Charge {
            uid: Some(caller.uid),
            gid: Some(gid),
            project: Some(project),
            inodes: 1,
            bytes: sectors * 512,
            is_privileged: caller.uid == 0,
        })
    }

    /// What the flags of a new inode tell of the format.
    fn flags_of_new(&self, kind: FileKind) -> FileFlags {
        let has_map = matches!(kind, FileKind::Regular | FileKind::Directory);
        match has_map && self.geometry.has_unwritten && self.keeps_log {
            true => FileFlags::EXTENTS,
            false => FileFlags::empty(),
        }
    }
}
