//! In whose name operations are done.

use std::io;

use finefs_namespace::Caller;

use crate::error::{Error, Result};

/// Whoever opens a file system: no checks, and files that only their owner writes.
pub(crate) fn superuser() -> Caller {
    Caller {
        umask: 0o022,
        ..Caller::root()
    }
}

/// The effective user and group of this process, its groups and its umask: with this caller an
/// image is used with the rights that the process would have if it were mounted.
pub fn process_caller() -> Result<Caller> {
    process().map_err(|error| Error::host("caller of this process", None, error))
}

fn process() -> io::Result<Caller> {
    Ok(Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: rustix::process::getgroups()?
            .into_iter()
            .map(|gid| gid.as_raw())
            .collect(),
        umask: umask()?,
        checks: finefs_namespace::AccessChecks::Needed,
    })
}

/// The umask as proc(5) shows it: umask(2) cannot read it without setting it.
fn umask() -> io::Result<u32> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/status: no Umask"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_who_it_is() {
        let caller = process_caller().unwrap();
        assert_eq!(caller.uid, rustix::process::geteuid().as_raw());
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o027));
        assert_eq!(process_caller().unwrap().umask, 0o027);
        rustix::process::umask(before);
        assert_eq!(process_caller().unwrap().umask, before.as_raw_mode());
    }
}
