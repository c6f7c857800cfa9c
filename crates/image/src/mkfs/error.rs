//! Why a file system was not made: what, where, what to do.

use finefs_block::OpenError;
use finefs_ext_disk::DiskError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a file system was not made. One line each.
#[derive(Debug, Error)]
pub enum MkfsError {
    /// An option has a value that it cannot have.
    #[error("{option}={value}: {reason}")]
    Value {
        /// The option, as the command has it.
        option: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it, and what to give instead.
        reason: String,
    },
    /// A feature that has no such name.
    #[error("feature {0} is not known; see ext4(5) for those that there are")]
    UnknownFeature(String),
    /// A feature that is known, but that cannot be made here.
    #[error("feature {0} cannot be made; leave it out (-O ^{0}), or use mke2fs")]
    CannotMake(&'static str),
    /// Features that exclude or need each other.
    #[error("{0}")]
    Conflict(&'static str),
    /// More blocks than numbers without `64bit` can count.
    #[error(
        "{0} blocks are too many for 32-bit block numbers; take -O 64bit or a larger block size"
    )]
    TooManyBlocks(u64),
    /// The place is too small for what every file system has.
    #[error("{blocks} blocks of {block_size} bytes are too few for a file system; {advice}")]
    TooSmall {
        /// Blocks that there are.
        blocks: u64,
        /// Their size.
        block_size: u32,
        /// What to change.
        advice: &'static str,
    },
    /// Inodes that would fill the file system.
    #[error(
        "{inodes} inodes of {inode_size} bytes do not fit into {blocks} blocks; ask for fewer \
         (-N) or for more bytes for each (-i)"
    )]
    TooManyInodes {
        /// Inodes asked for.
        inodes: u64,
        /// Their size.
        inode_size: u16,
        /// Blocks that there are.
        blocks: u64,
    },
    /// A journal for which there is no room.
    #[error("a journal of {journal} blocks does not fit ({free} blocks are free); take -J size=")]
    JournalTooBig {
        /// Its blocks.
        journal: u64,
        /// Free blocks.
        free: u64,
    },
    /// Nothing is left for a structure.
    #[error("no room is left for {0}; make the file system larger")]
    NoRoom(&'static str),
    /// A place that cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// A place of which nobody said how large it is to be.
    #[error("{}: no such file, and no size given; give --size", .0.display())]
    NoSize(PathBuf),
    /// There is something already.
    #[error("{}: holds {what}; give -F to lose it", .path.display())]
    InUse {
        /// The image.
        path: PathBuf,
        /// What is there.
        what: String,
    },
    /// Somebody wanted it to stop.
    #[error("{}: interrupted; nothing was made", .0.display())]
    Interrupted(PathBuf),
    /// Reading or writing failed.
    #[error("{place}: cannot be {action}: {error}{}", advice(error))]
    Io {
        /// The image.
        place: String,
        /// What was tried.
        action: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// A structure that the format cannot hold: a mistake here.
    #[error("a structure cannot be built: {0}; this is a mistake in finefs, please report it")]
    Disk(#[from] DiskError),
}

/// What may help, where the reason does not say it.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; make its directory first",
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::StorageFull
        | io::ErrorKind::AlreadyExists => "",
        _ => "; check the storage",
    }
}

impl MkfsError {
    /// The number that Linux has for this (positive), where the system gave one or the place has
    /// something already (EEXIST). What was asked for wrongly has none.
    pub fn errno(&self) -> Option<i32> {
        match self {
            MkfsError::Io { error, .. } => finefs::errno(error),
            MkfsError::Open(error) => Some(error.errno()),
            MkfsError::InUse { .. } => Some(rustix::io::Errno::EXIST.raw_os_error()),
            _ => None,
        }
    }

    /// A value that an option cannot have.
    pub(super) fn value(
        option: &'static str,
        value: impl ToString,
        reason: impl Into<String>,
    ) -> MkfsError {
        MkfsError::Value {
            option,
            value: value.to_string(),
            reason: reason.into(),
        }
    }
}

/// What making gives.
pub type Result<T> = std::result::Result<T, MkfsError>;
