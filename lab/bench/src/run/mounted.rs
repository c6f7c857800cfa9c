//! The file system that a directory is in: its name for tables, and where it is finefs's, its
//! server's lock meter.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use finefs_fuse::{MountPoint, mounts};
use finefs_lockmeter::Snapshot;
use finefs_lockmeter::control::{Reply, Request};
use finefs_study::studies::{Mounted, ServerMeter};

use finefs_cli::channel::Channel;
use finefs_cli::output::say;
use finefs_cli::{CliResult, Failure};

/// Who `dir` is served by.
pub(super) fn look_at(dir: &Path) -> CliResult<Mounted> {
    let failed = |error| Failure::new(format!("{}: {error}", dir.display()));
    let device = std::fs::metadata(dir).map_err(failed)?.dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = mounts().map_err(failed)?;
    let mount = mounts
        .into_iter()
        .rev()
        .find(|mount| mount.device == device);
    let kind = mount.as_ref().map_or("", |mount| mount.kind.as_str());
    let own = mount.as_ref().filter(|mount| mount.is_finefs());
    let locking = own
        .and_then(|mount| Channel::of(mount).ok())
        .and_then(|channel| channel.locking());
    let name = name(kind);
    Ok(Mounted {
        dir: dir.to_owned(),
        name: match locking {
            // Once in a program's life.
            Some(locking) => format!("{name}, {locking}").leak(),
            None => name,
        },
        meter: own.and_then(meter),
    })
}

fn name(kind: &str) -> &'static str {
    match kind {
        "fuse.finefs" | "fuseblk.finefs" => "finefs, mounted",
        "ext4" => "kernel's ext4",
        "ext3" => "kernel's ext3",
        "ext2" => "kernel's ext2",
        "tmpfs" => "kernel's tmpfs",
        "xfs" => "kernel's xfs",
        "btrfs" => "kernel's btrfs",
        _ if kind.starts_with("fuse") => "a FUSE file system, mounted",
        _ => "as mounted",
    }
}

/// Says why if there is none.
fn meter(mount: &MountPoint) -> Option<Arc<dyn ServerMeter>> {
    let answers = Channel::of(mount).and_then(|channel| {
        let meter = OfMount(channel);
        meter.snapshot().map(|_| meter)
    });
    match answers {
        Ok(meter) => Some(Arc::new(meter)),
        Err(reason) => {
            say(format!("without contention and waiting: {reason}"));
            None
        }
    }
}

struct OfMount(Channel);

impl ServerMeter for OfMount {
    fn set_full(&self, is_full: bool) -> Result<(), String> {
        match self.0.meter(Request::SetFull(is_full))? {
            Reply::Done => Ok(()),
            other => Err(format!("its server answers {other:?}")),
        }
    }

    fn snapshot(&self) -> Result<Snapshot, String> {
        match self.0.meter(Request::Snapshot)? {
            Reply::Snapshot(counts) => Ok(counts),
            other => Err(format!("its server answers {other:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_the_kernel_has_a_name_and_no_meter() {
        let mounted = look_at(Path::new("/dev/shm")).unwrap();
        assert_eq!(mounted.name, "kernel's tmpfs");
        assert!(mounted.meter.is_none());
    }
}
