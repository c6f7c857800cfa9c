//! dbench: what clients of a file server did to its disk, replayed.
//!
//! Each worker is a client, in a directory of its own, and replays a load file from the beginning,
//! again and again. The load is that of Ziff-Davis' NetBench as dbench 4 (Tridgell) recorded it;
//! its file is not part of finefs but of dbench (`/usr/share/dbench/client.txt` of Debian). The
//! report is in dbench's form.
//!
//! | module | about |
//! |---|---|
//! | `client` | what its operations become |
//! | `script` | the load file, understood before the run or while it runs |

mod client;
mod script;

use self::client::Client;
use self::script::Script;
use crate::clock::now_ns;
use crate::error::{During, Result, WorkloadError};
use crate::plan::{Crew, Length, Plan, Watch};
use crate::report::Report;
use crate::run::run;
use crate::targets::{Target, remove_tree};
use crate::timing::{ms, note};
use crate::worker::Worker;
use crate::workload::{Detail, Workload};
pub use finefs_dbench_load::OperationKind;
use finefs_dbench_load::{LOAD_FILE, Load};
use finefs_lockmeter::Times;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The parameters of dbench.
#[derive(Clone, Debug, Serialize, Deserialize, clap::Args)]
pub struct Dbench {
    /// What the clients do: dbench's own file, or one in its format
    #[arg(long, value_name = "FILE", default_value = LOAD_FILE)]
    pub loadfile: PathBuf,
    /// Each client reads and parses the load file line by line while it runs, as dbench does; the
    /// rate then has that work in it
    #[arg(long)]
    #[serde(default)]
    pub parse_as_it_runs: bool,
    /// Read once, for all workers of a process.
    #[arg(skip)]
    #[serde(skip)]
    load: Loaded,
}

/// The load file's content, or what is wrong with it.
type Loaded = Arc<OnceLock<std::result::Result<Load, String>>>;

/// All clients' directories are in it.
const DIR: &str = "clients";

impl Dbench {
    /// With this load file.
    pub fn new(loadfile: impl Into<PathBuf>) -> Dbench {
        Dbench {
            loadfile: loadfile.into(),
            parse_as_it_runs: false,
            load: Loaded::default(),
        }
    }

    fn load(&self) -> Result<&Load> {
        self.load
            .get_or_init(|| Load::read(&self.loadfile))
            .as_ref()
            .map_err(|line| WorkloadError::LoadFile(line.clone()))
    }
}

impl Default for Dbench {
    fn default() -> Dbench {
        Dbench::new(LOAD_FILE)
    }
}

/// What dbench counts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct DbenchDetail {
    /// Read and written.
    pub bytes: u64,
    /// How long operations took, by kind.
    pub operations: BTreeMap<OperationKind, Times>,
}

impl Detail for DbenchDetail {
    fn add(&mut self, other: DbenchDetail) {
        self.bytes += other.bytes;
        for (kind, times) in other.operations {
            self.operations.entry(kind).or_default().merge(&times);
        }
    }
}

impl DbenchDetail {
    fn max_ns(&self) -> u64 {
        self.operations
            .values()
            .map(|times| times.max_ns)
            .max()
            .unwrap_or(0)
    }
}

/// In 10^6 bytes per second, as dbench has it.
fn throughput_mb(report: &Report<Dbench>) -> f64 {
    if report.seconds > 0.0 {
        report.detail.bytes as f64 / 1e6 / report.seconds
    } else {
        0.0
    }
}

impl Workload for Dbench {
    const NAME: &'static str = "dbench";

    type Detail = DbenchDetail;

    fn usual_length(&self) -> Length {
        Length::Seconds(60.0)
    }

