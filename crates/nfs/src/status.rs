//! Errors of the namespace as status codes of NFS (RFC 1813, 2.6) and of MOUNT.

use finefs_namespace::Error;

pub(crate) const OK: u32 = 0;
pub(crate) const NOT_SYNC: u32 = 10002;
pub(crate) const BAD_COOKIE: u32 = 10003;
pub(crate) const NOT_SUPPORTED: u32 = 10004;
pub(crate) const TOO_SMALL: u32 = 10005;
pub(crate) const BAD_TYPE: u32 = 10007;
/// "Ask again later."
pub(crate) const JUKEBOX: u32 = 10008;

/// The status that stands for an error.
pub(crate) fn of(error: &Error) -> u32 {
    match error {
        Error::NotPermitted => 1,
        Error::NotFound => 2,
        Error::Io(_) | Error::Corrupt(_) => 5,
        Error::NoSuchOffset => 6,
        Error::AccessDenied | Error::NoKey => 13,
        Error::Exists => 17,
        Error::CrossesFileSystems => 18,
        Error::NotADirectory => 20,
        Error::IsADirectory => 21,
        Error::Invalid | Error::SymlinkLoop | Error::Range | Error::ArgumentsTooLong => 22,
        Error::FileTooLarge => 27,
        Error::NoSpace => 28,
        Error::QuotaExceeded => 69,
        Error::ReadOnly => 30,
        Error::TooManyLinks => 31,
        Error::NameTooLong => 63,
        Error::NotEmpty => 66,
        Error::Stale => 70,
        Error::BadHandle => 10001,
        Error::NotSupported => NOT_SUPPORTED,
        Error::Frozen | Error::WouldBlock | Error::TimedOut | Error::Interrupted => JUKEBOX,
        // The root directory is not removed; no status says so.
        Error::Busy => 13,
        Error::NoAttribute | Error::Deadlock | Error::NoLocks => 10006,
    }
}
