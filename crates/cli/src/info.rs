//! `finefs info`
//!
//! Opens the image for inspection only: nothing is written, no lock is taken, and an image that is
//! mounted may be looked at (its counts are then those of its last write-out).

use std::path::PathBuf;

use clap::Args;
use finefs_block::Access;
use finefs_ext::ImageInfo;

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
        let info = ImageInfo::gather(device).map_err(Failure::new)?;
        let text = if self.json {
            serde_json::to_string_pretty(&info).map_err(Failure::new)? + "\n"
        } else {
            info.to_string()
        };
        output::print(&text)
    }
}
