//! Errors of the namespace, and the one place where they become errno values.

use std::borrow::Cow;
use std::fmt;

/// A result of a namespace operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. Each kind is one errno of POSIX or Linux; see [`Error::errno`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// ENOENT
    #[error("no such file or directory")]
    NotFound,
    /// EEXIST
    #[error("file exists")]
    Exists,
    /// ENOTDIR
    #[error("not a directory")]
    NotADirectory,
    /// EISDIR
    #[error("is a directory")]
    IsADirectory,
    /// ENOTEMPTY
    #[error("directory not empty")]
    NotEmpty,
    /// ENOSPC
    #[error("no space left")]
    NoSpace,
    /// EDQUOT
    #[error("quota exceeded")]
    QuotaExceeded,
    /// EROFS
    #[error("read-only file system")]
    ReadOnly,
    /// EPERM
    #[error("operation not permitted")]
    NotPermitted,
    /// EACCES
    #[error("permission denied")]
    AccessDenied,
    /// ENAMETOOLONG
    #[error("file name too long")]
    NameTooLong,
    /// EINVAL
    #[error("invalid argument")]
    Invalid,
    /// EMLINK
    #[error("too many links")]
    TooManyLinks,
    /// ELOOP
    #[error("too many levels of symbolic links")]
    SymlinkLoop,
    /// EFBIG
    #[error("file too large")]
    FileTooLarge,
    /// ENODATA
    #[error("no such attribute")]
    NoAttribute,
    /// ERANGE
    #[error("buffer too small")]
    Range,
    /// E2BIG
    #[error("argument list too long")]
    ArgumentsTooLong,
    /// EOPNOTSUPP
    #[error("operation not supported")]
    NotSupported,
    /// ENOKEY: it is encrypted.
    #[error("required key not available")]
    NoKey,
    /// EBADF
    #[error("bad file handle")]
    BadHandle,
    /// EBUSY
    #[error("busy")]
    Busy,
    /// ESTALE
    #[error("stale file handle")]
    Stale,
    /// EXDEV
    #[error("not on the same file system")]
    CrossesFileSystems,
    /// ENXIO (lseek past the last data)
    #[error("no such offset")]
    NoSuchOffset,
    /// EAGAIN: the file system is frozen; only where changes do not wait ([`crate::Options`]).
    #[error("frozen")]
    Frozen,
    /// EAGAIN: somebody's lock is in the way.
    #[error("resource temporarily unavailable")]
    WouldBlock,
    /// EDEADLK: to wait would be to wait for oneself.
    #[error("resource deadlock avoided")]
    Deadlock,
    /// ENOLCK
    #[error("no locks available")]
    NoLocks,
    /// ETIMEDOUT
    #[error("timed out")]
    TimedOut,
    /// EINTR
    #[error("interrupted")]
    Interrupted,
    /// EIO: the device failed.
    #[error("input/output error: {0}")]
    Io(Cow<'static, str>),
    /// EUCLEAN: what is stored contradicts itself; says what and where.
    #[error("structure needs cleaning: {0}")]
    Corrupt(Cow<'static, str>),
}

impl Error {
    /// The errno value of this error (positive).
    pub fn errno(&self) -> i32 {
        match self {
            Error::NotFound => libc::ENOENT,
            Error::Exists => libc::EEXIST,
            Error::NotADirectory => libc::ENOTDIR,
            Error::IsADirectory => libc::EISDIR,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::NoSpace => libc::ENOSPC,
            Error::QuotaExceeded => libc::EDQUOT,
            Error::ReadOnly => libc::EROFS,
            Error::NotPermitted => libc::EPERM,
            Error::AccessDenied => libc::EACCES,
            Error::NameTooLong => libc::ENAMETOOLONG,
            Error::Invalid => libc::EINVAL,
            Error::TooManyLinks => libc::EMLINK,
            Error::SymlinkLoop => libc::ELOOP,
            Error::FileTooLarge => libc::EFBIG,
            Error::NoAttribute => libc::ENODATA,
            Error::Range => libc::ERANGE,
            Error::ArgumentsTooLong => libc::E2BIG,
            Error::NotSupported => libc::EOPNOTSUPP,
            Error::NoKey => libc::ENOKEY,
            Error::BadHandle => libc::EBADF,
            Error::Busy => libc::EBUSY,
            Error::Stale => libc::ESTALE,
            Error::CrossesFileSystems => libc::EXDEV,
            Error::NoSuchOffset => libc::ENXIO,
            Error::Frozen => libc::EAGAIN,
            Error::WouldBlock => libc::EAGAIN,
            Error::Deadlock => libc::EDEADLK,
            Error::NoLocks => libc::ENOLCK,
            Error::TimedOut => libc::ETIMEDOUT,
            Error::Interrupted => libc::EINTR,
            Error::Io(_) => libc::EIO,
            Error::Corrupt(_) => libc::EUCLEAN,
        }
    }

    /// A corruption with its place.
    pub fn corrupt(what: impl fmt::Display) -> Error {
        Error::Corrupt(what.to_string().into())
    }

    /// A failure of the device.
    pub fn io(what: impl fmt::Display) -> Error {
        Error::Io(what.to_string().into())
    }
}
