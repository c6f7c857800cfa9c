//! Why images cannot be opened.

use finefs_block::OpenError;
use finefs_ext::{MountError, MountErrorKind};
use finefs_namespace::Error as Cause;
use finefs_reiser::{MountError as ReiserfsError, MountErrorKind as ReiserfsErrorKind};
use rustix::io::Errno;

/// Why an image cannot be opened: one line that says what, where, and what to do.
#[derive(Debug)]
pub(crate) enum ImageError {
    /// The file cannot be used.
    Device(OpenError),
    /// `offset_bytes` lies outside of it.
    Offset {
        /// The image.
        image: String,
        /// What was asked for.
        offset_bytes: u64,
        /// Size of the image.
        length_bytes: u64,
    },
    /// What is in it cannot be used.
    Content(MountError),
    /// What is in it is reiserfs, and cannot be used.
    Reiserfs(ReiserfsError),
    /// The namespace refused the store.
    Namespace {
        /// The image.
        image: String,
        /// Why.
        error: Cause,
    },
}

impl std::fmt::Display for ImageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ImageError::Device(error) => error.fmt(f),
            ImageError::Offset {
                image,
                offset_bytes,
                length_bytes,
            } => write!(
                f,
                "{image}: offset {offset_bytes} lies outside of the image, which has \
                 {length_bytes} bytes; check offset="
            ),
            ImageError::Content(error) => error.fmt(f),
            ImageError::Reiserfs(error) => error.fmt(f),
            ImageError::Namespace { image, error } => {
                write!(f, "{image}: {error}; check it with fsck -f {image}")
            }
        }
    }
}

impl ImageError {
    /// As mount(2) has it.
    pub(crate) fn errno(&self) -> i32 {
        let errno = match self {
            ImageError::Device(error) => return error.errno(),
            ImageError::Content(error) => match error.kind {
                MountErrorKind::Io(_) => Errno::IO,
                MountErrorKind::Damaged(_) | MountErrorKind::Journal(_) => Errno::UCLEAN,
                _ => Errno::INVAL,
            },
            ImageError::Reiserfs(error) => match error.kind {
                ReiserfsErrorKind::Io(_) => Errno::IO,
                ReiserfsErrorKind::Damaged(_) | ReiserfsErrorKind::Journal(_) => Errno::UCLEAN,
                _ => Errno::INVAL,
            },
            ImageError::Offset { .. } => Errno::INVAL,
            ImageError::Namespace { error, .. } => return error.errno(),
        };
        errno.raw_os_error()
    }
}
