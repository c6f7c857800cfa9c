//! Files and block devices to make a file system on.

use super::build::Build;
use super::error::{MkfsError, Result};
use super::journal_device;
use super::options::Options;
use super::signature::signature;
use super::stopping::{Stop, Stopping};
use super::{Made, plan, undo, write};
use crate::beside::directory_of;
use crate::error::Error;
use finefs_block::{Access, BlockDevice, OpenError, PartitionDevice, Patience};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A device's size counts in whole pages, so that the kernel can reach the last block.
const PAGE_BYTES: u64 = 4096;

/// So many of these bytes as are whole pages.
pub(crate) fn whole_pages(bytes: u64) -> u64 {
    bytes / PAGE_BYTES * PAGE_BYTES
}

/// Where to make a file system.
#[derive(Clone, Debug)]
pub struct Place {
    /// A file, which is made if there is none, a block device, or the URL of an NBD export.
    pub path: PathBuf,
    /// Its size; that of what is there without it.
    pub size_bytes: Option<u64>,
    /// Where in the file or device it starts.
    pub offset_bytes: u64,
    /// What is there may be lost.
    pub may_overwrite: bool,
}

impl Place {
    /// Makes a journal there.
    fn make_journal(&self, size_bytes: u64, options: &Options) -> Result<Made> {
        journal_device::make_at(&self.path, self.offset_bytes, size_bytes, options)
    }

    /// The place that `image` names: all of a file or device, or, as `IMAGE@PARTITION`, a partition
    /// of a disk that is there. It is not to be overwritten.
    ///
    /// # Errors
    /// What is said of a partition that is not there, or is smaller than `size_bytes`.
    pub fn of(image: &OsStr, size_bytes: Option<u64>) -> crate::error::Result<Place> {
        let (path, part) = crate::address::place_of(image)?;
        let place = Place {
            path,
            size_bytes,
            offset_bytes: 0,
            may_overwrite: false,
        };
        let Some(part) = part else {
            return Ok(place);
        };
        let room_bytes = whole_pages(part.length_bytes);
        if let Some(bytes) = size_bytes.filter(|bytes| *bytes > part.length_bytes) {
            let reason = format!("the partition has {room_bytes} bytes, not {bytes}");
            return Err(Error::new(image.display().to_string(), reason));
        }
        Ok(Place {
            size_bytes: size_bytes.or(Some(room_bytes)),
            offset_bytes: part.start_bytes,
            ..place
        })
    }

    /// Whether there is something already.
    pub fn is_there(&self) -> bool {
        finefs_disk::is_url(self.path.as_os_str()) || self.path.symlink_metadata().is_ok()
    }

    fn open(
        &self,
        access: Access,
        has_barriers: bool,
    ) -> std::result::Result<Arc<dyn BlockDevice>, OpenError> {
        let patience = Patience {
            limit: Duration::ZERO,
            tell: |_| {},
        };
        let options = finefs_disk::Options {
            access,
            has_barriers,
            patience,
            format: None,
        };
        Ok(finefs_disk::open(&self.path, &options)?.device)
    }

    fn io(&self, action: &'static str) -> impl Fn(io::Error) -> MkfsError {
        let place = self.path.display().to_string();
        move |error| MkfsError::Io {
            place: place.clone(),
            action,
            error,
        }
    }

    /// Bytes for the file system, where there is something already.
    fn rest_bytes(&self, length_bytes: u64) -> u64 {
        self.size_bytes
            .unwrap_or_else(|| whole_pages(length_bytes.saturating_sub(self.offset_bytes)))
    }

    /// Whether a file of this length can be there, before a long plan is made for it. Asked of a
    /// file without a name beside it; where the file system has no such files, it is not known yet.
    fn check_length(&self, length_bytes: u64) -> Result<()> {
        let path = self.path.canonicalize();
        let path = path.as_deref().unwrap_or(&self.path);
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(directory_of(path), flags, Mode::RUSR | Mode::WUSR);
        let Ok(file) = file else {
            return Ok(());
        };
        let grown = rustix::fs::ftruncate(file, length_bytes);
        grown.map_err(|error| self.io("made that large")(error.into()))
    }

    fn end_bytes(&self, size_bytes: u64) -> Result<u64> {
        let end = self.offset_bytes.checked_add(size_bytes);
        end.filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(|| MkfsError::value("--size", size_bytes, "is more than a file can have"))
    }
}

/// What [`make_at`] would make, without making it.
///
/// # Errors
/// As [`make_at`]'s, but for writing.
pub fn plan_at(place: &Place, options: &Options) -> Result<Made> {
    let size_bytes = match (place.size_bytes, place.is_there()) {
        (Some(bytes), is_there) => {
            let end = place.end_bytes(bytes)?;
            if !is_there || is_regular(&place.path) {
                place.check_length(end)?;
            }
            bytes
        }
        (None, true) => {
            let device = place.open(Access::Inspect, true)?;
            place.rest_bytes(device.len_bytes())
        }
        (None, false) => return Err(MkfsError::NoSize(place.path.clone())),
    };
    undo::check(options)?;
    let made = match journal_device::is_wanted(options) {
        true => journal_device::plan_at(size_bytes, options)?,
        false => plan(size_bytes, options)?,
    };
    Ok(Made {
        image: place.path.display().to_string(),
        ..made
    })
}

