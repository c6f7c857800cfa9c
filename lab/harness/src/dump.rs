//! What debugfs reads of images that the kernel cannot mount.

use crate::cleanup::Scratch;
use crate::run;
use crate::snapshot::Snapshot;
use crate::tools;
use anyhow::{Result, ensure};
use std::path::Path;

/// The tree `name` in the root of an image, as debugfs copies it below `parent`: see
/// [`Relation::Dump`](crate::compare::Relation::Dump) for what comes along.
pub fn tree(image: &Path, name: &str, parent: &Path) -> Result<Snapshot> {
    let scratch = Scratch::new_in(parent)?;
    let request = format!("rdump /{name} {}", scratch.path().display());
    let mut command = run::cmd(tools::program("debugfs"), ["-R", &request]);
    let output = run::ok(command.arg(image))?;
    // Its status is 0 whatever happened; the first line says which debugfs it is.
    let said: Vec<&str> = output.stderr.lines().skip(1).collect();
    ensure!(said.is_empty(), "debugfs: {}", said.join("\n"));
    Snapshot::take(&scratch.path().join(name))
}