    fn operations(&self) -> &'static str {
        "operations"
    }

    fn check(&self, _: &Plan) -> Result<()> {
        self.load().map(drop)
    }

    fn prepare<T: Target>(&self, target: &T, _: &Plan, _: Watch<'_>) -> Result<()> {
        target.create_dir(DIR).during("mkdir", DIR)
    }

    fn work<T: Target>(&self, target: &T, worker: &mut Worker<'_>) -> Result<DbenchDetail> {
        let load = self.load()?;
        let mut script = match self.parse_as_it_runs {
            true => Script::read(&self.loadfile, worker.index())?,
            false => Script::parsed(load, worker.index()),
        };
        let mut client = Client::new(target, load, worker.index(), worker.verifies());
        let mut detail = DbenchDetail::default();
        let mut table = [(); OperationKind::ALL.len()].map(|()| Times::default());
        worker.start()?;
        let mut began_ns = now_ns();
        while worker.goes_on() {
            if worker.operations() == 0 {
                // The first one, or the first one after the warm-up.
                client.bytes = 0;
                table.fill(Times::default());
            }
            let operation = match script.next_operation()? {
                Some(operation) => operation,
                None => {
                    client.rewind();
                    script.rewind()?;
                    began_ns = now_ns();
                    // It is not empty: that was checked.
                    continue;
                }
            };
            client.learn(script.paths());
            wait_until(began_ns, operation.due_s, worker)?;
            let before_ns = now_ns();
            client.replay(&operation)?;
            note(&mut table[operation.kind as usize], now_ns() - before_ns);
            worker.done();
        }
        worker.end();
        detail.bytes = client.bytes;
        for kind in OperationKind::ALL {
            let times = std::mem::take(&mut table[kind as usize]);
            if times.count() > 0 {
                detail.operations.insert(kind, times);
            }
        }
        Ok(detail)
    }

    fn clean_up<T: Target>(&self, target: &T, _: Crew) -> Result<()> {
        remove_tree(target, DIR).during("remove", DIR)
    }

    fn describe(&self, report: &Report<Dbench>) -> String {
        let mut text = " Operation          Count    AvgLat    MaxLat\n".to_owned();
        text.push_str(" --------------------------------------------\n");
        for kind in OperationKind::ALL {
            let Some(times) = report.detail.operations.get(&kind) else {
                continue;
            };
            text.push_str(&format!(
                " {:<15} {:>8} {:>9.3} {:>9.3}\n",
                format!("{kind:?}"),
                times.count(),
                ms(times.mean_ns().unwrap_or(0)),
                ms(times.max_ns),
            ));
        }
        let crew = report.plan.crew;
        let processes = match crew {
            Crew::Threads(_) => 1,
            Crew::Processes(count) => count,
        };
        text.push_str(&format!(
            "\nThroughput {:.2} MB/sec  {} clients  {processes} procs  max_latency={:.3} ms",
            throughput_mb(report),
            crew.count(),
            ms(report.detail.max_ns()),
        ));
        text
    }
}

/// Waits until a line's time has come.
fn wait_until(began_ns: u64, due_s: f64, worker: &Worker<'_>) -> Result<()> {
    if due_s == 0.0 {
        return Ok(());
    }
    const SLICE: Duration = Duration::from_millis(20);
    loop {
        let left_s = due_s - (now_ns() - began_ns) as f64 / 1e9;
        if left_s <= 0.0 || worker.is_stopping() {
            return Ok(());
        }
        std::thread::sleep(SLICE.min(Duration::from_secs_f64(left_s)));
    }
}

/// Runs on two file systems at the same time, by a crew each: where they share a lock, or what
/// else, one slows the other. (Weisbecker's reiserfs/kill-bkl series, 2009: "dbench with two
/// threads, writing on a separate partition simultaneously".)
pub fn run_dual<A: Target, B: Target>(
    workload: &Dbench,
    targets: (&A, &B),
    plan: &Plan,
    watch: Watch<'_>,
) -> Result<(Report<Dbench>, Report<Dbench>)> {
    workload.load()?;
    std::thread::scope(|scope| {
        let second = scope.spawn(|| run(workload, targets.1, plan, watch));
        let first = run(workload, targets.0, plan, watch);
        let second = second.join().map_err(|_| WorkloadError::Panicked)?;
        Ok((first?, second?))
    })
}
