//! One workload: in memory, on an image or on any directory.
//!
//! | module | about |
//! |---|---|
//! | `dual` | dbench on two file systems at once |
//! | `locks` | what the lock meter says of a run |
//! | `mounted` | the file system that a directory is in, and its lock meter |
//! | `numbers` | numbers as options give them |
//! | `output_file` | a file that is written at the end |
//! | `place` | what a workload runs on, and leaving it as it was |
//! | `signals` | the end by a signal |
//! | `studies` | the published tables, measured again |

mod dual;
mod locks;
mod mounted;
mod numbers;
mod output_file;
mod place;
mod signals;
mod studies;

use std::io::{self, BufReader, IsTerminal};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::error::ErrorKind;
use clap::{Args, Subcommand};
use finefs_cli::output::{print, print_beside};
use finefs_cli::{CliResult, Failure};
use finefs_workloads::{
    Append, Crew, DirOps, FileList, Length, OpenSpeed, Plan, PosixLock, PostMark, RandRw, Report,
    Watch, Workload, WorkloadError, run, run_on_host, serve,
};
use indicatif::{ProgressBar, ProgressStyle};

use self::dual::DbenchRun;
use self::locks::LockOptions;
use self::place::{Place, PlaceOptions};
use crate::usage;

/// What is run. Without --image or --dir a workload runs in this process, on a new file system in
/// memory. With --dir it uses system calls on a directory of whatever file system, a mount of
/// finefs or another. What the run makes is removed at its end, also when it is interrupted.
#[derive(Subcommand)]
pub(crate) enum Which {
    /// Many small files are created, read, appended and deleted (Katcher's PostMark, 1997)
    Postmark(Run<PostMark>),
    /// Threads open and close files that all of them use (Red Hat's bug 519126)
    Openspeed(Run<OpenSpeed>),
    /// One operation on directories or data, in private or shared ones (FxMark, USENIX ATC 2016)
    Dirops(Run<DirOps>),
    /// What clients of a file server did to its disk, replayed (Tridgell's dbench 4)
    Dbench(DbenchRun),
    /// Random reads and writes of one large file, direct (Zheng Liu's job for fio, 2012)
    Randrw(Run<RandRw>),
    /// Records are appended to one file
    Append(Run<Append>),
    /// Byte ranges are locked and unlocked (Red Hat's bug 519126; will-it-scale's lock1 and lock2)
    PosixLock(Run<PosixLock>),
    /// Files are opened and closed: how local the list of open files is (Piggin, 2010)
    FileList(Run<FileList>),
    /// The tables of five published threads on the locks of file systems, measured again; takes
    /// about five minutes
    Studies(studies::Studies),
    /// A worker process of another run
    #[command(hide = true)]
    Worker,
}

/// A workload, its parameters, and how it is run.
#[derive(Args)]
pub(crate) struct Run<W: Args> {
    #[command(flatten)]
    parameters: W,
    #[command(flatten)]
    place: PlaceOptions,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    locks: LockOptions,
}

#[derive(Args)]
#[command(next_help_heading = "How it runs")]
struct How {
    /// Threads that work at the same time
    #[arg(long, value_name = "N", conflicts_with = "processes", value_parser = numbers::crew)]
    threads: Option<usize>,
    /// Processes of one thread each, instead of threads; only with --dir
    #[arg(long, value_name = "N", requires = "dir", value_parser = numbers::crew)]
    processes: Option<usize>,
    /// Seconds that are measured
    #[arg(
        long,
        value_name = "S",
        conflicts_with = "operations",
        allow_negative_numbers = true,
        value_parser = numbers::seconds
    )]
    seconds: Option<f64>,
    /// Operations of each thread or process, instead of a time
    #[arg(long, value_name = "N", value_parser = numbers::at_least_one::<u64>)]
    operations: Option<u64>,
    /// Seconds of work before the measurement
    #[arg(
        long,
        value_name = "S",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        value_parser = numbers::seconds_or_none
    )]
    warm_up: f64,
    /// Study of the random numbers: the same seed makes the same choices
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    /// Check contents too, not only counts, which takes a little time
    #[arg(long)]
    verify: bool,
    /// Report how long operations take, which takes a little time
    #[arg(long)]
    latencies: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl How {
    fn plan<W: Workload>(&self, workload: &W) -> Plan {
        let crew = match self.processes {
            Some(count) => Crew::Processes(count),
            None => Crew::Threads(self.threads.unwrap_or(W::THREADS)),
        };
        let length = match (self.seconds, self.operations) {
            (Some(seconds), _) => Length::Seconds(seconds),
            (_, Some(count)) => Length::Operations(count),
            _ => workload.usual_length(),
        };
        Plan {
            crew,
            length,
            warm_up_seconds: self.warm_up,
            seed: self.seed,
            is_verified: self.verify,
            has_latencies: self.latencies,
            has_lock_counts: false,
            nap: std::time::Duration::ZERO,
        }
    }
}

