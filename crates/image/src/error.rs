//! What failed, where, and why: `PLACE: REASON`, as the commands print it.

use std::fmt;
use std::io;

/// A result of the workshop.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be done to a file of the host or of an image.
#[derive(Clone, Debug)]
pub struct Error {
    place: String,
    reason: String,
    errno: Option<i32>,
}

impl Error {
    /// One whose reason is told in words.
    pub fn new(place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error {
            place: place.into(),
            reason: reason.into(),
            errno: None,
        }
    }

    /// One of the host.
    pub fn host(place: impl Into<String>, error: impl Into<io::Error>) -> Error {
        let error = error.into();
        Error {
            place: place.into(),
            reason: without_number(&error.to_string()),
            errno: error.raw_os_error(),
        }
    }

    /// One of a file in an image.
    pub fn inside(place: impl Into<String>, error: &finefs::Error) -> Error {
        Error {
            place: place.into(),
            reason: error.reason(),
            errno: Some(error.errno()),
        }
    }

    /// An image that cannot be opened; `reason` names it.
    pub(crate) fn of_image(reason: String, errno: i32) -> Error {
        Error {
            place: String::new(),
            reason,
            errno: Some(errno),
        }
    }

    /// The number that Linux has for this (positive), where the system gave one.
    pub fn errno(&self) -> Option<i32> {
        self.errno
    }

    /// What it happened to; empty where the reason names it.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Why.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// True where a file is missing; not where the image is.
    pub fn is_missing(&self) -> bool {
        self.is(rustix::io::Errno::NOENT) && !self.place.is_empty()
    }

    /// True for this number.
    pub(crate) fn is(&self, errno: rustix::io::Errno) -> bool {
        self.errno == Some(errno.raw_os_error())
    }

    /// The same, of another place.
    pub(crate) fn with_place(mut self, place: String) -> Error {
        self.place = place;
        self
    }

    /// The same with more words.
    pub(crate) fn with_reason(mut self, reason: String) -> Error {
        self.reason = reason;
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.reason),
            place => write!(f, "{place}: {}", self.reason),
        }
    }
}

impl std::error::Error for Error {}

/// Without ` (os error 2)` of the standard library.
fn without_number(text: &str) -> String {
    match text.split_once(" (os error ") {
        Some((text, _)) => text.to_owned(),
        None => text.to_owned(),
    }
}
