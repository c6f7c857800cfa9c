//! The way into a run, and the list of workloads.

use crate::append::Append;
use crate::dbench::Dbench;
use crate::dirops::DirOps;
use crate::error::{Result, WorkloadError};
use crate::file_list::FileList;
use crate::openspeed::OpenSpeed;
use crate::plan::{Crew, Length, Plan, Watch};
use crate::posix_lock::PosixLock;
use crate::postmark::PostMark;
use crate::processes;
use crate::randrw::RandRw;
use crate::report::Report;
use crate::targets::{HostDirectory, Target};
use crate::threads::{self, Tally};
use crate::workload::Workload;
use std::io::{BufRead, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs `workload` by threads of this process.
pub fn run<W: Workload, T: Target>(
    workload: &W,
    target: &T,
    plan: &Plan,
    watch: Watch<'_>,
) -> Result<Report<W>> {
    if let Crew::Processes(_) = plan.crew {
        let line = "what is in one process cannot be shared with others: only a directory can";
        return Err(WorkloadError::Parameters(line.to_owned()));
    }
    framed(workload, target, plan, watch, || {
        let indices = 0..plan.crew.count();
        let mut gate = || workload.settle(target);
        threads::run(workload, target, plan, indices, &mut gate, watch)
    })
}

/// Runs `workload` on a directory, by threads or by processes, as the plan says. `worker` is this
/// program in the part of a worker: one that calls [`serve`] with its standard input and output.
pub fn run_on_host<W: Workload>(
    workload: &W,
    target: &HostDirectory,
    plan: &Plan,
    watch: Watch<'_>,
    worker: &mut dyn FnMut() -> Command,
) -> Result<Report<W>> {
    if let Crew::Threads(_) = plan.crew {
        return run(workload, target, plan, watch);
    }
    framed(workload, target, plan, watch, || {
        processes::run(workload, target, plan, worker, watch)
    })
}

/// A worker process: reads what to do from `input`, does it, and tells the parent through `output`.
/// `stop` becomes true when the parent is gone; the caller may set it, too.
pub fn serve(
    mut input: impl BufRead + Send + 'static,
    output: &mut (dyn Write + Send),
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let task = processes::read_task(&mut input)?;
    match task.workload.as_str() {
        PostMark::NAME => processes::serve::<PostMark>(task, input, output, stop),
        DirOps::NAME => processes::serve::<DirOps>(task, input, output, stop),
        Dbench::NAME => processes::serve::<Dbench>(task, input, output, stop),
        RandRw::NAME => processes::serve::<RandRw>(task, input, output, stop),
        Append::NAME => processes::serve::<Append>(task, input, output, stop),
        PosixLock::NAME => processes::serve::<PosixLock>(task, input, output, stop),
        FileList::NAME => processes::serve::<FileList>(task, input, output, stop),
        OpenSpeed::NAME => processes::serve::<OpenSpeed>(task, input, output, stop),
        other => Err(WorkloadError::Parameters(format!("no workload {other}"))),
    }
}

/// Prepares, runs `crew`, and cleans up whatever happened. A run that is stopped while it prepares
/// is an error: it has nothing to tell.
fn framed<W: Workload, T: Target>(
    workload: &W,
    target: &T,
    plan: &Plan,
    watch: Watch<'_>,
    crew: impl FnOnce() -> Result<Tally<W::Detail>>,
) -> Result<Report<W>> {
    check(plan)?;
    workload.check(plan)?;
    let tally = workload
        .prepare(target, plan, watch)
        .and_then(|()| watch.check_stop())
        .and_then(|()| crew());
    let cleaned = workload.clean_up(target, plan.crew);
    let tally = tally?;
    cleaned?;
    Ok(Report::new(workload, target.describe(), plan, tally))
}

fn check(plan: &Plan) -> Result<()> {
    let refuse = |line: &str| Err(WorkloadError::Parameters(line.to_owned()));
    if plan.crew.count() == 0 {
        return refuse("nobody to do the work: give at least one thread or process");
    }
    let is_time = |seconds: f64| (0.0..1e9).contains(&seconds);
    match plan.length {
        Length::Seconds(seconds) if !is_time(seconds) => refuse("seconds: not a time"),
        _ if !is_time(plan.warm_up_seconds) => refuse("warm-up: not a time"),
        _ => Ok(()),
    }
}
