//! `finefs sync`

use std::fs::File;
use std::path::PathBuf;

use clap::Args;
use finefs_fuse::MountPoint;

use crate::channel::{Change, Channel};
use crate::umount::find;
use crate::{CliResult, Failure, progress};

/// Put everything that was done before on the image, and return when it is there
///
/// The kernel lets sync(2) and syncfs(2) of a FUSE file system return before.
#[derive(Args)]
pub(crate) struct Sync {
    /// The directory that it is mounted at, or the image
    #[arg(value_name = "DIR")]
    target: PathBuf,
}

impl Sync {
    pub(crate) fn run(self) -> CliResult<()> {
        let mount = find(&self.target)?;
        let place = mount.path.display().to_string();
        progress::during(&format!("writing out {place}"), || everything(&mount))
            .map_err(|reason| Failure::new(format!("{place}: {reason}")))
    }
}

/// Puts everything on the image of a mount. The error is the reason, for the user.
pub(crate) fn everything(mount: &MountPoint) -> Result<(), String> {
    // What the kernel has collected goes to the server first.
    let root = File::open(&mount.path).map_err(|error| error.to_string())?;
    rustix::fs::syncfs(&root).map_err(|error| error.to_string())?;
    drop(root);
    Channel::of(mount)?.change(Change::Sync)
}
