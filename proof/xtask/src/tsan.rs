//! The stress test of the locks under the thread sanitizer, and a lock left out to see that the
//! sanitizer is at work; and the memory store used by itself, which says that its calls may run at
//! any time.
//!
//! A stable compiler has the sanitizer behind `RUSTC_BOOTSTRAP`. The standard library is not built
//! with it: what only the library orders looks like a race. So the tests order their threads by
//! joins, which the sanitizer sees, and the meter, whose registry is under the library's mutex, is
//! left out.

use crate::report::Report;
use anyhow::{Result, bail, ensure};
use finefs_harness::run;
use finefs_harness::tools;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1200);
const RACE: &str = "WARNING: ThreadSanitizer: data race";

/// The stress test without a finding, and the one without a lock with one.
pub fn run(report: &mut Report) {
    report.proof("tsan/stress of the locks", all_locks);
    report.proof("tsan/without a lock fails", without_a_lock);
    report.proof("tsan/memory store", memory_store);
}

/// All locks; what ran.
pub fn all_locks() -> Result<String> {
    let passed = passed(&mut stress(LOCKS, &[])?)?;
    Ok(format!("{passed} kinds of locks, no data race"))
}

/// Reads and writes of the same bytes of a memory store; what ran.
pub fn memory_store() -> Result<String> {
    passed(&mut stress(MEMORY_STORE, &[])?)?;
    Ok("no data race".to_owned())
}

/// How many tests passed, all without a finding of the sanitizer.
fn passed(tests: &mut Command) -> Result<usize> {
    let output = run::capture_with(tests, b"", LIMIT)?;
    let text = output.both();
    ensure!(output.status.success() && !text.contains(RACE), "{text}");
    let passed = text.lines().filter(|line| line.ends_with("... ok")).count();
    ensure!(passed > 0, "nothing ran:\n{text}");
    Ok(passed)
}

/// The sanitizer must object.
pub fn without_a_lock() -> Result<String> {
    let output = run::capture_with(&mut stress(LOCKS, &["without_a_lock"])?, b"", LIMIT)?;
    if !output.both().contains(RACE) {
        bail!("the sanitizer did not see a race:\n{}", output.both());
    }
    Ok("said \"data race\"".to_owned())
}

/// Races that are none: the standard library comes built without the sanitizer, which does not
/// understand the fence by which an `Arc` is dropped. A thread's own record is one, and may be
/// freed by whoever joins it.
const SUPPRESSIONS: &str = "race:std::thread::thread::Inner\n";

/// Package, feature that leaves the meter out, and name of a test.
type Test = [&'static str; 3];
const LOCKS: Test = ["finefs-locks", "meter-off", "stress"];
const MEMORY_STORE: Test = ["finefs-namespace", "finefs-locks/meter-off", "memory_store"];

fn stress([package, feature, test]: Test, args: &[&str]) -> Result<Command> {
    let host = tools::host()?;
    let suppressions = tools::target_dir().join("tsan-suppressions");
    std::fs::create_dir_all(tools::target_dir())?;
    std::fs::write(&suppressions, SUPPRESSIONS)?;
    let mut command = run::cmd(
        "cargo",
        [
            "test",
            "--quiet",
            "--package",
            package,
            "--features",
            feature,
            "--test",
            test,
            // With a target named, build scripts are built without the sanitizer.
            "--target",
            &host,
            "--",
        ],
    );
    command
        .args(args)
        .current_dir(tools::workspace())
        .env("CARGO_TARGET_DIR", tools::target_dir().join("tsan"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env(
            "RUSTFLAGS",
            "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer",
        )
        .env(
            "TSAN_OPTIONS",
            format!("suppressions={}", suppressions.display()),
        )
        .env("FINEFS_STRESS_MS", "1000");
    Ok(command)
}
