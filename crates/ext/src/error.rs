//! Why an image cannot be mounted: one clear line each, saying what, where and what to do.

use std::fmt;

use finefs_ext_disk::DiskError;
use finefs_namespace::Error;

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
    /// There is nothing in it.
    Empty,
    /// It is too small to hold a superblock.
    TooSmall {
        /// The size of the image.
        device_bytes: u64,
    },
    /// No superblock is where it should be.
    NotExt {
        /// Where a backup was found, in bytes from the start, and its block size.
        backup: Option<Backup>,
    },
    /// The superblock contradicts itself.
    Superblock {
        /// How.
        what: String,
        /// Where a backup was found.
        backup: Option<Backup>,
    },
    /// The file system goes on past the end of the image.
    Truncated {
        /// The size that the superblock tells.
        file_system_bytes: u64,
        /// The size of the image.
        device_bytes: u64,
    },
    /// Features, a revision or the like that finefs cannot read.
    Incompatible(String),
    /// It is no file system but the journal of others, as these words say.
    JournalDevice(String),
    /// Its journal lies on another device.
    ExternalJournal {
        /// The journal must be replayed before the image can be read rightly.
        needs_recovery: bool,
    },
    /// Group descriptors, root directory or the like are damaged.
    Damaged(String),
    /// Somebody else has it, who is named, with what to do about it.
    InUse(String),
    /// The device of this name was given for its journal, and is not that of this file system.
    ForeignJournal(String),
    /// The journal cannot be replayed.
    Journal(String),
    /// The device failed.
    Io(String),
}

/// A backup superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backup {
    /// The block, in units of `block_size_bytes`.
    pub block: u64,
    /// The block size.
    pub block_size_bytes: u32,
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        write!(f, "{device}: ")?;
        match &self.kind {
            MountErrorKind::Empty => f.write_str(
                "the image is empty; make a file system in it with mke2fs, or check the path",
            ),
            MountErrorKind::TooSmall { device_bytes } => write!(
                f,
                "{device_bytes} bytes are too few for an ext2/3/4 file system; check the path and \
                 offset="
            ),
            MountErrorKind::NotExt { backup: None } => f.write_str(
                "no ext2/3/4 file system found (bad magic number in the superblock); check the path \
                 and offset=",
            ),
            MountErrorKind::NotExt { backup: Some(backup) } => write!(
                f,
                "no superblock at byte 1024, but there is a backup; restore it with {}",
                Repair { device, backup }
            ),
            MountErrorKind::Superblock { what, backup } => {
                write!(f, "the superblock is damaged ({what}); ")?;
                match backup {
                    Some(backup) => {
                        write!(f, "there is a backup: repair with {}", Repair { device, backup })
                    }
                    None => f.write_str(
                        "no backup was found where one usually is; if you know of one, repair with \
                         e2fsck -b BLOCK",
                    ),
                }
            }
            MountErrorKind::Truncated { file_system_bytes, device_bytes } => write!(
                f,
                "the image is truncated: the file system has {file_system_bytes} bytes, the image \
                 {device_bytes}; get the whole image"
            ),
            MountErrorKind::Incompatible(what) => {
                write!(f, "cannot be read: {what} not supported; use the kernel's driver")
            }
            MountErrorKind::JournalDevice(what) => {
                f.write_str(what)
            }
            MountErrorKind::ExternalJournal { needs_recovery } => write!(
                f,
                "the journal lies on another device (external journal){}; give it (mount -o \
                 journal_path=FILE, other commands --journal FILE), or detach it with e2fsck -j \
                 FILE and tune2fs -O ^has_journal {device}",
                if *needs_recovery { " and must be replayed" } else { "" },
            ),
            MountErrorKind::ForeignJournal(name) => {
                write!(f, "{name} is not the journal of this file system; check its path")
            }
            MountErrorKind::Damaged(what) => {
                write!(f, "the file system is damaged ({what}); repair with e2fsck -f {device}")
            }
            MountErrorKind::Journal(what) => write!(
                f,
                "the journal cannot be replayed ({what}); repair with e2fsck -f {device}"
            ),
            MountErrorKind::InUse(who) => f.write_str(who),
            MountErrorKind::Io(what) => write!(f, "{what}; check the storage"),
        }
    }
}

impl std::error::Error for MountError {}

/// The e2fsck command that uses a backup.
struct Repair<'a> {
    device: &'a str,
    backup: &'a Backup,
}

impl fmt::Display for Repair<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Backup {
            block,
            block_size_bytes,
        } = self.backup;
        write!(f, "e2fsck -b {block} -B {block_size_bytes} {}", self.device)
    }
}

impl Backup {
    /// The e2fsck command that restores the superblock of this device from it.
    pub(crate) fn command(&self, device: &str) -> String {
        let backup = self;
        Repair { device, backup }.to_string()
    }
}

/// A codec's error, with its place, as an error of the namespace.
pub(crate) fn at(place: impl fmt::Display, error: DiskError) -> Error {
    match error {
        DiskError::Incompatible(_) => Error::NotSupported,
        DiskError::NoRoom(_) => Error::NoSpace,
        error => Error::corrupt(format_args!("{place}: {error}")),
    }
}

/// What a codec's error says, without its kind: for a line that says "damaged" itself.
pub(crate) fn disk_detail(error: &DiskError) -> String {
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
