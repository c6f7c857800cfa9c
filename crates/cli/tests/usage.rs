//! `finefs` as a new user meets it: help, mistakes, and output that nobody reads or that has no room.

use std::fs::File;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn finefs(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_finefs"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A new image, which goes with the directory.
fn image() -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext2"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

/// A pipe that nobody reads.
fn closed_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full_device() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

#[test]
fn every_command_has_help() {
    let commands = ["mount", "umount", "freeze", "thaw", "info", "bench", "top"];
    let workloads = [
        "postmark",
        "openspeed",
        "dirops",
        "dbench",
        "randrw",
        "append",
        "posix-lock",
        "file-list",
        "seeds",
    ];
    let commands = commands.iter().map(|command| vec![*command]);
    let workloads = workloads.iter().map(|workload| vec!["bench", *workload]);
    for mut arguments in commands.chain(workloads).chain([Vec::new()]) {
        arguments.push("--help");
        let output = finefs(&arguments).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{arguments:?}");
        assert!(help.contains("Usage: "), "{arguments:?}: {help}");
    }
}

#[test]
fn all_mount_options_are_shown() {
    let output = finefs(&["mount", "--help-options"]).output().unwrap();
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for option in ["nodiratime", "stripe=", "usrquota", "kernel_cache"] {
        assert!(page.contains(option), "{option}");
    }
    let (code, said) = run(&mut finefs(&["mount", "--help-options", "image"]));
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn mistakes_are_told_and_named() {
    let (_dir, image) = image();
    for (arguments, status, line) in [
        (
            &["unmout", "/mnt"][..],
            2,
            "unrecognized subcommand 'unmout'",
        ),
        (&["nothing.img", "/mnt"], 1, "nothing.img: no such file"),
        (&["mount", "--memory"], 2, "<IMAGE>"),
        (&["mount", &image], 2, "give the image and the directory"),
        (
            &["mount", "--memory", "-o", "size=4k", "/tmp"],
            1,
            "64k at least",
        ),
        (
            &["mount", "--memory", "/none"],
            1,
            "/none: no such directory",
        ),
        (
            &["mount", &image, "/tmp", "-o", "offset=5%"],
            1,
            "offset=5%: give a number of bytes",
        ),
        (
            &["mount", &image, "/tmp", "--log", "/none/log"],
            1,
            "cannot log there: No such file",
        ),
        (
            &["umount", "/none"],
            1,
            "/none: No such file or directory\n",
        ),
        (&["freeze", "/"], 1, "/: "),
        (&["top", "/none"], 1, "/none: No such file or directory\n"),
        (&["info", "/none"], 1, "/none: no such file"),
        (&["info", "/"], 1, "/: is a directory"),
        (
            &["info", &image, "--offset=5%"],
            2,
            "'--offset <SIZE>': give a number of bytes",
        ),
        (
            &["info", &image, "--offset=x"],
            2,
            "'--offset <SIZE>': not a size",
        ),
        (&["info", &image, "--offset=1t"], 1, "outside of the image"),
        (
            &["bench", "openspeed", "--threads=1000000"],
            2,
            "'--threads <N>': give a number, 1 to 10000",
        ),
        (
            &["bench", "openspeed", "--operations=0"],
            2,
            "'--operations <N>': give a number, at least 1",
        ),
        (
            &["bench", "openspeed", "--seconds=nan"],
            2,
            "'--seconds <S>': give seconds",
        ),
        (
            &["bench", "openspeed", "--seconds", "-1"],
            2,
            "'--seconds <S>': give seconds",
        ),
        (
            &["bench", "openspeed", "--warm-up", "-1"],
            2,
            "'--warm-up <S>': give seconds",
        ),
        (&["bench", "openspeed", "--memory=4k"], 1, "64k at least"),
        (
            &["bench", "openspeed", "--locking=none"],
            2,
            "possible values: fine, big-spin",
        ),
        (
            &["bench", "openspeed", "--dir=/none"],
            1,
            "/none: No such file or directory\n",
        ),
        (
            &["bench", "openspeed", "--dir=/sys"],
            1,
            "/sys: cannot make a directory there",
        ),
        (
            &["bench", "seeds", "--html=/none/page"],
            1,
            "/none/page: No such file or directory\n",
        ),
        (
            &["bench", "seeds", "--threads=0"],
            2,
            "'--threads <N>': give a number",
        ),
    ] {
        let (code, said) = run(&mut finefs(arguments));
        assert_eq!(code, Some(status), "{arguments:?}: {said}");
        assert!(said.contains(line), "{arguments:?}: {said}");
        assert!(!said.contains("os error"), "{arguments:?}: {said}");
    }
}

#[test]
fn threads_that_find_no_room_are_an_error() {
    let bench = finefs(&["bench", "openspeed", "--memory=16m", "--threads=9000"]);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -v 3000000; exec \"$0\" \"$@\""])
        .arg(bench.get_program())
        .args(bench.get_args());
    let (code, said) = run(&mut limited);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("finefs: cannot start thread "), "{said}");
}

/// What prints much, a little, and at the end of some work.
fn what_prints(image: &str) -> [Vec<&str>; 5] {
    let bench = ["bench", "openspeed", "--operations=10"];
    [
        vec!["info", image],
        vec!["info", "--json", image],
        bench.to_vec(),
        [&bench[..], &["--json"]].concat(),
        vec!["bench", "dbench", "--dual", "--operations=5", "--threads=1"],
    ]
}

#[test]
fn a_reader_that_goes_is_no_error() {
    let (_dir, image) = image();
    for arguments in what_prints(&image) {
        let (code, said) = run(finefs(&arguments).stdout(closed_pipe()));
        assert_eq!((code, said.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn output_that_finds_no_room_is_an_error() {
    let (_dir, image) = image();
    for arguments in what_prints(&image) {
        let (code, said) = run(finefs(&arguments).stdout(full_device()));
        let line = "finefs: standard output: No space left on device\n";
        assert_eq!((code, said.as_str()), (Some(1), line), "{arguments:?}");
    }
}

#[test]
fn what_is_said_beside_needs_no_reader() {
    let over = ["bench", "openspeed", "--operations=10", "--threshold-us=0"];
    for nowhere in [closed_pipe(), full_device()] {
        let mut command = finefs(&over);
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
    let mut command = finefs(&["bench", "seeds", "--seconds=0.02", "--rounds=1"]);
    command.args(["--only=files-lock", "--html"]).arg(&page);
    let (code, said) = run(command.stdout(full_device()));
    assert_eq!(code, Some(1), "{said}");
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.trim_end().ends_with("</html>"), "{}", text.len());
}
