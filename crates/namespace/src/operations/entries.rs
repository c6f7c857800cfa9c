//! Names come and go: create, link, unlink, rmdir.
//!
//! Each operation that changes a name follows one pattern: check and reserve without locks, lock
//! the name's bucket (and the inode whose links change), check again, append one log group,
//! publish, unlock. A name that changed between the look and the lock sends the operation back to
//! the start.

use crossbeam_epoch::{Guard, Owned};
use smallvec::{SmallVec, smallvec};

use crate::access::acls::{Inherited, loses_setgid};
use crate::access::permission::{EXECUTE, WRITE};
use crate::base::error::{Error, Result};
use crate::base::store::{LinkState, Plan, Store};
use crate::base::types::INODES_END;
use crate::base::types::{Attributes, Caller, FileKind, Ino, NameBytes, Times};
use crate::commit::oplog::Record;
use crate::inode::{Core, Inode, Time};
use crate::names::name_table::{Dead, HashedName, LockedBucket, NameTable, Request, lock_all};
use crate::namespace::{Namespace, Operation, Reservation};
use crate::operations::walk::{Located, Place};
use crate::schemes::Call;

/// What a create makes.
pub(crate) struct New<'a> {
    pub kind: FileKind,
    pub permissions: u32,
    pub device: u64,
    pub target: Option<&'a [u8]>,
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

    /// EPERM unless the caller may make one: a device gives access to hardware, so only root makes
    /// them, but for the whiteouts of overlayfs (Linux `vfs_mknod`).
    fn check_maker(&self, caller: &Caller) -> Result<()> {
        let is_whiteout = self.kind == FileKind::CharDevice && self.device == 0;
        let may = caller.is_checked() || caller.uid == 0 || !self.kind.is_device() || is_whiteout;
        if may {
            Ok(())
        } else {
            Err(Error::NotPermitted)
        }
    }

    /// A symbolic link. ENOENT for an empty target, ENAMETOOLONG for one over `length_max` bytes.
    pub fn symlink(target: &'a [u8], length_max: u32, references: u64) -> Result<New<'a>> {
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        if target.len() > length_max as usize {
            return Err(Error::NameTooLong);
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
struct Allotted<'n> {
    store: &'n dyn Store,
    ino: Ino,
    generation: u32,
    kind: FileKind,
    is_used: bool,
}

impl Drop for Allotted<'_> {
    fn drop(&mut self) {
        if !self.is_used {
            self.store.release_inode(self.ino, self.kind);
        }
    }
}

impl From<Dead> for Error {
    fn from(_: Dead) -> Error {
        Error::NotFound
    }
}

impl Namespace {
    /// Creates an empty regular file and takes a reference on it. EEXIST when the name is there.
    /// `permissions` are before the caller's umask.
    pub fn create_file(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        permissions: u32,
    ) -> Result<Attributes> {
        self.make(caller, Place::Name(parent, name), &New::file(permissions))
    }

    /// Creates a file of any kind but directory and symbolic link (mknod). EPERM for a device
    /// unless the caller is root.
    pub fn make_node(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        kind: FileKind,
        permissions: u32,
        device: u64,
    ) -> Result<Attributes> {
        let new = New::node(kind, permissions, device, 1)?;
        self.make(caller, Place::Name(parent, name), &new)
    }

    /// Creates a directory. Of the permissions the set-id bits do not count (mkdir(2)): it has the
    /// set-group-ID bit if
    /// `parent` has.
    pub fn make_directory(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        permissions: u32,
    ) -> Result<Attributes> {
        let new = New::directory(permissions, 1);
        self.make(caller, Place::Name(parent, name), &new)
    }

    /// Creates a symbolic link. ENAMETOOLONG for a target that the store cannot hold.
    pub fn make_symlink(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attributes> {
        let new = New::symlink(target, self.geometry.symlink_max, 1)?;
        self.make(caller, Place::Name(parent, name), &new)
    }

    /// Makes something where `place` is.
    pub(crate) fn make(
        &self,
        caller: &Caller,
        place: Place<'_>,
        new: &New<'_>,
    ) -> Result<Attributes> {
        self.with_space(|| {
            let operation = self.begin_change(Call::MakeName)?;
            let located = self.locate(caller, place, &operation.guard)?;
            self.make_located(&operation, caller, &located, new)
        })
    }

    /// Makes something at a name that was located within `operation`.
    pub(crate) fn make_located(
        &self,
        operation: &Operation<'_>,
        caller: &Caller,
        located: &Located<'_>,
        new: &New<'_>,
    ) -> Result<Attributes> {
        let guard = &operation.guard;
        let (dir, table, name) = (located.dir, located.table, located.name());
        let is_directory = new.kind == FileKind::Directory;
        new.check_maker(caller)?;
        table.expect_change(name, guard);
        check_new_name(self, located, is_directory, guard)?;
        table.expect_insert(name, guard);
        self.check_access(caller, dir, WRITE)?;
        dir.check_names()?;
        if is_directory {
            self.check_directory_links(dir)?;
        }
        let inherited = self.inherited(dir, new.kind, new.permissions, guard)?;
        let inherited = inherited.as_deref();
        let reservation = self.reserve_new(table, new, inherited, guard)?;
        let mut allotted = self.allot(dir.ino, new.kind)?;
        let attributes = self.new_attributes(caller, dir, &allotted, new, inherited);
        let core = Core::created(attributes, self.inode_config(), dir.ino, new.target);
        let inode = Owned::new(Inode::created(core, new.references));
        if let Some(inherited) = inherited {
            self.give_inherited(&inode, inherited)?;
        }

        let mut wants_room = false;
        {
            let held = table.lock(dir.ino, name, guard)?;
            if held.find(name, guard).is_some() {
                return Err(Error::Exists);
            }
            // Nothing fails from here on. The inode is in the table before the log names it, and
            // nobody can find it there before its name is published.
            allotted.is_used = true;
            let inode = self.insert(inode, guard)?;
            let created = || Record::Created {
                ino: attributes.ino,
                symlink: new.target.map(Into::into),
            };
            let entry = || entry_record(dir, &held, name, false, Some((attributes.ino, new.kind)));
            let (blocks, touched) = (reservation.take(), [&**inode, &**dir]);
            if is_directory {
                let parent = Record::Parent {
                    dir: attributes.ino,
                    sequence: 0,
                    parent: dir.ino,
                };
                let linked = Record::LinkDelta {
                    ino: dir.ino,
                    delta: 1,
                };
                let group = || [created(), entry(), parent, linked];
                self.log_new(group, inherited, blocks, touched);
                dir.add_directory_links(1, self.geometry.directory_links_counted_max);
            } else {
                self.log_new(|| [created(), entry()], inherited, blocks, touched);
            }
            dir.set_modified(attributes.times.created);
            wants_room |= table.insert(&held, name, attributes.ino, new.kind, guard);
        }
        if wants_room {
            table.grow(dir.ino, guard);
        }
        Ok(attributes)
    }

    /// Reserves what it takes to make something with a name in this table.
    fn reserve_new(
        &self,
        table: &NameTable,
        new: &New<'_>,
        inherited: Option<&Inherited>,
        guard: &Guard,
    ) -> Result<Reservation<'_>> {
        let add = Plan::AddEntry {
            entries_about: table.length_about(guard),
        };
        match (inherited, new.kind) {
            (Some(inherited), kind) => self.reserve_inheriting(add, kind, inherited),
            (None, FileKind::Directory) => self.reserve(&[add, Plan::NewDirectory]),
            (None, FileKind::Symlink) => {
                let length_bytes = new.target.map_or(0, |target| target.len() as u32);
                self.reserve(&[add, Plan::NewSymlink { length_bytes }])
            }
            (None, _) => self.reserve(&[add]),
        }
    }

    /// Creates a regular file without a name (O_TMPFILE) and takes a reference on it.
    pub fn create_unnamed(
        &self,
        caller: &Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        self.with_space(|| {
            let operation = self.begin_change(Call::MakeName)?;
            let guard = &operation.guard;
            let dir = self.inode(parent, guard)?;
            dir.directory()?;
            self.check_access(caller, dir, WRITE | EXECUTE)?;
            let new = New::file(permissions);
            let inherited = self.inherited(dir, new.kind, permissions, guard)?;
            let inherited = inherited.as_deref();
            let reservation = match inherited.is_some_and(Inherited::has_xattrs) {
                true => Some(self.reserve(&[Plan::Xattr])?),
                false => None,
            };
            let mut allotted = self.allot(parent, FileKind::Regular)?;
            let mut attributes = self.new_attributes(caller, dir, &allotted, &new, inherited);
            let core = Core::created(attributes, self.inode_config(), dir.ino, None);
            let inode = Owned::new(Inode::created(core, 1));
            if let Some(inherited) = inherited {
                self.give_inherited(&inode, inherited)?;
            }
            attributes.link_count = 0;
            allotted.is_used = true;
            let inode = self.insert(inode, guard)?;
            let lock = inode.lock();
            inode.set_link_count(&lock, 0);
            let group = || {
                [
                    Record::Created {
                        ino: inode.ino,
                        symlink: None,
                    },
                    Record::linked(inode, 0, LinkState::Orphan),
                ]
            };
            let blocks = reservation.map_or(0, Reservation::take);
            self.log_new(group, inherited, blocks, [inode]);
            inode.set_unnamed(&lock, true);
            inode.references.unlink(&self.inodes.split_counts, &lock);
            Ok(attributes)
        })
    }

    /// Reserves what a new name can need with an object that inherits ACLs.
    #[cold]
    fn reserve_inheriting(
        &self,
        add: Plan,
        kind: FileKind,
        inherited: &Inherited,
    ) -> Result<Reservation<'_>> {
        let mut plans: SmallVec<[Plan; 3]> = smallvec![add];
        if kind == FileKind::Directory {
            plans.push(Plan::NewDirectory);
        }
        if inherited.has_xattrs() {
            plans.push(Plan::Xattr);
        }
        self.reserve(&plans)
    }

    /// Gives what is inherited to a new inode that is not in the table yet; ENOSPC where it does
    /// not fit.
    #[cold]
    fn give_inherited(&self, inode: &Inode, inherited: &Inherited) -> Result<()> {
        if inherited.has_xattrs() {
            let views: SmallVec<[_; 2]> = inherited.views().collect();
            self.store.check_xattrs(inode.ino, &views)?;
            inode.give_acls(inherited.acls.clone(), inherited.xattrs.clone());
        }
        Ok(())
    }

    /// Logs that the first of what is touched comes to be, with what it inherits.
    fn log_new<const RECORDS: usize, const TOUCHED: usize>(
        &self,
        group: impl FnOnce() -> [Record; RECORDS],
        inherited: Option<&Inherited>,
        blocks: u64,
        touched: [&Core; TOUCHED],
    ) {
        match inherited {
            None => self.log_group(group, blocks, &touched),
            Some(inherited) => {
                let all = || group().into_iter().chain(inherited.records(touched[0]));
                self.log_group(all, blocks, &touched);
            }
        }
    }

    fn allot(&self, parent: Ino, kind: FileKind) -> Result<Allotted<'_>> {
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

    fn insert<'g>(&self, inode: Owned<Inode>, guard: &'g Guard) -> Result<&'g Inode> {
        self.committer.inodes_loaded.add(1);
        self.inodes.insert(inode, guard).ok_or(Error::NoSpace)
    }

    /// The attributes of a new inode.
    fn new_attributes(
        &self,
        caller: &Caller,
        dir: &Core,
        allotted: &Allotted<'_>,
        new: &New<'_>,
        inherited: Option<&Inherited>,
    ) -> Attributes {
        let parent = dir.ownership();
        let is_bsd = self.options.has_bsd_groups;
        let inherits_group = is_bsd || parent.permissions & libc::S_ISGID != 0;
        let mut permissions = match inherited {
            Some(inherited) => inherited.permissions,
            None if new.kind == FileKind::Symlink => new.permissions,
            None => new.permissions & !caller.umask,
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
        Attributes {
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
            sectors: self.sectors_of_new(new.kind, new.target),
            times: Times {
                accessed: now,
                modified: now,
                changed: now,
                created: now,
            },
            flags: 0,
            is_settled: inherited.is_none_or(|inherited| !inherited.has_xattrs()),
        }
    }

    /// Gives an inode another name and takes a reference on it.
    pub fn make_link(
        &self,
        caller: &Caller,
        ino: Ino,
        parent: Ino,
        name: &[u8],
    ) -> Result<Attributes> {
        self.link(caller, ino, Place::Name(parent, name), true)
    }

    /// Gives an inode another name, and takes a reference on it if it is to be held.
    pub(crate) fn link(
        &self,
        caller: &Caller,
        ino: Ino,
        place: Place<'_>,
        is_held: bool,
    ) -> Result<Attributes> {
        self.with_space(|| {
            let operation = self.begin_change(Call::MakeName)?;
            let guard = &operation.guard;
            let inode = self.inode(ino, guard)?;
            let located = self.locate(caller, place, guard)?;
            let (dir, table, name) = (located.dir, located.table, located.name());
            check_new_name(self, &located, false, guard)?;
            self.check_access(caller, dir, WRITE)?;
            dir.check_names()?;
            if inode.kind == FileKind::Directory {
                return Err(Error::NotPermitted);
            }
            let add = Plan::AddEntry {
                entries_about: table.length_about(guard),
            };
            let reservation = self.reserve(&[add])?;
            let wants_room;
            {
                let held = table.lock(dir.ino, name, guard)?;
                if held.find(name, guard).is_some() {
                    return Err(Error::Exists);
                }
                let lock = inode.lock();
                let links = inode.link_count();
                if links == 0 && !inode.is_unnamed() {
                    return Err(Error::NotFound);
                }
                if links >= self.geometry.link_max {
                    return Err(Error::TooManyLinks);
                }
                // It does not go while its lock is held.
                if inode.is_gone() {
                    return Err(Error::Stale);
                }
                if is_held {
                    let _ = inode.references.refer(&self.inodes.split_counts);
                }
                let now = self.now();
                let linked = || Record::linked(inode, links + 1, LinkState::Linked);
                let entry = || entry_record(dir, &held, name, false, Some((ino, inode.kind)));
                let group = || [linked(), entry()];
                self.log_group(group, reservation.take(), &[dir, inode]);
                inode.set_link_count(&lock, links + 1);
                inode.references.relink(&lock);
                inode.set_unnamed(&lock, false);
                inode.set_time(Time::Changed, now);
                dir.set_modified(now);
                wants_room = table.insert(&held, name, ino, inode.kind, guard);
            }
            if wants_room {
                table.grow(dir.ino, guard);
            }
            Ok(self.shown(inode, guard))
        })
    }

    /// Removes a name that is not a directory's (unlink). An inode in use lives on without it.
    pub fn remove_file(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.unlink(caller, Place::Name(parent, name))
    }

    /// As [`Namespace::remove_file`], wherever `place` is.
    pub(crate) fn unlink(&self, caller: &Caller, place: Place<'_>) -> Result<()> {
        let operation = self.begin_change(Call::RemoveName)?;
        let guard = &operation.guard;
        let located = self.locate(caller, place, guard)?;
        let (dir, table, name) = (located.dir, located.table, located.name());
        table.expect_change(name, guard);
        check_old_name(self, name.bytes, Error::IsADirectory)?;
        loop {
            let child = self.child(dir, table, name, guard)?;
            if located.has_slash && child.kind != FileKind::Directory {
                return Err(Error::NotADirectory);
            }
            self.check_remove(caller, dir, child)?;
            if child.kind == FileKind::Directory {
                return Err(Error::IsADirectory);
            }
            let held = table.lock(dir.ino, name, guard)?;
            let Some(node) = held.find(name, guard) else {
                return Err(Error::NotFound);
            };
            if node.ino != child.ino {
                continue;
            }
            let lock = child.lock();
            if child.is_gone() {
                continue;
            }
            let entry = || entry_record(dir, &held, name, true, None);
            let now = self.now();
            let links = child.link_count().saturating_sub(1);
            let link_state = self.link_state_of(child, &lock, links);
            let linked = || Record::linked(child, links, link_state);
            self.log_group(|| [entry(), linked()], 0, &[dir, child]);
            child.set_link_count(&lock, links);
            child.set_time(Time::Changed, now);
            dir.set_modified(now);
            let unnaming = self.inodes.begin_unnaming(child);
            held.remove(node, guard);
            drop(unnaming);
            drop(lock);
            drop(held);
            self.reclaim_if(link_state, child, guard);
            return Ok(());
        }
    }

    /// What becomes of an inode that keeps `links` names: the evidence is its lock.
    pub(crate) fn link_state_of(
        &self,
        inode: &Inode,
        lock: &finefs_locks::MutexGuard<'_, crate::inode::Guarded>,
        links: u32,
    ) -> LinkState {
        if links > 0 {
            LinkState::Linked
        } else if inode.references.unlink(&self.inodes.split_counts, lock) {
            LinkState::Freed
        } else {
            LinkState::Orphan
        }
    }

    /// Removes an empty directory (rmdir).
    pub fn remove_directory(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.rmdir(caller, Place::Name(parent, name))
    }

    /// As [`Namespace::remove_directory`], wherever `place` is.
    pub(crate) fn rmdir(&self, caller: &Caller, place: Place<'_>) -> Result<()> {
        let operation = self.begin_change(Call::RemoveName)?;
        let guard = &operation.guard;
        let located = self.locate(caller, place, guard)?;
        match located.name().bytes {
            _ if located.is_root => return Err(Error::Busy),
            b"." => return Err(Error::Invalid),
            b".." => return Err(Error::NotEmpty),
            _ => {}
        }
        while !self.try_rmdir(caller, &located, guard)? {}
        Ok(())
    }

    /// The names of an inode, if it is a directory that may be removed as far as a look without
    /// locks tells.
    fn check_rmdir<'g>(&self, child: &'g Inode, guard: &Guard) -> Result<&'g NameTable> {
        if child.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        if child.ino == self.root() {
            return Err(Error::Busy);
        }
        let names = self.table(child)?;
        child.check_names()?;
        if !names.seems_empty(guard) {
            return Err(Error::NotEmpty);
        }
        Ok(names)
    }

    /// One attempt; false when the name named something else before its bucket was held.
    fn try_rmdir<'g>(
        &'g self,
        caller: &Caller,
        located: &Located<'g>,
        guard: &'g Guard,
    ) -> Result<bool> {
        let (dir, table, name) = (located.dir, located.table, located.name());
        let child = self.child(dir, table, name, guard)?;
        self.check_remove(caller, dir, child)?;
        let names = self.check_rmdir(child, guard)?;
        let resize = names.lock_resize();
        let requests = [
            Request::Name {
                dir: dir.ino,
                table,
                name,
            },
            Request::Whole {
                dir: child.ino,
                table: names,
                resize: &resize,
            },
        ];
        let held = lock_all(&requests, guard)?;
        let Some(node) = held.get(0).find(name, guard) else {
            return Err(Error::NotFound);
        };
        if node.ino != child.ino {
            return Ok(false);
        }
        if !held.is_empty(names, guard) {
            return Err(Error::NotEmpty);
        }
        let lock = child.lock();
        if child.is_gone() {
            return Ok(false);
        }
        let now = self.now();
        let link_state = self.link_state_of(child, &lock, 0);
        let entry = || entry_record(dir, held.get(0), name, true, None);
        let linked = || Record::linked(child, 0, link_state);
        let unlinked = Record::LinkDelta {
            ino: dir.ino,
            delta: -1,
        };
        self.log_group(|| [entry(), linked(), unlinked], 0, &[dir, child]);
        child.set_link_count(&lock, 0);
        child.set_time(Time::Changed, now);
        dir.add_directory_links(-1, self.geometry.directory_links_counted_max);
        dir.set_modified(now);
        held.kill(names, guard);
        let unnaming = self.inodes.begin_unnaming(child);
        held.get(0).remove(node, guard);
        drop(unnaming);
        drop(lock);
        drop(held);
        self.reclaim_if(link_state, child, guard);
        Ok(true)
    }

    /// EMLINK when a directory can hold no more subdirectories.
    pub(crate) fn check_directory_links(&self, dir: &Core) -> Result<()> {
        match self.geometry.directory_link_max {
            Some(most) if dir.link_count() >= most => Err(Error::TooManyLinks),
            _ => Ok(()),
        }
    }
}

