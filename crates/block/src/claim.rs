//! What keeps others from an image that is open here, and what they are told about it.
//!
//! # Data model
//! - The flock(2) of an image file or block device is taken by whoever opens it ([`crate::file`]).
//!   Of the file below a loop device it is taken, too.
//! - Of a block device there is besides a handle that was opened with O_EXCL: while it is open, the
//!   kernel gives the device to nobody else, also not to itself. A front end hands the device over
//!   to the kernel (`fuseblk`), which then keeps others away: [`Claim::hand_over`].
//! - A *server* of finefs sets marks, shared locks on bytes far behind any image's end: that it has
//!   the image for a mount ([`Claim::mark_served`]) or without ([`Claim::mark_exported`]), and
//!   later that it only writes out what is left ([`Claim::mark_ending`]). Whoever finds the image
//!   in use looks for them, so that it can wait for one that is about to end.
//!
//! The marks are locks of an open file description, so they go with the server whatever way it
//! ends, and anybody who may open the image can see them. Where the storage has no such locks there
//! are no marks: then nobody waits.
//!
//! # Locking
//! `block.claim`, held while the device is opened again or closed.
//!
//! # References
//! fcntl(2), "Open file description locks"; open(2) on O_EXCL with block devices.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_locks::{LockClass, Mutex};
use nix::fcntl::{FcntlArg, fcntl};

/// The handle that keeps a block device.
pub static CLAIM: LockClass = LockClass::new("block.claim", 93).held_over_io();

/// A byte whose lock says something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// A server of finefs has it, for a mount.
    Served,
    /// The same without a mount, for clients.
    Exported,
    /// And that is about to end.
    Ending,
}

impl Mark {
    fn lock(self, kind: libc::c_int) -> libc::flock {
        let byte = match self {
            Mark::Exported => 3,
            Mark::Served => 2,
            Mark::Ending => 1,
        };
        libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: libc::off_t::MAX - byte,
            l_len: 1,
            l_pid: 0,
        }
    }

    fn set(self, file: &File) -> io::Result<()> {
        fcntl(file, FcntlArg::F_OFD_SETLK(&self.lock(libc::F_RDLCK)))?;
        Ok(())
    }

    /// Somebody else has set it.
    pub(crate) fn is_set(self, file: &File) -> bool {
        let mut lock = self.lock(libc::F_WRLCK);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).is_ok()
            && lock.l_type != libc::F_UNLCK as libc::c_short
    }
}

/// See the module's head. A clone is the same claim.
#[derive(Clone, Debug)]
pub struct Claim(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    is_block_device: bool,
    /// Another handle of the open file description that has the flock.
    file: File,
    /// Of a block device that is claimed, until it is handed over.
    exclusive: Mutex<Option<File>>,
    /// The file below a loop device, with its flock.
    backing: Option<File>,
    /// Who took it.
    process: u32,
}

/// Opens a block device so that nobody else can.
pub(crate) fn open_exclusively(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_EXCL)
        .open(path)
}

impl Claim {
    /// On what is open as `file`; `exclusive` is from [`open_exclusively`], and `backing` is the
    /// file below, with a flock.
    pub(crate) fn new(
        path: &Path,
        file: &File,
        is_block_device: bool,
        (exclusive, backing): (Option<File>, Option<File>),
    ) -> io::Result<Claim> {
        Ok(Claim(Arc::new(Inner {
            path: path.to_owned(),
            is_block_device,
            file: file.try_clone()?,
            exclusive: Mutex::new(&CLAIM, exclusive),
            backing,
            process: std::process::id(),
        })))
    }

    /// True for a block device of the kernel.
    pub fn is_block_device(&self) -> bool {
        self.0.is_block_device
    }

    /// The file below a loop device.
    pub(crate) fn backing(&self) -> Option<&File> {
        self.0.backing.as_ref()
    }

    /// Those with a flock.
    fn files(&self) -> impl Iterator<Item = &File> {
        std::iter::once(&self.0.file).chain(&self.0.backing)
    }

    fn mark(&self, mark: Mark) {
        for file in self.files() {
            let _ = mark.set(file);
        }
    }

    /// Says that a server of finefs has it, until the process ends. Nothing hangs on whether that
    /// works.
    pub fn mark_served(&self) {
        self.mark(Mark::Served);
    }

    /// The same of a server whose clients come by themselves, without a mount.
    pub fn mark_exported(&self) {
        self.mark(Mark::Exported);
    }

    /// Says that the server only writes out what is left.
    pub fn mark_ending(&self) {
        self.mark(Mark::Ending);
    }

    /// Lets others have it, though it is still open here: it is no longer used. Not in a process
    /// that was forked since: the claim is its parent's.
    pub fn release(&self) {
        if self.0.process != std::process::id() {
            return;
        }
        self.hand_over();
        for file in self.files() {
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
        }
    }

    /// No longer keeps a block device from the kernel, which is about to take it.
    pub fn hand_over(&self) {
        *self.0.exclusive.lock() = None;
    }

    /// Keeps a block device again that the kernel has not taken. EBUSY when somebody else has,
    /// meanwhile.
    pub fn take_back(&self) -> io::Result<()> {
        let mut exclusive = self.0.exclusive.lock();
        if exclusive.is_none() {
            *exclusive = Some(open_exclusively(&self.0.path)?);
        }
        Ok(())
    }
}
