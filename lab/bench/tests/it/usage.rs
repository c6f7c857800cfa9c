//! `finefs-bench` as a new user meets it: help, mistakes, and output that nobody reads or that has
//! no room.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finefs-bench"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (_, writer) = std::io::pipe().unwrap();
    writer.into()
}

fn full_device() -> Stdio {
    File::create("/dev/full").unwrap().into()
}

#[test]
fn every_workload_has_help() {
    for workload in [
        "postmark",
        "openspeed",
        "dirops",
        "dbench",
        "randrw",
        "append",
        "posix-lock",
        "file-list",
        "studies",
    ] {
        let output = bench(&[workload, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{workload}");
        assert!(help.contains("Usage: "), "{workload}: {help}");
    }
}

#[test]
fn mistakes_are_told_and_named() {
    for (arguments, status, line) in [
        (
            &["openspeed", "--threads=1000000"][..],
            2,
            "'--threads <N>': give a number, 1 to 10000",
        ),
        (
            &["openspeed", "--operations=0"],
            2,
            "'--operations <N>': give a number, at least 1",
        ),
        (
            &["openspeed", "--seconds=nan"],
            2,
            "'--seconds <S>': give seconds",
        ),
        (
            &["openspeed", "--seconds", "-1"],
            2,
            "'--seconds <S>': give seconds",
        ),
        (
            &["openspeed", "--warm-up", "-1"],
            2,
            "'--warm-up <S>': give seconds",
        ),
        (&["openspeed", "--memory=4k"], 1, "64k at least"),
        (
            &["openspeed", "--locking=none"],
            2,
            "possible values: fine, big-spin",
        ),
        (
            &["openspeed", "--dir=/none"],
            1,
            "/none: No such file or directory\n",
        ),
        (
            &["openspeed", "--dir=/sys"],
            1,
            "/sys: cannot make a directory there",
        ),
        (
            &["studies", "--html=/none/page"],
            1,
            "/none/page: No such file or directory\n",
        ),
        (
            &["studies", "--threads=0"],
            2,
            "'--threads <N>': give a number",
        ),
    ] {
        let (code, said) = run(&mut bench(arguments));
        assert_eq!(code, Some(status), "{arguments:?}: {said}");
        assert!(said.contains(line), "{arguments:?}: {said}");
        assert!(!said.contains("os error"), "{arguments:?}: {said}");
    }
}

#[test]
fn threads_that_find_no_room_are_an_error() {
    let program = bench(&["openspeed", "--memory=16m", "--threads=9000"]);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -v 3000000; exec \"$0\" \"$@\""])
        .arg(program.get_program())
        .args(program.get_args());
    let (code, said) = run(&mut limited);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.starts_with("finefs-bench: cannot start thread "),
        "{said}"
    );
}

#[test]
fn what_is_said_beside_needs_no_reader() {
    let over = ["openspeed", "--operations=10", "--threshold-us=0"];
    for nowhere in [closed_pipe(), full_device()] {
        let mut command = bench(&over);
        let output = command.stderr(nowhere).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout.starts_with(b"openspeed: "), "{output:?}");
    }
}

/// A page is minutes of work, and is complete where the text beside it goes nowhere.
#[test]
fn a_page_is_written_before_the_text() {
    let dir = TempDir::new().unwrap();
    let page = dir.path().join("page.html");
    let mut command = bench(&["studies", "--seconds=0.02", "--rounds=1"]);
    command.args(["--only=files-lock", "--html"]).arg(&page);
    let (code, said) = run(command.stdout(full_device()));
    assert_eq!(code, Some(1), "{said}");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.trim_end().ends_with("</html>"), "{}", text.len());
}

/// What prints a little, also at the end of some work.
fn what_prints() -> [Vec<&'static str>; 3] {
    let openspeed = ["openspeed", "--operations=10"];
    [
        openspeed.to_vec(),
        [&openspeed[..], &["--json"]].concat(),
        vec!["dbench", "--dual", "--operations=5", "--threads=1"],
    ]
}

#[test]
fn a_reader_that_goes_is_no_error() {
    for arguments in what_prints() {
        let (code, said) = run(bench(&arguments).stdout(closed_pipe()));
        assert_eq!((code, said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn output_that_finds_no_room_is_an_error() {
    for arguments in what_prints() {
        let (code, said) = run(bench(&arguments).stdout(full_device()));
        let line = "finefs-bench: standard output: No space left on device\n";
        assert_eq!((code, said.as_str()), (Some(1), line), "{arguments:?}");
    }
}
