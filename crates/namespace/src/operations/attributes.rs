//! Attributes: stat, chmod, chown, utimens, access, readlink.

use std::cell::Cell;

use smallvec::{SmallVec, smallvec};

use crate::access::access_time::AtimeUpdate;
use crate::access::acls::may_keep_setgid;
use crate::access::permission::{WRITE, check_mutable, check_owner, check_unrestricted};
use crate::base::error::{Error, Result};
use crate::base::store::{Charge, InodeForm, Plan};
use crate::base::types::{Attributes, Caller, FileKind, Ino, SetAttributes, SetTime};
use crate::commit::oplog::Record;
use crate::inode::acl::AclKind;
use crate::inode::{Core, Inode, Ownership, Stamped, Time};
use crate::namespace::Namespace;
use crate::operations::set_id::without_privileges;
use crate::schemes::Call;

impl Namespace {
    /// The attributes of an inode (stat). Takes no lock.
    pub fn attributes(&self, ino: Ino) -> Result<Attributes> {
        let operation = self.begin(Call::GetAttributes)?;
        let inode = self.inode(ino, &operation.guard)?;
        Ok(self.shown(inode, &operation.guard))
    }

    /// EACCES unless the caller may access the inode as `mask` (R_OK, W_OK, X_OK) says; EROFS for
    /// writing on a read-only file system.
    pub fn access(&self, caller: &Caller, ino: Ino, mask: u32) -> Result<()> {
        let operation = self.begin(Call::Permission)?;
        let inode = self.inode(ino, &operation.guard)?;
        let holds_data = matches!(inode.kind, FileKind::Regular | FileKind::Directory);
        if mask & WRITE != 0 && self.options.is_read_only && holds_data {
            return Err(Error::ReadOnly);
        }
        self.check_access(caller, inode, mask)
    }

    /// The target of a symbolic link.
    pub fn read_symlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let operation = self.begin(Call::ReadLink)?;
        let inode = self.inode(ino, &operation.guard)?;
        let target = self.symlink_text(inode)?.to_vec();
        self.note_access(inode, AtimeUpdate::ByPolicy);
        Ok(target)
    }

    /// Sets attributes (chmod, chown, truncate, utimensat), all or, where one is not permitted,
    /// none. A size goes first: a truncate clears the set-id bits before they are set.
    pub fn set_attributes(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &SetAttributes,
    ) -> Result<Attributes> {
        let judged = || {
            let operation = self.begin_change(Call::SetAttributes)?;
            let inode = self.inode(ino, &operation.guard)?;
            let judged = inode.ownership();
            self.check_change(caller, inode, change)?;
            Ok::<_, Error>(judged)
        };
        let before = Cell::new(judged()?);
        if let Some(size_bytes) = change.size_bytes {
            self.with_space(|| self.truncate(ino, size_bytes))?;
        }
        self.with_space(|| {
            loop {
                if let Some(attributes) = self.set_words(caller, ino, change, before.get())? {
                    return Ok(attributes);
                }
                before.set(judged()?);
            }
        })
    }

    /// Sets all but the size; `None` if an access ACL came in between, or if the file is no longer
    /// whose it was when the caller was found to be permitted.
    fn set_words(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &SetAttributes,
        judged: Ownership,
    ) -> Result<Option<Attributes>> {
        let operation = self.begin_change(Call::SetAttributes)?;
        let inode = self.inode(ino, &operation.guard)?;
        let sets_mode = change.permissions.is_some();
        let sets_owner = change.uid.is_some() || change.gid.is_some();
        if sets_owner && inode.kind != FileKind::Directory {
            self.take_capabilities(inode)?;
        }
        let reservation = match sets_mode && self.acl_marks(inode)?.has(AclKind::Access) {
            true => Some(self.reserve(&[Plan::Xattr])?),
            false => None,
        };
        let inodes = match sets_owner {
            true => self.store.quota_inodes(ino)?,
            false => 1,
        };
        let lock = inode.lock();
        let changes_acl = sets_mode && inode.acl_marks().has(AclKind::Access);
        if changes_acl && reservation.is_none() {
            return Ok(None);
        }
        let before = inode.ownership();
        let rights = |of: Ownership| (of.uid, of.gid, of.flags);
        if rights(before) != rights(judged) {
            return Ok(None);
        }
        let after = owned_after(caller, inode, before, change);
        self.charge_change(caller, (inode, inodes), before, after)?;
        let touched = self.stamps(inode, change);
        if let Some(reservation) = reservation.filter(|_| changes_acl) {
            let logged = (reservation, &touched[..]);
            self.set_mode(inode, &lock, after, logged, &operation.guard)?;
        } else {
            let record = || match after == before {
                true => Record::touched(inode),
                false => Record::Owned {
                    ino,
                    sequence: inode.next_sequence(),
                    to: after,
                },
            };
            self.log_group(|| [record()], 0, &touched);
            if after != before {
                inode.set_ownership(&lock, after);
            }
        }
        Ok(Some(self.shown(inode, &operation.guard)))
    }

    /// An inode whose attributes change, with the times that it gets.
    fn stamps<'c>(&self, inode: &'c Core, change: &SetAttributes) -> SmallVec<[Stamped<'c>; 4]> {
        let now = self.now();
        let to = |time| match time {
            SetTime::Now => now,
            SetTime::To(time) => self.as_stored(time),
        };
        let mut stamps = smallvec![inode.untimed()];
        let times = [
            (Time::Accessed, change.accessed),
            (Time::Modified, change.modified),
        ];
        for (which, time) in times {
            stamps.extend(time.map(|time| inode.timed(which, to(time))));
        }
        let is_changed = change.permissions.is_some()
            || change.uid.is_some()
            || change.gid.is_some()
            || times.iter().any(|(_, time)| time.is_some());
        let changed = match change.changed {
            Some(time) => Some(self.as_stored(time)),
            None => is_changed.then_some(now),
        };
        stamps.extend(changed.map(|time| inode.changed(time)));
        stamps
    }

    /// Asks the store for something on somebody's quota.
    pub(crate) fn charge(&self, charge: &Charge) -> Result<()> {
        self.store.charge(charge, &|| self.log.current())
    }

    /// EDQUOT unless the owners that get an inode, which counts for so many, may have it.
    pub(crate) fn charge_change(
        &self,
        caller: &Caller,
        (inode, inodes): (&Inode, u64),
        before: Ownership,
        after: Ownership,
    ) -> Result<()> {
        let changed = |before, after| Some(after).filter(|after| *after != before);
        let charge = Charge {
            uid: changed(before.uid, after.uid),
            gid: changed(before.gid, after.gid),
            project: changed(before.project, after.project),
            inodes,
            bytes: inode.sectors() * 512,
            is_privileged: caller.uid == 0,
        };
        match (charge.uid, charge.gid, charge.project) {
            (None, None, None) => Ok(()),
            _ => self.charge(&charge),
        }
    }

    /// What an inode can have.
    pub(crate) fn form_of(&self, inode: &Core) -> &InodeForm {
        match inode.is_old_form() {
            true => &self.geometry.old_form,
            false => &self.geometry.new_form,
        }
    }

    /// EPERM or EACCES unless the caller may make the change; EINVAL for an owner whose number the
    /// inode cannot keep.
    fn check_change(&self, caller: &Caller, inode: &Inode, change: &SetAttributes) -> Result<()> {
        let mut owners = [change.uid, change.gid].into_iter().flatten();
        if owners.any(|owner| owner > self.form_of(inode).owner_max) {
            return Err(Error::Invalid);
        }
        check_flags(inode, change)?;
        if change.size_bytes.is_some() {
            match inode.kind {
                FileKind::Regular => self.check_access(caller, inode, WRITE)?,
                FileKind::Directory => return Err(Error::IsADirectory),
                _ => return Err(Error::Invalid),
            }
        }
        if caller.is_checked() || caller.uid == 0 {
            return Ok(());
        }
        let owned = inode.ownership();
        if change.permissions.is_some() {
            check_owner(caller, inode)?;
        }
        if change.uid.is_some_and(|uid| uid != owned.uid) {
            return Err(Error::NotPermitted);
        }
        if change
            .gid
            .is_some_and(|gid| gid != owned.gid && !caller.is_in_group(gid))
        {
            return Err(Error::NotPermitted);
        }
        if change.uid.is_some() || change.gid.is_some() {
            check_owner(caller, inode)?;
        }
        if sets_given(change) {
            check_owner(caller, inode)?;
        } else if change.accessed.is_some() || change.modified.is_some() {
            check_owner(caller, inode).or_else(|_| self.check_access(caller, inode, WRITE))?;
        }
        Ok(())
    }
}

