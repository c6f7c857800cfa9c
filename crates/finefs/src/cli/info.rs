//! `finefs info`
use super::CliResult;
use clap::Args;
use std::path::PathBuf;
/// Show what an image is
#[derive(Args)]
pub(crate) struct Info {
    /// The image
    image: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}
impl Info {
    pub(crate) fn run(self) -> CliResult<()> {
        let _ = (self.image, self.json);
        Ok(())
    }
}
