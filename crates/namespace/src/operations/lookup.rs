//! What a name names, or a path that was walked before: found without a lock, and told later
//! whether it still holds.

use crossbeam_epoch::Guard;
use finefs_locks::primitive::thread;

use crate::access::permission::EXECUTE;
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::types::{Attributes, Caller, FileKind, Ino};
use crate::inode::slots::InodeSlot;
use crate::inode::{INODE_BYTES, Inode};
use crate::names::name_table::{HashedName, NameTable, Node};
use crate::names::path_cache::{End, Way};
use crate::namespace::Namespace;
use crate::schemes::Call;

/// What a name, or a path, was found to name.
#[derive(Clone, Copy)]
pub(crate) struct Named<'g> {
    pub inode: &'g Inode,
    evidence: Evidence<'g>,
}

/// By what it can be told later that it is still named so.
#[derive(Clone, Copy)]
enum Evidence<'g> {
    /// It is not: the names were `.` and `..`.
    Dots,
    /// The name itself.
    Name(&'g Node),
    /// The sequence counter of the names of inodes of this number.
    NameSeq(&'g InodeSlot, u64),
}

impl<'g> Named<'g> {
    /// What was named when inodes of its number had lost so many names.
    pub fn as_of(inode: &'g Inode, slot: &'g InodeSlot, name_seq: u64) -> Named<'g> {
        let evidence = Evidence::NameSeq(slot, name_seq);
        Named { inode, evidence }
    }

    /// True when the name named it when it was found: a number that became another inode's in
    /// between would tell, since it does so only after the name is marked.
    #[inline]
    pub fn is_named(self, guard: &Guard) -> bool {
        match self.evidence {
            Evidence::Dots => true,
            Evidence::Name(node) => !node.is_out(guard),
            Evidence::NameSeq(slot, name_seq) => slot.name_seq() == Some(name_seq),
        }
    }

    /// True when it was found by its name.
    pub fn is_by_name(self) -> bool {
        matches!(self.evidence, Evidence::Name(_))
    }
}

