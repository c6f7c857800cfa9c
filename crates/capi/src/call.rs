//! The border: arguments from C, results and errors to C.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// An error on its way to C.
pub(crate) struct Failure {
    errno: c_int,
    message: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<finefs::Error> for Failure {
    fn from(error: finefs::Error) -> Failure {
        Failure {
            errno: error.errno(),
            message: error.to_string(),
        }
    }
}

impl From<finefs_image::Error> for Failure {
    fn from(error: finefs_image::Error) -> Failure {
        Failure {
            errno: error.errno().unwrap_or(libc::EINVAL),
            message: error.to_string(),
        }
    }
}

impl From<finefs_image::mkfs::MkfsError> for Failure {
    fn from(error: finefs_image::mkfs::MkfsError) -> Failure {
        failure(error.errno().unwrap_or(libc::EINVAL), error)
    }
}

/// EINVAL, with this message.
pub(crate) fn invalid(message: impl std::fmt::Display) -> Failure {
    failure(libc::EINVAL, message)
}

pub(crate) fn failure(errno: c_int, message: impl std::fmt::Display) -> Failure {
    Failure {
        errno,
        message: message.to_string(),
    }
}

/// Runs the body of a function of the interface.
pub(crate) fn run<T: From<i8> + std::ops::Neg<Output = T> + TryFrom<c_int>>(
    body: impl FnOnce() -> Result<T>,
) -> T {
    let result = catch_unwind(AssertUnwindSafe(body));
    let failure = match result {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(_) => failure(libc::EIO, "a fault of finefs: see standard error"),
    };
    let message = failure.message.replace('\0', "?");
    LAST.set(CString::new(message).unwrap_or_default());
    T::try_from(-failure.errno).unwrap_or_else(|_| -T::from(1))
}

/// The message of this thread's last call that failed; empty before. It is valid until the thread's
/// next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn finefs_last_error() -> *const c_char {
    LAST.with_borrow(|message| message.as_ptr())
}

/// A string of the caller.
///
/// # Safety
/// `text` is null or a string that ends with 0 and stays as it is for `'a`.
pub(crate) unsafe fn string<'a>(text: *const c_char, what: &str) -> Result<&'a OsStr> {
    if text.is_null() {
        return Err(invalid(format!("{what} is null")));
    }
    // SAFETY: not null; the rest is the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(OsStr::from_bytes(text.to_bytes()))
}

/// A path of the caller.
///
/// # Safety
/// As for [`string`].
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    unsafe { string(text, "the path") }.map(Path::new)
}

/// An object that a function of ours gave out.
///
/// # Safety
/// `handle` is null or such an object, not closed within `'a`.
pub(crate) unsafe fn object<'a, T>(handle: *const T) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or_else(|| invalid("the handle is null"))
}

/// Bytes to write, or to read into an uninitialised buffer of the caller's.
///
/// # Safety
/// `buffer` is null with a `len` of 0, or `len` bytes that may be read for `'a`.
pub(crate) unsafe fn bytes<'a>(buffer: *const u8, len: usize) -> Result<&'a [u8]> {
    match (buffer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(invalid("the buffer is null")),
        // SAFETY: not null; the rest is the caller's promise.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(buffer, len) }),
    }
}

/// Copies `value` to the caller's buffer of `size` bytes and tells its length; with a `size` of 0
/// only the length, as getxattr(2) does. ERANGE where it does not fit.
///
/// # Safety
/// `buffer` is null with a `size` of 0, or `size` bytes that may be written.
pub(crate) unsafe fn give(value: &[u8], buffer: *mut u8, size: usize) -> Result<isize> {
    if size > 0 {
        if buffer.is_null() {
            return Err(invalid("the buffer is null"));
        }
        if value.len() > size {
            let message = format!("{} bytes do not fit into {size}", value.len());
            return Err(failure(libc::ERANGE, message));
        }
        // SAFETY: `size` bytes may be written, and `value` is not longer; it is ours, so the two do
        // not overlap.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), buffer, value.len()) };
    }
    Ok(value.len() as isize)
}

/// Stores a result where the caller wants it.
///
/// # Safety
/// `place` is null or may be written.
pub(crate) unsafe fn store<T>(place: *mut T, value: impl FnOnce() -> Result<T>) -> Result<c_int> {
    if place.is_null() {
        return Err(invalid("the place for the result is null"));
    }
    let value = value()?;
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { place.write(value) };
    Ok(0)
}

/// Like [`store`], for an object, which the caller has to close.
///
/// # Safety
/// As for [`store`].
pub(crate) unsafe fn store_object<T>(
    place: *mut *mut T,
    value: impl FnOnce() -> Result<T>,
) -> Result<c_int> {
    // SAFETY: the caller's promise.
    unsafe { store(place, || Ok(Box::into_raw(Box::new(value()?)))) }
}

/// Takes an object back that a function of ours gave out. Null is nothing.
///
/// # Safety
/// `handle` is null or such an object, not closed before and not used after.
pub(crate) unsafe fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: `store_object` made it by `Box::into_raw`.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}
