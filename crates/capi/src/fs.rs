//! Images: opening, closing, making, space.

use std::ffi::{OsStr, c_char, c_int};
use std::path::PathBuf;

use finefs::FileSystem;
use finefs_image::mkfs::{self, FsType, Place};
use finefs_image::{Access, Address, Images};

use crate::call::{self, Result, failure, invalid};
use crate::stat::StatFs;

/// For finefs_open: nothing is written, and others may read the image too.
pub const FINEFS_READ_ONLY: u32 = 1;

/// An open image or memory file system.
pub struct Fs {
    pub(crate) fs: FileSystem,
}

/// Opens an image: a path, IMAGE@pN or IMAGE@LABEL for a partition, or another address that the
/// commands of finefs take. `flags` is 0 or FINEFS_READ_ONLY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_open(image: *const c_char, flags: u32, out: *mut *mut Fs) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let image = call::string(image, "the image")?;
        call::store_object(out, || open(image, None, flags))
    })
}

/// The same for an image whose journal lies on another device, or in another file: `journal`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_open_with_journal(
    image: *const c_char,
    journal: *const c_char,
    flags: u32,
    out: *mut *mut Fs,
) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let image = call::string(image, "the image")?;
        let journal = call::string(journal, "the journal")?;
        call::store_object(out, || open(image, Some(journal), flags))
    })
}

fn open(image: &OsStr, journal: Option<&OsStr>, flags: u32) -> Result<Fs> {
    let access = match flags {
        0 => Access::Write,
        FINEFS_READ_ONLY => Access::Read,
        _ => return Err(invalid("unknown flags; give 0 or FINEFS_READ_ONLY")),
    };
    let address = Address {
        image: image.to_owned(),
        path: PathBuf::from("/"),
    };
    // The file system lives on in its handle.
    let journals = journal.into_iter().map(PathBuf::from).collect();
    let fs = Images::new(None)
        .with_journals(journals)
        .open_only(&address, access)?;
    Ok(Fs { fs })
}

/// Opens a file system in memory, of at most `size` bytes, that is gone when it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_open_memory(size: u64, out: *mut *mut Fs) -> c_int {
    let open = || {
        let fs = FileSystem::memory(size)?;
        Ok(Fs { fs })
    };
    // SAFETY: the caller's promise.
    call::run(|| unsafe { call::store_object(out, open) })
}

/// Ends a file system. 0 says that everything is on the image; an error, that something is not. The
/// handle is gone in any case; files and directories that are still open fail from now on, and are
/// to be closed all the same. Null is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_close(fs: *mut Fs) -> c_int {
    call::run(|| {
        // SAFETY: the caller's promise.
        if let Some(fs) = unsafe { call::take(fs) } {
            fs.fs.close()?;
        }
        Ok(0)
    })
}

/// Returns when everything that was done before is on the image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_sync(fs: *const Fs) -> c_int {
    call::run(|| {
        // SAFETY: the caller's promise.
        unsafe { call::object(fs) }?.fs.sync()?;
        Ok(0)
    })
}

/// Space and inodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_statfs(fs: *const Fs, out: *mut StatFs) -> c_int {
    // SAFETY: the caller's promise.
    call::run(|| unsafe {
        let fs = call::object(fs)?;
        call::store(out, || Ok(fs.fs.statfs().into()))
    })
}

/// Makes an empty file system of `size` bytes in a new, sparse file. `fs_type` is "ext2", "ext3" or
/// "ext4". EEXIST where something is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn finefs_mkfs(
    image: *const c_char,
    size: u64,
    fs_type: *const c_char,
) -> c_int {
    call::run(|| {
        // SAFETY: the caller's promise.
        let (path, fs_type) = unsafe { (call::path(image)?, call::string(fs_type, "the type")?) };
        let fs_type = match fs_type.to_str() {
            Some("ext2") => FsType::Ext2,
            Some("ext3") => FsType::Ext3,
            Some("ext4") => FsType::Ext4,
            _ => return Err(invalid("unknown type; give ext2, ext3 or ext4")),
        };
        if path.symlink_metadata().is_ok() {
            let message = format!("{}: is there already", path.display());
            return Err(failure(libc::EEXIST, message));
        }
        let place = Place {
            path: path.to_owned(),
            size_bytes: Some(size),
            offset_bytes: 0,
            may_overwrite: false,
        };
        let options = mkfs::Options {
            fs_type,
            ..mkfs::Options::default()
        };
        mkfs::make_at(&place, &options)?;
        Ok(0)
    })
}

/// The library's version, "MAJOR.MINOR.PATCH".
#[unsafe(no_mangle)]
pub extern "C" fn finefs_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
