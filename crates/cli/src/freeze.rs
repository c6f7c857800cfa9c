//! `finefs freeze` and `finefs thaw`: asking the server of a mount, or of what is served.

use std::path::PathBuf;

use clap::Args;

use crate::channel::Change;
use crate::target::Target;
use crate::{CliResult, Failure, progress, sync};

/// Names a mount that is to be frozen or thawed
#[derive(Args)]
pub(crate) struct Named {
    /// The directory that it is mounted at, the image, or the address that it is served at
    #[arg(value_name = "DIR|IMAGE|ADDRESS:PORT")]
    target: PathBuf,
}

impl Named {
    pub(crate) fn ask(self, change: Change) -> CliResult<()> {
        let target = Target::find(&self.target)?;
        let place = target.place();
        let asked = progress::during(&format!("{} {place}", change.name()), || {
            let mount = match &target {
                Target::Mount(mount) => Some(mount.clone()),
                Target::Served(..) => None,
            };
            let channel = target.channel()?;
            // What the kernel has collected would wait, too.
            if let (Change::Freeze, Some(mount)) = (change, mount)
                && !channel.is_frozen()?
            {
                sync::everything(&mount)?;
            }
            channel.change(change)
        });
        asked.map_err(|reason| Failure::new(format!("{place}: {reason}")))
    }
}
