//! x
use anyhow::Result;
/// x
pub fn run() -> Result<()> {
    Ok(())
}
