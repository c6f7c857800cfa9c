//! What takes the set-user-ID and set-group-ID bits of a file away: changes of its data, and chown.
//! They also take file capabilities, for any caller: [`Namespace::take_capabilities`].
//!
//! # Rules
//! 1. The set-user-ID bit goes; so does the set-group-ID bit of a file that its group may run
//!    (POSIX write(), chown()), and of any other whose group the caller is not in (Linux
//!    `setattr_should_drop_sgid`).
//! 2. A change of data by the superuser leaves them: on Linux by a holder of CAP_FSETID, which only
//!    a kernel can tell. chown by the superuser takes them as if it were in the group.
//! 3. At chown the group of before counts.
//! 4. They stay where the change is refused: a write asks for its place first (Linux
//!    `generic_write_checks` comes before `file_remove_privs`), a truncate and chown do what they
//!    are for first. A write that then finds no space has taken them.
//!
//! Which groups a caller is in the front end tells by a call: a message of the kernel does not name
//! all of them, so that the answer takes a file of proc(5).

use crate::access::permission::check_mutable;
use crate::base::error::Result;
use crate::base::types::{Attributes, Caller, FileKind, Ino, SetAttributes};
use crate::commit::oplog::Record;
use crate::inode::{Inode, Ownership};
use crate::namespace::Namespace;
use crate::operations::data::check_write;
use crate::operations::fallocate::AllocateMode;
use crate::schemes::Call;

/// A change of a file's data that is about to be made.
#[derive(Clone, Copy, Debug)]
pub enum DataChange {
    /// Bytes are written.
    Write {
        /// From there on.
        offset_bytes: u64,
        /// How many.
        length_bytes: u64,
    },
    /// Bytes are written at the end.
    Append {
        /// How many.
        length_bytes: u64,
    },
    /// [`Namespace::allocate`] is called so.
    Allocate {
        /// What it is to do.
        mode: AllocateMode,
        /// From there on.
        offset_bytes: u64,
        /// With so many bytes.
        length_bytes: u64,
    },
}

impl Namespace {
    /// Takes the set-id bits before data are changed by a caller that may not leave them; gives the
    /// error of a change that is refused (EFBIG and its like), before which nothing is taken. True
    /// if the mode changed, which a front end has to tell caches of modes.
    pub fn remove_privileges(
        &self,
        ino: Ino,
        change: DataChange,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<bool> {
        let operation = self.begin_change(Call::SetAttributes)?;
        let inode = self.inode(ino, &operation.guard)?;
        match self.changes_data(inode, change)? {
            true => Ok(self.take_set_id(inode, is_in_group)),
            false => Ok(false),
        }
    }

    /// As [`Namespace::remove_privileges`], for front ends that are not told which callers may
    /// leave the bits: the superuser does.
    pub fn remove_privileges_unless_root(
        &self,
        caller: &Caller,
        ino: Ino,
        change: DataChange,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<bool> {
        match caller.uid {
            0 => Ok(false),
            _ => self.remove_privileges(ino, change, is_in_group),
        }
    }

    /// Sets the size of a file, for front ends that are not told which callers may leave the set-id
    /// bits: the superuser does.
    pub fn set_size_as(&self, caller: &Caller, ino: Ino, size_bytes: u64) -> Result<Attributes> {
        let change = SetAttributes {
            size_bytes: Some(size_bytes),
            ..SetAttributes::default()
        };
        let is_in_group = |gid| caller.is_in_group(gid);
        match caller.uid {
            0 => self.set_attributes(caller, ino, &change),
            _ => self.set_attributes_taking_privileges(caller, ino, &change, is_in_group),
        }
    }

    /// Takes the set-id bits of what is no directory. True if the mode changed.
    pub fn clear_privileges(
        &self,
        ino: Ino,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<bool> {
        let operation = self.begin_change(Call::SetAttributes)?;
        let inode = self.inode(ino, &operation.guard)?;
        Ok(self.take_set_id(inode, is_in_group))
    }

    /// As [`Namespace::set_attributes`], for changes that take the set-id bits: of the size by a
    /// caller that may not leave them, and of owner and group.
    pub fn set_attributes_taking_privileges(
        &self,
        caller: &Caller,
        ino: Ino,
        change: &SetAttributes,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<Attributes> {
        let group = self.attributes(ino)?.gid;
        self.set_attributes(caller, ino, change)?;
        self.clear_privileges(ino, |_| caller.uid == 0 || is_in_group(group))?;
        self.attributes(ino)
    }

    /// Sets owner and group (chown); `None` leaves them. A call that names neither takes the set-id
    /// bits all the same, and sets the change time, as on Linux: for the superuser and the owner.
    /// For others it succeeds and changes nothing, for in a mount it looks like a write that takes
    /// file capabilities away.
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
        if uid.is_none() && gid.is_none() {
            if caller.uid != 0 && self.attributes(ino)?.uid != caller.uid {
                return self.set_attributes(caller, ino, &change);
            }
            // A change of either takes them by itself.
            self.with_space(|| {
                let operation = self.begin_change(Call::SetAttributes)?;
                let inode = self.inode(ino, &operation.guard)?;
                match inode.kind {
                    FileKind::Directory => Ok(()),
                    _ => self.take_capabilities(inode),
                }
            })?;
            change.changed = Some(self.now());
        }
        self.set_attributes_taking_privileges(caller, ino, &change, is_in_group)
    }

    /// Whether anything changes; the error where it is refused whatever space there is.
    fn changes_data(&self, inode: &Inode, change: DataChange) -> Result<bool> {
        inode.file()?;
        let (offset_bytes, length_bytes) = match change {
            DataChange::Write {
                offset_bytes,
                length_bytes,
            } => {
                check_write(inode, offset_bytes)?;
                (offset_bytes, length_bytes)
            }
            DataChange::Append { length_bytes } => {
                check_mutable(inode)?;
                (inode.size_bytes(), length_bytes)
            }
            DataChange::Allocate {
                mode,
                offset_bytes,
                length_bytes,
            } => {
                self.check_allocate(inode, mode, (offset_bytes, length_bytes))?;
                return Ok(true);
            }
        };
        if length_bytes != 0 {
            self.end_of(inode, offset_bytes, length_bytes)?;
        }
        Ok(length_bytes != 0)
    }

    fn take_set_id(&self, inode: &Inode, is_in_group: impl FnOnce(u32) -> bool) -> bool {
        const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
        let seen = inode.ownership();
        if seen.permissions & SET_ID == 0 || inode.kind == FileKind::Directory {
            return false;
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
                ino: inode.ino,
                sequence: inode.next_sequence(),
                to: after,
            };
            self.log_group(|| [record()], 0, &[inode.changed(self.now())]);
            inode.set_ownership(&lock, after);
        }
        has_changed
    }
}

/// Permission bits after somebody without privilege wrote.
pub(crate) fn without_privileges(permissions: u32) -> u32 {
    let mut kept = permissions & !libc::S_ISUID;
    if permissions & libc::S_IXGRP != 0 {
        kept &= !libc::S_ISGID;
    }
    kept
}
