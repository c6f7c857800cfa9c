//! `finefs sync`

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use clap::Args;
use finefs_fuse::MountPoint;

use crate::channel::{Change, Channel};
use crate::holders::{Holder, How, holders};
use crate::output::say;
use crate::target::Target;
use crate::{CliResult, Failure, progress};

/// Put everything that was done before on the image, and return when it is there
///
/// The kernel lets sync(2) and syncfs(2) of a FUSE file system return before.
#[derive(Args)]
pub(crate) struct Sync {
    /// The directory that it is mounted at, the image, or the address that it is served at
    #[arg(value_name = "DIR|IMAGE|ADDRESS:PORT")]
    target: PathBuf,
}

impl Sync {
    pub(crate) fn run(self) -> CliResult<()> {
        let target = Target::find(&self.target)?;
        let place = target.place();
        let synced = progress::during(&format!("writing out {place}"), || match target {
            Target::Mount(mount) => match put_on_image(&mount)? {
                Some(lost) => Err(lost),
                None => Ok(()),
            },
            Target::Served(channel, _) => channel.change(Change::Sync),
        });
        synced.map_err(|reason| Failure::new(format!("{place}: {reason}")))
    }
}

/// Puts everything on the image of a mount, and says if data that was written before is lost: that
/// is no reason for the caller to stop. The error is the reason, for the user.
pub(crate) fn everything(mount: &MountPoint) -> Result<(), String> {
    if let Some(lost) = put_on_image(mount)? {
        say(format_args!("{}: {lost}", mount.path.display()));
    }
    Ok(())
}

/// Puts everything on the image of a mount. Gives back what the kernel tells once of data that it
/// had collected and could not write, now or before.
fn put_on_image(mount: &MountPoint) -> Result<Option<String>, String> {
    let channel = Channel::of(mount)?;
    // What the kernel has collected goes to the server first.
    let collected = match File::open(&mount.path) {
        Ok(root) => rustix::fs::syncfs(&root),
        // Another user's, which root cannot open: with all others, it can be written out.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            rustix::fs::sync();
            Ok(())
        }
        Err(error) => return Err(error.to_string()),
    };
    let collected = match channel.is_frozen()? {
        // What is stored now waits for the thaw.
        true => collected.map_err(io::Error::from),
        false => collected
            .map_err(io::Error::from)
            .and(write_out_held(mount)),
    };
    channel.change(Change::Sync)?;
    Ok(collected
        .err()
        .map(|error| format!("data that programs wrote before is lost: {error}")))
}

/// Has the kernel send what programs stored into files that they have open or mapped, and waits for
/// it. From Linux 7.0 on syncfs(2) of a FUSE file system only begins with that
/// (`SB_I_NO_DATA_INTEGRITY`). Whoever closed a file has waited for its data.
///
/// Files of processes into which only root may look are left to syncfs(2).
fn write_out_held(mount: &MountPoint) -> io::Result<()> {
    let Ok((found, _)) = holders(mount.device) else {
        return Ok(());
    };
    let (mut seen, mut outcome) = (HashSet::new(), Ok(()));
    for holder in found.iter().filter(|holder| holder.may_write()) {
        let Some((ino, file)) = open_again(holder, mount) else {
            continue;
        };
        if seen.insert(ino) {
            outcome = outcome.and(file.sync_all());
        }
    }
    outcome
}

/// The regular file that is held, and its number; `None` where it cannot be opened.
fn open_again(holder: &Holder, mount: &MountPoint) -> Option<(u64, File)> {
    let path = match holder.how {
        How::Open { descriptor, .. } => format!("/proc/{}/fd/{descriptor}", holder.pid).into(),
        How::Mapped { .. } => holder.path.clone(),
        How::Directory | How::Root | How::Program => return None,
    };
    let found = fs::metadata(&path).ok()?;
    let device = (libc::major(found.dev()), libc::minor(found.dev()));
    if !found.is_file() || device != mount.device {
        return None;
    }
    let open = |writes: bool| {
        let mut options = OpenOptions::new();
        // Nobody waits, should it have become a FIFO meanwhile.
        options.custom_flags(libc::O_NONBLOCK);
        options.read(!writes).write(writes).open(&path)
    };
    let file = open(false).or_else(|_| open(true)).ok()?;
    Some((found.ino(), file))
}
