//! Extended attributes, of what a path names.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use finefs::{LastLink, XattrMode};

use crate::call::{self, invalid};
use crate::fs::Fs;
use crate::names::{FINEFS_NO_FOLLOW, last_link};

/// For finefs_setxattr: EEXIST where it is there.
pub const FINEFS_XATTR_CREATE: u32 = 2;
/// For finefs_setxattr: ENODATA where it is not there.
pub const FINEFS_XATTR_REPLACE: u32 = 4;

/// The value of an attribute, e.g. "user.comment". Tells its length; with a `size` of 0 only that.
/// ERANGE where it does not fit, ENODATA where there is none. `flags`: FINEFS_NO_FOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_getxattr(
    fs: *const Fs,
    path: *const c_char,
    name: *const c_char,
    buffer: *mut u8,
    size: usize,
    flags: u32,
) -> isize {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let (fs, path) = (&call::object(fs)?.fs, call::path(path)?);
        let name = call::string(name, "the name")?;
        let value = match last_link(flags)? {
            LastLink::Follow => fs.get_xattr(path, name)?,
            LastLink::Keep => fs.symlink_get_xattr(path, name)?,
        };
        call::give(&value, buffer, size)
    })
}

/// Sets an attribute. `flags`: FINEFS_NO_FOLLOW, and FINEFS_XATTR_CREATE or FINEFS_XATTR_REPLACE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_setxattr(
    fs: *const Fs,
    path: *const c_char,
    name: *const c_char,
    value: *const u8,
    size: usize,
    flags: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let (fs, path) = (&call::object(fs)?.fs, call::path(path)?);
        let name = call::string(name, "the name")?;
        let value = call::bytes(value, size)?;
        let mode = match flags & !FINEFS_NO_FOLLOW {
            0 => XattrMode::Set,
            FINEFS_XATTR_CREATE => XattrMode::Create,
            FINEFS_XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(invalid("unknown flags of an attribute")),
        };
        match last_link(flags & FINEFS_NO_FOLLOW)? {
            LastLink::Follow => fs.set_xattr(path, name, value, mode)?,
            LastLink::Keep => fs.symlink_set_xattr(path, name, value, mode)?,
        }
        Ok(0)
    })
}

/// The names of all attributes, each with a 0 behind it. Tells their length; with a `size` of 0
/// only that. ERANGE where they do not fit. `flags`: FINEFS_NO_FOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_listxattr(
    fs: *const Fs,
    path: *const c_char,
    buffer: *mut u8,
    size: usize,
    flags: u32,
) -> isize {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let (fs, path) = (&call::object(fs)?.fs, call::path(path)?);
        let names = match last_link(flags)? {
            LastLink::Follow => fs.list_xattrs(path)?,
            LastLink::Keep => fs.symlink_list_xattrs(path)?,
        };
        let mut all = Vec::new();
        for name in names {
            all.extend_from_slice(name.as_bytes());
            all.push(0);
        }
        call::give(&all, buffer, size)
    })
}

/// Removes an attribute. `flags`: FINEFS_NO_FOLLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_removexattr(
    fs: *const Fs,
    path: *const c_char,
    name: *const c_char,
    flags: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let (fs, path) = (&call::object(fs)?.fs, call::path(path)?);
        let name = call::string(name, "the name")?;
        match last_link(flags)? {
            LastLink::Follow => fs.remove_xattr(path, name)?,
            LastLink::Keep => fs.symlink_remove_xattr(path, name)?,
        }
        Ok(0)
    })
}
