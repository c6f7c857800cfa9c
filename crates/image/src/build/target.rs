//! Where an image is built: in a file that gets its place when it is whole, or in what is there
//! already, a block device, an export of a server, or a partition.

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use finefs_block::{BlockDevice, FileDevice, PartitionDevice};
use rustix::io::Errno;

use super::{Options, Source};
use crate::address::{Images, is_same_file};
use crate::beside::{Beside, check_unused, directory_of, identity_of};
use crate::error::{Error, Result};
use crate::mkfs::{Place, whole_pages};

/// See the module's head.
pub(super) struct Target {
    /// What the user calls it.
    shown: String,
    /// Of the image, if that is given.
    size_bytes: Option<u64>,
    at: At,
}

enum At {
    Beside(Beside),
    Filled {
        path: PathBuf,
        /// All of what the image becomes a part of.
        disk: Arc<dyn BlockDevice>,
        bytes: Range<u64>,
    },
}

impl Target {
    /// What is there may be a file that is to be replaced, or a device, which is then open among
    /// `images`.
    pub fn of(image: &Path, options: &Options, images: &mut Images) -> Result<Target> {
        let shown = image.display().to_string();
        let refused = |reason| Err(Error::new(shown.clone(), reason));
        let place = Place::of(image.as_os_str(), options.size_bytes)?;
        let is_url = finefs_disk::is_url(place.path.as_os_str());
        if place.offset_bytes > 0 {
            if !options.may_replace {
                return refused("is a partition (--force replaces what is in it)");
            }
        } else if !is_url {
            check_directory(directory_of(image))?;
            let is_there = image.symlink_metadata().is_ok();
            if !is_there || image.is_file() {
                if is_there && !options.may_replace {
                    return refused("is there already (--force replaces it)");
                }
                check_unused(image)?;
                return Ok(Target {
                    at: At::Beside(Beside::new(image)?),
                    size_bytes: options.size_bytes,
                    shown,
                });
            }
            let found = image.metadata().map(|found| found.file_type());
            if !found.is_ok_and(|it| it.is_block_device()) {
                return refused("is there already, and is no regular file and no block device");
            }
        }
        if !options.may_replace {
            return refused("is a device (--force replaces what is on it)");
        }
        let disk = images.disk_to_fill(&place.path)?;
        let rest_bytes = disk.len_bytes().saturating_sub(place.offset_bytes);
        let size_bytes = place.size_bytes.unwrap_or(whole_pages(rest_bytes));
        Ok(Target {
            at: At::Filled {
                path: place.path,
                disk,
                bytes: place.offset_bytes..place.offset_bytes.saturating_add(size_bytes),
            },
            size_bytes: Some(size_bytes),
            shown,
        })
    }

    /// The size that is not to be computed.
    pub fn given_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    /// What tells a file that is to be replaced from others.
    pub fn identity(&self) -> Option<(u64, u64)> {
        match &self.at {
            At::Beside(beside) => identity_of(beside.place()),
            At::Filled { path, .. } => identity_of(path),
        }
    }

    /// Where files of the host can be kept meanwhile.
    pub fn directory(&self, image: &Path) -> PathBuf {
        match &self.at {
            At::Filled { path, .. } if !path.is_file() => std::env::temp_dir(),
            At::Filled { .. } | At::Beside(_) => directory_of(image).to_owned(),
        }
    }

    /// An error of making the image, which names the disk of the host where that is full.
    pub fn explained(&self, error: Error) -> Error {
        /// What a full disk may have for others.
        const LITTLE_BYTES: u64 = 1 << 20;
        let At::Beside(beside) = &self.at else {
            return error;
        };
        let found = rustix::fs::statvfs(directory_of(beside.place()));
        let is_full = found.is_ok_and(|found| found.f_bavail * found.f_frsize < LITTLE_BYTES);
        match is_full && error.is(Errno::NOSPC) {
            true => {
                let reason = "there is no space left on the disk that it is made on";
                Error::new(self.shown.clone(), reason)
            }
            false => error,
        }
    }

    /// Refuses sources that would be overwritten while they are read.
    pub fn check_sources(&self, sources: &[Source]) -> Result<()> {
        let At::Filled { path, bytes, .. } = &self.at else {
            return Ok(());
        };
        for source in sources {
            let (from, is_in_it) = match source {
                Source::Image(address) => {
                    (address.image.display(), address.laps_over(path, bytes)?)
                }
                Source::Archive(file) | Source::Squashfs(file) => {
                    (file.as_os_str().display(), is_same_file(file, path))
                }
                _ => continue,
            };
            if is_in_it {
                let reason = format!("{from} lies in it, and would be overwritten; copy it first");
                return Err(Error::new(self.shown.clone(), reason));
            }
        }
        Ok(())
    }

    /// True when [`Target::open`] gives what reads as zeros.
    pub fn is_blank(&self) -> bool {
        matches!(self.at, At::Beside(_))
    }

    /// The bytes of an image of this size. A file is a new one each time, also where a killed
    /// process of this number has left one.
    pub fn open(&self, size_bytes: u64) -> Result<Arc<dyn BlockDevice>> {
        let beside = match &self.at {
            At::Beside(beside) => beside.path(),
            At::Filled { disk, bytes, .. } => {
                let disk = Arc::clone(disk);
                let part = PartitionDevice::new(disk, bytes.start, Some(size_bytes));
                let failed = |_: io::Error| {
                    let reason = format!("has no place for {size_bytes} bytes");
                    Error::new(self.shown.clone(), reason)
                };
                return Ok(Arc::new(part.map_err(failed)?));
            }
        };
        let mut new = OpenOptions::new();
        let created = new.write(true).create(true).truncate(true).open(beside);
        created
            .and_then(|file| file.set_len(size_bytes))
            .map_err(|error| Error::host(beside.display().to_string(), error))?;
        let opened = FileDevice::open(beside, finefs_block::Access::ReadWrite);
        let opened = opened.map_err(|error| Error::new("", error.to_string()))?;
        // Whoever needs the bytes on the disk syncs the file, as after cp(1).
        Ok(Arc::new(opened.without_barriers()))
    }

    /// The image is whole.
    pub fn finish(self) -> Result<()> {
        match self.at {
            At::Beside(beside) => beside.finish(),
            At::Filled { .. } => Ok(()),
        }
    }
}

/// Refuses a place in what is no directory.
fn check_directory(path: &Path) -> Result<()> {
    let failed = |error: io::Error| Error::host(path.display().to_string(), error);
    match path.metadata().map_err(failed)?.is_dir() {
        true => Ok(()),
        false => Err(failed(Errno::NOTDIR.into())),
    }
}
