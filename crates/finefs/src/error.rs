//! What failed, where, and why.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use finefs_namespace::{Error as Cause, Ino};
use rustix::io::Errno;

use crate::image_error::ImageError;

/// A result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed: its name, the paths it was given, and the cause.
///
/// It converts into [`io::Error`] of the kind that `std::fs` would give, so `?` works in functions
/// that return that. The conversion keeps the message with the path, and therefore
/// [`io::Error::raw_os_error`] is `None` there: [`errno`] tells the number of either.
///
/// ```
/// # let fs = finefs::FileSystem::memory(1 << 20)?;
/// let error = fs.read("etc/motd").unwrap_err();
/// assert_eq!(error.to_string(), "open \"etc/motd\": no such file or directory");
/// assert_eq!(error.errno(), 2);
/// let error = std::io::Error::from(error);
/// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
/// assert_eq!(finefs::errno(&error), Some(2));
/// # Ok::<(), finefs::Error>(())
/// ```
///
/// An image that cannot be opened is told in one line that says what, where, and what to do; its
/// errno is the one that mount(2) gives.
pub struct Error(Box<Inner>);

const OUT_OF_MEMORY: &str = "out of memory";

enum Inner {
    Operation {
        operation: &'static str,
        path: Option<PathBuf>,
        to: Option<PathBuf>,
        ino: Option<u64>,
        cause: Cause,
    },
    Image(ImageError),
    /// The operating system, or what a file holds, refused something.
    Host {
        operation: &'static str,
        path: Option<PathBuf>,
        error: io::Error,
    },
    /// There is no memory for what a file holds.
    OutOfMemory {
        operation: &'static str,
        path: PathBuf,
    },
}

impl Error {
    pub(crate) fn new(operation: &'static str, cause: Cause) -> Error {
        Error(Box::new(Inner::Operation {
            operation,
            path: None,
            to: None,
            ino: None,
            cause,
        }))
    }

    /// With what the operation was applied to.
    pub(crate) fn at(operation: &'static str, at: &Path, cause: Cause) -> Error {
        let mut error = Error::new(operation, cause);
        if let Inner::Operation { path, .. } = &mut *error.0 {
            *path = Some(at.to_owned());
        }
        error
    }

    /// There is no memory for what the file at a path holds.
    pub(crate) fn out_of_memory(operation: &'static str, path: &Path) -> Error {
        let path = path.to_owned();
        Error(Box::new(Inner::OutOfMemory { operation, path }))
    }

    /// Something failed that is not done by the file system.
    pub(crate) fn host(operation: &'static str, path: Option<&Path>, error: io::Error) -> Error {
        Error(Box::new(Inner::Host {
            operation,
            path: path.map(Path::to_owned),
            error,
        }))
    }

    /// With the inode that an open file is.
    pub(crate) fn of_inode(operation: &'static str, number: Ino, cause: Cause) -> Error {
        let mut error = Error::new(operation, cause);
        if let Inner::Operation { ino, .. } = &mut *error.0 {
            *ino = Some(number.0);
        }
        error
    }

    /// With where something was to go.
    pub(crate) fn to(mut self, place: &Path) -> Error {
        if let Inner::Operation { to, .. } = &mut *self.0 {
            *to = Some(place.to_owned());
        }
        self
    }

    /// The number that Linux has for this (positive).
    pub fn errno(&self) -> i32 {
        match &*self.0 {
            Inner::Operation { cause, .. } => cause.errno(),
            Inner::Image(error) => error.errno(),
            Inner::Host { error, .. } => match (error.raw_os_error(), error.kind()) {
                (Some(number), _) => number,
                (None, io::ErrorKind::InvalidData) => Errno::ILSEQ.raw_os_error(),
                (None, _) => Errno::IO.raw_os_error(),
            },
            Inner::OutOfMemory { .. } => Errno::NOMEM.raw_os_error(),
        }
    }

    /// The kind that `std::fs` gives for this.
    pub fn kind(&self) -> io::ErrorKind {
        match &*self.0 {
            Inner::Host { error, .. } => error.kind(),
            _ => io::Error::from_raw_os_error(self.errno()).kind(),
        }
    }

    /// What the operation was applied to, as it was given.
    pub fn path(&self) -> Option<&Path> {
        match &*self.0 {
            Inner::Operation { path, .. } | Inner::Host { path, .. } => path.as_deref(),
            Inner::Image(_) => None,
            Inner::OutOfMemory { path, .. } => Some(path),
        }
    }

    /// The cause alone, for those who name the place in their own way.
    pub fn reason(&self) -> String {
        match &*self.0 {
            Inner::Operation { cause, .. } => cause.to_string(),
            Inner::Image(error) => error.to_string(),
            Inner::Host { error, .. } => error.to_string(),
            Inner::OutOfMemory { .. } => OUT_OF_MEMORY.to_owned(),
        }
    }

    /// The cause, apart from the place. Opening images, the operating system and lack of memory
    /// have causes of their own, which are EIO here.
    pub(crate) fn cause(&self) -> &Cause {
        const OF_IMAGE: &Cause = &Cause::Io(Cow::Borrowed("the image cannot be opened"));
        const OF_HOST: &Cause = &Cause::Io(Cow::Borrowed("the operating system refused it"));
        const OF_MEMORY: &Cause = &Cause::Io(Cow::Borrowed(OUT_OF_MEMORY));
        match &*self.0 {
            Inner::Operation { cause, .. } => cause,
            Inner::Image(_) => OF_IMAGE,
            Inner::Host { .. } => OF_HOST,
            Inner::OutOfMemory { .. } => OF_MEMORY,
        }
    }
}

impl From<ImageError> for Error {
    fn from(error: ImageError) -> Error {
        Error(Box::new(Inner::Image(error)))
    }
}

/// The errno of an error that came from this crate or from the operating system.
pub fn errno(error: &io::Error) -> Option<i32> {
    let ours = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    ours.map(Error::errno).or_else(|| error.raw_os_error())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operation, path, to, ino, cause) = match &*self.0 {
            Inner::Operation {
                operation,
                path,
                to,
                ino,
                cause,
            } => (operation, path, to, ino, cause),
            Inner::Image(error) => return error.fmt(f),
            Inner::Host {
                operation,
                path,
                error,
            } => {
                f.write_str(operation)?;
                if let Some(path) = path {
                    write!(f, " {path:?}")?;
                }
                return write!(f, ": {error}");
            }
            Inner::OutOfMemory { operation, path } => {
                return write!(f, "{operation} {path:?}: {OUT_OF_MEMORY}");
            }
        };
        f.write_str(operation)?;
        if let Some(path) = path {
            write!(f, " {path:?}")?;
        }
        if let Some(to) = to {
            write!(f, " to {to:?}")?;
        }
        if let Some(ino) = ino {
            write!(f, " of open inode {ino}")?;
        }
        write!(f, ": {cause}")
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self}, errno {})", self.errno())
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_are_no_text_are_invalid_data() {
        let fs = crate::FileSystem::memory(1 << 20).unwrap();
        fs.write("latin1", [0xe9]).unwrap();
        let error = fs.read_to_string("latin1").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("read \"latin1\": "), "{text}");
        assert_eq!(error.errno(), Errno::ILSEQ.raw_os_error());
        assert_eq!(error.path(), Some(Path::new("latin1")));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidData);
    }
}
