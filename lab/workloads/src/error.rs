//! Why a workload fails.

use crate::targets::Errno;

/// A result of running a workload.
pub type Result<T> = std::result::Result<T, WorkloadError>;

/// Why a workload failed: one line that says what, and where.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// An operation of the target failed.
    #[error("{operation} {path}: {errno}")]
    Operation {
        /// What was asked for.
        operation: &'static str,
        /// Of which file.
        path: String,
        /// Why it was refused.
        errno: Errno,
    },
    /// The target did something else than what was asked for.
    #[error("wrong: {0}")]
    Wrong(String),
    /// The parameters contradict each other or the target.
    #[error("{0}")]
    Parameters(String),
    /// dbench's load file cannot be read, or is none.
    #[error("{0}")]
    LoadFile(String),
    /// What is to be made does not fit; so nothing was made.
    #[error("{what} needs {needed_bytes} bytes, and {free_bytes} are free")]
    NoSpace {
        /// What it is.
        what: String,
        /// How many bytes it takes.
        needed_bytes: u64,
        /// How many there are.
        free_bytes: u64,
    },
    /// A worker could not be started, or a worker process failed; the line is its own.
    #[error("{0}")]
    Process(String),
    /// A worker panicked, which its own message explains.
    #[error("a worker panicked")]
    Panicked,
    /// Somebody else failed, or the run was interrupted before it began.
    #[error("interrupted")]
    Interrupted,
}

/// Adds to an errno what it is about.
pub trait During<T> {
    /// `operation` on `path` gave this.
    fn during(self, operation: &'static str, path: &str) -> Result<T>;
}

impl<T> During<T> for std::result::Result<T, Errno> {
    #[inline]
    fn during(self, operation: &'static str, path: &str) -> Result<T> {
        self.map_err(|errno| failed(operation, path, errno))
    }
}

#[cold]
fn failed(operation: &'static str, path: &str, errno: Errno) -> WorkloadError {
    WorkloadError::Operation {
        operation,
        path: path.to_owned(),
        errno,
    }
}
