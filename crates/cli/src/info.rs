//! `finefs info`
//!
//! Opens the image for inspection only: nothing is written, no lock is taken, and an image that is
//! mounted may be looked at (its counts are then those of its last write-out).

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use finefs::MasterKey;
use finefs::front_end::Format;
use finefs_block::{Access, BlockDevice};
use finefs_ext::{ExtOptions, ExtStore, PolicyInfo};
use serde::Serialize;

use crate::journals::Journals;
use crate::{CliResult, Failure, keys, output, size};

/// Show what an image is: superblock, features, journal, free space, groups
#[derive(Args)]
pub(crate) struct Info {
    /// The image, a file or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
    /// Where in the image the file system starts: bytes, or with k, m, g
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = size::bytes)]
    offset: u64,
    #[command(flatten)]
    journals: Journals,
    /// Show how this file or directory of the image is encrypted instead: policy and key
    #[arg(long, value_name = "PATH")]
    policy: Option<PathBuf>,
    /// A key, for names on the way to it; also several times
    #[arg(long = "key", value_name = "FILE", requires = "policy", value_parser = keys::parser())]
    keys: Vec<MasterKey>,
}

impl Info {
    pub(crate) fn run(self) -> CliResult<()> {
        let device = finefs::front_end::open_device(&self.image, Access::Inspect, self.offset)
            .map_err(Failure::new)?;
        if let Some(path) = &self.policy {
            return output::print(&self.policy_text(device, path)?);
        }
        let journal = self.journals.open_for(&self.image, self.offset)?;
        let text = match finefs::front_end::format_of(&*device) {
            Some(Format::Reiserfs) => self.text(
                &finefs_reiser::ImageInfo::gather_with(device, journal).map_err(Failure::new)?,
            ),
            // Of what is nothing that is known, too, ext says what is wrong.
            Some(Format::Ext) | None => self
                .text(&finefs_ext::ImageInfo::gather_with(device, journal).map_err(Failure::new)?),
        };
        output::print(&text?)
    }

    fn policy_text(&self, device: Arc<dyn BlockDevice>, path: &Path) -> CliResult<String> {
        let options = ExtOptions {
            is_read_only: true,
            keys: self.keys.clone(),
            ..ExtOptions::default()
        };
        let store = ExtStore::open(device, &options).map_err(Failure::new)?;
        let place = format!("{}:{}", self.image.display(), path.display());
        match PolicyInfo::of(&store, path.as_os_str().as_encoded_bytes()) {
            Ok(Some(policy)) => self.text(&policy),
            Ok(None) => Err(Failure::new(format!("{place}: not encrypted"))),
            Err(error) => Err(Failure::new(format!("{place}: {error}"))),
        }
    }

    fn text(&self, info: &(impl Serialize + Display)) -> CliResult<String> {
        match self.json {
            true => Ok(serde_json::to_string_pretty(info).map_err(Failure::new)? + "\n"),
            false => Ok(info.to_string()),
        }
    }
}
