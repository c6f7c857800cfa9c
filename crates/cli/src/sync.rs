//! `finefs sync`

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;
use finefs_fuse::MountPoint;

use crate::channel::{Change, Channel};
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
    channel.change(Change::Sync)?;
    Ok(collected
        .err()
        .map(|error| format!("data that programs wrote before is lost: {error}")))
}
