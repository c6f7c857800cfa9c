//! Open files: a reference on an inode, and a place on the per-CPU list of open files.

use std::ops::Deref;
use std::sync::Arc;

use finefs_locks::Ticket;

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::permission::{READ, WRITE, check_access};
use crate::scheme::Call;
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
///
/// `N` is how it knows its namespace. By an [`Arc`] it can go anywhere ([`Namespace::open_shared`]); but the
/// count in that is one word that every opening and closing writes, on all CPUs. A borrowed one
/// ([`Namespace::open`]) writes only the inode and this CPU's list.
pub struct OpenFile<N: Deref<Target = Namespace> = Arc<Namespace>> {
    namespace: N,
    ino: Ino,
    access: OpenAccess,
    ticket: Option<Ticket>,
}

impl Namespace {
    /// Opens an inode.
    pub fn open(
        &self,
        caller: &Caller,
        ino: Ino,
        access: OpenAccess,
    ) -> Result<OpenFile<&Namespace>> {
        let ticket = self.open_ticket(caller, ino, access)?;
        Ok(OpenFile::new(self, ino, access, ticket))
    }

    /// Opens an inode for as long as the caller likes.
    pub fn open_shared(
        self: &Arc<Self>,
        caller: &Caller,
        ino: Ino,
        access: OpenAccess,
    ) -> Result<OpenFile> {
        let ticket = self.open_ticket(caller, ino, access)?;
        Ok(OpenFile::new(Arc::clone(self), ino, access, ticket))
    }

    fn open_ticket(&self, caller: &Caller, ino: Ino, access: OpenAccess) -> Result<Ticket> {
        let operation = self.begin(Call::OpenClose)?;
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
        Ok(self.open_files.add(ino))
    }

    /// The number of open files, counted under the global side of the list's lock.
    pub fn open_file_count(&self) -> u64 {
        self.open_files.len() as u64
    }
}

impl<N: Deref<Target = Namespace>> OpenFile<N> {
    fn new(namespace: N, ino: Ino, access: OpenAccess, ticket: Ticket) -> OpenFile<N> {
        OpenFile {
            namespace,
            ino,
            access,
            ticket: Some(ticket),
        }
    }

    /// The inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// What it was opened for.
    pub fn access(&self) -> OpenAccess {
        self.access
    }
}

impl<N: Deref<Target = Namespace>> Drop for OpenFile<N> {
    fn drop(&mut self) {
        let namespace = &self.namespace;
        let _gate = namespace.gate.read();
        let _outer = namespace.scheme.enter(Call::OpenClose);
        if let Some(ticket) = self.ticket.take() {
            namespace.open_files.remove(ticket);
        }
        namespace.release(self.ino, 1);
    }
}
