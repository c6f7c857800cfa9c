//! Open files.
//!
//! # Locking
//! An open file has one position, as a file descriptor has. Reads and writes at it hold its lock
//! (`file.position`), so two threads that use one handle never get the same bytes. What names its
//! offset, and appends, take no lock of the handle: they are as parallel as the file's ranges
//! allow.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

use finefs_locks::Mutex;
use finefs_namespace::{
    AllocateMode, AtimeUpdate, DataChange, Error as Cause, FileKind, Ino, Namespace, OpenAccess,
    Opened, SetAttributes, SyncScope, VerityDigest, XattrMode,
};

use crate::classes;
use crate::error::{Error, Result};
use crate::metadata::{FileTimes, Metadata, Permissions};
use crate::view::Anchor;

/// Where writes go that name no place of their own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WritePosition {
    /// To the file's position.
    Current,
    /// To its end (O_APPEND), and so do those that name a place.
    End,
}

/// An open file: it lives on while it is open, whatever becomes of its names.
///
/// [`Read`], [`Write`] and [`Seek`] work at the file's position, on a shared reference too;
/// `read_at`, `write_at` and `append` name the place themselves and run in parallel.
///
/// ```
/// # let fs = finefs::FileSystem::memory(1 << 20)?;
/// let mut options = finefs::OpenOptions::new();
/// let file = fs.open_with("table", options.read(true).write(true).create(true))?;
/// file.write_all_at(b"row 0\nrow 1\n", 0)?;
/// assert_eq!(file.append(b"row 2\n")?, 12);
/// let mut row = [0; 5];
/// file.read_exact_at(&mut row, 6)?;
/// assert_eq!(&row, b"row 1");
/// file.sync_data()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct File {
    anchor: Arc<Anchor>,
    /// `None` only while it is dropped.
    opened: Option<Opened>,
    ino: Ino,
    access: OpenAccess,
    writes: WritePosition,
    atime: AtimeUpdate,
    position: Mutex<u64>,
}

impl File {
    pub(crate) fn new(
        anchor: Arc<Anchor>,
        opened: Opened,
        access: OpenAccess,
        writes: WritePosition,
        atime: AtimeUpdate,
    ) -> File {
        File {
            ino: opened.ino(),
            anchor,
            opened: Some(opened),
            access,
            writes,
            atime,
            position: Mutex::new(&classes::POSITION, 0),
        }
    }

    pub(crate) fn opened(&self) -> &Opened {
        self.opened.as_ref().expect("open until it is dropped")
    }

    pub(crate) fn access(&self) -> OpenAccess {
        self.access
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        self.anchor.namespace()
    }

    pub(crate) fn ino(&self) -> Ino {
        self.ino
    }

    pub(crate) fn is_of(&self, namespace: &Namespace) -> bool {
        std::ptr::eq(self.namespace(), namespace)
    }

    pub(crate) fn failed(&self, operation: &'static str) -> impl Fn(Cause) -> Error {
        let ino = self.ino;
        move |cause| Error::of_inode(operation, ino, cause)
    }

    /// EBADF unless it was opened for reading.
    fn check_readable(&self) -> std::result::Result<(), Cause> {
        match self.access {
            OpenAccess::Write => Err(Cause::BadHandle),
            _ => Ok(()),
        }
    }

    fn check_writable(&self) -> std::result::Result<(), Cause> {
        match self.access {
            OpenAccess::Read => Err(Cause::BadHandle),
            _ => Ok(()),
        }
    }

    /// EBADF unless it was opened for writing. A change by somebody without privilege takes the
    /// set-id bits away, if it can be made.
    fn prepare(&self, change: DataChange) -> std::result::Result<(), Cause> {
        self.check_writable()?;
        let caller = &self.anchor.caller;
        let is_in_group = |gid| caller.is_in_group(gid);
        self.namespace()
            .remove_privileges_unless_root(caller, self.ino, change, is_in_group)
            .map(drop)
    }

    fn read_from(&self, offset: u64, buffer: &mut [u8]) -> std::result::Result<usize, Cause> {
        self.check_readable()?;
        self.namespace()
            .read_with_atime(self.ino, offset, buffer, self.atime)
    }

