//! x
use anyhow::Result;
/// x
#[derive(clap::Args)]
pub struct Options {}
/// x
pub fn run(_: &Options) -> Result<()> {
    Ok(())
}
