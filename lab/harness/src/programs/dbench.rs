//! dbench: the file-server load that its package ships, with 8 clients.

use super::Work;
use crate::run;
use crate::tools;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// dbench's load file.
pub const LOAD: &str = "/usr/share/dbench/client.txt";

pub(super) fn run(work: &Work<'_>) -> Result<String> {
    let seconds = work.size.dbench_seconds.to_string();
    let mut command = run::cmd(tools::program("dbench"), ["-c", LOAD, "-t", &seconds, "-D"]);
    let limit = Duration::from_secs(120 + 4 * work.size.dbench_seconds);
    let output = run::capture_with(command.arg(work.dir).arg("8"), b"", limit)?;
    let output = run::expect_ok("dbench", output)?;
    let said = output.both();
    let failed = said.lines().find(|line| {
        let lower = line.to_lowercase();
        // Without POSIX semaphores dbench starts its clients on a timer; nothing to do with us.
        (lower.contains("fail") || lower.contains("error")) && !lower.contains("semaphore")
    });
    ensure!(failed.is_none(), "dbench: {}", failed.unwrap_or_default());
    let throughput = said
        .lines()
        .find(|line| line.starts_with("Throughput"))
        .with_context(|| format!("dbench gave no throughput:\n{}", run::tail(&said)))?;
    // The throughput of a short run on a busy machine may be 0; what counts is that work was done.
    let creates = said
        .lines()
        .find(|line| line.trim_start().starts_with("NTCreateX"));
    let creates: u64 = creates
        .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .context("reading dbench's counts")?;
    ensure!(creates > 0, "dbench did nothing: {}", run::tail(&said));
    Ok(throughput.to_owned())
}
