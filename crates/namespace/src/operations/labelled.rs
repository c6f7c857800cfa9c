//! Making things that have security attributes from the start.
//!
//! A security module of the kernel (SELinux, Smack) says at the creation of a file which label it
//! is to have. The label is in the log group of the creation: no commit has one without the other.
//! Where inodes have no extended attributes there are no labels.
//!
//! # References
//! Linux `security_inode_init_security`, `fs/ext4/xattr_security.c`.

use crossbeam_epoch::Guard;
use smallvec::SmallVec;

use crate::access::acls::Inherited;
use crate::base::error::{Error, Result};
use crate::base::store::Plan;
use crate::base::types::{Attributes, Caller, FileKind, Ino};
use crate::inode::Core;
use crate::namespace::Namespace;
use crate::operations::new_inode::{Labels, New};
use crate::operations::walk::Place;
use crate::operations::xattrs::{LARGE_VALUE, VALUE_MAX};

/// Makes things that have extended attributes from the start; see [`Namespace::labelled`].
#[derive(Clone, Copy)]
pub struct Labelled<'n> {
    namespace: &'n Namespace,
    labels: Labels<'n>,
}

impl Namespace {
    /// Makes what is made with these extended attributes (names, which start with `security.`, and
    /// values), beside those that it inherits. ENOSPC where they do not fit.
    pub fn labelled<'n>(&'n self, labels: &'n [(&'n [u8], &'n [u8])]) -> Labelled<'n> {
        Labelled {
            namespace: self,
            labels,
        }
    }

    /// What something that is made in a directory gets beside its mode; `None` where that is
    /// nothing.
    #[inline]
    pub(crate) fn given(
        &self,
        caller: &Caller,
        dir: &Core,
        new: &New<'_>,
        guard: &Guard,
    ) -> Result<Option<Box<Inherited>>> {
        let inherited = self.inherited(dir, new.kind, new.permissions, guard)?;
        match new.labels.is_empty() {
            true => Ok(inherited),
            false => self.with_labels(caller, new, inherited),
        }
    }

    #[cold]
    fn with_labels(
        &self,
        caller: &Caller,
        new: &New<'_>,
        inherited: Option<Box<Inherited>>,
    ) -> Result<Option<Box<Inherited>>> {
        if !self.geometry.new_form.has_xattrs {
            return Ok(inherited);
        }
        let nothing = || Box::new(Inherited::nothing(new.masked_permissions(caller)));
        let mut given = inherited.unwrap_or_else(nothing);
        for (name, value) in new.labels {
            if value.len() > VALUE_MAX {
                return Err(Error::ArgumentsTooLong);
            }
            given.xattrs.insert((*name).into(), (*value).into());
        }
        Ok(Some(given))
    }
}

/// What the attributes of something new may need.
pub(crate) fn attribute_plans(new: &New<'_>, given: &Inherited) -> SmallVec<[Plan; 3]> {
    let large = |(_, value): &&(&[u8], &[u8])| value.len() >= LARGE_VALUE;
    let large = new.labels.iter().filter(large);
    let large = large.map(|(_, value)| Plan::LargeXattr {
        length_bytes: value.len() as u32,
    });
    let plain = given.has_xattrs().then_some(Plan::Xattr);
    plain.into_iter().chain(large).collect()
}

impl Labelled<'_> {
    /// As [`Namespace::create_file`].
    pub fn create_file(
        self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        permissions: u32,
    ) -> Result<Attributes> {
        self.make(caller, parent, name, New::file(permissions))
    }

    /// As [`Namespace::make_node`].
    pub fn make_node(
        self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        kind: FileKind,
        permissions: u32,
        device: u64,
    ) -> Result<Attributes> {
        let new = New::node(kind, permissions, device, 1)?;
        self.make(caller, parent, name, new)
    }

    /// As [`Namespace::make_directory`].
    pub fn make_directory(
        self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        permissions: u32,
    ) -> Result<Attributes> {
        self.make(caller, parent, name, New::directory(permissions, 1))
    }

    /// As [`Namespace::make_symlink`].
    pub fn make_symlink(
        self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attributes> {
        let new = New::symlink(target, self.namespace.geometry.symlink_max, 1)?;
        self.make(caller, parent, name, new)
    }

    /// As [`Namespace::create_unnamed`].
    pub fn create_unnamed(
        self,
        caller: &Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        let new = New {
            labels: self.labels,
            ..New::file(permissions)
        };
        self.namespace.make_unnamed(caller, parent, &new)
    }

    fn make(self, caller: &Caller, parent: Ino, name: &[u8], new: New<'_>) -> Result<Attributes> {
        let new = New {
            labels: self.labels,
            ..new
        };
        self.namespace.make(caller, Place::Name(parent, name), &new)
    }
}
