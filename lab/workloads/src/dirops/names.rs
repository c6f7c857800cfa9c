//! MWCL, MWCM, MWUL, MWUM, MWRL, MWRM: creating, unlinking and renaming.

use super::data::PAGE;
use super::{
    DirOps, Numbered, Operation, SHARED, Step, make, make_files, make_private, repeat, unless_full,
    wrong,
};
use crate::error::{During, Result};
use crate::targets::{Errno, File, OFlags, Target};
use crate::worker::Worker;

/// Where a worker's files are: in a directory of its own, or in that of all.
fn place<T: Target>(is_shared: bool, target: &T, worker: &Worker<'_>) -> Result<Numbered> {
    let own;
    let dir = if is_shared {
        SHARED
    } else {
        own = make_private(target, worker)?;
        &own
    };
    Ok(Numbered::new(dir, worker))
}

pub(super) fn create<T: Target>(
    parameters: &DirOps,
    target: &T,
    worker: &mut Worker<'_>,
) -> Result<()> {
    let is_shared = parameters.operation == Operation::Mwcm;
    let mut paths = place(is_shared, target, worker)?;
    let page = [1; PAGE];
    let size = if is_shared { PAGE as u64 } else { 0 };
    let mut made = 0;
    repeat(worker, || {
        if made == parameters.files {
            return Ok(Step::Break(()));
        }
        let path = paths.at(made);
        let flags = OFlags::RDWR | OFlags::CREATE;
        let opened = unless_full(target.open(path, flags)).during("create", path)?;
        let Some(file) = opened else {
            return Ok(Step::Break(()));
        };
        if is_shared {
            match unless_full(file.write_at(&page, 0)).during("write", path)? {
                Some(PAGE) => {}
                Some(_) => return Err(wrong(path, "was not written whole")),
                None => {
                    target.remove_file(path).during("unlink", path)?;
                    return Ok(Step::Break(()));
                }
            }
        }
        made += 1;
        Ok(Step::Continue(()))
    })?;
    if worker.verifies() {
        expect(target, &mut paths, 0..made, Some(size))?;
        expect(target, &mut paths, made..made + 1, None)?;
    }
    Ok(())
}

pub(super) fn unlink<T: Target>(
    parameters: &DirOps,
    target: &T,
    worker: &mut Worker<'_>,
) -> Result<()> {
    let is_shared = parameters.operation == Operation::Mwum;
    let mut paths = place(is_shared, target, worker)?;
    make_files(target, worker, &mut paths, parameters.files)?;
    let mut removed = 0;
    repeat(worker, || {
        if removed == parameters.files {
            return Ok(Step::Break(()));
        }
        let path = paths.at(removed);
        target.remove_file(path).during("unlink", path)?;
        removed += 1;
        Ok(Step::Continue(()))
    })?;
    if worker.verifies() {
        expect(target, &mut paths, 0..removed, None)?;
        expect(target, &mut paths, removed..parameters.files, Some(0))?;
    }
    Ok(())
}

pub(super) fn rename_within<T: Target>(target: &T, worker: &mut Worker<'_>) -> Result<()> {
    let mut from = place(false, target, worker)?;
    let mut to = Numbered {
        path: from.path.clone(),
        ..from
    };
    make(target, from.at(0))?;
    let mut renamed = 0;
    repeat(worker, || {
        let (old, new) = (from.at(renamed), to.at(renamed + 1));
        target.rename(old, new).during("rename", old)?;
        renamed += 1;
        Ok(Step::Continue(()))
    })?;
    if worker.verifies() {
        expect(target, &mut from, renamed..renamed + 1, Some(0))?;
        expect(target, &mut from, renamed.saturating_sub(1)..renamed, None)?;
    }
    Ok(())
}

pub(super) fn rename_out<T: Target>(
    parameters: &DirOps,
    target: &T,
    worker: &mut Worker<'_>,
) -> Result<()> {
    let mut from = place(false, target, worker)?;
    let mut to = Numbered::new(SHARED, worker);
    make_files(target, worker, &mut from, parameters.files)?;
    let mut renamed = 0;
    repeat(worker, || {
        if renamed == parameters.files {
            return Ok(Step::Break(()));
        }
        let old = from.at(renamed);
        target.rename(old, to.at(renamed)).during("rename", old)?;
        renamed += 1;
        Ok(Step::Continue(()))
    })?;
    if worker.verifies() {
        expect(target, &mut from, 0..renamed, None)?;
        expect(target, &mut to, 0..renamed, Some(0))?;
        expect(target, &mut from, renamed..parameters.files, Some(0))?;
    }
    Ok(())
}

/// Fails unless the files of these numbers have this size, or are not there.
fn expect<T: Target>(
    target: &T,
    paths: &mut Numbered,
    mut numbers: std::ops::Range<u64>,
    size: Option<u64>,
) -> Result<()> {
    numbers.try_for_each(|number| {
        let path = paths.at(number);
        let found = match target.stat(path) {
            Ok(stat) => Some(stat.size_bytes),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error).during("stat", path),
        };
        if found == size {
            return Ok(());
        }
        let say = |size: Option<u64>| match size {
            Some(size) => format!("there with {size} bytes"),
            None => "missing".to_owned(),
        };
        Err(wrong(path, format!("is {}, not {}", say(found), say(size))))
    })
}
