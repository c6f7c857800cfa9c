//! MKNOD, MKDIR, SYMLINK and TMPFILE, and what is appended to them.

use finefs_namespace::types::{Attributes, Caller, FileKind, Ino};
use finefs_namespace::{Error, Result};

use super::{Adapter, Answer, put};
use crate::abi::{CreateIn, CreateOut, InHeader, MknodIn, OPEN_KEEP_CACHE, OPEN_NO_FLUSH, OpenOut};
use crate::convert::entry_out;
use crate::extension::Extension;

/// Who makes something, and where.
pub(super) struct Maker<'a> {
    caller: Caller,
    parent: Ino,
    extension: &'a Extension<'a>,
}

impl Adapter {
    /// Who sent a request that makes something in the directory that it is about.
    pub(super) fn maker<'a>(
        &self,
        header: &InHeader,
        umask: u32,
        extension: &'a Extension<'a>,
    ) -> Maker<'a> {
        let caller = Caller {
            groups: extension.groups.clone(),
            ..self.caller(header, umask)
        };
        Maker {
            caller,
            parent: self.numbers.ino(header.node),
            extension,
        }
    }

    pub(super) fn make_symlink(
        &self,
        maker: &Maker<'_>,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attributes> {
        self.namespace
            .labelled(&maker.extension.labels)
            .make_symlink(&maker.caller, maker.parent, name, target)
    }

    pub(super) fn make_directory(
        &self,
        maker: &Maker<'_>,
        name: &[u8],
        mode: u32,
    ) -> Result<Attributes> {
        self.namespace
            .labelled(&maker.extension.labels)
            .make_directory(&maker.caller, maker.parent, name, mode & 0o7777)
    }

    pub(super) fn make_node(
        &self,
        maker: &Maker<'_>,
        name: &[u8],
        fields: &MknodIn,
    ) -> Result<Attributes> {
        let (caller, parent) = (&maker.caller, maker.parent);
        let permissions = fields.mode & 0o7777;
        let labelled = self.namespace.labelled(&maker.extension.labels);
        match FileKind::from_mode(fields.mode) {
            Some(FileKind::Regular) => labelled.create_file(caller, parent, name, permissions),
            Some(kind) => {
                let device = u64::from(fields.device);
                labelled.make_node(caller, parent, name, kind, permissions, device)
            }
            None => Err(Error::Invalid),
        }
    }

    /// O_TMPFILE. The kernel opens it by the same message, and this file alone is released later.
    pub(super) fn make_unnamed(
        &self,
        maker: &Maker<'_>,
        fields: &CreateIn,
        space: &mut [u8],
    ) -> Answer {
        let (caller, parent) = (&maker.caller, maker.parent);
        let made = self
            .namespace
            .labelled(&maker.extension.labels)
            .create_unnamed(caller, parent, fields.mode & 0o7777)?;
        let node = self.numbers.node(made.ino);
        let out = CreateOut {
            entry: entry_out(self.shown(), node, &made, self.lifetime(parent)),
            open: OpenOut {
                handle: 0,
                flags: OPEN_KEEP_CACHE | OPEN_NO_FLUSH,
                backing_id: 0,
            },
        };
        put(space, &out)
    }
}
