//! Unmounting: umount2(2) for who may, fusermount3 for the others.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::mount::UnmountFlags;

use crate::attach::HELPERS;
use crate::mounts::{MountPoint, mount_at};

/// Why a mount could not be taken away.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// EBUSY
    #[error("target is busy (a file in it is open, or a process works in it)")]
    Busy,
    /// EPERM
    #[error("not permitted (only who mounted it, or root, may unmount it)")]
    NotPermitted,
    /// EINVAL
    #[error("not mounted")]
    NotMounted,
    /// Anything else, in the words of who knows.
    #[error("{0}")]
    Other(String),
}

/// Unmounts what is mounted at `path`. `is_lazy` takes it out of the tree of names at once even if
/// it is busy; it then ends when its last user goes.
pub fn detach(path: &Path, is_lazy: bool) -> Result<(), DetachError> {
    let mut flags = UnmountFlags::NOFOLLOW;
    if is_lazy {
        flags |= UnmountFlags::DETACH;
    }
    match rustix::mount::unmount(path, flags) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(DetachError::Busy),
        Err(rustix::io::Errno::INVAL) => Err(DetachError::NotMounted),
        Err(rustix::io::Errno::PERM) => detach_by_helper(path, is_lazy),
        Err(error) => Err(DetachError::Other(io::Error::from(error).to_string())),
    }
}

/// Unmounts what of finefs is mounted at `path` (from [`crate::resolve`]) and has lost its server,
/// even if it is busy: nothing can be done in it. True when there was one.
pub fn remove_dead(path: &Path) -> Result<bool, DetachError> {
    let is_dead = |mount: &MountPoint| mount.is_finefs() && mount.is_dead();
    let mut is_removed = false;
    while mount_at(path).is_ok_and(|mount| mount.as_ref().is_some_and(is_dead)) {
        detach(path, true)?;
        is_removed = true;
    }
    Ok(is_removed)
}

fn detach_by_helper(path: &Path, is_lazy: bool) -> Result<(), DetachError> {
    for helper in HELPERS {
        let output = Command::new(helper)
            .arg(if is_lazy { "-uz" } else { "-u" })
            .arg("--")
            .arg(path)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output();
        match output {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let error = understand(&String::from_utf8_lossy(&output.stderr));
                return Err(match error {
                    // It knows only what its user has mounted.
                    DetachError::NotMounted if matches!(mount_at(path), Ok(Some(_))) => {
                        DetachError::NotPermitted
                    }
                    error => error,
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(DetachError::Other(format!("{helper}: {error}"))),
        }
    }
    Err(DetachError::NotPermitted)
}

/// The helper's messages are all there is to go by.
fn understand(message: &str) -> DetachError {
    if message.contains("busy") {
        DetachError::Busy
    } else if message.contains("not permitted") || message.contains("not mounted by you") {
        DetachError::NotPermitted
    } else if message.contains("not found in") || message.contains("Invalid argument") {
        DetachError::NotMounted
    } else {
        let line = message.lines().next().unwrap_or("the helper failed");
        DetachError::Other(line.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helpers_words_are_understood() {
        assert!(matches!(
            understand("fusermount3: failed to unmount /m: Device or resource busy\n"),
            DetachError::Busy
        ));
        assert!(matches!(
            understand("fusermount3: failed to unmount /m: Operation not permitted\n"),
            DetachError::NotPermitted
        ));
        assert!(matches!(
            understand("fusermount3: entry for /m not found in /etc/mtab\n"),
            DetachError::NotMounted
        ));
        assert!(matches!(understand("x: y\nz"), DetachError::Other(line) if line == "x: y"));
    }

    #[test]
    fn what_is_not_mounted_cannot_be_unmounted() {
        assert!(matches!(
            detach(Path::new("/proc/self/fd"), false),
            Err(DetachError::NotMounted | DetachError::NotPermitted | DetachError::Other(_))
        ));
    }
}
