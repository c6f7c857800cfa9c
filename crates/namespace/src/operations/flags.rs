//! What chattr(1) sets (FS_IOC_SETFLAGS).

use crossbeam_epoch::Guard;
use finefs_locks::{RwLock, order};

use crate::access::permission::check_owner;
use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::store::{ID_MAX, Plan};
use crate::base::types::{Caller, FileKind, Ino};
use crate::commit::oplog::Record;
use crate::inode::{Inode, Ownership, Xattrs};
use crate::names::name_table::{NameTable, Request, lock_all};
use crate::namespace::{Namespace, Reservation};
use crate::schemes::Call;

type Encrypting<'g> = Option<(&'g RwLock<Xattrs>, Reservation<'g>)>;

impl Namespace {
    /// Sets the flags of an inode to what `change` makes of those that it has, in one step. Those
    /// that tell of the format ([`FileFlags::SETTABLE`] are the others) stay, whatever it makes.
    ///
    /// [`FileFlags::CASEFOLD`] can be given to a directory without names, and taken from it:
    /// ENOTDIR, ENOTEMPTY, and EOPNOTSUPP where the store has no directories that fold case. So can
    /// [`FileFlags::ENCRYPTED`] be given, and not taken: ENOKEY where the store has no key.
    ///
    /// EPERM unless the caller owns the inode, and is the superuser where
    /// [`FileFlags::PRIVILEGED`] ones change, and where a file that is and stays immutable would
    /// get other flags or another project; EOPNOTSUPP for flags that inodes of this kind cannot
    /// have, for all where the inode keeps none, and for new ones that tell how data are mapped,
    /// copied, journaled or used in place.
    pub fn set_flags(
        &self,
        caller: &Caller,
        ino: Ino,
        change: impl Fn(FileFlags) -> FileFlags,
    ) -> Result<()> {
        self.set_flags_and_project(caller, ino, change, None)
    }

    /// The same, with the project, unless that is `None`. EOPNOTSUPP for one where there are none,
    /// or where the inode has no room for it; EDQUOT where it may not have the inode; EINVAL beyond
    /// [`ID_MAX`].
    pub fn set_flags_and_project(
        &self,
        caller: &Caller,
        ino: Ino,
        change: impl Fn(FileFlags) -> FileFlags,
        project: Option<u32>,
    ) -> Result<()> {
        let operation = self.begin_change(Call::SetAttributes)?;
        let guard = &operation.guard;
        let inode = self.inode(ino, guard)?;
        check_owner(caller, inode)?;
        self.check_project(inode, project)?;
        let special = special_changes(inode, change(inode.flags()));
        let names = match special.is_empty() {
            true => None,
            false => Some(self.names_to_change(inode, special, guard)?),
        };
        let inodes = match project.is_some() {
            true => self.store.quota_inodes(ino)?,
            false => 1,
        };
        let encrypting = self.encrypting(inode, special)?;
        let resize = names.map(NameTable::lock_resize);
        let whole = (names.zip(resize.as_ref())).map(|(table, resize)| Request::Whole {
            dir: ino,
            table,
            resize,
        });
        let held = whole.map(|whole| lock_all(&[whole], guard)).transpose()?;
        let lock = inode.lock();
        // It may have become another's meanwhile.
        check_owner(caller, inode)?;
        let before = inode.ownership();
        let flags = change(before.flags);
        let kept = match (names, &held) {
            (Some(names), Some(held)) if !held.is_empty(names, guard) => {
                return Err(Error::NotEmpty);
            }
            (Some(_), _) => FileFlags::SETTABLE | special,
            _ => FileFlags::SETTABLE,
        };
        self.check_flags(caller, inode, before.flags, flags)?;
        let to = Ownership {
            flags: flags & kept | (before.flags - kept),
            project: project.unwrap_or(before.project),
            ..before
        };
        let stays_immutable = (before.flags & to.flags).contains(FileFlags::IMMUTABLE);
        if stays_immutable && (before.flags, before.project) != (to.flags, to.project) {
            return Err(Error::NotPermitted);
        }
        self.charge_change(caller, (inode, inodes), before, to)?;
        let blocks = match before.flags.contains(FileFlags::ENCRYPTED) {
            true => 0,
            false => self.encrypt(ino, encrypting)?,
        };
        let record = || Record::Owned {
            ino,
            sequence: inode.next_sequence(),
            to,
        };
        self.log_group(|| [record()], blocks, &[inode.changed(self.now())]);
        inode.set_ownership(&lock, to);
        if let (Some(names), Some(held)) = (names, &held) {
            names.set_folding(held, to.flags.contains(FileFlags::CASEFOLD), guard);
        }
        Ok(())
    }

