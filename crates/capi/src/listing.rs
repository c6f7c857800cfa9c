//! Directories.

use std::ffi::{CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use finefs::ReadDir;

use crate::call;
use crate::fs::Fs;

/// A directory that is being listed, by one thread at a time.
pub struct Listing {
    entries: ReadDir,
    name: CString,
}

/// An entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name; valid until the next call on the directory.
    pub name: *const c_char,
    /// Number of its inode.
    pub ino: u64,
    /// Its kind as in st_mode (S_IFDIR, ...).
    pub kind: u32,
}

/// Opens a directory to list it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_dir_open(
    fs: *const Fs,
    path: *const c_char,
    out: *mut *mut Listing,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let (fs, path) = (&call::object(fs)?.fs, call::path(path)?);
        call::store_object(out, || {
            Ok(Listing {
                entries: fs.read_dir(path)?,
                name: CString::default(),
            })
        })
    })
}

/// The next entry, in no order that means anything, without "." and "..": 1 with `out` filled, 0 at
/// the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_dir_next(dir: *mut Listing, out: *mut Entry) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        call::object(dir)?;
        let dir = &mut *dir;
        let Some(entry) = dir.entries.next().transpose()? else {
            return Ok(0);
        };
        let kind = entry.file_type()?.kind().mode_bits();
        dir.name = CString::new(entry.file_name().as_bytes()).unwrap_or_default();
        let entry = Entry {
            name: dir.name.as_ptr(),
            ino: entry.ino(),
            kind,
        };
        call::store(out, || Ok(entry))?;
        Ok(1)
    })
}

/// Ends a listing. Null is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_dir_close(dir: *mut Listing) {
    let closed = call::run(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { call::take(dir) });
        Ok(0)
    });
    debug_assert_eq!(closed, 0);
}
