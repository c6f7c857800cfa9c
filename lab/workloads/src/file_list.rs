//! file-list: files are opened and closed, and the list of open files is asked how local that was.
//!
//! Piggin's "fs: scale files_lock" (linux-fsdevel, June 2010) puts each open file on a list of the
//! CPU that opens it. That scales as long as files are closed on the CPU, or at least on the NUMA
//! node, on which they were opened; the patch tells how often that was so for a boot, a kernel
//! build and dbench. This workload counts the same on finefs: removals from the list, those by the
//! CPU that had added the file, and those by its node.
//!
//! Each worker has some files open and, an operation, closes the one that it opened first and opens
//! another. Only a file system in this process tells its counts. The kernel does not tell its own,
//! and a mount's server is not told of opens.
//!
//! With [`FileList::closed_elsewhere`] no removal is local, the patch's worst case: a worker opens
//! its files on one CPU, moves to the next, and closes them there. That costs a move for each
//! [`FileList::open`] files, so many of them should be open.

use crate::affinity::Tour;
use crate::error::{During, Result, WorkloadError};
use crate::plan::{Crew, Plan, Watch};
use crate::report::Report;
use crate::targets::{OFlags, OpenFileStatistics, Target, remove_tree};
use crate::worker::Worker;
use crate::workload::{Detail, Workload};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The parameters of file-list.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct FileList {
    /// Files that there are
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub files: u32,
    /// Files that each worker has open
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub open: u32,
    /// Let the CPU go after so many operations, as programs that wait do; 0: never
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub sleep_every: u32,
    /// Open so many, and close them all on another CPU than they were opened on; --open 1000 hides
    /// what it costs to move
    #[arg(long, conflicts_with = "sleep_every")]
    pub closed_elsewhere: bool,
}

impl Default for FileList {
    fn default() -> FileList {
        FileList {
            files: 16,
            open: 8,
            sleep_every: 0,
            closed_elsewhere: false,
        }
    }
}

const DIR: &str = "file-list";

fn path(file: u32) -> String {
    format!("{DIR}/{file}")
}

/// What the list of open files counted meanwhile.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FileListDetail {
    /// As one worker saw it, from its start to its end. `None` where the target does not tell.
    pub statistics: Option<OpenFileStatistics>,
}

impl Detail for FileListDetail {
    fn add(&mut self, other: FileListDetail) {
        self.statistics = self.statistics.or(other.statistics);
    }
}

impl Workload for FileList {
    const NAME: &'static str = "file-list";

    const THREADS: usize = 4;

    type Detail = FileListDetail;

    fn operations(&self) -> &'static str {
        "opens and closes"
    }

    fn prepare<T: Target>(&self, target: &T, _: &Plan, watch: Watch<'_>) -> Result<()> {
        target.create_dir(DIR).during("mkdir", DIR)?;
        (0..self.files).map(path).try_for_each(|path| {
            watch.check_stop()?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            target.open(&path, flags).map(drop).during("create", &path)
        })
    }

    fn work<T: Target>(&self, target: &T, worker: &mut Worker<'_>) -> Result<FileListDetail> {
        let paths: Vec<String> = (0..self.files).map(path).collect();
        let mut open = VecDeque::new();
        worker.start()?;
        let before = target.open_file_statistics();
        let mut open_any = |worker: &mut Worker<'_>| {
            let path = &paths[worker.rng.usize(..paths.len())];
            let file = target.open(path, OFlags::RDONLY).during("open", path)?;
            worker.done();
            Ok(file)
        };
        if self.closed_elsewhere {
            self.move_about(worker, &mut open, &mut open_any)?;
        } else {
            self.stay(worker, &mut open, &mut open_any)?;
        }
        worker.end();
        let own_removals = worker.operations() - worker.operations().min(self.open.into());
        drop(open);
        let statistics = before
            .zip(target.open_file_statistics())
            .map(|(before, after)| after.since(before));
        if let Some(found) = statistics.filter(|_| worker.verifies()) {
            check(found, own_removals)?;
        }
        // One is enough: the counts are those of all.
        let statistics = statistics.filter(|_| worker.index() == 0);
        Ok(FileListDetail { statistics })
    }

    fn clean_up<T: Target>(&self, target: &T, _: Crew) -> Result<()> {
        remove_tree(target, DIR).during("remove", DIR)
    }

    /// The line of the patch's table.
    fn describe(&self, report: &Report<FileList>) -> String {
        let mut text = report.line();
        if let Some(found) = report.detail.statistics {
            let share = |part: u64| 100.0 * part as f64 / found.removals.max(1) as f64;
            text.push_str(&format!(
                "\nlocks={} cpu-hits={} ({:.1}%) node-hits={} ({:.1}%)",
                found.removals,
                found.removals_on_cpu,
                share(found.removals_on_cpu),
                found.removals_on_node,
                share(found.removals_on_node),
            ));
        }
        text
    }
}

impl FileList {
    /// Closes the oldest and opens another, wherever the scheduler lets it.
    fn stay<F>(
        &self,
        worker: &mut Worker<'_>,
        open: &mut VecDeque<F>,
        open_any: &mut impl FnMut(&mut Worker<'_>) -> Result<F>,
    ) -> Result<()> {
        while worker.goes_on() {
            if open.len() == self.open as usize {
                drop(open.pop_front());
            }
            open.push_back(open_any(worker)?);
            let sleep_every = u64::from(self.sleep_every);
            if sleep_every != 0 && worker.operations().is_multiple_of(sleep_every) {
                std::thread::sleep(std::time::Duration::from_micros(50));
            }
        }
        Ok(())
    }

    /// Opens all on one CPU and closes them on the next.
    fn move_about<F>(
        &self,
        worker: &mut Worker<'_>,
        open: &mut VecDeque<F>,
        open_any: &mut impl FnMut(&mut Worker<'_>) -> Result<F>,
    ) -> Result<()> {
        let Some(mut tour) = Tour::start(worker.index()) else {
            let reason = "files cannot be closed on another CPU: this process may use one only";
            return Err(WorkloadError::Parameters(reason.to_owned()));
        };
        while worker.goes_on() {
            open.push_back(open_any(worker)?);
            if open.len() == self.open as usize {
                tour.move_on();
                open.clear();
            }
        }
        tour.move_on();
        Ok(())
    }
}

/// A CPU is part of its node, and all of one worker's removals are among those of all.
fn check(found: OpenFileStatistics, own_removals: u64) -> Result<()> {
    let is_right = found.removals_on_cpu <= found.removals_on_node
        && found.removals_on_node <= found.removals
        && own_removals <= found.removals;
    if is_right {
        return Ok(());
    }
    let line =
        format!("{own_removals} files were closed by one worker, and the list counted {found:?}");
    Err(WorkloadError::Wrong(line))
}
