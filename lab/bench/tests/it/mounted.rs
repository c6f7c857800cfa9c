//! What `finefs-bench` says of a mount of finefs: which locks stand around its operations.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The command finefs, built as this program is and put beside it. It is built for a test of its
/// own package, with the features that the tests of the whole workspace have: after those there is
/// nothing to do, where for the package alone half of it would be compiled once more. `make test`,
/// which has built all, says so by `FINEFS_BUILT`: cargo would wait for what else is built.
fn finefs() -> PathBuf {
    let bench = Path::new(env!("CARGO_BIN_EXE_finefs-bench"));
    if std::env::var_os("FINEFS_BUILT").is_some() {
        return bench.with_file_name("finefs");
    }
    let mut build = finefs_harness::run::cargo([
        "test",
        "--quiet",
        "--workspace",
        "--no-run",
        "--test",
        "serve",
    ]);
    assert!(build.status().unwrap().success());
    bench.with_file_name("finefs")
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_locks_of_a_mount_are_named() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: needs root and /dev/fuse");
        return;
    }
    let (place, finefs) = (tempfile::tempdir().unwrap(), finefs());
    let mut mount = Command::new(&finefs);
    mount.args(["mount", "--memory", "-o", "locking=big-sleep"]);
    succeed(mount.arg(place.path()));
    // By way of the command, which finds the program beside itself.
    let mut studies = Command::new(&finefs);
    studies.args(["bench", "studies", "--only=bkl-semaphore", "--seconds=0.02"]);
    let outcome = studies
        .args(["--rounds=1", "--dir"])
        .arg(place.path())
        .output();
    succeed(Command::new(&finefs).arg("umount").arg(place.path()));
    let text = String::from_utf8(outcome.unwrap().stdout).unwrap();
    assert!(text.contains("(finefs, mounted, big-sleep)"), "{text}");
    assert!(
        text.contains("| measured  | finefs, mounted, big-sleep"),
        "{text}"
    );
}
