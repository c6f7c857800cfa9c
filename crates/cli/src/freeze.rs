//! `finefs freeze` and `finefs thaw`: asking the server of a mount.

use std::path::PathBuf;

use clap::Args;
use finefs::namespace::{Error, Namespace};
use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::umount::find;
use crate::{CliResult, Failure, progress};

/// What can be asked of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    Freeze,
    Thaw,
}

impl Change {
    fn name(self) -> &'static str {
        match self {
            Change::Freeze => "freezing",
            Change::Thaw => "thawing",
        }
    }

    /// Does it; the error is a line for the user.
    pub(crate) fn apply(self, namespace: &Namespace) -> Result<(), String> {
        let done = match self {
            Change::Freeze => namespace.freeze(),
            Change::Thaw => namespace.thaw(),
        };
        done.map_err(|error| match error {
            Error::Busy => "is frozen already".to_owned(),
            Error::Invalid => "is not frozen".to_owned(),
            error => error.to_string(),
        })
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_frozen_once_and_thawed_once() {
        let options = finefs::Options::default();
        let namespace = finefs::open_memory(1 << 20, 0o755, 0, 0, options).unwrap();
        let apply = |change: Change| change.apply(&namespace);
        assert_eq!(apply(Change::Thaw).unwrap_err(), "is not frozen");
        apply(Change::Freeze).unwrap();
        assert!(namespace.is_frozen());
        assert_eq!(apply(Change::Freeze).unwrap_err(), "is frozen already");
        apply(Change::Thaw).unwrap();
        assert!(!namespace.is_frozen());
    }
}
