//! Rename: replace, NOREPLACE, EXCHANGE and WHITEOUT.
//!
//! # Order
//! 1. A directory that changes its parent: the topology lock first. Under it no other directory
//!    changes its parent, so whether `from` is an ancestor of `to` cannot change any more.
//! 2. The resize lock of a directory that is replaced (it must be empty, and dies).
//! 3. The buckets of both names, and all of the replaced directory's, in the order of
//!    [`lock_all`].
//! 4. The inodes that change, in ascending order of number.
//!
//! # Steps
//! `try_rename` looks the names up and checks all that can be told without locks, locks as above,
//! looks again (`look_again`), and then, when nothing can fail any more, works out what else
//! changes (`effects`), logs it, moves the names and shows the rest. `docs/locking.md` has the
//! argument that this neither deadlocks nor makes loops.

use crossbeam_epoch::{Guard, Owned};
use finefs_locks::MutexGuard;
use finefs_locks::primitive::atomic::Ordering;
use smallvec::SmallVec;

use crate::access::acls::Inherited;
use crate::access::permission::{EXECUTE, WRITE};
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::{LinkState, Plan};
use crate::base::types::{Caller, FileKind, Ino, Timestamp};
use crate::commit::oplog::{Group, Record};
use crate::inode::{Core, Guarded, Inode, Stamped};
use crate::names::name_table::{HashedName, LockedBuckets, NameTable, Node, Request, lock_all};
use crate::namespace::{Namespace, Reservation};
use crate::operations::entries::{check_old_name, entry_record};
use crate::operations::new_inode::{Allotted, New};
use crate::operations::walk::{Located, Place};
use crate::schemes::Call;

/// How a rename treats a name that is there already (renameat2(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RenameMode {
    /// It is replaced.
    #[default]
    Replace,
    /// EEXIST.
    NoReplace,
    /// The two change places; both must be there.
    Exchange,
    /// As [`RenameMode::Replace`], and the old name then names a whiteout of overlayfs: a new
    /// character device 0:0 without permissions.
    Whiteout,
    /// As [`RenameMode::NoReplace`], with a whiteout.
    WhiteoutNoReplace,
}

impl RenameMode {
    /// A name that is there is an error.
    fn keeps_existing(self) -> bool {
        matches!(self, RenameMode::NoReplace | RenameMode::WhiteoutNoReplace)
    }

    fn leaves_whiteout(self) -> bool {
        matches!(self, RenameMode::Whiteout | RenameMode::WhiteoutNoReplace)
    }
}

/// One of the two names.
struct Side<'a, 'g> {
    dir: &'g Inode,
    table: &'g NameTable,
    name: HashedName<'a>,
}

/// What a name names, as last looked at.
type Target<'g> = Option<&'g Inode>;

/// A directory that is replaced, and its names.
type Dying<'g> = Option<(&'g Inode, &'g NameTable)>;

/// A rename: both names and what they name, as last looked at.
struct Renaming<'a, 'g> {
    from: Side<'a, 'g>,
    to: Side<'a, 'g>,
    /// Which of the names a slash follows.
    slashes: (bool, bool),
    moved: &'g Inode,
    /// What is replaced or exchanged.
    victim: Target<'g>,
    mode: RenameMode,
    /// `to` was encrypted when it was looked at.
    was_encrypted: bool,
}

/// Where the names stand, once their buckets are held.
struct Nodes<'g> {
    from: &'g Node,
    to: Option<&'g Node>,
}

