//! A regular file or a block device of the kernel.
//!
//! # Who may open what
//! - [`Access::ReadWrite`]: nobody else may use the image: an exclusive flock on the file, no loop
//!   device attached to it; a block device is claimed with O_EXCL, which the kernel refuses while
//!   it is mounted.
//! - [`Access::ReadOnly`]: other readers are welcome: a shared flock, no loop device that may
//!   write.
//! - [`Access::Inspect`]: takes no lock and checks nothing; what is read may be in motion.
//!
//! # References
//! flock(2), open(2) on O_EXCL with block devices, fallocate(2).

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use finefs_locks::order;
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use crate::allocated::{AHEAD_BYTES, AMPLE_BYTES, Allocated, PIECE_BYTES};
use crate::claim::{Claim, Mark, open_exclusively};
use crate::loss::Loss;
use crate::{BlockDevice, Extent, SECTOR_BYTES, bounds, in_use};

/// What a device is opened for. See the module's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Reads, beside other readers.
    ReadOnly,
    /// Reads and writes, alone.
    ReadWrite,
    /// Reads without any claim.
    Inspect,
}

/// Why an image cannot be opened: what, where, what to do, in one line.
#[derive(Debug)]
pub struct OpenError {
    /// The image.
    pub path: PathBuf,
    /// What is wrong.
    pub kind: OpenErrorKind,
}

/// What can be wrong with an image before a byte of it is read.
#[derive(Debug)]
pub enum OpenErrorKind {
    /// There is no such file.
    Missing,
    /// It may not be read, or not be written.
    PermissionDenied {
        /// Writing was asked for.
        is_for_writing: bool,
    },
    /// It is a directory.
    Directory,
    /// It is a pipe, a terminal or the like.
    NotAnImage,
    /// Its format, or what it is made of, is nothing that can be used; says why and what to do.
    Refused(String),
    /// Its file system is mounted read-only, or it is a write-protected device.
    ReadOnly,
    /// Somebody else uses it.
    InUse {
        /// Who, as far as is known.
        by: String,
        /// Opening it read-only could work.
        may_read: bool,
        /// For how long.
        outlook: Outlook,
    },
    /// Any other failure.
    Io(io::Error),
}

/// What is known of a use of an image: whether it is worth waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outlook {
    /// Nothing is known of its end.
    Lasting,
    /// Somebody has a lock on a block device that the kernel would give away: udev looks at a
    /// device for a moment whenever somebody has written to it.
    Looking,
    /// A server of finefs that has no mount (any more, or yet), as far as this process sees; or a
    /// loop device without one that goes once nobody has it open.
    Unmounted,
    /// A server of finefs that writes out what is left.
    Ending,
}

