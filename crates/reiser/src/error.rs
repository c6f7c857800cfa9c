//! Why an image cannot be mounted: one clear line each, saying what, where and what to do.

use std::fmt;

use finefs_namespace::Error;
use finefs_reiser_disk::DiskError;

/// An image that cannot be mounted.
#[derive(Debug)]
pub struct MountError {
    /// The image.
    pub device: String,
    /// What is wrong.
    pub kind: MountErrorKind,
}

/// What can be wrong with an image.
#[derive(Debug)]
pub enum MountErrorKind {
    /// There is no superblock where one could be.
    NotReiserfs,
    /// The superblock contradicts itself.
    Superblock(String),
    /// The file system goes on past the end of the image.
    Truncated {
        /// The size that the superblock tells.
        file_system_bytes: u64,
        /// The size of the image.
        device_bytes: u64,
    },
    /// The journal lies on another device, which was not given, and must be replayed.
    ExternalJournal,
    /// What was given as the journal's device is not that.
    JournalDevice(String),
    /// The root directory or the tree above it is damaged.
    Damaged(String),
    /// The journal cannot be replayed.
    Journal(String),
    /// The device failed.
    Io(String),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        write!(f, "{device}: ")?;
        match &self.kind {
            MountErrorKind::NotReiserfs => {
                f.write_str("no reiserfs found; check the path and offset=")
            }
            MountErrorKind::Superblock(what) => write!(
                f,
                "the superblock is damaged ({what}); repair with reiserfsck --rebuild-sb {device}"
            ),
            MountErrorKind::Truncated {
                file_system_bytes,
                device_bytes,
            } => write!(
                f,
                "the image is truncated: the file system has {file_system_bytes} bytes, the image \
                 {device_bytes}; get the whole image"
            ),
            MountErrorKind::ExternalJournal => write!(
                f,
                "the journal lies on another device and must be replayed; give it (mount -o \
                 journal_path=FILE, other commands --journal FILE)"
            ),
            MountErrorKind::JournalDevice(what) => {
                write!(f, "{what}; check the path of the journal")
            }
            MountErrorKind::Damaged(what) => write!(
                f,
                "the file system is damaged ({what}); check it with reiserfsck {device}"
            ),
            MountErrorKind::Journal(what) => write!(
                f,
                "the journal cannot be replayed ({what}); repair with reiserfsck --fix-fixable \
                 {device}"
            ),
            MountErrorKind::Io(what) => write!(f, "{what}; check the storage"),
        }
    }
}

impl std::error::Error for MountError {}

/// A codec's error, with its place, as an error of the namespace.
pub(crate) fn at(place: impl fmt::Display, error: &DiskError) -> Error {
    Error::corrupt(format_args!("{place}: {}", detail_of(error)))
}

/// What a codec's error says, without its kind.
pub(crate) fn detail_of(error: &DiskError) -> String {
    match error {
        DiskError::Corrupt(what) => what.to_string(),
        error => error.to_string(),
    }
}

/// What an error says, without its kind: for a line that names the kind itself.
pub(crate) fn detail(error: &Error) -> String {
    match error {
        Error::Corrupt(what) | Error::Io(what) => what.to_string(),
        error => error.to_string(),
    }
}
