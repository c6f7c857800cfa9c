//! Whether what a workload is about to make fits, asked before minutes of writing.

use crate::error::{During, Result, WorkloadError};
use crate::targets::Target;

/// Fails, saying what is needed and what there is, where `target` has no `needed_bytes` for `what`.
pub(crate) fn require_space<T: Target>(target: &T, needed_bytes: u64, what: &str) -> Result<()> {
    let free_bytes = || target.free_bytes().during("statvfs", ".");
    let is_short = |free: &u64| *free < needed_bytes;
    if free_bytes()?.filter(is_short).is_none() {
        return Ok(());
    }
    // Some file systems give what was freed only when that is durable.
    target.sync().during("sync", ".")?;
    match free_bytes()?.filter(is_short) {
        Some(free_bytes) => Err(WorkloadError::NoSpace {
            what: what.to_owned(),
            needed_bytes,
            free_bytes,
        }),
        None => Ok(()),
    }
}
