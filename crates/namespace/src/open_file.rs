//! Open files: a reference on an inode, and a place on the per-CPU list of open files.

use std::sync::Arc;

use finefs_locks::Ticket;
use finefs_locks::primitive::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::permission::{READ, WRITE, check_access};
use crate::types::{Caller, FileKind, Ino};

/// For what a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenAccess {
    /// O_RDONLY
    Read,
    /// O_WRONLY
    Write,
    /// O_RDWR
    ReadWrite,
}

/// An open file. It keeps its inode alive, and ends when dropped.
pub struct OpenFile {
    namespace: Arc<Namespace>,
    ino: Ino,
    access: OpenAccess,
    ticket: Option<Ticket>,
    /// It may own locks.
    has_locked: AtomicBool,
}

impl Namespace {
    /// Opens an inode.
    pub fn open(
        self: &Arc<Self>,
        caller: &Caller,
        ino: Ino,
        access: OpenAccess,
    ) -> Result<OpenFile> {
        let operation = self.begin()?;
        let inode = self.inode(ino, &operation.guard)?;
        let mask = match access {
            OpenAccess::Read => READ,
            OpenAccess::Write => WRITE,
            OpenAccess::ReadWrite => READ | WRITE,
        };
        check_access(caller, inode, mask)?;
        if mask & WRITE != 0 {
            if inode.kind == FileKind::Directory {
                return Err(Error::IsADirectory);
            }
            if self.options.is_read_only {
                return Err(Error::ReadOnly);
            }
        }
        if !inode.refer(1) {
            return Err(Error::Stale);
        }
        let ticket = Some(self.open_files.add(ino));
        Ok(OpenFile {
            namespace: Arc::clone(self),
            ino,
            access,
            ticket,
            has_locked: AtomicBool::new(false),
        })
    }

    /// The number of open files, counted under the global side of the list's lock.
    pub fn open_file_count(&self) -> u64 {
        self.open_files.len() as u64
    }
}

impl OpenFile {
    /// The inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// What it was opened for.
    pub fn access(&self) -> OpenAccess {
        self.access
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A number that no other open file of the namespace has while this one is open.
    pub(crate) fn key(&self) -> u64 {
        self.ticket.as_ref().map_or(u64::MAX, Ticket::key)
    }

    /// True when the open file may own locks.
    pub(crate) fn has_locked(&self) -> bool {
        self.has_locked.load(Ordering::Relaxed)
    }

    pub(crate) fn note_locked(&self) {
        self.has_locked.store(true, Ordering::Relaxed);
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.release_own_locks();
        if let Some(ticket) = self.ticket.take() {
            self.namespace.open_files.remove(ticket);
        }
        self.namespace.forget(self.ino, 1);
    }
}
