//! Paths of the host that lead to what is written and never replaced: `/dev/stdout` and other open
//! files of processes, and through symbolic links devices, FIFOs and sockets.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use finefs::front_end::namespace::SYMLINKS_MAX;
use finefs_image::Error;
use finefs_image::address::split_path;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Where a path leads, if that is an open file of a process or something else in /proc, which is
/// a file of the kernel's.
fn in_proc(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..SYMLINKS_MAX {
        let (parent, name) = split_path(&path);
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => &parent,
        };
        let parent = parent.canonicalize().ok()?;
        path = parent.join(name);
        if parent.starts_with("/proc") && path.symlink_metadata().is_ok() {
            return Some(path);
        }
        path = parent.join(path.read_link().ok()?);
    }
    None
}

/// True for a path of the host behind which something is that is written and not replaced: in
/// /proc, or through a symbolic link.
pub(super) fn leads_elsewhere(path: &Path) -> bool {
    let is_special = |path: &Path| {
        let found = path.metadata();
        found.is_ok_and(|found| !found.is_file() && !found.is_dir())
    };
    is_in_proc(path) || path.is_symlink() && is_special(path)
}

/// The same of /proc alone.
pub(super) fn is_in_proc(path: &Path) -> bool {
    in_proc(path).is_some()
}

/// Opens it. An open file of this process is written where it is.
pub(super) fn open(path: &Path) -> finefs_image::Result<Box<dyn Write>> {
    let failed = |error: io::Error| Error::host(path.display().to_string(), error);
    let place = in_proc(path);
    match place.as_deref().and_then(own_descriptor) {
        Some(1) => Ok(Box::new(io::stdout().lock())),
        Some(2) => Ok(Box::new(io::stderr().lock())),
        Some(number) => Ok(Box::new(duplicate(number).map_err(failed)?)),
        None => {
            let mut options = OpenOptions::new();
            options.append(place.is_some()).write(true);
            let file = options.custom_flags(libc::O_NOCTTY).open(path);
            Ok(Box::new(file.map_err(failed)?))
        }
    }
}

/// The number of an open file of this process, of its place in /proc.
fn own_descriptor(path: &Path) -> Option<i32> {
    let pid = getpid().as_raw_nonzero();
    let rest = path.strip_prefix(format!("/proc/{pid}")).ok()?;
    let parts: Vec<&str> = rest.iter().filter_map(|part| part.to_str()).collect();
    match parts.as_slice() {
        ["fd", number] | ["task", _, "fd", number] => number.parse().ok(),
        _ => None,
    }
}

fn duplicate(number: i32) -> io::Result<File> {
    let own: Pid = getpid();
    let process = pidfd_open(own, PidfdFlags::empty())?;
    let copy = pidfd_getfd(process, number, PidfdGetfdFlags::empty())?;
    Ok(File::from(copy))
}