    /// EOPNOTSUPP for a project that the inode cannot have, EINVAL for a number that none has.
    fn check_project(&self, inode: &Inode, project: Option<u32>) -> Result<()> {
        if project.is_none_or(|project| project == inode.ownership().project) {
            return Ok(());
        }
        // Of an inode that was made here the store may have nothing yet; it gets all the room.
        if project > Some(ID_MAX) {
            return Err(Error::Invalid);
        }
        let has_room = || match inode.was_made_here() && self.geometry.has_fine_times {
            true => Ok(true),
            false => self.store.has_room_for_project(inode.ino),
        };
        match self.store.has_projects() && has_room()? {
            true => Ok(()),
            false => Err(Error::NotSupported),
        }
    }

    /// What it takes to encrypt a directory, if that is to be: its extended attributes, and space.
    fn encrypting<'g>(&'g self, inode: &'g Inode, special: FileFlags) -> Result<Encrypting<'g>> {
        if !special.contains(FileFlags::ENCRYPTED) {
            return Ok(None);
        }
        let reservation = self.reserve(&[Plan::NewDirectory, Plan::Xattr])?;
        Ok(Some((self.values(inode)?, reservation)))
    }

    /// Begins the encryption of a directory; how many blocks that may take.
    fn encrypt(&self, ino: Ino, encrypting: Encrypting<'_>) -> Result<u64> {
        let Some((values, reservation)) = encrypting else {
            return Ok(0);
        };
        let values = values.read();
        let views: Vec<(&[u8], &[u8])> = values.iter().map(|(n, v)| (&**n, &**v)).collect();
        // It may read the inode's block: of an empty directory, and once in its life.
        order::allowing_io(|| self.store.begin_encryption(ino, &views))?;
        Ok(reservation.take())
    }

    /// EPERM and EOPNOTSUPP for flags that cannot be set.
    fn check_flags(
        &self,
        caller: &Caller,
        inode: &Inode,
        before: FileFlags,
        flags: FileFlags,
    ) -> Result<()> {
        if (flags ^ before).intersects(FileFlags::PRIVILEGED) && caller.uid != 0 {
            return Err(Error::NotPermitted);
        }
        let converting =
            FileFlags::EXTENTS | FileFlags::JOURNAL_DATA | FileFlags::NO_COW | FileFlags::DAX;
        let settable = flags & FileFlags::SETTABLE;
        let changed = (flags ^ before) & FileFlags::SETTABLE;
        if (flags - before).intersects(converting)
            || !self.form_of(inode).has_flags && !changed.is_empty()
            || !FileFlags::of_kind(inode.kind).contains(settable)
        {
            return Err(Error::NotSupported);
        }
        Ok(())
    }

    /// The names of a directory that is to fold case, or to cease to, or to be encrypted.
    fn names_to_change<'g>(
        &self,
        inode: &'g Inode,
        special: FileFlags,
        guard: &Guard,
    ) -> Result<&'g NameTable> {
        if special.contains(FileFlags::ENCRYPTED) && inode.ino == self.root() {
            return Err(Error::NotPermitted);
        }
        if special.contains(FileFlags::CASEFOLD) && self.geometry.folding.is_none() {
            return Err(Error::NotSupported);
        }
        let names = self.table(inode)?;
        inode.check_names()?;
        self.learn_emptiness(inode, names, guard)?;
        Ok(names)
    }
}

/// Which of the flags change that only an empty directory can be given.
fn special_changes(inode: &Inode, to: FileFlags) -> FileFlags {
    let before = inode.flags();
    let folds = (to ^ before) & FileFlags::CASEFOLD;
    match inode.kind == FileKind::Directory {
        true => folds | (to - before) & FileFlags::ENCRYPTED,
        false => folds,
    }
}
