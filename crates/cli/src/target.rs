//! What the commands on mounts name: a mount, or what `finefs serve` serves, by an image of it or
//! by its address.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use finefs_fuse::MountPoint;
use rustix::process::Uid;

use crate::channel::Channel;
use crate::{CliResult, Failure};

/// The disk that `IMAGE` or `IMAGE@PARTITION` names, as an absolute path, and where the partition
/// starts in it. A disk that is missing is reported when it is opened.
pub(crate) fn disk_of(image: &Path) -> CliResult<(PathBuf, Option<u64>)> {
    let located = finefs_image::address::locate(image.as_os_str());
    let (path, start) = located.map_err(Failure::new)?;
    Ok((finefs_disk::absolute(&path), start))
}

/// What a command is about.
pub(crate) enum Target {
    Mount(MountPoint),
    /// What is served, and the name that the user gave.
    Served(Channel, String),
}

impl Target {
    /// What the user means.
    pub(crate) fn find(target: &Path) -> CliResult<Target> {
        let name = target.display().to_string();
        if let Ok(address) = name.parse::<SocketAddr>() {
            let channel = Channel::of_address(address);
            return match channel.is_open() {
                true => Ok(Target::Served(channel, name)),
                false => Err(Failure::new(format!(
                    "{name}: nothing is served there by you"
                ))),
            };
        }
        let not_mounted = match find(target) {
            Ok(mount) => return Ok(Target::Mount(mount)),
            Err(error) => error,
        };
        match of_image(target) {
            Some(channel) => Ok(Target::Served(channel, name)),
            None => Err(not_mounted),
        }
    }

    /// How it is called in messages.
    pub(crate) fn place(&self) -> String {
        match self {
            Target::Mount(mount) => mount.path.display().to_string(),
            Target::Served(_, name) => name.clone(),
        }
    }

    /// To its server. The error is the reason, for the user.
    pub(crate) fn channel(self) -> Result<Channel, String> {
        match self {
            Target::Mount(mount) => Channel::of(&mount),
            Target::Served(channel, _) => Ok(channel),
        }
    }
}

/// To the server of an image: this user's or, for root, that of the image's owner.
fn of_image(image: &Path) -> Option<Channel> {
    let (image, _) = disk_of(image).ok()?;
    let owner = Uid::from_raw(image.metadata().ok()?.uid());
    let me = rustix::process::geteuid();
    let name = name_of_image(&image).ok()?;
    let mut channels = [Some(me), me.is_root().then_some(owner)]
        .into_iter()
        .flatten()
        .map(|user| Channel::named(user, name.clone()));
    channels.find(Channel::is_open)
}

/// The name of the socket for an image that is served: by its device and inode number, or, if it
/// is a device, by its own number.
pub(crate) fn name_of_image(image: &Path) -> io::Result<String> {
    let metadata = image.metadata()?;
    Ok(match metadata.file_type().is_block_device() {
        true => format!("image-device-{}", metadata.rdev()),
        false => format!("image-{}-{}", metadata.dev(), metadata.ino()),
    })
}

/// The mount that the user means.
pub(crate) fn find(target: &Path) -> CliResult<MountPoint> {
    let fail = |reason: String| Failure::new(format!("{}: {reason}", target.display()));
    let mounts = finefs_fuse::mounts().map_err(|e| fail(format!("cannot read mounts: {e}")))?;
    let path = resolve(target).map_err(|error| fail(error.to_string()))?;
    select(&mounts, &path).map_err(fail)
}

/// The mount at this directory.
pub(crate) fn find_at(directory: &Path) -> CliResult<MountPoint> {
    let mount = find(directory)?;
    match resolve(directory) {
        Ok(path) if path == mount.path => Ok(mount),
        _ => Err(Failure::new(format!(
            "{}: is not where it is mounted; name the directory",
            directory.display()
        ))),
    }
}

/// The topmost mount at `path`, else the last one of the image `path`.
fn select(mounts: &[MountPoint], path: &Path) -> Result<MountPoint, String> {
    if let Some(mount) = mounts.iter().rev().find(|mount| mount.path == path) {
        if mount.is_finefs() {
            return Ok(mount.clone());
        }
        return Err(format!(
            "mounted there is a file system of type {}, not finefs; use umount",
            mount.kind
        ));
    }
    let mut of_image = mounts
        .iter()
        .filter(|mount| mount.is_finefs() && Path::new(&mount.source) == path);
    match (of_image.next(), of_image.next()) {
        (Some(mount), None) => Ok(mount.clone()),
        (Some(_), Some(_)) => Err("mounted at several places; name the directory".into()),
        (None, _) => Err("not mounted".into()),
    }
}

/// The absolute path without symbolic links, which must also work where the server is dead and
/// nothing can be asked of the mount point itself.
fn resolve(target: &Path) -> io::Result<PathBuf> {
    if finefs_disk::is_url(target.as_os_str()) {
        return Ok(finefs_disk::absolute(target));
    }
    let error = match finefs_fuse::resolve(target) {
        Ok(path) => return Ok(path),
        Err(error) => error,
    };
    if let Ok((disk, Some(_))) = disk_of(target) {
        return Ok(disk);
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(path: &str, kind: &str, source: &str) -> MountPoint {
        MountPoint {
            device: (0, 1),
            path: path.into(),
            kind: kind.into(),
            source: source.into(),
            is_read_only: false,
            flags: Vec::new(),
            options: Vec::new(),
            owner: Some(0),
        }
    }

    #[test]
    fn the_right_mount_is_selected() {
        let mounts = [
            mount("/", "ext4", "/dev/sda1"),
            mount("/a", "fuse.finefs", "/x.img"),
            mount("/b", "fuse.finefs", "/y.img"),
            mount("/b", "tmpfs", "tmpfs"),
            mount("/c", "fuse.finefs", "/z.img"),
            mount("/d", "fuse.finefs", "/z.img"),
        ];
        let path_of = |target: &str| select(&mounts, Path::new(target)).map(|m| m.path);
        assert_eq!(path_of("/a"), Ok("/a".into()));
        assert_eq!(path_of("/x.img"), Ok("/a".into()));
        // What lies under another mount cannot be reached.
        assert!(path_of("/b").unwrap_err().contains("tmpfs"));
        assert!(path_of("/").unwrap_err().contains("ext4"));
        assert!(path_of("/z.img").unwrap_err().contains("several"));
        assert_eq!(path_of("/nowhere").unwrap_err(), "not mounted");
    }

    #[test]
    fn relative_paths_and_links_are_resolved() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert_eq!(resolve(&link).unwrap(), real);
        assert!(resolve(&directory.path().join("missing")).is_err());
    }
}
