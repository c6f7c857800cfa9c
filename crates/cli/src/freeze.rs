//! `finefs freeze` and `finefs thaw`: asking the server of a mount.

use std::path::PathBuf;

use clap::Args;

use crate::channel::{Change, Channel};
use crate::umount::find;
use crate::{CliResult, Failure, progress};

/// Names a mount that is to be frozen or thawed
#[derive(Args)]
pub(crate) struct Target {
    /// The directory that it is mounted at, or the image
    #[arg(value_name = "DIR")]
    target: PathBuf,
}

impl Target {
    pub(crate) fn ask(self, change: Change) -> CliResult<()> {
        let mount = find(&self.target)?;
        let place = mount.path.display().to_string();
        let asked = progress::during(&format!("{} {place}", change.name()), || {
            let channel = Channel::of(&mount)?;
            channel.change(change)
        });
        asked.map_err(|reason| Failure::new(format!("{place}: {reason}")))
    }
}
