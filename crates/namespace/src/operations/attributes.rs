//! Attributes: stat, chmod, chown, utimens, access, readlink.

use crate::access::access_time::Noting;
use crate::access::acls::may_keep_setgid;
use crate::access::permission::{WRITE, check_owner};
use crate::base::error::{Error, Result};
use crate::base::store::Plan;
use crate::base::types::{Attributes, Caller, FileKind, Ino, SetAttributes, SetTime};
use crate::commit::oplog::Record;
use crate::inode::acl::AclKind;
use crate::inode::{Inode, Ownership, Time};
use crate::namespace::Namespace;
use crate::schemes::scheme::Call;

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
        self.note_access(inode, Noting::ByPolicy);
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
        {
            let operation = self.begin_change(Call::SetAttributes)?;
            let inode = self.inode(ino, &operation.guard)?;
            self.check_change(caller, inode, change)?;
        }
        if let Some(size_bytes) = change.size_bytes {
            self.truncate(ino, size_bytes)?;
        }
        self.with_space(|| {
            loop {
                if let Some(attributes) = self.set_words(caller, ino, change)? {
                    return Ok(attributes);
                }
            }
        })
    }

    /// Sets all but the size; `None` if an access ACL came in between.
    fn set_words(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &SetAttributes,
    ) -> Result<Option<Attributes>> {
        let operation = self.begin_change(Call::SetAttributes)?;
        let inode = self.inode(ino, &operation.guard)?;
        let sets_mode = change.permissions.is_some();
        let reservation = match sets_mode && self.acl_marks(inode)?.has(AclKind::Access) {
            true => Some(self.reserve(&[Plan::Xattr])?),
            false => None,
        };
        let lock = inode.lock();
        let changes_acl = sets_mode && inode.acl_marks().has(AclKind::Access);
        if changes_acl && reservation.is_none() {
            return Ok(None);
        }
        let now = self.now();
        let before = inode.ownership();
        let after = owned_after(caller, inode, before, change);
        let sets_owner = change.uid.is_some() || change.gid.is_some();
        if let Some(reservation) = reservation.filter(|_| changes_acl) {
            self.set_mode(inode, &lock, after, reservation, &operation.guard)?;
        } else {
            let record = || match after == before {
                true => Record::touched(inode),
                false => Record::Owned {
                    ino,
                    sequence: inode.next_sequence(),
                    to: after,
                },
            };
            self.log_group(|| [record()], 0, &[inode]);
            if after != before {
                inode.set_ownership(&lock, after);
            }
        }
        for (which, time) in [
            (Time::Accessed, change.accessed),
            (Time::Modified, change.modified),
        ] {
            match time {
                Some(SetTime::Now) => inode.set_time(which, now),
                Some(SetTime::To(time)) => inode.set_time(which, self.as_stored(time)),
                None => {}
            }
        }
        if let Some(time) = change.changed {
            inode.set_time(Time::Changed, self.as_stored(time));
        } else if change.permissions.is_some()
            || sets_owner
            || change.accessed.is_some()
            || change.modified.is_some()
        {
            inode.set_time(Time::Changed, now);
        }
        Ok(Some(self.shown(inode, &operation.guard)))
    }

    /// Sets owner and group (chown); `None` leaves them. A call that names neither takes the set-id
    /// bits all the same, as `is_in_group` says ([`Namespace::clear_privileges`]), and sets the
    /// change time, as on Linux: for the superuser and the owner. For others it succeeds and
    /// changes nothing, for in a mount it looks like a write that takes file capabilities away.
    pub fn set_owner(
        &self,
        caller: &Caller,
        ino: Ino,
        (uid, gid): (Option<u32>, Option<u32>),
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<Attributes> {
        let mut change = SetAttributes {
            uid,
            gid,
            ..SetAttributes::default()
        };
        let names_nobody = uid.is_none() && gid.is_none();
        if names_nobody && (caller.uid == 0 || self.attributes(ino)?.uid == caller.uid) {
            self.clear_privileges(ino, |gid| caller.uid == 0 || is_in_group(gid))?;
            change.changed = Some(self.now());
        }
        self.set_attributes(caller, ino, &change)
    }

    /// What a change of data by `caller` does to the set-id bits: the superuser leaves them, by
    /// others it is [`Namespace::clear_privileges`]. For front ends that are not told who may leave
    /// them (on Linux, who has CAP_FSETID); called before the change.
    pub fn clear_privileges_unless_root(
        &self,
        caller: &Caller,
        ino: Ino,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<bool> {
        match caller.uid {
            0 => Ok(false),
            _ => self.clear_privileges(ino, is_in_group),
        }
    }

    /// Drops the set-user-ID bit, and the set-group-ID bit of a group-executable file, as a change
    /// of the data by somebody without privilege does (POSIX write()); and that of any file whose
    /// group `is_in_group` says the caller is not in (Linux `setattr_should_drop_sgid`). True if
    /// the mode changed, which a front end has to tell those who keep modes.
    pub fn clear_privileges(
        &self,
        ino: Ino,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<bool> {
        const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
        let operation = self.begin_change(Call::SetAttributes)?;
        let inode = self.inode(ino, &operation.guard)?;
        let seen = inode.ownership();
        if seen.permissions & SET_ID == 0 || inode.kind == FileKind::Directory {
            return Ok(false);
        }
        let left = without_privileges(seen.permissions);
        let keeps_setgid = left & libc::S_ISGID != 0 && is_in_group(seen.gid);
        let lock = inode.lock();
        let before = inode.ownership();
        let mut after = Ownership {
            permissions: without_privileges(before.permissions),
            ..before
        };
        if !keeps_setgid || before.gid != seen.gid {
            after.permissions &= !libc::S_ISGID;
        }
        let has_changed = after != before;
        if has_changed {
            let record = || Record::Owned {
                ino,
                sequence: inode.next_sequence(),
                to: after,
            };
            self.log_group(|| [record()], 0, &[inode]);
            inode.set_ownership(&lock, after);
            inode.set_time(Time::Changed, self.now());
        }
        Ok(has_changed)
    }

    /// EPERM or EACCES unless the caller may make the change.
    fn check_change(&self, caller: &Caller, inode: &Inode, change: &SetAttributes) -> Result<()> {
        if change.size_bytes.is_some() {
            match inode.kind {
                FileKind::Regular => self.check_access(caller, inode, WRITE)?,
                FileKind::Directory => return Err(Error::IsADirectory),
                _ => return Err(Error::Invalid),
            }
        }
        if caller.is_checked || caller.uid == 0 {
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
        let sets_given = [change.accessed, change.modified]
            .iter()
            .any(|time| matches!(time, Some(SetTime::To(_))));
        if sets_given {
            check_owner(caller, inode)?;
        } else if change.accessed.is_some() || change.modified.is_some() {
            check_owner(caller, inode).or_else(|_| self.check_access(caller, inode, WRITE))?;
        }
        Ok(())
    }
}

/// Permission bits after somebody without privilege wrote.
fn without_privileges(permissions: u32) -> u32 {
    let mut kept = permissions & !libc::S_ISUID;
    if permissions & libc::S_IXGRP != 0 {
        kept &= !libc::S_ISGID;
    }
    kept
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
