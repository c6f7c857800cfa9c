//! Whether what a workload is about to make fits, asked before minutes of writing.

use crate::error::{During, Result, WorkloadError};
use crate::target::Target;

/// Fails, saying what is needed and what there is, where `target` has no `needed_bytes` for `what`.
pub(crate) fn require_space<T: Target>(target: &T, needed_bytes: u64, what: &str) -> Result<()> {
    match target.free_bytes().during("statvfs", ".")? {
        Some(free_bytes) if free_bytes < needed_bytes => Err(WorkloadError::NoSpace {
            what: what.to_owned(),
            needed_bytes,
            free_bytes,
        }),
        _ => Ok(()),
    }
}
