//! Names: making, changing, moving and removing what they name.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use finefs::{FileKind, FileTimes, LastLink, Permissions, RenameMode};

use crate::call::{self, Result, invalid};
use crate::fs::Fs;
use crate::stat::{FINEFS_TIME_OMIT, Stat, Time};

/// For functions that take flags: a symbolic link at the end of the path is meant itself.
pub const FINEFS_NO_FOLLOW: u32 = 1;
/// For finefs_rename: EEXIST where the new name is there.
pub const FINEFS_RENAME_NO_REPLACE: u32 = 1;
/// For finefs_rename: the two names change places.
pub const FINEFS_RENAME_EXCHANGE: u32 = 2;
/// For finefs_chown: the owner or group stays.
pub const FINEFS_KEEP_ID: u32 = 0xffff_ffff;

pub(crate) fn last_link(flags: u32) -> Result<LastLink> {
    match flags {
        0 => Ok(LastLink::Follow),
        FINEFS_NO_FOLLOW => Ok(LastLink::Keep),
        _ => Err(invalid("unknown flags; give 0 or FINEFS_NO_FOLLOW")),
    }
}

/// Attributes of what is at `path`. `flags`: FINEFS_NO_FOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_stat(
    fs: *const Fs,
    path: *const c_char,
    flags: u32,
    out: *mut Stat,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let (fs, path) = (&call::object(fs)?.fs, call::path(path)?);
        let found = match last_link(flags)? {
            LastLink::Follow => fs.metadata(path)?,
            LastLink::Keep => fs.symlink_metadata(path)?,
        };
        call::store(out, || Ok(found.into()))
    })
}

/// Makes a directory with these permissions, less the umask 022.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_mkdir(fs: *const Fs, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let fs = &call::object(fs)?.fs;
        fs.create_dir_with_mode(call::path(path)?, mode)?;
        Ok(0)
    })
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_rmdir(fs: *const Fs, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        call::object(fs)?.fs.remove_dir(call::path(path)?)?;
        Ok(0)
    })
}

/// Removes a name of anything but a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_unlink(fs: *const Fs, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        call::object(fs)?.fs.remove_file(call::path(path)?)?;
        Ok(0)
    })
}

/// Renames `from` to `to`. `flags` is 0, FINEFS_RENAME_NO_REPLACE or FINEFS_RENAME_EXCHANGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_rename(
    fs: *const Fs,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let fs = &call::object(fs)?.fs;
        let mode = match flags {
            0 => RenameMode::Replace,
            FINEFS_RENAME_NO_REPLACE => RenameMode::NoReplace,
            FINEFS_RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(invalid("unknown flags; give 0 or one FINEFS_RENAME_ value")),
        };
        fs.rename_to(call::path(from)?, fs, call::path(to)?, mode)?;
        Ok(0)
    })
}

/// Gives the file at `from` the further name `to`. A symbolic link gets one itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_link(
    fs: *const Fs,
    from: *const c_char,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let fs = &call::object(fs)?.fs;
        fs.hard_link(call::path(from)?, call::path(to)?)?;
        Ok(0)
    })
}

/// Makes a symbolic link at `path` to `target`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_symlink(
    fs: *const Fs,
    target: *const c_char,
    path: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let fs = &call::object(fs)?.fs;
        fs.symlink(call::string(target, "the target")?, call::path(path)?)?;
        Ok(0)
    })
}

/// Where a symbolic link leads to, without a 0 behind it. Tells the length; with a `size` of 0 only
/// that. ERANGE where it does not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_readlink(
    fs: *const Fs,
    path: *const c_char,
    buffer: *mut u8,
    size: usize,
) -> isize {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let target = call::object(fs)?.fs.read_link(call::path(path)?)?;
        call::give(target.as_os_str().as_bytes(), buffer, size)
    })
}

/// Makes a node: `mode` has its kind (S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, S_IFREG) and its
/// permissions, `rdev` is as makedev(3) gives it and counts for devices only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_mknod(
    fs: *const Fs,
    path: *const c_char,
    mode: u32,
    rdev: u64,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let (fs, path) = (&call::object(fs)?.fs, call::path(path)?);
        let kind = match mode & libc::S_IFMT {
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            0 | libc::S_IFREG => {
                let mut options = finefs::OpenOptions::new();
                options.write(true).create_new(true).mode(mode & 0o7777);
                options.open(fs, path)?;
                return Ok(0);
            }
            _ => return Err(invalid("mknod makes no such file")),
        };
        fs.make_node(path, kind, mode & 0o7777, rdev)?;
        Ok(0)
    })
}

/// Sets the permission bits, set-id bits and the sticky bit among them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_chmod(fs: *const Fs, path: *const c_char, mode: u32) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let fs = &call::object(fs)?.fs;
        fs.set_permissions(call::path(path)?, Permissions::from_mode(mode))?;
        Ok(0)
    })
}

/// Sets owner and group; FINEFS_KEEP_ID leaves one as it is. `flags`: FINEFS_NO_FOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_chown(
    fs: *const Fs,
    path: *const c_char,
    uid: u32,
    gid: u32,
    flags: u32,
) -> c_int {
    let some = |id: u32| (id != FINEFS_KEEP_ID).then_some(id);
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let fs = &call::object(fs)?.fs;
        let link = last_link(flags)?;
        fs.set_owner(call::path(path)?, some(uid), some(gid), link)?;
        Ok(0)
    })
}

/// Sets the times of the last access and of the last change of the data. `flags`: FINEFS_NO_FOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_set_times(
    fs: *const Fs,
    path: *const c_char,
    atime: Time,
    mtime: Time,
    flags: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let fs = &call::object(fs)?.fs;
        let mut times = FileTimes::new();
        let get = |time: Time| match (time.nsec, time.get()) {
            (FINEFS_TIME_OMIT, _) => Ok(None),
            (_, Some(time)) => Ok(Some(time)),
            (_, None) => Err(invalid("a time has 1,000,000,000 nanoseconds or more")),
        };
        if let Some(time) = get(atime)? {
            times = times.accessed(time);
        }
        if let Some(time) = get(mtime)? {
            times = times.modified(time);
        }
        fs.set_times(call::path(path)?, times, last_link(flags)?)?;
        Ok(0)
    })
}
