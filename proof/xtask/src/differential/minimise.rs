//! Making a run that ends in a difference shorter: steps are left out, many at a time and then few,
//! as long as the same difference comes. Each try has directories of its own in the same mounts.

use super::{DEPTH, Pair};
use anyhow::{Context, Result, ensure};
use finefs_harness::run;
use std::path::Path;
use std::time::Duration;

const TRY_LIMIT: Duration = Duration::from_secs(120);

/// Shortens the steps in `log`, which must lead to a difference from an empty tree.
pub(super) fn run(pair: &Pair<'_>, log: &Path) -> Result<String> {
    let text = std::fs::read_to_string(log).with_context(|| log.display().to_string())?;
    let mut steps: Vec<&str> = text.lines().collect();
    let mounted = pair.mount()?;
    let mut tries = 0;
    let mut differs = |steps: &[&str]| -> Result<Option<String>> {
        tries += 1;
        one_try(pair, tries, steps)
    };
    let found = differs(&steps)?.context("these steps lead to no difference")?;
    let wanted = kind(&found);
    let mut chunk = steps.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps[..at].to_vec();
            fewer.extend(&steps[(at + chunk).min(steps.len())..]);
            match differs(&fewer)? {
                Some(said) if kind(&said) == wanted => steps = fewer,
                _ => at += chunk,
            }
        }
        chunk = if chunk == 1 {
            0
        } else {
            chunk.div_ceil(2).min(chunk - 1)
        };
    }
    let said = differs(&steps)?.context("the difference comes not always")?;
    mounted.unmount()?;
    let to = log.with_extension("min");
    std::fs::write(&to, steps.join("\n"))?;
    Ok(format!(
        "{} steps after {tries} tries, in {}:\n{said}",
        steps.len(),
        to.display()
    ))
}

/// Runs the steps; gives what the worker says when something differs.
fn one_try(pair: &Pair<'_>, number: u64, steps: &[&str]) -> Result<Option<String>> {
    let log = pair.path("steps");
    std::fs::write(&log, steps.join("\n"))?;
    let tree = format!("try{number}");
    pair.make_directories(&tree)?;
    let mut command = pair.worker(&tree, 0, steps.len() as u64)?;
    command.arg("--replay").arg(&log);
    let output = run::capture_with(&mut command, b"", TRY_LIMIT)?;
    for side in ["kernel", "finefs"] {
        let _ = std::fs::remove_dir_all(pair.path(side).join(&tree).join(DEPTH));
    }
    ensure!(!output.timed_out, "a try did not end");
    Ok((!output.status.success()).then(|| output.both()))
}

/// What a difference is about: its first line without paths and numbers.
fn kind(said: &str) -> String {
    let first = said.lines().next().unwrap_or_default();
    let line = first.split("\": ").last().unwrap_or(first);
    line.chars()
        .filter(|letter| !letter.is_ascii_digit())
        .take(60)
        .collect()
}