    /// Reads from `offset` on; gives the number of bytes, less than asked for only at the end of
    /// the file. The position stays. EBADF if it was not opened for reading, EISDIR for a
    /// directory.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_from(offset, buffer).map_err(self.failed("read"))
    }

    /// Fills the buffer from `offset` on. [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_at(buffer, offset)? < buffer.len() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "failed to fill whole buffer",
            ));
        }
        Ok(())
    }

    /// Writes all of `data` at `offset`, atomically against every other read and write of these
    /// bytes; gives its length. Nothing is written on an error (EFBIG, ENOSPC). The position stays.
    /// In a file that was opened for appending it goes to the end, as with pwrite(2) of Linux.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<usize> {
        if self.writes == WritePosition::End {
            return self.append(data).map(|_| data.len());
        }
        let change = DataChange::Write {
            offset_bytes: offset,
            length_bytes: data.len() as u64,
        };
        self.prepare(change)
            .and_then(|()| self.namespace().write(self.ino, offset, data))
            .map_err(self.failed("write"))
    }

    /// Writes all of `data` at `offset`.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write_at(data, offset).map(drop)
    }

    /// Writes all of `data` at the end of the file; gives the offset at which it begins. Appends of
    /// several threads, through any handles, each stay whole. The position stays.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        let change = DataChange::Append {
            length_bytes: data.len() as u64,
        };
        self.prepare(change)
            .and_then(|()| self.namespace().append(self.ino, data))
            .map_err(self.failed("append"))
    }

    /// Sets the length in bytes: cuts the file, or adds zeros that take no space.
    pub fn set_len(&self, length: u64) -> Result<()> {
        // A file that is open for writing may be cut, whatever the permissions are by now.
        let caller = finefs_namespace::Caller {
            checks: finefs_namespace::AccessChecks::Done,
            ..self.anchor.caller.clone()
        };
        self.check_writable()
            // As ftruncate(2).
            .map_err(|_| Cause::Invalid)
            .and_then(|()| self.namespace().set_size_as(&caller, self.ino, length))
            .map(drop)
            .map_err(self.failed("set length"))
    }

    /// Allocates, frees or zeroes a range of bytes (fallocate(2)).
    pub fn allocate(&self, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        let change = DataChange::Allocate {
            mode,
            offset_bytes: offset,
            length_bytes: length,
        };
        self.prepare(change)
            .and_then(|()| self.namespace().allocate(self.ino, mode, offset, length))
            .map_err(self.failed("allocate"))
    }

    /// Frees a range; it reads as zeros.
    pub fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.allocate(AllocateMode::PunchHole, offset, length)
    }

    /// Makes a range read as zeros and keeps its space; the file may grow.
    pub fn zero_range(&self, offset: u64, length: u64) -> Result<()> {
        self.allocate(AllocateMode::ZeroRange, offset, length)
    }

    /// The first offset at or after `offset` that holds data. ENXIO when there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.namespace()
            .seek_data(self.ino, offset)
            .map_err(self.failed("seek data"))
    }

    /// The first offset at or after `offset` in a hole; the end of the file counts as one. ENXIO at
    /// and after the end.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.namespace()
            .seek_hole(self.ino, offset)
            .map_err(self.failed("seek hole"))
    }

    /// In how many runs of adjacent blocks the file lies on the image: 1 where it is whole.
    pub fn runs(&self) -> Result<u64> {
        self.namespace()
            .runs(self.ino)
            .map_err(self.failed("look for the blocks"))
    }

    /// Moves the file's blocks together, as far as that makes fewer runs of them; tells how many
    /// there are then. Contents and times stay. ENOSPC where there is no room for a copy of a piece
    /// of 64 MiB, EOPNOTSUPP in memory, EBADF unless it was opened for writing.
    pub fn defragment(&self) -> Result<u64> {
        self.check_writable()
            .and_then(|()| self.namespace().defragment(self.ino))
            .map_err(self.failed("move the blocks"))
    }

    /// Returns when data and attributes are on the image (fsync). EIO, once, when data of the file
    /// could not be written since it was opened.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(SyncScope::All)
    }

    /// Returns when the data, and what it takes to read it, is on the image (fdatasync).
    pub fn sync_data(&self) -> Result<()> {
        self.sync(SyncScope::Data)
    }

    fn sync(&self, scope: SyncScope) -> Result<()> {
        match &self.opened {
            Some(opened) => self.namespace().sync_opened(opened, scope),
            None => self.namespace().sync_file(self.ino, scope),
        }
        .map_err(self.failed("sync"))
    }

    /// The attributes of the file.
    pub fn metadata(&self) -> Result<Metadata> {
        self.namespace()
            .attributes(self.ino)
            .map(Metadata::new)
            .map_err(self.failed("stat"))
    }

    /// What fs-verity knows the file by, as `fsverity measure` prints it. ENODATA for a file that
    /// is not sealed ([`FileFlags::VERITY`](crate::FileFlags::VERITY)).
    pub fn verity_digest(&self) -> Result<VerityDigest> {
        self.namespace()
            .verity_digest(self.ino)
            .map_err(self.failed("measure verity"))
    }

    fn set(&self, operation: &'static str, change: &SetAttributes) -> Result<()> {
        self.namespace()
            .set_attributes(&self.anchor.caller, self.ino, change)
            .map(drop)
            .map_err(self.failed(operation))
    }

    /// Sets the permission bits (07777). EPERM for who neither owns the file nor is root.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        let change = SetAttributes {
            permissions: Some(permissions.mode()),
            ..SetAttributes::default()
        };
        self.set("chmod", &change)
    }

    /// Sets times.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.set("set times", &times.change())
    }

    /// Sets owner and group; `None` leaves them.
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let caller = &self.anchor.caller;
        self.namespace()
            .set_owner(caller, self.ino, (uid, gid), |gid| caller.is_in_group(gid))
            .map(drop)
            .map_err(self.failed("chown"))
    }

    /// The value of an extended attribute. ENODATA when there is none.
    pub fn get_xattr(&self, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        self.namespace()
            .xattr(&self.anchor.caller, self.ino, name.as_ref().as_bytes())
            .map_err(self.failed("get xattr"))
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8], mode: XattrMode) -> Result<()> {
        let name = name.as_ref().as_bytes();
        self.namespace()
            .set_xattr(&self.anchor.caller, self.ino, name, value, mode)
            .map_err(self.failed("set xattr"))
    }

    /// The names of all extended attributes that the caller may see.
    pub fn list_xattrs(&self) -> Result<Vec<OsString>> {
        let names = self
            .namespace()
            .list_xattrs(&self.anchor.caller, self.ino)
            .map_err(self.failed("list xattrs"))?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Removes an extended attribute. ENODATA when there is none.
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.namespace()
            .remove_xattr(&self.anchor.caller, self.ino, name.as_ref().as_bytes())
            .map_err(self.failed("remove xattr"))
    }

    fn seek_to(&self, position: &mut u64, to: SeekFrom) -> io::Result<u64> {
        let (base, delta) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::Current(delta) => (*position, delta),
            SeekFrom::End(delta) => (self.metadata()?.len(), delta),
        };
        let offset = base
            .checked_add_signed(delta)
            .filter(|offset| *offset <= i64::MAX as u64)
            .ok_or_else(|| self.failed("seek")(Cause::Invalid))?;
        *position = offset;
        Ok(offset)
    }
}