/// What a rename changes beside the names.
#[derive(Default)]
struct Effects<'g> {
    /// Subdirectories that come or go. In one directory all of them are `from`'s.
    from_links: i32,
    to_links: i32,
    /// Directories that get another parent.
    parents: SmallVec<[(&'g Inode, Ino); 2]>,
    /// What loses its name, the links that it keeps, and what becomes of it.
    replaced: Option<(&'g Inode, u32, LinkState)>,
    /// What the old name names from now on.
    back: Option<(Ino, FileKind)>,
}

/// A whiteout that is to be made: its number, given back unless it is used, its inode, and what it
/// inherits.
struct Whiteout<'n> {
    allotted: Allotted<'n>,
    inode: Owned<Inode>,
    inherited: Option<Box<Inherited>>,
}

impl Namespace {
    /// Gives the inode at `from` the name `to`.
    pub fn rename(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (Place::Name(from.0, from.1), Place::Name(to.0, to.1));
        self.rename_places(caller, from, to, mode)
    }

    /// As [`Namespace::rename`], wherever the places are.
    pub(crate) fn rename_places(
        &self,
        caller: &Caller,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let to_sync = self.with_space(|| {
            loop {
                if let Some(to_sync) = self.try_rename(caller, from, to, mode)? {
                    return Ok(to_sync);
                }
                finefs_locks::primitive::thread::yield_now();
            }
        })?;
        // One commit has both.
        self.sync_directory(to_sync)
    }

    /// One attempt; `None` when what it looked at changed before it held the locks, else a
    /// directory that is to be synced.
    fn try_rename(
        &self,
        caller: &Caller,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
    ) -> Result<Option<Option<Ino>>> {
        let operation = self.begin_change(Call::Rename)?;
        let guard = &operation.guard;
        let from = self.locate(caller, from, guard)?;
        let to = self.locate(caller, to, guard)?;
        let renaming = self.look_up(&from, &to, mode, guard)?;
        let refused = self.check(caller, &renaming, guard).err();
        // POSIX rename() does nothing where both name one inode. The names were looked up one after
        // the other: what was seen counts if they name this at once.
        if refused.is_some() || renaming.is_of_one_inode() {
            return renaming.settled(refused, guard);
        }
        let _topology = self.lock_topology(&renaming, guard)?;

        let whiteout = self.whiteout(caller, &renaming, guard)?;
        let reservation = self.reserve_rename(&renaming, whiteout.as_ref(), guard)?;
        let dying = self.dying(&renaming, guard)?;
        let resize = dying.map(|(_, names)| names.lock_resize());
        let requests = renaming.requests(dying, resize.as_ref());
        let held = match lock_all(&requests, guard) {
            Ok(held) => held,
            // The victim may be what died; only a dead parent is an error.
            Err(_) if renaming.victim.is_some() => return Ok(None),
            Err(dead) => return Err(dead.into()),
        };
        let Some(nodes) = renaming.look_again(&held, guard) else {
            return Ok(None);
        };
        self.check_locked(&renaming, &held, &nodes, dying, guard)?;
        let locks = renaming.lock_inodes();
        if renaming.inodes().any(Inode::is_gone) {
            return Ok(None);
        }

        // Nothing fails from here on.
        let whiteout = self.insert_whiteout(whiteout, guard)?;
        let effects = self.effects(&renaming, &locks, whiteout.as_ref());
        let mut group = renaming.records(&held, &nodes, &effects);
        let mut touched = renaming.touched(self.now());
        if let Some((inode, records)) = whiteout {
            group.extend(records);
            touched.push(inode.untimed());
        }
        self.log_group(|| group, reservation.take(), &touched);
        let wants_room = self.move_names(&renaming, &held, nodes, &effects, guard);
        if let Some((_, names)) = dying {
            held.kill(names, guard);
        }
        self.show_effects(&renaming, &locks, &effects);
        drop(locks);
        drop(held);
        drop(requests);
        drop(resize);
        if wants_room {
            renaming.to.table.grow(renaming.to.dir.ino, guard);
        }
        if let Some((victim, _, link_state)) = effects.replaced {
            self.reclaim_if(link_state, victim, guard);
        }
        Ok(Some(
            self.to_sync(from.dir).or_else(|| self.to_sync(to.dir)),
        ))
    }

    /// What only the locks tell: ENOTEMPTY for a directory that is replaced, EBUSY where there is
    /// no room for the new name.
    fn check_locked<'g>(
        &self,
        renaming: &Renaming<'_, 'g>,
        held: &LockedBuckets<'g>,
        nodes: &Nodes<'g>,
        dying: Dying<'g>,
        guard: &Guard,
    ) -> Result<()> {
        if dying.is_some_and(|(_, names)| names.is_partial() || !held.is_empty(names, guard)) {
            return Err(Error::NotEmpty);
        }
        if nodes.to.is_some() {
            return Ok(());
        }
        let Side { dir, table, name } = renaming.to;
        self.check_room(dir, table, held.get(1), name, guard)
    }

    /// Reserves what the new name can need, and a whiteout that inherits attributes.
    fn reserve_rename(
        &self,
        renaming: &Renaming<'_, '_>,
        whiteout: Option<&Whiteout<'_>>,
        guard: &Guard,
    ) -> Result<Reservation<'_>> {
        let add = Plan::AddEntry {
            entries_about: renaming.to.table.length_about(guard),
        };
        match whiteout.is_some_and(Whiteout::has_xattrs) {
            false => self.reserve(&[add]),
            true => self.reserve(&[add, Plan::Xattr]),
        }
    }

    /// Makes ready what the old name is to name, if the rename leaves a whiteout.
    fn whiteout(
        &self,
        caller: &Caller,
        renaming: &Renaming<'_, '_>,
        guard: &Guard,
    ) -> Result<Option<Whiteout<'_>>> {
        if !renaming.mode.leaves_whiteout() {
            return Ok(None);
        }
        let (dir, kind) = (renaming.from.dir, FileKind::CharDevice);
        let new = New::node(kind, 0, 0, 0)?;
        let inherited = self.inherited(dir, kind, new.permissions, guard)?;
        let allotted = self.allot(dir.ino, kind)?;
        let attributes = self.new_attributes(caller, dir, &allotted, &new, inherited.as_deref())?;
        let core = Core::created(attributes, self.inode_config(), dir.ino, None);
        let inode = Owned::new(Inode::created(core, new.references));
        if let Some(inherited) = &inherited {
            self.give_inherited(&inode, inherited)?;
        }
        Ok(Some(Whiteout {
            allotted,
            inode,
            inherited,
        }))
    }

    /// Puts a whiteout into the table of inodes, where nobody finds it before its name is
    /// published. Gives it with the records of its creation.
    fn insert_whiteout<'g>(
        &self,
        whiteout: Option<Whiteout<'_>>,
        guard: &'g Guard,
    ) -> Result<Option<Inserted<'g>>> {
        let Some(mut whiteout) = whiteout else {
            return Ok(None);
        };
        whiteout.allotted.is_used = true;
        let inode = self.insert(whiteout.inode, guard)?;
        let (ino, symlink) = (inode.ino, None);
        let mut group = Group::new();
        group.push(Record::Created { ino, symlink });
        if let Some(inherited) = whiteout.inherited {
            group.extend(inherited.records(inode));
        }
        Ok(Some((inode, group)))
    }

    /// Finds what the names name, without a lock.
    fn look_up<'a, 'g>(
        &'g self,
        from: &'a Located<'g>,
        to: &'a Located<'g>,
        mode: RenameMode,
        guard: &'g Guard,
    ) -> Result<Renaming<'a, 'g>> {
        for located in [from, to] {
            located.table.expect_change(located.name(), guard);
        }
        let slashes = (from.has_slash, to.has_slash);
        let from = self.side(from, Error::Busy)?;
        if matches!(to.name().bytes, b"." | b"..") {
            return Err(match mode {
                mode if mode.keeps_existing() => Error::Exists,
                _ => Error::Busy,
            });
        }
        let moved = self.child(from.dir, from.table, from.name, guard)?;
        let to = self.side(to, Error::Busy)?;
        let victim = match self.child(to.dir, to.table, to.name, guard) {
            Ok(victim) => Some(victim),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        Ok(Renaming {
            was_encrypted: to.dir.flags().contains(FileFlags::ENCRYPTED),
            from,
            to,
            slashes,
            moved,
            victim,
            mode,
        })
    }

    fn side<'a, 'g>(&self, located: &'a Located<'g>, dots: Error) -> Result<Side<'a, 'g>> {
        let (dir, table, name) = (located.dir, located.table, located.name());
        check_old_name(self, name.bytes, dots)?;
        self.check_not_hidden(dir, name.bytes)?;
        if name.bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(Error::Invalid);
        }
        Ok(Side { dir, table, name })
    }

    /// Whether the rename may be, as far as a look without locks tells; of one inode always.
    fn check(&self, caller: &Caller, renaming: &Renaming<'_, '_>, guard: &Guard) -> Result<()> {
        let (moved, victim) = (renaming.moved, renaming.victim);
        check_there(renaming.slashes, moved, victim, renaming.mode)?;
        self.check_above(renaming, guard)?;
        if renaming.is_of_one_inode() {
            return Ok(());
        }
        self.check_rename(caller, renaming)
    }

    /// EINVAL or ENOTEMPTY when one of the two lies above the other's place; Linux tells that
    /// before all that follows. What decides it is looked at again under the topology lock.
    fn check_above(&self, renaming: &Renaming<'_, '_>, guard: &Guard) -> Result<()> {
        let (from, to) = (&renaming.from, &renaming.to);
        if !renaming.changes_parent() {
            return Ok(());
        }
        let looked = |moved, into| match self.check_no_loop(moved, into, guard) {
            // Directories that others move meanwhile may look so.
            Err(Error::Corrupt(_)) => Ok(()),
            result => result,
        };
        looked(renaming.moved, to.dir)?;
        let Some(victim) = renaming.victim else {
            return Ok(());
        };
        match looked(victim, from.dir) {
            Err(Error::Invalid) if renaming.mode != RenameMode::Exchange => Err(Error::NotEmpty),
            result => result,
        }
    }

    fn check_rename(&self, caller: &Caller, renaming: &Renaming<'_, '_>) -> Result<()> {
        let (from, to) = (&renaming.from, &renaming.to);
        let (moved, victim) = (renaming.moved, renaming.victim);
        let changes_parent = renaming.changes_parent();
        renaming.check_projects()?;
        self.check_remove(caller, from.dir, moved)?;
        match victim {
            Some(victim) => self.check_remove(caller, to.dir, victim)?,
            None => self.check_access(caller, to.dir, WRITE | EXECUTE)?,
        }
        to.dir.check_names()?;
        self.check_key(from.dir)?;
        self.check_key(to.dir)?;
        if changes_parent {
            self.check_policy(to.dir, moved)?;
            if let Some(exchanged) = renaming.exchanged() {
                self.check_policy(from.dir, exchanged)?;
            }
        }
        for inode in [Some(moved), renaming.exchanged()].into_iter().flatten() {
            // Its ".." is rewritten. Linux asks the owner for the permission too.
            if is_directory(inode) && changes_parent {
                self.check_access(caller, inode, WRITE)?;
            }
        }
        if renaming.inodes().any(|inode| inode.ino == self.root()) {
            return Err(Error::Busy);
        }
        if let Some(victim) = renaming.replaced() {
            match (is_directory(moved), is_directory(victim)) {
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                _ => {}
            }
        } else if is_directory(moved) && changes_parent {
            self.check_directory_links(to.dir)?;
        }
        Ok(())
    }

    /// Where a directory changes its parent, locks the topology, and looks again whether a loop
    /// would come of it.
    fn lock_topology(
        &self,
        renaming: &Renaming<'_, '_>,
        guard: &Guard,
    ) -> Result<Option<MutexGuard<'_, ()>>> {
        if !renaming.changes_parent() {
            return Ok(None);
        }
        // What changes its parent must be loaded: a load later on would bring the old one back.
        for inode in renaming.inodes().filter(|inode| is_directory(inode)) {
            self.table(inode)?;
            inode.check_names()?;
        }
        if !renaming.moves_directory() {
            return Ok(None);
        }
        let topology = &self.topology;
        let held = (self.scheme).wait(|| topology.try_lock(), || topology.lock());
        self.note_load(self.check_no_loop(renaming.moved, renaming.to.dir, guard))?;
        if let Some(victim) = renaming.exchanged() {
            self.note_load(self.check_no_loop(victim, renaming.from.dir, guard))?;
        }
        Ok(Some(held))
    }

    /// The directory that is replaced, if one is, with its names.
    fn dying<'g>(&self, renaming: &Renaming<'_, 'g>, guard: &Guard) -> Result<Dying<'g>> {
        let Some(victim) = renaming.replaced().filter(|victim| is_directory(victim)) else {
            return Ok(None);
        };
        let names = self.table(victim)?;
        victim.check_names()?;
        match self.learn_emptiness(victim, names, guard) {
            // That is told where the name is known to name it.
            Ok(()) | Err(Error::NotEmpty) => {}
            Err(error) => return Err(error),
        }
        Ok(Some((victim, names)))
    }

    /// What changes beside the names. A replaced inode's last name counts as gone from here on.
    fn effects<'g>(
        &self,
        renaming: &Renaming<'_, 'g>,
        locks: &InodeLocks<'g>,
        whiteout: Option<&Inserted<'g>>,
    ) -> Effects<'g> {
        let (from, to) = (&renaming.from, &renaming.to);
        let changes_parent = renaming.changes_parent();
        let mut effects = Effects::default();
        if is_directory(renaming.moved) && changes_parent {
            effects.from_links -= 1;
            effects.to_links += 1;
            effects.parents.push((renaming.moved, to.dir.ino));
        }
        if let Some(victim) = renaming.exchanged()
            && is_directory(victim)
            && changes_parent
        {
            effects.from_links += 1;
            effects.to_links -= 1;
            effects.parents.push((victim, from.dir.ino));
        }
        if let Some(victim) = renaming.replaced() {
            let links = if is_directory(victim) {
                effects.to_links -= 1;
                0
            } else {
                victim.link_count().saturating_sub(1)
            };
            let link_state = self.link_state_of(victim, locks.of(victim), links);
            effects.replaced = Some((victim, links, link_state));
        }
        let back = renaming.exchanged().or(whiteout.map(|(inode, _)| *inode));
        effects.back = back.map(|inode| (inode.ino, inode.kind));
        if !changes_parent {
            effects.from_links += effects.to_links;
            effects.to_links = 0;
        }
        effects
    }

    /// Lets the names name what they name from now on; true when the table of the new one wants
    /// room.
    fn move_names<'g>(
        &self,
        renaming: &Renaming<'_, 'g>,
        held: &LockedBuckets<'g>,
        nodes: Nodes<'g>,
        effects: &Effects<'g>,
        guard: &Guard,
    ) -> bool {
        let (to, moved) = (&renaming.to, renaming.moved);
        let moving = renaming.moves_directory().then(|| self.paths.begin_move());
        let unnaming = (
            self.inodes.begin_unnaming(moved, guard),
            (renaming.victim).map(|victim| self.inodes.begin_unnaming(victim, guard)),
        );
        for side in [0, 1] {
            held.get(side).note_generation(|| self.log.current());
        }
        held.begin_rename(guard);
        let wants_room = match nodes.to {
            Some(node) => {
                held.get(1).replace(node, moved.ino, moved.kind, guard);
                false
            }
            None => to
                .table
                .insert(held.get(1), to.name, moved.ino, moved.kind, guard),
        };
        match effects.back {
            Some((ino, kind)) => held.get(0).replace(nodes.from, ino, kind, guard),
            None => held.get(0).remove(nodes.from, guard),
        }
        for (dir, parent) in &effects.parents {
            if let Ok(body) = dir.directory() {
                body.parent.store(parent.0, Ordering::Release);
            }
        }
        held.end_rename(guard);
        drop(unnaming);
        drop(moving);
        wants_room
    }

    /// Sets link counts.
    fn show_effects<'g>(
        &self,
        renaming: &Renaming<'_, 'g>,
        locks: &InodeLocks<'g>,
        effects: &Effects<'g>,
    ) {
        let (from, to) = (&renaming.from, &renaming.to);
        if let Some((victim, links, _)) = effects.replaced {
            victim.set_link_count(locks.of(victim), links);
        }
        let counted_max = self.geometry.directory_links_counted_max;
        from.dir
            .add_directory_links(effects.from_links, counted_max);
        to.dir.add_directory_links(effects.to_links, counted_max);
    }
}

