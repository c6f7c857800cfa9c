//! The seeded tree, copied by four `cp -a` at once and compared with its source.

use super::Work;
use crate::compare::{Relation, expect_equal};
use crate::snapshot::Snapshot;
use crate::tree::copy_in_parallel;
use anyhow::Result;

pub(super) fn run(work: &Work<'_>) -> Result<String> {
    copy_in_parallel(&work.tree.root, work.dir)?;
    let source = Snapshot::take(&work.tree.root)?;
    let copy = Snapshot::take(work.dir)?;
    expect_equal(
        ("source", &source),
        ("mount", &copy),
        Relation::Copy(work.set.times),
    )?;
    Ok(format!(
        "{} entries, {} MiB",
        source.entries.len(),
        source.bytes() >> 20
    ))
}
