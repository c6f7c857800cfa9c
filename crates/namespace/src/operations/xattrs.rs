//! Extended attributes (xattr(7)).
//!
//! A set or remove is decided and logged under the inode's lock; the map of values has a lock of
//! its own so that readers do not wait for attribute changes.

use crate::access::acls::{is_root_or_member, may_keep_setgid};
use crate::access::permission::{READ, WRITE, check_owner, check_unrestricted};
use crate::base::error::{Error, Result};
use crate::base::store::{Charge, Plan};
use crate::base::types::{Caller, FileKind, Ino};
use crate::commit::oplog::Record;
use crate::inode::acl::AclKind;
use crate::inode::{Capabilities, Inode};
use crate::namespace::Namespace;
use crate::schemes::Call;

/// Whether setting an attribute may make it, replace it, or both (setxattr(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XattrMode {
    /// Either.
    #[default]
    Set,
    /// Neither: EEXIST when it is there, ENODATA when it is not. So Linux takes `XATTR_CREATE |
    /// XATTR_REPLACE`.
    CreateAndReplace,
    /// EEXIST when it is there.
    Create,
    /// ENODATA when it is not.
    Replace,
}

/// Longest name with its prefix, in bytes (XATTR_NAME_MAX).
const NAME_MAX: usize = 255;
/// Longest value, in bytes (XATTR_SIZE_MAX).
pub(crate) const VALUE_MAX: usize = 65536;
/// What an executable may do besides what its caller may.
pub(crate) const CAPABILITIES: &[u8] = b"security.capability";
/// A value from this length on (in bytes) may get a place of its own (Linux `ea_inode`).
pub(crate) const LARGE_VALUE: usize = 128;

