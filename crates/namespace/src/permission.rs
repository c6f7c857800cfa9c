//! Permission checks, as POSIX (XBD 4.7 File Access Permissions) and Linux make them.
//!
//! A caller whose checks were made already (`Caller::is_checked`: the kernel under FUSE's
//! `default_permissions`) passes all of them.

use crate::error::{Error, Result};
use crate::inode::Core;
use crate::types::{Caller, FileKind};

pub(crate) const READ: u32 = libc::R_OK as u32;
pub(crate) const WRITE: u32 = libc::W_OK as u32;
pub(crate) const EXECUTE: u32 = libc::X_OK as u32;

/// EACCES unless the caller has every access in `mask`.
pub(crate) fn check_access(caller: &Caller, inode: &Core, mask: u32) -> Result<()> {
    if caller.is_checked {
        return Ok(());
    }
    if caller.uid == 0 {
        let is_allowed = mask & EXECUTE == 0
            || inode.kind == FileKind::Directory
            || inode.ownership().permissions & 0o111 != 0;
        return if is_allowed {
            Ok(())
        } else {
            Err(Error::AccessDenied)
        };
    }
    let owned = inode.ownership();
    let shift = if caller.uid == owned.uid {
        6
    } else if caller.is_in_group(owned.gid) {
        3
    } else {
        0
    };
    if mask & !(owned.permissions >> shift) & 7 == 0 {
        Ok(())
    } else {
        Err(Error::AccessDenied)
    }
}

/// True when [`check_access`] lets the caller search every directory.
pub(crate) fn may_search_all(caller: &Caller) -> bool {
    caller.is_checked || caller.uid == 0
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
    caller.is_checked || caller.uid == 0 || caller.uid == inode.ownership().uid
}

/// Whether the caller may take `child`'s name out of `dir`: write and search permission, and in a
/// sticky directory ownership of either.
pub(crate) fn check_remove(caller: &Caller, dir: &Core, child: &Core) -> Result<()> {
    check_access(caller, dir, WRITE | EXECUTE)?;
    let is_sticky = dir.ownership().permissions & libc::S_ISVTX != 0;
    if is_sticky && !is_owner(caller, dir) && !is_owner(caller, child) {
        return Err(Error::NotPermitted);
    }
    Ok(())
}
