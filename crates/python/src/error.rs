//! Errors as `OSError`: errno, reason, path.

use std::path::Path;

use finefs_image::mkfs::MkfsError;
use pyo3::exceptions::{PyMemoryError, PyOSError, PyValueError};
use pyo3::prelude::*;

/// An operation's error. It names what it was applied to.
pub(crate) fn of(error: &finefs::Error) -> PyErr {
    if error.errno() == libc::ENOMEM {
        return PyMemoryError::new_err(error.to_string());
    }
    match error.path().filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => os_error(error.errno(), &error.reason(), Some(path)),
        None => os_error(error.errno(), &error.to_string(), None),
    }
}

/// The error of every operation on a closed image.
pub(crate) fn closed() -> PyErr {
    os_error(libc::EIO, "the image is closed", None)
}

/// An error of the workshop. Those without a number are bad arguments.
pub(crate) fn of_workshop(error: &finefs_image::Error) -> PyErr {
    match error.errno() {
        Some(errno) if error.place().is_empty() => os_error(errno, error.reason(), None),
        Some(errno) => os_error(errno, error.reason(), Some(Path::new(error.place()))),
        None => PyValueError::new_err(error.to_string()),
    }
}

/// Why no file system was made at a path. What has no number is a bad argument.
pub(crate) fn of_mkfs(error: &MkfsError, path: &Path) -> PyErr {
    let text = error.to_string();
    let place = format!("{}: ", path.display());
    let reason = text.strip_prefix(&place).unwrap_or(&text);
    match error.errno() {
        Some(errno) => os_error(errno, reason, Some(path)),
        None => PyValueError::new_err(text),
    }
}

fn os_error(errno: i32, reason: &str, path: Option<&Path>) -> PyErr {
    match path {
        Some(path) => {
            let path = path.as_os_str().to_owned();
            PyOSError::new_err((errno, reason.to_owned(), path))
        }
        None => PyOSError::new_err((errno, reason.to_owned())),
    }
}
