//! `finefs mount -o remount`: other flags for what is mounted.
//!
//! The kernel keeps them (ro, nosuid and the like), and only those are changed: the server goes on
//! as it was mounted. A mount that becomes read-only is so for its users; its server has the image
//! open for writing all the same, and puts everything on it once.
//!
//! mount(8) hands over all options of the mount that it knows, from fstab or mountinfo: those of
//! the server have no effect, which is told but for those that hold in any case.

use std::fs::File;

use finefs_fuse::MountPoint;

use crate::channel::Channel;
use crate::options::MountOptions;
use crate::{CliResult, Failure, say};

/// The options that would mount it as it is, as far as a remount can change them.
pub(crate) fn as_it_is(mount: &MountPoint) -> MountOptions {
    let mut options = MountOptions::default();
    let kernel = &mut options.kernel;
    kernel.is_read_only = mount.has_option("ro");
    kernel.allows_suid = !mount.has_option("nosuid");
    kernel.allows_devices = !mount.has_option("nodev");
    kernel.allows_execution = !mount.has_option("noexec");
    kernel.follows_symlinks = !mount.has_option("nosymfollow");
    kernel.is_synchronous = mount.has_option("sync");
    kernel.is_directory_synchronous = mount.has_option("dirsync");
    options
}

/// Gives the mount these flags.
pub(crate) fn remount(mount: &MountPoint, options: &MountOptions) -> CliResult<()> {
    let place = mount.path.display();
    let fail = |reason: &str| Failure::new(format!("{place}: {reason}"));
    if !rustix::process::geteuid().is_root() {
        return Err(fail("only root can remount; unmount it and mount it again"));
    }
    if mount.is_read_only && !options.kernel.is_read_only {
        let answer = Channel::of(mount).and_then(|channel| channel.is_read_only());
        if answer.map_err(|reason| fail(&format!("cannot become writable: {reason}")))? {
            return Err(fail(
                "its server has the image open for reading only; unmount it and mount it again",
            ));
        }
    }
    let left: Vec<&str> = options.of_server.iter().map(String::as_str).collect();
    let left: Vec<&str> = left
        .into_iter()
        .filter(|word| !mount.has_option(word))
        .collect();
    if !left.is_empty() {
        say(format!(
            "{place}: only a new mount changes {}; left as it was",
            left.join(",")
        ));
    }
    finefs_fuse::remount(&mount.path, &options.kernel).map_err(Failure::new)?;
    if options.kernel.is_read_only {
        let synced = File::open(&mount.path).and_then(|root| root.sync_all());
        synced.map_err(|error| fail(&format!("is read-only, but not on the image: {error}")))?;
    }
    Ok(())
}
