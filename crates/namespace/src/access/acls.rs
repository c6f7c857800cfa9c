//! ACLs beside modes: set and removed as attributes, changed by chmod, inherited by what is made.
//!
//! An access ACL and the mode change together: in one log group, and for a permission check in one
//! moment (`Core::set_acl`). Every ACL is among the inode's attributes too, which is what the store
//! is told.
//!
//! References: acl(5); Linux `fs/posix_acl.c`, as ext4 uses it.

use crossbeam_epoch::Guard;

use crate::access::permission::{check_owner, check_unrestricted};
use crate::base::error::{Error, Result};
use crate::base::store::Plan;
use crate::base::types::{Caller, FileKind, Ino};
use crate::commit::oplog::{Group, Record};
use crate::inode::acl::{Acl, AclKind};
use crate::inode::acl_cell::AclMarks;
use crate::inode::{Core, Ownership, Stamped, Xattrs};
use crate::namespace::{Namespace, Reservation};
use crate::schemes::Call;

/// What an inode gets from the default ACL of the directory in which it is made, and what else it
/// has from the start.
pub(crate) struct Inherited {
    /// Permission bits; the umask does not count.
    pub permissions: u32,
    /// The access and the default ACL.
    pub acls: [Option<Acl>; 2],
    /// The attributes that they are, and others.
    pub xattrs: Xattrs,
}

impl Inherited {
    fn new(permissions: u32, acls: [Option<Acl>; 2]) -> Inherited {
        let kinds = AclKind::ALL.into_iter().zip(&acls);
        let xattrs = kinds
            .filter_map(|(kind, acl)| Some((kind.name().into(), acl.as_ref()?.value())))
            .collect();
        Inherited {
            permissions,
            acls,
            xattrs,
        }
    }

    /// Permission bits alone.
    pub fn nothing(permissions: u32) -> Inherited {
        Inherited::new(permissions, [None, None])
    }

    /// False when a mode is all.
    pub fn has_xattrs(&self) -> bool {
        !self.xattrs.is_empty()
    }

    /// Names and values of the attributes.
    pub fn views(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.xattrs.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The log records that give an inode the attributes.
    pub fn records(&self, inode: &Core) -> impl Iterator<Item = Record> {
        self.views().map(|(name, value)| Record::Xattr {
            ino: inode.ino,
            sequence: inode.next_sequence(),
            name: name.into(),
            value: Some(value.into()),
        })
    }
}

/// True when the caller may give a set-group-ID bit to an inode of this group, or leave it there.
pub(crate) fn may_keep_setgid(caller: &Caller, gid: u32) -> bool {
    caller.is_checked() || is_root_or_member(caller, gid)
}

/// The same where nobody has looked at the caller's groups before.
pub(crate) fn is_root_or_member(caller: &Caller, gid: u32) -> bool {
    caller.uid == 0 || caller.is_in_group(gid)
}

/// True when something that is no directory and is made with these permission bits, before umask
/// and default ACL, in a directory with these attributes must not get the set-group-ID bit: a
/// caller that is not in the directory's group would get a program that runs with it (Linux 6.0,
/// `mode_strip_sgid`). Where everything gets its directory's group (`is_bsd`) nobody has looked at
/// the caller's groups before, and Linux leaves the bit; here it goes.
pub(crate) fn loses_setgid(
    caller: &Caller,
    permissions: u32,
    dir: Ownership,
    is_bsd: bool,
) -> bool {
    const RUNS_AS_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;
    if permissions & RUNS_AS_GROUP != RUNS_AS_GROUP {
        return false;
    }
    match dir.permissions & libc::S_ISGID {
        0 => is_bsd && !is_root_or_member(caller, dir.gid),
        _ => !may_keep_setgid(caller, dir.gid),
    }
}

impl Namespace {
    /// Which ACLs an inode has. Its attributes are loaded if need be.
    #[inline]
    pub(crate) fn acl_marks(&self, inode: &Core) -> Result<AclMarks> {
        match inode.acl_marks() {
            AclMarks::UNKNOWN => self.load_acls(inode),
            marks => Ok(marks),
        }
    }

    #[cold]
    fn load_acls(&self, inode: &Core) -> Result<AclMarks> {
        let values = self.values(inode)?;
        let lock = inode.lock();
        if inode.acl_marks() == AclMarks::UNKNOWN {
            let values = values.read();
            let read = |kind: AclKind| match values.get(kind.name()) {
                Some(value) => Acl::parse(value)
                    .map_err(|_| Error::corrupt(format_args!("inode {}: ACL", inode.ino))),
                None => Ok(None),
            };
            let acls = [read(AclKind::Access)?, read(AclKind::Default)?];
            inode.note_acls(&lock, acls);
        }
        Ok(inode.acl_marks())
    }

    /// What is made in a directory with these permission bits, before the umask, inherits; `None`
    /// where the directory has no default ACL.
    #[inline]
    pub(crate) fn inherited(
        &self,
        dir: &Core,
        kind: FileKind,
        permissions: u32,
        guard: &Guard,
    ) -> Result<Option<Box<Inherited>>> {
        if kind == FileKind::Symlink || !dir.acl_marks().may_have(AclKind::Default) {
            return Ok(None);
        }
        self.inherited_from_acl(dir, kind, permissions, guard)
    }

