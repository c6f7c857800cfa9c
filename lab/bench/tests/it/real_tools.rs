//! `finefs-bench real-tools` leaves nothing where it measured, when it is ended by a signal.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

/// Some directory in `dir` has this name.
fn has(dir: &Path, name: &str) -> bool {
    let below = std::fs::read_dir(dir).unwrap();
    below
        .filter_map(Result::ok)
        .any(|own| own.path().join(name).exists())
}

#[test]
fn a_signal_ends_the_programs_and_removes_their_files() {
    if finefs_harness::tools::which("dbench").is_none() {
        eprintln!("skipped: no dbench here; `cargo run -p xtask -- setup` installs it");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_finefs-bench"))
        .args([
            "real-tools",
            "--only=dbench",
            "--clients=2",
            "--seconds=600",
        ])
        .arg(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !has(dir.path(), "clients") {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "it does not start"
        );
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(is_empty(dir.path()), "left behind");
}
