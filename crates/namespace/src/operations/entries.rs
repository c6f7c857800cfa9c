//! Names come and go: create, link, unlink, rmdir.
//!
//! Each operation that changes a name follows one pattern: check and reserve without locks, lock
//! the name's bucket (and the inode whose links change), check again, append one log group,
//! publish, unlock. A name that changed between the look and the lock sends the operation back to
//! the start.

use crossbeam_epoch::{Guard, Owned};
use finefs_locks::primitive::atomic::Ordering;
use smallvec::SmallVec;

use crate::access::acls::Inherited;
use crate::access::permission::{EXECUTE, WRITE, check_unrestricted};
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::{LinkState, NameClasses, Plan};
use crate::base::types::{Attributes, Caller, FileKind, Ino, NameBytes};
use crate::commit::oplog::Record;
use crate::inode::{Core, Inode};
use crate::names::name_table::{Dead, HashedName, LockedBucket, NameTable, Request, lock_all};
use crate::namespace::{Namespace, Operation, Reservation};
use crate::operations::labelled::attribute_plans;
use crate::operations::lookup::check_length;
use crate::operations::new_inode::New;
use crate::operations::sync::SyncScope;
use crate::operations::walk::{Located, Place};
use crate::schemes::Call;

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
        self.labelled(&[])
            .create_file(caller, parent, name, permissions)
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
        self.labelled(&[])
            .make_node(caller, parent, name, kind, permissions, device)
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
        self.labelled(&[])
            .make_directory(caller, parent, name, permissions)
    }

    /// Creates a symbolic link. ENAMETOOLONG for a target that the store cannot hold.
    pub fn make_symlink(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attributes> {
        self.labelled(&[])
            .make_symlink(caller, parent, name, target)
    }

    /// Makes something where `place` is.
    pub(crate) fn make(
        &self,
        caller: &Caller,
        place: Place<'_>,
        new: &New<'_>,
    ) -> Result<Attributes> {
        let (made, to_sync) = self.with_space(|| {
            let operation = self.begin_change(Call::MakeName)?;
            let located = self.locate(caller, place, &operation.guard)?;
            let made = self.make_located(&operation, caller, &located, new)?;
            Ok((made, self.to_sync(located.dir)))
        })?;
        self.sync_made(to_sync, made, new.references)
    }

    /// Makes durable what was made or linked. Its references are nobody's when that fails: who
    /// asked gets an error.
    fn sync_made(
        &self,
        to_sync: Option<Ino>,
        made: Attributes,
        references: u64,
    ) -> Result<Attributes> {
        let synced = self.sync_directory(to_sync);
        if synced.is_err() && references > 0 {
            self.forget(made.ino, references);
        }
        synced.map(|()| made)
    }

    /// Every change of a directory is durable when it returns.
    pub fn has_synchronous_directories(&self) -> bool {
        self.has_synchronous_directories.load(Ordering::Relaxed)
    }

    /// From now on every change of a directory is durable when it returns, or only those that flags
    /// say so of.
    pub fn set_synchronous_directories(&self, are_synchronous: bool) {
        self.has_synchronous_directories
            .store(are_synchronous, Ordering::Relaxed);
    }

    /// A directory that was changed, if the change has to be durable at once: by an option, or by a
    /// flag (chattr(1), `D` and `S`).
    pub(crate) fn to_sync(&self, dir: &Core) -> Option<Ino> {
        let flags = FileFlags::SYNC.union(FileFlags::DIR_SYNC);
        let is_synchronous = dir.flags().intersects(flags)
            || self.has_synchronous_directories.load(Ordering::Relaxed);
        is_synchronous.then_some(dir.ino)
    }

    /// Makes the change of a directory durable, where that is asked for.
    pub(crate) fn sync_directory(&self, dir: Option<Ino>) -> Result<()> {
        dir.map_or(Ok(()), |dir| self.sync_file(dir, SyncScope::All))
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
        let was_encrypted = dir.flags().contains(FileFlags::ENCRYPTED);
        let is_directory = new.kind == FileKind::Directory;
        new.check_maker(caller)?;
        table.expect_change(name, guard);
        check_new_name(self, located, is_directory, guard)?;
        table.expect_insert(name, guard);
        self.check_may_make(caller, dir, is_directory)?;
        let inherited = self.given(caller, dir, new, guard)?;
        let inherited = inherited.as_deref();
        let reservation = self.reserve_new((dir, table), new, inherited, guard)?;
        let mut allotted = self.allot(dir.ino, new.kind)?;
        let attributes = self.new_attributes(caller, dir, &allotted, new, inherited)?;
        let core = Core::created(attributes, self.inode_config(), dir.ino, new.target);
        let inode = Owned::new(Inode::created(core, new.references));
        if let Some(inherited) = inherited {
            self.give_inherited(&inode, inherited)?;
        }

        let mut wants_room = false;
        {
            let held = table.lock(dir.ino, name, guard)?;
            self.check_free(dir, table, &held, name, guard)?;
            self.check_encryption_stays(dir, was_encrypted)?;
            // Nothing fails from here on. The inode is in the table before the log names it, and
            // nobody can find it there before its name is published.
            allotted.is_used = true;
            let inode = self.insert(inode, guard)?;
            let created = || Record::Created {
                ino: attributes.ino,
                symlink: new.target.map(Into::into),
            };
            let entry = || entry_record(dir, &held, name, false, Some((attributes.ino, new.kind)));
            let touched = [inode.untimed(), dir.modified(attributes.times.changed)];
            let blocks = reservation.take();
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
            held.note_generation(|| self.log.current());
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
        (dir, table): (&Core, &NameTable),
        new: &New<'_>,
        inherited: Option<&Inherited>,
        guard: &Guard,
    ) -> Result<Reservation<'_>> {
        let add = Plan::AddEntry {
            entries_about: table.length_about(guard),
        };
        match (inherited, new.kind) {
            (Some(inherited), _) => self.reserve_inheriting(add, dir, new, inherited),
            (None, FileKind::Directory) => self.reserve(&[add, Plan::NewDirectory]),
            (None, FileKind::Symlink) => {
                let length_bytes = self.target_bytes(dir, new.target)?;
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
        self.labelled(&[])
            .create_unnamed(caller, parent, permissions)
    }

    pub(crate) fn make_unnamed(
        &self,
        caller: &Caller,
        parent: Ino,
        new: &New<'_>,
    ) -> Result<Attributes> {
        self.with_space(|| {
            let operation = self.begin_change(Call::MakeName)?;
            let guard = &operation.guard;
            let dir = self.inode(parent, guard)?;
            dir.directory()?;
            self.check_access(caller, dir, WRITE | EXECUTE)?;
            self.check_key(dir)?;
            let inherited = self.given(caller, dir, new, guard)?;
            let inherited = inherited.as_deref();
            let mut plans = match inherited.filter(|inherited| inherited.has_xattrs()) {
                Some(inherited) => attribute_plans(new, inherited),
                None => SmallVec::new(),
            };
            // Where inodes have no place of their own, it and what notes an orphan need one.
            plans.push(Plan::AddEntry { entries_about: 0 });
            let reservation = self.reserve(&plans)?;
            let mut allotted = self.allot(parent, FileKind::Regular)?;
            let mut attributes = self.new_attributes(caller, dir, &allotted, new, inherited)?;
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
            self.log_new(group, inherited, reservation.take(), [inode.untimed()]);
            inode.set_unnamed(&lock, true);
            inode.references.unlink(&self.inodes.split_counts, &lock);
            Ok(attributes)
        })
    }

    /// Reserves what a new name can need with an object that has attributes from the start.
    #[cold]
    fn reserve_inheriting(
        &self,
        add: Plan,
        dir: &Core,
        new: &New<'_>,
        inherited: &Inherited,
    ) -> Result<Reservation<'_>> {
        let mut plans = attribute_plans(new, inherited);
        plans.push(add);
        match new.kind {
            FileKind::Directory => plans.push(Plan::NewDirectory),
            FileKind::Symlink => plans.push(Plan::NewSymlink {
                length_bytes: self.target_bytes(dir, new.target)?,
            }),
            _ => {}
        }
        self.reserve(&plans)
    }

    /// Whether the caller may make something in a directory.
    fn check_may_make(&self, caller: &Caller, dir: &Inode, is_directory: bool) -> Result<()> {
        self.check_access(caller, dir, WRITE)?;
        self.check_may_add(dir)?;
        match is_directory {
            true => self.check_directory_links(dir),
            false => Ok(()),
        }
    }

    /// Whether names may be added to a directory: not if it is damaged, nor without its key.
    fn check_may_add(&self, dir: &Core) -> Result<()> {
        dir.check_names()?;
        self.check_key(dir)
    }

    /// ENOKEY for an encrypted directory without its key: names are removed from it, and nothing
    /// else.
    pub(crate) fn check_key(&self, dir: &Core) -> Result<()> {
        match dir.flags().contains(FileFlags::ENCRYPTED) {
            true => self.store.check_encrypted(dir.ino),
            false => Ok(()),
        }
    }

    /// A directory was given a key, or not, when this was checked: EBUSY where that has changed
    /// since. Its names are locked.
    fn check_encryption_stays(&self, dir: &Core, was_encrypted: bool) -> Result<()> {
        match dir.flags().contains(FileFlags::ENCRYPTED) == was_encrypted {
            true => Ok(()),
            false => Err(Error::Busy),
        }
    }

    /// EXDEV where an encrypted directory shall name what is not encrypted as it is. Devices,
    /// pipes and sockets have nothing to encrypt (Linux `fscrypt_has_permitted_context`).
    pub(crate) fn check_policy(&self, dir: &Core, named: &Core) -> Result<()> {
        let is_free = !dir.flags().contains(FileFlags::ENCRYPTED)
            || FileFlags::ENCRYPTED.inherited_by(named.kind).is_empty();
        match is_free || self.store.may_name_encrypted(dir.ino, named.ino)? {
            true => Ok(()),
            false => Err(Error::CrossesFileSystems),
        }
    }

    /// How long the target of a new link is as it is stored.
    pub(crate) fn target_bytes(&self, dir: &Core, target: Option<&[u8]>) -> Result<u32> {
        let length_bytes = target.map_or(0, |target| target.len() as u32);
        match length_bytes > 0 && dir.flags().contains(FileFlags::ENCRYPTED) {
            true => self.store.encrypted_target_bytes(dir.ino, length_bytes),
            false => Ok(length_bytes),
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
        let (linked, to_sync) = self.with_space(|| {
            let operation = self.begin_change(Call::MakeName)?;
            let guard = &operation.guard;
            let inode = self.inode(ino, guard)?;
            let located = self.locate(caller, place, guard)?;
            let (dir, table, name) = (located.dir, located.table, located.name());
            let was_encrypted = dir.flags().contains(FileFlags::ENCRYPTED);
            check_new_name(self, &located, false, guard)?;
            self.check_access(caller, dir, WRITE)?;
            check_unrestricted(inode)?;
            self.check_may_add(dir)?;
            if inode.kind == FileKind::Directory {
                return Err(Error::NotPermitted);
            }
            if !dir.ownership().may_name(inode.ownership()) {
                return Err(Error::CrossesFileSystems);
            }
            self.check_policy(dir, inode)?;
            let add = Plan::AddEntry {
                entries_about: table.length_about(guard),
            };
            let reservation = self.reserve(&[add])?;
            let wants_room;
            {
                let held = table.lock(dir.ino, name, guard)?;
                self.check_free(dir, table, &held, name, guard)?;
                self.check_encryption_stays(dir, was_encrypted)?;
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
                let touched = [dir.modified(now), inode.changed(now)];
                self.log_group(group, reservation.take(), &touched);
                inode.set_link_count(&lock, links + 1);
                inode.references.relink(&lock);
                inode.set_unnamed(&lock, false);
                held.note_generation(|| self.log.current());
                wants_room = table.insert(&held, name, ino, inode.kind, guard);
            }
            if wants_room {
                table.grow(dir.ino, guard);
            }
            Ok((self.shown(inode, guard), self.to_sync(dir)))
        })?;
        self.sync_made(to_sync, linked, u64::from(is_held))
    }

    /// Removes a name that is not a directory's (unlink). An inode in use lives on without it.
    pub fn remove_file(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.unlink(caller, Place::Name(parent, name))
    }

    /// As [`Namespace::remove_file`], wherever `place` is.
    pub(crate) fn unlink(&self, caller: &Caller, place: Place<'_>) -> Result<()> {
        let to_sync = self.unlink_name(caller, place)?;
        self.sync_directory(to_sync)
    }

    fn unlink_name(&self, caller: &Caller, place: Place<'_>) -> Result<Option<Ino>> {
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
            let entry = || entry_record(dir, &held, name.as_there(node), true, None);
            let now = self.now();
            let links = child.link_count().saturating_sub(1);
            let link_state = self.link_state_of(child, &lock, links);
            let linked = || Record::linked(child, links, link_state);
            let touched = [dir.modified(now), child.changed(now)];
            self.log_group(|| [entry(), linked()], 0, &touched);
            child.set_link_count(&lock, links);
            held.note_generation(|| self.log.current());
            let unnaming = self.inodes.begin_unnaming(child, guard);
            held.remove(node, guard);
            drop(unnaming);
            drop(lock);
            drop(held);
            self.reclaim_if(link_state, child, guard);
            return Ok(self.to_sync(dir));
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
            self.note_late_release();
            LinkState::Orphan
        }
    }

    /// Removes an empty directory (rmdir).
    pub fn remove_directory(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<()> {
        self.rmdir(caller, Place::Name(parent, name))
    }

    /// As [`Namespace::remove_directory`], wherever `place` is.
    pub(crate) fn rmdir(&self, caller: &Caller, place: Place<'_>) -> Result<()> {
        let to_sync = self.rmdir_name(caller, place)?;
        self.sync_directory(to_sync)
    }

    fn rmdir_name(&self, caller: &Caller, place: Place<'_>) -> Result<Option<Ino>> {
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
        Ok(self.to_sync(located.dir))
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
        self.learn_emptiness(child, names, guard)?;
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
        let names = match self.check_rmdir(child, guard) {
            Ok(names) => names,
            // That counts if the name still names it.
            Err(error) if located.names(child, guard)? => return Err(error),
            Err(_) => return Ok(false),
        };
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
        // The child may be what died, when it was replaced; in a dead parent it is not found again.
        let Ok(held) = lock_all(&requests, guard) else {
            return Ok(false);
        };
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
        let entry = || entry_record(dir, held.get(0), name.as_there(node), true, None);
        let linked = || Record::linked(child, 0, link_state);
        let unlinked = Record::LinkDelta {
            ino: dir.ino,
            delta: -1,
        };
        let touched = [dir.modified(now), child.changed(now)];
        self.log_group(|| [entry(), linked(), unlinked], 0, &touched);
        child.set_link_count(&lock, 0);
        dir.add_directory_links(-1, self.geometry.directory_links_counted_max);
        held.kill(names, guard);
        let unnaming = self.inodes.begin_unnaming(child, guard);
        held.get(0).note_generation(|| self.log.current());
        held.get(0).remove(node, guard);
        drop(unnaming);
        drop(lock);
        drop(held);
        self.reclaim_if(link_state, child, guard);
        Ok(true)
    }

    /// EEXIST when a name is there, EBUSY when the store could not tell it apart from those that
    /// are.
    fn check_free(
        &self,
        dir: &Inode,
        table: &NameTable,
        held: &LockedBucket<'_>,
        name: HashedName<'_>,
        guard: &Guard,
    ) -> Result<()> {
        match held.find(name, guard) {
            Some(_) => Err(Error::Exists),
            None => self.check_room(dir, table, held, name, guard),
        }
    }

    /// EBUSY when the store could not tell a name that is not there apart from those that are.
    pub(crate) fn check_room(
        &self,
        dir: &Inode,
        table: &NameTable,
        held: &LockedBucket<'_>,
        name: HashedName<'_>,
        guard: &Guard,
    ) -> Result<()> {
        match table.has_room(held, name, dir.ino == self.root(), guard) {
            true => Ok(()),
            false => Err(Error::Busy),
        }
    }

    /// EPERM for a name that the store keeps to itself (Linux `xattr_hide_revalidate`).
    pub(crate) fn check_not_hidden(&self, dir: &Core, name: &[u8]) -> Result<()> {
        let is_hidden = |classes: &NameClasses| name == classes.hidden_in_root;
        match dir.ino == self.root() && self.geometry.name_classes.is_some_and(is_hidden) {
            true => Err(Error::NotPermitted),
            false => Ok(()),
        }
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

/// Whether a name may be made: EEXIST when it is there, ENOENT when a slash follows what shall not
/// be a directory, EINVAL for a name with `/` or NUL, EPERM for one that the store keeps to itself.
fn check_new_name(
    namespace: &Namespace,
    located: &Located<'_>,
    may_have_slash: bool,
    guard: &Guard,
) -> Result<()> {
    let name = located.name();
    check_length(namespace, name.bytes)?;
    namespace.check_text(name)?;
    let (dir, table) = (located.dir, located.table);
    namespace.check_not_hidden(dir, name.bytes)?;
    if matches!(name.bytes, b"." | b"..")
        || table.find(name, guard).is_some()
        || namespace.learn(dir, table, name, guard)?
    {
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
