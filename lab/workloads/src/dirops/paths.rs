//! MRPL, MRPM, MRPH: resolving paths of five names by stat.

use super::{DirOps, Operation, SHARED, Step, make, private, repeat, wrong};
use crate::error::{During, Result};
use crate::plan::Watch;
use crate::targets::{FileType, Target};
use crate::worker::Worker;

/// Directories on the way to a file.
const LEVELS: u32 = 4;
/// The file of this number in the tree of all, with so many names in each directory: its digits to
/// that base are the names on the way.
fn write_path(path: &mut String, number: u32, names: u32) {
    path.clear();
    path.push_str(SHARED);
    for level in (0..=LEVELS).rev() {
        let name = number / names.pow(level) % names;
        path.push('/');
        // Quicker than `write!`, whose time would be the target's.
        if name >= 10 {
            path.push(digit(name / 10));
        }
        path.push(digit(name % 10));
    }
}

fn digit(digit: u32) -> char {
    char::from(b'0' + digit as u8)
}

fn file_count(names: u32) -> u32 {
    names.pow(LEVELS + 1)
}

pub(super) fn make_tree<T: Target>(target: &T, names: u32, watch: Watch<'_>) -> Result<()> {
    let mut path = String::new();
    for number in 0..file_count(names) {
        watch.check_stop()?;
        write_path(&mut path, number, names);
        // A directory is due when all the names below it are the first ones, which are short.
        for level in (1..=LEVELS).rev() {
            if number % names.pow(level) == 0 {
                let dir = &path[..path.len() - 2 * level as usize];
                target.create_dir(dir).during("mkdir", dir)?;
            }
        }
        make(target, &path)?;
    }
    Ok(())
}

pub(super) fn resolve_own<T: Target>(target: &T, worker: &mut Worker<'_>) -> Result<()> {
    let mut path = private(worker);
    for _ in 0..LEVELS {
        target.create_dir(&path).during("mkdir", &path)?;
        path.push_str("/0");
    }
    make(target, &path)?;
    repeat(worker, || {
        resolve(target, &path)?;
        Ok(Step::Continue(()))
    })
}

pub(super) fn resolve_shared<T: Target>(
    parameters: &DirOps,
    target: &T,
    worker: &mut Worker<'_>,
) -> Result<()> {
    let is_same = parameters.operation == Operation::Mrph;
    let names = parameters.names;
    let files = file_count(names);
    let mut path = String::new();
    worker.start()?;
    while worker.goes_on() {
        let number = if is_same { 0 } else { worker.rng.u32(..files) };
        write_path(&mut path, number, names);
        resolve(target, &path)?;
        worker.done();
    }
    Ok(())
}

#[inline]
fn resolve<T: Target>(target: &T, path: &str) -> Result<()> {
    let found = target.stat(path).during("stat", path)?;
    if found.kind != FileType::RegularFile {
        return Err(wrong(path, "is no file"));
    }
    Ok(())
}