impl Namespace {
    /// The value of an attribute; ENODATA when there is none.
    pub fn xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let operation = self.begin(Call::Xattr)?;
        let inode = self.inode(ino, &operation.guard)?;
        self.check_name(caller, inode, name, READ)?;
        if inode.never_had_xattrs() {
            return Err(Error::NoAttribute);
        }
        let values = self.values(inode)?.read();
        values
            .get(name)
            .map(|value| value.to_vec())
            .ok_or(Error::NoAttribute)
    }

    /// The names of all attributes that the caller may see.
    pub fn list_xattrs(&self, caller: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let operation = self.begin(Call::Xattr)?;
        let inode = self.inode(ino, &operation.guard)?;
        if inode.never_had_xattrs() {
            return Ok(Vec::new());
        }
        let is_privileged = caller.uid == 0;
        let values = self.values(inode)?.read();
        let names = values.keys().filter(|name| {
            (is_privileged || !name.starts_with(b"trusted."))
                && (self.has_acls() || AclKind::of_name(name).is_none())
        });
        Ok(names.map(|name| name.to_vec()).collect())
    }

    /// Sets an attribute.
    ///
    /// ACLs are set so too, in the form of acl(5)'s `system.posix_acl_access` and, for directories
    /// (else EACCES), `system.posix_acl_default`: by the owner (else EPERM), and what is no ACL is
    /// refused (EINVAL). As in Linux `mode` does not count then, a value without entries removes
    /// the ACL, and an access ACL sets the permission bits, is kept only if it says more than they
    /// do, and takes the set-group-ID bit away where a chmod by the caller would.
    pub fn set_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if value.len() > VALUE_MAX {
            return Err(Error::ArgumentsTooLong);
        }
        if let Some(kind) = AclKind::of_name(name) {
            let keeps = |gid| may_keep_setgid(caller, gid);
            return self.change_acl(caller, ino, kind, Some(value), keeps);
        }
        self.change_xattr(caller, ino, name, Some(value), mode)
    }

    /// [`Namespace::set_xattr`] for a caller whose checks were made ([`Caller::is_checked`]).
    /// `loses_setgid` is what they found: whether an access ACL takes the set-group-ID bit away;
    /// `None` where nobody has looked: it stays for root and for members of the inode's group.
    pub fn set_xattr_checked(
        &self,
        caller: &Caller,
        ino: Ino,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
        loses_setgid: Option<bool>,
    ) -> Result<()> {
        match AclKind::of_name(name) {
            Some(kind) if value.len() <= VALUE_MAX => {
                let keeps = |gid| match loses_setgid {
                    Some(loses) => !loses,
                    None => is_root_or_member(caller, gid),
                };
                self.change_acl(caller, ino, kind, Some(value), keeps)
            }
            _ => self.set_xattr(caller, ino, name, value, mode),
        }
    }

    /// Removes an attribute; ENODATA when there is none. To remove an ACL that is not there is no
    /// error, as in Linux.
    pub fn remove_xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        match AclKind::of_name(name) {
            Some(kind) => self.change_acl(caller, ino, kind, None, |_| true),
            None => self.change_xattr(caller, ino, name, None, XattrMode::Replace),
        }
    }

    fn change_xattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        self.with_space(|| {
            let operation = self.begin_change(Call::Xattr)?;
            let inode = self.inode(ino, &operation.guard)?;
            self.check_name(caller, inode, name, WRITE)?;
            self.change_xattr_of(caller, inode, name, value, mode)
        })
    }

    /// The change itself, within an operation that has taken no lock yet.
    fn change_xattr_of(
        &self,
        caller: &Caller,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        if value.is_some() && !self.form_of(inode).has_xattrs {
            return Err(Error::NotSupported);
        }
        let values = self.values(inode)?;
        let plan = match value {
            Some(value) if value.len() >= LARGE_VALUE => Plan::LargeXattr {
                length_bytes: value.len() as u32,
            },
            Some(_) => Plan::Xattr,
            None => Plan::XattrRemoval,
        };
        let reservation = self.reserve(&[plan])?;
        let lock = inode.lock();
        let mut values = values.write();
        if value.is_some() && name == CAPABILITIES {
            inode.note_capabilities(true);
        }
        match (mode, values.contains_key(name)) {
            (XattrMode::Create | XattrMode::CreateAndReplace, true) => {
                return Err(Error::Exists);
            }
            (XattrMode::Replace | XattrMode::CreateAndReplace, false) => {
                return Err(Error::NoAttribute);
            }
            _ => {}
        }
        if value.is_some() && values.get(name).map(|value| &**value) == value {
            // As in Linux, not even the time of change tells of it.
            return Ok(());
        }
        if let Some(value) = value {
            let mut after: Vec<(&[u8], &[u8])> = values
                .iter()
                .filter(|(known, _)| ***known != *name)
                .map(|(known, value)| (&**known, &**value))
                .collect();
            after.push((name, value));
            let inline = self.inline_bytes(inode);
            let charge = self.store.check_xattrs(inode.ino, inline, &after)?;
            self.charge_value(caller, inode, charge)?;
        }
        let record = || Record::Xattr {
            ino: inode.ino,
            sequence: inode.next_sequence(),
            name: name.into(),
            value: value.map(Into::into),
        };
        let touched = [inode.changed(self.now())];
        self.log_group(|| [record()], reservation.take(), &touched);
        match value {
            Some(value) => values.insert(name.into(), value.into()),
            None => values.remove(name),
        };
        drop(lock);
        Ok(())
    }

    /// EDQUOT unless the owner of an inode may have what the value of an attribute takes of its
    /// own. The kernel, too, asks for it before what it replaces is free.
    pub(crate) fn charge_value(&self, caller: &Caller, inode: &Inode, value: Charge) -> Result<()> {
        if value.inodes == 0 {
            return Ok(());
        }
        let owner = inode.ownership();
        self.charge(&Charge {
            uid: Some(owner.uid),
            gid: Some(owner.gid),
            project: Some(owner.project),
            is_privileged: caller.uid == 0,
            ..value
        })
    }

    /// Takes the capabilities of a file away, within an operation that has taken no lock yet (Linux
    /// `cap_inode_killpriv`). Attributes that cannot be read hold none, as in Linux.
    pub(crate) fn take_capabilities(&self, inode: &Inode) -> Result<()> {
        if !self.may_have_capabilities(inode).unwrap_or(false) {
            return Ok(());
        }
        match self.change_xattr_of(
            &Caller::root(),
            inode,
            CAPABILITIES,
            None,
            XattrMode::Replace,
        ) {
            // Somebody else did.
            Err(Error::NoAttribute) => Ok(()),
            outcome => outcome,
        }
    }

    /// Looks once, and keeps nothing of what it found but whether there are any.
    fn may_have_capabilities(&self, inode: &Inode) -> Result<bool> {
        match inode.capabilities() {
            Capabilities::None => return Ok(false),
            Capabilities::Maybe => {
                return Ok(self.values(inode)?.read().contains_key(CAPABILITIES));
            }
            Capabilities::Unknown => {}
        }
        let has_some = !inode.never_had_xattrs() && {
            let stored = self.note_load(self.store.load_xattrs(inode.ino))?;
            stored.iter().any(|(name, _)| name == CAPABILITIES)
        };
        Ok(inode.note_capabilities(has_some))
    }

    /// Whether the caller may use an attribute of this name on this inode (xattr(7)). No system
    /// call has a name with a NUL, and no image.
    fn check_name(&self, caller: &Caller, inode: &Inode, name: &[u8], mask: u32) -> Result<()> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Error::Range);
        }
        if name.contains(&0) {
            return Err(Error::Invalid);
        }
        if mask == WRITE {
            check_unrestricted(inode)?;
        }
        if name.starts_with(b"user.") {
            let holds_data = matches!(inode.kind, FileKind::Regular | FileKind::Directory);
            if !holds_data {
                return Err(if mask == WRITE {
                    Error::NotPermitted
                } else {
                    Error::NoAttribute
                });
            }
            let is_sticky = inode.ownership().permissions & libc::S_ISVTX != 0;
            if mask == WRITE && inode.kind == FileKind::Directory && is_sticky {
                check_owner(caller, inode)?;
            }
            self.check_access(caller, inode, mask)?;
            return has_suffix(name, b"user.");
        }
        if name.starts_with(b"trusted.") {
            let denied = if mask == WRITE {
                Error::NotPermitted
            } else {
                Error::NoAttribute
            };
            return if caller.uid == 0 {
                has_suffix(name, b"trusted.")
            } else {
                Err(denied)
            };
        }
        if name.starts_with(b"security.") {
            return if mask == READ || caller.is_checked() || caller.uid == 0 {
                has_suffix(name, b"security.")
            } else {
                Err(Error::NotPermitted)
            };
        }
        match AclKind::of_name(name) {
            Some(_) => self.check_has_acls(inode),
            None => Err(Error::NotSupported),
        }
    }
}

/// EINVAL for a name that is a prefix and nothing else (Linux `xattr_resolve_name`).
fn has_suffix(name: &[u8], prefix: &[u8]) -> Result<()> {
    match name.len() > prefix.len() {
        true => Ok(()),
        false => Err(Error::Invalid),
    }
}
