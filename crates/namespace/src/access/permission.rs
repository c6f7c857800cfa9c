//! Permission checks, as POSIX (XBD 4.7 File Access Permissions), acl(5) and Linux make them.
//!
//! A caller whose checks were made already (`Caller::is_checked`: the kernel under FUSE's
//! `default_permissions`) passes all of them, but for what an inode's flags forbid (chattr(1)): no
//! kernel knows of those.

use crate::base::error::{Error, Result};
use crate::base::file_flags::FileFlags;
use crate::base::types::{Caller, FileKind};
use crate::inode::acl::AclKind;
use crate::inode::{Core, Ownership};
use crate::namespace::Namespace;

pub(crate) const READ: u32 = libc::R_OK as u32;
pub(crate) const WRITE: u32 = libc::W_OK as u32;
pub(crate) const EXECUTE: u32 = libc::X_OK as u32;

impl Namespace {
    /// EPERM for writing where the inode is immutable; else EACCES unless the caller has every
    /// access in `mask`.
    #[inline]
    pub(crate) fn check_access(&self, caller: &Caller, inode: &Core, mask: u32) -> Result<()> {
        if mask & WRITE != 0 {
            check_mutable(inode)?;
        }
        if caller.is_checked() {
            return Ok(());
        }
        self.check_unchecked(caller, inode, mask)
    }

    fn check_unchecked(&self, caller: &Caller, inode: &Core, mask: u32) -> Result<()> {
        let (owned, marks) = inode.ownership_and_marks();
        let is_granted = if caller.uid == 0 {
            mask & EXECUTE == 0
                || inode.kind == FileKind::Directory
                || owned.permissions & 0o111 != 0
        } else if marks.may_have(AclKind::Access) && caller.uid != owned.uid {
            self.is_granted_by_acl(caller, inode, mask)?
        } else {
            is_granted_by_mode(caller, owned, mask)
        };
        if is_granted {
            Ok(())
        } else {
            Err(Error::AccessDenied)
        }
    }

    /// Whether somebody else than the owner gets every access in `mask` on an inode that may have
    /// an access ACL.
    #[cold]
    fn is_granted_by_acl(&self, caller: &Caller, inode: &Core, mask: u32) -> Result<bool> {
        let guard = &crossbeam_epoch::pin();
        self.acl_marks(inode)?;
        loop {
            let (owned, marks) = inode.ownership_and_marks();
            if caller.uid == owned.uid || !marks.has(AclKind::Access) {
                return Ok(is_granted_by_mode(caller, owned, mask));
            }
            // It is gone only if it was taken away since, which the marks then tell.
            if let Some(acl) = inode.acl(AclKind::Access, guard) {
                return Ok(acl.grants(caller, owned.gid, mask));
            }
        }
    }

    /// Whether the caller may take `child`'s name out of `dir`: write and search permission, and in
    /// a sticky directory ownership of either; and neither is append-only or immutable.
    pub(crate) fn check_remove(&self, caller: &Caller, dir: &Core, child: &Core) -> Result<()> {
        self.check_access(caller, dir, WRITE | EXECUTE)?;
        let dir_owned = dir.ownership();
        if dir_owned.flags.contains(FileFlags::APPEND_ONLY) {
            return Err(Error::NotPermitted);
        }
        check_unrestricted(child)?;
        let is_sticky = dir_owned.permissions & libc::S_ISVTX != 0;
        if is_sticky && !is_owner(caller, dir) && !is_owner(caller, child) {
            return Err(Error::NotPermitted);
        }
        dir.check_names()
    }
}

fn is_granted_by_mode(caller: &Caller, owned: Ownership, mask: u32) -> bool {
    let shift = if caller.uid == owned.uid {
        6
    } else if caller.is_in_group(owned.gid) {
        3
    } else {
        0
    };
    mask & !(owned.permissions >> shift) & 7 == 0
}

/// True when [`Namespace::check_access`] lets the caller search every directory.
pub(crate) fn may_search_all(caller: &Caller) -> bool {
    caller.is_checked() || caller.uid == 0
}

/// EPERM if the inode is immutable.
#[inline]
pub(crate) fn check_mutable(inode: &Core) -> Result<()> {
    check_has_none(inode, FileFlags::IMMUTABLE)
}

/// EPERM if the inode is immutable or append-only: neither its attributes nor its names are changed
/// then, and no data of it go away.
#[inline]
pub(crate) fn check_unrestricted(inode: &Core) -> Result<()> {
    check_has_none(inode, FileFlags::IMMUTABLE.union(FileFlags::APPEND_ONLY))
}

#[inline]
fn check_has_none(inode: &Core, flags: FileFlags) -> Result<()> {
    match inode.flags().intersects(flags) {
        true => Err(Error::NotPermitted),
        false => Ok(()),
    }
}

/// EPERM unless the caller owns the inode.
pub(crate) fn check_owner(caller: &Caller, inode: &Core) -> Result<()> {
    if is_owner(caller, inode) {
        Ok(())
    } else {
        Err(Error::NotPermitted)
    }
}

pub(crate) fn is_owner(caller: &Caller, inode: &Core) -> bool {
    caller.is_checked() || caller.uid == 0 || caller.uid == inode.ownership().uid
}