impl Read for &File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        let count = self.read_at(buffer, *position)?;
        *position += count as u64;
        Ok(count)
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let before = buffer.len();
        // One read takes a file whole whose length is known; the rest is for one that grows.
        let metadata = self.metadata()?;
        let position = *self.position.lock();
        let known = metadata.len().saturating_sub(position);
        let known = usize::try_from(known).unwrap_or(usize::MAX).max(64);
        let mut chunk = known.min(CHUNK_MAX) + 1;
        // What memory cannot hold is not read in vain.
        buffer.try_reserve_exact(known.saturating_add(1))?;
        loop {
            let length = buffer.len();
            buffer.try_reserve(chunk)?;
            buffer.resize(length + chunk, 0);
            let result = self.read(&mut buffer[length..]);
            buffer.truncate(length + result.as_ref().map_or(0, |count| *count));
            if result? < chunk {
                return Ok(buffer.len() - before);
            }
            chunk = (chunk * 2).min(CHUNK_MAX);
        }
    }
}

/// Bytes that reading to the end asks for at a time, at most.
const CHUNK_MAX: usize = 16 << 20;

impl Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut position = self.position.lock();
        if self.writes == WritePosition::End {
            *position = self.append(data)?;
        } else {
            self.write_at(data, *position)?;
        }
        *position += data.len() as u64;
        Ok(data.len())
    }

    /// Nothing is held back here: see [`File::sync_all`] for the image.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = self.position.lock();
        self.seek_to(&mut position, to)
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buffer)
    }
}

impl Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take() {
            self.namespace().close(opened);
        }
    }
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.opened.as_ref().map_or(FileKind::Regular, Opened::kind);
        f.debug_struct("File")
            .field("ino", &self.ino)
            .field("kind", &kind)
            .field("access", &self.access)
            .finish()
    }
}