impl Which {
    pub(crate) fn run(self) -> CliResult<ExitCode> {
        match self {
            Which::Postmark(run) => run.run(),
            Which::Openspeed(run) => run.run(),
            Which::Dirops(run) => run.run(),
            Which::Studies(studies) => studies.run(),
            Which::Dbench(run) => run.run(),
            Which::Randrw(run) => run.run(),
            Which::Append(run) => run.run(),
            Which::PosixLock(run) => run.run(),
            Which::FileList(run) => run.run(),
            Which::Worker => work(),
        }
    }
}

impl<W: Workload + Args> Run<W> {
    fn run(self) -> CliResult<ExitCode> {
        let workload = self.parameters;
        let plan = Plan {
            has_lock_counts: self.locks.has_counts(),
            ..self.how.plan(&workload)
        };
        check(&workload, &plan);
        let stop = signals::catch()?;
        let place = Place::open(&self.place)?;
        let outcome = measure(&workload, &place, &plan, &stop, &self.locks);
        let over_threshold = self.locks.report();
        // What is said of the end matters even when the run failed, and comes after its error.
        let closed = place.close();
        let report = match outcome {
            Err(WorkloadError::Interrupted) if signals::has_come(&stop) => {
                closed?;
                return Ok(signals::exit_code());
            }
            outcome => outcome.map_err(Failure::new)?,
        };
        closed?;
        print(&text(&report, self.how.json)?)?;
        if let Some(text) = over_threshold {
            print_beside(&text);
        }
        Ok(match report.is_interrupted {
            true => signals::exit_code(),
            false => ExitCode::SUCCESS,
        })
    }
}

/// Parameters without sense are errors of usage.
fn check<W: Workload>(workload: &W, plan: &Plan) {
    if let Err(WorkloadError::Parameters(line)) = workload.check(plan) {
        usage(W::NAME, ErrorKind::ValueValidation, &line);
    }
}

fn measure<W: Workload>(
    workload: &W,
    place: &Place,
    plan: &Plan,
    stop: &AtomicBool,
    locks: &LockOptions,
) -> finefs_workloads::Result<Report<W>> {
    let bar = bar();
    let progress = |share: f64| bar.set_position((share * f64::from(STEPS)) as u64);
    let watch = Watch {
        stop,
        progress: &progress,
        measuring: &|is_measured| locks.switch(is_measured),
    };
    let report = match place {
        Place::Host { target, .. } => {
            run_on_host(workload, target, plan, watch, &mut worker_command)
        }
        Place::InProcess { target, .. } => run(workload, target, plan, watch),
    };
    bar.finish_and_clear();
    report
}

const STEPS: u32 = 1000;

/// Drawn on a terminal only.
fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::from(STEPS));
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {percent} % {elapsed}") {
        bar.set_style(style);
    }
    bar
}

fn text<W: Workload>(report: &Report<W>, is_json: bool) -> CliResult<String> {
    let text = if is_json {
        serde_json::to_string_pretty(report).map_err(Failure::new)?
    } else {
        report.text()
    };
    Ok(text + "\n")
}

/// This program as a worker.
pub(crate) fn worker_command() -> Command {
    // The link works even when the file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg("worker");
    command
}

fn work() -> CliResult<ExitCode> {
    let stop: Arc<AtomicBool> = signals::catch()?;
    serve(BufReader::new(io::stdin()), &mut io::stdout(), &stop).map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
