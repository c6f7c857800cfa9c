//! What one thread does alone stays a small part of operations: counts of instructions, which no
//! load of the machine changes.

use std::process::{Command, Stdio};

/// Of operations on names. Data is written out by one thread at a time.
#[test]
fn little_is_left_to_one_thread_alone() {
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok();
    if !has_valgrind {
        eprintln!("skipped: no valgrind here");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_finefs-bench"))
        .args(["sequential", "--json", "--operations", "4000"])
        .args(["--only", "create,rename,create-unlink", "--dir"])
        .arg(scratch.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (row, percent_max) in rows.as_array().unwrap().iter().zip([12.0, 12.0, 4.0]) {
        let count = |of: &str| row[of].as_f64().unwrap();
        let (all, turns) = (count("instructions"), count("in_turns"));
        let alone = 100.0 * count("one_thread_alone") / all;
        assert!(all > 1000.0, "{row}");
        assert!(turns > 0.0, "{row}: no commit was counted");
        assert!(alone <= percent_max, "{row}: {alone} % by one thread alone");
    }
}