/// Whether what `mode` asks for is there, and ENOTDIR where a slash follows the name of what is no
/// directory.
fn check_there(
    (slash_after_from, slash_after_to): (bool, bool),
    moved: &Inode,
    victim: Target<'_>,
    mode: RenameMode,
) -> Result<()> {
    let named_by_to = match (mode, victim) {
        (mode, Some(_)) if mode.keeps_existing() => return Err(Error::Exists),
        (RenameMode::Exchange, None) => return Err(Error::NotFound),
        (RenameMode::Exchange, Some(victim)) => victim,
        _ => moved,
    };
    let is_other = |inode: &Inode| inode.kind != FileKind::Directory;
    if slash_after_from && is_other(moved) || slash_after_to && is_other(named_by_to) {
        return Err(Error::NotADirectory);
    }
    Ok(())
}

fn is_directory(inode: &Inode) -> bool {
    inode.kind == FileKind::Directory
}

/// A whiteout in the table of inodes, and the records of its creation.
type Inserted<'g> = (&'g Inode, Group);

impl Whiteout<'_> {
    fn has_xattrs(&self) -> bool {
        self.inherited.as_deref().is_some_and(Inherited::has_xattrs)
    }
}

impl<'a, 'g> Side<'a, 'g> {
    fn request(&self) -> Request<'a, 'g> {
        Request::Name {
            dir: self.dir.ino,
            table: self.table,
            name: self.name,
        }
    }
}