/// Whether times are set as only an owner may: to given ones, or one of the two alone, but for what
/// comes with a new size (POSIX utimensat(); Linux `ATTR_TIMES_SET`).
fn sets_given(change: &SetAttributes) -> bool {
    let times = [change.accessed, change.modified];
    let is_one = times.iter().flatten().count() == 1 && change.size_bytes.is_none();
    is_one || (times.iter()).any(|time| matches!(time, Some(SetTime::To(_))))
}

/// EPERM where the flags of the inode forbid the change (Linux `may_setattr`).
fn check_flags(inode: &Inode, change: &SetAttributes) -> Result<()> {
    let times = [change.accessed, change.modified];
    // Times that come with a change time are those that a kernel keeps of data that it wrote, which
    // may have been before the file got its flags.
    let is_kept = change.changed.is_some() && change.accessed.is_none();
    let sets_given = change.changed.is_none() && sets_given(change);
    let sets_owned = change.permissions.is_some() || change.uid.is_some() || change.gid.is_some();
    if sets_owned || sets_given || change.size_bytes.is_some() {
        check_unrestricted(inode)
    } else if times.iter().any(Option::is_some) && !is_kept {
        check_mutable(inode)
    } else {
        Ok(())
    }
}

/// Mode and owner after a change.
fn owned_after(
    caller: &Caller,
    inode: &Inode,
    before: Ownership,
    change: &SetAttributes,
) -> Ownership {
    let mut after = before;
    if let Some(uid) = change.uid {
        after.uid = uid;
    }
    if let Some(gid) = change.gid {
        after.gid = gid;
    }
    let sets_owner = change.uid.is_some() || change.gid.is_some();
    if sets_owner && inode.kind != FileKind::Directory {
        // chown(2) of an executable clears both bits, also for root on Linux.
        after.permissions = without_privileges(after.permissions);
    }
    if let Some(permissions) = change.permissions {
        after.permissions = permissions & 0o7777;
        // For every kind of inode, as Linux does (setattr_prepare).
        if !may_keep_setgid(caller, after.gid) {
            after.permissions &= !libc::S_ISGID;
        }
    }
    after
}
