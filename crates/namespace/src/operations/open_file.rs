//! Open files: a reference on an inode, and a place on the per-CPU list of open files.

use finefs_locks::primitive::atomic::{AtomicBool, Ordering};
use finefs_locks::{Removals, Ticket};

use crate::access::permission::{READ, WRITE};
use crate::base::error::{Error, Result};
use crate::base::types::{Caller, FileKind, Ino};
use crate::data::write_errors::{Sample, WriteErrors};
use crate::inode::Core;
use crate::namespace::Namespace;
use crate::operations::sync::SyncScope;
use crate::schemes::Call;

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

impl OpenAccess {
    pub(crate) fn mask(self) -> u32 {
        match self {
            OpenAccess::Read => READ,
            OpenAccess::Write => WRITE,
            OpenAccess::ReadWrite => READ | WRITE,
        }
    }
}

/// What an open file holds: to be given back with [`Namespace::close`].
#[derive(Debug)]
#[must_use = "the file stays open until it is given back to `close`"]
pub struct Opened {
    ino: Ino,
    kind: FileKind,
    ticket: Ticket,
    /// What is known of errors of writing, for a regular file.
    write_errors: Option<Sample>,
    /// It may own locks.
    has_locked: AtomicBool,
}

impl Opened {
    /// The inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// What the inode is.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// A number that no other open file of the namespace has while this one is open.
    pub(crate) fn key(&self) -> u64 {
        self.ticket.key()
    }

    /// True when the open file may own locks.
    pub(crate) fn has_locked(&self) -> bool {
        self.has_locked.load(Ordering::Relaxed)
    }

    pub(crate) fn note_locked(&self) {
        self.has_locked.store(true, Ordering::Relaxed);
    }
}

/// An open file. It keeps its inode alive, and ends when dropped.
///
/// It borrows its namespace: the count of an `Arc` would be one word that every opening and closing
/// writes, on all CPUs.
pub struct OpenFile<'n> {
    namespace: &'n Namespace,
    opened: Option<Opened>,
    ino: Ino,
    access: OpenAccess,
}

impl Namespace {
    /// Opens an inode.
    pub fn open(&self, caller: &Caller, ino: Ino, access: OpenAccess) -> Result<OpenFile<'_>> {
        let opened = self.open_inode(caller, ino, access)?;
        Ok(OpenFile {
            namespace: self,
            ino,
            opened: Some(opened),
            access,
        })
    }

    fn open_inode(&self, caller: &Caller, ino: Ino, access: OpenAccess) -> Result<Opened> {
        let operation = self.begin(Call::OpenClose)?;
        let inode = self.inode(ino, &operation.guard)?;
        self.check_open(caller, inode, access)?;
        if !self.inodes.refer(inode, &operation.guard) {
            return Err(Error::Stale);
        }
        Ok(self.opened(inode))
    }

    /// Whether the caller may open an inode so.
    pub(crate) fn check_open(
        &self,
        caller: &Caller,
        inode: &Core,
        access: OpenAccess,
    ) -> Result<()> {
        let mask = access.mask();
        self.check_access(caller, inode, mask)?;
        if mask & WRITE != 0 {
            if inode.kind == FileKind::Directory {
                return Err(Error::IsADirectory);
            }
            if self.options.is_read_only {
                return Err(Error::ReadOnly);
            }
        }
        Ok(())
    }

    /// Makes an open file of a reference that was taken on an inode.
    pub(crate) fn opened(&self, inode: &Core) -> Opened {
        let file = inode.file().ok();
        Opened {
            write_errors: file.map(|file| file.write_errors.sample()),
            ino: inode.ino,
            kind: inode.kind,
            ticket: self.open_files.add(inode.ino),
            has_locked: AtomicBool::new(false),
        }
    }

    /// The same for a regular file that was just made.
    pub(crate) fn opened_new(&self, ino: Ino) -> Opened {
        Opened {
            write_errors: Some(WriteErrors::new().sample()),
            ino,
            kind: FileKind::Regular,
            ticket: self.open_files.add(ino),
            has_locked: AtomicBool::new(false),
        }
    }

    /// Makes the data and attributes of an open file durable (fsync(2)). EIO when data of the file
    /// could not be written since it was opened: once for each open file, and then again for the
    /// next such failure.
    pub fn sync_opened(&self, opened: &Opened, scope: SyncScope) -> Result<()> {
        let known = opened.write_errors.as_ref();
        self.sync_inode(opened.ino, scope, |file| {
            known.is_some_and(|known| file.write_errors.is_news(known))
        })
    }

    /// Ends an open file. The last one of an inode without names frees it.
    pub fn close(&self, opened: Opened) {
        self.release_own_locks(&opened);
        let _gate = self.gate.read();
        let _outer = self.scheme.enter(Call::OpenClose);
        self.open_files.remove(opened.ticket);
        self.release(opened.ino, 1);
    }

    /// How often open files were closed, and on which CPU: see [`Removals`].
    pub fn open_file_removals(&self) -> Removals {
        self.open_files.removals()
    }

    /// The number of open files, counted under the global side of the list's lock.
    pub fn open_file_count(&self) -> u64 {
        self.open_files.len() as u64
    }
}

impl OpenFile<'_> {
    /// The inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// [`Namespace::sync_opened`] of this one, data and attributes.
    pub fn sync(&self) -> Result<()> {
        match &self.opened {
            Some(opened) => self.namespace.sync_opened(opened, SyncScope::All),
            None => Ok(()),
        }
    }

    /// What it was opened for.
    pub fn access(&self) -> OpenAccess {
        self.access
    }

    pub(super) fn namespace(&self) -> &Namespace {
        self.namespace
    }

    pub(super) fn opened(&self) -> &Opened {
        self.opened.as_ref().expect("open until it is dropped")
    }
}

impl Drop for OpenFile<'_> {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take() {
            self.namespace.close(opened);
        }
    }
}