impl<'a, 'g> Renaming<'a, 'g> {
    /// EXDEV where a directory that hands its project on would name what is of another.
    fn check_projects(&self) -> Result<()> {
        let may = |dir: &Inode, named: &Inode| dir.ownership().may_name(named.ownership());
        let may_back = |named| may(self.from.dir, named);
        match may(self.to.dir, self.moved) && self.exchanged().is_none_or(may_back) {
            true => Ok(()),
            false => Err(Error::CrossesFileSystems),
        }
    }

    fn changes_parent(&self) -> bool {
        self.from.dir.ino != self.to.dir.ino
    }

    /// True when a directory gets another name.
    fn moves_directory(&self) -> bool {
        is_directory(self.moved) || self.exchanged().is_some_and(is_directory)
    }

    fn is_of_one_inode(&self) -> bool {
        self.victim
            .is_some_and(|victim| victim.ino == self.moved.ino)
    }

    /// What gets the old name.
    fn exchanged(&self) -> Target<'g> {
        self.victim.filter(|_| self.mode == RenameMode::Exchange)
    }

    /// What loses its name.
    fn replaced(&self) -> Target<'g> {
        self.victim.filter(|_| self.mode != RenameMode::Exchange)
    }

    /// The inode that moves, and the one that is replaced or exchanged.
    fn inodes(&self) -> impl Iterator<Item = &'g Inode> {
        [self.moved].into_iter().chain(self.victim)
    }

    /// The buckets of both names, and all of a directory that dies.
    fn requests<'r>(
        &self,
        dying: Dying<'g>,
        resize: Option<&'r MutexGuard<'g, ()>>,
    ) -> SmallVec<[Request<'r, 'g>; 3]>
    where
        'a: 'r,
    {
        let mut requests: SmallVec<[Request<'r, 'g>; 3]> = SmallVec::new();
        requests.push(self.from.request());
        requests.push(self.to.request());
        if let (Some((victim, names)), Some(resize)) = (dying, resize) {
            requests.push(Request::Whole {
                dir: victim.ino,
                table: names,
                resize,
            });
        }
        requests
    }

    /// What a rename that is refused, or has nothing to do, comes to: `None` where the names no
    /// longer name what they named when they were looked up.
    fn settled(&self, refused: Option<Error>, guard: &'g Guard) -> Result<Option<Option<Ino>>> {
        let held = lock_all(&self.requests(None, None), guard)?;
        match (self.look_again(&held, guard), refused) {
            (None, _) => Ok(None),
            (Some(_), Some(error)) => Err(error),
            (Some(_), None) => Ok(Some(None)),
        }
    }

    /// The nodes of both names, whose buckets are held, if they name what they named before and
    /// nobody gave the directory a key.
    fn look_again(&self, held: &LockedBuckets<'g>, guard: &'g Guard) -> Option<Nodes<'g>> {
        let is_encrypted = self.to.dir.flags().contains(FileFlags::ENCRYPTED);
        if is_encrypted != self.was_encrypted {
            return None;
        }
        let from = held.get(0).find(self.from.name, guard);
        let to = held.get(1).find(self.to.name, guard);
        let from = from.filter(|node| node.ino == self.moved.ino)?;
        let is_same = to.map(|node| node.ino) == self.victim.map(|victim| victim.ino);
        is_same.then_some(Nodes { from, to })
    }

    /// Locks the inodes that change, in ascending order of number.
    fn lock_inodes(&self) -> InodeLocks<'g> {
        let mut inodes: SmallVec<[&Inode; 2]> = self.inodes().collect();
        inodes.sort_unstable_by_key(|inode| inode.ino);
        InodeLocks {
            locks: inodes
                .into_iter()
                .map(|inode| (inode.ino, inode.lock()))
                .collect(),
        }
    }

    /// The log group.
    fn records(&self, held: &LockedBuckets<'g>, nodes: &Nodes<'g>, effects: &Effects<'g>) -> Group {
        let (from, to, moved) = (&self.from, &self.to, self.moved);
        let mut group = Group::new();
        let names = Some((moved.ino, moved.kind));
        // A name that is there already stays as it is written.
        let to_name = nodes.to.map_or(to.name, |node| to.name.as_there(node));
        let is_there = nodes.to.is_some();
        group.push(entry_record(to.dir, held.get(1), to_name, is_there, names));
        let (held_from, back) = (held.get(0), effects.back);
        let from_name = from.name.as_there(nodes.from);
        group.push(entry_record(from.dir, held_from, from_name, true, back));
        group.push(Record::touched(moved));
        if let Some(victim) = self.exchanged() {
            group.push(Record::touched(victim));
        }
        if let Some((victim, link_count, link_state)) = effects.replaced {
            group.push(Record::linked(victim, link_count, link_state));
        }
        for (dir, delta) in [(from.dir, effects.from_links), (to.dir, effects.to_links)] {
            if delta != 0 {
                group.push(Record::LinkDelta {
                    ino: dir.ino,
                    delta: i64::from(delta),
                });
            }
        }
        for (dir, parent) in &effects.parents {
            group.push(Record::Parent {
                dir: dir.ino,
                sequence: dir.next_sequence(),
                parent: *parent,
            });
        }
        group
    }

    /// What the log group touches.
    fn touched(&self, now: Timestamp) -> SmallVec<[Stamped<'g>; 4]> {
        let dirs = [self.from.dir, self.to.dir].map(|dir| dir.modified(now));
        let inodes = self.inodes().map(|inode| inode.changed(now));
        dirs.into_iter().chain(inodes).collect()
    }
}

/// The locks of the inode that moves and the one that is replaced or exchanged.
struct InodeLocks<'g> {
    locks: SmallVec<[(Ino, MutexGuard<'g, Guarded>); 2]>,
}

impl<'g> InodeLocks<'g> {
    fn of(&self, inode: &Inode) -> &MutexGuard<'g, Guarded> {
        let (_, lock) = self
            .locks
            .iter()
            .find(|(ino, _)| *ino == inode.ino)
            .expect("rename locks every inode that it changes");
        lock
    }
}
