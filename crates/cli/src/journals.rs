//! External journals, of commands other than mount.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use finefs_block::{Access, BlockDevice};

use crate::{CliResult, Failure};

/// Where journals lie that are on a device of their own.
#[derive(Args, Clone, Default)]
pub(crate) struct Journals {
    /// The image or device that the journal lies on, where it is none of the image's own; may be
    /// given several times
    #[arg(long = "journal", value_name = "FILE")]
    pub paths: Vec<PathBuf>,
}

impl Journals {
    /// The journal of an image; `None` where that has its own, or none was given.
    pub fn path_for(&self, image: &Path, offset_bytes: u64) -> CliResult<Option<PathBuf>> {
        finefs::front_end::journal_of(image, offset_bytes, &self.paths).map_err(Failure::new)
    }

    /// Opens the journal of an image to read it; `None` where that has its own, or none was given.
    pub fn open_for(
        &self,
        image: &Path,
        offset_bytes: u64,
    ) -> CliResult<Option<Arc<dyn BlockDevice>>> {
        let open = |path: PathBuf| finefs::front_end::open_device(&path, Access::Inspect, 0);
        self.path_for(image, offset_bytes)?
            .map(open)
            .transpose()
            .map_err(Failure::new)
    }

    /// The same of an image that may have a partition (`IMAGE@p2`).
    pub fn open_for_part(
        &self,
        image: &std::ffi::OsStr,
        offset: Option<u64>,
    ) -> CliResult<Option<Arc<dyn BlockDevice>>> {
        let (path, start) = finefs_image::address::locate(image).map_err(Failure::new)?;
        self.open_for(&path, start.or(offset).unwrap_or(0))
    }
}
