//! Rename: replace, NOREPLACE and EXCHANGE.
//!
//! # Order
//! 1. A directory that changes its parent: the topology lock first. Under it no other directory
//!    changes its parent, so whether `from` is an ancestor of `to` cannot change any more.
//! 2. The resize lock of a directory that is replaced (it must be empty, and dies).
//! 3. The buckets of both names, and all of the replaced directory's, in the order of
//!    [`lock_all`].
//! 4. The inodes that change, in ascending order of number.
//!
//! `docs/locking.md` has the argument that this neither deadlocks nor makes loops.

use crossbeam_epoch::Guard;
use finefs_locks::MutexGuard;
use smallvec::SmallVec;

use crate::access::permission::{EXECUTE, WRITE};
use crate::base::error::{Error, Result};
use crate::base::store::Plan;
use crate::base::types::{Caller, FileKind, Ino};
use crate::commit::oplog::{Group, Record};
use crate::inode::{Guarded, Inode, Time};
use crate::names::name_table::{HashedName, NameTable, Request, lock_all};
use crate::namespace::Namespace;
use crate::operations::entries::{check_old_name, entry_record};
use crate::operations::walk::{Located, Place};
use crate::schemes::scheme::Call;

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
}

/// One of the two names.
struct Side<'a, 'g> {
    dir: &'g Inode,
    table: &'g NameTable,
    name: HashedName<'a>,
}

