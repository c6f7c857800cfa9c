//! What `finefs info` tells of a mount: what the kernel knows of it, and its sizes.

use std::fmt::{self, Display};
use std::path::Path;

use finefs_fuse::MountPoint;
use serde::Serialize;

use crate::channel::Channel;
use crate::{CliResult, Failure, size};

/// A mount. The names are those of the command's JSON.
#[derive(Serialize)]
pub(crate) struct MountInfo {
    mount_point: String,
    /// The image, or what a file system in memory is called.
    source: String,
    /// `fuse.finefs` or `fuseblk.finefs`.
    kind: String,
    /// Those of the kernel.
    options: Vec<String>,
    /// Its server was killed; nothing else can be told then.
    is_dead: bool,
    /// Changes wait for a thaw; left out where its server does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_frozen: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<Sizes>,
}

/// As statvfs(3) tells them.
#[derive(Serialize)]
struct Sizes {
    size_bytes: u64,
    free_bytes: u64,
    /// Of it, what ordinary users may take.
    available_bytes: u64,
    inodes: u64,
    free_inodes: u64,
}

impl MountInfo {
    /// Of the mount at this directory. `None` where `path` is no directory; an error where nothing
    /// of finefs is mounted at it.
    pub(crate) fn of_directory(path: &Path) -> CliResult<Option<MountInfo>> {
        let fail = |reason: &str| Failure::new(format!("{}: {reason}", path.display()));
        let Ok(place) = finefs_fuse::resolve(path) else {
            // Opening it as an image tells why.
            return Ok(None);
        };
        if place.metadata().is_ok_and(|found| !found.is_dir()) {
            return Ok(None);
        }
        let mounts = finefs_fuse::mounts().map_err(|error| fail(&error.to_string()))?;
        // Of several at one place the last one is seen.
        let above = mounts.iter().filter(|mount| place.starts_with(&mount.path));
        match above.max_by_key(|mount| mount.path.components().count()) {
            Some(mount) if mount.is_finefs() && mount.path == place => {
                MountInfo::gather(mount).map(Some)
            }
            Some(mount) if mount.is_finefs() => Err(fail(&format!(
                "is a directory of the mount at {0}; see finefs info {0}",
                mount.path.display()
            ))),
            _ => Err(fail(
                "is a directory where nothing of finefs is mounted; give an image file, a block \
                 device or a mount",
            )),
        }
    }

    fn gather(mount: &MountPoint) -> CliResult<MountInfo> {
        let channel = Channel::of(mount).ok();
        let mut options: Vec<String> = Vec::new();
        for option in mount.flags.iter().chain(&mount.options) {
            if !options.contains(option) {
                options.push(option.clone());
            }
        }
        let sizes = match rustix::fs::statvfs(&mount.path) {
            Ok(found) => Some(Sizes {
                size_bytes: found.f_blocks * found.f_frsize,
                free_bytes: found.f_bfree * found.f_frsize,
                available_bytes: found.f_bavail * found.f_frsize,
                inodes: found.f_files,
                free_inodes: found.f_ffree,
            }),
            Err(rustix::io::Errno::NOTCONN) => None,
            Err(error) => {
                let place = mount.path.display();
                return Err(Failure::new(format!("{place}: {error}")));
            }
        };
        Ok(MountInfo {
            mount_point: mount.path.display().to_string(),
            source: mount.source.to_string_lossy().into_owned(),
            kind: mount.kind.clone(),
            options,
            is_dead: sizes.is_none(),
            is_frozen: channel.and_then(|channel| channel.is_frozen().ok()),
            sizes,
        })
    }
}

impl Display for MountInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: &dyn Display| writeln!(f, "{name:<26}{value}");
        line("Mount:", &self.mount_point)?;
        line("Source:", &self.source)?;
        line("Type:", &self.kind)?;
        line("Options:", &self.options.join(","))?;
        if let Some(sizes) = &self.sizes {
            line("Size:", &size::human(sizes.size_bytes))?;
            line("Free:", &size::human(sizes.free_bytes))?;
            line("Free for users:", &size::human(sizes.available_bytes))?;
            line("Inodes:", &sizes.inodes)?;
            line("Free inodes:", &sizes.free_inodes)?;
        }
        let place = &self.mount_point;
        let server = match (self.is_dead, self.is_frozen) {
            (true, _) => format!("was killed; finefs umount {place} takes the mount away"),
            (false, Some(true)) => format!("frozen; finefs thaw {place} lets changes go on"),
            (false, Some(false)) => "runs".to_owned(),
            (false, None) => "does not answer this user".to_owned(),
        };
        line("Server:", &server)
    }
}
