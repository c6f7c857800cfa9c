//! MRDL, MRDM: reading directories.

use super::{DirOps, Numbered, Operation, SHARED, make_files, make_private, wrong};
use crate::error::{During, Result};
use crate::targets::Target;
use crate::worker::Worker;
use std::ops::ControlFlow;

pub(super) fn read<T: Target>(
    parameters: &DirOps,
    target: &T,
    worker: &mut Worker<'_>,
) -> Result<()> {
    let (dir, expected) = match parameters.operation {
        Operation::Mrdm => {
            let all = parameters.files * worker.plan().crew.count() as u64;
            (SHARED.to_owned(), all)
        }
        _ => (make_private(target, worker)?, parameters.files),
    };
    let mut paths = Numbered::new(&dir, worker);
    make_files(target, worker, &mut paths, parameters.files)?;
    worker.start()?;
    loop {
        let (mut listed, mut is_over) = (0, false);
        let each = |_: crate::targets::Entry<'_>| {
            if !worker.goes_on() {
                is_over = true;
                return ControlFlow::Break(());
            }
            listed += 1;
            worker.done();
            ControlFlow::Continue(())
        };
        target.read_dir(&dir, each).during("read", &dir)?;
        if is_over || !worker.goes_on() {
            return Ok(());
        }
        // All files are there before anybody starts, and stay.
        if worker.verifies() && listed != expected {
            let found = format!("lists {listed} names, not {expected}");
            return Err(wrong(&dir, found));
        }
    }
}