/// What a name names, as last looked at.
type Target<'g> = Option<&'g Inode>;

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
        self.with_space(|| {
            loop {
                if self.try_rename(caller, from, to, mode)? {
                    return Ok(());
                }
                finefs_locks::primitive::thread::yield_now();
            }
        })
    }

    /// One attempt; false when what it looked at changed before it held the locks.
    fn try_rename(
        &self,
        caller: &Caller,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
    ) -> Result<bool> {
        let operation = self.begin_change(Call::Rename)?;
        let guard = &operation.guard;
        let from = self.locate(caller, from, guard)?;
        let to = self.locate(caller, to, guard)?;
        for located in [&from, &to] {
            located.table.expect_change(located.name(), guard);
        }
        let slashes = (from.has_slash, to.has_slash);
        let from = self.side(&from, Error::Busy)?;
        if matches!(to.name().bytes, b"." | b"..") {
            return Err(match mode {
                RenameMode::NoReplace => Error::Exists,
                _ => Error::Busy,
            });
        }
        let moved = self.child(from.dir, from.table, from.name, guard)?;
        let to = self.side(&to, Error::Busy)?;
        let victim = match self.child(to.dir, to.table, to.name, guard) {
            Ok(victim) => Some(victim),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        check_there(slashes, moved, victim, mode)?;
        self.check_above(&from, &to, moved, victim, mode, guard)?;
        self.check_rename(caller, &from, &to, moved, victim, mode)?;
        if victim.is_some_and(|victim| victim.ino == moved.ino) {
            // Two names of one inode: POSIX rename() does nothing then.
            return Ok(true);
        }
        let changes_parent = from.dir.ino != to.dir.ino;
        let moves_directory = moved.kind == FileKind::Directory
            || (mode == RenameMode::Exchange
                && victim.is_some_and(|victim| victim.kind == FileKind::Directory));
        if changes_parent {
            // What changes its parent must be loaded: a load later on would bring the old one back.
            for inode in [Some(moved), victim].into_iter().flatten() {
                if inode.kind == FileKind::Directory {
                    self.table(inode)?;
                    inode.check_names()?;
                }
            }
        }
        let topology = (changes_parent && moves_directory).then(|| {
            let topology = &self.topology;
            self.scheme.wait(|| topology.try_lock(), || topology.lock())
        });
        if topology.is_some() {
            self.check_no_loop(moved, to.dir, guard)?;
            if let (RenameMode::Exchange, Some(victim)) = (mode, victim) {
                self.check_no_loop(victim, from.dir, guard)?;
            }
        }

        let add = Plan::AddEntry {
            entries_about: to.table.length_about(guard),
        };
        let reservation = self.reserve(&[add])?;
        let dying = match (mode, victim) {
            (RenameMode::Replace, Some(victim)) if victim.kind == FileKind::Directory => {
                let names = self.table(victim)?;
                victim.check_names()?;
                Some((victim, names))
            }
            _ => None,
        };
        let resize = dying.map(|(_, names)| names.lock_resize());
        let mut requests: SmallVec<[Request<'_, '_>; 3]> = SmallVec::new();
        requests.push(from.request());
        requests.push(to.request());
        if let (Some((victim, names)), Some(resize)) = (dying, &resize) {
            requests.push(Request::Whole {
                dir: victim.ino,
                table: names,
                resize,
            });
        }
        let held = match lock_all(&requests, guard) {
            Ok(held) => held,
            // The victim may be what died; only a dead parent is an error.
            Err(_) if victim.is_some() => return Ok(false),
            Err(dead) => return Err(dead.into()),
        };
        let from_node = held.get(0).find(from.name, guard);
        let to_node = held.get(1).find(to.name, guard);
        let Some(from_node) = from_node.filter(|node| node.ino == moved.ino) else {
            return Ok(false);
        };
        if to_node.map(|node| node.ino) != victim.map(|victim| victim.ino) {
            return Ok(false);
        }
        if let Some((_, names)) = dying
            && !held.is_empty(names, guard)
        {
            return Err(Error::NotEmpty);
        }
        let locks = lock_inodes(moved, victim);
        if moved.is_gone() || victim.is_some_and(|victim| victim.is_gone()) {
            return Ok(false);
        }

        // Nothing fails from here on.
        let now = self.now();
        let mut group = Group::new();
        group.push(entry_record(
            to.dir,
            held.get(1),
            to.name,
            to_node.is_some(),
            Some((moved.ino, moved.kind)),
        ));
        let back = match (mode, victim) {
            (RenameMode::Exchange, Some(victim)) => Some((victim.ino, victim.kind)),
            _ => None,
        };
        group.push(entry_record(from.dir, held.get(0), from.name, true, back));
        group.push(Record::Touched { ino: moved.ino });
        let (mut from_links, mut to_links) = (0, 0);
        let mut parents: SmallVec<[(&Inode, Ino); 2]> = SmallVec::new();
        if moved.kind == FileKind::Directory && changes_parent {
            from_links -= 1;
            to_links += 1;
            parents.push((moved, to.dir.ino));
        }
        let mut victim_links = None;
        if let Some(victim) = victim {
            if mode == RenameMode::Exchange {
                group.push(Record::Touched { ino: victim.ino });
                if victim.kind == FileKind::Directory && changes_parent {
                    from_links += 1;
                    to_links -= 1;
                    parents.push((victim, from.dir.ino));
                }
            } else {
                let is_directory = victim.kind == FileKind::Directory;
                if is_directory {
                    to_links -= 1;
                }
                let links = if is_directory {
                    0
                } else {
                    victim.link_count().saturating_sub(1)
                };
                let lock = locks.of(victim);
                let fate = self.fate_of(victim, lock, links);
                group.push(Record::Linked {
                    ino: victim.ino,
                    sequence: victim.next_sequence(),
                    link_count: links,
                    fate,
                });
                victim_links = Some((victim, links, fate));
            }
        }
        if from.dir.ino == to.dir.ino {
            (from_links, to_links) = (from_links + to_links, 0);
        }
        for (dir, delta) in [(from.dir, from_links), (to.dir, to_links)] {
            if delta != 0 {
                group.push(Record::LinkDelta {
                    ino: dir.ino,
                    delta: i64::from(delta),
                });
            }
        }
        for (dir, parent) in &parents {
            group.push(Record::Parent {
                dir: dir.ino,
                sequence: dir.next_sequence(),
                parent: *parent,
            });
        }
        let touched: SmallVec<[&crate::inode::Core; 4]> = [from.dir, to.dir, moved]
            .into_iter()
            .chain(victim)
            .map(|inode| &**inode)
            .collect();
        self.log_group(|| group, reservation.take(), &touched);

        let moving = moves_directory.then(|| self.paths.begin_move());
        let losing = (
            self.inodes.begin_loss(moved),
            victim.map(|victim| self.inodes.begin_loss(victim)),
        );
        held.begin_rename(guard);
        let wants_room = match to_node {
            Some(node) => {
                held.get(1).replace(node, moved.ino, moved.kind, guard);
                false
            }
            None => to
                .table
                .insert(held.get(1), to.name, moved.ino, moved.kind, guard),
        };
        match back {
            Some((ino, kind)) => held.get(0).replace(from_node, ino, kind, guard),
            None => held.get(0).remove(from_node, guard),
        }
        for (dir, parent) in &parents {
            if let Ok(body) = dir.directory() {
                body.parent
                    .store(parent.0, std::sync::atomic::Ordering::Release);
            }
        }
        held.end_rename(guard);
        drop(losing);
        drop(moving);
        if let Some((_, names)) = dying {
            held.kill(names, guard);
        }
        if let Some((victim, links, _)) = victim_links {
            victim.set_link_count(locks.of(victim), links);
        }
        let counted_max = self.geometry.directory_links_counted_max;
        from.dir.add_directory_links(from_links, counted_max);
        to.dir.add_directory_links(to_links, counted_max);
        moved.set_time(Time::Changed, now);
        if let Some(victim) = victim {
            victim.set_time(Time::Changed, now);
        }
        from.dir.set_modified(now);
        to.dir.set_modified(now);
        drop(locks);
        drop(held);
        drop(requests);
        drop(resize);
        if wants_room {
            to.table.grow(to.dir.ino, guard);
        }
        if let Some((victim, _, fate)) = victim_links {
            self.reclaim_if(fate, victim, guard);
        }
        Ok(true)
    }

    fn side<'a, 'g>(&self, located: &'a Located<'g>, dots: Error) -> Result<Side<'a, 'g>> {
        let (dir, table, name) = (located.dir, located.table, located.name());
        check_old_name(self, name.bytes, dots)?;
        if name.bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(Error::Invalid);
        }
        Ok(Side { dir, table, name })
    }

    /// EINVAL or ENOTEMPTY when one of the two lies above the other's place; Linux tells that
    /// before all that follows. What decides it is looked at again under the topology lock.
    fn check_above(
        &self,
        from: &Side<'_, '_>,
        to: &Side<'_, '_>,
        moved: &Inode,
        victim: Target<'_>,
        mode: RenameMode,
        guard: &Guard,
    ) -> Result<()> {
        if from.dir.ino == to.dir.ino {
            return Ok(());
        }
        self.check_no_loop(moved, to.dir, guard)?;
        let Some(victim) = victim else {
            return Ok(());
        };
        match self.check_no_loop(victim, from.dir, guard) {
            Err(Error::Invalid) if mode == RenameMode::Replace => Err(Error::NotEmpty),
            result => result,
        }
    }

    fn check_rename(
        &self,
        caller: &Caller,
        from: &Side<'_, '_>,
        to: &Side<'_, '_>,
        moved: &Inode,
        victim: Target<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let changes_parent = from.dir.ino != to.dir.ino;
        self.check_remove(caller, from.dir, moved)?;
        match victim {
            Some(victim) => self.check_remove(caller, to.dir, victim)?,
            None => self.check_access(caller, to.dir, WRITE | EXECUTE)?,
        }
        to.dir.check_names()?;
        let moved_is_directory = moved.kind == FileKind::Directory;
        let exchanged = victim.filter(|_| mode == RenameMode::Exchange);
        for inode in [Some(moved), exchanged].into_iter().flatten() {
            // Its ".." is rewritten. Linux asks the owner for the permission too.
            if inode.kind == FileKind::Directory && changes_parent {
                self.check_access(caller, inode, WRITE)?;
            }
        }
        if moved.ino == self.root() || victim.is_some_and(|victim| victim.ino == self.root()) {
            return Err(Error::Busy);
        }
        if let Some(victim) = victim.filter(|_| mode == RenameMode::Replace) {
            match (moved_is_directory, victim.kind == FileKind::Directory) {
                (true, false) => return Err(Error::NotADirectory),
                (false, true) => return Err(Error::IsADirectory),
                _ => {}
            }
        } else if moved_is_directory && changes_parent {
            self.check_directory_links(to.dir)?;
        }
        Ok(())
    }

    /// EINVAL when `moved` is `into` or above it. Stable under the topology lock.
    fn check_no_loop(&self, moved: &Inode, into: &Inode, guard: &Guard) -> Result<()> {
        if moved.kind != FileKind::Directory {
            return Ok(());
        }
        let mut at = into;
        loop {
            if at.ino == moved.ino {
                return Err(Error::Invalid);
            }
            if at.ino == self.root() {
                return Ok(());
            }
            let parent = self.parent_of(at)?;
            if parent == at.ino {
                return Ok(());
            }
            at = match self.inode(parent, guard) {
                Err(Error::Stale) => return Err(Error::NotFound),
                result => result?,
            };
        }
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
        (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists),
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

impl<'a, 'g> Side<'a, 'g> {
    fn request(&self) -> Request<'a, 'g> {
        Request::Name {
            dir: self.dir.ino,
            table: self.table,
            name: self.name,
        }
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

fn lock_inodes<'g>(moved: &'g Inode, victim: Target<'g>) -> InodeLocks<'g> {
    let mut inodes: SmallVec<[&Inode; 2]> = [moved].into_iter().chain(victim).collect();
    inodes.sort_unstable_by_key(|inode| inode.ino);
    InodeLocks {
        locks: inodes
            .into_iter()
            .map(|inode| (inode.ino, inode.lock()))
            .collect(),
    }
}