impl Namespace {
    /// Finds a name in a directory (`.` and `..` too) and takes a reference on its inode.
    pub fn lookup(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Attributes> {
        let operation = self.begin(Call::Lookup)?;
        let guard = &operation.guard;
        let dir = self.inode(parent, guard)?;
        dir.directory()?;
        self.check_access(caller, dir, EXECUTE)?;
        let table = self.table(dir)?;
        let name = table.hashed(name);
        loop {
            let found = self.found(dir, table, name, guard)?;
            if self.refer_found(found, guard) {
                return Ok(self.shown(found.inode, guard));
            }
            // It was freed or evicted in between: its name goes, or it comes back, at once.
            thread::yield_now();
        }
    }

    /// Takes a reference on what a name was found to name; false when it names that no longer.
    ///
    /// A number may be used again as soon as its name went. Once the inode is held, the name tells
    /// whether this is the one that it names.
    pub(crate) fn refer_found(&self, found: Named<'_>, guard: &Guard) -> bool {
        if !self.inodes.refer(found.inode, guard) {
            return false;
        }
        let is_named = found.is_named(guard);
        if !is_named && found.inode.references.release(&self.inodes.split_counts, 1) {
            self.free_unlinked(found.inode, guard);
        }
        is_named
    }

    /// The inode that a name of a directory names.
    pub(crate) fn child<'g>(
        &self,
        dir: &'g Inode,
        table: &NameTable,
        name: HashedName<'_>,
        guard: &'g Guard,
    ) -> Result<&'g Inode> {
        let found = self.found(dir, table, name, guard)?;
        Ok(found.inode)
    }

    /// The same, to be asked later whether the name still names it.
    pub(crate) fn found<'g>(
        &self,
        dir: &'g Inode,
        table: &NameTable,
        name: HashedName<'_>,
        guard: &'g Guard,
    ) -> Result<Named<'g>> {
        let of_dots = |inode| Named {
            inode,
            evidence: Evidence::Dots,
        };
        match name.bytes {
            b"." => return Ok(of_dots(dir)),
            b".." => return self.parent(dir, guard).map(of_dots),
            bytes => {
                check_length(self, bytes)?;
                self.check_text(name)?;
            }
        }
        loop {
            let Some(node) = table.find(name, guard) else {
                match self.learn(dir, table, name, guard)? {
                    true => continue,
                    false => return Err(Error::NotFound),
                }
            };
            if node.ino == dir.ino {
                let error = format_args!("directory {}: an entry names it", dir.ino);
                return self.note_load(Err(Error::corrupt(error)));
            }
            match self.inode(node.ino, guard) {
                // The name outlives its inode by a moment while it is being removed. A name that
                // stays so is damage. The cell first: it goes only after the name.
                Err(Error::Stale) => {
                    let cell = self.inodes.get(node.ino, guard);
                    let is_going = cell.is_some_and(|cell| cell.is_gone());
                    if !is_going && !node.is_out(guard) {
                        return Err(Error::corrupt(format_args!(
                            "directory {}: an entry names inode {}, which is not in use",
                            dir.ino, node.ino
                        )));
                    }
                    thread::yield_now();
                }
                result => {
                    return Ok(Named {
                        inode: result?,
                        evidence: Evidence::Name(node),
                    });
                }
            }
        }
    }

    /// True where directories can be made to find names whatever their case.
    pub fn can_fold_names(&self) -> bool {
        self.geometry.folding.is_some()
    }

    /// True for a directory that finds names whatever their case: what one name leads to changes
    /// with others.
    pub fn folds_names(&self, dir: Ino) -> bool {
        if self.geometry.folding.is_none() {
            return false;
        }
        let _gate = self.gate.read();
        let guard = &crossbeam_epoch::pin();
        (self.inode(dir, guard)).is_ok_and(|dir| dir.flags().contains(FileFlags::CASEFOLD))
    }

    /// EINVAL for a name that is no text, where a directory that folds case is strict about that.
    #[inline]
    pub(crate) fn check_text(&self, name: HashedName<'_>) -> Result<()> {
        let Some(fold) = name.fold else { return Ok(()) };
        let is_strict = self
            .geometry
            .folding
            .is_some_and(|folding| folding.is_strict);
        match is_strict && fold(name.bytes).is_none() {
            true => Err(Error::Invalid),
            false => Ok(()),
        }
    }

    /// The parent of a directory. ENOENT for a directory that was removed: its parent may be gone
    /// too, and the number another inode's by now.
    fn parent<'g>(&self, dir: &Inode, guard: &'g Guard) -> Result<&'g Inode> {
        loop {
            let number = self.parent_of(dir)?;
            let parent = self.inode(number, guard);
            if dir.link_count() == 0 {
                return Err(Error::NotFound);
            }
            // It may have moved before the parent was found. Else that held it all the time.
            if self.parent_of(dir)? == number {
                return parent;
            }
        }
    }

    /// The number of a directory's parent; its own for the root.
    pub(crate) fn parent_of(&self, dir: &Inode) -> Result<Ino> {
        self.table(dir)?;
        let parent = dir
            .directory()?
            .parent
            .load(std::sync::atomic::Ordering::Acquire);
        Ok(if dir.ino == self.root() {
            dir.ino
        } else {
            Ino(parent)
        })
    }

    /// EINVAL when `moved` is `into` or above it. Stable under the topology lock.
    ///
    /// EUCLEAN where parents form a circle, as a damaged image may have it: a directory on the way
    /// is remembered, after twice as many steps the next one (R. P. Brent, BIT 20, 1980).
    pub(crate) fn check_no_loop(&self, moved: &Inode, into: &Inode, guard: &Guard) -> Result<()> {
        if moved.kind != FileKind::Directory {
            return Ok(());
        }
        let mut at = into;
        let (mut remembered, mut steps, mut steps_max) = (into.ino, 0u64, 1u64);
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
            if parent == remembered {
                return Err(Error::corrupt(format_args!(
                    "directory {parent}: it is above itself"
                )));
            }
            steps += 1;
            if steps == steps_max {
                (remembered, steps, steps_max) = (parent, 0, steps_max * 2);
            }
            at = match self.inode(parent, guard) {
                Err(Error::Stale) => return Err(Error::NotFound),
                result => result?,
            };
        }
    }

    /// The inode that a name of a directory names; see invariant 1 of `walk`.
    pub(crate) fn named<'g>(
        &self,
        dir: &'g Inode,
        table: &NameTable,
        name: HashedName<'_>,
        guard: &'g Guard,
    ) -> Result<Named<'g>> {
        loop {
            match self.found(dir, table, name, guard) {
                Ok(found) if !found.is_named(guard) => {}
                // The parent of a directory that was removed, removed too.
                Err(Error::Stale) => return Err(Error::NotFound),
                result => return result,
            }
        }
    }

    /// What is at the end of a way, if that is remembered and still holds, and the inode is in
    /// memory.
    #[inline]
    pub(crate) fn known<'g>(&self, way: Way, guard: &'g Guard) -> Option<Named<'g>> {
        let end = self.paths.find(way)?;
        let slot = self.inodes.slot(end.ino, guard)?;
        let inode = slot.cell(guard).filter(|inode| inode.is_usable())?;
        // The cell first: another inode of this number is there only after this one lost its names.
        let named = Named::as_of(inode, slot, end.name_seq);
        named.is_named(guard).then_some(named)
    }

    /// Remembers that a way led to what its last name was found to name.
    pub(crate) fn remember(&self, way: Way, found: Named<'_>, guard: &Guard) {
        let inode = found.inode;
        let name_seq = self
            .inodes
            .slot(inode.ino, guard)
            .and_then(InodeSlot::name_seq);
        if let Some(name_seq) = name_seq
            && found.is_by_name()
            && found.is_named(guard)
        {
            let inodes = || (self.memory.bytes() / INODE_BYTES).max(0) as u64;
            let end = End {
                ino: inode.ino,
                name_seq,
            };
            let address = std::ptr::from_ref(inode).addr();
            self.paths.insert(way, end, address, inodes);
        }
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