/// The log record of a name whose bucket is held: it now names `names`, or nothing.
pub(crate) fn entry_record(
    dir: &Core,
    held: &LockedBucket<'_>,
    name: HashedName<'_>,
    was_there: bool,
    names: Option<(Ino, FileKind)>,
) -> Record {
    Record::Entry {
        dir: dir.ino,
        version: held.next_version(),
        hash: name.hash,
        name: NameBytes::from_slice(name.bytes),
        was_there,
        names,
    }
}

/// ENAMETOOLONG, or ENOENT for the empty name.
pub(crate) fn check_length(namespace: &Namespace, name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return Err(Error::NotFound);
    }
    if name.len() > namespace.geometry.name_max as usize {
        return Err(Error::NameTooLong);
    }
    Ok(())
}

/// Whether a name may be made: EEXIST when it is there, ENOENT when a slash follows what shall not
/// be a directory, EINVAL for a name with `/` or NUL.
fn check_new_name(
    namespace: &Namespace,
    located: &Located<'_>,
    may_have_slash: bool,
    guard: &Guard,
) -> Result<()> {
    let name = located.name();
    check_length(namespace, name.bytes)?;
    if matches!(name.bytes, b"." | b"..") || located.table.find(name, guard).is_some() {
        return Err(Error::Exists);
    }
    if located.has_slash && !may_have_slash {
        return Err(Error::NotFound);
    }
    if name.bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// Whether a name may be removed or renamed; `.` and `..` are `dots`.
pub(crate) fn check_old_name(namespace: &Namespace, name: &[u8], dots: Error) -> Result<()> {
    check_length(namespace, name)?;
    if matches!(name, b"." | b"..") {
        Err(dots)
    } else {
        Ok(())
    }
}
