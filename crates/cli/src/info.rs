//! `finefs info`
//!
//! Opens the image for inspection only: nothing is written, no lock is taken, and an image that is
//! mounted may be looked at (its counts are then those of its last write-out).

use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;
use finefs::front_end::Format;
use finefs_block::Access;
use serde::Serialize;

use crate::{CliResult, Failure, output, size};

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
}

impl Info {
    pub(crate) fn run(self) -> CliResult<()> {
        let device = finefs::front_end::open_device(&self.image, Access::Inspect, self.offset)
            .map_err(Failure::new)?;
        let text = match finefs::front_end::format_of(&*device) {
            Some(Format::Reiserfs) => {
                self.text(&finefs_reiser::ImageInfo::gather(device).map_err(Failure::new)?)
            }
            // Of what is nothing that is known, too, ext says what is wrong.
            Some(Format::Ext) | None => {
                self.text(&finefs_ext::ImageInfo::gather(device).map_err(Failure::new)?)
            }
        };
        output::print(&text?)
    }

    fn text(&self, info: &(impl Serialize + Display)) -> CliResult<String> {
        match self.json {
            true => Ok(serde_json::to_string_pretty(info).map_err(Failure::new)? + "\n"),
            false => Ok(info.to_string()),
        }
    }
}
