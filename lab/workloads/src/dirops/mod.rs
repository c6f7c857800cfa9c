//! dirops: one operation of names or data again and again, by each worker for itself or by all in
//! one place: FxMark's microbenchmarks.
//!
//! # Source
//! C. Min, S. Kashyap, S. Maass, W. Kang, T. Kim, "Understanding Manycore Scalability of File
//! Systems", USENIX ATC 2016, table 3, and its program FxMark
//! (<https://github.com/sslab-gatech/fxmark>), whose names these are: D or M for data or metadata,
//! R or W for read or write, two letters for the operation, L, M or H for how much is shared.
//!
//! # Differences
//! - FxMark fills the file system before it unlinks, truncates or renames; here each worker has
//!   `files` files or `pages` pages, and when one has used up its own, all end. The same bounds
//!   what is created and appended.
//! - FxMark counts calls of readdir at the end of the directory as entries; here the directory is
//!   read anew.
//! - Direct I/O and background writers are left out.
//!
//! | module | what it is about |
//! |---|---|
//! | `names` | creating, unlinking and renaming |
//! | `paths` | resolving paths |
//! | `listing` | reading directories |
//! | `data` | reading, writing, appending, truncating |

mod data;
mod listing;
mod names;
mod paths;

use crate::error::{During, Result, WorkloadError};
use crate::plan::{Crew, Plan, Watch};
use crate::targets::{Errno, OFlags, Target, remove_tree};
use crate::worker::Worker;
use crate::workload::Workload;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What a worker does again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "UPPERCASE")]
#[value(rename_all = "UPPER")]
pub enum Operation {
    /// create an empty file in a directory of one's own
    Mwcl,
    /// create a file of 4 KiB in the directory of all
    Mwcm,
    /// unlink an empty file in a directory of one's own
    Mwul,
    /// unlink an empty file in the directory of all
    Mwum,
    /// rename a file within a directory of one's own
    Mwrl,
    /// rename a file from a directory of one's own into that of all
    Mwrm,
    /// resolve a path of one's own, five names long, by stat
    Mrpl,
    /// resolve a random path in a tree of all, five names long
    Mrpm,
    /// resolve the same path as all
    Mrph,
    /// read an entry of a directory of one's own
    Mrdl,
    /// read an entry of the directory of all
    Mrdm,
    /// append 4 KiB to a file of one's own
    Dwal,
    /// overwrite the first 4 KiB of a file of one's own
    Dwol,
    /// overwrite 4 KiB of one's own in the file of all, 8 MiB apart
    Dwom,
    /// overwrite 4 KiB of a file of one's own, and sync it
    Dwsl,
    /// truncate a file of one's own by 4 KiB
    Dwtl,
    /// read the first 4 KiB of a file of one's own
    Drbl,
    /// read 4 KiB of one's own in the file of all, 8 MiB apart
    Drbm,
    /// read the same 4 KiB of the file of all
    Drbh,
}

impl Operation {
    /// All of them.
    pub fn all() -> &'static [Operation] {
        Operation::value_variants()
    }

    /// Its name in FxMark.
    pub fn name(self) -> String {
        format!("{self:?}").to_uppercase()
    }
}

/// The parameters of dirops.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct DirOps {
    /// What each worker does, by its name in FxMark
    #[arg(value_enum, ignore_case = true)]
    pub operation: Operation,
    /// Files of each worker: to unlink or rename, to be listed, or to create at most
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// Pages of 4 KiB of each worker: to truncate, or to append at most
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u64).range(1..))]
    pub pages: u64,
    /// Names in each directory of the tree of all
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=30))]
    pub names: u32,
}

impl DirOps {
    /// With the usual numbers.
    pub fn new(operation: Operation) -> DirOps {
        DirOps {
            operation,
            files: 100_000,
            pages: 16_384,
            names: 8,
        }
    }
}

/// The directory of all.
const SHARED: &str = "dirops";

/// The directory of a worker's own.
fn private(worker: &Worker<'_>) -> String {
    format!("{SHARED}/{}", worker.index())
}

fn make_private<T: Target>(target: &T, worker: &Worker<'_>) -> Result<String> {
    let dir = private(worker);
    target.create_dir(&dir).during("mkdir", &dir)?;
    Ok(dir)
}

impl Workload for DirOps {
    const NAME: &'static str = "dirops";

    type Detail = ();