impl OpenError {
    /// The number that mount(2) gives for this (positive).
    pub fn errno(&self) -> i32 {
        let errno = match &self.kind {
            OpenErrorKind::Missing => Errno::NOENT,
            OpenErrorKind::PermissionDenied { .. } => Errno::ACCESS,
            OpenErrorKind::Directory => Errno::ISDIR,
            OpenErrorKind::NotAnImage => Errno::NOTBLK,
            OpenErrorKind::Refused(_) => Errno::INVAL,
            OpenErrorKind::ReadOnly => Errno::ROFS,
            OpenErrorKind::InUse { .. } => Errno::BUSY,
            OpenErrorKind::Io(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
        };
        errno.raw_os_error()
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.kind {
            OpenErrorKind::Missing => f.write_str("no such file; check the path"),
            OpenErrorKind::PermissionDenied { is_for_writing: true } => {
                f.write_str("permission denied; get write permission on the image")
            }
            OpenErrorKind::PermissionDenied { is_for_writing: false } => {
                f.write_str("permission denied; get read permission on the image")
            }
            OpenErrorKind::Directory => {
                f.write_str("is a directory; give an image file or a block device")
            }
            OpenErrorKind::NotAnImage => f.write_str(
                "is neither a regular file nor a block device; give an image file or a block device",
            ),
            OpenErrorKind::Refused(reason) => f.write_str(reason),
            OpenErrorKind::ReadOnly => f.write_str("lies on read-only storage; copy it"),
            OpenErrorKind::InUse { by, may_read, .. } => {
                write!(f, "already in use by {by}; end that use first")?;
                if *may_read {
                    f.write_str(" or only read it")?;
                }
                Ok(())
            }
            OpenErrorKind::Io(error) => write!(f, "cannot be opened: {error}; check the storage"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            OpenErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// An open regular file or block device. Its lock goes when it is dropped.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    claim: Option<Claim>,
    /// Who opened it.
    process: u32,
    path: PathBuf,
    length_bytes: AtomicU64,
    is_read_only: bool,
    has_barriers: bool,
    /// For a file with holes that is written.
    allocated: Option<Allocated>,
    /// The storage has no way to take some beforehand.
    cannot_reserve: AtomicBool,
    /// There was less storage than was asked for ahead.
    is_short: AtomicBool,
    loss: Loss,
}

/// The unit of `st_blocks`.
const STAT_BLOCK_BYTES: u64 = 512;

/// Zeros shorter than this are written as data: cheaper than a change of the file's mapping.
const ZEROS_AS_DATA_BYTES: u64 = 64 << 10;

/// The most parts of one pwritev (IOV_MAX).
const PARTS_MAX: usize = 1024;

impl FileDevice {
    /// Opens the image at `path`.
    pub fn open(path: &Path, access: Access) -> Result<FileDevice, OpenError> {
        let fail = |kind| OpenError {
            path: path.to_owned(),
            kind,
        };
        let is_for_writing = access == Access::ReadWrite;
        let metadata = std::fs::metadata(path).map_err(|e| fail(kind_of(e, false)))?;
        let file_type = metadata.file_type();
        let is_block_device = file_type.is_block_device();
        if file_type.is_dir() {
            return Err(fail(OpenErrorKind::Directory));
        }
        if !file_type.is_file() && !is_block_device {
            return Err(fail(OpenErrorKind::NotAnImage));
        }
        let claims = access != Access::Inspect;
        let exclusive = (is_block_device && claims)
            .then(|| open_exclusively(path))
            .transpose()
            .map_err(|error| fail(refused_by_kernel(error, path)))?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(is_for_writing)
            .open(path)
            .map_err(|e| fail(kind_of(e, is_for_writing)))?;
        // Looked at again through the open file: the path may have changed its meaning meanwhile.
        let metadata = file.metadata().map_err(|e| fail(OpenErrorKind::Io(e)))?;
        if metadata.file_type() != file_type {
            return Err(fail(OpenErrorKind::NotAnImage));
        }
        let mut own = None;
        if claims {
            claim(&file, &metadata, is_for_writing).map_err(fail)?;
            let backing = claim_backing(&metadata).map_err(fail)?;
            let made = Claim::new(path, &file, is_block_device, (exclusive, backing));
            own = Some(made.map_err(|error| fail(OpenErrorKind::Io(error)))?);
        }
        let length_bytes = file
            .seek(SeekFrom::End(0))
            .map_err(|e| fail(OpenErrorKind::Io(e)))?;
        // A block device has its storage, and so has a file without holes.
        let is_sparse = !is_block_device && metadata.blocks() * STAT_BLOCK_BYTES < length_bytes;
        let allocated = (is_for_writing && is_sparse).then(Allocated::new);
        Ok(FileDevice {
            allocated,
            cannot_reserve: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
            loss: Loss::default(),
            file,
            claim: own,
            process: std::process::id(),
            path: path.to_owned(),
            length_bytes: AtomicU64::new(length_bytes),
            is_read_only: !is_for_writing,
            has_barriers: true,
        })
    }

    /// The same device, which no longer waits for the disk: a flush does nothing, and after a power
    /// loss (not after the end of a process) the image may be damaged.
    pub fn without_barriers(mut self) -> FileDevice {
        self.has_barriers = false;
        self
    }

    /// What keeps others away; `None` where nothing does.
    pub fn claim(&self) -> Option<Claim> {
        self.claim.clone()
    }

    /// Another handle of the open file, for who reads and writes it by a format of its own. The
    /// claim holds as long as this device is there.
    pub fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write_zeros_as_data(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        let zeros = vec![0; length_bytes.min(1 << 20) as usize];
        let mut done_bytes = 0;
        while done_bytes < length_bytes {
            let part = (length_bytes - done_bytes).min(zeros.len() as u64);
            self.file
                .write_all_at(&zeros[..part as usize], offset_bytes + done_bytes)?;
            done_bytes += part;
        }
        Ok(())
    }

    /// Whether storage may be taken ahead: commits must not find that files to come have the last
    /// of it.
    fn has_ample_room(&self) -> bool {
        !self.is_short.load(Ordering::Relaxed)
            && rustix::fs::fstatvfs(&self.file)
                .is_ok_and(|room| room.f_bavail.saturating_mul(room.f_frsize) >= AMPLE_BYTES)
    }
}

/// What the storage of a file says of a range of it, as [`BlockDevice::extent_at`].
pub fn extent_of(file: &File, offset_bytes: u64, length_bytes: u64) -> io::Result<Extent> {
    use rustix::fs::{SeekFrom, seek};
    let end = offset_bytes + length_bytes;
    let (to, is_zero) = match seek(file, SeekFrom::Data(offset_bytes)) {
        Ok(at) if at > offset_bytes => (at, true),
        Ok(_) => (
            seek(file, SeekFrom::Hole(offset_bytes)).unwrap_or(end),
            false,
        ),
        // Nothing but a hole up to its end.
        Err(Errno::NXIO) => (end, true),
        // A storage that tells nothing of holes.
        Err(_) => (end, false),
    };
    Ok(Extent {
        length_bytes: to.min(end).max(offset_bytes) - offset_bytes,
        is_zero,
    })
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        // A forked process shares the lock with the one that took it, which goes on.
        if self.process != std::process::id() {
            return;
        }
        // Closing would release the lock too, but not while a child that another thread forked has
        // yet to exec. (Nothing can be done about an error.)
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        if let Some(below) = self.claim.as_ref().and_then(Claim::backing) {
            let _ = rustix::fs::flock(below, FlockOperation::Unlock);
        }
    }
}

fn kind_of(error: io::Error, is_for_writing: bool) -> OpenErrorKind {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => OpenErrorKind::Missing,
        Some(libc::EACCES | libc::EPERM) => OpenErrorKind::PermissionDenied { is_for_writing },
        Some(libc::EISDIR) => OpenErrorKind::Directory,
        Some(libc::EROFS) => OpenErrorKind::ReadOnly,
        Some(libc::ETXTBSY) => OpenErrorKind::InUse {
            by: "a running program or as swap".into(),
            may_read: true,
            outlook: Outlook::Lasting,
        },
        Some(libc::EBUSY) => OpenErrorKind::InUse {
            by: "the kernel (it is mounted, or part of another device)".into(),
            may_read: false,
            outlook: Outlook::Lasting,
        },
        _ => OpenErrorKind::Io(error),
    }
}

/// The kernel does not let a block device be claimed: it may have given it to a server of finefs.
fn refused_by_kernel(error: io::Error, path: &Path) -> OpenErrorKind {
    let is_busy = error.raw_os_error() == Some(libc::EBUSY);
    let kind = kind_of(error, false);
    if is_busy
        && let Ok(file) = File::open(path)
        && let Ok(metadata) = file.metadata()
    {
        return server_of(&file, &metadata).unwrap_or_else(|| {
            match tried_again(|| open_exclusively(path).ok()) {
                Some(_) => OpenErrorKind::InUse {
                    by: "a finefs that has just ended".into(),
                    may_read: false,
                    outlook: Outlook::Looking,
                },
                None => kind,
            }
        });
    }
    kind
}

/// What `attempt` answers, within a moment. A server that ends drops its marks and what they are
/// about one after the other, and may have done so since a refusal.
fn tried_again<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    const TRIES: u32 = 6;
    (0..TRIES).find_map(|tried| {
        if tried > 1 {
            std::thread::sleep(Duration::from_millis(10));
        }
        attempt()
    })
}

/// Who has what is open as `file`, if it is a server of finefs.
fn server_of(file: &File, metadata: &std::fs::Metadata) -> Option<OpenErrorKind> {
    let of_finefs = |by: String, outlook| OpenErrorKind::InUse {
        by,
        may_read: false,
        outlook,
    };
    if Mark::Ending.is_set(file) {
        let by = "a finefs that is unmounted and still writes it out";
        return Some(of_finefs(by.to_owned(), Outlook::Ending));
    }
    if Mark::Exported.is_set(file) {
        let by = "finefs serve (finefs lsof shows its clients)";
        return Some(of_finefs(by.to_owned(), Outlook::Lasting));
    }
    if !Mark::Served.is_set(file) {
        return None;
    }
    Some(match in_use::served_at(metadata) {
        Some(place) => of_finefs(
            format!("finefs, which has it mounted at {place}"),
            Outlook::Lasting,
        ),
        None => of_finefs(
            "a finefs whose mount is not seen here (files in it may still be open)".to_owned(),
            Outlook::Unmounted,
        ),
    })
}

/// The file below a loop device, with a flock that keeps from it who would write it: partitions of
/// one are open side by side. `None` where there is none, or none that can be opened.
fn claim_backing(metadata: &std::fs::Metadata) -> Result<Option<File>, OpenErrorKind> {
    let path = match metadata.file_type().is_block_device() {
        true => in_use::backing_file_of(metadata),
        false => None,
    };
    // In another mount namespace the path may name anything; the open of a pipe would wait.
    let open = |path| {
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(libc::O_NONBLOCK);
        options.open(path).ok()
    };
    let Some(file) = path.and_then(open) else {
        return Ok(None);
    };
    let Ok(metadata) = file.metadata() else {
        return Ok(Some(file));
    };
    let operation = FlockOperation::NonBlockingLockShared;
    match lock(&file, &metadata, operation) {
        Err(Refusal::Holder(holder)) => {
            let unknown = OpenErrorKind::InUse {
                by: "another process, which has the file of the loop device".into(),
                may_read: false,
                outlook: Outlook::Lasting,
            };
            Err(holder.unwrap_or(unknown))
        }
        _ => Ok(Some(file)),
    }
}

/// Why there is no flock.
enum Refusal {
    /// Somebody has it; says who, if it is a server of finefs.
    Holder(Option<OpenErrorKind>),
    /// Another failure.
    Failure(Errno),
}

/// Takes the flock of what is open as `file`, by an operation that does not wait.
fn lock(
    file: &File,
    metadata: &std::fs::Metadata,
    operation: FlockOperation,
) -> Result<(), Refusal> {
    tried_again(|| match rustix::fs::flock(file, operation) {
        Ok(()) => Some(Ok(())),
        Err(Errno::WOULDBLOCK) => {
            let holder = server_of(file, metadata)?;
            Some(Err(Refusal::Holder(Some(holder))))
        }
        Err(error) => Some(Err(Refusal::Failure(error))),
    })
    .unwrap_or(Err(Refusal::Holder(None)))
}

/// Takes the flock and looks for loop devices.
fn claim(
    file: &File,
    metadata: &std::fs::Metadata,
    is_for_writing: bool,
) -> Result<(), OpenErrorKind> {
    let operation = if is_for_writing {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    match lock(file, metadata, operation) {
        Ok(()) => {}
        // A file system without locks (some network file systems): go on without.
        Err(Refusal::Failure(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS)) => {}
        Err(Refusal::Failure(error)) => return Err(OpenErrorKind::Io(error.into())),
        Err(Refusal::Holder(holder)) => {
            let outlook = match metadata.file_type().is_block_device() {
                true => Outlook::Looking,
                false => Outlook::Lasting,
            };
            let unknown = OpenErrorKind::InUse {
                by: "another process (it may be mounted already)".into(),
                may_read: false,
                outlook,
            };
            return Err(holder.unwrap_or(unknown));
        }
    }
    if metadata.file_type().is_file() {
        for used in in_use::loops_of(metadata.dev(), metadata.ino()) {
            if is_for_writing || !used.is_read_only {
                let (place, outlook) = match &used.mounted_at {
                    Some(place) => (format!(", mounted at {place}"), Outlook::Lasting),
                    None if used.is_transient => (String::new(), Outlook::Unmounted),
                    None => (String::new(), Outlook::Lasting),
                };
                return Err(OpenErrorKind::InUse {
                    by: format!("the kernel (loop device {}{place})", used.device),
                    may_read: is_for_writing && used.is_read_only,
                    outlook,
                });
            }
        }
    }
    Ok(())
}

/// No machine has larger pages of memory.
const PAGE_BYTES_MAX: u64 = 64 << 10;

impl FileDevice {
    /// fallocate(2) of what goes. On a block device that something has claimed, a mount or finefs,
    /// the kernel refuses it (EBUSY) while what was written there is only in its cache.
    fn clear(
        &self,
        how: FallocateFlags,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> rustix::io::Result<()> {
        let clear = || rustix::fs::fallocate(&self.file, how, offset_bytes, length_bytes);
        match clear() {
            Err(Errno::BUSY) => {
                if let Err(error) = rustix::fs::fdatasync(&self.file) {
                    self.loss.note();
                    return Err(error);
                }
                clear()
            }
            cleared => cleared,
        }
    }
}

impl BlockDevice for FileDevice {
    fn len_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Relaxed)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
        order::check_io();
        bounds::check(self.len_bytes(), offset_bytes, buffer.len() as u64)?;
        self.file.read_exact_at(buffer, offset_bytes)
    }

    fn write_at(&self, offset_bytes: u64, data: &[u8]) -> io::Result<()> {
        order::check_io();
        if self.is_read_only {
            return Err(bounds::read_only());
        }
        bounds::check(self.len_bytes(), offset_bytes, data.len() as u64)?;
        self.file.write_all_at(data, offset_bytes)
    }

    fn write_parts_at(&self, offset_bytes: u64, parts: &[&[u8]]) -> io::Result<()> {
        order::check_io();
        if self.is_read_only {
            return Err(bounds::read_only());
        }
        let length = parts.iter().map(|part| part.len() as u64).sum();
        bounds::check(self.len_bytes(), offset_bytes, length)?;
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        let mut at = offset_bytes;
        // Empty parts at the front would look like a file that takes nothing.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let some = &rest[..rest.len().min(PARTS_MAX)];
            let written = rustix::io::retry_on_intr(|| rustix::io::pwritev(&self.file, some, at))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, written);
            at += written as u64;
        }
        Ok(())
    }

    fn extent_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<Extent> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        extent_of(&self.file, offset_bytes, length_bytes)
    }

    fn write_zeros_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        order::check_io();
        if self.is_read_only {
            return Err(bounds::read_only());
        }
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        if length_bytes >= ZEROS_AS_DATA_BYTES {
            for flags in [FallocateFlags::ZERO_RANGE, FallocateFlags::PUNCH_HOLE] {
                if let Some(allocated) = &self.allocated
                    && flags == FallocateFlags::PUNCH_HOLE
                {
                    allocated.forget(offset_bytes, length_bytes);
                }
                let how = flags | FallocateFlags::KEEP_SIZE;
                let outcome = self.clear(how, offset_bytes, length_bytes);
                if let Some(allocated) = &self.allocated
                    && flags == FallocateFlags::PUNCH_HOLE
                {
                    allocated.forget(offset_bytes, length_bytes);
                }
                match outcome {
                    Ok(()) => return Ok(()),
                    // Not everywhere, and on block devices only for whole sectors.
                    Err(
                        Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::BUSY | Errno::INTR,
                    ) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.write_zeros_as_data(offset_bytes, length_bytes)
    }

    fn discard_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<bool> {
        order::check_io();
        if self.is_read_only {
            return Err(bounds::read_only());
        }
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        if let Some(allocated) = &self.allocated {
            allocated.forget(offset_bytes, length_bytes);
        }
        // On a block device the kernel does this only where zeros come of it.
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = self.clear(how, offset_bytes, length_bytes);
        if let Some(allocated) = &self.allocated {
            allocated.forget(offset_bytes, length_bytes);
        }
        match punched {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::NODEV) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn forget_cached_at(&self, offset_bytes: u64, length_bytes: u64) {
        let advice = rustix::fs::Advice::DontNeed;
        // Pages that lie in the range only in part would be kept.
        let start = offset_bytes - offset_bytes % PAGE_BYTES_MAX;
        let end = (offset_bytes + length_bytes).next_multiple_of(PAGE_BYTES_MAX);
        // Where it cannot be done the range is only as old as the page cache.
        let _ = rustix::fs::fadvise(&self.file, start, (end - start).try_into().ok(), advice);
    }

    fn flush(&self) -> io::Result<()> {
        order::check_io();
        if self.is_read_only || !self.has_barriers {
            return Ok(());
        }
        self.loss.flush(|| self.file.sync_data())
    }

    fn reserve_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        let Some(allocated) = &self.allocated else {
            return Ok(());
        };
        if self.cannot_reserve.load(Ordering::Relaxed) {
            return Ok(());
        }
        let moment = allocated.moment();
        for range in allocated.missing(offset_bytes, length_bytes) {
            let end = range.end.min(self.len_bytes());
            let length = end - range.start;
            let flags = FallocateFlags::KEEP_SIZE;
            let take = || rustix::fs::fallocate(&self.file, flags, range.start, length);
            match rustix::io::retry_on_intr(take) {
                Ok(()) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
                    return Err(error.into());
                }
                // A storage that has no such thing, or fails at it: writing will tell.
                Err(error) => {
                    if matches!(error, Errno::OPNOTSUPP | Errno::NOSYS) {
                        self.cannot_reserve.store(true, Ordering::Relaxed);
                    }
                    return Ok(());
                }
            }
            allocated.note(moment, range.start, length);
        }
        Ok(())
    }

    fn reserve_around_at(&self, offset_bytes: u64, length_bytes: u64) -> io::Result<()> {
        bounds::check(self.len_bytes(), offset_bytes, length_bytes)?;
        let Some(allocated) = &self.allocated else {
            return Ok(());
        };
        if allocated.has_pieces(offset_bytes, length_bytes)
            || self.cannot_reserve.load(Ordering::Relaxed)
        {
            return Ok(());
        }
        let moment = allocated.moment();
        let start = offset_bytes / PIECE_BYTES * PIECE_BYTES;
        let take = |ahead: u64| {
            let end = (offset_bytes + length_bytes + ahead).next_multiple_of(PIECE_BYTES);
            let more = end.min(self.len_bytes()) - start;
            self.reserve_at(start, more)?;
            if allocated.has(start, more) {
                allocated.note_pieces(moment, start, more);
            }
            Ok(())
        };
        // Where the piece before was taken, too, somebody goes from one to the next.
        let is_next = start > 0 && allocated.has_pieces(start - 1, 1);
        if is_next && self.has_ample_room() {
            match take(AHEAD_BYTES) {
                // A quota, perhaps.
                Err(_) => self.is_short.store(true, Ordering::Relaxed),
                taken => return taken,
            }
        }
        // Where there is not as much, there may still be enough.
        take(0).or_else(|_: io::Error| self.reserve_at(offset_bytes, length_bytes))
    }

    fn set_len_bytes(&self, length_bytes: u64) -> io::Result<()> {
        if self.is_read_only {
            return Err(bounds::read_only());
        }
        if !self.file.metadata()?.is_file() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.file.set_len(length_bytes)?;
        let old = self.length_bytes.swap(length_bytes, Ordering::Relaxed);
        if let Some(allocated) = &self.allocated {
            let from = old.min(length_bytes);
            allocated.forget(from, old.max(length_bytes) - from);
        }
        Ok(())
    }

    fn sector_bytes(&self) -> u32 {
        // Fails on what is no block device.
        let told = rustix::fs::ioctl_blksszget(&self.file).ok();
        told.filter(|bytes| bytes.is_power_of_two() && *bytes >= SECTOR_BYTES)
            .unwrap_or(SECTOR_BYTES)
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}
