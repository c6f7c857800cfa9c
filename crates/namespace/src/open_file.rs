//! Open files: a reference on an inode, and a place on the per-CPU list of open files.

use std::sync::Arc;

use finefs_locks::Ticket;

use crate::commit::lost_data;
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::permission::{READ, WRITE, check_access};
use crate::types::{Caller, FileKind, Ino};
use crate::write_errors::Sample;

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
    /// What is known of errors of writing, for a regular file.
    write_errors: Option<Sample>,
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
        let write_errors = inode.file().ok().map(|file| file.write_errors.sample());
        Ok(OpenFile {
            namespace: Arc::clone(self),
            ino,
            access,
            ticket,
            write_errors,
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

    /// Makes the file's data and attributes durable (fsync(2)). EIO when data of the file could not be
    /// written since it was opened: once for each open file, and then again for the next such failure.
    pub fn sync(&self) -> Result<()> {
        let namespace = &*self.namespace;
        let (dirty, is_lossy) = {
            let operation = namespace.begin()?;
            let inode = namespace.inode(self.ino, &operation.guard)?;
            let is_lossy = match (&self.write_errors, inode.file()) {
                (Some(known), Ok(file)) => file.write_errors.is_news(known),
                _ => false,
            };
            (inode.dirty_generation(), is_lossy)
        };
        namespace.sync_generation(dirty)?;
        if is_lossy { Err(lost_data()) } else { Ok(()) }
    }

    /// What it was opened for.
    pub fn access(&self) -> OpenAccess {
        self.access
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.namespace.open_files.remove(ticket);
        }
        self.namespace.forget(self.ino, 1);
    }
}
