//! What the commands on mounts name: a mount, or what `finefs serve` serves, by an image of it or by
//! its address.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use finefs_fuse::MountPoint;
use rustix::process::Uid;

use crate::channel::Channel;
use crate::{CliResult, Failure, umount};

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
            let channel = Channel::named(rustix::process::geteuid(), name_of_address(address));
            return match channel.is_open() {
                true => Ok(Target::Served(channel, name)),
                false => Err(Failure::new(format!(
                    "{name}: nothing is served there by you"
                ))),
            };
        }
        let not_mounted = match umount::find(target) {
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

/// To whoever serves an image: this user, or, for root, the user to whom the image belongs.
fn of_image(image: &Path) -> Option<Channel> {
    let owner = Uid::from_raw(image.metadata().ok()?.uid());
    let me = rustix::process::geteuid();
    let name = name_of_image(image).ok()?;
    let mut channels = [Some(me), me.is_root().then_some(owner)]
        .into_iter()
        .flatten()
        .map(|user| Channel::named(user, name.clone()));
    channels.find(Channel::is_open)
}

/// The name of the socket for what is served at an address.
pub(crate) fn name_of_address(address: SocketAddr) -> String {
    format!("serve-{address}")
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