/// What a place holds already.
pub fn found_at(place: &Place) -> Option<String> {
    let device = place.open(Access::Inspect, true).ok()?;
    signature(&*device, place.offset_bytes)
}

/// Makes a file system in a file or on a block device.
///
/// # Errors
/// Those of [`super::make`], and those of opening. A file that was not there before is not there
/// after an error.
pub fn make_at(place: &Place, options: &Options) -> Result<Made> {
    make_at_until(place, options, &Arc::default())
}

/// The same; where `stop` is set before it is done, it is not done.
///
/// # Errors
/// [`MkfsError::Interrupted`], too.
pub fn make_at_until(place: &Place, options: &Options, stop: &Arc<AtomicBool>) -> Result<Made> {
    undo::check(options)?;
    let stop = &Stop(Arc::clone(stop));
    let made = match place.is_there() {
        true => make_over(place, options, stop),
        false => make_new(place, options, stop),
    };
    made.map_err(|error| match error {
        MkfsError::Io { error, .. } if error.kind() == io::ErrorKind::Interrupted => {
            MkfsError::Interrupted(place.path.clone())
        }
        other => other,
    })
}

fn make_new(place: &Place, options: &Options, stop: &Stop) -> Result<Made> {
    let Some(size_bytes) = place.size_bytes else {
        return Err(MkfsError::NoSize(place.path.clone()));
    };
    let end = place.end_bytes(size_bytes)?;
    place.check_length(end)?;
    if journal_device::is_wanted(options) {
        journal_device::plan_at(size_bytes, options)?;
        create(place, end)?;
        return or_nothing(place, place.make_journal(size_bytes, options));
    }
    // Before there is a file.
    let build = Build::new(options, size_bytes, stop)?;
    create(place, end)?;
    let made = make_on(place, size_bytes, true, build, options, stop);
    if let (Err(_), Some(undo)) = (&made, &options.undo) {
        let _ = std::fs::remove_file(undo);
    }
    or_nothing(place, made)
}

/// Makes a file, all of it a hole.
fn create(place: &Place, length_bytes: u64) -> Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&place.path)
        .map_err(place.io("created"))?;
    let grown = file.set_len(length_bytes);
    or_nothing(place, grown.map_err(place.io("made that large")))
}

/// Takes the file away again where what was made of it is an error.
fn or_nothing<T>(place: &Place, made: Result<T>) -> Result<T> {
    if made.is_err() {
        // The error is what there is to tell.
        let _ = std::fs::remove_file(&place.path);
    }
    made
}

fn make_over(place: &Place, options: &Options, stop: &Stop) -> Result<Made> {
    let device = place.open(Access::ReadWrite, true)?;
    let length = device.len_bytes();
    let size_bytes = place.rest_bytes(length);
    let end = place.end_bytes(size_bytes)?;
    if !place.may_overwrite
        && let Some(what) = signature(&*device, place.offset_bytes)
    {
        return Err(MkfsError::InUse {
            path: place.path.clone(),
            what,
        });
    }
    if journal_device::is_wanted(options) {
        drop(device);
        return place.make_journal(size_bytes, options);
    }
    if end > length {
        // Only of a raw image.
        let is_file = std::fs::metadata(&place.path)
            .is_ok_and(|found| found.is_file() && found.len() == length);
        if !is_file {
            let reason = format!("the device has only {length}");
            return Err(MkfsError::value("--size", size_bytes, reason));
        }
        place.check_length(end)?;
    }
    let build = Build::new(options, size_bytes, stop)?;
    drop(device);
    if end > length {
        let file = OpenOptions::new()
            .write(true)
            .open(&place.path)
            .map_err(place.io("opened"))?;
        file.set_len(end).map_err(place.io("made larger"))?;
    }
    // A file that has only grown is as good as new.
    let is_blank = length <= place.offset_bytes;
    make_on(place, size_bytes, is_blank, build, options, stop)
}

fn make_on(
    place: &Place,
    size_bytes: u64,
    is_blank: bool,
    build: Build,
    options: &Options,
    stop: &Stop,
) -> Result<Made> {
    // Whoever needs the bytes of a file on the disk syncs it, as after cp(1).
    let device = place.open(Access::ReadWrite, !is_regular(&place.path))?;
    let part = PartitionDevice::new(device, place.offset_bytes, Some(size_bytes))
        .map_err(place.io("opened"))?;
    let part = Stopping {
        device: part,
        stop: stop.clone(),
    };
    let made = write(&part, place.offset_bytes, build, is_blank, options)?;
    Ok(Made {
        image: place.path.display().to_string(),
        ..made
    })
}

fn is_regular(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}
