//! The stress test of the locks under the thread sanitizer, and a lock left out to see that the
//! sanitizer is at work.
//!
//! A stable compiler has the sanitizer behind `RUSTC_BOOTSTRAP`. The standard library is not built with
//! it: what only the library orders looks like a race. So the stress test orders its threads by joins,
//! which the sanitizer sees, and the meter, whose registry is under the library's mutex, is left out.

use crate::report::Report;
use crate::run;
use crate::tools;
use anyhow::{Result, bail, ensure};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(1200);
const RACE: &str = "WARNING: ThreadSanitizer: data race";

/// The stress test without a finding, and the one without a lock with one.
pub fn run(report: &mut Report) {
    report.proof("tsan/stress of the locks", all_locks);
    report.proof("tsan/without a lock fails", without_a_lock);
}

/// All locks; what ran.
pub fn all_locks() -> Result<String> {
    let output = run::capture_with(&mut stress(&[])?, b"", LIMIT)?;
    let text = output.both();
    ensure!(output.status.success() && !text.contains(RACE), "{text}");
    let passed = text.lines().filter(|line| line.ends_with("... ok")).count();
    ensure!(passed > 0, "nothing ran:\n{text}");
    Ok(format!("{passed} kinds of locks, no data race"))
}

/// The sanitizer must object.
pub fn without_a_lock() -> Result<String> {
    let output = run::capture_with(&mut stress(&["without_a_lock"])?, b"", LIMIT)?;
    if !output.both().contains(RACE) {
        bail!("the sanitizer did not see a race:\n{}", output.both());
    }
    Ok("said \"data race\"".to_owned())
}

/// Races that are none: the standard library comes built without the sanitizer, which does not
/// understand the fence by which an `Arc` is dropped. A thread's own record is one, and may be freed by
/// whoever joins it.
const SUPPRESSIONS: &str = "race:std::thread::thread::Inner\n";

fn stress(args: &[&str]) -> Result<Command> {
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
            "finefs-locks",
            "--features",
            "meter-off",
            "--test",
            "stress",
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
