//! `finefs-bench dbench --dual`: on two file systems at the same time.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::error::ErrorKind;
use finefs_workloads::dbench::run_dual;
use finefs_workloads::{Dbench, Watch, Workload};

use super::place::{Place, PlaceOptions, Where};
use super::{Run, check, signals};
use crate::usage;
use finefs_cli::output::print;
use finefs_cli::{CliResult, Failure};

/// dbench on one file system, or on two.
#[derive(Args)]
pub(crate) struct DbenchRun {
    #[command(flatten)]
    run: Run<Dbench>,
    /// Run on a second file system at the same time, with as many threads again: of the same sort
    /// as the first, in memory or at this path
    #[arg(
        long,
        value_name = "PATH",
        num_args = 0..=1,
        conflicts_with_all = ["processes", "contention", "threshold_us"]
    )]
    dual: Option<Option<PathBuf>>,
}

impl DbenchRun {
    pub(super) fn run(self) -> CliResult<ExitCode> {
        let Some(second) = self.dual else {
            return self.run.run();
        };
        let (workload, how) = (self.run.parameters, self.run.how);
        let options = other(&self.run.place, second);
        let plan = how.plan(&workload);
        check(&workload, &plan);
        let stop = signals::catch()?;
        let first = Place::open(&self.run.place)?;
        let second = match Place::open(&options) {
            Ok(second) => second,
            Err(error) => {
                first.close()?;
                return Err(error);
            }
        };
        let watch = Watch {
            stop: &stop,
            ..Watch::nobody()
        };
        let outcome = match (&first, &second) {
            (Place::Host { target: a, .. }, Place::Host { target: b, .. }) => {
                run_dual(&workload, (a, b), &plan, watch)
            }
            (Place::InProcess { target: a, .. }, Place::InProcess { target: b, .. }) => {
                run_dual(&workload, (a, b), &plan, watch)
            }
            _ => unreachable!("`other` gives a place of the same sort"),
        };
        let closed = first.close().and(second.close());
        let (a, b) = outcome.map_err(Failure::new)?;
        closed?;
        let text = if how.json {
            serde_json::to_string_pretty(&[&a, &b]).map_err(Failure::new)?
        } else {
            format!("{}\n\n{}", a.text(), b.text())
        };
        print(&(text + "\n"))?;
        Ok(match a.is_interrupted || b.is_interrupted {
            true => signals::exit_code(),
            false => ExitCode::SUCCESS,
        })
    }
}

/// The place of the second file system, at `path`.
fn other(first: &PlaceOptions, path: Option<PathBuf>) -> PlaceOptions {
    let at = &first.at;
    let is_in_memory = at.dir.is_none() && at.image.is_none();
    if is_in_memory != path.is_none() {
        let line = if is_in_memory {
            "--dual has no path where the first file system is in memory"
        } else {
            "--dual needs the path of the second file system"
        };
        usage(Dbench::NAME, ErrorKind::WrongNumberOfValues, line);
    }
    PlaceOptions {
        at: Where {
            memory: at.memory,
            image: path.clone().filter(|_| at.image.is_some()),
            dir: path.filter(|_| at.dir.is_some()),
        },
        locking: first.locking,
    }
}
