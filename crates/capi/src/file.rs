//! Open files.

use std::ffi::{c_char, c_int};
use std::io;

use finefs::{File, OpenOptions};

use crate::call::{self, Result, failure, invalid};
use crate::fs::Fs;
use crate::names::last_link;
use crate::stat::Stat;

/// An open file.
pub struct OpenFile {
    file: File,
    appends: bool,
}

/// What of open(2)'s flags has a meaning here. O_CLOEXEC, O_NOCTTY and O_LARGEFILE have none, and
/// may be there.
const KNOWN: c_int = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_TRUNC
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOFOLLOW
    | libc::O_DIRECTORY
    | libc::O_CLOEXEC
    | libc::O_NOCTTY
    | libc::O_LARGEFILE;

/// Opens a file, as open(2) does: O_RDONLY, O_WRONLY or O_RDWR with O_CREAT, O_EXCL, O_TRUNC,
/// O_APPEND, O_NOFOLLOW, O_DIRECTORY; others are EINVAL, and so is O_CREAT with O_DIRECTORY. A file
/// that is opened with O_RDONLY and O_TRUNC is emptied. `mode` is that of a file that is made, less
/// the umask 022.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_open(
    fs: *const Fs,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    out: *mut *mut OpenFile,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let (fs, path) = (&call::object(fs)?.fs, call::path(path)?);
        let options = options(flags, mode)?;
        call::store_object(out, || {
            Ok(OpenFile {
                file: options.open(fs, path)?,
                appends: flags & libc::O_APPEND != 0,
            })
        })
    })
}

fn options(flags: c_int, mode: u32) -> Result<OpenOptions> {
    if flags & !KNOWN != 0 {
        return Err(invalid(format!(
            "open flags {:#o} are not known",
            flags & !KNOWN
        )));
    }
    let has = |flag| flags & flag != 0;
    let (reads, writes) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(invalid("give O_RDONLY, O_WRONLY or O_RDWR")),
    };
    let mut options = OpenOptions::new();
    options
        .flags_of_open(true)
        .read(reads)
        .write(writes)
        .append(has(libc::O_APPEND))
        .truncate(has(libc::O_TRUNC))
        .create(has(libc::O_CREAT))
        .create_new(has(libc::O_CREAT) && has(libc::O_EXCL))
        .directory(has(libc::O_DIRECTORY))
        .last_link(last_link(u32::from(has(libc::O_NOFOLLOW)))?)
        .mode(mode & 0o7777);
    Ok(options)
}

/// Closes a file. What was written is on the image after finefs_file_sync, finefs_sync or
/// finefs_close. Null is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_close(file: *mut OpenFile) {
    // SAFETY: the caller's promise.
    let closed = call::run(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { call::take(file) });
        Ok(0)
    });
    debug_assert_eq!(closed, 0);
}

/// Reads up to `len` bytes at `offset`; tells how many, 0 at the end of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_read(
    file: *const OpenFile,
    buffer: *mut u8,
    len: usize,
    offset: u64,
) -> isize {
    call::run(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { call::object(file) }?;
        if len == 0 {
            return Ok(0);
        }
        if buffer.is_null() {
            return Err(invalid("the buffer is null"));
        }
        let len = len.min(isize::MAX as usize);
        // SAFETY: `len` bytes may be written. They may be uninitialised, so they are set first.
        let buffer = unsafe {
            buffer.write_bytes(0, len);
            std::slice::from_raw_parts_mut(buffer, len)
        };
        Ok(file.file.read_at(buffer, offset)? as isize)
    })
}

/// Writes `len` bytes at `offset`, or at the end of a file that was opened with O_APPEND; tells how
/// many were written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_write(
    file: *const OpenFile,
    buffer: *const u8,
    len: usize,
    offset: u64,
) -> isize {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let file = call::object(file)?;
        let bytes = call::bytes(buffer, len)?;
        if file.appends {
            file.file.append(bytes)?;
            return Ok(bytes.len() as isize);
        }
        Ok(file.file.write_at(bytes, offset)? as isize)
    })
}

/// Attributes of an open file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_stat(file: *const OpenFile, out: *mut Stat) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let file = call::object(file)?;
        call::store(out, || Ok(file.file.metadata()?.into()))
    })
}

/// Makes a file this long: it is cut off, or ends with a hole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_truncate(file: *const OpenFile, len: u64) -> c_int {
    call::run(|| {
        // SAFETY: the caller's promise.
        unsafe { call::object(file) }?.file.set_len(len)?;
        Ok(0)
    })
}

/// Returns when the file is on the image, with its attributes and its name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_sync(file: *const OpenFile) -> c_int {
    call::run(|| {
        // SAFETY: the caller's promise.
        unsafe { call::object(file) }?.file.sync_all()?;
        Ok(0)
    })
}

/// Frees the storage of a range, which reads as zeros from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_punch_hole(
    file: *const OpenFile,
    offset: u64,
    len: u64,
) -> c_int {
    call::run(|| {
        // SAFETY: the caller's promise.
        unsafe { call::object(file) }?
            .file
            .punch_hole(offset, len)?;
        Ok(0)
    })
}

/// Where the next data is at or after `offset`; ENXIO where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_seek_data(file: *const OpenFile, offset: u64) -> i64 {
    // SAFETY: the caller's promise.
    call::run(|| place(unsafe { call::object(file) }?.file.seek_data(offset)?))
}

/// Where the next hole is at or after `offset`, or the end of the file; ENXIO beyond it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_seek_hole(file: *const OpenFile, offset: u64) -> i64 {
    // SAFETY: the caller's promise.
    call::run(|| place(unsafe { call::object(file) }?.file.seek_hole(offset)?))
}

fn place(offset: u64) -> Result<i64> {
    i64::try_from(offset).map_err(|_| failure(libc::EOVERFLOW, "the file is too large"))
}

/// Takes the lock of the whole file as flock(2) does: exclusive or shared, without waiting
/// (EWOULDBLOCK). It goes when the file is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_try_lock(file: *const OpenFile, is_shared: c_int) -> c_int {
    call::run(|| {
        // SAFETY: the caller's promise.
        let file = &unsafe { call::object(file) }?.file;
        let taken = match is_shared != 0 {
            true => file.try_lock_shared(),
            false => file.try_lock(),
        };
        match taken {
            Ok(()) => Ok(0),
            Err(std::fs::TryLockError::WouldBlock) => {
                Err(failure(libc::EWOULDBLOCK, "lock: another has it"))
            }
            Err(std::fs::TryLockError::Error(error)) => Err(of_io(&error)),
        }
    })
}

/// Gives the lock of the whole file back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_file_unlock(file: *const OpenFile) -> c_int {
    call::run(|| {
        // SAFETY: the caller's promise.
        unsafe { call::object(file) }?.file.unlock()?;
        Ok(0)
    })
}

fn of_io(error: &io::Error) -> crate::call::Failure {
    failure(finefs::errno(error).unwrap_or(libc::EIO), error)
}
