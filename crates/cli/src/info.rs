//! `finefs info`
//!
//! Opens the image for inspection only: nothing is written, no lock is taken, and an image that is
//! mounted may be looked at (its counts are then those of its last write-out).

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use finefs_block::Access;
use finefs_ext::ImageInfo;

use crate::size::Size;
use crate::{CliResult, Failure};

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
    #[arg(long, value_name = "SIZE", default_value = "0")]
    offset: String,
}

impl Info {
    pub(crate) fn run(self) -> CliResult<()> {
        let offset_bytes = Size::parse("offset", &self.offset)?.bytes();
        let device = finefs::open_device(&self.image, Access::Inspect, offset_bytes)
            .map_err(Failure::new)?;
        let info = ImageInfo::gather(device).map_err(Failure::new)?;
        let text = if self.json {
            serde_json::to_string_pretty(&info).map_err(Failure::new)? + "\n"
        } else {
            info.to_string()
        };
        match io::stdout().write_all(text.as_bytes()) {
            // `finefs info IMAGE | head`
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.map_err(Failure::new),
        }
    }
}