    fn operations(&self) -> &'static str {
        use Operation::*;
        match self.operation {
            Mwcl | Mwcm => "creates",
            Mwul | Mwum => "unlinks",
            Mwrl | Mwrm => "renames",
            Mrpl | Mrpm | Mrph => "stats",
            Mrdl | Mrdm => "entries",
            Dwal => "appends",
            Dwol | Dwom => "overwrites",
            Dwsl => "synced overwrites",
            Dwtl => "truncates",
            Drbl | Drbm | Drbh => "reads",
        }
    }

    fn check(&self, _: &Plan) -> Result<()> {
        if self.files == 0 || self.pages == 0 {
            let line = "files, pages: give at least one";
            return Err(WorkloadError::Parameters(line.to_owned()));
        }
        Ok(())
    }

    fn prepare<T: Target>(&self, target: &T, plan: &Plan, watch: Watch<'_>) -> Result<()> {
        use Operation::*;
        target.create_dir(SHARED).during("mkdir", SHARED)?;
        match self.operation {
            Mrpm | Mrph => paths::make_tree(target, self.names, watch),
            Dwom | Drbm => data::make_shared(target, plan.crew.count(), watch),
            Drbh => data::make_shared(target, 1, watch),
            _ => Ok(()),
        }
    }

    fn work<T: Target>(&self, target: &T, worker: &mut Worker<'_>) -> Result<()> {
        use Operation::*;
        match self.operation {
            Mwcl | Mwcm => names::create(self, target, worker),
            Mwul | Mwum => names::unlink(self, target, worker),
            Mwrl => names::rename_within(target, worker),
            Mwrm => names::rename_out(self, target, worker),
            Mrpl => paths::resolve_own(target, worker),
            Mrpm | Mrph => paths::resolve_shared(self, target, worker),
            Mrdl | Mrdm => listing::read(self, target, worker),
            Dwal => data::append(self, target, worker),
            Dwtl => data::truncate(self, target, worker),
            Dwol | Dwom | Dwsl => data::overwrite(self, target, worker),
            Drbl | Drbm | Drbh => data::read(self, target, worker),
        }
    }

    /// As FxMark does: what was made beforehand is not written out in the time that is measured.
    fn settle<T: Target>(&self, target: &T) -> Result<()> {
        target.sync().during("sync", SHARED)
    }

    fn clean_up<T: Target>(&self, target: &T, _: Crew) -> Result<()> {
        remove_tree(target, SHARED).during("remove", SHARED)
    }

    fn what_to_raise(&self) -> &'static str {
        use Operation::*;
        match self.operation {
            Mwcl | Mwcm => "--files, or give it more space or inodes",
            Dwal => "--pages, or give it more space",
            Dwtl => "--pages",
            _ => "--files",
        }
    }

    fn describe(&self, report: &crate::Report<DirOps>) -> String {
        format!("{} {}", self.operation.name(), report.line())
    }
}

/// Paths that differ in the number at their end, written one over the other.
struct Numbered {
    path: String,
    prefix_bytes: usize,
}

impl Numbered {
    fn new(dir: &str, worker: &Worker<'_>) -> Numbered {
        let path = format!("{dir}/file-{}-", worker.index());
        Numbered {
            prefix_bytes: path.len(),
            path,
        }
    }

    #[inline]
    fn at(&mut self, number: u64) -> &str {
        self.path.truncate(self.prefix_bytes);
        // Writing to a string cannot fail.
        let _ = write!(self.path, "{number}");
        &self.path
    }
}

/// Whether there is something left to do.
type Step = std::ops::ControlFlow<()>;

/// Operations until the time is over, or until `step` has nothing left to do, which ends it for all
/// workers.
#[inline]
fn repeat(worker: &mut Worker<'_>, mut step: impl FnMut() -> Result<Step>) -> Result<()> {
    worker.start()?;
    while worker.goes_on() {
        if step()?.is_break() {
            worker.end_all();
            break;
        }
        worker.done();
    }
    Ok(())
}

/// A full file system leaves nothing to do.
#[inline]
fn unless_full<T>(result: crate::targets::Result<T>) -> crate::targets::Result<Option<T>> {
    match result {
        Err(Errno::NOSPC) => Ok(None),
        result => result.map(Some),
    }
}

/// Makes an empty file.
#[inline]
fn make<T: Target>(target: &T, path: &str) -> Result<T::File> {
    let flags = OFlags::RDWR | OFlags::CREATE;
    target.open(path, flags).during("create", path)
}

/// Makes a worker's files, off the clock.
fn make_files<T: Target>(
    target: &T,
    worker: &Worker<'_>,
    paths: &mut Numbered,
    count: u64,
) -> Result<()> {
    (0..count).try_for_each(|number| {
        worker.check_stop()?;
        let made = make(target, paths.at(number));
        made.map(drop).map_err(|error| too_many(error, number))
    })
}

/// A file system that is full of a workload's files has too few inodes, or blocks: says what can be
/// done.
#[cold]
fn too_many(error: WorkloadError, made: u64) -> WorkloadError {
    match error {
        WorkloadError::Operation { errno, path, .. } if errno == Errno::NOSPC => {
            WorkloadError::Parameters(format!(
                "{path}: no space or no inode left after {made} files of a worker: give --files a smaller \
                 number, or a file system with more inodes (mke2fs -N)"
            ))
        }
        error => error,
    }
}

#[cold]
fn wrong(path: &str, what: impl std::fmt::Display) -> WorkloadError {
    WorkloadError::Wrong(format!("{path} {what}"))
}