    #[cold]
    fn inherited_from_acl(
        &self,
        dir: &Core,
        kind: FileKind,
        permissions: u32,
        guard: &Guard,
    ) -> Result<Option<Box<Inherited>>> {
        if !self.acl_marks(dir)?.has(AclKind::Default) {
            return Ok(None);
        }
        // If it was taken away in between, it was before this.
        let Some(default) = dir.acl(AclKind::Default, guard) else {
            return Ok(None);
        };
        let access = default.clone().inherited(permissions);
        let permissions = permissions & !0o777 | access.mode();
        let acls = [
            (!access.is_minimal()).then_some(access),
            (kind == FileKind::Directory).then(|| default.clone()),
        ];
        Ok(Some(Box::new(Inherited::new(permissions, acls))))
    }

    /// Sets an ACL, or removes it where the value is empty or none. `keeps_setgid` tells whether an
    /// access ACL may leave the set-group-ID bit of an inode of a group.
    pub(crate) fn change_acl(
        &self,
        caller: &Caller,
        ino: Ino,
        kind: AclKind,
        value: Option<&[u8]>,
        keeps_setgid: impl Fn(u32) -> bool,
    ) -> Result<()> {
        let given = Acl::parse(value.unwrap_or_default())?;
        self.with_space(|| {
            let operation = self.begin_change(Call::Xattr)?;
            let inode = self.inode(ino, &operation.guard)?;
            self.check_has_acls(inode)?;
            if kind == AclKind::Default && inode.kind != FileKind::Directory {
                return given.as_ref().map_or(Ok(()), |_| Err(Error::AccessDenied));
            }
            check_unrestricted(inode)?;
            check_owner(caller, inode)?;
            given.as_ref().map_or(Ok(()), Acl::check)?;
            self.acl_marks(inode)?;
            let values = self.values(inode)?;
            let plan = match given {
                Some(_) => Plan::Xattr,
                None => Plan::XattrRemoval,
            };
            let reservation = self.reserve(&[plan])?;

            let lock = inode.lock();
            // It may have become another's meanwhile.
            check_unrestricted(inode)?;
            check_owner(caller, inode)?;
            let mut values = values.write();
            let before = inode.ownership();
            let mut after = before;
            if let (AclKind::Access, Some(acl)) = (kind, &given) {
                after.permissions = before.permissions & !0o777 | acl.mode();
                if !keeps_setgid(before.gid) {
                    after.permissions &= !libc::S_ISGID;
                }
            }
            let is_kept = |acl: &Acl| kind == AclKind::Default || !acl.is_minimal();
            let acl = given.clone().filter(is_kept);
            let value = acl.as_ref().map(Acl::value);
            if let Some(value) = &value {
                let others = values.iter().filter(|(name, _)| ***name != *kind.name());
                let mut all: Vec<(&[u8], &[u8])> =
                    others.map(|(name, value)| (&**name, &**value)).collect();
                all.push((kind.name(), value));
                let inline = self.inline_bytes(inode);
                let charge = self.store.check_xattrs(ino, inline, &all)?;
                self.charge_value(caller, inode, charge)?;
            }
            let mut group = Group::new();
            if value.is_some() || values.contains_key(kind.name()) {
                group.push(acl_record(inode, kind, value.clone()));
            }
            if after != before {
                group.push(owned_record(inode, after));
            }
            if group.is_empty() {
                return Ok(());
            }
            let touched = [inode.changed(self.now())];
            self.log_group(|| group, reservation.take(), &touched);
            publish(&mut values, kind, value);
            inode.set_acl(&lock, kind, acl, after);
            Ok(())
        })
    }

    /// EOPNOTSUPP where there are no ACLs.
    pub(crate) fn check_has_acls(&self, inode: &Core) -> Result<()> {
        let has_xattrs = self.form_of(inode).has_xattrs;
        if self.options.has_acls && has_xattrs && inode.kind != FileKind::Symlink {
            Ok(())
        } else {
            Err(Error::NotSupported)
        }
    }

    /// Changes mode and owner as a chmod does: an access ACL gets the same permissions. The
    /// evidence is the inode's lock; the reservation is for the attribute. `touched` has the inode,
    /// with its new times.
    pub(crate) fn set_mode(
        &self,
        inode: &Core,
        lock: &finefs_locks::MutexGuard<'_, crate::inode::Guarded>,
        after: Ownership,
        (reservation, touched): (Reservation<'_>, &[Stamped<'_>]),
        guard: &Guard,
    ) -> Result<()> {
        let kind = AclKind::Access;
        let acl = inode.acl(kind, guard).cloned();
        let acl = acl.map(|acl| acl.with_mode(after.permissions));
        let acl = acl.filter(|acl| !acl.is_minimal());
        let value = acl.as_ref().map(Acl::value);
        // They are loaded: the ACL came from there. The value is as long as the one before, so it
        // fits.
        let mut values = self.values(inode)?.write();
        let group = || {
            [
                acl_record(inode, kind, value.clone()),
                owned_record(inode, after),
            ]
        };
        self.log_group(group, reservation.take(), touched);
        publish(&mut values, kind, value);
        inode.set_acl(lock, kind, acl, after);
        Ok(())
    }
}

fn publish(values: &mut Xattrs, kind: AclKind, value: Option<Box<[u8]>>) {
    match value {
        Some(value) => values.insert(kind.name().into(), value),
        None => values.remove(kind.name()),
    };
}

fn acl_record(inode: &Core, kind: AclKind, value: Option<Box<[u8]>>) -> Record {
    Record::Xattr {
        ino: inode.ino,
        sequence: inode.next_sequence(),
        name: kind.name().into(),
        value,
    }
}

fn owned_record(inode: &Core, to: Ownership) -> Record {
    Record::Owned {
        ino: inode.ino,
        sequence: inode.next_sequence(),
        to,
    }
}
