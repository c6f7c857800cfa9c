//! Both kinds of targets, for tests.

use finefs_workloads::{Crew, InProcess, Length, Plan, Report, Target, Watch, Workload, run};
use std::ops::ControlFlow;

/// A file system in memory, in this process.
pub fn memory() -> InProcess {
    InProcess::memory(512 << 20).expect("memory")
}

/// A plan of so many operations each.
pub fn operations(threads: usize, count: u64) -> Plan {
    Plan::new(Crew::Threads(threads), Length::Operations(count))
}

/// Runs it, and fails if something is left on the target.
pub fn run_cleanly<W: Workload, T: Target>(workload: &W, target: &T, plan: &Plan) -> Report<W> {
    let report = run(workload, target, plan, Watch::nobody()).expect("it runs");
    assert_eq!(names(target, "."), [""; 0], "left behind");
    report
}

/// The names in a directory.
pub fn names<T: Target>(target: &T, path: &str) -> Vec<String> {
    let mut names = Vec::new();
    let all = target.read_dir(path, |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        ControlFlow::Continue(())
    });
    all.expect("a directory is read");
    names.sort();
    names
}

/// Runs a check on both kinds of targets.
#[macro_export]
macro_rules! on_both {
    ($check:expr) => {{
        $check(&$crate::support::memory());
        let dir = tempfile::tempdir().expect("a directory");
        $check(&finefs_workloads::HostDirectory::open(dir.path()).expect("it opens"));
    }};
}
