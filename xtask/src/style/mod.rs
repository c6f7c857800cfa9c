//! x
use anyhow::Result;
/// x
pub fn run(_: &std::path::Path) -> Result<()> {
    Ok(())
}
