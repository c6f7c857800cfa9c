//! The stress test of the locks under the thread sanitizer, and a lock left out to see that the
//! sanitizer is at work; and the memory store used by itself, which says that its calls may run at
//! any time.
//!
//! A stable compiler has the sanitizer behind `RUSTC_BOOTSTRAP`. The standard library is not built
//! with it: what only the library orders looks like a race. So the tests order their threads by
//! joins, which the sanitizer sees, and the meter, whose registry is under the library's mutex, is
//! left out.

use crate::report::Report;
use crate::test_programs::{self, How, Program};
use anyhow::{Context, Result, bail, ensure};
use finefs_harness::run;
use finefs_harness::tools;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1200);
const RACE: &str = "WARNING: ThreadSanitizer: data race";

/// The stress test without a finding, and the one without a lock with one.
pub fn run(report: &mut Report) {
    report.proof(
        "tsan/stress of the locks",
        || all_locks(&Programs::build()?),
    );
    report.proof("tsan/without a lock fails", || {
        without_a_lock(&Programs::build()?)
    });
    report.proof("tsan/memory store", || memory_store(&Programs::build()?));
}

/// All locks; what ran.
pub fn all_locks(programs: &Programs) -> Result<String> {
    let passed = passed(&programs.run(LOCKS, None)?)?;
    Ok(format!("{passed} kinds of locks, no data race"))
}

/// Reads and writes of the same bytes of a memory store; what ran.
pub fn memory_store(programs: &Programs) -> Result<String> {
    passed(&programs.run(MEMORY_STORE, None)?)?;
    Ok("no data race".to_owned())
}

/// How many tests passed, all without a finding of the sanitizer.
fn passed(output: &run::Output) -> Result<usize> {
    let text = output.both();
    ensure!(output.status.success() && !text.contains(RACE), "{text}");
    let passed = text.lines().filter(|line| line.ends_with("... ok")).count();
    ensure!(passed > 0, "nothing ran:\n{text}");
    Ok(passed)
}

/// The sanitizer must object.
pub fn without_a_lock(programs: &Programs) -> Result<String> {
    let output = programs.run(LOCKS, Some("without_a_lock"))?;
    if !output.both().contains(RACE) {
        bail!("the sanitizer did not see a race:\n{}", output.both());
    }
    Ok("said \"data race\"".to_owned())
}

/// Races that are none: the standard library comes built without the sanitizer, which does not
/// understand the fence by which an `Arc` is dropped. A thread's own record is one, and may be
/// freed by whoever joins it.
const SUPPRESSIONS: &str = "race:std::thread::thread::Inner\n";

/// Names of tests, each alone in its package.
const LOCKS: &str = "stress";
const MEMORY_STORE: &str = "memory_store";

/// The programs, with the sanitizer in them.
pub struct Programs {
    programs: Vec<Program>,
    options: String,
}

impl Programs {
    /// Builds all, at once and without the meter.
    pub fn build() -> Result<Programs> {
        let host = tools::host()?;
        let target = tools::target_dir();
        let suppressions = target.join("tsan-suppressions");
        std::fs::create_dir_all(&target)?;
        std::fs::write(&suppressions, SUPPRESSIONS)?;
        let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
        let args = [
            &["--package", "finefs-locks", "--test", LOCKS][..],
            &["--package", "finefs-races", "--test", MEMORY_STORE],
            &["--features", "finefs-locks/meter-off"],
            // With a target named, build scripts are built without the sanitizer.
            &["--target", &host],
        ];
        let own = target.join("tsan");
        let env = [
            ("CARGO_TARGET_DIR", &*own.to_string_lossy()),
            ("RUSTC_BOOTSTRAP", "1"),
            ("RUSTFLAGS", flags),
        ];
        Ok(Programs {
            programs: test_programs::build(&args.concat(), &env, LIMIT)?,
            // The longest trace of each thread: a race whose first access is gone is not reported.
            options: format!("suppressions={} history_size=7", suppressions.display()),
        })
    }

    fn run(&self, test: &str, filter: Option<&str>) -> Result<run::Output> {
        let is_it = |program: &&Program| program.target == test;
        let program = self.programs.iter().find(is_it).context("it is built")?;
        program.output(How {
            env: &[
                ("TSAN_OPTIONS", &self.options),
                ("FINEFS_STRESS_MS", "1000"),
            ],
            filter,
            limit: LIMIT,
        })
    }
}
